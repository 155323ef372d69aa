//! One budget that another owns: what is held of it, and how much is used.
//!
//! An entry is looked at once per slot of time; the rest of the slot's requests are paid from the
//! pocket that it fills. Whoever looks at it settles the pocket first.

use super::Spent;
use super::pocket::Pocket;
use crate::clients::account::{LEASE_NS, Wish};
use crate::clients::key::{KeyHash, OwnedKey};
use crate::clients::recent::{Recent, Slot};

/// Leases of one budget that we hold at once. They are renewed when less than a third is left, so
/// a fourth comes before the first has ended only if demand has grown; then the oldest goes.
const LEASES_MAX: usize = 4;
/// Clocks that count the same time differ by far less than this part of it.
const DRIFT_PART: i64 = 50;
/// A lease is asked for what is used in this time. It is asked for while a part of the one before
/// is left, which is spent first; after both there is some of its life left, for a use that slows
/// down: what expires unspent is lost to the client.
const HORIZON_NS: i64 = 2_000_000_000;
/// A lease is renewed when less than this part of it is left.
const RENEW_BELOW: f64 = 0.3;
/// How long a renewal that brought nothing is not tried again.
pub(super) const RENEW_REST_NS: i64 = 250_000_000;
/// Part of a lease that is kept for when its owner is lost.
const RESERVE_PART: u64 = 8;
/// A lease keeps a reserve only if it holds so many requests at least.
const RESERVE_FROM: u64 = 4;
/// A first lease is for so many requests.
const FIRST_REQUESTS: u64 = 2;
/// A lease is larger than the one before by this part of it at most, or by one request.
///
/// What is spent of leases and not reported yet is reserved all the same, and an account at its
/// brim loses that much refill. Reports make room as fast as it is used, and refill takes it up
/// until the next report: if that is not much later than the last, nothing is lost to a client
/// that uses more than its rate.
const GROWTH_PART: u64 = 4;
/// How long a denial is believed at most: a limit that was raised, or a debt that was forgiven, is
/// noticed by then, and a flood costs one question in that time.
const DENIAL_NS_MAX: i64 = 1_000_000_000;
/// And at least: a client far over its limit asks a hundred times a second then, however small its
/// requests are. What flows in meanwhile is there for the next.
const DENIAL_NS_MIN: i64 = 10_000_000;
/// Budgets that were not used for so long, and hold nothing, are forgotten.
const IDLE_NS: i64 = 2 * LEASE_NS;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Entry {
    hash: KeyHash,
    key: OwnedKey,
    /// The oldest first.
    leases: [Lease; LEASES_MAX],
    leases_len: usize,
    next_id: LeaseId,
    recent: Recent,
    /// What of the oldest lease is in the pocket, and for when.
    pocketed: u32,
    pocketed_for: Slot,
    /// Size of the newest lease when it was granted, and what of it is kept.
    granted: u64,
    reserve: u64,
    denial: Option<Denial>,
    usage: Use,
    /// A renewal is under way.
    is_asked: bool,
    /// No renewal before that.
    renew_from_ns: i64,
}

/// Tells the leases of a budget apart: no thousand of them are granted in the time in which a
/// charge may come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseId(u16);

#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    id: LeaseId,
    left: u64,
    expires_ns: i64,
}

/// Requests of at least `size` are denied until `until_ns`.
#[derive(Clone, Copy, Debug)]
struct Denial {
    size: u64,
    until_ns: i64,
    /// When there would be credit.
    wait_until_ns: Option<i64>,
}

/// How much is used.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Credits per second; 0 before the second request.
    rate: f64,
    /// Since `since_ns`.
    spent: u64,
    since_ns: i64,
    last_ns: i64,
    /// Of the latest request that was not paid from a pocket.
    size: u64,
}

/// A charge on leases. Only what came from the last of them can go back: in it the rest would
/// outlive the lease that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCharge {
    lease: LeaseId,
    part: u64,
    made: Slot,
}

impl LeaseCharge {
    pub(super) fn new(lease: LeaseId, part: u64, made: Slot) -> Self {
        Self { lease, part, made }
    }

    /// Parts with up to `credits` of what can go back.
    pub fn split(&mut self, credits: u64) -> Self {
        let part = credits.min(self.part);
        self.part -= part;
        Self { part, ..*self }
    }
}

impl LeaseId {
    pub(super) const BITS: u32 = 10;

    pub(super) fn of_bits(bits: u32) -> Self {
        Self((bits & ((1 << Self::BITS) - 1)) as u16)
    }

    pub(super) fn number(self) -> u16 {
        self.0
    }

    fn next(self) -> Self {
        Self::of_bits(u32::from(self.0) + 1)
    }
}

