//! The store against a map that does everything the slow and obvious way.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;

/// How many different series there are: few, so that operations meet.
const SERIES: u64 = 48;
const METRICS: [&[u8]; 3] = [b"a", b"b", b"c"];
const SETS: [&[u16]; 4] = [&[], &[0], &[1], &[0, 1]];

#[derive(Clone, Debug)]
enum Op {
    Create { n: u64, at_ms: i64, histogram: bool, now: u32 },
    Touch { ns: Vec<u64>, at_ms: i64, histogram: bool, now: u32, strict: bool },
    TouchOne { n: u64, at_ms: i64, histogram: bool, now: u32 },
    End { request: usize, how: u8 },
    Remove { n: u64 },
    Restore { n: u64, newest_ms: Option<i64>, histogram: bool },
    Cycle { before: u32 },
    Purge { before_ms: i64 },
    PurgeAll,
    BeginRecount { end: u32 },
    RecountStep,
    Recount { end: u32 },
    Split,
    Limits { series: u64, histograms: u64, per_metric: u64, set: u64 },
    Metrics { on: bool },
    Sets { generation: u64 },
    Assign { n: u64 },
}

fn ops() -> impl Strategy<Value = Op> {
    let n = 0..SERIES;
    let ms = 0_i64..50;
    let now = 0_u32..50;
    let create = (n.clone(), ms.clone(), any::<bool>(), now.clone());
    let limit = || prop_oneof![Just(UNLIMITED), 0_u64..20];
    let touch = (prop::collection::vec(n.clone(), 1..12), create.clone(), any::<bool>());
    prop_oneof![
        20 => create.clone().prop_map(|(n, at_ms, histogram, now)| {
            Op::Create { n, at_ms, histogram, now }
        }),
        6 => touch.prop_map(|(ns, (_, at_ms, histogram, now), strict)| {
            Op::Touch { ns, at_ms, histogram, now, strict }
        }),
        6 => create.prop_map(|(n, at_ms, histogram, now)| {
            Op::TouchOne { n, at_ms, histogram, now }
        }),
        8 => (0..4_usize, 0..3_u8).prop_map(|(request, how)| Op::End { request, how }),
        2 => n.clone().prop_map(|n| Op::Remove { n }),
        3 => (n.clone(), prop::option::of(ms.clone()), any::<bool>())
            .prop_map(|(n, newest_ms, histogram)| Op::Restore { n, newest_ms, histogram }),
        3 => now.prop_map(|before| Op::Cycle { before }),
        3 => ms.prop_map(|before_ms| Op::Purge { before_ms }),
        1 => Just(Op::PurgeAll),
        3 => any::<u32>().prop_map(|end| Op::BeginRecount { end }),
        12 => Just(Op::RecountStep),
        1 => any::<u32>().prop_map(|end| Op::Recount { end }),
        3 => Just(Op::Split),
        2 => (limit(), limit(), limit(), limit())
            .prop_map(|(series, histograms, per_metric, set)| {
                Op::Limits { series, histograms, per_metric, set }
            }),
        1 => any::<bool>().prop_map(|on| Op::Metrics { on }),
        1 => (0..3_u64).prop_map(|generation| Op::Sets { generation }),
        6 => n.prop_map(|n| Op::Assign { n }),
    ]
}

#[derive(Clone, Debug)]
struct Naive {
    key: u32,
    kind: Kind,
    newest_ms: Option<i64>,
    touched: u32,
    active: bool,
    pending: bool,
    holders: u32,
    unconfirmed: bool,
    metric: Option<usize>,
    sets: Option<usize>,
}

struct World {
    store: SeriesStore,
    totals: Arc<Totals>,
    entries: HashMap<u64, Naive>,
    limits: LocalLimits,
    kinds: KindRule,
    rules: Rules,
    /// What each of four requests holds.
    requests: [Vec<u64>; 4],
    views: BTreeMap<u64, u32>,
    metrics_on: bool,
    /// The generation whose label sets are counted; 0 for none.
    sets_on: u64,
    epoch: u64,
}

