//! The whole app before an ingester: readiness, metrics, settings.

use std::net::SocketAddr;
use std::time::Duration;

use freehold::app::App;
use freehold::config::{Config, Target};
use freehold::ingester::settings_check::{CheckError, Placing, SettingsCheck};
use freehold::ring::config::KvStoreKind;
use freehold::upstream::page::PageError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::following::request;
use super::ingester::UpstreamIngester;

const PATIENCE: Duration = Duration::from_secs(60);
const ID: &str = "ingester-0";

/// A `/ring` page with one member of so many tokens.
fn ring_page(tokens: &[u32]) -> String {
    serde_json::json!({
        "shards": [{
            "id": ID,
            "state": "ACTIVE",
            "address": "127.0.0.1:9095",
            "timestamp": "2026-11-29 23:16:15 +0000 UTC",
            "registered_timestamp": "2026-11-29 23:16:15 +0000 UTC",
            "zone": "",
            "tokens": tokens,
        }],
        "now": "2026-11-29T23:16:16Z",
        "storageLastUpdated": "2026-11-29T23:16:16Z",
    })
    .to_string()
}

struct Sidecar {
    app: App,
    ring: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl Sidecar {
    async fn before(upstream: &UpstreamIngester, tokens: &[u32]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let ring = dir.path().join("ring.json");
        std::fs::write(&ring, ring_page(tokens)).expect("written");
        let mut config = Config { target: Target::Ingester, ..Config::default() };
        config.server.http_listen_address = "127.0.0.1".into();
        config.server.http_listen_port = 0;
        config.server.grpc_listen_address = "127.0.0.1".into();
        config.server.grpc_listen_port = 0;
        config.store.enabled = false;
        config.ingester.upstream.address = upstream.address.to_string();
        config.ingester.instance_id = ID.to_owned();
        config.ingester.drain_announce_period = freehold::units::Millis(0);
        let kvstore = &mut config.ingester.lifecycler.ring.kvstore;
        kvstore.store = KvStoreKind::File;
        kvstore.file.path = ring.clone();
        config.ingester.lifecycler.ring.heartbeat_timeout = freehold::units::Millis(0);
        let app = App::start(config).await.expect("starts");
        Self { app, ring, _dir: dir }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        get(self.app.http_address, path).await
    }

    async fn ready_until(&self, done: impl Fn(u16, &str) -> bool) -> String {
        let asking = async {
            loop {
                let (status, text) = self.get("/ready").await;
                if done(status, &text) {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("in time")
    }
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("connect");
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("write");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_a27_a_sidecar_is_ready_once_series_and_tokens_are_there() {
    let upstream = UpstreamIngester::start().await;
    let now_ms = freehold::clock::Clock::start().now().unix_ms;
    upstream.push("a", &request(0..50, now_ms)).expect("taken");
    upstream.knobs().is_not_running = true;
    let sidecar = Sidecar::before(&upstream, &[]).await;
    sidecar.ready_until(|status, text| status == 503 && text.contains("not told its series")).await;
    upstream.knobs().is_not_running = false;
    // The series are known now, and whose they are is not.
    sidecar.ready_until(|status, text| status == 503 && text.contains("no tokens")).await;
    std::fs::write(&sidecar.ring, ring_page(&[1, 2, 3])).expect("written");
    sidecar.ready_until(|status, _| status == 200).await;

    let (_, metrics) = sidecar.get("/metrics").await;
    let has = |start: &str| metrics.lines().any(|line| line.starts_with(start));
    for ours in [
        "freehold_ingester_memory_series{user=\"a\"} 50",
        "cortex_ingester_owned_series{user=\"a\"} 50",
        "freehold_ingester_upstream_series{user=\"a\"} 50",
        "freehold_ingester_loading{count=\"in_memory\"} 0",
        "freehold_ingester_loading{count=\"active\"} 1",
    ] {
        assert!(has(ours), "{ours} in {metrics}");
    }
    for name in freehold::ingester::metrics::UPSTREAMS_OWN {
        assert!(
            !has(&format!("{name}{{")) && !has(&format!("{name} ")),
            "{name} is the upstream's"
        );
    }
    sidecar.app.stop().await.expect("stops");
}

/// Answers every request with this page.
async fn page_server(page: String) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("bind");
    let address = listener.local_addr().expect("bound");
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("accept");
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await;
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, serving)
}

fn ours() -> Placing {
    Placing::default()
        .with("-distributor.replication-factor", 3)
        .with("-distributor.extend-writes", true)
}

#[tokio::test]
async fn a_distributors_page_tells_the_setting_that_differs() {
    let page = "distributor:\n  extend_writes: false\ningester:\n  lifecycler:\n    ring:\n      \
                replication_factor: 3\n";
    let (address, serving) = page_server(page.to_owned()).await;
    let check = SettingsCheck::new(&format!("http://{address}/"), ours());
    let found = check.look().await.expect("a page");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].setting, "-distributor.extend-writes");
    assert_eq!((&*found[0].ours, &*found[0].theirs), ("true", "false"));
    serving.abort();
}

#[tokio::test]
async fn a_distributor_that_floods_or_is_gone_is_an_error_and_no_more() {
    let (address, serving) = page_server("#".repeat(5 << 20)).await;
    let check = SettingsCheck::new(&address.to_string(), ours());
    let error = check.look().await.expect_err("too long");
    assert!(matches!(error, CheckError::Page(PageError::Body { .. })), "{error}");
    serving.abort();
    let _ = serving.await;
    let error = check.look().await.expect_err("gone");
    assert!(matches!(error, CheckError::Page(PageError::Unreachable { .. })), "{error}");
}
