//! Charges on leases that may still be given back.
//!
//! Credit that may come back to a lease is told to the owner as held until it can no longer: an
//! account that refilled over it meanwhile would have room for the burst twice. Amounts are kept in two slots of time and no
//! single charge is: one is settled when the slot after its own has ended.

/// Length of a slot. A charge is settled after one to two of them, 250 ms at the latest.
const SLOT_NS: i64 = 125_000_000;

/// When a charge was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot(i64);

impl Slot {
    #[inline]
    pub fn of(now_ns: i64) -> Self {
        Self(now_ns / SLOT_NS)
    }

    #[inline]
    pub fn number(self) -> i64 {
        self.0
    }

    pub fn begin_ns(self) -> i64 {
        self.0.saturating_mul(SLOT_NS)
    }

    pub fn end_ns(self) -> i64 {
        self.begin_ns().saturating_add(SLOT_NS)
    }
}

/// Charges of the slot at hand and of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recent {
    slot: i64,
    current: u64,
    before: u64,
}

impl Recent {
    pub fn sum(&self) -> u64 {
        self.current + self.before
    }

    /// Settles what is settled by `now_ns`.
    pub fn advance(&mut self, now_ns: i64) {
        self.advance_to(Slot::of(now_ns));
    }

    fn advance_to(&mut self, Slot(slot): Slot) {
        // Time that goes back settles nothing.
        match slot - self.slot {
            ..=0 => return,
            1 => self.before = std::mem::take(&mut self.current),
            _ => (self.before, self.current) = (0, 0),
        }
        self.slot = slot;
    }

    /// Adds a charge of now.
    pub fn charge(&mut self, n: u64, now_ns: i64) -> Slot {
        self.advance(now_ns);
        self.current += n;
        Slot(self.slot)
    }

    /// Adds a charge of `made`, the slot at hand or one after it.
    pub fn charge_in(&mut self, made: Slot, n: u64) {
        self.advance_to(made);
        self.current += n;
    }

    /// The slot at hand.
    pub fn slot(&self) -> Slot {
        Slot(self.slot)
    }

    /// Takes a charge back; `false` when it is settled.
    pub fn take_back(&mut self, n: u64, made: Slot, now_ns: i64) -> bool {
        self.advance(now_ns);
        let amount = match self.slot - made.0 {
            0 => &mut self.current,
            1 => &mut self.before,
            _ => return false,
        };
        match amount.checked_sub(n) {
            Some(rest) => {
                *amount = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_charge_comes_back_within_its_time_and_only_once() {
        let mut recent = Recent::default();
        let made = recent.charge(5, 1000 * MS);
        assert_eq!(recent.sum(), 5);
        assert!(recent.take_back(5, made, 1200 * MS));
        assert_eq!(recent.sum(), 0);
        assert!(!recent.take_back(5, made, 1200 * MS), "once");
        let made = recent.charge(5, 1000 * MS + 1);
        assert!(recent.take_back(5, made, 1001 * MS), "time that went back changes nothing");
    }

    #[test]
    fn a_charge_is_settled_between_one_and_two_slots_later() {
        let mut recent = Recent::default();
        let made = recent.charge(5, 1000 * MS);
        recent.charge(1, 1240 * MS);
        recent.advance(1249 * MS);
        assert_eq!(recent.sum(), 6);
        recent.advance(1250 * MS);
        assert_eq!(recent.sum(), 1);
        assert!(!recent.take_back(5, made, 1250 * MS));
        recent.advance(9000 * MS);
        assert_eq!(recent.sum(), 0);
    }
}
