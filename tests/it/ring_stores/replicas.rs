//! Elected replicas in stores that are far away: all keys under a prefix are followed, and two
//! trackers elect together.

use std::collections::BTreeMap;
use std::sync::Arc;

use freehold::distributor::ha::{HaKvConfig, HaRequest, HaStoreKind, HaTracker, HaTrackerConfig};
use freehold::limits::Limits;
use freehold::ring::config::KvConfig;
use freehold::ring::kv::KvClient;
use freehold::ring::kv::prefix::PrefixWatch;
use freehold::tenant::TenantId;
use freehold::units::Millis;
use freehold::wire::proto::cortexpb;
use freehold::wire::replica_desc;
use prometheus::Registry;
use prost::Message as _;
use tokio::task::JoinSet;

use super::etcd_server::Etcd;
use super::fake_consul::FakeConsul;
use super::{PATIENCE, client, now_ms};
use crate::cortex::cluster::until;

const PREFIX: &str = "ha-tracker/";

#[tokio::test(flavor = "multi_thread")]
async fn keys_under_a_prefix_are_followed_in_etcd() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let kv = client(&etcd.config());
    let mut followed = Followed::new(&kv);
    check_that_changes_are_told(&kv, &mut followed).await;

    etcd.kill();
    etcd.run().await;
    set(&kv, "ha-tracker/t/back", "7").await;
    followed.until(&[("ha-tracker/t/b", "2"), ("ha-tracker/t/back", "7")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_under_a_prefix_are_followed_in_consul() {
    let mut consul = FakeConsul::start().await;
    let kv = client(&consul.config());
    let mut followed = Followed::new(&kv);
    check_that_changes_are_told(&kv, &mut followed).await;

    consul.kill().await;
    consul.restart().await;
    consul.restore_empty();
    consul.put("ha-tracker/t/back", b"7");
    followed.until(&[("ha-tracker/t/back", "7")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trackers_elect_together_in_etcd() {
    let Some(etcd) = Etcd::start().await else { return };
    check_an_election(etcd.config(), HaStoreKind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trackers_elect_together_in_consul() {
    let consul = FakeConsul::start().await;
    check_an_election(consul.config(), HaStoreKind::Consul).await;
}

/// What a watch of the prefix has told so far.
struct Followed {
    watch: PrefixWatch,
    pairs: BTreeMap<String, String>,
}

impl Followed {
    fn new(kv: &KvClient) -> Self {
        let watch = kv.watch_prefix(PREFIX).expect("the store can be written");
        Self { watch, pairs: BTreeMap::new() }
    }

    async fn until(&mut self, expect: &[(&str, &str)]) {
        let expect: BTreeMap<String, String> =
            expect.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let following = async {
            while self.pairs != expect {
                let Ok(reading) = self.watch.next().await else {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                };
                if reading.is_whole {
                    self.pairs.clear();
                }
                for (key, value) in reading.pairs {
                    match value.bytes {
                        Some(bytes) => {
                            let text = String::from_utf8(bytes.to_vec()).expect("text");
                            self.pairs.insert(key, text);
                        }
                        None => {
                            self.pairs.remove(&key);
                        }
                    }
                }
            }
        };
        let followed = tokio::time::timeout(PATIENCE, following).await;
        assert!(followed.is_ok(), "told {:?}, expected {expect:?}", self.pairs);
    }
}

/// A write request of one series.
fn request(cluster: &str, replica: &str) -> Vec<u8> {
    let pair = |name: &str, value: &str| cortexpb::LabelPair {
        name: name.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    };
    let labels =
        vec![pair("__name__", "m"), pair("__replica__", replica), pair("cluster", cluster)];
    let series = cortexpb::TimeSeries { labels, ..cortexpb::TimeSeries::default() };
    cortexpb::WriteRequest { timeseries: vec![series], ..cortexpb::WriteRequest::default() }
        .encode_to_vec()
}

async fn set(kv: &KvClient, key: &str, value: &str) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    // A store that has just come back may refuse once or twice.
    while let Err(error) = kv.cas(key, |_| Ok(Some(value.to_owned().into()))).await {
        assert!(tokio::time::Instant::now() < deadline, "{error}");
    }
}

async fn check_that_changes_are_told(kv: &KvClient, followed: &mut Followed) {
    set(kv, "ha-tracker/t/a", "1").await;
    set(kv, "ha-tracker0", "neighbour").await;
    set(kv, "collectors/ring", "neighbour").await;
    followed.until(&[("ha-tracker/t/a", "1")]).await;
    set(kv, "ha-tracker/t/b", "2").await;
    set(kv, "ha-tracker/t/a", "3").await;
    followed.until(&[("ha-tracker/t/a", "3"), ("ha-tracker/t/b", "2")]).await;
    kv.delete("ha-tracker/t/a").await.expect("deleted");
    followed.until(&[("ha-tracker/t/b", "2")]).await;
}

async fn check_an_election(store: KvConfig, kind: HaStoreKind) {
    let kvstore = HaKvConfig {
        store: kind,
        etcd: store.etcd.clone(),
        consul: store.consul.clone(),
        ..HaKvConfig::default()
    };
    let config = HaTrackerConfig {
        enable_ha_tracker: true,
        ha_tracker_update_timeout: Millis(100),
        ha_tracker_update_timeout_jitter_max: Millis(0),
        kvstore,
    };
    let limits = Limits {
        accept_ha_samples: true,
        ha_tracker_failover_timeout: Millis(3000),
        ..Limits::default()
    };
    let mut drivers = JoinSet::new();
    let trackers: Vec<Arc<HaTracker>> = (0..2)
        .map(|_| {
            let kv = client(&config.kvstore.kv());
            let new = HaTracker::new(&config, kv, &Registry::new());
            let (tracker, driver) = new.expect("registered");
            let driver = driver.expect("enabled");
            drivers.spawn(driver.run(Arc::new(now_ms), std::future::pending()));
            tracker
        })
        .collect();
    let tenant = TenantId::parse("t").expect("tenant");
    let send = async |tracker: usize, replica: &str| {
        let body = request("c/1", replica);
        trackers[tracker].decide(&tenant, &limits, &body, now_ms()).await.expect("answered")
    };
    assert_eq!(send(0, "a").await, HaRequest::Strip);
    assert!(matches!(send(1, "b").await, HaRequest::Deduped { .. }));
    assert_eq!(send(1, "a").await, HaRequest::Strip);
    let kv = client(&store);
    let stored = async || {
        let value = kv.get("ha-tracker/t/c/1").await.expect("read").bytes.expect("there");
        replica_desc::decode(&value).expect("readable")
    };
    let first = stored().await;
    assert_eq!(first.replica, "a");
    // Renewed behind the samples, while they come.
    let is_renewed = async {
        loop {
            assert_eq!(send(1, "a").await, HaRequest::Strip);
            if stored().await.received_at_ms > first.received_at_ms {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_renewed).await.expect("renewed in time");
    // Silent from now on: the other one follows.
    let last = stored().await.received_at_ms;
    let is_replaced = async {
        while send(0, "b").await != HaRequest::Strip {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_replaced).await.expect("replaced in time");
    assert!(now_ms() - last >= 3000, "not before the failover timeout");
    until("the other tracker knows", async || {
        matches!(send(1, "a").await, HaRequest::Deduped { .. })
    })
    .await;
}
