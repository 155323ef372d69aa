//! Buckets per tenant: rechecks, texts, give-backs, bounds.

use super::*;

const SEC: i64 = 1_000_000_000;

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).expect("valid tenant")
}

fn budget(rate: f64, burst: u64) -> impl Fn() -> Budget {
    move || Budget { rate, burst }
}

#[test]
fn strategies_divide_the_rate_and_never_the_burst() {
    let check = |strategy: Strategy, healthy, rate, burst| {
        assert_eq!(strategy.budget(100.0, 50, healthy), Budget { rate, burst });
    };
    check(Strategy::Local, 4, 100.0, 50);
    check(Strategy::Global, 4, 25.0, 50);
    check(Strategy::Global, 0, 100.0, 50);
    check(Strategy::Infinite, 4, RATE_UNLIMITED, 0);
    let unlimited = Strategy::Global.budget(RATE_UNLIMITED, 0, 4);
    assert_eq!(unlimited.rate, RATE_UNLIMITED);
}

#[test]
fn a_share_of_a_budget_limits_only_where_it_is_known() {
    let half = Budget::of_share(1_000.0, 50, Some(0.5));
    assert_eq!(half, Budget { rate: 750.0, burst: 50 });
    for share in [None, Some(0.0)] {
        assert_eq!(Budget::of_share(1_000.0, 50, share).rate, RATE_UNLIMITED);
    }
    assert_eq!(Budget::of_share(RATE_UNLIMITED, 50, Some(0.5)).rate, RATE_UNLIMITED);
}

#[test]
fn case_c5_a_request_over_the_burst_is_told_it_never_passes() {
    let limiter = TenantLimiter::new(RECHECK_PERIOD);
    let over = limiter
        .take(&tenant("a"), 5_000, 0, budget(13_333.0, 3_333))
        .expect_err("larger than the burst");
    assert!(over.is_over_burst());
    assert_eq!(over.wait_ns, None);
    let items = Items::Ingestion { samples: 5_000, metadata: 0 };
    assert_eq!(
        over.text(items, Strategy::Local, 13_333.0),
        "ingestion rate limit (13333) exceeded while adding 5000 samples and 0 metadata; a \
         request of 5000 items is above the burst and can never be admitted (local limit: 13333 \
         global limit: 0 actual local limit: 13333 burst: 3333), please send smaller requests or \
         contact administrator to raise it"
    );
    assert_eq!(
        over.cortex_text(items),
        "ingestion rate limit (13333) exceeded while adding 5000 samples and 0 metadata"
    );
}

#[test]
fn case_c10_rate_and_burst_have_their_own_texts_and_reasons() {
    let limiter = TenantLimiter::new(RECHECK_PERIOD);
    let items = Items::Ingestion { samples: 30_000, metadata: 0 };
    let burst =
        limiter.take(&tenant("a"), 30_000, 0, budget(10.0, 20_000)).expect_err("over burst");
    let _kept = limiter.take(&tenant("a"), 20_000, 0, budget(10.0, 20_000)).expect("fits");
    let rate = limiter.take(&tenant("a"), 1, 0, budget(10.0, 20_000)).expect_err("over rate");
    assert_eq!(burst.reason(items, false), "burst_exceeded");
    assert_eq!(rate.reason(items, false), "rate_limited");
    assert_eq!(burst.reason(items, true), "rate_limited");
    let text = |over: &OverRate, items| over.text(items, Strategy::Local, 10.0);
    assert!(text(&burst, items).contains("above the burst"));
    assert!(text(&rate, items).contains("the rate is used up"));
    let histograms = Items::NativeHistograms { samples: 1 };
    assert_eq!(rate.reason(histograms, false), "native_histogram_rate_limited");
    let sentence = "native histogram ingestion rate limit (10) exceeded while adding 1 native \
                    histogram samples";
    assert_eq!(rate.cortex_text(histograms), sentence);
    assert!(text(&rate, histograms).starts_with(&format!("{sentence}; ")));
}

