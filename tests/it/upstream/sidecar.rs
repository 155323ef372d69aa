//! The whole app before an ingester: readiness, metrics, settings.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use freehold::app::App;
use freehold::config::{Config, Target};
use freehold::ingester::settings_check::{AGAIN_AFTER, CheckError, Placing, SettingsCheck};
use freehold::ring::config::KvStoreKind;
use freehold::tls::ClientAuth;
use freehold::upstream::page::PageError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::following::request;
use super::ingester::UpstreamIngester;
use crate::pass_through::tls::{Authority, listener_tls, tls_before};
use crate::ports::Port;

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
        config.admin.http_listen_address = "127.0.0.1:0".into();
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
    page_server_at(([127, 0, 0, 1], 0).into(), page).await
}

async fn page_server_at(address: SocketAddr, page: String) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(address).await.expect("bind");
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
    let check =
        SettingsCheck::new(&format!("http://{address}/"), Path::new(""), ours()).expect("a URL");
    let found = check.look().await.expect("a page");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].setting, "-distributor.extend-writes");
    assert_eq!((&*found[0].ours, &*found[0].theirs), ("true", "false"));
    serving.abort();
}

#[tokio::test]
async fn a_distributor_that_is_not_there_yet_is_asked_again_soon() {
    let port = Port::new();
    let check = SettingsCheck::new(&port.address.to_string(), Path::new(""), ours());
    let check = check.expect("host:port");
    let found = check.found();
    let looking = tokio::spawn(check.run(std::future::pending()));
    let registry = || {
        let mut families = freehold::exposition::Families::default();
        found.read_metrics(&mut families);
        let encoder = prometheus::TextEncoder::new();
        encoder.encode_to_string(&families.into_vec()).expect("text")
    };
    let until = async |value: &str| {
        let line = format!("freehold_ingester_settings_check_failing {value}\n");
        let told = async {
            while !registry().contains(&line) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, told).await.expect("told");
    };
    until("1").await;
    let page = "distributor:\n  extend_writes: true\ningester:\n  lifecycler:\n    ring:\n      \
                replication_factor: 3\n";
    let (_, serving) = page_server_at(port.address, page.to_owned()).await;
    tokio::time::pause();
    tokio::time::advance(AGAIN_AFTER).await;
    tokio::time::resume();
    until("0").await;
    assert!(found.differences().is_empty());
    looking.abort();
    serving.abort();
}

/// A page in TLS at `localhost`, by a certificate of this authority.
async fn https_page(
    page: String,
    authority: &Authority,
    tasks: &mut JoinSet<()>,
) -> (String, JoinHandle<()>) {
    authority.sign("server", "localhost");
    let (plain, serving) = page_server(page).await;
    let tls = listener_tls(&authority.server("server", ClientAuth::None), &["http/1.1"]);
    let address = tls_before(plain, tls, tasks).await;
    (format!("https://localhost:{}", address.port()), serving)
}

#[tokio::test]
async fn a_distributors_page_is_read_in_tls_and_only_from_whom_the_authority_has_signed() {
    let (known, unknown) = (Authority::new(), Authority::new());
    let mut tasks = JoinSet::new();
    let page = "distributor:\n  extend_writes: false\n";
    let (url, serving) = https_page(page.to_owned(), &known, &mut tasks).await;
    for path in ["", "/", "/prefix/"] {
        let url = format!("{url}{path}");
        let check = SettingsCheck::new(&url, &known.ca(), ours()).expect("a URL");
        let found = check.look().await.expect("a page");
        assert_eq!(found[0].setting, "-distributor.extend-writes", "{path}");
    }
    let check = SettingsCheck::new(&url, &unknown.ca(), ours()).expect("a URL");
    let error = check.look().await.expect_err("not trusted");
    assert!(matches!(error, CheckError::Page(PageError::Handshake { .. })), "{error}");
    let by_number = url.replace("localhost", "127.0.0.1");
    let check = SettingsCheck::new(&by_number, &known.ca(), ours()).expect("a URL");
    assert!(check.look().await.is_err(), "the certificate is for another name");
    for (address, part) in [("ftp://d", "neither http nor https"), ("distributor", "names no port")]
    {
        let error = SettingsCheck::new(address, Path::new(""), ours()).err().expect(address);
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(SettingsCheck::new(&url, Path::new("/no/such/file"), ours()).is_err());
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_made_from_a_ring_behind_tls() {
    let (known, unknown) = (Authority::new(), Authority::new());
    let mut tasks = JoinSet::new();
    let (url, serving) = https_page(ring_page(&[1, 2, 3]), &known, &mut tasks).await;
    let dir = tempfile::tempdir().expect("a directory");
    let counts = dir.path().join("counts");
    std::fs::write(&counts, "a,100\n").expect("written");
    let plan = async |ca: std::path::PathBuf| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_freehold"));
        command.args(["plan", "--to=2", "--format=json", &format!("--ring={url}")]);
        command.arg(format!("--counts={}", counts.display()));
        command.arg(format!("--tls-ca={}", ca.display()));
        command.args(["-distributor.replication-factor=1", "-ring.heartbeat-timeout=0s"]);
        let ran = tokio::task::spawn_blocking(move || command.output());
        ran.await.expect("no panic").expect("it runs")
    };
    let made = plan(known.ca()).await;
    let told = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{told}");
    let json: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    assert_eq!(json["tenants"][0]["tenant"], "a", "{json}");
    let refused = plan(unknown.ca()).await;
    assert!(!refused.status.success());
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("the TLS handshake with") && told.contains(&url), "{told}");
    serving.abort();
}

#[tokio::test]
async fn a_distributor_that_floods_or_is_gone_is_an_error_and_no_more() {
    let (address, serving) = page_server("#".repeat(5 << 20)).await;
    let check = SettingsCheck::new(&address.to_string(), Path::new(""), ours()).expect("host:port");
    let error = check.look().await.expect_err("too long");
    assert!(matches!(error, CheckError::Page(PageError::Body { .. })), "{error}");
    serving.abort();
    let _ = serving.await;
    let error = check.look().await.expect_err("gone");
    assert!(matches!(error, CheckError::Page(PageError::Unreachable { .. })), "{error}");
}
