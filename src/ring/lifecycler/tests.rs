//! The driver over a store in memory, with its time paused.

use super::testing::{CODEC, START_S, clock, instance, ring_of};
use super::*;
use crate::ring::config::LifecyclerConfig;
use crate::ring::kv::file::FileKv;
use crate::ring::kv::inmemory::InMemoryKv;
use crate::ring::lifecycle::Heritage;
use crate::ring::merge;
use crate::ring::model::{Instance, Token};
use crate::ring::service_ring::{DISTRIBUTOR_RING, ServiceRingConfig};
use tokio::time::sleep;

use InstanceState::{Active, Joining, Leaving, Pending, ReadOnly};

const KEY: &str = "collectors/ring";

fn settings_of(id: &str) -> Settings {
    let config = LifecyclerConfig {
        id: id.to_owned(),
        address: id.to_owned(),
        num_tokens: 4,
        ..LifecyclerConfig::default()
    };
    settings(&config, 9095)
}

fn spawn(kv: &InMemoryKv, settings: Settings) -> Lifecycler {
    spawn_on(KvClient::InMemory(kv.clone()), settings, None)
}

fn spawn_on(kv: KvClient, settings: Settings, tokens_file_path: Option<PathBuf>) -> Lifecycler {
    let metrics = Metrics::register(&Registry::new(), "ingester").unwrap();
    let means =
        Means { kv, key: KEY.to_owned(), codec: CODEC, clock: clock(), tokens_file_path, metrics };
    Lifecycler::spawn(settings, means)
}

fn ring(kv: &InMemoryKv) -> RingModel {
    kv.read(KEY).bytes.map_or_else(RingModel::default, |bytes| (CODEC.decode)(&bytes).unwrap())
}

fn entry(kv: &InMemoryKv, id: &str) -> Instance {
    ring(kv).instances[id].clone()
}

fn put(kv: &InMemoryKv, ring: &RingModel) {
    assert!(kv.replace(KEY, kv.read(KEY).version, (CODEC.encode)(ring).into()));
}

/// Waits until `condition` holds of the status; paused time runs while we wait.
async fn until(lifecycler: &Lifecycler, condition: impl Fn(&Status) -> bool) {
    let mut changes = lifecycler.handle().status_changes();
    let wait = changes.wait_for(condition);
    timeout(Duration::from_secs(300), wait).await.expect("in time").expect("task lives");
}

#[tokio::test(start_paused = true)]
async fn an_instance_joins_becomes_ready_switches_mode_and_leaves() {
    let kv = InMemoryKv::default();
    put(&kv, &ring_of(&[]));
    let lifecycler = spawn(&kv, settings_of("me"));
    let handle = lifecycler.handle();
    until(&lifecycler, |status| status.state == Active).await;
    assert_eq!(entry(&kv, "me").tokens.len(), 4);
    assert!(handle.readiness().is_err(), "min_ready_duration");
    until(&lifecycler, |status| status.readiness.is_ok()).await;
    handle.set_state(ReadOnly).await.unwrap();
    assert_eq!((entry(&kv, "me").state, handle.status().state), (ReadOnly, ReadOnly));
    handle.set_state(Active).await.unwrap();
    let refused = handle.set_state(Leaving).await.unwrap_err();
    assert_eq!(refused.to_string(), "changing instance state from ACTIVE -> LEAVING is disallowed");
    lifecycler.leave().await;
    assert_eq!(entry(&kv, "me").state, Leaving);
    let before = Instant::now();
    lifecycler.stop().await.unwrap();
    assert_eq!(before.elapsed().as_secs(), 30, "final sleep");
    assert!(ring(&kv).instances.is_empty());
    assert_eq!(handle.set_state(Active).await, Err(LifecyclerError::NotRunning));
}

