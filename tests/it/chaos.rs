//! Pushes through a network that misbehaves by a seed.
//!
//! Pushers write known and new series over gRPC, with Cortex's deadline, through a proxy that
//! delays, stalls, cuts, half-opens and refuses. In the end, the network healed, what must hold:
//!
//! * no stuck request: each pusher gets new pushes through within seconds;
//! * no leak: sockets and memory of the process are back where they were, but for the series;
//! * counts right: owned and in-memory series are the acknowledged ones, and at most those of the
//!   pushes that got no answer on top;
//! * no acknowledged sample lost; and nobody was told that a sound push was the sender's fault.
//!
//! Short: 8 seconds. Long (`FREEHOLD_LONG_TESTS=1`): 10 minutes. `FREEHOLD_CHAOS_SEED=N` replays.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freehold::store::{Config, MatchOp, Matcher, Store, StoredValue, TimeRange};
use freehold::tenant::TenantId;
use prost::Message as _;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::faults::Proxy;
use super::process::{
    Freehold, Label, Pusher, Sample, TimeSeries, WriteRequest, is_long, now_ms, wait_for,
};

const TENANT: &str = "chaos";
const METRIC: &str = "chaos_test";
const PUSHERS: u64 = 6;
const SERIES_PER_PUSH: u64 = 40;
/// Of each pusher; then it writes known ones only, so that memory can be compared.
const SERIES_EACH_MAX: u64 = 2_000;
/// Cortex's `-distributor.remote-timeout`.
const DEADLINE: Duration = Duration::from_secs(2);
/// Between two pushes of a pusher: enough to keep all paths busy, few enough to remember.
const PACE: Duration = Duration::from_millis(20);
/// In which a healed network has to carry pushes again.
const RECOVERY: Duration = Duration::from_secs(30);
/// Pushes in a row by which a pusher shows that it has recovered.
const RECOVERED_PUSHES: u32 = 5;
/// What the store's caches and buffers may grow by, and the allocator's slack.
const RSS_GROWTH_KIB_MAX: u64 = 400 * 1024;

