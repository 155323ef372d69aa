//! A Cortex distributor, its etcd, and freeholds behind it: real processes on loopback.
//!
//! etcd holds the ring for Cortex; each freehold gets the same ring as a file. We write both, so
//! a test decides who is in the ring, in which state and with which tokens.
//! Children are killed when their handles are dropped, also when a test fails.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use freehold::ring::model::{Instance, InstanceState, RingModel, Token};
use freehold::wire::proto::cortexpb::{LabelPair, Sample, TimeSeries, WriteRequest};
use freehold::wire::ring_desc;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A wait in these tests fails after so long.
pub const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
const TOKENS: usize = 128;
const RING_KEY: &str = "collectors/ring";

/// A Cortex binary that is ready to run; nothing of it is built here.
pub fn cortex_binary() -> Option<PathBuf> {
    let binary = std::env::var_os("FREEHOLD_CORTEX_BIN").map(PathBuf::from);
    if binary.is_none() {
        println!("skipped: FREEHOLD_CORTEX_BIN names no Cortex binary");
    }
    binary
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RingFile {
    /// The raw value, as etcd holds it.
    Value,
    /// The distributor's `/ring` page.
    Page,
}

/// What a cluster is started with. Flags in `both` go to Cortex and to every freehold.
pub struct Setup {
    pub instances: usize,
    /// In the ring from the start; the others are added by tests.
    pub members: usize,
    pub zones: usize,
    pub replication_factor: usize,
    pub ring_file: RingFile,
    pub both: Vec<String>,
    pub cortex: Vec<String>,
    pub freehold: Vec<String>,
    pub store: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            instances: 3,
            members: 3,
            zones: 0,
            replication_factor: 3,
            ring_file: RingFile::Value,
            both: Vec::new(),
            cortex: Vec::new(),
            freehold: Vec::new(),
            store: false,
        }
    }
}

pub struct Cluster {
    pub setup: Setup,
    pub ring: RingModel,
    pub freeholds: Vec<Freehold>,
    distributor: Process,
    distributor_port: u16,
    _etcd: Process,
    etcd_url: String,
    dir: tempfile::TempDir,
}

pub struct Freehold {
    pub id: String,
    pub grpc_port: u16,
    http_port: u16,
    flags: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
}

/// A child that dies with its handle.
struct Process(Child);

pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Setup {
    /// `None`, said aloud, where there is no Cortex.
    pub async fn start(self) -> Option<Cluster> {
        let binary = cortex_binary()?;
        let dir = tempfile::tempdir().expect("a directory");
        let (client, peer) = (free_port(), free_port());
        let etcd_url = format!("http://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let etcd = Process::start(
            Path::new("etcd"),
            &[
                format!("--data-dir={}", dir.path().join("etcd").display()),
                format!("--listen-client-urls={etcd_url}"),
                format!("--advertise-client-urls={etcd_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
            ],
            &dir.path().join("etcd.log"),
        );
        until("etcd answers", async || http(client, "GET", "/health", &[], b"").await.is_ok())
            .await;

        let distributor_port = free_port();
        let mut flags = vec![
            "-target=distributor".to_owned(),
            "-server.http-listen-address=127.0.0.1".to_owned(),
            format!("-server.http-listen-port={distributor_port}"),
            "-server.grpc-listen-address=127.0.0.1".to_owned(),
            format!("-server.grpc-listen-port={}", free_port()),
            "-ring.store=etcd".to_owned(),
            format!("-etcd.endpoints={etcd_url}"),
            "-distributor.ring.store=inmemory".to_owned(),
            "-distributor.ring.instance-addr=127.0.0.1".to_owned(),
            "-memberlist.bind-addr=127.0.0.1".to_owned(),
            format!("-memberlist.bind-port={}", free_port()),
            "-distributor.remote-timeout=20s".to_owned(),
        ];
        flags.extend(setup_flags(&self));
        flags.extend(self.cortex.iter().cloned());
        let distributor = Process::start(&binary, &flags, &dir.path().join("cortex.log"));

        let ring_path = dir.path().join("ring");
        let freeholds = (0..self.instances).map(|index| {
            let mut freehold = Freehold::new(index, &self, dir.path(), &ring_path);
            freehold.start();
            freehold
        });
        let freeholds = freeholds.collect::<Vec<_>>();
        let mut cluster = Cluster {
            ring: RingModel::default(),
            freeholds,
            distributor,
            distributor_port,
            _etcd: etcd,
            etcd_url,
            dir,
            setup: self,
        };
        for index in 0..cluster.setup.members {
            cluster.join(index);
        }
        until("the distributor is ready", async || {
            cluster.get("/ready").await.is_ok_and(|a| a.status == 200)
        })
        .await;
        cluster.publish().await;
        for freehold in &cluster.freeholds {
            freehold.until_ready().await;
        }
        Some(cluster)
    }
}

impl Cluster {
    /// Puts a freehold into the ring; `publish` makes it known.
    pub fn join(&mut self, index: usize) {
        let freehold = &self.freeholds[index];
        let zones = self.setup.zones;
        let instance = Instance {
            addr: format!("127.0.0.1:{}", freehold.grpc_port),
            timestamp_s: unix_s(),
            state: InstanceState::Active,
            tokens: tokens(index),
            zone: if zones == 0 { String::new() } else { format!("zone-{}", index % zones) },
            registered_timestamp_s: unix_s() - 7200,
            unknown_fields: Vec::new(),
        };
        self.ring.instances.insert(freehold.id.clone(), instance);
    }

    pub fn set_state(&mut self, index: usize, state: InstanceState) {
        let id = &self.freeholds[index].id;
        self.ring.instances.get_mut(id).expect("a member").state = state;
    }

    /// Gives the ring to Cortex and to the freeholds, and waits until all act on it.
    pub async fn publish(&mut self) {
        for instance in self.ring.instances.values_mut() {
            instance.timestamp_s = unix_s();
        }
        let value = ring_desc::encode(&self.ring).expect("a small ring");
        self.put_into_etcd(&value);
        let mut page = String::new();
        until("the distributor has the ring", async || {
            let answer = self.get("/ring").await.expect("a page");
            page = answer.body;
            let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
            let shards = page["shards"].as_array().cloned().unwrap_or_default();
            shards.len() == self.ring.instances.len()
                && shards.iter().all(|shard| {
                    let id = shard["id"].as_str().expect("an id");
                    self.ring.instances.get(id).is_some_and(|instance| {
                        shard["state"].as_str() == Some(instance.state.name())
                    })
                })
        })
        .await;
        let bytes = match self.setup.ring_file {
            RingFile::Value => value,
            RingFile::Page => page.into_bytes(),
        };
        // Renamed into place, so that nobody reads half of it.
        let fresh = self.dir.path().join("ring.new");
        std::fs::write(&fresh, bytes).expect("written");
        std::fs::rename(&fresh, self.dir.path().join("ring")).expect("renamed");
        let members = self.ring.instances.values();
        for state in InstanceState::ALL {
            let count = members.clone().filter(|member| member.state == state).count();
            for freehold in self.freeholds.iter().filter(|freehold| freehold.process.is_some()) {
                until("a freehold has the ring", async || {
                    freehold.metric("cortex_ring_members", &[("state", state.name())]).await
                        == count as f64
                })
                .await;
            }
        }
    }

    fn put_into_etcd(&self, value: &[u8]) {
        use std::io::Write as _;
        let mut put = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.etcd_url, "put", RING_KEY])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("etcdctl");
        put.stdin.take().expect("piped").write_all(value).expect("written");
        assert!(put.wait().expect("waited").success());
    }

    pub async fn get(&self, path: &str) -> std::io::Result<Answer> {
        http(self.distributor_port, "GET", path, &[("Accept", "application/json")], b"").await
    }

    /// Remote write of `series` of one tenant, one sample each.
    pub async fn push(&self, tenant: &str, series: std::ops::Range<usize>) -> Answer {
        let body = snap::raw::Encoder::new().compress_vec(&write_request(series)).expect("packed");
        let headers = [
            ("X-Scope-OrgID", tenant),
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "snappy"),
            ("X-Prometheus-Remote-Write-Version", "0.1.0"),
        ];
        http(self.distributor_port, "POST", "/api/v1/push", &headers, &body)
            .await
            .expect("an answer")
    }

    pub async fn push_all(&self, tenant: &str, series: std::ops::Range<usize>, step: usize) {
        for start in series.clone().step_by(step) {
            let answer = self.push(tenant, start..(start + step).min(series.end)).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
    }

    pub async fn series(&self, metric: &str, tenant: &str) -> Vec<u64> {
        let mut counts = Vec::new();
        for freehold in &self.freeholds {
            counts.push(freehold.metric(metric, &[("user", tenant)]).await as u64);
        }
        counts
    }

    pub async fn owned(&self, tenant: &str) -> Vec<u64> {
        self.series("cortex_ingester_owned_series", tenant).await
    }

    pub async fn in_memory(&self, tenant: &str) -> Vec<u64> {
        self.series("freehold_ingester_memory_series", tenant).await
    }

    pub fn logs(&self) -> String {
        let mut text = String::new();
        for name in ["cortex.log", "freehold-0.log"] {
            let log = std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
            let lines = log.lines().rev().take(20).collect::<Vec<_>>();
            let _ = writeln!(text, "{name}:");
            lines.iter().rev().for_each(|line| {
                let _ = writeln!(text, "  {line}");
            });
        }
        text
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        let _ = self.distributor.0.kill();
    }
}

