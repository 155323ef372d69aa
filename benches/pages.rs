//! Operators' pages of a large process, and what a push pays while somebody looks at them.
//!
//! One process with everything in it, 100,000 tenants, and a ring of 600 members with 512 tokens
//! each, one of which is ours. Every series is one that the ring gives to us, some tenants are at
//! their limit and refused, and a thousand clients from as many addresses have been at the front
//! door. Then, in one run:
//!
//! 1. A thread pushes 1000 known series again and again. Rounds alternate between nobody looking
//!    and an operator with four pages open, each loaded again every five seconds as the pages'
//!    script does. What counts is the kernel's count of the pushing thread's CPU time, and the
//!    time of a push; the rival of each round is the one without the operator beside it.
//! 2. Each page is fetched over HTTP, as HTML and as JSON, to its last byte.
//!
//! `cargo bench --bench pages`, with `-- --long` for numbers worth keeping; `--test` only proves
//! that it runs.
#![expect(clippy::disallowed_methods, reason = "a bench measures time and has its own threads")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use freehold::app::App;
use freehold::keys::KeySet;

use process::{BUSY, LIMIT_HERE, OWN_ID, SHARED, Scale};

#[path = "pages/process.rs"]
mod process;
#[path = "shared/mod.rs"]
mod shared;

/// What the pages' script waits between two loads of a page.
const RELOAD_PERIOD: Duration = Duration::from_secs(5);
/// Between two pushes: the thread works more than half of the time.
const PUSH_PAUSE: Duration = Duration::from_micros(200);
const PUSH_SERIES: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(240);
const BARS: [(&str, f64); 2] = [("pages, ms", 300.0), ("slower pushes, %", 2.0)];

fn main() {
    let is_long = std::env::args().any(|argument| argument == "--long");
    let scale = match (shared::is_test(), is_long) {
        (true, _) => Scale {
            tenants: 300,
            members: 30,
            tokens: 16,
            clients: 20,
            bodies: 1,
            rounds: 1,
            round: Duration::from_millis(200),
            fetches: 1,
            waits: false,
        },
        (_, is_long) => Scale {
            tenants: 100_000,
            members: 600,
            tokens: 512,
            clients: 1000,
            bodies: 20,
            rounds: if is_long { 24 } else { 5 },
            round: RELOAD_PERIOD,
            fetches: if is_long { 51 } else { 21 },
            waits: true,
        },
    };
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let app = runtime.block_on(App::start(process::config(&scale, dir.path()))).expect("starts");
    let pages = Pages { address: app.admin_address.expect("pages are on") };
    let keys = process::own_keys(&app);
    let began = Instant::now();
    process::fill(&app, &keys, &scale);
    let bodies = process::bodies_of_busy(&keys, &scale);
    bodies.iter().for_each(|body| process::push(&app, BUSY, body).expect("taken"));
    process::send_by_clients(&app, &scale);
    println!(
        "{} tenants, {} series in memory, {} of them owned, filled in {:.1} s",
        app.ingester.tenants.len(),
        app.ingester.totals.count().in_memory,
        app.ingester.totals.count().owned,
        began.elapsed().as_secs_f64()
    );
    if scale.waits {
        wait_for_slopes(&pages);
    }
    show_pushes(&app, &pages, &bodies, &scale);
    process::be_refused(&app, &keys, &scale);
    show_pages(&pages, &keys, scale.fetches);
    runtime.block_on(app.stop()).expect("stops");
}

struct Answer {
    status: u16,
    body: Vec<u8>,
    took: Duration,
}

