//! Faults from the field, by the id of their case, as far as this room decides them.

use super::*;

/// Key of the `n`th of `of` series spread evenly over the ring.
fn spread(n: u64, of: u64) -> u32 {
    (n * (1 << 32) / of) as u32
}

/// A store with `series` series, keys evenly spread, all of them owned.
fn filled(series: u64) -> SeriesStore {
    let store = store();
    for n in 0..series {
        store.restore(identity(n), Kind::Float, Some(0), &new_series(spread(n, series)));
    }
    store
}

/// The part `share` of the ring.
fn view_of_share(epoch: u64, share: f64) -> View {
    view_below(epoch, (share * (1_u64 << 32) as f64) as u32)
}

fn try_create(store: &SeriesStore, n: u64, rules: &Rules) -> Result<Admitted, Refusal> {
    store.create(&float(n), &new_series(u32::MAX / 2), rules, NOW)
}

#[test]
fn case_a1_a_scale_up_refuses_nobody_at_any_instant() {
    let store = filled(50_000);
    store.set_limits(series_limit(108_000));
    let after = view_of_share(2, 75.0 / 249.0);
    store.hold(2, series_limit(32_530), Tick::MAX);
    store.begin_recount(after);
    let mut next = 1_000_000;
    while store.recount_step() == Progress::More {
        try_create(&store, next, &owned_rules()).expect("the old limit is held");
        store.remove(identity(next));
        next += 1;
    }
    let owned = audit(&store).series.owned;
    assert!((15_059..=15_061).contains(&owned), "{owned}");
    let limit = store.limit(LimitName::Series, Basis::Owned, NOW);
    assert_eq!((limit.max, limit.in_force), (32_530, InForce::Flat));
    try_create(&store, next, &owned_rules()).expect("owned is far below the new limit");
    let rules = Rules { basis: Basis::InMemory, ..Rules::default() };
    assert!(try_create(&store, next + 1, &rules).is_err(), "Cortex refuses by what is in memory");
}

#[test]
fn case_a2_owned_over_all_instances_is_rf_times_the_distinct_series() {
    let series = 10_000;
    let (instances, rf) = (5_u64, 3);
    let mut owned = 0;
    for instance in 0..instances {
        let store = filled(series);
        // Each instance owns RF of as many slices of the ring as there are instances.
        let mut bounds = Vec::new();
        for slice in 0..rf {
            let slice = (instance + slice) % instances;
            bounds.push(spread(slice, instances));
            if slice + 1 < instances {
                bounds.push(spread(slice + 1, instances));
            }
        }
        let keys = Arc::new(KeySet::from_toggles(false, bounds));
        store.recount(View { epoch: 2, keys }, series_limit(8_000));
        try_create(&store, series, &owned_rules()).expect("accepted on each instance");
        store.remove(identity(series));
        owned += audit(&store).series.owned;
    }
    assert_eq!(owned, rf * series);
}

#[test]
fn case_a3_old_and_new_instances_both_accept() {
    let old = filled(12_000);
    old.set_limits(series_limit(17_500));
    old.hold(2, series_limit(8_750), Tick::MAX);
    try_create(&old, 20_000, &owned_rules()).expect("held before the recount");
    old.recount(view_of_share(2, 0.5), series_limit(8_750));
    try_create(&old, 20_001, &owned_rules()).expect("owned halves with the limit");
    let new = filled(0);
    new.recount(view_of_share(2, 0.5), series_limit(8_750));
    try_create(&new, 0, &owned_rules()).expect("a new instance has room");
}

#[test]
fn case_a4_a_raised_shard_size_holds_the_limit_until_the_recount() {
    let store = filled(7_500);
    store.set_limits(series_limit(10_000));
    store.hold(2, series_limit(5_000), Tick::MAX);
    let held = store.limit(LimitName::Series, Basis::Owned, NOW);
    assert_eq!((held.max, held.in_force), (10_000, InForce::Held));
    try_create(&store, 8_000, &owned_rules()).expect("7,500 of 10,000");
    store.remove(identity(8_000));
    store.recount(view_of_share(2, 0.5), series_limit(5_000));
    assert_eq!(audit(&store).series.owned, 3_750);
    assert_eq!(store.limit(LimitName::Series, Basis::Owned, NOW).max, 5_000);
}

