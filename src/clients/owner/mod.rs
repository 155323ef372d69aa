//! All budgets that we own.
//!
//! Accounts live in groups, one per tenant and kind, each under its own lock. Lock order: the
//! shard of groups, released before the group's own; never two groups.

mod accounts;
mod ghosts;
mod refused;

use std::cmp::Ordering as Order;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::account::{Account, Grant, Holder, Short, Wish};
use super::headroom::Slot;
use super::key::{Key, KeyHash, Kind, OwnedKey};
use crate::ratelimit::Budget;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

pub use accounts::{Evictions, Start, Terms};
pub use refused::REFUSED_MAX;

use accounts::Accounts;

const SHARDS: usize = 16;
/// Most groups of a shard. Over it the accounts of a further tenant are not kept, and each of its
/// requests is judged by a full bucket; that is counted. With limits per tenant there are as many
/// as tenants, which is far below.
const SHARD_GROUPS_MAX: usize = 16_384;

/// See the head of the file.
#[derive(Debug)]
pub struct Owner {
    shards: Box<[Mutex<HashTable<Arc<Group>>>]>,
    hasher: DefaultHashBuilder,
    untracked_total: AtomicU64,
    /// Of groups that are gone.
    evictions: Mutex<Evictions>,
}

#[derive(Debug)]
struct Group {
    kind: Kind,
    tenant: Arc<str>,
    accounts: Mutex<Accounts>,
}

/// One account, for pages and tests.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountView {
    pub client: String,
    pub credit: f64,
    /// Credit that peers hold.
    pub leased: u64,
    pub leases: usize,
    /// How long ago its owner refused a request of it, if that was lately.
    pub refused_ago_ms: Option<u64>,
}

/// When a charge was made, as an account wants to know it.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    slot: Slot,
    at_ns: i64,
}

/// An account on its way to another owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Moving {
    pub key: OwnedKey,
    pub hash: KeyHash,
    pub credit: f64,
    pub grants: Vec<Grant>,
}

impl Default for Owner {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(HashTable::new())).collect(),
            hasher: DefaultHashBuilder::default(),
            untracked_total: AtomicU64::new(0),
            evictions: Mutex::new(Evictions::default()),
        }
    }
}

impl Owner {
    /// Spends for a request of our own.
    pub fn spend(
        &self,
        budget: KeyedTerms<'_>,
        n: u64,
        now_ns: i64,
        start: impl FnOnce() -> Start,
    ) -> Result<Made, Short> {
        let spend = |account: &mut Account| {
            let slot = account.spend(budget.terms.budget, n, now_ns)?;
            if budget.key.kind.is_held() {
                account.hold(n, now_ns);
            }
            Ok(Made { slot, at_ns: now_ns })
        };
        self.with_noted(budget, now_ns, start, spend, Result::is_err)
    }

    pub fn give_back(&self, key: Key<'_>, hash: KeyHash, n: u64, made: Made, now_ns: i64) {
        self.with_known(key, hash, now_ns, |account, budget| {
            if key.kind.is_held() {
                account.let_go(budget, n, made.at_ns, now_ns);
            } else {
                account.give_back(budget, n, made.slot, now_ns);
            }
        });
    }

    /// A peer gives back what it asked for `age_ns` ago.
    pub fn refund(&self, key: Key<'_>, hash: KeyHash, n: u64, age_ns: i64, now_ns: i64) {
        self.with_known(key, hash, now_ns, |account, budget| {
            if key.kind.is_held() {
                // It was charged no earlier than it was asked for.
                account.let_go(budget, n, now_ns.saturating_sub(age_ns), now_ns);
            } else {
                account.refund(budget, n, age_ns, now_ns);
            }
        });
    }

    /// Takes credit that need not be there.
    pub fn debit(
        &self,
        budget: KeyedTerms<'_>,
        n: u64,
        now_ns: i64,
        start: impl FnOnce() -> Start,
    ) {
        let debit = |account: &mut Account| account.debit(budget.terms.budget, n, now_ns);
        self.with(budget, now_ns, start, debit);
    }

    /// Spends for a peer, and grants it a lease; with the credit that is left.
    pub fn grant(
        &self,
        budget: KeyedTerms<'_>,
        wish: Wish,
        holder: Holder,
        now_ns: i64,
        start: impl FnOnce() -> Start,
    ) -> Result<u64, Short> {
        let grant = |account: &mut Account| {
            let lease = account.grant(budget.terms.budget, wish, holder, now_ns)?;
            if budget.key.kind.is_held() {
                account.hold(wish.spend, now_ns);
            }
            Ok(lease)
        };
        self.with_noted(budget, now_ns, start, grant, Result::is_err)
    }

