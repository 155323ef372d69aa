//! A distributor that takes writes, and what belongs to it.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::task::JoinSet;

use super::member::Member;
use super::pages::Pages;
use super::{AppError, budgets};
use crate::admin;
use crate::admin::clients::ClientsSource;
use crate::clients::Gates;
use crate::clients::peers::Budgets;
use crate::clock::Clock;
use crate::config::Config;
use crate::distributor::ha::HaTracker;
use crate::distributor::{Distributor, Parts, Peers, RATE_INTERVAL, Sink, shared};
use crate::exposition::{AtScrape, Families, RefusedCount};
use crate::limits::reload::write::RuntimeFileEditor;
use crate::limits::{Overrides, exporter};
use crate::ratelimit::RECHECK_PERIOD;
use crate::ring::config::KvConfig;
use crate::ring::kv::stores::Stores;
use crate::ring::lifecycler;
use crate::server::drain::Drain;
use crate::server::tenancy::Tenancy;
use crate::tenant::TenantId;

/// How often idle tenants are looked for.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// A distributor, with its numbers registered, its pages added and its clock ticking.
pub(super) fn start_distributor(
    config: &Config,
    overrides: &Arc<Overrides>,
    member: Option<&Member>,
    sink: Sink,
    clock: Clock,
    mut means: Ticking<'_>,
) -> Result<Started, AppError> {
    let ha = start_ha_tracker(config, clock, &mut means)?;
    let shared_budgets = match member.filter(|_| budgets::are_wanted(config)) {
        None => None,
        Some(member) => {
            let Ticking { registry, tasks, drain, .. } = &mut means;
            let terms_of = shared::terms_of(overrides);
            let means = budgets::Means { registry, tasks, drain, clock };
            Some(budgets::start(config, member, terms_of, means)?)
        }
    };
    let elections = Arc::clone(&ha);
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
        budgets: shared_budgets.clone(),
        ha,
        sink,
        clock,
        recheck_period: RECHECK_PERIOD,
    }));
    let shown = Arc::clone(&distributor);
    let read = move |families: &mut Families| shown.read_metrics(families);
    means.registry.register(Box::new(AtScrape::new("distributor_families", read)))?;
    let shown = Shown { overrides, member, elections, budgets: &shared_budgets, clock };
    add_pages(means.pages, config, &distributor, shown);
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
    Ok(Started { distributor, budgets: shared_budgets })
}

/// A distributor that takes writes, and what belongs to it.
pub(super) struct Started {
    pub(super) distributor: Arc<Distributor>,
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
    let kv = means.stores.elections(&store, "distributor-hatracker")?;
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

/// What a distributor's pages are made from.
struct Shown<'a> {
    overrides: &'a Arc<Overrides>,
    member: Option<&'a Member>,
    elections: Arc<HaTracker>,
    budgets: &'a Option<Budgets>,
    clock: Clock,
}

/// What the distributor has to show, and the tenants' own overrides.
fn add_pages(pages: &mut Pages, config: &Config, distributor: &Arc<Distributor>, shown: Shown<'_>) {
    let Shown { overrides, member, elections, budgets, clock } = shown;
    pages.shown.distributor(distributor);
    pages.shown.member(member);
    pages.shown.budgets(budgets);
    let limits = Arc::clone(overrides);
    let failover_of: Arc<admin::ha_tracker::FailoverOf> =
        Arc::new(move |tenant| limits.snapshot().limits(tenant).ha_tracker_failover_timeout);
    let tenancy = Tenancy::from_auth_enabled(config.auth_enabled);
    let editor = RuntimeFileEditor::new(&config.runtime_config.file, Arc::clone(overrides));
    // It is the tenants' own, and asks who they are.
    pages.add_to_http(admin::user_overrides::router(
        Arc::new(editor),
        Arc::new(move |headers| tenancy.tenant(headers)),
        clock,
    ));
    pages.add(|site| {
        let failover_of = Arc::clone(&failover_of);
        admin::ha_tracker::router(Arc::clone(&elections), failover_of, clock, site)
    });
    let refused = Arc::clone(distributor);
    let refused = move |tenant: &TenantId, tell: &mut dyn FnMut(RefusedCount<'_>)| {
        refused.tell_refused_of(tenant, tell);
    };
    let clients = ClientsSource {
        writes: budgets.clone(),
        queries: None,
        overrides: Arc::clone(overrides),
        are_clients_known: config.client_identity.enabled,
        refused: Arc::new(refused),
    };
    pages.add_ours(|site| admin::clients::router(Gates::Distributors, clients, site));
    if let Some(member) = member {
        pages.add(|site| admin::ring_router("/distributor/ring", member.page(clock), site));
    }
}

/// What a distributor's upkeep runs with.
pub(super) struct Ticking<'a> {
    pub(super) registry: &'a Registry,
    pub(super) tasks: &'a mut JoinSet<()>,
    pub(super) drain: &'a Drain,
    pub(super) stores: &'a Stores,
    pub(super) pages: &'a mut Pages,
}
