//! CPU that the gRPC edge spends on a push of 1000 series, against a server with a prost codec.
//!
//! The edge has three things behind it: a handler that only counts; the ingester, which touches
//! 1000 known series; and, as a sidecar, the ingester and then an upstream that only says yes,
//! on threads of its own. The rival decodes a `WriteRequest` with `String` labels and counts.
//! The server has one thread, the client another; the CPU time is the kernel's count for the
//! server's threads. Rounds are interleaved, since machines have slow and fast phases.
//!
//! What the sidecar adds to the time of a push is measured last, one push at a time.
//!
//! `cargo bench --bench grpc`, with `-- --long` for numbers worth keeping; `--test` only proves
//! that it runs.
#![expect(clippy::disallowed_methods, reason = "the bench drives one connection to its end")]

use std::convert::Infallible;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use freehold::server::seam::{Forward, IngesterCalls, Judged, Pushed, UserStats};
use futures_util::future::BoxFuture;
use h2::client::SendRequest;
use http::{Request, Response};
use prost::Message as _;
use tokio::runtime::Runtime;
use tonic::body::Body;
use tonic::server::UnaryService;
use tonic_prost::ProstCodec;

use edge::runtime;
use ingester::{NOW, NOW_MS, ingester};

#[path = "shared/edge.rs"]
mod edge;
#[path = "shared/ingester.rs"]
mod ingester;
mod shared;

const SERIES: usize = 1000;
const IN_FLIGHT: usize = 6;
const SERVER_THREAD: &str = "bench-server";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (rounds, requests) = match (shared::is_test(), has("--long")) {
        (true, _) => (1, 6),
        (_, true) => (15, 600),
        _ => (5, 120),
    };
    let message = write_request().encode_to_vec();
    let packed = snap::raw::Encoder::new().compress_vec(&message).expect("compress");
    println!("{SERIES} series, {} bytes, {} as snappy-block", message.len(), packed.len());

    let server = runtime(SERVER_THREAD);
    let client = runtime("bench-client");
    let behind = runtime("bench-upstream");
    let edge = start_edge(&server, Behind::Nothing);
    let admitting = start_edge(&server, Behind::Ingester);
    let upstream = start_edge(&behind, Behind::Nothing);
    let sidecar = start_edge(&server, Behind::Upstream(upstream));
    let rival = start_rival(&server);
    let plain = framed(0, &message);
    let packed = framed(1, &packed);
    let runs = [
        ("edge, raw bytes", edge, "identity", &plain),
        ("edge, raw bytes, snappy-block", edge, "snappy-block", &packed),
        ("edge and ingester", admitting, "identity", &plain),
        ("sidecar, snappy-block", sidecar, "snappy-block", &packed),
        ("tonic, prost codec", rival, "identity", &plain),
    ];
    let mut micros = [const { Vec::new() }; 5];
    for _ in 0..rounds {
        for ((_, address, encoding, body), micros) in runs.iter().zip(&mut micros) {
            let before = edge::cpu_ns(SERVER_THREAD);
            client.block_on(push(*address, encoding, body, requests));
            micros.push((edge::cpu_ns(SERVER_THREAD) - before) as f64 / 1000.0 / requests as f64);
        }
    }
    for ((name, ..), micros) in runs.iter().zip(&mut micros) {
        micros.sort_by(f64::total_cmp);
        let median = micros[micros.len() / 2];
        println!("{name:32} {median:8.0} µs of server CPU per request (least {:.0})", micros[0]);
    }
    let median = |run: usize| micros[run][micros[run].len() / 2];
    println!("prost codec / raw bytes: {:.1}", median(4) / median(0));
    println!("prost codec / edge and ingester: {:.1}", median(4) / median(2));
    println!("sidecar: {:.2} µs per series", median(3) / SERIES as f64);
    latencies(&client, [upstream, sidecar], &packed, requests);
}

/// One push at a time, direct and through the sidecar, in turn.
fn latencies(client: &Runtime, addresses: [SocketAddr; 2], body: &Bytes, pushes: usize) {
    let mut micros = [const { Vec::new() }; 2];
    client.block_on(async {
        let mut clients = Vec::new();
        for address in addresses {
            clients.push(connect(address).await);
        }
        for _ in 0..pushes {
            for (client, micros) in clients.iter().zip(&mut micros) {
                let start = std::time::Instant::now();
                call(client.clone(), "snappy-block", body.clone()).await;
                micros.push(start.elapsed().as_nanos() as f64 / 1000.0);
            }
        }
    });
    for micros in &mut micros {
        micros.sort_by(f64::total_cmp);
    }
    let at = |run: usize, part: usize| micros[run][micros[run].len() * part / 100];
    for part in [50, 99] {
        let (direct, through) = (at(0, part), at(1, part));
        println!(
            "p{part}: direct {direct:.0} µs, through the sidecar {through:.0} µs, added {:.0} µs",
            through - direct
        );
    }
}

