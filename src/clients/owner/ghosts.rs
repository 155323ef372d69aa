//! The debts of accounts that had to go, in sixteen bytes each, so that a rotation of names buys
//! nothing.
//!
//! A ghost is when its debt is over; the debt itself follows from that and the rate. In a full set
//! the smallest debt gives way: to push out a debtor one has to be as much in debt.

/// Ghosts of one set: one cache line or two.
const SET: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Ghost {
    /// 0 is free: no hash that is looked for is told apart from it, which costs that one its debt.
    hash: u64,
    full_at_ns: i64,
}

/// Made when the first debt has to be remembered.
#[derive(Debug, Default)]
pub struct Ghosts {
    sets: Vec<[Ghost; SET]>,
}

impl Ghosts {
    /// Remembers until when `hash` is in debt. `true` when another debt was forgotten for it.
    pub fn remember(&mut self, hash: u64, full_at_ns: i64, len_max: usize, now_ns: i64) -> bool {
        if self.sets.is_empty() {
            self.sets = vec![[Ghost::default(); SET]; len_max.div_ceil(SET).max(1)];
        }
        let at = self.set_of(hash);
        let set = &mut self.sets[at];
        let own = set.iter_mut().find(|ghost| ghost.hash == hash);
        if let Some(ghost) = own {
            ghost.full_at_ns = full_at_ns;
            return false;
        }
        let least = set.iter_mut().min_by_key(|ghost| ghost.full_at_ns).expect("a set has ghosts");
        let is_loss = least.full_at_ns > now_ns;
        if is_loss && least.full_at_ns >= full_at_ns {
            return true;
        }
        *least = Ghost { hash, full_at_ns };
        is_loss
    }

    /// Until when `hash` is in debt; it is an account again from now on.
    pub fn recall(&mut self, hash: u64, now_ns: i64) -> Option<i64> {
        if self.sets.is_empty() {
            return None;
        }
        let at = self.set_of(hash);
        let ghost = self.sets[at].iter_mut().find(|ghost| ghost.hash == hash)?;
        let full_at_ns = std::mem::take(ghost).full_at_ns;
        (full_at_ns > now_ns).then_some(full_at_ns)
    }

    /// Debts that are not over.
    pub fn count(&self, now_ns: i64) -> usize {
        self.sets.iter().flatten().filter(|ghost| ghost.full_at_ns > now_ns).count()
    }

    fn set_of(&self, hash: u64) -> usize {
        // The lower half: the upper one is alike for all keys of an owner's ranges.
        (hash as u32) as usize % self.sets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_debt_gives_way_and_a_paid_one_first() {
        let mut ghosts = Ghosts::default();
        for hash in 1..=8 {
            assert!(!ghosts.remember(hash, 100 + hash as i64, SET, 0));
        }
        assert!(ghosts.remember(9, 50, SET, 0), "smaller than all: forgotten itself");
        assert_eq!(ghosts.recall(9, 0), None);
        assert!(ghosts.remember(10, 500, SET, 0), "the first gave way");
        assert_eq!(ghosts.recall(1, 0), None);
        assert!(!ghosts.remember(11, 400, SET, 102), "the second is paid");
        assert_eq!(ghosts.recall(10, 0), Some(500));
        assert_eq!(ghosts.recall(10, 0), None, "it is an account again");
        assert_eq!(ghosts.count(0), 7);
    }
}
