//! Small numbers for metric names and combinations of label sets, with a count each.
//!
//! An entry refers to its metric and its label sets by slot, four bytes each, so that its removal
//! finds the counts without the labels. Only there while such a limit is set.
//!
//! Invariants: a slot is in use iff some entry refers to it, so its in-memory count is not 0; a
//! free slot's counts are 0.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::ledger::Count;

/// Index of an interned name, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

impl Slot {
    pub(super) const NONE: Self = Self(u32::MAX);

    /// The slot of a place among the counts; none beyond all that there can be.
    pub(super) fn at(place: usize) -> Self {
        u32::try_from(place).map_or(Self::NONE, Self)
    }

    /// Adds to a slot's number in a vector that is as long as it needs to be.
    pub(super) fn add_to(self, numbers: &mut Vec<u64>, more: u64) {
        if self == Self::NONE {
            return;
        }
        let at = self.0 as usize;
        if at >= numbers.len() {
            numbers.resize(at + 1, 0);
        }
        numbers[at] += more;
    }

    pub(super) fn take_from(self, numbers: &mut [u64], less: u64) {
        if self == Self::NONE {
            return;
        }
        if let Some(number) = numbers.get_mut(self.0 as usize) {
            *number -= less;
        }
    }
}

/// Names as slices of `T`: bytes of a metric's name, or indices of label sets.
pub(super) struct Interned<T> {
    index: HashTable<u32>,
    names: Vec<Box<[T]>>,
    counts: Vec<Count>,
    free: Vec<u32>,
    hasher: DefaultHashBuilder,
}

impl<T: Copy + Eq + Hash> Interned<T> {
    pub(super) fn new() -> Self {
        Self {
            index: HashTable::new(),
            names: Vec::new(),
            counts: Vec::new(),
            free: Vec::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// How many series bear the name.
    pub(super) fn count_of(&self, name: &[T]) -> Count {
        let hash = self.hasher.hash_one(name);
        self.index
            .find(hash, |&at| *self.names[at as usize] == *name)
            .map_or(Count::default(), |&at| self.counts[at as usize])
    }

    /// Counts a series under its name, which gets a slot if it has none.
    pub(super) fn add(&mut self, name: &[T], owned: bool) -> Slot {
        let hash = self.hasher.hash_one(name);
        let names = &self.names;
        let found = self.index.find(hash, |&at| *names[at as usize] == *name).copied();
        let at = match found {
            Some(at) => at,
            None => self.place(hash, name),
        };
        self.counts[at as usize].add(owned);
        Slot(at)
    }

    pub(super) fn remove(&mut self, slot: Slot, owned: bool) {
        let at = slot.0 as usize;
        self.counts[at].remove(owned);
        if self.counts[at].in_memory > 0 {
            return;
        }
        let name = std::mem::take(&mut self.names[at]);
        let hash = self.hasher.hash_one(&*name);
        if let Ok(found) = self.index.find_entry(hash, |&other| other == slot.0) {
            found.remove();
        }
        self.free.push(slot.0);
    }

    pub(super) fn name(&self, slot: Slot) -> &[T] {
        &self.names[slot.0 as usize]
    }

    /// Counts of the slots from a place on, at most `most`; those of free slots are 0.
    pub(super) fn counts_from(&self, place: usize, most: usize) -> &[Count] {
        let rest = self.counts.get(place..).unwrap_or_default();
        &rest[..rest.len().min(most)]
    }

    /// The name in a slot and its count; `None` for a slot that is free or none.
    pub(super) fn get(&self, slot: Slot) -> Option<(&[T], Count)> {
        let count = *self.counts.get(slot.0 as usize).filter(|count| count.in_memory > 0)?;
        Some((self.name(slot), count))
    }

    /// Replaces every owned count: what a recount found, 0 where it found none.
    pub(super) fn set_owned(&mut self, owned: &[u64]) {
        for (at, count) in self.counts.iter_mut().enumerate() {
            count.owned = owned.get(at).copied().unwrap_or(0);
        }
    }

    /// Names in use, with their counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[T], Count)> {
        let used = self.names.iter().zip(&self.counts);
        used.filter(|(_, count)| count.in_memory > 0).map(|(name, &count)| (&**name, count))
    }

    fn place(&mut self, hash: u64, name: &[T]) -> u32 {
        let at = match self.free.pop() {
            Some(at) => {
                self.names[at as usize] = name.into();
                at
            }
            None => {
                self.names.push(name.into());
                self.counts.push(Count::default());
                (self.names.len() - 1) as u32
            }
        };
        let (names, hasher) = (&self.names, &self.hasher);
        self.index.insert_unique(hash, at, |&at| hasher.hash_one(&*names[at as usize]));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_reused_once_its_last_series_is_gone() {
        let mut metrics = Interned::<u8>::new();
        let up = metrics.add(b"up", true);
        assert_eq!(metrics.add(b"up", false), up);
        let down = metrics.add(b"down", true);
        assert_eq!(metrics.count_of(b"up"), Count { in_memory: 2, owned: 1 });
        metrics.remove(up, true);
        metrics.remove(up, false);
        assert_eq!(metrics.count_of(b"up"), Count::default());
        assert_eq!(metrics.add(b"sideways", false), up);
        assert_eq!(metrics.name(down), b"down");
        assert_eq!(metrics.iter().count(), 2);
    }
}
