//! From limits of the cluster to those of this instance, and the texts of refusals.
//!
//! `flat` is Cortex's arithmetic, to the last bit: `trunc(global / instances × RF)` in doubles,
//! where a result of 0 means none, as does a ring without healthy instances. `share` is ours:
//! `trunc(global × share)`, where `share` is the part of the tenant's key space that this
//! instance holds (the shares of all instances sum to RF).
//!
//! Pure functions of numbers. Who holds a limit over a ring change keeps the old [`Shape`], not
//! the old limit: an operator's change then applies at once.

use std::fmt;

use fnv::FnvHashSet;

use super::Limits;
use crate::units::shard_size;

/// Stands for "no limit", in comparisons and in texts, as in Cortex.
pub const NO_LIMIT: i64 = i32::MAX as i64;

/// Default of `-ingester.admin-limit-message`.
pub const ADMIN_LIMIT_MESSAGE: &str = "please contact administrator to raise it";

/// What the ring and the configuration say about the division of a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// ACTIVE with a fresh heartbeat.
    pub healthy_instances: usize,
    /// Distinct zones of all instances, the empty one included.
    pub zones_count: usize,
    pub zone_awareness: bool,
    pub replication_factor: usize,
    pub shard_by_all_labels: bool,
    /// The tenant's shard size; 0 unless shuffle sharding is on. Part of the shape and not read
    /// from the limits, since a change of it moves series between instances.
    pub shard_size: f64,
    /// This instance's share of the tenant's key space, in `share` mode; `None` in `flat` mode,
    /// and where ownership is unknown.
    pub share: Option<f64>,
}

/// A limit on this instance: [`NO_LIMIT`] where there is none, and below 0 it refuses all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalLimit(pub i64);

impl LocalLimit {
    /// Nothing may be created while `current` exist.
    #[inline]
    pub fn is_reached_by(self, current: u64) -> bool {
        current >= self.most()
    }

    /// The most that may exist.
    #[inline]
    pub fn most(self) -> u64 {
        self.0.max(0) as u64
    }
}

impl fmt::Display for LocalLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Limits of one tenant on this instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalLimits {
    pub series: LocalLimit,
    pub native_histogram_series: LocalLimit,
    pub series_per_metric: LocalLimit,
    pub metadata: LocalLimit,
    pub metadata_per_metric: LocalLimit,
    /// By the index of the label set.
    pub label_sets: Box<[LocalLimit]>,
}

impl LocalLimits {
    /// What a tenant's limits come to under a shape.
    pub fn new(limits: &Limits, shape: &Shape) -> Self {
        let per_tenant = |local, global| shape.local_limit(local, global);
        let per_metric = |local, global| shape.local_limit_per_metric(local, global);
        let sets = limits.limits_per_label_set.iter();
        Self {
            series: per_tenant(limits.max_series_per_user, limits.max_global_series_per_user),
            native_histogram_series: per_tenant(
                limits.max_native_histogram_series_per_user,
                limits.max_global_native_histogram_series_per_user,
            ),
            series_per_metric: per_metric(
                limits.max_series_per_metric,
                limits.max_global_series_per_metric,
            ),
            metadata: per_tenant(limits.max_metadata_per_user, limits.max_global_metadata_per_user),
            metadata_per_metric: per_metric(
                limits.max_metadata_per_metric,
                limits.max_global_metadata_per_metric,
            ),
            label_sets: sets.map(|set| per_tenant(set.max_series, set.max_series)).collect(),
        }
    }
}

impl Shape {
    fn local_limit(&self, local: i64, global: i64) -> LocalLimit {
        let divided = if self.shard_by_all_labels { self.divide(global) } else { 0 };
        or_no_limit(min_non_zero(local, divided))
    }

    /// Without sharding by all labels a metric is on the same few instances whole, so its limit
    /// is not divided.
    fn local_limit_per_metric(&self, local: i64, global: i64) -> LocalLimit {
        if global <= 0 {
            return or_no_limit(local);
        }
        let divided = if self.shard_by_all_labels { self.divide(global) } else { global };
        or_no_limit(min_non_zero(local, divided))
    }

    /// This instance's part of a global limit, 0 for none.
    fn divide(&self, global: i64) -> i64 {
        if global == 0 {
            return 0;
        }
        if let Some(share) = self.share {
            // Who holds nothing of the key space has nothing to count against a limit; who holds
            // a sliver may keep one series, since 0 would mean no limit at all.
            let part = (global as f64 * share) as i64;
            return if share > 0.0 && part == 0 { global.signum() } else { part };
        }
        if self.healthy_instances == 0 {
            return 0;
        }
        let instances = self.instances_of_tenant();
        (global as f64 / instances as f64 * self.replication_factor as f64) as i64
    }

    /// Instances that a tenant's series are spread over.
    pub fn instances_of_tenant(&self) -> usize {
        let size = shard_size(self.shard_size, self.healthy_instances);
        let size = usize::try_from(size).unwrap_or(0);
        if size == 0 {
            return self.healthy_instances;
        }
        let zones = if self.zone_awareness { self.zones_count.max(1) } else { 1 };
        // Each zone gives the same number, rounded up.
        self.healthy_instances.min(size.div_ceil(zones).saturating_mul(zones))
    }
}

fn min_non_zero(first: i64, second: i64) -> i64 {
    if first == 0 || (second != 0 && first > second) { second } else { first }
}

