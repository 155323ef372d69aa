//! The series of one tenant: who is in memory, active, owned, and who may still be created.
//!
//! The hot path is [`SeriesStore::touch`]: identity, stripe, entry, two timestamps. It takes one
//! lock per group of items and nothing else. Everything that changes a count of entries
//! (create, remove, kind change, a step of a recount or of a split) first takes the tenant's
//! *books*, so that a check and the creation it admits are one step, and counts need no
//! compare-and-swap. Only the instance's totals span tenants and are reserved atomically.
//!
//! Three counts, never one derived from another: *in-memory* entries are there until their head
//! drops them; *active* ones were touched since the idle window's start, as far as the last
//! [`SeriesStore::cycle`] knows; *owned* ones are in-memory and in the view in force.
//!
//! Lock order: books, then one stripe. A split holds the stripe it empties and then, one at a
//! time, the parts it fills; nobody goes the other way, from a part to what it came from.
//! A stripe's lock is held for one group of a request or one pass over its entries, and
//! [`STRIPE_SERIES_MAX`] bounds how many these are. No clock, no I/O, no task in this room.

use std::hint::black_box;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::labels::Identity;
use crate::sync::{Mutex, MutexGuard, Ordering};

mod admission;
mod assigned;
mod batch;
pub mod head;
mod in_force;
mod index;
mod inspect;
mod intern;
mod largest;
mod last;
mod layout;
mod ledger;
mod passes;
mod pending;
mod references;
mod refusal;
mod row;
mod stripe;
mod totals;

#[cfg(test)]
mod tests;

pub use batch::{Batch, Item, Kind, Order, Slow, Verdict};
pub use in_force::{InForce, Limit, LimitName, LocalLimits, UNLIMITED};
pub use inspect::Inspected;
pub use largest::{LabelSetCounts, LargeMetric, Largest, NAME_BYTES_MAX};
pub use last::{KindRule, Tick};
pub use layout::STRIPE_SERIES_MAX;
pub use ledger::{Count, View};
pub use passes::Progress;
pub use refusal::{Basis, Check, Decided, NewSeries, Refusal};
pub use stripe::{Candidate, Fate};
pub use totals::{Counts, Totals};

use last::{Activity, Flags, Last};
use layout::{Layout, Prefix, StripeSet, follow};
use ledger::{Facts, Ledger};
use stripe::{Entry, How, Stripe, UNKNOWN_MS};
use totals::Mirror;

/// What does not change while a tenant's store lives.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub kinds: KindRule,
    /// Average length of a stripe beyond which stripes are split.
    pub stripe_series_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { kinds: KindRule::Latest, stripe_series_max: STRIPE_SERIES_MAX }
    }
}

/// How a request's creations are checked.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Most series of all tenants, or [`UNLIMITED`].
    pub instance_series_max: u64,
    pub basis: Basis,
    /// With the in-memory basis: also count where the owned basis would have decided otherwise.
    pub shadow: bool,
    /// Whether a created series exists is not known before the request has ended: it is pending,
    /// and the request holds it until it confirms, releases or abandons it.
    pub pending: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            instance_series_max: UNLIMITED,
            basis: Basis::InMemory,
            shadow: false,
            pending: false,
        }
    }
}

/// What became of an item that was not settled by the touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    Created {
        owned: bool,
    },
    Existing,
    /// It exists and is pending: this request holds it now, beside the one that created it.
    Held,
}

/// The series of one tenant. See the head of the file.
pub struct SeriesStore {
    books: Mutex<Books>,
    /// The set that touches start from; replaced when a split is complete.
    stripes: ArcSwap<StripeSet>,
    mirror: Mirror,
    totals: Arc<Totals>,
    kinds: KindRule,
}

struct Books {
    ledger: Ledger,
    layout: Layout,
}

/// Series of a lock that a touch looks for at once; as many as a usual group has.
const LOOK_AHEAD: usize = 32;

impl SeriesStore {
    pub fn new(options: Options, view: View, totals: Arc<Totals>) -> Self {
        let layout = Layout::new(options.stripe_series_max);
        let stripes = ArcSwap::new(layout.published());
        let ledger = Ledger::new(view);
        let mirror = Mirror::default();
        mirror.publish(ledger.series(), ledger.native_histogram(), ledger.view().epoch);
        Self {
            books: Mutex::new(Books { ledger, layout }),
            stripes,
            mirror,
            totals,
            kinds: options.kinds,
        }
    }

