//! What an address may fail: charged on entry, given back when it went well.
//!
//! A guess is not known for one before it is answered, and a thousand can be under way at once. So
//! each takes its credit first. While it is under way the bucket fills up to its brim less what
//! is reserved: given back or kept, no credit is ever made or lost by when that happens.
//!
//! Invariant: credits and reservations together never exceed the burst, so in any window of
//! length Δ at most `burst + rate·Δ` requests fail that had to reserve.

use crate::ratelimit::{Bucket, BucketView};

/// The failures of one address.
#[derive(Debug)]
pub struct FailureBudget {
    /// Its burst is the configured one less `reserved`.
    bucket: Bucket,
    reserved: u32,
    /// Tells this budget from one that was kept under the same key before.
    serial: u32,
}

/// A credit that is held until its request is answered. Not `Clone`, so that it ends once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a reservation that is neither given back nor kept lowers the brim for good"]
pub struct Reservation {
    serial: u32,
}

impl FailureBudget {
    /// `per_minute` at once, and as many in a minute.
    pub fn new(per_minute: u32, serial: u32) -> Self {
        let bucket = Bucket::new(f64::from(per_minute) / 60.0, per_minute.into());
        Self { bucket, reserved: 0, serial }
    }

    pub fn reserve(&mut self, now_ns: i64) -> Option<Reservation> {
        if !self.bucket.take(1, now_ns) {
            return None;
        }
        self.reserved += 1;
        self.bucket.set_burst(self.bucket.burst() - 1, now_ns);
        Some(Reservation { serial: self.serial })
    }

    /// Whether the reservation was made with this budget.
    pub fn has_made(&self, reservation: &Reservation) -> bool {
        reservation.serial == self.serial
    }

    /// The request went well, or was not for this budget to count.
    pub fn give_back(&mut self, reservation: Reservation, now_ns: i64) {
        if self.end(reservation, now_ns) {
            self.bucket.give_back(1, now_ns, now_ns);
        }
    }

    /// The request failed: what it reserved is spent.
    pub fn keep(&mut self, reservation: Reservation, now_ns: i64) {
        self.end(reservation, now_ns);
    }

    /// A request failed that reserved nothing. It is charged even where there is no credit: who
    /// comes next waits for it, but never longer than for a whole bucket.
    pub fn charge(&mut self, now_ns: i64) {
        let burst = self.bucket.burst() + u64::from(self.reserved);
        self.bucket.charge(1, burst.saturating_sub(1), now_ns);
    }

    /// Until the next request may enter; as long as one credit takes where all are reserved.
    pub fn wait_ns(&self, now_ns: i64) -> u64 {
        let one_credit_ns = (1e9 / self.bucket.rate()).ceil() as u64;
        self.bucket.wait_ns(1, now_ns).unwrap_or(one_credit_ns)
    }

    pub fn view(&self, now_ns: i64) -> BucketView {
        BucketView {
            credits: self.bucket.credits_at(now_ns),
            rate: self.bucket.rate(),
            burst: self.bucket.burst() + u64::from(self.reserved),
        }
    }

    /// Forgetting it would give somebody credit.
    pub fn owes(&self, now_ns: i64) -> bool {
        self.reserved > 0 || !self.bucket.is_full_at(now_ns)
    }

