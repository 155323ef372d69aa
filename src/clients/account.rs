//! One budget at its owner.
//!
//! Invariant: `credit + reserved <= burst` at every instant, where `reserved` is credit that peers
//! may still spend, or that is held for what may have cost nothing. Refill stops at
//! `burst - reserved`. Work admitted anywhere in any window of length Δ
//! is then at most `burst + rate·Δ`: the curve of one bucket, wherever its credit is spent. A
//! request that waited for the owner counts when the owner decided.
//!
//! Three things break it when done the simple way, and each is a test below. Expiry is kept per
//! grant. A refill up to now comes under the old `reserved` before a report lowers it. Expired
//! grants are released in the order of time, with a refill up to each.
//!
//! A report is believed to have been spent from the grants that expire first: what is left is
//! then reserved for as long as the holder may have it, whichever it really spent.

use std::collections::VecDeque;

use super::headroom::{Headroom, Slot};
use crate::ratelimit::Budget;

/// How long a lease lives: by the owner from its granting, by the holder from its asking.
///
/// Long enough that a client of a few requests a second asks once in ten of them; short enough
/// that what a crashed gate held is back before its heartbeat is overdue.
pub const LEASE_NS: i64 = 3_000_000_000;
/// A lease is at most this part of the credit that is there, so that the next peer finds some.
const LEASE_PART: f64 = 4.0;
/// Most leases of one budget that are out at once: each of sixty peers renews about four times in
/// a lease's life. At the bound requests are checked one by one.
const GRANTS_MAX: usize = 256;

/// How long credit is held for what may turn out to have cost nothing.
pub const SETTLE_NS: i64 = 250_000_000;
/// Ends of holds are multiples of it, so that an account has seven of them at most.
const HOLD_STEP_NS: i64 = 50_000_000;
/// Whose grants holds are: nobody's, who could spend them.
const HELD: Holder = Holder(u32::MAX);

const NANOS_PER_SEC: f64 = 1e9;

/// A peer that holds leases, as its owner numbers peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u32);

/// Credit that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub holder: Holder,
    /// What the holder may still have of it.
    pub credits: u64,
    pub expires_ns: i64,
}

/// What is asked of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// To be spent at once; all of it or nothing.
    pub spend: u64,
    /// How much more a lease should have.
    pub want: u64,
    /// A lease of less is no use.
    pub least: u64,
}

/// Not enough credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Until there would be; `None` if there never will.
    pub wait_ns: Option<u64>,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Account {
    /// Below 0 while more was spent than was there: by debits, and by owners that did not know it.
    credit: f64,
    at_ns: i64,
    headroom: Headroom,
    /// By expiry. Few accounts have any at a time, so the others pay for a pointer only.
    #[expect(clippy::box_collection, reason = "a third of the size in each of very many accounts")]
    grants: Option<Box<VecDeque<Grant>>>,
}

impl Account {
    pub fn new(credit: f64, now_ns: i64) -> Self {
        Self { credit, at_ns: now_ns, headroom: Headroom::default(), grants: None }
    }

    /// Brings the account to `now_ns`; time that goes back changes nothing.
    pub fn advance(&mut self, budget: Budget, now_ns: i64) {
        while let Some(due_ns) = self.next_due_ns().filter(|due_ns| *due_ns <= now_ns) {
            self.refill(budget, due_ns);
            self.release(due_ns);
        }
        self.refill(budget, now_ns);
    }

    /// Spends from the credit at hand. What is spent may be given back while it is recent.
    pub fn spend(&mut self, budget: Budget, n: u64, now_ns: i64) -> Result<Slot, Short> {
        self.advance(budget, now_ns);
        if n as f64 > self.credit || n > budget.burst {
            return Err(self.short(budget, n));
        }
        self.credit -= n as f64;
        Ok(Slot::of(self.at_ns))
    }

    /// Returns what was spent here and bought nothing, less what would have run over the brim;
    /// nothing happens when it is settled.
    pub fn give_back(&mut self, budget: Budget, n: u64, made: Slot, now_ns: i64) {
        self.advance(budget, now_ns);
        self.credit += self.headroom.take_back(n, made, self.at_ns);
    }

    /// As [`give_back`](Self::give_back), of what was spent for a peer that asked `age_ns` ago.
    pub fn refund(&mut self, budget: Budget, n: u64, age_ns: i64, now_ns: i64) {
        let made = Slot::about(now_ns.saturating_sub(age_ns));
        self.give_back(budget, n, made, now_ns);
    }

