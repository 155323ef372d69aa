//! Trackers that share one store in memory: what each takes and drops, with failing swaps, clocks
//! that differ, and a store that is slow or away.

use std::time::Duration;

use prometheus::TextEncoder;
use proptest::prelude::*;
use prost::Message as _;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::*;
use crate::distributor::prepare::{HaPair, HaSeries, Replicas, Verdict};
use crate::exposition::{AtScrape, Families};
use crate::ring::kv::inmemory::InMemoryKv;
use crate::ring::lifecycler::WallClock;
use crate::wire::proto::cortexpb;

const START_MS: i64 = 1_800_000_000_000;
const KEY: &str = "ha-tracker/t/c";

/// Two trackers or more, each with a clock of its own, on one store.
struct World {
    store: InMemoryKv,
    trackers: Vec<Tracker>,
    started_at: Instant,
    drivers: JoinSet<()>,
}

struct Tracker {
    tracker: Arc<HaTracker>,
    skew_ms: i64,
}

impl World {
    /// One tracker for each skew and jitter, in milliseconds.
    fn new(trackers: &[(i64, i64)]) -> Self {
        let store = InMemoryKv::default();
        let started_at = Instant::now();
        let mut drivers = JoinSet::new();
        let config = HaTrackerConfig { enable_ha_tracker: true, ..HaTrackerConfig::default() };
        let trackers = trackers
            .iter()
            .map(|&(skew_ms, jitter_ms)| {
                let metrics = Metrics::register(&Registry::new()).expect("new");
                let kv = KvClient::InMemory(store.clone());
                let (tracker, driver) = HaTracker::with_jitter(&config, kv, jitter_ms, metrics);
                let clock: WallClock =
                    Arc::new(move || START_MS + skew_ms + started_at.elapsed().as_millis() as i64);
                let driver = driver.expect("it is enabled");
                drivers.spawn(driver.run(clock, std::future::pending()));
                Tracker { tracker, skew_ms }
            })
            .collect();
        Self { store, trackers, started_at, drivers }
    }

    fn now_ms(&self, tracker: usize) -> i64 {
        let elapsed = self.started_at.elapsed().as_millis() as i64;
        START_MS + self.trackers[tracker].skew_ms + elapsed
    }

    async fn send(&self, tracker: usize, replica: &str) -> Result<HaRequest, HaError> {
        self.send_from(tracker, "c", replica, &limits()).await
    }

    async fn send_from(
        &self,
        tracker: usize,
        cluster: &str,
        replica: &str,
        limits: &Limits,
    ) -> Result<HaRequest, HaError> {
        let body = request(&[&[("cluster", cluster), ("__replica__", replica)]]);
        let now_ms = self.now_ms(tracker);
        self.trackers[tracker].tracker.decide(&tenant(), limits, &body, now_ms).await
    }

    fn stored(&self) -> ElectedReplica {
        let bytes = self.store.read(KEY).bytes.expect("somebody is elected");
        replica_desc::decode(&bytes).expect("readable")
    }

    fn store_replica(&self, elected: &ElectedReplica) {
        let version = self.store.read(KEY).version;
        assert!(self.store.replace(KEY, version, replica_desc::encode(elected).into()));
    }
}

fn limits() -> Limits {
    Limits { accept_ha_samples: true, ..Limits::default() }
}

fn tenant() -> TenantId {
    TenantId::parse("t").expect("tenant")
}

/// A write request of series with these labels.
fn request(series: &[&[(&str, &str)]]) -> Vec<u8> {
    let pair = |(name, value): &(&str, &str)| cortexpb::LabelPair {
        name: name.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    };
    let series = series.iter().map(|labels| cortexpb::TimeSeries {
        labels: labels.iter().map(pair).collect(),
        ..cortexpb::TimeSeries::default()
    });
    let timeseries = series.collect();
    cortexpb::WriteRequest { timeseries, ..cortexpb::WriteRequest::default() }.encode_to_vec()
}

fn deduped(replica: &str, elected: &str) -> HaRequest {
    let refusal = ReplicasNotMatch { replica: replica.to_owned(), elected: elected.to_owned() };
    HaRequest::Deduped { cluster: "c".to_owned(), refusal }
}

