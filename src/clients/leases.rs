//! What we hold of budgets that others own: leases, denials, and how much is used.
//!
//! Each budget has its place in a shard, found by its hash, under the shard's lock for one look-up
//! and one subtraction. A lease ends by our own clock, counted from when it was asked for, so
//! before its owner takes it for ended.
//!
//! The last part of the newest lease is a standing reserve: it is spent only while the owner
//! cannot be reached. It is credit like any other, so it is always inside the owner's invariant.

use std::hash::BuildHasher as _;

use crossbeam::utils::CachePadded;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::account::{LEASE_NS, Wish};
use super::key::{Key, KeyHash, OwnedKey};
use super::recent::{Recent, Slot};
use crate::sync::{Mutex, MutexGuard};

const SHARDS: usize = 64;
/// Most budgets of a shard; some 260,000 in all, at about 250 bytes each with their names.
///
/// A budget that finds no room once the idle ones are gone is checked with its owner at every
/// request: slower, and as exact.
const SHARD_ENTRIES_MAX: usize = 4096;
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
const RENEW_REST_NS: i64 = 250_000_000;
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
pub struct Leases {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// Seeded by chance in each process.
    names: DefaultHashBuilder,
}

/// What an entry is found by. Names themselves are not compared, which would wait for two more
/// places in memory: nobody who does not know this process' seed finds two that are alike in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    hash: KeyHash,
    check: u64,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashTable<Entry>,
    /// When a full shard may be searched for idle entries again.
    search_again_ns: i64,
}

#[derive(Debug)]
struct Entry {
    name: Name,
    key: OwnedKey,
    /// The oldest first.
    leases: [Lease; LEASES_MAX],
    leases_len: usize,
    next_id: u32,
    recent: Recent,
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

#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    id: u32,
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
    /// Of the latest request.
    size: u64,
}

/// A charge on leases. Only what came from the last of them can go back: in it the rest would
/// outlive the lease that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCharge {
    lease: u32,
    part: u64,
    made: Slot,
}

impl LeaseCharge {
    /// Parts with up to `credits` of what can go back.
    pub fn split(&mut self, credits: u64) -> Self {
        let part = credits.min(self.part);
        self.part -= part;
        Self { part, ..*self }
    }
}

/// What came of spending from what we hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// Paid. With a wish it is time to renew.
    Paid(LeaseCharge, Option<Wish>),
    /// The owner has said so, to a request no larger.
    Denied { wait_ns: Option<u64> },
    /// The owner has to be asked.
    Ask(Wish),
}

impl Default for Leases {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::new(Mutex::new(Shard::default())));
        Self { shards: shards.collect(), names: DefaultHashBuilder::default() }
    }
}

impl Leases {
    /// Spends `n` from a lease.
    #[inline]
    pub fn spend(&self, key: Key<'_>, hash: KeyHash, n: u64, now_ns: i64) -> Spent {
        let name = self.name(key, hash);
        let mut shard = self.shard(hash);
        match shard.find(name) {
            Some(entry) => entry.spend(n, now_ns),
            None => {
                if let Some(entry) = shard.open(key, name, now_ns) {
                    entry.usage.note(n, now_ns);
                }
                Spent::Ask(Wish { spend: n, want: 0, least: n })
            }
        }
    }

    /// Spends from all that is there, the reserve too: the owner is lost.
    pub fn spend_reserve(
        &self,
        key: Key<'_>,
        hash: KeyHash,
        n: u64,
        now_ns: i64,
    ) -> Option<LeaseCharge> {
        self.shard(hash).find(self.name(key, hash))?.pay(n, 0, now_ns)
    }

    /// A lease that was asked for at `asked_ns` has been granted; it may be of nothing.
    pub fn granted(&self, key: Key<'_>, hash: KeyHash, credits: u64, asked_ns: i64, now_ns: i64) {
        if let Some(entry) = self.shard(hash).find(self.name(key, hash)) {
            entry.granted(credits, asked_ns, now_ns);
        }
    }