/// From connecting to the last byte.
fn ask(at: SocketAddr, head: &str, body: &[u8]) -> Answer {
    let started = Instant::now();
    let mut stream = TcpStream::connect(at).expect("connects");
    stream.set_nodelay(true).expect("nodelay");
    let head = format!("{head}Host: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let took = started.elapsed();
    let status = answer.get(9..12).and_then(|code| std::str::from_utf8(code).ok());
    let status = status.and_then(|code| code.parse().ok()).expect("a status");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    Answer { status, body: answer.split_off(end + 4), took }
}

struct Pages {
    address: SocketAddr,
}

impl Pages {
    fn fetch(&self, path: &str, accept: &str) -> Answer {
        let head = format!("GET {path} HTTP/1.1\r\nAccept: {accept}\r\n");
        let answer = ask(self.address, &head, b"");
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer
    }
}

/// The order by time to the limit needs every tenant's slope, which is not known at once.
fn wait_for_slopes(pages: &Pages) {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let answer =
            pages.fetch(&format!("/tenants?tenant={}", process::name_of(0)), "application/json");
        let page: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        if page["tenants"][0]["time_to_limit"]["state"] != "unknown" {
            return;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    panic!("no slope is known");
}

/// What a round of pushes gave.
struct Round {
    cpu_us: f64,
    /// Of single pushes, ascending.
    took_us: Vec<f64>,
}

impl Round {
    fn quantile(&self, share: f64) -> f64 {
        quantile(&self.took_us, share)
    }
}

fn show_pushes(app: &App, pages: &Pages, bodies: &[Vec<u8>], scale: &Scale) {
    let opened = [
        "/".to_owned(),
        "/tenants?sort=time_to_limit".to_owned(),
        format!("/tenants/tenant?id={}", process::name_of(LIMIT_HERE - 1)),
        "/ring".to_owned(),
    ];
    let mut rounds = [const { Vec::new() }; 2];
    let mut loads = Vec::new();
    // Caches and the processor's clock are warm before anything counts.
    push_for(app, bodies, scale.round);
    for pair in 0..scale.rounds {
        // Whoever comes second finds the machine as the first has left it, so they take turns.
        for turn in 0..2 {
            let looks = (pair + turn) % 2;
            let round = std::thread::scope(|scope| {
                let operator =
                    (looks == 1).then(|| scope.spawn(|| look(pages, &opened, scale.round)));
                let round = push_for(app, bodies, scale.round);
                loads.extend(operator.map(|operator| operator.join().expect("no panic")));
                round
            });
            rounds[looks].push(round);
        }
    }
    println!(
        "pushes of {PUSH_SERIES} known series, without and with an operator, medians of rounds:"
    );
    type Figure = fn(&Round) -> f64;
    let figures: [(&str, Figure); 4] = [
        ("CPU", |round| round.cpu_us),
        ("p50", |round| round.quantile(0.5)),
        ("p99", |round| round.quantile(0.99)),
        ("slowest", |round| round.quantile(1.0)),
    ];
    for (name, figure) in figures {
        let [without, with] = [0, 1].map(|looks| median(rounds[looks].iter().map(figure)));
        // Each round with its neighbour: the machine has slow and fast phases.
        let pairs = rounds[0].iter().zip(&rounds[1]);
        let change = median(pairs.map(|(without, with)| figure(with) / figure(without)));
        println!(
            "  {name:8} {without:9.1} µs, {with:9.1} µs: {:+.2} %, by pairs {:+.2} %",
            (with / without - 1.0) * 100.0,
            (change - 1.0) * 100.0
        );
    }
    let loads = sorted(loads.into_iter().flatten().map(|took: Duration| took.as_secs_f64() * 1e3));
    println!(
        "  pages beside them: {} loads, p50 {:.1} ms, slowest {:.1} ms",
        loads.len(),
        quantile(&loads, 0.5),
        quantile(&loads, 1.0)
    );
}

/// Pushes for so long on this thread.
fn push_for(app: &App, bodies: &[Vec<u8>], time: Duration) -> Round {
    let (started, cpu_ns) = (Instant::now(), thread_cpu_ns());
    let mut took_us = Vec::new();
    for body in bodies.iter().cycle() {
        if started.elapsed() >= time {
            break;
        }
        let sent = Instant::now();
        process::push(app, BUSY, body).expect("taken");
        took_us.push(sent.elapsed().as_nanos() as f64 / 1e3);
        std::thread::sleep(PUSH_PAUSE);
    }
    let cpu_us = (thread_cpu_ns() - cpu_ns) as f64 / 1e3 / took_us.len() as f64;
    Round { cpu_us, took_us: sorted(took_us) }
}

/// Loads each page once, spread over the time.
fn look(pages: &Pages, opened: &[String], time: Duration) -> Vec<Duration> {
    let started = Instant::now();
    let load = |(at, path): (usize, &String)| {
        let due = time * at as u32 / opened.len() as u32;
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        pages.fetch(path, "text/html").took
    };
    opened.iter().enumerate().map(load).collect()
}

/// Rounds over all pages, so that a slow phase of the machine meets each of them.
fn show_pages(pages: &Pages, keys: &KeySet, fetches: usize) {
    let full = process::name_of(LIMIT_HERE - 1);
    let series: Vec<_> = process::owned_labels(keys, &full, 1000)
        .into_iter()
        .map(|(name, value)| format!("{name}%3D%22{value}%22"))
        .collect();
    let paths = [
        "/".to_owned(),
        "/tenants".to_owned(),
        "/tenants?sort=used".to_owned(),
        "/tenants?sort=time_to_limit".to_owned(),
        "/tenants?sort=refused&tenant=9".to_owned(),
        format!("/tenants/tenant?id={full}"),
        format!("/tenants/tenant?id={BUSY}"),
        "/ring".to_owned(),
        "/ring?format=detail".to_owned(),
        "/ring?tokens=true".to_owned(),
        format!("/ring/member?id={OWN_ID}"),
        format!("/ring/forget?id={OWN_ID}"),
        format!("/distributor/clients?tenant={SHARED}"),
        "/front-door".to_owned(),
        format!("/explain?tenant={full}&text=%7B{}%7D", series.join("%2C")),
        "/ingester/all_user_stats".to_owned(),
        "/services".to_owned(),
    ];
    let kinds = [("HTML", "text/html"), ("JSON", "application/json")];
    // Of each page: milliseconds as HTML and as JSON, and bytes.
    let mut seen: Vec<[(Vec<f64>, usize); 2]> = paths.iter().map(|_| Default::default()).collect();
    let mut metrics = (Vec::new(), 0);
    for _ in 0..fetches {
        for (path, seen) in paths.iter().zip(&mut seen) {
            for ((_, accept), (took_ms, bytes)) in kinds.iter().zip(seen) {
                let answer = pages.fetch(path, accept);
                took_ms.push(answer.took.as_secs_f64() * 1e3);
                *bytes = answer.body.len();
            }
        }
        let answer = pages.fetch("/metrics", "text/plain");
        metrics.0.push(answer.took.as_secs_f64() * 1e3);
        metrics.1 = answer.body.len();
    }
    println!("pages, {fetches} rounds, to the last byte:");
    let show = |path: &str, kind: &str, took_ms: Vec<f64>, bytes: usize| {
        let took_ms = sorted(took_ms);
        let path: String = path.chars().take(48).collect();
        let (p50, p99) = (quantile(&took_ms, 0.5), quantile(&took_ms, 0.99));
        println!("  {path:48} {kind} p50 {p50:7.1} ms, p99 {p99:7.1} ms, {:8} kB", bytes / 1000);
    };
    for (path, seen) in paths.iter().zip(seen) {
        for ((kind, _), (took_ms, bytes)) in kinds.iter().zip(seen) {
            show(path, kind, took_ms, bytes);
        }
    }
    show("/metrics", "text", metrics.0, metrics.1);
    for (what, bar) in BARS {
        println!("bar for {what}: {bar}");
    }
}

/// CPU time of this thread, from the scheduler's own count.
fn thread_cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|cpu_ns| cpu_ns.parse().ok()).expect("nanoseconds")
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// Of ascending values.
fn quantile(values: &[f64], share: f64) -> f64 {
    values[((values.len() - 1) as f64 * share) as usize]
}
