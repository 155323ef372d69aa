//! Every query of every dashboard against processes of every target, scraped by Debian's
//! Prometheus each second: all of them return data.
//!
//! What a query is about is made to happen: refusals of tenants, of clients, of queries and at
//! the front door. A query that shows what should never happen says `or vector(0)`.

use std::path::Path;
use std::time::Duration;

use prost::Message as _;
use rcgen::{CertificateParams, KeyPair};

use super::dashboards::DASHBOARDS;
use super::files::docs;
use super::lab::{Crowd, Extra, Lab, Store, body, request};
use super::prometheus;
use crate::ports::Port;
use crate::process::{Pusher, http, now_ms};
use crate::ring_stores::fake_consul::{FakeConsul, TOKEN};
use crate::upstream::ingester::UpstreamIngester;

/// The range of rates: enough scrapes for a rate, even where one comes late.
const RANGE: &str = "10s";
/// How long the everyday life goes on before anything is asked, and at the most.
const LIFE_S: u64 = 8;
const LIFE_MAX_S: u64 = 25;

const ALL: &str = "all-0";
const FRONT_GATE: &str = "front-gate";
const SIDECAR: &str = "sidecar-0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_of_every_dashboard_returns_data() {
    if !prometheus::is_installed() {
        println!("skipped: no prometheus on PATH (apt-get install prometheus)");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let upstream = UpstreamIngester::start().await;
    let gossip = Port::new();
    let extras = vec![
        all(dir.path(), &gossip),
        Extra {
            name: FRONT_GATE,
            flags: flags(&[
                "-target=distributor",
                "-distributor.upstream-url=http://@gate-1",
                "-front-door.write.failures-per-minute=3",
            ]),
        },
        sidecar(dir.path(), &upstream),
    ];
    let rules = format!(
        "rule_files: [\"{0}/rules.yaml\", \"{0}/alerts.yaml\"]\n",
        docs().join("mixin").display()
    );
    let program = Path::new(env!("CARGO_BIN_EXE_freehold"));
    let consul = FakeConsul::start().await;
    let settings = vec![
        format!("consul.hostname={}", consul.config().consul.host),
        format!("consul.acl-token={TOKEN}"),
    ];
    let store = Store { kind: "consul", settings };
    let mut lab = Lab::start(dir.path(), program, &store, ("1s", &rules), extras).await;
    lab.set_crowd(Crowd { series: 400, limit: 100 });
    let pusher = Pusher::connect(lab.grpc(SIDECAR)).await;
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    let mut missing = vec!["nothing was asked".to_owned()];
    for second in 0..LIFE_MAX_S {
        seconds.tick().await;
        lab.second().await;
        refusals(&lab).await;
        let taken = pusher.push("team-0", &request(30).encode_to_vec()).await;
        assert_eq!(taken.expect("an answer"), 0);
        if second >= LIFE_S {
            missing = without_data(&lab).await;
            if missing.is_empty() {
                break;
            }
        }
    }
    assert!(missing.is_empty(), "without data:\n{}\n{}", missing.join("\n"), lab.logs());
}

/// What has to be refused so that there is something to be seen.
async fn refusals(lab: &Lab) {
    let all = lab.http(ALL);
    let write = |tenant: &str| {
        format!(
            "X-Scope-OrgID: {tenant}\r\nX-Scope-ClientID: writer\r\nContent-Encoding: snappy\r\n\
             Content-Type: application/x-protobuf\r\n"
        )
    };
    // The crowd is over its limit of series, and its client over its budget with the second.
    let _ = http(all, "POST", "/api/v1/push", &write("crowd"), &body(150)).await;
    for _ in 0..2 {
        let _ = http(all, "POST", "/api/v1/push", &write("team-0"), &body(30)).await;
    }
    // A client without credit for queries.
    let ask = "X-Scope-OrgID: team-0\r\nX-Scope-ClientID: dashboard\r\n";
    for _ in 0..2 {
        let _ = http(all, "GET", "/prometheus/api/v1/query?query=up", ask, &[]).await;
    }
    // What is no write, from one address.
    let gate = lab.http(FRONT_GATE);
    let _ = http(gate, "POST", "/api/v1/push", &write("team-0"), b"no write").await;
    let _ = http(gate, "POST", "/api/v1/push", &write("team-0"), &body(3)).await;
}