    /// Requests of at least `size` are denied.
    pub fn denied(
        &self,
        key: Key<'_>,
        hash: KeyHash,
        size: u64,
        wait_ns: Option<u64>,
        now_ns: i64,
    ) {
        if let Some(entry) = self.shard(hash).find(self.name(key, hash)) {
            entry.is_asked = false;
            let wait_ns = wait_ns.map(|wait| i64::try_from(wait).unwrap_or(i64::MAX));
            let held_ns = wait_ns.unwrap_or(i64::MAX).clamp(DENIAL_NS_MIN, DENIAL_NS_MAX);
            entry.denial = Some(Denial {
                size,
                until_ns: now_ns.saturating_add(held_ns),
                wait_until_ns: wait_ns.map(|wait_ns| now_ns.saturating_add(wait_ns)),
            });
        }
    }

    /// A question came to nothing.
    pub fn unanswered(&self, key: Key<'_>, hash: KeyHash, now_ns: i64) {
        if let Some(entry) = self.shard(hash).find(self.name(key, hash)) {
            entry.is_asked = false;
            entry.renew_from_ns = now_ns.saturating_add(RENEW_REST_NS);
        }
    }

    /// Returns a charge to the lease that it came from, if that lives; else to nobody.
    pub fn give_back(&self, key: Key<'_>, hash: KeyHash, charge: LeaseCharge, now_ns: i64) {
        let mut shard = self.shard(hash);
        let Some(entry) = shard.find(self.name(key, hash)) else { return };
        entry.drop_expired(now_ns);
        let leases = &mut entry.leases[..entry.leases_len];
        let lease = leases.iter_mut().find(|lease| lease.id == charge.lease);
        if let Some(lease) = lease
            && entry.recent.take_back(charge.part, charge.made, now_ns)
        {
            lease.left += charge.part;
        }
    }

    /// What we may still spend of a budget, charges that may come back included.
    pub fn holding(&self, key: Key<'_>, hash: KeyHash, now_ns: i64) -> u64 {
        self.shard(hash).find(self.name(key, hash)).map_or(0, |entry| entry.holding(now_ns))
    }

    /// The budgets for which `is_moved` holds and of which something is held.
    pub fn held_where(
        &self,
        now_ns: i64,
        is_moved: impl Fn(KeyHash) -> bool,
    ) -> Vec<(OwnedKey, KeyHash)> {
        let mut held = Vec::new();
        for shard in &self.shards {
            for entry in lock(shard).entries.iter_mut() {
                if is_moved(entry.name.hash) {
                    // What its last owner denied is not for the next to keep.
                    entry.denial = None;
                    entry.is_asked = false;
                    if entry.holding(now_ns) > 0 {
                        held.push((entry.key.clone(), entry.name.hash));
                    }
                }
            }
        }
        held
    }

    /// Forgets a budget and what is held of it.
    pub fn drop_key(&self, key: Key<'_>, hash: KeyHash) {
        let name = self.name(key, hash);
        let mut shard = self.shard(hash);
        if let Ok(found) = shard.entries.find_entry(hash.0, |entry| entry.name == name) {
            found.remove();
        }
    }

    /// Forgets budgets that are idle.
    pub fn sweep(&self, now_ns: i64) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.entries.retain(|entry| !entry.is_idle(now_ns));
            let len = shard.entries.len();
            if shard.entries.capacity() > 4 * len {
                shard.entries.shrink_to(2 * len, |entry| entry.name.hash.0);
            }
        }
    }

    /// Budgets that are known, and credit that is held of them.
    pub fn counts(&self, now_ns: i64) -> (usize, u64) {
        let (mut len, mut credits) = (0, 0);
        for shard in &self.shards {
            let mut shard = lock(shard);
            len += shard.entries.len();
            credits += shard.entries.iter_mut().map(|entry| entry.holding(now_ns)).sum::<u64>();
        }
        (len, credits)
    }

    #[inline]
    fn name(&self, key: Key<'_>, hash: KeyHash) -> Name {
        let Key { kind, tenant, client } = key;
        Name { hash, check: self.names.hash_one((kind, tenant, client)) }
    }

    fn shard(&self, hash: KeyHash) -> MutexGuard<'_, Shard> {
        // The table takes the lowest and the topmost bits, the ring the upper half.
        lock(&self.shards[(hash.0 >> 20) as usize % SHARDS])
    }
}

