//! Passes over all of a tenant's entries: idle ones, purge, recount, labels, finer stripes.
//!
//! Each goes stripe by stripe and lets requests in between. It keeps its place as a prefix of
//! identities, so stripes that split behind, at or before it change nothing.

use super::last::Tick;
use super::layout::{Prefix, follow};
use super::ledger::View;
use super::stripe::{Candidate, Fate};
use super::{Books, Gone, LocalLimits, SeriesStore, facts};
use crate::labels::Identity;

/// Whether a pass in steps has reached its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    More,
    Done,
}

impl SeriesStore {
    /// The minute cycle: entries touched before `idle_before` become idle. Removes nothing.
    pub fn cycle(&self, idle_before: Tick) {
        let set = self.stripes.load_full();
        let mut at = Prefix::START;
        while at < Prefix::END {
            at = follow(&set, at, |stripe, end| {
                self.mirror.went_idle(stripe.settle_idle(idle_before));
                end
            });
        }
    }

    /// Shows `look` every entry, for counting what a purge would take. It runs under the locks and
    /// has to be short.
    pub fn survey(&self, mut look: impl FnMut(&Candidate)) {
        let set = self.stripes.load_full();
        let mut at = Prefix::START;
        while at < Prefix::END {
            at = follow(&set, at, |stripe, end| {
                stripe.survey(&mut look);
                end
            });
        }
    }

    /// The head has dropped samples older than `newest_before_ms`: series that have nothing newer
    /// go. `unknown` decides on those whose newest time nobody has told us. `removed` gets the
    /// removed ones, a stripe's at a time and outside the locks. Returns how many there were.
    pub fn purge(
        &self,
        newest_before_ms: i64,
        mut unknown: impl FnMut(&Candidate) -> Fate,
        removed: impl FnMut(&[Identity]),
    ) -> u64 {
        let fate = |candidate: &Candidate| match candidate.newest_ms {
            Some(newest_ms) if newest_ms < newest_before_ms => Fate::Drop,
            Some(_) => Fate::Keep,
            None => unknown(candidate),
        };
        self.purge_where(fate, removed)
    }

    /// Removes what `fate` drops, except pending entries that a request still holds: these are
    /// that request's to decide. `fate` runs under the locks and has to be short.
    pub fn purge_where(
        &self,
        mut fate: impl FnMut(&Candidate) -> Fate,
        mut removed: impl FnMut(&[Identity]),
    ) -> u64 {
        let mut total = 0;
        let mut gone = Vec::new();
        let mut at = Prefix::START;
        while at < Prefix::END {
            gone.clear();
            {
                let mut books = self.books();
                let Books { ledger, layout } = &mut *books;
                let (mut stripe, end) = layout.lock_at(at);
                let mut sum = Gone::default();
                stripe.sweep(ledger.generations(), &mut fate, |entry| {
                    sum.uncount(ledger, entry);
                    gone.push(entry.identity);
                });
                self.take_off(ledger, &sum);
                at = end;
            }
            if !gone.is_empty() {
                total += gone.len() as u64;
                removed(&gone);
            }
        }
        total
    }

    /// Removes everything, also what requests hold: the tenant is closed, and the caller has
    /// seen to it that no request of it is left. Returns how many series there were.
    pub fn purge_all(&self) -> u64 {
        let mut total = 0;
        let mut at = Prefix::START;
        while at < Prefix::END {
            let mut books = self.books();
            let Books { ledger, layout } = &mut *books;
            let (mut stripe, end) = layout.lock_at(at);
            let mut gone = Gone::default();
            stripe.clear(ledger.generations(), |entry| gone.uncount(ledger, entry));
            self.take_off(ledger, &gone);
            total += gone.series.in_memory;
            at = end;
        }
        total
    }

    /// Begins to count what `view` owns; one already under way starts over with this view.
    /// The counts in force stay those of the old view until the last step swaps them.
    pub fn begin_recount(&self, view: View) {
        self.books().ledger.begin_recount(view);
    }

