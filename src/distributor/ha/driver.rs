//! Keeps the tracker in step with the store: takes over what others write, writes down that
//! elected replicas are alive, and cleans up after clusters that have gone.
//!
//! Clean-up is Cortex's, in two steps: a replica that was silent for long is marked, which all
//! who follow the store hear of, and a mark of some age is deleted, which not every store tells.
//! Tenants that are only counted here, without a replica, are forgotten when they fall silent.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rand::RngExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::elections::Terms;
use super::{HaTracker, Renewal, Store};
use crate::ring::kv::KvError;
use crate::ring::kv::prefix::PrefixReading;
use crate::ring::lifecycler::WallClock;
use crate::tenant::TenantId;
use crate::wire::replica_desc::{self, ElectedReplica};

/// Renewals under way at once. With a store that answers in 5 ms they make 3,000 a second, the
/// renewals of 50,000 clusters.
const RENEWALS_AT_ONCE: usize = 16;

/// Time between two clean-ups, a fifth more or less; Cortex's.
const CLEANUP_PERIOD: Duration = Duration::from_secs(30 * 60);
const CLEANUP_JITTER: f64 = 0.2;
/// Silence after which a replica is marked, and age at which a mark is deleted; Cortex's.
const DELETION_TIMEOUT_MS: i64 = 30 * 60 * 1000;

/// Time between two looks for tenants that have fallen silent.
pub(super) const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// Pause behind a failed reading; doubled for each in a row up to the longest.
const BACK_OFF_MIN: Duration = Duration::from_millis(500);
const BACK_OFF_MAX: Duration = Duration::from_secs(16);

/// What [`HaDriver::run`] drives.
pub struct HaDriver {
    tracker: Arc<HaTracker>,
    due: mpsc::Receiver<Renewal>,
}

impl HaDriver {
    pub(super) fn new(tracker: Arc<HaTracker>, due: mpsc::Receiver<Renewal>) -> Self {
        Self { tracker, due }
    }

    /// Runs until `stop` ends. `clock` tells Unix milliseconds.
    pub async fn run(self, clock: WallClock, stop: impl Future<Output = ()>) {
        let Self { tracker, due } = self;
        let Some(store) = &tracker.store else { return };
        // What is dropped in mid-air is a reading or a swap, which leave nothing half-done. None
        // of them ends before `stop`.
        tokio::select! {
            () = stop => {}
            () = follow(&tracker, store, &clock) => {}
            () = renew(&tracker, due) => {}
            () = clean_up(&tracker, store, &clock) => {}
            () = sweep(&tracker) => {}
        }
    }
}

/// Takes over what the store tells.
async fn follow(tracker: &HaTracker, store: &Store, clock: &WallClock) {
    let mut watch = match store.kv.watch_prefix(&store.prefix) {
        Ok(watch) => watch,
        Err(error) => {
            tracing::error!(%error, "elected replicas of other processes are not followed");
            return std::future::pending().await;
        }
    };
    let mut pause = BACK_OFF_MIN;
    loop {
        match watch.next().await {
            Ok(reading) => {
                if pause > BACK_OFF_MIN {
                    tracing::info!("elected replicas are followed again");
                }
                pause = BACK_OFF_MIN;
                take_over(tracker, store, reading, clock());
            }
            Err(error) => {
                if pause == BACK_OFF_MIN {
                    tracing::warn!(%error, "elected replicas cannot be followed");
                }
                sleep(jittered(pause, 0.5)).await;
                pause = BACK_OFF_MAX.min(pause * 2);
            }
        }
    }
}

fn take_over(tracker: &HaTracker, store: &Store, reading: PrefixReading, now_ms: i64) {
    let mut present = HashSet::new();
    for (key, value) in &reading.pairs {
        let Some((tenant, cluster)) = parse_key(&store.prefix, key) else { continue };
        let Some(bytes) = &value.bytes else {
            let mut elections = tracker.elections.write().unwrap_or_else(PoisonError::into_inner);
            elections.forget(&tenant, cluster);
            continue;
        };
        let is_known = {
            let elections = tracker.elections.read().unwrap_or_else(PoisonError::into_inner);
            elections.has(&tenant, cluster, value.version)
        };
        if !is_known {
            match replica_desc::decode(bytes) {
                Ok(stored) => {
                    // One lock for each: samples may come between two of many.
                    let mut elections =
                        tracker.elections.write().unwrap_or_else(PoisonError::into_inner);
                    let is_news = elections.learn(&tenant, cluster, &stored, value.version);
                    drop(elections);
                    if is_news {
                        tracker.metrics.propagated(now_ms.saturating_sub(stored.received_at_ms));
                    }
                }
                Err(error) => tracing::warn!(key, %error, "a stored replica cannot be read"),
            }
        }
        if reading.is_whole {
            present.insert((tenant, cluster));
        }
    }
    if reading.is_whole {
        let mut elections = tracker.elections.write().unwrap_or_else(PoisonError::into_inner);
        elections.retain(|tenant, cluster| present.contains(&(tenant.clone(), cluster)));
    }
}

