//! Many keys at once, by the members that hold them: one batch per address.
//!
//! A request's series lie all over the ring, so most of them need a walk of their own; those
//! that lead to the same position share one. All memory is kept from request to request: on a
//! warm path nothing is allocated per key.
//!
//! Invariant: an item is in a batch of each address that its replica set names, in one of them,
//! and the items of a batch are in the order of the request.

use std::collections::HashMap;
use std::sync::Arc;

use super::circle::MemberIndex;
use super::model::Position;
use super::snapshot::Placement;
use super::walk::{GetError, Operation, Walker};
use crate::keys::RingKey;

/// Spreads the keys of a request over the members of a ring.
#[derive(Debug, Default)]
pub struct Batches {
    /// The first `len` are in use; the others only keep their memory.
    batches: Vec<Batch>,
    len: usize,
    sets: Vec<ReplicaSetRule>,
    /// The batches of all sets, one set after the other.
    set_batches: Vec<u32>,
    /// The set of each item.
    item_sets: Vec<u32>,
    /// Batch of a member, by its index, or one of the two marks below.
    batch_of: Vec<u32>,
    /// Members may share an address; what is sent there is one batch.
    batch_at: HashMap<Arc<str>, u32>,
    memo: Memo,
}

/// What goes to one address, or a part of it.
#[derive(Debug, Default)]
pub struct Batch {
    member: Option<MemberIndex>,
    /// Ascending. An item that several members at this address hold is there once for each.
    items: Vec<u32>,
}

/// A replica set that some items of a request share.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicaSetRule {
    pub members: u32,
    pub max_errors: u32,
    /// Where its batches end; they begin where those of the set before it end.
    batches_end: u32,
}

/// Why a request cannot be spread over the ring. The texts are Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    #[error("DoBatch: InstancesCount <= 0")]
    NoInstances,
    /// The first key, in the request's order, that too few members can take.
    #[error(transparent)]
    Ring(#[from] GetError),
}

/// A member that has not been met yet in this request.
const UNMET: u32 = u32::MAX;
/// A member that cannot serve now.
const DEAD: u32 = u32::MAX - 1;

impl Batches {
    /// Spreads `keys`; the items of the batches are their numbers, from 0.
    ///
    /// A key that cannot be placed fails the whole request, as in Cortex: nothing may be sent
    /// then.
    pub fn assign(
        &mut self,
        place: &Placement<'_>,
        op: Operation,
        keys: impl ExactSizeIterator<Item = RingKey>,
    ) -> Result<(), AssignError> {
        self.begin(place, keys.len());
        if place.members_len == 0 {
            return Err(AssignError::NoInstances);
        }
        let circle = place.layout.circle();
        if circle.is_empty() && keys.len() > 0 {
            return Err(GetError::EmptyRing.into());
        }
        let mut walker = Walker::new(place.layout, op);
        for (item, key) in (0..).zip(keys) {
            let position = circle.search(key);
            let set = match self.memo.get(position) {
                Some(set) => set,
                None => match self.add_set(&mut walker, place, op, position) {
                    Some(set) => set,
                    None => return Err(refusal(&mut walker, place, key)),
                },
            };
            self.put(item, set);
        }
        Ok(())
    }

    /// Cuts batches of more than `bytes_max` into several for the same address; `bytes_of` gives
    /// the size of an item. An item that is larger alone is alone.
    pub fn split(&mut self, bytes_max: u64, bytes_of: impl Fn(u32) -> u64) {
        let mut at = 0;
        // What is cut off becomes a batch at the end, and is looked at in its turn.
        while at < self.len {
            if let Some(cut) = self.batches[at].cut(bytes_max, &bytes_of) {
                next(&mut self.batches, &mut self.len);
                let (before, rest) = self.batches[..self.len].split_at_mut(self.len - 1);
                rest[0].member = before[at].member;
                rest[0].items.extend(before[at].items.drain(cut..));
            }
            at += 1;
        }
    }

