//! Budgets of clients at two gates, before an unmodified Cortex.
//!
//! What must hold: a client has one budget at both gates; what was admitted is stored, and no
//! more; the client's name does Cortex no harm; gates and Cortex's distributors stay two rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::beside::{Beside, Setup};
use super::cluster::{unix_ms, until};
use super::gate::start_gate;
use super::requests::Request;
use super::{ONE_AT_A_TIME, flags};
use crate::budget_gates::lab::settled;
use crate::process::Freehold;

const RATE: u64 = 1000;
const BURST: u64 = 2000;
/// Samples of a push.
const SAMPLES: u64 = 50;
/// Pushes per second of the noisy client: four times its rate.
const NOISY_PER_S: u64 = 4 * RATE / SAMPLES;
const QUIET_PER_S: u64 = 4;
const SPAN: Duration = Duration::from_secs(6);

/// What came of a client's pushes.
#[derive(Debug, Default)]
struct Sent {
    admitted: AtomicUsize,
    refused: AtomicUsize,
}

async fn two_gates(cluster: &Beside, more: &[String]) -> [Freehold; 2] {
    let etcd = cluster.etcd().address();
    let start = async |at: usize| {
        let mut all = vec![
            "-client-identity.enabled=true".to_owned(),
            format!("-distributor.client-identity-ingestion-rate-limit={RATE}"),
            format!("-distributor.client-identity-ingestion-burst-size={BURST}"),
            "-distributor.ingestion-rate-limit=1e9".to_owned(),
            "-distributor.ingestion-burst-size=1000000000".to_owned(),
            "-distributor.replication-factor=1".to_owned(),
            "-distributor.ring.store=etcd".to_owned(),
            format!("-distributor.ring.etcd.endpoints={etcd}"),
            "-distributor.ring.prefix=freehold/".to_owned(),
            format!("-distributor.ring.instance-id=gate-{at}"),
            "-distributor.ring.instance-addr=127.0.0.1".to_owned(),
        ];
        all.extend(more.iter().cloned());
        start_gate(cluster, &format!("gate-{at}-{}", unix_ms()), &all).await
    };
    let gates = [start(0).await, start(1).await];
    settled(&gates).await;
    gates
}

/// One client's pushes to both gates in turn, evenly in time.
async fn send(client: &'static str, tenant: &str, ports: [u16; 2], per_s: u64) -> Sent {
    let sent = Arc::new(Sent::default());
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / per_s as f64));
    let began = Instant::now();
    let mut sending = JoinSet::new();
    for number in 0.. {
        ticks.tick().await;
        if began.elapsed() >= SPAN {
            break;
        }
        let (sent, tenant) = (Arc::clone(&sent), tenant.to_owned());
        sending.spawn(async move {
            let write = Request::of_client(&tenant, client, number, SAMPLES);
            let answer = write.send(ports[number % 2]).await;
            match answer.status {
                200 => sent.admitted.fetch_add(1, Ordering::Relaxed),
                429 => sent.refused.fetch_add(1, Ordering::Relaxed),
                _ => panic!("{answer:?}"),
            };
        });
    }
    sending.join_all().await;
    Arc::into_inner(sent).expect("all have ended")
}

/// Samples of a tenant that a client has in Cortex.
async fn stored(cluster: &Beside, tenant: &str, client: &str) -> u64 {
    let query = format!("sum(count_over_time(written{{writer=\"{client}\"}}[10m]))");
    let query = query.replace('{', "%7B").replace('}', "%7D").replace('"', "%22");
    let path = format!("/api/v1/query?query={query}&time={}", unix_ms() / 1000 + 1);
    let answer = cluster.ask(&path, tenant).await;
    let value = answer["data"]["result"][0]["value"][1].as_str().expect("a sum");
    value.parse().expect("a count")
}

async fn check_budget(cluster: &Beside, gates: &[Freehold; 2], tenant: &str) {
    let ports = [gates[0].http.port(), gates[1].http.port()];
    let began = Instant::now();
    let (noisy, quiet) = tokio::join!(
        send("noisy", tenant, ports, NOISY_PER_S),
        send("quiet", tenant, ports, QUIET_PER_S),
    );
    let took = began.elapsed();
    let samples = |pushes: &AtomicUsize| pushes.load(Ordering::Relaxed) as u64 * SAMPLES;
    let admitted = samples(&noisy.admitted);
    let most = BURST + (RATE as f64 * took.as_secs_f64()) as u64;
    let least = BURST + (RATE as f64 * SPAN.as_secs_f64()) as u64;
    println!("{tenant}: {admitted} samples admitted, at most {most}; noisy {noisy:?}");
    assert!(admitted <= most, "{admitted} of {most}");
    assert!(admitted * 10 >= least * 9, "{admitted} of {least}");
    assert!(samples(&noisy.refused) > 0);
    assert_eq!(samples(&quiet.refused), 0, "{quiet:?}");
    for (client, sent) in [("noisy", &noisy), ("quiet", &quiet)] {
        assert_eq!(stored(cluster, tenant, client).await, samples(&sent.admitted), "{client}");
    }
}

/// Ids that a page of a ring shows.
fn members(page: &serde_json::Value) -> Vec<String> {
    let shards = page["shards"].as_array().expect("a list");
    let mut ids: Vec<_> =
        shards.iter().map(|shard| shard["id"].as_str().expect("an id").to_owned()).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_one_budget_at_two_gates_before_a_distributor() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let setup = Setup { replication_factor: 1, without_sidecars: true, ..Setup::default() };
    let Some(cluster) = setup.start(1).await else { return };
    // One that shares its rates with others of its kind, so that it is in a ring with them.
    let mut more = flags(&[
        "-distributor.ring.store=etcd",
        "-distributor.ring.instance-id=cortex-0",
        "-distributor.ingestion-rate-limit-strategy=global",
        "-distributor.ingestion-rate-limit=1e9",
        "-distributor.ingestion-burst-size=1000000000",
    ]);
    more.push(format!("-distributor.ring.etcd.endpoints={}", cluster.etcd().address()));
    let distributor = cluster.start_distributor("global", &more).await;
    let upstream = format!("-distributor.upstream-url=http://127.0.0.1:{}", distributor.http);
    let gates = two_gates(&cluster, &[upstream]).await;
    check_budget(&cluster, &gates, "before-distributor").await;

    let mut theirs = Vec::new();
    until("their distributor is in its ring", async || {
        theirs = members(&distributor.page("/distributor/ring").await);
        !theirs.is_empty()
    })
    .await;
    assert_eq!(theirs, ["cortex-0"]);
    for gate in &gates {
        let headers = "Accept: application/json\r\n";
        let (_, page) = crate::process::http(gate.http, "GET", "/distributor/ring", headers, b"")
            .await
            .expect("a page");
        let page = serde_json::from_slice(&page).expect("JSON");
        assert_eq!(members(&page), ["gate-0", "gate-1"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_one_budget_at_two_gates_before_ingesters() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let setup = Setup { replication_factor: 1, without_sidecars: true, ..Setup::default() };
    let Some(cluster) = setup.start(2).await else { return };
    for stream in [false, true] {
        let gates = two_gates(&cluster, &[format!("-distributor.use-stream-push={stream}")]).await;
        check_budget(&cluster, &gates, &format!("before-ingesters-{stream}")).await;
    }
}
