//! `-target=distributor` beside an unmodified Cortex: before its ingesters, before its
//! distributor, and with its distributors in one election of replicas.
//!
//! What must hold: through us and past us the same is stored, read and answered.

use std::path::Path;

use serde_json::{Value, json};

use super::beside::{Beside, Setup};
use super::cluster::{unix_ms, until};
use super::requests::{Answer, COUNTERS, HISTOGRAMS, Request, Wire};
use super::{ONE_AT_A_TIME, flags};
use crate::process::Freehold;
use crate::vectors;

const WIRES: [Wire; 3] = [Wire::RemoteWrite1, Wire::RemoteWrite2, Wire::Otlp];
const INGESTERS: usize = 4;
const WIRES_TENANT: &str = "wires";

/// What distributors, theirs and ours, and ingesters are started with.
fn taking_all() -> Vec<String> {
    flags(&[
        "-distributor.remote-writev2-enabled=true",
        "-blocks-storage.tsdb.enable-native-histograms=true",
        "-ingester.max-exemplars=1000",
    ])
}

/// A gate of ours beside the cluster.
pub async fn start_gate(cluster: &Beside, name: &str, more: &[String]) -> Freehold {
    let dir = cluster.new_dir(name);
    let mut all = flags(&[
        "-target=distributor",
        "-ring.store=etcd",
        "-distributor.shard-by-all-labels=true",
    ]);
    all.push(format!("-etcd.endpoints={}", cluster.etcd().address()));
    all.extend(more.iter().cloned());
    let gate = Freehold::start(&dir, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    gate.wait_ready().await;
    gate
}

/// All that a querier knows of a tenant, in an order that does not change.
async fn known(cluster: &Beside, tenant: &str) -> Value {
    let (from_s, to_s) = (unix_ms() / 1000 - 1200, unix_ms() / 1000 + 1);
    let all = "%7B__name__%3D~%22.%2B%22%7D";
    let samples = format!("/api/v1/query?query={all}%5B20m%5D&time={to_s}");
    let exemplars = format!("/api/v1/query_exemplars?query={all}&start={from_s}&end={to_s}");
    let mut samples = cluster.ask(&samples, tenant).await["data"]["result"].take();
    let mut exemplars = cluster.ask(&exemplars, tenant).await["data"].take();
    for (list, by) in [(&mut samples, "metric"), (&mut exemplars, "seriesLabels")] {
        let list = list.as_array_mut().expect("a list");
        list.sort_by_key(|one| one[by].to_string());
    }
    let about = cluster.ask("/api/v1/metadata", tenant).await["data"].take();
    json!({ "samples": samples, "exemplars": exemplars, "metadata": about })
}

/// Series that each ingester has made of a tenant's writes.
async fn created(cluster: &Beside, tenant: &str) -> Vec<u64> {
    let label = format!("user=\"{tenant}\"");
    let name = "cortex_ingester_memory_series_created_total";
    let mut counts = Vec::new();
    for pair in &cluster.pairs {
        counts.push(pair.upstream_metric_of(name, &[&label]).await as u64);
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_gate_spreads_over_ingesters_is_what_their_distributor_would() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let setup = Setup {
        replication_factor: 3,
        distributor: taking_all(),
        ingester: taking_all(),
        without_sidecars: true,
        ..Setup::default()
    };
    let Some(cluster) = setup.start(INGESTERS).await else { return };
    for (stream, packing) in [(false, "snappy-block"), (true, "")] {
        let mut more = taking_all();
        more.push("-distributor.replication-factor=3".to_owned());
        more.push(format!("-distributor.use-stream-push={stream}"));
        more.push(format!("-ingester.client.grpc-compression={packing}"));
        let gate = start_gate(&cluster, &format!("gate-{stream}"), &more).await;
        for wire in WIRES {
            let (through, past) =
                (format!("through-{wire:?}-{stream}"), format!("past-{wire:?}-{stream}"));
            let start_ms = unix_ms() - 2000;
            for round in 0..3_u64 {
                let at_ms = start_ms + 500 * i64::try_from(round).expect("few");
                let ours =
                    Request::write(wire, &through, at_ms, round).send(gate.http.port()).await;
                let theirs = Request::write(wire, &past, at_ms, round)
                    .send(cluster.distributor_port())
                    .await;
                assert_eq!(ours, theirs, "{wire:?}, streams {stream}");
                assert!((200..300).contains(&ours.status), "{ours:?}");
            }
            // An answer waits for a majority, not for all.
            let mut replicas = Vec::new();
            let ours = known(&cluster, &through).await;
            let series = ours["samples"].as_array().expect("a list").len();
            assert!(series >= COUNTERS + HISTOGRAMS, "{ours}");
            assert!(ours["metadata"].as_object().is_some_and(|about| about.len() >= 2), "{ours}");
            assert!(!ours["exemplars"].as_array().expect("a list").is_empty(), "{ours}");
            assert_eq!(ours, known(&cluster, &past).await, "{wire:?}, streams {stream}");
            until("all replicas have all", async || {
                replicas = created(&cluster, &through).await;
                replicas.iter().sum::<u64>() == 3 * series as u64
            })
            .await;
            // The same series by their distributor go where they are already.
            let again = Request::write(wire, &through, start_ms + 1900, 3);
            let answer = again.send(cluster.distributor_port()).await;
            assert!((200..300).contains(&answer.status), "{answer:?}");
            assert_eq!(created(&cluster, &through).await, replicas);
            println!("{wire:?}, streams {stream}: {series} series equal, replicas {replicas:?}");
        }
    }
}

/// What senders were told, request by request.
type Told = Vec<(String, Answer)>;

/// Requests that a Cortex was once asked, in their order, and the limits of their tenants.
fn recorded() -> (Vec<(String, Request)>, Value) {
    let file = vectors::read("http_behaviour");
    let mut limits = serde_json::Map::new();
    let mut requests = Vec::new();
    for case in vectors::array(&file, "records") {
        let setup = &case["setup"];
        // The others need processes of their own, or ingesters that are down.
        let is_plain = vectors::text(case, "kind") == "push"
            && ["", "-distributor.remote-writev2-enabled=true"]
                .contains(&vectors::text(setup, "flags"))
            && setup["runtime_ingester_limits"].is_null()
            && setup["ingester_state"].is_null()
            && !case["request"]["body_base64"].is_null();
        if !is_plain {
            continue;
        }
        if let Some(tenant) = case["request"]["headers"]["X-Scope-OrgID"].as_str() {
            limits.insert(tenant.to_owned(), setup["tenant_limits"].clone());
        }
        let before = case["before"].as_array().into_iter().flatten();
        for request in before.chain([&case["request"]]) {
            requests.push((vectors::text(case, "name").to_owned(), request_of(request)));
        }
    }
    (requests, json!({ "overrides": limits }))
}

fn request_of(recorded: &Value) -> Request {
    let headers = recorded["headers"].as_object().expect("headers").iter();
    Request {
        method: vectors::text(recorded, "method").to_owned(),
        path: vectors::text(recorded, "path").to_owned(),
        headers: headers
            .map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned()))
            .collect(),
        body: vectors::base64(&recorded["body_base64"]),
    }
}

