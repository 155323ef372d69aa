//! All that is known of one tenant, for the page that answers "why was this series refused?".
//!
//! Made on request and never on the way of a push: counts are read where they are published, and
//! of what has to be looked through (metrics, label sets) only the largest are kept.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::clock::Now;
use crate::ingester::Ingester;
use crate::ingester::counters::{DiscardReason, MetadataReason};
use crate::ingester::history::{ToLimit, Trend};
use crate::ingester::recounts::{RecountPass, Recounted};
use crate::ingester::standing::Standing;
use crate::ingester::tenants::Tenant;
use crate::ingester::views::{TenantView, UserStats};
use crate::limits::NO_LIMIT;
use crate::series::{Count, InForce, Largest, Limit, LimitName, Tick};
use crate::sync::Ordering;
use crate::tenant::TenantId;

/// Metrics and label sets that are told of a tenant: what fits a page and a glance.
pub const LARGEST_MAX: usize = 20;

/// See the head of the file.
pub struct TenantDetail {
    pub view: TenantView,
    pub rates: UserStats,
    pub trend: Trend,
    pub to_limit: ToLimit,
    /// Not all series that there are have been listed yet.
    pub is_loading: bool,
    /// `None` without an upstream.
    pub upstream: Option<Upstream>,
    /// Limits with one number for the whole tenant, series first.
    pub limits: Vec<LimitUse>,
    /// `None` while nobody counts series by metric.
    pub metrics: Option<Largest>,
    /// `None` while nobody counts series by label set.
    pub label_sets: Option<LabelSetsUse>,
    /// What was refused since the tenant came, by reason; what never was is left out.
    pub refused: Vec<Refused>,
    /// The instance's last recounts, the newest first, with what each changed of the tenant.
    pub recounts: Vec<(RecountPass, Option<Recounted>)>,
    pub standing: Arc<Standing>,
}

/// A tenant's series upstream, as the last poll told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upstream {
    pub series: i64,
    pub residue: i64,
    pub drift: i64,
}

/// What a limit bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    Series,
    NativeHistogramSeries,
    /// Series of one metric; what is used is the largest metric's.
    SeriesPerMetric,
    Metadata,
    MetadataPerMetric,
}

/// A limit beside what uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitUse {
    pub limited: Limited,
    /// As configured for each instance, and for the cluster; 0 for none.
    pub local: i64,
    pub global: i64,
    /// Here and now; `None` where there is none.
    pub limit: Option<u64>,
    pub in_force: InForce,
    /// `None` where it is not known.
    pub used: Option<u64>,
}

/// Label sets of the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSetsUse {
    /// The largest, by the count that limits act on.
    pub largest: Vec<LabelSetUse>,
    pub total: usize,
    /// Some series have not been assigned to theirs yet.
    pub is_partial: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSetUse {
    /// The labels as Cortex prints them.
    pub id: String,
    pub count: Count,
    /// For the cluster; 0 for none.
    pub global: i64,
    pub limit: Option<u64>,
    /// Samples refused by it since the tenant came.
    pub refused: u64,
}

/// What was refused for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub what: Discarded,
    pub total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    Samples(DiscardReason),
    Exemplars,
    Metadata(MetadataReason),
}

impl Ingester {
    /// The tenant of that name; `None` if it has nothing here.
    pub fn tenant_detail(&self, id: &TenantId, now: Now) -> Option<TenantDetail> {
        let tenant = self.tenants.get(id)?;
        let standing = tenant.standing.load_full();
        let view = self.tenant_view(&tenant, now);
        let trend = tenant.history.trend(now, view.used());
        let to_limit = ToLimit::new(view.headroom(), view.used(), trend.slope);
        let metrics = tenant.series.largest_metrics(LARGEST_MAX, self.basis());
        let upstream = self.role.has_upstream.then(|| Upstream {
            series: tenant.upstream.series.load(Ordering::Relaxed),
            residue: tenant.upstream.residue.load(Ordering::Relaxed),
            drift: tenant.upstream.drift.load(Ordering::Relaxed),
        });
        let passes = self.recounts.passes().into_iter();
        Some(TenantDetail {
            rates: self.user_stats(id),
            trend,
            to_limit,
            is_loading: tenant.series.is_loading(),
            upstream,
            limits: self.limits_in_use(&tenant, &standing, metrics.as_ref(), now),
            label_sets: self.label_sets_in_use(&tenant, &standing, now),
            metrics,
            refused: refused(&tenant),
            recounts: passes.map(|pass| (pass, tenant.recounts.of(pass.number))).collect(),
            view,
            standing,
        })
    }

