//! Rings in stores that are far away: real etcd, a Consul of our own, a page that a server shows.
//!
//! What must hold, whatever the store does: a watcher keeps the last good ring, members find
//! back into a store that lost them, no write gets lost, and nothing waits for ever.

mod consul;
mod cortex;
mod etcd;
pub mod etcd_server;
pub mod fake_consul;
mod page;
mod process;
mod replicas;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use freehold::clock::Clock;
use freehold::ring::config::{KvConfig, LifecyclerConfig};
use freehold::ring::kv::inmemory::InMemoryKv;
use freehold::ring::kv::{KvClient, KvCodec, KvError, KvValue, KvWatch};
use freehold::ring::lifecycler::{self, Lifecycler, Means};
use freehold::ring::model::{Instance, InstanceState, RingModel, Token};
use freehold::ring::watcher::{RingRead, Taken, Watcher};
use freehold::ring::{EMPTY_RING_ERROR, Published, Ring, RingSettings, RingStatus};
use freehold::units::Millis;
use freehold::wire::ring_desc;
use prometheus::Registry;

use crate::cortex::cluster::until;

const KEY: &str = "collectors/ring";
const PATIENCE: Duration = Duration::from_secs(60);

const CODEC: KvCodec = KvCodec {
    decode: |bytes| ring_desc::decode(bytes).map_err(|error| error.to_string()),
    encode: |model| ring_desc::encode(model).expect("a small ring"),
};

fn client(config: &KvConfig) -> KvClient {
    KvClient::new(config, &InMemoryKv::default(), None, "test").expect("settings that fit")
}

fn now_ms() -> i64 {
    Clock::start().now().unix_ms
}

/// A ring of ACTIVE members, one token each.
fn ring_of(ids: &[&str]) -> RingModel {
    let mut ring = RingModel::default();
    for (number, id) in ids.iter().enumerate() {
        let token = u32::try_from(number).expect("few") * 1_000_000 + 7;
        let instance = Instance {
            addr: format!("{id}:9095"),
            timestamp_s: now_ms() / 1000,
            state: InstanceState::Active,
            tokens: vec![Token(token)],
            zone: String::new(),
            registered_timestamp_s: 1,
            unknown_fields: Vec::new(),
        };
        ring.instances.insert((*id).to_owned(), instance);
    }
    ring
}

async fn put(kv: &KvClient, value: &[u8]) {
    let value = Bytes::copy_from_slice(value);
    kv.cas(KEY, |_| Ok(Some(value.clone()))).await.expect("written");
}

/// Sixteen members write eight times each, all at once; each write has to be there in the end.
async fn check_that_no_write_gets_lost(kv: &KvClient) {
    let writers = (0..16).map(|_| {
        let kv = kv.clone();
        tokio::spawn(async move {
            for _ in 0..8 {
                // A storm may outlast one call's tries; then a member tries again, as here.
                while let Err(error) = kv
                    .cas(KEY, |old| {
                        let mut new = old.unwrap_or_default().to_vec();
                        new.push(b'x');
                        Ok(Some(new.into()))
                    })
                    .await
                {
                    assert!(matches!(error, KvError::Conflict { .. }), "{error}");
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("no panic");
    }
    let value = kv.get(KEY).await.expect("read").bytes.expect("there");
    assert_eq!(value.len(), 16 * 8);
}

async fn next(watch: &mut KvWatch) -> Result<KvValue, KvError> {
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("news in time")
}

/// What the watch tells once its store answers.
async fn next_good(watch: &mut KvWatch) -> KvValue {
    loop {
        match next(watch).await {
            Ok(value) => return value,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The watch's next value that `fits`; a watch may repeat itself.
async fn next_that(watch: &mut KvWatch, fits: impl Fn(&KvValue) -> bool) -> KvValue {
    loop {
        let value = next_good(watch).await;
        if fits(&value) {
            return value;
        }
    }
}

fn holds(text: &'static str) -> impl Fn(&KvValue) -> bool {
    move |value| value.bytes.as_deref() == Some(text.as_bytes())
}

/// A ring that follows a store, as the app has it.
struct Follower {
    ring: Arc<Ring>,
    _watcher: Watcher,
}

impl Follower {
    fn new(kv: KvClient) -> Self {
        let settings = RingSettings {
            replication_factor: 3,
            zone_awareness_enabled: false,
            heartbeat_timeout_ms: 60_000,
            extend_writes: true,
            own_id: Some("a".to_owned()),
        };
        let ring = Arc::new(Ring::new(settings, 600_000));
        let published = Arc::clone(&ring);
        let sink = move |read: RingRead| {
            match read {
                RingRead::Ok { reading, read_at_ms } => {
                    if published.publish(&reading, read_at_ms) == Published::OutOfStep {
                        return Taken::OutOfStep;
                    }
                }
                RingRead::Empty => published.read_failed(now_ms(), EMPTY_RING_ERROR),
                RingRead::Failed(error) => published.read_failed(now_ms(), error),
            }
            Taken::InStep
        };
        let watcher = Watcher::spawn(kv, KEY.to_owned(), CODEC, Arc::new(now_ms), sink);
        Self { ring, _watcher: watcher }
    }

    fn ids(&self) -> Vec<String> {
        self.ring.load().members().iter().map(|member| member.id.to_string()).collect()
    }

    async fn until_ids(&self, ids: &[&str]) {
        until("the ring has its members", async || self.ids() == ids).await;
    }

    async fn until_fresh(&self) {
        until("the ring is fresh", async || self.ring.status(now_ms()) == RingStatus::Fresh).await;
    }

    /// Waits until the last good ring is in force for this reason.
    async fn until_stale(&self, part: &str) {
        until("the last good ring is in force", async || match self.ring.status(now_ms()) {
            RingStatus::Stale(failing) => failing.error.contains(part),
            _ => false,
        })
        .await;
    }
}

/// A member that registers itself, as the app does it.
fn join(kv: KvClient, id: &str) -> Lifecycler {
    let mut config = LifecyclerConfig {
        id: id.to_owned(),
        address: "127.0.0.1".to_owned(),
        heartbeat_period: Millis(200),
        min_ready_duration: Millis(0),
        final_sleep: Millis(0),
        num_tokens: 16,
        ..LifecyclerConfig::default()
    };
    config.ring.heartbeat_timeout = Millis::from_secs(10);
    let means = Means {
        kv,
        key: KEY.to_owned(),
        codec: CODEC,
        clock: Arc::new(now_ms),
        tokens_file_path: None,
        metrics: lifecycler::Metrics::register(&Registry::new(), "test").expect("new"),
    };
    Lifecycler::spawn(lifecycler::settings(&config, 9095), means)
}

/// Registers two members through the store and takes them out again, seen by a follower.
async fn check_a_life(kv: &KvClient, follower: &Follower) {
    let (a, b) = (join(kv.clone(), "a"), join(kv.clone(), "b"));
    follower.until_ids(&["a", "b"]).await;
    until("both are active", async || follower.ring.load().healthy_count() == 2).await;
    until("both are ready", async || {
        a.handle().readiness().is_ok() && b.handle().readiness().is_ok()
    })
    .await;
    a.stop().await.expect("out of the ring");
    follower.until_ids(&["b"]).await;
    b.stop().await.expect("out of the ring");
    until("nobody is left in the store", async || {
        let value = kv.get(KEY).await.expect("read").bytes.expect("there");
        ring_desc::decode(&value).expect("a ring").instances.is_empty()
    })
    .await;
}
