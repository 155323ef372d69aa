//! Things kept by key, not more than a bound; what was used least lately goes first.
//!
//! Whoever can be refused can also come from, or present, something new with each request, so a
//! table that grows with what is asked is no limiter. One that forgets gives credit back, which
//! is why what goes is counted, and whether it owed something.
//!
//! A shard is locked for one look-up and what the caller does with it. Two of one table are locked
//! only to move an entry, the lower first, with no other table's held.

use std::fmt;
use std::hash::BuildHasher as _;

use crossbeam::utils::CachePadded;
use hashbrown::DefaultHashBuilder;

use super::keys::Key;
use crate::exposition::Counter;
use crate::sync::{Mutex, MutexGuard};
use shard::{Place, Shard};

mod shard;

/// Shards of a large table. Two threads meet in one of sixteen locks seldom enough.
const SHARDS: usize = 16;

/// A table up to this size is one shard, and forgets in one order.
const ONE_SHARD_MAX: usize = 1024;

/// A large table does not tell apart what was used last within so long: an entry changes its
/// place in the order once in that time, however often it is used. At the bound it has a
/// thousand entries at least, and those that go were not used for much longer, unless more new
/// ones than that come each second; then nobody stays for long anyway.
const TICK_NS: i64 = 1_000_000_000;

/// Entries that are looked at under one lock by whoever looks at all: some microseconds' worth, and
/// less than what a request waits for anyway that meets another in its shard.
const LOOK_ENTRIES: usize = 256;

/// See the head of the file.
pub struct Table<V> {
    shards: Box<[CachePadded<Mutex<Shard<V>>>]>,
    shard_entries_max: usize,
    /// The keys are hashes, but whoever presents a credential chooses its own; so they are hashed
    /// once more, with a seed.
    hasher: DefaultHashBuilder,
    owes: fn(&V, i64) -> bool,
    evicted_in_debt: Counter,
    evicted_idle: Counter,
}

