//! Two threads in every order that matters, explored by loom.
//!
//! `cargo test --features model --lib series::`

use loom::thread;

use super::*;

/// Runs `one` beside `other` on a shared store, and hands back their results.
fn beside<A: 'static, B>(
    store: &Arc<SeriesStore>,
    one: impl FnOnce(&SeriesStore) -> A + 'static,
    other: impl FnOnce(&SeriesStore) -> B,
) -> (A, B) {
    let shared = Arc::clone(store);
    let thread = thread::spawn(move || one(&shared));
    let result = other(store);
    (thread.join().expect("the modelled thread ends"), result)
}

fn small(stripe_series_max: usize) -> Arc<SeriesStore> {
    let options = Options { stripe_series_max, ..Options::default() };
    Arc::new(store_with(options, View::unknown(), &Arc::new(Totals::new())))
}

fn create(store: &SeriesStore, n: u64, rules: &Rules) -> Result<Admitted, Refusal> {
    store.create(&float(n), &new_series(n as u32), rules, NOW)
}

fn touch(store: &SeriesStore, item: Item) -> Option<Verdict> {
    let mut batch = Batch::new();
    batch.push(item);
    store.touch(&mut batch, Order::Any, NOW);
    batch.slow().first().map(|slow| slow.verdict)
}

#[test]
fn a_limit_admits_one_of_two_creations() {
    loom::model(|| {
        let store = small(100);
        store.set_limits(series_limit(1));
        let (one, other) = beside(
            &store,
            |store| create(store, 0, &owned_rules()).is_ok(),
            |store| create(store, 1, &owned_rules()).is_ok(),
        );
        assert!(one ^ other);
        assert_eq!(audit(&store).series.owned, 1);
    });
}

#[test]
fn the_instance_admits_one_of_two_tenants_creations() {
    loom::model(|| {
        let totals = Arc::new(Totals::new());
        let store = Arc::new(store_with(Options::default(), View::unknown(), &totals));
        let neighbour = store_with(Options::default(), View::unknown(), &totals);
        let rules = Rules { instance_series_max: 1, ..owned_rules() };
        let (one, other) = beside(
            &store,
            move |_| (create(&neighbour, 0, &rules).is_ok(), neighbour).0,
            |store| create(store, 0, &rules).is_ok(),
        );
        assert!(one || other, "a refusal is no error while nobody has been admitted");
        assert!(totals.count().owned <= 1);
    });
}

#[test]
fn a_series_is_created_once_and_held_twice() {
    loom::model(|| {
        let store = small(100);
        let rules = Rules { pending: true, ..Rules::default() };
        let (one, other) =
            beside(&store, move |store| create(store, 0, &rules), |s| create(s, 0, &rules));
        let created = Ok(Admitted::Created { owned: true });
        assert!((one == created) ^ (other == created));
        assert!((one == Ok(Admitted::Held)) ^ (other == Ok(Admitted::Held)));
        store.release(&[identity(0)]);
        assert_eq!(audit(&store).series.in_memory, 1);
        store.release(&[identity(0)]);
        assert_eq!(audit(&store).series.in_memory, 0);
    });
}

#[test]
fn a_confirmed_series_survives_a_release_beside_it() {
    loom::model(|| {
        let store = small(100);
        let rules = Rules { pending: true, ..Rules::default() };
        create(&store, 0, &rules).expect("no limit");
        create(&store, 0, &rules).expect("held");
        beside(&store, |s| s.confirm(&[identity(0)]), |s| s.release(&[identity(0)]));
        let counts = audit(&store);
        assert_eq!((counts.series.in_memory, counts.pending), (1, 0));
    });
}

#[test]
fn a_touch_beside_a_purge_either_saves_the_series_or_finds_it_gone() {
    loom::model(|| {
        let store = small(100);
        create(&store, 0, &Rules::default()).expect("no limit");
        let (verdict, purged) = beside(
            &store,
            |store| touch(store, item(identity(0), 9_000, Kind::Float)),
            |store| store.purge(5_000, |_| Fate::Keep, |_| {}),
        );
        match verdict {
            None => assert_eq!(purged, 0),
            Some(verdict) => assert_eq!((verdict, purged), (Verdict::New, 1)),
        }
        audit(&store);
    });
}

#[test]
fn a_touch_beside_a_cycle_leaves_the_active_count_exact() {
    loom::model(|| {
        let store = small(100);
        create(&store, 0, &Rules::default()).expect("no limit");
        store.cycle(Tick::new(2_000));
        beside(&store, |s| s.cycle(Tick::new(2_000)), |s| touch(s, float(0)));
        audit(&store);
    });
}

#[test]
fn a_touch_finds_its_series_while_stripes_split() {
    loom::model(|| {
        let store = small(1);
        create(&store, 0, &Rules::default()).expect("no limit");
        let (_, verdict) = beside(
            &store,
            |store| create(store, 1, &Rules::default()).is_ok(),
            |store| touch(store, float(0)),
        );
        assert_eq!(verdict, None);
        audit(&store);
    });
}

#[test]
fn a_creation_sees_count_and_limit_of_one_view() {
    loom::model(|| {
        let store = small(100);
        for n in 0..2 {
            create(&store, n, &Rules::default()).expect("no limit");
        }
        // Old view: 2 of 2. New view, which owns nothing: 0 of 0. Mixed, either would admit.
        store.set_limits(series_limit(2));
        let (_, created) = beside(
            &store,
            |store| store.recount(view_below(2, 0), series_limit(0)),
            |store| create(store, 7, &owned_rules()),
        );
        let Err(Refusal::Series(decided)) = created else {
            panic!("both views refuse: {created:?}");
        };
        assert_eq!(decided.count.owned, decided.limit.max);
        audit(&store);
    });
}

#[test]
fn a_recount_counts_a_creation_beside_it_once() {
    loom::model(|| {
        let store = small(1);
        create(&store, 0, &Rules::default()).expect("no limit");
        beside(
            &store,
            |store| store.recount(view_below(2, 1), LocalLimits::default()),
            |store| create(store, 1, &Rules::default()).is_ok(),
        );
        assert_eq!(audit(&store).series, Count { in_memory: 2, owned: 1 });
    });
}