/// A fresh Cortex, with a gate before its distributor or without: what it tells, and what a
/// tenant has in the end.
async fn told(
    through_gate: bool,
    file: &Path,
    requests: &[(String, Request)],
) -> Option<(Told, Value)> {
    let mut both = taking_all();
    both.push(format!("-runtime-config.file={}", file.display()));
    let mut flags_of_distributor = both.clone();
    // What comes is decided when it comes, by the clock of today.
    flags_of_distributor.push("-validation.create-grace-period=1000h".to_owned());
    let setup = Setup {
        replication_factor: 1,
        distributor: flags_of_distributor.clone(),
        ingester: both,
        without_sidecars: true,
        ..Setup::default()
    };
    let cluster = setup.start(1).await?;
    let mut port = cluster.distributor_port();
    let gate = match through_gate {
        false => None,
        true => {
            let mut more = flags_of_distributor;
            more.push(format!("-distributor.upstream-url=http://127.0.0.1:{port}"));
            more.push("-distributor.limits-parity=true".to_owned());
            Some(start_gate(&cluster, "gate", &more).await)
        }
    };
    if let Some(gate) = &gate {
        port = gate.http.port();
    }
    let mut told = Vec::new();
    for (name, request) in requests {
        let mut answer = request.send(port).await;
        // Each run has ports of its own, and an answer's length follows them.
        answer.body = without_ports(&answer.body);
        answer.headers.remove("content-length");
        // Ours says with each 405 what is allowed.
        answer.headers.remove("allow");
        // Cortex keeps the series of OTLP in no order, and names one that it comes to first.
        if name.starts_with("Otlp") && answer.body.contains("out of order sample") {
            answer.body.truncate(answer.body.find(", series=").expect("the series"));
        }
        told.push((name.clone(), answer));
    }
    Some((told, known(&cluster, WIRES_TENANT).await))
}

