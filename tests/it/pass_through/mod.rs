//! Calls through the edge to an upstream that records exactly what it got.

mod bounds;
mod breaks;
pub mod fake;
mod questions;
pub mod tls;

use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use tokio::sync::Notify;

use fake::{
    Client, Edge, Fake, answer_ok, channel, finish, framed, head, head_with, ok_head, ok_trailers,
    patiently, piece,
};

const HEALTH: &str = "/grpc.health.v1.Health/Check";
const QUERY: &str = "/cortex.Ingester/QueryStream";

#[derive(Debug, PartialEq)]
struct Got {
    path: String,
    headers: HeaderMap,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

async fn read(request: Request<RecvStream>) -> Got {
    let (head, mut stream) = request.into_parts();
    let mut body = Vec::new();
    while let Some(chunk) = stream.data().await {
        let chunk = chunk.expect("data");
        stream.flow_control().release_capacity(chunk.len()).expect("capacity");
        body.extend_from_slice(&chunk);
    }
    let trailers = stream.trailers().await.expect("trailers");
    Got { path: head.uri.path().to_owned(), headers: head.headers, body: body.into(), trailers }
}

/// A head as a distributor sends it, with names that repeat and whose order has a meaning.
fn cortex_head(path: &str) -> Request<()> {
    let mut head = head(path);
    let headers = head.headers_mut();
    for (name, value) in [
        ("user-agent", "grpc-go/1.82.1"),
        ("grpc-encoding", "snappy-block"),
        ("grpc-accept-encoding", "snappy,snappy-block,zstd,gzip"),
        ("grpc-timeout", "20S"),
        ("x-scope-orgid", "t1"),
        ("uber-trace-id", "1234567890abcdef:40a1dead0b856232:5b2b089db17cfb31:1"),
        ("x-request-metadata-propagation-string", "x-cortex-request-id"),
        ("x-request-metadata-propagation-string", "0b856232"),
        ("x-request-metadata-propagation-string", "x-cortex-request-source"),
        ("x-request-metadata-propagation-string", "api"),
        ("x-request-metadata-propagation-string", ""),
        ("extract-forwarded-x-forwarded-for", "10.1.2.3, 127.0.0.1"),
        ("x-some-bin", "AAEC/w"),
    ] {
        headers.append(name, value.parse().expect("a value"));
    }
    head
}

#[tokio::test]
async fn unary_calls_known_and_unknown_go_through_byte_for_byte() {
    let (tell, mut told) = channel();
    let fake = Fake::start(move |request, mut respond: SendResponse<Bytes>| {
        let tell = tell.clone();
        async move {
            tell(read(request).await);
            let head = Response::builder()
                .header("content-type", "application/grpc")
                .header("grpc-encoding", "snappy-block")
                .header("x-twice", "1")
                .header("x-twice", "2")
                .body(())
                .expect("a head");
            let mut send = respond.send_response(head, false).expect("send");
            send.send_data(Bytes::from_static(b"\0\0\0\0\x03abc"), false).expect("send");
            let mut trailers = ok_trailers();
            trailers.append("x-trailer", "b".parse().expect("a value"));
            trailers.append("x-trailer", "a".parse().expect("a value"));
            send.send_trailers(trailers).expect("send");
        }
    })
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    // Not even frames: what is passed is not looked into.
    let sent = Bytes::from((0..300_000_u32).map(|i| (i / 7 % 251) as u8).collect::<Vec<_>>());
    for path in [
        "/cortex.Ingester/AllUserStats",
        "/cortex.Ingester/UserStats",
        "/cortex.Ingester/LabelNames",
        "/cortex.Ingester/NotYetThought",
        "/some.Service/Method",
        HEALTH,
    ] {
        let head = cortex_head(path);
        let headers = head.headers().clone();
        let answer = client.call(head, sent.clone()).await;
        let got = told.recv().await.expect("called");
        assert_eq!(got.path, path);
        assert_eq!(got.headers, headers, "{path}: equal values in equal order, and no other");
        assert!(got.body == sent, "{path}: the body changed on its way");
        assert_eq!(got.trailers, None);
        let mut headers = answer.headers;
        headers.remove("date");
        let names: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["content-type", "grpc-encoding", "x-twice"], "{path}");
        assert_eq!(headers.get_all("x-twice").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(answer.body, "\0\0\0\0\x03abc");
        let trailers = answer.trailers.expect("trailers");
        assert_eq!(trailers["grpc-status"], "0");
        assert_eq!(trailers.get_all("x-trailer").iter().collect::<Vec<_>>(), ["b", "a"]);
    }
}

#[tokio::test]
async fn case_e2_a_refusal_in_trailers_only_keeps_its_code_text_and_details() {
    let fake = Fake::start(|request, mut respond: SendResponse<Bytes>| async move {
        read(request).await;
        let head = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "400")
            .header("grpc-message", "user=t1: per-user series limit of 5 exceeded, 100%25")
            .header("grpc-status-details-bin", "CJADEgN0MTog")
            .body(())
            .expect("a head");
        respond.send_response(head, true).expect("send");
    })
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    let response = patiently(async {
        let mut open = client.open(head(QUERY)).await;
        open.send.send_data(framed(b"query"), true).expect("send");
        open.response.await.expect("response")
    })
    .await;
    assert!(response.body().is_end_stream(), "one HEADERS frame and nothing else");
    let answer = finish(response).await;
    assert_eq!(answer.headers["grpc-status"], "400");
    assert_eq!(
        answer.headers["grpc-message"],
        "user=t1: per-user series limit of 5 exceeded, 100%25"
    );
    assert_eq!(answer.headers["grpc-status-details-bin"], "CJADEgN0MTog");
    assert_eq!(answer.trailers, None);
}

