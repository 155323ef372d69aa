//! The store consul against a fake that keeps to Consul's rules.

use std::time::{Duration, Instant};

use freehold::ring::kv::KvValue;
use freehold::units::Millis;

use super::fake_consul::FakeConsul;
use super::{
    CODEC, Follower, KEY, check_a_life, check_that_no_write_gets_lost, client, holds, next,
    next_that, put, ring_of,
};

#[tokio::test(flavor = "multi_thread")]
async fn members_of_many_tasks_lose_no_write_in_consul() {
    let consul = FakeConsul::start().await;
    check_that_no_write_gets_lost(&client(&consul.config())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_live_and_leave_through_consul() {
    let consul = FakeConsul::start().await;
    let kv = client(&consul.config());
    check_a_life(&kv, &Follower::new(kv.clone())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_consul_waits_for_changes_and_not_in_a_loop() {
    let consul = FakeConsul::start().await;
    let kv = client(&consul.config());
    let mut watch = kv.watch(KEY);
    assert_eq!(next(&mut watch).await, Ok(KvValue::default()));
    put(&kv, b"one").await;
    next_that(&mut watch, holds("one")).await;
    let index = consul.index();
    consul.asked();
    // Nothing changes while this query is under way.
    let quiet = tokio::time::timeout(Duration::from_millis(300), watch.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    consul.put(KEY, b"two");
    next_that(&mut watch, holds("two")).await;
    let asked = consul.asked();
    assert!(asked.blocking <= 2 && asked.wait_indexes.contains(&index), "{asked:?}");
    kv.delete(KEY).await.expect("deleted");
    next_that(&mut watch, |value| value.bytes.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_goes_back_is_started_over() {
    let consul = FakeConsul::start().await;
    let mut config = consul.config();
    // The query that is under way when the store is restored ends with its wait.
    config.consul.http_client_timeout = Millis(1000);
    let kv = client(&config);
    let mut watch = kv.watch(KEY);
    for number in 0..10 {
        consul.put(KEY, format!("number {number}").as_bytes());
    }
    next_that(&mut watch, holds("number 9")).await;
    consul.restore_empty();
    next_that(&mut watch, |value| value.bytes.is_none()).await;
    consul.put(KEY, b"new life");
    let start = Instant::now();
    let value = next_that(&mut watch, holds("new life")).await;
    assert!(value.version < 10, "{}", value.version);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_as_fresh_as_asked_and_swaps_always_fresh() {
    let consul = FakeConsul::start().await;
    let mut config = consul.config();
    for consistent in [false, true] {
        config.consul.consistent_reads = consistent;
        let kv = client(&config);
        kv.get(KEY).await.expect("read");
        next(&mut kv.watch(KEY)).await.expect("read");
        let asked = consul.asked();
        let expected = if consistent { (0, 2) } else { (2, 0) };
        assert_eq!((asked.stale, asked.consistent), expected);
        put(&kv, b"x").await;
        let asked = consul.asked();
        assert_eq!((asked.queries, asked.stale, asked.consistent, asked.swaps), (1, 0, 0, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_keeps_to_its_rate() {
    let consul = FakeConsul::start().await;
    let mut config = consul.config();
    (config.consul.watch_rate_limit, config.consul.watch_burst_size) = (10.0, 2);
    let kv = client(&config);
    let mut watch = kv.watch(KEY);
    let start = Instant::now();
    for number in 0..7 {
        consul.put(KEY, format!("number {number}").as_bytes());
        next(&mut watch).await.expect("told");
    }
    // Two at once, five more at ten a second.
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_and_a_lost_leader_are_told_in_consuls_words() {
    let consul = FakeConsul::start().await;
    let mut config = consul.config();
    config.consul.acl_token = serde_json::from_value("wrong".into()).expect("a text");
    let error = client(&config).get(KEY).await.expect_err("refused").to_string();
    assert!(error.contains("403") && error.contains("ACL not found"), "{error}");
    assert!(!error.contains("wrong"), "{error}");
    let kv = client(&consul.config());
    consul.set_failing(true);
    let error = kv.get(KEY).await.expect_err("refused").to_string();
    assert!(error.contains("500") && error.contains("No cluster leader"), "{error}");
    assert!(kv.cas(KEY, |_| Ok(Some("x".into()))).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn case_a25_and_a13_the_last_good_ring_outlives_a_lost_and_an_emptied_consul() {
    let mut consul = FakeConsul::start().await;
    let mut config = consul.config();
    config.consul.http_client_timeout = Millis(2000);
    let kv = client(&config);
    let follower = Follower::new(kv.clone());
    put(&kv, &(CODEC.encode)(&ring_of(&["a", "b", "c"]))).await;
    follower.until_ids(&["a", "b", "c"]).await;
    consul.kill().await;
    follower.until_stale("Consul").await;
    assert_eq!(follower.ring.load().healthy_count(), 3, "what limits are divided by");
    consul.restart().await;
    follower.until_fresh().await;
    consul.restore_empty();
    follower.until_stale("no instances").await;
    assert_eq!(follower.ids(), ["a", "b", "c"]);
    assert_eq!(follower.ring.load().healthy_count(), 3);
    put(&kv, &(CODEC.encode)(&ring_of(&["z"]))).await;
    follower.until_ids(&["z"]).await;
}
