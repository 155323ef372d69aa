//! What of a tenant is large: its metrics, its label sets.
//!
//! For pages, so nothing here may keep a push waiting. Metrics are looked through a chunk at a
//! time with the books put back in between; what is created or removed meanwhile may or may not be
//! in the answer. Names are kept only while their limit is set, which is why there may be none.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::SeriesStore;
use super::intern::Slot;
use super::ledger::Count;
use super::refusal::Basis;

/// Counts looked through before the books are put back: 16 bytes each, some microseconds.
const CHUNK: usize = 8192;
/// Bytes of a metric's name that are copied. Names are a few dozen bytes; who sends longer ones is
/// known by less.
pub const NAME_BYTES_MAX: usize = 256;

/// The largest metrics, by the count that limits act on and then by all that is in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Largest {
    pub metrics: Vec<LargeMetric>,
    /// Metrics that there are.
    pub total: usize,
    /// Some series have not been assigned to their metric yet, so counts are too low.
    pub is_partial: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeMetric {
    /// At most the first [`NAME_BYTES_MAX`] bytes of the name.
    pub name: Box<[u8]>,
    /// Bytes of the whole name.
    pub name_bytes: usize,
    pub count: Count,
}

/// Series per label set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSetCounts {
    /// The configuration of label sets that the indices belong to.
    pub configured: u64,
    /// By index; a set beyond the end has no series.
    pub counts: Vec<Count>,
    /// Some series have not been assigned to their label sets yet, so counts are too low.
    pub is_partial: bool,
}

/// A metric that may be among the largest. Of equals the one that came first.
type Candidate = (u64, u64, Reverse<usize>);

impl SeriesStore {
    /// The `most` largest metrics by `basis`; `None` while nobody counts metrics.
    pub fn largest_metrics(&self, most: usize, basis: Basis) -> Option<Largest> {
        let mut largest = Largest::default();
        let mut kept: BinaryHeap<Reverse<Candidate>> = BinaryHeap::with_capacity(most + 1);
        let mut generation = None;
        let mut at = 0;
        loop {
            let books = self.books();
            let metrics = books.ledger.metrics()?;
            if *generation.get_or_insert(metrics.generation) != metrics.generation {
                // Counted anew since we began: hardly anything is assigned yet.
                return Some(Largest { is_partial: true, ..Largest::default() });
            }
            let counts = metrics.names.counts_from(at, CHUNK);
            for (offset, count) in counts.iter().enumerate().filter(|(_, c)| c.in_memory > 0) {
                largest.total += 1;
                let place = Reverse(at + offset);
                let candidate = Reverse((count.by(basis), count.in_memory, place));
                // The heap's top is its least: nearly every count ends here.
                if kept.len() < most || kept.peek().is_some_and(|least| candidate < *least) {
                    kept.push(candidate);
                    if kept.len() > most {
                        kept.pop();
                    }
                }
            }
            if counts.len() < CHUNK {
                largest.is_partial = !metrics.known();
                break;
            }
            at += CHUNK;
        }
        let candidates = kept.into_sorted_vec();
        let books = self.books();
        let metrics = books.ledger.metrics()?;
        if generation != Some(metrics.generation) {
            return Some(Largest { is_partial: true, ..Largest::default() });
        }
        for Reverse((_, _, Reverse(at))) in candidates {
            // A metric whose last series has gone meanwhile has no name any more.
            let Some((name, count)) = metrics.names.get(Slot::at(at)) else { continue };
            let shown = &name[..name.len().min(NAME_BYTES_MAX)];
            let (name, name_bytes) = (shown.into(), name.len());
            largest.metrics.push(LargeMetric { name, name_bytes, count });
        }
        Some(largest)
    }

    /// Every label set's count; `None` while nobody counts label sets.
    pub fn label_set_counts(&self) -> Option<LabelSetCounts> {
        let books = self.books();
        let sets = books.ledger.label_sets()?;
        Some(LabelSetCounts {
            configured: sets.configured,
            counts: sets.counts.clone(),
            is_partial: !sets.combinations.known(),
        })
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::sync::Arc;

    use super::super::{Item, Kind, NewSeries, Options, Rules, Tick, Totals, View};
    use super::*;
    use crate::keys::RingKey;
    use crate::labels::Identity;

    fn store() -> SeriesStore {
        SeriesStore::new(Options::default(), View::unknown(), Arc::new(Totals::new()))
    }

    fn create(store: &SeriesStore, number: u128, metric: &[u8], label_sets: &[u16]) {
        let identity = Identity(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834));
        let item = Item { identity, first_ms: 1, newest_ms: 1, kind: Kind::Float };
        let new = NewSeries {
            ring_key: RingKey(0),
            metric,
            metric_exempt: false,
            label_sets,
            label_sets_generation: 7,
        };
        store.create(&item, &new, &Rules::default(), Tick::new(1)).expect("no limit");
    }

    #[test]
    fn the_largest_metrics_come_first_however_many_there_are() {
        let store = store();
        assert_eq!(store.largest_metrics(5, Basis::Owned), None, "nobody counts metrics");
        store.enable_metric_counts();
        let mut number = 0;
        let mut many = |metric: String, series: usize| {
            for _ in 0..series {
                number += 1;
                create(&store, number, metric.as_bytes(), &[]);
            }
        };
        for small in 0..20_000 {
            many(format!("small_{small}"), 1);
        }
        many("large".to_owned(), 9);
        many("larger".to_owned(), 10);
        let largest = store.largest_metrics(3, Basis::Owned).expect("counted");
        let names: Vec<_> = largest.metrics.iter().map(|metric| &*metric.name).collect();
        assert_eq!(names, [&b"larger"[..], b"large", b"small_0"]);
        assert_eq!(largest.metrics[0].count, Count { in_memory: 10, owned: 10 });
        assert_eq!((largest.total, largest.is_partial), (20_002, false));
        assert_eq!(store.largest_metrics(0, Basis::Owned).expect("counted").metrics, []);
    }

    #[test]
    fn a_long_name_is_known_by_its_beginning() {
        let store = store();
        store.enable_metric_counts();
        create(&store, 1, &[b'x'; 64 << 10], &[]);
        let largest = store.largest_metrics(1, Basis::Owned).expect("counted");
        assert_eq!(largest.metrics[0].name.len(), NAME_BYTES_MAX);
        assert_eq!(largest.metrics[0].name_bytes, 64 << 10);
    }

    #[test]
    fn series_from_before_counting_are_told_as_missing() {
        let store = store();
        create(&store, 1, b"before", &[]);
        store.enable_metric_counts();
        store.enable_label_sets(7);
        create(&store, 2, b"after", &[0, 2]);
        let largest = store.largest_metrics(5, Basis::Owned).expect("counted");
        assert_eq!((largest.total, largest.is_partial), (1, true));
        let sets = store.label_set_counts().expect("counted");
        let one = Count { in_memory: 1, owned: 1 };
        assert_eq!(sets.counts, [one, Count::default(), one]);
        assert_eq!((sets.configured, sets.is_partial), (7, true));
        store.labels_pass_done();
        assert!(!store.largest_metrics(5, Basis::Owned).expect("counted").is_partial);
    }
}
