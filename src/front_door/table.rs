//! Things kept by key, not more than a bound; what was used least lately goes first.
//!
//! Whoever can be refused can also come from, or present, something new with each request, so a
//! table that grows with what is asked is no limiter. One that forgets gives credit back, which
//! is why what goes is counted, and whether it owed something.
//!
//! Shards are locked one at a time, each for one look-up and what the caller does with it.

use std::fmt;

use crossbeam::utils::CachePadded;
use hashbrown::DefaultHashBuilder;
use lru::LruCache;

use super::keys::Key;
use crate::exposition::Counter;
use crate::sync::{Mutex, MutexGuard};

/// Shards of a large table. Two threads meet in one of sixteen locks seldom enough.
const SHARDS: usize = 16;

/// A table up to this size is one shard, and forgets in one order.
const ONE_SHARD_MAX: usize = 1024;

/// See the head of the file.
pub struct Table<V> {
    shards: Box<[CachePadded<Mutex<Shard<V>>>]>,
    shard_entries_max: usize,
    owes: fn(&V, i64) -> bool,
    evicted_in_debt: Counter,
    evicted_idle: Counter,
}

struct Shard<V> {
    /// The keys are hashes, but whoever presents a credential chooses its own; so they are hashed
    /// once more, with a seed.
    entries: LruCache<Key, V, DefaultHashBuilder>,
}

/// Entries that had to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// Somebody has credit again that was spent, or has to prove himself again.
    pub in_debt: u64,
    pub idle: u64,
}

impl<V> Table<V> {
    /// At most `entries_max`, at least 1. `owes` says whether forgetting a value gives something
    /// away at that time.
    pub fn new(entries_max: usize, owes: fn(&V, i64) -> bool) -> Self {
        let shards = if entries_max <= ONE_SHARD_MAX { 1 } else { SHARDS };
        let shard = || {
            let entries = LruCache::unbounded_with_hasher(DefaultHashBuilder::default());
            CachePadded::new(Mutex::new(Shard { entries }))
        };
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
            shard_entries_max: (entries_max / shards).max(1),
            owes,
            evicted_in_debt: Counter::default(),
            evicted_idle: Counter::default(),
        }
    }

    /// The value of a key, which is now the one used last; made where there is none.
    pub fn with<T>(
        &self,
        key: Key,
        now_ns: i64,
        make: impl FnOnce() -> V,
        act: impl FnOnce(&mut V) -> T,
    ) -> T {
        let mut shard = self.shard(key);
        if let Some(value) = shard.entries.get_mut(&key) {
            return act(value);
        }
        self.make_room(&mut shard, now_ns);
        act(shard.entries.get_or_insert_mut(key, make))
    }

    /// The value of a key if there is one.
    pub fn with_known<T>(&self, key: Key, act: impl FnOnce(&mut V) -> T) -> Option<T> {
        self.shard(key).entries.get_mut(&key).map(act)
    }

    pub fn remove(&self, key: Key) {
        self.shard(key).entries.pop(&key);
    }

    /// Keeps under `key` what was kept under `former`. What is under `key` already stays: it was
    /// moved by another request, or made by one between our two locks.
    pub fn move_to(&self, key: Key, former: Key, now_ns: i64) {
        if self.shard(key).entries.contains(&key) {
            return;
        }
        let Some(value) = self.shard(former).entries.pop(&former) else { return };
        self.with(key, now_ns, || value, |_| ());
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    pub fn evictions(&self) -> Evictions {
        Evictions { in_debt: self.evicted_in_debt.get(), idle: self.evicted_idle.get() }
    }

    fn make_room(&self, shard: &mut Shard<V>, now_ns: i64) {
        while shard.entries.len() >= self.shard_entries_max {
            let Some((_, value)) = shard.entries.pop_lru() else { return };
            match (self.owes)(&value, now_ns) {
                true => self.evicted_in_debt.add(1),
                false => self.evicted_idle.add(1),
            }
        }
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Shard<V>> {
        lock(&self.shards[usize::from(key.0[0]) % self.shards.len()])
    }
}

fn lock<V>(shard: &Mutex<Shard<V>>) -> MutexGuard<'_, Shard<V>> {
    // A value is a few numbers, each valid by itself: a panic in between leaves no bad state.
    shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// All that is kept, which is how a test sees that nothing else is.
impl<V: fmt::Debug> fmt::Debug for Table<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for shard in &self.shards {
            map.entries(lock(shard).entries.iter());
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Key {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        Key(bytes)
    }

    fn table(entries_max: usize) -> Table<u32> {
        Table::new(entries_max, |value, _| *value > 0)
    }

    fn set(table: &Table<u32>, number: u32, value: u32) {
        table.with(key(number), 0, || value, |kept| *kept = value);
    }

    #[test]
    fn case_r12_what_was_used_least_lately_goes_first_and_is_counted() {
        let table = table(2);
        set(&table, 1, 1);
        set(&table, 2, 0);
        assert_eq!(table.with_known(key(1), |value| *value), Some(1));
        set(&table, 3, 1);
        assert_eq!(table.with_known(key(2), |_| ()), None);
        assert_eq!(table.evictions(), Evictions { in_debt: 0, idle: 1 });
        set(&table, 4, 0);
        assert_eq!(table.with_known(key(1), |_| ()), None);
        assert_eq!(table.evictions(), Evictions { in_debt: 1, idle: 1 });
        set(&table, 3, 7);
        assert_eq!((table.len(), table.with_known(key(3), |value| *value)), (2, Some(7)));
        table.remove(key(3));
        assert_eq!((table.len(), table.evictions().in_debt), (1, 1));
    }

    #[test]
    fn case_r40_a_million_keys_stay_within_the_bound() {
        let table = table(10_000);
        for number in 0..1_000_000 {
            table.with(key(number), 0, || 0, |value| *value += 1);
        }
        assert!((9_900..=10_000).contains(&table.len()), "{}", table.len());
        assert_eq!(table.evictions().in_debt, 1_000_000 - table.len() as u64);
    }

    #[test]
    fn case_r54_two_keys_race_for_one_place() {
        let table = table(1);
        std::thread::scope(|scope| {
            for number in 0..2 {
                let table = &table;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        table.with(key(number), 0, || number, |value| assert!(*value < 2));
                        table.move_to(key(number), key(1 - number), 0);
                        set(table, number, number);
                    }
                });
            }
        });
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_value_moves_to_its_new_key_and_takes_no_ones_place() {
        let table = table(10);
        set(&table, 1, 5);
        table.move_to(key(2), key(1), 0);
        assert_eq!(table.with_known(key(2), |value| *value), Some(5));
        assert_eq!(table.with_known(key(1), |_| ()), None);
        set(&table, 3, 6);
        table.move_to(key(2), key(3), 0);
        assert_eq!(table.with_known(key(2), |value| *value), Some(5));
        table.move_to(key(4), key(9), 0);
        assert_eq!(table.len(), 2);
    }
}
