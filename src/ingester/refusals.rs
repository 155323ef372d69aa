//! What the ingester refuses, by reason and tenant, and how near it is to the instance's limits.
//!
//! For pages that are asked for every few seconds: it reads counters and nothing else, with no
//! lock but that of the tenants' map, for as long as it takes to copy its pointers.

use crate::exposition::{RefusedCount, Used};
use crate::ingester::Ingester;
use crate::ingester::counters::{DiscardReason, MetadataReason, TenantCounters};
use crate::series::Basis;
use crate::tenant::TenantId;

impl Ingester {
    /// Tells of everything that was refused here since the start; what nothing was refused for is
    /// left out.
    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        let counters = &self.counters;
        for (reason, counter) in [
            ("max_inflight_push_requests", &counters.refused_in_flight),
            ("max_ingestion_rate", &counters.refused_rate),
            ("max_series", &counters.refused_series),
            ("max_tenants", &counters.refused_tenants),
        ] {
            let (metric, count) = ("freehold_ingester_pushes_refused_total", counter.get());
            tell(RefusedCount { metric, unit: "pushes", reason, tenant: None, count });
        }
        for tenant in self.tenants.all() {
            tell_discards(&tenant.id, &tenant.counters, tell);
        }
    }

    /// What is there of what limits of the instance bound, by the count that they act on.
    pub fn instance_use(&self) -> [Used; 4] {
        let snapshot = self.overrides.snapshot();
        let limits = snapshot.instance();
        let series = self.totals.count();
        let series = match self.basis() {
            Basis::Owned => series.owned,
            Basis::InMemory => series.in_memory,
        };
        [
            ("max_series", series as f64, limits.max_series as f64),
            ("max_tenants", self.tenants.len() as f64, limits.max_tenants as f64),
            ("max_ingestion_rate", self.admission.rate(), limits.max_ingestion_rate),
            (
                "max_inflight_push_requests",
                self.admission.in_flight() as f64,
                limits.max_inflight_push_requests as f64,
            ),
        ]
        .map(|(limit, used, max)| Used { limit, used, max })
    }
}

fn tell_discards(id: &TenantId, counters: &TenantCounters, tell: &mut dyn FnMut(RefusedCount<'_>)) {
    let mut told = |metric, unit, reason, count| {
        if count > 0 {
            tell(RefusedCount { metric, unit, reason, tenant: Some(id.as_str()), count });
        }
    };
    for reason in DiscardReason::ALL {
        let count = counters.discarded_samples(reason);
        told("cortex_discarded_samples_total", "samples", reason.label(), count);
    }
    let exemplars = counters.discarded_exemplars();
    told("cortex_discarded_exemplars_total", "exemplars", "rate_limited", exemplars);
    for reason in MetadataReason::ALL {
        let count = counters.discarded_metadata(reason);
        told("cortex_discarded_metadata_total", "metadata", reason.label(), count);
    }
}
