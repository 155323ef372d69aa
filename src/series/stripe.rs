//! One lock's worth of a tenant's series, as columns.
//!
//! The passes that read every entry (cycle, recount, purge) read one or two columns from end to
//! end, and columns can grow by an eighth where a hash table must double. So the index holds row
//! numbers only; what a touch needs lies in one row, and other facts in one vector per fact.
//!
//! Invariants: all columns have one length (a reference column may be empty, which says that
//! nothing is assigned); the index holds each row once, under its identity's hash; a stripe that
//! has moved is empty and says where its entries went. Nothing here counts: every method returns
//! what changed, and the caller keeps the books.

use std::sync::Arc;

use hashbrown::HashTable;

use super::batch::{Item, Kind, Order, Verdict};
use super::index::Index;
use super::intern::Slot;
use super::last::{Activity, KindRule, Last, Tick};
use super::layout::StripeSet;
use super::references::References;
use super::row::{Row, settle_idle};
use crate::keys::{KeySet, RingKey};
use crate::labels::Identity;

/// A newest sample time that nobody has told us.
pub(super) const UNKNOWN_MS: i64 = i64::MIN;

/// What a request wants of each of its touches.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) now: Tick,
    pub(super) order: Order,
    pub(super) kinds: KindRule,
}

/// All that a stripe keeps of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) identity: Identity,
    pub(super) last: Last,
    pub(super) newest_ms: i64,
    pub(super) key: RingKey,
    pub(super) metric: Slot,
    pub(super) sets: Slot,
}

/// The generations of references that are in force, which a stripe's own may lag behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Generations {
    pub(super) metric: u32,
    pub(super) sets: u32,
}

/// Requests that hold a pending entry, where they are not the usual one.
#[derive(Clone, Copy, Debug)]
struct Holders {
    identity: Identity,
    requests: u32,
    /// A request ended without telling whether the series exists: no refusal may remove it.
    unconfirmed: bool,
}

/// What became of a pending entry when one of its holders failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// Confirmed, gone, or held by others still.
    Kept,
    /// The last holder failed: the entry in this row has to go.
    Orphan(usize),
}

/// What a decision about an entry's end may look at.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub identity: Identity,
    pub key: RingKey,
    /// `None` when nobody has told us, as after a listing.
    pub newest_ms: Option<i64>,
    pub touched: Tick,
    /// A request has created it and not ended yet: it stays, whatever is decided here.
    pub held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Keep,
    Drop,
}

/// Owned entries found by a recount, by the slots they refer to.
#[derive(Debug, Default)]
pub(super) struct Partial {
    pub(super) series: u64,
    pub(super) native_histogram: u64,
    pub(super) metric: Vec<u64>,
    pub(super) sets: Vec<u64>,
}

#[derive(Default)]
pub(super) struct Stripe {
    index: Index,
    rows: Vec<Row>,
    /// The column that the minute cycle reads; only ticks may be behind what the rows have.
    last: Vec<Last>,
    key: Vec<RingKey>,
    metric: References,
    sets: References,
    /// Pending entries with other than exactly one holder; nearly always empty.
    holders: HashTable<Holders>,
    moved_to: Option<Arc<StripeSet>>,
}

