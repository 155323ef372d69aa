//! How a tenant's entries are spread over stripes, and how the spread gets finer.
//!
//! An empty tenant has one stripe; at [`STRIPE_SERIES_MAX`] entries per stripe each is split in
//! four, one stripe at a time, so that no lock is held long and nobody waits for the whole.
//! A stripe holds a run of identities by their leading bits, and its four parts hold the quarters
//! of that run. Passes therefore keep their place as a *prefix*, which stays right while stripes
//! split under them.
//!
//! Whoever holds the books knows the layout exactly. A touch does not hold them: it takes the
//! published set, and where it meets a stripe that has moved, follows that stripe's pointer.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::stripe::Stripe;
use crate::labels::Identity;
use crate::sync::{Mutex, MutexGuard};

/// Entries per stripe, on average, beyond which the stripes are split.
///
/// Splitting or sweeping a stripe costs up to 100 ns per entry under its lock: half a
/// millisecond here, which leaves room for a machine that has other things to do.
pub const STRIPE_SERIES_MAX: usize = 5_000;
/// Most stripes of a tenant, as a power of two. Beyond 80 million series stripes just get
/// longer, and so do the times their locks are held.
pub(super) const STRIPE_BITS_MAX: u32 = 14;
/// Most locks of a tenant, as a power of two: 32 series of a usual request to each, as many as the
/// CPU has memory on its way for, and far more locks than requests that touch at once.
const LOCK_BITS_MAX: u32 = 5;
/// Stripes grow fourfold: often enough to keep groups long, seldom enough to move little.
const SPLIT_BITS: u32 = 2;
/// Leading bits of an identity that tell a pass' place; enough for the finest layout.
const PREFIX_BITS: u32 = 16;

/// Leading bits of an identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Prefix(u32);

impl Prefix {
    pub(super) const START: Self = Self(0);
    /// Beyond every identity.
    pub(super) const END: Self = Self(1 << PREFIX_BITS);

    #[inline]
    pub(super) fn of(identity: Identity) -> Self {
        Self((identity.0 >> (128 - PREFIX_BITS)) as u32)
    }
}

/// Stripes of one fineness.
pub(super) struct StripeSet {
    bits: u32,
    /// Stripes that share a lock, as a power of two.
    shared_bits: u32,
    locks: Box<[Mutex<Box<[Stripe]>>]>,
}

/// A stripe and the lock that it shares with its neighbours.
pub(super) struct StripeGuard<'a> {
    neighbours: MutexGuard<'a, Box<[Stripe]>>,
    at: usize,
}

impl StripeSet {
    fn new(bits: u32) -> Self {
        let shared_bits = bits.saturating_sub(LOCK_BITS_MAX);
        let neighbours = || (0..1_usize << shared_bits).map(|_| Stripe::default()).collect();
        let locks = (0..1_usize << (bits - shared_bits)).map(|_| Mutex::new(neighbours()));
        Self { bits, shared_bits, locks: locks.collect() }
    }

    pub(super) fn len(&self) -> usize {
        1 << self.bits
    }

    pub(super) fn locks_len(&self) -> usize {
        self.locks.len()
    }

    #[inline]
    pub(super) fn index_of(&self, identity: Identity) -> usize {
        self.index_at(Prefix::of(identity))
    }

    /// The lock that the stripe of `identity` shares.
    #[inline]
    pub(super) fn lock_of(&self, identity: Identity) -> usize {
        self.index_of(identity) >> self.shared_bits
    }

    /// The place of the stripe of `identity` among its neighbours.
    #[inline]
    pub(super) fn place_of(&self, identity: Identity) -> usize {
        self.index_of(identity) & ((1 << self.shared_bits) - 1)
    }

    /// All stripes behind one lock.
    pub(super) fn lock_all(&self, lock: usize) -> MutexGuard<'_, Box<[Stripe]>> {
        self.locks[lock].lock().expect("no holder of a stripe panics")
    }

    pub(super) fn lock(&self, index: usize) -> StripeGuard<'_> {
        let neighbours = self.lock_all(index >> self.shared_bits);
        StripeGuard { neighbours, at: index & ((1 << self.shared_bits) - 1) }
    }

    #[inline]
    fn index_at(&self, prefix: Prefix) -> usize {
        (prefix.0 >> (PREFIX_BITS - self.bits)) as usize
    }

    /// First prefix behind the stripe.
    fn end_of(&self, index: usize) -> Prefix {
        Prefix((index as u32 + 1) << (PREFIX_BITS - self.bits))
    }
}

