//! What recounts did: how many there were, how long they took, and what they moved.
//!
//! The instance remembers its last passes, and each tenant what those of them changed of it, so
//! that a limit that moved yesterday evening has a reason today. A pass that moved nothing of a
//! tenant leaves nothing with it.

use std::collections::VecDeque;

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// Passes that the instance remembers, and changes that a tenant does. A tenant's take 256 bytes
/// at most, and none before its first; beyond it the oldest goes.
pub const PASSES_MAX: usize = 16;

/// Why tenants were recounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecountReason {
    RingChanged,
    ShardSizeChanged,
    OwnershipUnknown,
}

impl RecountReason {
    pub const ALL: [Self; 3] = [Self::RingChanged, Self::ShardSizeChanged, Self::OwnershipUnknown];

    pub fn label(self) -> &'static str {
        match self {
            Self::RingChanged => "ring_changed",
            Self::ShardSizeChanged => "shard_size_changed",
            Self::OwnershipUnknown => "ownership_unknown",
        }
    }
}

/// A pass over all tenants that recounted some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecountPass {
    /// Counts passes from 1.
    pub number: u32,
    /// When it began, Unix milliseconds.
    pub at_ms: i64,
    pub took_us: u64,
    /// Tenants recounted, in the order of [`RecountReason::ALL`].
    pub tenants: [u64; RecountReason::ALL.len()],
    /// Owned series of all tenants.
    pub owned_before: u64,
    pub owned_after: u64,
}

/// What a pass changed of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recounted {
    /// Number of the pass.
    pub pass: u32,
    pub reason: RecountReason,
    /// Owned series; of more than four thousand million that many.
    pub owned_before: u32,
    pub owned_after: u32,
}

/// How recounts of the instance went.
#[derive(Default)]
pub struct RecountLog {
    recounts: [AtomicU64; RecountReason::ALL.len()],
    /// Duration of the last pass over all tenants that recounted any, in microseconds.
    last_us: AtomicU64,
    mismatch: AtomicBool,
    /// The last passes, the oldest first. Written by the pass thread, read by pages.
    passes: Mutex<VecDeque<RecountPass>>,
}

/// What the last passes changed of a tenant, the oldest first.
#[derive(Default)]
pub struct TenantRecounts(Mutex<VecDeque<Recounted>>);

impl RecountLog {
    pub fn recounts(&self, reason: RecountReason) -> u64 {
        self.recounts[reason as usize].load(Ordering::Relaxed)
    }

    pub fn last_seconds(&self) -> f64 {
        self.last_us.load(Ordering::Relaxed) as f64 / 1e6
    }

    /// Series arrive that the ring does not assign to us; ownership counts as unknown.
    pub fn is_mismatch(&self) -> bool {
        self.mismatch.load(Ordering::Relaxed)
    }

    pub(super) fn note_mismatch(&self, is_mismatch: bool) {
        self.mismatch.store(is_mismatch, Ordering::Relaxed);
    }

    /// The last passes, the newest first.
    pub fn passes(&self) -> Vec<RecountPass> {
        self.passes.lock().expect("no panic under this lock").iter().rev().copied().collect()
    }

    /// A pass that begins now and has recounted nobody yet.
    pub(super) fn begin(&self, at_ms: i64, owned_before: u64) -> RecountPass {
        let passes = self.passes.lock().expect("no panic under this lock");
        RecountPass {
            number: passes.back().map_or(1, |last| last.number.wrapping_add(1)),
            at_ms,
            took_us: 0,
            tenants: [0; RecountReason::ALL.len()],
            owned_before,
            owned_after: owned_before,
        }
    }

    /// A pass has ended; one that recounted nobody is none.
    pub(super) fn end(&self, pass: RecountPass) {
        if pass.tenants.iter().all(|&tenants| tenants == 0) {
            return;
        }
        for (total, tenants) in self.recounts.iter().zip(pass.tenants) {
            total.fetch_add(tenants, Ordering::Relaxed);
        }
        self.last_us.store(pass.took_us, Ordering::Relaxed);
        keep(&mut self.passes.lock().expect("no panic under this lock"), pass);
    }
}

impl RecountPass {
    /// Counts a tenant's recount; what of it is to be remembered with the tenant.
    pub(super) fn note(
        &mut self,
        reason: RecountReason,
        owned_before: u64,
        owned_after: u64,
    ) -> Option<Recounted> {
        self.tenants[reason as usize] += 1;
        let clamped = |count| u32::try_from(count).unwrap_or(u32::MAX);
        (owned_before != owned_after).then(|| Recounted {
            pass: self.number,
            reason,
            owned_before: clamped(owned_before),
            owned_after: clamped(owned_after),
        })
    }
}

impl TenantRecounts {
    pub(super) fn note(&self, recounted: Recounted) {
        keep(&mut self.0.lock().expect("no panic under this lock"), recounted);
    }

    /// What a pass changed of the tenant; `None`: nothing.
    pub fn of(&self, pass: u32) -> Option<Recounted> {
        let kept = self.0.lock().expect("no panic under this lock");
        kept.iter().rev().find(|recounted| recounted.pass == pass).copied()
    }
}

/// Adds the newest; the oldest goes where there are too many.
fn keep<T>(kept: &mut VecDeque<T>, newest: T) {
    if kept.len() >= PASSES_MAX {
        kept.pop_front();
    }
    kept.push_back(newest);
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn the_last_passes_are_remembered_with_what_they_moved() {
        let (log, tenant) = (RecountLog::default(), TenantRecounts::default());
        for number in 1..=20_u32 {
            let mut pass = log.begin(i64::from(number), 100);
            assert_eq!(pass.number, number);
            let after = u64::from(number % 2) * 7;
            if let Some(moved) = pass.note(RecountReason::RingChanged, 0, after) {
                tenant.note(moved);
            }
            log.end(RecountPass { owned_after: 100 + after, took_us: 5, ..pass });
        }
        let passes = log.passes();
        assert_eq!(passes.len(), PASSES_MAX);
        assert_eq!((passes[0].number, passes[0].owned_after), (20, 100));
        assert_eq!((passes[1].number, passes[1].owned_after), (19, 107));
        assert_eq!(log.recounts(RecountReason::RingChanged), 20);
        assert_eq!(tenant.of(20), None, "nothing moved");
        let moved = tenant.of(19).expect("remembered");
        assert_eq!((moved.owned_before, moved.owned_after), (0, 7));
    }

    #[test]
    fn a_pass_without_a_recount_is_none() {
        let log = RecountLog::default();
        log.end(log.begin(1, 5));
        assert_eq!((log.passes().len(), log.last_seconds()), (0, 0.0));
    }

    #[test]
    fn a_tenants_changes_are_bounded_in_bytes() {
        assert_eq!(size_of::<Recounted>() * PASSES_MAX, 256);
        let tenant = TenantRecounts::default();
        for pass in 0..100 {
            let reason = RecountReason::OwnershipUnknown;
            tenant.note(Recounted { pass, reason, owned_before: 1, owned_after: 2 });
        }
        let kept = tenant.0.lock().expect("no panic");
        assert_eq!((kept.len(), kept.capacity()), (PASSES_MAX, PASSES_MAX));
    }
}
