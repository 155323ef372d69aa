//! The store etcd against Debian's etcd.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use freehold::ring::config::{KvConfig, KvStoreKind};
use freehold::ring::kv::{KvError, KvValue};
use freehold::units::Millis;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::etcd_server::Etcd;
use super::{
    CODEC, Follower, KEY, check_a_life, check_that_no_write_gets_lost, client, join, next,
    next_good, next_that, put, ring_of,
};
use crate::cortex::cluster::until;
use crate::ports::Port;

#[tokio::test(flavor = "multi_thread")]
async fn members_of_many_tasks_lose_no_write_in_etcd() {
    let Some(etcd) = Etcd::start().await else { return };
    check_that_no_write_gets_lost(&client(&etcd.config())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_in_etcd_needs_the_value_that_it_was_made_from() {
    let Some(etcd) = Etcd::start().await else { return };
    let kv = client(&etcd.config());
    assert_eq!(kv.get(KEY).await, Ok(KvValue::default()));
    // Somebody else is faster, each time that we have read.
    let mut calls = 0;
    let outcome = kv
        .cas(KEY, |_| {
            calls += 1;
            etcd.ctl(&["put", KEY, &format!("other {calls}")]);
            Ok(Some("ours".into()))
        })
        .await;
    let attempts = etcd.config().etcd.max_retries;
    assert_eq!(outcome, Err(KvError::Conflict { key: KEY.to_owned(), attempts }));
    assert_eq!(calls, attempts);
    let value = kv.get(KEY).await.expect("read");
    assert_eq!(value.bytes.as_deref(), Some(format!("other {attempts}").as_bytes()));
    put(&kv, b"ours").await;
    kv.delete(KEY).await.expect("deleted");
    assert_eq!(kv.get(KEY).await, Ok(KvValue::default()));
    put(&kv, b"made anew").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_etcd_goes_on_after_a_restart_and_a_compaction() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let kv = client(&etcd.config());
    let mut watch = kv.watch(KEY);
    assert_eq!(next(&mut watch).await, Ok(KvValue::default()));
    put(&kv, b"one").await;
    assert_eq!(next(&mut watch).await.expect("told").bytes.as_deref(), Some(&b"one"[..]));
    etcd.ctl(&["put", KEY, "two"]);
    assert_eq!(next(&mut watch).await.expect("told").bytes.as_deref(), Some(&b"two"[..]));

    etcd.kill();
    let error = next(&mut watch).await.expect_err("nobody is there").to_string();
    assert!(error.contains(&etcd.address()), "{error}");
    etcd.run().await;
    // The old value is news to who was told that the store fails.
    assert_eq!(next_good(&mut watch).await.bytes.as_deref(), Some(&b"two"[..]));
    put(&kv, b"three").await;
    assert_eq!(next_good(&mut watch).await.bytes.as_deref(), Some(&b"three"[..]));

    // A watch that was read, and has not asked for what comes behind it when that is compacted.
    let mut late = kv.watch(KEY);
    next(&mut late).await.expect("told");
    for number in 0..5 {
        put(&kv, format!("number {number}").as_bytes()).await;
    }
    let revision = kv.get(KEY).await.expect("read").version.to_string();
    assert!(etcd.ctl(&["compact", &revision]).status.success());
    assert_eq!(next(&mut late).await.expect("told").bytes.as_deref(), Some(&b"number 4"[..]));
    put(&kv, b"behind it").await;
    assert_eq!(next(&mut late).await.expect("told").bytes.as_deref(), Some(&b"behind it"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_starts_empty_is_noticed_although_its_revisions_are_lower() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let kv = client(&etcd.config());
    let mut watch = kv.watch(KEY);
    for number in 0..10 {
        put(&kv, format!("number {number}").as_bytes()).await;
    }
    next_that(&mut watch, super::holds("number 9")).await;
    etcd.kill();
    etcd.wipe();
    etcd.run().await;
    assert_eq!(next_good(&mut watch).await, KvValue::default());
    etcd.ctl(&["put", KEY, "new life"]);
    let value = next_good(&mut watch).await;
    assert_eq!(value.bytes.as_deref(), Some(&b"new life"[..]));
    assert!(value.version < 10, "{}", value.version);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_live_and_leave_through_etcd() {
    let Some(etcd) = Etcd::start().await else { return };
    let kv = client(&etcd.config());
    check_a_life(&kv, &Follower::new(kv.clone())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_a25_and_a13_the_last_good_ring_outlives_a_lost_and_an_emptied_etcd() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let kv = client(&etcd.config());
    let follower = Follower::new(kv.clone());
    put(&kv, &(CODEC.encode)(&ring_of(&["a", "b", "c"]))).await;
    follower.until_ids(&["a", "b", "c"]).await;
    follower.until_fresh().await;

    etcd.kill();
    follower.until_stale("etcd").await;
    assert_eq!(follower.ring.load().healthy_count(), 3, "what limits are divided by");
    etcd.run().await;
    follower.until_fresh().await;
    put(&kv, &(CODEC.encode)(&ring_of(&["a", "b"]))).await;
    follower.until_ids(&["a", "b"]).await;

    etcd.kill();
    etcd.wipe();
    etcd.run().await;
    follower.until_stale("no instances").await;
    assert_eq!(follower.ids(), ["a", "b"]);
    assert_eq!(follower.ring.load().healthy_count(), 2);
    put(&kv, &(CODEC.encode)(&ring_of(&["z"]))).await;
    follower.until_ids(&["z"]).await;
    follower.until_fresh().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_puts_itself_back_into_an_etcd_that_lost_it_with_the_same_tokens() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let kv = client(&etcd.config());
    let member = join(kv.clone(), "a");
    let tokens = async || {
        let value = kv.get(KEY).await.ok()?.bytes?;
        let entry = (CODEC.decode)(&value).ok()?.instances.remove("a")?;
        (!entry.tokens.is_empty()).then_some(entry.tokens)
    };
    until("the member is there", async || tokens().await.is_some()).await;
    let before = tokens().await;
    etcd.kill();
    etcd.wipe();
    etcd.run().await;
    until("the member is there again", async || tokens().await.is_some()).await;
    assert_eq!(tokens().await, before);
    member.stop().await.expect("out of the ring");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_no_ring_is_never_overwritten() {
    let Some(etcd) = Etcd::start().await else { return };
    let kv = client(&etcd.config());
    put(&kv, b"somebody's notes").await;
    let follower = Follower::new(kv.clone());
    let member = join(kv.clone(), "a");
    until("the failure shows", async || {
        format!("{:?}", follower.ring.status(super::now_ms())).contains("stored")
    })
    .await;
    assert!(member.handle().readiness().is_err());
    let value = kv.get(KEY).await.expect("read");
    assert_eq!(value.bytes.as_deref(), Some(&b"somebody's notes"[..]));
    // Once it is gone, the member joins.
    kv.delete(KEY).await.expect("deleted");
    follower.until_ids(&["a"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_endpoint_is_asked_when_the_first_is_dead() {
    let Some(etcd) = Etcd::start().await else { return };
    let mut config = etcd.config();
    let nobody = Port::new();
    config.etcd.endpoints.insert(0, nobody.address.to_string());
    // Each client starts with one of them; most likely some start with the dead one.
    for _ in 0..8 {
        put(&client(&config), b"here").await;
    }
    let mut alone = KvConfig { store: KvStoreKind::Etcd, ..KvConfig::default() };
    alone.etcd.endpoints = config.etcd.endpoints[..1].to_vec();
    let error = client(&alone).get(KEY).await.expect_err("nobody is there").to_string();
    assert!(error.contains("refused"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_costs_no_more_than_its_deadline() {
    // It takes connections and is silent, as half-open ones are.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut config = KvConfig { store: KvStoreKind::Etcd, ..KvConfig::default() };
    config.etcd.endpoints = vec![silent.local_addr().expect("bound").to_string()];
    config.etcd.dial_timeout = Millis(200);
    let kv = client(&config);
    let start = Instant::now();
    assert!(kv.get(KEY).await.is_err());
    assert!(kv.cas(KEY, |_| Ok(Some("x".into()))).await.is_err());
    assert!(next(&mut kv.watch(KEY)).await.is_err());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn etcds_users_log_in_and_log_in_again() {
    let Some(mut etcd) = Etcd::start().await else { return };
    for args in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        let done = etcd.ctl(args);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let with = |name: &str, password: &str| {
        let mut config = etcd.config();
        config.etcd.username = name.to_owned();
        config.etcd.password = serde_json::from_value(password.into()).expect("a text");
        client(&config)
    };
    let nobody = client(&etcd.config()).get(KEY).await.expect_err("not logged in").to_string();
    assert!(nobody.contains("user name is empty"), "{nobody}");
    let wrong = with("root", "wrong").get(KEY).await.expect_err("wrong").to_string();
    assert!(wrong.contains("authentication failed"), "{wrong}");
    assert!(!wrong.contains("secret"), "{wrong}");
    let kv = with("root", "secret");
    put(&kv, b"ours").await;
    let mut watch = kv.watch(KEY);
    next_that(&mut watch, super::holds("ours")).await;
    // A restart forgets every login.
    etcd.kill();
    etcd.run().await;
    put(&kv, b"again").await;
    next_that(&mut watch, super::holds("again")).await;
    put(&kv, b"and again").await;
    next_that(&mut watch, super::holds("and again")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_and_we_show_each_other_certificates() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let authority_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("signed");
    let ca = write("ca.pem", authority.pem());
    let issuer = Issuer::new(params, authority_key);
    let make = |name: &str| -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let cert = params.signed_by(&key, &issuer).expect("signed");
        (
            write(&format!("{name}.pem"), cert.pem()),
            write(&format!("{name}.key"), key.serialize_pem()),
        )
    };
    let ((cert, key), (our_cert, our_key)) = (make("etcd.test"), make("freehold.test"));
    let Some(etcd) = Etcd::start_with_tls(&ca, &cert, &key).await else { return };
    let mut config = etcd.config();
    config.etcd.tls.tls_ca_path = ca;
    config.etcd.tls.tls_cert_path = our_cert;
    config.etcd.tls.tls_key_path = our_key;
    config.etcd.tls.tls_server_name = "etcd.test".to_owned();
    until("etcd serves", async || client(&config).get(KEY).await.is_ok()).await;
    put(&client(&config), b"sealed").await;

    let check = async |change: &dyn Fn(&mut KvConfig), part: &str| {
        let mut changed = config.clone();
        change(&mut changed);
        match client(&changed).get(KEY).await {
            Ok(value) => assert_eq!((value.bytes.as_deref(), part), (Some(&b"sealed"[..]), "")),
            Err(error) => {
                let error = error.to_string();
                assert!(!part.is_empty() && error.contains(part), "{error}");
            }
        }
    };
    let tls_server_name = |name: &'static str| {
        move |config: &mut KvConfig| config.etcd.tls.tls_server_name = name.to_owned()
    };
    check(&tls_server_name("other.test"), "not valid for name").await;
    let unverified = |config: &mut KvConfig| {
        tls_server_name("other.test")(config);
        config.etcd.tls.tls_insecure_skip_verify = true;
    };
    check(&unverified, "").await;
    let unknown = |config: &mut KvConfig| {
        config.etcd.tls.tls_cert_path = PathBuf::new();
        config.etcd.tls.tls_key_path = PathBuf::new();
    };
    check(&unknown, "etcd").await;
    check(&|config| config.etcd.tls_enabled = false, "etcd").await;
    let by_scheme = |config: &mut KvConfig| {
        config.etcd.tls_enabled = false;
        config.etcd.endpoints[0].insert_str(0, "https://");
    };
    check(&by_scheme, "").await;
}
