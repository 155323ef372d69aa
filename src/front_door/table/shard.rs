//! One lock's worth of a table: entries in a row, a way to find them, and who was used least lately.
//!
//! A look-up waits for memory and for little else. So the index holds nothing but places in the
//! row, which keeps that of a hundred thousand entries within what a core's own caches hold, and a
//! look-up reads one entry. To make an entry the latest it would have to write to its neighbours
//! too, two more places in memory; so that is done only if its last time is a while ago.
//!
//! Invariant: each entry is once in the index and once in the chain from the latest to the
//! earliest; the row has no holes.

use hashbrown::hash_table::{Entry as Slot, HashTable};

use super::super::keys::Key;

/// Place of none: tables are far smaller.
const NONE: u32 = u32::MAX;

/// The row grows by this part of it, not by doubling: a hundred thousand entries take what they
/// need and an eighth more at most.
const GROWTH_PART: usize = 8;
const GROWTH_MIN: usize = 8;

#[derive(Debug)]
pub(super) struct Shard<V> {
    index: HashTable<u32>,
    row: Vec<Entry<V>>,
    latest: u32,
    earliest: u32,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(u32);

#[derive(Debug)]
struct Entry<V> {
    value: V,
    key: Key,
    /// Neighbours in the order of use.
    later: u32,
    earlier: u32,
    /// Tick in which it was made the latest.
    since: u32,
}

impl<V> Default for Shard<V> {
    fn default() -> Self {
        Self { index: HashTable::new(), row: Vec::new(), latest: NONE, earliest: NONE }
    }
}

impl<V> Shard<V> {
    pub(super) fn len(&self) -> usize {
        self.row.len()
    }

    /// Where an entry is, until the next one comes or goes.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: Key) -> Option<Place> {
        self.index.find(hash, |&at| self.row[at as usize].key == key).copied().map(Place)
    }

    /// An entry that is used now. It is made the latest unless `tick` is still that in which it
    /// was last.
    #[inline]
    pub(super) fn used(&mut self, Place(place): Place, tick: Option<u32>) -> &mut V {
        if tick.is_none_or(|tick| tick != self.row[place as usize].since) {
            self.unlink(place);
            self.link(place, tick);
        }
        &mut self.row[place as usize].value
    }

