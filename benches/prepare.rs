//! A received request up to its sending: decode, validation, ring key, place on the ring.
//!
//! Three pipelines take the same requests in turn, round after round, since machines have slow
//! and fast phases: ours; F, which is serial FNV-1 over the same labels and nothing else; and the
//! conventional one. Medians of the rounds' ratios are what the bar is about: 3 F.
//!
//! `--test` only proves that it runs.
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

use freehold::distributor::prepare::{Replicas, Scratch, Treatment, prepare};
use freehold::labels::{LabelsBuf, NameScheme, Placement, fnv1_32, ring_key};
use freehold::limits::Limits;
use freehold::ring::model::{Instance, InstanceState, RingModel};
use freehold::ring::{RingSettings, RingSnapshot, Token};
use freehold::wire::proto::cortexpb;
use prost::Message as _;
use shared::Numbers;

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

const NOW_MS: i64 = 1_700_000_000_000;
const TENANT: &str = "tenant-0";
const SERIES: u64 = 1000;
/// Different requests, together larger than the caches that a core has to itself; all of them
/// are a pipeline's turn.
const REQUESTS: u64 = 64;
const ROUNDS: usize = 21;

/// A request and the labels that F hashes of it.
struct Request {
    body: Vec<u8>,
    labels: Vec<LabelsBuf>,
}

fn main() {
    let test = shared::is_test();
    let (rounds, requests) = if test { (1, 2) } else { (ROUNDS, REQUESTS) };
    let ring = ring();
    let plain = Limits::default();
    // One name to look for in every series, as where replicas or a tenant's labels are taken off.
    let dropping = Limits { drop_labels: vec!["replica".into()], ..Limits::default() };
    let requests: Vec<Request> = (0..requests).map(|first| request(first * SERIES)).collect();
    let per_turn = (requests.len() as u64 * SERIES) as f64;
    let mut scratch = Scratch::default();
    let mut times = Vec::new();
    for _ in 0..rounds {
        let f_ns = time_ns(|| requests.iter().for_each(f));
        let mut ours = |limits: &Limits, names| {
            let treatment = treatment(limits, names);
            let send = |one: &Request| send(&one.body, &treatment, &mut scratch, &ring);
            time_ns(|| requests.iter().map(send).for_each(|sum| _ = black_box(sum))) / per_turn
        };
        let ours_ns = ours(&plain, NameScheme::Legacy);
        let utf8_ns = ours(&plain, NameScheme::Utf8);
        let dropping_ns = ours(&dropping, NameScheme::Legacy);
        let conventional = |one: &Request| conventional(&one.body, &plain, &ring);
        let rival_ns = time_ns(|| {
            requests.iter().map(conventional).for_each(|sum| _ = black_box(sum));
        });
        times.push([f_ns / per_turn, ours_ns, utf8_ns, dropping_ns, rival_ns / per_turn]);
    }
    let calls = CALLS.get();
    black_box(send(&requests[0].body, &treatment(&plain, NameScheme::Legacy), &mut scratch, &ring));
    let calls = CALLS.get() - calls;
    let ns = |at: usize| median(times.iter().map(|round| round[at]));
    let ratio = |of: usize, to: usize| median(times.iter().map(|round| round[of] / round[to]));
    println!("prepare, {SERIES} series per request, ns per series:");
    println!("  F {:.0}, prepare and place {:.0}, conventional {:.0}", ns(0), ns(1), ns(4));
    println!("  prepare / F                {:.2}", ratio(1, 0));
    println!("  the same, UTF-8 names / F  {:.2}", ratio(2, 0));
    println!("  the same, drop_labels / F  {:.2}", ratio(3, 0));
    println!("  conventional / prepare     {:.1}", ratio(4, 1));
    println!("  allocations per request    {calls}");
}

fn treatment(limits: &Limits, names: NameScheme) -> Treatment<'_> {
    Treatment {
        tenant: TENANT,
        limits,
        names,
        placement: Placement::ByAllLabels,
        is_placed: true,
        replicas: Replicas::Kept,
    }
}