async fn settle() {
    sleep(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn case_f2_one_replica_is_taken_and_the_other_is_told_so() {
    let world = World::new(&[(0, 0), (0, 0)]);
    assert_eq!(world.send(0, "a").await, Ok(HaRequest::Strip));
    // Cortex finds it under its own key and in its own bytes.
    let expect =
        ElectedReplica { replica: "a".to_owned(), received_at_ms: START_MS, deleted_at_ms: 0 };
    assert_eq!(world.stored(), expect);
    for tracker in [0, 1] {
        let refused = world.send(tracker, "b").await.expect("known");
        assert_eq!(refused, deduped("b", "a"));
        let HaRequest::Deduped { refusal, .. } = refused else { panic!("deduped") };
        let text = "replicas did not match, rejecting sample: replica=b, elected=a";
        assert_eq!(refusal.to_string(), text);
        assert_eq!(world.send(tracker, "a").await, Ok(HaRequest::Strip));
    }
}

#[tokio::test(start_paused = true)]
async fn what_cortex_elects_is_followed_without_asking() {
    let world = World::new(&[(0, 0)]);
    let elected =
        ElectedReplica { replica: "b".to_owned(), received_at_ms: START_MS, deleted_at_ms: 0 };
    world.store_replica(&elected);
    settle().await;
    // The store would not answer now.
    world.store.set_unreachable(true);
    assert_eq!(world.send(0, "a").await, Ok(deduped("a", "b")));
    assert_eq!(world.send(0, "b").await, Ok(HaRequest::Strip));
}

#[tokio::test(start_paused = true)]
async fn the_elected_replica_is_renewed_behind_its_samples() {
    let world = World::new(&[(0, 0)]);
    world.send(0, "a").await.expect("elected");
    sleep(Duration::from_secs(14)).await;
    world.send(0, "a").await.expect("young enough");
    settle().await;
    assert_eq!(world.stored().received_at_ms, START_MS, "not due yet");
    sleep(Duration::from_secs(2)).await;
    world.send(0, "a").await.expect("taken");
    settle().await;
    assert!(world.stored().received_at_ms >= START_MS + 16_000, "written anew");
}

#[tokio::test(start_paused = true)]
async fn a_silent_replica_is_replaced_after_the_failover_timeout() {
    let world = World::new(&[(0, 0), (0, 0)]);
    world.send(0, "a").await.expect("elected");
    settle().await;
    sleep(Duration::from_millis(29_900)).await;
    assert_eq!(world.send(1, "b").await, Ok(deduped("b", "a")));
    sleep(Duration::from_millis(100)).await;
    assert_eq!(world.send(1, "b").await, Ok(HaRequest::Strip));
    settle().await;
    assert_eq!(world.send(0, "a").await, Ok(deduped("a", "b")));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_stops_nobody_before_the_failover_timeout() {
    let world = World::new(&[(0, 0)]);
    world.send(0, "a").await.expect("elected");
    settle().await;
    world.store.set_unreachable(true);
    sleep(Duration::from_secs(25)).await;
    assert_eq!(world.send(0, "a").await, Ok(HaRequest::Strip));
    assert_eq!(world.send(0, "b").await, Ok(deduped("b", "a")));
    sleep(Duration::from_secs(6)).await;
    let error = world.send(0, "a").await.expect_err("who is elected is not known any more");
    assert!(matches!(error, HaError::Store(_)), "{error}");
    // A store that hangs holds nobody for long.
    world.store.set_unreachable(false);
    world.store.set_delay(Duration::from_secs(3600));
    let asked_at = Instant::now();
    assert_eq!(world.send(0, "a").await, Err(HaError::Timeout));
    assert_eq!(asked_at.elapsed().as_secs(), ASK_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn of_two_that_come_at_once_one_is_elected() {
    for losses in 0..4 {
        let world = World::new(&[(0, 0), (0, 0)]);
        world.store.set_delay(Duration::from_millis(5));
        world.store.fail_next_swaps(losses);
        let (a, b) = tokio::join!(world.send(0, "a"), world.send(1, "b"));
        let taken = [&a, &b].into_iter().filter(|r| **r == Ok(HaRequest::Strip)).count();
        assert_eq!(taken, 1, "{a:?} {b:?}");
        let elected = world.stored().replica;
        let loser = if elected == "a" { b } else { a };
        assert!(matches!(loser, Ok(HaRequest::Deduped { .. })), "{loser:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_askers_of_one_cluster_ask_the_store_once() {
    let world = World::new(&[(0, 0)]);
    world.store.set_delay(Duration::from_millis(100));
    let asks = (0..50).map(|_| world.send(0, "a"));
    let answers = futures_util::future::join_all(asks).await;
    assert!(answers.iter().all(|answer| *answer == Ok(HaRequest::Strip)));
    let elections = world.trackers[0].tracker.elections.read().expect("no panic");
    let known = elections.get(&tenant(), "c").expect("known");
    assert_eq!(known.swaps.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_read_is_not_overwritten() {
    let world = World::new(&[(0, 0)]);
    assert!(world.store.replace(KEY, 0, bytes::Bytes::from_static(b"\xff\xff\xff")));
    settle().await;
    let error = world.send(0, "a").await.expect_err("nobody knows");
    assert!(error.to_string().contains("cannot use the stored value"), "{error}");
    assert_eq!(world.store.read(KEY).bytes.as_deref(), Some(&b"\xff\xff\xff"[..]));
}

#[tokio::test(start_paused = true)]
async fn what_has_gone_is_marked_then_deleted_and_forgotten() {
    let world = World::new(&[(0, 0), (0, 0)]);
    world.send(0, "a").await.expect("elected");
    settle().await;
    let tracker = &world.trackers[0].tracker;
    let store = tracker.store.as_ref().expect("enabled");
    let minutes = |minutes: i64| START_MS + minutes * 60_000;
    driver::clean_up_once(tracker, store, minutes(29)).await.expect("listed");
    assert_eq!(world.stored().deleted_at_ms, 0, "not silent for long enough");
    driver::clean_up_once(tracker, store, minutes(31)).await.expect("listed");
    let marked = world.stored();
    assert_eq!((marked.deleted_at_ms, &marked.replica[..]), (minutes(31), "a"));
    settle().await;
    for Tracker { tracker, .. } in &world.trackers {
        assert!(tracker.elected(|_| Millis(0), START_MS).is_empty(), "forgotten at the mark");
    }
    driver::clean_up_once(tracker, store, minutes(60)).await.expect("listed");
    assert_eq!(world.store.list("ha-tracker/").len(), 1, "the mark is young");
    driver::clean_up_once(tracker, store, minutes(62)).await.expect("listed");
    assert_eq!(world.store.list("ha-tracker/").len(), 0);
    assert_eq!((tracker.metrics.marked.get(), tracker.metrics.deleted.get()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn clusters_beyond_the_limit_are_refused_with_cortexs_text() {
    let world = World::new(&[(0, 0)]);
    let limits = Limits { ha_max_clusters: 1, ..limits() };
    assert_eq!(world.send_from(0, "c", "a", &limits).await, Ok(HaRequest::Strip));
    let refused = world.send_from(0, "d", "a", &limits).await.expect("known");
    let HaRequest::TooMany(refusal) = refused else { panic!("too many: {refused:?}") };
    assert_eq!(refusal.to_string(), "too many HA replicaGroups (limit: 1)");
    assert_eq!(world.send_from(0, "c", "a", &limits).await, Ok(HaRequest::Strip));
    assert_eq!(world.store.list("ha-tracker/").len(), 1, "the store has not been asked");
}

#[tokio::test(start_paused = true)]
async fn series_of_a_mixed_request_are_decided_one_by_one() {
    let world = World::new(&[(0, 0)]);
    let limits = Limits { accept_mixed_ha_samples: true, ha_max_clusters: 2, ..limits() };
    world.send_from(0, "c", "a", &limits).await.expect("elected");
    let long = "r".repeat(3000);
    let series = [
        ("c", "a", Verdict::Accepted),
        ("c", "b", Verdict::Deduplicated),
        ("d", "b", Verdict::Accepted),
        ("e", "b", Verdict::TooManyClusters),
        // Cortex takes the label off although it does not use it.
        ("c", &long, Verdict::Accepted),
    ];
    let labels: Vec<[(&str, &str); 2]> = series
        .iter()
        .map(|&(cluster, replica, _)| [("cluster", cluster), ("__replica__", replica)])
        .collect();
    let mut all: Vec<&[(&str, &str)]> = labels.iter().map(|labels| &labels[..]).collect();
    all.push(&[("cluster", "c")]);
    let tracker = &world.trackers[0].tracker;
    let now_ms = world.now_ms(0);
    let decided = tracker.decide(&tenant(), &limits, &request(&all), now_ms).await.expect("told");
    let judge = |cluster: &str, replica: &str| {
        let pair = HaPair { cluster: cluster.as_bytes(), replica: replica.as_bytes() };
        tracker.judge(&tenant(), &decided, HaSeries { pair, samples: 5 })
    };
    for (cluster, replica, expect) in series {
        assert_eq!(judge(cluster, replica), expect, "{cluster} {replica}");
    }
    assert_eq!(judge("x", "y"), Verdict::Unknown, "not of this request");
    let elections = tracker.elections.read().expect("no panic");
    let known = elections.get(&tenant(), "c").expect("known");
    assert_eq!(known.deduped_samples.load(Ordering::Relaxed), 5);
    let judge = |_: HaSeries<'_>| Verdict::Unknown;
    assert!(matches!(decided.replicas(&limits, &judge), Replicas::Judged { .. }));
}

#[tokio::test]
async fn requests_that_are_not_asked_for_go_on_as_they_are() {
    let config = HaTrackerConfig::default();
    let kv = KvClient::InMemory(InMemoryKv::default());
    let (tracker, driver) = HaTracker::new(&config, kv, &Registry::new()).expect("registered");
    assert!(driver.is_none(), "nothing to drive");
    let ha = request(&[&[("cluster", "c"), ("__replica__", "a")]]);
    let decide = async |limits: Limits, body: &[u8]| {
        tracker.decide(&tenant(), &limits, body, START_MS).await.expect("no store")
    };
    assert_eq!(decide(Limits::default(), &ha).await, HaRequest::Off);
    // Tracking is off, and the label goes nevertheless, as in Cortex.
    assert_eq!(decide(limits(), &ha).await, HaRequest::Strip);
    assert_eq!(decide(limits(), &request(&[&[("cluster", "c")]])).await, HaRequest::NonHa);
    let short = Limits { max_label_value_length: 0, ..limits() };
    assert_eq!(decide(short, &ha).await, HaRequest::NonHa);
    assert_eq!(decide(limits(), &request(&[])).await, HaRequest::Off);
    let damaged = tracker.decide(&tenant(), &limits(), &[0x0a, 5], START_MS).await;
    assert!(matches!(damaged, Err(HaError::Unreadable(_))), "{damaged:?}");
}

#[tokio::test(start_paused = true)]
async fn metrics_have_cortexs_names() {
    let world = World::new(&[(0, 0)]);
    world.send(0, "a").await.expect("elected");
    let tracker = Arc::clone(&world.trackers[0].tracker);
    tracker.count_deduped(&tenant(), "c", 7);
    tracker.count_non_ha(&tenant(), 3);
    let views = tracker.elected(|_| Millis::from_secs(30), START_MS + 1000);
    assert_eq!((views[0].update_in_ms, views[0].failover_in_ms), (14_000, 29_000));
    let registry = Registry::new();
    let read = move |families: &mut Families| tracker.read_metrics(families);
    registry.register(Box::new(AtScrape::new("test_ha", read))).expect("new");
    let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
    for line in [
        "cortex_ha_tracker_elected_replica_changes_total{cluster=\"c\",user=\"t\"} 1",
        "cortex_ha_tracker_elected_replica_timestamp_seconds{cluster=\"c\",user=\"t\"} 1800000000",
        "cortex_ha_tracker_kv_store_cas_total{cluster=\"c\",user=\"t\"} 1",
        "cortex_ha_tracker_user_replica_group_count{user=\"t\"} 1",
        "cortex_distributor_deduped_samples_total{cluster=\"c\",user=\"t\"} 7",
        "cortex_distributor_non_ha_samples_received_total{user=\"t\"} 3",
    ] {
        assert!(text.lines().any(|have| have == line), "{line}\nin\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_of_a_tenant_that_fell_silent_go() {
    let world = World::new(&[(0, 0)]);
    let tracker = &world.trackers[0].tracker;
    let known = || tracker.elections.read().expect("no panic").tenant(&tenant()).is_some();
    let minutes = |count: u64| sleep(Duration::from_secs(count * 60) + Duration::from_secs(1));
    tracker.count_non_ha(&tenant(), 3);
    minutes(14).await;
    assert!(known());
    tracker.count_non_ha(&tenant(), 1);
    minutes(14).await;
    assert!(known(), "it has sent something since");
    minutes(2).await;
    assert!(!known(), "as long as the distributor's other numbers of it stay");
    // An elected replica keeps its tenant, until it goes itself.
    world.send(0, "a").await.expect("elected");
    tracker.count_non_ha(&tenant(), 3);
    minutes(20).await;
    assert!(known());
    let gone = ElectedReplica { deleted_at_ms: world.now_ms(0), ..world.stored() };
    world.store_replica(&gone);
    settle().await;
    assert!(known(), "the other number is young");
    minutes(16).await;
    assert!(!known());
}

/// Two replicas send through trackers whose clocks differ, on a store that is slow, loses swaps
/// and is away for a while; then the elected one falls silent.
///
/// While it is heard of nobody else is elected; behind its last sample another one is, neither
/// too early nor too late.
async fn simulate(seed: u64) {
    const SKEW_MAX_MS: i64 = 1000;
    const SEND_MS: u64 = 3000;
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut skew = || rng.random_range(-SKEW_MAX_MS..=SKEW_MAX_MS);
    let skews = [skew(), skew(), skew()];
    // With more, an outage on top of it leads to another election, as it should.
    let mut jitter = || rng.random_range(-5000..0_i64);
    let jitters = [jitter(), jitter(), jitter()];
    let world =
        World::new(&[(skews[0], jitters[0]), (skews[1], jitters[1]), (skews[2], jitters[2])]);
    let dies_at_ms = 200_000;
    let away = rng.random_range(30_000..150_000_u64);
    let away = away..away + rng.random_range(0..2_000);
    let mut first = None;
    let mut last_of_first_ms = 0;
    let mut second_at_ms = None;
    while world.started_at.elapsed() < Duration::from_secs(300) {
        let at_ms = world.started_at.elapsed().as_millis() as u64;
        world.store.set_unreachable(away.contains(&at_ms));
        world.store.set_delay(Duration::from_millis(rng.random_range(0..200)));
        world.store.fail_next_swaps(rng.random_range(0..3));
        for replica in ["a", "b"] {
            if at_ms >= dies_at_ms && first == Some(replica) {
                continue;
            }
            let sent_at_ms = world.started_at.elapsed().as_millis() as u64;
            let answer = world.send(rng.random_range(0..3), replica).await;
            if answer != Ok(HaRequest::Strip) {
                continue;
            }
            if *first.get_or_insert(replica) == replica {
                assert!(second_at_ms.is_none(), "seed {seed}: {replica} is back");
                last_of_first_ms = sent_at_ms;
            } else {
                assert!(sent_at_ms >= dies_at_ms, "seed {seed}: {replica} elected at {sent_at_ms}");
                second_at_ms.get_or_insert(sent_at_ms);
            }
        }
        sleep(Duration::from_millis(SEND_MS)).await;
    }
    let second_at_ms = second_at_ms.unwrap_or_else(|| panic!("seed {seed}: nobody followed"));
    let silence_ms = second_at_ms - last_of_first_ms;
    // Its time was written down at most 20 s (and two skews and a store's delay) before.
    assert!(silence_ms >= 30_000 - 20_000 - 2 * SKEW_MAX_MS as u64 - 2000, "{seed}: {silence_ms}");
    assert!(silence_ms <= 30_000 + 2 * SEND_MS + 2 * SKEW_MAX_MS as u64 + 2000, "{silence_ms}");
    drop(world.drivers);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn replicas_follow_each_other_and_never_overlap(seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(simulate(seed));
    }
}
