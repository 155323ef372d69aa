//! A member of a ring of gates, whose members share rates or keep budgets: the distributors' or the
//! query gates'.

use std::sync::Arc;

use prometheus::Registry;

use super::{AppError, RING_LAST_GOOD_MS, budgets};
use crate::admin::RingSource;
use crate::clients::Gates;
use crate::clock::Clock;
use crate::config::Config;
use crate::exposition::{AtScrape, Families};
use crate::limits::IngestionRateStrategy;
use crate::ring::kv::KvCodec;
use crate::ring::kv::stores::Stores;
use crate::ring::lifecycler::{self, Lifecycler, LifecyclerHandle, Means};
use crate::ring::service_ring::{DISTRIBUTOR_RING, QUERY_GATE_RING, ServiceRingConfig};
use crate::ring::watcher::{RingRead, Taken, Watcher};
use crate::ring::{EMPTY_RING_ERROR, Published, Ring, RingSettings};
use crate::units::Millis;
use crate::wire::ring_desc;

/// See the head of the file.
pub(super) struct Member {
    gates: Gates,
    id: Arc<str>,
    ring: Arc<Ring>,
    lifecycler: Lifecycler,
    watcher: Watcher,
}

/// What a member joins with.
#[derive(Clone, Copy)]
pub(super) struct Joining<'a> {
    pub(super) config: &'a Config,
    pub(super) grpc_port: u16,
    pub(super) clock: Clock,
    pub(super) registry: &'a Registry,
    pub(super) stores: &'a Stores,
}

/// One of the rings of gates.
struct Kind {
    gates: Gates,
    /// Its key in the store, after the prefix.
    key: &'static str,
    /// Who asks the store, in its metrics.
    kv_ring: &'static str,
    kv_lifecycler: &'static str,
    /// Id of its families among the sources of the registry.
    families: &'static str,
}

const DISTRIBUTORS: Kind = Kind {
    gates: Gates::Distributors,
    key: DISTRIBUTOR_RING,
    kv_ring: "distributor-ring",
    kv_lifecycler: "distributor-lifecycler",
    families: "distributor_ring_families",
};
const QUERY_GATES: Kind = Kind {
    gates: Gates::QueryFrontends,
    key: QUERY_GATE_RING,
    kv_ring: "query-frontend-ring",
    kv_lifecycler: "query-frontend-lifecycler",
    families: "query_frontend_ring_families",
};

impl Member {
    /// Joins where something is meant for all distributors together: rates, or the budgets of
    /// clients. As in Cortex, nobody asks how many there are else.
    pub(super) fn join_distributors(joining: Joining<'_>) -> Result<Option<Self>, AppError> {
        let config = joining.config;
        let has_shared_rates = match config.limits.ingestion_rate_strategy {
            IngestionRateStrategy::Local => false,
            IngestionRateStrategy::Global | IngestionRateStrategy::Leased => true,
        };
        // Any tenant's overrides may bring a budget of clients later.
        if !has_shared_rates && !config.client_identity.enabled {
            return Ok(None);
        }
        let ring = &config.distributor.ring;
        let owners = match budgets::are_wanted(config) {
            false => ring.clone(),
            true => owner_ring(config, ring),
        };
        Self::join(joining, &DISTRIBUTORS, &owners).map(Some)
    }

    /// Joins where clients are looked for, whose budgets members keep.
    pub(super) fn join_query_gates(joining: Joining<'_>) -> Result<Option<Self>, AppError> {
        let config = joining.config;
        if !config.client_identity.enabled {
            return Ok(None);
        }
        let owners = owner_ring(config, &config.frontend.ring);
        Self::join(joining, &QUERY_GATES, &owners).map(Some)
    }

