//! What is told of elections: Cortex's families, and the rows of its page.

use std::sync::PoisonError;

use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};

use super::HaTracker;
use crate::exposition::Families;
use crate::sync::Ordering;
use crate::tenant::TenantId;
use crate::units::Millis;

/// What belongs to no tenant.
pub(super) struct Metrics {
    propagation: Histogram,
    pub cleanups: IntCounter,
    pub marked: IntCounter,
    pub deleted: IntCounter,
    pub cleanups_failed: IntCounter,
    pub renewals_failed: IntCounter,
}

/// One elected replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectedView {
    pub tenant: TenantId,
    pub cluster: String,
    pub replica: String,
    pub received_at_ms: i64,
    /// Until its stored time is due to be written anew; below 0 when that is overdue.
    pub update_in_ms: i64,
    /// Until another replica may be elected.
    pub failover_in_ms: i64,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = HistogramOpts::new(
            "cortex_ha_tracker_elected_replica_change_propagation_time_seconds",
            "The time it for the distributor to update the replica change.",
        );
        let propagation = Histogram::with_opts(opts)?;
        registry.register(Box::new(propagation.clone()))?;
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        Ok(Self {
            propagation,
            cleanups: counter(
                "cortex_ha_tracker_replicas_cleanup_started_total",
                "Number of elected replicas cleanup loops started.",
            )?,
            marked: counter(
                "cortex_ha_tracker_replicas_cleanup_marked_for_deletion_total",
                "Number of elected replicas marked for deletion.",
            )?,
            deleted: counter(
                "cortex_ha_tracker_replicas_cleanup_deleted_total",
                "Number of elected replicas deleted from KV store.",
            )?,
            cleanups_failed: counter(
                "cortex_ha_tracker_replicas_cleanup_delete_failed_total",
                "Number of elected replicas that failed to be marked for deletion, or deleted.",
            )?,
            renewals_failed: counter(
                "freehold_ha_tracker_renewals_failed_total",
                "Times that an elected replica's new time could not be written to the store.",
            )?,
        })
    }

    /// A stored time is known here that much later.
    pub(super) fn propagated(&self, delay_ms: i64) {
        self.propagation.observe(delay_ms as f64 / 1000.0);
    }
}

impl HaTracker {
    /// Adds the families of tenants and clusters, under Cortex's names. A cluster's go with it.
    pub fn read_metrics(&self, families: &mut Families) {
        if self.store.is_none() {
            return;
        }
        let elections = self.elections.read().unwrap_or_else(PoisonError::into_inner);
        let mut changes = families.counters(
            "cortex_ha_tracker_elected_replica_changes_total",
            "The total number of times the elected replica has changed for a user ID/cluster.",
        );
        for (tenant, cluster, known) in elections.clusters() {
            let labels = [("cluster", cluster), ("user", tenant.as_str())];
            changes.sample(labels, known.changes as f64);
        }
        let mut timestamps = families.gauges(
            "cortex_ha_tracker_elected_replica_timestamp_seconds",
            "The timestamp stored for the currently elected replica, from the KVStore.",
        );
        for (tenant, cluster, known) in elections.clusters() {
            let labels = [("cluster", cluster), ("user", tenant.as_str())];
            timestamps.sample(labels, (known.received_at_ms / 1000) as f64);
        }
        let mut swaps = families.counters(
            "cortex_ha_tracker_kv_store_cas_total",
            "The total number of CAS calls to the KV store for a user ID/cluster.",
        );
        for (tenant, cluster, known) in elections.clusters() {
            let labels = [("cluster", cluster), ("user", tenant.as_str())];
            swaps.sample(labels, known.swaps.load(Ordering::Relaxed) as f64);
        }
        let mut deduped = families.counters(
            "cortex_distributor_deduped_samples_total",
            "The total number of deduplicated samples.",
        );
        for (tenant, cluster, known) in elections.clusters() {
            let samples = known.deduped_samples.load(Ordering::Relaxed);
            if samples > 0 {
                let labels = [("cluster", cluster), ("user", tenant.as_str())];
                deduped.sample(labels, samples as f64);
            }
        }
        let mut groups = families.gauges(
            "cortex_ha_tracker_user_replica_group_count",
            "Number of HA replica groups tracked for each user.",
        );
        for (tenant, known) in elections.tenants().filter(|(_, known)| !known.clusters.is_empty()) {
            groups.sample([("user", tenant.as_str())], known.clusters.len() as f64);
        }
        let mut non_ha = families.counters(
            "cortex_distributor_non_ha_samples_received_total",
            "The total number of received samples for a user that has HA tracking turned on, \
             but the sample didn't contain both HA labels.",
        );
        for (tenant, known) in elections.tenants() {
            let samples = known.non_ha_samples.load(Ordering::Relaxed);
            if samples > 0 {
                non_ha.sample([("user", tenant.as_str())], samples as f64);
            }
        }
    }

    /// All elected replicas by tenant and cluster; `failover` tells a tenant's timeout.
    pub fn elected(&self, failover: impl Fn(&TenantId) -> Millis, now_ms: i64) -> Vec<ElectedView> {
        let elections = self.elections.read().unwrap_or_else(PoisonError::into_inner);
        let until = |since_ms: i64, span: Millis| {
            let span = i64::try_from(span.0).unwrap_or(i64::MAX);
            since_ms.saturating_add(span).saturating_sub(now_ms)
        };
        let view =
            |(tenant, cluster, known): (&TenantId, &str, &super::elections::Cluster)| ElectedView {
                tenant: tenant.clone(),
                cluster: cluster.to_owned(),
                replica: known.replica.to_string(),
                received_at_ms: known.received_at_ms,
                update_in_ms: until(known.received_at_ms, self.update_timeout),
                failover_in_ms: until(known.received_at_ms, failover(tenant)),
            };
        let mut elected: Vec<ElectedView> = elections.clusters().map(view).collect();
        drop(elections);
        elected.sort_by(|a, b| (&a.tenant, &a.cluster).cmp(&(&b.tenant, &b.cluster)));
        elected
    }
}
