//! Whole freeholds in a ring that lies in a store: they join, and pushes outlive the store.

use freehold::wire::ring_desc;

use super::KEY;
use super::etcd_server::Etcd;
use super::fake_consul::{FakeConsul, TOKEN};
use crate::cortex::cluster::{until, write_request};
use crate::ports::Port;
use crate::process::{Freehold, Pusher};

const FLAGS: &[&str] = &[
    "-target=ingester",
    "-store.enabled=false",
    "-distributor.replication-factor=1",
    "-ingester.lifecycler.addr=127.0.0.1",
    "-ingester.min-ready-duration=0s",
    "-ingester.final-sleep=0s",
    "-ingester.heartbeat-period=500ms",
];

async fn start(dir: &std::path::Path, id: &str, flags: &[String]) -> Freehold {
    let dir = dir.join(id);
    std::fs::create_dir(&dir).expect("a directory");
    let id = format!("-ingester.lifecycler.ID={id}");
    let flags = FLAGS.iter().copied().chain([id.as_str()]).chain(flags.iter().map(String::as_str));
    Freehold::start(&dir, &flags.collect::<Vec<_>>()).await
}

async fn active(freehold: &Freehold) -> f64 {
    let metric = "cortex_ring_members{name=\"ingester\",state=\"ACTIVE\",zone=\"\"}";
    freehold.metric(metric).await.unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_go_on_while_etcd_is_dead_and_the_ring_stays() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let flags = ["-ring.store=etcd".to_owned(), format!("-etcd.endpoints={}", etcd.address())];
    let (a, b) = (start(dir.path(), "a", &flags).await, start(dir.path(), "b", &flags).await);
    a.wait_ready().await;
    b.wait_ready().await;
    until("both know both", async || active(&a).await == 2.0 && active(&b).await == 2.0).await;

    etcd.kill();
    let stale = "freehold_ring_status{name=\"ingester\",status=\"stale\"}";
    until("the loss is noticed", async || a.metric(stale).await == Some(1.0)).await;
    let pusher = Pusher::connect(a.grpc).await;
    for start in (0..500).step_by(100) {
        let body = write_request(start..start + 100);
        assert_eq!(pusher.push("t1", &body).await.expect("an answer"), 0);
    }
    assert_eq!(active(&a).await, 2.0);
    let log = a.process.log();
    assert_eq!(log.matches("the ring could not be read").count(), 1, "{log}");

    until("lost writes are counted", async || {
        let lost = "cortex_kv_request_duration_seconds_count{kv_name=\"ingester-lifecycler\",\
                    operation=\"CAS\",role=\"primary\",status_code=\"500\",type=\"etcd\"}";
        a.metric(lost).await.is_some_and(|count| count > 0.0)
    })
    .await;

    until("readiness says that the ring is an old one", async || {
        let (status, text) = a.get("/ready").await;
        status == 200 && text.contains("the last good ring is in force")
    })
    .await;
    etcd.wipe();
    etcd.run().await;
    // The last good ring has both all the while; the store has them when each has come back.
    until("both are back", async || {
        let value = etcd.ctl(&["get", KEY, "--print-value-only"]).stdout;
        let value = value.strip_suffix(b"\n").unwrap_or_default();
        ring_desc::decode(value).is_ok_and(|ring| ring.instances.len() == 2)
    })
    .await;
    let fresh = "freehold_ring_status{name=\"ingester\",status=\"fresh\"}";
    until("the ring is fresh", async || a.metric(fresh).await == Some(1.0)).await;
    assert_eq!(active(&a).await, 2.0);
    until("it is said", async || a.process.log().contains("the ring is read again")).await;
    let written = "cortex_kv_request_duration_seconds_count{kv_name=\"ingester-lifecycler\",\
                   operation=\"CAS\",role=\"primary\",status_code=\"200\",type=\"etcd\"}";
    assert!(a.metric(written).await.is_some_and(|count| count > 1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_says_that_the_store_was_never_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let nobody = Port::new();
    let address = nobody.address.to_string();
    for (id, flags) in [
        ("etcd", ["-ring.store=etcd".to_owned(), format!("-etcd.endpoints={address}")]),
        ("consul", ["-ring.store=consul".to_owned(), format!("-consul.hostname={address}")]),
        ("http", ["-ring.store=http".to_owned(), format!("-ring.http.url=http://{address}/ring")]),
    ] {
        let freehold = start(dir.path(), id, &flags).await;
        until("readiness names the address", async || {
            let (status, text) = freehold.get("/ready").await;
            status == 503 && text.contains("the ring has not been read") && text.contains(&address)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn freeholds_meet_in_consul_and_the_token_is_never_shown() {
    let consul = FakeConsul::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        "-ring.store=consul".to_owned(),
        format!("-consul.hostname={}", consul.config().consul.host),
        format!("-consul.acl-token={TOKEN}"),
    ];
    let (a, b) = (start(dir.path(), "a", &flags).await, start(dir.path(), "b", &flags).await);
    until("both know both", async || active(&a).await == 2.0 && active(&b).await == 2.0).await;
    let (_, config) = a.get("/config").await;
    assert!(config.contains("acl_token") && !config.contains(TOKEN), "{config}");
    assert!(!a.process.log().contains(TOKEN));
}