    fn join(
        joining: Joining<'_>,
        kind: &Kind,
        config: &ServiceRingConfig,
    ) -> Result<Self, AppError> {
        let Joining { grpc_port, clock, registry, stores, .. } = joining;
        let life = config.lifecycler();
        let settings = lifecycler::settings(&life, grpc_port);
        let store = &life.ring.kvstore;
        let kv = stores.ring(store, kind.kv_ring)?;
        if !kv.is_writable() {
            return Err(AppError::GateRingReadOnly { gates: kind.gates });
        }
        let key = store.key(kind.key);
        let codec = KvCodec {
            decode: |bytes| ring_desc::decode(bytes).map_err(|error| error.to_string()),
            // Our own model always fits: it was read within the same bounds.
            encode: |model| ring_desc::encode(model).unwrap_or_default(),
        };
        let wall_clock: lifecycler::WallClock = Arc::new(move || clock.now().unix_ms);
        let ring = Arc::new(Ring::new(
            RingSettings {
                replication_factor: life.ring.replication_factor,
                zone_awareness_enabled: life.ring.zone_awareness_enabled,
                heartbeat_timeout_ms: life.ring.heartbeat_timeout.0,
                extend_writes: false,
                own_id: Some(settings.id.clone()),
            },
            RING_LAST_GOOD_MS,
        ));
        let sink = publisher(Arc::clone(&ring), Arc::clone(&wall_clock));
        let watcher = Watcher::spawn(kv.clone(), key.clone(), codec, Arc::clone(&wall_clock), sink);
        let means = Means {
            kv: kv.for_user(kind.kv_lifecycler),
            key,
            codec,
            clock: wall_clock,
            tokens_file_path: None,
            metrics: lifecycler::Metrics::register(registry, kind.gates.name())?,
        };
        let id = settings.id.as_str().into();
        let lifecycler = Lifecycler::spawn(settings, means);
        let member = Self { gates: kind.gates, id, lifecycler, ring, watcher };
        let (name, ring, reads) =
            (kind.gates.name(), Arc::clone(&member.ring), member.watcher.counts());
        let read = move |families: &mut Families| {
            crate::ring::metrics::read(&ring, name, clock.now().unix_ms, families);
            reads.read_metrics(name, families);
        };
        registry.register(Box::new(AtScrape::new(kind.families, read)))?;
        Ok(member)
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
            tracing::warn!(ring = self.gates.name(), %error, "our entry in the ring was not put in order");
        }
        self.watcher.stop().await;
    }
}

/// A ring whose members own budgets: their keys are to be shared out evenly, and a lost one is to
/// be noticed within [`owner_overdue`], so three heartbeats fit into that.
///
/// [`owner_overdue`]: crate::clients::config::ClientIdentityConfig::owner_overdue
fn owner_ring(config: &Config, ring: &ServiceRingConfig) -> ServiceRingConfig {
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
    use crate::ring::kv::requests::RequestDurations;

    #[test]
    fn owners_of_both_rings_are_missed_in_time_and_share_evenly() {
        let config = Config::default();
        for ring in [&config.distributor.ring, &config.frontend.ring] {
            let slow = ServiceRingConfig { num_tokens: 1, ..ring.clone() };
            for (given, expect) in [(0, 2_000), (500, 500), (15_000, 2_000)] {
                let heartbeat_period = Millis(given);
                let ring =
                    owner_ring(&config, &ServiceRingConfig { heartbeat_period, ..slow.clone() });
                assert_eq!((ring.heartbeat_period, ring.num_tokens), (Millis(expect), 128));
            }
        }
    }

    #[tokio::test]
    async fn one_process_is_in_both_rings() {
        let mut config = Config::default();
        let registry = Registry::new();
        let stores = Stores::new(RequestDurations::register(&registry).expect("new"), None);
        let clock = Clock::start();
        fn joining<'a>(
            config: &'a Config,
            clock: Clock,
            registry: &'a Registry,
            stores: &'a Stores,
        ) -> Joining<'a> {
            Joining { config, grpc_port: 9095, clock, registry, stores }
        }
        let none = joining(&config, clock, &registry, &stores);
        assert!(Member::join_distributors(none).expect("nothing to join").is_none());
        assert!(Member::join_query_gates(none).expect("nothing to join").is_none());
        config.client_identity.enabled = true;
        let both = joining(&config, clock, &registry, &stores);
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
