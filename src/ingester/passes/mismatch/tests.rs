//! Distrust: when it begins, how long it lasts.

use super::*;

const CYCLE_S: i64 = 60;
const OF: Generations = Generations { ring: 1, limits: 0 };

/// Judges a cycle a minute with `created` and `not_owned` more in each; when distrust begins.
fn minutes(mismatch: &mut Mismatch, from: i64, created: u64, not_owned: u64) -> Option<i64> {
    (from..from + 20).find(|&minute| {
        let times = minute as u64;
        let now_ns = minute * CYCLE_S * 1_000_000_000;
        mismatch.judge(OF, created * times, not_owned * times, now_ns)
    })
}

#[test]
fn strange_series_are_held_against_a_ring_that_was_stable_for_five_minutes() {
    // The first look sees the ring, the second begins, and five minutes later it is judged.
    assert_eq!(minutes(&mut Mismatch::default(), 0, 1_000, 11), Some(6));
    assert_eq!(minutes(&mut Mismatch::default(), 0, 1_000, 10), None, "1 % may be");
    assert_eq!(minutes(&mut Mismatch::default(), 0, 0, 0), None);
}

#[test]
fn a_change_of_ring_or_limits_and_a_tenant_that_goes_begin_the_evidence_anew() {
    let mut mismatch = Mismatch::default();
    assert_eq!(minutes(&mut mismatch, 0, 1_000, 500), Some(6));
    assert!(mismatch.distrusted_at_ns.is_some());
    let now_ns = 7 * CYCLE_S * 1_000_000_000;
    let moved = Generations { ring: 2, ..OF };
    assert!(!mismatch.judge(moved, 9_000, 4_000, now_ns));
    assert!(mismatch.distrusted_at_ns.is_none(), "another ring is given another chance");
    let reloaded = Generations { limits: 1, ..moved };
    assert!(!mismatch.judge(reloaded, 9_000, 4_000, now_ns + 1));
    assert!(!mismatch.is_settled, "a shard size may have changed");
    assert!(!mismatch.judge(reloaded, 9_000, 4_000, now_ns + 2));
    let later_ns = now_ns + MISMATCH_STABLE.as_nanos() as i64;
    assert!(!mismatch.judge(reloaded, 8_000, 3_900, later_ns), "a tenant has gone");
    assert!(!mismatch.judge(reloaded, 9_000, 4_000, later_ns + 1));
}

#[test]
fn distrust_ends_after_its_time_and_the_ring_is_tried_again() {
    let mut mismatch = Mismatch::default();
    let began = minutes(&mut mismatch, 0, 1_000, 500).expect("distrust");
    let at_ns = |minute: i64| minute * CYCLE_S * 1_000_000_000;
    let retry = began + 15;
    assert!(!mismatch.judge(OF, 20_000, 3_500, at_ns(retry - 1)));
    assert!(mismatch.distrusted_at_ns.is_some());
    assert!(!mismatch.judge(OF, 20_000, 3_500, at_ns(retry)));
    assert!(mismatch.distrusted_at_ns.is_none());
    assert!(!mismatch.judge(OF, 20_100, 3_500, at_ns(retry + 5)), "all of them are ours now");
    assert!(mismatch.judge(OF, 20_200, 3_600, at_ns(retry + 10)), "and now none is");
}
