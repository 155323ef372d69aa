//! When another side of ours that cannot be reached is tried again.
//!
//! While it is down requests are refused at once, with the time that is left; when that is over
//! one request tries, and the others wait for what becomes of it by being refused for a little
//! longer.

use std::time::Duration;

use tokio::time::Instant;

/// Each further wait is so many times longer: gRPC's.
const FACTOR: f64 = 1.6;
/// Waits are spread by this part up and down, so that many who lost the same side do not
/// come back at the same moment: gRPC's.
const JITTER: f64 = 0.2;

#[derive(Debug)]
pub(super) struct BackOff {
    base: Duration,
    max: Duration,
    /// Longest that the one which tries may take to connect.
    probe: Duration,
    /// Connections that could not be made since the last that could.
    failures: u32,
    /// Nothing is tried before that, after a failure.
    retry_at: Option<Instant>,
}

impl BackOff {
    pub fn new(base: Duration, max: Duration, probe: Duration) -> Self {
        Self { base, max, probe, failures: 0, retry_at: None }
    }

    /// Lets a request try, or tells how long it has to wait for that.
    pub fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        let Some(retry_at) = self.retry_at else { return Ok(()) };
        if now < retry_at {
            return Err(retry_at - now);
        }
        // The caller tries; who comes before it has told of the outcome is refused.
        self.retry_at = Some(now + self.probe);
        Ok(())
    }

    pub fn connected(&mut self) {
        (self.failures, self.retry_at) = (0, None);
    }

    pub fn failed(&mut self, now: Instant) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let exponent = i32::try_from(self.failures - 1).unwrap_or(i32::MAX);
        let grown = self.base.as_secs_f64() * FACTOR.powi(exponent);
        let wait = grown.min(self.max.as_secs_f64());
        let spread: f64 = rand::random_range(-JITTER..=JITTER);
        let wait = Duration::from_secs_f64(wait * (1.0 + spread));
        self.retry_at = Some(now + wait);
        wait
    }

    pub fn is_down(&self) -> bool {
        self.retry_at.is_some()
    }

    /// When the next try is due; none where nothing has to be waited for.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_tries_at_a_time_and_the_waits_grow() {
        let ms = Duration::from_millis;
        let mut back_off = BackOff::new(ms(100), ms(1000), ms(500));
        let start = Instant::now();
        assert_eq!(back_off.admit(start), Ok(()));
        let first = back_off.failed(start);
        assert!((ms(80)..=ms(120)).contains(&first));
        assert_eq!(back_off.admit(start), Err(first));
        let later = start + first;
        assert_eq!(back_off.admit(later), Ok(()), "it tries");
        assert_eq!(back_off.admit(later), Err(ms(500)), "the next does not");
        let mut wait = first;
        for _ in 0..20 {
            wait = back_off.failed(later);
        }
        assert!((ms(800)..=ms(1200)).contains(&wait));
        back_off.connected();
        assert_eq!(back_off.admit(later), Ok(()));
        assert!(!back_off.is_down());
    }
}
