//! The part of a lease that may be spent without a look at its entry.

use super::entry::{LeaseCharge, LeaseId};
use crate::clients::recent::Slot;

/// Credits of one lease that may be spent in one slot of time: eight bytes beside a name.
///
/// What was spent of it is accounted for when the entry is looked at next, as spent in that slot.
/// Nothing that the entry would have to decide meanwhile, such as a renewal or a reserve, is
/// behind them, and the lease does not end within the slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pocket {
    left: u32,
    /// The lowest bits of the slot, and of the lease's number.
    stamp: u32,
}

/// Bits of the stamp that number the lease. Those that remain tell slots apart that are six days
/// from each other, and every sweep empties all pockets.
const LEASE_BITS: u32 = LeaseId::BITS;

impl Pocket {
    pub(super) fn new(credits: u32, slot: Slot, lease: LeaseId) -> Self {
        Self { left: credits, stamp: stamp(slot) | u32::from(lease.number()) }
    }

    pub(super) fn left(self) -> u32 {
        self.left
    }

    /// Pays all of `n`, if it is for `slot` and there is as much.
    #[inline]
    pub(super) fn pay(&mut self, n: u64, slot: Slot) -> Option<LeaseCharge> {
        let is_of_slot = (self.stamp ^ stamp(slot)) >> LEASE_BITS == 0;
        if !is_of_slot || n > u64::from(self.left) || self.left == 0 {
            return None;
        }
        self.left -= n as u32;
        let lease = LeaseId::of_bits(self.stamp);
        Some(LeaseCharge::new(lease, n, slot))
    }
}

#[inline]
fn stamp(slot: Slot) -> u32 {
    (slot.number() as u32) << LEASE_BITS
}
