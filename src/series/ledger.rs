//! A tenant's books: its counts, the view they belong to, and the limits they are held against.
//!
//! Pure bookkeeping: entries come as facts, and the caller holds the lock. Whatever creates,
//! removes or changes the kind of an entry passes through here one at a time, so a check and the
//! creation it admits are one step and no limit is exceeded, not even by one.
//!
//! Invariants: every owned count is by the view in force. While a recount runs, its partial counts
//! are, by the new view, exactly those entries whose prefix lies below `passed`. Counts, limits and
//! view are swapped together.

use std::sync::Arc;

use super::assigned::{Assigned, LabelSets};
use super::batch::Kind;
use super::in_force::{Limit, LimitName, LimitsInForce, UNLIMITED};
use super::intern::Slot;
use super::last::{KindRule, Tick};
use super::layout::Prefix;
use super::refusal::{Basis, Check, Decided, NewSeries, Refusal};
use super::stripe::{Generations, Partial};
use crate::keys::{KeySet, RingKey};

/// Which keys are ours, as of one ring snapshot. Unknown ownership is [`View::unknown`].
#[derive(Clone, Debug)]
pub struct View {
    /// Grows with every view of a tenant.
    pub epoch: u64,
    pub keys: Arc<KeySet>,
}

impl View {
    /// Every key counts as ours, so that the owned counts are the in-memory ones.
    pub fn unknown() -> Self {
        Self { epoch: 0, keys: Arc::new(KeySet::all()) }
    }
}

/// A number of series: with an entry, and of those the owned ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub in_memory: u64,
    pub owned: u64,
}

impl Count {
    pub fn by(self, basis: Basis) -> u64 {
        match basis {
            Basis::Owned => self.owned,
            Basis::InMemory => self.in_memory,
        }
    }

    pub(super) fn add(&mut self, owned: bool) {
        self.in_memory += 1;
        self.owned += u64::from(owned);
    }

    pub(super) fn remove(&mut self, owned: bool) {
        self.in_memory -= 1;
        self.owned -= u64::from(owned);
    }
}

/// What counts need to know of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) prefix: Prefix,
    pub(super) key: RingKey,
    pub(super) kind: Kind,
    pub(super) metric: Slot,
    pub(super) sets: Slot,
}

/// Verdict of the check without enforcement beside the one that enforcement would give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shadow {
    pub(super) would_admit: bool,
    pub(super) would_refuse: bool,
}

struct Counting {
    view: View,
    partial: Partial,
    passed: Prefix,
}

/// See the head of the file.
pub(super) struct Ledger {
    view: View,
    series: Count,
    native_histogram: Count,
    metrics: Option<Box<Assigned<u8>>>,
    label_sets: Option<Box<LabelSets>>,
    limits: LimitsInForce,
    counting: Option<Box<Counting>>,
    /// The generation that the next set of references gets; none is given twice.
    next_generation: u32,
    /// While series are being loaded: how many there must be at least.
    loading: Option<u64>,
}

/// What a check goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckRules {
    pub(super) basis: Basis,
    pub(super) kinds: KindRule,
    pub(super) now: Tick,
    /// Cortex's own count of native-histogram series, the active ones.
    pub(super) active_native_histogram: u64,
}