    fn limits_in_use(
        &self,
        tenant: &Tenant,
        standing: &Standing,
        metrics: Option<&Largest>,
        now: Now,
    ) -> Vec<LimitUse> {
        let (basis, tick) = (self.basis(), Tick::new(now.steady_s()));
        let counts = tenant.series.counts();
        let limits = &standing.limits;
        let largest = metrics.filter(|metrics| !metrics.is_partial);
        let of_largest = largest.map(|largest| {
            let counts = largest.metrics.iter().map(|metric| metric.count.by(basis));
            counts.max().unwrap_or(0)
        });
        let series = |limited, name, local, global, used| {
            let Limit { max, in_force } = tenant.series.limit(name, basis, tick);
            LimitUse { limited, local, global, limit: shown(max), in_force, used }
        };
        let metadata = |limited, local, global, max, used| {
            let in_force =
                if standing.shape.share.is_some() { InForce::Share } else { InForce::Flat };
            LimitUse { limited, local, global, limit: shown(max), in_force, used }
        };
        let metadata_limits = standing.metadata_limits();
        vec![
            series(
                Limited::Series,
                LimitName::Series,
                limits.max_series_per_user,
                limits.max_global_series_per_user,
                Some(counts.series.by(basis)),
            ),
            series(
                Limited::NativeHistogramSeries,
                LimitName::NativeHistogramSeries,
                limits.max_native_histogram_series_per_user,
                limits.max_global_native_histogram_series_per_user,
                Some(counts.native_histogram.by(basis)),
            ),
            series(
                Limited::SeriesPerMetric,
                LimitName::PerMetric,
                limits.max_series_per_metric,
                limits.max_global_series_per_metric,
                of_largest,
            ),
            metadata(
                Limited::Metadata,
                limits.max_metadata_per_user,
                limits.max_global_metadata_per_user,
                metadata_limits.per_user,
                Some(tenant.metadata.len()),
            ),
            metadata(
                Limited::MetadataPerMetric,
                limits.max_metadata_per_metric,
                limits.max_global_metadata_per_metric,
                metadata_limits.per_metric,
                None,
            ),
        ]
    }

    fn label_sets_in_use(
        &self,
        tenant: &Tenant,
        standing: &Standing,
        now: Now,
    ) -> Option<LabelSetsUse> {
        let (basis, tick) = (self.basis(), Tick::new(now.steady_s()));
        let sets = &standing.limits.limits_per_label_set;
        let counted = tenant.series.label_set_counts()?;
        // Indices of another configuration say nothing of these sets.
        let is_same = counted.configured == standing.label_sets_generation;
        let count_of = |index: usize| {
            let count = counted.counts.get(index).filter(|_| is_same);
            count.copied().unwrap_or_default()
        };
        let mut order: Vec<usize> = (0..sets.len()).collect();
        order.sort_by_key(|&index| Reverse((count_of(index).by(basis), count_of(index).in_memory)));
        let refused = tenant.counters.discarded_in_label_sets();
        let largest = order.into_iter().take(LARGEST_MAX).filter_map(|index| {
            let number = u16::try_from(index).ok()?;
            let set = sets.get(number)?;
            let limit = tenant.series.limit(LimitName::LabelSet(number), basis, tick);
            Some(LabelSetUse {
                id: set.id.clone(),
                count: count_of(index),
                global: set.max_series,
                limit: shown(limit.max),
                refused: refused.get(&set.id).copied().unwrap_or(0),
            })
        });
        Some(LabelSetsUse {
            largest: largest.collect(),
            total: sets.len(),
            is_partial: counted.is_partial || !is_same,
        })
    }
}

fn shown(max: u64) -> Option<u64> {
    (max < NO_LIMIT as u64).then_some(max)
}

fn refused(tenant: &Tenant) -> Vec<Refused> {
    let counters = &tenant.counters;
    let samples = DiscardReason::ALL
        .into_iter()
        .map(|reason| (Discarded::Samples(reason), counters.discarded_samples(reason)));
    let exemplars = [(Discarded::Exemplars, counters.discarded_exemplars())];
    let metadata = MetadataReason::ALL
        .into_iter()
        .map(|reason| (Discarded::Metadata(reason), counters.discarded_metadata(reason)));
    let all = samples.chain(exemplars).chain(metadata);
    all.filter(|(_, total)| *total > 0).map(|(what, total)| Refused { what, total }).collect()
}
