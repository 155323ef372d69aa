//! Several ingesters on one ring, in one process: what the tests of scaling run on.
//!
//! Each instance has its own [`Ring`], fed with the same stored bytes as Cortex writes them, and
//! pushes go where the distributor's walk sends them. No store, no sockets, no clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use freehold::clock::{Clock, Now};
use freehold::ingester::config::{CheckIngestionLimits, IngesterConfig};
use freehold::ingester::passes::PassLoop;
use freehold::ingester::views::TenantView;
use freehold::ingester::{Ingester, Parts, PushError, Role};
use freehold::labels::{IdentityHasher, LabelsBuf, ring_key};
use freehold::limits::{InstanceLimits, Limits, Overrides};
use freehold::ring::go_rand::GoRand;
use freehold::ring::model::{Instance, InstanceState, RingModel, RingReading};
use freehold::ring::{Operation, Ring, RingSettings, RingSnapshot, ShardRule, Subring, Token};
use freehold::tenant::TenantId;
use freehold::wire::proto::cortexpb;
use freehold::wire::ring_desc;
use prost::Message as _;

pub const UNIX_MS: i64 = 1_800_000_000_000;

/// A cluster's settings; the rest is as tests need it.
#[derive(Clone)]
pub struct Setup {
    pub replication_factor: usize,
    pub zones: usize,
    pub tokens_each: usize,
    pub limits: Limits,
    pub config: IngesterConfig,
}

impl Setup {
    pub fn new(global_limit: i64, enforcement: bool) -> Self {
        let limits = Limits {
            max_series_per_user: 0,
            max_series_per_metric: 0,
            max_global_series_per_user: global_limit,
            ..Limits::default()
        };
        let config = IngesterConfig {
            owned_series_limit_enforcement_enabled: enforcement,
            check_ingestion_limits: CheckIngestionLimits::Off,
            ..IngesterConfig::default()
        };
        Self { replication_factor: 3, zones: 3, tokens_each: 512, limits, config }
    }
}

pub struct Node {
    pub ingester: Arc<Ingester>,
    pub passes: PassLoop,
}

pub struct Cluster {
    pub setup: Setup,
    pub model: RingModel,
    pub nodes: BTreeMap<String, Node>,
    /// The ring as distributors have it.
    pub seen: RingSnapshot,
    pub now: Now,
    random: GoRand,
}

/// What became of pushes: series by outcome, per instance asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Series that every replica took.
    pub accepted: u64,
    /// Series that some replica refused.
    pub refused: u64,
    /// Refusals by instance.
    pub by_instance: BTreeMap<String, u64>,
}

pub fn tenant(id: &str) -> TenantId {
    TenantId::parse(id).expect("a tenant")
}

impl Cluster {
    pub fn new(setup: Setup, instances: usize) -> Self {
        let mut cluster = Self {
            seen: RingSnapshot::empty(settings(&setup, None).into()),
            model: RingModel::default(),
            nodes: BTreeMap::new(),
            now: Now { unix_ms: UNIX_MS, steady_ns: 1_000_000_000 },
            random: GoRand::new(11),
            setup,
        };
        for _ in 0..instances {
            cluster.join(InstanceState::Active);
        }
        cluster.spread();
        cluster
    }

    /// One more instance; the others hear of it at the next [`Self::spread`].
    pub fn join(&mut self, state: InstanceState) -> String {
        let id = self.add_member(state);
        let node = node(&self.setup, &id);
        self.nodes.insert(id.clone(), node);
        id
    }

    /// One more member of the ring that nobody runs.
    pub fn add_member(&mut self, state: InstanceState) -> String {
        let number = self.model.instances.len();
        let id = format!("ingester-{number}");
        let random = &mut self.random;
        let mut tokens: Vec<_> =
            (0..self.setup.tokens_each).map(|_| Token(random.next_u32())).collect();
        tokens.sort_unstable();
        let zones = self.setup.zones;
        let zone = if zones == 0 { String::new() } else { format!("zone-{}", number % zones) };
        let instance = Instance {
            addr: format!("{id}:9095"),
            timestamp_s: self.now.unix_ms / 1000,
            state,
            tokens,
            zone,
            registered_timestamp_s: self.now.unix_ms / 1000,
            unknown_fields: Vec::new(),
        };
        self.model.instances.insert(id.clone(), instance);
        id
    }

    pub fn set_state(&mut self, id: &str, state: InstanceState) {
        self.model.instances.get_mut(id).expect("a member").state = state;
    }

    /// Everybody reads the ring as it is stored now; counts follow at [`Self::renew`].
    pub fn publish(&mut self) {
        let bytes = ring_desc::encode(&self.model).expect("encode");
        let model = ring_desc::decode(&bytes).expect("decode");
        self.seen = RingSnapshot::build(
            &model,
            self.now.unix_ms,
            settings(&self.setup, None).into(),
            Some(&self.seen),
        );
        let reading = RingReading::Whole(model);
        for node in self.nodes.values() {
            node.ingester.ring.publish(&reading, self.now.unix_ms);
        }
    }