impl Ledger {
    pub(super) fn new(view: View) -> Self {
        Self {
            view,
            series: Count::default(),
            native_histogram: Count::default(),
            metrics: None,
            label_sets: None,
            limits: LimitsInForce::default(),
            counting: None,
            next_generation: 1,
            loading: None,
        }
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn series(&self) -> Count {
        self.series
    }

    pub(super) fn native_histogram(&self) -> Count {
        self.native_histogram
    }

    pub(super) fn limits_mut(&mut self) -> &mut LimitsInForce {
        &mut self.limits
    }

    pub(super) fn limit(&self, name: LimitName, basis: Basis, now: Tick) -> Limit {
        self.limits.get(name, basis, now)
    }

    pub(super) fn owns(&self, key: RingKey) -> bool {
        self.view.keys.contains(key)
    }

    pub(super) fn generations(&self) -> Generations {
        Generations {
            metric: self.metrics.as_ref().map_or(0, |metrics| metrics.generation),
            sets: self.label_sets.as_ref().map_or(0, |sets| sets.combinations.generation),
        }
    }

    /// The tenant's own checks on a creation, in their order.
    pub(super) fn check(
        &self,
        new: &NewSeries<'_>,
        kind: Kind,
        rules: CheckRules,
    ) -> Result<(), Refusal> {
        self.checks(new, kind, rules, Check::verdict)
    }

    /// Shows each check that a creation has to pass, in their order, up to the first to which
    /// `judge` says no: the decision and its replay are this one list.
    pub(super) fn checks(
        &self,
        new: &NewSeries<'_>,
        kind: Kind,
        rules: CheckRules,
        mut judge: impl FnMut(Check) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let check = |name, count| {
            let limit = self.limit(name, rules.basis, rules.now);
            Check { name, decided: Decided { count, basis: rules.basis, limit } }
        };
        judge(check(LimitName::Series, self.at_least_loaded()))?;
        if kind == Kind::NativeHistogram || rules.kinds == KindRule::AtWake {
            let count = self.native_histograms_checked(rules);
            judge(check(LimitName::NativeHistogramSeries, count))?;
        }
        if let Some(metrics) = &self.metrics
            && metrics.known()
            && !new.metric_exempt
            && self.limit(LimitName::PerMetric, rules.basis, rules.now).max != UNLIMITED
        {
            judge(check(LimitName::PerMetric, metrics.names.count_of(new.metric)))?;
        }
        if let Some(sets) = &self.label_sets
            && sets.combinations.known()
            && sets.configured == new.label_sets_generation
        {
            for &index in new.label_sets {
                let count = sets.counts.get(usize::from(index)).copied().unwrap_or_default();
                judge(check(LimitName::LabelSet(index), count))?;
            }
        }
        Ok(())
    }

    pub(super) fn check_native_histogram(&self, rules: CheckRules) -> Result<(), Refusal> {
        let count = self.native_histograms_checked(rules);
        let limit = self.limit(LimitName::NativeHistogramSeries, rules.basis, rules.now);
        let decided = Decided { count, basis: rules.basis, limit };
        Check { name: LimitName::NativeHistogramSeries, decided }.verdict()
    }

    fn native_histograms_checked(&self, rules: CheckRules) -> Count {
        let mut count = self.native_histogram;
        if rules.kinds == KindRule::AtWake {
            // Cortex knows active ones only, and compares those.
            count.in_memory = rules.active_native_histogram;
        }
        count
    }

    /// Where the tenant's series check would differ with enforcement on.
    pub(super) fn shadow(&self, now: Tick) -> Shadow {
        let count = self.at_least_loaded();
        let admits = |basis| count.by(basis) < self.limit(LimitName::Series, basis, now).max;
        let (enforced, plain) = (admits(Basis::Owned), admits(Basis::InMemory));
        Shadow { would_admit: enforced && !plain, would_refuse: plain && !enforced }
    }

    /// References of a new entry, counted; none for what nobody counts.
    pub(super) fn refer(&mut self, new: &NewSeries<'_>) -> (Slot, Slot) {
        let owned = self.owns(new.ring_key);
        let metric = match &mut self.metrics {
            Some(metrics) => metrics.names.add(new.metric, owned),
            None => Slot::NONE,
        };
        let sets = match &mut self.label_sets {
            Some(sets) if sets.configured == new.label_sets_generation => {
                let slot = sets.combinations.names.add(new.label_sets, owned);
                sets.adjust(slot, |count| count.add(owned));
                slot
            }
            // Indices of another configuration say nothing: the labels pass has to assign it.
            Some(sets) => {
                sets.combinations.unassigned += 1;
                Slot::NONE
            }
            None => Slot::NONE,
        };
        (metric, sets)
    }

    /// Counts an entry whose references are counted already. Whether it is owned.
    pub(super) fn add(&mut self, facts: &Facts) -> bool {
        let owned = self.owns(facts.key);
        self.series.add(owned);
        if facts.kind == Kind::NativeHistogram {
            self.native_histogram.add(owned);
        }
        if let Some(partial) = self.partial_of(facts) {
            partial.series += 1;
            partial.native_histogram += u64::from(facts.kind == Kind::NativeHistogram);
            facts.metric.add_to(&mut partial.metric, 1);
            facts.sets.add_to(&mut partial.sets, 1);
        }
        owned
    }

    /// Uncounts an entry and its references. Whether it was owned.
    pub(super) fn remove(&mut self, facts: &Facts) -> bool {
        let owned = self.owns(facts.key);
        self.series.remove(owned);
        if facts.kind == Kind::NativeHistogram {
            self.native_histogram.remove(owned);
        }
        if let Some(partial) = self.partial_of(facts) {
            partial.series -= 1;
            partial.native_histogram -= u64::from(facts.kind == Kind::NativeHistogram);
            facts.metric.take_from(&mut partial.metric, 1);
            facts.sets.take_from(&mut partial.sets, 1);
        }
        if let Some(metrics) = &mut self.metrics {
            match facts.metric {
                Slot::NONE => metrics.unassigned -= 1,
                slot => metrics.names.remove(slot, owned),
            }
        }
        if let Some(sets) = &mut self.label_sets {
            match facts.sets {
                Slot::NONE => sets.combinations.unassigned -= 1,
                slot => {
                    sets.adjust(slot, |count| count.remove(owned));
                    sets.combinations.names.remove(slot, owned);
                }
            }
        }
        owned
    }

    /// An entry turns from `facts.kind` into the other kind.
    pub(super) fn change_kind(&mut self, facts: &Facts) {
        let owned = self.owns(facts.key);
        let becomes_histogram = facts.kind == Kind::Float;
        if becomes_histogram {
            self.native_histogram.add(owned);
        } else {
            self.native_histogram.remove(owned);
        }
        if let Some(partial) = self.partial_of(facts) {
            if becomes_histogram {
                partial.native_histogram += 1;
            } else {
                partial.native_histogram -= 1;
            }
        }
    }

    /// Begins to count by another view, from the start.
    pub(super) fn begin_recount(&mut self, view: View) {
        let (partial, passed) = (Partial::default(), Prefix::START);
        self.counting = Some(Box::new(Counting { view, partial, passed }));
    }

    pub(super) fn recount_at(&self) -> Option<Prefix> {
        self.counting.as_ref().map(|counting| counting.passed)
    }

    /// Lets `count` add the entries between the recount's place and `to`, and moves it there.
    pub(super) fn recount_stripe(&mut self, to: Prefix, count: impl FnOnce(&KeySet, &mut Partial)) {
        if let Some(counting) = &mut self.counting {
            count(&counting.view.keys, &mut counting.partial);
            counting.passed = to;
        }
    }

    /// Swaps in what the recount found, with its view and the limits announced for it.
    pub(super) fn end_recount(&mut self) {
        let Some(counting) = self.counting.take() else {
            return;
        };
        let Counting { view, partial, .. } = *counting;
        self.series.owned = partial.series;
        self.native_histogram.owned = partial.native_histogram;
        if let Some(metrics) = &mut self.metrics {
            metrics.names.set_owned(&partial.metric);
        }
        if let Some(sets) = &mut self.label_sets {
            sets.combinations.names.set_owned(&partial.sets);
            sets.sum_up();
        }
        self.limits.swap(view.epoch);
        self.view = view;
    }

    /// Starts counting metrics; unknown until every entry there is has been assigned.
    pub(super) fn enable_metrics(&mut self) {
        if self.metrics.is_none() {
            let generation = self.take_generation();
            let assigned = Assigned::new(generation, self.series.in_memory);
            self.metrics = Some(Box::new(assigned));
            self.forget_partial(|partial| &mut partial.metric);
        }
    }

    pub(super) fn disable_metrics(&mut self) {
        self.metrics = None;
        self.forget_partial(|partial| &mut partial.metric);
    }

    /// Starts counting by the label sets of the configuration `configured`, whose indices mean
    /// other sets than before.
    pub(super) fn enable_label_sets(&mut self, configured: u64) {
        if self.label_sets.as_ref().is_some_and(|sets| sets.configured == configured) {
            return;
        }
        let generation = self.take_generation();
        let combinations = Assigned::new(generation, self.series.in_memory);
        let sets = LabelSets { configured, combinations, counts: Vec::new() };
        self.label_sets = Some(Box::new(sets));
        self.forget_partial(|partial| &mut partial.sets);
    }

    pub(super) fn disable_label_sets(&mut self) {
        self.label_sets = None;
        self.forget_partial(|partial| &mut partial.sets);
    }

    /// Assigns an entry to its metric, if it has none and metrics are counted.
    pub(super) fn assign_metric(&mut self, facts: &Facts, metric: &[u8]) -> Option<Slot> {
        let owned = self.owns(facts.key);
        let metrics = self.metrics.as_mut().filter(|_| facts.metric == Slot::NONE)?;
        metrics.unassigned -= 1;
        let slot = metrics.names.add(metric, owned);
        if let Some(partial) = self.partial_of(facts) {
            slot.add_to(&mut partial.metric, 1);
        }
        Some(slot)
    }

    /// Assigns an entry to its label sets, if it has none and this configuration is counted.
    pub(super) fn assign_label_sets(
        &mut self,
        facts: &Facts,
        label_sets: &[u16],
        configured: u64,
    ) -> Option<Slot> {
        let owned = self.owns(facts.key);
        let unassigned = facts.sets == Slot::NONE;
        let sets =
            self.label_sets.as_mut().filter(|sets| unassigned && sets.configured == configured)?;
        sets.combinations.unassigned -= 1;
        let slot = sets.combinations.names.add(label_sets, owned);
        sets.adjust(slot, |count| count.add(owned));
        if let Some(partial) = self.partial_of(facts) {
            slot.add_to(&mut partial.sets, 1);
        }
        Some(slot)
    }

    /// Declares the counts known although some entries have no labels in any source. How many.
    pub(super) fn end_labels_pass(&mut self) -> u64 {
        let mut left = 0;
        if let Some(metrics) = &mut self.metrics {
            metrics.pass_done = true;
            left = metrics.unassigned;
        }
        if let Some(sets) = &mut self.label_sets {
            sets.combinations.pass_done = true;
            left = left.max(sets.combinations.unassigned);
        }
        left
    }

    /// A metric's count; `None` while unknown or not counted.
    pub(super) fn metric_count(&self, metric: &[u8]) -> Option<Count> {
        let metrics = self.metrics.as_ref().filter(|metrics| metrics.known())?;
        Some(metrics.names.count_of(metric))
    }

    /// A label set's count; `None` while unknown or not counted.
    pub(super) fn label_set_count(&self, index: u16) -> Option<Count> {
        let sets = self.label_sets.as_ref().filter(|sets| sets.combinations.known())?;
        Some(sets.counts.get(usize::from(index)).copied().unwrap_or_default())
    }

    pub(super) fn metrics(&self) -> Option<&Assigned<u8>> {
        self.metrics.as_deref()
    }

    pub(super) fn label_sets(&self) -> Option<&LabelSets> {
        self.label_sets.as_deref()
    }

    pub(super) fn labels_unknown(&self) -> bool {
        self.metrics.as_ref().is_some_and(|metrics| !metrics.known())
            || self.label_sets.as_ref().is_some_and(|sets| !sets.combinations.known())
    }

    pub(super) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Until loading ends there are at least `upstream` series and those created since.
    pub(super) fn begin_loading(&mut self, upstream: u64) {
        self.loading = Some(upstream);
    }

    pub(super) fn note_created_while_loading(&mut self) {
        if let Some(floor) = &mut self.loading {
            *floor += 1;
        }
    }

    pub(super) fn end_loading(&mut self) {
        self.loading = None;
    }

    /// Not yet listed series are there all the same, and must not make room for new ones.
    fn at_least_loaded(&self) -> Count {
        let floor = self.loading.unwrap_or(0);
        Count { in_memory: self.series.in_memory.max(floor), owned: self.series.owned.max(floor) }
    }

    /// The running recount's numbers, if it has passed this entry and its view owns it.
    fn partial_of(&mut self, facts: &Facts) -> Option<&mut Partial> {
        let counting = self.counting.as_mut()?;
        let counted = facts.prefix < counting.passed && counting.view.keys.contains(facts.key);
        counted.then_some(&mut counting.partial)
    }

    fn forget_partial(&mut self, part: impl FnOnce(&mut Partial) -> &mut Vec<u64>) {
        if let Some(counting) = &mut self.counting {
            part(&mut counting.partial).clear();
        }
    }

    fn take_generation(&mut self) -> u32 {
        let generation = self.next_generation;
        self.next_generation += 1;
        generation
    }
}
