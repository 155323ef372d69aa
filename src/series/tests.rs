//! Tests of the whole room: cases by id, a naive model, many threads, and every order of two.
#![cfg_attr(feature = "model", allow(dead_code, reason = "model tests use a part of this"))]

#[cfg(not(feature = "model"))]
mod cases;
#[cfg(feature = "model")]
mod models;
#[cfg(not(feature = "model"))]
mod naive;
#[cfg(not(feature = "model"))]
mod stress;

use super::*;
use crate::keys::{KeySet, RingKey};

/// An identity whose leading and trailing bits both vary with `n`.
fn identity(n: u64) -> Identity {
    let mixed = u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Identity(mixed ^ (mixed >> 64))
}

fn new_series(key: u32) -> NewSeries<'static> {
    NewSeries {
        ring_key: RingKey(key),
        metric: b"up",
        metric_exempt: false,
        label_sets: &[],
        label_sets_generation: 0,
    }
}

fn item(identity: Identity, at_ms: i64, kind: Kind) -> Item {
    Item { identity, first_ms: at_ms, newest_ms: at_ms, kind }
}

fn float(n: u64) -> Item {
    item(identity(n), 1_000, Kind::Float)
}

fn histogram(n: u64) -> Item {
    item(identity(n), 1_000, Kind::NativeHistogram)
}

fn store() -> SeriesStore {
    store_with(Options::default(), View::unknown(), &Arc::new(Totals::new()))
}

fn store_with(options: Options, view: View, totals: &Arc<Totals>) -> SeriesStore {
    SeriesStore::new(options, view, Arc::clone(totals))
}

/// Keys below `end` are ours.
fn view_below(epoch: u64, end: u32) -> View {
    View { epoch, keys: Arc::new(KeySet::from_toggles(true, vec![end])) }
}

fn series_limit(series: u64) -> LocalLimits {
    LocalLimits { series, ..LocalLimits::default() }
}

fn owned_rules() -> Rules {
    Rules { basis: Basis::Owned, ..Rules::default() }
}

const NOW: Tick = Tick::new(1_000);

/// Walks every entry and compares what is there with every count that is kept.
fn audit(store: &SeriesStore) -> Counts {
    let counts = store.counts();
    let books = store.books();
    let keys = &books.ledger.view().keys;
    let generations = books.ledger.generations();
    let (mut series, mut native_histogram) = (Count::default(), Count::default());
    let (mut active, mut active_native_histogram, mut pending) = (0, 0, 0);
    let mut at = Prefix::START;
    while at < Prefix::END {
        let (stripe, end) = books.layout.lock_at(at);
        for row in 0..stripe.len() {
            let entry = stripe.entry(row, generations);
            assert_eq!(stripe.find(entry.identity), Some(row), "the index knows each row");
            let prefix = Prefix::of(entry.identity);
            assert!(at <= prefix && prefix < end, "entries are in their own stripe");
            let owned = keys.contains(entry.key);
            series.add(owned);
            let histogram = entry.last.kind() == Kind::NativeHistogram;
            if histogram {
                native_histogram.add(owned);
            }
            active += u64::from(entry.last.active());
            active_native_histogram += u64::from(entry.last.active() && histogram);
            pending += u64::from(entry.last.pending());
        }
        at = end;
    }
    assert_eq!(books.ledger.series(), series);
    assert_eq!(books.ledger.native_histogram(), native_histogram);
    assert_eq!(counts.series, series);
    assert_eq!(counts.native_histogram, native_histogram);
    assert_eq!(counts.active, active);
    assert_eq!(counts.active_native_histogram, active_native_histogram);
    assert_eq!(counts.pending, pending);
    assert_eq!(counts.created_total - counts.removed_total, series.in_memory);
    counts
}
