//! Many threads at once: no limit is exceeded by even one series, and every count is exact.

use std::sync::atomic::{AtomicBool, AtomicU64};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

const THREADS: u64 = 16;
const SERIES: u64 = 3_000;

fn rounds() -> u64 {
    if std::env::var_os("FREEHOLD_LONG_TESTS").is_some() { 200_000 } else { 4_000 }
}

fn small_stripes() -> Options {
    Options { stripe_series_max: 24, ..Options::default() }
}

fn key_of(n: u64) -> u32 {
    (n as u32).wrapping_mul(0x9e37_79b9)
}

#[test]
fn limits_hold_to_the_last_series_under_sixteen_threads() {
    for basis in [Basis::Owned, Basis::InMemory] {
        let totals = Arc::new(Totals::new());
        let stores = [0, 1].map(|_| store_with(small_stripes(), view_below(1, 1 << 31), &totals));
        let (tenant_max, instance_max) = (700, 1_100);
        stores.iter().for_each(|store| store.set_limits(series_limit(tenant_max)));
        let rules = Rules { basis, instance_series_max: instance_max, ..Rules::default() };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (stores, totals) = (&stores, &totals);
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(thread);
                    for _ in 0..rounds() {
                        let n = rng.random_range(0..SERIES);
                        let store = &stores[rng.random_range(0..2)];
                        if rng.random_ratio(1, 3) {
                            store.remove(identity(n));
                        } else {
                            let new = new_series(key_of(n));
                            let _ = store.create(&float(n), &new, &rules, NOW);
                        }
                        assert!(store.counts().series.by(basis) <= tenant_max);
                        assert!(totals.count().by(basis) <= instance_max);
                    }
                });
            }
        });
        let mut sum = 0;
        for store in &stores {
            sum += audit(store).series.by(basis);
        }
        assert_eq!(totals.count().by(basis), sum);
    }
}

#[test]
fn counts_are_exact_after_sixteen_threads_of_everything() {
    let totals = Arc::new(Totals::new());
    let store = store_with(small_stripes(), View::unknown(), &totals);
    store.enable_metric_counts();
    store.enable_label_sets(1);
    let (created, removed) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            let mut rng = SmallRng::seed_from_u64(thread);
            let mut batch = Batch::new();
            let mut held = Vec::new();
            for _ in 0..rounds() / 8 {
                let now = Tick::new(rng.random_range(0..1_000));
                let rules = Rules { pending: rng.random(), ..Rules::default() };
                batch.clear();
                for _ in 0..8 {
                    let kind = if rng.random() { Kind::Float } else { Kind::NativeHistogram };
                    let at_ms = rng.random_range(0..1_000);
                    batch.push(item(identity(rng.random_range(0..SERIES)), at_ms, kind));
                }
                store.touch(&mut batch, Order::Any, now);
                for slow in batch.slow() {
                    let item = &batch.items()[slow.item as usize];
                    let key = item.identity.0 as u32;
                    let sets: &[u16] = if key.is_multiple_of(2) { &[0] } else { &[0, 1] };
                    let new =
                        NewSeries { label_sets: sets, label_sets_generation: 1, ..new_series(key) };
                    match store.create(item, &new, &rules, now) {
                        Ok(Admitted::Created { .. }) => {
                            created.fetch_add(1, Ordering::Relaxed);
                            if rules.pending {
                                held.push(item.identity);
                            }
                        }
                        Ok(Admitted::Held) => held.push(item.identity),
                        Ok(Admitted::Existing) => {}
                        Err(refusal) => panic!("no limit is set: {refusal}"),
                    }
                }
                match rng.random_range(0..3) {
                    0 => store.confirm(&held),
                    1 => store.release(&held),
                    _ => store.abandon(&held),
                }
                held.clear();
                if rng.random_ratio(1, 20) && store.remove(identity(rng.random_range(0..SERIES))) {
                    removed.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let pushes: Vec<_> =
            (0..THREADS - 2).map(|thread| scope.spawn(move || work(thread))).collect();
        scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(100);
            let mut epoch = 0;
            while !done.load(Ordering::Relaxed) {
                epoch += 1;
                store.recount(view_below(epoch, rng.random()), LocalLimits::default());
            }
        });
        scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(200);
            while !done.load(Ordering::Relaxed) {
                store.cycle(Tick::new(rng.random_range(0..1_000)));
                let before_ms = rng.random_range(0..400);
                let gone = store.purge(before_ms, |_| Fate::Keep, |_| {});
                removed.fetch_add(gone, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        for push in pushes {
            push.join().expect("a pushing thread failed");
        }
        done.store(true, Ordering::Relaxed);
    });
    let counts = audit(&store);
    assert_eq!(counts.created_total, created.into_inner());
    assert!(counts.removed_total >= removed.into_inner(), "and those released");
    assert_eq!(totals.count(), counts.series);
    assert_eq!(store.metric_count(b"up"), Some(counts.series));
    assert_eq!(store.label_set_count(0), Some(counts.series));
    let odd = count_where(&store, |identity| identity.0 % 2 == 1);
    assert_eq!(store.label_set_count(1).map(|count| count.in_memory), Some(odd));
    store.purge_all();
    assert_eq!(store.metric_count(b"up"), Some(Count::default()));
    assert_eq!(totals.count(), Count::default());
}

fn count_where(store: &SeriesStore, which: impl Fn(Identity) -> bool) -> u64 {
    let mut count = 0;
    store.purge_where(
        |candidate| {
            count += u64::from(which(candidate.identity));
            Fate::Keep
        },
        |_| {},
    );
    count
}
