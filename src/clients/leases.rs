//! What we hold of budgets that others own: leases, denials, and how much is used.
//!
//! Each budget has its place in a shard, found by its hash, under the shard's lock for one look-up
//! and one subtraction: most requests are paid from a pocket beside the name, and only the first of
//! a slot of time, and those with which something else is to be decided, look at the entry. A lease
//! ends by our own clock, counted from when it was asked for, so before its owner takes it for
//! ended.
//!
//! The last part of the newest lease is a standing reserve: it is spent only while the owner
//! cannot be reached. It is credit like any other, so it is always inside the owner's invariant.

use std::hash::BuildHasher as _;

use crossbeam::utils::CachePadded;
use hashbrown::DefaultHashBuilder;

use super::account::Wish;
use super::key::{Key, KeyHash, OwnedKey};
use super::recent::Slot;
use crate::sync::{Mutex, MutexGuard};
use entry::{Entry, RENEW_REST_NS};
use table::{At, Name, Table};

pub use entry::LeaseCharge;

mod entry;
mod pocket;
mod table;

const SHARDS: usize = 64;
/// Most budgets of a shard; some 260,000 in all, at about 400 bytes each with their names.
///
/// A budget that finds no room once the idle ones are gone is checked with its owner at every
/// request: slower, and as exact.
const SHARD_ENTRIES_MAX: usize = 4096;

/// See the head of the file.
#[derive(Debug)]
pub struct Leases {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// Seeded by chance in each process, so that nobody finds two budgets that it takes for one:
    /// they would have to be alike in this hash and in their keyed one.
    names: DefaultHashBuilder,
}

#[derive(Debug, Default)]
struct Shard {
    table: Table,
    /// When a full shard may be searched for idle entries again.
    search_again_ns: i64,
    decided: Decided,
}

/// How many requests were decided by what we hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// By leases, and by denials that are believed.
    pub paid: u64,
    pub denied: u64,
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

/// A budget that is held for a look, and its shard with it.
#[derive(Debug)]
pub struct Look<'a> {
    shard: MutexGuard<'a, Shard>,
    at: Option<At>,
    name: Name,
}

impl Look<'_> {
    /// Spends `n`, or says why not. The key and its hash are those of the budget.
    #[inline(never)]
    pub fn spend(mut self, key: Key<'_>, hash: KeyHash, n: u64, now_ns: i64) -> Spent {
        let shard = &mut *self.shard;
        let Some(at) = self.at else {
            if let Some(entry) = shard.open(key, hash, self.name, now_ns) {
                entry.opened(n, now_ns);
            }
            return Spent::Ask(Wish { spend: n, want: 0, least: n });
        };
        let spent = shard.table.with(at, now_ns, |entry| entry.spend(n, now_ns));
        match spent {
            Spent::Paid(..) => shard.decided.paid += 1,
            Spent::Denied { .. } => shard.decided.denied += 1,
            Spent::Ask(_) => {}
        }
        spent
    }
}

impl Default for Leases {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::new(Mutex::new(Shard::default())));
        Self { shards: shards.collect(), names: DefaultHashBuilder::default() }
    }
}