fn request(first: u64) -> Request {
    let timeseries: Vec<_> = (first..first + SERIES)
        .map(|number| {
            let mut series = shared::series(number, NOW_MS);
            // A metric's name must not begin with a digit, and the number's first is a zero.
            series.labels[0].value[0] = b'm';
            series
        })
        .collect();
    let labels = timeseries
        .iter()
        .map(|series| {
            LabelsBuf::from_pairs(series.labels.iter().map(|label| (&label.name, &label.value)))
        })
        .collect();
    let r#ref = Some(cortexpb::MessageWithBufRef {});
    let request = cortexpb::WriteRequest { timeseries, r#ref, ..Default::default() };
    Request { body: request.encode_to_vec(), labels }
}

/// One hundred members of 512 tokens.
fn ring() -> RingSnapshot {
    let settings = RingSettings {
        replication_factor: 3,
        zone_awareness_enabled: true,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: None,
    };
    let mut numbers = Numbers::new(1);
    let instances = (0..100).map(|i| {
        let mut tokens: Vec<Token> = (0..512).map(|_| Token(numbers.next() as u32)).collect();
        tokens.sort_unstable();
        let instance = Instance {
            addr: format!("10.0.0.{i}:9095"),
            timestamp_s: NOW_MS / 1000,
            state: InstanceState::Active,
            tokens,
            zone: format!("zone-{}", i % 3),
            registered_timestamp_s: NOW_MS / 1000 - 86_400,
            unknown_fields: Vec::new(),
        };
        (format!("ingester-{i}"), instance)
    });
    let model = RingModel { instances: instances.collect(), unknown_fields: Vec::new() };
    RingSnapshot::build(&model, NOW_MS, settings.into(), None)
}

/// What a distributor does up to the replica sets, which are the sending's.
fn send(body: &[u8], treatment: &Treatment<'_>, scratch: &mut Scratch, ring: &RingSnapshot) -> u64 {
    let prepared = prepare(body, treatment, scratch, NOW_MS).expect("sound");
    assert_eq!(prepared.counts.samples, SERIES);
    let circle = ring.circle();
    prepared.items.iter().map(|item| u64::from(circle.search(item.key).0)).sum()
}

fn f(request: &Request) {
    let fold = |sum, labels: &LabelsBuf| sum ^ ring_key(TENANT, labels.as_labels()).0;
    black_box(request.labels.iter().fold(0, fold));
}

/// What most would write: a decoder into owned messages, a list of what goes on, rules label by
/// label, and the request encoded again.
fn conventional(body: &[u8], limits: &Limits, ring: &RingSnapshot) -> u64 {
    let request = cortexpb::WriteRequest::decode(body).expect("sound");
    let mut kept = Vec::new();
    let mut positions = 0;
    for mut series in request.timeseries {
        series.labels.retain(|label| !label.value.is_empty());
        series.labels.sort_by(|a, b| a.name.cmp(&b.name));
        let mut key = fnv1_32(0x811c_9dc5, TENANT.as_bytes());
        let mut size = 0;
        let mut fits = series.labels.len() as u64 <= limits.max_label_names_per_series;
        for label in &series.labels {
            key = fnv1_32(fnv1_32(key, &label.name), &label.value);
            size += label.encoded_len() as u64;
            fits &= NameScheme::Legacy.allows_label(&label.name);
            fits &= label.name.len() as u64 <= limits.max_label_name_length;
            fits &= label.value.len() as u64 <= limits.max_label_value_length;
        }
        fits &= series.labels.windows(2).all(|pair| pair[0].name < pair[1].name);
        fits &= limits.max_labels_size_bytes == 0 || size <= limits.max_labels_size_bytes;
        let newest_ms = NOW_MS + limits.creation_grace_period.0 as i64;
        fits &= series.samples.iter().all(|sample| sample.timestamp_ms <= newest_ms);
        if fits {
            positions += u64::from(ring.circle().search(freehold::keys::RingKey(key)).0);
            kept.push(series);
        }
    }
    let request = cortexpb::WriteRequest { timeseries: kept, ..Default::default() };
    positions + request.encode_to_vec().len() as u64
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