fn key_of(n: u64) -> u32 {
    (n as u32).wrapping_mul(0x9e37_79b9)
}

/// Some pairs of identities share their hash, and all of them few leading bits.
fn identity_of(n: u64) -> Identity {
    Identity(u128::from(n % 16) << 124 | u128::from(n) << 64 | u128::from(n / 2))
}

fn metric_of(n: u64) -> usize {
    n as usize % METRICS.len()
}

fn sets_of(n: u64) -> usize {
    n as usize % SETS.len()
}

fn kind_of(histogram: bool) -> Kind {
    if histogram { Kind::NativeHistogram } else { Kind::Float }
}

impl World {
    fn new(kinds: KindRule, rules: Rules) -> Self {
        let totals = Arc::new(Totals::new());
        let options = Options { kinds, stripe_series_max: 4 };
        let store = SeriesStore::new(options, View::unknown(), Arc::clone(&totals));
        Self {
            store,
            totals,
            entries: HashMap::new(),
            limits: LocalLimits::default(),
            kinds,
            rules,
            requests: Default::default(),
            views: BTreeMap::from([(0, u32::MAX)]),
            metrics_on: false,
            sets_on: 0,
            epoch: 0,
        }
    }

    fn new_series(&self, n: u64) -> NewSeries<'static> {
        NewSeries {
            ring_key: RingKey(key_of(n)),
            metric: METRICS[metric_of(n)],
            metric_exempt: false,
            label_sets: SETS[sets_of(n)],
            label_sets_generation: self.sets_on,
        }
    }

    fn owns(&self, key: u32) -> bool {
        self.store.view().keys.contains(RingKey(key))
    }

    fn count(&self, which: impl Fn(&Naive) -> bool) -> Count {
        let mut count = Count::default();
        for entry in self.entries.values().filter(|entry| which(entry)) {
            count.add(self.owns(entry.key));
        }
        count
    }

    fn metrics_known(&self) -> bool {
        self.metrics_on && self.entries.values().all(|entry| entry.metric.is_some())
    }

    fn sets_known(&self) -> bool {
        self.sets_on > 0 && self.entries.values().all(|entry| entry.sets.is_some())
    }

    fn histograms_by_rule(&self) -> u64 {
        let histogram = |entry: &Naive| entry.kind == Kind::NativeHistogram;
        if self.kinds == KindRule::AtWake && self.rules.basis == Basis::InMemory {
            return self.count(|entry| histogram(entry) && entry.active).in_memory;
        }
        self.count(histogram).by(self.rules.basis)
    }

    fn refused(&self, n: u64, kind: Kind) -> bool {
        let by = |count: Count| count.by(self.rules.basis);
        let histogram_rule = kind == Kind::NativeHistogram || self.kinds == KindRule::AtWake;
        let (metric, sets) = (Some(metric_of(n)), SETS[sets_of(n)]);
        by(self.count(|_| true)) >= self.limits.series
            || histogram_rule && self.histograms_by_rule() >= self.limits.native_histogram_series
            || self.metrics_known()
                && by(self.count(|entry| entry.metric == metric)) >= self.limits.per_metric
            || self.sets_known()
                && sets
                    .iter()
                    .any(|&set| by(self.in_set(set)) >= self.limits.get(LimitName::LabelSet(set)))
    }

    fn in_set(&self, set: u16) -> Count {
        self.count(|entry| entry.sets.is_some_and(|sets| SETS[sets].contains(&set)))
    }

    /// Touches the naive entry; whether a limit refuses its change of kind.
    fn touch(&mut self, n: u64, item: &Item, now: u32) -> Result<(), ()> {
        let full = self.histograms_by_rule() >= self.limits.native_histogram_series;
        let (kinds, entry) = (self.kinds, self.entries.get_mut(&n).expect("touched"));
        let keeps_kind = kinds == KindRule::AtWake && entry.active;
        if !keeps_kind && entry.kind != item.kind {
            if kinds == KindRule::Latest && item.kind == Kind::NativeHistogram && full {
                return Err(());
            }
            entry.kind = item.kind;
        }
        entry.touched = if entry.active { entry.touched.max(now) } else { now };
        entry.active = true;
        entry.newest_ms = Some(entry.newest_ms.map_or(item.newest_ms, |ms| ms.max(item.newest_ms)));
        Ok(())
    }

    fn admitted(&mut self, n: u64, admitted: Admitted) {
        let holds = match admitted {
            Admitted::Created { .. } => self.rules.pending,
            Admitted::Held => true,
            Admitted::Existing => false,
        };
        if holds {
            self.requests[n as usize % 4].push(n);
        }
    }

    fn hold(&mut self, n: u64) -> Admitted {
        let entry = self.entries.get_mut(&n).expect("held");
        if !entry.pending {
            return Admitted::Existing;
        }
        if !self.rules.pending {
            entry.pending = false;
            return Admitted::Existing;
        }
        entry.holders += 1;
        Admitted::Held
    }

    fn create(&mut self, n: u64, item: &Item, now: u32) {
        let new = self.new_series(n);
        let got = self.store.create(item, &new, &self.rules, Tick::new(now));
        if self.entries.contains_key(&n) {
            let expected = self.touch(n, item, now).map(|()| self.hold(n));
            assert_eq!(got.map_err(|_| ()), expected);
        } else if self.refused(n, item.kind) {
            assert!(got.is_err(), "{n} is over a limit");
        } else {
            let owned = self.owns(key_of(n));
            assert_eq!(got, Ok(Admitted::Created { owned }));
            self.entries.insert(
                n,
                Naive {
                    key: key_of(n),
                    kind: item.kind,
                    newest_ms: Some(item.newest_ms),
                    touched: now,
                    active: true,
                    pending: self.rules.pending,
                    holders: 1,
                    unconfirmed: false,
                    metric: self.metrics_on.then(|| metric_of(n)),
                    sets: (self.sets_on > 0).then(|| sets_of(n)),
                },
            );
        }
        if let Ok(admitted) = got {
            self.admitted(n, admitted);
        }
    }

    fn touch_batch(&mut self, ns: &[u64], item_of: impl Fn(u64) -> Item, now: u32, order: Order) {
        let mut batch = Batch::new();
        ns.iter().for_each(|&n| batch.push(item_of(n)));
        self.store.touch(&mut batch, order, Tick::new(now));
        let mut slow: HashMap<u32, Verdict> =
            batch.slow().iter().map(|slow| (slow.item, slow.verdict)).collect();
        for (at, &n) in ns.iter().enumerate() {
            let item = item_of(n);
            let verdict = match self.entries.get(&n) {
                None => Some(Verdict::New),
                Some(entry) if entry.pending => Some(Verdict::Pending),
                Some(entry)
                    if matches!(order, Order::Strict { since_ms }
                        if entry.newest_ms.is_none_or(|ms| item.first_ms <= ms || ms < since_ms)) =>
                {
                    Some(Verdict::Unsettled { newest_ms: entry.newest_ms })
                }
                Some(entry)
                    if entry.kind != item.kind
                        && !(self.kinds == KindRule::AtWake && entry.active) =>
                {
                    Some(Verdict::KindChange)
                }
                Some(_) => None,
            };
            assert_eq!(slow.remove(&(at as u32)), verdict);
            if verdict.is_none() {
                self.touch(n, &item, now).expect("the kind stays");
            }
        }
        assert!(slow.is_empty(), "each item is judged once");
    }

    fn end(&mut self, request: usize, how: u8) {
        let held = std::mem::take(&mut self.requests[request]);
        let identities: Vec<_> = held.iter().map(|&n| identity_of(n)).collect();
        match how {
            0 => self.store.confirm(&identities),
            1 => self.store.release(&identities),
            _ => self.store.abandon(&identities),
        }
        for n in held {
            let Some(entry) = self.entries.get_mut(&n).filter(|entry| entry.pending) else {
                continue;
            };
            match how {
                0 => entry.pending = false,
                1 => {
                    entry.holders = entry.holders.saturating_sub(1);
                    if entry.holders == 0 && !entry.unconfirmed {
                        self.entries.remove(&n);
                    }
                }
                _ => {
                    entry.holders = entry.holders.saturating_sub(1);
                    entry.unconfirmed = true;
                }
            }
        }
    }

    fn restore(&mut self, n: u64, newest_ms: Option<i64>, kind: Kind) {
        let new = self.new_series(n);
        let entered = self.store.restore(identity_of(n), kind, newest_ms, &new);
        let known = self.entries.get_mut(&n);
        assert_eq!(entered, known.is_none());
        match known {
            Some(entry) => {
                entry.pending = false;
                entry.newest_ms = entry.newest_ms.max(newest_ms);
            }
            None => {
                let naive = Naive {
                    key: key_of(n),
                    kind,
                    newest_ms,
                    touched: 0,
                    active: false,
                    pending: false,
                    holders: 0,
                    unconfirmed: false,
                    metric: self.metrics_on.then(|| metric_of(n)),
                    sets: (self.sets_on > 0).then(|| sets_of(n)),
                };
                self.entries.insert(n, naive);
            }
        }
    }

    fn view(&mut self, end: u32) -> View {
        self.epoch += 1;
        self.views.insert(self.epoch, end);
        view_below(self.epoch, end)
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Create { n, at_ms, histogram, now } => {
                self.create(n, &item(identity_of(n), at_ms, kind_of(histogram)), now);
            }
            Op::Touch { ns, at_ms, histogram, now, strict } => {
                let item_of = |n| item(identity_of(n), at_ms, kind_of(histogram));
                // Some entries are older than this and some are not.
                let order = match strict {
                    true => Order::Strict { since_ms: at_ms / 2 },
                    false => Order::Any,
                };
                self.touch_batch(&ns, item_of, now, order);
            }
            Op::TouchOne { n, at_ms, histogram, now } => {
                let item = item(identity_of(n), at_ms, kind_of(histogram));
                let got = self.store.touch_one(&item, &self.rules, Tick::new(now));
                if !self.entries.contains_key(&n) {
                    assert_eq!(got, Ok(None));
                    return;
                }
                let expected = self.touch(n, &item, now).map(|()| self.hold(n));
                assert_eq!(got.map_err(|_| ()), expected.map(Some));
                if let Ok(Some(admitted)) = got {
                    self.admitted(n, admitted);
                }
            }
            Op::End { request, how } => self.end(request, how),
            Op::Remove { n } => {
                let was_there = self.entries.remove(&n).is_some();
                assert_eq!(self.store.remove(identity_of(n)), was_there);
            }
            Op::Restore { n, newest_ms, histogram } => {
                self.restore(n, newest_ms, kind_of(histogram));
            }
            Op::Cycle { before } => {
                self.store.cycle(Tick::new(before));
                for entry in self.entries.values_mut() {
                    entry.active &= entry.touched >= before;
                }
            }
            Op::Purge { before_ms } => {
                let removed = self.store.purge(before_ms, |_| Fate::Drop, |_| {});
                let before = self.entries.len();
                self.entries.retain(|_, entry| {
                    entry.newest_ms.is_some_and(|ms| ms >= before_ms)
                        || entry.pending && entry.holders > 0
                });
                assert_eq!(removed, (before - self.entries.len()) as u64);
            }
            Op::PurgeAll => {
                assert_eq!(self.store.purge_all(), self.entries.len() as u64);
                self.entries.clear();
            }
            Op::BeginRecount { end } => {
                let view = self.view(end);
                self.store.begin_recount(view);
            }
            Op::RecountStep => {
                self.store.recount_step();
            }
            Op::Recount { end } => {
                let view = self.view(end);
                let epoch = view.epoch;
                self.store.recount(view, self.limits.clone());
                assert_eq!(self.store.view().epoch, epoch);
            }
            Op::Split => {
                self.store.split_stripes_step();
            }
            Op::Limits { series, histograms, per_metric, set } => {
                self.limits = LocalLimits {
                    series,
                    native_histogram_series: histograms,
                    per_metric,
                    label_sets: Arc::from([set, UNLIMITED]),
                    reason: InForce::Flat,
                };
                self.store.set_limits(self.limits.clone());
            }
            Op::Metrics { on } => self.switch_metrics(on),
            Op::Sets { generation } => self.switch_sets(generation),
            Op::Assign { n } => self.assign(n),
        }
    }

    fn switch_metrics(&mut self, on: bool) {
        if on {
            self.store.enable_metric_counts();
        } else {
            self.store.disable_metric_counts();
        }
        if on != self.metrics_on {
            self.entries.values_mut().for_each(|entry| entry.metric = None);
        }
        self.metrics_on = on;
    }

    fn switch_sets(&mut self, generation: u64) {
        if generation == 0 {
            self.store.disable_label_sets();
        } else {
            self.store.enable_label_sets(generation);
        }
        if generation != self.sets_on {
            self.entries.values_mut().for_each(|entry| entry.sets = None);
        }
        self.sets_on = generation;
    }

    fn assign(&mut self, n: u64) {
        let sets = SETS[sets_of(n)];
        self.store.assign(identity_of(n), METRICS[metric_of(n)], sets, self.sets_on);
        if let Some(entry) = self.entries.get_mut(&n) {
            if self.metrics_on {
                entry.metric = Some(metric_of(n));
            }
            if self.sets_on > 0 {
                entry.sets = Some(sets_of(n));
            }
        }
    }

    fn compare(&self) {
        let counts = audit(&self.store);
        let view = self.store.view();
        let expected = view_below(view.epoch, self.views[&view.epoch]);
        assert!(view.epoch == 0 || view.keys == expected.keys, "a view comes whole");
        assert_eq!(counts.view_epoch, view.epoch);
        assert_eq!(counts.series, self.count(|_| true));
        let histogram = |entry: &Naive| entry.kind == Kind::NativeHistogram;
        assert_eq!(counts.native_histogram, self.count(histogram));
        assert_eq!(counts.active, self.count(|entry| entry.active).in_memory);
        let active_histogram = |entry: &Naive| histogram(entry) && entry.active;
        assert_eq!(counts.active_native_histogram, self.count(active_histogram).in_memory);
        assert_eq!(counts.pending, self.count(|entry| entry.pending).in_memory);
        assert_eq!(self.totals.count(), counts.series);
        for (at, metric) in METRICS.iter().enumerate() {
            let count = self.count(|entry| entry.metric == Some(at));
            let expected = self.metrics_known().then_some(count);
            assert_eq!(self.store.metric_count(metric), expected);
        }
        for set in 0..2 {
            let expected = self.sets_known().then(|| self.in_set(set));
            assert_eq!(self.store.label_set_count(set), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn every_count_and_verdict_is_that_of_a_plain_map(
        ops in prop::collection::vec(ops(), 1..250),
        parity: bool,
        owned: bool,
        pending: bool,
    ) {
        let kinds = if parity { KindRule::AtWake } else { KindRule::Latest };
        let basis = if owned { Basis::Owned } else { Basis::InMemory };
        let mut world = World::new(kinds, Rules { basis, pending, ..Rules::default() });
        for op in ops {
            world.apply(op);
            world.compare();
        }
        let totals = Arc::clone(&world.totals);
        drop(world);
        prop_assert_eq!(totals.count(), Count::default());
    }
}