    /// Takes credit whether it is there or not; what is missing is paid by the refill to come.
    ///
    /// A debt ends at one burst. So whoever is over it has its whole burst again after twice the
    /// time that a burst takes to flow in, and nothing that is charged behind their back, by
    /// mistake or by a stranger, shuts them out for longer.
    pub fn debit(&mut self, budget: Budget, n: u64, now_ns: i64) {
        self.advance(budget, now_ns);
        let floor = -(budget.burst as f64);
        // One that is below it already, since the burst was lowered, is not lifted.
        self.credit = (self.credit - n as f64).max(floor.min(self.credit));
    }

    /// Reserves what was just spent until it is known whether it is to come back: it is out, as a
    /// lease is, and no refill takes its place. At the bound of grants it is spent for good.
    pub fn hold(&mut self, n: u64, now_ns: i64) {
        let expires_ns = held_until(now_ns);
        let grants = self.grants.get_or_insert_default();
        let at = grants.partition_point(|grant| grant.expires_ns < expires_ns);
        let is_full = grants.len() >= GRANTS_MAX;
        let is_held = |grant: &&mut Grant| grant.holder == HELD && grant.expires_ns == expires_ns;
        match grants.get_mut(at).filter(is_held) {
            Some(grant) => grant.credits += n,
            None if n > 0 && !is_full => {
                grants.insert(at, Grant { holder: HELD, credits: n, expires_ns });
            }
            None => {}
        }
    }

    /// Returns what was held from `made_ns` on, and tells how much that was: nothing when it is
    /// settled. Until then it does not matter whose of the same time it is.
    pub fn let_go(&mut self, budget: Budget, n: u64, made_ns: i64, now_ns: i64) -> u64 {
        self.advance(budget, now_ns);
        let Some(grants) = &mut self.grants else { return 0 };
        if held_until(made_ns) <= now_ns {
            return 0;
        }
        let mut rest = n;
        for grant in grants.iter_mut().filter(|grant| grant.holder == HELD) {
            let part = rest.min(grant.credits);
            grant.credits -= part;
            rest -= part;
        }
        let back = n - rest;
        self.credit += back as f64;
        grants.retain(|grant| grant.credits > 0);
        if grants.is_empty() {
            self.grants = None;
        }
        back
    }

    /// Spends for a peer and grants it a lease of what is left, which may be none.
    pub fn grant(
        &mut self,
        budget: Budget,
        wish: Wish,
        holder: Holder,
        now_ns: i64,
    ) -> Result<u64, Short> {
        self.advance(budget, now_ns);
        if wish.spend as f64 > self.credit.max(0.0) || wish.spend > budget.burst {
            return Err(self.short(budget, wish.spend));
        }
        self.credit -= wish.spend as f64;
        // Saturates at 0 below it.
        let lease = wish.want.min((self.credit / LEASE_PART) as u64);
        let grants = self.grants.get_or_insert_default();
        if lease == 0 || lease < wish.least || grants.len() >= GRANTS_MAX {
            return Ok(0);
        }
        self.credit -= lease as f64;
        grants.push_back(Grant { holder, credits: lease, expires_ns: now_ns + LEASE_NS });
        Ok(lease)
    }

    /// A peer tells what it still holds of this account.
    pub fn report(&mut self, budget: Budget, holder: Holder, holding: u64, now_ns: i64) {
        self.advance(budget, now_ns);
        if self.grants.is_none() && holding == 0 {
            return;
        }
        let grants = self.grants.get_or_insert_default();
        let known: u64 =
            grants.iter().filter(|grant| grant.holder == holder).map(|grant| grant.credits).sum();
        if holding > known {
            // A lease from an owner before us.
            let expires_ns = now_ns + LEASE_NS;
            grants.push_back(Grant { holder, credits: holding - known, expires_ns });
            self.keep_invariant(budget);
            return;
        }
        let mut spent = known - holding;
        for grant in grants.iter_mut().filter(|grant| grant.holder == holder) {
            let part = spent.min(grant.credits);
            grant.credits -= part;
            spent -= part;
        }
        grants.retain(|grant| grant.credits > 0);
    }