    /// Settles every item that needs two timestamps only; the rest is left, untouched, in the
    /// batch's slow list with the reason.
    pub fn touch(&self, batch: &mut Batch, order: Order, now: Tick) {
        let set = self.stripes.load();
        let how = How { now, order, kinds: self.kinds };
        batch.group(&set);
        let (groups, slow) = batch.groups();
        // Nearly always empty: stripes move while a tenant grows.
        let mut moved: Vec<u32> = Vec::new();
        for group in groups {
            let mut woken = Activity::default();
            let mut stripes = set.lock_all(group.lock);
            for members in group.members.chunks(LOOK_AHEAD) {
                let items = || members.iter().map(|&member| &group.items[member as usize]);
                // Short loops instead of a long one, and before each look one that only reads a
                // word of what is looked at: it is so short that the CPU has the memory of all
                // members on its way at once.
                let words = items()
                    .map(|item| stripes[set.place_of(item.identity)].word_of_index(item.identity));
                black_box(words.fold(0, |sum, word| sum ^ word));
                let mut rows = [0; LOOK_AHEAD];
                for (row, item) in rows.iter_mut().zip(items()) {
                    *row = stripes[set.place_of(item.identity)].likely(item.identity);
                }
                let words = rows
                    .iter()
                    .zip(items())
                    .map(|(&row, item)| stripes[set.place_of(item.identity)].word_of_row(row));
                black_box(words.fold(0, |sum, word| sum ^ word));
                let mut ready = [false; LOOK_AHEAD];
                for ((ready, &row), item) in ready.iter_mut().zip(&rows).zip(items()) {
                    *ready = stripes[set.place_of(item.identity)].is_ready(item.identity, row);
                }
                for (at, &member) in members.iter().enumerate() {
                    let item = &group.items[member as usize];
                    let stripe = &mut stripes[set.place_of(item.identity)];
                    let verdict = if ready[at] {
                        stripe.touch_ready(rows[at], item, how)
                    } else {
                        stripe.touch(item, how, &mut woken)
                    };
                    match verdict {
                        None => {}
                        Some(Verdict::New) if stripe.moved_to().is_some() => moved.push(member),
                        Some(verdict) => slow.push(Slow { item: member, verdict }),
                    }
                }
            }
            // Under the stripes' lock: a cycle must not take off what is not yet added.
            self.mirror.woke(woken);
            drop(stripes);
            for member in moved.drain(..) {
                let item = &group.items[member as usize];
                follow(&set, Prefix::of(item.identity), |stripe, _| {
                    let mut woken = Activity::default();
                    if let Some(verdict) = stripe.touch(item, how, &mut woken) {
                        slow.push(Slow { item: member, verdict });
                    }
                    self.mirror.woke(woken);
                });
            }
        }
    }

    /// Creates a series if the limits allow it, or touches it if it exists.
    pub fn create(
        &self,
        item: &Item,
        new: &NewSeries<'_>,
        rules: &Rules,
        now: Tick,
    ) -> Result<Admitted, Refusal> {
        let mut books = self.books();
        let Books { ledger, layout } = &mut *books;
        let mut stripe = layout.lock(item.identity);
        if let Some(row) = stripe.find(item.identity) {
            return self.touch_row(ledger, &mut stripe, row, item, rules, now);
        }
        let owned = self.admit(ledger, new, item.kind, rules, now)?;
        let (metric, sets) = ledger.refer(new);
        let entry = Entry {
            identity: item.identity,
            last: Last::new(now, item.kind, Flags { active: true, pending: rules.pending }),
            newest_ms: item.newest_ms,
            key: new.ring_key,
            metric,
            sets,
        };
        self.enter(ledger, &mut stripe, &entry);
        if !owned {
            self.mirror.created_not_owned.fetch_add(1, Ordering::Relaxed);
        }
        ledger.note_created_while_loading();
        drop(stripe);
        self.pay_for_split(&mut books);
        Ok(Admitted::Created { owned })
    }

    /// Touches an existing series whatever its order, kind or pending state. `None`: it is gone.
    ///
    /// Needs no labels, so no ring key; only turning into a native histogram can be refused.
    pub fn touch_one(
        &self,
        item: &Item,
        rules: &Rules,
        now: Tick,
    ) -> Result<Option<Admitted>, Refusal> {
        let settled = follow(&self.stripes.load(), Prefix::of(item.identity), |stripe, _| {
            let row = stripe.find(item.identity)?;
            let last = stripe.kind_after(row, item.kind, self.kinds);
            if last != stripe.kind(row) || stripe.pending(row) {
                return Some(None);
            }
            let mut woken = Activity::default();
            stripe.mark_seen(row, item, now, &mut woken);
            self.mirror.woke(woken);
            Some(Some(Admitted::Existing))
        });
        match settled {
            None => return Ok(None),
            Some(Some(admitted)) => return Ok(Some(admitted)),
            Some(None) => {}
        }
        let mut books = self.books();
        let Books { ledger, layout } = &mut *books;
        let mut stripe = layout.lock(item.identity);
        match stripe.find(item.identity) {
            None => Ok(None),
            Some(row) => self.touch_row(ledger, &mut stripe, row, item, rules, now).map(Some),
        }
    }

