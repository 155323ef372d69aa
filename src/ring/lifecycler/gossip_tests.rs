//! Lives in a ring on gossip: what its stamps of one second and its tombstones mean for a member.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prometheus::Registry;
use tokio::time::{Instant, sleep, timeout};

use super::settings::settings;
use super::testing::{START_S, clock, instance};
use super::*;
use crate::ring::config::LifecyclerConfig;
use crate::ring::kv::memberlist::value::ValueKind;
use crate::ring::kv::memberlist::{self, GossipedStore, Phase as GossipPhase, Retention};
use crate::ring::kv::{CAS_ATTEMPTS_MAX, KvClient, KvCodec, KvError, KvWatch};
use crate::ring::model::{Instance, InstanceState, RingModel, Token};
use crate::units::Millis;
use crate::wire::key_value_pair::{self, Pair};
use crate::wire::replica_desc::{self, ElectedReplica};
use crate::wire::ring_desc;

use InstanceState::{Active, Leaving, ReadOnly};

const KEY: &str = "collectors/ring";
const CODEC: KvCodec = KvCodec {
    decode: |bytes| ring_desc::decode(bytes).map_err(|error| error.to_string()),
    encode: |ring| ring_desc::encode(ring).unwrap_or_default(),
};

fn store_by(clock: WallClock) -> GossipedStore {
    let retention = Retention { left_ms: 300_000, deleted_ms: 300_000 };
    let settings = memberlist::Settings { retention, history_bytes_max: 0 };
    let metrics = memberlist::Metrics::register(&Registry::new()).unwrap();
    let store = GossipedStore::new(settings, clock, metrics);
    store.enter(GossipPhase::Running);
    store
}

fn store() -> GossipedStore {
    store_by(clock())
}

fn client(store: &GossipedStore) -> KvClient {
    KvClient::Memberlist(store.client(ValueKind::Ring))
}

async fn ring(kv: &KvClient) -> RingModel {
    let bytes = kv.get(KEY).await.unwrap().bytes;
    bytes.map(|bytes| (CODEC.decode)(&bytes).unwrap()).unwrap_or_default()
}

/// Writes `id` with that state and that stamp.
async fn write(kv: &KvClient, id: &str, state: InstanceState, stamp: impl Fn() -> i64) -> u32 {
    let mut calls = 0;
    kv.cas(KEY, |bytes| {
        calls += 1;
        let mut ring = bytes.map(|bytes| (CODEC.decode)(&bytes).unwrap()).unwrap_or_default();
        let entry = Instance { timestamp_s: stamp(), ..instance(state, &[]) };
        ring.instances.insert(id.to_owned(), entry);
        Ok(Some((CODEC.encode)(&ring).into()))
    })
    .await
    .unwrap();
    calls
}

/// Takes what each store tells to the other, while `test` runs.
async fn gossiping(a: &GossipedStore, b: &GossipedStore, test: impl Future<Output = ()>) {
    let pass = |from: GossipedStore, to: GossipedStore| async move {
        loop {
            from.broadcasts_ready().await;
            for broadcast in from.take_broadcasts() {
                to.receive(broadcast.bytes);
            }
        }
    };
    tokio::select! {
        () = test => {}
        () = pass(a.clone(), b.clone()) => unreachable!("it has no end"),
        () = pass(b.clone(), a.clone()) => unreachable!("it has no end"),
    }
}

fn spawn(store: &GossipedStore, id: &str) -> Lifecycler {
    let config = LifecyclerConfig {
        id: id.to_owned(),
        address: id.to_owned(),
        num_tokens: 4,
        observe_period: Millis(2000),
        heartbeat_period: Millis(5000),
        ..LifecyclerConfig::default()
    };
    let metrics = Metrics::register(&Registry::new(), "ingester").unwrap();
    let (kv, key) = (client(store), KEY.to_owned());
    let means = Means { kv, key, codec: CODEC, clock: clock(), tokens_file_path: None, metrics };
    Lifecycler::spawn(settings(&config, 9095), means)
}

async fn shows(handle: &LifecyclerHandle, state: InstanceState) {
    let mut changes = handle.status_changes();
    let wait = changes.wait_for(|status| status.state == state);
    timeout(Duration::from_secs(60), wait).await.expect("in time").expect("task lives");
}

async fn sees(kv: &KvClient, what: &str, condition: impl Fn(&RingModel) -> bool) {
    let looking = async {
        while !condition(&ring(kv).await) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(5), looking).await.unwrap_or_else(|_| panic!("{what}"));
}

