//! When what is done again and again is due next.

use rand::RngExt;
use rand::rngs::SmallRng;

/// Members up to which everything is compared at the full pace.
const PUSH_PULL_STRETCH_FROM: f64 = 32.0;

/// Something due every so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// 0: never due.
    interval_ms: u64,
    next_ms: u64,
}

/// Interval of full exchanges among `members`: from 33 on twice as long, from 65 on three times,
/// and so on, as each costs the more the more members there are.
pub fn push_pull_interval_ms(interval_ms: u64, members: usize) -> u64 {
    let doublings = (members.max(1) as f64).log2() - PUSH_PULL_STRETCH_FROM.log2();
    if doublings <= 0.0 {
        return interval_ms;
    }
    interval_ms.saturating_mul(doublings.ceil() as u64 + 1)
}

impl Pulse {
    /// First due at a random moment within the first interval, so that members that were started
    /// together do not act together.
    pub fn new(interval_ms: u64, now_ms: u64, rng: &mut SmallRng) -> Self {
        let stagger_ms = if interval_ms == 0 { 0 } else { rng.random_range(1..=interval_ms) };
        Self { interval_ms, next_ms: now_ms.saturating_add(stagger_ms) }
    }

    pub fn next_ms(self) -> Option<u64> {
        (self.interval_ms > 0).then_some(self.next_ms)
    }

    /// Whether it is due; then on to the next time to come. Missed ones are not made up for.
    pub fn take(&mut self, now_ms: u64) -> bool {
        let is_due = self.interval_ms > 0 && now_ms >= self.next_ms;
        if is_due {
            let missed = (now_ms - self.next_ms) / self.interval_ms;
            self.next_ms =
                self.next_ms.saturating_add((missed + 1).saturating_mul(self.interval_ms));
        }
        is_due
    }

    /// The next time comes that much later.
    pub fn delay(&mut self, span_ms: u64) {
        self.next_ms = self.next_ms.saturating_add(span_ms);
    }

    /// Another interval, from its last time on.
    pub fn stretch(&mut self, interval_ms: u64) {
        self.next_ms = self.next_ms.saturating_sub(self.interval_ms).saturating_add(interval_ms);
        self.interval_ms = interval_ms;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn full_exchanges_slow_down_as_members_double() {
        let check = |members, expected| {
            assert_eq!(push_pull_interval_ms(30_000, members), expected, "{members}");
        };
        check(0, 30_000);
        check(32, 30_000);
        check(33, 60_000);
        check(64, 60_000);
        check(65, 90_000);
        check(600, 180_000);
    }

    #[test]
    fn what_was_missed_is_not_made_up_for() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut pulse = Pulse::new(100, 1_000, &mut rng);
        let first = pulse.next_ms().unwrap();
        assert!((1_001..=1_100).contains(&first));
        assert!(!pulse.take(first - 1));
        assert!(pulse.take(first));
        assert_eq!(pulse.next_ms(), Some(first + 100));
        assert!(pulse.take(first + 950));
        assert!(!pulse.take(first + 950));
        assert_eq!(pulse.next_ms(), Some(first + 1_000));
        pulse.stretch(250);
        assert_eq!(pulse.next_ms(), Some(first + 1_150));
    }

    #[test]
    fn an_interval_of_nothing_is_never_due() {
        let mut pulse = Pulse::new(0, 5, &mut SmallRng::seed_from_u64(1));
        assert_eq!(pulse.next_ms(), None);
        assert!(!pulse.take(u64::MAX));
    }
}
