//! The operator's pages of a whole process on free ports, against what Cortex was seen to answer.

use std::net::SocketAddr;
use std::time::Duration;

use freehold::app::App;
use freehold::config::Config;
use freehold::ring::config::KvStoreKind;
use freehold::tenant::TenantId;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::vectors;

const TOKENS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(30);

struct Running {
    app: App,
    _dir: tempfile::TempDir,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

/// Everything in one process, its store in a directory of its own.
async fn start(change: impl FnOnce(&mut Config, &std::path::Path)) -> Running {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = Config::default();
    config.server.http_listen_address = "127.0.0.1".into();
    config.server.http_listen_port = 0;
    config.admin.http_listen_address = "127.0.0.1:0".into();
    config.server.grpc_listen_address = "127.0.0.1".into();
    config.server.grpc_listen_port = 0;
    config.store.path = dir.path().join("data");
    config.ingester.lifecycler.num_tokens = TOKENS;
    change(&mut config, dir.path());
    let app = App::start(config).await.expect("start");
    Running { app, _dir: dir }
}

impl Running {
    async fn get(&self, path: &str, accept: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nAccept: {accept}\r\n"), "").await
    }

    async fn post(&self, path: &str, form: &str) -> Answer {
        let head = format!(
            "POST {path} HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n",
            form.len()
        );
        self.ask(&head, form).await
    }

    async fn ask(&self, head: &str, body: &str) -> Answer {
        // What Cortex has is where Cortex has it.
        let path = head.split([' ', '?']).nth(1).unwrap_or_default();
        let is_ours = path == "/" || path.starts_with("/tenants");
        let pages = self.app.admin_address.expect("pages are on");
        self.ask_at(if is_ours { pages } else { self.app.http_address }, head, body).await
    }

