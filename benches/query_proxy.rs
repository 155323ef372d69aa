//! What a query costs on its way through the gate's listener and to what answers it.
//!
//! Small questions and small answers over kept connections, as a dashboard's refreshes are.
//! Client, middle and stub have a thread each; what counts is the kernel's count of the middle's
//! CPU time. The rival is the least that hyper's server and client can be put together to, which
//! bounds nothing, checks nothing and strips nothing. Without a middle there is no such time; that run
//! shows what client and stub can do.
//!
//! `cargo bench --bench query_proxy`, with `-- --long` for numbers worth keeping; `--test` only
//! proves that it runs.
#![expect(clippy::disallowed_methods, reason = "the bench drives its connections to their end")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use freehold::clients::config::{ClientIdentityConfig, ColdStart, OwnerLost};
use freehold::clients::key::KEY_SECRET_BYTES;
use freehold::clients::peers::{Budgets, BudgetsSetup, connector};
use freehold::clients::{GateSettings, Gates, KeyHasher, OwnerMap};
use freehold::clock::Clock;
use freehold::front_door::FrontDoor;
use freehold::front_door::config::FrontDoorConfig;
use freehold::frontend::config::{CachedAnswers, FrontendConfig};
use freehold::frontend::{self, Frontend};
use freehold::limits::{InstanceLimits, Limits, Overrides, QueryRate};
use freehold::ratelimit::RateLimitHeaders;
use freehold::server::client_header::ClientHeader;
use freehold::server::config::ServerConfig;
use freehold::server::drain::Drainer;
use freehold::server::front_door::{FrontDoorEdge, Routes};
use freehold::server::http::serve;
use freehold::server::listen::Listener;
use freehold::server::queries::{self, QueryEdge};
use freehold::server::room::Room;
use freehold::server::tenancy::Tenancy;
use freehold::upstream::config::UpstreamConfig;
use freehold::upstream::queries::config::DownstreamConfig;
use freehold::upstream::queries::{Downstreams, Query};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

#[path = "shared/mod.rs"]
mod shared;

const ANSWER: &[u8] = br#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
/// Clients at once, each waiting for its answer.
const CONNECTIONS: usize = 8;
/// Tells connections apart.
static TURNS: AtomicU64 = AtomicU64::new(0);
const MIDDLE_THREAD: &str = "bench-middle";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (rounds, requests) = match (shared::is_test(), has("--long")) {
        (true, _) => (1, 16),
        (_, true) => (15, 20_000),
        _ => (5, 4000),
    };
    let (behind, middle, client) =
        (runtime("bench-stub"), runtime(MIDDLE_THREAD), runtime("bench-client"));
    let stub = behind.block_on(start_stub());
    let rival = middle.block_on(start_rival(stub));
    let gate = middle.block_on(start_gate(stub));
    let budgets = middle.block_on(start_whole(stub, false));
    let door = middle.block_on(start_whole(stub, true));
    let runs = [
        ("direct", stub),
        ("hyper's least", rival),
        ("proxy", gate),
        ("with budgets", budgets),
        ("with front door", door),
    ];
    let mut micros = [const { Vec::new() }; 5];
    for _ in 0..rounds {
        for ((name, address), micros) in runs.iter().zip(&mut micros) {
            let (before, started) = (middle_cpu_ns(), Instant::now());
            client.block_on(ask(*address, requests));
            let cpu = (middle_cpu_ns() - before) as f64 / 1e3 / requests as f64;
            let wall = started.elapsed().as_secs_f64() * 1e6 / requests as f64;
            micros.push((cpu, wall, *name));
        }
    }
    let mut medians = [0.0; 5];
    for (micros, median) in micros.iter_mut().zip(&mut medians) {
        micros.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (cpu, wall, name) = micros[micros.len() / 2];
        *median = cpu;
        let least = micros[0].0;
        println!("{name:15} {cpu:6.1} CPU µs per query (least {least:.1}), {wall:6.1} µs of time");
    }
    let [_, least, proxy, budgets, door] = medians;
    println!("proxy - hyper's least: {:.1} CPU µs per query", proxy - least);
    println!("budgets and shared answers - proxy: {:.1} CPU µs per query", budgets - proxy);
    println!("front door - none: {:.1} CPU µs per query", door - budgets);
}