    /// Enters what is not there yet, as the latest.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: Key,
        value: V,
        tick: Option<u32>,
        hash_of: impl Fn(Key) -> u64,
    ) -> Place {
        let place = self.row.len() as u32;
        if self.row.len() == self.row.capacity() {
            self.row.reserve_exact((self.row.len() / GROWTH_PART).max(GROWTH_MIN));
        }
        self.row.push(Entry { value, key, later: NONE, earlier: NONE, since: 0 });
        let row = &self.row;
        self.index.insert_unique(hash, place, |&at| hash_of(row[at as usize].key));
        self.link(place, tick);
        Place(place)
    }

    pub(super) fn remove(
        &mut self,
        hash: u64,
        key: Key,
        hash_of: impl Fn(Key) -> u64,
    ) -> Option<V> {
        let row = &self.row;
        let slot = self.index.entry(
            hash,
            |&at| row[at as usize].key == key,
            |&at| hash_of(row[at as usize].key),
        );
        let Slot::Occupied(slot) = slot else { return None };
        let (place, _) = slot.remove();
        self.unlink(place);
        let last = self.row.len() as u32 - 1;
        if place != last {
            // The last one moves into the hole.
            let moving = self.row[last as usize].key;
            let slot = self.index.find_mut(hash_of(moving), |&at| at == last);
            *slot.expect("each entry is in the index") = place;
            let Entry { later, earlier, .. } = self.row[last as usize];
            self.join(later, place, earlier);
        }
        Some(self.row.swap_remove(place as usize).value)
    }

    /// The key of what was used least lately.
    pub(super) fn earliest(&self) -> Option<Key> {
        self.row.get(self.earliest as usize).map(|entry| entry.key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &V)> {
        self.row.iter().map(|entry| (&entry.key, &entry.value))
    }

    /// Some of the entries, in no order.
    pub(super) fn part(&self, from: usize, len_max: usize) -> impl Iterator<Item = (&Key, &V)> {
        let rest = self.row.get(from..).unwrap_or_default();
        rest.iter().take(len_max).map(|entry| (&entry.key, &entry.value))
    }

    fn link(&mut self, place: u32, tick: Option<u32>) {
        let second = self.latest;
        self.row[place as usize].since = tick.unwrap_or_default();
        self.join(NONE, place, second);
    }

    fn unlink(&mut self, place: u32) {
        let Entry { later, earlier, .. } = self.row[place as usize];
        match later {
            NONE => self.latest = earlier,
            later => self.row[later as usize].earlier = earlier,
        }
        match earlier {
            NONE => self.earliest = later,
            earlier => self.row[earlier as usize].later = later,
        }
    }

    /// Puts an entry between two others that are neighbours.
    fn join(&mut self, later: u32, place: u32, earlier: u32) {
        match later {
            NONE => self.latest = place,
            later => self.row[later as usize].earlier = place,
        }
        match earlier {
            NONE => self.earliest = place,
            earlier => self.row[earlier as usize].later = place,
        }
        let entry = &mut self.row[place as usize];
        (entry.later, entry.earlier) = (later, earlier);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(number: u8) -> Key {
        Key([number; 16])
    }

    /// Few hashes, so that many keys share one.
    fn hash(key: Key) -> u64 {
        u64::from(key.0[0] % 5) << 57
    }

    fn in_order(shard: &Shard<u32>) -> Vec<(u8, u32)> {
        let mut order = Vec::new();
        let (mut at, mut later) = (shard.latest, NONE);
        while let Some(entry) = shard.row.get(at as usize) {
            assert_eq!(entry.later, later);
            order.push((entry.key.0[0], entry.value));
            (later, at) = (at, entry.earlier);
        }
        assert_eq!(shard.earliest, later);
        order
    }

    proptest! {
        /// Against a list that is searched, the latest first.
        #[test]
        fn follows_a_naive_list(
            steps in prop::collection::vec((0..3u8, 0..24u8, 0..3u32), 1..400),
            has_ticks: bool,
        ) {
            let mut shard = Shard::default();
            let mut list: Vec<(u8, u32, u32)> = Vec::new();
            for (value, (act, number, tick)) in (0..).zip(steps) {
                let (one, tick) = (key(number), has_ticks.then_some(tick));
                let at = list.iter().position(|(known, ..)| *known == number);
                let place = shard.find(hash(one), one);
                prop_assert_eq!(place.is_some(), at.is_some());
                match (act, at) {
                    (0, Some(at)) => {
                        list.remove(at);
                        prop_assert!(shard.remove(hash(one), one, hash).is_some());
                    }
                    (0, None) => prop_assert_eq!(shard.remove(hash(one), one, hash), None),
                    (1, None) => {
                        list.insert(0, (number, value, tick.unwrap_or_default()));
                        shard.insert(hash(one), one, value, tick, hash);
                    }
                    (_, Some(at)) => {
                        let known = place.map(|place| *shard.used(place, tick));
                        prop_assert_eq!(known, Some(list[at].1));
                        if tick != Some(list[at].2) {
                            let (_, value, _) = list.remove(at);
                            list.insert(0, (number, value, tick.unwrap_or_default()));
                        }
                    }
                    (_, None) => {}
                }
                let expect: Vec<_> = list.iter().map(|(number, value, _)| (*number, *value)).collect();
                prop_assert_eq!(in_order(&shard), expect);
                prop_assert_eq!(shard.earliest(), list.last().map(|(number, ..)| key(*number)));
                prop_assert_eq!(shard.len(), list.len());
            }
        }
    }
}
