//! A request of 1000 series spread over a ring of 100 ingesters with 512 tokens each, RF 3.
//!
//! What is timed begins with the series' ring keys, which preparing has made, and ends with what
//! goes to each ingester. Against F, serial FNV-1 over the same labels, in the same rounds, since
//! machines have slow and fast phases; and against one look-up per series, which is what Cortex
//! does. `--test` only proves that it runs.
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

use freehold::distributor::{ItemKind, Prepared};
use freehold::labels::{LabelsBuf, ring_key};
use freehold::ring::go_rand::GoRand;
use freehold::ring::model::{Instance, InstanceState, RingModel, Token};
use freehold::ring::{Batches, Operation, Quorum, RingSettings, RingSnapshot, Walker};
use freehold::wire::batch::{BatchSource, write_batch};
use freehold::wire::encoding::Encoding;
use prepared::prepared;
use shared::Numbers;

#[path = "../tests/it/fan_out/prepared.rs"]
mod prepared;
mod shared;

/// Counts per thread, so that nothing but the timed work is counted.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came; only a count is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TENANT: &str = "tenant-0";
const NOW_MS: i64 = 1_700_000_000_000;
const SERIES: u64 = 1000;
/// Different requests, together larger than the caches that a core has to itself.
const REQUESTS: usize = 64;

fn main() {
    let rounds = if shared::is_test() { 1 } else { 31 };
    let mut numbers = Numbers::new(7);
    let all: Vec<Vec<u64>> =
        (0..REQUESTS).map(|_| (0..SERIES).map(|_| numbers.next() % 100_000).collect()).collect();
    let bodies: Vec<_> =
        all.iter().map(|one| shared::request(one.iter().copied(), NOW_MS)).collect();
    let labels: Vec<Vec<LabelsBuf>> = all
        .iter()
        .map(|one| one.iter().map(|&n| LabelsBuf::from_pairs(shared::labels(n))).collect())
        .collect();
    let requests: Vec<_> = bodies.iter().map(|body| prepared(TENANT, body)).collect();
    for (shape, ring) in [
        ("100x512, RF 3, no zones", ring(100, 512, 0)),
        ("100x512, RF 3, 3 zones", ring(100, 512, 3)),
        ("3x512, RF 3, no zones", ring(3, 512, 0)),
    ] {
        measure(shape, &ring, &requests, &labels, rounds);
    }
}

fn measure(
    shape: &str,
    ring: &RingSnapshot,
    requests: &[Prepared<'_>],
    labels: &[Vec<LabelsBuf>],
    rounds: usize,
) {
    let mut batches = Batches::default();
    let mut messages = Messages::default();
    let mut times = Vec::new();
    let per_series = (requests.len() as u64 * SERIES) as f64;
    for _ in 0..rounds {
        let f = time_ns(|| labels.iter().for_each(|one| f(one)));
        let naive = time_ns(|| requests.iter().for_each(|one| look_up_each(ring, one)));
        let grouped = time_ns(|| requests.iter().for_each(|one| group(&mut batches, ring, one)));
        let written = time_ns(|| {
            for one in requests {
                group(&mut batches, ring, one);
                black_box(Quorum::new(&batches));
                messages.write(&batches, one, Encoding::Identity);
            }
        });
        let packed = time_ns(|| {
            for one in requests {
                group(&mut batches, ring, one);
                black_box(Quorum::new(&batches));
                messages.write(&batches, one, Encoding::SnappyBlock);
            }
        });
        times.push([f, naive, grouped, written, packed].map(|ns| ns / per_series));
    }
    // Once more with nothing new in it.
    group(&mut batches, ring, &requests[0]);
    let calls = CALLS.get();
    group(&mut batches, ring, &requests[0]);
    let calls = CALLS.get() - calls;
    let of = |at: usize| median(times.iter().map(|round| round[at]));
    let ratio = |at: usize| median(times.iter().map(|round| round[at] / round[0]));
    println!("fan-out, {shape}, {SERIES} series of 10 labels, ns per series:");
    println!("  F {:.0}", of(0));
    for (name, at) in [("look up each", 1), ("group", 2), ("and write", 3), ("and compress", 4)] {
        println!("  {name:<13} {:.0} = {:.2} F", of(at), ratio(at));
    }
    println!("  allocations of grouping a request: {calls}");
}

fn group(batches: &mut Batches, ring: &RingSnapshot, request: &Prepared<'_>) {
    let keys = request.items.iter().map(|item| item.key);
    batches.assign(&ring.placement(), Operation::Write, keys).expect("all are up");
}

/// A replica set per series, as lists.
fn look_up_each(ring: &RingSnapshot, request: &Prepared<'_>) {
    let health = ring.health();
    let mut walker = Walker::new(ring.layout(), Operation::Write);
    for item in &request.items {
        black_box(walker.get(ring.members(), &health, item.key).expect("all are up"));
    }
}

/// Memory of messages, as the fan-out keeps it.
#[derive(Default)]
struct Messages {
    plain: Vec<u8>,
    packed: Vec<u8>,
}

impl Messages {
    fn write(&mut self, batches: &Batches, request: &Prepared<'_>, encoding: Encoding) {
        for batch in batches.iter() {
            self.plain.clear();
            let items = batch.items().map(|item| &request.items[item as usize]);
            let series = items.filter(|item| item.kind != ItemKind::Metadata);
            let series = series.map(|item| (item.start, item.end));
            let metadata = std::iter::empty();
            write_batch(&mut self.plain, &request.body, series, metadata, BatchSource::default());
            if encoding != Encoding::Identity {
                self.packed.clear();
                encoding.compress_into(&self.plain, &mut self.packed).expect("in memory");
            }
            black_box((&self.plain, &self.packed));
        }
    }
}

fn f(labels: &[LabelsBuf]) {
    let fold = |sum, labels: &LabelsBuf| sum ^ ring_key(TENANT, labels.as_labels()).0;
    black_box(labels.iter().fold(0, fold));
}

fn ring(instances: usize, tokens_each: usize, zones: usize) -> RingSnapshot {
    let mut random = GoRand::new(1);
    let instances = (0..instances).map(|at| {
        let mut tokens: Vec<_> = (0..tokens_each).map(|_| Token(random.next_u32())).collect();
        tokens.sort_unstable();
        let instance = Instance {
            addr: format!("10.0.{}.{}:9095", at / 256, at % 256),
            timestamp_s: NOW_MS / 1000,
            state: InstanceState::Active,
            tokens,
            zone: at.checked_rem(zones).map_or(String::new(), |zone| format!("zone-{zone}")),
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        };
        (format!("ingester-{at:03}"), instance)
    });
    let model = RingModel { instances: instances.collect(), unknown_fields: Vec::new() };
    let settings = RingSettings {
        replication_factor: 3,
        zone_awareness_enabled: zones > 0,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: None,
    };
    RingSnapshot::build(&model, NOW_MS, settings.into(), None)
}

fn time_ns(act: impl FnOnce()) -> f64 {
    let start = Instant::now();
    act();
    start.elapsed().as_nanos() as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
