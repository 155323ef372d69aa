//! Many streams, and readers and upstreams that do not read: what is held stays bounded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use freehold::units::Millis;
use freehold::upstream::config::UpstreamConfig;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;
use tokio::sync::Semaphore;

use super::QUERY;
use super::fake::{
    Client, Edge, Fake, Shared, Speech, answer_ok, config, finish, framed, head, head_with,
    ok_head, ok_trailers, patiently, piece,
};

#[tokio::test]
async fn a_thousand_streams_fit_an_upstream_that_allows_a_hundred_per_connection() {
    const STREAMS: usize = 1000;
    let gate = Arc::new(Semaphore::new(0));
    let open = Arc::new(AtomicUsize::new(0));
    let (opened, held) = (Arc::clone(&open), Arc::clone(&gate));
    let speech = Speech { streams_max: Some(100), ..Speech::default() };
    let fake = Fake::speaking(
        speech,
        ([127, 0, 0, 1], 0).into(),
        move |request, mut respond: SendResponse<Bytes>| {
            let (opened, held) = (Arc::clone(&opened), Arc::clone(&held));
            async move {
                let mut send = respond.send_response(ok_head(), false).expect("send");
                opened.fetch_add(1, Ordering::SeqCst);
                send.send_data(framed(b"here"), false).expect("send");
                held.acquire().await.expect("open").forget();
                send.send_trailers(ok_trailers()).expect("send");
                drop::<Request<RecvStream>>(request);
            }
        },
    )
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let mut one = client.open(head("/a.B/C")).await;
        one.send.send_data(framed(b"hello"), true).expect("send");
        streams.push(one);
    }
    let mut responses = Vec::new();
    for mut one in streams {
        let mut response = patiently(&mut one.response).await.expect("response");
        piece(response.body_mut()).await;
        responses.push(response);
    }
    assert_eq!(open.load(Ordering::SeqCst), STREAMS, "all at once");
    assert_eq!(fake.connections.load(Ordering::SeqCst), STREAMS / 100);
    gate.add_permits(STREAMS);
    for response in responses {
        assert_eq!(finish(response).await.code(), "0");
    }
}

#[tokio::test]
async fn calls_wait_for_a_stream_when_all_connections_are_full_and_not_beyond_their_deadline() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let speech = Speech { streams_max: Some(2), ..Speech::default() };
    let fake = Fake::speaking(speech, ([127, 0, 0, 1], 0).into(), move |request, respond| {
        let held = Arc::clone(&held);
        async move {
            held.acquire().await.expect("open").forget();
            answer_ok(request, respond).await;
        }
    })
    .await;
    let edge = Edge::with(&UpstreamConfig { max_connections: 2, ..config(fake.address) }).await;
    let mut client = Client::connect(edge.address).await;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let mut one = client.open(head("/a.B/C")).await;
        one.send.send_data(framed(b"hello"), true).expect("send");
        waiting.push(one.response);
    }
    let late = client.call(head_with("/a.B/C", "grpc-timeout", "200m"), framed(b"")).await;
    assert_eq!(late.code(), "4", "{}", late.text());
    assert_eq!(fake.connections.load(Ordering::SeqCst), 2);
    gate.add_permits(8);
    for response in waiting {
        let ended = finish(patiently(response).await.expect("response")).await;
        assert_eq!(ended.code(), "0", "each one that waited got its turn");
    }
    assert_eq!(fake.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn case_d8_what_is_over_the_bounds_fails_at_once() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let fake = Fake::start(move |request, respond| {
        let held = Arc::clone(&held);
        async move {
            held.acquire().await.expect("open").forget();
            answer_ok(request, respond).await;
        }
    })
    .await;
    let edge =
        Edge::with(&UpstreamConfig { max_inflight_requests: 3, ..config(fake.address) }).await;
    let mut client = Client::connect(edge.address).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut one = client.open(head(QUERY)).await;
        one.send.send_data(framed(b"hello"), true).expect("send");
        waiting.push(one.response);
    }
    // Calls of one connection are served in their order, so the three have been counted.
    let refused = client.call(head(QUERY), framed(b"")).await;
    assert_eq!(refused.code(), "14");
    let expect = format!("too much under way to upstream {}: requests of 3", fake.address);
    assert_eq!(refused.text(), expect);
    gate.add_permits(10);
    for response in waiting {
        assert_eq!(finish(patiently(response).await.expect("response")).await.code(), "0");
    }
    assert_eq!(client.call(head(QUERY), framed(b"")).await.code(), "0", "there is room again");
}

/// Sends pieces of 16 KiB for as long as they are taken, and counts them.
async fn flood(mut send: h2::SendStream<Bytes>, sent: Arc<AtomicUsize>) {
    const PIECE: usize = 16 << 10;
    let bytes = Bytes::from(vec![7; PIECE]);
    loop {
        send.reserve_capacity(PIECE);
        while send.capacity() < PIECE {
            match std::future::poll_fn(|cx| send.poll_capacity(cx)).await {
                Some(Ok(_)) => {}
                _ => return,
            }
        }
        if send.send_data(bytes.clone(), false).is_err() {
            return;
        }
        sent.fetch_add(PIECE, Ordering::SeqCst);
    }
}