#[test]
fn case_a5_a_limit_by_share_accepts_where_the_flat_one_refuses() {
    // By luck of tokens this instance owns more than its even part.
    let store = filled(1_870);
    let (mean, ours) = (0.32, 0.36);
    let flat = (2_000.0 * mean) as u64;
    store.recount(view_of_share(2, ours), series_limit(flat));
    let refusal = try_create(&store, 5_000, &owned_rules()).expect_err("673 of 640");
    assert!(matches!(refusal, Refusal::Series(decided) if decided.count.owned > flat));
    let share = LocalLimits { reason: InForce::Share, ..series_limit((2_000.0 * ours) as u64) };
    store.set_limits(share);
    try_create(&store, 5_000, &owned_rules()).expect("673 of 720");
    assert_eq!(store.limit(LimitName::Series, Basis::Owned, NOW).in_force, InForce::Share);
}

#[test]
fn case_a6_between_ring_change_and_recount_the_greater_limit_applies() {
    let store = filled(100);
    store.set_limits(series_limit(101));
    store.hold(2, series_limit(50), Tick::new(2_000));
    try_create(&store, 200, &owned_rules()).expect("the fall waits");
    store.hold(3, series_limit(102), Tick::new(2_000));
    try_create(&store, 201, &owned_rules()).expect("the rise does not");
    assert!(try_create(&store, 202, &owned_rules()).is_err());
}

#[test]
fn case_a8_count_and_limit_decide_alike_in_either_order_of_arrival() {
    let verdicts = |limit_first: bool| {
        let store = filled(100);
        store.set_limits(series_limit(120));
        if limit_first {
            store.hold(2, series_limit(60), Tick::MAX);
            store.begin_recount(view_of_share(2, 0.5));
        } else {
            store.begin_recount(view_of_share(2, 0.5));
            store.hold(2, series_limit(60), Tick::MAX);
        }
        let before = try_create(&store, 200, &owned_rules()).is_ok();
        while store.recount_step() == Progress::More {}
        let admitted =
            (300..400).filter(|&n| try_create(&store, n, &owned_rules()).is_ok()).count();
        (before, admitted)
    };
    assert_eq!(verdicts(true), verdicts(false));
}

#[test]
fn case_a31_a_lowered_limit_sheds_nobody_and_takes_nobody() {
    let store = filled(80);
    store.set_limits(series_limit(100));
    store.set_limits(series_limit(50));
    let mut batch = Batch::new();
    (0..80).for_each(|n| batch.push(float(n)));
    store.touch(&mut batch, Order::Any, NOW);
    assert!(batch.slow().is_empty(), "existing series flow");
    assert!(matches!(try_create(&store, 80, &owned_rules()), Err(Refusal::Series(_))));
    let counts = audit(&store);
    assert_eq!(counts.series.owned - store.limit(LimitName::Series, Basis::Owned, NOW).max, 30);
}

#[test]
fn case_a32_an_operators_cut_in_the_same_reload_as_a_scale_up_applies_at_once() {
    let store = filled(6_000);
    store.set_limits(series_limit(10_000));
    store.hold(2, series_limit(5_000), Tick::MAX);
    // The global limit halves too: the caller computes both views' numbers anew.
    store.set_limits(series_limit(5_000));
    store.hold(2, series_limit(2_500), Tick::MAX);
    assert!(matches!(try_create(&store, 7_000, &owned_rules()), Err(Refusal::Series(_))));
}

#[test]
fn case_b1_owned_falls_at_the_recount_and_active_when_idle() {
    let store = store();
    for n in 0..10 {
        let key = spread(n, 10);
        store.create(&float(n), &new_series(key), &Rules::default(), NOW).expect("no limit");
    }
    store.recount(view_of_share(2, 0.5), LocalLimits::default());
    let counts = audit(&store);
    assert_eq!((counts.series.owned, counts.active), (5, 10));
    store.cycle(Tick::new(1_000));
    assert_eq!(store.counts().active, 10, "touched exactly at the window's start");
    store.cycle(Tick::new(1_001));
    let counts = audit(&store);
    assert_eq!((counts.series.in_memory, counts.active), (10, 0));
}

