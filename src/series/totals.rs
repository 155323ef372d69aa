//! Series of all tenants together, and what everybody may read without a lock.
//!
//! Tenants have books of their own; only the instance's limit spans them. Its two totals are
//! therefore atomics that a creation reserves from by compare-and-swap, so that tenants creating
//! at once never exceed the limit, and everything that removes or recounts keeps them exact.

use super::last::Activity;
use super::ledger::Count;
use super::refusal::Basis;
use crate::sync::{AtomicU64, Ordering};

/// Series of all tenants of this instance.
///
/// While ownership is not known, every series counts as owned: the owned total is then the
/// in-memory one.
#[derive(Debug, Default)]
pub struct Totals {
    in_memory: AtomicU64,
    owned: AtomicU64,
}

impl Totals {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn count(&self) -> Count {
        Count {
            in_memory: self.in_memory.load(Ordering::Relaxed),
            owned: self.owned.load(Ordering::Relaxed),
        }
    }

    /// Counts a new series unless that would take the total of `basis` above `max`.
    ///
    /// `Relaxed` suffices: each total is one word, and nothing else is read by its value.
    pub(super) fn reserve(&self, owned: bool, basis: Basis, max: u64) -> bool {
        let bound = |total: &AtomicU64, more: u64| {
            let step = |count| (count < max).then_some(count + more);
            total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).is_ok()
        };
        match basis {
            Basis::Owned => {
                if !bound(&self.owned, u64::from(owned)) {
                    return false;
                }
                self.in_memory.fetch_add(1, Ordering::Relaxed);
            }
            Basis::InMemory => {
                if !bound(&self.in_memory, 1) {
                    return false;
                }
                self.owned.fetch_add(u64::from(owned), Ordering::Relaxed);
            }
        }
        true
    }

    pub(super) fn add(&self, owned: bool) {
        self.in_memory.fetch_add(1, Ordering::Relaxed);
        self.owned.fetch_add(u64::from(owned), Ordering::Relaxed);
    }

    pub(super) fn remove(&self, gone: Count) {
        self.in_memory.fetch_sub(gone.in_memory, Ordering::Relaxed);
        self.owned.fetch_sub(gone.owned, Ordering::Relaxed);
    }

    /// A tenant's recount has replaced its owned count.
    pub(super) fn replace_owned(&self, before: u64, after: u64) {
        if after >= before {
            self.owned.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.owned.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

/// A tenant's counts at one moment, as pages and metrics show them.
///
/// Read one by one without a lock: each number is right, together they may straddle a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub series: Count,
    pub native_histogram: Count,
    pub active: u64,
    pub active_native_histogram: u64,
    /// Created and not confirmed: in flight, or left undecided by a request that failed.
    pub pending: u64,
    pub created_total: u64,
    /// Of these, entered because they were there before us, not because somebody wrote them.
    pub restored_total: u64,
    /// Written first while the view in force did not assign them to us.
    pub created_not_owned_total: u64,
    pub removed_total: u64,
    /// Attempts to create that only the limit on owned series would have admitted, as far as
    /// the tenant's series limit goes.
    pub shadow_admitted_total: u64,
    /// Attempts to create that only the limit on owned series would have refused.
    pub shadow_refused_total: u64,
    /// Epoch of the view that the owned counts belong to.
    pub view_epoch: u64,
}

/// The tenant's counts for readers without a lock.
///
/// All but the active counts are written under the tenant's books only.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    in_memory: AtomicU64,
    owned: AtomicU64,
    native_histogram_in_memory: AtomicU64,
    native_histogram_owned: AtomicU64,
    view_epoch: AtomicU64,
    pub(super) active: AtomicU64,
    pub(super) active_native_histogram: AtomicU64,
    pub(super) pending: AtomicU64,
    pub(super) created: AtomicU64,
    pub(super) restored: AtomicU64,
    pub(super) created_not_owned: AtomicU64,
    pub(super) removed: AtomicU64,
    pub(super) shadow_admitted: AtomicU64,
    pub(super) shadow_refused: AtomicU64,
}

impl Mirror {
    pub(super) fn counts(&self) -> Counts {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counts {
            series: Count { in_memory: read(&self.in_memory), owned: read(&self.owned) },
            native_histogram: Count {
                in_memory: read(&self.native_histogram_in_memory),
                owned: read(&self.native_histogram_owned),
            },
            active: read(&self.active),
            active_native_histogram: read(&self.active_native_histogram),
            pending: read(&self.pending),
            created_total: read(&self.created),
            restored_total: read(&self.restored),
            created_not_owned_total: read(&self.created_not_owned),
            removed_total: read(&self.removed),
            shadow_admitted_total: read(&self.shadow_admitted),
            shadow_refused_total: read(&self.shadow_refused),
            view_epoch: read(&self.view_epoch),
        }
    }

    pub(super) fn publish(&self, series: Count, native_histogram: Count, view_epoch: u64) {
        self.in_memory.store(series.in_memory, Ordering::Relaxed);
        self.owned.store(series.owned, Ordering::Relaxed);
        self.native_histogram_in_memory.store(native_histogram.in_memory, Ordering::Relaxed);
        self.native_histogram_owned.store(native_histogram.owned, Ordering::Relaxed);
        self.view_epoch.store(view_epoch, Ordering::Relaxed);
    }

    pub(super) fn woke(&self, woken: Activity) {
        if woken.all > 0 {
            self.active.fetch_add(woken.all, Ordering::Relaxed);
        }
        if woken.native_histogram > 0 {
            self.active_native_histogram.fetch_add(woken.native_histogram, Ordering::Relaxed);
        }
    }

    pub(super) fn went_idle(&self, gone: Activity) {
        if gone.all > 0 {
            self.active.fetch_sub(gone.all, Ordering::Relaxed);
        }
        if gone.native_histogram > 0 {
            self.active_native_histogram.fetch_sub(gone.native_histogram, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_never_exceeded_and_counts_what_is_owned() {
        let totals = Totals::new();
        assert!(totals.reserve(true, Basis::Owned, 1));
        assert!(!totals.reserve(true, Basis::Owned, 1));
        assert!(!totals.reserve(false, Basis::Owned, 1), "a full instance takes nothing more");
        assert!(!totals.reserve(true, Basis::InMemory, 1));
        assert!(totals.reserve(false, Basis::Owned, 2));
        assert_eq!(totals.count(), Count { in_memory: 2, owned: 1 });
        totals.replace_owned(1, 0);
        totals.remove(Count { in_memory: 1, owned: 0 });
        assert_eq!(totals.count(), Count { in_memory: 1, owned: 0 });
    }
}
