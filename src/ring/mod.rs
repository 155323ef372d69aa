//! The ring: who is in it, which members hold a key, which keys are ours.
//!
//! ```text
//! stored bytes ─ wire::ring_desc ─► RingReading ─ Ring::publish ─► RingSnapshot
//!                                                  circle: sorted tokens, owners, search
//!                                                  walk: the members that hold a key
//!                                                  ownership: the keys that are ours
//!                                                  shuffle: the same in a tenant's subring
//!                                                  batches: many keys by the members that hold them
//!                                                  quorum: what members' answers come to
//!                                                  shares, steps, neighbours: for who looks at it
//! ```
//!
//! [`Ring`] publishes snapshots and decides what is in force when the ring cannot be read: the
//! last good one, for a bounded time, and then nothing is known of ownership. A request loads
//! the snapshot once and keeps it to its end. Nothing in here does I/O or reads a clock.

pub mod batches;
pub mod circle;
pub mod config;
pub mod go_rand;
pub mod kv;
pub mod lifecycle;
pub mod lifecycler;
pub mod merge;
pub mod metrics;
pub mod model;
pub mod neighbours;
pub mod ownership;
pub mod quorum;
pub mod service_ring;
pub mod shares;
pub mod shuffle;
pub mod snapshot;
pub mod steps;
pub mod walk;
pub mod watcher;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use self::model::RingReading;

pub use self::batches::{AssignError, Batch, Batches};
pub use self::circle::MemberIndex;
pub use self::model::{Position, Token};
pub use self::ownership::{OwnView, Owned, UnknownOwnership};
pub use self::quorum::{Failure, Quorum, QuorumError};
pub use self::shuffle::{ShardRule, Subring, TenantView};
pub use self::snapshot::{Fingerprint, Health, Member, Placement, RingSettings, RingSnapshot};
pub use self::walk::{Choice, End, GetError, Operation, ReplicaSet, Step, Walker};

/// Holds the snapshot in force.
#[derive(Debug)]
pub struct Ring {
    current: ArcSwap<RingSnapshot>,
    /// How long a ring that cannot be read stays in force.
    last_good_ms_max: u64,
    /// What the reads since the last good one came to; also serialises publishing, so that
    /// generations never go back.
    reads: Mutex<Reads>,
    /// Attempts to read, whatever came of them.
    reads_total: AtomicU64,
}

#[derive(Debug, Default)]
struct Reads {
    any_good: bool,
    failing: Option<Failing>,
}

/// Reads have failed since the last good one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Time of the first failure in a row, Unix milliseconds.
    pub since_ms: i64,
    /// Why the latest failed.
    pub error: String,
}

/// How far the snapshot in force can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingStatus {
    /// No ring has been read yet.
    Unread(Option<Failing>),
    Fresh,
    /// The last good ring, still in force.
    Stale(Failing),
    /// The last good ring was kept for its full time; what we own is unknown.
    Expired(Failing),
}

/// What a reading changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Keys may have changed hands; the generation has grown.
    Moved,
    /// Heartbeats, addresses and counts only.
    Refreshed,
    /// The reading named no members; the last good ring stays.
    KeptLastGood,
    /// The heartbeats are not of the ring in force; the reader must read it whole.
    OutOfStep,
}

/// Recorded as the failure when a read succeeds but finds no members.
pub const EMPTY_RING_ERROR: &str = "the stored ring has no instances";

impl Ring {
    pub fn new(settings: RingSettings, last_good_ms_max: u64) -> Self {
        Self {
            current: ArcSwap::from_pointee(RingSnapshot::empty(Arc::new(settings))),
            last_good_ms_max,
            reads: Mutex::new(Reads::default()),
            reads_total: AtomicU64::new(0),
        }
    }

    /// The snapshot in force. Load it once per request.
    pub fn load(&self) -> Arc<RingSnapshot> {
        self.current.load_full()
    }

    /// Grows when what we own may have changed; see [`RingSnapshot::generation`].
    pub fn generation(&self) -> u64 {
        self.current.load().generation()
    }

    /// Takes what a read at `read_at_ms` brought.
    pub fn publish(&self, reading: &RingReading, read_at_ms: i64) -> Published {
        self.reads_total.fetch_add(1, Ordering::Relaxed);
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.load();
        let next = match reading {
            RingReading::Whole(model) if model.instances.is_empty() => {
                // Everybody leaving at once is far less likely than a store that lost its value.
                self.fail(&mut reads, read_at_ms, EMPTY_RING_ERROR.to_owned());
                return Published::KeptLastGood;
            }
            RingReading::Whole(model) => {
                let settings = Arc::clone(current.settings());
                RingSnapshot::build(model, read_at_ms, settings, Some(&current))
            }
            RingReading::Heartbeats(heartbeats) => {
                match current.with_heartbeats(heartbeats, read_at_ms) {
                    Some(next) => next,
                    None => return Published::OutOfStep,
                }
            }
        };
        *reads = Reads { any_good: true, failing: None };
        let moved = next.generation() != current.generation();
        self.current.store(Arc::new(next));
        if moved { Published::Moved } else { Published::Refreshed }
    }

    /// The ring could not be read, or what was read is no ring.
    ///
    /// Call it for each failed attempt: the one that finds the last good ring's time over
    /// publishes that ownership is unknown.
    pub fn read_failed(&self, now_ms: i64, error: impl Into<String>) {
        self.reads_total.fetch_add(1, Ordering::Relaxed);
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        self.fail(&mut reads, now_ms, error.into());
    }

    /// Attempts to read so far, failed ones included: whether anybody still tells us anything.
    pub fn reads(&self) -> u64 {
        self.reads_total.load(Ordering::Relaxed)
    }

    pub fn status(&self, now_ms: i64) -> RingStatus {
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        match &reads.failing {
            failing if !reads.any_good => RingStatus::Unread(failing.clone()),
            None => RingStatus::Fresh,
            Some(failing) if self.is_over(failing, now_ms) => RingStatus::Expired(failing.clone()),
            Some(failing) => RingStatus::Stale(failing.clone()),
        }
    }

    /// Time since the ring in force was read.
    pub fn age_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.current.load().read_at_ms())
    }

    fn fail(&self, reads: &mut Reads, now_ms: i64, error: String) {
        let since_ms = reads.failing.as_ref().map_or(now_ms, |failing| failing.since_ms);
        let failing = reads.failing.insert(Failing { since_ms, error });
        let current = self.current.load();
        let knows = matches!(current.own(), OwnView::Known(_));
        if reads.any_good && knows && self.is_over(failing, now_ms) {
            self.current.store(Arc::new(current.expired()));
        }
    }

    fn is_over(&self, failing: &Failing, now_ms: i64) -> bool {
        let kept_ms = now_ms.saturating_sub(failing.since_ms);
        u64::try_from(kept_ms).is_ok_and(|kept_ms| kept_ms > self.last_good_ms_max)
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
