//! Freehold as its own process, started and killed as people do it, and the calls to it.
//!
//! What must hold: a process never outlives its test; a wait ends with what the process logged.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Longer than any wait on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often a condition outside of this process is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Whether the long forms of the tests are asked for.
pub fn is_long() -> bool {
    std::env::var("FREEHOLD_LONG_TESTS").is_ok_and(|value| value == "1")
}

/// Waits until `look` finds something, or fails with `explain`.
pub async fn wait_for<T>(explain: impl Fn() -> String, look: impl AsyncFn() -> Option<T>) -> T {
    let mut ticks = tokio::time::interval(LOOK);
    let waiting = async {
        loop {
            ticks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(found) => found,
        Err(_) => panic!("waited in vain: {}", explain()),
    }
}

/// A child with its output in a file; killed when dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub fn spawn(command: &mut Command, log: &Path) -> Self {
        let file = File::create(log).expect("a file for the log");
        let errors = file.try_clone().expect("its handle");
        let child = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn();
        Self { child: child.expect("the program starts"), log: log.to_owned() }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// SIGKILL: nothing of the process runs after it.
    pub fn kill(&mut self) {
        self.child.kill().expect("a signal");
        self.child.wait().expect("its end");
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// A running freehold.
pub struct Freehold {
    pub process: Process,
    pub http: SocketAddr,
    /// Where the pages for operators are.
    pub admin: SocketAddr,
    pub grpc: SocketAddr,
}

impl Freehold {
    /// Starts on free ports over the data in `dir`; returns when it has announced itself.
    pub async fn start(dir: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
        command.arg(format!("-store.path={}", dir.join("data").display())).args(flags).args([
            "-server.http-listen-address=127.0.0.1",
            "-server.http-listen-port=0",
            "-server.grpc-listen-address=127.0.0.1",
            "-server.grpc-listen-port=0",
            "-admin.http-listen-address=127.0.0.1:0",
            "-log.format=json",
        ]);
        let process = Process::spawn(&mut command, &dir.join("freehold.log"));
        let explain = || process.log();
        let (http, admin, grpc) = wait_for(explain, async || announced(&process.log())).await;
        Self { process, http, admin, grpc }
    }

    pub async fn wait_ready(&self) {
        let explain = || self.process.log();
        wait_for(explain, async || (self.get("/ready").await.0 == 200).then_some(())).await;
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        let (status, body) = http(self.http, "GET", path, "", &[]).await.expect("an answer");
        (status, String::from_utf8(body).expect("text"))
    }

    /// The value of one metric; its labels as they are written.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(line.parse().expect("a number"))
    }
}

/// What a leak would show in.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    pub sockets: usize,
    pub rss_kib: u64,
    /// The most that was ever resident.
    pub peak_kib: u64,
}

impl Freehold {
    pub fn resources(&self) -> Resources {
        let process = format!("/proc/{}", self.process.id());
        let files = std::fs::read_dir(format!("{process}/fd")).expect("its open files");
        // The store opens and closes files of its own all the time; sockets are the callers'.
        let is_socket = |file: &std::fs::DirEntry| {
            let target = std::fs::read_link(file.path()).unwrap_or_default();
            target.to_string_lossy().starts_with("socket:")
        };
        let status = std::fs::read_to_string(format!("{process}/status")).expect("its status");
        let size = |name: &str| {
            let size = status.lines().find_map(|line| line.strip_prefix(name));
            let size = size.and_then(|size| size.trim().trim_end_matches(" kB").parse().ok());
            size.expect("a resident size")
        };
        Resources {
            sockets: files.flatten().filter(is_socket).count(),
            rss_kib: size("VmRSS:"),
            peak_kib: size("VmHWM:"),
        }
    }
}

pub fn now_ms() -> i64 {
    freehold::clock::Clock::start().now().unix_ms
}

/// HTTP, pages and gRPC.
fn announced(log: &str) -> Option<(SocketAddr, SocketAddr, SocketAddr)> {
    let line = log.lines().find(|line| line.contains("started; look at"))?;
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let address = |name: &str| line[name].as_str()?.parse().ok();
    let http = address("http")?;
    // A write gate takes no gRPC.
    Some((http, address("pages")?, address("grpc").unwrap_or(http)))
}

/// One HTTP/1 request on its own connection; an error if the other side went away.
pub async fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> std::io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).await?;
    // HTTP/1.0, so that no answer is in chunks.
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let cut = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(cut)?;
    let status = std::str::from_utf8(&answer[..end]).ok().and_then(|head| head.split(' ').nth(1));
    let status = status.and_then(|status| status.parse().ok()).ok_or_else(cut)?;
    Ok((status, answer.split_off(end + 4)))
}

/// One HTTP/2 connection for gRPC pushes of one tenant.
pub struct Pusher {
    client: SendRequest<Bytes>,
    _connection: JoinSet<()>,
}

impl Pusher {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).await.expect("connect")
    }

    /// For networks that may fail.
    pub async fn try_connect(address: SocketAddr) -> Result<Self, Box<dyn std::error::Error>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (client, connection) = h2::client::handshake(stream).await?;
        let mut running = JoinSet::new();
        running.spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { client, _connection: running })
    }

    /// Pushes an encoded `WriteRequest`; the answer's gRPC code, or an error if none came.
    pub async fn push(&self, tenant: &str, message: &[u8]) -> Result<i32, h2::Error> {
        let mut client = self.client.clone().ready().await?;
        let request = Request::post("http://localhost/cortex.Ingester/Push")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("x-scope-orgid", tenant)
            .body(())
            .expect("a request");
        let (response, mut send) = client.send_request(request, false)?;
        let mut body = BytesMut::with_capacity(5 + message.len());
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).expect("short"));
        body.put_slice(message);
        // The client buffers what flow control holds back.
        send.send_data(body.freeze(), true)?;
        let (head, mut answer) = response.await?.into_parts();
        while let Some(chunk) = answer.data().await {
            answer.flow_control().release_capacity(chunk?.len())?;
        }
        let trailers = answer.trailers().await?.unwrap_or(head.headers);
        let code = trailers.get("grpc-status").and_then(|code| code.to_str().ok());
        Ok(code.and_then(|code| code.parse().ok()).expect("a status"))
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Label {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Sample {
    #[prost(double, tag = "1")]
    pub value: f64,
    #[prost(int64, tag = "2")]
    pub timestamp_ms: i64,
}
