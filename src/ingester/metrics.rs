//! The ingester's metrics, read at scrape time from where their numbers live.
//!
//! Names that Cortex has mean what they mean there; `freehold_` is what Cortex has not. Label
//! values are tenants, which `max_tenants` bounds, and words of closed sets.

use crate::clock::{Clock, Now};
use crate::exposition::Families;
use crate::ingester::Ingester;
use crate::ingester::counters::{DiscardReason, MetadataReason};
use crate::ingester::recounts::RecountReason;
use crate::ingester::tenants::Tenant;
use crate::ingester::views::TenantView;
use crate::series::InForce;
use std::sync::Arc;

/// What an upstream exports under the same name for the same pushes: summed over both, everything
/// would count twice. Refusals stay, since ours and the upstream's add up, and so do the numbers
/// that our own limits go by.
pub const UPSTREAMS_OWN: [&str; 19] = [
    "cortex_ingester_active_native_histogram_series",
    "cortex_ingester_active_series",
    "cortex_ingester_ingested_exemplars_failures_total",
    "cortex_ingester_ingested_exemplars_total",
    "cortex_ingester_ingested_metadata_failures_total",
    "cortex_ingester_ingested_metadata_total",
    "cortex_ingester_ingested_native_histograms_failures_total",
    "cortex_ingester_ingested_native_histograms_total",
    "cortex_ingester_ingested_samples_failures_total",
    "cortex_ingester_ingested_samples_total",
    "cortex_ingester_limits_per_labelset",
    "cortex_ingester_memory_metadata",
    "cortex_ingester_memory_metadata_created_total",
    "cortex_ingester_memory_metadata_removed_total",
    "cortex_ingester_memory_series",
    "cortex_ingester_memory_series_created_total",
    "cortex_ingester_memory_series_removed_total",
    "cortex_ingester_memory_users",
    "cortex_ingester_usage_per_labelset",
];

impl Ingester {
    /// Adds all families of the ingester.
    pub fn read_metrics(&self, clock: &Clock, families: &mut Families) {
        self.read_families(clock, families);
        if self.role.has_upstream {
            families.leave_out(&UPSTREAMS_OWN);
        }
    }

    fn read_families(&self, clock: &Clock, families: &mut Families) {
        let now = clock.now();
        let mut tenants = self.tenants.all();
        tenants.sort_by(|a, b| a.id.cmp(&b.id));
        let views: Vec<_> = tenants.iter().map(|tenant| self.tenant_view(tenant, now)).collect();
        self.read_instance(families, now);
        self.read_series(families, &views);
        self.read_limits(families, &views);
        read_discards(families, &tenants);
        self.read_label_sets(families, &tenants);
        read_metadata(families, &tenants);
    }

