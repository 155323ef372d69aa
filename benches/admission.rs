//! Admission from received bytes to the answer: known series, new series, one and many tenants.
//!
//! Three pipelines take the same requests in turn, round after round, since machines have slow
//! and fast phases: the ingester (store off, limits on owned series enforced), F, which is serial
//! FNV-1 over the same labels and nothing else, and the conventional pipeline. Medians of the
//! rounds' ratios are printed at the end; they are what the bars are about.
//!
//! `FREEHOLD_LONG_BENCH=1` adds five million series. `--test` only proves that it runs.
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

use freehold::ingester::Ingester;
use freehold::labels::{LabelsBuf, ring_key};
use freehold::tenant::TenantId;
use ingester::{Conventional, NOW, NOW_MS, ingester};
use shared::Numbers;

#[path = "shared/ingester.rs"]
mod ingester;
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

const SERIES: usize = 1000;
/// Requests that a pipeline takes before it is the next one's turn: enough that each works in its own
/// caches, not in what the one before has left there.
const TURN: usize = 64;
/// Different requests, together larger than the caches that a core has to itself.
const REQUESTS: usize = 64;

struct Scale {
    rounds: usize,
    series: Vec<u64>,
    tenants: usize,
}

fn main() {
    let test = shared::is_test();
    let long = std::env::var_os("FREEHOLD_LONG_BENCH").is_some();
    let scale = match (test, long) {
        (true, _) => Scale { rounds: 1, series: vec![2_000], tenants: 10 },
        (_, false) => Scale { rounds: 15, series: vec![100_000], tenants: 10_000 },
        (_, true) => Scale { rounds: 15, series: vec![100_000, 5_000_000], tenants: 10_000 },
    };
    for &series in &scale.series {
        one_tenant(series, &scale);
        many_tenants(series, &scale);
    }
}

/// A request and the labels that F hashes of it.
struct Prepared {
    body: Vec<u8>,
    labels: Vec<LabelsBuf>,
}

impl Prepared {
    fn new(numbers: &[u64]) -> Self {
        let labels = numbers.iter().map(|&n| LabelsBuf::from_pairs(shared::labels(n))).collect();
        Self { body: shared::request(numbers.iter().copied(), NOW_MS), labels }
    }
}

fn one_tenant(series: u64, scale: &Scale) {
    let id = tenant(0);
    let ingester = ingester();
    let conventional = Conventional::new(id.as_str());
    let mut created_ns = 0.0;
    for first in (0..series).step_by(SERIES) {
        let body = shared::request(first..(first + SERIES as u64).min(series), NOW_MS - 60_000);
        created_ns += time_ns(|| push(&ingester, &id, &body));
        conventional.push(&body, NOW);
    }
    let created_ns = created_ns / series as f64;

    let mut numbers = Numbers::new(7);
    let requests: Vec<Prepared> = (0..REQUESTS)
        .map(|_| (0..SERIES).map(|_| numbers.next() % series).collect::<Vec<_>>())
        .map(|numbers| Prepared::new(&numbers))
        .collect();
    let mut turns = requests.chunks(TURN).cycle();
    let mut rounds = Rounds::default();
    let per_turn = (TURN * SERIES) as f64;
    for _ in 0..scale.rounds {
        let turn = turns.next().expect("a cycle");
        let f_ns = time_ns(|| turn.iter().for_each(|request| f(&id, request)));
        let ours_ns = time_ns(|| turn.iter().for_each(|one| push(&ingester, &id, &one.body)));
        let rival_ns = time_ns(|| {
            turn.iter().for_each(|one| _ = black_box(conventional.push(&one.body, NOW)));
        });
        let both_ns = two_threads(turn, |one| push(&ingester, &id, &one.body));
        rounds.add([f_ns, ours_ns, rival_ns, both_ns].map(|ns| ns / per_turn));
    }
    let calls = CALLS.get();
    push(&ingester, &id, &requests[0].body);
    let calls = CALLS.get() - calls;
    let [f_ns, ours_ns, rival_ns, both_ns] = rounds.medians();
    println!("admission, {series} series of one tenant, {SERIES} per request, ns per series:");
    println!("  F {f_ns:.0}, ingester {ours_ns:.0}, two threads {both_ns:.0} each");
    println!("  conventional {rival_ns:.0}; creation with growth {created_ns:.0}");
    println!("  ingester / F               {:.2}", rounds.ratio(1, 0));
    println!("  ingester, two threads / F  {:.2}", rounds.ratio(3, 0));
    println!("  conventional / ingester    {:.1}", rounds.ratio(2, 1));
    println!("  allocations per request    {calls}");
}

