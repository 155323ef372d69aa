//! CPU and time that the sidecar adds beside a real Cortex ingester, in the same run.
//!
//! The ingester and the sidecar are processes of their own; one in each pair of runs is driven
//! directly, the other through the sidecar, over the same 100,000 series with ever newer samples.
//! Four connections carry one push of 1000 series each at a time, snappy-block, over `Push` and
//! over `PushStream`. CPU is the kernel's count for each process, and the ingester's own
//! spending is the measure, since machines have slow and fast phases. Before that one connection
//! sends one push at a time, directly and through the sidecar in turn, and each is timed.
//!
//! `FREEHOLD_CORTEX_BIN=… cargo bench --bench beside`, with `-- --long` for numbers worth
//! keeping. Without the variable it says that it was skipped.
#![expect(clippy::disallowed_methods, reason = "the bench owns its processes and connections")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use bytes::{BufMut as _, Bytes, BytesMut};
use freehold::ring::model::{Instance, InstanceState, RingModel, Token};
use freehold::wire::proto::cortexpb;
use freehold::wire::ring_desc;
use h2::client::SendRequest;
use http::Request;
use prost::Message as _;

mod shared;

const SERIES: usize = 1000;
const BODIES: usize = 100;
const CONNECTIONS: usize = 4;
const INGESTER_GRPC: u16 = 19_711;
const INGESTER_HTTP: u16 = 19_712;
const SIDECAR_GRPC: u16 = 19_713;
const SIDECAR_HTTP: u16 = 19_714;

fn main() {
    let Ok(cortex) = std::env::var("FREEHOLD_CORTEX_BIN") else {
        println!("skipped: FREEHOLD_CORTEX_BIN names no Cortex binary");
        return;
    };
    let arguments: Vec<String> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (rounds, requests) = match (shared::is_test(), has("--long")) {
        (true, _) => (1, 100),
        (_, true) => (9, 2000),
        _ => (5, 800),
    };
    let dir = tempfile::tempdir().expect("a directory");
    let ingester = start_ingester(&cortex, dir.path());
    let sidecar = start_sidecar(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("runtime");
    runtime.block_on(async {
        until_ready(INGESTER_HTTP).await;
        until_ready(SIDECAR_HTTP).await;
        // All series are there before anything is measured.
        drive(SIDECAR_GRPC, "unary", 2 * BODIES).await;
    });
    show_latencies(&runtime, rounds, requests / 4);
    let processes = [ingester.0.id(), sidecar.0.id()];
    for way in ["unary", "stream"] {
        // CPU seconds per million samples: the ingester alone, the ingester behind, the sidecar.
        let mut figures = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for (port, into) in
                [(INGESTER_GRPC, [Some(0), None]), (SIDECAR_GRPC, [Some(1), Some(2)])]
            {
                let before = processes.map(cpu_s);
                runtime.block_on(drive(port, way, requests));
                for (at, process) in processes.iter().enumerate() {
                    let spent = (cpu_s(*process) - before[at]) / (requests * SERIES) as f64 * 1e6;
                    if let Some(figure) = into[at] {
                        figures[figure].push(spent);
                    }
                }
            }
        }
        let [alone, behind, added] = figures.map(|mut figures| {
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        });
        println!(
            "{way}: the ingester spends {alone:.2} CPU s per million samples directly, \
             {behind:.2} behind the sidecar, which spends {added:.2} ({:.0} %)",
            added / alone * 100.0
        );
    }
}

/// Times single pushes directly and through the sidecar, in turn.
fn show_latencies(runtime: &tokio::runtime::Runtime, rounds: usize, pushes: usize) {
    // Microseconds from a push's first byte to its whole answer: directly, and through the sidecar.
    let mut took = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        for (port, took) in [INGESTER_GRPC, SIDECAR_GRPC].into_iter().zip(&mut took) {
            took.extend(runtime.block_on(one_at_a_time(port, pushes)));
        }
    }
    let [direct, through] = took.map(|mut took| {
        took.sort_unstable();
        [took[took.len() / 2], took[took.len() * 99 / 100]]
    });
    for (at, name) in ["p50", "p99"].into_iter().enumerate() {
        let (direct, through) = (direct[at], through[at]);
        println!(
            "{name} of one push at a time: {direct} us directly, {through} us through the \
             sidecar, which adds {} us",
            i128::from(through) - i128::from(direct)
        );
    }
}

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

