//! The store's metrics, under Cortex's names, which have no prefix of their own. Those of the
//! cluster's members, and of the broadcasts that wait, belong to who gossips.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::merge::{LeftOut, Tombstones};

/// Values of the `reason` label of entries that are left out.
const FUTURE: &str = "future";
const CROWDED: &str = "crowded";
const ODD: &str = "odd";

#[derive(Clone, Debug)]
pub struct Metrics {
    pub(super) received: IntCounter,
    pub(super) received_bytes: IntCounter,
    pub(super) received_invalid: IntCounter,
    pub(super) pushes: IntCounter,
    pub(super) push_bytes: IntCounter,
    pub(super) pulls: IntCounter,
    pub(super) pull_bytes: IntCounter,
    pub(super) dropped: IntCounter,
    pub(super) cas_attempts: IntCounter,
    pub(super) cas_successes: IntCounter,
    pub(super) cas_failures: IntCounter,
    pub(super) values: IntGauge,
    pub(super) swept: IntCounter,
    /// By key; of rings only, whose number is bounded.
    tombstones: IntGaugeVec,
    tombstones_removed: IntCounterVec,
    /// By reason.
    left_out: IntCounterVec,
}

impl Metrics {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            received: IntCounter::new(
                "memberlist_client_received_broadcasts_total",
                "Number of received broadcast user messages",
            )?,
            received_bytes: IntCounter::new(
                "memberlist_client_received_broadcasts_bytes_total",
                "Total size of received broadcast user messages",
            )?,
            received_invalid: IntCounter::new(
                "memberlist_client_received_broadcasts_invalid_total",
                "Number of received broadcast user messages that were invalid. Hopefully 0.",
            )?,
            pushes: IntCounter::new(
                "memberlist_client_state_pushes_total",
                "How many times did this node push its full state to another node",
            )?,
            push_bytes: IntCounter::new(
                "memberlist_client_state_pushes_bytes_total",
                "Total size of pushed state",
            )?,
            pulls: IntCounter::new(
                "memberlist_client_state_pulls_total",
                "How many times did this node pull full state from another node",
            )?,
            pull_bytes: IntCounter::new(
                "memberlist_client_state_pulls_bytes_total",
                "Total size of pulled state",
            )?,
            dropped: IntCounter::new(
                "memberlist_client_messages_to_broadcast_dropped_total",
                "Number of broadcast messages intended to be sent but were dropped due to \
                 encoding errors or for being too big",
            )?,
            cas_attempts: IntCounter::new(
                "memberlist_client_cas_attempt_total",
                "Attempted CAS operations",
            )?,
            cas_successes: IntCounter::new(
                "memberlist_client_cas_success_total",
                "Successful CAS operations",
            )?,
            cas_failures: IntCounter::new(
                "memberlist_client_cas_failure_total",
                "Failed CAS operations",
            )?,
            values: IntGauge::new(
                "memberlist_client_kv_store_count",
                "Number of values in KV Store",
            )?,
            swept: IntCounter::new(
                "memberlist_client_kv_store_swept_tombstones_total",
                "Total number of deleted keys (tombstones) removed from the local store.",
            )?,
            tombstones: IntGaugeVec::new(
                Opts::new(
                    "memberlist_client_kv_store_value_tombstones",
                    "Number of tombstones currently present in KV store values",
                ),
                &["key"],
            )?,
            tombstones_removed: IntCounterVec::new(
                Opts::new(
                    "memberlist_client_kv_store_value_tombstones_removed_total",
                    "Total number of tombstones which have been removed from KV store values",
                ),
                &["key"],
            )?,
            left_out: IntCounterVec::new(
                Opts::new(
                    "freehold_gossip_entries_refused_total",
                    "Entries of rings that were left out of what other members told.",
                ),
                &["reason"],
            )?,
        };
        for reason in [FUTURE, CROWDED, ODD] {
            metrics.left_out.with_label_values(&[reason]).inc_by(0);
        }
        let counters = [
            &metrics.received,
            &metrics.received_bytes,
            &metrics.received_invalid,
            &metrics.pushes,
            &metrics.push_bytes,
            &metrics.pulls,
            &metrics.pull_bytes,
            &metrics.dropped,
            &metrics.cas_attempts,
            &metrics.cas_successes,
            &metrics.cas_failures,
            &metrics.swept,
        ];
        for counter in counters {
            registry.register(Box::new(counter.clone()))?;
        }
        registry.register(Box::new(metrics.values.clone()))?;
        registry.register(Box::new(metrics.tombstones.clone()))?;
        registry.register(Box::new(metrics.tombstones_removed.clone()))?;
        registry.register(Box::new(metrics.left_out.clone()))?;
        Ok(metrics)
    }

    pub(super) fn left_out(&self, left_out: &LeftOut) {
        self.add_left_out(FUTURE, left_out.future);
        self.add_left_out(CROWDED, left_out.crowded);
    }

    /// Entries whose state or text is not known here.
    pub(super) fn left_out_odd(&self, entries: usize) {
        self.add_left_out(ODD, entries);
    }

    fn add_left_out(&self, reason: &str, entries: usize) {
        self.left_out.with_label_values(&[reason]).inc_by(entries as u64);
    }

    pub(super) fn looked_through(&self, key: &str, tombstones: Tombstones) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.tombstones.with_label_values(&[key]).set(count(tombstones.kept));
        self.tombstones_removed.with_label_values(&[key]).inc_by(tombstones.removed as u64);
    }

    /// The key is no longer held.
    pub(super) fn forget(&self, key: &str) {
        // Not every key has been looked through.
        let _ = self.tombstones.remove_label_values(&[key]);
        let _ = self.tombstones_removed.remove_label_values(&[key]);
    }

    #[cfg(test)]
    pub(super) fn left_out_of(&self, reason: &str) -> u64 {
        self.left_out.with_label_values(&[reason]).get()
    }

    #[cfg(test)]
    pub(super) fn kept_of(&self, key: &str) -> i64 {
        self.tombstones.with_label_values(&[key]).get()
    }

    #[cfg(test)]
    pub(super) fn removed_of(&self, key: &str) -> u64 {
        self.tombstones_removed.with_label_values(&[key]).get()
    }
}
