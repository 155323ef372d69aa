//! A push refused at the limit of an instance without a store.

use prometheus::TextEncoder;
use prost::Message as _;

use super::super::*;
use crate::exposition::Families;
use crate::limits::Limits;
use crate::ring::RingSettings;
use crate::wire::proto::cortexpb::{LabelPair, Sample, TimeSeries, WriteRequest};

fn push_of(series: std::ops::Range<i64>) -> Vec<u8> {
    let pair =
        |name: &str, value: String| LabelPair { name: name.to_owned().into(), value: value.into() };
    let series = series.map(|number| TimeSeries {
        labels: vec![pair("__name__", "m".to_owned()), pair("number", number.to_string())],
        samples: vec![Sample { value: 1.0, timestamp_ms: number, ..Sample::default() }],
        ..TimeSeries::default()
    });
    WriteRequest { timeseries: series.collect(), ..WriteRequest::default() }.encode_to_vec()
}

#[test]
fn a_push_refused_at_the_instances_limit_leaves_nothing_even_without_a_store() {
    let instance = InstanceLimits { max_series: 50, ..InstanceLimits::default() };
    let limits = Limits { max_series_per_user: 100, ..Limits::default() };
    let settings = RingSettings {
        replication_factor: 1,
        zone_awareness_enabled: false,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: Some("a".to_owned()),
    };
    let ingester = Ingester::new(Parts {
        config: IngesterConfig::default(),
        role: Role {
            behind_distributors: true,
            shard_by_all_labels: true,
            shuffle_sharding: false,
            has_upstream: false,
        },
        ring: Arc::new(Ring::new(settings, 0)),
        overrides: Arc::new(Overrides::new(limits, instance)),
        store: None,
        hasher: IdentityHasher::new([7; crate::labels::IDENTITY_SECRET_BYTES]),
    });
    ingester.run();
    ingester.note_ring_state(InstanceState::Active);
    let now = crate::clock::Clock::start().now();
    let tenant = TenantId::parse("t").unwrap();
    ingester.push(&tenant, &push_of(0..40), now).unwrap();
    assert!(ingester.push(&tenant, &push_of(0..100), now).is_err());
    assert_eq!(ingester.user_stats(&tenant).series, 40);
    ingester.push(&tenant, &push_of(40..50), now).unwrap();
    assert_eq!(ingester.user_stats(&tenant).series, 50);

    // What the limits are compared with is told beside them.
    let mut families = Families::default();
    ingester.read_metrics(&crate::clock::Clock::start(), &mut families);
    let text = TextEncoder::new().encode_to_string(&families.into_vec()).unwrap();
    for line in [
        "cortex_ingester_instance_limits{limit=\"max_series\"} 50",
        "freehold_ingester_instance_usage{limit=\"max_series\"} 50",
        "freehold_ingester_instance_usage{limit=\"max_tenants\"} 1",
        "freehold_ingester_series_limit{reason=\"flat\",user=\"t\"} 100",
        "freehold_ingester_series_against_limit{user=\"t\"} 50",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
    }
}