#[tokio::test]
async fn pieces_of_a_stream_come_as_they_are_sent_in_both_directions() {
    let fake = Fake::start(|request, mut respond: SendResponse<Bytes>| async move {
        let mut send = respond.send_response(ok_head(), false).expect("send");
        let mut body = request.into_body();
        while let Some(Ok(piece)) = body.data().await {
            body.flow_control().release_capacity(piece.len()).expect("capacity");
            send.send_data(piece, false).expect("send");
        }
        send.send_trailers(ok_trailers()).expect("send");
    })
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    let mut open = client.open(head("/some.Service/Chat")).await;
    // The head of the answer comes before the first piece is sent.
    let response = patiently(open.response).await.expect("response");
    let mut answers = response.into_body();
    for round in 0..20 {
        let sent = framed(format!("round {round}").as_bytes());
        open.send.send_data(sent.clone(), false).expect("send");
        assert_eq!(piece(&mut answers).await, sent, "answered before the next is sent");
    }
    open.send.send_data(Bytes::new(), true).expect("send");
    assert!(patiently(answers.data()).await.is_none());
    let trailers = patiently(answers.trailers()).await.expect("trailers").expect("some");
    assert_eq!(trailers["grpc-status"], "0");
}

#[tokio::test]
async fn a_client_that_gives_up_is_heard_by_the_upstream_at_every_stage() {
    let (tell, mut told) = channel();
    let started = Arc::new(Notify::new());
    let signal = Arc::clone(&started);
    let fake = Fake::start(move |request, mut respond: SendResponse<Bytes>| {
        let (tell, signal) = (tell.clone(), Arc::clone(&signal));
        async move {
            let path = request.uri().path().to_owned();
            if path != "/a.B/BeforeHead" {
                let mut send = respond.send_response(ok_head(), false).expect("send");
                send.send_data(framed(b"first"), false).expect("send");
                signal.notify_one();
                tell(std::future::poll_fn(|cx| send.poll_reset(cx)).await.expect("reset"));
            } else {
                signal.notify_one();
                tell(std::future::poll_fn(|cx| respond.poll_reset(cx)).await.expect("reset"));
            }
            drop(request);
        }
    })
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    // (path, whether the request has been sent whole)
    for (path, is_sent) in [
        ("/a.B/BeforeHead", true),
        ("/a.B/BeforeHead", false),
        ("/a.B/AfterHead", true),
        ("/a.B/AfterHead", false),
    ] {
        let mut open = client.open(head(path)).await;
        open.send.send_data(framed(b"question"), is_sent).expect("send");
        patiently(started.notified()).await;
        if path == "/a.B/AfterHead" {
            let mut answers = patiently(&mut open.response).await.expect("response").into_body();
            piece(&mut answers).await;
        }
        open.send.send_reset(Reason::CANCEL);
        drop(open);
        let reason = patiently(told.recv()).await.expect("told");
        assert_eq!(reason, Reason::CANCEL, "{path}, request sent whole: {is_sent}");
    }
    let answer = client.call(head_with(HEALTH, "grpc-timeout", "1n"), framed(b"")).await;
    assert_eq!(answer.code(), "4", "the connection goes on: {}", answer.text());
}

