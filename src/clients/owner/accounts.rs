//! The accounts of one group: all clients of a tenant, or the tenant itself.
//!
//! Bounded. At the bound an account that owes nothing goes first, since a new one would say the
//! same; else the one that was used least lately, and its debt is remembered.

use hashbrown::HashTable;

use super::ghosts::Ghosts;
use super::refused::Refused;
use crate::clients::account::Account;
use crate::clients::key::KeyHash;
use crate::ratelimit::Budget;

/// Accounts that are looked at, from the one used least lately, for one that owes nothing.
const LOOKED_AT_MAX: usize = 32;

/// No entry.
const NONE: u32 = u32::MAX;

/// What a group's accounts may spend, and how many there are at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    pub budget: Budget,
    /// At least 1.
    pub tracked_max: usize,
}

/// Accounts that had to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// They owed nothing.
    pub refilled: u64,
    /// Their debt became a ghost.
    pub in_debt: u64,
    /// Debts that are not remembered any more.
    pub ghosts: u64,
}

/// With what a new account starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    Full,
    /// Who kept this budget before is not known to us yet.
    Cold(f64),
}

#[derive(Debug)]
pub struct Entry {
    pub client: Box<str>,
    pub account: Account,
    hash: u64,
    newer: u32,
    older: u32,
}

#[derive(Debug)]
pub struct Accounts {
    terms: Terms,
    entries: Vec<Entry>,
    index: HashTable<u32>,
    newest: u32,
    oldest: u32,
    ghosts: Ghosts,
    pub refused: Refused,
    pub evictions: Evictions,
}

impl Entry {
    pub fn hash(&self) -> KeyHash {
        KeyHash(self.hash)
    }
}

