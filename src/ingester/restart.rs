//! After a restart: the series that the store's heads hold are counted again, before any push.
//!
//! Invariant: once `restore` has returned, the in-memory and owned counts of every tenant are
//! those of its head rows, as they were acknowledged.

use std::collections::HashMap;
use std::sync::Arc;

use crate::clock::Now;
use crate::ingester::Ingester;
use crate::ingester::tenants::Visit;
use crate::series::head::{Head, HeadRule};
use crate::series::{Kind, NewSeries};
use crate::store::{SeriesKind, StoreError};
use crate::tenant::TenantId;

/// What a restart found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub tenants: u64,
    pub series: u64,
}

impl Ingester {
    /// Reads the heads of the store back. Call it once, before pushes are taken.
    pub fn restore(&self, now: Now) -> Result<Restored, StoreError> {
        let Some(store) = &self.store else {
            return Ok(Restored::default());
        };
        let mut tenants: HashMap<TenantId, Visit> = HashMap::new();
        let mut restored = Restored::default();
        store.for_each_head(|id, head| {
            if !tenants.contains_key(id) {
                // No limit on tenants here: these were admitted before.
                let visit = self.tenants.enter(id, 0, || self.make_tenant(id));
                tenants.insert(id.clone(), visit.expect("without a limit none is exceeded"));
            }
            let tenant = &tenants[id];
            let kind = match head.kind {
                SeriesKind::Float => Kind::Float,
                SeriesKind::Histogram => Kind::NativeHistogram,
            };
            let new = NewSeries {
                ring_key: head.ring_key,
                metric: &[],
                metric_exempt: false,
                label_sets: &[],
                label_sets_generation: 0,
            };
            restored.series += u64::from(tenant.series.restore(head.identity, kind, None, &new));
        })?;
        for (id, tenant) in &tenants {
            // Heads tell no metrics, so all series were counted under a nameless one. Counted
            // anew, they are unassigned until their labels are read.
            if tenant.standing.load().counts_metrics() {
                tenant.series.disable_metric_counts();
                tenant.series.enable_metric_counts();
            }
            tenant.note_push(now);
            if let Some(range) = store.head_range(id) {
                let samples = Some((range.oldest_ms, range.newest_ms));
                let head =
                    Head::reopened(HeadRule::default(), range.oldest_ms, samples, now.unix_ms);
                *tenant.head.lock().expect("no panic under this lock") = head;
            }
        }
        restored.tenants = tenants.len() as u64;
        Ok(restored)
    }

    /// Reads the labels of restored series for the limits that need them. Counts by metric and
    /// label set are unknown until then and refuse nothing, so this may run behind pushes.
    pub fn restore_labels(&self) {
        for tenant in self.tenants.all() {
            let standing: Arc<_> = tenant.standing.load_full();
            if standing.counts_metrics() || standing.counts_label_sets() {
                self.read_labels(&tenant, &standing);
            }
        }
    }
}