    /// Takes over from the owner before us, who knew of this budget what we could not.
    ///
    /// What we let be spent meanwhile is not known to it, so the lower credit of both holds.
    pub fn take_over(&mut self, budget: Budget, credit: f64, grants: &[Grant], now_ns: i64) {
        self.advance(budget, now_ns);
        self.credit = self.credit.min(credit);
        let own = self.grants.get_or_insert_default();
        for grant in grants {
            let known: u64 =
                own.iter().filter(|one| one.holder == grant.holder).map(|one| one.credits).sum();
            // It has been reported to us already.
            if known < grant.credits && own.len() < GRANTS_MAX {
                let at = own.partition_point(|one| one.expires_ns <= grant.expires_ns);
                own.insert(at, Grant { credits: grant.credits - known, ..*grant });
            }
        }
        self.keep_invariant(budget);
    }

    pub fn credit(&self) -> f64 {
        self.credit
    }

    /// Credit that peers may still spend.
    pub fn leased(&self) -> u64 {
        self.leases().map(|grant| grant.credits).sum()
    }

    /// Credit that is out: leased or held.
    fn reserved(&self) -> u64 {
        self.grants().map(|grant| grant.credits).sum()
    }

    /// Leases that are out.
    pub fn leases(&self) -> impl Iterator<Item = &Grant> {
        self.grants().filter(|grant| grant.holder != HELD)
    }

    fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().flat_map(|grants| grants.iter())
    }

    /// Nothing is owed, so that a new account would say the same.
    pub fn is_full(&self, budget: Budget) -> bool {
        self.credit >= budget.burst as f64 && self.reserved() == 0
    }

    /// When nothing is owed any more if nothing is spent, with what is out counted as spent.
    pub fn full_at_ns(&self, budget: Budget) -> i64 {
        let missing = budget.burst as f64 - self.credit;
        self.at_ns.saturating_add(fill_ns(missing, budget.rate) as i64)
    }

    fn refill(&mut self, budget: Budget, to_ns: i64) {
        if to_ns <= self.at_ns {
            return;
        }
        let elapsed_s = (to_ns - self.at_ns) as f64 / NANOS_PER_SEC;
        let last_ns = std::mem::replace(&mut self.at_ns, to_ns);
        let brim = budget.burst.saturating_sub(self.reserved()) as f64;
        let filled = self.credit + budget.rate * elapsed_s;
        self.credit = filled.min(brim);
        self.headroom.note(brim - self.credit, last_ns, to_ns);
    }

    /// A burst that was lowered, or a lease that we did not know of.
    fn keep_invariant(&mut self, budget: Budget) {
        let brim = budget.burst.saturating_sub(self.reserved()) as f64;
        self.credit = self.credit.min(brim);
    }

    fn next_due_ns(&self) -> Option<i64> {
        let first = self.grants.as_ref().and_then(|grants| grants.front());
        first.map(|grant| grant.expires_ns)
    }

    /// The credit of a lease that nobody can spend any more flows in again at the rate.
    fn release(&mut self, now_ns: i64) {
        let Some(grants) = &mut self.grants else { return };
        while grants.front().is_some_and(|grant| grant.expires_ns <= now_ns) {
            grants.pop_front();
        }
        if grants.is_empty() {
            self.grants = None;
        }
    }

    fn short(&self, budget: Budget, n: u64) -> Short {
        if n > budget.burst {
            return Short { wait_ns: None };
        }
        let missing = n as f64 - self.credit;
        let fill_ns = fill_ns(missing, budget.rate);
        if fill_ns == f64::INFINITY {
            return Short { wait_ns: None };
        }
        // No refill gets above the brim; what is out has to come back first.
        let brim = budget.burst.saturating_sub(self.reserved());
        let room_ns = match n > brim {
            true => self.next_due_ns().map_or(0, |due_ns| due_ns.saturating_sub(self.at_ns)),
            false => 0,
        };
        Short { wait_ns: Some((fill_ns.ceil() as u64).max(room_ns.max(0) as u64)) }
    }
}

fn held_until(made_ns: i64) -> i64 {
    (made_ns.saturating_add(SETTLE_NS).div_euclid(HOLD_STEP_NS) + 1).saturating_mul(HOLD_STEP_NS)
}

/// Nanoseconds in which `missing` credits flow in.
fn fill_ns(missing: f64, rate: f64) -> f64 {
    if missing <= 0.0 {
        0.0
    } else if rate > 0.0 {
        missing / rate * NANOS_PER_SEC
    } else {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests;