#[tokio::test(start_paused = true)]
async fn heartbeats_advance_through_a_store_slower_than_their_period() {
    let kv = InMemoryKv::default();
    let lifecycler = spawn(&kv, settings_of("me"));
    until(&lifecycler, |status| status.state == Active).await;
    // Read and swap together take 8 s, the period is 5 s.
    kv.set_delay(Duration::from_secs(4));
    sleep(Duration::from_secs(20)).await;
    let mut last_s = entry(&kv, "me").timestamp_s;
    for _ in 0..20 {
        sleep(Duration::from_secs(9)).await;
        let timestamp_s = entry(&kv, "me").timestamp_s;
        assert!(timestamp_s > last_s, "{timestamp_s} after {last_s}");
        assert!(timestamp_s - last_s <= 17, "{timestamp_s} after {last_s}");
        last_s = timestamp_s;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_delays_no_operator_for_ever() {
    let kv = InMemoryKv::default();
    let lifecycler = spawn(&kv, settings_of("me"));
    until(&lifecycler, |status| status.state == Active).await;
    kv.set_delay(Duration::from_secs(1_000_000));
    let outcome = lifecycler.handle().set_state(ReadOnly).await;
    let timeout = KvError::Timeout(Duration::from_secs(30));
    assert_eq!(outcome, Err(LifecyclerError::WriteLater(timeout)));
    kv.set_delay(Duration::ZERO);
    sleep(Duration::from_secs(40)).await;
    assert_eq!(entry(&kv, "me").state, ReadOnly, "carried by a later heartbeat");
}

#[tokio::test(start_paused = true)]
async fn lost_races_and_an_unreachable_store_are_outlived() {
    let kv = InMemoryKv::default();
    kv.set_unreachable(true);
    let lifecycler = spawn(&kv, settings_of("me"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lifecycler.handle().status().phase, Phase::Registering);
    let reason = lifecycler.handle().readiness().expect_err("not in the ring");
    assert!(matches!(&reason, NotReady::Store(_)), "not that we have no tokens: {reason}");
    kv.set_unreachable(false);
    kv.fail_next_swaps(25);
    until(&lifecycler, |status| status.state == Active).await;
    kv.set_unreachable(true);
    sleep(Duration::from_secs(30)).await;
    let stale_s = entry(&kv, "me").timestamp_s;
    kv.set_unreachable(false);
    sleep(Duration::from_secs(2)).await;
    let fresh_s = entry(&kv, "me").timestamp_s;
    assert!(fresh_s - stale_s >= 25, "not only at the next period");
}

#[tokio::test(start_paused = true)]
async fn a_garbled_ring_is_not_overwritten() {
    let kv = InMemoryKv::default();
    assert!(kv.replace(KEY, 0, (&b"garbage"[..]).into()));
    let lifecycler = spawn(&kv, settings_of("me"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(kv.read(KEY).bytes.as_deref(), Some(&b"garbage"[..]));
    kv.remove(KEY);
    until(&lifecycler, |status| status.state == Active).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_leaves_the_entry_and_the_next_life_takes_it_up() {
    let kv = InMemoryKv::default();
    let first = spawn(&kv, settings_of("me"));
    until(&first, |status| status.state == Active).await;
    let before = entry(&kv, "me");
    drop(first);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(entry(&kv, "me").state, Active, "nobody was there to leave");
    let second = spawn(&kv, settings_of("me"));
    until(&second, |status| status.state == Active).await;
    let after = entry(&kv, "me");
    assert_eq!(after.tokens, before.tokens);
    assert_eq!(after.registered_timestamp_s, before.registered_timestamp_s);
}

#[tokio::test(start_paused = true)]
async fn the_dead_are_forgotten_and_the_living_come_back() {
    let kv = InMemoryKv::default();
    let lifecycler = spawn(&kv, settings_of("me"));
    until(&lifecycler, |status| status.state == Active).await;
    let tokens = entry(&kv, "me").tokens;
    let mut with_dead = ring(&kv);
    with_dead.instances.insert("dead".to_owned(), instance(Active, &[1]));
    put(&kv, &with_dead);
    let handle = lifecycler.handle();
    handle.forget("dead").await.unwrap();
    handle.forget("dead").await.unwrap();
    assert_eq!(ring(&kv).instances.keys().collect::<Vec<_>>(), ["me"]);
    handle.forget("me").await.unwrap();
    assert!(ring(&kv).instances.is_empty());
    sleep(Duration::from_secs(6)).await;
    assert_eq!(entry(&kv, "me").tokens, tokens);
    kv.remove(KEY);
    assert_eq!(handle.forget("x").await, Err(LifecyclerError::EmptyRing));
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_cannot_be_taken_out_is_told() {
    let kv = InMemoryKv::default();
    let lifecycler = spawn(&kv, settings_of("me"));
    until(&lifecycler, |status| status.state == Active).await;
    kv.set_unreachable(true);
    assert_eq!(lifecycler.stop().await, Err(LifecyclerError::StillRegistered));
    assert!(ring(&kv).instances.contains_key("me"));
}

#[tokio::test(start_paused = true)]
async fn case_a7_a_pending_instance_holds_no_tokens_until_it_joins() {
    let kv = InMemoryKv::default();
    let late = Settings { join_after_ms: 60_000, observe_period_ms: 5_000, ..settings_of("me") };
    let lifecycler = spawn(&kv, late);
    for _ in 0..5 {
        sleep(Duration::from_secs(10)).await;
        let entry = entry(&kv, "me");
        assert_eq!((entry.state, entry.tokens.len()), (Pending, 0));
        assert!(START_S + 60 > entry.timestamp_s && entry.timestamp_s > START_S);
    }
    until(&lifecycler, |status| status.state == Joining).await;
    assert_eq!(entry(&kv, "me").tokens.len(), 4);
    until(&lifecycler, |status| status.state == Active).await;
}

/// A member of the distributors' ring, under its own key in the same store.
fn spawn_distributor(kv: &InMemoryKv, id: &str, num_tokens: usize) -> Lifecycler {
    let config = ServiceRingConfig {
        instance_id: id.to_owned(),
        instance_addr: id.to_owned(),
        num_tokens,
        ..ServiceRingConfig::default()
    };
    assert_eq!(config.validate(), Ok(()));
    let means = Means {
        kv: KvClient::InMemory(kv.clone()),
        key: config.kvstore.key(DISTRIBUTOR_RING),
        codec: CODEC,
        clock: clock(),
        tokens_file_path: None,
        metrics: Metrics::register(&Registry::new(), DISTRIBUTOR_RING).unwrap(),
    };
    Lifecycler::spawn(settings(&config.lifecycler(), 9095), means)
}

fn distributors(kv: &InMemoryKv) -> RingModel {
    let stored = kv.read("collectors/distributor").bytes;
    stored.map_or_else(RingModel::default, |bytes| (CODEC.decode)(&bytes).unwrap())
}

#[tokio::test(start_paused = true)]
async fn distributors_have_a_ring_of_their_own_in_the_same_store() {
    let kv = InMemoryKv::default();
    let ingester = spawn(&kv, settings_of("ingester-0"));
    let before = Instant::now();
    let distributor = spawn_distributor(&kv, "distributor-0", 1);
    // Nothing to wait for, and without tokens there is nothing to lack either.
    let tokenless = spawn_distributor(&kv, "distributor-1", 0);
    for lifecycler in [&distributor, &tokenless] {
        until(lifecycler, |status| status.state == Active && status.readiness.is_ok()).await;
    }
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    until(&ingester, |status| status.state == Active).await;
    let tokens: Vec<_> = distributors(&kv).instances.values().map(|i| i.tokens.len()).collect();
    assert_eq!(tokens, [1, 0]);
    assert_eq!(ring(&kv).instances.keys().collect::<Vec<_>>(), ["ingester-0"]);
    sleep(Duration::from_secs(20)).await;
    let all = distributors(&kv);
    let newest = all.instances.values().map(|i| i.timestamp_s).min().expect("two members");
    assert!(newest >= START_S + 14, "both are kept alive");
    let before = Instant::now();
    tokenless.stop().await.unwrap();
    distributor.stop().await.unwrap();
    assert_eq!(before.elapsed().as_secs(), 0, "no final sleep");
    assert!(distributors(&kv).instances.is_empty());
}

#[tokio::test(start_paused = true)]
async fn case_c4_distributors_that_died_are_forgotten_without_a_click() {
    let kv = InMemoryKv::default();
    let survivor = spawn_distributor(&kv, "survivor", 1);
    for number in 0..20 {
        let victim = spawn_distributor(&kv, &format!("victim-{number}"), 1);
        until(&victim, |status| status.state == Active).await;
        drop(victim);
    }
    assert_eq!(distributors(&kv).instances.len(), 21);
    sleep(Duration::from_secs(290)).await;
    assert_eq!(distributors(&kv).instances.len(), 21, "silence for less than five timeouts");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(distributors(&kv).instances.keys().collect::<Vec<_>>(), ["survivor"]);
    until(&survivor, |status| status.state == Active).await;
}

#[tokio::test(start_paused = true)]
async fn ingesters_forget_only_when_told_to_and_who_lives_comes_back() {
    let kv = InMemoryKv::default();
    let mut with_dead = ring_of(&[]);
    with_dead.instances.insert("dead".to_owned(), instance(Active, &[1]));
    put(&kv, &with_dead);
    let patient = spawn(&kv, settings_of("patient"));
    sleep(Duration::from_secs(3_600)).await;
    assert!(ring(&kv).instances.contains_key("dead"), "as Cortex's ingesters");
    let tokens = entry(&kv, "patient").tokens;
    let forgets = Settings { auto_forget_delay_ms: 120_000, ..settings_of("forgets") };
    let forgets = spawn(&kv, forgets);
    until(&forgets, |status| status.state == Active).await;
    // Each has a clock of its own here, which begins with it.
    sleep(Duration::from_secs(130)).await;
    assert_eq!(ring(&kv).instances.keys().collect::<Vec<_>>(), ["forgets", "patient"]);
    // Somebody's clock leaps: what it took for dead is back with its tokens a heartbeat later.
    let mut leapt = ring(&kv);
    let silent = merge::forget_silent(&mut leapt, "forgets", START_S * 2_000, 120_000);
    assert_eq!(silent, ["patient"]);
    put(&kv, &leapt);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(entry(&kv, "patient").tokens, tokens);
    drop((patient, forgets));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_somebody_took_while_we_were_away_stays_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    let kv = InMemoryKv::default();
    let client = KvClient::InMemory(kv.clone());
    let first = spawn_on(client.clone(), settings_of("me"), Some(path.clone()));
    until(&first, |status| status.state == Active).await;
    let ours = entry(&kv, "me").tokens;
    first.stop().await.unwrap();
    let taken = ours[1];
    let mut other = ring_of(&[]);
    other.instances.insert("other".to_owned(), instance(Active, &[taken.0]));
    put(&kv, &other);
    let second = spawn_on(client, settings_of("me"), Some(path));
    until(&second, |status| status.state == Active).await;
    let now = entry(&kv, "me").tokens;
    assert_eq!(now.len(), 4);
    assert!(!now.contains(&taken) && ours.iter().filter(|t| now.contains(t)).count() == 3);
    assert_eq!(entry(&kv, "other").tokens, [taken]);
}

#[tokio::test(start_paused = true)]
async fn an_entry_may_be_kept_and_is_taken_up_again() {
    let kv = InMemoryKv::default();
    let keep = Settings { unregister_on_shutdown: false, final_sleep_ms: 0, ..settings_of("me") };
    let first = spawn(&kv, keep.clone());
    until(&first, |status| status.state == Active).await;
    let tokens = entry(&kv, "me").tokens;
    first.stop().await.unwrap();
    assert_eq!((entry(&kv, "me").state, entry(&kv, "me").tokens), (Leaving, tokens.clone()));
    let second = spawn(&kv, keep);
    until(&second, |status| status.state == Active).await;
    assert_eq!(entry(&kv, "me").tokens, tokens);
}

#[tokio::test(start_paused = true)]
async fn tokens_and_mode_survive_in_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    let kv = KvClient::InMemory(InMemoryKv::default());
    let first = spawn_on(kv, settings_of("me"), Some(path.clone()));
    until(&first, |status| status.state == Active).await;
    first.handle().set_state(ReadOnly).await.unwrap();
    first.stop().await.unwrap();
    let saved: Heritage = tokens_file::load_logged(&path).unwrap();
    assert_eq!((saved.tokens.len(), saved.resume_state), (4, ReadOnly));
    // The ring is another one, and empty.
    let kv = InMemoryKv::default();
    let second = spawn_on(KvClient::InMemory(kv.clone()), settings_of("me"), Some(path));
    until(&second, |status| status.state == ReadOnly).await;
    assert_eq!(entry(&kv, "me").tokens, saved.tokens);
    assert_eq!(second.handle().status().tokens_count, 4);
}

#[tokio::test]
async fn a_file_takes_no_writes() {
    let dir = tempfile::tempdir().unwrap();
    let kv = KvClient::File(FileKv::new(dir.path().join("ring"), Duration::from_secs(1)));
    assert!(!kv.is_writable());
    let outcome = forget(&kv, KEY, CODEC, "x").await;
    assert_eq!(outcome, Err(LifecyclerError::Write(KvError::ReadOnly)));
    assert_eq!(kv.delete(KEY).await, Err(KvError::ReadOnly));
}

#[tokio::test(start_paused = true)]
async fn members_that_start_together_all_get_in_with_tokens_of_their_own() {
    let kv = InMemoryKv::default();
    let lifecyclers: Vec<_> = (0..20).map(|i| spawn(&kv, settings_of(&format!("m-{i}")))).collect();
    for lifecycler in &lifecyclers {
        until(lifecycler, |status| status.readiness.is_ok()).await;
    }
    let ring = ring(&kv);
    let mut tokens: Vec<Token> =
        ring.instances.values().flat_map(|entry| entry.tokens.clone()).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!((ring.instances.len(), tokens.len()), (20, 80));
}

#[tokio::test(start_paused = true)]
async fn two_processes_of_one_id_are_told_of_each_other() {
    let kv = InMemoryKv::default();
    let clock = clock();
    let at = |addr: &str| Settings { addr: addr.to_owned(), ..settings_of("me") };
    let spawn = |addr: &str| {
        let metrics = Metrics::register(&Registry::new(), "ingester").unwrap();
        let conflicts = metrics.id_conflicts.clone();
        let kv = KvClient::InMemory(kv.clone());
        let key = KEY.to_owned();
        let clock = Arc::clone(&clock);
        let means = Means { kv, key, codec: CODEC, clock, tokens_file_path: None, metrics };
        (Lifecycler::spawn(at(addr), means), conflicts)
    };
    let (first, conflicts) = spawn("first:1");
    until(&first, |status| status.state == Active).await;
    sleep(Duration::from_secs(60)).await;
    // A process that comes again at another address is no second one.
    drop(first);
    let (second, second_conflicts) = spawn("second:1");
    until(&second, |status| status.state == Active).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((conflicts.get(), second_conflicts.get()), (0, 0));
    let (third, third_conflicts) = spawn("third:1");
    until(&third, |status| status.state == Active).await;
    sleep(Duration::from_secs(60)).await;
    for conflicts in [&second_conflicts, &third_conflicts] {
        assert!((10..=26).contains(&conflicts.get()), "{}", conflicts.get());
    }
    drop(third);
    sleep(Duration::from_secs(10)).await;
    let before = second_conflicts.get();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(second_conflicts.get(), before, "it is gone");
}