    /// The batches of the last request, in the order in which its keys met their addresses; what
    /// was cut off of them comes last.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Batch> {
        self.batches[..self.len].iter()
    }

    /// The rule that each item's replicas answer by, in the order of the items.
    pub(super) fn rules(&self) -> impl ExactSizeIterator<Item = ReplicaSetRule> {
        self.item_sets.iter().map(|&set| self.sets[set as usize])
    }

    /// Bytes that the items of requests so far have taken, and that are kept for the next one.
    pub fn bytes_kept(&self) -> usize {
        let items: usize = self.batches.iter().map(|batch| batch.items.capacity()).sum();
        let words = items + self.set_batches.capacity() + self.item_sets.capacity();
        words * size_of::<u32>() + self.sets.capacity() * size_of::<ReplicaSetRule>()
    }

    fn begin(&mut self, place: &Placement<'_>, keys: usize) {
        self.len = 0;
        self.sets.clear();
        self.set_batches.clear();
        self.item_sets.clear();
        self.batch_of.clear();
        self.batch_of.resize(place.members.len(), UNMET);
        self.batch_at.clear();
        self.memo.begin(keys);
    }

    /// Walks from `position`; `None` when too few members can serve.
    fn add_set(
        &mut self,
        walker: &mut Walker<'_>,
        place: &Placement<'_>,
        op: Operation,
        position: Position,
    ) -> Option<u32> {
        let set = self.sets.len() as u32;
        let first = self.set_batches.len();
        for &member in walker.walk_from(position) {
            let mut batch = self.batch_of[member.index()];
            if batch == UNMET {
                batch = self.meet(place, op, member);
            }
            if batch != DEAD {
                self.set_batches.push(batch);
            }
        }
        let live = self.set_batches.len() - first;
        let max_errors = place.layout.errors_allowed(live)?;
        self.sets.push(ReplicaSetRule {
            members: live as u32,
            max_errors: max_errors as u32,
            batches_end: self.set_batches.len() as u32,
        });
        self.memo.put(position, set);
        Some(set)
    }

    #[inline]
    fn put(&mut self, item: u32, set: u32) {
        self.item_sets.push(set);
        let set = set as usize;
        let first = set.checked_sub(1).map_or(0, |before| self.sets[before].batches_end);
        for &batch in &self.set_batches[first as usize..self.sets[set].batches_end as usize] {
            self.batches[batch as usize].items.push(item);
        }
    }

    /// The batch of a member that this request meets for the first time.
    fn meet(&mut self, place: &Placement<'_>, op: Operation, member: MemberIndex) -> u32 {
        let met = &place.members[member.index()];
        let batch = if place.health.serves(met, op) {
            *self.batch_at.entry(Arc::clone(&met.addr)).or_insert_with(|| {
                let batch = self.len as u32;
                next(&mut self.batches, &mut self.len).member = Some(member);
                batch
            })
        } else {
            DEAD
        };
        self.batch_of[member.index()] = batch;
        batch
    }
}

/// One more batch in use, without items.
fn next<'b>(batches: &'b mut Vec<Batch>, len: &mut usize) -> &'b mut Batch {
    let at = *len;
    *len += 1;
    if batches.len() < *len {
        batches.push(Batch::default());
    }
    batches[at].items.clear();
    &mut batches[at]
}

impl Batch {
    /// Where it has to end so as not to be larger; `None` where it need not.
    fn cut(&self, bytes_max: u64, bytes_of: impl Fn(u32) -> u64) -> Option<usize> {
        let (mut bytes, mut before) = (0, None);
        for (at, &item) in self.items.iter().enumerate() {
            // It is sent once, however often its answer counts.
            if before.replace(item) == Some(item) {
                continue;
            }
            bytes += bytes_of(item);
            if bytes > bytes_max && at > 0 {
                return Some(at);
            }
        }
        None
    }

    /// Who takes it; of several members at one address the first that was met.
    pub fn member(&self) -> MemberIndex {
        self.member.expect("a batch in use was made for a member")
    }

    /// Numbers of the keys, ascending, each once.
    pub fn items(&self) -> impl Iterator<Item = u32> + Clone {
        let mut before = None;
        let is_new = move |item: &u32| before.replace(*item) != Some(*item);
        self.items.iter().copied().filter(is_new)
    }

    /// The same, each as often as the batch's answer counts for it.
    pub(super) fn answered_items(&self) -> &[u32] {
        &self.items
    }
}

/// The slow way again, for its words.
fn refusal(walker: &mut Walker<'_>, place: &Placement<'_>, key: RingKey) -> AssignError {
    let outcome = walker.get(place.members, &place.health, key);
    outcome.err().unwrap_or(GetError::EmptyRing).into()
}

/// Which positions of this request have been walked: the last one for each of a few slots.
///
/// It may forget, and then a set is made twice, which only costs the walk.
#[derive(Debug, Default)]
struct Memo {
    /// Position and set plus one, in one word; 0 is empty.
    slots: Vec<u64>,
    mask: usize,
}

/// Slots of the memo: 32 KiB, beside which the walk's own data stay in the L1 and L2 caches. A
/// request of more keys forgets some.
const MEMO_SLOTS_MAX: usize = 4096;

impl Memo {
    fn begin(&mut self, keys: usize) {
        let slots = keys.saturating_mul(2).next_power_of_two().min(MEMO_SLOTS_MAX);
        self.slots.clear();
        self.slots.resize(slots, 0);
        self.mask = slots - 1;
    }

    #[inline]
    fn get(&self, position: Position) -> Option<u32> {
        let slot = self.slots[position.index() & self.mask];
        let is_it = slot >> 32 == u64::from(position.0) && slot as u32 != 0;
        is_it.then(|| slot as u32 - 1)
    }

    #[inline]
    fn put(&mut self, position: Position, set: u32) {
        self.slots[position.index() & self.mask] = u64::from(position.0) << 32 | u64::from(set + 1);
    }
}

#[cfg(test)]
mod tests;
