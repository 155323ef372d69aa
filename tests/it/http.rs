//! The HTTP edge against bare connections, with a made-up distributor behind it.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use freehold::distributor::{Answer as Taken, PushError, RateLimitHeaders, SinkError, Written};
use freehold::ratelimit::BucketView;
use freehold::server::Drained;
use freehold::server::config::ServerConfig as Config;
use freehold::server::drain::{Drain, Drainer};
use freehold::server::http::{ConfigView, HttpEdge, RemoteWriteSettings, ShellCalls, Tenant};
use freehold::server::http::{router, serve};
use freehold::server::listen::Listener;
use freehold::server::seam::{DistributorCalls, Received};
use freehold::server::tenancy::Tenancy;
use freehold::tenant::TenantId;
use freehold::units::Millis;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::vectors;

const PATIENCE: Duration = Duration::from_secs(30);

type Outcome = Result<Taken, PushError>;
type Push = dyn Fn(&TenantId, Received) -> Outcome + Send + Sync;

struct Setup {
    push: Box<Push>,
    remote_write: RemoteWriteSettings,
    budget: Option<BucketView>,
    config: Config,
    connections_max: usize,
    room_bytes: usize,
}

struct Server {
    address: std::net::SocketAddr,
    drainer: Drainer,
    serving: JoinHandle<Drained>,
}

impl Setup {
    fn new(push: impl Fn(&TenantId, Received) -> Outcome + Send + Sync + 'static) -> Self {
        Self {
            push: Box::new(push),
            remote_write: RemoteWriteSettings {
                v2_enabled: false,
                accept_unknown_content_type: false,
                body_bytes_max: 1000,
                otlp_body_bytes_max: 1000,
                body_wait: PATIENCE,
                ratelimit_headers: RateLimitHeaders::Off,
            },
            budget: None,
            config: Config::default(),
            connections_max: 0,
            room_bytes: 1 << 20,
        }
    }

    async fn start(self) -> Server {
        let address = ([127, 0, 0, 1], 0).into();
        let listener = Listener::bind(address, self.connections_max).await.expect("bind");
        let address = listener.local_address().expect("bound");
        let (drainer, drain) = Drainer::new();
        let ready = drain.clone();
        let (push, budget) = (Arc::<Push>::from(self.push), self.budget);
        let calls = DistributorCalls {
            push: Arc::new(move |tenant, write| {
                let push = Arc::clone(&push);
                let pushed = tokio::task::spawn_blocking(move || push(&tenant, write));
                Box::pin(async move { pushed.await.expect("no panic") })
            }),
            budget: Arc::new(move |_| budget),
            came: Arc::new(|_| {}),
        };
        let edge = HttpEdge {
            tenancy: Tenancy::Header,
            shell: shell(ready),
            distributor: Some(calls),
            remote_write: self.remote_write,
            room: freehold::server::room::Room::new(self.room_bytes),
        };
        let rest = Router::new().route("/who", get(async |tenant: Tenant| tenant.0.to_string()));
        let router = router(edge, rest);
        let config = self.config;
        let serving = tokio::spawn(async move { serve(listener, router, &config, drain).await });
        Server { address, drainer, serving }
    }
}

fn shell(drain: Drain) -> ShellCalls {
    let view = |view| match view {
        ConfigView::Effective => "a: 1\nb: 2\n".to_owned(),
        ConfigView::Diff => "b: 2\n".to_owned(),
        ConfigView::Defaults => "a: 1\n".to_owned(),
    };
    ShellCalls {
        ready: Arc::new(move || match drain.is_started() {
            true => Err("Ingester not ready: stopping".to_owned()),
            false => Ok(None),
        }),
        metrics: Arc::new(|| "up 1\n".to_owned()),
        config: Arc::new(view),
        runtime_config: Arc::new(view),
    }
}

fn accepting() -> Setup {
    Setup::new(|_, _| Ok(stored()))
}