    /// A peer tells what it holds.
    pub fn report(
        &self,
        budget: KeyedTerms<'_>,
        holder: Holder,
        holding: u64,
        now_ns: i64,
        start: impl FnOnce() -> Start,
    ) {
        if holding == 0 && self.find(budget.key).is_none() {
            return;
        }
        let report = |account: &mut Account| {
            account.report(budget.terms.budget, holder, holding, now_ns);
        };
        self.with(budget, now_ns, start, report);
    }

    /// Takes over an account that another owner had.
    pub fn take_over(&self, terms: Terms, moving: &Moving, now_ns: i64) {
        let key = moving.key.as_key();
        let budget = KeyedTerms { key, hash: moving.hash, terms };
        let take_over = |account: &mut Account| {
            account.take_over(terms.budget, moving.credit, &moving.grants, now_ns);
        };
        self.with(budget, now_ns, || Start::Full, take_over);
    }

    /// Takes out all accounts that are not ours any more.
    pub fn hand_over(&self, now_ns: i64, is_ours: impl Fn(KeyHash) -> bool) -> Vec<Moving> {
        let mut moving = Vec::new();
        for group in self.groups() {
            let mut accounts = lock(&group.accounts);
            let budget = accounts.terms().budget;
            for (hash, mut entry) in accounts.take_out_where(|hash| !is_ours(hash)) {
                entry.account.advance(budget, now_ns);
                if entry.account.is_full(budget) {
                    continue;
                }
                moving.push(Moving {
                    key: OwnedKey {
                        kind: group.kind,
                        tenant: Arc::clone(&group.tenant),
                        client: (*entry.client).into(),
                    },
                    hash,
                    credit: entry.account.credit(),
                    grants: entry.account.leases().copied().collect(),
                });
            }
        }
        moving
    }

    /// The account as it stands; `None` while nothing of its budget is owed, and nothing of it was
    /// refused lately.
    pub fn view(&self, key: Key<'_>, hash: KeyHash, now_ns: i64) -> Option<AccountView> {
        let group = self.find(key)?;
        let mut accounts = lock(&group.accounts);
        let budget = accounts.terms().budget;
        let refused_ago_ns = accounts.refused.ago_ns(hash, key.client, now_ns);
        if accounts.find(hash, key.client).is_none() {
            return Some(AccountView::full(key.client, budget, refused_ago_ns?));
        }
        let account = accounts.get(hash, key.client, now_ns, || Start::Full);
        account.advance(budget, now_ns);
        Some(AccountView::of(key.client, account, refused_ago_ns))
    }

    /// The accounts with the least credit, up to `len_max`, the poorest first; after those that owe
    /// something those that were refused lately.
    pub fn poorest(
        &self,
        kind: Kind,
        tenant: &str,
        len_max: usize,
        now_ns: i64,
    ) -> Vec<AccountView> {
        let Some(group) = self.find(Key { kind, tenant, client: "" }) else { return Vec::new() };
        let mut accounts = lock(&group.accounts);
        let budget = accounts.terms().budget;
        accounts.advance_all(now_ns);
        let refused = &accounts.refused;
        let owes = accounts.iter().filter(|entry| !entry.account.is_full(budget));
        let mut views: Vec<_> = owes
            .map(|entry| {
                let refused_ago_ns = refused.ago_ns(entry.hash(), &entry.client, now_ns);
                AccountView::of(&entry.client, &entry.account, refused_ago_ns)
            })
            .collect();
        for (hash, client, ago_ns) in refused.lately(now_ns) {
            if accounts.find(hash, client).is_none_or(|account| account.is_full(budget)) {
                views.push(AccountView::full(client, budget, ago_ns));
            }
        }
        drop(accounts);
        views.sort_unstable_by(AccountView::by_need);
        views.truncate(len_max);
        views
    }

    /// Forgets what is owed; `false` when nothing was.
    pub fn reset(&self, key: Key<'_>, hash: KeyHash) -> bool {
        let Some(group) = self.find(key) else { return false };
        let removed = lock(&group.accounts).remove(hash, key.client);
        removed.is_some()
    }

