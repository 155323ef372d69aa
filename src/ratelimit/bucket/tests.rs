//! The bucket by cases, and its curve as a property of any sequence of takes and give-backs.

use super::*;
use proptest::prelude::*;

const SEC: i64 = NANOS_PER_SEC;

#[test]
fn case_c7_a_burst_is_no_sustained_rate() {
    let mut bucket = Bucket::new(20_000.0, 100_000);
    // 60k/s in steps of 0.1 s: the burst lasts about 2.5 s, then a third passes.
    let admitted: Vec<bool> = (0..100).map(|i| bucket.take(6_000, i * SEC / 10)).collect();
    assert!(admitted[..24].iter().all(|&ok| ok));
    let later = admitted[30..].iter().filter(|&&ok| ok).count();
    assert!((22..=25).contains(&later), "{later} of 70 admitted after the burst");
}

#[test]
fn case_c19_lowering_the_burst_clamps_the_credits() {
    let mut bucket = Bucket::new(1.0, 100);
    assert!(bucket.take(10, 0));
    bucket.set_burst(20, 0);
    assert_eq!(bucket.credits_at(0), 20.0);
    assert!(!bucket.take(21, 0) && bucket.take(20, 0));
}

#[test]
fn case_r3_refills_while_hits_keep_coming() {
    let mut bucket = Bucket::new(10.0 / 30.0, 10);
    assert!(bucket.take(10, 0));
    let hits: Vec<i64> = (1..=11).filter(|&sec| bucket.take(1, sec * SEC)).collect();
    assert_eq!(hits, [3, 6, 9]);
}

#[test]
fn case_r5_credits_never_exceed_the_burst() {
    let mut bucket = Bucket::new(1.0, 10);
    assert!(bucket.take(1, 0));
    assert_eq!(bucket.credits_at(100 * SEC), 10.0);
}

#[test]
fn case_r8_asking_too_much_takes_nothing() {
    let mut bucket = Bucket::new(1.0, 10);
    assert!(!bucket.take(11, 0));
    assert!(bucket.take(10, 0));
}

#[test]
fn case_r19_refusals_cost_nothing_and_a_raised_limit_helps() {
    let mut bucket = Bucket::new(0.0, 10);
    assert_eq!((0..50).filter(|_| bucket.take(1, 0)).count(), 10);
    bucket.set_burst(20, 0);
    bucket.set_rate(10.0, 0);
    assert!(bucket.take(10, SEC));
}

#[test]
fn case_r32_an_old_give_back_is_ignored() {
    let mut bucket = Bucket::new(10.0, 10);
    assert!(bucket.take(10, 0));
    // Full again, so the taken credits would have been lost at the brim.
    bucket.give_back(10, 0, SEC);
    assert_eq!(bucket.credits_at(SEC), 10.0);
    assert!(bucket.take(10, SEC));
    bucket.give_back(10, 0, SEC);
    assert!(!bucket.take(1, SEC), "a burst went through twice");
}

#[test]
fn case_r38_half_of_the_time_refills_half() {
    let mut bucket = Bucket::new(10.0, 10);
    assert!(bucket.take(10, 0));
    assert_eq!(bucket.credits_at(SEC / 2), 5.0);
}

#[test]
fn case_r41_a_wait_below_a_second_is_told_as_one() {
    let mut bucket = Bucket::new(5.0, 5);
    assert!(bucket.take(5, 0));
    let wait_ns = bucket.wait_ns(1, 0).expect("will be there");
    assert_eq!((wait_ns, retry_after_secs(wait_ns, 0.0)), (200_000_000, 1));
}

#[test]
fn case_r42_a_jumping_clock_does_not_stretch_the_wait() {
    let mut bucket = Bucket::new(2.0, 10);
    for now_ns in [0, 3600 * SEC, 0, SEC] {
        bucket.take(10, now_ns);
        let wait_ns = bucket.wait_ns(10, now_ns).expect("will be there");
        assert!(wait_ns <= 5 * SEC as u64, "{wait_ns}");
    }
}

#[test]
fn case_c11_retry_after_spreads_and_is_capped() {
    assert_eq!(retry_after_secs(0, 0.0), 1);
    assert_eq!(retry_after_secs(1_500_000_000, 0.0), 2);
    assert_eq!(retry_after_secs(10_000_000_000, 1.0), 20);
    assert_eq!(retry_after_secs(u64::MAX, 0.5), RETRY_AFTER_SECS_MAX);
}

