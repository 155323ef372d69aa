//! What the series room costs: touches, creations, passes, lock holds, bytes.
//!
//! Rival of a touch: one lock and one map for all series, taken once per series.
//! `FREEHOLD_LONG_BENCH=1` adds the sizes up to five million series; without it all runs are
//! small enough for every commit. Reports that are no timings are printed before the timings.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use freehold::keys::{KeySet, RingKey};
use freehold::labels::{Identity, IdentityHasher, LabelsBuf, ring_key};
use freehold::series::{
    Batch, Fate, Item, Kind, LocalLimits, NewSeries, Options, Order, Progress, Rules, SeriesStore,
    Tick, Totals, View,
};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

/// Counts the bytes that are allocated now, as asked for, and the calls.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came; only counters are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BATCH: usize = 1_000;
const NOW: Tick = Tick::new(1_000_000);

fn long() -> bool {
    std::env::var_os("FREEHOLD_LONG_BENCH").is_some()
}

fn identity(n: u64) -> Identity {
    let mixed = u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Identity(mixed ^ (mixed >> 61))
}

fn item(n: u64, at_ms: i64) -> Item {
    Item { identity: identity(n), first_ms: at_ms, newest_ms: at_ms, kind: Kind::Float }
}

fn new_series(key: u32) -> NewSeries<'static> {
    NewSeries {
        ring_key: RingKey(key),
        metric: b"",
        metric_exempt: false,
        label_sets: &[],
        label_sets_generation: 0,
    }
}

fn empty() -> SeriesStore {
    SeriesStore::new(Options::default(), View::unknown(), Arc::new(Totals::new()))
}

fn filled(series: u64) -> SeriesStore {
    let store = empty();
    let rules = Rules::default();
    for n in 0..series {
        store
            .create(&item(n, 0), &new_series(identity(n).0 as u32), &rules, NOW)
            .expect("no limit is set");
    }
    store
}

/// A third of the ring in a thousand pieces, as an instance of a large ring owns it.
fn third(epoch: u64) -> View {
    let mut rng = SmallRng::seed_from_u64(epoch);
    let mut bounds = Vec::new();
    for piece in 0..512_u64 {
        let start = (piece << 23) as u32 + rng.random_range(0..1 << 22);
        bounds.extend([start, start + (1 << 23) / 3]);
    }
    View { epoch, keys: Arc::new(KeySet::from_toggles(false, bounds).with_class_table()) }
}

fn random_batches(series: u64, batches: usize) -> Vec<Vec<u64>> {
    let mut rng = SmallRng::seed_from_u64(7);
    (0..batches).map(|_| (0..BATCH).map(|_| rng.random_range(0..series)).collect()).collect()
}

fn touch_all(store: &SeriesStore, batch: &mut Batch, items: &[Item], now: Tick) {
    batch.clear();
    items.iter().for_each(|&item| batch.push(item));
    store.touch(batch, Order::Any, now);
    assert!(batch.slow().is_empty(), "every series is known");
}

fn touches(c: &mut Criterion) {
    let mut group = c.benchmark_group("series/touch");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut sizes = vec![100_000];
    if long() {
        sizes.extend([1_000_000, 5_000_000]);
    }
    for series in sizes {
        let store = filled(series);
        let batches: Vec<Vec<Item>> = random_batches(series, 512)
            .iter()
            .map(|ns| ns.iter().map(|&n| item(n, 1)).collect())
            .collect();
        let mut batch = Batch::new();
        let mut turn = 0;
        group.bench_function(format!("{series} series"), |b| {
            b.iter(|| {
                turn += 1;
                touch_all(&store, &mut batch, &batches[turn % batches.len()], NOW);
            });
        });
        // The first time the scratch grows, which is not what is asked here.
        touch_all(&store, &mut batch, &batches[0], NOW);
        let calls = CALLS.load(Ordering::Relaxed);
        touch_all(&store, &mut batch, &batches[0], NOW);
        let calls = CALLS.load(Ordering::Relaxed) - calls;
        println!("series/touch: {calls} allocations for {BATCH} touches of {series} series");
        group.bench_function(format!("{series} series, two threads"), |b| {
            b.iter_custom(|iterations| two_threads(&store, &batches, iterations));
        });
        group.bench_function(format!("{series} series, rival"), |b| {
            let rival = Mutex::new(HashMap::new());
            for n in 0..series {
                rival.lock().expect("unshared").insert(identity(n), (0_u32, 0_i64));
            }
            b.iter(|| {
                turn += 1;
                for item in &batches[turn % batches.len()] {
                    let mut rival = rival.lock().expect("unshared");
                    if let Some(entry) = rival.get_mut(&item.identity) {
                        *entry = (NOW.get(), item.newest_ms);
                    }
                }
            });
        });
    }
    many_tenants(&mut group);
    group.finish();
}