impl Shard {
    #[inline]
    fn find(&mut self, name: Name) -> Option<&mut Entry> {
        self.entries.find_mut(name.hash.0, |entry| entry.name == name)
    }

    fn open(&mut self, key: Key<'_>, name: Name, now_ns: i64) -> Option<&mut Entry> {
        if self.entries.len() >= SHARD_ENTRIES_MAX && now_ns >= self.search_again_ns {
            self.entries.retain(|entry| !entry.is_idle(now_ns));
            self.search_again_ns = now_ns.saturating_add(RENEW_REST_NS);
        }
        if self.entries.len() >= SHARD_ENTRIES_MAX {
            return None;
        }
        let entry = Entry::new(key.to_owned(), name, now_ns);
        let entry = self.entries.insert_unique(name.hash.0, entry, |entry| entry.name.hash.0);
        Some(entry.into_mut())
    }
}

impl Entry {
    fn new(key: OwnedKey, name: Name, now_ns: i64) -> Self {
        Self {
            name,
            key,
            leases: [Lease::default(); LEASES_MAX],
            leases_len: 0,
            next_id: 0,
            recent: Recent::default(),
            granted: 0,
            reserve: 0,
            denial: None,
            usage: Use { since_ns: now_ns, ..Use::default() },
            is_asked: false,
            renew_from_ns: now_ns,
        }
    }

    #[inline]
    fn spend(&mut self, n: u64, now_ns: i64) -> Spent {
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

    /// Pays from the oldest leases first, leaving `reserve` in the newest.
    #[inline]
    fn pay(&mut self, n: u64, reserve: u64, now_ns: i64) -> Option<LeaseCharge> {
        self.drop_expired(now_ns);
        let leases = &mut self.leases[..self.leases_len];
        let left: u64 = leases.iter().map(|lease| lease.left).sum();
        if left < n.saturating_add(reserve) || leases.is_empty() {
            return None;
        }
        let mut missing = n;
        let mut last = (0, 0);
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

    fn renewal(&mut self, n: u64, now_ns: i64) -> Option<Wish> {
        if self.is_asked || now_ns < self.renew_from_ns {
            return None;
        }
        let left: u64 = self.leases[..self.leases_len].iter().map(|lease| lease.left).sum();
        if left as f64 >= self.granted as f64 * RENEW_BELOW {
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

    fn granted(&mut self, credits: u64, asked_ns: i64, now_ns: i64) {
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
        self.next_id = self.next_id.wrapping_add(1);
        self.granted = credits;
        let size = self.usage.size;
        let keeps = credits >= size.saturating_mul(RESERVE_FROM);
        self.reserve = if keeps { (credits / RESERVE_PART).max(size) } else { 0 };
    }

    fn holding(&mut self, now_ns: i64) -> u64 {
        self.drop_expired(now_ns);
        self.recent.advance(now_ns);
        let left: u64 = self.leases[..self.leases_len].iter().map(|lease| lease.left).sum();
        left + self.recent.sum()
    }

    #[inline]
    fn drop_expired(&mut self, now_ns: i64) {
        while self.leases_len > 0 && self.leases[0].expires_ns <= now_ns {
            self.leases.rotate_left(1);
            self.leases_len -= 1;
        }
    }

    fn is_idle(&self, now_ns: i64) -> bool {
        let holds = self.leases[..self.leases_len].iter().any(|lease| lease.expires_ns > now_ns);
        let is_denied = self.denial.is_some_and(|denial| denial.until_ns > now_ns);
        !holds && !is_denied && self.usage.last_ns.saturating_add(IDLE_NS) <= now_ns
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

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().expect("no panic under this lock")
}

#[cfg(test)]
mod tests;