fn or_no_limit(limit: i64) -> LocalLimit {
    LocalLimit(if limit == 0 { NO_LIMIT } else { limit })
}

/// Metrics that the limit per metric leaves alone
/// (`-ingester.ignore-series-limit-for-metric-names`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredMetrics(FnvHashSet<Box<[u8]>>);

impl IgnoredMetrics {
    /// Reads names separated by commas.
    pub fn parse(names: &str) -> Self {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self(names.map(|name| Box::from(name.as_bytes())).collect())
    }

    pub fn contains(&self, metric: &[u8]) -> bool {
        self.0.contains(metric)
    }
}

/// The numbers in the text of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// As configured per instance; 0 for none.
    pub local: i64,
    /// As configured for the cluster; 0 for none.
    pub global: i64,
    /// In force on this instance.
    pub actual_local: LocalLimit,
}

/// Which limit refused.
#[derive(Clone, Copy)]
pub enum RefusalKind<'a> {
    SeriesPerUser,
    NativeHistogramSeriesPerUser,
    SeriesPerMetric {
        metric: &'a dyn fmt::Display,
    },
    /// `id` is the label set's; it has no limit per instance of its own.
    SeriesPerLabelSet {
        id: &'a str,
    },
    MetadataPerUser,
    MetadataPerMetric {
        metric: &'a dyn fmt::Display,
    },
}

/// Which limit was in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitInForce {
    Flat,
    Share,
    HeldUntilRecount,
}

/// The counts that decided, told when owned series are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// `None` while ownership is not known; then the in-memory count decided.
    pub owned: Option<u64>,
    pub in_memory: u64,
    pub in_force: LimitInForce,
}

/// A refused series or metadata; shows the text that the sender reads.
#[derive(Clone, Copy)]
pub struct Refusal<'a> {
    pub kind: RefusalKind<'a>,
    pub numbers: Numbers,
    /// What to do about it, as the operator worded it.
    pub admin_message: &'a str,
    /// `None` leaves the text to Cortex's letter.
    pub counts: Option<Counts>,
}

impl RefusalKind<'_> {
    /// Value of the `reason` label of the discard counters.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NativeHistogramSeriesPerUser => "per_user_native_histogram_series_limit",
            _ => self.error_type(),
        }
    }

    /// Type of the error, which for native histograms is that of all series.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::SeriesPerUser | Self::NativeHistogramSeriesPerUser => "per_user_series_limit",
            Self::SeriesPerMetric { .. } => "per_metric_series_limit",
            Self::SeriesPerLabelSet { .. } => "per_labelset_series_limit",
            Self::MetadataPerUser => "per_user_metadata_limit",
            Self::MetadataPerMetric { .. } => "per_metric_metadata_limit",
        }
    }

    /// The limit is about one metric or label set, so its text names the series.
    fn names_series(&self) -> bool {
        matches!(
            self,
            Self::SeriesPerMetric { .. }
                | Self::SeriesPerLabelSet { .. }
                | Self::MetadataPerMetric { .. }
        )
    }

    fn subject(&self) -> &'static str {
        match self {
            Self::SeriesPerUser => "per-user series",
            Self::NativeHistogramSeriesPerUser => "per-user native histogram series",
            Self::SeriesPerMetric { .. } => "per-metric series",
            Self::SeriesPerLabelSet { .. } => "per-labelset series",
            Self::MetadataPerUser => "per-user metric metadata",
            Self::MetadataPerMetric { .. } => "per-metric metadata",
        }
    }
}

/// The bare fact, without numbers, as Cortex words it in its logs.
impl fmt::Display for RefusalKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} limit exceeded", self.subject())
    }
}

impl Refusal<'_> {
    /// What the answer says, but for the tenant in front: the series behind, where the limit is
    /// about one metric or label set; then the counts that decided, if they are told. `series`
    /// prints the refused series, for metadata its metric's name alone.
    pub fn text(&self, series: &dyn fmt::Display) -> String {
        let mut body = self.to_string();
        if self.kind.names_series() {
            body.push_str(&format!(" for series {series}"));
        }
        if let Some(counts) = self.counts {
            body.push_str(&format!(" ({counts})"));
        }
        body
    }
}

/// Cortex's sentence.
impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, numbers, admin_message, .. } = self;
        let Numbers { local, global, actual_local } = *numbers;
        let subject = kind.subject();
        if let RefusalKind::SeriesPerLabelSet { id } = kind {
            let limit = min_non_zero(global, actual_local.0);
            return write!(
                f,
                "{subject} limit of {limit} exceeded (labelSet: {id}, global limit: {global} \
                 actual local limit: {actual_local})"
            );
        }
        write!(f, "{subject} limit of {} exceeded", min_non_zero(local, global))?;
        if let RefusalKind::SeriesPerMetric { metric } | RefusalKind::MetadataPerMetric { metric } =
            kind
        {
            write!(f, " for metric {metric}")?;
        }
        write!(
            f,
            ", {admin_message} (local limit: {local} global limit: {global} actual local limit: \
             {actual_local})"
        )
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owned {
            Some(owned) => write!(f, "owned: {owned}")?,
            None => write!(f, "owned: not known")?,
        }
        write!(f, " in memory: {} limit in force: {}", self.in_memory, self.in_force)
    }
}

impl fmt::Display for LimitInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flat => "flat",
            Self::Share => "share",
            Self::HeldUntilRecount => "held until recount",
        })
    }
}

#[cfg(test)]
mod tests;