    async fn ask_at(&self, at: SocketAddr, head: &str, body: &str) -> Answer {
        let exchange = async {
            let mut stream = TcpStream::connect(at).await.expect("connect");
            let request = format!("{head}Host: localhost\r\nConnection: close\r\n\r\n{body}");
            stream.write_all(request.as_bytes()).await.expect("write");
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("text");
            text
        };
        let text = tokio::time::timeout(PATIENCE, exchange).await.expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        assert!(!chunked, "pages have a length");
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Asks until `until` holds: the ring travels through its store.
    async fn ring_until(&self, until: impl Fn(&Value) -> bool) -> Value {
        let asking = async {
            loop {
                let ring = self.get("/ring", "application/json").await.json();
                if until(&ring) {
                    return ring;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("the ring gets there")
    }

    /// Pushes once our state lets a tenant in.
    async fn push(&self, tenant: &str, series: usize) {
        let tenant = TenantId::parse(tenant).expect("a tenant");
        let now = self.app.clock.now();
        let mut request = Vec::new();
        for number in 0..series {
            let mut labels = field(1, &label("__name__", "m"));
            labels.extend(field(1, &label("n", &number.to_string())));
            let mut sample = vec![9, 0, 0, 0, 0, 0, 0, 240, 63, 16];
            varint(now.unix_ms as u64, &mut sample);
            labels.extend(field(2, &sample));
            request.extend(field(1, &labels));
        }
        let pushing = async {
            while self.app.ingester.push(&tenant, &request, self.app.clock.now()).is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, pushing).await.expect("pushed");
    }
}

/// A length-delimited field of protobuf.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

fn label(name: &str, value: &str) -> Vec<u8> {
    [field(1, name.as_bytes()), field(2, value.as_bytes())].concat()
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn recorded(name: &str) -> Value {
    let file = vectors::read("http_behaviour");
    let records = vectors::array(&file, "records");
    let found = records.iter().find(|record| record["name"] == name);
    found.expect("a record of that name")["response"].clone()
}

/// Same keys, same kinds of values; `token_count` is the recorder's own.
fn assert_same_shape(ours: &Value, theirs: &Value, place: &str) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names = |map: &serde_json::Map<String, Value>| -> Vec<String> {
                map.keys().filter(|name| *name != "token_count").cloned().collect()
            };
            assert_eq!(names(ours), names(theirs), "{place}");
            for (name, value) in ours {
                assert_same_shape(value, &theirs[name], &format!("{place}.{name}"));
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            for (one, other) in ours.iter().zip(theirs) {
                assert_same_shape(one, other, &format!("{place}[]"));
            }
        }
        _ => assert_eq!(
            std::mem::discriminant(ours),
            std::mem::discriminant(theirs),
            "{place}: {ours} {theirs}"
        ),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_html_for_people_and_json_for_programs() {
    let running = start(|_, _| {}).await;
    running.push("t1", 3).await;
    for path in
        ["/", "/tenants", "/ring", "/ingester/ring", "/ingester/all_user_stats", "/services"]
    {
        let page = running.get(path, "text/html").await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert!(page.body.contains("</html>"), "{path}");
        let policy = page.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let told = running.get(path, "application/json").await;
        assert_eq!(told.status, 200, "{path}");
        told.json();
    }
    let ring = running.ring_until(|ring| !ring["shards"].is_null()).await;
    let theirs = recorded("ring_json_distributor_all_active");
    assert_same_shape(&ring, &serde_json::from_str(vectors::text(&theirs, "body")).unwrap(), "");
    let told = running.get("/ring", "application/json").await;
    assert_eq!(told.header("content-type"), Some("application/json"));
    assert_eq!(ring["shards"][0]["tokens"].as_array().map(Vec::len), Some(TOKENS));

    let told = running.get("/ingester/all_user_stats", "application/json").await;
    let theirs = recorded("ingester_all_user_stats_json");
    assert_eq!(told.header("content-type"), theirs["headers"]["Content-Type"].as_str());
    let body: Value = serde_json::from_str(vectors::text(&theirs, "body")).unwrap();
    assert_same_shape(&told.json(), &body, "");
    assert_eq!(told.json()[0]["numSeries"], 3);
    assert!(told.body.ends_with("]\n"), "{}", told.body);

    let tokens = running.get("/ring?tokens=true", "text/html").await;
    let first = ring["shards"][0]["tokens"][0].to_string();
    assert!(tokens.body.contains(&first));
    assert!(!running.get("/ring", "text/html").await.body.contains(&first));
    running.app.stop().await.expect("stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_counts_stand_beside_its_limit_and_the_reason() {
    let running = start(|config, _| {
        config.limits.max_series_per_user = 0;
        config.limits.max_global_series_per_user = 10;
    })
    .await;
    running.ring_until(|ring| ring["shards"][0]["state"] == "ACTIVE").await;
    running.push("alpha", 4).await;
    running.push("beta'(x)", 1).await;
    let page = running.get("/tenants", "application/json").await.json();
    assert_eq!(page["total"], 2);
    let alpha = &page["tenants"][0];
    assert_eq!(
        (&alpha["tenant"], &alpha["in_memory"], &alpha["active"], &alpha["owned"]),
        (&"alpha".into(), &4.into(), &4.into(), &4.into())
    );
    assert_eq!(alpha["created_total"], 4);
    assert!(alpha["why"].is_string() && alpha["in_force"].is_string());

    let page = running.get("/tenants?tenant=alp&sort=headroom", "application/json").await.json();
    assert_eq!((&page["matching"], &page["total"]), (&1.into(), &2.into()));
    assert_eq!(running.get("/tenants?sort=colour", "text/html").await.status, 400);
    running.app.stop().await.expect("stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_from_outside_are_escaped() {
    const HOSTILE: &str = "<img src=x>'\"&";
    let running = start(|config, _| {
        config.ingester.lifecycler.id = HOSTILE.to_owned();
    })
    .await;
    running.ring_until(|ring| ring["shards"][0]["id"] == HOSTILE).await;
    for path in ["/", "/ring", "/ring?tokens=true", "/tenants?tenant=%3Cimg%20src=x%3E"] {
        let page = running.get(path, "text/html").await;
        assert_eq!(page.status, 200, "{path}");
        assert!(!page.body.contains("<img"), "{path}: {}", page.body);
        assert!(page.body.contains("img src=x"), "{path} shows it");
    }
    let mode = running.get("/ingester/mode?mode=%3Cimg%3E", "text/html").await;
    assert_eq!((mode.status, mode.body.as_str()), (400, "invalid mode input: &lt;IMG&gt;"));
    running.app.stop().await.expect("stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mode_switches_our_state_in_the_ring_and_back() {
    let running = start(|_, _| {}).await;
    running.ring_until(|ring| ring["shards"][0]["state"] == "ACTIVE").await;
    let check = |answer: &Answer, name: &str| {
        let theirs = recorded(name);
        assert_eq!(u64::from(answer.status), theirs["status"].as_u64().unwrap(), "{name}");
        assert_eq!(answer.body, vectors::text(&theirs, "body"), "{name}");
        let content_type = theirs["headers"]["Content-Type"].as_str();
        assert_eq!(answer.header("content-type"), content_type, "{name}");
    };
    check(&running.get("/ingester/mode", "").await, "ingester_mode_get");
    let read_only = running.post("/ingester/mode?mode=READONLY", "").await;
    check(&read_only, "ingester_mode_readonly");
    running.ring_until(|ring| ring["shards"][0]["state"] == "READONLY").await;
    let active = running.post("/ingester/mode", "mode=active").await;
    check(&active, "ingester_mode_active");
    running.ring_until(|ring| ring["shards"][0]["state"] == "ACTIVE").await;
    let forged = "POST /ingester/mode?mode=READONLY HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\n";
    assert_eq!(running.ask(forged, "").await.status, 403);
    let head = "HEAD /ingester/mode?mode=READONLY HTTP/1.1\r\n";
    assert_eq!(running.ask(head, "").await.status, 405);
    let ring = running.ring_until(|ring| ring["shards"][0]["state"] != "PENDING").await;
    assert_eq!(ring["shards"][0]["state"], "ACTIVE", "a HEAD changes nothing");
    running.app.stop().await.expect("stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_leads_back_to_the_page_and_a_living_member_returns() {
    let running = start(|config, _| {
        config.ingester.lifecycler.heartbeat_period = freehold::units::Millis(50);
    })
    .await;
    let ring = running.ring_until(|ring| ring["shards"][0]["state"] == "ACTIVE").await;
    let id = ring["shards"][0]["id"].as_str().expect("an id").to_owned();
    let answer = running.post("/ring", &format!("forget={id}")).await;
    let theirs = recorded("ring_forget");
    assert_eq!(u64::from(answer.status), theirs["status"].as_u64().unwrap());
    assert_eq!(answer.header("location"), theirs["headers"]["Location"].as_str());
    assert_eq!(answer.body, "");
    assert_eq!(running.post("/ring", "forget=nobody").await.status, 302);
    let unnamed = running.post("/ring", "remember=x").await;
    assert_eq!(unnamed.status, 400);
    assert!(unnamed.body.contains("forget"), "{}", unnamed.body);
    running.ring_until(|ring| ring["shards"][0]["id"] == id.as_str()).await;
    running.app.stop().await.expect("stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_that_is_only_read_is_shown_and_not_changed() {
    let running = start(|config, dir| {
        let page = r#"{"shards":[{"id":"b","state":"ACTIVE","address":"b:1","zone":"z",
            "timestamp":"2026-11-29 23:16:15 +0000 UTC","tokens":[7]}],
            "now":"2026-11-29T23:18:33Z","storageLastUpdated":"2026-11-29T23:18:33Z"}"#;
        std::fs::write(dir.join("ring.json"), page).expect("write");
        let kvstore = &mut config.ingester.lifecycler.ring.kvstore;
        kvstore.store = KvStoreKind::File;
        kvstore.file.path = dir.join("ring.json");
    })
    .await;
    let ring = running.ring_until(|ring| !ring["shards"].is_null()).await;
    let shard = &ring["shards"][0];
    assert_eq!(
        (&shard["state"], &shard["registered_timestamp"]),
        (&"Unhealthy".into(), &"".into())
    );
    assert_eq!(ring["storageLastUpdated"], "2026-11-29T23:18:33Z");
    let page = running.get("/ring", "text/html").await;
    assert!(!page.body.contains("name=\"forget\""), "no button without effect");
    let refused = running.post("/ring", "forget=b").await;
    assert_eq!(refused.status, 409);
    assert!(refused.body.contains("read-only"), "{}", refused.body);
    let mode = running.post("/ingester/mode?mode=READONLY", "").await;
    assert_eq!(mode.status, 400);
    assert!(mode.body.contains("read-only"), "{}", mode.body);
    running.app.stop().await.expect("stop");
}
