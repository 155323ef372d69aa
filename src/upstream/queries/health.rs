//! Whether one of those who answer is well: what trying told, and what asking told.
//!
//! A connection that cannot be made takes it out at once, and it is tried again with growing
//! waits. A check that finds it not well takes it out at the second time, since a busy one misses
//! a check now and then, and puts it back at the first that does.

use std::time::Duration;

use tokio::time::Instant;

use crate::upstream::back_off::BackOff;

/// So many checks in a row have to fail.
const CHECKS_FAILED_MAX: u32 = 2;

#[derive(Debug)]
pub(super) struct Health {
    back_off: BackOff,
    checks_failed: u32,
}

/// What an event did to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Fell,
    Recovered,
}

impl Health {
    pub fn new(back_off: BackOff) -> Self {
        Self { back_off, checks_failed: 0 }
    }

    pub fn is_well(&self) -> bool {
        !self.back_off.is_down() && self.checks_failed < CHECKS_FAILED_MAX
    }

    /// Lets a request try one that is not well, or tells how long it has to wait for that. One
    /// that can be reached is always tried: it knows best whether it can answer.
    pub fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        self.back_off.admit(now)
    }

    /// An answer has come, whatever it says.
    pub fn answered(&mut self) -> Option<Turn> {
        self.turn(|health| health.back_off.connected())
    }

    /// No connection could be made. Of many requests that fail together only the first counts,
    /// else the wait would be at its longest at once; `is_probe` says that this one was let try.
    pub fn unreachable(&mut self, now: Instant, is_probe: bool) -> Option<Turn> {
        self.turn(|health| {
            if is_probe || !health.back_off.is_down() {
                health.back_off.failed(now);
            }
        })
    }

    /// It was asked, and could be reached.
    pub fn checked(&mut self, is_well: bool) -> Option<Turn> {
        self.turn(|health| {
            health.back_off.connected();
            health.checks_failed = match is_well {
                true => 0,
                false => health.checks_failed.saturating_add(1),
            };
        })
    }

    /// When one that cannot be reached is due again.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.back_off.retry_at().map(|retry_at| retry_at.saturating_duration_since(now))
    }

    fn turn(&mut self, change: impl FnOnce(&mut Self)) -> Option<Turn> {
        let before = self.is_well();
        change(self);
        match (before, self.is_well()) {
            (true, false) => Some(Turn::Fell),
            (false, true) => Some(Turn::Recovered),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        let ms = Duration::from_millis;
        Health::new(BackOff::new(ms(100), ms(10_000), ms(1000)))
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_reached_falls_at_once_and_many_failures_count_once() {
        let (mut health, now) = (health(), Instant::now());
        assert!(health.is_well());
        assert_eq!(health.unreachable(now, false), Some(Turn::Fell));
        for _ in 0..100 {
            assert_eq!(health.unreachable(now, false), None);
        }
        let wait = health.wait(now).expect("a wait");
        assert!(wait <= Duration::from_millis(120), "the first wait: {wait:?}");
        assert_eq!(health.admit(now), Err(wait));
        let later = now + wait;
        assert_eq!(health.admit(later), Ok(()), "one tries");
        assert!(health.admit(later).is_err(), "and no second");
        assert_eq!(health.unreachable(later, true), None);
        assert!(health.wait(later).expect("longer") > Duration::from_millis(120));
        assert_eq!(health.answered(), Some(Turn::Recovered));
        assert_eq!(health.wait(later), None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_missed_check_is_nothing_and_one_good_one_is_enough() {
        let mut health = health();
        assert_eq!(health.checked(false), None);
        assert_eq!(health.checked(true), None);
        assert_eq!(health.checked(false), None);
        assert_eq!(health.checked(false), Some(Turn::Fell));
        assert_eq!(health.answered(), None, "an answer does not make it ready");
        assert_eq!(health.admit(Instant::now()), Ok(()), "where no other is, it is asked");
        assert_eq!(health.checked(true), Some(Turn::Recovered));
    }
}