impl Entry {
    pub(super) fn new(key: OwnedKey, hash: KeyHash, now_ns: i64) -> Self {
        Self {
            hash,
            key,
            leases: [Lease::default(); LEASES_MAX],
            leases_len: 0,
            next_id: LeaseId::default(),
            recent: Recent::default(),
            pocketed: 0,
            pocketed_for: Slot::default(),
            granted: 0,
            reserve: 0,
            denial: None,
            usage: Use { since_ns: now_ns, ..Use::default() },
            is_asked: false,
            renew_from_ns: now_ns,
        }
    }

    pub(super) fn hash(&self) -> KeyHash {
        self.hash
    }

    pub(super) fn key(&self) -> &OwnedKey {
        &self.key
    }

    /// Accounts for what was spent from the pocket, which is given up.
    pub(super) fn settle(&mut self, pocket: Pocket) {
        let spent = self.pocketed.saturating_sub(pocket.left());
        self.pocketed = 0;
        if spent > 0 {
            // No lease has come or gone since the pocket was filled.
            self.leases[0].left -= u64::from(spent);
            self.recent.charge_in(self.pocketed_for, u64::from(spent));
            self.usage.spent += u64::from(spent);
            self.usage.last_ns = self.usage.last_ns.max(self.pocketed_for.begin_ns());
        }
    }

    /// What may be spent in this slot of time before the entry has to be looked at.
    pub(super) fn fill(&mut self, now_ns: i64) -> Pocket {
        self.recent.advance(now_ns);
        let slot = self.recent.slot();
        let lease = self.leases[0];
        if self.leases_len == 0 || lease.expires_ns < slot.end_ns() {
            return Pocket::default();
        }
        let may_renew = !self.is_asked && self.renew_from_ns < slot.end_ns();
        let renewal = if may_renew { (self.granted as f64 * RENEW_BELOW).ceil() as u64 } else { 0 };
        let spare = self.left().saturating_sub(self.reserve.max(renewal));
        let credits = spare.min(lease.left).try_into().unwrap_or(u32::MAX);
        (self.pocketed, self.pocketed_for) = (credits, slot);
        Pocket::new(credits, slot, lease.id)
    }

    pub(super) fn spend(&mut self, n: u64, now_ns: i64) -> Spent {
        self.usage.last_ns = now_ns;
        // While the owner has nothing to give, what is kept for its loss would only be lost.
        let is_denied = self.denial.is_some_and(|denial| now_ns < denial.until_ns);
        let reserve = if is_denied { 0 } else { self.reserve };
        if let Some(charge) = self.pay(n, reserve, now_ns) {
            self.usage.spent += n;
            self.usage.size = n;
            return Spent::Paid(charge, self.renewal(n, now_ns));
        }
        if let Some(denial) = self.denial {
            if now_ns < denial.until_ns && n >= denial.size {
                let wait = |until_ns: i64| until_ns.saturating_sub(now_ns).max(0) as u64;
                return Spent::Denied { wait_ns: denial.wait_until_ns.map(wait) };
            }
            if now_ns >= denial.until_ns {
                self.denial = None;
            }
        }
        self.usage.note(n, now_ns);
        Spent::Ask(Wish { spend: n, ..self.wish(n) })
    }

    /// A use that came before its entry was there.
    pub(super) fn opened(&mut self, n: u64, now_ns: i64) {
        self.usage.note(n, now_ns);
    }

    /// Pays from the oldest leases first, leaving `reserve` in the newest.
    pub(super) fn pay(&mut self, n: u64, reserve: u64, now_ns: i64) -> Option<LeaseCharge> {
        self.drop_expired(now_ns);
        let leases = &mut self.leases[..self.leases_len];
        let left: u64 = leases.iter().map(|lease| lease.left).sum();
        if left < n.saturating_add(reserve) || leases.is_empty() {
            return None;
        }
        let mut missing = n;
        let mut last = (LeaseId::default(), 0);
        for lease in leases {
            let part = missing.min(lease.left);
            lease.left -= part;
            missing -= part;
            last = (lease.id, part);
            if missing == 0 {
                break;
            }
        }
        let (lease, part) = last;
        Some(LeaseCharge { lease, part, made: self.recent.charge(part, now_ns) })
    }