/// Tenant and cluster of a key; the cluster's name may hold slashes of its own.
fn parse_key<'k>(prefix: &str, key: &'k str) -> Option<(TenantId, &'k str)> {
    // Consul tells keys without the slash that they may have been written with.
    let name = key.strip_prefix(prefix.trim_start_matches('/')).or(key.strip_prefix(prefix))?;
    let (tenant, cluster) = name.split_once('/')?;
    Some((TenantId::parse(tenant).ok()?, cluster))
}

/// Writes down that elected replicas are alive.
async fn renew(tracker: &Arc<HaTracker>, mut due: mpsc::Receiver<Renewal>) {
    let mut under_way = JoinSet::new();
    // The tracker holds a sender, so there is always one to come.
    while let Some(renewal) = due.recv().await {
        while under_way.len() >= RENEWALS_AT_ONCE {
            under_way.join_next().await;
        }
        while under_way.try_join_next().is_some() {}
        let tracker = Arc::clone(tracker);
        under_way.spawn(async move {
            let Renewal { tenant, cluster, replica, failover, received_at_ms } = renewal;
            let terms = Terms { update_ms: tracker.update_ms, failover, clusters_max: 0 };
            let swapped = tracker.swap(&tenant, &cluster, &replica, terms, received_at_ms).await;
            if let Err(error) = swapped {
                let tenant = tenant.as_str();
                tracing::debug!(tenant, cluster, %error, "an election could not be renewed");
                tracker.metrics.renewals_failed.inc();
            }
            tracker
                .elections
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .renewed(&tenant, &cluster);
        });
    }
}

async fn sweep(tracker: &HaTracker) {
    loop {
        sleep(SWEEP_PERIOD).await;
        tracker.elections.write().unwrap_or_else(PoisonError::into_inner).sweep();
    }
}

async fn clean_up(tracker: &HaTracker, store: &Store, clock: &WallClock) {
    loop {
        sleep(jittered(CLEANUP_PERIOD, CLEANUP_JITTER)).await;
        tracker.metrics.cleanups.inc();
        if let Err(error) = clean_up_once(tracker, store, clock()).await {
            tracing::warn!(%error, "elected replicas that have gone were not cleaned up");
        }
    }
}

/// Marks what was silent for long, and deletes what was marked long ago.
pub(super) async fn clean_up_once(
    tracker: &HaTracker,
    store: &Store,
    now_ms: i64,
) -> Result<(), KvError> {
    let deadline_ms = now_ms - DELETION_TIMEOUT_MS;
    let listed = store.kv.watch_prefix(&store.prefix)?.next().await?;
    for (key, value) in listed.pairs {
        if parse_key(&store.prefix, &key).is_none() {
            continue;
        }
        let Some(Ok(stored)) = value.bytes.map(|bytes| replica_desc::decode(&bytes)) else {
            continue;
        };
        let outcome = if stored.deleted_at_ms > 0 {
            if stored.deleted_at_ms > deadline_ms {
                continue;
            }
            // Somebody may have elected a replica in between. Then the next sample finds no
            // value and elects again, as with Cortex.
            store.kv.delete(&key).await.inspect(|()| tracker.metrics.deleted.inc())
        } else if is_silent(&stored, deadline_ms) {
            mark(store, &key, deadline_ms, now_ms).await.inspect(|()| tracker.metrics.marked.inc())
        } else {
            continue;
        };
        match outcome {
            Ok(()) => tracing::info!(key, "cleaned up an elected replica that has gone"),
            Err(error) => {
                tracker.metrics.cleanups_failed.inc();
                tracing::error!(key, %error, "an elected replica that has gone stays");
            }
        }
    }
    Ok(())
}

async fn mark(store: &Store, key: &str, deadline_ms: i64, now_ms: i64) -> Result<(), KvError> {
    let marking = store.kv.cas(key, |bytes| {
        let Some(bytes) = bytes else { return Ok(None) };
        let stored = replica_desc::decode(&bytes).map_err(|error| error.to_string())?;
        // Another process may have marked it, or heard of it, since it was listed.
        let marked = ElectedReplica { deleted_at_ms: now_ms, ..stored.clone() };
        Ok(is_silent(&stored, deadline_ms).then(|| replica_desc::encode(&marked).into()))
    });
    marking.await
}

fn is_silent(stored: &ElectedReplica, deadline_ms: i64) -> bool {
    stored.deleted_at_ms == 0 && stored.received_at_ms < deadline_ms
}

/// The span, longer or shorter by up to `part` of it.
fn jittered(span: Duration, part: f64) -> Duration {
    span.mul_f64(1.0 + rand::rng().random_range(-part..=part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_split_at_the_tenant() {
        let check = |key: &str, expect: Option<(&str, &str)>| {
            let parsed = parse_key("ha-tracker/", key);
            let parsed = parsed.as_ref().map(|(tenant, cluster)| (tenant.as_str(), *cluster));
            assert_eq!(parsed, expect, "{key}");
        };
        check("ha-tracker/t/c", Some(("t", "c")));
        check("ha-tracker/t/c/d", Some(("t", "c/d")));
        check("ha-tracker/ring", None);
        check("collectors/t/c", None);
        assert_eq!(parse_key("/ha/", "ha/t/c").map(|(_, cluster)| cluster), Some("c"));
    }
}
