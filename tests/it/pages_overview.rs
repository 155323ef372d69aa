//! The overview and the front door's page of whole processes: what is refused is seen, with the
//! tenant and the reason; what is not well is said; and nobody is named who should not be.

use std::net::SocketAddr;
use std::time::Duration;

use freehold::app::{App, QueryGate, WriteGate};
use freehold::config::{Config, Target};
use freehold::wire::proto::cortexpb;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(30);
/// As odd as a tenant may be called.
const TENANT: &str = "o'brien(*)!";
const HOSTILE: &str = "<img src=x onerror=alert(1)>'\"&";

struct Answer {
    status: u16,
    body: String,
}

fn config(target: Target, dir: &std::path::Path) -> Config {
    let mut config = Config::for_target(target);
    config.server.http_listen_address = "127.0.0.1".into();
    config.server.grpc_listen_address = "127.0.0.1".into();
    (config.server.http_listen_port, config.server.grpc_listen_port) = (0, 0);
    config.admin.http_listen_address = "127.0.0.1:0".into();
    config.store.path = dir.join("data");
    config
}

async fn ask(at: SocketAddr, head: &str, body: &[u8]) -> Answer {
    let exchange = async {
        let mut stream = TcpStream::connect(at).await.expect("connect");
        let head = format!("{head}Host: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).await.expect("write");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("read");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let text = tokio::time::timeout(PATIENCE, exchange).await.expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    Answer { status, body: body.to_owned() }
}

async fn page(admin: Option<SocketAddr>, path: &str) -> String {
    let admin = admin.expect("pages are on");
    let answer = ask(admin, &format!("GET {path} HTTP/1.1\r\nAccept: text/html\r\n"), b"").await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

async fn told(admin: Option<SocketAddr>, path: &str) -> Value {
    let admin = admin.expect("pages are on");
    let head = format!("GET {path} HTTP/1.1\r\nAccept: application/json\r\n");
    let answer = ask(admin, &head, b"").await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

/// The status of a write of so many series, one sample each.
async fn push(at: SocketAddr, tenant: &str, series: u64, more: &str) -> u16 {
    let label =
        |name: &str, value: String| cortexpb::LabelPair { name: name.into(), value: value.into() };
    let now_ms = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as i64;
    let one = |number: u64| cortexpb::TimeSeries {
        labels: vec![label("__name__", "m".into()), label("n", number.to_string())],
        samples: vec![cortexpb::Sample { timestamp_ms: now_ms, ..Default::default() }],
        ..Default::default()
    };
    let timeseries = (0..series).map(one).collect();
    let request = cortexpb::WriteRequest { timeseries, ..Default::default() };
    let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
    let body = body.expect("packs");
    let head = format!(
        "POST /api/v1/push HTTP/1.1\r\nX-Scope-OrgID: {tenant}\r\nContent-Length: {}\r\n{more}",
        body.len()
    );
    ask(at, &head, &body).await.status
}

/// Pushes once our state lets a tenant in.
async fn push_until(at: SocketAddr, series: u64, status: u16) {
    let pushing = async {
        while push(at, TENANT, series, "").await != status {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, pushing).await.expect("the status comes");
}

fn role<'a>(overview: &'a Value, name: &str) -> &'a Value {
    let roles = overview["roles"].as_array().expect("a list");
    let found = roles.iter().find(|role| role["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {roles:#?}"))
}

fn reason<'a>(overview: &'a Value, by: &str, reason: &str) -> &'a Value {
    let reasons = overview["refused"]["reasons"].as_array().expect("a list");
    let found = reasons.iter().find(|one| one["by"] == by && one["reason"] == reason);
    found.unwrap_or_else(|| panic!("no {reason} of {by} in {reasons:#?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_seen_at_once_with_tenant_reason_and_evidence() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(Target::All, dir.path());
    config.limits.max_series_per_user = 3;
    config.ingester.lifecycler.id = HOSTILE.to_owned();
    let app = App::start(config).await.expect("starts");
    let admin = app.admin_address;
    push_until(app.http_address, 3, 200).await;

    let calm = told(admin, "/").await;
    let series = |overview: &Value| {
        let reasons = overview["refused"]["reasons"].as_array().cloned().expect("a list");
        reasons.into_iter().find(|one| one["reason"] == "per_user_series_limit")
    };
    assert_eq!(series(&calm), None);
    assert_eq!(calm["target"], "all");
    assert_eq!((&calm["series_in_memory"], &calm["tenants"]), (&json!(3), &json!(1)));
    assert_eq!(calm["instance"], HOSTILE);
    for name in ["Ingester", "Ring", "Place in the ring", "Ownership", "Store", "Writes go to"] {
        let role = role(&calm, name);
        assert!(role["says"].as_str().is_some_and(|says| !says.is_empty()), "{role}");
        assert!(role["since"].as_str().is_some_and(|since| since.starts_with("20")), "{role}");
    }

    assert_eq!(push(app.http_address, TENANT, 10, "").await, 400);
    let now = told(admin, "/").await;
    let refused = reason(&now, "Ingester", "per_user_series_limit");
    assert_eq!((&refused["count"], &refused["unit"]), (&json!(7), &json!("samples")));
    assert_eq!(refused["tenants"][0]["tenant"], TENANT);
    assert_eq!(refused["metric"], "cortex_discarded_samples_total");
    assert!(refused["per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{refused}");

    let shown = page(admin, "/").await;
    assert!(shown.contains("per_user_series_limit"), "{shown}");
    assert!(shown.contains("href=\"/tenants/tenant?id=o%27brien%28%2A%29%21\""), "{shown}");
    assert!(!shown.contains("<img") && !shown.contains("o'brien"), "{shown}");
    assert!(shown.contains("name=\"csrf\""), "the switch of our state needs a token");
    app.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_says_that_nobody_behind_it_answers() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(Target::Distributor, dir.path());
    // Nobody has to be there.
    config.distributor.upstream.url = "http://127.0.0.1:1".into();
    config.limits.ingestion_rate = 1.0;
    config.limits.ingestion_burst_size = 5;
    let gate = WriteGate::start(config).await.expect("starts");
    let admin = gate.admin_address;
    let calm = told(admin, "/").await;
    assert_eq!(calm["health"], "good", "{calm:#}");
    assert_eq!(calm["refused"]["reasons"], json!([]));
    assert!(page(admin, "/").await.contains("Nothing was refused"), "it is said plainly");
    assert_eq!(calm.get("series_in_memory"), None, "a gate keeps none");

    assert_eq!(push(gate.http_address, TENANT, 2, "").await, 503);
    assert_eq!(push(gate.http_address, TENANT, 6, "").await, 429);
    let now = told(admin, "/").await;
    assert_eq!(now["health"], "bad");
    let way = role(&now, "Writes go to");
    assert_eq!(way["state"], "bad", "{way}");
    let refused = reason(&now, "Distributor", "burst_exceeded");
    assert_eq!((&refused["count"], &refused["page"]), (&json!(6), &json!("/distributor/clients")));
    assert!(page(admin, "/").await.contains("Writes go to"), "what is not well is named");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_gate_lists_its_own_parts() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(Target::QueryFrontend, dir.path());
    config.frontend.downstream.url = "http://127.0.0.1:1".into();
    let gate = QueryGate::start(config).await.expect("starts");
    let now = told(gate.admin_address, "/").await;
    assert_eq!(now["target"], "query-frontend");
    for name in ["Queries go to", "Cached answers", "Requests under way"] {
        role(&now, name);
    }
    let services = told(gate.admin_address, "/services").await;
    let names: Vec<_> = services["services"].as_array().expect("a list").iter().collect();
    assert!(names.iter().any(|one| one["name"] == "query-frontend"), "{services}");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_front_doors_page_shows_who_fails_by_digest_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(Target::All, dir.path());
    config.front_door.query.failures_per_minute = 2;
    config.front_door.query.requests_per_credential_per_minute = 50;
    let network = |text: &str| freehold::front_door::networks::Network::parse(text).expect("one");
    config.front_door.deny = vec![network("203.0.113.0/24")];
    config.front_door.trusted_proxies = vec![network("127.0.0.1")];
    config.validate().expect("a good configuration");
    let app = App::start(config).await.expect("starts");
    let admin = app.admin_address;
    let off = told(admin, "/front-door").await;
    assert_eq!((&off["enabled"], &off["denied"]), (&json!(true), &json!(0)));

    let query = async |from: &str| {
        let head = format!(
            "GET /prometheus/api/v1/series HTTP/1.1\r\nX-Scope-OrgID: a\r\n\
             X-Forwarded-For: {from}\r\nAuthorization: Bearer s3cret-t0ken\r\n"
        );
        ask(app.http_address, &head, b"").await.status
    };
    // It names no series, which is a failure of the sender's.
    for status in [400, 400, 429] {
        assert_eq!(query("198.51.100.77").await, status);
    }
    assert_eq!(query("203.0.113.9").await, 403);

    let now = told(admin, "/front-door").await;
    assert_eq!(now["denied"], 1);
    let class = &now["classes"][0];
    assert_eq!((&class["class"], &class["failing_used_up"]), (&json!("query"), &json!(1)));
    let digest = class["most_failing"][0]["digest"].as_str().expect("a digest");
    assert_eq!((digest.len(), &class["most_failing"][0]["burst"]), (8, &json!(2)));
    let limiters = class["limiters"].as_array().expect("a list");
    assert_eq!((limiters.len(), &limiters[0]["refused_total"]), (2, &json!(1)));
    let shown = page(admin, "/front-door").await;
    assert!(shown.contains(digest) && shown.contains("203.0.113.0/24"), "{shown}");
    let overview = told(admin, "/").await;
    assert_eq!(reason(&overview, "Front door", "query failures")["count"], 1);
    assert_eq!(reason(&overview, "Front door", "denied")["count"], 1);
    for text in [shown, now.to_string(), overview.to_string()] {
        for raw in ["198.51.100", "203.0.113.9", "s3cret", "t0ken"] {
            assert!(!text.contains(raw), "{raw} in {text}");
        }
    }
    app.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_front_door_that_is_off_says_how_to_turn_it_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let app = App::start(config(Target::All, dir.path())).await.expect("starts");
    let now = told(app.admin_address, "/front-door").await;
    assert_eq!((&now["enabled"], &now["classes"]), (&json!(false), &json!([])));
    assert!(page(app.admin_address, "/front-door").await.contains("docs/front-door.md"));
    app.stop().await.expect("stops");
}