#[tokio::test]
async fn our_own_switch_says_not_serving_and_else_the_upstream_speaks() {
    let (tell, mut told) = channel();
    let fake = Fake::start(move |request: Request<RecvStream>, respond| {
        tell(request.uri().path().to_owned());
        answer_ok(request, respond)
    })
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    let answer = client.call(head(HEALTH), framed(b"")).await;
    assert_eq!(answer.body, framed(b"answer"), "the upstream's, whatever it says");
    assert_eq!(told.recv().await.as_deref(), Some(HEALTH));
    edge.health.set_serving(false).await;
    let answer = client.call(head(HEALTH), framed(b"")).await;
    assert_eq!(answer.body, framed(&[8, 2]), "status 2, NOT_SERVING");
    edge.health.set_serving(true).await;
    edge.health.end().await;
    edge.health.set_serving(true).await;
    let answer = client.call(head(HEALTH), framed(b"")).await;
    assert_eq!(answer.body, framed(&[8, 2]), "after the end is told nothing takes it back");
    assert!(told.try_recv().is_err(), "the upstream was asked once");
    let answer = client.call(head(QUERY), framed(b"query")).await;
    assert_eq!(answer.code(), "0", "calls are passed all the same");
}

#[tokio::test]
async fn a_push_of_which_nothing_is_left_ends_here() {
    let fake = Fake::start(|request: Request<RecvStream>, _| async move {
        panic!("called: {}", request.uri());
    })
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    let mut head = head("/cortex.Ingester/Push");
    head.headers_mut().insert("x-scope-orgid", "a".parse().expect("a value"));
    let answer = client.call(head, framed(b"")).await;
    assert_eq!(answer.code(), "0");
    assert_eq!(fake.connections.load(std::sync::atomic::Ordering::SeqCst), 0, "never dialled");
}

#[tokio::test]
async fn a_watch_of_health_ends_with_the_drain() {
    let fake =
        Fake::start(|request: Request<RecvStream>, mut respond: SendResponse<Bytes>| async move {
            let mut send = respond.send_response(ok_head(), false).expect("send");
            send.send_data(framed(&[8, 1]), false).expect("send");
            let _ = std::future::poll_fn(|cx| send.poll_reset(cx)).await;
            drop(request);
        })
        .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    let mut open = client.open(head("/grpc.health.v1.Health/Watch")).await;
    open.send.send_data(framed(b""), true).expect("send");
    let mut answers = patiently(open.response).await.expect("response").into_body();
    assert_eq!(piece(&mut answers).await, framed(&[8, 1]));
    edge.drainer.start();
    assert!(patiently(answers.data()).await.is_none());
    let trailers = patiently(answers.trailers()).await.expect("trailers").expect("some");
    assert_eq!(trailers["grpc-status"], "14");
}
