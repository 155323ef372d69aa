//! Our part in the distributors' ring, which tells how many share a tenant's global rate, and who
//! keeps which budget.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::task::JoinSet;

use super::{AppError, RING_LAST_GOOD_MS};
use crate::admin::clients::ClientsSource;
use crate::admin::{self, RingSource};
use crate::clients::peers::Budgets;
use crate::clock::Clock;
use crate::config::Config;
use crate::distributor::ha::HaTracker;
use crate::distributor::{Distributor, Parts, Peers, RATE_INTERVAL, Sink};
use crate::exposition::{AtScrape, Families};
use crate::limits::reload::write::RuntimeFileEditor;
use crate::limits::{IngestionRateStrategy, Overrides, exporter};
use crate::ratelimit::RECHECK_PERIOD;
use crate::ring::config::KvConfig;
use crate::ring::kv::inmemory::InMemoryKv;
use crate::ring::kv::requests::RequestDurations;
use crate::ring::kv::{KvClient, KvCodec};
use crate::ring::lifecycler::{self, Lifecycler, LifecyclerHandle, Means};
use crate::ring::service_ring::{DISTRIBUTOR_RING, ServiceRingConfig};
use crate::ring::watcher::{RingRead, Taken, Watcher};
use crate::ring::{EMPTY_RING_ERROR, Published, Ring, RingSettings};
use crate::server::drain::Drain;
use crate::server::tenancy::Tenancy;
use crate::units::Millis;
use crate::wire::ring_desc;

/// How often idle tenants are looked for.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// A member of the distributors' ring.
pub(super) struct Member {
    id: Arc<str>,
    ring: Arc<Ring>,
    lifecycler: Lifecycler,
    watcher: Watcher,
}

impl Member {
    /// Joins where something is meant for all distributors together: rates, or the budgets of
    /// clients. As in Cortex, nobody asks how many there are else.
    pub(super) fn join(
        config: &Config,
        grpc_port: u16,
        clock: Clock,
        registry: &Registry,
        durations: &RequestDurations,
    ) -> Result<Option<Self>, AppError> {
        let has_shared_rates = match config.limits.ingestion_rate_strategy {
            IngestionRateStrategy::Local => false,
            IngestionRateStrategy::Global | IngestionRateStrategy::Leased => true,
        };
        // Any tenant's overrides may bring a budget of clients later.
        if !has_shared_rates && !config.client_identity.enabled {
            return Ok(None);
        }
        let life = match super::budgets::are_wanted(config) {
            false => config.distributor.ring.lifecycler(),
            true => owner_ring(config).lifecycler(),
        };
        let settings = lifecycler::settings(&life, grpc_port);
        let store = &life.ring.kvstore;
        let kv = KvClient::new(store, &InMemoryKv::default(), Some(durations), "distributor-ring")?;
        if !kv.is_writable() {
            return Err(AppError::DistributorRingReadOnly);
        }
        let key = store.key(DISTRIBUTOR_RING);
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
            kv: kv.for_user("distributor-lifecycler"),
            key,
            codec,
            clock: wall_clock,
            tokens_file_path: None,
            metrics: lifecycler::Metrics::register(registry, "distributor")?,
        };
        let id = settings.id.as_str().into();
        let member = Self { id, lifecycler: Lifecycler::spawn(settings, means), ring, watcher };
        let (ring, reads) = (Arc::clone(&member.ring), member.watcher.counts());
        let read = move |families: &mut Families| {
            crate::ring::metrics::read(&ring, "distributor", clock.now().unix_ms, families);
            reads.read_metrics("distributor", families);
        };
        registry.register(Box::new(AtScrape::new("distributor_ring_families", read)))?;
        Ok(Some(member))
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
            tracing::warn!(%error, "our entry in the distributors' ring was not put in order");
        }
        self.watcher.stop().await;
    }
}

