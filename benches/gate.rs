//! What the write gate costs: from a sender's socket to the distributor behind it, and what a
//! refusal costs beside that.
//!
//! Requests of 1000 series with 10 labels come over HTTP on a few connections; the gate reads,
//! validates and charges them and sends the received bytes on to a stub that reads them. Sender,
//! gate and stub have a thread each; what counts is the kernel's count of the gate's CPU time.
//! The rival of the admitted path is a TCP proxy that copies the same bytes and knows nothing;
//! that of the refused path is the admitted one.
//!
//! `cargo bench --bench gate`, with `-- --long` for numbers worth keeping; `--test` only proves
//! that it runs.
#![expect(clippy::disallowed_methods, reason = "the bench drives its connections to their end")]

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use freehold::app::WriteGate;
use freehold::config::{Config, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

#[path = "shared/mod.rs"]
mod shared;

const SERIES: u64 = 1000;
/// Senders at once, each waiting for its answer.
const CONNECTIONS: usize = 4;
const MIDDLE_THREAD: &str = "bench-middle";
const PROXY_BUFFER_BYTES: usize = 64 << 10;
/// Between two requests of the tenant whose latency is measured: some 45,000 samples a second.
const CALM_PAUSE: Duration = Duration::from_millis(20);
/// Of the other tenant's requests, for one of those that are admitted.
const FLOOD_TIMES: u32 = 10;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (rounds, requests, calm) = match (shared::is_test(), has("--long")) {
        (true, _) => (1, 8, 4),
        (_, true) => (11, 2000, 2000),
        _ => (5, 400, 400),
    };
    let (stub, middle, client) =
        (runtime("bench-stub"), runtime(MIDDLE_THREAD), runtime("bench-client"));
    let behind = stub.block_on(start_stub());
    let limits = limits_file();
    let gate = middle.block_on(start_gate(behind, limits.path()));
    let proxy = middle.block_on(start_proxy(behind));
    let body = shared::request(0..SERIES, 1_700_000_000_000);
    let body = snap::raw::Encoder::new().compress_vec(&body).expect("packs");
    println!("{SERIES} series each, {} bytes packed", body.len());

    let runs = [
        ("admitted", gate, "in-limit", 200),
        ("TCP proxy", proxy, "in-limit", 200),
        ("refused", gate, "over", 429),
    ];
    let mut micros = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        for ((_, address, tenant, status), micros) in runs.iter().zip(&mut micros) {
            let before = middle_cpu_ns();
            client.block_on(flood(*address, tenant, &body, requests, *status));
            micros.push((middle_cpu_ns() - before) as f64 / 1e3 / requests as f64);
        }
    }
    let mut medians = [0.0; 3];
    for (((name, ..), micros), median) in runs.iter().zip(&mut micros).zip(&mut medians) {
        micros.sort_by(f64::total_cmp);
        *median = micros[micros.len() / 2];
        let per_second = SERIES as f64 / *median * 1e6;
        println!(
            "{name:10} {median:8.1} CPU µs per request (least {:.1}), {per_second:10.0} samples/s per core",
            micros[0]
        );
    }
    println!("admitted / TCP proxy: {:.2}", medians[0] / medians[1]);
    println!("refused / admitted: {:.2}", medians[2] / medians[0]);

    let before_kib = resident_kib();
    let unloaded = client.block_on(latencies(gate, &body, calm));
    let (beside, refused) = client.block_on(async {
        let flooding = tokio::spawn(paced(gate, "over", body.clone(), 429));
        let beside = latencies(gate, &body, calm).await;
        flooding.abort();
        (beside, REFUSED.swap(0, Relaxed))
    });
    let loaded = client.block_on(async {
        let flooding = flood(gate, "over", &body, requests * 10, 429);
        let measuring = latencies(gate, &body, calm);
        tokio::join!(flooding, measuring).1
    });
    println!(
        "p99 of a tenant within its limit: {unloaded:?} unloaded, {beside:?} beside {:.1} times as \
         many requests that are refused ({:.2} x), {loaded:?} beside as many as there can be",
        refused as f64 / calm as f64,
        beside.as_secs_f64() / unloaded.as_secs_f64(),
    );
    println!("resident: {before_kib} KiB before the flood, {} KiB after", resident_kib());
}

fn runtime(name: &str) -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(name)
        .enable_all()
        .build()
        .expect("runtime")
}

/// CPU time of the middle's threads, from the scheduler's own count.
fn middle_cpu_ns() -> u64 {
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file));
        let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else {
            continue; // the thread has ended
        };
        if name.trim() == MIDDLE_THREAD {
            let cpu_ns = stat.split(' ').next().expect("a field");
            total += cpu_ns.parse::<u64>().expect("nanoseconds");
        }
    }
    total
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn limits_file() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"overrides: {over: {ingestion_rate: 1, ingestion_burst_size: 1}}")
        .expect("write");
    file
}

