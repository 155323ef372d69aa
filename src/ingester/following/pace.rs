//! How often the upstream is asked, and how long a difference may last.
//!
//! One value, so that tests can run the same machine in milliseconds.

use std::time::Duration;

/// See the head of the file. Every wait of the room is here or follows from one that is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often the machine looks at the time; nothing happens more exactly than that.
    pub tick: Duration,
    /// Between two polls. A tenant that is gone upstream is gone here within a minute, and the
    /// poll that tells of it and what follows from it have to fit into that.
    pub poll: Duration,
    /// Between two polls while a drop of some head is due.
    pub poll_while_due: Duration,
    /// A drop that is due and does not come for this long is not waited for any longer: the
    /// upstream's rule differs from ours, or it cannot compact.
    pub due: Duration,
    /// Until the poll that measures what a listing or a drop has left.
    pub poll_after_change: Duration,
    /// Least time between two listings of one tenant.
    pub relist: Duration,
    /// How long a difference of more than a hundredth lasts before the tenant is listed.
    pub drift: Duration,
    /// The same for a smaller one: what it costs the upstream to list a million series is more
    /// than a handful of them is worth.
    pub small_drift: Duration,
    /// First and longest wait after a failed poll or a failed listing of a tenant that is being
    /// loaded; other listings wait for `relist` at most.
    pub retry: Duration,
    pub retry_max: Duration,
    /// How long a tenant's listings may stay empty, against what its count says, before that is
    /// believed.
    pub empty: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            tick: Duration::from_secs(1),
            poll: Duration::from_secs(45),
            poll_while_due: Duration::from_secs(5),
            due: Duration::from_secs(15 * 60),
            poll_after_change: Duration::from_secs(1),
            relist: Duration::from_secs(10 * 60),
            drift: Duration::from_secs(150),
            small_drift: Duration::from_secs(60 * 60),
            retry: Duration::from_secs(1),
            retry_max: Duration::from_secs(30),
            empty: Duration::from_secs(60),
        }
    }
}

/// The wait before try number `failures + 1`: doubling, and cut by up to a half by `jitter` in
/// 0..1, so that the sidecars of one upstream do not come all at once.
pub(super) fn backoff(failures: u32, first: Duration, longest: Duration, jitter: f64) -> i64 {
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(longest);
    nanos(doubled.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0))
}

pub(super) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_jitter_only_shortens() {
        let wait = |failures, jitter| {
            backoff(failures, Duration::from_secs(1), Duration::from_secs(30), jitter) / 1_000_000
        };
        assert_eq!(
            [1, 2, 3, 6, 7, u32::MAX].map(|n| wait(n, 0.0)),
            [1000, 2000, 4000, 30_000, 30_000, 30_000]
        );
        assert_eq!(wait(1, 1.0), 500);
        assert_eq!(wait(6, 0.5), 22_500);
    }
}