fn stored() -> Taken {
    Taken::Taken { written: Written::default(), partly: None }
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// One request on its own connection.
async fn send(server: &Server, head: &str, body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(server.address).await.expect("connect");
    let head = format!("{head}Host: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("write");
    // The server may answer and close before it has taken all.
    let _ = stream.write_all(body).await;
    read_answer(&mut stream).await
}

async fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    match tokio::time::timeout(PATIENCE, reading).await.expect("no answer") {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => parse(&bytes),
    }
}

fn parse(bytes: &[u8]) -> Answer {
    let text = std::str::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line");
    let headers = lines.filter_map(|line| line.split_once(": "));
    Answer {
        status: status.parse().expect("a number"),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        body: body.to_owned(),
    }
}

fn push_head(len: usize, more: &str) -> String {
    format!("POST /api/v1/push HTTP/1.1\r\nX-Scope-OrgID: a\r\nContent-Length: {len}\r\n{more}")
}

#[tokio::test]
async fn errors_of_a_push_become_the_statuses_that_cortex_gives_them() {
    let next = Arc::new(Mutex::new(SinkError::Failed { text: String::new() }));
    let error = Arc::clone(&next);
    let outcome = move |_: &TenantId, _| Err(error.lock().expect("lock").clone().into());
    let server = Setup::new(outcome).start().await;
    let file = vectors::read("errors");
    for case in vectors::array(&file, "http_mapping") {
        let kind = vectors::text(case, "push_error");
        let text = vectors::text(case, "text");
        let bare = text.rsplit("desc = ").next().expect("a text").to_owned();
        *next.lock().expect("lock") = match kind.strip_prefix("httpgrpc ") {
            Some(code) => {
                let status = code.parse().expect("code");
                SinkError::Told { status, text: bare, wait_ns: None }
            }
            None if kind == "grpc Unavailable" => SinkError::Unavailable { text: bare },
            // A hung-up sender is noticed before there is an error to word.
            None if kind == "context canceled" => continue,
            None => SinkError::Failed { text: text.to_owned() },
        };
        let answer = send(&server, &push_head(1, ""), b"x").await;
        let expect = &case["push_handler"];
        assert_eq!(u64::from(answer.status), expect["status"].as_u64().expect("status"), "{kind}");
        assert_eq!(answer.body, vectors::text(expect, "body"), "{kind}");
    }
}

#[tokio::test]
async fn case_r52_a_rate_limited_sender_is_told_when_to_come_back() {
    let wait_ns = Arc::new(Mutex::new(0));
    let next = Arc::clone(&wait_ns);
    let server = Setup::new(move |_, _| {
        let wait_ns = *next.lock().expect("lock");
        let text = "too fast".to_owned();
        Err(SinkError::Told { status: 429, text, wait_ns: Some(wait_ns) }.into())
    })
    .start()
    .await;
    let check = async |waits_ns: u64, secs: std::ops::RangeInclusive<u64>| {
        *wait_ns.lock().expect("lock") = waits_ns;
        let answer = send(&server, &push_head(1, ""), b"x").await;
        assert_eq!((answer.status, answer.body.as_str()), (429, "too fast\n"));
        let told = answer.header("retry-after").expect("a time").parse().expect("whole seconds");
        assert!(secs.contains(&told), "{told} of {secs:?}");
    };
    check(0, 1..=1).await;
    check(4_000_000_000, 4..=8).await;
    check(u64::MAX, 60..=60).await;
}

#[tokio::test]
async fn case_r41_r42_a_wait_is_told_in_whole_seconds_and_never_beyond_a_minute() {
    let check = async |error: SinkError, status: u16, told: std::ops::RangeInclusive<u64>| {
        let server = Setup::new(move |_, _| Err(error.clone().into())).start().await;
        let answer = send(&server, &push_head(1, ""), b"x").await;
        assert_eq!(answer.status, status);
        let secs = answer.header("retry-after").expect("a time").parse().expect("whole seconds");
        assert!(told.contains(&secs), "{secs} of {told:?}");
    };
    let text = || "later".to_owned();
    let told = |status, wait_ns| SinkError::Told { status, text: text(), wait_ns };
    check(told(429, Some(200_000_000)), 429, 1..=2).await;
    check(told(503, None), 503, 1..=1).await;
    check(told(503, Some(3_600_000_000_000)), 503, 60..=60).await;
}

#[tokio::test]
async fn budgets_are_told_in_the_form_that_was_asked_for() {
    let check = async |form, budget: BucketView, headers: &[(&str, &str)], absent: &[&str]| {
        let mut setup = Setup { budget: Some(budget), ..accepting() };
        setup.remote_write.ratelimit_headers = form;
        let server = setup.start().await;
        let answer = send(&server, &push_head(1, ""), b"x").await;
        for (name, value) in headers {
            assert_eq!(answer.header(name), Some(*value), "{name}");
        }
        for name in absent {
            assert_eq!(answer.header(name), None, "{name}");
        }
    };
    let half = BucketView { credits: 50.5, rate: 10.0, burst: 100 };
    let draft =
        [("ratelimit-policy", "\"tenant\";q=100;w=10"), ("ratelimit", "\"tenant\";r=50;t=5")];
    let legacy =
        [("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "50"), ("x-ratelimit-reset", "5")];
    check(RateLimitHeaders::Draft, half, &draft, &["x-ratelimit-limit"]).await;
    check(RateLimitHeaders::Legacy, half, &legacy, &["ratelimit"]).await;
    check(RateLimitHeaders::Off, half, &[], &["ratelimit", "x-ratelimit-limit"]).await;
    let full = BucketView { credits: 100.0, ..half };
    check(RateLimitHeaders::Legacy, full, &[("x-ratelimit-reset", "0")], &[]).await;
    let unlimited = BucketView { rate: f64::MAX, ..half };
    check(RateLimitHeaders::Draft, unlimited, &[], &["ratelimit"]).await;
}

#[tokio::test]
async fn a_body_reaches_the_distributor_as_it_came_on_both_paths() {
    let (sender, received) = std::sync::mpsc::channel();
    let server = Setup::new(move |tenant, write| {
        sender.send((tenant.to_string(), write.body)).expect("test is there");
        Ok(stored())
    })
    .start()
    .await;
    for path in ["/api/v1/push", "/api/prom/push"] {
        let head =
            format!("POST {path} HTTP/1.1\r\nX-Scope-OrgID: a\r\nTransfer-Encoding: chunked\r\n");
        let answer = send(&server, &head, b"3\r\n\x00\x01\xff\r\n2\r\nab\r\n0\r\n\r\n").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
        let (tenant, body) = received.recv().expect("pushed");
        assert_eq!((tenant.as_str(), &body[..]), ("a", &b"\x00\x01\xffab"[..]));
    }
}

#[tokio::test]
async fn case_d9_a_body_over_its_bound_is_not_read() {
    let server = Setup::new(|_, _| panic!("nothing may arrive")).start().await;
    let answer = send(&server, &push_head(5 << 30, ""), b"").await;
    assert_eq!(
        answer.body,
        format!("received message larger than max ({} vs 1000)\n", 5_u64 << 30)
    );
    let head = "POST /api/v1/push HTTP/1.1\r\nX-Scope-OrgID: a\r\nTransfer-Encoding: chunked\r\n";
    let mut chunked = b"3e9\r\n".to_vec(); // 1001 bytes
    chunked.extend_from_slice(&[7; 1001]);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    let answer = send(&server, head, &chunked).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.body, "received message larger than max (1001 vs 1000)\n");
}

#[tokio::test]
async fn a_slow_body_is_not_waited_for_and_its_sender_may_try_again() {
    let mut setup = accepting();
    setup.remote_write.body_wait = Duration::from_millis(20);
    let server = setup.start().await;
    let answer = send(&server, &push_head(10, ""), b"half").await;
    assert_eq!(answer.status, 503);
}

#[tokio::test]
async fn bodies_that_find_no_room_are_refused_for_now_and_served_later() {
    let mut setup = accepting();
    setup.room_bytes = 1000;
    let server = setup.start().await;
    let mut slow = TcpStream::connect(server.address).await.expect("connect");
    let head = format!("{}Host: localhost\r\nConnection: close\r\n\r\n", push_head(600, ""));
    slow.write_all(head.as_bytes()).await.expect("write");
    slow.write_all(&[7; 300]).await.expect("write");
    let refused = async {
        loop {
            // Until the slow one has been charged, and then at once or after the wait.
            let answer = send(&server, &push_head(600, ""), &[7; 600]).await;
            if answer.status != 200 {
                return answer;
            }
        }
    };
    let answer = tokio::time::timeout(PATIENCE, refused).await.expect("in time");
    let text = "too many bytes of requests under way: 1000\n";
    assert_eq!((answer.status, answer.body.as_str()), (503, text));
    assert_eq!(send(&server, &push_head(100, ""), &[7; 100]).await.status, 200, "it fits beside");
    slow.write_all(&[7; 300]).await.expect("write");
    assert_eq!(read_answer(&mut slow).await.status, 200);
    assert_eq!(send(&server, &push_head(1000, ""), &[7; 1000]).await.status, 200);
}

#[tokio::test]
async fn pages_of_the_shell_are_served() {
    let server = accepting().start().await;
    let check = async |path: &str, content_type: &str, body: &str| {
        let answer = send(&server, &format!("GET {path} HTTP/1.1\r\n"), b"").await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some(content_type), "{path}");
        assert_eq!(answer.body, body, "{path}");
    };
    let yaml = "text/plain; charset=utf-8";
    check("/ready", "text/plain", "ready").await;
    check("/metrics", "text/plain; version=0.0.4; charset=utf-8", "up 1\n").await;
    check("/config", yaml, "a: 1\nb: 2\n").await;
    check("/config?mode=diff", yaml, "b: 2\n").await;
    check("/config?mode=defaults&x=y", yaml, "a: 1\n").await;
    check("/runtime_config?mode=diff", yaml, "b: 2\n").await;
}

#[tokio::test]
async fn routes_of_other_rooms_know_the_tenant_and_the_rest_is_not_found() {
    let server = accepting().start().await;
    let check = async |head: &str, status: u16, body: &str| {
        let answer = send(&server, head, b"").await;
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{head}");
        assert_eq!(
            answer.header("x-content-type-options").is_some(),
            status >= 400 && status != 405,
            "{head}"
        );
    };
    check("GET /who HTTP/1.1\r\nX-Scope-OrgID: b\r\n", 200, "b").await;
    check("GET /who HTTP/1.1\r\n", 401, "no org id\n").await;
    let unsupported = "tenant ID 'a b' contains unsupported character ' '\n";
    check("GET /who HTTP/1.1\r\nX-Scope-OrgID: a b\r\n", 500, unsupported).await;
    check("GET /api/v1/push HTTP/1.1\r\n", 405, "").await;
    check("GET /nowhere HTTP/1.1\r\n", 404, "404 page not found\n").await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let server = accepting().start().await;
    // The bound is looked at between two reads, and the last one may bring as much again: a head
    // of less than twice the bound passes if it comes at once.
    let head = format!("GET /ready HTTP/1.1\r\nX-Long: {}\r\n\r\n", "x".repeat(300 << 10));
    let mut stream = TcpStream::connect(server.address).await.expect("connect");
    // The server answers and closes before it has taken all.
    let _ = stream.write_all(head.as_bytes()).await;
    assert_eq!(read_answer(&mut stream).await.status, 431);
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let mut setup = accepting();
    setup.config.http_server_idle_timeout = Millis(20);
    let server = setup.start().await;
    let mut stream = TcpStream::connect(server.address).await.expect("connect");
    stream.write_all(b"GET /ready HTTP/1.1\r\nHo").await.expect("write");
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    let _ = tokio::time::timeout(PATIENCE, reading).await.expect("closed");
}

#[tokio::test]
async fn connections_over_the_bound_wait_for_their_turn() {
    let server = Setup { connections_max: 1, ..accepting() }.start().await;
    let mut first = TcpStream::connect(server.address).await.expect("connect");
    first.write_all(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("write");
    let mut bytes = [0; 12];
    first.read_exact(&mut bytes).await.expect("an answer");
    let mut second = TcpStream::connect(server.address).await.expect("connect");
    second
        .write_all(b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .expect("write");
    let early = tokio::time::timeout(Duration::from_millis(50), second.readable()).await;
    assert!(early.is_err(), "the second was served beside the first");
    drop(first);
    assert_eq!(read_answer(&mut second).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_answers_requests_at_hand_and_closes_idle_connections() {
    let (arrive, arrived) = std::sync::mpsc::channel();
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let setup = Setup::new(move |_, _| {
        arrive.send(()).expect("test is there");
        gate.lock().expect("lock").recv_timeout(PATIENCE).expect("released");
        Ok(stored())
    });
    let server = setup.start().await;
    let mut idle = TcpStream::connect(server.address).await.expect("connect");
    let mut busy = TcpStream::connect(server.address).await.expect("connect");
    let head = format!("{}Host: x\r\n\r\nx", push_head(1, ""));
    busy.write_all(head.as_bytes()).await.expect("write");
    arrived.recv_timeout(PATIENCE).expect("the push");
    server.drainer.start();
    let mut bytes = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, idle.read_to_end(&mut bytes)).await;
    closed.expect("closed").expect("read");
    release.send(()).expect("push waits");
    assert_eq!(read_answer(&mut busy).await.status, 200);
    let drained = tokio::time::timeout(PATIENCE, server.serving).await.expect("in time");
    assert_eq!(drained.expect("serving"), Drained::Whole);
}
