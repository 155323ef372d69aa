//! Scratch of one request: its series by identity, grouped by lock, and what needs more work.
//!
//! Reused from request to request, so that touching known series allocates nothing. A request
//! is looked through twice: first without locks, to compute identities, then lock by lock.
//! One lock per group lets the CPU overlap the cache misses of a group's members.

use super::layout::StripeSet;
use crate::labels::Identity;

/// What a series' samples are. A series with both counts as what its latest sample is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Float,
    NativeHistogram,
}

/// One series of a request.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    pub identity: Identity,
    /// Time of the series' first sample in the request.
    pub first_ms: i64,
    /// Time of its newest sample in the request.
    pub newest_ms: i64,
    pub kind: Kind,
}

/// Whether samples must be newer than what the series has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Whoever stores the samples decides; we only note the newest time.
    #[default]
    Any,
    /// An item that is not newer than its series goes to the slow list, and so does one whose
    /// series has nothing at `since_ms` or later: it is new to what its storer calls a block.
    Strict { since_ms: i64 },
}

/// Why an item was not settled by the touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody has seen the series: its creation has to pass the limits.
    New,
    /// It turns into a native histogram or back, which the counts have to follow.
    KindChange,
    /// Another request has created it and does not know yet whether it exists.
    Pending,
    /// Its first sample is not newer than the series' newest one, or the latter is older than
    /// the order asks for; `None` when that is unknown.
    Unsettled { newest_ms: Option<i64> },
}

/// An item that the touch left alone, by its index in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    pub item: u32,
    pub verdict: Verdict,
}

/// A request's items and the scratch to group them.
#[derive(Debug, Default)]
pub struct Batch {
    items: Vec<Item>,
    slow: Vec<Slow>,
    /// Indices of items, those of one lock next to each other and in the request's order.
    grouped: Vec<u32>,
    /// Per lock, where its group ends in `grouped`.
    ends: Vec<u32>,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.items.clear();
        self.slow.clear();
    }

    /// Adds a series. A request is bounded in bytes, far below 2^32 series.
    #[inline]
    pub fn push(&mut self, item: Item) {
        self.items.push(item);
    }

    pub fn items(&self) -> &[Item] {
        &self.items
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What the last touch did not settle. Items of one series are in the request's order.
    pub fn slow(&self) -> &[Slow] {
        &self.slow
    }

    /// Counting sort of the items by the lock of their stripe.
    pub(super) fn group(&mut self, set: &StripeSet) {
        self.slow.clear();
        self.ends.clear();
        self.ends.resize(set.locks_len(), 0);
        self.grouped.clear();
        self.grouped.resize(self.items.len(), 0);
        for item in &self.items {
            self.ends[set.lock_of(item.identity)] += 1;
        }
        let mut start = 0;
        for end in &mut self.ends {
            let count = *end;
            *end = start;
            start += count;
        }
        for (at, item) in self.items.iter().enumerate() {
            let end = &mut self.ends[set.lock_of(item.identity)];
            self.grouped[*end as usize] = at as u32;
            *end += 1;
        }
    }

    /// The groups of the last grouping that are not empty, and the list of slow items to fill.
    pub(super) fn groups(&mut self) -> (impl Iterator<Item = Group<'_>>, &mut Vec<Slow>) {
        let (items, grouped) = (&self.items, &self.grouped);
        let mut start = 0;
        let groups = self.ends.iter().enumerate().filter_map(move |(lock, &end)| {
            let members = &grouped[start as usize..end as usize];
            start = end;
            (!members.is_empty()).then_some(Group { lock, members, items })
        });
        (groups, &mut self.slow)
    }
}

/// The items whose stripes share one lock.
pub(super) struct Group<'a> {
    pub(super) lock: usize,
    pub(super) members: &'a [u32],
    pub(super) items: &'a [Item],
}