fn without_ports(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
    rest.fold(first, |text, part| text + "127.0.0.1:_" + part)
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_are_told_through_a_gate_what_cortex_tells_them_without() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (mut requests, limits) = recorded();
    let now_ms = unix_ms();
    for wire in WIRES {
        for (late_ms, tenant) in [(0, WIRES_TENANT), (3_600_000, WIRES_TENANT), (-60_000, "ahead")]
        {
            let request = Request::write(wire, tenant, now_ms - late_ms, 0);
            requests.push((format!("{wire:?}, {late_ms} ms late"), request));
        }
        let mut damaged = Request::write(wire, WIRES_TENANT, now_ms, 0);
        let half = damaged.body.len() / 2;
        damaged.body.truncate(half);
        requests.push((format!("{wire:?}, cut off"), damaged));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runtime.yaml");
    std::fs::write(&file, limits.to_string()).expect("written");
    let Some((past, stored)) = told(false, &file, &requests).await else { return };
    let (through, stored_through) = told(true, &file, &requests).await.expect("it started before");
    let mut differing = Vec::new();
    let mut by_status = std::collections::BTreeMap::<u16, usize>::new();
    for ((name, past), (_, through)) in past.iter().zip(&through) {
        *by_status.entry(past.status).or_default() += 1;
        if past != through {
            differing.push(format!("{name}:\n  without {past:?}\n  through {through:?}"));
        }
    }
    println!("{} answers by status {by_status:?}", past.len());
    assert!(past.len() > 60 && by_status.len() > 5, "{by_status:?}");
    let (count, of) = (differing.len(), past.len());
    assert!(stored["samples"].as_array().is_some_and(|list| list.len() > COUNTERS), "{stored}");
    assert_eq!(stored_through, stored);
    assert!(differing.is_empty(), "{count} of {of} differ:\n{}", differing.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_and_distributors_elect_one_replica_and_fail_over_together() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let electing = |etcd: &str| {
        let mut all = flags(&[
            "-distributor.ha-tracker.enable=true",
            "-distributor.ha-tracker.enable-for-all-users=true",
            "-distributor.ha-tracker.store=etcd",
            "-distributor.ha-tracker.update-timeout=500ms",
            "-distributor.ha-tracker.update-timeout-jitter-max=0s",
            "-distributor.ha-tracker.failover-timeout=3s",
        ]);
        all.push(format!("-distributor.ha-tracker.etcd.endpoints={etcd}"));
        all
    };
    let setup = Setup { replication_factor: 1, without_sidecars: true, ..Setup::default() };
    let Some(cluster) = setup.start(1).await else { return };
    let etcd = cluster.etcd().address();
    let distributor = cluster.start_distributor("electing", &electing(&etcd)).await;
    let mut more = electing(&etcd);
    more.push("-distributor.replication-factor=1".to_owned());
    let gate = start_gate(&cluster, "gate", &more).await;
    let (ours, theirs) = (gate.http.port(), distributor.http);

    let write = async |port: u16, replica: &str| {
        Request::of_replica("t1", "pair", replica, unix_ms()).send(port).await
    };
    let is_taken = async |port: u16, replica: &str| write(port, replica).await.status == 200;
    let elected = || {
        let out = cluster.etcd().ctl(&["get", "--prefix", "ha-tracker/", "--print-value-only"]);
        let value = out.stdout.strip_suffix(b"\n").expect("a line");
        let value = freehold::wire::replica_desc::decode(value);
        value.expect("one value").replica
    };
    // Who comes first is elected, by whomever.
    assert_eq!(write(ours, "a").await.status, 200);
    assert_eq!(elected(), "a");
    until("their distributor takes the elected one", async || is_taken(theirs, "a").await).await;
    let (told, told_by_them) = (write(ours, "b").await, write(theirs, "b").await);
    assert_eq!(told.status, 202, "{told:?}");
    assert_eq!(told, told_by_them);

    // Fails over at theirs, and ours follows; then the other way.
    for (at, other, next, last) in [(theirs, ours, "b", "a"), (ours, theirs, "a", "b")] {
        let began = tokio::time::Instant::now();
        until("the other is elected", async || is_taken(at, next).await).await;
        println!("{next} elected after {:.1?}", began.elapsed());
        assert_eq!(elected(), next);
        until("the last one is refused", async || write(other, last).await.status == 202).await;
        for port in [at, other] {
            assert_eq!(write(port, next).await.status, 200);
            assert_eq!(write(port, last).await.status, 202);
        }
    }
    let known = known(&cluster, "t1").await;
    let series = known["samples"].as_array().expect("a list");
    let labels = json!({ "__name__": "up", "cluster": "pair" });
    assert_eq!(series.len(), 1, "{known}");
    assert_eq!(series[0]["metric"], labels);
}