/// What stands behind an edge.
enum Behind {
    Nothing,
    Ingester,
    Upstream(SocketAddr),
}

fn start_edge(server: &Runtime, behind: Behind) -> SocketAddr {
    let stats = UserStats::default();
    let admitting = Arc::new(ingester());
    let judging = Arc::clone(&admitting);
    let admits = !matches!(behind, Behind::Nothing);
    let calls = IngesterCalls {
        push: Arc::new(move |tenant, body| {
            if admits {
                return Ok(admitting.push(tenant, &body, NOW)?);
            }
            black_box(body.len());
            Ok(Pushed::default())
        }),
        judge: Arc::new(move |tenant, body| {
            let mut judged = judging.judge(tenant, body, NOW)?;
            let forward = std::mem::replace(&mut judged.forward, Forward::Whole);
            let settle = Box::new(move |told| Ok(judged.settle(told, NOW)?));
            Ok(Judged { forward, settle })
        }),
        user_stats: Arc::new(move |_| stats),
        all_user_stats: Arc::new(Vec::new),
    };
    let upstream = match behind {
        Behind::Upstream(address) => Some(address),
        Behind::Nothing | Behind::Ingester => None,
    };
    server.block_on(edge::start(calls, upstream))
}

fn start_rival(server: &Runtime) -> SocketAddr {
    let (listener, address) = server.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    });
    server.spawn(async move {
        let incoming =
            tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
        tonic::transport::Server::builder().serve_with_incoming(Rival, incoming).await
    });
    address
}

/// Pushes with a fixed number of requests in flight, and waits for all answers.
async fn push(address: SocketAddr, encoding: &str, body: &Bytes, requests: usize) {
    let client = connect(address).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let (client, encoding, body) = (client.clone(), encoding.to_owned(), body.clone());
        calls.spawn(async move {
            for _ in 0..requests / IN_FLIGHT {
                call(client.clone(), &encoding, body.clone()).await;
            }
        });
    }
    while calls.join_next().await.is_some() {}
}

async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let (client, connection) = h2::client::handshake(stream).await.expect("handshake");
    tokio::spawn(connection);
    client
}

async fn call(client: SendRequest<Bytes>, encoding: &str, mut body: Bytes) {
    let mut client = client.ready().await.expect("connection");
    let request = Request::post("http://localhost/cortex.Ingester/Push")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-encoding", encoding)
        .header("x-scope-orgid", "bench")
        .body(())
        .expect("request");
    let (response, mut send) = client.send_request(request, false).expect("send");
    while !body.is_empty() {
        send.reserve_capacity(body.len());
        let granted = std::future::poll_fn(|cx| send.poll_capacity(cx)).await;
        let granted = granted.expect("stream").expect("capacity");
        let part = body.split_to(granted.min(body.len()));
        send.send_data(part, body.is_empty()).expect("send");
    }
    let (head, mut answer) = response.await.expect("response").into_parts();
    while let Some(chunk) = answer.data().await {
        let len = chunk.expect("data").len();
        answer.flow_control().release_capacity(len).expect("capacity");
    }
    let trailers = answer.trailers().await.expect("trailers").unwrap_or(head.headers);
    assert_eq!(trailers["grpc-status"], "0");
}

fn framed(flag: u8, payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(flag);
    bytes.put_u32(u32::try_from(payload.len()).expect("short"));
    bytes.put_slice(payload);
    bytes.freeze()
}

/// Ten labels and one sample per series.
fn write_request() -> WriteRequest {
    let label = |name: String, value: String| LabelPair { name, value };
    let series = |i: usize| {
        let mut labels = vec![label("__name__".to_owned(), "bench_requests_seconds".to_owned())];
        for number in 0..9 {
            let name = format!("label_{number}");
            labels.push(label(name, format!("value-{number}-of-{:08}", i * (number + 1))));
        }
        let sample = Sample { value: i as f64, timestamp_ms: NOW_MS };
        TimeSeries { labels, samples: vec![sample] }
    };
    WriteRequest { timeseries: (0..SERIES).map(series).collect() }
}

/// What most servers would be: tonic's codec, and owned strings in the request.
#[derive(Clone)]
struct Rival;

impl tower::Service<Request<Body>> for Rival {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async {
            let codec = ProstCodec::<WriteResponse, WriteRequest>::default();
            Ok(tonic::server::Grpc::new(codec).unary(Count, request).await)
        })
    }
}

struct Count;

impl UnaryService<WriteRequest> for Count {
    type Response = WriteResponse;
    type Future = BoxFuture<'static, Result<tonic::Response<WriteResponse>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<WriteRequest>) -> Self::Future {
        black_box(request.get_ref().timeseries.len());
        Box::pin(async { Ok(tonic::Response::new(WriteResponse {})) })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp_ms: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WriteResponse {}
