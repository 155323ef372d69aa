//! When the seeds are asked for a full exchange: at the start until one answers, then now and
//! then, which heals a cluster that fell apart.
//!
//! Two halves of a cluster that lost each other never ask each other again by themselves, for
//! each takes the other's members for dead. Only a seed from outside brings them together.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// How patiently and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinPace {
    pub backoff_min_ms: u64,
    pub backoff_max_ms: u64,
    /// After the first try.
    pub retries_max: u32,
    /// 0: never again once joined.
    pub rejoin_interval_ms: u64,
}

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Joined,
    /// Nobody answered; it is tried again.
    Again,
    /// Nobody answered, and no try is left. Whoever wants to goes on alone: seeds are still asked
    /// at the interval of rejoins.
    GaveUp,
    /// A rejoin, whatever came of it.
    Rejoined,
}

/// Where we are with it. One try at a time: while it lasts, nothing is due.
#[derive(Clone, Debug)]
pub struct Joining {
    pace: JoinPace,
    rng: SmallRng,
    next_ms: Option<u64>,
    tries: u32,
    is_settled: bool,
}

impl Joining {
    /// Due at once, where there are seeds to ask.
    pub fn new(pace: JoinPace, has_seeds: bool, seed: u64, now_ms: u64) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        Self { pace, rng, next_ms: has_seeds.then_some(now_ms), tries: 0, is_settled: false }
    }

    pub fn next_ms(&self) -> Option<u64> {
        self.next_ms
    }

    /// Before anybody was reached, or it was given up.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Whether the seeds are to be looked up and asked now; then [`Self::asked`] is to be called.
    pub fn take(&mut self, now_ms: u64) -> bool {
        let is_due = self.next_ms.is_some_and(|at_ms| at_ms <= now_ms);
        if is_due {
            self.next_ms = None;
        }
        is_due
    }

    /// So many seeds answered.
    pub fn asked(&mut self, answered: usize, now_ms: u64) -> Verdict {
        if self.is_settled {
            self.next_ms = self.rejoin_ms(now_ms, self.pace.rejoin_interval_ms);
            return Verdict::Rejoined;
        }
        self.tries = self.tries.saturating_add(1);
        if answered == 0 && self.tries <= self.pace.retries_max {
            self.next_ms = Some(now_ms.saturating_add(self.backoff_ms()));
            return Verdict::Again;
        }
        self.is_settled = true;
        // The first at any time within the interval, as members were started together.
        let interval_ms = self.pace.rejoin_interval_ms;
        let first_ms = if interval_ms == 0 { 0 } else { self.rng.random_range(0..interval_ms) };
        self.next_ms = self.rejoin_ms(now_ms, first_ms);
        if answered == 0 { Verdict::GaveUp } else { Verdict::Joined }
    }

    fn rejoin_ms(&self, now_ms: u64, after_ms: u64) -> Option<u64> {
        (self.pace.rejoin_interval_ms > 0).then(|| now_ms.saturating_add(after_ms))
    }

    /// Between the least and twice that, then between that and twice that, up to the most.
    fn backoff_ms(&mut self) -> u64 {
        let doubled = |times: u32| {
            let factor = 1_u64.checked_shl(times).unwrap_or(u64::MAX);
            self.pace.backoff_min_ms.saturating_mul(factor).min(self.pace.backoff_max_ms)
        };
        // Once the upper end is at the most, the range stays as it is.
        let (mut least_ms, mut most_ms) = (doubled(0), doubled(1));
        for step in 1..self.tries {
            if most_ms >= self.pace.backoff_max_ms {
                break;
            }
            (least_ms, most_ms) = (doubled(step), doubled(step + 1));
        }
        if least_ms >= most_ms { least_ms } else { self.rng.random_range(least_ms..most_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: JoinPace = JoinPace {
        backoff_min_ms: 1_000,
        backoff_max_ms: 60_000,
        retries_max: 10,
        rejoin_interval_ms: 0,
    };

    #[test]
    fn the_first_try_is_at_once_and_each_pause_is_about_twice_the_last() {
        let mut joining = Joining::new(PACE, true, 1, 500);
        let mut now_ms = 500;
        let ranges = [1, 2, 4, 8, 16, 32, 32, 32, 32, 32];
        for least_s in ranges {
            assert!(joining.take(now_ms));
            assert!(!joining.take(u64::MAX), "one try at a time");
            assert_eq!(joining.asked(0, now_ms), Verdict::Again);
            let pause_ms = joining.next_ms().unwrap() - now_ms;
            let most_ms = (2_000 * least_s).min(60_000);
            assert!((1_000 * least_s..most_ms).contains(&pause_ms), "{least_s}: {pause_ms}");
            now_ms += pause_ms;
        }
        assert!(joining.take(now_ms));
        assert_eq!(joining.asked(0, now_ms), Verdict::GaveUp);
        assert_eq!(joining.next_ms(), None);
    }

    #[test]
    fn whoever_joined_asks_again_at_the_interval_if_there_is_one() {
        let mut joining = Joining::new(PACE, true, 1, 0);
        assert!(joining.take(0));
        assert_eq!(joining.asked(2, 0), Verdict::Joined);
        assert_eq!(joining.next_ms(), None);

        let mut joining = Joining::new(JoinPace { rejoin_interval_ms: 100, ..PACE }, true, 1, 0);
        assert!(joining.take(0));
        assert_eq!(joining.asked(1, 10), Verdict::Joined);
        let first_ms = joining.next_ms().unwrap();
        assert!((10..110).contains(&first_ms));
        assert!(joining.take(first_ms));
        assert_eq!(joining.asked(0, first_ms), Verdict::Rejoined);
        assert_eq!(joining.next_ms(), Some(first_ms + 100));
    }

    #[test]
    fn who_gave_up_and_goes_on_alone_still_asks_at_the_interval() {
        let pace = JoinPace { retries_max: 0, rejoin_interval_ms: 100, ..PACE };
        let mut joining = Joining::new(pace, true, 1, 0);
        assert!(joining.take(0));
        assert_eq!(joining.asked(0, 0), Verdict::GaveUp);
        assert!(joining.next_ms().is_some_and(|at_ms| at_ms < 100));
    }

    #[test]
    fn without_seeds_nobody_is_asked() {
        let mut joining = Joining::new(PACE, false, 1, 0);
        assert_eq!((joining.next_ms(), joining.take(u64::MAX)), (None, false));
    }
}
