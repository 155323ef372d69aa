//! Ring keys are hashed when series come to be, and never again.

use super::super::*;
use super::*;
use crate::labels::RING_KEYS_HASHED;

fn hashed(act: impl FnOnce()) -> u64 {
    let before = RING_KEYS_HASHED.get();
    act();
    RING_KEYS_HASHED.get() - before
}

fn body(numbers: std::ops::Range<u64>, timestamp_ms: i64) -> Vec<u8> {
    let pair = |name: &str, value: String| cortexpb::LabelPair {
        name: name.to_owned().into(),
        value: value.into(),
    };
    let series = numbers.map(|number| cortexpb::TimeSeries {
        labels: vec![pair("__name__", "up".to_owned()), pair("i", number.to_string())],
        samples: vec![cortexpb::Sample { value: 1.0, timestamp_ms, ..Default::default() }],
        ..Default::default()
    });
    cortexpb::WriteRequest { timeseries: series.collect(), ..Default::default() }.encode_to_vec()
}

fn check(store: Option<Arc<Store>>) {
    let limits = Limits { max_series_per_user: 100, ..Limits::default() };
    let ring = RingSettings {
        replication_factor: 1,
        zone_awareness_enabled: false,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: None,
    };
    let has_store = store.is_some();
    let ingester = Ingester::new(Parts {
        config: IngesterConfig {
            check_ingestion_limits: CheckIngestionLimits::On,
            ..IngesterConfig::default()
        },
        role: Role {
            behind_distributors: true,
            shard_by_all_labels: true,
            shuffle_sharding: false,
            has_upstream: false,
        },
        ring: Arc::new(Ring::new(ring, 600_000)),
        overrides: Arc::new(Overrides::new(limits, InstanceLimits::default())),
        hasher: IdentityHasher::new([7; crate::labels::IDENTITY_SECRET_BYTES]),
        store,
    });
    ingester.note_ring_state(InstanceState::Active);
    ingester.run();
    let id = TenantId::parse("a").expect("a tenant");
    let mut now = NOW;
    let created = hashed(|| {
        ingester.push(&id, &body(0..100, now.unix_ms), now).expect("room for all");
    });
    assert!(created >= 100, "the count counts: {created}");
    for round in 1..4 {
        now = Now { unix_ms: NOW.unix_ms + round * 15_000, ..now };
        let known = hashed(|| {
            ingester.push(&id, &body(0..100, now.unix_ms), now).expect("known");
        });
        assert_eq!(known, 0, "round {round}, with a store: {has_store}");
    }
    if has_store {
        // A sample that is not newer is judged by its series' labels, which is rare.
        return;
    }
    let retried = hashed(|| {
        ingester.push(&id, &body(0..100, now.unix_ms), now).expect("known");
    });
    assert_eq!(retried, 0);
}

#[test]
fn touching_known_series_hashes_no_ring_key() {
    check(None);
    let dir = tempfile::tempdir().expect("a directory");
    let config = store::Config { path: dir.path().into(), ..store::Config::default() };
    check(Some(Store::open(config).expect("a store")));
}
