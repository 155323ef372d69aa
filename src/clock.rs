//! What time it is: read once per request at the edge, and passed down as a value.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One moment, in the two times that rules are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, Unix milliseconds: what samples are compared with. It may jump.
    pub unix_ms: i64,
    /// Time since the process began to count, in nanoseconds. It never goes back.
    pub steady_ns: i64,
}

impl Now {
    /// Whole seconds since the process began to count.
    pub fn steady_s(self) -> u32 {
        u32::try_from(self.steady_ns / 1_000_000_000).unwrap_or(u32::MAX)
    }

    /// So much later.
    pub fn after(self, passed: Duration) -> Self {
        let passed_ns = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        Self {
            unix_ms: self.unix_ms.saturating_add(passed_ns / 1_000_000),
            steady_ns: self.steady_ns.saturating_add(passed_ns),
        }
    }
}

/// The process' clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the one place where clocks are read")]
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where clocks are read")]
    pub fn now(&self) -> Now {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now {
            unix_ms: i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX),
            steady_ns: self.steady_ns(),
        }
    }

    /// The wall clock alone, to the nanosecond: what spans are dated by.
    #[expect(clippy::disallowed_methods, reason = "the one place where clocks are read")]
    pub fn unix_ns(&self) -> i64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX)
    }

    /// The steady half of [`Clock::now`] alone.
    pub fn steady_ns(&self) -> i64 {
        // One second ahead, so that the first second is later than "never".
        let steady = self.started.elapsed() + Duration::from_secs(1);
        i64::try_from(steady.as_nanos()).unwrap_or(i64::MAX)
    }
}
