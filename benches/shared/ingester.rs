//! An ingester as it stands in a cluster, and the conventional pipeline it is compared with.
#![allow(dead_code, reason = "each bench uses its part")]

use std::sync::{Arc, Mutex};

use freehold::clock::Now;
use freehold::ingester::config::IngesterConfig;
use freehold::ingester::{Ingester, Parts, Role};
use freehold::labels::{IDENTITY_SECRET_BYTES, IdentityHasher, fnv1_32};
use freehold::limits::{InstanceLimits, Limits, Overrides};
use freehold::ring::model::{Instance, InstanceState, RingModel, RingReading};
use freehold::ring::{Ring, RingSettings, Token};
use hashbrown::HashMap;
use prost::Message;
use xxhash_rust::xxh3::Xxh3;

use super::shared::Numbers;

pub const NOW_MS: i64 = 1_700_000_000_000;
pub const NOW: Now = Now { unix_ms: NOW_MS, steady_ns: 1_000_000_000_000 };

/// Store off, limits on owned series in force, one of nine members in three zones: a third of
/// the keys are its own. Limits are set and never met.
pub fn ingester() -> Ingester {
    let settings = RingSettings {
        replication_factor: 3,
        zone_awareness_enabled: true,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: Some("ingester-0".to_owned()),
    };
    let ring = Ring::new(settings, 600_000);
    ring.publish(&RingReading::Whole(nine_members()), NOW_MS);
    let limits = Limits {
        max_series_per_user: 0,
        max_global_series_per_user: 1_000_000_000,
        max_series_per_metric: 0,
        ..Limits::default()
    };
    let config = IngesterConfig {
        owned_series_metrics_enabled: true,
        owned_series_limit_enforcement_enabled: true,
        ..IngesterConfig::default()
    };
    let secret = std::array::from_fn::<_, IDENTITY_SECRET_BYTES, _>(|i| (i * 37 + 11) as u8);
    let ingester = Ingester::new(Parts {
        config,
        role: Role {
            behind_distributors: true,
            shard_by_all_labels: true,
            shuffle_sharding: false,
            has_upstream: false,
        },
        ring: Arc::new(ring),
        overrides: Arc::new(Overrides::new(limits, InstanceLimits::default())),
        store: None,
        hasher: IdentityHasher::new(secret),
    });
    ingester.note_ring_state(InstanceState::Active);
    ingester.run();
    ingester
}

fn nine_members() -> RingModel {
    let mut numbers = Numbers::new(1);
    let instances = (0..9).map(|i| {
        let mut tokens: Vec<Token> = (0..512).map(|_| Token(numbers.next() as u32)).collect();
        tokens.sort_unstable();
        let instance = Instance {
            addr: format!("10.0.0.{i}:9095"),
            timestamp_s: NOW_MS / 1000,
            state: InstanceState::Active,
            tokens,
            zone: format!("zone-{}", i % 3),
            registered_timestamp_s: NOW_MS / 1000 - 86_400,
            unknown_fields: Vec::new(),
        };
        (format!("ingester-{i}"), instance)
    });
    RingModel { instances: instances.collect(), unknown_fields: Vec::new() }
}

/// What most would write: a decoder into owned strings, a ring key for every series, an identity
/// label by label, and one map of series under one lock.
pub struct Conventional {
    tenant: String,
    series: Mutex<HashMap<u128, Seen>>,
}

struct Seen {
    last_s: u32,
    newest_ms: i64,
    key: u32,
}

impl Conventional {
    pub fn new(tenant: &str) -> Self {
        Self { tenant: tenant.to_owned(), series: Mutex::new(HashMap::new()) }
    }

    /// Number of samples.
    pub fn push(&self, body: &[u8], now: Now) -> u64 {
        let request = OwnedRequest::decode(body).expect("sound");
        let tenant_key = fnv1_32(0x811c_9dc5, self.tenant.as_bytes());
        let mut samples = 0;
        for series in &request.timeseries {
            let mut key = tenant_key;
            let mut identity = Xxh3::new();
            for label in &series.labels {
                key = fnv1_32(fnv1_32(key, label.name.as_bytes()), label.value.as_bytes());
                for part in [label.name.as_bytes(), &[0xff], label.value.as_bytes(), &[0xff]] {
                    identity.update(part);
                }
            }
            samples += series.samples.len() as u64;
            let newest_ms = series.samples.iter().map(|sample| sample.timestamp_ms).max();
            let newest_ms = newest_ms.unwrap_or(i64::MIN);
            let mut map = self.series.lock().expect("unshared");
            let seen =
                map.entry(identity.digest128()).or_insert(Seen { last_s: 0, newest_ms, key });
            seen.last_s = now.steady_s();
            seen.newest_ms = seen.newest_ms.max(newest_ms);
            std::hint::black_box(seen.key);
        }
        samples
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct OwnedRequest {
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<OwnedSeries>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OwnedSeries {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<OwnedLabel>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<OwnedSample>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OwnedLabel {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct OwnedSample {
    #[prost(double, tag = "1")]
    pub value: f64,
    #[prost(int64, tag = "2")]
    pub timestamp_ms: i64,
}