impl Stripe {
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self {
            index: Index::with_capacity(rows),
            rows: Vec::with_capacity(rows),
            last: Vec::with_capacity(rows),
            key: Vec::with_capacity(rows),
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Where this stripe's entries went, once a restripe has moved them.
    pub(super) fn moved_to(&self) -> Option<&Arc<StripeSet>> {
        self.moved_to.as_ref()
    }

    #[inline]
    pub(super) fn find(&self, identity: Identity) -> Option<usize> {
        let rows = &self.rows;
        self.index.find(hash(identity), |row| rows.get(row).is_some_and(|row| row.is(identity)))
    }

    pub(super) fn entry(&self, row: usize, generations: Generations) -> Entry {
        Entry {
            identity: self.rows[row].identity(),
            last: self.rows[row].last(),
            newest_ms: self.rows[row].newest_ms,
            key: self.key[row],
            metric: self.metric.get(row, generations.metric),
            sets: self.sets.get(row, generations.sets),
        }
    }

    pub(super) fn kind(&self, row: usize) -> Kind {
        self.rows[row].last().kind()
    }

    pub(super) fn pending(&self, row: usize) -> bool {
        self.rows[row].last().pending()
    }

    /// The hot path: settles an entry that needs no more than two timestamps, and says why not
    /// for any other, which it leaves as it is.
    #[inline]
    pub(super) fn touch(&mut self, item: &Item, how: How, woken: &mut Activity) -> Option<Verdict> {
        let Some(row) = self.find(item.identity) else {
            return Some(Verdict::New);
        };
        if self.pending(row) {
            return Some(Verdict::Pending);
        }
        if let Some(verdict) = self.objection(row, item, how) {
            return Some(verdict);
        }
        self.mark_seen(row, item, how.now, woken);
        None
    }

    /// A word of what [`Self::likely`] reads, to have it near when it does.
    #[inline]
    pub(super) fn word_of_index(&self, identity: Identity) -> u32 {
        self.index.word(hash(identity))
    }

    /// A word of what [`Self::is_ready`] reads, to have it near when it does.
    #[inline]
    pub(super) fn word_of_row(&self, row: u32) -> u64 {
        self.rows.get(row as usize).map_or(0, Row::word)
    }

    /// The row that an identity most likely has, for [`Self::is_ready`] to confirm.
    #[inline]
    pub(super) fn likely(&self, identity: Identity) -> u32 {
        self.index.likely(hash(identity))
    }

    /// Whether the row is this identity's, active, and nobody's to confirm.
    #[inline]
    pub(super) fn is_ready(&self, identity: Identity, row: u32) -> bool {
        self.rows
            .get(row as usize)
            .is_some_and(|row| row.is(identity) & row.last().active() & !row.last().pending())
    }

    /// [`Self::touch`] of a row that is ready.
    #[inline]
    pub(super) fn touch_ready(&mut self, row: u32, item: &Item, how: How) -> Option<Verdict> {
        let row = row as usize;
        if let Some(verdict) = self.objection(row, item, how) {
            return Some(verdict);
        }
        if let Some(last) = self.rows[row].touch(item.newest_ms, how.now) {
            self.last[row] = last;
        }
        None
    }

    /// Why a known series needs more than two timestamps.
    #[inline]
    fn objection(&self, row: usize, item: &Item, how: How) -> Option<Verdict> {
        if let Order::Strict { since_ms } = how.order {
            let newest_ms = self.rows[row].newest_ms;
            if newest_ms == UNKNOWN_MS || newest_ms < since_ms || item.first_ms <= newest_ms {
                return Some(Verdict::Unsettled { newest_ms: known(newest_ms) });
            }
        }
        let changes =
            item.kind != self.kind(row) && self.kind_after(row, item.kind, how.kinds) == item.kind;
        changes.then_some(Verdict::KindChange)
    }

    /// The kind that a touch with a sample of kind `kind` leaves the entry with.
    #[inline]
    pub(super) fn kind_after(&self, row: usize, kind: Kind, rule: KindRule) -> Kind {
        let last = self.rows[row].last();
        match rule {
            KindRule::AtWake if last.active() => last.kind(),
            KindRule::Latest | KindRule::AtWake => kind,
        }
    }

    /// Moves both timestamps forward and wakes the entry.
    #[inline]
    pub(super) fn mark_seen(&mut self, row: usize, item: &Item, now: Tick, woken: &mut Activity) {
        let last = self.rows[row].last();
        if last.active() {
            if let Some(last) = self.rows[row].touch(item.newest_ms, now) {
                self.last[row] = last;
            }
            return;
        }
        woken.note(last.kind());
        self.set_last(row, last.touched(now));
        self.learn_newest(row, item.newest_ms);
    }

    pub(super) fn learn_newest(&mut self, row: usize, newest_ms: i64) {
        self.rows[row].learn_newest(newest_ms);
    }

    pub(super) fn set_kind(&mut self, row: usize, kind: Kind) {
        self.set_last(row, self.rows[row].last().of_kind(kind));
    }

    pub(super) fn insert(&mut self, entry: Entry, generations: Generations) {
        debug_assert!(self.find(entry.identity).is_none());
        let row = self.rows.len();
        push(&mut self.rows, Row::new(entry.identity, entry.newest_ms, entry.last));
        push(&mut self.last, entry.last);
        push(&mut self.key, entry.key);
        self.metric.insert(row, generations.metric, entry.metric);
        self.sets.insert(row, generations.sets, entry.sets);
        let rows = &self.rows;
        self.index.insert(hash(entry.identity), row, |row| hash(rows[row].identity()));
    }

    /// Takes a row out; the last row takes its place.
    pub(super) fn remove(&mut self, row: usize) {
        let identity = self.rows[row].identity();
        self.index.remove(hash(identity), row);
        if self.pending(row) {
            self.forget_holders(identity);
        }
        self.rows.swap_remove(row);
        self.last.swap_remove(row);
        self.key.swap_remove(row);
        self.metric.swap_remove(row);
        self.sets.swap_remove(row);
        if row < self.rows.len() {
            self.index.renumber(hash(self.rows[row].identity()), self.rows.len(), row);
        }
    }

    /// Takes out every entry that `fate` drops, telling `removed` of each.
    ///
    /// An entry that a request holds stays: whether it exists is that request's to say.
    pub(super) fn sweep(
        &mut self,
        generations: Generations,
        mut fate: impl FnMut(&Candidate) -> Fate,
        mut removed: impl FnMut(&Entry),
    ) {
        let mut keep = vec![true; self.len()];
        let mut dropped = 0;
        for (row, keep) in keep.iter_mut().enumerate() {
            let candidate = self.candidate(row);
            if fate(&candidate) == Fate::Drop && !candidate.held {
                removed(&self.entry(row, generations));
                *keep = false;
                dropped += 1;
            }
        }
        // Taking a row out costs two look-ups, building the index anew costs one per kept row.
        if dropped > self.len() / 4 {
            self.compact(&keep);
        } else {
            // From the end, so that the row that fills a gap has been judged already.
            for row in (0..keep.len()).rev().filter(|&row| !keep[row]) {
                self.remove(row);
            }
        }
        if dropped > 0 {
            self.give_back_slack();
        }
    }

    /// Shows every entry as [`Self::sweep`] would.
    pub(super) fn survey(&self, mut look: impl FnMut(&Candidate)) {
        for row in 0..self.len() {
            look(&self.candidate(row));
        }
    }

    fn candidate(&self, row: usize) -> Candidate {
        Candidate {
            identity: self.rows[row].identity(),
            key: self.key[row],
            newest_ms: known(self.rows[row].newest_ms),
            touched: self.rows[row].last().tick(),
            held: self.held(row),
        }
    }

    /// Takes out everything, held or not, telling `removed` of each entry.
    pub(super) fn clear(&mut self, generations: Generations, mut removed: impl FnMut(&Entry)) {
        for row in 0..self.len() {
            removed(&self.entry(row, generations));
        }
        *self = Self::default();
    }

    /// Marks as idle what was touched before `idle_before`.
    pub(super) fn settle_idle(&mut self, idle_before: Tick) -> Activity {
        settle_idle(&mut self.last, &mut self.rows, idle_before)
    }

    pub(super) fn count_owned(
        &self,
        keys: &KeySet,
        generations: Generations,
        partial: &mut Partial,
    ) {
        // In locals: through `partial` each row would wait for the store of the one before.
        let (mut series, mut native_histogram) = (0_u64, 0_u64);
        for (&key, last) in self.key.iter().zip(&self.last) {
            let owned = u32::from(keys.contains(key));
            series += u64::from(owned);
            native_histogram += u64::from(owned & last.histogram_bit());
        }
        partial.series += series;
        partial.native_histogram += native_histogram;
        self.metric.count_owned(keys, &self.key, generations.metric, &mut partial.metric);
        self.sets.count_owned(keys, &self.key, generations.sets, &mut partial.sets);
    }

    pub(super) fn assign_metric(&mut self, row: usize, generation: u32, slot: Slot) {
        self.metric.assign(row, self.rows.len(), generation, slot);
    }

    pub(super) fn assign_sets(&mut self, row: usize, generation: u32, slot: Slot) {
        self.sets.assign(row, self.rows.len(), generation, slot);
    }

    /// Gives back the references that nobody counts by any more.
    pub(super) fn drop_stale_references(&mut self, generations: Generations) {
        if self.metric.generation != generations.metric {
            self.metric = References::default();
        }
        if self.sets.generation != generations.sets {
            self.sets = References::default();
        }
    }

    /// Adds a request to those that hold the pending entry in `row`.
    pub(super) fn hold(&mut self, row: usize) {
        let identity = self.rows[row].identity();
        match self.holders.find_mut(hash(identity), |held| held.identity == identity) {
            Some(held) => held.requests = held.requests.saturating_add(1),
            None => self.remember_holders(Holders { identity, requests: 2, unconfirmed: false }),
        }
    }

    /// The series exists: whoever holds it need not care any more. True when it was pending.
    pub(super) fn confirm(&mut self, identity: Identity) -> bool {
        let Some(row) = self.find(identity).filter(|&row| self.pending(row)) else {
            return false;
        };
        self.set_last(row, self.rows[row].last().confirmed());
        self.forget_holders(identity);
        true
    }

    /// One holder's request was refused as a whole.
    pub(super) fn release(&mut self, identity: Identity) -> Released {
        let Some(row) = self.find(identity).filter(|&row| self.pending(row)) else {
            return Released::Kept;
        };
        match self.holders.find_mut(hash(identity), |held| held.identity == identity) {
            None => Released::Orphan(row),
            Some(held) => {
                held.requests = held.requests.saturating_sub(1);
                if held.requests == 0 && !held.unconfirmed {
                    return Released::Orphan(row);
                }
                Released::Kept
            }
        }
    }

    /// One holder's request ended without a word about this series.
    pub(super) fn abandon(&mut self, identity: Identity) {
        if !self.find(identity).is_some_and(|row| self.pending(row)) {
            return;
        }
        match self.holders.find_mut(hash(identity), |held| held.identity == identity) {
            Some(held) => {
                held.requests = held.requests.saturating_sub(1);
                held.unconfirmed = true;
            }
            None => self.remember_holders(Holders { identity, requests: 0, unconfirmed: true }),
        }
    }

    /// Moves every entry to its stripe of `to`, which has them all to itself until then.
    pub(super) fn move_to(&mut self, to: &Arc<StripeSet>, parts: &mut [Self], first: usize) {
        for row in 0..self.len() {
            let part = to.index_of(self.rows[row].identity()) - first;
            let entry = Entry {
                metric: self.metric.get(row, self.metric.generation),
                sets: self.sets.get(row, self.sets.generation),
                ..self.entry(row, Generations::default())
            };
            let generations =
                Generations { metric: self.metric.generation, sets: self.sets.generation };
            parts[part].insert(entry, generations);
        }
        for held in self.holders.drain() {
            parts[to.index_of(held.identity) - first].remember_holders(held);
        }
        *self = Self { moved_to: Some(Arc::clone(to)), ..Self::default() };
    }

    fn set_last(&mut self, row: usize, last: Last) {
        self.last[row] = self.rows[row].set_last(last);
    }

    fn held(&self, row: usize) -> bool {
        let identity = self.rows[row].identity();
        self.pending(row)
            && self
                .holders
                .find(hash(identity), |held| held.identity == identity)
                .is_none_or(|held| held.requests > 0)
    }

    fn remember_holders(&mut self, held: Holders) {
        self.holders.insert_unique(hash(held.identity), held, |held| hash(held.identity));
    }

    fn forget_holders(&mut self, identity: Identity) {
        if let Ok(found) = self.holders.find_entry(hash(identity), |held| held.identity == identity)
        {
            found.remove();
            if self.holders.is_empty() {
                self.holders = HashTable::new();
            }
        }
    }

    fn compact(&mut self, keep: &[bool]) {
        retain(&mut self.rows, keep);
        retain(&mut self.last, keep);
        retain(&mut self.key, keep);
        if !self.metric.slots.is_empty() {
            retain(&mut self.metric.slots, keep);
        }
        if !self.sets.slots.is_empty() {
            retain(&mut self.sets.slots, keep);
        }
        let rows = &self.rows;
        self.index.rebuild(rows.len(), |row| hash(rows[row].identity()));
        if !self.holders.is_empty() {
            let (index, rows) = (&self.index, &self.rows);
            self.holders.retain(|held| {
                let is_it = |row: usize| rows[row].is(held.identity);
                index.find(hash(held.identity), is_it).is_some()
            });
        }
    }

    /// A drop of the head can take most of a stripe with it; its memory goes too.
    fn give_back_slack(&mut self) {
        let rows = self.len();
        if rows > self.rows.capacity() / 2 {
            return;
        }
        let room = rows + rows / 8;
        self.rows.shrink_to(room);
        self.last.shrink_to(room);
        self.key.shrink_to(room);
        self.metric.slots.shrink_to(room);
        self.sets.slots.shrink_to(room);
        let rows = &self.rows;
        self.index.lay_out(room, |row| hash(rows[row].identity()));
    }
}

pub(super) fn known(newest_ms: i64) -> Option<i64> {
    (newest_ms != UNKNOWN_MS).then_some(newest_ms)
}

/// The half of an identity that the index uses; the other half chooses the stripe.
#[inline]
fn hash(identity: Identity) -> u64 {
    identity.0 as u64
}

/// Growth by an eighth keeps the slack of a column small at any size; doubling would swing it.
pub(super) fn growth(rows: usize) -> usize {
    rows / 8 + 4
}

pub(super) fn push<T>(column: &mut Vec<T>, value: T) {
    if column.len() == column.capacity() {
        column.reserve_exact(growth(column.len()));
    }
    column.push(value);
}

fn retain<T>(column: &mut Vec<T>, keep: &[bool]) {
    let mut verdicts = keep.iter();
    column.retain(|_| verdicts.next().copied().unwrap_or(true));
}