/// Cortex's TestCASNoChange, but for its end: the write waits for the next second, and is made.
#[tokio::test(start_paused = true)]
async fn a_second_write_within_a_second_is_made_in_the_next() {
    let clock = clock();
    let kv = client(&store_by(Arc::clone(&clock)));
    let start = Instant::now();
    assert_eq!(write(&kv, "a", Active, || clock() / 1000).await, 1);
    assert_eq!(write(&kv, "a", Leaving, || clock() / 1000).await, 2);
    assert_eq!(ring(&kv).await.instances["a"].state, Leaving);
    let waited = start.elapsed();
    assert!(waited <= Duration::from_secs(1), "{waited:?}");
}

/// Cortex's TestCASNoChangeShortTimeout: what never is news ends in a named error.
#[tokio::test(start_paused = true)]
async fn a_write_that_stays_old_is_given_up() {
    let kv = client(&store());
    write(&kv, "a", Active, || START_S).await;
    let mut calls = 0;
    let outcome = kv
        .cas(KEY, |bytes| {
            calls += 1;
            Ok(bytes)
        })
        .await;
    assert_eq!(outcome, Err(KvError::NoChange { key: KEY.to_owned() }));
    assert_eq!(
        outcome.unwrap_err().to_string(),
        "failed to CAS-update key collectors/ring: no change detected"
    );
    assert_eq!(calls, CAS_ATTEMPTS_MAX);
}

/// Cortex's TestBasicGetAndCas, TestCASNoOutput and TestCASErrorNoRetry.
#[tokio::test(start_paused = true)]
async fn a_swap_writes_what_it_made_or_nothing() {
    let kv = client(&store());
    assert_eq!(kv.get(KEY).await.unwrap().bytes, None);
    kv.cas(KEY, |_| Ok(None)).await.unwrap();
    assert!(kv.cas(KEY, |_| Err("no".to_owned())).await.is_err());
    assert!(kv.cas(KEY, |_| Ok(Some(Bytes::from_static(b"\xff")))).await.is_err(), "no ring");
    assert_eq!(kv.get(KEY).await.unwrap().bytes, None);
    write(&kv, "a", Active, || START_S).await;
    assert_eq!(ring(&kv).await.instances.len(), 1);
    kv.delete(KEY).await.unwrap();
    assert_eq!(kv.get(KEY).await.unwrap().bytes, None);
    assert!(kv.is_writable());
}

