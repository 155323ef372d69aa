//! Division of limits, and texts, on rings of known shape.

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

fn global(limit: i64) -> Limits {
    let limits = Limits { max_global_series_per_user: limit, ..Limits::default() };
    Limits { max_series_per_user: 0, ..limits }
}

fn series(limits: &Limits, shape: Shape) -> i64 {
    LocalLimits::new(limits, &shape).series.0
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
fn a_ring_without_healthy_instances_divides_nothing() {
    let empty = Shape { healthy_instances: 0, ..RING };
    assert_eq!(series(&global(1_000), empty), NO_LIMIT);
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
fn a_fractional_shard_size_is_a_share_of_the_instances() {
    let shape = Shape { shard_size: 0.5, zone_awareness: false, ..RING };
    assert_eq!(series(&global(1_000), shape), 600);
}

#[test]
fn case_a31_a_lowered_limit_admits_nothing_new_until_the_count_is_below() {
    let shape = Shape { healthy_instances: 3, ..RING };
    let before = LocalLimits::new(&global(100), &shape).series;
    let lowered = LocalLimits::new(&global(50), &shape).series;
    assert!(!before.is_reached_by(80) && lowered.is_reached_by(80));
    assert!(lowered.is_reached_by(50) && !lowered.is_reached_by(49));
    assert_eq!(80 - lowered.most(), 30, "what the over-limit gauge shows");
}

#[test]
fn case_a33_a_metric_on_the_same_instances_is_not_divided() {
    let limits = Limits { max_global_series_per_metric: 100, ..Limits::default() };
    let whole = Shape { shard_by_all_labels: false, ..RING };
    assert_eq!(LocalLimits::new(&limits, &whole).series_per_metric.0, 100);
    assert_eq!(LocalLimits::new(&limits, &RING).series_per_metric.0, 30);
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
fn a_limit_below_zero_refuses_all() {
    let limits = Limits { max_series_per_user: -1, ..global(1_000) };
    let local = LocalLimits::new(&limits, &RING).series;
    assert_eq!((local.0, local.most()), (-1, 0));
    assert!(local.is_reached_by(0));
    assert_eq!(series(&global(-1), Shape { share: Some(0.3), ..RING }), -1);
}

#[test]
fn case_b6_the_text_names_the_counts_that_decided() {
    let refusal = Refusal {
        kind: RefusalKind::SeriesPerMetric { metric: &"up" },
        numbers: Numbers { local: 0, global: 10, actual_local: LocalLimit(3) },
        admin_message: "call us",
        counts: Some(Counts {
            owned: Some(3),
            in_memory: 7,
            in_force: LimitInForce::HeldUntilRecount,
        }),
    };
    assert_eq!(
        refusal.text(&"{__name__=\"up\"}"),
        "per-metric series limit of 10 exceeded for metric up, call us (local limit: 0 \
         global limit: 10 actual local limit: 3) for series {__name__=\"up\"} (owned: 3 in \
         memory: 7 limit in force: held until recount)"
    );
    let unknown = Counts { owned: None, in_memory: 7, in_force: LimitInForce::Flat };
    assert_eq!(unknown.to_string(), "owned: not known in memory: 7 limit in force: flat");
}
