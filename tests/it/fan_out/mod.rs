//! A distributor's fan-out to ingesters in this process, over real sockets.
//!
//! Ingesters are our own, behind their real gRPC edge, where it matters what they keep; where
//! they have to be slow, mute or killed they are those that the sidecar's tests stand before.

mod answers;
mod clients;
mod faults;
pub mod prepared;
mod tls;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use freehold::clock::Now;
use freehold::distributor::fan_out::{FanOut, FanOutError};
use freehold::distributor::{DistributorConfig, ShardingStrategy};
use freehold::exposition::Families;
use freehold::ingester::config::{CheckIngestionLimits, IngesterConfig};
use freehold::ingester::{Ingester, Parts, Role};
use freehold::labels::IdentityHasher;
use freehold::limits::{InstanceLimits, Limits, Overrides};
use freehold::ring::model::{Instance, InstanceState, RingModel, Token};
use freehold::ring::{Ring, RingSettings, RingSnapshot};
use freehold::server::config::ServerConfig;
use freehold::server::drain::Drainer;
use freehold::server::grpc::{GrpcEdge, HealthSwitch, Settings, serve};
use freehold::server::listen::Listener;
use freehold::server::seam::{IngesterCalls, Work};
use freehold::server::stream_auth::StreamKeys;
use freehold::server::tenancy::Tenancy;
use freehold::tls::ServerTls;
use freehold::units::Millis;
use freehold::upstream::ingesters::config::IngesterClientConfig;
use freehold::upstream::ingesters::{Ingesters, Pushing};
use prometheus::proto::MetricFamily;
use tokio::task::JoinSet;

use super::cluster::{UNIX_MS, request, tenant};
use super::pass_through::fake::patiently;
use super::ports::Port;
use prepared::prepared;

const TENANT: &str = "team-a";
const NOW: Now = Now { unix_ms: UNIX_MS, steady_ns: 1_000_000_000 };

/// An ingester of our own behind its gRPC edge.
struct Node {
    ingester: Arc<Ingester>,
    address: SocketAddr,
    health: HealthSwitch,
    _drainer: Drainer,
    _tasks: JoinSet<()>,
}

impl Node {
    async fn start() -> Self {
        Self::with(0, StreamKeys::default()).await
    }

    /// `series_max` of 0 is no limit.
    async fn with(series_max: i64, stream_keys: StreamKeys) -> Self {
        Self::behind(None, series_max, stream_keys).await
    }

    async fn behind(tls: Option<Arc<ServerTls>>, series_max: i64, stream_keys: StreamKeys) -> Self {
        let limits = Limits {
            max_series_per_user: series_max,
            max_series_per_metric: 0,
            max_global_series_per_user: 0,
            ..Limits::default()
        };
        let ring = RingSettings {
            replication_factor: 1,
            zone_awareness_enabled: false,
            heartbeat_timeout_ms: 60_000,
            extend_writes: true,
            own_id: None,
        };
        let ingester = Arc::new(Ingester::new(Parts {
            config: IngesterConfig {
                check_ingestion_limits: CheckIngestionLimits::Off,
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
            store: None,
            hasher: IdentityHasher::new([7; 192]),
        }));
        ingester.note_ring_state(InstanceState::Active);
        ingester.run();
        let pushed = Arc::clone(&ingester);
        let calls = IngesterCalls {
            push: Arc::new(move |tenant, body: bytes::Bytes| Ok(pushed.push(tenant, &body, NOW)?)),
            judge: Arc::new(|_, _| unreachable!("no push goes on")),
            user_stats: Arc::new(|_| Default::default()),
            all_user_stats: Arc::new(Vec::new),
        };
        let settings = Settings {
            tenancy: Tenancy::Header,
            clients: Default::default(),
            stream_keys,
            room: freehold::server::room::Room::new(1 << 30),
            upstream: None,
            stream_answer_within: Duration::from_secs(10),
            receive_message_bytes_max: 4 << 20,
            send_message_bytes_max: 4 << 20,
        };
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind");
        let listener = listener.with_tls(tls);
        let address = listener.local_address().expect("bound");
        let (drainer, drain) = Drainer::new();
        let health = HealthSwitch::new().await;
        health.set_serving(true).await;
        let edge = GrpcEdge::new(settings, Some(calls), Work::Inline, &health, drain.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            serve(listener, edge, &ServerConfig::default(), drain).await;
        });
        Self { ingester, address, health, _drainer: drainer, _tasks: tasks }
    }

