//! Field cases of counting, and of the ingester's own rate limiters, through whole ingesters.

use freehold::clock::{Clock, Now};
use freehold::exposition::Families;
use freehold::ingester::counters::DiscardReason;
use freehold::ingester::passes::PassLoop;
use freehold::labels::ring_key;
use freehold::ring::Operation;

use super::cluster::{self, Cluster};
use super::push::{Bench, HOUR_MS, T0_MS, float, floats, native, refusal, setup};

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_MS: i64 = 60_000;
/// Looks at the heads lie this many ticks apart at most.
const TICKS_TO_A_CUT: usize = 15;

fn later(now: Now, ms: i64) -> Now {
    Now { unix_ms: now.unix_ms + ms, steady_ns: now.steady_ns + ms * 1_000_000 }
}

/// The process ends without a word, and another one opens the same data.
fn restarted(setup: &super::push::Setup, bench: Bench, down_ms: i64) -> Bench {
    let Bench { ingester, now, dir } = bench;
    drop(ingester);
    // A new process counts its own time from the start.
    let now = Now { unix_ms: now.unix_ms + down_ms, steady_ns: SECOND_NS };
    Bench { ingester: setup.open(&dir, now), now, dir }
}

fn passes(bench: &Bench) -> PassLoop {
    PassLoop::new(bench.ingester.clone(), Clock::start())
}

fn gauge(bench: &Bench, name: &str) -> f64 {
    let mut families = Families::default();
    bench.ingester.read_metrics(&Clock::start(), &mut families);
    let families = families.into_vec();
    let family = families.iter().find(|family| family.name() == name).expect("the metric");
    family.get_metric().iter().map(|metric| metric.get_gauge().get_value()).sum()
}

#[test]
fn case_b3_dead_series_of_before_a_restart_count_for_nothing() {
    let mut setup = setup();
    setup.limits.max_series_per_user = 200;
    let mut bench = setup.start();
    bench.push(&floats(0..150, T0_MS)).expect("room for all");
    bench.now = later(bench.now, 3 * HOUR_MS + MINUTE_MS);
    bench.push(&floats(150..170, bench.now.unix_ms)).expect("those that live");
    assert_eq!(bench.series(), 170);
    let mut passes = passes(&bench);
    for _ in 0..TICKS_TO_A_CUT {
        passes.tick(bench.now);
    }
    drop(passes);
    assert_eq!(bench.series(), 20, "the head dropped the dead");
    let bench = restarted(&setup, bench, MINUTE_MS);
    assert_eq!(gauge(&bench, "cortex_ingester_memory_series"), 20.0);
    assert_eq!(gauge(&bench, "cortex_ingester_owned_series"), 20.0);
    bench.push(&floats(170..350, bench.now.unix_ms)).expect("room up to the limit");
    assert_eq!(refusal(bench.push(&floats(350..351, bench.now.unix_ms))).0, 400);
    assert_eq!(bench.series(), 200);
}

#[test]
fn case_b3_series_that_died_while_we_were_down_go_with_the_next_cut() {
    let mut setup = setup();
    setup.limits.max_series_per_user = 200;
    let mut bench = setup.start();
    bench.push(&floats(0..150, T0_MS)).expect("room for all");
    bench = restarted(&setup, bench, 3 * HOUR_MS + MINUTE_MS);
    assert_eq!(bench.series(), 150, "no head has dropped them yet");
    bench.push(&floats(150..170, bench.now.unix_ms)).expect("below the limit");
    let mut passes = passes(&bench);
    for _ in 0..TICKS_TO_A_CUT {
        passes.tick(bench.now);
    }
    drop(passes);
    assert_eq!(bench.series(), 20);
    assert_eq!(restarted(&setup, bench, 0).series(), 20);
}

#[test]
fn case_b4_until_the_idle_timeout_has_passed_active_counts_are_said_to_load() {
    let setup = setup();
    let bench = setup.start();
    bench.push(&floats(0..50, T0_MS)).expect("room for all");
    let mut bench = restarted(&setup, bench, MINUTE_MS);
    let active = |bench: &Bench| bench.tenant().series.counts().active;
    assert_eq!((bench.series(), active(&bench)), (50, 0));
    assert_eq!(gauge(&bench, "freehold_ingester_loading"), 1.0);
    let start = bench.now;
    let mut passes = passes(&bench);
    // Each minute a few more come back; an alert that waits for the gauge never sees a low count.
    for minute in 0..20 {
        bench.now = later(start, minute * MINUTE_MS);
        let back = (minute as u64 * 10 + 10).min(50);
        bench.push(&floats(0..back, bench.now.unix_ms)).expect("known");
        passes.tick(bench.now);
        assert_eq!(active(&bench), back);
        let loading = bench.ingester.is_active_count_loading(bench.now);
        assert_eq!(loading, minute < 10, "minute {minute}");
        assert!(loading || active(&bench) == 50);
    }
}