fn many_tenants(series: u64, scale: &Scale) {
    let each = series / scale.tenants as u64;
    let ids: Vec<TenantId> = (0..scale.tenants).map(tenant).collect();
    let ingester = ingester();
    let request = Prepared::new(&(0..each).collect::<Vec<_>>());
    for id in &ids {
        push(&ingester, id, &request.body);
    }
    let mut numbers = Numbers::new(9);
    let mut rounds = Rounds::default();
    let pushes = TURN * SERIES / each as usize;
    for _ in 0..scale.rounds {
        let mut turn = Vec::new();
        turn.resize_with(pushes, || (numbers.next() % ids.len() as u64) as usize);
        let f_ns = time_ns(|| turn.iter().for_each(|&at| f(&ids[at], &request)));
        let ours_ns = time_ns(|| {
            turn.iter().for_each(|&at| push(&ingester, &ids[at], &request.body));
        });
        let both_ns = two_threads(&turn, |&at| push(&ingester, &ids[at], &request.body));
        rounds.add([f_ns, ours_ns, 0.0, both_ns].map(|ns| ns / (pushes as f64 * each as f64)));
    }
    let [f_ns, ours_ns, _, both_ns] = rounds.medians();
    println!("admission, {series} series of {} tenants, {each} per request:", ids.len());
    println!("  F {f_ns:.0}, ingester {ours_ns:.0}, two threads {both_ns:.0} each (ns per series)");
    println!("  ingester / F               {:.2}", rounds.ratio(1, 0));
    println!("  ingester, two threads / F  {:.2}", rounds.ratio(3, 0));
}

fn tenant(number: usize) -> TenantId {
    TenantId::parse(&format!("tenant-{number}")).expect("an allowed name")
}

fn push(ingester: &Ingester, id: &TenantId, body: &[u8]) {
    let pushed = ingester.push(id, body, NOW).expect("no limit is met");
    black_box(pushed);
}

fn f(id: &TenantId, request: &Prepared) {
    let fold = |sum, labels: &LabelsBuf| sum ^ ring_key(id.as_str(), labels.as_labels()).0;
    black_box(request.labels.iter().fold(0, fold));
}

fn time_ns(act: impl FnOnce()) -> f64 {
    let start = Instant::now();
    act();
    start.elapsed().as_nanos() as f64
}

/// Time per thread while two do the whole turn at once.
fn two_threads<T: Sync>(turn: &[T], act: impl Fn(&T) + Sync) -> f64 {
    let gate = std::sync::Barrier::new(2);
    let run = || {
        // The thread's scratch grows before the clock starts.
        turn.iter().take(1).for_each(&act);
        gate.wait();
        time_ns(|| turn.iter().for_each(&act))
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(run);
        let here = run();
        (here + other.join().expect("no panic")) / 2.0
    })
}

/// Times of four pipelines per round.
#[derive(Default)]
struct Rounds(Vec<[f64; 4]>);

impl Rounds {
    fn add(&mut self, ns: [f64; 4]) {
        self.0.push(ns);
    }

    fn medians(&self) -> [f64; 4] {
        std::array::from_fn(|at| median(self.0.iter().map(|round| round[at])))
    }

    fn ratio(&self, of: usize, to: usize) -> f64 {
        median(self.0.iter().map(|round| round[of] / round[to]))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