    pub(super) fn granted(&mut self, credits: u64, asked_ns: i64, now_ns: i64) {
        self.is_asked = false;
        if credits == 0 {
            self.renew_from_ns = now_ns.saturating_add(RENEW_REST_NS);
            return;
        }
        self.denial = None;
        let expires_ns = asked_ns.saturating_add(LEASE_NS - LEASE_NS / DRIFT_PART);
        if expires_ns <= now_ns {
            return;
        }
        if self.leases_len == LEASES_MAX {
            self.leases.rotate_left(1);
            self.leases_len -= 1;
        }
        self.leases[self.leases_len] = Lease { id: self.next_id, left: credits, expires_ns };
        self.leases_len += 1;
        self.next_id = self.next_id.next();
        self.granted = credits;
        let size = self.usage.size;
        let keeps = credits >= size.saturating_mul(RESERVE_FROM);
        self.reserve = if keeps { (credits / RESERVE_PART).max(size) } else { 0 };
    }

    pub(super) fn denied(&mut self, size: u64, wait_ns: Option<u64>, now_ns: i64) {
        self.is_asked = false;
        let wait_ns = wait_ns.map(|wait| i64::try_from(wait).unwrap_or(i64::MAX));
        let held_ns = wait_ns.unwrap_or(i64::MAX).clamp(DENIAL_NS_MIN, DENIAL_NS_MAX);
        self.denial = Some(Denial {
            size,
            until_ns: now_ns.saturating_add(held_ns),
            wait_until_ns: wait_ns.map(|wait_ns| now_ns.saturating_add(wait_ns)),
        });
    }

    /// A question came to nothing.
    pub(super) fn unanswered(&mut self, now_ns: i64) {
        self.is_asked = false;
        self.renew_from_ns = now_ns.saturating_add(RENEW_REST_NS);
    }

    /// Another owner is asked from now on: what the last one denied is not for it to keep.
    pub(super) fn owner_changed(&mut self) {
        self.denial = None;
        self.is_asked = false;
    }

    pub(super) fn give_back(&mut self, charge: LeaseCharge, now_ns: i64) {
        self.drop_expired(now_ns);
        let leases = &mut self.leases[..self.leases_len];
        let lease = leases.iter_mut().find(|lease| lease.id == charge.lease);
        if let Some(lease) = lease
            && self.recent.take_back(charge.part, charge.made, now_ns)
        {
            lease.left += charge.part;
        }
    }

    /// What may still be spent, charges that may come back included.
    pub(super) fn holding(&mut self, now_ns: i64) -> u64 {
        self.drop_expired(now_ns);
        self.recent.advance(now_ns);
        self.left() + self.recent.sum()
    }

    pub(super) fn is_idle(&self, now_ns: i64) -> bool {
        let holds = self.leases[..self.leases_len].iter().any(|lease| lease.expires_ns > now_ns);
        let is_denied = self.denial.is_some_and(|denial| denial.until_ns > now_ns);
        !holds && !is_denied && self.usage.last_ns.saturating_add(IDLE_NS) <= now_ns
    }

    fn renewal(&mut self, n: u64, now_ns: i64) -> Option<Wish> {
        if self.is_asked || now_ns < self.renew_from_ns {
            return None;
        }
        if self.left() as f64 >= self.granted as f64 * RENEW_BELOW {
            return None;
        }
        self.usage.note(0, now_ns);
        let wish = self.wish(n);
        if wish.want == 0 {
            return None;
        }
        self.is_asked = true;
        Some(wish)
    }

    /// What is used in the horizon, if that is more than this request.
    fn wish(&self, n: u64) -> Wish {
        let used = (self.usage.rate * (HORIZON_NS as f64 / 1e9)) as u64;
        let before = if self.leases_len > 0 { self.granted } else { 0 };
        let grown = before.saturating_add((before / GROWTH_PART).max(n));
        let want = used.min(grown.max(n.saturating_mul(FIRST_REQUESTS)));
        let want = if want >= n.saturating_mul(2) { want } else { 0 };
        Wish { spend: 0, want, least: n }
    }

    fn left(&self) -> u64 {
        self.leases[..self.leases_len].iter().map(|lease| lease.left).sum()
    }

    fn drop_expired(&mut self, now_ns: i64) {
        while self.leases_len > 0 && self.leases[0].expires_ns <= now_ns {
            self.leases.rotate_left(1);
            self.leases_len -= 1;
        }
    }
}

impl Use {
    /// Takes `n` and what was spent so far into the rate.
    fn note(&mut self, n: u64, now_ns: i64) {
        /// A rate over less time says little.
        const SPAN_NS_MIN: i64 = 50_000_000;
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        if elapsed_ns >= SPAN_NS_MIN {
            let rate = self.spent as f64 / (elapsed_ns as f64 / 1e9);
            // Half of what was before it: a burst neither makes a lease nor ends one.
            self.rate = if self.rate == 0.0 { rate } else { (self.rate + rate) / 2.0 };
            (self.spent, self.since_ns) = (0, now_ns);
        }
        self.spent += n;
        self.last_ns = now_ns;
        if n > 0 {
            self.size = n;
        }
    }
}