#[test]
fn case_c9_the_text_names_the_global_rate_beside_the_share() {
    let over = OverRate { rate: 200.0, burst: 10, wait_ns: Some(1), asked: 1 };
    assert_eq!(
        over.text(Items::Ingestion { samples: 1, metadata: 2 }, Strategy::Global, 2_000.0),
        "ingestion rate limit (200) exceeded while adding 1 samples and 2 metadata; the rate is \
         used up (local limit: 0 global limit: 2000 actual local limit: 200 burst: 10), please \
         contact administrator to raise it"
    );
}

#[test]
fn case_c17_finite_histogram_rate_without_burst_refuses_histograms_only() {
    let limiter = TenantLimiter::new(RECHECK_PERIOD);
    assert!(limiter.take(&tenant("a"), 1, 0, budget(1_000.0, 0)).is_err());
    assert!(limiter.take(&tenant("a"), 0, 0, budget(1_000.0, 0)).is_ok());
}

#[test]
fn case_c18_dropped_histograms_are_given_back() {
    let limiter = TenantLimiter::new(RECHECK_PERIOD);
    let mut charge = limiter.take(&tenant("a"), 20, 0, budget(1.0, 100)).expect("fits");
    let histograms = charge.split(10);
    assert_eq!((charge.credits(), histograms.credits()), (10, 10));
    limiter.give_back(&tenant("a"), histograms, 0);
    assert_eq!(limiter.view(&tenant("a"), 0).expect("has a bucket").credits, 90.0);
}

#[test]
fn case_c19_new_limits_are_in_force_after_the_recheck_period() {
    let limiter = TenantLimiter::new(RECHECK_PERIOD);
    let a = tenant("a");
    assert!(limiter.take(&a, 1, 0, budget(1.0, 100)).is_ok());
    assert!(limiter.take(&a, 50, 10 * SEC - 1, budget(1.0, 20)).is_ok());
    assert!(limiter.take(&a, 21, 10 * SEC, budget(1.0, 20)).is_err());
    let view = limiter.view(&a, 10 * SEC).expect("has a bucket");
    assert_eq!((view.credits, view.burst), (20.0, 20));
}

#[test]
fn case_r20_a_refusal_further_in_leaves_this_bucket_as_it_was() {
    let limiter = TenantLimiter::new(RECHECK_PERIOD);
    let charge = limiter.take(&tenant("a"), 8, 5, budget(0.0, 10)).expect("fits");
    limiter.give_back(&tenant("a"), charge, 5);
    assert!(limiter.take(&tenant("a"), 10, 5, budget(0.0, 10)).is_ok());
}

#[test]
fn sweeping_removes_only_idle_full_buckets() {
    let limiter = TenantLimiter::new(RECHECK_PERIOD);
    assert!(limiter.take(&tenant("quick"), 1, 0, budget(100.0, 10)).is_ok());
    assert!(limiter.take(&tenant("slow"), 10, 0, budget(0.5, 10)).is_ok());
    assert_eq!(limiter.sweep(SEC), Swept { removed: 0, kept: 2 });
    assert_eq!(limiter.sweep(10 * SEC), Swept { removed: 1, kept: 1 });
    assert_eq!(limiter.sweep(20 * SEC), Swept { removed: 1, kept: 0 });
}

#[test]
fn case_r40_many_tenants_use_bounded_memory() {
    let limiter = TenantLimiter::new(RECHECK_PERIOD);
    for i in 0..TENANTS_MAX + 20_000 {
        let _ = limiter.take(&tenant(&format!("t{i}")), 1, 0, budget(0.0, 10));
    }
    assert!(limiter.sweep(0).kept <= TENANTS_MAX);
    assert!(limiter.untracked_total() > 0);
}

#[test]
fn case_r45_contended_tenants_get_exactly_their_burst() {
    let limiter = TenantLimiter::new(RECHECK_PERIOD);
    let a = tenant("a");
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..500).filter(|_| limiter.take(&a, 1, 0, budget(0.0, 100)).is_ok()).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(admitted, 100);
}
