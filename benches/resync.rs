//! What a start costs a sidecar: one tenant's series listed from an ingester in this process.
//!
//! Bars: a million series within ten seconds with pushes served meanwhile, and no more memory at
//! the peak than one and a half times the tracker's in the end. The ingester shares the process
//! and its cores, so its part is in the seconds; the bytes are counted from when it is filled.
//! `--test` (or a small machine) takes ten thousand series and checks the counts only.
#![expect(clippy::disallowed_methods, reason = "a bench measures time and ends what it starts")]

#[path = "shared/ingester.rs"]
mod ingester;
#[path = "shared/mod.rs"]
mod shared;
#[path = "../tests/it/upstream/ingester.rs"]
mod upstream;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use freehold::clock::Clock;
use freehold::ingester::following::{Follower, Pace};
use freehold::labels::LabelsBuf;
use freehold::tenant::TenantId;
use freehold::upstream::Upstream;
use freehold::upstream::config::UpstreamConfig;

/// Counts the bytes that are allocated now, and the most at once.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grew(bytes: usize) {
    let now = BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; only counters are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        grew(bytes);
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SERIES: u64 = 1_000_000;
const SERIES_QUICK: u64 = 10_000;
/// Time between two pushes that are made while the listing goes on.
const PUSH_PERIOD: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    let quick = shared::is_test();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(resync(if quick { SERIES_QUICK } else { SERIES }));
}

async fn resync(series: u64) {
    let clock = Clock::start();
    let behind = upstream::UpstreamIngester::start().await;
    let now_ms = clock.now().unix_ms;
    {
        let mut tenants = behind.tenants();
        let tenant = tenants.entry("a".to_owned()).or_default();
        for number in 0..series {
            let labels = LabelsBuf::from_pairs(shared::labels(number));
            tenant.enter(labels.as_labels().as_bytes(), now_ms);
        }
    }
    // The answer's label sets are copied once by the ingester; they are not the sidecar's bytes.
    behind.prepare_listing("a");
    let ours = Arc::new(ingester::ingester());
    let config =
        UpstreamConfig { address: behind.address.to_string(), ..UpstreamConfig::default() };
    let way = Upstream::new(&config).expect("a config");
    let follower = Follower::new(Arc::clone(&ours), way, clock, Pace::default());
    let status = follower.status();

    let before = BYTES.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let started = Instant::now();
    let following = tokio::spawn(follower.run(std::future::pending()));
    let tenant = TenantId::parse("a").expect("a tenant");
    // One request for all pushes, so that it is no part of what they cost.
    let body = shared::request(0..1000, now_ms);
    let mut slowest = Duration::ZERO;
    let mut pushes = 0;
    // An ingester that nobody has told to follow yet is loaded, too.
    let known = || {
        let tenant = ours.tenants.visit(&tenant);
        tenant.map_or(0, |tenant| tenant.series.counts().series.in_memory)
    };
    while !status.is_loaded() || known() < series {
        assert!(started.elapsed() < PATIENCE, "not loaded: {:?}", status.readiness());
        let pushed = Instant::now();
        ours.push(&tenant, &body, clock.now()).expect("taken");
        slowest = slowest.max(pushed.elapsed());
        pushes += 1;
        tokio::time::sleep(PUSH_PERIOD).await;
    }
    let took = started.elapsed();
    let peak = PEAK.load(Ordering::Relaxed) - before;
    let in_the_end = BYTES.load(Ordering::Relaxed) - before;
    let counts = ours.tenants.visit(&tenant).expect("a tenant").series.counts();
    assert_eq!(counts.series.in_memory, series);
    following.abort();
    println!(
        "resync of {series} series: {:.2} s; {pushes} pushes of 1000 series meanwhile, the \
         slowest {:.1} ms; {:.1} bytes per series in the end, {:.2} times that at the peak",
        took.as_secs_f64(),
        slowest.as_secs_f64() * 1e3,
        in_the_end as f64 / series as f64,
        peak as f64 / in_the_end as f64,
    );
}