#[tokio::test(start_paused = true)]
async fn who_asks_before_we_have_joined_waits() {
    let retention = Retention { left_ms: 0, deleted_ms: 0 };
    let settings = memberlist::Settings { retention, history_bytes_max: 0 };
    let metrics = memberlist::Metrics::register(&Registry::new()).unwrap();
    let store = GossipedStore::new(settings, clock(), metrics);
    let kv = client(&store);
    let mut watch = kv.watch(KEY);
    let second = Duration::from_secs(1);
    assert!(timeout(second, kv.get(KEY)).await.is_err());
    assert!(timeout(second, watch.next()).await.is_err());
    // What is told meanwhile is taken.
    let other = self::store();
    write(&client(&other), "a", Active, || START_S).await;
    store.merge_remote_state(other.local_state());
    store.enter(GossipPhase::Running);
    assert!(watch.next().await.unwrap().bytes.is_some());
    assert_eq!(ring(&kv).await.instances.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_moves_at_once_and_heartbeats_once_a_second() {
    let stamp = AtomicI64::new(START_S);
    let later = || stamp.fetch_add(1, Ordering::Relaxed);
    let kv = client(&store());
    let mut watch = kv.watch(KEY);
    assert_eq!(watch.next().await.unwrap().bytes, None, "the present first");
    write(&kv, "a", Active, later).await;
    let told = |watch: &mut KvWatch| {
        let value = futures_util::FutureExt::now_or_never(watch.next());
        value.map(|value| {
            let bytes = value.unwrap().bytes?;
            Some((CODEC.decode)(&bytes).unwrap().instances["a"].timestamp_s - START_S)
        })
    };
    assert_eq!(told(&mut watch), Some(Some(0)));
    write(&kv, "a", Active, later).await;
    assert_eq!(told(&mut watch), None, "a heartbeat waits");
    write(&kv, "a", Active, later).await;
    let waited = Instant::now();
    assert_eq!(watch.next().await.unwrap().version, 3, "the newest of two");
    assert_eq!(waited.elapsed(), Duration::from_secs(1));
    write(&kv, "a", Active, later).await;
    write(&kv, "a", Leaving, later).await;
    assert_eq!(told(&mut watch), Some(Some(4)), "a state does not");
    kv.delete(KEY).await.unwrap();
    assert_eq!(told(&mut watch), Some(None));
}

/// Cortex's TestDeleteTriggersWatchKeyNotification, for what follows a prefix.
#[tokio::test(start_paused = true)]
async fn a_prefix_is_told_whole_and_then_by_what_changes() {
    let store = store();
    let kv = KvClient::Memberlist(store.client(ValueKind::Replica));
    let elect = async |key: &str, received_at_ms: i64| {
        let elected = ElectedReplica { replica: "r".to_owned(), received_at_ms, deleted_at_ms: 0 };
        kv.cas(key, |_| Ok(Some(replica_desc::encode(&elected).into()))).await.unwrap();
    };
    elect("ha/a", 1).await;
    elect("ha/b", 1).await;
    elect("other", 1).await;
    let mut watch = kv.watch_prefix("ha/").unwrap();
    let mut told = async || {
        let reading = watch.next().await.unwrap();
        let is_there =
            |(key, value): (String, crate::ring::kv::KvValue)| (key, value.bytes.is_some());
        (reading.is_whole, reading.pairs.into_iter().map(is_there).collect::<Vec<_>>())
    };
    let named = |pairs: &[(&str, bool)]| -> Vec<(String, bool)> {
        pairs.iter().map(|(key, is_there)| ((*key).to_owned(), *is_there)).collect()
    };
    assert_eq!(told().await, (true, named(&[("ha/a", true), ("ha/b", true)])));
    elect("other", 2).await;
    elect("ha/b", 2).await;
    assert_eq!(told().await, (false, named(&[("ha/b", true)])));
    kv.delete("ha/a").await.unwrap();
    elect("ha/c", 1).await;
    assert_eq!(told().await, (false, named(&[("ha/a", false), ("ha/c", true)])));
}

#[tokio::test(start_paused = true)]
async fn a_member_lives_and_leaves_in_sight_of_the_others() {
    let (a, b) = (store(), store());
    let test = async {
        let (member, kv) = (spawn(&a, "a"), client(&b));
        let handle = member.handle();
        shows(&handle, Active).await;
        sees(&kv, "it serves", |ring| {
            ring.instances.get("a").is_some_and(|e| e.state == Active && e.tokens.len() == 4)
        })
        .await;
        // Right behind one another, so that the second comes within the first one's second.
        handle.set_state(ReadOnly).await.unwrap();
        sees(&kv, "it is read-only", |ring| ring.instances["a"].state == ReadOnly).await;
        let before_s = ring(&kv).await.instances["a"].timestamp_s;
        sleep(Duration::from_secs(6)).await;
        sees(&kv, "it heartbeats", |ring| ring.instances["a"].timestamp_s > before_s).await;
        handle.set_state(Active).await.unwrap();
        member.leave().await;
        sees(&kv, "it leaves", |ring| ring.instances["a"].state == Leaving).await;
        member.stop().await.unwrap();
        sees(&kv, "it has gone", |ring| ring.instances.is_empty()).await;
    };
    gossiping(&a, &b, test).await;
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_member_that_lives_comes_back_with_its_tokens() {
    let (a, b) = (store(), store());
    let test = async {
        let (member, kv) = (spawn(&a, "a"), client(&b));
        shows(&member.handle(), Active).await;
        sees(&kv, "it serves", |ring| ring.instances.contains_key("a")).await;
        let tokens = ring(&kv).await.instances["a"].tokens.clone();
        forget(&kv, KEY, CODEC, "a").await.unwrap();
        assert!(ring(&kv).await.instances.is_empty());
        sees(&client(&a), "it hears of it", |ring| ring.instances.is_empty()).await;
        sleep(Duration::from_secs(5)).await;
        sees(&kv, "it is back", |ring| {
            ring.instances.get("a").is_some_and(|e| e.state == Active && e.tokens == tokens)
        })
        .await;
    };
    gossiping(&a, &b, test).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_lost_by_a_conflict_is_given_up_with_the_next_heartbeat() {
    let (a, b) = (store(), store());
    // "b" serves, then "a" shows one of its tokens, and has the better right by its name.
    let test = async {
        let member = spawn(&b, "b");
        shows(&member.handle(), Active).await;
        let mine = ring(&client(&b)).await.instances["b"].tokens.clone();
        let theft = Instance {
            timestamp_s: START_S + 60,
            tokens: vec![mine[0], Token(7)],
            ..instance(Active, &[])
        };
        let claim = RingModel {
            instances: [("a".to_owned(), theft)].into_iter().collect(),
            unknown_fields: Vec::new(),
        };
        b.receive(key_value_pair::encode(&Pair {
            key: KEY.to_owned(),
            value: (CODEC.encode)(&claim).into(),
            codec: ValueKind::Ring.name().to_owned(),
            deleted: false,
            updated_at_ms: 0,
        }));
        sleep(Duration::from_secs(12)).await;
        let held = ring(&client(&a)).await;
        assert_eq!(held.instances["b"].tokens, &mine[1..], "it heartbeats with what it has left");
        assert_eq!(held.instances["a"].tokens.len(), 2);
        assert_eq!(ring(&client(&b)).await.instances, held.instances);
        assert_eq!(member.handle().status().tokens_count, 3);
    };
    gossiping(&a, &b, test).await;
}
