//! Our part in a ring of gates, which tells how many there are, and who keeps which budget: the
//! distributors', or the query gates'.

use std::sync::Arc;

use prometheus::Registry;

use super::budgets::are_wanted;
use super::{AppError, RING_LAST_GOOD_MS};
use crate::admin::RingSource;
use crate::clients::Gates;
use crate::clock::Clock;
use crate::config::Config;
use crate::exposition::{AtScrape, Families};
use crate::limits::IngestionRateStrategy;
use crate::ring::config::LifecyclerConfig;
use crate::ring::kv::inmemory::InMemoryKv;
use crate::ring::kv::requests::RequestDurations;
use crate::ring::kv::{KvClient, KvCodec};
use crate::ring::lifecycler::{self, Lifecycler, LifecyclerHandle, Means};
use crate::ring::service_ring::{DISTRIBUTOR_RING, QUERY_GATE_RING, ServiceRingConfig};
use crate::ring::watcher::{RingRead, Taken, Watcher};
use crate::ring::{EMPTY_RING_ERROR, Published, Ring, RingSettings};
use crate::units::Millis;
use crate::wire::ring_desc;

/// A member of a ring of gates.
pub(super) struct Member {
    gates: Gates,
    id: Arc<str>,
    ring: Arc<Ring>,
    lifecycler: Lifecycler,
    watcher: Watcher,
}

/// What the process gives to a member.
#[derive(Clone, Copy)]
pub(super) struct Joining<'a> {
    pub(super) config: &'a Config,
    /// The one that the ring announces.
    pub(super) grpc_port: u16,
    pub(super) clock: Clock,
    pub(super) registry: &'a Registry,
    pub(super) durations: &'a RequestDurations,
}

/// What one ring of gates is called where.
struct Names {
    /// In the store, after the prefix.
    key: &'static str,
    /// Of its reads and of its writes, among those of the store.
    reads: &'static str,
    writes: &'static str,
    families: &'static str,
}

impl Member {
    /// Joins the distributors' ring where something is meant for all distributors together: rates,
    /// or the budgets of clients. As in Cortex, nobody asks how many there are else.
    pub(super) fn join_distributors(joining: Joining<'_>) -> Result<Option<Self>, AppError> {
        let config = joining.config;
        let own = &config.distributor.ring;
        // Any tenant's overrides may bring a budget of clients later.
        if are_wanted(config, Gates::Distributors) {
            return Self::join(joining, Gates::Distributors, &owner_ring(own, config)).map(Some);
        }
        match config.limits.ingestion_rate_strategy {
            IngestionRateStrategy::Local => Ok(None),
            IngestionRateStrategy::Global | IngestionRateStrategy::Leased => {
                Self::join(joining, Gates::Distributors, own).map(Some)
            }
        }
    }

    /// Joins the query gates' ring where they keep budgets together, which is all that it is for.
    pub(super) fn join_query_gates(joining: Joining<'_>) -> Result<Option<Self>, AppError> {
        let config = joining.config;
        if !are_wanted(config, Gates::QueryFrontends) {
            return Ok(None);
        }
        let ring = owner_ring(&config.frontend.ring, config);
        Self::join(joining, Gates::QueryFrontends, &ring).map(Some)
    }

    fn join(
        joining: Joining<'_>,
        gates: Gates,
        ring: &ServiceRingConfig,
    ) -> Result<Self, AppError> {
        let Joining { grpc_port, clock, registry, durations, .. } = joining;
        let life = ring.lifecycler();
        let (names, name) = (Names::of(gates), gates.name());
        let settings = lifecycler::settings(&life, grpc_port);
        let store = &life.ring.kvstore;
        let kv = KvClient::new(store, &InMemoryKv::default(), Some(durations), names.reads)?;
        if !kv.is_writable() {
            return Err(AppError::GateRingReadOnly { ring: gates });
        }
        let key = store.key(names.key);
        let codec = KvCodec {
            decode: |bytes| ring_desc::decode(bytes).map_err(|error| error.to_string()),
            // Our own model always fits: it was read within the same bounds.
            encode: |model| ring_desc::encode(model).unwrap_or_default(),
        };
        let wall_clock: lifecycler::WallClock = Arc::new(move || clock.now().unix_ms);
        let id: Arc<str> = settings.id.as_str().into();
        let ring = Arc::new(Ring::new(ring_settings(&life, &id), RING_LAST_GOOD_MS));
        let sink = publisher(Arc::clone(&ring), Arc::clone(&wall_clock));
        let watcher = Watcher::spawn(kv.clone(), key.clone(), codec, Arc::clone(&wall_clock), sink);
        let means = Means {
            kv: kv.for_user(names.writes),
            key,
            codec,
            clock: wall_clock,
            tokens_file_path: None,
            metrics: lifecycler::Metrics::register(registry, name)?,
        };
        let lifecycler = Lifecycler::spawn(settings, means);
        let (shown, reads) = (Arc::clone(&ring), watcher.counts());
        let read = move |families: &mut Families| {
            crate::ring::metrics::read(&shown, name, clock.now().unix_ms, families);
            reads.read_metrics(name, families);
        };
        registry.register(Box::new(AtScrape::new(names.families, read)))?;
        Ok(Self { gates, id, ring, lifecycler, watcher })
    }

