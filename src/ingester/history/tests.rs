//! Samples over hours, breaks among them, and the arithmetic of slopes and times to the limit.

use proptest::prelude::*;

use super::*;

fn at(seconds: u32) -> Now {
    Now { unix_ms: i64::from(seconds) * 1000, steady_ns: i64::from(seconds) * 1_000_000_000 }
}

/// A history looked at every 20 seconds from second 1 up to `until_s`.
fn looked_at(until_s: u32, count: impl Fn(u32) -> u64) -> History {
    let history = History::default();
    for seconds in (1..=until_s).step_by(20) {
        history.look(at(seconds), count(seconds));
    }
    history
}

#[test]
fn a_trend_is_known_two_minutes_after_the_start() {
    let history = looked_at(121, |seconds| 1000 + u64::from(seconds) * 5);
    let slope = history.slope(at(121), 1605).expect("two minutes are enough");
    assert_eq!(slope, Slope { per_s: 5.0, over_s: 60 });
    assert_eq!(looked_at(81, |_| 1).slope(at(81), 1), None, "the settling is no growth");
}

#[test]
fn a_tenants_first_scrapes_are_no_growth() {
    // Everything comes in the first minute, as a new tenant's targets are scraped.
    let history = looked_at(181, |seconds| u64::from(seconds.min(60)) * 1000);
    let slope = history.slope(at(181), 60_000).expect("known");
    assert_eq!(slope.per_s, 0.0);
}

#[test]
fn an_hour_is_covered_however_long_it_goes_on() {
    for hours in [1, 2, 5, 50] {
        let until_s = hours * 3600 + 361;
        let history = looked_at(until_s, u64::from);
        let trend = history.trend(at(until_s), u64::from(until_s));
        let (first, last) = (trend.samples[0], trend.samples[trend.samples.len() - 1]);
        let span_s = last.at_s - first.at_s;
        assert!(span_s >= 1700, "{span_s} s after {hours} h");
        assert!(hours < 2 || (3400..=4200).contains(&span_s), "{span_s} s after {hours} h");
        assert!(trend.samples.len() <= SAMPLES_MAX + 1);
        assert!(trend.samples.is_sorted_by(|a, b| a.at_s < b.at_s));
        let slope = trend.slope.expect("known");
        assert!((slope.per_s - 1.0).abs() < 1e-9, "{slope:?}");
        assert_eq!(slope.over_s, span_s);
    }
}

#[test]
fn no_slope_is_taken_across_a_break() {
    let history = looked_at(1201, |seconds| 10_000 + u64::from(seconds));
    history.broke(at(1210), 4000);
    assert_eq!(history.slope(at(1220), 4010), None, "not known yet after a break");
    for seconds in (1221..=2001).step_by(20) {
        history.look(at(seconds), 4000 + u64::from(seconds - 1210));
    }
    let trend = history.trend(at(2001), 4791);
    let slope = trend.slope.expect("known again");
    assert!((slope.per_s - 1.0).abs() < 0.01, "{slope:?}");
    assert!(slope.over_s <= 791, "{slope:?}");
    assert!(trend.samples[0].count > 10_000, "what was before is shown");
}

#[test]
fn breaks_in_a_row_leave_what_was_before() {
    let history = looked_at(1201, |_| 500);
    let before = history.trend(at(1201), 500).samples.len();
    for seconds in 1202..1300 {
        history.broke(at(seconds), u64::from(seconds));
    }
    let trend = history.trend(at(1300), 1300);
    assert!(trend.samples.len() <= before + 2, "{trend:?}");
    assert_eq!(trend.samples[0].count, 500);
    let history = History::default();
    history.broke(at(5), 7);
    assert_eq!(history.trend(at(5), 7).samples, [Sample { at_s: 5, count: 7 }]);
}

#[test]
fn a_tenants_history_takes_so_many_bytes() {
    assert_eq!(size_of::<History>(), 120);
}

#[test]
fn the_time_to_the_limit_follows_from_headroom_and_slope() {
    let slope = |per_s, over_s| Some(Slope { per_s, over_s });
    let check = |headroom, used, slope, expect| {
        assert_eq!(ToLimit::new(headroom, used, slope), expect, "{headroom:?} {slope:?}");
    };
    check(None, 5, slope(1.0, 60), ToLimit::Unlimited);
    check(Some(0), 5, None, ToLimit::Reached);
    check(Some(-3), 5, slope(-1.0, 60), ToLimit::Reached);
    check(Some(10), 5, None, ToLimit::Unknown);
    check(Some(1000), 5, slope(0.1, 3600), ToLimit::In(10_000));
    check(Some(1000), 5, slope(0.0, 3600), ToLimit::Steady);
    check(Some(1000), 5, slope(0.0001, 3600), ToLimit::Steady);
    check(Some(1000), 100, slope(-0.001, 3600), ToLimit::Falling);
    check(Some(1000), 1_000_000, slope(-0.001, 3600), ToLimit::Steady);
    check(Some(i64::MAX), 1, slope(1e-3, 3600), ToLimit::In(u64::MAX));
}

#[test]
fn what_is_urgent_comes_first() {
    let order = [
        ToLimit::Reached,
        ToLimit::In(1),
        ToLimit::In(100_000),
        ToLimit::Steady,
        ToLimit::Falling,
        ToLimit::Unknown,
        ToLimit::Unlimited,
    ];
    assert!(order.is_sorted());
}

#[test]
fn times_are_said_in_two_units() {
    let check = |to_limit: ToLimit, expect: &str| assert_eq!(to_limit.to_string(), expect);
    check(ToLimit::In(0), "in 0 s");
    check(ToLimit::In(59), "in 59 s");
    check(ToLimit::In(61), "in 1 min");
    check(ToLimit::In(3599), "in 59 min");
    check(ToLimit::In(12_000), "in 3 h 20 min");
    check(ToLimit::In(7200), "in 2 h");
    check(ToLimit::In(172_800), "in 2 d");
    check(ToLimit::In(266_400), "in 3 d 2 h");
    check(ToLimit::In(u64::MAX), "in more than 30 days");
    check(ToLimit::Unknown, "not known yet");
    check(ToLimit::Falling, "falling");
}

proptest! {
    /// Looks and breaks in any order and at any times, the clock standing still among them.
    #[test]
    fn no_order_of_events_upsets_a_history(
        events in prop::collection::vec((0_u32..4000, any::<bool>(), any::<u64>()), 0..200),
    ) {
        let history = History::default();
        let mut seconds = 1_u32;
        for (passed_s, is_break, count) in events {
            seconds += passed_s;
            if is_break {
                history.broke(at(seconds), count);
            } else {
                history.look(at(seconds), count);
            }
            let trend = history.trend(at(seconds), count);
            prop_assert!(trend.samples.len() <= SAMPLES_MAX + 1);
            prop_assert!(trend.samples.is_sorted_by(|a, b| a.at_s <= b.at_s));
            prop_assert!(trend.slope.is_none_or(|slope| slope.per_s.is_finite()));
            prop_assert_eq!(trend.slope, history.slope(at(seconds), count));
        }
    }
}
