//! A stripe's column of references to interned names, there only while something needs it.
//!
//! Invariant: `slots` is empty or as long as the stripe, and it belongs to `generation`. A column
//! of another generation than the one in force says nothing.

use super::intern::Slot;
use super::stripe::{growth, push};
use crate::keys::{KeySet, RingKey};

/// A column of references, empty while none of the rows has one.
#[derive(Debug, Default)]
pub(super) struct References {
    pub(super) generation: u32,
    pub(super) slots: Vec<Slot>,
}

impl References {
    pub(super) fn get(&self, row: usize, generation: u32) -> Slot {
        if self.generation != generation || self.slots.is_empty() {
            return Slot::NONE;
        }
        self.slots[row]
    }

    /// Adds the reference of a new row, the stripe's last.
    pub(super) fn insert(&mut self, row: usize, generation: u32, slot: Slot) {
        if slot == Slot::NONE {
            if !self.slots.is_empty() {
                push(&mut self.slots, Slot::NONE);
            }
            return;
        }
        self.assign(row, row + 1, generation, slot);
    }

    pub(super) fn assign(&mut self, row: usize, rows: usize, generation: u32, slot: Slot) {
        if self.generation != generation {
            self.slots.clear();
            self.generation = generation;
        }
        if self.slots.len() < rows {
            // One at a time this is a new row; many at once, a column that nobody needed so far.
            if self.slots.capacity() < rows {
                self.slots.reserve_exact(rows - self.slots.len() + growth(rows));
            }
            self.slots.resize(rows, Slot::NONE);
        }
        self.slots[row] = slot;
    }

    pub(super) fn swap_remove(&mut self, row: usize) {
        if !self.slots.is_empty() {
            self.slots.swap_remove(row);
        }
    }

    pub(super) fn count_owned(
        &self,
        keys: &KeySet,
        row_keys: &[RingKey],
        generation: u32,
        to: &mut Vec<u64>,
    ) {
        if self.generation != generation {
            return;
        }
        for (&slot, &key) in self.slots.iter().zip(row_keys) {
            if keys.contains(key) {
                slot.add_to(to, 1);
            }
        }
    }
}