    /// Counts one stripe. The last one puts counts, view and announced limits in force together.
    pub fn recount_step(&self) -> Progress {
        let mut books = self.books();
        let Books { ledger, layout } = &mut *books;
        let Some(at) = ledger.recount_at() else {
            return Progress::Done;
        };
        let generations = ledger.generations();
        let (stripe, end) = layout.lock_at(at);
        ledger.recount_stripe(end, |keys, partial| {
            stripe.count_owned(keys, generations, partial);
        });
        drop(stripe);
        if end < Prefix::END {
            return Progress::More;
        }
        let before = ledger.series().owned;
        ledger.end_recount();
        self.totals.replace_owned(before, ledger.series().owned);
        self.publish(ledger);
        Progress::Done
    }

    /// A whole recount: counts by `view`, then puts it in force together with `limits`.
    pub fn recount(&self, view: View, limits: LocalLimits) {
        self.hold(view.epoch, limits, Tick::MAX);
        self.begin_recount(view);
        while self.recount_step() == Progress::More {}
    }

    /// Starts counting series per metric. Until every series there is has been assigned, or the
    /// labels pass ends, the counts are unknown and their limit refuses nothing.
    pub fn enable_metric_counts(&self) {
        self.books().ledger.enable_metrics();
    }

    pub fn disable_metric_counts(&self) {
        self.books().ledger.disable_metrics();
        self.drop_stale_references();
    }

    /// Starts counting series per label set of the configuration `generation`; the counts of
    /// another one are dropped. Unknown at first, as with metrics.
    pub fn enable_label_sets(&self, generation: u64) {
        self.books().ledger.enable_label_sets(generation);
    }

    pub fn disable_label_sets(&self) {
        self.books().ledger.disable_label_sets();
        self.drop_stale_references();
    }

    /// The labels pass tells what a series' labels are. Does nothing for a series that is not
    /// there, or whose references are known already.
    pub fn assign(
        &self,
        identity: Identity,
        metric: &[u8],
        label_sets: &[u16],
        label_sets_generation: u64,
    ) {
        let mut books = self.books();
        let Books { ledger, layout } = &mut *books;
        let mut stripe = layout.lock(identity);
        let Some(row) = stripe.find(identity) else {
            return;
        };
        let generations = ledger.generations();
        let facts = facts(&stripe.entry(row, generations));
        if let Some(slot) = ledger.assign_metric(&facts, metric) {
            stripe.assign_metric(row, generations.metric, slot);
        }
        if let Some(slot) = ledger.assign_label_sets(&facts, label_sets, label_sets_generation) {
            stripe.assign_sets(row, generations.sets, slot);
        }
    }

    /// The labels pass has told all it knows: counts are known from here on. Returns how many
    /// series it did not reach; they stay uncounted there.
    pub fn labels_pass_done(&self) -> u64 {
        self.books().ledger.end_labels_pass()
    }

    /// Tells a series' newest time, as a look into the store after a restart gives it.
    pub fn learn_newest(&self, identity: Identity, newest_ms: i64) {
        follow(&self.stripes.load(), Prefix::of(identity), |stripe, _| {
            if let Some(row) = stripe.find(identity) {
                stripe.learn_newest(row, newest_ms);
            }
        });
    }

    /// Metrics or label sets are counted and not known: the labels of some series are missing.
    pub fn labels_unknown(&self) -> bool {
        self.books().ledger.labels_unknown()
    }

    /// Splits one stripe if stripes are too long. Creations do so as they go; a caller with time
    /// to spare may do it ahead of them.
    pub fn split_stripes_step(&self) -> Progress {
        let mut books = self.books();
        let series = books.ledger.series().in_memory;
        if !books.layout.splitting() && !books.layout.outgrown(series) {
            return Progress::Done;
        }
        self.split_step(&mut books);
        Progress::More
    }

    /// Looks at what is counted anew in each stripe: somebody may have switched it on again.
    fn drop_stale_references(&self) {
        let mut at = Prefix::START;
        while at < Prefix::END {
            let books = self.books();
            let (mut stripe, end) = books.layout.lock_at(at);
            stripe.drop_stale_references(books.ledger.generations());
            at = end;
        }
    }
}
