//! The embedded store against its rival, a plain append file with the same flush to the system.
//!
//! The append file can neither read a series nor drop a retried sample: it is the ceiling that the
//! operating system sets. Shape: pushes of 1000 samples over 100,000 series in the order of scrapes.
//!
//! With `STORE_BENCH_SERIES=1000000` it also prints, once and without criterion, what a store of
//! so many series takes in memory and to open, and its rate over `STORE_BENCH_SECS` (30).
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput};
use freehold::keys::RingKey;
use freehold::labels::{Identity, IdentityHasher, LabelsBuf};
use freehold::store::{Config, SeriesKind, Store};
use freehold::tenant::TenantId;

const SERIES: u64 = 100_000;
const PUSH_SAMPLES: u64 = 1000;
const NOW_MS: i64 = 1_704_067_200_000;
const SCRAPE_MS: i64 = 15_000;

fn open(path: &Path) -> Arc<Store> {
    Store::open(Config { path: path.to_owned(), ..Config::default() }).expect("the store opens")
}

/// Ten labels of about 244 bytes, as in the other benches.
fn fill_labels(buf: &mut LabelsBuf, series: u64) {
    buf.clear();
    buf.push(b"__name__", format!("http_request_duration_seconds_{}", series % 500).as_bytes());
    buf.push(b"cluster", b"europe-west-production-1");
    buf.push(b"container", b"checkout-service");
    buf.push(b"handler", b"/api/v1/orders/{id}/items");
    buf.push(b"instance", format!("10.{}.{}.17:9090", series % 251, series % 241).as_bytes());
    buf.push(b"job", b"kubernetes-pods");
    buf.push(b"method", b"POST");
    buf.push(b"namespace", b"shop-frontend");
    buf.push(b"pod", format!("checkout-service-7f9c6d5b4-{series:09}").as_bytes());
    buf.push(b"status", b"200");
}

fn identities(store: &Store, series: u64) -> Vec<Identity> {
    let hasher = IdentityHasher::new(store.identity_secret());
    let mut buf = LabelsBuf::new();
    let each = (0..series).map(|i| {
        fill_labels(&mut buf, i);
        hasher.identity(buf.as_labels())
    });
    each.collect()
}

fn create(store: &Store, tenant: &TenantId, identities: &[Identity]) {
    let mut buf = LabelsBuf::new();
    for (push, part) in identities.chunks(PUSH_SAMPLES as usize).enumerate() {
        let mut writer = store.begin(tenant, NOW_MS, 3 * part.len());
        for (i, &identity) in part.iter().enumerate() {
            fill_labels(&mut buf, push as u64 * PUSH_SAMPLES + i as u64);
            writer.series(identity, buf.as_labels(), NOW_MS).expect("labels");
            writer.head(identity, RingKey(i as u32), SeriesKind::Float);
            writer.sample(identity, NOW_MS, i as u64, 0).expect("sample");
        }
        writer.commit().expect("commit");
    }
}

/// Writes push number `push` of an endless row of scrapes.
fn push(store: &Store, tenant: &TenantId, identities: &[Identity], push: u64) {
    let series = identities.len() as u64;
    let first = push * PUSH_SAMPLES;
    let t_ms = NOW_MS + (1 + first / series) as i64 * SCRAPE_MS;
    let mut writer = store.begin(tenant, t_ms, PUSH_SAMPLES as usize);
    for i in first..first + PUSH_SAMPLES {
        let bits = (i as f64).to_bits();
        writer.sample(identities[(i % series) as usize], t_ms, bits, 0).expect("sample");
    }
    writer.commit().expect("commit");
}

