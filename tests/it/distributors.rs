//! Two distributors that share a tenant's global rate, each with its own life in one ring.
//!
//! Time is tokio's paused time: lives, watchers and buckets go by it, and a run of minutes takes
//! milliseconds.

use std::sync::Arc;
use std::time::Duration;

use freehold::clock::{Clock, Now};
use freehold::distributor::{
    Answer, Distributor, DistributorConfig, Form, Parts, Peers, PushError, Received, Sink,
};
use freehold::limits::{IngestionRateStrategy, InstanceLimits, Limits, Overrides};
use freehold::ring::kv::inmemory::InMemoryKv;
use freehold::ring::kv::{KvClient, KvCodec};
use freehold::ring::lifecycler::{self, Lifecycler, Means};
use freehold::ring::service_ring::{DISTRIBUTOR_RING, ServiceRingConfig};
use freehold::ring::watcher::{RingRead, Taken, Watcher};
use freehold::ring::{Published, Ring, RingSettings};
use freehold::tenant::TenantId;
use freehold::units::Millis;
use freehold::upstream::distributor::Passed;
use freehold::wire::proto::cortexpb;
use freehold::wire::remote_write::Version;
use freehold::wire::ring_desc;
use prost::Message as _;
use tokio::time::{Instant, sleep};

const UNIX_MS: i64 = 1_800_000_000_000;
const RATE: f64 = 1000.0;
const BURST: u64 = 100;
const SAMPLES_PER_PUSH: u64 = 10;
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(4);
/// Shortened in step with the timeouts; a process takes ten seconds.
const RECHECK_PERIOD: Duration = Duration::from_secs(1);

/// One distributor and its life in the ring.
struct Gate {
    distributor: Distributor,
    ring: Arc<Ring>,
    lifecycler: Option<Lifecycler>,
    _watcher: Watcher,
}

struct Timeline(Instant);

impl Timeline {
    fn now(&self) -> Now {
        let elapsed = self.0.elapsed();
        let ns = i64::try_from(elapsed.as_nanos()).expect("short");
        Now { unix_ms: UNIX_MS + ns / 1_000_000, steady_ns: 1_000_000_000 + ns }
    }
}

fn join(id: &str, store: &InMemoryKv, timeline: &Arc<Timeline>) -> Gate {
    let config = ServiceRingConfig {
        heartbeat_period: Millis::from_secs(1),
        heartbeat_timeout: Millis(HEARTBEAT_TIMEOUT.as_millis() as u64),
        auto_forget_delay: Millis::from_secs(20),
        instance_id: id.to_owned(),
        instance_addr: "127.0.0.1".to_owned(),
        ..ServiceRingConfig::default()
    };
    let life = config.lifecycler();
    let kv = KvClient::new(&life.ring.kvstore, store, None, "distributor-ring").expect("a store");
    let key = life.ring.kvstore.key(DISTRIBUTOR_RING);
    let codec = KvCodec {
        decode: |bytes| ring_desc::decode(bytes).map_err(|error| error.to_string()),
        encode: |model| ring_desc::encode(model).expect("a model of two"),
    };
    let clock: lifecycler::WallClock = {
        let timeline = Arc::clone(timeline);
        Arc::new(move || timeline.now().unix_ms)
    };
    let ring = Arc::new(Ring::new(
        RingSettings {
            replication_factor: 1,
            zone_awareness_enabled: false,
            heartbeat_timeout_ms: life.ring.heartbeat_timeout.0,
            extend_writes: false,
            own_id: Some(id.to_owned()),
        },
        600_000,
    ));
    let published = Arc::clone(&ring);
    let sink = move |read: RingRead| {
        if let RingRead::Ok { reading, read_at_ms } = read
            && published.publish(&reading, read_at_ms) == Published::OutOfStep
        {
            return Taken::OutOfStep;
        }
        Taken::InStep
    };
    let watcher = Watcher::spawn(kv.clone(), key.clone(), codec, Arc::clone(&clock), sink);
    let metrics = lifecycler::Metrics::register(&prometheus::Registry::new(), "distributor");
    let means = Means {
        kv,
        key,
        codec,
        clock,
        tokens_file_path: None,
        metrics: metrics.expect("a new registry"),
    };
    let lifecycler = Lifecycler::spawn(lifecycler::settings(&life, 9095), means);
    let limits = Limits {
        ingestion_rate: RATE,
        ingestion_burst_size: BURST,
        ingestion_rate_strategy: IngestionRateStrategy::Global,
        ..Limits::default()
    };
    let distributor = Distributor::new(Parts {
        config: DistributorConfig::default(),
        parity: false,
        overrides: Arc::new(Overrides::new(limits, InstanceLimits::default())),
        peers: Peers::Ring(Arc::clone(&ring)),
        budgets: None,
        ha: freehold::distributor::ha::HaTracker::off(),
        names: freehold::labels::NameScheme::Legacy,
        sink: Sink::Local(Arc::new(|_, _| Box::pin(async { Ok(()) }))),
        clock: Clock::start(),
        recheck_period: RECHECK_PERIOD,
    });
    Gate { distributor, ring, lifecycler: Some(lifecycler), _watcher: watcher }
}

