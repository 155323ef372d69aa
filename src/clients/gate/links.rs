//! The ways to owners: what waits, what is under way, and whether anybody is there.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Gate, Id, Outcome, lock};
use crate::clients::exchange::{Batch, Link};
use crate::sync::Mutex;

/// A link, and who is told that there is something to send.
pub(super) struct LinkSeat<W> {
    pub(super) link: Mutex<Link<W>>,
    pub(super) wake: Box<dyn Fn() + Send + Sync>,
}

impl<W> Gate<W> {
    /// Opens the link to an owner. `wake` is called when there is something to send.
    pub fn link(&self, owner: Id, wake: Box<dyn Fn() + Send + Sync>) {
        let seat = LinkSeat { link: Mutex::new(Link::default()), wake };
        let seat = Arc::new(seat);
        self.links.rcu(|links| {
            let mut links = HashMap::clone(links);
            links.insert(Id::clone(&owner), Arc::clone(&seat));
            links
        });
    }

    /// Closes it. Those who wait are told.
    pub fn unlink(&self, owner: &str, now_ns: i64) -> Vec<(W, Outcome)> {
        let outcomes = self.link_down(owner, now_ns);
        self.links.rcu(|links| {
            let mut links = HashMap::clone(links);
            links.remove(owner);
            links
        });
        outcomes
    }

    /// What is to be sent to `owner` now.
    pub fn next_batch(&self, owner: &str, now_ns: i64) -> Option<Arc<Batch>> {
        let links = self.links.load();
        let seat = links.get(owner)?;
        let mut link = lock(&seat.link);
        link.next_batch(now_ns, |key, hash| self.leases.holding(key.as_key(), hash, now_ns))
    }

    /// What was sent and not answered, for a new connection to the same owner.
    pub fn batch_again(&self, owner: &str) -> Option<Arc<Batch>> {
        lock(&self.links.load().get(owner)?.link).again()
    }

    /// When the batch under way to `owner` was sent.
    pub fn sent_ns(&self, owner: &str) -> Option<i64> {
        lock(&self.links.load().get(owner)?.link).sent_ns()
    }

    pub fn link_up(&self, owner: &str) {
        if let Some(seat) = self.links.load().get(owner) {
            lock(&seat.link).up();
        }
    }

    pub fn is_link_up(&self, owner: &str) -> bool {
        self.links.load().get(owner).is_some_and(|seat| lock(&seat.link).is_up())
    }

    /// The owner cannot be reached: until it is again, nobody waits for it.
    pub fn link_down(&self, owner: &str, now_ns: i64) -> Vec<(W, Outcome)> {
        let links = self.links.load();
        let Some(seat) = links.get(owner) else { return Vec::new() };
        let questions = lock(&seat.link).down();
        let mut outcomes = Vec::new();
        for question in questions {
            self.leases.unanswered(question.key.as_key(), question.hash, now_ns);
            outcomes.extend(question.waiter.map(|waiter| (waiter, Outcome::Unanswered)));
        }
        outcomes
    }
}
