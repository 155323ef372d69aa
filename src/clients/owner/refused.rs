//! Who was refused lately, so that a client is found though it owes nothing any more.
//!
//! A budget is full again seconds after its client has stopped, and then its account goes; an
//! operator looks when somebody has complained, which is minutes later. What is kept is for pages:
//! no decision asks it.

use crate::clients::key::KeyHash;

/// How long a refusal is shown.
pub const REFUSED_SHOWN_NS: i64 = 300 * 1_000_000_000;
/// Clients that are kept of one tenant, those refused last: as many as an operator reads. With names
/// as they are in the field that is 2 KB of each tenant that refuses anybody, 10 KB with the longest.
pub const REFUSED_MAX: usize = 32;

#[derive(Debug, Default)]
pub struct Refused(Vec<One>);

#[derive(Debug)]
struct One {
    hash: KeyHash,
    client: Box<str>,
    at_ns: i64,
}

impl Refused {
    /// A request was refused now. One who is refused again and again costs a look along the list.
    pub fn note(&mut self, hash: KeyHash, client: &str, now_ns: i64) {
        if let Some(known) = self.0.iter_mut().find(|one| one.is_of(hash, client)) {
            known.at_ns = known.at_ns.max(now_ns);
            return;
        }
        let one = One { hash, client: client.into(), at_ns: now_ns };
        if self.0.len() < REFUSED_MAX {
            self.0.push(one);
        } else if let Some(oldest) = self.0.iter_mut().min_by_key(|one| one.at_ns) {
            *oldest = one;
        }
    }

    /// How long ago it was refused last, if that was lately.
    pub fn ago_ns(&self, hash: KeyHash, client: &str, now_ns: i64) -> Option<u64> {
        self.0.iter().find(|one| one.is_of(hash, client))?.ago_ns(now_ns)
    }

    /// All that were refused lately.
    pub fn lately(&self, now_ns: i64) -> impl Iterator<Item = (KeyHash, &str, u64)> {
        self.0.iter().filter_map(move |one| Some((one.hash, &*one.client, one.ago_ns(now_ns)?)))
    }

    pub fn forget(&mut self, hash: KeyHash, client: &str) {
        self.0.retain(|one| !one.is_of(hash, client));
    }

    /// Drops what is not shown any more.
    pub fn sweep(&mut self, now_ns: i64) {
        self.0.retain(|one| one.ago_ns(now_ns).is_some());
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl One {
    fn is_of(&self, hash: KeyHash, client: &str) -> bool {
        self.hash == hash && *self.client == *client
    }

    /// Time that went back is none.
    fn ago_ns(&self, now_ns: i64) -> Option<u64> {
        let ago_ns = now_ns.saturating_sub(self.at_ns).max(0);
        (ago_ns <= REFUSED_SHOWN_NS).then_some(ago_ns.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn a_refusal_is_known_for_its_time_and_the_latest_of_it_counts() {
        let mut refused = Refused::default();
        let hash = KeyHash(7);
        refused.note(hash, "a", 10 * S);
        refused.note(hash, "a", 40 * S);
        refused.note(hash, "a", 30 * S);
        assert_eq!(refused.ago_ns(hash, "a", 41 * S), Some(S.unsigned_abs()));
        assert_eq!(refused.ago_ns(hash, "a", 39 * S), Some(0), "time went back");
        assert_eq!(refused.ago_ns(hash, "b", 41 * S), None, "another of the same hash");
        let end_ns = 40 * S + REFUSED_SHOWN_NS;
        assert!(refused.ago_ns(hash, "a", end_ns).is_some());
        assert_eq!(refused.lately(end_ns + 1).count(), 0);
        refused.sweep(end_ns);
        assert!(!refused.is_empty());
        refused.sweep(end_ns + 1);
        assert!(refused.is_empty());
    }

    #[test]
    fn of_very_many_those_refused_last_are_kept() {
        let mut refused = Refused::default();
        for number in 0..10_000_u64 {
            refused.note(KeyHash(number), &number.to_string(), number as i64);
        }
        let mut kept: Vec<u64> = refused.lately(10_000).map(|(hash, ..)| hash.0).collect();
        kept.sort_unstable();
        assert_eq!(kept, Vec::from_iter(10_000 - REFUSED_MAX as u64..10_000));
        refused.forget(KeyHash(9_999), "9999");
        assert_eq!(refused.lately(10_000).count(), REFUSED_MAX - 1);
    }
}