#[test]
fn case_b10_clearing_takes_the_native_histograms_too() {
    let store = store();
    for n in 0..5 {
        store.create(&histogram(n), &new_series(0), &Rules::default(), NOW).expect("no limit");
    }
    assert_eq!(store.purge_all(), 5);
    let counts = audit(&store);
    assert_eq!((counts.native_histogram, counts.active_native_histogram), (Count::default(), 0));
}

#[test]
fn case_b11_series_whose_hashes_collide_are_two() {
    // The index sees the lower half of an identity only.
    let (one, other) = (Identity(1 << 64 | 7), Identity(2 << 64 | 7));
    let store = store();
    for identity in [one, other] {
        let item = item(identity, 0, Kind::Float);
        store.create(&item, &new_series(0), &Rules::default(), NOW).expect("no limit");
    }
    assert_eq!(audit(&store).series.in_memory, 2);
    assert!(store.remove(one));
    assert_eq!(audit(&store).series.in_memory, 1);
    assert!(store.contains(other) && !store.contains(one));
}

#[test]
fn case_b12_two_series_with_one_ring_key_have_one_owner_and_two_entries() {
    let store = store();
    store.recount(view_below(2, 100), LocalLimits::default());
    for n in 0..2 {
        store.create(&float(n), &new_series(42), &Rules::default(), NOW).expect("no limit");
    }
    assert_eq!(audit(&store).series, Count { in_memory: 2, owned: 2 });
    store.recount(view_below(3, 42), LocalLimits::default());
    assert_eq!(audit(&store).series, Count { in_memory: 2, owned: 0 });
}

#[test]
fn case_b13_dropping_what_is_not_owned_leaves_owned_alone() {
    let store = filled(10);
    store.recount(view_of_share(2, 0.6), LocalLimits::default());
    assert_eq!(audit(&store).series.owned, 6);
    let not_owned: Vec<_> = (6..10).map(identity).collect();
    let fate = |candidate: &Candidate| {
        if not_owned.contains(&candidate.identity) { Fate::Drop } else { Fate::Keep }
    };
    assert_eq!(store.purge_where(fate, |_| {}), 4);
    assert_eq!(audit(&store).series, Count { in_memory: 6, owned: 6 });
}

const SETS: u64 = 1;

fn label_set_limits(maxima: &[u64]) -> LocalLimits {
    LocalLimits { label_sets: Arc::from(maxima), ..LocalLimits::default() }
}

fn in_sets(label_sets: &[u16]) -> NewSeries<'_> {
    NewSeries { label_sets, label_sets_generation: SETS, ..new_series(0) }
}

#[test]
fn case_b16_label_set_counts_are_exact_under_parallel_create_and_remove() {
    let options = Options { stripe_series_max: 16, ..Options::default() };
    let store = store_with(options, View::unknown(), &Arc::new(Totals::new()));
    store.enable_label_sets(SETS);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                let sets: &[u16] = if thread % 2 == 0 { &[0] } else { &[0, 1] };
                for n in thread * 500..(thread + 1) * 500 {
                    let rules = Rules::default();
                    store.create(&float(n), &in_sets(sets), &rules, NOW).expect("no limit");
                    if n % 5 != 0 {
                        store.remove(identity(n));
                    }
                }
            });
        }
    });
    assert_eq!(store.label_set_count(0), Some(Count { in_memory: 400, owned: 400 }));
    assert_eq!(store.label_set_count(1), Some(Count { in_memory: 200, owned: 200 }));
}

#[test]
fn case_b18_the_default_partition_counts_what_nothing_else_matches() {
    let store = store();
    store.enable_label_sets(SETS);
    // 0 is an explicit set without room for more than 5, 1 the default partition with 2.
    store.set_limits(label_set_limits(&[5, 2]));
    let create = |n, sets: &[u16]| store.create(&float(n), &in_sets(sets), &owned_rules(), NOW);
    for n in 0..5 {
        create(n, &[0]).expect("the explicit set has room");
    }
    create(10, &[1]).expect("unmatched");
    create(11, &[1]).expect("unmatched");
    assert!(matches!(create(12, &[1]), Err(Refusal::LabelSet { index: 1, .. })));
    assert!(matches!(create(5, &[0]), Err(Refusal::LabelSet { index: 0, .. })));
    store.remove(identity(11));
    create(12, &[1]).expect("one has left");
}