    pub fn renew(&mut self) {
        for node in self.nodes.values_mut() {
            node.passes.renew(self.now);
        }
    }

    pub fn spread(&mut self) {
        self.publish();
        self.renew();
    }

    pub fn reload(&mut self, file: &str) {
        for node in self.nodes.values_mut() {
            let overrides = &node.ingester.overrides;
            overrides.publish(overrides.parse(file).expect("a runtime file"));
            node.passes.renew(self.now);
        }
    }

    /// Pushes each of these series of a tenant to its replicas, as a distributor does.
    pub fn push(
        &mut self,
        id: &TenantId,
        numbers: impl IntoIterator<Item = u64>,
        shard_size: i64,
    ) -> Outcomes {
        let mut outcomes = Outcomes::default();
        let subring = self.subring(id, shard_size);
        for number in numbers {
            let key = ring_key(id.as_str(), labels(number).as_labels());
            let replicas = match &subring {
                Some(subring) => subring.get(key, Operation::Write),
                None => self.seen.get(key, Operation::Write),
            };
            let body = request([number], self.now.unix_ms);
            let mut refused = false;
            for member in &replicas.expect("enough replicas").members {
                if self.push_to(&member.id, id, &body).is_err() {
                    refused = true;
                    *outcomes.by_instance.entry(member.id.to_string()).or_default() += 1;
                }
            }
            if refused { outcomes.refused += 1 } else { outcomes.accepted += 1 }
        }
        outcomes
    }

    pub fn push_to(&self, node: &str, id: &TenantId, body: &[u8]) -> Result<(), PushError> {
        self.nodes[node].ingester.push(id, body, self.now).map(drop)
    }

    pub fn subring(&self, id: &TenantId, shard_size: i64) -> Option<Subring> {
        self.seen.subring(id.as_str(), shard_size, ShardRule::Balanced)
    }

    pub fn view(&self, node: &str, id: &TenantId) -> TenantView {
        let views = self.nodes[node].ingester.tenant_views(self.now);
        views.into_iter().find(|view| view.tenant == *id).expect("the tenant is there")
    }

    /// Owned counts over all instances.
    pub fn owned(&self, id: &TenantId) -> u64 {
        let of = |node: &Node| {
            let views = node.ingester.tenant_views(self.now);
            views
                .iter()
                .filter(|view| view.tenant == *id)
                .map(|v| v.counts.series.owned)
                .sum::<u64>()
        };
        self.nodes.values().map(of).sum::<u64>()
    }
}

fn node(setup: &Setup, id: &str) -> Node {
    let ring = Ring::new(settings(setup, Some(id.to_owned())), 600_000);
    let overrides = Overrides::new(setup.limits.clone(), InstanceLimits::default());
    let ingester = Arc::new(Ingester::new(Parts {
        config: setup.config.clone(),
        role: Role {
            behind_distributors: true,
            shard_by_all_labels: true,
            shuffle_sharding: true,
            has_upstream: false,
        },
        ring: Arc::new(ring),
        overrides: Arc::new(overrides),
        store: None,
        hasher: IdentityHasher::new([7; 192]),
    }));
    ingester.note_ring_state(InstanceState::Active);
    ingester.run();
    let passes = PassLoop::new(Arc::clone(&ingester), Clock::start());
    Node { ingester, passes }
}

fn settings(setup: &Setup, own_id: Option<String>) -> RingSettings {
    RingSettings {
        replication_factor: setup.replication_factor,
        zone_awareness_enabled: setup.zones > 0,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id,
    }
}

/// Names that differ early: the ring's hash hardly mixes what comes last, and numbers in a row
/// would lie in one place of the ring.
fn name(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

pub fn labels(number: u64) -> LabelsBuf {
    let mut labels = LabelsBuf::new();
    labels.push(b"__name__", b"requests_total");
    labels.push(b"series", name(number).as_bytes());
    labels
}

/// A write request with one sample of each series.
pub fn request(numbers: impl IntoIterator<Item = u64>, timestamp_ms: i64) -> Vec<u8> {
    let pair = |name: &str, value: &str| cortexpb::LabelPair {
        name: name.to_owned().into(),
        value: value.to_owned().into(),
    };
    let timeseries = numbers.into_iter().map(|number| cortexpb::TimeSeries {
        labels: vec![pair("__name__", "requests_total"), pair("series", &name(number))],
        samples: vec![cortexpb::Sample { value: 1.0, timestamp_ms, start_timestamp_ms: 0 }],
        ..Default::default()
    });
    cortexpb::WriteRequest { timeseries: timeseries.collect(), ..Default::default() }
        .encode_to_vec()
}