fn start(command: &mut Command, dir: &Path, name: &str) -> Running {
    let log = std::fs::File::create(dir.join(name)).expect("a log");
    let errors = log.try_clone().expect("its handle");
    let command = command.current_dir(dir).stdin(Stdio::null()).stdout(log).stderr(errors);
    Running(command.spawn().expect("starts"))
}

fn start_ingester(cortex: &str, dir: &Path) -> Running {
    let flags = [
        "-target=ingester".to_owned(),
        "-server.http-listen-address=127.0.0.1".to_owned(),
        format!("-server.http-listen-port={INGESTER_HTTP}"),
        "-server.grpc-listen-address=127.0.0.1".to_owned(),
        format!("-server.grpc-listen-port={INGESTER_GRPC}"),
        "-server.grpc-max-concurrent-streams=1000".to_owned(),
        "-ring.store=inmemory".to_owned(),
        "-distributor.replication-factor=1".to_owned(),
        "-distributor.shard-by-all-labels=true".to_owned(),
        "-ingester.lifecycler.ID=ingester-0".to_owned(),
        "-ingester.lifecycler.addr=127.0.0.1".to_owned(),
        "-ingester.min-ready-duration=0s".to_owned(),
        "-ingester.join-after=0s".to_owned(),
        "-ingester.max-series-per-user=0".to_owned(),
        "-ingester.max-series-per-metric=0".to_owned(),
        "-memberlist.bind-addr=127.0.0.1".to_owned(),
        "-memberlist.bind-port=19715".to_owned(),
        "-blocks-storage.backend=filesystem".to_owned(),
        "-blocks-storage.filesystem.dir=blocks".to_owned(),
        "-blocks-storage.tsdb.dir=tsdb".to_owned(),
    ];
    start(Command::new(cortex).args(flags), dir, "ingester.log")
}

fn start_sidecar(dir: &Path) -> Running {
    let instance = Instance {
        addr: format!("127.0.0.1:{SIDECAR_GRPC}"),
        timestamp_s: now_ms() / 1000,
        state: InstanceState::Active,
        tokens: (0..128).map(|token| Token(token << 25)).collect(),
        zone: String::new(),
        registered_timestamp_s: 0,
        unknown_fields: Vec::new(),
    };
    let instances = [("ingester-0".to_owned(), instance)].into_iter().collect();
    let model = RingModel { instances, unknown_fields: Vec::new() };
    let ring = dir.join("ring");
    std::fs::write(&ring, ring_desc::encode(&model).expect("small")).expect("written");
    let flags = [
        "-target=ingester".to_owned(),
        "-server.http-listen-address=127.0.0.1".to_owned(),
        format!("-server.http-listen-port={SIDECAR_HTTP}"),
        "-server.grpc-listen-address=127.0.0.1".to_owned(),
        format!("-server.grpc-listen-port={SIDECAR_GRPC}"),
        "-ring.store=file".to_owned(),
        format!("-ring.file.path={}", ring.display()),
        "-ring.heartbeat-timeout=1h".to_owned(),
        "-distributor.replication-factor=1".to_owned(),
        "-ingester.instance-id=ingester-0".to_owned(),
        format!("-ingester.upstream-address=127.0.0.1:{INGESTER_GRPC}"),
        "-ingester.max-global-series-per-user=1000000".to_owned(),
        "-ingester.owned-series-limit-enforcement-enabled=true".to_owned(),
    ];
    start(Command::new(env!("CARGO_BIN_EXE_freehold")).args(flags), dir, "sidecar.log")
}

async fn until_ready(port: u16) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        if let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
            let request = b"GET /ready HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
            stream.write_all(request).await.expect("sent");
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer).await;
            if answer.starts_with("HTTP/1.1 200") {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("nothing ready on port {port}");
}

/// Pushes that many requests over all connections, and waits for all answers.
async fn drive(port: u16, way: &str, requests: usize) {
    let mut pushers = tokio::task::JoinSet::new();
    for pusher in 0..CONNECTIONS {
        let stream = way == "stream";
        pushers.spawn(async move {
            let client = connect(port).await;
            let bodies = (pusher..requests).step_by(CONNECTIONS);
            if stream {
                push_stream(client, bodies).await;
            } else {
                for body in bodies {
                    push(client.clone(), body).await;
                }
            }
        });
    }
    while let Some(ended) = pushers.join_next().await {
        ended.expect("pushed");
    }
}