    /// Lifts the brim again, unless the reservation was made with a budget that is gone.
    fn end(&mut self, reservation: Reservation, now_ns: i64) -> bool {
        let is_ours = self.has_made(&reservation) && self.reserved > 0;
        if is_ours {
            self.reserved -= 1;
            self.bucket.set_burst(self.bucket.burst() + 1, now_ns);
        }
        is_ours
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEC: i64 = 1_000_000_000;

    fn credits(budget: &FailureBudget, now_ns: i64) -> f64 {
        budget.view(now_ns).credits
    }

    #[test]
    fn case_r35_the_next_one_is_refused_while_the_failures_are_not_refilled() {
        let mut budget = FailureBudget::new(5, 0);
        for _ in 0..5 {
            let reserved = budget.reserve(SEC).expect("credit");
            budget.keep(reserved, SEC);
        }
        assert_eq!(budget.reserve(SEC), None);
        assert_eq!(budget.wait_ns(SEC), 12_000_000_000);
        assert_eq!(budget.reserve(13 * SEC - 2), None);
        assert!(budget.reserve(13 * SEC).is_some());
    }

    #[test]
    fn what_went_well_costs_nothing_however_long_it_took() {
        let mut budget = FailureBudget::new(60, 0);
        for turn in 0..1000 {
            let now = SEC + turn * SEC / 10;
            let slow: Vec<_> = (0..60).map(|_| budget.reserve(now).expect("credit")).collect();
            assert_eq!(budget.reserve(now), None);
            slow.into_iter().for_each(|one| budget.give_back(one, now + SEC / 10));
        }
        assert_eq!(credits(&budget, 200 * SEC), 60.0);
    }

    #[test]
    fn case_r32_a_late_refund_never_lifts_above_the_burst() {
        let mut budget = FailureBudget::new(60, 0);
        let slow = budget.reserve(SEC).expect("credit");
        // A minute later everything else is refilled.
        assert_eq!(credits(&budget, 61 * SEC), 59.0);
        budget.give_back(slow, 61 * SEC);
        assert_eq!(credits(&budget, 61 * SEC), 60.0);
        assert_eq!(credits(&budget, 200 * SEC), 60.0);
        let lost = budget.reserve(200 * SEC).expect("credit");
        let mut anew = FailureBudget::new(60, 1);
        let reserved = anew.reserve(201 * SEC).expect("credit");
        anew.give_back(lost, 201 * SEC);
        assert_eq!(credits(&anew, 201 * SEC), 59.0);
        anew.keep(reserved, 201 * SEC);
        assert_eq!(anew.view(201 * SEC).burst, 60);
    }

    #[test]
    fn a_failure_without_a_reservation_makes_debt_of_less_than_a_bucket() {
        let mut budget = FailureBudget::new(60, 0);
        (0..1000).for_each(|_| budget.charge(SEC));
        assert_eq!(credits(&budget, SEC), -59.0);
        assert_eq!(budget.wait_ns(SEC), 60 * SEC as u64);
        assert!(budget.owes(100 * SEC));
        assert!(!budget.owes(121 * SEC));
    }

    #[test]
    fn where_all_is_reserved_one_waits_for_a_credit() {
        let mut budget = FailureBudget::new(1, 0);
        let held = budget.reserve(SEC).expect("credit");
        assert_eq!(budget.wait_ns(SEC), 60 * SEC as u64);
        assert!(budget.owes(1000 * SEC));
        budget.give_back(held, 2 * SEC);
        assert!(!budget.owes(2 * SEC));
    }

    proptest! {
        /// Against the plain count: kept failures in any window, with credits that are checked
        /// never to exceed the burst less what is reserved.
        #[test]
        fn failures_in_any_window_stay_on_the_curve(
            per_minute in 1..100u32,
            steps in prop::collection::vec((0..3u8, 0..3_000u64, any::<prop::sample::Index>()), 1..300),
        ) {
            let mut budget = FailureBudget::new(per_minute, 0);
            let (mut now, mut held, mut failed) = (SEC, Vec::new(), Vec::new());
            for (act, wait_ms, which) in steps {
                now += wait_ms as i64 * 1_000_000;
                match act {
                    0 => held.extend(budget.reserve(now).map(|one| (now, one))),
                    _ if held.is_empty() => {}
                    1 => budget.give_back(held.swap_remove(which.index(held.len())).1, now),
                    _ => {
                        let (since, one) = held.swap_remove(which.index(held.len()));
                        budget.keep(one, now);
                        failed.push(since);
                    }
                }
                let held_credits = held.len() as f64;
                prop_assert!(credits(&budget, now) + held_credits <= f64::from(per_minute) + 1e-6);
                prop_assert!(credits(&budget, now) >= -1e-6);
            }
            failed.sort_unstable();
            for (at, &first) in failed.iter().enumerate() {
                for (count, &last) in failed[at..].iter().enumerate() {
                    let span_secs = (last - first) as f64 / 1e9;
                    let most = f64::from(per_minute) * (1.0 + span_secs / 60.0);
                    prop_assert!((count + 1) as f64 <= most + 1e-6);
                }
            }
        }
    }
}