impl Gate {
    /// Samples admitted of one push.
    async fn push(&self, body: &[u8], now: Now) -> u64 {
        let tenant = TenantId::parse("a").expect("a tenant");
        let write = Received {
            form: Form::RemoteWrite(Version::V1),
            body: body.to_vec().into(),
            trail: Default::default(),
            client: None,
            passed: Passed::default(),
            room: None,
        };
        match self.distributor.push(&tenant, write, now).await {
            Ok(Answer::Taken { partly: None, .. }) => SAMPLES_PER_PUSH,
            Err(PushError::OverRate(_)) => 0,
            other => panic!("{other:?}"),
        }
    }

    fn healthy(&self) -> usize {
        self.ring.load().healthy_count()
    }
}

fn body() -> Vec<u8> {
    let series = |number: u64| {
        let label = |name: &str, value: String| cortexpb::LabelPair {
            name: name.into(),
            value: value.into(),
        };
        cortexpb::TimeSeries {
            labels: vec![label("__name__", "m".into()), label("i", number.to_string())],
            samples: vec![cortexpb::Sample { timestamp_ms: UNIX_MS, ..Default::default() }],
            ..Default::default()
        }
    };
    let timeseries = (0..SAMPLES_PER_PUSH).map(series).collect();
    let request = cortexpb::WriteRequest { timeseries, ..Default::default() };
    snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).expect("packs")
}

/// Samples that the gates admit in `span` when each is sent twice its tenant's whole rate.
async fn admitted(gates: &[&Gate], timeline: &Timeline, span: Duration) -> u64 {
    let (body, end) = (body(), Instant::now() + span);
    let mut admitted = 0;
    while Instant::now() < end {
        for gate in gates {
            for _ in 0..2 {
                admitted += gate.push(&body, timeline.now()).await;
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
    admitted
}

#[track_caller]
fn check_within_2_percent(admitted: u64, expect: f64) {
    let off = (admitted as f64 - expect).abs() / expect;
    assert!(off <= 0.02, "{admitted} of {expect}");
}

#[tokio::test(start_paused = true)]
async fn two_share_a_global_rate_and_one_that_is_killed_leaves_its_share() {
    let timeline = Arc::new(Timeline(Instant::now()));
    let store = InMemoryKv::default();
    let (first, mut second) =
        (join("gate-1", &store, &timeline), join("gate-2", &store, &timeline));
    while first.healthy() != 2 || second.healthy() != 2 {
        assert!(timeline.0.elapsed() < Duration::from_secs(60), "two members");
        sleep(Duration::from_millis(100)).await;
    }
    let span = Duration::from_secs(10);
    let both = admitted(&[&first, &second], &timeline, span).await;
    check_within_2_percent(both, RATE * span.as_secs_f64() + 2.0 * BURST as f64);

    // As by `kill -9`: its entry stays behind.
    drop(second.lifecycler.take());
    admitted(&[&first], &timeline, 2 * HEARTBEAT_TIMEOUT).await;
    assert_eq!(first.healthy(), 1);
    let alone = admitted(&[&first], &timeline, span).await;
    check_within_2_percent(alone, RATE * span.as_secs_f64());
}

#[tokio::test(start_paused = true)]
async fn case_c4_the_dead_do_not_pile_up() {
    let timeline = Arc::new(Timeline(Instant::now()));
    let store = InMemoryKv::default();
    let stays = join("stays", &store, &timeline);
    for number in 0..20 {
        let mut dies = join(&format!("dies-{number}"), &store, &timeline);
        while dies.healthy() < 2 {
            sleep(Duration::from_millis(100)).await;
        }
        drop(dies.lifecycler.take());
    }
    assert!(stays.ring.load().members().len() > 1);
    sleep(Duration::from_secs(30)).await;
    assert_eq!((stays.ring.load().members().len(), stays.healthy()), (1, 1));
}