    /// Takes one series out, pending or not. Whether it was there.
    pub fn remove(&self, identity: Identity) -> bool {
        let mut books = self.books();
        let Books { ledger, layout } = &mut *books;
        let mut stripe = layout.lock(identity);
        let Some(row) = stripe.find(identity) else {
            return false;
        };
        self.remove_row(ledger, &mut stripe, row);
        true
    }

    /// Enters a series that exists, as a listing or the store tells after a restart: without
    /// limits, and idle until something touches it. An entry already there learns the newest
    /// time and is confirmed. Whether it was entered.
    pub fn restore(
        &self,
        identity: Identity,
        kind: Kind,
        newest_ms: Option<i64>,
        new: &NewSeries<'_>,
    ) -> bool {
        let newest_ms = newest_ms.unwrap_or(UNKNOWN_MS);
        let mut books = self.books();
        let Books { ledger, layout } = &mut *books;
        let mut stripe = layout.lock(identity);
        if let Some(row) = stripe.find(identity) {
            stripe.learn_newest(row, newest_ms);
            if stripe.confirm(identity) {
                self.mirror.pending.fetch_sub(1, Ordering::Relaxed);
            }
            return false;
        }
        let (metric, sets) = ledger.refer(new);
        let last = Last::new(Tick::default(), kind, Flags { active: false, pending: false });
        let entry = Entry { identity, last, newest_ms, key: new.ring_key, metric, sets };
        self.totals.add(ledger.owns(entry.key));
        self.enter(ledger, &mut stripe, &entry);
        self.mirror.restored.fetch_add(1, Ordering::Relaxed);
        drop(stripe);
        self.pay_for_split(&mut books);
        true
    }

    /// Whether the series has an entry.
    pub fn contains(&self, identity: Identity) -> bool {
        follow(&self.stripes.load(), Prefix::of(identity), |stripe, _| {
            stripe.find(identity).is_some()
        })
    }

    /// Counts for metrics and pages; takes no lock.
    pub fn counts(&self) -> Counts {
        self.mirror.counts()
    }

    /// A metric's count; `None` while it is unknown or nobody counts metrics.
    pub fn metric_count(&self, metric: &[u8]) -> Option<Count> {
        self.books().ledger.metric_count(metric)
    }

    /// A label set's count; `None` while it is unknown or nobody counts label sets.
    pub fn label_set_count(&self, index: u16) -> Option<Count> {
        self.books().ledger.label_set_count(index)
    }

    /// The number that a check at `now` goes by.
    pub fn limit(&self, name: LimitName, basis: Basis, now: Tick) -> Limit {
        self.books().ledger.limit(name, basis, now)
    }

    /// Puts limits in force at once: an operator's change, or a new number of instances that
    /// moves no ownership. While limits are on hold it replaces those of the view in force; those
    /// of the view to come have to be announced anew with [`Self::hold`].
    pub fn set_limits(&self, limits: LocalLimits) {
        self.books().ledger.limits_mut().set(limits);
    }

    /// Announces the limits of the view `epoch`, whose recount is due. With the owned basis each
    /// number that rises applies at once, and each that falls when the recount has swapped the
    /// counts, or at `deadline`.
    pub fn hold(&self, epoch: u64, limits: LocalLimits, deadline: Tick) {
        self.books().ledger.limits_mut().hold(epoch, limits, deadline);
    }

    /// The view in force.
    pub fn view(&self) -> View {
        self.books().ledger.view().clone()
    }

    /// From now until [`Self::end_loading`] the tenant counts at least `upstream` series and
    /// those created since, however few have been restored.
    pub fn begin_loading(&self, upstream: u64) {
        self.books().ledger.begin_loading(upstream);
    }

    pub fn end_loading(&self) {
        self.books().ledger.end_loading();
    }

    /// Not all series that there are have entries yet, so a refusal may be for a known series.
    pub fn is_loading(&self) -> bool {
        self.books().ledger.is_loading()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no holder of a tenant's books panics")
    }