#[test]
fn case_b6_churn_fills_the_limit_and_the_text_says_with_what() {
    for enforcement in [true, false] {
        let id = cluster::tenant("a");
        let mut setup = cluster::Setup::new(150, enforcement);
        (setup.replication_factor, setup.zones) = (1, 0);
        let mut cluster = Cluster::new(setup, 1);
        assert_eq!(cluster.push(&id, 0..90, 0).refused, 0, "the first pods");
        cluster.now = later(cluster.now, 20 * MINUTE_MS);
        assert_eq!(cluster.push(&id, 90..150, 0).refused, 0, "those after the rollout");
        let now = cluster.now;
        let node = cluster.nodes.get_mut("ingester-0").expect("ours");
        node.passes.tick(now);
        let counts = cluster.view("ingester-0", &id).counts;
        assert_eq!((counts.active, counts.series.in_memory), (60, 150));
        let body = cluster::request([150], now.unix_ms);
        let refused = cluster.push_to("ingester-0", &id, &body).expect_err("the limit is reached");
        let sentence = "user=a: per-user series limit of 150 exceeded, please contact \
                        administrator to raise it (local limit: 0 global limit: 150 actual local \
                        limit: 150)";
        let counted = " (owned: 150 in memory: 150 limit in force: flat)";
        let expect = format!("{sentence}{}", if enforcement { counted } else { "" });
        assert_eq!(refused.to_string(), expect);
    }
}

#[test]
fn case_b8_a_clusters_threshold_is_compared_with_an_instances_share_of_replicas() {
    // Each series is three times in the cluster, so thirty instances hold a tenth of it each.
    let id = cluster::tenant("a");
    let setup = cluster::Setup { zones: 0, tokens_each: 256, ..cluster::Setup::new(3_000, true) };
    let mut cluster = Cluster::new(setup, 30);
    let own = "ingester-7";
    let mine: Vec<u64> = {
        let member = cluster.seen.member_index(own).expect("in the ring");
        let holds = |number: &u64| {
            let key = ring_key("a", cluster::labels(*number).as_labels());
            cluster.seen.walk(key, Operation::Write).contains(&member)
        };
        (0..).filter(holds).take(301).collect()
    };
    assert_eq!(cluster.push(&id, 0..2_000, 0).refused, 0, "two thirds of the threshold");
    assert_eq!(cluster.view(own, &id).limit, Some(300));
    let now_ms = cluster.now.unix_ms;
    for &number in &mine[..300] {
        cluster.push_to(own, &id, &cluster::request([number], now_ms)).expect("its share");
    }
    assert!(cluster.push_to(own, &id, &cluster::request([mine[300]], now_ms)).is_err());
}

#[test]
fn case_b20_after_a_restart_the_limit_is_not_admitted_once_more() {
    for enforcement in [true, false] {
        let mut setup = setup();
        setup.limits.max_series_per_user = 500;
        setup.config.owned_series_limit_enforcement_enabled = enforcement;
        let bench = setup.start();
        bench.push(&floats(0..500, T0_MS)).expect("up to the limit");
        let bench = restarted(&setup, bench, MINUTE_MS);
        assert_eq!(gauge(&bench, "cortex_ingester_owned_series"), 500.0, "before any push");
        let now_ms = bench.now.unix_ms;
        assert_eq!(refusal(bench.push(&floats(500..1_000, now_ms))).0, 400);
        assert_eq!(bench.series(), 500);
        assert_eq!(bench.discarded(DiscardReason::PerUserSeriesLimit), 500);
        bench.push(&floats(0..500, now_ms)).expect("known ones flow");
        bench.check_holds(500, 1_000);
    }
}

#[test]
fn case_r20_what_the_histogram_limit_refuses_the_tenants_rate_is_not_charged_for() {
    let mut setup = setup();
    setup.limits.ingestion_rate = 1.0;
    setup.limits.ingestion_burst_size = 10;
    setup.limits.native_histogram_ingestion_rate = 1.0;
    setup.limits.native_histogram_ingestion_burst_size = 5;
    let histograms =
        |count: u64| -> Vec<_> { (0..count).map(|number| native(number, T0_MS, 2)).collect() };
    let bench = setup.start();
    assert_eq!(refusal(bench.push(&histograms(8))).0, 429, "the narrow rule refuses");
    bench.push(&histograms(5)).expect("its bucket is full still");
    let floats: Vec<_> = (10..15).map(|number| float(number, T0_MS, 1.0)).collect();
    bench.push(&floats).expect("the other five of ten");
    assert_eq!(refusal(bench.push(&[float(15, T0_MS, 1.0)])).0, 429, "and no more");
    // Cortex keeps the charge.
    setup.config.limits_parity = true;
    let cortex = setup.start();
    assert_eq!(refusal(cortex.push(&histograms(8))).0, 429);
    assert_eq!(refusal(cortex.push(&histograms(5))).0, 429);
}

#[test]
fn case_r21_a_spammer_costs_the_broad_rule_what_the_narrow_one_let_through() {
    let mut setup = setup();
    setup.limits.ingestion_rate = 1.0;
    setup.limits.ingestion_burst_size = 10;
    setup.limits.native_histogram_ingestion_rate = 1.0;
    setup.limits.native_histogram_ingestion_burst_size = 2;
    let bench = setup.start();
    let spam = (0..100).map(|t| bench.push(&[native(0, T0_MS + t, 2)]));
    assert_eq!(spam.filter(Result::is_ok).count(), 2);
    let rest: Vec<_> = (1..9).map(|number| float(number, T0_MS, 1.0)).collect();
    bench.push(&rest).expect("eight of ten are left");
    assert_eq!(refusal(bench.push(&[float(9, T0_MS, 1.0)])).0, 429);
}