/// What the pushers were told.
#[derive(Default)]
struct Told {
    /// Values by time, by series.
    acknowledged: BTreeMap<u64, BTreeMap<i64, u64>>,
    /// Series of pushes without an answer.
    in_doubt: BTreeSet<u64>,
    answers: u64,
    lost: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_network_loses_sticks_and_leaks_nothing() {
    let seed = std::env::var("FREEHOLD_CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(1);
    let span = Duration::from_secs(if is_long() { 600 } else { 8 });
    println!("seed {seed}, {span:?}");
    let dir = tempfile::tempdir().expect("a directory");
    let flags = ["-store.cache-bytes=16777216", "-store.write-buffer-bytes=8388608"];
    let mut freehold = Freehold::start(dir.path(), &flags).await;
    freehold.wait_ready().await;
    let before = freehold.resources();
    let told = under_chaos(freehold.grpc, span, seed).await;

    let explain = || format!("sockets {} again: {}", before.sockets, freehold.process.log());
    wait_for(explain, async || (freehold.resources().sockets <= before.sockets).then_some(()))
        .await;
    let after = freehold.resources();
    println!("{} answers, {} lost; before {before:?}, after {after:?}", told.answers, told.lost);
    assert!(after.rss_kib <= before.rss_kib + RSS_GROWTH_KIB_MAX, "{before:?} {after:?}");
    check_counts(&freehold, &told).await;
    freehold.process.kill();
    check_samples(dir.path(), &told);
    // A chaos in which nothing goes wrong, or nothing goes, shows nothing.
    assert!(told.answers > 50 && told.lost > 0, "{} answers, {} lost", told.answers, told.lost);
}

/// Pushes while faults come and go, then until everybody has recovered.
async fn under_chaos(target: SocketAddr, span: Duration, seed: u64) -> Told {
    let proxy = Proxy::start(target).await;
    let told = Arc::new(Mutex::new(Told::default()));
    let (calm, is_calm) = watch::channel(false);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut pushing = JoinSet::new();
    for pusher in 0..PUSHERS {
        let pushing_one = Pushing {
            told: Arc::clone(&told),
            address: proxy.address,
            pusher,
            rng: SmallRng::seed_from_u64(rng.random()),
            next_series: 0,
            t_ms: now_ms() - 60_000,
        };
        pushing.spawn(pushing_one.run(is_calm.clone()));
    }
    let end = Instant::now() + span;
    while Instant::now() < end {
        misbehave(&proxy, &mut rng).await;
        proxy.heal();
        tokio::time::sleep(Duration::from_millis(rng.random_range(100..700))).await;
    }
    calm.send_replace(true);
    let recovered = async { while pushing.join_next().await.is_some_and(|one| one.is_ok()) {} };
    timeout(RECOVERY, recovered).await.expect("every pusher gets through a healed network");
    assert!(pushing.is_empty(), "a pusher failed");
    drop(proxy);
    std::mem::take(&mut *told.lock().expect("no panic under this lock"))
}

/// One fault, for its time.
async fn misbehave(proxy: &Proxy, rng: &mut SmallRng) {
    proxy.misbehave(rng);
    // Short of the deadline, about it, and beyond it.
    tokio::time::sleep(Duration::from_millis(rng.random_range(50..3_000))).await;
}

struct Pushing {
    told: Arc<Mutex<Told>>,
    address: SocketAddr,
    pusher: u64,
    rng: SmallRng,
    /// Of this pusher's own series; each has its own, so that times only grow.
    next_series: u64,
    t_ms: i64,
}

impl Pushing {
    /// Pushes until all is calm and some pushes in a row were answered.
    async fn run(mut self, calm: watch::Receiver<bool>) {
        let mut in_a_row = 0;
        let mut connection = None;
        let mut pace = tokio::time::interval(PACE);
        while !*calm.borrow() || in_a_row < RECOVERED_PUSHES {
            pace.tick().await;
            let Some(pusher) = &connection else {
                let made = timeout(DEADLINE, Pusher::try_connect(self.address)).await;
                connection = made.ok().and_then(Result::ok);
                in_a_row = 0;
                continue;
            };
            // A connection that lets a deadline pass is given up, as a health check would.
            let is_calm = *calm.borrow();
            match self.push_once(pusher, is_calm).await {
                // What went through before the last fault is no sign of recovery.
                true => in_a_row += u32::from(is_calm),
                false => connection = None,
            }
        }
    }

    async fn push_once(&mut self, pusher: &Pusher, is_calm: bool) -> bool {
        self.t_ms += 1;
        let batch = self.batch();
        let message = encode(&batch, self.t_ms);
        let answer = timeout(DEADLINE, pusher.push(TENANT, &message)).await;
        let code = answer.ok().and_then(Result::ok);
        let mut told = self.told.lock().expect("no panic under this lock");
        match code {
            Some(0) => {
                told.answers += 1;
                for (series, bits) in batch {
                    told.acknowledged.entry(series).or_default().insert(self.t_ms, bits);
                }
            }
            other => {
                assert!(other.is_none_or(|code| code / 100 != 4), "told that it was our fault");
                told.lost += u64::from(!is_calm);
                told.in_doubt.extend(batch.into_keys());
            }
        }
        code == Some(0)
    }

    fn batch(&mut self) -> BTreeMap<u64, u64> {
        let number = |index: u64| index * PUSHERS + self.pusher;
        let mut batch = BTreeMap::new();
        for _ in 0..SERIES_PER_PUSH {
            let is_new = self.next_series < SERIES_EACH_MAX
                && (self.next_series == 0 || self.rng.random_bool(0.25));
            let index = match is_new {
                true => {
                    self.next_series += 1;
                    self.next_series - 1
                }
                false => self.rng.random_range(0..self.next_series),
            };
            batch.insert(number(index), self.rng.random::<f64>().to_bits());
        }
        batch
    }
}

fn encode(batch: &BTreeMap<u64, u64>, timestamp_ms: i64) -> Vec<u8> {
    let label = |name: &str, value: String| Label { name: name.to_owned(), value };
    let series = batch.iter().map(|(series, bits)| TimeSeries {
        labels: vec![
            label("__name__", METRIC.to_owned()),
            label("instance", format!("10.0.{}.1:9100", series % 200)),
            label("series", series.to_string()),
        ],
        samples: vec![Sample { value: f64::from_bits(*bits), timestamp_ms }],
    });
    WriteRequest { timeseries: series.collect() }.encode_to_vec()
}

async fn check_counts(freehold: &Freehold, told: &Told) {
    let doubt = told.in_doubt.iter().filter(|series| !told.acknowledged.contains_key(series));
    let (least, most) = (told.acknowledged.len(), told.acknowledged.len() + doubt.count());
    let owned = format!("cortex_ingester_owned_series{{user=\"{TENANT}\"}}");
    for name in [owned.as_str(), "cortex_ingester_memory_series"] {
        let count = freehold.metric(name).await.unwrap_or(0.0) as usize;
        assert!((least..=most).contains(&count), "{name} {count} of {least}..={most}");
    }
    let pending = format!("freehold_ingester_pending_series{{user=\"{TENANT}\"}}");
    assert_eq!(freehold.metric(&pending).await, Some(0.0), "nothing is left undecided");
}

/// Every acknowledged sample, read back by the library once the process is gone.
fn check_samples(dir: &Path, told: &Told) {
    let store = Store::open(Config { path: dir.join("data"), ..Config::default() });
    let store = store.expect("the store opens");
    let tenant = TenantId::parse(TENANT).expect("a tenant");
    let metric = METRIC.as_bytes();
    let matcher = Matcher::new(MatchOp::Equal, b"__name__", metric).expect("a matcher");
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
    for (series, acknowledged) in &told.acknowledged {
        for (t_ms, bits) in acknowledged {
            assert_eq!(stored[series].get(t_ms), Some(bits), "series {series} at {t_ms}");
        }
    }
}
