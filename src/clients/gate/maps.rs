//! Owners that change: what moves with them, and what is not known for a while.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Gate, Id, TermsOf, bump, lock};
use crate::clients::account::{Grant, LEASE_NS, Wish};
use crate::clients::exchange::{HANDED_OVER_MAX, HandOver, HandedGrant, HandedOver, Question};
use crate::clients::key::KeyHash;
use crate::clients::owner::Moving;
use crate::clients::placement::{OwnerMap, Placed};
use crate::sync::Ordering;

/// Maps that were in force within the last lease's life, at most. A ring that changes oftener is
/// learned for a little less long.
const MAPS_BEFORE_MAX: usize = 16;

/// The map in force, and those before it that leases may still stem from.
pub(super) struct Maps {
    pub(super) map: OwnerMap,
    pub(super) since_ns: i64,
    /// With when each ended.
    pub(super) before: Vec<(OwnerMap, i64)>,
}

impl<W> Gate<W> {
    /// A new map is in force. Accounts that are another's now are returned with where they go;
    /// what we hold of budgets whose owner has changed is told to the new one.
    pub fn publish(&self, map: OwnerMap, now_ns: i64) -> Vec<(Id, HandOver)> {
        let _one_at_a_time = lock(&self.publishing);
        let last = self.maps.load_full();
        if last.map.is_same_as(&map) {
            return Vec::new();
        }
        let mut before: Vec<_> = last.before.clone();
        before.retain(|(_, ended_ns)| ended_ns.saturating_add(LEASE_NS) > now_ns);
        // The empty map of the start counts: until a lease's life is over there may be leases of
        // an owner before us.
        before.push((last.map.clone(), now_ns));
        if before.len() > MAPS_BEFORE_MAX {
            before.remove(0);
        }
        let maps = Arc::new(Maps { map, since_ns: now_ns, before });
        self.maps.store(Arc::clone(&maps));
        self.forget_peers(&maps.map, now_ns);
        self.tell_new_owners(&last.map, &maps.map, now_ns);
        self.hand_over(&maps.map, now_ns)
    }

    /// Whether everybody's keys are where this gate believes them.
    pub fn is_placed_as(&self, map: &OwnerMap) -> bool {
        self.maps.load().map.is_same_as(map)
    }

    /// All that we own, for those who will own it when we are gone. `map` is the ring without us.
    fn hand_over(&self, map: &OwnerMap, now_ns: i64) -> Vec<(Id, HandOver)> {
        let stays = |hash| !matches!(map.place(hash), Placed::At(_));
        let moving = self.owner.hand_over(now_ns, stays);
        let names = self.peer_names();
        let mut by_owner: HashMap<Id, Vec<HandedOver>> = HashMap::new();
        for Moving { key, hash, credit, grants } in moving {
            let Placed::At(owner) = map.place(hash) else { continue };
            let grants = grants.iter().filter_map(|grant| {
                Some(HandedGrant {
                    holder: Id::clone(names.get(&grant.holder)?),
                    credits: grant.credits,
                    left_ns: grant.expires_ns.saturating_sub(now_ns),
                })
            });
            let account = HandedOver { key, credit, grants: grants.collect() };
            by_owner.entry(Id::clone(owner)).or_default().push(account);
        }
        let mut messages = Vec::new();
        for (owner, mut accounts) in by_owner {
            self.counts.handed_over.fetch_add(accounts.len() as u64, Ordering::Relaxed);
            while !accounts.is_empty() {
                let rest = accounts.split_off(accounts.len().min(HANDED_OVER_MAX));
                messages.push((Id::clone(&owner), HandOver { accounts }));
                accounts = rest;
            }
        }
        messages
    }

    /// Takes over what another gate had.
    pub fn take_over(&self, message: HandOver, terms_of: TermsOf<'_>, now_ns: i64) {
        for account in message.accounts {
            let Some(terms) = terms_of(account.key.kind, &account.key.tenant) else { continue };
            let hash = self.hasher.hash(account.key.as_key());
            let mut credit = account.credit;
            let mut grants = Vec::with_capacity(account.grants.len());
            for grant in &account.grants {
                if grant.holder == self.us {
                    // We dropped it when we learned that the budget is ours.
                    credit += grant.credits as f64;
                    continue;
                }
                let holder = lock(&self.peer(&grant.holder, now_ns)).holder;
                let left_ns = grant.left_ns.clamp(0, LEASE_NS);
                let expires_ns = now_ns.saturating_add(left_ns);
                grants.push(Grant { holder, credits: grant.credits, expires_ns });
            }
            let moving = Moving { key: account.key, hash, credit, grants };
            bump(&self.counts.taken_over);
            self.owner.take_over(terms, &moving, now_ns);
        }
    }

    fn tell_new_owners(&self, last: &OwnerMap, map: &OwnerMap, now_ns: i64) {
        let is_moved = |hash| last.place(hash) != map.place(hash);
        for (key, hash) in self.leases.held_where(now_ns, is_moved) {
            match map.place(hash) {
                Placed::Here => self.leases.drop_key(key.as_key(), hash),
                Placed::At(owner) => {
                    let links = self.links.load();
                    if let Some(seat) = links.get(owner) {
                        let wish = Wish::default();
                        let report =
                            Question { key, hash, wish, refund: None, debt: 0, waiter: None };
                        // Without room the next question reports.
                        if lock(&seat.link).ask(report).is_ok() {
                            (seat.wake)();
                        }
                    }
                }
                Placed::Nowhere => {}
            }
        }
    }
}

impl Maps {
    /// Whether somebody else may have kept the budget less than a lease's life ago.
    pub(super) fn is_learning(&self, hash: KeyHash, now_ns: i64) -> bool {
        if now_ns >= self.since_ns.saturating_add(LEASE_NS) {
            return false;
        }
        self.before
            .iter()
            .any(|(map, ended_ns)| ended_ns.saturating_add(LEASE_NS) > now_ns && !map.is_here(hash))
    }
}