    /// Drops what is owed nothing, and groups of which nothing is left.
    pub fn sweep(&self, now_ns: i64) {
        for shard in &self.shards {
            let groups: Vec<_> = lock(shard).iter().cloned().collect();
            for group in groups {
                lock(&group.accounts).sweep(now_ns);
            }
            let mut gone = Evictions::default();
            lock(shard).retain(|group| {
                // Somebody who holds it is about to open an account in it.
                let mut accounts = lock(&group.accounts);
                let stays = Arc::strong_count(group) > 1 || !accounts.is_idle(now_ns);
                if !stays {
                    gone.add(std::mem::take(&mut accounts.evictions));
                }
                stays
            });
            lock(&self.evictions).add(gone);
        }
    }

    pub fn counts(&self) -> OwnerCounts {
        let mut counts = OwnerCounts {
            untracked: self.untracked_total.load(Ordering::Relaxed),
            evictions: *lock(&self.evictions),
            ..OwnerCounts::default()
        };
        for group in self.groups() {
            let accounts = lock(&group.accounts);
            counts.evictions.add(accounts.evictions);
            counts.accounts += accounts.len();
        }
        counts
    }

    /// Whoever's account is gone owes no less for it than its ghost says.
    fn with_known(
        &self,
        key: Key<'_>,
        hash: KeyHash,
        now_ns: i64,
        act: impl FnOnce(&mut Account, Budget),
    ) {
        let Some(group) = self.find(key) else { return };
        let mut accounts = lock(&group.accounts);
        let budget = accounts.terms().budget;
        if accounts.find(hash, key.client).is_some() {
            act(accounts.get(hash, key.client, now_ns, || Start::Full), budget);
        }
    }

    fn with<T>(
        &self,
        budget: KeyedTerms<'_>,
        now_ns: i64,
        start: impl FnOnce() -> Start,
        act: impl FnOnce(&mut Account) -> T,
    ) -> T {
        self.with_noted(budget, now_ns, start, act, |_| false)
    }

    /// The same, noting what `is_refused` says was refused.
    fn with_noted<T>(
        &self,
        budget: KeyedTerms<'_>,
        now_ns: i64,
        start: impl FnOnce() -> Start,
        act: impl FnOnce(&mut Account) -> T,
        is_refused: impl FnOnce(&T) -> bool,
    ) -> T {
        let KeyedTerms { key, hash, terms } = budget;
        match self.group(key, terms) {
            Some(group) => {
                let mut accounts = lock(&group.accounts);
                accounts.set_terms(terms, now_ns);
                let outcome = act(accounts.get(hash, key.client, now_ns, start));
                if is_refused(&outcome) {
                    accounts.refused.note(hash, key.client, now_ns);
                }
                outcome
            }
            None => {
                self.untracked_total.fetch_add(1, Ordering::Relaxed);
                act(&mut Account::new(terms.budget.burst as f64, now_ns))
            }
        }
    }

    fn group(&self, key: Key<'_>, terms: Terms) -> Option<Arc<Group>> {
        let hash = self.hash(key.kind, key.tenant);
        let mut shard = self.shard(hash);
        if let Some(group) = shard.find(hash, |group| group.is_of(key)) {
            return Some(Arc::clone(group));
        }
        if shard.len() >= SHARD_GROUPS_MAX {
            return None;
        }
        let group = Arc::new(Group {
            kind: key.kind,
            tenant: key.tenant.into(),
            accounts: Mutex::new(Accounts::new(terms)),
        });
        let rehash = |group: &Arc<Group>| self.hash(group.kind, &group.tenant);
        shard.insert_unique(hash, Arc::clone(&group), rehash);
        Some(group)
    }

    fn find(&self, key: Key<'_>) -> Option<Arc<Group>> {
        let hash = self.hash(key.kind, key.tenant);
        self.shard(hash).find(hash, |group| group.is_of(key)).cloned()
    }

    fn groups(&self) -> Vec<Arc<Group>> {
        let mut groups = Vec::new();
        for shard in &self.shards {
            groups.extend(lock(shard).iter().cloned());
        }
        groups
    }

    fn hash(&self, kind: Kind, tenant: &str) -> u64 {
        self.hasher.hash_one((kind, tenant))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, HashTable<Arc<Group>>> {
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }
}

/// A key, its hash, and what its account may spend.
#[derive(Clone, Copy, Debug)]
pub struct KeyedTerms<'a> {
    pub key: Key<'a>,
    pub hash: KeyHash,
    pub terms: Terms,
}

/// What there is and what has become of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounts {
    pub accounts: usize,
    /// Decisions by a bucket that was not kept.
    pub untracked: u64,
    pub evictions: Evictions,
}