impl Leases {
    /// Spends `n` from a lease, if nothing else has to be decided; else the budget has to be
    /// looked at.
    #[inline]
    pub fn spend(
        &self,
        key: Key<'_>,
        hash: KeyHash,
        n: u64,
        now_ns: i64,
    ) -> Result<LeaseCharge, Look<'_>> {
        let name = self.name(key, hash);
        let mut shard = self.shard(hash);
        let at = shard.table.find(name);
        if let Some(at) = at
            && let Some(charge) = shard.table.pocket(at).pay(n, Slot::of(now_ns))
        {
            shard.decided.paid += 1;
            return Ok(charge);
        }
        Err(Look { shard, at, name })
    }

    /// Spends from all that is there, the reserve too: the owner is lost.
    pub fn spend_reserve(
        &self,
        key: Key<'_>,
        hash: KeyHash,
        n: u64,
        now_ns: i64,
    ) -> Option<LeaseCharge> {
        self.with(key, hash, now_ns, |entry| entry.pay(n, 0, now_ns)).flatten()
    }

    /// A lease that was asked for at `asked_ns` has been granted; it may be of nothing.
    pub fn granted(&self, key: Key<'_>, hash: KeyHash, credits: u64, asked_ns: i64, now_ns: i64) {
        self.with(key, hash, now_ns, |entry| entry.granted(credits, asked_ns, now_ns));
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
        self.with(key, hash, now_ns, |entry| entry.denied(size, wait_ns, now_ns));
    }

    /// A question came to nothing.
    pub fn unanswered(&self, key: Key<'_>, hash: KeyHash, now_ns: i64) {
        self.with(key, hash, now_ns, |entry| entry.unanswered(now_ns));
    }

    /// Returns a charge to the lease that it came from, if that lives; else to nobody.
    pub fn give_back(&self, key: Key<'_>, hash: KeyHash, charge: LeaseCharge, now_ns: i64) {
        self.with(key, hash, now_ns, |entry| entry.give_back(charge, now_ns));
    }

    /// What we may still spend of a budget, charges that may come back included.
    pub fn holding(&self, key: Key<'_>, hash: KeyHash, now_ns: i64) -> u64 {
        self.with(key, hash, now_ns, |entry| entry.holding(now_ns)).unwrap_or(0)
    }

    /// The budgets for which `is_moved` holds and of which something is held.
    pub fn held_where(
        &self,
        now_ns: i64,
        is_moved: impl Fn(KeyHash) -> bool,
    ) -> Vec<(OwnedKey, KeyHash)> {
        let mut held = Vec::new();
        for shard in &self.shards {
            lock(shard).table.each(now_ns, |entry| {
                let hash = entry.hash();
                if is_moved(hash) {
                    entry.owner_changed();
                    if entry.holding(now_ns) > 0 {
                        held.push((entry.key().clone(), hash));
                    }
                }
            });
        }
        held
    }

    /// Forgets a budget and what is held of it.
    pub fn drop_key(&self, key: Key<'_>, hash: KeyHash) {
        let name = self.name(key, hash);
        let mut shard = self.shard(hash);
        if let Some(at) = shard.table.find(name) {
            shard.table.remove(at);
        }
    }

    /// Forgets budgets that are idle.
    pub fn sweep(&self, now_ns: i64) {
        for shard in &self.shards {
            lock(shard).table.retain(now_ns, |entry| !entry.is_idle(now_ns));
        }
    }

    /// Budgets that are known, and credit that is held of them.
    pub fn counts(&self, now_ns: i64) -> (usize, u64) {
        let (mut len, mut credits) = (0, 0);
        for shard in &self.shards {
            let mut shard = lock(shard);
            len += shard.table.len();
            shard.table.each(now_ns, |entry| credits += entry.holding(now_ns));
        }
        (len, credits)
    }

    /// Requests that were decided here since the start.
    pub fn decided(&self) -> Decided {
        let mut sum = Decided::default();
        for shard in &self.shards {
            let decided = lock(shard).decided;
            sum.paid += decided.paid;
            sum.denied += decided.denied;
        }
        sum
    }

    #[inline]
    fn name(&self, key: Key<'_>, hash: KeyHash) -> Name {
        let Key { kind, tenant, client } = key;
        Name::new(self.names.hash_one((kind, tenant, client)).wrapping_add(hash.0))
    }

    fn with<T>(
        &self,
        key: Key<'_>,
        hash: KeyHash,
        now_ns: i64,
        act: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        let mut shard = self.shard(hash);
        let at = shard.table.find(self.name(key, hash))?;
        Some(shard.table.with(at, now_ns, act))
    }

    fn shard(&self, hash: KeyHash) -> MutexGuard<'_, Shard> {
        // The table takes the lowest and the topmost bits, the ring the upper half.
        lock(&self.shards[(hash.0 >> 20) as usize % SHARDS])
    }
}

impl Shard {
    fn open(&mut self, key: Key<'_>, hash: KeyHash, name: Name, now_ns: i64) -> Option<&mut Entry> {
        if self.table.len() >= SHARD_ENTRIES_MAX && now_ns >= self.search_again_ns {
            self.table.retain(now_ns, |entry| !entry.is_idle(now_ns));
            self.search_again_ns = now_ns.saturating_add(RENEW_REST_NS);
        }
        if self.table.len() >= SHARD_ENTRIES_MAX {
            return None;
        }
        Some(self.table.insert(name, Box::new(Entry::new(key.to_owned(), hash, now_ns))))
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().expect("no panic under this lock")
}

#[cfg(all(test, feature = "model"))]
mod models;
#[cfg(all(test, not(feature = "model")))]
mod tests;
