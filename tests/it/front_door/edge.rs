//! The front door before routes of our own making: slow ones, broken ones, ones that never answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::get;
use freehold::clock::Clock;
use freehold::exposition::Families;
use freehold::front_door::FrontDoor;
use freehold::front_door::config::FrontDoorConfig;
use freehold::ratelimit::RateLimitHeaders;
use freehold::server::config::ServerConfig;
use freehold::server::drain::{Drain, Drainer};
use freehold::server::front_door::{FrontDoorEdge, Routes};
use freehold::server::http::serve;
use freehold::server::listen::Listener;
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::process::wait_for;
use super::{PROXY, Sender, network};

/// Answers to queries, each at its path.
struct Site {
    address: SocketAddr,
    door: Arc<FrontDoor>,
    /// One permit ends one request to `/slow`.
    slow: Arc<Semaphore>,
    /// Requests that are never answered, so far.
    arrived: Arc<AtomicUsize>,
    _drainer: Drainer,
    _serving: JoinSet<()>,
}

impl Site {
    async fn start(failures_per_minute: u32) -> Self {
        let mut config =
            FrontDoorConfig { trusted_proxies: vec![network("127.0.0.1")], ..Default::default() };
        config.query.failures_per_minute = failures_per_minute;
        config.write.failures_per_minute = failures_per_minute;
        let door = Arc::new(FrontDoor::new(&config, b"a salt of a test"));
        let slow = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&slow);
        let arrived = Arc::new(AtomicUsize::new(0));
        let arriving = Arc::clone(&arrived);
        let never = async move || {
            arriving.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Response>().await
        };
        let router = Router::new()
            .route("/prometheus/never", get(never.clone()))
            .route("/api/v1/push", get(never))
            .route("/api/prom/push", get(async || "taken"))
            .route("/prometheus/good", get(async || "good"))
            .route(
                "/prometheus/slow",
                get(async move || {
                    held.acquire().await.expect("open").forget();
                    "at last"
                }),
            )
            .route(
                "/prometheus/partial",
                // The headers say that all is well, and then the body breaks.
                get(async || {
                    let parts = [Ok(Bytes::from_static(b"some")), Err("broken")];
                    let parts = futures_util::stream::iter(parts).then(async |part| {
                        // What has not gone yet when the end comes never goes.
                        if part.is_err() {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                        part
                    });
                    Response::new(Body::from_stream(parts))
                }),
            );
        let edge = FrontDoorEdge::new(
            Arc::clone(&door),
            Clock::start(),
            Routes::default(),
            RateLimitHeaders::Off,
        );
        let listener = Listener::bind((PROXY, 0).into(), 0).await.expect("bind");
        let address = listener.local_address().expect("bound");
        let (drainer, drain): (Drainer, Drain) = Drainer::new();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            serve(listener, edge.before(router), &ServerConfig::default(), drain).await;
        });
        Self { address, door, slow, arrived, _drainer: drainer, _serving: serving }
    }

    async fn ask(&self, path: &str) -> u16 {
        let mut sender = Sender::connect(self.address, PROXY).await;
        sender.send("GET", path, &[("x-forwarded-for", "198.51.100.7")], Bytes::new()).await.status
    }

    /// A request that nobody waits for any more once this is dropped.
    async fn begin(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("connect");
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 198.51.100.7\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream
    }

    /// A request that is at its route, and broken off there.
    async fn break_off(&self, path: &str) {
        let before = self.arrived.load(Ordering::Relaxed);
        let stream = self.begin(path).await;
        let is_there = async || (self.arrived.load(Ordering::Relaxed) > before).then_some(());
        wait_for(|| path.to_owned(), is_there).await;
        drop(stream);
    }

    fn failures(&self, class: &str) -> f64 {
        let mut families = Families::default();
        self.door.read_metrics(&mut families);
        let text = prometheus::TextEncoder::new().encode_to_string(&families.into_vec());
        let name = format!("freehold_front_door_failures_total{{class=\"{class}\"}}");
        super::value(&text.expect("text"), &name)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_is_broken_off_is_charged_and_a_write_is_not() {
    let site = Site::start(3).await;
    for _ in 0..3 {
        site.break_off("/prometheus/never").await;
    }
    let explain = || format!("{} failures", site.failures("query"));
    wait_for(explain, async || (site.failures("query") == 3.0).then_some(())).await;
    assert_eq!(site.ask("/prometheus/good").await, 429);
    // Each holds a credit while it is there.
    for broken_off in 1..=9 {
        site.break_off("/api/v1/push").await;
        let explain = || format!("after {broken_off}");
        let again = async || (site.ask("/api/prom/push").await == 200).then_some(());
        wait_for(explain, again).await;
    }
    assert_eq!(site.failures("write"), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_holds_its_credit_and_gives_it_back_at_the_headers() {
    let site = Site::start(3).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        slow.push(site.begin("/prometheus/slow").await);
    }
    // All three are reserved once a fourth is refused.
    wait_for(String::new, async || (site.ask("/prometheus/good").await == 429).then_some(())).await;
    site.slow.add_permits(3);
    for stream in &mut slow {
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.expect("an answer");
        assert_eq!(&head, b"HTTP/1.1 200");
    }
    for _ in 0..20 {
        assert_eq!(site.ask("/prometheus/good").await, 200);
    }
    assert_eq!(site.failures("query"), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_behind_good_headers_is_no_failure() {
    let site = Site::start(3).await;
    for _ in 0..10 {
        let mut stream = site.begin("/prometheus/partial").await;
        let mut answer = Vec::new();
        let reading = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(Duration::from_secs(30), reading).await.expect("an end");
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(site.failures("query"), 0.0);
}

#[tokio::test]
async fn case_r31_a_request_without_an_address_is_refused() {
    use tower::ServiceExt as _;
    let mut config = FrontDoorConfig::default();
    config.query.failures_per_minute = 60;
    let door = Arc::new(FrontDoor::new(&config, b"a salt of a test"));
    let edge = FrontDoorEdge::new(door, Clock::start(), Routes::default(), RateLimitHeaders::Off);
    let router = Router::new().route("/prometheus/good", get(async || "good"));
    let request = http::Request::get("/prometheus/good").body(Body::empty()).expect("a request");
    let answer = edge.before(router).oneshot(request).await.expect("an answer");
    assert_eq!(answer.status(), 400);
}
