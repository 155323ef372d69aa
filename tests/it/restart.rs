//! `kill -9` at any moment: what was acknowledged is there again, and counted.
//!
//! Pushers write new series and new samples of known ones over gRPC and remote write, and note
//! what was acknowledged. The process is killed with pushes under way and started again over the
//! same data. What must hold then, at the first `/ready`: owned and in-memory counts are those of
//! the acknowledged series, plus at most those of the pushes without an answer; and each
//! acknowledged sample is in the store.
//!
//! Short: 3 kills. Long: 40.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use freehold::store::{Config, MatchOp, Matcher, Store, StoredValue, TimeRange};
use freehold::tenant::TenantId;
use prost::Message as _;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinSet;

use super::process::{Freehold, Label, Pusher, Sample, TimeSeries, WriteRequest, http, is_long};

const TENANT: &str = "survivor";
const PUSHERS: u64 = 4;
const SERIES_PER_PUSH: u64 = 100;
/// Half of a push's series, once there are some.
const KNOWN_PER_PUSH: u64 = 50;

/// What a pusher was told, over all lives of the process.
#[derive(Default)]
struct Acknowledged {
    /// Series by number, with the values by time.
    samples: BTreeMap<u64, BTreeMap<i64, u64>>,
    /// Series of pushes that never got an answer.
    in_doubt: BTreeSet<u64>,
}

struct Pushing {
    seen: Arc<Mutex<Acknowledged>>,
    pusher: u64,
    rng: SmallRng,
    /// Of this pusher's own series; each pusher has its own, so that times only grow.
    next_series: u64,
    t_ms: i64,
    answers: Arc<AtomicU64>,
}

impl Pushing {
    /// Pushes until the other side is gone.
    async fn run(mut self, grpc: Pusher, http_address: std::net::SocketAddr) -> Self {
        loop {
            self.t_ms += 1;
            let batch = self.batch();
            let message = encode(&batch, self.t_ms);
            let is_stored = match self.rng.random_bool(0.7) {
                true => grpc.push(TENANT, &message).await.ok().map(|code| code == 0),
                false => {
                    let body = snap::raw::Encoder::new().compress_vec(&message).expect("compress");
                    let headers = format!(
                        "X-Scope-OrgID: {TENANT}\r\nContent-Encoding: snappy\r\n\
                         Content-Type: application/x-protobuf\r\n"
                    );
                    let answer = http(http_address, "POST", "/api/v1/push", &headers, &body).await;
                    answer.ok().map(|(status, _)| status == 200)
                }
            };
            let mut seen = self.seen.lock().expect("no panic under this lock");
            match is_stored {
                Some(true) => {
                    for (series, bits) in batch {
                        seen.samples.entry(series).or_default().insert(self.t_ms, bits);
                    }
                    self.answers.fetch_add(1, Ordering::Relaxed);
                }
                Some(false) => panic!("a sound push was refused"),
                None => {
                    seen.in_doubt.extend(batch.into_keys());
                    drop(seen);
                    return self;
                }
            }
        }
    }

    fn batch(&mut self) -> BTreeMap<u64, u64> {
        let number = |index: u64| index * PUSHERS + self.pusher;
        let mut batch = BTreeMap::new();
        if self.next_series > 0 {
            for _ in 0..KNOWN_PER_PUSH {
                let known = number(self.rng.random_range(0..self.next_series));
                batch.insert(known, self.rng.random::<f64>().to_bits());
            }
        }
        while (batch.len() as u64) < SERIES_PER_PUSH {
            batch.insert(number(self.next_series), self.rng.random::<f64>().to_bits());
            self.next_series += 1;
        }
        batch
    }
}