/// Waits until `count` has stopped growing, and gives it.
async fn settled(count: &AtomicUsize) -> usize {
    patiently(async {
        let mut last = count.load(Ordering::SeqCst);
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = count.load(Ordering::SeqCst);
            if now == last && now > 0 {
                return now;
            }
            last = now;
        }
    })
    .await
}

#[tokio::test]
async fn a_reader_that_does_not_read_stops_its_stream_and_nobody_else() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let fake =
        Fake::start(move |request: Request<RecvStream>, mut respond: SendResponse<Bytes>| {
            let counted = Arc::clone(&counted);
            async move {
                if request.uri().path() == QUERY {
                    let send = respond.send_response(ok_head(), false).expect("send");
                    flood(send, counted).await;
                } else {
                    answer_ok(request, respond).await;
                }
            }
        })
        .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    let mut stalled = Vec::new();
    const READERS: usize = 20;
    for _ in 0..READERS {
        // A window of their own each: on one connection the first would stop the others.
        let mut reader = Client::connect(edge.address).await;
        let mut one = reader.open(head(QUERY)).await;
        one.send.send_data(framed(b"query"), true).expect("send");
        stalled.push(patiently(one.response).await.expect("response"));
    }
    let held = settled(&sent).await;
    // Per stream: the window to the upstream, the edge's send buffer, the reader's window.
    assert!(held <= READERS * (1 << 20), "{held} bytes are on their way");
    let answer = client.call(head("/a.B/C"), framed(b"hello")).await;
    assert_eq!(answer.code(), "0", "others go on");
    // A reader that reads on gets on.
    let mut body = stalled.pop().expect("one").into_body();
    let mut read = 0;
    while read < 4 << 20 {
        read += piece(&mut body).await.len();
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_read_stops_its_sender_and_nobody_else() {
    let kept: Shared<Vec<RecvStream>> = Arc::new(Mutex::default());
    let keep = Arc::clone(&kept);
    let fake =
        Fake::start(move |request: Request<RecvStream>, mut respond: SendResponse<Bytes>| {
            let keep = Arc::clone(&keep);
            async move {
                if request.uri().path() == QUERY {
                    keep.lock().expect("lock").push(request.into_body());
                    let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                } else {
                    answer_ok(request, respond).await;
                }
            }
        })
        .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    let sent = Arc::new(AtomicUsize::new(0));
    let mut one = client.open(head(QUERY)).await;
    let flooding = tokio::spawn(flood(one.send, Arc::clone(&sent)));
    let held = settled(&sent).await;
    assert!(held <= 2 << 20, "{held} bytes are on their way");
    // The upstream's own connection window is full; calls to it need another connection only
    // when streams run out, so only those without a body to speak of can be answered. What is
    // under test is our side: the client's other calls still reach us.
    let answer = client.call(head("/cortex.Ingester/Push"), framed(b"")).await;
    assert_ne!(answer.code(), "0", "no tenant, so it was read and refused");
    assert!(futures_util::FutureExt::now_or_never(&mut one.response).is_none());
    flooding.abort();
}

#[tokio::test]
async fn a_dead_call_leaves_no_stream_behind() {
    let speech = Speech { streams_max: Some(5), ..Speech::default() };
    let fake = Fake::speaking(
        speech,
        ([127, 0, 0, 1], 0).into(),
        |request: Request<RecvStream>, mut respond: SendResponse<Bytes>| async move {
            if request.uri().path() == "/a.B/Stuck" {
                let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            } else {
                answer_ok(request, respond).await;
            }
        },
    )
    .await;
    let edge = Edge::with(&UpstreamConfig {
        max_connections: 1,
        connect_timeout: Millis::from_secs(5),
        ..config(fake.address)
    })
    .await;
    let mut client = Client::connect(edge.address).await;
    for _ in 0..20 {
        let stuck = client.call(head_with("/a.B/Stuck", "grpc-timeout", "20m"), framed(b"")).await;
        assert_eq!(stuck.code(), "4");
    }
    for _ in 0..20 {
        assert_eq!(client.call(head("/a.B/C"), framed(b"")).await.code(), "0");
    }
    assert_eq!(fake.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn however_a_deadline_falls_the_answer_is_that_it_is_exceeded() {
    // A server library that keeps deadlines too won this race one time in ten, with CANCELLED.
    let fake = Fake::start(|_request, mut respond: SendResponse<Bytes>| async move {
        let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
    })
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    for round in 0..300_u32 {
        let timeout = format!("{}u", 500 + round * 7);
        let stuck = client.call(head_with("/a.B/Stuck", "grpc-timeout", &timeout), framed(b""));
        assert_eq!(stuck.await.code(), "4", "after {timeout}");
    }
}
