//! What a creation would be told, without making it.
//!
//! The checks are those of `admission`, shown instead of acted upon, under the same locks. What
//! is shown is true for that moment: a creation after it may meet other counts.

use super::ledger::Count;
use super::refusal::{Check, Decided, NewSeries, Refusal};
use super::{Books, Item, Kind, KindRule, Rules, SeriesStore, Tick};

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// The series has an entry, so no limit on creations is asked.
    pub is_known: bool,
    /// The view in force counts it as owned.
    pub is_owned: bool,
    /// Number of the view in force.
    pub epoch: u64,
    /// The instance's limit over all tenants.
    pub instance: Decided,
    /// The tenant's limits that a creation is held against, in their order.
    pub checks: Vec<Check>,
    /// What becomes of it: the first that refuses, the instance's before the tenant's.
    pub verdict: Result<(), Refusal>,
    /// Counts by metric or label set are not known yet, so those limits refuse nothing.
    pub are_labels_unknown: bool,
    /// Series are still being listed after a start.
    pub is_loading: bool,
    /// A recount for another view is under way.
    pub is_recounting: bool,
    /// The tenant's series at that moment.
    pub series: Count,
}

impl SeriesStore {
    /// Looks what [`SeriesStore::create`] would do. Changes nothing.
    pub fn inspect(&self, item: &Item, new: &NewSeries<'_>, rules: &Rules, now: Tick) -> Inspected {
        let books = self.books();
        let Books { ledger, layout } = &*books;
        let check_rules = self.check_rules(rules, now);
        let found = {
            let stripe = layout.lock(item.identity);
            let row = stripe.find(item.identity);
            row.map(|row| (stripe.kind(row), stripe.kind_after(row, item.kind, self.kinds)))
        };
        let mut checks = Vec::new();
        // Every check is shown, whatever the ones before it say.
        let shown = ledger.checks(new, item.kind, check_rules, |check| {
            checks.push(check);
            Ok(())
        });
        debug_assert!(shown.is_ok(), "a list that is only shown has no verdict");
        let verdict = match found {
            None => {
                self.check_instance(rules).and_then(|()| ledger.check(new, item.kind, check_rules))
            }
            Some((before, Kind::NativeHistogram))
                if before != Kind::NativeHistogram && self.kinds == KindRule::Latest =>
            {
                ledger.check_native_histogram(check_rules)
            }
            Some(_) => Ok(()),
        };
        Inspected {
            is_known: found.is_some(),
            is_owned: ledger.owns(new.ring_key),
            epoch: ledger.view().epoch,
            instance: self.instance_decided(rules),
            checks,
            verdict,
            are_labels_unknown: ledger.labels_unknown(),
            is_loading: ledger.is_loading(),
            is_recounting: ledger.recount_at().is_some(),
            series: ledger.series(),
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::keys::{KeySet, RingKey};
    use crate::labels::Identity;
    use crate::series::{Admitted, Basis, LimitName, LocalLimits, Options, Totals, View};

    const NOW: Tick = Tick::new(1_000);

    proptest! {
        /// Each creation is looked at before it is made, under limits that most of them meet.
        #[test]
        fn what_is_looked_at_is_what_happens(
            creations in prop::collection::vec((0_u64..12, any::<u32>(), any::<bool>(), 0_usize..3), 1..60),
            series in 1_u64..12,
            histograms in 1_u64..6,
            per_metric in 1_u64..6,
            instance in 1_u64..14,
            owned in any::<bool>(),
            at_wake in any::<bool>(),
        ) {
            let kinds = if at_wake { KindRule::AtWake } else { KindRule::Latest };
            let view = View { epoch: 1, keys: Arc::new(KeySet::from_toggles(true, vec![1 << 31])) };
            let options = Options { kinds, ..Options::default() };
            let store = SeriesStore::new(options, view, Arc::new(Totals::new()));
            store.enable_metric_counts();
            store.enable_label_sets(1);
            store.set_limits(LocalLimits {
                series,
                native_histogram_series: histograms,
                per_metric,
                label_sets: Arc::from([4, 3]),
                ..LocalLimits::default()
            });
            let rules = Rules {
                instance_series_max: instance,
                basis: if owned { Basis::Owned } else { Basis::InMemory },
                ..Rules::default()
            };
            for (number, key, is_histogram, metric) in creations {
                let identity = Identity(u128::from(number + 1) << 64 | u128::from(number));
                let kind = if is_histogram { Kind::NativeHistogram } else { Kind::Float };
                let item = Item { identity, first_ms: 1, newest_ms: 1, kind };
                let sets: &[u16] = [&[][..], &[0], &[0, 1]][metric];
                let new = NewSeries {
                    ring_key: RingKey(key),
                    metric: [&b"a"[..], b"b", b"c"][metric],
                    metric_exempt: metric == 2,
                    label_sets: sets,
                    label_sets_generation: 1,
                };
                let before = (store.counts(), store.inspect(&item, &new, &rules, NOW));
                prop_assert_eq!(store.counts(), before.0, "looking changes nothing");
                let seen = before.1;
                prop_assert_eq!(seen.is_known, store.contains(identity));
                let made = store.create(&item, &new, &rules, NOW);
                prop_assert_eq!(seen.verdict, made.map(|_| ()));
                if let Ok(Admitted::Created { owned }) = made {
                    prop_assert!(!seen.is_known);
                    prop_assert_eq!(seen.is_owned, owned);
                }
                let names: Vec<_> = seen.checks.iter().map(|check| check.name).collect();
                let mut expected = vec![LimitName::Series];
                if is_histogram || at_wake {
                    expected.push(LimitName::NativeHistogramSeries);
                }
                if metric != 2 {
                    expected.push(LimitName::PerMetric);
                }
                expected.extend(sets.iter().map(|set| LimitName::LabelSet(*set)));
                prop_assert_eq!(names, expected, "in Cortex's order");
            }
        }
    }
}