/// How long each of so many pushes takes, in microseconds.
async fn one_at_a_time(port: u16, pushes: usize) -> Vec<u64> {
    let client = connect(port).await;
    let mut took = Vec::with_capacity(pushes);
    for number in 0..pushes {
        let message = framed(&write_request(number));
        let sent = Instant::now();
        push_framed(client.clone(), message).await;
        took.push(u64::try_from(sent.elapsed().as_micros()).expect("short"));
    }
    took
}

/// The write request with this number: a thousand series, samples of now.
fn write_request(number: usize) -> Vec<u8> {
    let first = (number % BODIES * SERIES) as u64;
    shared::request(first..first + SERIES as u64, now_ms())
}

fn framed(message: &[u8]) -> Bytes {
    let packed = snap::raw::Encoder::new().compress_vec(message).expect("compress");
    let mut bytes = BytesMut::with_capacity(packed.len() + 5);
    bytes.put_u8(1);
    bytes.put_u32(u32::try_from(packed.len()).expect("short"));
    bytes.put_slice(&packed);
    bytes.freeze()
}

fn head(path: &str, tenant: &str) -> Request<()> {
    Request::post(format!("http://localhost/cortex.Ingester/{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-encoding", "snappy-block")
        .header("grpc-accept-encoding", "snappy-block")
        .header("x-scope-orgid", tenant)
        .body(())
        .expect("request")
}

async fn push(client: SendRequest<Bytes>, number: usize) {
    push_framed(client, framed(&write_request(number))).await;
}

async fn push_framed(client: SendRequest<Bytes>, message: Bytes) {
    let mut client = client.ready().await.expect("connection");
    let (response, mut send) = client.send_request(head("Push", "bench"), false).expect("a stream");
    send_all(&mut send, message, true).await;
    let (head, mut answer) = response.await.expect("response").into_parts();
    while let Some(chunk) = answer.data().await {
        let len = chunk.expect("data").len();
        answer.flow_control().release_capacity(len).expect("capacity");
    }
    let trailers = answer.trailers().await.expect("trailers").unwrap_or(head.headers);
    assert_eq!(trailers["grpc-status"], "0", "{trailers:?}");
}

/// One message after the other on one stream, each once the one before is answered.
async fn push_stream(client: SendRequest<Bytes>, numbers: impl Iterator<Item = usize>) {
    let mut client = client.ready().await.expect("connection");
    let worker = "ingester-127.0.0.1-9095-stream-push-worker-1";
    let (response, mut send) =
        client.send_request(head("PushStream", worker), false).expect("a stream");
    let mut response = Some(response);
    let mut answers = None;
    for number in numbers {
        let request = cortexpb::WriteRequest::decode(&*write_request(number)).expect("sound");
        let message = cortexpb::StreamWriteRequest {
            tenant_id: b"bench".to_vec(),
            request: Some(request),
            ..Default::default()
        };
        send_all(&mut send, framed(&message.encode_to_vec()), false).await;
        if let Some(response) = response.take() {
            answers = Some(response.await.expect("response").into_body());
        }
        let answers = answers.as_mut().expect("open");
        let mut got = BytesMut::new();
        let answered = |got: &BytesMut| {
            got.len() >= 5
                && got.len() >= 5 + u32::from_be_bytes([got[1], got[2], got[3], got[4]]) as usize
        };
        while !answered(&got) {
            let chunk = answers.data().await.expect("an answer").expect("data");
            answers.flow_control().release_capacity(chunk.len()).expect("capacity");
            got.extend_from_slice(&chunk);
        }
        let payload = match got[0] {
            0 => got[5..].to_vec(),
            _ => snap::raw::Decoder::new().decompress_vec(&got[5..]).expect("snappy"),
        };
        let answer = cortexpb::WriteResponse::decode(&*payload).expect("an answer");
        assert_eq!(answer.code, 200, "{}", answer.message);
    }
}

async fn send_all(send: &mut h2::SendStream<Bytes>, mut body: Bytes, is_last: bool) {
    while !body.is_empty() {
        send.reserve_capacity(body.len());
        let granted = std::future::poll_fn(|cx| send.poll_capacity(cx)).await;
        let granted = granted.expect("stream").expect("capacity");
        let part = body.split_to(granted.min(body.len()));
        send.send_data(part, is_last && body.is_empty()).expect("send");
    }
}

async fn connect(port: u16) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let (client, connection) = h2::client::handshake(stream).await.expect("handshake");
    tokio::spawn(connection);
    client
}

/// CPU time of a process so far, all threads, ended ones included.
fn cpu_s(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("ticks")).sum();
    // Linux tells them in hundredths of a second, whatever its own clock.
    ticks as f64 / 100.0
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("in range")
}