    /// Whose ring it is.
    pub(super) fn gates(&self) -> Gates {
        self.gates
    }

    /// Our id in the ring.
    pub(super) fn id(&self) -> &Arc<str> {
        &self.id
    }

    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    pub(super) fn handle(&self) -> LifecyclerHandle {
        self.lifecycler.handle()
    }

    /// What the ring's page is made from.
    pub(super) fn page(&self, clock: Clock) -> RingSource {
        RingSource { ring: Arc::clone(&self.ring), lifecycler: Some(self.handle()), clock }
    }

    /// Says that we go, so that the others take our share.
    pub(super) async fn leave(&self) {
        self.lifecycler.leave().await;
    }

    pub(super) async fn stop(self) {
        if let Err(error) = self.lifecycler.stop().await {
            tracing::warn!(%error, ring = %self.gates, "our entry in the ring was not put in order");
        }
        self.watcher.stop().await;
    }
}

impl Names {
    fn of(gates: Gates) -> Self {
        match gates {
            Gates::Distributors => Self {
                key: DISTRIBUTOR_RING,
                reads: "distributor-ring",
                writes: "distributor-lifecycler",
                families: "distributor_ring_families",
            },
            Gates::QueryFrontends => Self {
                key: QUERY_GATE_RING,
                reads: "query-frontend-ring",
                writes: "query-frontend-lifecycler",
                families: "query_frontend_ring_families",
            },
        }
    }
}

fn ring_settings(life: &LifecyclerConfig, id: &Arc<str>) -> RingSettings {
    RingSettings {
        replication_factor: life.ring.replication_factor,
        zone_awareness_enabled: life.ring.zone_awareness_enabled,
        heartbeat_timeout_ms: life.ring.heartbeat_timeout.0,
        extend_writes: false,
        own_id: Some(id.to_string()),
    }
}

/// A ring whose members own budgets: their keys are to be shared out evenly, and a lost one is to
/// be noticed within [`owner_overdue`], so three heartbeats fit into that.
///
/// [`owner_overdue`]: crate::clients::config::ClientIdentityConfig::owner_overdue
fn owner_ring(ring: &ServiceRingConfig, config: &Config) -> ServiceRingConfig {
    let even = ServiceRingConfig::query_gate();
    let period_max = Millis(config.client_identity.owner_overdue.0 / 3);
    let heartbeat_period = match ring.heartbeat_period {
        Millis(0) => period_max,
        period => period.min(period_max),
    };
    let num_tokens = ring.num_tokens.max(even.num_tokens);
    ServiceRingConfig { heartbeat_period, num_tokens, ..ring.clone() }
}

/// Publishes what the store holds.
pub(super) fn publisher(
    ring: Arc<Ring>,
    clock: lifecycler::WallClock,
) -> impl FnMut(RingRead) -> Taken + Send + 'static {
    move |read: RingRead| {
        match read {
            RingRead::Ok { reading, read_at_ms } => {
                if ring.publish(&reading, read_at_ms) == Published::OutOfStep {
                    return Taken::OutOfStep;
                }
            }
            RingRead::Empty => ring.read_failed(clock(), EMPTY_RING_ERROR),
            RingRead::Failed(error) => ring.read_failed(clock(), error),
        }
        Taken::InStep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_of_both_rings_are_missed_in_time_and_share_evenly() {
        let config = Config::default();
        for ring in [&config.distributor.ring, &config.frontend.ring] {
            let slow = ServiceRingConfig { num_tokens: 1, ..ring.clone() };
            for (given, expect) in [(0, 2_000), (500, 500), (15_000, 2_000)] {
                let heartbeat_period = Millis(given);
                let ring =
                    owner_ring(&ServiceRingConfig { heartbeat_period, ..slow.clone() }, &config);
                assert_eq!((ring.heartbeat_period, ring.num_tokens), (Millis(expect), 128));
            }
        }
    }

    #[tokio::test]
    async fn one_process_is_in_both_rings() {
        let mut config = Config::default();
        let registry = Registry::new();
        let durations = RequestDurations::register(&registry).expect("new");
        let clock = Clock::start();
        fn joining<'a>(
            config: &'a Config,
            clock: Clock,
            registry: &'a Registry,
            durations: &'a RequestDurations,
        ) -> Joining<'a> {
            Joining { config, grpc_port: 9095, clock, registry, durations }
        }
        let none = joining(&config, clock, &registry, &durations);
        assert!(Member::join_distributors(none).expect("nothing to join").is_none());
        assert!(Member::join_query_gates(none).expect("nothing to join").is_none());
        config.client_identity.enabled = true;
        let both = joining(&config, clock, &registry, &durations);
        let writes = Member::join_distributors(both).expect("joins").expect("a member");
        let queries = Member::join_query_gates(both).expect("joins").expect("a member");
        assert_eq!(writes.id(), queries.id());
        assert_eq!((writes.gates(), queries.gates()), (Gates::Distributors, Gates::QueryFrontends));
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather());
        let text = text.expect("text");
        for name in ["distributor", "query-frontend"] {
            let sample = format!("cortex_member_ring_tokens_to_own{{name=\"{name}\"}}");
            assert!(text.contains(&sample), "{text}");
        }
        queries.stop().await;
        writes.stop().await;
    }
}