fn encode(batch: &BTreeMap<u64, u64>, timestamp_ms: i64) -> Vec<u8> {
    let label = |name: &str, value: String| Label { name: name.to_owned(), value };
    let series = batch.iter().map(|(series, bits)| TimeSeries {
        labels: vec![
            label("__name__", "restart_test".to_owned()),
            label("instance", format!("10.0.{}.1:9100", series % 200)),
            label("series", series.to_string()),
        ],
        samples: vec![Sample { value: f64::from_bits(*bits), timestamp_ms }],
    });
    WriteRequest { timeseries: series.collect() }.encode_to_vec()
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("in range")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_loses_nothing_acknowledged_and_counts_come_back() {
    let (kills, seed) = if is_long() { (40, 0..4) } else { (3, 0..1) };
    for seed in seed {
        let dir = tempfile::tempdir().expect("a directory");
        survive(dir.path(), kills, seed).await;
    }
}

async fn survive(dir: &Path, kills: u64, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let seen = Arc::new(Mutex::new(Acknowledged::default()));
    let mut idle: Vec<Pushing> = (0..PUSHERS)
        .map(|pusher| Pushing {
            seen: Arc::clone(&seen),
            pusher,
            rng: SmallRng::seed_from_u64(rng.random()),
            next_series: 0,
            t_ms: now_ms() - 60_000,
            answers: Arc::default(),
        })
        .collect();
    for kill in 0..=kills {
        let mut freehold = Freehold::start(dir, &["-store.sync-interval=200ms"]).await;
        freehold.wait_ready().await;
        check_counts(&freehold, &seen, (seed, kill)).await;
        if kill == kills {
            break;
        }
        let answers: Arc<AtomicU64> = Arc::default();
        let mut pushing = JoinSet::new();
        for mut pusher in idle.drain(..) {
            pusher.answers = Arc::clone(&answers);
            pushing.spawn(pusher.run(Pusher::connect(freehold.grpc).await, freehold.http));
        }
        // After some pushes, and then at any moment of one: a real process keeps its own time.
        let enough = rng.random_range(1..60);
        let explain = || freehold.process.log();
        super::process::wait_for(explain, async || {
            (answers.load(Ordering::Relaxed) >= enough).then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_micros(rng.random_range(0..20_000))).await;
        freehold.process.kill();
        idle = pushing.join_all().await;
    }
    check_samples(dir, &seen.lock().expect("no panic under this lock"));
}

async fn check_counts(freehold: &Freehold, seen: &Mutex<Acknowledged>, at: (u64, u64)) {
    let (least, most) = {
        let seen = seen.lock().expect("no panic under this lock");
        let doubt = seen.in_doubt.iter().filter(|series| !seen.samples.contains_key(series));
        (seen.samples.len(), seen.samples.len() + doubt.count())
    };
    for name in ["cortex_ingester_owned_series", "cortex_ingester_memory_series"] {
        let labels = if name.ends_with("owned_series") { "{user=\"survivor\"}" } else { "" };
        let count = freehold.metric(&format!("{name}{labels}")).await.unwrap_or(0.0) as usize;
        assert!((least..=most).contains(&count), "{name} {count} of {least}..={most}, {at:?}");
    }
}

/// Every acknowledged sample, read back by the library once the process is gone for good.
fn check_samples(dir: &Path, seen: &Acknowledged) {
    let store = Store::open(Config { path: dir.join("data"), ..Config::default() });
    let store = store.expect("the store opens");
    let tenant = TenantId::parse(TENANT).expect("a tenant");
    let matcher = Matcher::new(MatchOp::Equal, b"__name__", b"restart_test").expect("a matcher");
    let mut stored: BTreeMap<u64, BTreeMap<i64, u64>> = BTreeMap::new();
    for series in store.select(&tenant, &[matcher], TimeRange::ALL).expect("a selection") {
        let series = series.expect("a series");
        let number = series.labels.as_labels().get(b"series").expect("its number");
        let number = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
        let samples = series.samples.into_iter().map(|sample| match sample.value {
            StoredValue::Float { bits, .. } => (sample.t_ms, bits),
            StoredValue::Histogram(_) => panic!("nobody wrote histograms"),
        });
        stored.insert(number.expect("a number"), samples.collect());
    }
    let mut samples = 0;
    for (series, acknowledged) in &seen.samples {
        let stored = &stored[series];
        for (t_ms, bits) in acknowledged {
            assert_eq!(stored.get(t_ms), Some(bits), "series {series} at {t_ms}");
            samples += 1;
        }
    }
    println!("{samples} acknowledged samples of {} series are there", seen.samples.len());
}