impl Freehold {
    fn new(index: usize, setup: &Setup, dir: &Path, ring_path: &Path) -> Self {
        let (http_port, grpc_port) = (free_port(), free_port());
        let id = format!("freehold-{index}");
        let mut flags = vec![
            "-target=ingester".to_owned(),
            "-server.http-listen-address=127.0.0.1".to_owned(),
            format!("-server.http-listen-port={http_port}"),
            "-server.grpc-listen-address=127.0.0.1".to_owned(),
            format!("-server.grpc-listen-port={grpc_port}"),
            format!("-ingester.lifecycler.ID={id}"),
            "-ring.store=file".to_owned(),
            format!("-ring.file.path={}", ring_path.display()),
            "-ring.file.poll-interval=100ms".to_owned(),
            format!("-store.path={}", dir.join(&id).display()),
            format!("-store.enabled={}", setup.store),
        ];
        flags.extend(setup_flags(setup));
        flags.extend(setup.freehold.iter().cloned());
        let log = dir.join(format!("{id}.log"));
        Self { id, grpc_port, http_port, flags, log, process: None }
    }

    pub fn start(&mut self) {
        let binary = Path::new(env!("CARGO_BIN_EXE_freehold"));
        self.process = Some(Process::start(binary, &self.flags, &self.log));
    }

    /// SIGKILL: nothing is written any more.
    pub fn kill(&mut self) {
        self.process = None;
    }

    pub async fn until_ready(&self) {
        until("a freehold is ready", async || {
            http(self.http_port, "GET", "/ready", &[], b"").await.is_ok_and(|a| a.status == 200)
        })
        .await;
    }

    /// Sum of the samples with these labels.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let Ok(answer) = http(self.http_port, "GET", "/metrics", &[], b"").await else {
            return f64::NAN;
        };
        let lines = answer.body.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|(k, v)| line.contains(&format!("{k}=\"{v}\"")))
        });
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

impl Process {
    fn start(binary: &Path, flags: &[String], log: &Path) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(log).expect("a log");
        let child = Command::new(binary)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn();
        Self(child.unwrap_or_else(|error| panic!("{}: {error}", binary.display())))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One request on its own connection, as HTTP/1.0, so that the body ends with it.
pub async fn http(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Answer> {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let mut head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n");
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let _ = write!(head, "Content-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) =
            answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(std::io::ErrorKind::InvalidData)?;
        Ok(Answer { status, body: body.trim_end().to_owned() })
    };
    tokio::time::timeout(PATIENCE, exchange).await?
}

/// Polls a condition that other processes make true.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let polling = async {
        while !holds().await {
            tokio::time::sleep(POLL).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, polling).await;
    in_time.unwrap_or_else(|_| panic!("not in time: {what}"));
}

pub fn write_request(series: std::ops::Range<usize>) -> Vec<u8> {
    write_request_at(series, unix_s() * 1000, 0.0)
}

/// One sample for each series: its number and `offset`.
pub fn write_request_at(series: std::ops::Range<usize>, timestamp_ms: i64, offset: f64) -> Vec<u8> {
    let pair =
        |name: &str, value: String| LabelPair { name: name.to_owned().into(), value: value.into() };
    let series = series.map(|number| TimeSeries {
        labels: vec![
            pair("__name__", format!("metric_{}", number % 7)),
            pair("instance", format!("host-{}", number / 7)),
            pair("number", number.to_string()),
        ],
        samples: vec![Sample { value: number as f64 + offset, timestamp_ms, ..Sample::default() }],
        ..TimeSeries::default()
    });
    WriteRequest { timeseries: series.collect(), ..WriteRequest::default() }.encode_to_vec()
}

fn setup_flags(setup: &Setup) -> Vec<String> {
    let mut flags = vec![
        "-distributor.shard-by-all-labels=true".to_owned(),
        format!("-distributor.replication-factor={}", setup.replication_factor),
        format!("-distributor.zone-awareness-enabled={}", setup.zones > 0),
        // Nobody sends heartbeats for the members of this ring.
        "-ring.heartbeat-timeout=1h".to_owned(),
    ];
    flags.extend(setup.both.iter().cloned());
    flags
}

/// Tokens of the member, always the same and all different: a permutation of 32 bits, spread.
fn tokens(index: usize) -> Vec<Token> {
    let number = |n: usize| {
        let mut x = u32::try_from(index * TOKENS + n + 1).expect("few").wrapping_mul(0x9e37_79b1);
        x ^= x >> 16;
        x = x.wrapping_mul(0x85eb_ca6b);
        x ^= x >> 13;
        x.wrapping_mul(0xc2b2_ae35)
    };
    let mut tokens = (0..TOKENS).map(|n| Token(number(n))).collect::<Vec<_>>();
    tokens.sort_unstable();
    tokens
}

/// Below the system's ephemeral ports: one of those may be some connection's by the time a child
/// binds it.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let start = u16::try_from(std::process::id() % 100).expect("small") * 100;
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn unix_s() -> i64 {
    unix_ms() / 1000
}

#[expect(clippy::disallowed_methods, reason = "samples and heartbeats carry the true time")]
pub fn unix_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("a near year")
}