impl Deref for StripeGuard<'_> {
    type Target = Stripe;

    fn deref(&self) -> &Stripe {
        &self.neighbours[self.at]
    }
}

impl DerefMut for StripeGuard<'_> {
    fn deref_mut(&mut self) -> &mut Stripe {
        &mut self.neighbours[self.at]
    }
}

/// Which stripe holds what; changed and read under the tenant's books.
pub(super) struct Layout {
    current: Arc<StripeSet>,
    split: Option<Split>,
    stripe_series_max: usize,
    /// Creations since the last stripe was split: they pay for the next one.
    created: usize,
}

struct Split {
    to: Arc<StripeSet>,
    /// Stripes of the current set below this index have moved.
    moved: usize,
}

impl Layout {
    pub(super) fn new(stripe_series_max: usize) -> Self {
        let current = Arc::new(StripeSet::new(0));
        Self { current, split: None, stripe_series_max, created: 0 }
    }

    /// The set that touches start from.
    pub(super) fn published(&self) -> Arc<StripeSet> {
        Arc::clone(&self.current)
    }

    pub(super) fn lock(&self, identity: Identity) -> StripeGuard<'_> {
        self.lock_at(Prefix::of(identity)).0
    }

    /// The stripe that holds `prefix`, and the first prefix behind it.
    pub(super) fn lock_at(&self, prefix: Prefix) -> (StripeGuard<'_>, Prefix) {
        let index = self.current.index_at(prefix);
        let (set, index) = match &self.split {
            Some(split) if index < split.moved => (&split.to, split.to.index_at(prefix)),
            _ => (&self.current, index),
        };
        (set.lock(index), set.end_of(index))
    }

    /// Whether a creation should pay for the next step of a split.
    ///
    /// One step per eighth of a full stripe ends the split when stripes are an eighth too long.
    pub(super) fn split_is_due(&mut self, series: u64) -> bool {
        self.created += 1;
        if self.split.is_some() {
            return self.created >= self.stripe_series_max / 8;
        }
        self.outgrown(series)
    }

    pub(super) fn splitting(&self) -> bool {
        self.split.is_some()
    }

    pub(super) fn outgrown(&self, series: u64) -> bool {
        series > (self.stripe_series_max * self.current.len()) as u64
            && self.current.bits + SPLIT_BITS <= STRIPE_BITS_MAX
    }

    /// Splits one stripe, beginning a split if none is under way. The new set, once complete.
    pub(super) fn split_step(&mut self) -> Option<Arc<StripeSet>> {
        self.created = 0;
        let current = &self.current;
        let split = self.split.get_or_insert_with(|| Split {
            to: Arc::new(StripeSet::new(current.bits + SPLIT_BITS)),
            moved: 0,
        });
        let first = split.moved << SPLIT_BITS;
        let parts = 1_usize << SPLIT_BITS;
        // Under the books a stripe's length stands still, so the parts are allocated unlocked.
        // Identities are hashes, so parts are alike; an eighth of room covers their spread.
        let room = current.lock(split.moved).len() / parts * 9 / 8 + 8;
        let mut filled: Vec<Stripe> = (0..parts).map(|_| Stripe::with_capacity(room)).collect();
        let mut from = current.lock(split.moved);
        from.move_to(&split.to, &mut filled, first);
        // Placed while the old stripe is locked: whoever follows its pointer finds them there.
        for (part, stripe) in filled.into_iter().enumerate() {
            *split.to.lock(first + part) = stripe;
        }
        drop(from);
        split.moved += 1;
        if split.moved < current.len() {
            return None;
        }
        self.current = Arc::clone(&split.to);
        self.split = None;
        Some(Arc::clone(&self.current))
    }
}

/// Locks the stripe that holds `prefix` without the books, following those that moved.
pub(super) fn follow<R>(
    set: &Arc<StripeSet>,
    prefix: Prefix,
    act: impl FnOnce(&mut Stripe, Prefix) -> R,
) -> R {
    let mut set = Arc::clone(set);
    loop {
        let index = set.index_at(prefix);
        let mut stripe = set.lock(index);
        let next = match stripe.moved_to() {
            None => return act(&mut stripe, set.end_of(index)),
            Some(next) => Arc::clone(next),
        };
        drop(stripe);
        set = next;
    }
}
