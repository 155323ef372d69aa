//! A tenant over its rate waits for itself, so that others need not.
//!
//! Whether a request is over the rate is known only once it is read and validated, which is most
//! of what it costs; a flood of such requests would have every thread busy with work whose end is
//! a refusal, and a tenant within its limits would stand behind all of it. So the requests of a
//! tenant that was refused a moment ago are read one after the other. Nothing is decided by it:
//! each is judged as before, only later, and as soon as the flood ends nobody waits any more.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::clock::Now;
use crate::sync::{AtomicI64, Ordering};

/// How long after a refusal a tenant is still taken for one that is over its rate. Senders that
/// are refused come back within a second or so, by what they are told to wait.
const LATELY_NS: i64 = 1_000_000_000;

/// Longest wait for a turn; a thousand requests of a millisecond each. Who has waited so long is
/// read all the same: the turns are there for others' sake, not to refuse anybody.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// One tenant's turns.
pub(super) struct Turns {
    one: Semaphore,
    refused_ns: AtomicI64,
}

/// Held while a request is read and validated.
pub(super) struct Turn<'a> {
    /// `None` after the longest wait.
    _permit: Option<SemaphorePermit<'a>>,
    /// When it came; the request is judged by what is there then.
    pub now: Now,
}

impl Default for Turns {
    fn default() -> Self {
        Self { one: Semaphore::new(1), refused_ns: AtomicI64::new(i64::MIN) }
    }
}

impl Turns {
    /// Waits while another request of a tenant over its rate is read; `None` where nobody has to.
    pub async fn wait(&self, now: Now) -> Option<Turn<'_>> {
        if !self.is_over(now) {
            return None;
        }
        if let Ok(permit) = self.one.try_acquire() {
            return Some(Turn { _permit: Some(permit), now });
        }
        let asked_at = Instant::now();
        let permit = timeout(WAIT_MAX, self.one.acquire()).await.ok().and_then(Result::ok);
        // Whoever is woken runs at once, before requests that have waited for longer. Between
        // two of a flood those of others have theirs.
        tokio::task::yield_now().await;
        Some(Turn { _permit: permit, now: now.after(asked_at.elapsed()) })
    }

    /// The tenant's rate has refused a request.
    pub fn refused(&self, now: Now) {
        self.refused_ns.fetch_max(now.steady_ns, Ordering::Relaxed);
    }

    fn is_over(&self, now: Now) -> bool {
        let refused_ns = self.refused_ns.load(Ordering::Relaxed);
        now.steady_ns.saturating_sub(refused_ns) < LATELY_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(steady_ns: i64) -> Now {
        Now { unix_ms: 0, steady_ns }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_without_a_refusal_or_long_after_it() {
        let turns = Turns::default();
        assert!(turns.wait(at(0)).await.is_none());
        turns.refused(at(0));
        assert!(turns.wait(at(LATELY_NS - 1)).await.is_some());
        assert!(turns.wait(at(LATELY_NS)).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_and_never_for_longer_than_the_bound() {
        let turns = Turns::default();
        turns.refused(at(0));
        let first = turns.wait(at(1)).await;
        let asked_at = Instant::now();
        let second = turns.wait(at(1)).await.expect("it waits");
        assert!(second._permit.is_none(), "the first is still read");
        assert_eq!((asked_at.elapsed(), second.now), (WAIT_MAX, at(1).after(WAIT_MAX)));
        drop(first);
        let third = turns.wait(at(1)).await.expect("it is over its rate");
        assert_eq!((third._permit.is_some(), third.now), (true, at(1)), "the turn was free");
        let (fourth, ()) = tokio::join!(turns.wait(at(1)), async {
            tokio::time::sleep(Duration::from_millis(3)).await;
            drop(third);
        });
        let waited_ns = fourth.expect("its turn has come").now.steady_ns - 1;
        assert!((3_000_000..5_000_000).contains(&waited_ns), "{waited_ns}");
    }
}
