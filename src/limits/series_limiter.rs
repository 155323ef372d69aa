//! From limits of the cluster to those of this instance, and the texts of refusals.
//!
//! `flat` is Cortex's arithmetic, to the last bit: `trunc(global / instances × RF)` in doubles,
//! where a result of 0 means none, as does a ring without healthy instances. `share` is ours:
//! `trunc(global × share)`, where `share` is the part of the tenant's key space that this
//! instance holds (the shares of all instances sum to RF).
//!
//! Pure functions of numbers. Who holds a limit over a ring change keeps the old [`Shape`], not
//! the old limit: an operator's change then applies at once (see [`LocalLimits::held`]).

use std::fmt;

use fnv::FnvHashSet;

use super::Limits;

/// Stands for "no limit", in comparisons and in texts, as in Cortex.
pub const NO_LIMIT: u64 = i32::MAX as u64;

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

/// Limits of one tenant on this instance. [`NO_LIMIT`] where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalLimits {
    pub series: u64,
    pub native_histogram_series: u64,
    pub series_per_metric: u64,
    pub metadata: u64,
    pub metadata_per_metric: u64,
    /// By the index of the label set.
    pub label_sets: Box<[u64]>,
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

    /// What applies while the counts still belong to the shape `before`: the larger of both, so
    /// a limit that falls because the ring moved is held and one that rises applies at once.
    /// Both come from today's `limits`, so an operator's cut is never hidden.
    pub fn held(limits: &Limits, before: &Shape, now: &Shape) -> Self {
        let mut held = Self::new(limits, before);
        let now = Self::new(limits, now);
        held.series = held.series.max(now.series);
        held.native_histogram_series =
            held.native_histogram_series.max(now.native_histogram_series);
        held.series_per_metric = held.series_per_metric.max(now.series_per_metric);
        held.metadata = held.metadata.max(now.metadata);
        held.metadata_per_metric = held.metadata_per_metric.max(now.metadata_per_metric);
        for (held, now) in held.label_sets.iter_mut().zip(&now.label_sets) {
            *held = (*held).max(*now);
        }
        held
    }

    /// The first of the matched label sets whose limit is reached, with that limit. A count that
    /// is not known yet refuses nothing.
    pub fn label_set_reached(
        &self,
        matched: &[u16],
        current: impl Fn(u16) -> Option<u64>,
    ) -> Option<(u16, u64)> {
        let limit = |index: u16| self.label_sets.get(usize::from(index)).copied();
        matched.iter().find_map(|&index| {
            let limit = limit(index)?;
            (current(index)? >= limit).then_some((index, limit))
        })
    }
}

impl Shape {
    /// The shape to use when the ring was just read: the last good one if it shows nobody.
    pub fn or_last_good(self, last_good: Option<Shape>) -> Shape {
        if self.healthy_instances > 0 {
            return self;
        }
        last_good.unwrap_or(self)
    }

    fn local_limit(&self, local: u64, global: u64) -> u64 {
        let divided = if self.shard_by_all_labels { self.divide(global) } else { 0 };
        or_no_limit(min_non_zero(local, divided))
    }

    /// Without sharding by all labels a metric is on the same few instances whole, so its limit
    /// is not divided.
    fn local_limit_per_metric(&self, local: u64, global: u64) -> u64 {
        let divided = if self.shard_by_all_labels { self.divide(global) } else { global };
        or_no_limit(min_non_zero(local, divided))
    }

    /// This instance's part of a global limit, 0 for none.
    fn divide(&self, global: u64) -> u64 {
        if global == 0 {
            return 0;
        }
        if let Some(share) = self.share {
            // Who holds nothing of the key space has nothing to count against a limit; who holds
            // a sliver may keep one series, since 0 would mean no limit at all.
            return if share > 0.0 { ((global as f64 * share) as u64).max(1) } else { 0 };
        }
        if self.healthy_instances == 0 {
            return 0;
        }
        let instances = self.instances_of_tenant();
        (global as f64 / instances as f64 * self.replication_factor as f64) as u64
    }

    /// Instances that a tenant's series are spread over.
    fn instances_of_tenant(&self) -> usize {
        let size = shard_size_instances(self.shard_size, self.healthy_instances);
        if size == 0 {
            return self.healthy_instances;
        }
        let zones = if self.zone_awareness { self.zones_count.max(1) } else { 1 };
        // Each zone gives the same number, rounded up.
        self.healthy_instances.min(size.div_ceil(zones).saturating_mul(zones))
    }
}