    fn series(&self, id: &str) -> u64 {
        let tenant = self.ingester.tenants.visit(&tenant(id));
        tenant.map_or(0, |tenant| tenant.series.counts().series.in_memory)
    }
}

/// What the fan-out is told; the rest is as it comes.
struct Setup {
    distributor: DistributorConfig,
    client: IngesterClientConfig,
}

impl Default for Setup {
    fn default() -> Self {
        // Deadlines are no part of what most tests are about, and a busy machine may need longer
        // than the two seconds that are usual.
        let remote_timeout = Millis::from_secs(60);
        let distributor = DistributorConfig { remote_timeout, ..DistributorConfig::default() };
        Self { distributor, client: IngesterClientConfig::default() }
    }
}

impl Setup {
    fn streams() -> Self {
        let mut setup = Self::default();
        setup.distributor.use_stream_push = true;
        setup
    }

    fn both() -> [Self; 2] {
        [Self::default(), Self::streams()]
    }

    fn start(&self) -> Gate {
        let ingesters = Ingesters::new(&self.client, self.distributor.ingesters());
        let ingesters = ingesters.expect("settings");
        let DistributorConfig { sharding_strategy, extend_writes, .. } = self.distributor;
        Gate { fan_out: FanOut::new(ingesters, sharding_strategy, extend_writes) }
    }
}

/// A distributor as far as the fan-out goes.
struct Gate {
    fan_out: FanOut,
}

impl Gate {
    async fn push(
        &self,
        ring: &RingSnapshot,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Result<(), FanOutError> {
        self.push_sharded(ring, numbers, 0).await
    }

    async fn push_sharded(
        &self,
        ring: &RingSnapshot,
        numbers: impl IntoIterator<Item = u64>,
        shard_size: i64,
    ) -> Result<(), FanOutError> {
        self.push_whole(ring, &request(numbers, UNIX_MS), shard_size).await
    }

    async fn push_body(&self, ring: &RingSnapshot, body: &[u8]) -> Result<(), FanOutError> {
        self.push_whole(ring, body, 0).await
    }

    async fn push_whole(
        &self,
        ring: &RingSnapshot,
        body: &[u8],
        shard_size: i64,
    ) -> Result<(), FanOutError> {
        let prepared = prepared(TENANT, body);
        let pushing = Pushing {
            tenant: TENANT,
            client: None,
            request_metadata: &[],
            source_ips: None,
            trail: None,
        };
        patiently(self.fan_out.push(&pushing, &prepared, ring, shard_size)).await
    }

    fn families(&self) -> Vec<MetricFamily> {
        let mut families = Families::default();
        self.fan_out.ingesters().read_metrics(&mut families);
        families.into_vec()
    }

    /// Sum of a family's samples with all of these labels.
    fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let families = self.families();
        let family = families.iter().find(|family| family.name() == name);
        let metrics = family.map_or(&[][..], |family| family.get_metric());
        let fits = |metric: &&prometheus::proto::Metric| {
            labels.iter().all(|(name, value)| {
                metric.get_label().iter().any(|l| l.name() == *name && l.value() == *value)
            })
        };
        let value = |metric: &prometheus::proto::Metric| {
            metric.get_counter().get_value() + metric.get_gauge().get_value()
        };
        metrics.iter().filter(fits).map(value).sum()
    }

    /// Messages to an ingester.
    fn appends(&self, at: usize) -> f64 {
        let id = format!("ingester-{at}");
        self.metric("cortex_distributor_ingester_appends_total", &[("ingester", &id)])
    }

    fn failures(&self, id: &str, status: &str) -> f64 {
        self.metric(
            "cortex_distributor_ingester_append_failures_total",
            &[("ingester", id), ("status", status), ("type", "samples")],
        )
    }

    /// Nothing is under way any more, late answers included.
    async fn until_idle(&self) {
        until("all answers", || self.fan_out.ingesters().in_flight() == 0).await;
    }
}