/// Per-thread time: both do all iterations at once.
fn two_threads(store: &SeriesStore, batches: &[Vec<Item>], iterations: u64) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..2_usize {
            scope.spawn(move || {
                let mut batch = Batch::new();
                for turn in 0..iterations as usize {
                    let items = &batches[(turn + thread * 100) % batches.len()];
                    touch_all(store, &mut batch, items, NOW);
                }
            });
        }
    });
    start.elapsed()
}

fn many_tenants(group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>) {
    let (tenants, series) = (10_000, 20);
    let stores: Vec<SeriesStore> = (0..tenants).map(|_| filled(series)).collect();
    let items: Vec<Item> = (0..series).map(|n| item(n, 1)).collect();
    let mut rng = SmallRng::seed_from_u64(9);
    let mut batch = Batch::new();
    group.bench_function(format!("{tenants} tenants of {series} series"), |b| {
        b.iter(|| {
            for _ in 0..BATCH / items.len() {
                touch_all(&stores[rng.random_range(0..tenants)], &mut batch, &items, NOW);
            }
        });
    });
}

/// Ten labels of about 244 bytes, of which the last differs per series.
struct LabelledSeries {
    labels: LabelsBuf,
    hasher: IdentityHasher,
}

impl LabelledSeries {
    fn new() -> Self {
        Self { labels: LabelsBuf::new(), hasher: IdentityHasher::new([7; 192]) }
    }

    fn prepare(&mut self, n: u64) -> (Item, RingKey) {
        self.labels.clear();
        self.labels.push(b"__name__", b"http_request_duration_seconds_bucket");
        for label in [&b"cluster"[..], b"container", b"endpoint", b"instance", b"job", b"method"] {
            self.labels.push(label, b"some-value-of-17b");
        }
        self.labels.push(b"namespace", b"a-namespace-name");
        self.labels.push(b"pod", b"a-deployment-7c5ddbdf54-x2b8q");
        self.labels.push(b"zz_series", &n.to_le_bytes());
        let identity = self.hasher.identity(self.labels.as_labels());
        let item = Item { identity, first_ms: 0, newest_ms: 0, kind: Kind::Float };
        (item, ring_key("tenant", self.labels.as_labels()))
    }
}

/// From nothing to many, with growth, splits and the hash of the ring key.
fn creations(c: &mut Criterion) {
    let series = if long() { 1_000_000 } else { 100_000 };
    let mut group = c.benchmark_group("series/create");
    group.throughput(Throughput::Elements(series)).sample_size(10);
    group.bench_function(format!("0 to {series} series, with ring key"), |b| {
        let mut labelled = LabelledSeries::new();
        b.iter_with_large_drop(|| {
            let store = empty();
            let rules = Rules::default();
            for n in 0..series {
                let (item, key) = labelled.prepare(n);
                let new = NewSeries { ring_key: key, ..new_series(0) };
                store.create(&item, &new, &rules, NOW).expect("no limit is set");
            }
            store
        });
    });
    group.bench_function(format!("0 to {series} series, labels and hashes alone"), |b| {
        let mut labelled = LabelledSeries::new();
        b.iter(|| (0..series).for_each(|n| _ = black_box(labelled.prepare(n))));
    });
    group.finish();
}

fn passes(c: &mut Criterion) {
    let mut group = c.benchmark_group("series/pass");
    let mut sizes = vec![100_000];
    if long() {
        sizes.push(5_000_000);
    }
    for series in sizes {
        let store = filled(series);
        store.recount(third(1), LocalLimits::default());
        group.bench_function(format!("cycle, {series} series"), |b| {
            b.iter(|| store.cycle(Tick::new(1)));
        });
        let views = [third(2), third(3)];
        let mut turn = 0;
        group.bench_function(format!("cycle and recount, {series} series"), |b| {
            b.iter(|| {
                turn += 1;
                store.cycle(Tick::new(1));
                store.recount(views[turn % 2].clone(), LocalLimits::default());
            });
        });
    }
    group.finish();
}

