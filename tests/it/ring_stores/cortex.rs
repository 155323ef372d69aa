//! One etcd for real Cortex processes and a freehold: each sees what the other writes.

use std::process::Command;

use super::etcd_server::Etcd;
use super::{Follower, client};
use crate::cortex::cluster::{cortex_binary, free_port, http, until, write_request};
use crate::process::{Freehold, Process};
use freehold::ring::config::{KvConfig, KvStoreKind};
use freehold::ring::model::InstanceState;
use freehold::units::Millis;
use freehold::wire::ring_desc;

/// A process that dies with its handle.
struct Cortex {
    http: u16,
    process: Process,
}

impl Cortex {
    fn start(dir: &std::path::Path, etcd: &Etcd, target: &str, more: &[String]) -> Self {
        let http = free_port();
        let blocks = dir.join(format!("{target}-blocks"));
        let mut command = Command::new(cortex_binary().expect("looked for before"));
        command.current_dir(dir).args(more).args([
            format!("-target={target}"),
            "-server.http-listen-address=127.0.0.1".to_owned(),
            format!("-server.http-listen-port={http}"),
            "-server.grpc-listen-address=127.0.0.1".to_owned(),
            format!("-server.grpc-listen-port={}", free_port()),
            "-ring.store=etcd".to_owned(),
            format!("-etcd.endpoints={}", etcd.address()),
            "-distributor.ring.store=inmemory".to_owned(),
            "-distributor.ring.instance-addr=127.0.0.1".to_owned(),
            "-distributor.shard-by-all-labels=true".to_owned(),
            "-distributor.replication-factor=1".to_owned(),
            "-memberlist.bind-addr=127.0.0.1".to_owned(),
            format!("-memberlist.bind-port={}", free_port()),
            "-blocks-storage.backend=filesystem".to_owned(),
            format!("-blocks-storage.filesystem.dir={}", blocks.display()),
            format!("-blocks-storage.tsdb.dir={}", dir.join(format!("{target}-tsdb")).display()),
        ]);
        let process = Process::spawn(&mut command, &dir.join(format!("{target}.log")));
        Self { http, process }
    }

    async fn ring(&self) -> Vec<(String, String)> {
        let headers = [("Accept", "application/json")];
        let Ok(answer) = http(self.http, "GET", "/ring", &headers, b"").await else {
            return Vec::new();
        };
        let page: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let shards = page["shards"].as_array().cloned().unwrap_or_default();
        shards.iter().map(|shard| (text(&shard["id"]), text(&shard["state"]))).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cortex_and_freehold_share_one_ring_in_etcd() {
    if cortex_binary().is_none() {
        return;
    }
    let Some(etcd) = Etcd::start().await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let distributor = Cortex::start(dir.path(), &etcd, "distributor", &[]);
    let endpoints = format!("-etcd.endpoints={}", etcd.address());
    let freehold = Freehold::start(
        dir.path(),
        &[
            "-target=ingester",
            "-store.enabled=false",
            "-ring.store=etcd",
            &endpoints,
            "-distributor.shard-by-all-labels=true",
            "-distributor.replication-factor=1",
            "-ingester.lifecycler.ID=freehold",
            "-ingester.lifecycler.addr=127.0.0.1",
            "-ingester.min-ready-duration=0s",
            "-ingester.final-sleep=0s",
            "-ingester.owned-series-metrics-enabled=true",
        ],
    )
    .await;
    freehold.wait_ready().await;

    // What we write, Cortex reads.
    let expected = [("freehold".to_owned(), "ACTIVE".to_owned())];
    until("the distributor has us in its ring", async || distributor.ring().await == expected)
        .await;
    let push = async |series: std::ops::Range<usize>| {
        let body = snap::raw::Encoder::new().compress_vec(&write_request(series)).expect("packed");
        let headers = [
            ("X-Scope-OrgID", "t1"),
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "snappy"),
            ("X-Prometheus-Remote-Write-Version", "0.1.0"),
        ];
        http(distributor.http, "POST", "/api/v1/push", &headers, &body).await.expect("an answer")
    };
    until("pushes reach us", async || push(0..1000).await.status == 200).await;
    let owned = "cortex_ingester_owned_series{user=\"t1\"}";
    until("all of it is ours", async || freehold.metric(owned).await == Some(1000.0)).await;

    // What Cortex writes, we read: over etcd, and over the distributor's page.
    let ingester = Cortex::start(
        dir.path(),
        &etcd,
        "ingester",
        &[
            "-ingester.lifecycler.ID=cortex".to_owned(),
            "-ingester.lifecycler.addr=127.0.0.1".to_owned(),
            "-ingester.min-ready-duration=0s".to_owned(),
            "-ingester.final-sleep=0s".to_owned(),
            "-ingester.join-after=0s".to_owned(),
        ],
    );
    let by_etcd = Follower::new(client(&etcd.config()));
    let mut page = KvConfig { store: KvStoreKind::Http, ..KvConfig::default() };
    page.http.url = format!("http://127.0.0.1:{}/ring", distributor.http);
    page.http.poll_interval = Millis(200);
    let by_page = Follower::new(client(&page));
    for follower in [&by_etcd, &by_page] {
        follower.until_ids(&["cortex", "freehold"]).await;
        until("both are active", async || follower.ring.load().healthy_count() == 2).await;
    }
    let fingerprint = |follower: &Follower| follower.ring.load().fingerprint();
    until("both ways show one ring", async || fingerprint(&by_etcd) == fingerprint(&by_page)).await;
    let members = "cortex_ring_members{name=\"ingester\",state=\"ACTIVE\",zone=\"\"}";
    until("we have both in our ring", async || freehold.metric(members).await == Some(2.0)).await;
    until("what is Cortex's now is no longer ours", async || {
        freehold.metric(owned).await.is_some_and(|owned| owned < 900.0)
    })
    .await;
    until("both of them heartbeat and leave each other be", async || {
        let value = client(&etcd.config()).get(super::KEY).await.expect("read").bytes;
        let ring = ring_desc::decode(&value.expect("there")).expect("a ring");
        ring.instances.len() == 2
            && ring.instances.values().all(|instance| {
                instance.state == InstanceState::Active && !instance.tokens.is_empty()
            })
    })
    .await;

    // We leave, and Cortex sees it.
    let id = freehold.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    let expected = [("cortex".to_owned(), "ACTIVE".to_owned())];
    until("the distributor has us out of its ring", async || distributor.ring().await == expected)
        .await;
    drop((ingester, distributor.process));
}
