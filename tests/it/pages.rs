//! `docs/pages.md` against processes of every target: what it lists is served, and nothing else.

use std::net::SocketAddr;
use std::time::Duration;

use freehold::app::{App, QueryGate, WriteGate};
use freehold::config::{Config, Target};
use freehold::limits::IngestionRateStrategy;
use freehold::ring::config::KvStoreKind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(30);

/// A page, and the cell that says who has it; `None` where everybody does.
struct Listed {
    path: String,
    targets: Option<String>,
    /// On the listener for operators alone.
    is_ours: bool,
}

fn listed() -> Vec<Listed> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pages.md");
    let text = std::fs::read_to_string(path).expect("the pages");
    let mut pages = Vec::new();
    let mut has_targets = false;
    let mut is_ours = false;
    for line in text.lines() {
        if line.starts_with("## ") {
            is_ours = line.contains("for operators alone");
        }
        if !line.starts_with('|') {
            continue;
        }
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if matches!(cells[0], "path" | "request") {
            has_targets = cells.last() == Some(&"targets");
        }
        let targets = cells.last().filter(|_| has_targets).map(|cell| (*cell).to_owned());
        // What stands between backticks, of which paths are one kind.
        for quoted in cells[0].split('`').skip(1).step_by(2) {
            if let Some(path) = quoted.split(' ').find(|word| word.starts_with('/')) {
                pages.push(Listed { path: path.to_owned(), targets: targets.clone(), is_ours });
            }
        }
    }
    pages
}

async fn status(address: SocketAddr, path: &str) -> u16 {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.expect("connect");
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Scope-OrgID: a\r\n");
        let request = format!("{head}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("write");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("read");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = tokio::time::timeout(PATIENCE, exchange).await.expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

async fn check(
    address: SocketAddr,
    pages: Option<SocketAddr>,
    who: &str,
    has: impl Fn(&str) -> bool,
) {
    let admin = pages.expect("pages are on");
    let pages = listed();
    assert!(pages.len() > 12, "{} pages", pages.len());
    for Listed { path, targets, is_ours } in pages {
        let is_listed = targets.as_deref().is_none_or(&has);
        for (at, is_there) in [(address, is_listed && !is_ours), (admin, is_listed)] {
            // Tenants' own requests are no pages; every listener has something at its root.
            if path == "/" || (at == admin && path.starts_with("/api/")) {
                continue;
            }
            let status = status(at, &path).await;
            assert_eq!(status != 404, is_there, "{who} answers {path} with {status}: {targets:?}");
        }
    }
}

fn config(target: Target, dir: &std::path::Path) -> Config {
    let mut config = Config::for_target(target);
    config.server.http_listen_address = "127.0.0.1".into();
    config.server.http_listen_port = 0;
    config.admin.http_listen_address = "127.0.0.1:0".into();
    config.server.grpc_listen_address = "127.0.0.1".into();
    config.server.grpc_listen_port = 0;
    config.store.path = dir.join("data");
    config.limits.ingestion_rate_strategy = IngestionRateStrategy::Global;
    config.distributor.ring.instance_id = "gate-1".into();
    config.distributor.ring.instance_addr = "127.0.0.1".into();
    // So that there is a ring of those who keep budgets of queries.
    config.client_identity.enabled = true;
    config.frontend.ring.instance_id = "gate-1".into();
    config.frontend.ring.instance_addr = "127.0.0.1".into();
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_target_has_the_pages_that_are_listed_for_it() {
    let dir = tempfile::tempdir().expect("a directory");
    for (target, name) in [(Target::All, "all"), (Target::Ingester, "ingester")] {
        let app = App::start(config(target, dir.path())).await.expect("starts");
        check(app.http_address, app.admin_address, name, |targets| {
            targets.split([',', ';']).any(|word| word.trim() == name)
        })
        .await;
        app.stop().await.expect("stops");
    }
    for to_ring in [false, true] {
        let mut config = config(Target::Distributor, dir.path());
        if to_ring {
            let store = &mut config.ingester.lifecycler.ring.kvstore;
            store.store = KvStoreKind::File;
            store.file.path = dir.path().join("ring.json");
        } else {
            // Nobody has to be there.
            config.distributor.upstream.url = "http://127.0.0.1:1".into();
        }
        let gate = WriteGate::start(config).await.expect("starts");
        check(gate.http_address, gate.admin_address, "gate", |targets| {
            let is_ours = targets.split([',', ';']).any(|word| word.trim().starts_with("gate"));
            is_ours && (to_ring || !targets.contains("where it sends"))
        })
        .await;
        gate.stop().await.expect("stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_query_gate_has_the_pages_that_are_listed_for_it() {
    let dir = tempfile::tempdir().expect("a directory");
    for has_clients in [false, true] {
        let mut config = config(Target::QueryFrontend, dir.path());
        config.client_identity.enabled = has_clients;
        // Nobody has to be there.
        config.frontend.downstream.url = "http://127.0.0.1:1".into();
        let gate = QueryGate::start(config).await.expect("starts");
        check(gate.http_address, gate.admin_address, "query gate", |targets| {
            let is_ours =
                targets.split([',', ';']).any(|word| word.trim().starts_with("query gate"));
            is_ours && (has_clients || !targets.contains("-client-identity.enabled"))
        })
        .await;
        gate.stop().await.expect("stops");
    }
}

/// Without rates that are shared there is no ring of those who share them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_distributors_ring_has_a_page_where_rates_are_shared() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(Target::Distributor, dir.path());
    config.limits.ingestion_rate_strategy = IngestionRateStrategy::Local;
    config.client_identity.enabled = false;
    config.distributor.upstream.url = "http://127.0.0.1:1".into();
    let gate = WriteGate::start(config).await.expect("starts");
    assert_eq!(status(gate.http_address, "/distributor/ring").await, 404);
    gate.stop().await.expect("stops");
}
