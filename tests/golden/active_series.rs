//! Active series as Cortex counts them, through the real store.
//!
//! The count of active series has to be Cortex's at every step. Its count of active native
//! histograms keeps the kind that a series had when it became active; ours follows the latest
//! kind unless `parity` is set, so there the expectation comes from a plain map.

use std::collections::HashMap;
use std::sync::Arc;

use freehold::keys::RingKey;
use freehold::labels::{Identity, LabelsBuf};
use freehold::series::{
    Batch, Item, Kind, KindRule, NewSeries, Options, Order, Rules, SeriesStore, Tick, Totals, View,
};
use serde_json::Value;

use crate::vectors;

#[test]
fn active_counts_are_cortex_s_and_histograms_follow_their_latest_kind() {
    let file = vectors::read("active_series");
    let traces = vectors::array(&file, "traces");
    assert!(!traces.is_empty());
    for trace in traces {
        let name = vectors::text(trace, "name");
        let ops = vectors::array(trace, "ops");
        replay(name, ops, KindRule::AtWake);
        replay(name, ops, KindRule::Latest);
    }
}

fn replay(name: &str, ops: &[Value], kinds: KindRule) {
    let options = Options { kinds, ..Options::default() };
    let store = SeriesStore::new(options, View::unknown(), Arc::new(Totals::new()));
    let ticks = Ticks::of(ops);
    let mut latest = LatestKinds::default();
    for (step, op) in ops.iter().enumerate() {
        match vectors::text(op, "op") {
            "update" => {
                let now_ns = time(op, "t_ns");
                let item = item(op);
                update(&store, item, ticks.at(now_ns));
                latest.update(item, now_ns);
            }
            "purge" => {
                let keep_until_ns = time(op, "keep_until_ns");
                store.cycle(ticks.at(keep_until_ns));
                latest.purge(keep_until_ns);
            }
            other => panic!("unknown operation {other}"),
        }
        let counts = store.counts();
        let cortex = |field: &str| op[field].as_u64().expect("a count");
        assert_eq!(counts.active, cortex("active"), "{name}, step {step}, {kinds:?}");
        let histograms = match kinds {
            KindRule::AtWake => cortex("active_native_histogram"),
            KindRule::Latest => latest.histograms(),
        };
        assert_eq!(counts.active_native_histogram, histograms, "{name}, step {step}, {kinds:?}");
    }
}

fn update(store: &SeriesStore, item: Item, now: Tick) {
    let mut batch = Batch::new();
    batch.push(item);
    store.touch(&mut batch, Order::Any, now);
    if batch.slow().is_empty() {
        return;
    }
    let new = NewSeries {
        ring_key: RingKey(0),
        metric: b"",
        metric_exempt: false,
        label_sets: &[],
        label_sets_generation: 0,
    };
    store.create(&item, &new, &Rules::default(), now).expect("there is no limit");
}

/// The trace's own hash is the half of the identity that the index sees, so that series that
/// share it collide in our store as they do in Cortex's.
fn item(op: &Value) -> Item {
    let mut labels = LabelsBuf::new();
    for (name, value) in vectors::labels(op, "labels") {
        labels.push(&name, &value);
    }
    let own = xxhash_rust::xxh3::xxh3_64(labels.as_labels().as_bytes());
    let hash = op["hash"].as_u64().expect("a hash");
    let histogram = op["native_histogram"].as_bool().expect("a flag");
    Item {
        identity: Identity(u128::from(own) << 64 | u128::from(hash)),
        first_ms: 0,
        newest_ms: 0,
        kind: if histogram { Kind::NativeHistogram } else { Kind::Float },
    }
}

fn time(op: &Value, field: &str) -> i64 {
    op[field].as_i64().expect("a time")
}

/// Nanoseconds as ticks of the same order: the store only ever compares them.
struct Ticks(Vec<i64>);

impl Ticks {
    fn of(ops: &[Value]) -> Self {
        let times = ops.iter().flat_map(|op| [op["t_ns"].as_i64(), op["keep_until_ns"].as_i64()]);
        let mut times: Vec<i64> = times.flatten().collect();
        times.sort_unstable();
        times.dedup();
        Self(times)
    }

    fn at(&self, time_ns: i64) -> Tick {
        let rank = self.0.binary_search(&time_ns).expect("a time of the trace");
        Tick::new(rank as u32)
    }
}

/// Active series with their latest kind, in the most obvious way.
#[derive(Default)]
struct LatestKinds(HashMap<Identity, (i64, Kind)>);

impl LatestKinds {
    fn update(&mut self, item: Item, now_ns: i64) {
        let entry = self.0.entry(item.identity).or_insert((now_ns, item.kind));
        *entry = (entry.0.max(now_ns), item.kind);
    }

    fn purge(&mut self, keep_until_ns: i64) {
        self.0.retain(|_, (at_ns, _)| *at_ns >= keep_until_ns);
    }

    fn histograms(&self) -> u64 {
        self.0.values().filter(|(_, kind)| *kind == Kind::NativeHistogram).count() as u64
    }
}
