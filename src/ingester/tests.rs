//! What a push leaves behind when the store fails it; all else is tested from outside.

mod instance_limit;
mod ring_keys;

use prost::Message as _;

use super::config::CheckIngestionLimits;
use super::*;
use crate::limits::{InstanceLimits, Limits};
use crate::ring::RingSettings;
use crate::store;
use crate::wire::proto::cortexpb;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, steady_ns: 1_000_000_000 };

fn ingester(store: Arc<Store>) -> Ingester {
    let limits = Limits { ingestion_rate: 1.0, ingestion_burst_size: 3, ..Limits::default() };
    let ring = RingSettings {
        replication_factor: 1,
        zone_awareness_enabled: false,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: None,
    };
    let config = IngesterConfig {
        check_ingestion_limits: CheckIngestionLimits::On,
        ..IngesterConfig::default()
    };
    let ingester = Ingester::new(Parts {
        config,
        role: Role {
            behind_distributors: true,
            shard_by_all_labels: true,
            shuffle_sharding: false,
            has_upstream: false,
        },
        ring: Arc::new(Ring::new(ring, 600_000)),
        overrides: Arc::new(Overrides::new(limits, InstanceLimits::default())),
        hasher: IdentityHasher::new(store.identity_secret()),
        store: Some(store),
    });
    ingester.restore(NOW).expect("restored");
    ingester.note_ring_state(InstanceState::Active);
    ingester.run();
    ingester
}

/// A series with one sample, and metadata of its metric.
fn request(metric: &str) -> Vec<u8> {
    let label = cortexpb::LabelPair { name: "__name__".into(), value: metric.into() };
    let sample = cortexpb::Sample { value: 1.0, timestamp_ms: NOW.unix_ms, ..Default::default() };
    let series =
        cortexpb::TimeSeries { labels: vec![label], samples: vec![sample], ..Default::default() };
    let metadata =
        cortexpb::MetricMetadata { metric_family_name: metric.into(), ..Default::default() };
    let request = cortexpb::WriteRequest {
        timeseries: vec![series],
        metadata: vec![metadata],
        ..Default::default()
    };
    request.encode_to_vec()
}

#[test]
fn case_c8_a_push_that_the_store_fails_leaves_nothing_and_costs_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = store::Config { path: dir.path().into(), ..store::Config::default() };
    let store = Store::open(config).expect("a store");
    let ingester = ingester(Arc::clone(&store));
    let id = TenantId::parse("a").expect("a tenant");
    store.stop_writes();
    for _ in 0..5 {
        let refused = ingester.push(&id, &request("up"), NOW);
        assert!(matches!(refused, Err(PushError::Store(StoreError::Stopped))), "{refused:?}");
        let tenant = ingester.tenants.visit(&id).expect("the tenant is there");
        let counts = tenant.series.counts();
        assert_eq!((counts.series.in_memory, counts.pending, counts.active), (0, 0, 0));
        assert!(tenant.metadata.is_empty());
        assert_eq!(ingester.totals.count().in_memory, 0);
        assert_eq!(ingester.counters.samples.get(), 0);
        assert_eq!(tenant.head.lock().expect("no panic").samples_ms(), None);
    }
    let left = ingester.limiter.view(&id, NOW.steady_ns).expect("a bucket");
    assert_eq!(left.credits, 3.0);
}