    fn read_instance(&self, families: &mut Families, now: Now) {
        let totals = self.totals.count();
        let counters = &self.counters;
        let f = families;
        f.gauge(
            "cortex_ingester_memory_series",
            "The current number of series in memory.",
            totals.in_memory as f64,
        );
        f.gauge(
            "cortex_ingester_memory_users",
            "The current number of users in memory.",
            self.tenants.len() as f64,
        );
        f.counter(
            "cortex_ingester_ingested_samples_total",
            "The total number of samples ingested.",
            counters.samples.get(),
        );
        f.counter(
            "cortex_ingester_ingested_samples_failures_total",
            "The total number of samples that errored on ingestion.",
            counters.samples_failed.get(),
        );
        f.counter(
            "cortex_ingester_ingested_native_histograms_total",
            "The total number of native histograms ingested.",
            counters.histograms.get(),
        );
        f.counter(
            "cortex_ingester_ingested_native_histograms_failures_total",
            "The total number of native histograms that errored on ingestion.",
            counters.histograms_failed.get(),
        );
        f.counter(
            "cortex_ingester_ingested_exemplars_total",
            "The total number of exemplars ingested.",
            counters.exemplars.get(),
        );
        f.counter(
            "cortex_ingester_ingested_exemplars_failures_total",
            "The total number of exemplars that errored on ingestion.",
            counters.exemplars_failed.get(),
        );
        f.counter(
            "cortex_ingester_ingested_metadata_total",
            "The total number of metadata ingested.",
            counters.metadata.get(),
        );
        f.counter(
            "cortex_ingester_ingested_metadata_failures_total",
            "The total number of metadata that errored on ingestion.",
            counters.metadata_failed.get(),
        );
        f.gauge(
            "cortex_ingester_inflight_push_requests",
            "Max number of inflight push requests in ingester in the last minute.",
            self.admission.in_flight_peak() as f64,
        );
        f.gauge(
            "cortex_ingester_ingestion_rate_samples_per_second",
            "Current ingestion rate in samples/sec that ingester is using to limit access.",
            self.admission.rate(),
        );
        let snapshot = self.overrides.snapshot();
        let instance = snapshot.instance();
        let mut limits =
            f.gauges("cortex_ingester_instance_limits", "Instance limits used by this ingester.");
        for (name, value) in [
            ("max_inflight_push_requests", instance.max_inflight_push_requests as f64),
            ("max_inflight_query_requests", instance.max_inflight_query_requests as f64),
            ("max_ingestion_rate", instance.max_ingestion_rate),
            ("max_series", instance.max_series as f64),
            ("max_tenants", instance.max_tenants as f64),
        ] {
            limits.sample([("limit", name)], value);
        }
        let mut refused = f.counters(
            "freehold_ingester_pushes_refused_total",
            "Pushes refused as a whole by a limit of this instance.",
        );
        for (limit, counter) in [
            ("max_inflight_push_requests", &counters.refused_in_flight),
            ("max_ingestion_rate", &counters.refused_rate),
            ("max_series", &counters.refused_series),
            ("max_tenants", &counters.refused_tenants),
        ] {
            refused.sample([("limit", limit)], counter.get() as f64);
        }
        let mut usage = f.gauges(
            "freehold_ingester_instance_usage",
            "What each limit of this instance is compared with.",
        );
        for (name, value) in [
            ("max_inflight_push_requests", self.admission.in_flight_peak() as f64),
            ("max_ingestion_rate", self.admission.rate()),
            ("max_series", totals.by(self.basis()) as f64),
            ("max_tenants", self.tenants.len() as f64),
        ] {
            usage.sample([("limit", name)], value);
        }
        let mut recounts = f.counters(
            "freehold_ingester_recounts_total",
            "Recounts of a tenant's owned series, by what made them due.",
        );
        for reason in RecountReason::ALL {
            recounts.sample([("reason", reason.label())], self.recounts.recounts(reason) as f64);
        }
        let mut loading = f.gauges(
            "freehold_ingester_loading",
            "1 while a count is too low after a start: in_memory until the series that there were are known, active until the idle timeout has passed.",
        );
        let is_loading =
            [("active", self.is_active_count_loading(now)), ("in_memory", !self.is_counted())];
        for (count, is_loading) in is_loading {
            loading.sample([("count", count)], f64::from(u8::from(is_loading)));
        }
        f.gauge(
            "freehold_ingester_recount_duration_seconds",
            "How long the last pass that recounted owned series took, over all tenants.",
            self.recounts.last_seconds(),
        );
        f.gauge("freehold_ingester_ring_mismatch", "1 while series arrive that the ring does not assign to this instance, so that ownership counts as unknown.", f64::from(u8::from(self.recounts.is_mismatch())));
    }