impl Accounts {
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            entries: Vec::new(),
            index: HashTable::new(),
            newest: NONE,
            oldest: NONE,
            ghosts: Ghosts::default(),
            refused: Refused::default(),
            evictions: Evictions::default(),
        }
    }

    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// What was earned by `now_ns` was earned under the old terms.
    pub fn set_terms(&mut self, terms: Terms, now_ns: i64) {
        if terms == self.terms {
            return;
        }
        self.advance_all(now_ns);
        self.terms = terms;
        while self.entries.len() > self.terms.tracked_max {
            self.evict(now_ns);
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The client's account as it stands; looking changes nothing.
    pub fn find(&self, hash: KeyHash, client: &str) -> Option<&Account> {
        let at = self.index_of(hash, client)?;
        Some(&self.entries[at as usize].account)
    }

    /// The client's account, which is now the one used last. A new one starts with what its ghost
    /// or `start` says.
    pub fn get(
        &mut self,
        hash: KeyHash,
        client: &str,
        now_ns: i64,
        start: impl FnOnce() -> Start,
    ) -> &mut Account {
        let at = match self.index_of(hash, client) {
            Some(at) => {
                self.unlink(at);
                at
            }
            None => self.open(hash, client, now_ns, start()),
        };
        self.link_newest(at);
        &mut self.entries[at as usize].account
    }

    /// Drops the account, with its ghost; `None` when there is neither.
    pub fn remove(&mut self, hash: KeyHash, client: &str) -> Option<Account> {
        self.refused.forget(hash, client);
        let ghost = self.ghosts.recall(hash.0, i64::MIN);
        match self.index_of(hash, client) {
            Some(at) => Some(self.take_out(at).account),
            None => ghost.map(|full_at_ns| Account::new(0.0, full_at_ns)),
        }
    }

    /// Takes out every account that `goes` says.
    pub fn take_out_where(&mut self, goes: impl Fn(KeyHash) -> bool) -> Vec<(KeyHash, Entry)> {
        let mut taken = Vec::new();
        let mut at = 0;
        while at < self.entries.len() {
            let hash = KeyHash(self.entries[at].hash);
            if goes(hash) {
                // The last one takes its place and is looked at next.
                taken.push((hash, self.take_out(at as u32)));
            } else {
                at += 1;
            }
        }
        taken
    }

    /// Drops the accounts that owe nothing, and refusals of long ago.
    pub fn sweep(&mut self, now_ns: i64) {
        self.refused.sweep(now_ns);
        let budget = self.terms.budget;
        let mut at = 0;
        while at < self.entries.len() {
            let account = &mut self.entries[at].account;
            account.advance(budget, now_ns);
            if account.is_full(budget) {
                self.take_out(at as u32);
            } else {
                at += 1;
            }
        }
        self.index.shrink_to(self.entries.len(), |at| self.entries[*at as usize].hash);
        self.entries.shrink_to(self.entries.len().saturating_mul(2));
    }

    pub fn advance_all(&mut self, now_ns: i64) {
        for entry in &mut self.entries {
            entry.account.advance(self.terms.budget, now_ns);
        }
    }

    /// Nothing is here, nor remembered.
    pub fn is_idle(&self, now_ns: i64) -> bool {
        self.entries.is_empty() && self.refused.is_empty() && self.ghosts.count(now_ns) == 0
    }

    fn index_of(&self, hash: KeyHash, client: &str) -> Option<u32> {
        let found = self.index.find(hash.0, |at| {
            let entry = &self.entries[*at as usize];
            entry.hash == hash.0 && *entry.client == *client
        });
        found.copied()
    }

    fn open(&mut self, hash: KeyHash, client: &str, now_ns: i64, start: Start) -> u32 {
        if self.entries.len() >= self.terms.tracked_max {
            self.evict(now_ns);
        }
        let Budget { rate, burst } = self.terms.budget;
        let debt = |full_at_ns: i64| (full_at_ns - now_ns) as f64 / 1e9 * rate;
        let credit = match (self.ghosts.recall(hash.0, now_ns), start) {
            (Some(full_at_ns), _) => burst as f64 - debt(full_at_ns),
            (None, Start::Full) => burst as f64,
            (None, Start::Cold(credit)) => credit.min(burst as f64),
        };
        let at = self.entries.len() as u32;
        if self.entries.len() == self.entries.capacity() {
            // An eighth at a time, and no more than there may be: with a power of two a full table
            // could be half air.
            let room = self.terms.tracked_max.saturating_sub(self.entries.len()).max(1);
            self.entries.reserve_exact((self.entries.len() / 8).max(4).min(room));
        }
        self.entries.push(Entry {
            client: client.into(),
            account: Account::new(credit, now_ns),
            hash: hash.0,
            newer: NONE,
            older: NONE,
        });
        self.index.insert_unique(hash.0, at, |at| self.entries[*at as usize].hash);
        at
    }

    fn evict(&mut self, now_ns: i64) {
        let budget = self.terms.budget;
        let mut at = self.oldest;
        for _ in 0..LOOKED_AT_MAX {
            if at == NONE {
                break;
            }
            let entry = &mut self.entries[at as usize];
            entry.account.advance(budget, now_ns);
            if entry.account.is_full(budget) {
                self.evictions.refilled += 1;
                self.take_out(at);
                return;
            }
            at = entry.newer;
        }
        if self.oldest == NONE {
            return;
        }
        self.evictions.in_debt += 1;
        let entry = self.take_out(self.oldest);
        let full_at_ns = entry.account.full_at_ns(budget);
        let len_max = self.terms.tracked_max;
        if self.ghosts.remember(entry.hash, full_at_ns, len_max, now_ns) {
            self.evictions.ghosts += 1;
        }
    }

    /// The last entry takes the place of the one taken out.
    fn take_out(&mut self, at: u32) -> Entry {
        self.unlink(at);
        let hash = self.entries[at as usize].hash;
        if let Ok(found) = self.index.find_entry(hash, |one| *one == at) {
            found.remove();
        }
        let entry = self.entries.swap_remove(at as usize);
        let moved_from = self.entries.len() as u32;
        if moved_from != at {
            let moved = &self.entries[at as usize];
            let (hash, newer, older) = (moved.hash, moved.newer, moved.older);
            if let Some(one) = self.index.find_mut(hash, |one| *one == moved_from) {
                *one = at;
            }
            *self.older_of(newer) = at;
            *self.newer_of(older) = at;
        }
        entry
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        *self.older_of(newer) = older;
        *self.newer_of(older) = newer;
    }

    fn link_newest(&mut self, at: u32) {
        let older = self.newest;
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older) = (NONE, older);
        *self.newer_of(older) = at;
        self.newest = at;
    }

    /// Where it stands who is before `at` in age; the list's own end for none.
    fn older_of(&mut self, at: u32) -> &mut u32 {
        match at {
            NONE => &mut self.newest,
            at => &mut self.entries[at as usize].older,
        }
    }

    fn newer_of(&mut self, at: u32) -> &mut u32 {
        match at {
            NONE => &mut self.oldest,
            at => &mut self.entries[at as usize].newer,
        }
    }
}

#[cfg(test)]
mod tests;