/// All servers run until the process ends.
async fn start_gate(upstream: SocketAddr, limits: &std::path::Path) -> SocketAddr {
    let mut config = Config::for_target(Target::Distributor);
    config.distributor.upstream.url = format!("http://{upstream}");
    config.server.http_listen_address = "127.0.0.1".into();
    config.server.http_listen_port = 0;
    config.admin.http_listen_address = "127.0.0.1:0".into();
    config.limits.ingestion_rate = 1e12;
    config.limits.ingestion_burst_size = 1 << 40;
    config.runtime_config.file = limits.to_str().expect("UTF-8").to_owned();
    let gate = WriteGate::start(config).await.expect("starts");
    let address = gate.http_address;
    std::mem::forget(gate);
    address
}

async fn start_proxy(upstream: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.expect("accept");
            let mut far = TcpStream::connect(upstream).await.expect("connect");
            near.set_nodelay(true).and(far.set_nodelay(true)).expect("nodelay");
            tokio::spawn(async move {
                let buffer = PROXY_BUFFER_BYTES;
                let copied = tokio::io::copy_bidirectional_with_sizes;
                let _ = copied(&mut near, &mut far, buffer, buffer).await;
            });
        }
    });
    address
}

/// A distributor that takes everything.
async fn start_stub() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("accept");
            stream.set_nodelay(true).expect("nodelay");
            tokio::spawn(async move {
                while read_message(&mut stream).await.is_some() {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Reads one message to its end; its head, or `None` at the end of the connection.
async fn read_message(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = vec![0; 64 << 10];
    let mut head = Vec::new();
    loop {
        let read = stream.read(&mut bytes).await.ok().filter(|read| *read > 0)?;
        head.extend_from_slice(&bytes[..read]);
        let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&head[..end]).to_lowercase();
        let len = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let len: usize = len.map_or(0, |len| len.parse().expect("a length"));
        let mut left = len - (head.len() - end - 4);
        while left > 0 {
            let most = left.min(bytes.len());
            left -= stream.read(&mut bytes[..most]).await.ok().filter(|read| *read > 0)?;
        }
        return Some(text);
    }
}

fn message(tenant: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /api/v1/push HTTP/1.1\r\nHost: gate\r\nX-Scope-OrgID: {tenant}\r\n\
         Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\
         X-Prometheus-Remote-Write-Version: 0.1.0\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends so many requests over a few connections, each as soon as the last is answered.
async fn flood(address: SocketAddr, tenant: &str, body: &[u8], requests: usize, status: u16) {
    let message: std::sync::Arc<[u8]> = message(tenant, body).into();
    let expect = format!("http/1.1 {status} ");
    let mut senders = Vec::new();
    for _ in 0..CONNECTIONS {
        let (message, expect) = (message.clone(), expect.clone());
        senders.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.expect("connect");
            stream.set_nodelay(true).expect("nodelay");
            for _ in 0..requests / CONNECTIONS {
                stream.write_all(&message).await.expect("write");
                let head = read_message(&mut stream).await.expect("an answer");
                assert!(head.starts_with(&expect), "{head}");
            }
        }));
    }
    for sender in senders {
        sender.await.expect("no panic");
    }
}

/// Requests of `paced` that were answered.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Sends ten requests for each of the tenant that is measured, at their times, until it is dropped.
async fn paced(address: SocketAddr, tenant: &'static str, body: Vec<u8>, status: u16) {
    let message: std::sync::Arc<[u8]> = message(tenant, &body).into();
    let mut senders = tokio::task::JoinSet::new();
    let pause = CALM_PAUSE * CONNECTIONS as u32 / FLOOD_TIMES;
    for number in 0..CONNECTIONS as u32 {
        let message = message.clone();
        let expect = format!("http/1.1 {status} ");
        senders.spawn(async move {
            let mut stream = TcpStream::connect(address).await.expect("connect");
            stream.set_nodelay(true).expect("nodelay");
            // Not all at once.
            let start = tokio::time::Instant::now() + pause * number / CONNECTIONS as u32;
            let mut times = tokio::time::interval_at(start, pause);
            loop {
                times.tick().await;
                stream.write_all(&message).await.expect("write");
                let head = read_message(&mut stream).await.expect("an answer");
                assert!(head.starts_with(&expect), "{head}");
                REFUSED.fetch_add(1, Relaxed);
            }
        });
    }
    while senders.join_next().await.is_some() {}
}

/// The 99th percentile of the time to an answer for a tenant that sends at its pace.
async fn latencies(address: SocketAddr, body: &[u8], requests: usize) -> Duration {
    let message = message("calm", body);
    let mut stream = TcpStream::connect(address).await.expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let mut took = Vec::with_capacity(requests);
    for _ in 0..requests {
        let sent = Instant::now();
        stream.write_all(&message).await.expect("write");
        let head = read_message(&mut stream).await.expect("an answer");
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        took.push(sent.elapsed());
        tokio::time::sleep(CALM_PAUSE).await;
    }
    took.sort_unstable();
    took[took.len() * 99 / 100]
}