    fn read_series(&self, families: &mut Families, views: &[TenantView]) {
        let mut gauge = |name, help, read: &dyn Fn(&TenantView) -> u64| {
            let mut family = families.gauges(name, help);
            for view in views {
                family.sample([("user", view.tenant.as_str())], read(view) as f64);
            }
        };
        gauge(
            "cortex_ingester_active_series",
            "Number of currently active series per user.",
            &|v| v.counts.active,
        );
        gauge(
            "cortex_ingester_active_native_histogram_series",
            "Number of currently active native histogram series per user.",
            &|v| v.counts.active_native_histogram,
        );
        gauge("freehold_ingester_memory_series", "Series in memory per user.", &|v| {
            v.counts.series.in_memory
        });
        if self.config.owned_series_metrics_enabled {
            gauge(
                "cortex_ingester_owned_series",
                "Series in memory that the ring assigns to this instance, per user.",
                &|v| v.counts.series.owned,
            );
            gauge(
                "freehold_ingester_owned_native_histogram_series",
                "Native histogram series in memory that the ring assigns to this instance, per user.",
                &|v| v.counts.native_histogram.owned,
            );
        }
        gauge(
            "freehold_ingester_pending_series",
            "Series created by pushes that have not ended, or ended without telling whether they exist.",
            &|v| v.counts.pending,
        );
        let mut counter = |name, help, read: &dyn Fn(&TenantView) -> u64| {
            let mut family = families.counters(name, help);
            for view in views {
                family.sample([("user", view.tenant.as_str())], read(view) as f64);
            }
        };
        counter(
            "cortex_ingester_memory_series_created_total",
            "The total number of series that were created per user.",
            &|v| v.counts.created_total,
        );
        counter(
            "cortex_ingester_memory_series_removed_total",
            "The total number of series that were removed per user.",
            &|v| v.counts.removed_total,
        );
        if self.config.owned_series_metrics_enabled {
            counter(
                "freehold_ingester_series_created_not_owned_total",
                "Series created although the ring does not assign them to this instance.",
                &|v| v.counts.created_not_owned_total,
            );
            counter(
                "freehold_ingester_shadow_admitted_total",
                "Refused creations that a limit on owned series would have admitted.",
                &|v| v.counts.shadow_admitted_total,
            );
            counter(
                "freehold_ingester_shadow_refused_total",
                "Admitted creations that a limit on owned series would have refused.",
                &|v| v.counts.shadow_refused_total,
            );
        }
    }

    fn read_limits(&self, families: &mut Families, views: &[TenantView]) {
        let mut limits = families.gauges("freehold_ingester_series_limit", "Local limit on series in force per user, by why it has its number; absent without a limit.");
        for view in views {
            let reason = match view.in_force {
                InForce::Flat => "flat",
                InForce::Share => "share",
                InForce::Held => "held",
            };
            if let Some(limit) = view.limit {
                limits.sample([("reason", reason), ("user", view.tenant.as_str())], limit as f64);
            }
        }
        let mut against = families.gauges("freehold_ingester_series_against_limit", "Series that the limit in force is compared with per user, owned or in memory; absent without a limit.");
        for view in views.iter().filter(|view| view.limit.is_some()) {
            against.sample([("user", view.tenant.as_str())], view.used() as f64);
        }
        let mut over = families.gauges(
            "freehold_ingester_series_over_limit",
            "Series beyond the limit in force per user, as after an operator's cut.",
        );
        for view in views {
            if let Some(headroom) = view.headroom() {
                over.sample([("user", view.tenant.as_str())], (-headroom).max(0) as f64);
            }
        }
        let mut unknown = families.gauges("freehold_ingester_ownership_unknown", "1 while it is not known which of the user's series are ours; limits then act on the in-memory count.");
        for view in views {
            let value = f64::from(u8::from(view.unknown.is_some()));
            unknown.sample([("user", view.tenant.as_str())], value);
        }
    }