/// Instances that a shard size asks for: below 1 it is a share of `instances`, rounded up, from
/// 1 on a number, rounded up too. 0 means no shuffle sharding.
pub fn shard_size_instances(shard_size: f64, instances: usize) -> usize {
    let size = if shard_size < 1.0 { instances as f64 * shard_size } else { shard_size };
    size.ceil() as usize
}

fn min_non_zero(first: u64, second: u64) -> u64 {
    if first == 0 || (second != 0 && first > second) { second } else { first }
}

fn or_no_limit(limit: u64) -> u64 {
    if limit == 0 { NO_LIMIT } else { limit }
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
    pub local: u64,
    /// As configured for the cluster; 0 for none.
    pub global: u64,
    /// In force on this instance.
    pub actual_local: u64,
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
    /// The body of the 400: the tenant in front; the series behind, where the limit is about one
    /// metric or label set; then the counts that decided, if they are told. `series` prints the
    /// refused series, for metadata its metric's name alone.
    pub fn body(&self, tenant: &dyn fmt::Display, series: &dyn fmt::Display) -> String {
        let mut body = format!("user={tenant}: {self}");
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
            let limit = min_non_zero(global, actual_local);
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
mod tests {
    use super::*;

    const RING: Shape = Shape {
        healthy_instances: 10,
        zones_count: 3,
        zone_awareness: true,
        replication_factor: 3,
        shard_by_all_labels: true,
        shard_size: 0.0,
        share: None,
    };

    fn global(limit: u64) -> Limits {
        let limits = Limits { max_global_series_per_user: limit, ..Limits::default() };
        Limits { max_series_per_user: 0, ..limits }
    }

    fn series(limits: &Limits, shape: Shape) -> u64 {
        LocalLimits::new(limits, &shape).series
    }

    #[test]
    fn case_a1_and_a3_the_flat_limit_falls_as_instances_join() {
        let check = |limit, healthy_instances, local| {
            assert_eq!(series(&global(limit), Shape { healthy_instances, ..RING }), local);
        };
        check(2_700_000, 75, 108_000);
        check(2_700_000, 249, 32_530);
        check(175_000, 3, 175_000);
        check(175_000, 6, 87_500);
    }

    #[test]
    fn case_a9_share_gives_the_small_zone_its_due() {
        let limits = global(900);
        assert_eq!(series(&limits, RING), 270);
        assert_eq!(series(&limits, Shape { share: Some(1.0 / 2.0), ..RING }), 450);
        assert_eq!(series(&limits, Shape { share: Some(1.0 / 4.0), ..RING }), 225);
    }

    #[test]
    fn case_a11_more_zones_than_replicas_change_nothing() {
        let shape = Shape { healthy_instances: 25, zones_count: 5, ..RING };
        assert_eq!(series(&global(10_000), shape), 1_200);
    }

    #[test]
    fn case_a13_an_empty_ring_keeps_the_last_good_shape() {
        let empty = Shape { healthy_instances: 0, ..RING };
        assert_eq!(series(&global(1_000), empty), NO_LIMIT);
        assert_eq!(series(&global(1_000), empty.or_last_good(Some(RING))), 300);
        assert_eq!(RING.or_last_good(Some(empty)), RING);
    }

    #[test]
    fn case_a15_readonly_instances_do_not_lower_the_limit() {
        assert_eq!(series(&global(3_000), Shape { healthy_instances: 7, ..RING }), 1_285);
    }

    #[test]
    fn case_a19_the_shard_size_counts() {
        let shape = Shape { healthy_instances: 100, ..RING };
        assert_eq!(series(&global(30_000), Shape { shard_size: 6.0, ..shape }), 15_000);
        assert_eq!(series(&global(30_000), shape), 900);
        // Seven are three per zone, nine in all.
        assert_eq!(series(&global(30_000), Shape { shard_size: 7.0, ..shape }), 10_000);
    }

    #[test]
    fn case_a4_a_raised_shard_size_is_held_like_any_move() {
        let before = Shape {
            replication_factor: 1,
            zone_awareness: false,
            healthy_instances: 12,
            shard_size: 3.0,
            ..RING
        };
        let now = Shape { shard_size: 6.0, ..before };
        assert_eq!(LocalLimits::held(&global(30_000), &before, &now).series, 10_000);
        assert_eq!(series(&global(30_000), now), 5_000);
    }

    #[test]
    fn a_fractional_shard_size_is_a_share_of_the_instances() {
        let check = |size, instances| assert_eq!(shard_size_instances(size, 10), instances);
        check(0.0, 0);
        check(0.25, 3);
        check(0.01, 1);
        check(1.0, 1);
        check(1.5, 2);
        check(40.0, 40);
        let shape = Shape { shard_size: 0.5, zone_awareness: false, ..RING };
        assert_eq!(series(&global(1_000), shape), 600);
    }

    #[test]
    fn case_a31_a_lowered_limit_is_reached_by_what_is_there() {
        let lowered = LocalLimits::new(&global(50), &Shape { healthy_instances: 3, ..RING });
        assert_eq!(80_u64.saturating_sub(lowered.series), 30);
    }

    #[test]
    fn case_a32_a_held_limit_does_not_hide_the_operators_cut() {
        let grown = Shape { healthy_instances: 20, ..RING };
        assert_eq!(LocalLimits::held(&global(1_000), &RING, &grown).series, 300);
        assert_eq!(LocalLimits::held(&global(500), &RING, &grown).series, 150);
    }

    #[test]
    fn case_a6_a_limit_that_rises_applies_at_once() {
        let shrunk = Shape { healthy_instances: 5, ..RING };
        assert_eq!(LocalLimits::held(&global(1_000), &RING, &shrunk).series, 600);
    }

    #[test]
    fn case_a33_a_metric_on_the_same_instances_is_not_divided() {
        let limits = Limits { max_global_series_per_metric: 100, ..Limits::default() };
        let whole = Shape { shard_by_all_labels: false, ..RING };
        assert_eq!(LocalLimits::new(&limits, &whole).series_per_metric, 100);
        assert_eq!(LocalLimits::new(&limits, &RING).series_per_metric, 30);
    }

    #[test]
    fn case_b8_a_global_threshold_becomes_a_local_one_with_the_replicas() {
        let shape = Shape { healthy_instances: 30, zone_awareness: false, ..RING };
        assert_eq!(series(&global(300_000), shape), 30_000);
    }

    #[test]
    fn case_b21_ignored_metrics_are_known_by_name() {
        let ignored = IgnoredMetrics::parse("up, ALERTS,,");
        assert!(ignored.contains(b"up") && ignored.contains(b"ALERTS"));
        assert!(!ignored.contains(b"") && !ignored.contains(b"u"));
    }

    #[test]
    fn a_sliver_of_the_key_space_is_not_without_limit() {
        assert_eq!(series(&global(10), Shape { share: Some(0.001), ..RING }), 1);
        assert_eq!(series(&global(10), Shape { share: Some(0.0), ..RING }), NO_LIMIT);
        assert_eq!(series(&global(1_000), Shape { share: Some(0.3), ..RING }), 300);
    }

    #[test]
    fn case_b6_the_text_names_the_counts_that_decided() {
        let refusal = Refusal {
            kind: RefusalKind::SeriesPerMetric { metric: &"up" },
            numbers: Numbers { local: 0, global: 10, actual_local: 3 },
            admin_message: "call us",
            counts: Some(Counts {
                owned: Some(3),
                in_memory: 7,
                in_force: LimitInForce::HeldUntilRecount,
            }),
        };
        assert_eq!(
            refusal.body(&"t", &"{__name__=\"up\"}"),
            "user=t: per-metric series limit of 10 exceeded for metric up, call us (local limit: 0 \
             global limit: 10 actual local limit: 3) for series {__name__=\"up\"} (owned: 3 in \
             memory: 7 limit in force: held until recount)"
        );
        let unknown = Counts { owned: None, in_memory: 7, in_force: LimitInForce::Flat };
        assert_eq!(unknown.to_string(), "owned: not known in memory: 7 limit in force: flat");
    }

    #[test]
    fn an_unknown_count_of_a_label_set_refuses_nothing() {
        let mut local = LocalLimits::new(&Limits::default(), &RING);
        local.label_sets = [5, 5].into();
        let current = |index| if index == 0 { None } else { Some(5) };
        assert_eq!(local.label_set_reached(&[0], current), None);
        assert_eq!(local.label_set_reached(&[0, 1], current), Some((1, 5)));
    }
}