#[test]
fn case_b19_a_closed_tenant_leaves_nothing_behind() {
    let totals = Arc::new(Totals::new());
    let store = store_with(Options::default(), View::unknown(), &totals);
    let rules = Rules { pending: true, ..Rules::default() };
    for n in 0..100 {
        store.create(&float(n), &new_series(0), &rules, NOW).expect("no limit");
    }
    assert_eq!(store.purge_all(), 100);
    assert_eq!(audit(&store).series, Count::default());
    assert_eq!(totals.count(), Count::default());
    store.release(&[identity(0)]);
    assert_eq!(audit(&store).series, Count::default());
}

#[test]
fn case_b20_a_restart_does_not_admit_a_limit_on_top_of_what_is_there() {
    let store = store();
    store.set_limits(series_limit(100));
    store.begin_loading(99);
    try_create(&store, 1, &owned_rules()).expect("99 upstream and this one");
    assert!(matches!(try_create(&store, 2, &owned_rules()), Err(Refusal::Series(_))));
    store.end_loading();
    try_create(&store, 2, &owned_rules()).expect("the truth is known: 1");
}

#[test]
fn case_b21_an_exempt_metric_is_accepted_at_its_limit() {
    let store = store();
    store.enable_metric_counts();
    store.set_limits(LocalLimits { per_metric: 1, ..LocalLimits::default() });
    try_create(&store, 0, &owned_rules()).expect("the first");
    assert!(matches!(try_create(&store, 1, &owned_rules()), Err(Refusal::Metric(_))));
    let exempt = NewSeries { metric_exempt: true, ..new_series(0) };
    store.create(&float(1), &exempt, &owned_rules(), NOW).expect("exempt");
    assert_eq!(store.metric_count(b"up"), Some(Count { in_memory: 2, owned: 2 }));
}

#[test]
fn limits_are_checked_in_their_order() {
    let totals = Arc::new(Totals::new());
    let store = store_with(Options::default(), View::unknown(), &totals);
    store.enable_metric_counts();
    store.enable_label_sets(SETS);
    store.create(&histogram(0), &in_sets(&[0]), &owned_rules(), NOW).expect("no limit yet");
    let full = |instance, series, native_histogram_series, per_metric, label_set| {
        store.set_limits(LocalLimits {
            series,
            native_histogram_series,
            per_metric,
            label_sets: Arc::from([label_set]),
            reason: InForce::Flat,
        });
        let rules = Rules { instance_series_max: instance, ..owned_rules() };
        store.create(&histogram(1), &in_sets(&[0]), &rules, NOW)
    };
    assert!(matches!(full(1, 1, 1, 1, 1), Err(Refusal::Instance(_))));
    assert!(matches!(full(2, 1, 1, 1, 1), Err(Refusal::Series(_))));
    assert!(matches!(full(2, 2, 1, 1, 1), Err(Refusal::NativeHistogramSeries(_))));
    assert!(matches!(full(2, 2, 2, 1, 1), Err(Refusal::Metric(_))));
    assert!(matches!(full(2, 2, 2, 2, 1), Err(Refusal::LabelSet { index: 0, .. })));
    assert_eq!(totals.count(), Count { in_memory: 1, owned: 1 }, "a refusal takes nothing");
    assert!(full(2, 2, 2, 2, 2).is_ok());
}

#[test]
fn a_native_histogram_limit_refuses_histograms_only_and_in_parity_every_new_series() {
    let limits = LocalLimits { native_histogram_series: 1, ..LocalLimits::default() };
    let ours = store();
    ours.set_limits(limits.clone());
    let create = |store: &SeriesStore, item: Item| {
        store.create(&item, &new_series(0), &Rules::default(), NOW)
    };
    create(&ours, histogram(0)).expect("the first");
    create(&ours, float(1)).expect("floats are not its business");
    assert!(matches!(create(&ours, histogram(2)), Err(Refusal::NativeHistogramSeries(_))));
    assert!(create(&ours, histogram(1)).is_err(), "a float series that turns into one");
    create(&ours, float(0)).expect("turns into a float and makes room");
    create(&ours, histogram(1)).expect("the room is taken");
    assert_eq!(audit(&ours).native_histogram.in_memory, 1);

    let options = Options { kinds: KindRule::AtWake, ..Options::default() };
    let parity = store_with(options, View::unknown(), &Arc::new(Totals::new()));
    parity.set_limits(limits);
    create(&parity, histogram(0)).expect("the first");
    assert!(matches!(create(&parity, float(1)), Err(Refusal::NativeHistogramSeries(_))));
    create(&parity, float(0)).expect("existing");
    assert_eq!(audit(&parity).native_histogram.in_memory, 1, "the kind at creation stays");
    parity.cycle(Tick::new(1_001));
    create(&parity, float(1)).expect("Cortex compares active histograms");
}