/// A ring of these members in the zones `zones` gives to their places, all ACTIVE.
fn ring_of(
    addresses: &[SocketAddr],
    replication_factor: usize,
    zone: impl Fn(usize) -> String,
) -> RingSnapshot {
    let instance = |(at, address): (usize, &SocketAddr)| {
        let tokens = (0..64).map(|token| Token((at as u32 * 64 + token).wrapping_mul(0x9e37_79b9)));
        let instance = Instance {
            addr: address.to_string(),
            timestamp_s: UNIX_MS / 1000,
            state: InstanceState::Active,
            tokens: tokens.collect(),
            zone: zone(at),
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        };
        (format!("ingester-{at}"), instance)
    };
    let model = RingModel {
        instances: addresses.iter().enumerate().map(instance).collect(),
        unknown_fields: Vec::new(),
    };
    let settings = RingSettings {
        replication_factor,
        zone_awareness_enabled: addresses.len() > 1 && !zone(0).is_empty(),
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: None,
    };
    RingSnapshot::build(&model, UNIX_MS, settings.into(), None)
}

fn ring(addresses: &[SocketAddr]) -> RingSnapshot {
    ring_of(addresses, 3, |_| String::new())
}

async fn nodes(count: usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(Node::start().await);
    }
    nodes
}

fn addresses(nodes: &[Node]) -> Vec<SocketAddr> {
    nodes.iter().map(|node| node.address).collect()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert!(waited.is_ok(), "waited in vain: {what}");
}

#[tokio::test]
async fn a_push_reaches_every_replica_of_each_series() {
    for setup in Setup::both() {
        let gate = setup.start();
        let nodes = nodes(5).await;
        let ring = ring(&addresses(&nodes));
        gate.push(&ring, 0..500).await.expect("stored");
        gate.until_idle().await;
        let body = request(0..500, UNIX_MS);
        let mut expect = vec![0; nodes.len()];
        for item in prepared(TENANT, &body).items {
            for member in ring.get(item.key, freehold::ring::Operation::Write).expect("3").members {
                expect[ring.member_index(&member.id).expect("known").index()] += 1;
            }
        }
        let kept: Vec<_> = nodes.iter().map(|node| node.series(TENANT)).collect();
        assert_eq!(kept, expect);
        assert_eq!(kept.iter().sum::<u64>(), 1500);
        assert!(kept.iter().all(|kept| (1..500).contains(kept)), "spread: {kept:?}");
        for node in 0..nodes.len() {
            assert_eq!(gate.appends(node), 1.0, "ingester-{node}");
        }
    }
}

#[tokio::test]
async fn a_zone_may_be_down_but_not_two() {
    let nodes = nodes(6).await;
    let zone = |at: usize| format!("zone-{}", at % 3);
    let gate = Setup::default().start();
    let all = addresses(&nodes);
    gate.push(&ring_of(&all, 3, zone), 0..300).await.expect("stored");
    gate.until_idle().await;
    for zone in 0..3 {
        assert_eq!(nodes[zone].series(TENANT) + nodes[zone + 3].series(TENANT), 300, "once each");
    }
    let nobody = Port::new();
    let gone = nobody.address;
    let without = |zones: usize| -> Vec<_> {
        (0..6).map(|at| if at % 3 < zones { gone } else { all[at] }).collect()
    };
    gate.push(&ring_of(&without(1), 3, zone), 300..600).await.expect("two zones are a quorum");
    gate.until_idle().await;
    assert_eq!(nodes[2].series(TENANT) + nodes[5].series(TENANT), 600);
    let error = gate.push(&ring_of(&without(2), 3, zone), 600..900).await.expect_err("one zone");
    assert_eq!(error.code(), Some(500));
    assert!(error.to_string().contains(" zone=zone-"), "{error}");
}

#[tokio::test]
async fn a_tenant_with_a_shard_size_stays_in_its_shard() {
    let nodes = nodes(6).await;
    let ring = ring(&addresses(&nodes));
    let mut setup = Setup::default();
    setup.distributor.sharding_strategy = ShardingStrategy::ShuffleSharding;
    let gate = setup.start();
    gate.push_sharded(&ring, 0..100, 3).await.expect("stored");
    gate.until_idle().await;
    let shard = ring.subring(TENANT, 3, freehold::ring::ShardRule::Balanced).expect("a part");
    for (at, node) in nodes.iter().enumerate() {
        let id = format!("ingester-{at}");
        let is_member = shard.members().iter().any(|member| *member.id == *id);
        assert_eq!(node.series(TENANT), if is_member { 100 } else { 0 }, "{id}");
    }
    // Without a shard size the whole ring takes part.
    gate.push_sharded(&ring, 100..400, 0).await.expect("stored");
    gate.until_idle().await;
    assert!(nodes.iter().all(|node| node.series(TENANT) > 0));
}
