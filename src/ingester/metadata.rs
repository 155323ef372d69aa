//! What a tenant's metrics say of themselves (type, help, unit), counted and limited.
//!
//! Metadata is best effort, as in Cortex: a refused entry is counted and the push goes on.
//! Bound: `per_user` metrics with `per_metric` entries each; both limits are Cortex's and off by
//! default, so the texts are bounded by the distributor's length limit and the request size.

use std::collections::BTreeMap;

use crate::clock::Now;
use crate::ingester::Ingester;
use crate::ingester::counters::MetadataReason;
use crate::ingester::push::Request;
use crate::ingester::standing::Standing;
use crate::ingester::tenants::Tenant;
use crate::store::Store;
use crate::sync::Mutex;
use crate::wire::write_request::Metadata as Received;

/// One distinct statement about a metric.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metadata {
    /// Number of the protobuf enum.
    pub kind: i32,
    pub help: Box<str>,
    pub unit: Box<str>,
}

/// Local limits in force; `u64::MAX` is none.
#[derive(Clone, Copy, Debug)]
pub struct MetadataLimits {
    pub per_user: u64,
    pub per_metric: u64,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    New,
    /// With the time when it was seen before.
    Known {
        seen_ms: i64,
    },
    PerUserLimit,
    PerMetricLimit,
}

/// What a push's metadata came to.
#[derive(Default)]
pub(super) struct Noted<'a> {
    /// Entries that the store does not have, or only in a block that goes earlier, and when they
    /// were seen before.
    due: Vec<(Received<'a>, Option<i64>)>,
    /// Entries that no limit refused.
    pub(super) ingested: u64,
}

impl<'a> Noted<'a> {
    /// What the store is to get.
    pub(super) fn due(&self) -> impl Iterator<Item = &Received<'a>> {
        self.due.iter().map(|(entry, _)| entry)
    }
}

/// A tenant's metadata: metric → statement → when it was last seen, Unix milliseconds.
#[derive(Default)]
pub struct MetadataTable {
    metrics: Mutex<BTreeMap<Box<str>, BTreeMap<Metadata, i64>>>,
}

impl MetadataTable {
    /// Notes one entry.
    ///
    /// The per-metric limit is checked before the entry is looked up, so that a metric at its
    /// limit refuses even what it knows: Cortex's rule.
    pub fn note(
        &self,
        metric: &str,
        entry: Metadata,
        limits: MetadataLimits,
        now_ms: i64,
    ) -> Outcome {
        let mut metrics = self.metrics.lock().expect("no panic under this lock");
        if !metrics.contains_key(metric) {
            if metrics.len() as u64 >= limits.per_user {
                return Outcome::PerUserLimit;
            }
            metrics.insert(metric.into(), BTreeMap::new());
        }
        let entries = metrics.get_mut(metric).expect("inserted above");
        if entries.len() as u64 >= limits.per_metric {
            return Outcome::PerMetricLimit;
        }
        match entries.insert(entry, now_ms) {
            Some(seen_ms) => Outcome::Known { seen_ms },
            None => Outcome::New,
        }
    }

    /// Takes back that an entry was noted, which had been seen at `seen_ms` before.
    fn take_back(&self, metric: &str, entry: Metadata, seen_ms: Option<i64>) {
        let mut metrics = self.metrics.lock().expect("no panic under this lock");
        let Some(entries) = metrics.get_mut(metric) else {
            return;
        };
        match seen_ms {
            Some(seen_ms) => entries.insert(entry, seen_ms),
            None => entries.remove(&entry),
        };
        if entries.is_empty() {
            metrics.remove(metric);
        }
    }

    /// Forgets what was last seen before `deadline_ms`; says how many entries went.
    pub fn purge(&self, deadline_ms: i64) -> u64 {
        let mut removed = 0;
        let mut metrics = self.metrics.lock().expect("no panic under this lock");
        metrics.retain(|_, entries| {
            let before = entries.len();
            entries.retain(|_, seen_ms| *seen_ms >= deadline_ms);
            removed += (before - entries.len()) as u64;
            !entries.is_empty()
        });
        removed
    }

    /// Number of entries, for the gauge.
    pub fn len(&self) -> u64 {
        let metrics = self.metrics.lock().expect("no panic under this lock");
        metrics.values().map(|entries| entries.len() as u64).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.metrics.lock().expect("no panic under this lock").is_empty()
    }

