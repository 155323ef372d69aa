//! How much of a charge an account may take back, without keeping single charges.
//!
//! Had a charge never been made, the account would have had that much more ever since, less what
//! would have run over the brim. What runs over depends on the least room below the brim since
//! then: if there was always room for the whole charge, all of it comes back; if there once was
//! none, nothing does. So per slot of time the least room since its begin is all there is to know,
//! and nothing has to be reserved for charges that may come back.

/// Length of a slot: a charge can be taken back for one to two of them.
const SLOT_NS: i64 = 250_000_000;

/// When a charge was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(i64);

/// Least room below the brim since the slot at hand began, and since the one before did.
#[derive(Clone, Copy, Debug)]
pub struct Headroom {
    slot: i64,
    since_current: f64,
    since_before: f64,
}

impl Slot {
    /// That of a charge made at about `at_ns`, by somebody else's clock and told late. The one
    /// before is surely not too late, and the room since then is no more.
    pub fn about(at_ns: i64) -> Self {
        Self(at_ns.div_euclid(SLOT_NS) - 1)
    }
}

impl Default for Headroom {
    fn default() -> Self {
        Self { slot: i64::MIN / 2, since_current: f64::INFINITY, since_before: f64::INFINITY }
    }
}

impl Headroom {
    /// There is so much room at `now_ns`, and was no less since the last note.
    #[inline]
    pub fn note(&mut self, room: f64, now_ns: i64) {
        self.advance(now_ns);
        self.since_current = self.since_current.min(room);
        self.since_before = self.since_before.min(room);
    }

    /// Remembers a charge of now.
    #[inline]
    pub fn charged(&mut self, now_ns: i64) -> Slot {
        self.advance(now_ns);
        Slot(self.slot)
    }

    /// How much of a charge comes back; it has to be put to the credit.
    pub fn take_back(&mut self, n: u64, made: Slot, now_ns: i64) -> f64 {
        self.advance(now_ns);
        let room = match self.slot - made.0 {
            0 => self.since_current,
            1 => self.since_before,
            _ => return 0.0,
        };
        let back = room.clamp(0.0, n as f64);
        self.since_current -= back;
        self.since_before -= back;
        back
    }

    fn advance(&mut self, now_ns: i64) {
        let slot = now_ns.div_euclid(SLOT_NS);
        // Time that goes back settles nothing.
        match slot.saturating_sub(self.slot) {
            ..=0 => return,
            1 => self.since_before = self.since_current,
            _ => self.since_before = f64::INFINITY,
        }
        self.since_current = f64::INFINITY;
        self.slot = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn what_would_have_run_over_does_not_come_back() {
        let mut room = Headroom::default();
        let made = room.charged(1000 * MS);
        room.note(9.0, 1010 * MS);
        room.note(4.0, 1020 * MS);
        room.note(8.0, 1030 * MS);
        assert_eq!(room.take_back(3, made, 1030 * MS), 3.0);
        assert_eq!(room.take_back(3, made, 1030 * MS), 1.0, "two charges share the room");
        assert_eq!(room.take_back(3, made, 1030 * MS), 0.0);
    }

    #[test]
    fn a_time_told_by_others_is_taken_for_an_earlier_one() {
        let mut room = Headroom::default();
        room.note(2.0, 900 * MS);
        room.charged(1010 * MS);
        room.note(7.0, 1010 * MS);
        let told = Slot::about(1015 * MS);
        assert_eq!(room.take_back(5, told, 1020 * MS), 2.0, "the room of 900 ms counts");
        assert_eq!(room.take_back(5, Slot::about(999 * MS), 1020 * MS), 0.0, "too old");
    }

    #[test]
    fn a_charge_is_settled_between_one_and_two_slots_later() {
        let mut room = Headroom::default();
        let made = room.charged(1000 * MS);
        room.note(5.0, 1000 * MS);
        assert_eq!(room.take_back(2, made, 1499 * MS), 2.0);
        assert_eq!(room.take_back(2, made, 1500 * MS), 0.0);
        let made = room.charged(1749 * MS);
        room.note(0.0, 1700 * MS);
        assert_eq!(room.take_back(2, made, 1750 * MS), 0.0, "the room of its own slot counts");
    }
}
