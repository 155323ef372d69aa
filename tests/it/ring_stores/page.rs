//! The store http against a server that shows a ring page.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use freehold::ring::config::{KvConfig, KvStoreKind};
use freehold::ring::kv::KvError;
use freehold::units::Millis;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{Follower, KEY, client, next};
use crate::cortex::cluster::until;

struct PageServer {
    port: u16,
    shown: Arc<Mutex<Shown>>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct Shown {
    status: u16,
    body: String,
    etag: Option<&'static str>,
    location: Option<&'static str>,
    delay: Duration,
    served: usize,
    not_modified: usize,
}

impl PageServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let shown = Arc::new(Mutex::new(Shown { status: 200, ..Shown::default() }));
        let router = Router::new().route("/ring", get(show)).with_state(Arc::clone(&shown));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        Self { port, shown, _serving: serving }
    }

    fn show(&self, change: impl FnOnce(&mut Shown)) {
        change(&mut self.shown.lock().expect("no panic"));
    }

    fn counts(&self) -> (usize, usize) {
        let shown = self.shown.lock().expect("no panic");
        (shown.served, shown.not_modified)
    }

    fn config(&self) -> KvConfig {
        let mut config = KvConfig { store: KvStoreKind::Http, ..KvConfig::default() };
        config.http.url = format!("http://127.0.0.1:{}/ring", self.port);
        config.http.poll_interval = Millis(100);
        config.http.timeout = Millis(1000);
        config
    }
}

async fn show(State(shown): State<Arc<Mutex<Shown>>>, headers: HeaderMap) -> Response {
    let delay = shown.lock().expect("no panic").delay;
    tokio::time::sleep(delay).await;
    let mut shown = shown.lock().expect("no panic");
    let accepts_json = headers.get("accept").is_some_and(|accept| accept == "application/json");
    if !accepts_json {
        return "<html>for people</html>".into_response();
    }
    shown.served += 1;
    if let Some(etag) = shown.etag
        && headers.get("if-none-match").is_some_and(|known| known == etag)
    {
        shown.not_modified += 1;
        return StatusCode::NOT_MODIFIED.into_response();
    }
    let status = StatusCode::from_u16(shown.status).expect("a status");
    let mut answer = (status, shown.body.clone()).into_response();
    for (name, value) in [("etag", shown.etag), ("location", shown.location)] {
        if let Some(value) = value {
            answer.headers_mut().insert(name, value.parse().expect("plain"));
        }
    }
    answer
}

/// As Cortex shows it; `second` makes pages differ as time does.
fn page(ids: &[&str], second: u32) -> String {
    let shards = ids.iter().enumerate().map(|(number, id)| {
        serde_json::json!({
            "id": id, "state": "ACTIVE", "address": format!("{id}:9095"), "zone": "",
            "timestamp": "2026-11-29 23:16:15 +0000 UTC",
            "registered_timestamp": "2026-11-29 23:13:10 +0000 UTC",
            "tokens": [number * 1000 + 7],
        })
    });
    let shards: Vec<_> = shards.collect();
    serde_json::json!({
        "shards": shards, "now": format!("2026-11-29T23:16:{second:02}.5Z"),
        "storageLastUpdated": format!("2026-11-29T23:16:{second:02}.4Z"),
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_follows_a_page_and_keeps_the_last_good_one() {
    let server = PageServer::start().await;
    server.show(|shown| shown.body = page(&["a", "b"], 16));
    let follower = Follower::new(client(&server.config()));
    follower.until_ids(&["a", "b"]).await;
    assert_eq!(follower.ring.load().healthy_count(), 2, "judged at the page's own time");
    server.show(|shown| shown.body = page(&["a", "b", "c"], 17));
    follower.until_ids(&["a", "b", "c"]).await;

    let check = async |change: fn(&mut Shown), part: &str| {
        server.show(change);
        follower.until_stale(part).await;
        assert_eq!(follower.ids(), ["a", "b", "c"], "{part}");
        server.show(|shown| {
            let served = shown.served;
            let body = page(&["a", "b", "c"], 17);
            *shown = Shown { status: 200, body, served, ..Shown::default() };
        });
        follower.until_fresh().await;
    };
    check(|shown| shown.status = 503, "answered 503").await;
    let moved = |shown: &mut Shown| {
        (shown.status, shown.location) = (302, Some("/login"));
    };
    check(moved, "to /login").await;
    check(|shown| shown.body = "<html>".to_owned(), "stored value").await;
    let hidden = |shown: &mut Shown| {
        let page: String = page(&["a"], 17);
        shown.body = page.replace("[7]", "null");
    };
    check(hidden, "hides them").await;
    check(|shown| shown.delay = Duration::from_secs(5), "no answer within 1s").await;
    check(|shown| shown.body = page(&[], 17), "no instances").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_does_not_change_is_not_sent_again() {
    let server = PageServer::start().await;
    server.show(|shown| {
        shown.body = page(&["a"], 16);
        shown.etag = Some("\"1\"");
    });
    let mut config = server.config();
    config.http.timeout = Millis::from_secs(30);
    let kv = client(&config);
    let mut watch = kv.watch(KEY);
    let first = next(&mut watch).await.expect("a page");
    let quiet = tokio::time::timeout(Duration::from_millis(500), watch.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    until("polls go on", async || {
        let briefly = tokio::time::timeout(Duration::from_millis(100), watch.next()).await;
        assert!(briefly.is_err(), "{briefly:?}");
        server.counts().1 >= 2
    })
    .await;
    let (served, not_modified) = server.counts();
    assert_eq!(served, not_modified + 1, "sent once");
    assert_eq!(kv.get(KEY).await, Ok(first), "what is known is what is in force");
    server.show(|shown| {
        shown.body = page(&["b"], 17);
        shown.etag = Some("\"2\"");
    });
    let second = next(&mut watch).await.expect("a page").bytes.expect("there");
    assert!(String::from_utf8_lossy(&second).contains("\"b\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_never_written_and_an_absent_server_costs_its_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut config = KvConfig { store: KvStoreKind::Http, ..KvConfig::default() };
    config.http.url = format!("http://{}/ring", silent.local_addr().expect("bound"));
    config.http.timeout = Millis(200);
    let kv = client(&config);
    assert!(!kv.is_writable());
    assert_eq!(kv.cas(KEY, |_| panic!("asked")).await, Err(KvError::ReadOnly));
    assert_eq!(kv.delete(KEY).await, Err(KvError::ReadOnly));
    let start = Instant::now();
    let error = kv.get(KEY).await.expect_err("silent").to_string();
    assert!(error.contains("no answer within"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
