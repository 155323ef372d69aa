//! Moving average of a rate, as Cortex computes it.
//!
//! The first tick takes over the rate of its interval as it is (an instance that starts under a
//! flood refuses from the first second); each later one moves towards it by `alpha`.
//!
//! Adds are lock-free and touch no word that readers read.

use std::time::Duration;

use crossbeam::utils::CachePadded;

use crate::sync::{AtomicI64, AtomicU64, Ordering};

/// Bits of no rate that the arithmetic yields: "no tick yet". Kept in the word of the rate, so
/// that both change as one.
const NOT_TICKED: u64 = u64::MAX;

/// Exponentially weighted moving average of events per second.
pub struct Ewma {
    alpha: f64,
    interval_secs: f64,
    /// Events since the last tick. Padded: every push writes it.
    new_events: CachePadded<AtomicI64>,
    /// The average as the bits of a double, or [`NOT_TICKED`].
    rate_bits: AtomicU64,
}

impl Ewma {
    /// `alpha` is the weight of the latest interval, above 0 and at most 1.
    pub fn new(alpha: f64, interval: Duration) -> Self {
        assert!(!interval.is_zero(), "a rate needs an interval");
        let interval_secs = interval.as_secs() as f64 + f64::from(interval.subsec_nanos()) / 1e9;
        Self {
            alpha,
            interval_secs,
            new_events: CachePadded::new(AtomicI64::new(0)),
            rate_bits: AtomicU64::new(NOT_TICKED),
        }
    }

    /// Counts events; a negative number takes some back.
    #[inline]
    pub fn add(&self, events: i64) {
        self.new_events.fetch_add(events, Ordering::Relaxed);
    }

    /// Closes an interval. To be called once per interval, by one task.
    pub fn tick(&self) {
        let events = self.new_events.swap(0, Ordering::Relaxed);
        let instant = events as f64 / self.interval_secs;
        let last = self.rate_bits.load(Ordering::Relaxed);
        let rate = if last == NOT_TICKED {
            instant
        } else {
            let last = f64::from_bits(last);
            last + self.alpha * (instant - last)
        };
        self.rate_bits.store(rate.to_bits(), Ordering::Relaxed);
    }

    /// Events per second; 0 before the first tick.
    #[inline]
    pub fn rate(&self) -> f64 {
        match self.rate_bits.load(Ordering::Relaxed) {
            NOT_TICKED => 0.0,
            bits => f64::from_bits(bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_d1_the_first_second_counts_in_full() {
        let rate = Ewma::new(0.2, Duration::from_secs(1));
        rate.add(5_000);
        assert_eq!(rate.rate(), 0.0);
        rate.tick();
        assert_eq!(rate.rate(), 5_000.0);
        let mut ticks_blocked = 0;
        while rate.rate() >= 1_000.0 {
            rate.tick();
            ticks_blocked += 1;
        }
        assert_eq!((ticks_blocked, rate.rate().round()), (8, 839.0));
    }

    #[test]
    fn adds_of_many_threads_are_all_counted() {
        let rate = Ewma::new(0.2, Duration::from_secs(2));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| rate.add(1)));
            }
        });
        rate.tick();
        assert_eq!(rate.rate(), 2_000.0);
    }
}