    /// Entries in order of metric, at most `limit` metrics, for one metric when it is named.
    pub fn list(&self, metric: Option<&str>, limit: usize) -> Vec<(String, Vec<Metadata>)> {
        let metrics = self.metrics.lock().expect("no panic under this lock");
        let wanted = metrics.iter().filter(|(name, _)| metric.is_none_or(|m| m == &***name));
        wanted
            .take(limit)
            .map(|(name, entries)| (name.to_string(), entries.keys().cloned().collect()))
            .collect()
    }
}

impl Ingester {
    /// Notes the metadata of a push. Refusals are counted and never fail the push.
    pub(super) fn note_metadata<'a>(
        &self,
        tenant: &Tenant,
        standing: &Standing,
        request: &Request<'a>,
        now: Now,
    ) -> Noted<'a> {
        let mut noted = Noted::default();
        if request.metadata.is_empty() {
            return noted;
        }
        let limits = standing.metadata_limits();
        let mut created = 0;
        for received in &request.metadata {
            let metric = String::from_utf8_lossy(received.metric_family_name);
            let entry = Metadata::of(received);
            let refusal = match tenant.metadata.note(&metric, entry, limits, now.unix_ms) {
                Outcome::New => {
                    created += 1;
                    noted.due.push((*received, None));
                    None
                }
                Outcome::Known { seen_ms } => {
                    // The store drops metadata with the block that it came in.
                    if self.store.is_some() && !Store::is_same_block(seen_ms, now.unix_ms) {
                        noted.due.push((*received, Some(seen_ms)));
                    }
                    None
                }
                Outcome::PerUserLimit => Some(MetadataReason::PerUserLimit),
                Outcome::PerMetricLimit => Some(MetadataReason::PerMetricLimit),
            };
            match refusal {
                None => noted.ingested += 1,
                Some(reason) => tenant.counters.discard_metadata(reason, 1),
            }
        }
        tenant.counters.metadata_created.add(created);
        self.counters.metadata.add(noted.ingested);
        self.counters.metadata_failed.add(request.metadata.len() as u64 - noted.ingested);
        noted
    }

    /// A push failed as a whole: what the store did not get is as if it had not been seen, so
    /// that a retry brings it there.
    pub(super) fn take_back_metadata(&self, tenant: &Tenant, noted: &Noted<'_>) {
        for (received, seen_ms) in &noted.due {
            let metric = String::from_utf8_lossy(received.metric_family_name);
            tenant.metadata.take_back(&metric, Metadata::of(received), *seen_ms);
            tenant.counters.metadata_removed.add(u64::from(seen_ms.is_none()));
        }
    }
}

impl Metadata {
    fn of(received: &Received<'_>) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into();
        Self { kind: received.kind, help: text(received.help), unit: text(received.unit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMITS: MetadataLimits = MetadataLimits { per_user: u64::MAX, per_metric: u64::MAX };

    fn entry(help: &str) -> Metadata {
        Metadata { kind: 1, help: help.into(), unit: "".into() }
    }

    #[test]
    fn the_limits_count_metrics_and_entries() {
        let table = MetadataTable::default();
        let limits = MetadataLimits { per_user: 2, per_metric: 2 };
        let note = |metric, help| table.note(metric, entry(help), limits, 0);
        assert_eq!(note("a", "1"), Outcome::New);
        assert_eq!(note("a", "1"), Outcome::Known { seen_ms: 0 });
        assert_eq!(note("a", "2"), Outcome::New);
        assert_eq!(note("a", "3"), Outcome::PerMetricLimit);
        assert_eq!(note("a", "1"), Outcome::PerMetricLimit, "a full metric refuses what it knows");
        assert_eq!(note("b", "1"), Outcome::New);
        assert_eq!(note("c", "1"), Outcome::PerUserLimit);
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn a_purge_forgets_what_was_not_seen_again() {
        let table = MetadataTable::default();
        table.note("a", entry("1"), NO_LIMITS, 10);
        table.note("b", entry("1"), NO_LIMITS, 10);
        table.note("b", entry("1"), NO_LIMITS, 20);
        assert_eq!(table.purge(15), 1);
        assert_eq!(table.list(None, 10), [("b".to_owned(), vec![entry("1")])]);
        assert_eq!(table.purge(21), 1);
        assert!(table.is_empty());
    }
}
