//! A push asks the allocator for next to nothing once its scratch has grown.
//!
//! A binary of its own, since the allocator belongs to the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use freehold::clients::config::ClientIdentityConfig;
use freehold::clock::{Clock, Now};
use freehold::distributor::prepare::{Replicas, Scratch, Treatment, prepare};
use freehold::distributor::{self as gate, Distributor};
use freehold::ingester::config::{CheckIngestionLimits, IngesterConfig};
use freehold::ingester::{Ingester, Parts, Role};
use freehold::labels::{IDENTITY_SECRET_BYTES, IdentityHasher, NameScheme, Placement};
use freehold::limits::{InstanceLimits, Limits, Overrides};
use freehold::ring::model::InstanceState;
use freehold::ring::{Ring, RingSettings};
use freehold::server::client_header::ClientHeader;
use freehold::server::durations::Durations;
use freehold::server::http::{HttpEdge, RemoteWriteSettings, ShellCalls, router};
use freehold::server::room::Room;
use freehold::server::seam::DistributorCalls;
use freehold::server::tenancy::Tenancy;
use freehold::tenant::TenantId;
use freehold::wire::write_request::WriteRequest;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

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
        is_placed: true,
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

/// A distributor that admits everything and keeps nothing.
fn distributor() -> Distributor {
    let limits =
        Limits { ingestion_rate: 1e12, ingestion_burst_size: 1 << 40, ..Limits::default() };
    Distributor::new(gate::Parts {
        config: gate::DistributorConfig::default(),
        names: freehold::labels::NameScheme::Legacy,
        parity: false,
        overrides: Arc::new(Overrides::new(limits, InstanceLimits::default())),
        peers: gate::Peers::Alone,
        budgets: None,
        ha: gate::ha::HaTracker::off(),
        sink: gate::Sink::Local(Arc::new(|_, _| Box::pin(async { Ok(()) }))),
        clock: Clock::start(),
        recheck_period: Duration::from_secs(10),
    })
}

#[test]
fn a_gated_write_allocates_for_the_request_and_not_for_its_series() {
    let distributor = distributor();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let tenant = TenantId::parse("a").expect("a tenant");
    let push = |series: u64| {
        let body = shared::request(0..series, 1_700_000_000_000);
        let body = snap::raw::Encoder::new().compress_vec(&body).expect("packs");
        let write = gate::Received {
            form: gate::Form::RemoteWrite(freehold::wire::remote_write::Version::V1),
            body: body.into(),
            trail: Default::default(),
            client: None,
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

#[test]
fn measuring_a_request_allocates_nothing() {
    let registry = prometheus::Registry::new();
    let durations = Durations::register(&registry, ["/prometheus"]).expect("new");
    let measure = || {
        let asked = durations.request(&http::Method::GET, "/prometheus/api/v1/label/job/values");
        asked.answered(http::StatusCode::OK);
        durations.request(&http::Method::POST, "/api/v1/push").answered(http::StatusCode::OK);
        durations.call("/cortex.Ingester/Push").expect("it ends").coded(0);
        durations.message().coded(200);
    };
    assert!(allocations(measure) > 0, "its labels are new");
    assert_eq!(allocations(measure), 0);
}

/// The HTTP edge before a distributor, as a gate has it.
fn edge(client_identity: &ClientIdentityConfig) -> axum::Router {
    let nothing = Arc::new(|_| String::new());
    let distributor = Arc::new(distributor());
    let now = Now { unix_ms: 1_700_000_000_000, steady_ns: 1_000_000_000 };
    let calls = DistributorCalls {
        push: Arc::new(move |tenant, write| {
            let distributor = Arc::clone(&distributor);
            Box::pin(async move { distributor.push(&tenant, write, now).await })
        }),
        budget: Arc::new(|_| None),
        came: Arc::new(|_| {}),
    };
    let edge = HttpEdge {
        tenancy: Tenancy::Header,
        clients: ClientHeader::of_http(client_identity).expect("settings"),
        shell: ShellCalls {
            ready: Arc::new(|| Ok(None)),
            metrics: Arc::new(String::new),
            config: nothing.clone(),
            runtime_config: nothing,
        },
        distributor: Some(calls),
        remote_write: RemoteWriteSettings {
            v2_enabled: true,
            accept_unknown_content_type: false,
            body_bytes_max: 1 << 20,
            otlp_body_bytes_max: 1 << 20,
            body_wait: Duration::from_secs(30),
            ratelimit_headers: gate::RateLimitHeaders::Off,
        },
        room: Room::new(1 << 30),
    };
    router(edge, axum::Router::new())
}

/// Where nobody looks for clients, or nobody is named, a write costs and answers what it did
/// before there were any.
#[test]
fn a_write_that_names_no_client_is_as_if_there_were_none() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("runtime");
    let body = shared::request(0..100, 1_700_000_000_000);
    let body = snap::raw::Encoder::new().compress_vec(&body).expect("packs");
    let push = |edge: &axum::Router, header: Option<(&str, &str)>| {
        let mut request = http::Request::post("/api/v1/push").header("x-scope-orgid", "a");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body.clone())).expect("a request");
        let mut answer = None;
        let count = allocations(|| {
            let response = runtime.block_on(edge.clone().oneshot(request)).expect("answers");
            answer = Some(response);
        });
        let (head, body) = answer.expect("an answer").into_parts();
        let body = runtime.block_on(body.collect()).expect("a body").to_bytes();
        assert_eq!(head.status, 200);
        (count, (head.headers, body))
    };
    let off = edge(&ClientIdentityConfig::default());
    let on = edge(&ClientIdentityConfig { enabled: true, ..ClientIdentityConfig::default() });
    for edge in [&off, &on] {
        push(edge, None);
        push(edge, Some(("x-scope-clientid", "a")));
    }
    assert_eq!(push(&off, None), push(&on, None), "nobody is named");
    let other = push(&off, Some(("x-other-clientid", "a")));
    assert_eq!(push(&off, Some(("x-scope-clientid", "a"))), other, "nobody looks");
    let named = push(&on, Some(("x-scope-clientid", "a"))).0;
    assert!(named > other.0, "{named} with a name of its own, {} without", other.0);
}