    /// Touches the entry in `row`, changing its kind and holding it as the request needs.
    fn touch_row(
        &self,
        ledger: &mut Ledger,
        stripe: &mut Stripe,
        row: usize,
        item: &Item,
        rules: &Rules,
        now: Tick,
    ) -> Result<Admitted, Refusal> {
        let entry = stripe.entry(row, ledger.generations());
        let kind = stripe.kind_after(row, item.kind, self.kinds);
        if kind != entry.last.kind() {
            if kind == Kind::NativeHistogram && self.kinds == KindRule::Latest {
                ledger.check_native_histogram(self.check_rules(rules, now))?;
            }
            ledger.change_kind(&facts(&entry));
            stripe.set_kind(row, kind);
            self.follow_kind(&entry, kind);
            self.publish(ledger);
        }
        let mut admitted = Admitted::Existing;
        if entry.last.pending() {
            if rules.pending {
                stripe.hold(row);
                admitted = Admitted::Held;
            } else if stripe.confirm(entry.identity) {
                self.mirror.pending.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let mut woken = Activity::default();
        stripe.mark_seen(row, item, now, &mut woken);
        self.mirror.woke(woken);
        Ok(admitted)
    }

    /// An active entry's new kind, in the count of active native histograms.
    fn follow_kind(&self, entry: &Entry, kind: Kind) {
        if !entry.last.active() {
            return;
        }
        let change = Activity { all: 0, native_histogram: 1 };
        match kind {
            Kind::NativeHistogram => self.mirror.woke(change),
            Kind::Float => self.mirror.went_idle(change),
        }
    }

    /// Puts an entry into its stripe and every count but the instance's.
    fn enter(&self, ledger: &mut Ledger, stripe: &mut Stripe, entry: &Entry) {
        stripe.insert(*entry, ledger.generations());
        ledger.add(&facts(entry));
        if entry.last.active() {
            self.mirror.woke(activity(entry));
        }
        if entry.last.pending() {
            self.mirror.pending.fetch_add(1, Ordering::Relaxed);
        }
        self.mirror.created.fetch_add(1, Ordering::Relaxed);
        self.publish(ledger);
    }

    /// Takes an entry out of its stripe and every count.
    fn remove_row(&self, ledger: &mut Ledger, stripe: &mut Stripe, row: usize) {
        let entry = stripe.entry(row, ledger.generations());
        stripe.remove(row);
        let mut gone = Gone::default();
        gone.uncount(ledger, &entry);
        self.take_off(ledger, &gone);
    }

    /// Takes what the ledger has uncounted off the counts that are read without its lock.
    fn take_off(&self, ledger: &Ledger, gone: &Gone) {
        self.totals.remove(gone.series);
        self.mirror.went_idle(gone.active);
        self.mirror.pending.fetch_sub(gone.pending, Ordering::Relaxed);
        self.mirror.removed.fetch_add(gone.series.in_memory, Ordering::Relaxed);
        self.publish(ledger);
    }

    fn publish(&self, ledger: &Ledger) {
        self.mirror.publish(ledger.series(), ledger.native_histogram(), ledger.view().epoch);
    }

    /// Creations pay for the split they make necessary, step by step.
    fn pay_for_split(&self, books: &mut Books) {
        if books.layout.split_is_due(books.ledger.series().in_memory) {
            self.split_step(books);
        }
    }

    fn split_step(&self, books: &mut Books) {
        if let Some(complete) = books.layout.split_step() {
            self.stripes.store(complete);
        }
    }
}

impl Drop for SeriesStore {
    /// A tenant that goes takes its series out of the instance's totals.
    fn drop(&mut self) {
        let series = self.books().ledger.series();
        self.totals.remove(series);
    }
}

/// Entries that a pass has taken out of a stripe, summed up so that each atomic is written once.
#[derive(Default)]
struct Gone {
    series: Count,
    active: Activity,
    pending: u64,
}

impl Gone {
    fn uncount(&mut self, ledger: &mut Ledger, entry: &Entry) {
        self.series.add(ledger.remove(&facts(entry)));
        if entry.last.active() {
            self.active.note(entry.last.kind());
        }
        self.pending += u64::from(entry.last.pending());
    }
}

fn facts(entry: &Entry) -> Facts {
    Facts {
        prefix: Prefix::of(entry.identity),
        key: entry.key,
        kind: entry.last.kind(),
        metric: entry.metric,
        sets: entry.sets,
    }
}

fn activity(entry: &Entry) -> Activity {
    let native_histogram = u64::from(entry.last.kind() == Kind::NativeHistogram);
    Activity { all: 1, native_histogram }
}