/// The queries that return nothing right now, with their places.
async fn without_data(lab: &Lab) -> Vec<String> {
    let mut missing = Vec::new();
    for dashboard in DASHBOARDS {
        for (panel, query) in dashboard.queries() {
            let expr = query.of_everything(RANGE);
            let found = lab.prometheus.query(&expr, now_ms()).await;
            if found.as_array().is_none_or(|series| series.is_empty()) {
                missing.push(format!("{}, {}: {expr}", dashboard.name, panel.title));
            }
        }
    }
    missing
}

/// Everything in one process, with a certificate, a ring on gossip, and small budgets.
fn all(dir: &Path, gossip: &Port) -> Extra {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let (cert_path, key_path) = (dir.join("cert.pem"), dir.join("key.pem"));
    std::fs::write(&cert_path, params.self_signed(&key).expect("signed").pem()).expect("written");
    std::fs::write(&key_path, key.serialize_pem()).expect("written");
    let mut flags = flags(&[
        "-target=all",
        "-ring.store=memberlist",
        "-memberlist.bind-addr=127.0.0.1",
        "-distributor.replication-factor=1",
        "-ingester.lifecycler.addr=127.0.0.1",
        "-ingester.min-ready-duration=0s",
        "-ingester.join-after=0s",
        "-ingester.owned-series-shadow-enabled=true",
        "-client-identity.enabled=true",
        "-client-identity.cold-start=full",
        "-distributor.client-identity-ingestion-rate-limit=20",
        "-distributor.client-identity-ingestion-burst-size=200",
        "-frontend.downstream-url=http://@prometheus",
        "-frontend.strip-http-prefix=true",
        "-frontend.downstream.health-check-path=/-/ready",
        "-frontend.client-identity-query-rate-limit=0.1",
        "-frontend.client-identity-query-burst-size=1",
        "-front-door.write.failures-per-minute=100",
        "-front-door.write.requests-per-address-per-minute=10000",
        "-front-door.write.shadow=address",
        // Nobody collects there, which is a fate of spans as well.
        "-tracing.type=otel",
        "-tracing.otel.otlp-endpoint=127.0.0.1:9",
    ]);
    flags.push(format!("-memberlist.bind-port={}", gossip.number()));
    flags.push(format!("-store.path={}", dir.join("all").display()));
    flags.push(format!("-server.grpc-tls-cert-path={}", cert_path.display()));
    flags.push(format!("-server.grpc-tls-key-path={}", key_path.display()));
    Extra { name: ALL, flags }
}

fn sidecar(dir: &Path, upstream: &UpstreamIngester) -> Extra {
    let ring = dir.join("ring.json");
    let page = serde_json::json!({
        "shards": [{
            "id": "ingester-9", "state": "ACTIVE", "address": "127.0.0.1:9095", "zone": "",
            "timestamp": "2026-11-29 23:16:15 +0000 UTC",
            "registered_timestamp": "2026-11-29 23:16:15 +0000 UTC", "tokens": [1, 2, 3],
        }],
        "now": "2026-11-29T23:16:16Z",
        "storageLastUpdated": "2026-11-29T23:16:16Z",
    });
    std::fs::write(&ring, page.to_string()).expect("written");
    let mut flags = flags(&[
        "-target=ingester",
        "-store.enabled=false",
        "-ingester.instance-id=ingester-9",
        "-distributor.replication-factor=1",
        "-ring.store=file",
        "-ring.heartbeat-timeout=0s",
    ]);
    flags.push(format!("-ring.file.path={}", ring.display()));
    flags.push(format!("-ingester.upstream-address={}", upstream.address));
    Extra { name: SIDECAR, flags }
}

fn flags(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}