#[test]
fn shadow_counts_where_enforcement_would_decide_otherwise() {
    let store = filled(100);
    store.recount(view_of_share(2, 0.5), series_limit(60));
    let rules = Rules { shadow: true, ..Rules::default() };
    assert!(try_create(&store, 200, &rules).is_err());
    let counts = store.counts();
    assert_eq!((counts.shadow_admitted_total, counts.shadow_refused_total), (1, 0));
    store.recount(View { epoch: 3, ..View::unknown() }, series_limit(100));
    assert!(try_create(&store, 200, &rules).is_err());
    assert_eq!(store.counts().shadow_admitted_total, 1, "both refuse");
}

#[test]
fn counts_of_labels_that_appear_at_run_time_are_unknown_until_all_are_assigned() {
    let store = filled(3);
    store.enable_metric_counts();
    store.enable_label_sets(SETS);
    let tight = LocalLimits { per_metric: 1, label_sets: Arc::from([1]), ..Default::default() };
    store.set_limits(tight);
    let create = |n| store.create(&float(n), &in_sets(&[0]), &owned_rules(), NOW);
    create(10).expect("unknown counts refuse nothing");
    assert_eq!((store.metric_count(b"up"), store.label_set_count(0)), (None, None));
    store.assign(identity(0), b"up", &[0], SETS);
    store.assign(identity(0), b"up", &[0], SETS);
    store.assign(identity(1), b"down", &[], SETS);
    store.remove(identity(2));
    assert_eq!(store.metric_count(b"up"), Some(Count { in_memory: 2, owned: 2 }));
    assert_eq!(store.label_set_count(0), Some(Count { in_memory: 2, owned: 2 }));
    assert!(matches!(create(11), Err(Refusal::Metric(_))));
    store.disable_metric_counts();
    assert!(matches!(create(11), Err(Refusal::LabelSet { .. })));
    // Another configuration: the indices mean something else, so all is unknown again.
    store.enable_label_sets(SETS + 1);
    create(11).expect("unknown");
    assert_eq!(store.labels_pass_done(), 4);
    assert_eq!(store.label_set_count(0), Some(Count::default()));
    store.disable_label_sets();
    audit(&store);
}

#[test]
fn switching_counts_off_and_on_from_two_sides_keeps_them_exact() {
    let options = Options { stripe_series_max: 8, ..Options::default() };
    let store = store_with(options, View::unknown(), &Arc::new(Totals::new()));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let store = &store;
            scope.spawn(move || {
                for n in thread * 1_000..(thread + 1) * 1_000 {
                    create_and_maybe_remove(store, n);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    store.enable_metric_counts();
                    store.disable_metric_counts();
                }
            });
        }
    });
    store.enable_metric_counts();
    (0..3_000).for_each(|n| store.assign(identity(n), b"up", &[], 0));
    assert_eq!(store.metric_count(b"up"), Some(audit(&store).series));
}

fn create_and_maybe_remove(store: &SeriesStore, n: u64) {
    store.create(&float(n), &new_series(0), &Rules::default(), NOW).expect("no limit");
    if n.is_multiple_of(3) {
        store.remove(identity(n - n % 2));
    }
}

