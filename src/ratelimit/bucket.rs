//! Credit bucket: arithmetic on (rate, burst, now).
//!
//! The numbers are those of Go's `x/time/rate` on the same inputs, including what surprises: a
//! shortfall worth less than a nanosecond is admitted (credits may then be a hair below zero),
//! and a take at an earlier time than the last one sets the bucket's clock back.
//!
//! Invariants: credits never exceed the burst after an advance; a refusal changes nothing; while
//! time does not go back, the work admitted and not given back in any window of length Δ is at
//! most `burst + rate·Δ`, plus that hair.

/// The rate that means "no limit": the largest double, as in Cortex.
pub const RATE_UNLIMITED: f64 = f64::MAX;

/// Longest wait that a `Retry-After` tells, in seconds. Longer ones say more about the size of
/// the debt than about when to come back, and a sender that sleeps for minutes loses data.
pub const RETRY_AFTER_SECS_MAX: u64 = 60;

const NANOS_PER_SEC: i64 = 1_000_000_000;

/// One bucket of credits. It starts full and refills at `rate` credits per second up to `burst`.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: f64,
    burst: u64,
    /// Credits at `last_ns`.
    credits: f64,
    /// Time of the last change; far in the past before the first one, when the bucket is full.
    last_ns: i64,
}

impl Bucket {
    /// A full bucket. `rate` is credits per second, 0 or more; [`RATE_UNLIMITED`] admits all.
    pub fn new(rate: f64, burst: u64) -> Self {
        Self { rate, burst, credits: burst as f64, last_ns: i64::MIN }
    }

    pub fn rate(&self) -> f64 {
        self.rate
    }

    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Takes `n` credits if they are there.
    #[inline]
    pub fn take(&mut self, n: u64, now_ns: i64) -> bool {
        if self.rate == RATE_UNLIMITED {
            return true;
        }
        let credits = self.credits_at(now_ns) - n as f64;
        // Go decides by the wait in whole nanoseconds, so a shorter one is none.
        let admitted = n <= self.burst && (credits >= 0.0 || wait_ns(-credits, self.rate) < 1.0);
        if admitted {
            self.last_ns = now_ns;
            self.credits = credits;
        }
        admitted
    }

    /// Takes `n` credits whether they are there or not, but goes no deeper into debt than
    /// `debt_max`: what is owed is to be refilled before anything is admitted again.
    pub fn charge(&mut self, n: u64, debt_max: u64, now_ns: i64) {
        if self.rate == RATE_UNLIMITED {
            return;
        }
        let credits = self.credits_at(now_ns) - n as f64;
        self.credits = credits.max(-(debt_max as f64));
        self.last_ns = now_ns;
    }

    /// Returns what is left of `n` credits that were taken at `taken_ns` and bought nothing.
    ///
    /// Had they never been taken, part of the refill since then could have been lost at the brim,
    /// and returning that part too would let a burst through twice. It is at most the whole
    /// refill since, so that much is withheld: a give-back within the same instant is complete,
    /// one that is older than `n / rate` is nothing.
    pub fn give_back(&mut self, n: u64, taken_ns: i64, now_ns: i64) {
        if self.rate == RATE_UNLIMITED {
            return;
        }
        let aged = refill(self.rate, now_ns.saturating_sub(taken_ns).max(0));
        let returned = (n as f64 - aged).max(0.0);
        let credits = self.credits_at(now_ns) + returned;
        self.credits = credits.min(self.burst as f64);
        self.last_ns = self.last_ns.max(now_ns);
    }

    /// Credits at `now_ns`; time before the last change adds nothing.
    #[inline]
    pub fn credits_at(&self, now_ns: i64) -> f64 {
        let elapsed_ns = now_ns.saturating_sub(self.last_ns).max(0);
        let credits = self.credits + refill(self.rate, elapsed_ns);
        let brim = self.burst as f64;
        if credits > brim { brim } else { credits }
    }

    /// Nothing is owed: forgetting the bucket and making a new one would change no decision.
    pub fn is_full_at(&self, now_ns: i64) -> bool {
        self.rate == RATE_UNLIMITED || self.credits_at(now_ns) >= self.burst as f64
    }

    pub fn set_rate(&mut self, rate: f64, now_ns: i64) {
        self.credits = self.credits_at(now_ns);
        self.last_ns = now_ns;
        self.rate = rate;
    }

    /// Credits above a lower burst go at the next advance, which is Go's order too.
    pub fn set_burst(&mut self, burst: u64, now_ns: i64) {
        self.credits = self.credits_at(now_ns);
        self.last_ns = now_ns;
        self.burst = burst;
    }

    /// Nanoseconds until `n` credits are there, or `None` if they never will be.
    pub fn wait_ns(&self, n: u64, now_ns: i64) -> Option<u64> {
        if self.rate == RATE_UNLIMITED {
            return Some(0);
        }
        if n > self.burst {
            return None;
        }
        let missing = n as f64 - self.credits_at(now_ns);
        if missing <= 0.0 {
            return Some(0);
        }
        // The conversion saturates, so a rate next to nothing gives the longest wait there is.
        (self.rate > 0.0).then(|| wait_ns(missing, self.rate).ceil() as u64)
    }
}

/// Whole seconds to put into `Retry-After` for a wait, between 1 and [`RETRY_AFTER_SECS_MAX`].
///
/// `jitter`, from 0 to 1 and drawn by the caller, stretches the wait by up to one second or by its
/// own length, whichever is more, so that a thousand senders refused together do not come back
/// together.
pub fn retry_after_secs(wait_ns: u64, jitter: f64) -> u64 {
    let wait_secs = wait_ns as f64 / NANOS_PER_SEC as f64;
    let stretched = wait_secs + jitter.clamp(0.0, 1.0) * wait_secs.max(1.0);
    (stretched.ceil() as u64).clamp(1, RETRY_AFTER_SECS_MAX)
}

/// Credits that flow in during a span: Go adds whole seconds and the fraction as doubles first.
#[inline]
fn refill(rate: f64, elapsed_ns: i64) -> f64 {
    if rate <= 0.0 {
        return 0.0;
    }
    if elapsed_ns < NANOS_PER_SEC {
        // No whole second: adding none is adding nothing, to the last bit.
        return elapsed_ns as f64 / 1e9 * rate;
    }
    let whole_secs = (elapsed_ns / NANOS_PER_SEC) as f64;
    let fraction_secs = (elapsed_ns % NANOS_PER_SEC) as f64 / 1e9;
    (whole_secs + fraction_secs) * rate
}

/// Nanoseconds in which `missing` credits flow in.
#[inline]
fn wait_ns(missing: f64, rate: f64) -> f64 {
    if rate <= 0.0 { f64::INFINITY } else { missing / rate * 1e9 }
}

#[cfg(test)]
mod tests;
