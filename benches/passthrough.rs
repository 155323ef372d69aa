//! CPU that passing query streams through costs, against a plain TCP proxy in the same run.
//!
//! An upstream sends messages of 256 KiB in DATA frames of 16 KiB, as Go does, on eight streams
//! at once; a client reads them. Between them stands the edge, or a proxy that copies bytes and
//! knows nothing. Upstream, middle and client have a thread each; what is compared is the
//! kernel's count of the middle's CPU time. Rounds are interleaved, since machines have slow and
//! fast phases.
//!
//! `cargo bench --bench passthrough`, with `-- --long` for numbers worth keeping; `--test` only
//! proves that it runs.
#![expect(clippy::disallowed_methods, reason = "the bench drives its connections to their end")]

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use freehold::server::seam::{IngesterCalls, Pushed, UserStats};
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use edge::runtime;

#[path = "shared/mod.rs"]
mod shared;

#[path = "shared/edge.rs"]
mod edge;

/// Query streams at once, on one connection.
const STREAMS: usize = 8;
const MESSAGE_BYTES: usize = 256 << 10;
/// What grpc-go writes at most into one frame.
const FRAME_BYTES: usize = 16 << 10;
/// Neither end is to be what is waited for.
const WINDOW_BYTES: u32 = 16 << 20;
/// The proxy's buffer in each direction; the library's default of 8 KiB would double its cost.
const PROXY_BUFFER_BYTES: usize = 64 << 10;
const MIDDLE_THREAD: &str = "bench-middle";
const MIB: usize = 1 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (rounds, stream_bytes) = match (shared::is_test(), has("--long")) {
        (true, _) => (1, MIB),
        (_, true) => (15, 64 * MIB),
        _ => (5, 16 * MIB),
    };
    let (upstream, middle, client) =
        (runtime("bench-upstream"), runtime(MIDDLE_THREAD), runtime("bench-client"));
    let behind = upstream.block_on(start_upstream(stream_bytes));
    let runs = [
        ("pass-through", middle.block_on(start_edge(behind))),
        ("TCP proxy", middle.block_on(start_proxy(behind))),
    ];
    let total_gib = (STREAMS * stream_bytes) as f64 / (1 << 30) as f64;
    println!("{STREAMS} streams of {} MiB, frames of {FRAME_BYTES} bytes", stream_bytes / MIB);

    let mut seconds_per_gib = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        for ((_, address), seconds) in runs.iter().zip(&mut seconds_per_gib) {
            let before = edge::cpu_ns(MIDDLE_THREAD);
            let read = client.block_on(query(*address));
            assert_eq!(read, STREAMS * stream_bytes, "all of it, and no more");
            seconds.push((edge::cpu_ns(MIDDLE_THREAD) - before) as f64 / 1e9 / total_gib);
        }
    }
    let mut medians = [0.0; 2];
    for (((name, _), seconds), median) in runs.iter().zip(&mut seconds_per_gib).zip(&mut medians) {
        seconds.sort_by(f64::total_cmp);
        *median = seconds[seconds.len() / 2];
        let (gib, least) = (1.0 / *median, seconds[0]);
        println!(
            "{name:14} {median:6.3} CPU s per GiB (least {least:.3}), {gib:5.2} GiB/s per core"
        );
    }
    println!("pass-through / TCP proxy: {:.2}", medians[0] / medians[1]);
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

/// Answers every call with a stream of messages. All servers run until the process ends.
async fn start_upstream(stream_bytes: usize) -> SocketAddr {
    let (listener, address) = listen().await;
    let mut message = BytesMut::with_capacity(MESSAGE_BYTES);
    message.put_u8(0);
    message.put_u32(u32::try_from(MESSAGE_BYTES - 5).expect("short"));
    message.put_bytes(7, MESSAGE_BYTES - 5);
    let message = message.freeze();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("accept");
            stream.set_nodelay(true).expect("nodelay");
            let message = message.clone();
            tokio::spawn(async move {
                let connection = h2::server::Builder::new()
                    .initial_window_size(WINDOW_BYTES)
                    .initial_connection_window_size(WINDOW_BYTES)
                    .max_concurrent_streams(100)
                    .handshake::<_, Bytes>(stream);
                let mut connection = connection.await.expect("handshake");
                while let Some(Ok((_, respond))) = connection.accept().await {
                    tokio::spawn(send_messages(respond, message.clone(), stream_bytes));
                }
            });
        }
    });
    address
}

async fn send_messages(mut respond: SendResponse<Bytes>, message: Bytes, stream_bytes: usize) {
    let head = Response::builder().header("content-type", "application/grpc").body(());
    let mut send = respond.send_response(head.expect("a head"), false).expect("send");
    let mut left = stream_bytes;
    while left > 0 {
        let mut rest = message.clone();
        while !rest.is_empty() {
            let frame = rest.split_to(FRAME_BYTES);
            send.reserve_capacity(frame.len());
            while send.capacity() < frame.len() {
                let more = std::future::poll_fn(|cx| send.poll_capacity(cx)).await;
                more.expect("open").expect("capacity");
            }
            send.send_data(frame, false).expect("send");
        }
        left -= message.len();
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    send.send_trailers(trailers).expect("send");
}

async fn start_edge(upstream: SocketAddr) -> SocketAddr {
    let ingester = IngesterCalls {
        push: Arc::new(|_, _| Ok(Pushed::default())),
        judge: Arc::new(|_, _| unreachable!("no push is sent")),
        user_stats: Arc::new(|_| UserStats::default()),
        all_user_stats: Arc::new(Vec::new),
    };
    edge::start(ingester, Some(upstream)).await
}

async fn start_proxy(upstream: SocketAddr) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.expect("accept");
            let mut far = TcpStream::connect(upstream).await.expect("connect");
            near.set_nodelay(true).and(far.set_nodelay(true)).expect("nodelay");
            tokio::spawn(async move {
                let buffer = PROXY_BUFFER_BYTES;
                let copied = tokio::io::copy_bidirectional_with_sizes;
                let _ = copied(&mut near, &mut far, buffer, buffer).await;
            });
        }
    });
    address
}

/// Reads all streams of one connection to their ends; how many bytes there were.
async fn query(address: SocketAddr) -> usize {
    let stream = TcpStream::connect(address).await.expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let (requests, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake::<_, Bytes>(stream)
        .await
        .expect("handshake");
    let driver = tokio::spawn(connection);
    let mut reading = Vec::new();
    for _ in 0..STREAMS {
        let request = Request::post("http://localhost/cortex.Ingester/QueryStream")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("a request");
        let mut requests = requests.clone().ready().await.expect("connection");
        let (response, mut send) = requests.send_request(request, false).expect("send");
        send.send_data(Bytes::from_static(&[0; 5]), true).expect("send");
        reading.push(tokio::spawn(async move {
            let mut body = response.await.expect("response").into_body();
            let mut read = 0;
            while let Some(piece) = body.data().await {
                let piece = piece.expect("data");
                body.flow_control().release_capacity(piece.len()).expect("capacity");
                read += piece.len();
            }
            let trailers = body.trailers().await.expect("trailers").expect("some");
            assert_eq!(trailers["grpc-status"], "0");
            read
        }));
    }
    let mut read = 0;
    for stream in reading {
        read += stream.await.expect("no panic");
    }
    driver.abort();
    read
}
