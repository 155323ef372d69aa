//! The whole binary with its store, over gRPC: rate, CPU and memory, and what a kill costs.
//!
//! A server process takes pushes of 1000 series from four connections, first all series once and
//! then scrape after scrape. Then it is killed and started again: how long until it is ready, with
//! how many owned series. CPU is the server's alone; the rate shares the machine with the sender.
//!
//! `cargo bench --bench embedded`; `EMBEDDED_SERIES` (100,000), `EMBEDDED_SECS` (30) and
//! `EMBEDDED_SYNC` (200ms) make other shapes. Otherwise, as in the tests, it only proves that it
//! runs.
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../tests/it/process.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod process;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prost::Message as _;
use tokio::task::JoinSet;

use self::process::{Freehold, Label, Pusher, Sample, TimeSeries, WriteRequest};

const PUSH_SERIES: u64 = 1000;
const CONNECTIONS: usize = 4;
/// Pushes at once on each connection.
const IN_FLIGHT: usize = 2;
const TENANT: &str = "bench";

/// An encoded push whose times can be moved.
struct Template {
    message: Vec<u8>,
    /// Where the times stand, six bytes each.
    times: Vec<usize>,
}

impl Template {
    fn new(first: u64, t_ms: i64) -> Self {
        let series = (first..first + PUSH_SERIES).map(|number| TimeSeries {
            labels: labels(number),
            samples: vec![Sample { value: number as f64, timestamp_ms: t_ms }],
        });
        let message = WriteRequest { timeseries: series.collect() }.encode_to_vec();
        let pattern = [&[0x10], varint(t_ms).as_slice()].concat();
        let found = message.windows(7).enumerate().filter(|(_, window)| *window == pattern);
        let times: Vec<usize> = found.map(|(at, _)| at + 1).collect();
        assert_eq!(times.len() as u64, PUSH_SERIES);
        Self { message, times }
    }

    fn at(&self, t_ms: i64) -> Vec<u8> {
        let mut message = self.message.clone();
        let time = varint(t_ms);
        for &at in &self.times {
            message[at..at + 6].copy_from_slice(&time);
        }
        message
    }
}

/// Times of this century take six bytes.
fn varint(t_ms: i64) -> [u8; 6] {
    std::array::from_fn(|i| (t_ms >> (7 * i)) as u8 & 0x7f | if i < 5 { 0x80 } else { 0 })
}

/// Ten labels of about 244 bytes, as in the other benches.
fn labels(series: u64) -> Vec<Label> {
    let label = |name: &str, value: String| Label { name: name.to_owned(), value };
    let fixed = |name: &str, value: &str| label(name, value.to_owned());
    vec![
        label("__name__", format!("http_request_duration_seconds_{}", series % 500)),
        fixed("cluster", "europe-west-production-1"),
        fixed("container", "checkout-service"),
        fixed("handler", "/api/v1/orders/{id}/items"),
        label("instance", format!("10.{}.{}.17:9090", series % 251, series % 241)),
        fixed("job", "kubernetes-pods"),
        fixed("method", "POST"),
        fixed("namespace", "shop-frontend"),
        label("pod", format!("checkout-service-7f9c6d5b4-{series:09}")),
        fixed("status", "200"),
    ]
}

/// Pushes `pushes` times, template after template, each round of them a second later.
async fn push_all(
    freehold: &Freehold,
    templates: &Arc<Vec<Template>>,
    from_ms: i64,
    pushes: u64,
    until: Option<Instant>,
) -> u64 {
    let next = Arc::new(AtomicU64::new(0));
    let mut senders = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let pusher = Arc::new(Pusher::connect(freehold.grpc).await);
        for _ in 0..IN_FLIGHT {
            let (pusher, next, templates) = (pusher.clone(), next.clone(), templates.clone());
            senders.spawn(async move {
                let mut done = 0;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= pushes || until.is_some_and(|until| Instant::now() >= until) {
                        return done;
                    }
                    let round = (number / templates.len() as u64) as i64;
                    let at = (number % templates.len() as u64) as usize;
                    let message = templates[at].at(from_ms + round * 1000);
                    assert_eq!(pusher.push(TENANT, &message).await.expect("an answer"), 0);
                    done += 1;
                }
            });
        }
    }
    senders.join_all().await.into_iter().sum()
}

/// Processor time of a process with all its threads, to 10 ms.
fn cpu_secs(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux");
    let fields = stat.rsplit(')').next().expect("a name in brackets");
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().expect("ticks")).sum::<f64>() / 100.0
}

/// Resident bytes: now, and the most there ever were.
fn resident_bytes(process: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("Linux");
    let read = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("kB") * 1024
    };
    (read("VmRSS:"), read("VmHWM:"))
}

fn main() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let (series, secs) = match is_measured {
        true => (number("EMBEDDED_SERIES").unwrap_or(100_000), number("EMBEDDED_SECS")),
        false => (5000, Some(0)),
    };
    let sync = std::env::var("EMBEDDED_SYNC").unwrap_or_else(|_| "200ms".to_owned());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(measure(series, secs.unwrap_or(30), &sync));
}

async fn measure(series: u64, secs: u64, sync: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        format!("-store.sync-interval={sync}"),
        // A tenant's default rate is far below what is measured here.
        "-distributor.ingestion-rate-limit=1e9".to_owned(),
        "-distributor.ingestion-burst-size=1000000000".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut freehold = Freehold::start(dir.path(), &flags).await;
    freehold.wait_ready().await;
    let id = freehold.process.id();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let now_ms = now.as_millis() as i64 - 600_000;
    let templates = (0..series / PUSH_SERIES).map(|push| Template::new(push * PUSH_SERIES, now_ms));
    let templates: Arc<Vec<Template>> = Arc::new(templates.collect());
    let pushes = templates.len() as u64;

    let (started, cpu) = (Instant::now(), cpu_secs(id));
    push_all(&freehold, &templates, now_ms, pushes, None).await;
    report("creation", pushes, started, cpu_secs(id) - cpu);
    let (started, cpu) = (Instant::now(), cpu_secs(id));
    let until = (secs > 0).then(|| started + Duration::from_secs(secs));
    let most = if secs > 0 { u64::MAX } else { pushes };
    let done = push_all(&freehold, &templates, now_ms + 1000, most, until).await;
    report(&format!("scrapes, sync {sync}"), done, started, cpu_secs(id) - cpu);
    let (now, most) = resident_bytes(id);
    println!("resident: {} B per series now, {} B at most", now / series, most / series);

    freehold.process.kill();
    let started = Instant::now();
    let freehold = Freehold::start(dir.path(), &flags).await;
    freehold.wait_ready().await;
    let ready = started.elapsed();
    let owned = freehold.metric("cortex_ingester_owned_series{user=\"bench\"}").await;
    println!("ready {ready:.2?} after a kill, with {} owned series", owned.unwrap_or(0.0));
    assert_eq!(owned, Some(series as f64));
    let again = push_all(&freehold, &templates, now_ms + 599_000, 1, None).await;
    assert_eq!(again, 1, "pushes are taken again");
}

fn report(what: &str, pushes: u64, started: Instant, cpu_secs: f64) {
    let samples = (pushes * PUSH_SERIES) as f64;
    let rate = samples / started.elapsed().as_secs_f64();
    let cpu_us = cpu_secs * 1e6 / samples;
    println!("{what}: {rate:.0} samples/s, {cpu_us:.2} us of server CPU each");
}