#[test]
fn the_last_failing_holder_removes_a_pending_series() {
    let store = store();
    let rules = Rules { pending: true, ..Rules::default() };
    let id = identity(0);
    let create = || store.create(&float(0), &new_series(0), &rules, NOW);
    assert_eq!(create(), Ok(Admitted::Created { owned: true }));
    let mut batch = Batch::new();
    batch.push(float(0));
    store.touch(&mut batch, Order::Any, NOW);
    assert_eq!(batch.slow(), [Slow { item: 0, verdict: Verdict::Pending }]);
    assert_eq!(store.touch_one(&float(0), &rules, NOW), Ok(Some(Admitted::Held)));
    store.release(&[id]);
    assert!(store.contains(id), "another request holds it");
    assert_eq!(store.purge(i64::MAX, |_| Fate::Drop, |_| {}), 0, "held entries stay");
    store.release(&[id]);
    assert!(!store.contains(id));
    assert_eq!(audit(&store).series, Count::default());

    create().expect("anew");
    store.confirm(&[id]);
    store.release(&[id]);
    assert!(store.contains(id), "confirmed by one, it exists for all");
    assert_eq!(audit(&store).pending, 0);
    store.remove(id);

    create().expect("anew");
    assert_eq!(create(), Ok(Admitted::Held));
    store.abandon(&[id]);
    store.release(&[id]);
    assert_eq!(audit(&store).pending, 1, "one request does not know, so it may exist");
    store.touch(&mut batch, Order::Any, NOW);
    assert_eq!(store.touch_one(&float(0), &rules, NOW), Ok(Some(Admitted::Held)));
    store.release(&[id]);
    assert!(store.contains(id), "a refusal of later work says nothing about the earlier");
    assert_eq!(store.purge(i64::MAX, |_| Fate::Drop, |_| {}), 1);
    assert_eq!(audit(&store).pending, 0);
}

#[test]
fn what_needs_more_than_a_touch_is_left_alone_and_named() {
    let store = store();
    let rules = Rules::default();
    for n in 0..2 {
        store.create(&float(n), &new_series(0), &rules, NOW).expect("no limit");
    }
    store.restore(identity(2), Kind::Float, None, &new_series(0));
    let mut batch = Batch::new();
    batch.push(item(identity(0), 1_001, Kind::Float));
    batch.push(item(identity(0), 1_001, Kind::Float));
    batch.push(item(identity(1), 2_000, Kind::NativeHistogram));
    batch.push(item(identity(2), 2_000, Kind::Float));
    batch.push(item(identity(3), 2_000, Kind::Float));
    store.touch(&mut batch, Order::Strict { since_ms: i64::MIN }, NOW);
    let mut slow = batch.slow().to_vec();
    slow.sort_by_key(|slow| slow.item);
    let expected = [
        Slow { item: 1, verdict: Verdict::Unsettled { newest_ms: Some(1_001) } },
        Slow { item: 2, verdict: Verdict::KindChange },
        Slow { item: 3, verdict: Verdict::Unsettled { newest_ms: None } },
        Slow { item: 4, verdict: Verdict::New },
    ];
    assert_eq!(slow, expected);
    assert_eq!(store.touch_one(&batch.items()[4], &rules, NOW), Ok(None));
    assert_eq!(store.touch_one(&batch.items()[2], &rules, NOW), Ok(Some(Admitted::Existing)));
    assert_eq!(audit(&store).native_histogram.in_memory, 1);
}

#[test]
fn a_purge_takes_what_is_older_and_asks_about_the_unknown() {
    let store = store();
    for n in 0..10 {
        let newest_ms = (n < 8).then_some(n as i64);
        store.restore(identity(n), Kind::Float, newest_ms, &new_series(0));
    }
    let mut removed = Vec::new();
    let decide = |candidate: &Candidate| {
        if candidate.identity == identity(9) { Fate::Drop } else { Fate::Keep }
    };
    assert_eq!(store.purge(3, decide, |gone| removed.extend_from_slice(gone)), 4);
    removed.sort();
    let mut expected: Vec<_> = [0, 1, 2, 9].map(identity).to_vec();
    expected.sort();
    assert_eq!(removed, expected);
    assert_eq!(audit(&store).series.in_memory, 6);
}

#[test]
fn stripes_split_as_the_tenant_grows_and_lose_nothing() {
    let options = Options { stripe_series_max: 32, ..Options::default() };
    let store = store_with(options, View::unknown(), &Arc::new(Totals::new()));
    let before = store.stripes.load_full();
    for n in 0..5_000 {
        store.create(&float(n), &new_series(n as u32), &Rules::default(), NOW).expect("no limit");
    }
    while store.split_stripes_step() == Progress::More {}
    assert!(store.stripes.load().len() >= 256);
    assert_eq!(audit(&store).series.in_memory, 5_000);
    // A touch that began before all of these splits still arrives.
    let found =
        follow(&before, Prefix::of(identity(77)), |stripe, _| stripe.find(identity(77)).is_some());
    assert!(found);
}