/// Bytes per series while a store grows, as asked of the allocator.
fn report_memory(_: &mut Criterion) {
    let sizes: &[u64] = if long() {
        &[
            1_000_000, 1_250_000, 1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_700_000, 4_000_000,
            4_600_000, 5_000_000,
        ]
    } else {
        &[50_000, 75_000, 100_000, 150_000]
    };
    for referring in [false, true] {
        let before = BYTES.load(Ordering::Relaxed);
        let store = empty();
        let heap = BYTES.load(Ordering::Relaxed) - before;
        println!("series/memory: empty tenant {} B", heap + size_of::<SeriesStore>());
        if referring {
            store.enable_metric_counts();
            store.enable_label_sets(1);
        }
        let (mut n, mut worst) = (0, 0.0_f64);
        let mut metric = Vec::new();
        for &size in sizes {
            while n < size {
                use std::io::Write as _;
                metric.clear();
                write!(metric, "metric_{}", n / 1_000).expect("a vector takes it");
                let new = NewSeries {
                    metric: &metric,
                    label_sets: &[0, 1],
                    label_sets_generation: 1,
                    ..new_series(identity(n).0 as u32)
                };
                store.create(&item(n, 0), &new, &Rules::default(), NOW).expect("no limit is set");
                n += 1;
                if n.is_multiple_of(10_000) && n >= sizes[0] {
                    let bytes = BYTES.load(Ordering::Relaxed) - before;
                    worst = worst.max(bytes as f64 / n as f64);
                }
            }
            let bytes = (BYTES.load(Ordering::Relaxed) - before) as f64;
            println!(
                "series/memory: {size} series, references {referring}: {:.1} B each",
                bytes / size as f64
            );
        }
        println!("series/memory: worst size, references {referring}: {worst:.1} B each");
    }
}

/// Longest steps at the largest size: what a request may have to wait for.
///
/// Everything is done three times alike and each step's least time counts, so that a step during
/// which the machine did something else does not stand for the store's work.
fn report_lock_holds(_: &mut Criterion) {
    let series: u64 = if long() { 5_000_000 } else { 200_000 };
    let [mut creations, mut recounts, mut tenth, mut half] = [const { Vec::new() }; 4];
    for _ in 0..3 {
        let store = empty();
        let mut clock = StepClock::start(&mut creations);
        for n in 0..series {
            let new = new_series(identity(n).0 as u32);
            store.create(&item(n, n as i64), &new, &Rules::default(), NOW).expect("no limit");
            clock.step();
        }
        store.begin_recount(third(2));
        let mut clock = StepClock::start(&mut recounts);
        loop {
            let progress = store.recount_step();
            clock.step();
            if progress == Progress::Done {
                break;
            }
        }
        for (part, steps) in [(10, &mut tenth), (2, &mut half)] {
            let mut clock = StepClock::start(steps);
            store.purge((series / part) as i64, |_| Fate::Keep, |_| clock.step());
        }
    }
    let report = |what: &str, steps: &[Duration]| {
        let longest = steps.iter().max().copied().unwrap_or_default();
        println!("series/hold: {series} series, {what}: longest of {} {longest:?}", steps.len());
    };
    report("creation, splits and growth included", &creations);
    report("step of a recount", &recounts);
    report("stripe of a purge of a tenth", &tenth);
    report("stripe of a purge of half", &half);
}

/// Times steps, keeping for each the least of all rounds.
struct StepClock<'a> {
    least: &'a mut Vec<Duration>,
    at: usize,
    last: Instant,
}

impl<'a> StepClock<'a> {
    fn start(least: &'a mut Vec<Duration>) -> Self {
        Self { least, at: 0, last: Instant::now() }
    }

    fn step(&mut self) {
        let taken = self.last.elapsed();
        match self.least.get_mut(self.at) {
            Some(least) => *least = taken.min(*least),
            None => self.least.push(taken),
        }
        self.at += 1;
        self.last = Instant::now();
    }
}

criterion_group!(benches, report_memory, report_lock_holds, touches, creations, passes);
criterion_main!(benches);
