//! What a gate, a query gate and a sidecar have of their own, in the browser: the walk of
//! everything sees a process in which all parts are there, and these pages lack some.

use std::net::SocketAddr;
use std::path::Path;

use freehold::output::Screen;

use super::devtools::Browser;
use super::{load, pictures, walk};
use crate::process::{Freehold, http, wait_for};
use crate::upstream::ingester::UpstreamIngester;

/// Who runs, what of it is looked at, and what the pages have to say.
const SIDECAR: [&str; 5] =
    ["/", "/tenants", "/tenants/tenant?id=load", "/ring", "/ring/member?id=ingester-9"];
const GATE: [&str; 6] = [
    "/",
    "/distributor/clients?tenant=load",
    "/distributor/clients?tenant=load&client=client-1",
    "/distributor/ring",
    "/ring",
    "/ha-tracker",
];
const QUERY_GATE: [&str; 4] = [
    "/",
    "/query-frontend/clients?tenant=load",
    "/query-frontend/clients?tenant=load&client=dashboard",
    "/query-frontend/ring",
];

/// A ring of one ingester, as its page would tell it.
fn ring_file(dir: &Path, name: &str, ingester: SocketAddr) -> String {
    let page = serde_json::json!({
        "shards": [{
            "id": "ingester-9", "state": "ACTIVE", "address": ingester.to_string(), "zone": "",
            "timestamp": "2026-11-29 23:16:15 +0000 UTC",
            "registered_timestamp": "2026-11-29 23:16:15 +0000 UTC", "tokens": [1, 2, 3],
        }],
        "now": "2026-11-29T23:16:16Z",
        "storageLastUpdated": "2026-11-29T23:16:16Z",
    });
    let path = dir.join(name);
    std::fs::write(&path, page.to_string()).expect("written");
    format!("-ring.file.path={}", path.display())
}

/// How such a ring is read.
const BY_FILE: [&str; 3] =
    ["-ring.store=file", "-ring.heartbeat-timeout=0s", "-distributor.replication-factor=1"];

async fn start(dir: &Path, name: &str, flags: &[&str]) -> Freehold {
    let dir = dir.join(name);
    std::fs::create_dir(&dir).expect("a directory");
    let freehold = Freehold::start(&dir, flags).await;
    freehold.wait_ready().await;
    freehold
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_gate_a_query_gate_and_a_sidecar_are_sound() {
    let Some(mut browser) = Browser::start().await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let upstream = UpstreamIngester::start().await;
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9095));
    let sidecar = start(
        dir.path(),
        "sidecar",
        &[
            "-target=ingester",
            BY_FILE[0],
            BY_FILE[1],
            BY_FILE[2],
            "-store.enabled=false",
            "-ingester.instance-id=ingester-9",
            "-ingester.max-global-series-per-user=100",
            "-ingester.owned-series-limit-enforcement-enabled=true",
            &ring_file(dir.path(), "sidecars-ring.json", nowhere),
            &format!("-ingester.upstream-address={}", upstream.address),
        ],
    )
    .await;
    let gate = start(
        dir.path(),
        "gate",
        &[
            "-target=distributor",
            BY_FILE[0],
            BY_FILE[1],
            BY_FILE[2],
            "-client-identity.enabled=true",
            "-client-identity.cold-start=full",
            "-distributor.client-identity-ingestion-rate-limit=20",
            "-distributor.client-identity-ingestion-burst-size=100",
            "-distributor.ring.instance-addr=127.0.0.1",
            &ring_file(dir.path(), "gates-ring.json", sidecar.grpc),
        ],
    )
    .await;
    let query_gate = start(
        dir.path(),
        "query-gate",
        &[
            "-target=query-frontend",
            "-client-identity.enabled=true",
            "-client-identity.cold-start=full",
            "-frontend.client-identity-query-rate-limit=0.1",
            "-frontend.client-identity-query-burst-size=1",
            "-frontend.ring.instance-addr=127.0.0.1",
            &format!("-frontend.downstream-url=http://{}", sidecar.http),
        ],
    )
    .await;
    let writes = load(&[
        &format!("--address=http://{}", gate.http),
        "--clients=2",
        "--series=120",
        "--batch=30",
        "--rate=240",
        "--duration=2s",
    ]);
    let never = std::future::pending();
    freehold::load::run(&writes, &Screen::FILE, never).await.expect("a load");
    let asked = "X-Scope-OrgID: load\r\nX-Scope-ClientID: dashboard\r\n";
    wait_for(
        || query_gate.process.log(),
        async || {
            let path = "/prometheus/api/v1/query?query=up";
            let answer = http(query_gate.http, "GET", path, asked, &[]).await.expect("an answer");
            (answer.0 == 429).then_some(())
        },
    )
    .await;

    for (who, freehold, pages) in [
        ("sidecar", &sidecar, &SIDECAR[..]),
        ("gate", &gate, &GATE[..]),
        ("query-gate", &query_gate, &QUERY_GATE[..]),
    ] {
        let pictures = pictures().join(who);
        std::fs::create_dir_all(&pictures).expect("a folder");
        let host = freehold.admin.to_string();
        for page in pages {
            let (faults, links) = walk::one(&mut browser, &host, page, &pictures).await;
            assert!(faults.is_empty(), "{who} {page}: {faults:#?}");
            assert!(!links.is_empty(), "{who} {page} is no page");
        }
    }
    // Who was refused is on the page of clients though its budget flows in again.
    let (_, page) = http(gate.admin, "GET", GATE[1], "", &[]).await.expect("an answer");
    let page = String::from_utf8(page).expect("text");
    assert!(page.contains("client-1") && page.contains(" ago</td>"), "{page}");
}
