//! A push asks the allocator for next to nothing once its scratch has grown.
//!
//! A binary of its own, since the allocator belongs to the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use freehold::clock::{Clock, Now};
use freehold::distributor::prepare::{Replicas, Scratch, Treatment, prepare};
use freehold::distributor::{self as gate, Distributor};
use freehold::ingester::config::{CheckIngestionLimits, IngesterConfig};
use freehold::ingester::{Ingester, Parts, Role};
use freehold::labels::{IDENTITY_SECRET_BYTES, IdentityHasher, NameScheme, Placement};
use freehold::limits::{InstanceLimits, Limits, Overrides};
use freehold::ring::model::InstanceState;
use freehold::ring::{Ring, RingSettings};
use freehold::tenant::TenantId;
use freehold::wire::write_request::WriteRequest;

#[path = "../benches/shared/mod.rs"]
mod shared;

/// Counts per thread: the test harness allocates in its own.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// An allocator cannot be had without it; all that is added to the system's is a count.
#[expect(unsafe_code, reason = "the trait is unsafe")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(act: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    act();
    ALLOCATIONS.with(Cell::get) - before
}

fn read_all(body: &[u8], hasher: &IdentityHasher, arena: &mut Vec<u8>) {
    let mut request = WriteRequest::new(body, arena).expect("small");
    let mut series = 0;
    while let Some(one) = request.next_series().expect("sound") {
        std::hint::black_box(hasher.identity(request.labels(&one)));
        series += one.samples(body).count();
    }
    assert_eq!(series, 1000);
}

#[test]
fn reading_a_push_allocates_nothing() {
    let hasher = IdentityHasher::new([5; IDENTITY_SECRET_BYTES]);
    let body = shared::request(0..1000, 1_700_000_000_000);
    let mut arena = Vec::new();
    assert!(allocations(|| drop(std::hint::black_box(vec![0_u8; 100]))) > 0, "counts");
    assert_eq!(allocations(|| read_all(&body, &hasher, &mut arena)), 0);
    assert!(arena.is_empty(), "labels were read where they lie");

    // The same series with each one's sample in front of its labels: rewritten in the arena.
    let mut odd = Vec::new();
    for number in 0..1000 {
        let one = shared::request([number], 1_700_000_000_000);
        let message = &one[3..one.len() - 3];
        let labels = &message[..304];
        let sample = &message[304..];
        odd.push(0x0a);
        odd.extend([(message.len() & 0x7f) as u8 | 0x80, (message.len() >> 7) as u8]);
        odd.extend([sample, labels].concat());
    }
    read_all(&odd, &hasher, &mut arena);
    assert_eq!(arena.len(), 304 * 1000);
    assert_eq!(allocations(|| read_all(&odd, &hasher, &mut arena)), 0);
}

/// A request that needs no change: its items are listed, and nothing is made of its series.
#[test]
fn preparing_a_write_allocates_its_list_of_items_alone() {
    let limits = Limits { drop_labels: vec!["replica".into()], ..Limits::default() };
    let treatment = Treatment {
        tenant: "a",
        limits: &limits,
        names: NameScheme::Utf8,
        placement: Placement::ByAllLabels,
        replicas: Replicas::Kept,
    };
    let now_ms = 1_700_000_000_000;
    let body = shared::request(0..1000, now_ms);
    let mut scratch = Scratch::default();
    let mut one = || {
        let prepared = prepare(&body, &treatment, &mut scratch, now_ms).expect("sound");
        assert_eq!(prepared.items.len(), 1000);
    };
    one();
    assert_eq!(allocations(one), 1);
}

/// The whole path of known series without a store: decode, rates, touch, counts.
#[test]
fn pushing_known_series_allocates_nothing() {
    let ring = RingSettings {
        replication_factor: 1,
        zone_awareness_enabled: false,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: None,
    };
    let limits = Limits { ingestion_rate: 1e9, ingestion_burst_size: 1 << 30, ..Limits::default() };
    let ingester = Ingester::new(Parts {
        config: IngesterConfig {
            check_ingestion_limits: CheckIngestionLimits::On,
            ..IngesterConfig::default()
        },
        role: Role {
            behind_distributors: true,
            shard_by_all_labels: true,
            shuffle_sharding: false,
            has_upstream: false,
        },
        ring: Arc::new(Ring::new(ring, 600_000)),
        overrides: Arc::new(Overrides::new(limits, InstanceLimits::default())),
        hasher: IdentityHasher::new([5; IDENTITY_SECRET_BYTES]),
        store: None,
    });
    ingester.note_ring_state(InstanceState::Active);
    ingester.run();
    let tenant = TenantId::parse("a").expect("a tenant");
    let push = |body: &[u8], steady_s: i64| {
        let now = Now { unix_ms: 1_700_000_000_000, steady_ns: steady_s * 1_000_000_000 };
        ingester.push(&tenant, body, now).expect("admitted").samples
    };
    let body = shared::request(0..1000, 1_700_000_000_000);
    assert!(allocations(|| assert_eq!(push(&body, 1), 1000)) > 0, "creating them");
    // The second finds all of them and lets the scratch grow.
    push(&body, 2);
    for steady_s in 3..20 {
        assert_eq!(allocations(|| assert_eq!(push(&body, steady_s), 1000)), 0);
    }
}

#[test]
fn a_gated_write_allocates_for_the_request_and_not_for_its_series() {
    let limits =
        Limits { ingestion_rate: 1e12, ingestion_burst_size: 1 << 40, ..Limits::default() };
    let distributor = Distributor::new(gate::Parts {
        config: gate::DistributorConfig::default(),
        names: freehold::labels::NameScheme::Legacy,
        parity: false,
        overrides: Arc::new(Overrides::new(limits, InstanceLimits::default())),
        peers: gate::Peers::Alone,
        ha: gate::ha::HaTracker::off(),
        sink: gate::Sink::Local(Arc::new(|_, _| Box::pin(async { Ok(()) }))),
        clock: Clock::start(),
        recheck_period: std::time::Duration::from_secs(10),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let tenant = TenantId::parse("a").expect("a tenant");
    let push = |series: u64| {
        let body = shared::request(0..series, 1_700_000_000_000);
        let body = snap::raw::Encoder::new().compress_vec(&body).expect("packs");
        let write = gate::Received {
            form: gate::Form::RemoteWrite(freehold::wire::remote_write::Version::V1),
            body: body.into(),
            request_id: String::new(),
            passed: Default::default(),
            room: None,
        };
        let now = Now { unix_ms: 1_700_000_000_000, steady_ns: 1_000_000_000 };
        allocations(|| {
            let outcome = runtime.block_on(distributor.push(&tenant, write, now));
            assert!(outcome.is_ok());
        })
    };
    push(10);
    let (few, many) = (push(10), push(1000));
    // Columns double as they grow.
    assert!(many <= few + 20, "{few} for ten series, {many} for a thousand");
}
