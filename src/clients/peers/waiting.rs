//! How a request waits for the owner of its budget.

use std::time::Duration;

use prometheus::Histogram;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::super::gate::{Cause, Charge, Decision, Outcome, POLICIES, Refusal};
use super::super::key::Key;
use super::super::owner::Terms;
use super::Shared;
use crate::sync::Ordering;

/// After how long a budget that nobody owns up to is asked for again: the rings of two gates agree
/// some 10 ms after a change, or at the next heartbeat.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Notes how long a request has waited, also when it was given up.
struct Waited<'a> {
    began: Instant,
    waits: &'a Histogram,
}

impl Shared {
    /// Waits until `decision` is one. It takes the owner's timeout at most.
    pub(super) async fn wait(
        &self,
        key: Key<'_>,
        n: u64,
        terms: Terms,
        decision: Decision,
    ) -> Result<Charge, Refusal> {
        if !matches!(decision, Decision::Lost) {
            let waited = Waited { began: Instant::now(), waits: &self.waits };
            if let Some(outcome) = self.asked(key, n, terms, decision, waited.began).await {
                return outcome;
            }
        }
        self.tell_lost(key);
        decided(self.gate.lost(key, n, terms, self.now_ns()))
    }

    /// Asks until somebody knows; `None` when nobody does in time.
    async fn asked(
        &self,
        key: Key<'_>,
        n: u64,
        terms: Terms,
        mut decision: Decision,
        began: Instant,
    ) -> Option<Result<Charge, Refusal>> {
        let until = began + self.owner_timeout;
        loop {
            let asking = match decision {
                Decision::Admitted(charge) => return Some(Ok(charge)),
                Decision::Refused(refusal) => return Some(Err(refusal)),
                Decision::Lost => return None,
                Decision::Ask(asking) => asking,
            };
            // Listening begins before asking, so that no map falls in between.
            let mut map_changed = std::pin::pin!(self.map_changed.notified());
            map_changed.as_mut().enable();
            let (waiter, outcome) = oneshot::channel();
            // Out of reach, or too many wait already.
            self.gate.ask(asking, waiter).ok()?;
            match timeout_at(until, outcome).await.ok()? {
                Ok(Outcome::Admitted(charge)) => return Some(Ok(charge)),
                Ok(Outcome::Denied { wait_ns }) => {
                    let cause = Cause::Budget;
                    return Some(Err(Refusal { cause, budget: terms.budget, asked: n, wait_ns }));
                }
                Ok(Outcome::NoLimit) => {
                    let alone = self.gate.alone(key, n, terms, self.now_ns());
                    return Some(decided(alone));
                }
                Ok(Outcome::Unanswered) | Err(_) => {}
            }
            let again_at = Instant::now() + AGAIN_AFTER;
            // A link that has just failed is not waited for; a gate that owns the key no more, or
            // not yet, is one map away.
            let is_worth_it = self
                .gate
                .owner_of(key)
                .is_some_and(|owner| owner == *self.gate.us() || self.gate.is_link_up(&owner));
            if !is_worth_it || again_at >= until {
                return None;
            }
            // A map that does not come is as good as one that has.
            let _ = timeout_at(again_at, map_changed).await;
            decision = self.gate.decide(key, n, terms, self.now_ns());
        }
    }

    /// Says once per change that owners are missed; who is refused says so itself.
    fn tell_lost(&self, key: Key<'_>) {
        if !self.is_lost_told.swap(true, Ordering::Relaxed) {
            let policy = POLICIES[self.settings.owner_lost as usize].1;
            let owner = self.gate.owner_of(key);
            tracing::warn!(
                tenant = key.tenant,
                owner = owner.as_deref().unwrap_or("none"),
                policy,
                "budgets are decided without their owner"
            );
        }
    }
}

/// What a gate has decided by itself.
fn decided(decision: Decision) -> Result<Charge, Refusal> {
    match decision {
        Decision::Admitted(charge) => Ok(charge),
        Decision::Refused(refusal) => Err(refusal),
        Decision::Ask(_) | Decision::Lost => unreachable!("nobody is asked any more"),
    }
}

impl Drop for Waited<'_> {
    fn drop(&mut self) {
        self.waits.observe(self.began.elapsed().as_secs_f64());
    }
}