impl Group {
    fn is_of(&self, key: Key<'_>) -> bool {
        self.kind == key.kind && *self.tenant == *key.tenant
    }
}

impl AccountView {
    fn of(client: &str, account: &Account, refused_ago_ns: Option<u64>) -> Self {
        Self {
            client: client.to_owned(),
            credit: account.credit(),
            leased: account.leased(),
            leases: account.leases().count(),
            refused_ago_ms: refused_ago_ns.map(|ago_ns| ago_ns / 1_000_000),
        }
    }

    /// Of one that owes nothing.
    fn full(client: &str, budget: Budget, refused_ago_ns: u64) -> Self {
        Self {
            client: client.to_owned(),
            credit: budget.burst as f64,
            leased: 0,
            leases: 0,
            refused_ago_ms: Some(refused_ago_ns / 1_000_000),
        }
    }

    /// The least credit first, and of the same credit who was refused last.
    pub fn by_need(&self, other: &Self) -> Order {
        let refused = |view: &Self| view.refused_ago_ms.unwrap_or(u64::MAX);
        let by_credit = self.credit.total_cmp(&other.credit);
        by_credit
            .then_with(|| refused(self).cmp(&refused(other)))
            .then_with(|| self.client.cmp(&other.client))
    }
}

impl Evictions {
    fn add(&mut self, other: Self) {
        self.refilled += other.refilled;
        self.in_debt += other.in_debt;
        self.ghosts += other.ghosts;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under this lock")
}

#[cfg(all(test, feature = "model"))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::key::{KEY_SECRET_BYTES, KeyHasher};
    use refused::REFUSED_SHOWN_NS;

    const S: i64 = 1_000_000_000;
    const TERMS: Terms = Terms { budget: Budget { rate: 10.0, burst: 20 }, tracked_max: 1000 };

    fn budget<'a>(hasher: &KeyHasher, client: &'a str) -> KeyedTerms<'a> {
        let key = Key { kind: Kind::ClientWrites, tenant: "t", client };
        KeyedTerms { key, hash: hasher.hash(key), terms: TERMS }
    }

    fn top(owner: &Owner, now_ns: i64) -> Vec<(String, f64, Option<u64>)> {
        let views = owner.poorest(Kind::ClientWrites, "t", 10, now_ns).into_iter();
        views.map(|view| (view.client, view.credit, view.refused_ago_ms)).collect()
    }

    #[test]
    fn who_was_refused_is_listed_though_nothing_is_owed_any_more() {
        let (owner, hasher) = (Owner::default(), KeyHasher::new([5; KEY_SECRET_BYTES]));
        let spend = |client: &str, n: u64, now_ns: i64| {
            owner.spend(budget(&hasher, client), n, now_ns, || Start::Full).is_ok()
        };
        assert!(spend("greedy", 20, 0) && !spend("greedy", 5, 0));
        let asked = Wish { spend: 21, ..Wish::default() };
        assert!(owner.grant(budget(&hasher, "afar"), asked, Holder(1), S, || Start::Full).is_err());
        assert!(spend("thrifty", 1, 0));
        let row = |client: &str, credit: f64, ago_ms| (client.to_owned(), credit, ago_ms);
        assert_eq!(
            top(&owner, S),
            [row("greedy", 10.0, Some(1000)), row("afar", 20.0, Some(0))],
            "who owes nothing and was not refused is not there"
        );
        // All is full again, and swept.
        owner.sweep(60 * S);
        assert_eq!(owner.counts().accounts, 0);
        let shown = [row("afar", 20.0, Some(59_000)), row("greedy", 20.0, Some(60_000))];
        assert_eq!(top(&owner, 60 * S), shown, "who was refused last stands first");
        let KeyedTerms { key, hash, .. } = budget(&hasher, "greedy");
        let view = owner.view(key, hash, 60 * S).expect("it is known");
        assert_eq!((view.credit, view.refused_ago_ms), (20.0, Some(60_000)));
        assert!(!owner.reset(key, hash), "nothing was owed");
        assert_eq!(top(&owner, 60 * S), [row("afar", 20.0, Some(59_000))], "it is forgiven");
        // Then nothing is kept of it.
        let end_ns = S + REFUSED_SHOWN_NS;
        assert_eq!(top(&owner, end_ns).len(), 1);
        assert_eq!(top(&owner, end_ns + 1), []);
        owner.sweep(end_ns + 1);
        assert!(owner.groups().is_empty());
    }
}
