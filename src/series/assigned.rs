//! Counts per metric and per label set, which may have to be learnt first.
//!
//! Invariants: `unassigned` is the number of entries without a reference of this generation; a
//! label set's count is the sum over the combinations it is in.

use std::hash::Hash;

use super::intern::{Interned, Slot};
use super::ledger::Count;

/// Counts of metrics, or of label sets: exact once every entry is assigned.
pub(super) struct Assigned<T> {
    pub(super) names: Interned<T>,
    pub(super) generation: u32,
    /// Entries that nobody has assigned yet.
    pub(super) unassigned: u64,
    /// The labels pass is over; entries still unassigned are in no source of labels.
    pub(super) pass_done: bool,
}

impl<T: Copy + Eq + Hash> Assigned<T> {
    pub(super) fn new(generation: u32, unassigned: u64) -> Self {
        Self { names: Interned::new(), generation, unassigned, pass_done: false }
    }

    /// A count that is not known refuses nothing.
    pub(super) fn known(&self) -> bool {
        self.unassigned == 0 || self.pass_done
    }
}

pub(super) struct LabelSets {
    /// The configuration that the indices belong to.
    pub(super) configured: u64,
    pub(super) combinations: Assigned<u16>,
    /// Per label set, the sum over the combinations it is in.
    pub(super) counts: Vec<Count>,
}

impl LabelSets {
    pub(super) fn adjust(&mut self, slot: Slot, change: impl Fn(&mut Count)) {
        for &index in self.combinations.names.name(slot) {
            let index = usize::from(index);
            if index >= self.counts.len() {
                self.counts.resize(index + 1, Count::default());
            }
            change(&mut self.counts[index]);
        }
    }

    pub(super) fn sum_up(&mut self) {
        self.counts.fill(Count::default());
        for (indices, count) in self.combinations.names.iter() {
            for &index in indices {
                let sum = &mut self.counts[usize::from(index)];
                sum.in_memory += count.in_memory;
                sum.owned += count.owned;
            }
        }
    }
}