fn runtime(name: &str) -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(name)
        .enable_all()
        .build()
        .expect("runtime")
}

/// CPU time of the middle's threads, from the scheduler's own count.
fn middle_cpu_ns() -> u64 {
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file));
        let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else {
            continue; // the thread has ended
        };
        if name.trim() == MIDDLE_THREAD {
            let cpu_ns = stat.split(' ').next().expect("a field");
            total += cpu_ns.parse::<u64>().expect("nanoseconds");
        }
    }
    total
}

async fn start_stub() -> SocketAddr {
    serve_with(|_| async {
        let mut response = http::Response::new(Full::new(Bytes::from_static(ANSWER)));
        let headers = response.headers_mut();
        headers.insert("content-type", http::HeaderValue::from_static("application/json"));
        let timing = "querier_wall_time;dur=0, response_time;dur=1.5";
        headers.insert("server-timing", http::HeaderValue::from_static(timing));
        response
    })
    .await
}

/// hyper's server, and its client behind it.
async fn start_rival(stub: SocketAddr) -> SocketAddr {
    let client: Client<HttpConnector, Incoming> =
        Client::builder(TokioExecutor::new()).build_http();
    serve_with(move |mut request| {
        let path = request.uri().path_and_query().expect("a path").clone();
        let uri = format!("http://{stub}{path}").parse::<Uri>().expect("a target");
        *request.uri_mut() = uri;
        let answer = client.request(request);
        async move { answer.await.expect("an answer") }
    })
    .await
}

