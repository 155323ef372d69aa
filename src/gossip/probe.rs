//! A probe of one peer, and the probes we make for others.
//!
//! ```text
//! ping ──no answer for the time-out──► others are asked, and a stream is tried ──► verdict
//!   └──────────────── any answer until the verdict: the peer is there ───────────────┘
//! ```

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// Probes made for others at a time; beyond it requests are not answered, and counted.
///
/// A peer asks for one at a time, and its probe takes as long as ours. If all of a thousand
/// members probed a dead peer at once and each asked us, this would hold them.
pub const RELAYS_MAX: usize = 4096;

/// The probe in flight; there is one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub sequence: u32,
    pub target: Arc<str>,
    pub addr: SocketAddr,
    /// From here on others are asked, unless they were already.
    pub direct_until_ms: u64,
    /// No answer counts after it.
    pub until_ms: u64,
    pub is_indirect: bool,
    pub nacks_expected: u32,
    pub nacks: u32,
    pub is_stream_answered: bool,
}

/// A probe that somebody asked us to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// As the one who asked counts.
    pub sequence: u32,
    pub reply_to: SocketAddr,
    /// Whether the one who asked checks checksums.
    pub has_checksum: bool,
    pub wants_nack: bool,
}

/// Those probes, by our own sequence. All wait equally long, so they end in the order they began.
#[derive(Clone, Debug, Default)]
pub struct Relays {
    by_sequence: HashMap<u32, Relay>,
    ends: VecDeque<(u64, u32)>,
}

impl Probe {
    /// What it needs next, and when.
    pub fn next_ms(&self) -> u64 {
        if self.is_indirect { self.until_ms } else { self.direct_until_ms }
    }

    /// How much worse we are ourselves for a probe that failed: helpers that said nothing at all
    /// speak for a fault on our side. Without helpers nobody can tell, so it counts a little.
    pub fn penalty(&self) -> u32 {
        if self.nacks_expected == 0 { 1 } else { self.nacks_expected.saturating_sub(self.nacks) }
    }
}

impl Relays {
    /// `false` without room.
    pub fn start(&mut self, sequence: u32, until_ms: u64, relay: Relay) -> bool {
        if self.ends.len() >= RELAYS_MAX {
            return false;
        }
        self.by_sequence.insert(sequence, relay);
        self.ends.push_back((until_ms, sequence));
        true
    }

    /// The answer is there.
    pub fn take(&mut self, sequence: u32) -> Option<Relay> {
        self.by_sequence.remove(&sequence)
    }

    /// One that waited for nothing until `now_ms`.
    pub fn take_over(&mut self, now_ms: u64) -> Option<Relay> {
        while let Some((until_ms, sequence)) = self.ends.front().copied() {
            if until_ms > now_ms {
                return None;
            }
            self.ends.pop_front();
            if let Some(relay) = self.by_sequence.remove(&sequence) {
                return Some(relay);
            }
        }
        None
    }

    pub fn next_ms(&self) -> Option<u64> {
        self.ends.front().map(|(until_ms, _)| *until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(sequence: u32) -> Relay {
        let reply_to = "10.0.0.1:7946".parse().unwrap();
        Relay { sequence, reply_to, has_checksum: false, wants_nack: true }
    }

    #[test]
    fn relays_end_by_their_answer_or_in_time_and_once() {
        let mut relays = Relays::default();
        for sequence in 1..=3 {
            assert!(relays.start(sequence, 10 + u64::from(sequence), relay(100 + sequence)));
        }
        assert_eq!(relays.take(1), Some(relay(101)));
        assert_eq!(relays.take(1), None);
        assert_eq!(relays.take_over(11), None);
        assert_eq!(relays.next_ms(), Some(12));
        assert_eq!(relays.take_over(20), Some(relay(102)));
        assert_eq!(relays.take_over(20), Some(relay(103)));
        assert_eq!((relays.take_over(20), relays.next_ms()), (None, None));
    }

    #[test]
    fn beyond_the_bound_no_probe_is_made_for_others() {
        let mut relays = Relays::default();
        for sequence in 0..RELAYS_MAX as u32 {
            assert!(relays.start(sequence, 1, relay(sequence)));
        }
        assert!(!relays.start(9_999, 1, relay(9_999)));
        while relays.take_over(1).is_some() {}
        assert!(relays.start(9_999, 1, relay(9_999)));
    }
}