/// The distributors' ring where members own budgets: their keys are to be shared out evenly, and a
/// lost one is to be noticed within [`owner_overdue`], so three heartbeats fit into that.
///
/// [`owner_overdue`]: crate::clients::config::ClientIdentityConfig::owner_overdue
fn owner_ring(config: &Config) -> ServiceRingConfig {
    let ring = &config.distributor.ring;
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

/// A distributor, with its numbers registered and its clock ticking; and its pages.
pub(super) fn start_distributor(
    config: &Config,
    overrides: &Arc<Overrides>,
    member: Option<&Member>,
    sink: Sink,
    clock: Clock,
    mut means: Ticking<'_>,
) -> Result<Started, AppError> {
    let ha = start_ha_tracker(config, clock, &mut means)?;
    let budgets = match member.filter(|_| super::budgets::are_wanted(config)) {
        None => None,
        Some(member) => {
            let Ticking { registry, tasks, drain, .. } = &mut means;
            Some(super::budgets::start(config, overrides, member, clock, registry, tasks, drain)?)
        }
    };
    let pages = pages(config, overrides, member, &ha, &budgets, clock);
    if config.distributor.overrides_exporter_enabled {
        let shown = Arc::clone(overrides);
        let read =
            move |families: &mut Families| exporter::read_metrics(&shown.snapshot(), families);
        means.registry.register(Box::new(AtScrape::new("overrides_families", read)))?;
    }
    let peers = member.map_or(Peers::Alone, |member| Peers::Ring(Arc::clone(member.ring())));
    let distributor = Arc::new(Distributor::new(Parts {
        config: config.distributor.clone(),
        names: config.name_validation_scheme,
        parity: config.distributor.limits_parity || config.ingester.limits_parity,
        overrides: Arc::clone(overrides),
        peers,
        budgets: budgets.clone(),
        ha,
        sink,
        clock,
        recheck_period: RECHECK_PERIOD,
    }));
    let shown = Arc::clone(&distributor);
    let read = move |families: &mut Families| shown.read_metrics(families);
    means.registry.register(Box::new(AtScrape::new("distributor_families", read)))?;
    let (ticking, mut drain) = (Arc::clone(&distributor), means.drain.clone());
    means.tasks.spawn(async move {
        let mut ticks = tokio::time::interval(RATE_INTERVAL);
        let mut sweeps = tokio::time::interval(SWEEP_PERIOD);
        loop {
            // All arms only wait.
            tokio::select! {
                () = drain.started() => return,
                _ = ticks.tick() => ticking.tick(),
                _ = sweeps.tick() => ticking.sweep(clock.now()),
            }
        }
    });
    Ok(Started { distributor, pages, budgets })
}

/// A distributor that takes writes, and what belongs to it.
pub(super) struct Started {
    pub(super) distributor: Arc<Distributor>,
    pub(super) pages: axum::Router,
    /// Where budgets are kept over all distributors.
    pub(super) budgets: Option<Budgets>,
}

/// Elections among the replicas of HA senders, and the task that keeps them in step.
fn start_ha_tracker(
    config: &Config,
    clock: Clock,
    means: &mut Ticking<'_>,
) -> Result<Arc<HaTracker>, AppError> {
    let config = &config.distributor.ha_tracker;
    // The store of a tracker that is off is not used.
    let store = match config.enable_ha_tracker {
        true => config.kvstore.kv(),
        false => KvConfig::default(),
    };
    let kv = KvClient::new(
        &store,
        &InMemoryKv::default(),
        Some(means.durations),
        "distributor-hatracker",
    )?;
    let (tracker, driver) = HaTracker::new(config, kv, means.registry)?;
    if let Some(driver) = driver {
        let mut drain = means.drain.clone();
        let wall_clock: lifecycler::WallClock = Arc::new(move || clock.now().unix_ms);
        means.tasks.spawn(async move { driver.run(wall_clock, drain.started()).await });
    }
    let shown = Arc::clone(&tracker);
    let read = move |families: &mut Families| shown.read_metrics(families);
    means.registry.register(Box::new(AtScrape::new("ha_tracker_families", read)))?;
    Ok(tracker)
}

/// What the distributor has to show, and the tenants' own overrides.
fn pages(
    config: &Config,
    overrides: &Arc<Overrides>,
    member: Option<&Member>,
    tracker: &Arc<HaTracker>,
    budgets: &Option<Budgets>,
    clock: Clock,
) -> axum::Router {
    let limits = Arc::clone(overrides);
    let failover_of: Arc<admin::ha_tracker::FailoverOf> =
        Arc::new(move |tenant| limits.snapshot().limits(tenant).ha_tracker_failover_timeout);
    let tenancy = Tenancy::from_auth_enabled(config.auth_enabled);
    let editor = RuntimeFileEditor::new(&config.runtime_config.file, Arc::clone(overrides));
    let mut pages = admin::ha_tracker::router(Arc::clone(tracker), failover_of, clock).merge(
        admin::user_overrides::router(
            Arc::new(editor),
            Arc::new(move |headers| tenancy.tenant(headers)),
            clock,
        ),
    );
    pages = pages.merge(admin::clients::router(ClientsSource {
        budgets: budgets.clone(),
        overrides: Arc::clone(overrides),
        are_clients_known: config.client_identity.enabled,
    }));
    if let Some(member) = member {
        pages = pages.merge(admin::ring_router("/distributor/ring", member.page(clock)));
    }
    pages
}

/// What a distributor's upkeep runs with.
pub(super) struct Ticking<'a> {
    pub(super) registry: &'a Registry,
    pub(super) tasks: &'a mut JoinSet<()>,
    pub(super) drain: &'a Drain,
    pub(super) durations: &'a RequestDurations,
}
