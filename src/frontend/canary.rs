//! Whether the signal of cached answers can be believed.
//!
//! Cortex tells with each answer how long its queriers worked for it, `Server-Timing:
//! querier_wall_time;dur=…`, and 0 means that the answer came from the results cache. Without
//! query statistics in queriers it would say 0 for everything, and everything would be free. So a
//! query that no cache may answer is asked now and then: 0 for that one is a lie.
//!
//! ```text
//! no word yet ─► more than 0 ─► believed ─► 0, or no such header ─► not believed ─► …
//! ```
//!
//! What must hold: nothing is free on a signal that was not seen to be true, unless it is to be
//! trusted; a canary that gets no answer proves nothing and, in time, believes nothing.

use crate::sync::{AtomicU8, Ordering};

/// Canaries in a row without an answer after which the signal is not believed any more.
pub const SILENT_MAX: u32 = 5;

/// What is thought of the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Belief {
    /// No canary has come back yet.
    Unknown,
    Believed,
    Disproved,
}

/// What one canary found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// An answer of 200, with the time that queriers worked, in milliseconds, if it was told.
    Answer { wall_ms: Option<f64> },
    /// No answer, or another than 200.
    Silence,
}

/// See the head of the file.
#[derive(Debug)]
pub struct Signal(AtomicU8);

/// What canaries have found, one after the other.
#[derive(Debug, Default)]
pub struct Judge {
    silent: u32,
}

impl Signal {
    pub fn new(belief: Belief) -> Self {
        Self(AtomicU8::new(belief as u8))
    }

    pub fn belief(&self) -> Belief {
        // Relaxed: the word guards no other memory.
        match self.0.load(Ordering::Relaxed) {
            word if word == Belief::Believed as u8 => Belief::Believed,
            word if word == Belief::Disproved as u8 => Belief::Disproved,
            _ => Belief::Unknown,
        }
    }

    pub fn is_believed(&self) -> bool {
        self.belief() == Belief::Believed
    }

    /// Tells whether that is another than before.
    pub fn set(&self, belief: Belief) -> bool {
        self.0.swap(belief as u8, Ordering::Relaxed) != belief as u8
    }
}

impl Judge {
    /// What to think after one more finding; `None` is: as before.
    pub fn hear(&mut self, finding: Finding) -> Option<Belief> {
        match finding {
            Finding::Answer { wall_ms } => {
                self.silent = 0;
                Some(match wall_ms {
                    Some(wall_ms) if wall_ms > 0.0 => Belief::Believed,
                    Some(_) | None => Belief::Disproved,
                })
            }
            Finding::Silence => {
                self.silent = self.silent.saturating_add(1);
                (self.silent >= SILENT_MAX).then_some(Belief::Unknown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_canary_that_cost_something_is_believed() {
        let check = |wall_ms, expect| {
            let belief = Judge::default().hear(Finding::Answer { wall_ms });
            assert_eq!(belief, Some(expect), "{wall_ms:?}");
        };
        check(Some(0.25), Belief::Believed);
        check(Some(0.0), Belief::Disproved);
        check(Some(-1.0), Belief::Disproved);
        check(Some(f64::NAN), Belief::Disproved);
        check(None, Belief::Disproved);
    }

    #[test]
    fn silence_changes_nothing_for_a_while() {
        let mut judge = Judge::default();
        for _ in 1..SILENT_MAX {
            assert_eq!(judge.hear(Finding::Silence), None);
        }
        assert_eq!(judge.hear(Finding::Silence), Some(Belief::Unknown));
        judge.hear(Finding::Answer { wall_ms: Some(1.0) });
        assert_eq!(judge.hear(Finding::Silence), None, "counted anew");
        let signal = Signal::new(Belief::Unknown);
        assert!(signal.set(Belief::Believed));
        assert!(!signal.set(Belief::Believed));
        assert!(signal.is_believed());
    }
}
