//! What has been sent to ingesters, by their ids, as Cortex counts it.
//!
//! The ids are those of the ring's members; an id goes when its member has left the ring, so
//! that nothing grows with the ring's history.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::Contents;
use crate::exposition::Families;
use crate::ring::{Failure, RingSnapshot};

#[derive(Default)]
pub struct Counters(Mutex<BTreeMap<Arc<str>, Counts>>);

/// Batches sent to one ingester.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    samples: Kind,
    metadata: Kind,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    appends: u64,
    failures_4xx: u64,
    failures_5xx: u64,
}

impl Counters {
    pub fn count(&self, id: &Arc<str>, contents: Contents, outcome: &Result<(), Failure>) {
        let mut all = self.lock();
        let counts = match all.get_mut(id) {
            Some(counts) => counts,
            None => all.entry(Arc::clone(id)).or_default(),
        };
        let kinds = [
            (contents.has_series, &mut counts.samples),
            (contents.has_metadata, &mut counts.metadata),
        ];
        for (_, kind) in kinds.into_iter().filter(|(is_there, _)| *is_there) {
            kind.appends += 1;
            match outcome {
                Ok(()) => {}
                Err(failure) if failure.is_http_4xx() => kind.failures_4xx += 1,
                Err(_) => kind.failures_5xx += 1,
            }
        }
    }

    pub fn retain_members_of(&self, ring: &RingSnapshot) {
        self.lock().retain(|id, _| ring.member_index(id).is_some());
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let all = self.lock();
        let kinds = |counts: &Counts| [("metadata", counts.metadata), ("samples", counts.samples)];
        let mut appends = families.counters(
            "cortex_distributor_ingester_appends_total",
            "The total number of batch appends sent to ingesters.",
        );
        for (id, counts) in &*all {
            for (name, kind) in kinds(counts).into_iter().filter(|(_, kind)| kind.appends > 0) {
                appends.sample([("ingester", id), ("type", name)], kind.appends as f64);
            }
        }
        let mut failures = families.counters(
            "cortex_distributor_ingester_append_failures_total",
            "The total number of failed batch appends sent to ingesters.",
        );
        for (id, counts) in &*all {
            for (name, kind) in kinds(counts) {
                let statuses = [("4xx", kind.failures_4xx), ("5xx", kind.failures_5xx)];
                for (status, count) in statuses.into_iter().filter(|(_, count)| *count > 0) {
                    let labels = [("ingester", &**id), ("status", status), ("type", name)];
                    failures.sample(labels, count as f64);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Counts>> {
        self.0.lock().expect("no panic under this lock")
    }
}
