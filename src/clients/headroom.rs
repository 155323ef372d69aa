//! How much of a charge an account may take back, without keeping single charges.
//!
//! Had a charge never been made, the account would have had that much more ever since, less what
//! would have run over the brim. What runs over depends on the least room below the brim since
//! then: if there was always room for the whole charge, all of it comes back; if there once was
//! none, nothing does. So per slot of time the least room since its begin is all there is to know,
//! and nothing has to be reserved for charges that may come back. Which slot is at hand follows
//! from when the account was brought up to date last, which the account knows.

/// Length of a slot: a charge can be taken back for one to two of them.
const SLOT_NS: i64 = 250_000_000;

/// When a charge was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(i64);

/// Least room below the brim since the slot at hand began, and since the one before did.
#[derive(Clone, Copy, Debug)]
pub struct Headroom {
    since_current: f64,
    since_before: f64,
}

impl Slot {
    #[inline]
    pub fn of(at_ns: i64) -> Self {
        Self(at_ns.div_euclid(SLOT_NS))
    }

    /// That of a charge made at about `at_ns`, by somebody else's clock and told late. The one
    /// before is surely not too late, and the room since then is no more.
    pub fn about(at_ns: i64) -> Self {
        Self(Self::of(at_ns).0 - 1)
    }
}

impl Default for Headroom {
    fn default() -> Self {
        Self { since_current: f64::INFINITY, since_before: f64::INFINITY }
    }
}

impl Headroom {
    /// There is so much room at `now_ns`, later than the last note at `last_ns`, and was no less
    /// since then.
    #[inline]
    pub fn note(&mut self, room: f64, last_ns: i64, now_ns: i64) {
        match Slot::of(now_ns).0.saturating_sub(Slot::of(last_ns).0) {
            ..=0 => {}
            1 => (self.since_before, self.since_current) = (self.since_current, f64::INFINITY),
            _ => *self = Self::default(),
        }
        self.since_current = self.since_current.min(room);
        self.since_before = self.since_before.min(room);
    }

    /// How much of a charge comes back, as of the last note; it has to be put to the credit.
    pub fn take_back(&mut self, n: u64, made: Slot, last_ns: i64) -> f64 {
        let room = match Slot::of(last_ns).0.saturating_sub(made.0) {
            0 => self.since_current,
            1 => self.since_before,
            _ => return 0.0,
        };
        let back = room.clamp(0.0, n as f64);
        self.since_current -= back;
        self.since_before -= back;
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// With the time of the last note, as an account has it.
    #[derive(Default)]
    struct Noted {
        room: Headroom,
        last_ns: i64,
    }

    impl Noted {
        fn note(&mut self, room: f64, at_ms: i64) {
            self.room.note(room, self.last_ns, at_ms * MS);
            self.last_ns = at_ms * MS;
        }

        fn charged(&self) -> Slot {
            Slot::of(self.last_ns)
        }

        fn take_back(&mut self, n: u64, made: Slot) -> f64 {
            self.room.take_back(n, made, self.last_ns)
        }
    }

    #[test]
    fn what_would_have_run_over_does_not_come_back() {
        let mut noted = Noted::default();
        noted.note(10.0, 1000);
        let made = noted.charged();
        for (room, at_ms) in [(9.0, 1010), (4.0, 1020), (8.0, 1030)] {
            noted.note(room, at_ms);
        }
        assert_eq!(noted.take_back(3, made), 3.0);
        assert_eq!(noted.take_back(3, made), 1.0, "two charges share the room");
        assert_eq!(noted.take_back(3, made), 0.0);
    }

    #[test]
    fn a_time_told_by_others_is_taken_for_an_earlier_one() {
        let mut noted = Noted::default();
        noted.note(2.0, 900);
        noted.note(7.0, 1010);
        let told = Slot::about(1015 * MS);
        assert_eq!(noted.take_back(5, told), 2.0, "the room of 900 ms counts");
        assert_eq!(noted.take_back(5, Slot::about(999 * MS)), 0.0, "too old");
    }

    #[test]
    fn a_charge_is_settled_between_one_and_two_slots_later() {
        let mut noted = Noted::default();
        noted.note(5.0, 1000);
        let made = noted.charged();
        noted.note(5.0, 1499);
        assert_eq!(noted.take_back(2, made), 2.0);
        noted.note(5.0, 1500);
        assert_eq!(noted.take_back(2, made), 0.0);
        noted.note(0.0, 1700);
        let made = noted.charged();
        noted.note(5.0, 1750);
        assert_eq!(noted.take_back(2, made), 0.0, "the room of its own slot counts");
    }
}