#[test]
fn waits_that_never_end_are_none() {
    assert_eq!(Bucket::new(1.0, 5).wait_ns(6, 0), None);
    let mut dry = Bucket::new(0.0, 5);
    assert!(dry.take(5, 0));
    assert_eq!(dry.wait_ns(1, 0), None);
    assert_eq!(Bucket::new(RATE_UNLIMITED, 0).wait_ns(1_000, 0), Some(0));
}

#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    /// Gives back the take of that index, if it was admitted and is still held.
    GiveBack(usize),
}

fn steps() -> impl Strategy<Value = Vec<(i64, Step)>> {
    let step = prop_oneof![
        3 => (0_u64..60).prop_map(Step::Take),
        1 => (0_usize..60).prop_map(Step::GiveBack),
    ];
    prop::collection::vec((0_i64..2 * SEC, step), 1..60)
}

proptest! {
    #[test]
    fn work_in_any_window_stays_under_the_curve(
        rate in 0.1_f64..200.0, burst in 0_u64..100, steps in steps(),
    ) {
        let mut bucket = Bucket::new(rate, burst);
        let mut now_ns = 0;
        // Per take: when, how much, and whether it stayed.
        let mut work: Vec<(i64, u64)> = Vec::new();
        for (pause_ns, step) in steps {
            now_ns += pause_ns;
            match step {
                Step::Take(n) => {
                    let before = (bucket.credits.to_bits(), bucket.last_ns);
                    if bucket.take(n, now_ns) {
                        work.push((now_ns, n));
                    } else {
                        prop_assert_eq!(before, (bucket.credits.to_bits(), bucket.last_ns));
                    }
                }
                Step::GiveBack(i) => {
                    if let Some((taken_ns, n)) = work.get_mut(i) {
                        bucket.give_back(*n, *taken_ns, now_ns);
                        *n = 0;
                    }
                }
            }
            prop_assert!(bucket.credits_at(now_ns) <= burst as f64);
        }
        for from in 0..work.len() {
            let mut sum = 0;
            for &(at_ns, n) in &work[from..] {
                sum += n;
                let window_secs = (at_ns - work[from].0) as f64 / 1e9;
                let curve = burst as f64 + rate * window_secs;
                prop_assert!(sum as f64 <= curve + 1e-3, "{sum} over {curve}");
            }
        }
    }

    #[test]
    fn giving_back_at_once_undoes_the_take(
        rate in 0.1_f64..200.0, burst in 1_u64..100, before in 0_u64..100, n in 0_u64..100,
        now_ns in 0_i64..1 << 40,
    ) {
        let mut bucket = Bucket::new(rate, burst);
        bucket.take(before.min(burst), 0);
        let credits = bucket.credits_at(now_ns);
        if bucket.take(n, now_ns) {
            bucket.give_back(n, now_ns, now_ns);
        }
        prop_assert!((bucket.credits_at(now_ns) - credits).abs() < 1e-9);
    }

    #[test]
    fn the_told_wait_is_enough(
        rate in 0.1_f64..1e6, burst in 1_u64..1_000_000, first in 0_u64..1_000_000,
        n in 1_u64..1_000_000,
    ) {
        let mut bucket = Bucket::new(rate, burst);
        bucket.take(first.min(burst), 0);
        match bucket.wait_ns(n, 0) {
            None => prop_assert!(n > burst),
            Some(wait_ns) => prop_assert!(bucket.take(n, wait_ns as i64 + 1)),
        }
    }
}

#[test]
fn a_charge_makes_debt_down_to_its_bound() {
    let mut bucket = Bucket::new(1.0, 3);
    bucket.charge(2, 2, SEC);
    assert_eq!(bucket.credits_at(SEC), 1.0);
    bucket.charge(2, 2, SEC);
    assert_eq!(bucket.credits_at(SEC), -1.0);
    bucket.charge(5, 2, SEC);
    assert_eq!(bucket.credits_at(SEC), -2.0);
    assert_eq!(bucket.wait_ns(1, SEC), Some(3 * SEC as u64));
    assert!(!bucket.take(1, 4 * SEC - 2));
    assert!(bucket.take(1, 4 * SEC));
}