/// An entry that is looked for, its shard locked until this is dropped.
pub struct Open<'a, V> {
    table: &'a Table<V>,
    shard: MutexGuard<'a, Shard<V>>,
    key: Key,
    hash: u64,
    now_ns: i64,
    /// `None` before it was looked for.
    found: Option<Option<Place>>,
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
        let shard = |_| CachePadded::new(Mutex::new(Shard::default()));
        Self {
            shards: (0..shards).map(shard).collect(),
            shard_entries_max: (entries_max / shards).max(1),
            hasher: DefaultHashBuilder::default(),
            owes,
            evicted_in_debt: Counter::default(),
            evicted_idle: Counter::default(),
        }
    }

    /// Locks the shard of a key, for all that is done with its entry.
    #[inline]
    pub fn open(&self, key: Key, now_ns: i64) -> Open<'_, V> {
        let hash = self.hash(key);
        Open { table: self, shard: self.shard(hash), key, hash, now_ns, found: None }
    }

    /// The value of a key, which is now one of those used last; made where there is none.
    pub fn with<T>(
        &self,
        key: Key,
        now_ns: i64,
        make: impl FnOnce() -> V,
        act: impl FnOnce(&mut V) -> T,
    ) -> T {
        act(self.open(key, now_ns).or_insert(make))
    }

    /// The value of a key if there is one.
    pub fn with_known<T>(&self, key: Key, now_ns: i64, act: impl FnOnce(&mut V) -> T) -> Option<T> {
        self.open(key, now_ns).known().map(act)
    }

    pub fn remove(&self, key: Key) -> Option<V> {
        self.take(&mut self.shard(self.hash(key)), key)
    }

    /// Keeps under `key` what was kept under `former`. What is under `key` already stays: it was
    /// moved by another request.
    ///
    /// At no moment it is under neither, or who settles in that moment would find nothing to
    /// settle with.
    pub fn move_to(&self, key: Key, former: Key, now_ns: i64) {
        let (hash, former_hash) = (self.hash(key), self.hash(former));
        if !self.lacks(&self.shard(hash), key) {
            return;
        }
        let (to, from) = (self.index(hash), self.index(former_hash));
        if to == from {
            let mut shard = lock(&self.shards[to]);
            if self.lacks(&shard, key)
                && let Some(value) = self.take(&mut shard, former)
            {
                self.put(&mut shard, key, value, now_ns);
            }
            return;
        }
        let (mut low, mut high) =
            (lock(&self.shards[to.min(from)]), lock(&self.shards[to.max(from)]));
        let (target, source) =
            if to < from { (&mut low, &mut high) } else { (&mut high, &mut low) };
        if self.lacks(target, key)
            && let Some(value) = self.take(source, former)
        {
            self.put(target, key, value, now_ns);
        }
    }

    fn lacks(&self, shard: &Shard<V>, key: Key) -> bool {
        shard.find(self.hash(key), key).is_none()
    }

    fn take(&self, shard: &mut Shard<V>, key: Key) -> Option<V> {
        shard.remove(self.hash(key), key, |key| self.hash(key))
    }

    fn put(&self, shard: &mut Shard<V>, key: Key, value: V, now_ns: i64) {
        self.make_room(shard, now_ns);
        shard.insert(self.hash(key), key, value, self.tick(now_ns), |key| self.hash(key));
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Looks at every entry, a few under each lock. One that comes or goes meanwhile may be seen
    /// twice, or not at all.
    pub fn look(&self, mut see: impl FnMut(Key, &V)) {
        for shard in &self.shards {
            let mut from = 0;
            loop {
                let shard = lock(shard);
                shard.part(from, LOOK_ENTRIES).for_each(|(key, value)| see(*key, value));
                from += LOOK_ENTRIES;
                if from >= shard.len() {
                    break;
                }
            }
        }
    }

    /// What is kept at most.
    pub fn entries_max(&self) -> usize {
        self.shard_entries_max * self.shards.len()
    }

    pub fn evictions(&self) -> Evictions {
        Evictions { in_debt: self.evicted_in_debt.get(), idle: self.evicted_idle.get() }
    }

    fn make_room(&self, shard: &mut Shard<V>, now_ns: i64) {
        while shard.len() >= self.shard_entries_max {
            let Some(key) = shard.earliest() else { return };
            let gone = shard.remove(self.hash(key), key, |key| self.hash(key));
            match gone.is_some_and(|value| (self.owes)(&value, now_ns)) {
                true => self.evicted_in_debt.add(1),
                false => self.evicted_idle.add(1),
            }
        }
    }

    /// When it is, as far as the order of use is concerned; `None` where all of it counts.
    fn tick(&self, now_ns: i64) -> Option<u32> {
        (self.shards.len() > 1).then_some((now_ns / TICK_NS) as u32)
    }

    fn hash(&self, key: Key) -> u64 {
        self.hasher.hash_one(key.0)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<V>> {
        lock(&self.shards[self.index(hash)])
    }

    fn index(&self, hash: u64) -> usize {
        // A shard's own index uses the lowest bits for the slot and the topmost for its tags.
        (hash >> 32) as usize % self.shards.len()
    }
}

impl<V> Open<'_, V> {
    /// Looks for the entry. Where several are open they are best sought one right after the other,
    /// before any is looked at: then their memory is waited for all at once.
    #[inline]
    pub fn seek(&mut self) {
        self.found = Some(self.shard.find(self.hash, self.key));
    }

    /// The value, if there is one.
    #[inline]
    pub fn known(&mut self) -> Option<&mut V> {
        let place = self.sought()?;
        Some(self.shard.used(place, self.table.tick(self.now_ns)))
    }

    /// The value, made where there is none.
    #[inline]
    pub fn or_insert(&mut self, make: impl FnOnce() -> V) -> &mut V {
        let place = match self.sought() {
            Some(place) => place,
            None => self.insert(make()),
        };
        self.shard.used(place, self.table.tick(self.now_ns))
    }

    #[inline]
    fn sought(&mut self) -> Option<Place> {
        if self.found.is_none() {
            self.seek();
        }
        self.found.flatten()
    }

    #[cold]
    fn insert(&mut self, value: V) -> Place {
        let (table, tick) = (self.table, self.table.tick(self.now_ns));
        table.make_room(&mut self.shard, self.now_ns);
        let place = self.shard.insert(self.hash, self.key, value, tick, |key| table.hash(key));
        self.found = Some(Some(place));
        place
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
            map.entries(lock(shard).iter());
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
        assert_eq!(table.with_known(key(1), 0, |value| *value), Some(1));
        set(&table, 3, 1);
        assert_eq!(table.with_known(key(2), 0, |_| ()), None);
        assert_eq!(table.evictions(), Evictions { in_debt: 0, idle: 1 });
        set(&table, 4, 0);
        assert_eq!(table.with_known(key(1), 0, |_| ()), None);
        assert_eq!(table.evictions(), Evictions { in_debt: 1, idle: 1 });
        set(&table, 3, 7);
        assert_eq!((table.len(), table.with_known(key(3), 0, |value| *value)), (2, Some(7)));
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
    fn who_looks_at_all_sees_each_entry_once_while_nothing_moves() {
        for (entries_max, entries) in [(10, 3), (1000, 1000), (100_000, 5000)] {
            let table = table(entries_max);
            (0..entries).for_each(|number| set(&table, number, number + 1));
            let mut seen = Vec::new();
            table.look(|key, value| seen.push((*value, key)));
            seen.sort_unstable_by_key(|(value, _)| *value);
            let expect: Vec<_> = (0..entries).map(|number| (number + 1, key(number))).collect();
            assert_eq!(seen, expect);
            assert!(table.entries_max() <= entries_max);
        }
    }

    #[test]
    fn a_value_moves_to_its_new_key_and_takes_no_ones_place() {
        let table = table(10);
        set(&table, 1, 5);
        table.move_to(key(2), key(1), 0);
        assert_eq!(table.with_known(key(2), 0, |value| *value), Some(5));
        assert_eq!(table.with_known(key(1), 0, |_| ()), None);
        set(&table, 3, 6);
        table.move_to(key(2), key(3), 0);
        assert_eq!(table.with_known(key(2), 0, |value| *value), Some(5));
        table.move_to(key(4), key(9), 0);
        assert_eq!(table.len(), 2);
    }
}