fn pushes(c: &mut Criterion) {
    let mut group = c.benchmark_group("store");
    group.throughput(Throughput::Elements(PUSH_SAMPLES));
    let tenant = TenantId::parse("bench").expect("a tenant");

    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let identities = identities(&store, SERIES);
    create(&store, &tenant, &identities);
    let mut number = 0;
    group.bench_function("push 1000 samples", |b| {
        b.iter(|| {
            push(&store, &tenant, &identities, number);
            number += 1;
        });
    });

    let mut file = std::fs::File::create(dir.path().join("rival")).expect("file");
    let mut number = 0_u64;
    group.bench_function("append 1000 samples to a file", |b| {
        b.iter(|| {
            let mut batch = Vec::with_capacity(PUSH_SAMPLES as usize * 32);
            for i in 0..PUSH_SAMPLES {
                let identity = identities[((number + i) % SERIES) as usize];
                batch.extend_from_slice(&identity.0.to_be_bytes());
                batch.extend_from_slice(&number.to_be_bytes());
                batch.extend_from_slice(&i.to_be_bytes());
            }
            number += PUSH_SAMPLES;
            file.write_all(&batch).expect("write");
        });
    });
    drop(store);

    group.throughput(Throughput::Elements(SERIES));
    group.sample_size(10);
    group.bench_function("open, and list the heads of 100,000 series", |b| {
        b.iter_batched(
            || (),
            |()| {
                let store = open(dir.path());
                let mut count = 0_u64;
                store.for_each_head(|_, _| count += 1).expect("heads");
                assert_eq!(black_box(count), SERIES);
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("kB") * 1024
}

/// Processor time of this process with all its threads, to 10 ms: holds on a busy machine, too.
fn cpu_secs() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat.rsplit(')').next().expect("a name in brackets");
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().expect("ticks")).sum::<f64>() / 100.0
}

/// The figures that criterion cannot take. Writes as a child that dies without closing the store,
/// so that opening it is what follows a kill.
fn census(series: u64) {
    let dir = tempfile::tempdir().expect("tempdir");
    let died = std::process::Command::new(std::env::current_exe().expect("this binary"))
        .env("STORE_BENCH_DIR", dir.path())
        .status()
        .expect("the writer starts");
    assert!(!died.success(), "the writer ends by abort");
    let rss_before = rss_bytes();
    let (started, cpu_before) = (Instant::now(), cpu_secs());
    let store = open(dir.path());
    let opened = started.elapsed();
    let mut count = 0;
    store.for_each_head(|_, _| count += 1).expect("heads");
    assert_eq!(count, series);
    let cpu = cpu_secs() - cpu_before;
    let listed = started.elapsed();
    println!("opened in {opened:.2?}, heads listed after {listed:.2?}, {cpu:.1} s of CPU");
    println!("resident after that: {} B per series", (rss_bytes() - rss_before) / series);
}

fn census_writer(path: &Path, series: u64, secs: u64) -> ! {
    let tenant = TenantId::parse("bench").expect("a tenant");
    let store = open(path);
    let identities = identities(&store, series);
    let rss_before = rss_bytes();
    let (started, cpu_before) = (Instant::now(), cpu_secs());
    create(&store, &tenant, &identities);
    let cpu = cpu_secs() - cpu_before;
    println!("{series} series created in {:.1?}, {cpu:.1} s of CPU", started.elapsed());

    let (started, cpu_before) = (Instant::now(), cpu_secs());
    let mut slowest = Duration::ZERO;
    let (mut number, mut rss_max) = (0, 0);
    while started.elapsed() < Duration::from_secs(secs) {
        let push_started = Instant::now();
        push(&store, &tenant, &identities, number);
        slowest = slowest.max(push_started.elapsed());
        number += 1;
        if number % 100 == 0 {
            rss_max = rss_max.max(rss_bytes());
        }
    }
    let rate = (number * PUSH_SAMPLES) as f64 / started.elapsed().as_secs_f64();
    let cpu_us = (cpu_secs() - cpu_before) * 1e6 / (number * PUSH_SAMPLES) as f64;
    println!("{rate:.0} samples/s, {cpu_us:.2} us of CPU each, slowest push {slowest:.1?}");
    println!(
        "resident: {} B per series now, {} B at most",
        rss_bytes().saturating_sub(rss_before) / series,
        rss_max.saturating_sub(rss_before) / series,
    );
    println!("on disk: {} MiB", store.disk_bytes().expect("size") >> 20);
    std::process::abort();
}

fn main() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(series) = number("STORE_BENCH_SERIES") {
        let Ok(path) = std::env::var("STORE_BENCH_DIR") else { return census(series) };
        census_writer(Path::new(&path), series, number("STORE_BENCH_SECS").unwrap_or(30));
    }
    let mut criterion = Criterion::default().configure_from_args();
    pushes(&mut criterion);
    criterion.final_summary();
}
