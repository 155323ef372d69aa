//! The ring's pages of running processes: a member's page, and Forget with what it asks for.

use std::net::SocketAddr;
use std::time::Duration;

use freehold::app::App;
use freehold::config::Config;
use freehold::ring::config::KvStoreKind;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::ring_stores::fake_consul::FakeConsul;

const PATIENCE: Duration = Duration::from_secs(30);
const TOKENS: usize = 8;
/// A name that no operator would give.
const HOSTILE: &str = "gone\"><img src=x>&'#?";
const HOSTILE_IN_QUERY: &str = "gone%22%3E%3Cimg%20src%3Dx%3E%26%27%23%3F";

struct Running {
    app: App,
    _dir: tempfile::TempDir,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Running {
    async fn start(id: &str, consul: &FakeConsul) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        let server = &mut config.server;
        server.http_listen_address = "127.0.0.1".into();
        server.grpc_listen_address = "127.0.0.1".into();
        (server.http_listen_port, server.grpc_listen_port) = (0, 0);
        config.admin.http_listen_address = "127.0.0.1:0".into();
        config.store.path = dir.path().join("data");
        let lifecycler = &mut config.ingester.lifecycler;
        lifecycler.id = id.to_owned();
        lifecycler.num_tokens = TOKENS;
        lifecycler.unregister_on_shutdown = false;
        lifecycler.ring.kvstore.store = KvStoreKind::Consul;
        lifecycler.ring.kvstore.consul = consul.config().consul;
        Self { app: App::start(config).await.expect("starts"), _dir: dir }
    }

    fn pages(&self) -> SocketAddr {
        self.app.admin_address.expect("pages are on")
    }

    async fn page(&self, path: &str) -> Answer {
        ask(self.pages(), &format!("GET {path} HTTP/1.1\r\n"), "").await
    }

    async fn json(&self, path: &str) -> Value {
        let head = format!("GET {path} HTTP/1.1\r\nAccept: application/json\r\n");
        let answer = ask(self.pages(), &head, "").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// Asks until `until` holds: the ring travels through its store.
    async fn ring_until(&self, until: impl Fn(&[Value]) -> bool) {
        let asking = async {
            while !until(self.json("/ring").await["shards"].as_array().map_or(&[], |all| all)) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("the ring gets there");
    }

    async fn forget(&self, at: SocketAddr, form: &str) -> Answer {
        let head = format!(
            "POST /ring HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n",
            form.len()
        );
        ask(at, &head, form).await
    }
}

async fn ask(at: SocketAddr, head: &str, body: &str) -> Answer {
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
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

fn is_active(shards: &[Value], id: &str) -> bool {
    shards.iter().any(|shard| shard["id"] == id && shard["state"] == "ACTIVE")
}

/// What the form of a page carries.
fn field<'a>(page: &'a str, name: &str) -> &'a str {
    let start = format!("<input type=\"hidden\" name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).expect("the field");
    rest.split_once('"').expect("its end").0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_a_member_asks_first_and_takes_the_pages_own_form() {
    let consul = FakeConsul::start().await;
    let gone = Running::start(HOSTILE, &consul).await;
    let stays = Running::start("stays", &consul).await;
    stays.ring_until(|ring| is_active(ring, "stays") && is_active(ring, HOSTILE)).await;

    // A page of its own, under whatever name, and only where operators are.
    let path = format!("/ring/member?id={HOSTILE_IN_QUERY}");
    let page = stays.page(&path).await;
    assert_eq!(page.status, 200);
    assert!(!page.body.contains("<img") && page.body.contains("img src=x"), "{}", page.body);
    let told = stays.json(&path).await;
    assert_eq!((&told["id"], &told["tokens"]), (&HOSTILE.into(), &TOKENS.into()));
    assert_eq!(told["ranges_total"], TOKENS);
    assert_eq!(stays.page("/ring/member?id=nobody").await.status, 404);
    assert_eq!(stays.page("/ring/member").await.status, 400);
    let head = format!("GET {path} HTTP/1.1\r\n");
    assert_eq!(ask(stays.app.http_address, &head, "").await.status, 404);

    let ring = stays.page("/ring").await;
    for below in ["member", "forget"] {
        assert!(ring.body.contains(&format!("ring/{below}?id={HOSTILE_IN_QUERY}")), "{below}");
    }
    assert!(!ring.body.contains("<img"));
    let detail = stays.page("/ring?format=detail").await;
    let detail: Value = serde_json::from_str(&detail.body).expect("JSON");
    assert_eq!(detail["members"].as_array().map(Vec::len), Some(2));
    assert_eq!(detail["drawing"]["steps"], 720);
    assert_eq!(stays.page("/ring?draw=sideways").await.status, 400);

    // What it would do, and to whom.
    let asked = stays.page(&format!("/ring/forget?id={HOSTILE_IN_QUERY}")).await;
    assert_eq!(asked.status, 200);
    assert!(asked.body.contains("This member is alive") && !asked.body.contains("<img"));
    assert!(asked.body.contains("member?id=stays"), "who takes over: {}", asked.body);
    assert_eq!(stays.page("/ring/forget?id=nobody").await.status, 404);
    let token = field(&asked.body, "csrf");

    gone.app.stop().await.expect("stops");
    stays.ring_until(|ring| !is_active(ring, HOSTILE)).await;
    let form = format!("forget={HOSTILE_IN_QUERY}");
    for forged in [form.clone(), format!("{form}&csrf={}", "0".repeat(token.len()))] {
        assert_eq!(stays.forget(stays.pages(), &forged).await.status, 403);
    }
    stays.ring_until(|ring| ring.iter().any(|shard| shard["id"] == HOSTILE)).await;
    let done = stays.forget(stays.pages(), &format!("{form}&csrf={token}")).await;
    assert_eq!((done.status, done.head.contains("location: #")), (302, true), "{}", done.head);
    stays.ring_until(|ring| ring.iter().all(|shard| shard["id"] != HOSTILE)).await;
    assert_eq!(stays.page(&path).await.status, 404);
    stays.app.stop().await.expect("stops");
}

/// On Cortex's listener the page has Cortex's form: a button behind a fold, with the token that
/// browsers need; nothing there leads to pages that only operators have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_that_cortex_has_leads_nowhere_else() {
    let consul = FakeConsul::start().await;
    let running = Running::start("alone", &consul).await;
    running.ring_until(|ring| is_active(ring, "alone")).await;
    let http = running.app.http_address;
    let page = ask(http, "GET /ring HTTP/1.1\r\n", "").await;
    assert!(!page.body.contains("ring/member") && !page.body.contains("ring/forget"));
    assert!(page.body.contains("name=\"forget\" value=\"alone\""), "{}", page.body);
    let token = field(&page.body, "csrf");
    let browser = "POST /ring HTTP/1.1\r\nUser-Agent: Mozilla/5.0\r\n\
                   Content-Type: application/x-www-form-urlencoded\r\n";
    let post = |form: String| async move {
        ask(http, &format!("{browser}Content-Length: {}\r\n", form.len()), &form).await.status
    };
    assert_eq!(post("forget=nobody".to_owned()).await, 403);
    assert_eq!(post(format!("forget=nobody&csrf={token}")).await, 302);
    running.app.stop().await.expect("stops");
}
