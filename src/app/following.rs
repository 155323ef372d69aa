//! The follower's place in the app: what it is made of, and what readiness asks of it.

use std::sync::Arc;

use prometheus::Registry;
use tokio::task::JoinSet;

use super::AppError;
use crate::config::Config;
use crate::distributor::ShardingStrategy;
use crate::exposition::{AtScrape, Families};
use crate::ingester::Ingester;
use crate::ingester::following::{FollowStatus, Follower};
use crate::ingester::settings_check::{Found, Placing, SettingsCheck};
use crate::ring::{OwnView, Ring, UnknownOwnership};
use crate::server::drain::Drain;
use crate::sync::{AtomicBool, Ordering};

/// Compares our settings with a distributor's, where its address is given; what is found is for
/// pages.
pub(super) fn start_settings_check(
    config: &Config,
    registry: &Registry,
    tasks: &mut JoinSet<()>,
    drain: &Drain,
) -> Result<Option<Found>, AppError> {
    let address = &config.ingester.distributor_address;
    if address.is_empty() {
        return Ok(None);
    }
    let ca_path = &config.ingester.distributor_tls_ca_path;
    let check = SettingsCheck::new(address, ca_path, placing(config))?;
    let (found, shown) = (check.found(), check.found());
    let read = move |families: &mut Families| found.read_metrics(families);
    registry.register(Box::new(AtScrape::new("settings_check_families", read)))?;
    let mut drain = drain.clone();
    tasks.spawn(async move { check.run(async move { drain.started().await }).await });
    Ok(Some(shown))
}

/// Our settings that decide where series go.
fn placing(config: &Config) -> Placing {
    let ring = &config.ingester.lifecycler.ring;
    let distributor = &config.distributor;
    let strategy = match distributor.sharding_strategy {
        ShardingStrategy::Default => "default",
        ShardingStrategy::ShuffleSharding => "shuffle-sharding",
    };
    let store = serde_json::to_value(ring.kvstore.store).unwrap_or_default();
    Placing::default()
        .with("-distributor.replication-factor", ring.replication_factor)
        .with("-distributor.zone-awareness-enabled", ring.zone_awareness_enabled)
        .with("-distributor.sharding-strategy", strategy)
        .with("-distributor.shard-by-all-labels", distributor.shard_by_all_labels)
        .with("-distributor.extend-writes", distributor.extend_writes)
        .with("-distributor.ingestion-tenant-shard-size", config.limits.ingestion_tenant_shard_size)
        .stored_in(store.as_str().unwrap_or_default(), &ring.kvstore.prefix)
}

/// The series are upstream; pushes are taken once their counts are known.
pub(super) fn follow_upstream(
    follower: Follower,
    ingester: &Ingester,
    tasks: &mut JoinSet<()>,
    mut drain: Drain,
) {
    ingester.starting();
    tasks.spawn(async move { follower.run(async move { drain.started().await }).await });
}

/// What a sidecar waits for beside what every ingester waits for.
#[derive(Clone)]
pub(super) struct SidecarReadiness {
    status: FollowStatus,
    ring: Arc<Ring>,
    /// Our tokens have been in the ring once. Later it is the upstream's part to say that it
    /// leaves, and pushes that still come are served.
    was_in_ring: Arc<AtomicBool>,
}

impl SidecarReadiness {
    pub(super) fn new(status: FollowStatus, ring: Arc<Ring>) -> Self {
        Self { status, ring, was_in_ring: Arc::default() }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.status.readiness()?;
        if self.was_in_ring.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.ring.load().own() {
            OwnView::Unknown(
                reason @ (UnknownOwnership::NotInRing | UnknownOwnership::NoTokens),
            ) => Err(reason.to_string()),
            OwnView::Unknown(_) => Ok(()),
            OwnView::Known(_) => {
                self.was_in_ring.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}