    fn read_label_sets(&self, families: &mut Families, tenants: &[Arc<Tenant>]) {
        let now_labels: Vec<_> = tenants
            .iter()
            .filter(|tenant| !tenant.standing.load().limits.limits_per_label_set.is_empty())
            .collect();
        let mut usage = families
            .gauges("cortex_ingester_usage_per_labelset", "Current usage per user and labelset.");
        for tenant in &now_labels {
            let standing = tenant.standing.load();
            for (index, set) in standing.limits.limits_per_label_set.iter().enumerate() {
                let Some(count) = tenant.series.label_set_count(index as u16) else {
                    continue;
                };
                let labels = [
                    ("labelset", set.id.as_str()),
                    ("limit", "max_series"),
                    ("user", tenant.id.as_str()),
                ];
                usage.sample(labels, count.by(self.basis()) as f64);
            }
        }
        let mut limits =
            families.gauges("cortex_ingester_limits_per_labelset", "Limits per user and labelset.");
        for tenant in &now_labels {
            let standing = tenant.standing.load();
            for set in standing.limits.limits_per_label_set.iter() {
                let labels = [
                    ("labelset", set.id.as_str()),
                    ("limit", "max_series"),
                    ("user", tenant.id.as_str()),
                ];
                limits.sample(labels, set.max_series as f64);
            }
        }
    }
}

fn read_discards(families: &mut Families, tenants: &[Arc<Tenant>]) {
    let mut samples = families.counters(
        "cortex_discarded_samples_total",
        "The total number of samples that were discarded.",
    );
    for tenant in tenants {
        for reason in DiscardReason::ALL {
            let count = tenant.counters.discarded_samples(reason);
            if count > 0 {
                let labels = [("reason", reason.label()), ("user", tenant.id.as_str())];
                samples.sample(labels, count as f64);
            }
        }
    }
    let mut exemplars = families.counters(
        "cortex_discarded_exemplars_total",
        "The total number of exemplars that were discarded.",
    );
    for tenant in tenants {
        let count = tenant.counters.discarded_exemplars();
        if count > 0 {
            exemplars
                .sample([("reason", "rate_limited"), ("user", tenant.id.as_str())], count as f64);
        }
    }
    let mut metadata = families.counters(
        "cortex_discarded_metadata_total",
        "The total number of metadata that were discarded.",
    );
    for tenant in tenants {
        for reason in MetadataReason::ALL {
            let count = tenant.counters.discarded_metadata(reason);
            if count > 0 {
                let labels = [("reason", reason.label()), ("user", tenant.id.as_str())];
                metadata.sample(labels, count as f64);
            }
        }
    }
    let mut sets = families.counters(
        "cortex_discarded_samples_per_labelset_total",
        "The total number of samples that were discarded for each labelset.",
    );
    for tenant in tenants {
        for (id, count) in tenant.counters.discarded_in_label_sets() {
            let labels = [
                ("labelset", id.as_str()),
                ("reason", DiscardReason::PerLabelsetSeriesLimit.label()),
                ("user", tenant.id.as_str()),
            ];
            sets.sample(labels, count as f64);
        }
    }
}

fn read_metadata(families: &mut Families, tenants: &[Arc<Tenant>]) {
    let total: u64 = tenants.iter().map(|tenant| tenant.metadata.len()).sum();
    families.gauge(
        "cortex_ingester_memory_metadata",
        "The current number of metadata in memory.",
        total as f64,
    );
    let mut created = families.counters(
        "cortex_ingester_memory_metadata_created_total",
        "The total number of metadata that were created per user",
    );
    for tenant in tenants {
        let count = tenant.counters.metadata_created.get();
        if count > 0 {
            created.sample([("user", tenant.id.as_str())], count as f64);
        }
    }
    let mut removed = families.counters(
        "cortex_ingester_memory_metadata_removed_total",
        "The total number of metadata that were removed per user.",
    );
    for tenant in tenants {
        let count = tenant.counters.metadata_removed.get();
        if count > 0 {
            removed.sample([("user", tenant.id.as_str())], count as f64);
        }
    }
}