/// Serves each connection with hyper and nothing else.
async fn serve_with<F, B>(
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> SocketAddr
where
    F: Future<Output = http::Response<B>> + Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = socket.local_addr().expect("bound");
    tokio::spawn(async move {
        loop {
            let (stream, _) = socket.accept().await.expect("accept");
            stream.set_nodelay(true).expect("no delay");
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answered = answer(request);
                async move { Ok::<_, std::convert::Infallible>(answered.await) }
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn start_gate(stub: SocketAddr) -> SocketAddr {
    let config = DownstreamConfig { url: format!("http://{stub}"), ..Default::default() };
    let downstreams = Downstreams::new(&config).expect("settings");
    let router = Router::new().route("/api/v1/{*call}", axum::routing::any(pass));
    let router = router.with_state(downstreams);
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind");
    let address = listener.local_address().expect("bound");
    tokio::spawn(async move {
        let (_drainer, drain) = Drainer::new();
        serve(listener, router, &ServerConfig::default(), drain).await
    });
    address
}

/// All that a query gate does to a refresh that comes from the results cache: in flight, ceiling,
/// shared answers, budget, refund; and a front door with all of its limiters.
async fn start_whole(stub: SocketAddr, has_door: bool) -> SocketAddr {
    let config = DownstreamConfig { url: format!("http://{stub}"), ..Default::default() };
    let downstreams = Downstreams::new(&config).expect("settings");
    let clock = Clock::start();
    let limits = Limits {
        client_identity_query_rate_limit: QueryRate::PerSecond(1e9),
        client_identity_query_burst_size: 1_000_000_000,
        ..Limits::default()
    };
    let overrides = Arc::new(Overrides::new(limits, InstanceLimits::default()));
    let us: Arc<str> = "gate".into();
    let budgets = Budgets::new(BudgetsSetup {
        gates: Gates::QueryFrontends,
        us: Arc::clone(&us),
        incarnation: 1,
        settings: GateSettings {
            owner_lost: OwnerLost::StandingReserve,
            cold_start: ColdStart::OneSecond,
        },
        hasher: KeyHasher::new([7; KEY_SECRET_BYTES]),
        clock,
        owner_timeout: Duration::from_millis(250),
        terms_of: frontend::shared::terms_of(&overrides),
        connect: connector(UpstreamConfig::default(), None),
    });
    budgets.publish(OwnerMap::new(&[(0, 0)], std::slice::from_ref(&us), &us), &HashMap::new());
    let identity = ClientIdentityConfig { enabled: true, ..Default::default() };
    let edge = QueryEdge {
        tenancy: Tenancy::Header,
        clients: ClientHeader::of_http(&identity).expect("a header"),
        frontend: Frontend::new(frontend::Parts {
            config: FrontendConfig { cached_answers: CachedAnswers::Trusted, ..Default::default() },
            overrides,
            budgets: Some(budgets),
            ask: Arc::new(move |query| {
                let downstreams = downstreams.clone();
                Box::pin(async move { downstreams.send(query).await })
            }),
            clock,
        }),
        prefixes: vec![String::new()],
        strip_prefix: false,
        form_bytes_max: 1 << 20,
        form_wait: Duration::from_secs(10),
        room: Room::new(64 << 20),
    };
    let mut router = queries::router(edge);
    if has_door {
        let mut config = FrontDoorConfig::default();
        config.query.failures_per_minute = 1_000_000_000;
        config.query.requests_per_address_per_minute = 1_000_000_000;
        config.query.requests_per_credential_per_minute = 1_000_000_000;
        let door = Arc::new(FrontDoor::new(&config, b"the salt of a bench"));
        let routes = Routes::new([""]);
        router = FrontDoorEdge::new(door, clock, routes, RateLimitHeaders::Off).before(router);
    }
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind");
    let address = listener.local_address().expect("bound");
    tokio::spawn(async move {
        let (_drainer, drain) = Drainer::new();
        serve(listener, router, &ServerConfig::default(), drain).await
    });
    address
}

/// What every edge does; budgets and shared answers come on top.
async fn pass(State(to): State<Downstreams>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let ConnectInfo(peer): ConnectInfo<SocketAddr> = *head.extensions.get().expect("a peer");
    let mut query = Query::streaming(head, body).expect("a query");
    query.came_from(peer.ip());
    match to.send(query).await {
        Ok(reply) => {
            assert_eq!(reply.server_timing_ms("querier_wall_time"), Some(0.0));
            reply.into_response().map(Body::new)
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn ask(address: SocketAddr, requests: usize) {
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| tokio::spawn(ask_in_turn(address, requests / CONNECTIONS)))
        .collect();
    for client in clients {
        client.await.expect("no panic");
    }
}

async fn ask_in_turn(address: SocketAddr, requests: usize) {
    let stream = TcpStream::connect(address).await.expect("connect");
    stream.set_nodelay(true).expect("no delay");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("handshake");
    let driving = tokio::spawn(connection);
    let turns = TURNS.fetch_add(1, Ordering::Relaxed);
    for turn in 0..requests {
        // Refreshes of different panels: nobody waits for the very same answer.
        let target = format!(
            "/api/v1/query_range?query=sum(rate(up%5B5m%5D))&start={turns}&end={turn}&step=15"
        );
        let request = Request::get(target)
            .header("host", "gate")
            .header("authorization", "Bearer a-token-as-long-as-they-mostly-are-0123456789")
            .header("x-scope-orgid", "a")
            .header("x-scope-clientid", "grafana-1")
            .header("accept-encoding", "gzip")
            .header("user-agent", "Grafana/11")
            .header("x-dashboard-uid", "abcdef")
            .body(Full::<Bytes>::default())
            .expect("a request");
        sender.ready().await.expect("ready");
        let response = sender.send_request(request).await.expect("an answer");
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(body.len(), ANSWER.len());
    }
    drop(sender);
    let _ = driving.await;
}
