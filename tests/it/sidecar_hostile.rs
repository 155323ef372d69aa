//! Peers of a sidecar that do what no sound peer does: upstreams that answer twice, in pieces or
//! with garbage, clients that vanish, flood, or never read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use freehold::server::stream_auth::StreamKeys;
use freehold::wire::proto::cortexpb;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use prost::Message as _;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::cluster::request;
use super::pass_through::fake::{
    Client, Fake, Speech, channel, cut, framed, head, head_with, ok_head, ok_trailers, patiently,
};
use super::sidecar::{PUSH, PUSH_STREAM, Sidecar, Stream, TENANT, WORKER};
use super::upstream::ingester::UpstreamIngester;

/// The next frame of a request; `None` at its end or its break.
async fn next_frame(body: &mut RecvStream, held: &mut BytesMut) -> Option<Bytes> {
    loop {
        if let Some(frame) = cut(held) {
            return Some(frame);
        }
        let chunk = body.data().await?.ok()?;
        body.flow_control().release_capacity(chunk.len()).ok()?;
        held.extend_from_slice(&chunk);
    }
}

/// An answer of a stream whose text says to which message it belongs.
fn answer_to(frame: &Bytes) -> Bytes {
    let answer = cortexpb::WriteResponse {
        code: 200,
        message: format!("{} bytes", frame.len()),
        ..Default::default()
    };
    framed(&answer.encode_to_vec())
}

/// What questions of the sidecar's own get: nothing, and OK.
async fn answer_empty(mut respond: SendResponse<Bytes>) {
    let Ok(mut send) = respond.send_response(ok_head(), false) else { return };
    let _ = send.send_data(framed(b""), false);
    let _ = send.send_trailers(ok_trailers());
}

/// An upstream whose push streams answer each message with what `say` makes of it and of how
/// many came before it; a stream ends, in order, after `None`.
async fn streams<F>(say: F) -> (Fake, Arc<AtomicUsize>)
where
    F: Fn(usize, &Bytes) -> Option<Bytes> + Clone + Send + Sync + 'static,
{
    let opened = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&opened);
    let messages = Arc::new(AtomicUsize::new(0));
    let fake = Fake::start(move |request: Request<RecvStream>, mut respond| {
        let (say, counted, messages) = (say.clone(), Arc::clone(&counted), Arc::clone(&messages));
        async move {
            if request.uri().path() != PUSH_STREAM {
                return answer_empty(respond).await;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            let (mut body, mut held) = (request.into_body(), BytesMut::new());
            let mut send = None;
            while let Some(frame) = next_frame(&mut body, &mut held).await {
                let at = messages.fetch_add(1, Ordering::SeqCst);
                if send.is_none() {
                    send = respond.send_response(ok_head(), false).ok();
                }
                let Some(open) = &mut send else { return };
                let Some(answer) = say(at, &frame) else {
                    let _ = open.send_trailers(ok_trailers());
                    // Its end is said, and its ear stays open: no reset follows.
                    while next_frame(&mut body, &mut held).await.is_some() {}
                    return;
                };
                let _ = open.send_data(answer, false);
            }
        }
    })
    .await;
    (fake, opened)
}

#[tokio::test]
async fn an_upstream_that_answers_twice_does_not_answer_the_next_message() {
    let (fake, opened) =
        streams(|_, frame| Some([answer_to(frame), answer_to(frame)].concat().into())).await;
    let mut sidecar = Sidecar::before(fake.address, 0).await.running().await;
    let mut stream = Stream::on(&mut sidecar.client).await;
    let mut texts = Vec::new();
    for count in [1, 20, 3, 40] {
        let answer = stream.exchange(0..count).await;
        assert_eq!(answer.code, 200, "{answer:?}");
        texts.push(answer.message);
    }
    let different: std::collections::BTreeSet<_> = texts.iter().collect();
    assert_eq!(different.len(), 4, "each its own: {texts:?}");
    assert_eq!(opened.load(Ordering::SeqCst), 4, "what spoke out of turn is not used again");
}

#[tokio::test]
async fn an_upstream_stream_that_ended_in_order_costs_no_further_message() {
    // Its third message finds it at its end; later ones find another stream.
    let (fake, opened) = streams(|at, frame| (at % 3 != 2).then(|| answer_to(frame))).await;
    let mut sidecar = Sidecar::before(fake.address, 0).await.running().await;
    let mut stream = Stream::on(&mut sidecar.client).await;
    let mut codes = Vec::new();
    for _ in 0..9 {
        codes.push(stream.exchange(0..2).await.code);
    }
    assert_eq!(codes, [200, 200, 503, 200, 200, 503, 200, 200, 503]);
    assert_eq!(opened.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn garbage_for_an_answer_is_a_503_and_the_next_message_finds_a_new_stream() {
    let (fake, _) = streams(|at, frame| {
        Some(match at {
            0 => Bytes::from_static(&[7, 0, 0, 0, 0]),
            1 => Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]),
            2 => Bytes::from_static(&[1, 0, 0, 0, 1, 9]),
            3 => framed(&[0xff; 30]),
            _ => answer_to(frame),
        })
    })
    .await;
    let mut sidecar = Sidecar::before(fake.address, 0).await.running().await;
    let mut stream = Stream::on(&mut sidecar.client).await;
    for _ in 0..4 {
        let answer = stream.exchange(0..2).await;
        assert_eq!(answer.code, 503, "{answer:?}");
    }
    assert_eq!(sidecar.in_memory(), 2, "they may be stored, so they count");
    assert_eq!(stream.exchange(0..2).await.code, 200);
    assert_eq!((sidecar.in_memory(), sidecar.pending().await), (2, 0.0));
}

/// What an upstream does to a call in place of an answer, by the tenant's number.
async fn failing() -> Fake {
    let turn = Arc::new(AtomicUsize::new(0));
    Fake::start(move |request: Request<RecvStream>, mut respond: SendResponse<Bytes>| {
        let turn = Arc::clone(&turn);
        async move {
            if !matches!(request.uri().path(), PUSH | PUSH_STREAM) {
                return answer_empty(respond).await;
            }
            let status = |code: &str, text: &str| {
                Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-status", code)
                    .header("grpc-message", text)
                    .body(())
                    .expect("a head")
            };
            match turn.fetch_add(1, Ordering::SeqCst) {
                0 => respond.send_reset(Reason::REFUSED_STREAM),
                1 => drop(respond.send_response(status("14", "50%25 gone"), true)),
                2 => respond.send_reset(Reason::CANCEL),
                _ => drop(respond.send_response(status("13", "panic%3A %C3%BC"), true)),
            }
        }
    })
    .await
}

#[tokio::test]
async fn what_was_surely_not_stored_leaves_nothing_and_the_rest_counts() {
    for is_stream in [false, true] {
        let fake = failing().await;
        let mut sidecar = Sidecar::before(fake.address, 0).await.running().await;
        let mut stream = Stream::on(&mut sidecar.client).await;
        let mut found = Vec::new();
        for turn in 0..4_u64 {
            let text = match is_stream {
                true => stream.exchange(turn * 10..turn * 10 + 2).await.message,
                false => sidecar.push(turn * 10..turn * 10 + 2).await.1,
            };
            found.push((text, sidecar.in_memory()));
        }
        assert_eq!(found.iter().map(|(_, count)| *count).collect::<Vec<_>>()[..3], [0, 0, 2]);
        assert_eq!(found[1].0, "50% gone");
        assert_eq!(found[3].0, "panic: ü");
        // A stream's own end says less than the answer to a call.
        assert_eq!(found[3].1, if is_stream { 4 } else { 2 });
    }
}

#[tokio::test]
async fn an_oversized_answer_to_a_push_is_an_error_and_not_half_of_it() {
    let fake =
        Fake::start(|request: Request<RecvStream>, mut respond: SendResponse<Bytes>| async move {
            if request.uri().path() != PUSH {
                return answer_empty(respond).await;
            }
            let mut send = respond.send_response(ok_head(), false).expect("send");
            let _ = send.send_data(framed(&[0; 3 << 20]), false);
            let _ = send.send_trailers(ok_trailers());
            std::future::pending::<()>().await;
        })
        .await;
    let mut sidecar = Sidecar::before(fake.address, 0).await.running().await;
    let (code, text) = sidecar.push(0..2).await;
    assert_eq!(code, "8", "{text}");
    assert!(text.contains("more than 1048576 bytes"), "{text}");
    sidecar.until_idle().await;
}

/// Clients that give up at any moment: whatever they held is settled, and by the next push told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_vanish_at_any_moment_leave_nothing_under_way() {
    let upstream = UpstreamIngester::start().await;
    upstream.knobs().push_delay = Duration::from_millis(2);
    let mut sidecar = Sidecar::before(upstream.address, 0).await.running().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(sidecar.push(0..1).await.0, "0");
    sidecar.until_idle().await;
    let before = tasks();
    let mut rng = SmallRng::seed_from_u64(1);
    for round in 0..300_u64 {
        let mut client = Client::connect(sidecar.app.grpc_address).await;
        let series = round * 4..round * 4 + 6;
        let frame = framed(&request(series.clone(), 1_000));
        let wait = Duration::from_micros(rng.random_range(0..5_000));
        match round % 3 {
            0 => {
                let mut open = client.open(head_with(PUSH, "x-scope-orgid", TENANT)).await;
                open.send.send_data(frame, true).expect("send");
                tokio::time::sleep(wait).await;
                open.send.send_reset(Reason::CANCEL);
            }
            1 => {
                // Half a message is all that comes.
                let mut open = client.open(head_with(PUSH, "x-scope-orgid", TENANT)).await;
                let part = frame.slice(..rng.random_range(1..frame.len()));
                open.send.send_data(part, false).expect("send");
                tokio::time::sleep(wait).await;
            }
            _ => {
                let mut stream = Stream::on(&mut client).await;
                stream.send(series.clone());
                stream.send(series);
                tokio::time::sleep(wait).await;
                stream.open.send.send_reset(Reason::CANCEL);
            }
        }
    }
    sidecar.until_idle().await;
    // Whatever is undecided is decided by the next push that comes through.
    for from in (0..1_300).step_by(100) {
        assert_eq!(sidecar.push(from..from + 100).await.0, "0");
    }
    assert_eq!((sidecar.in_memory(), sidecar.pending().await), (upstream.count(TENANT), 0.0));
    sidecar.until_idle().await;
    let gone = async {
        while tasks() > before + 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(20), gone).await.is_ok(),
        "{before} tasks before, {} after",
        tasks()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_streams_that_send_nothing_cost_the_upstream_nothing() {
    let upstream = UpstreamIngester::start().await;
    let mut sidecar = Sidecar::before(upstream.address, 0).await.running().await;
    let mut client = Client::connect(sidecar.app.grpc_address).await;
    let mut streams = Vec::new();
    for _ in 0..1000 {
        streams.push(Stream::on(&mut client).await);
    }
    assert_eq!(sidecar.push(0..1).await.0, "0");
    assert_eq!(upstream.calls(PUSH_STREAM), 0);
    assert_eq!(streams[999].exchange(1..2).await.code, 200);
    assert_eq!(upstream.calls(PUSH_STREAM), 1);
    drop((streams, client));
    sidecar.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_per_connection_is_enough_for_many() {
    let upstream = Fake::speaking(
        Speech { streams_max: Some(1), ..Speech::default() },
        ([127, 0, 0, 1], 0).into(),
        |request: Request<RecvStream>, mut respond: SendResponse<Bytes>| async move {
            if request.uri().path() != PUSH_STREAM {
                return answer_empty(respond).await;
            }
            let (mut body, mut held) = (request.into_body(), BytesMut::new());
            let Ok(mut send) = respond.send_response(ok_head(), false) else { return };
            while let Some(frame) = next_frame(&mut body, &mut held).await {
                let _ = send.send_data(answer_to(&frame), false);
            }
        },
    )
    .await;
    let mut sidecar = Sidecar::before(upstream.address, 0).await.running().await;
    let mut streams = Vec::new();
    for number in 0..50 {
        let mut stream = Stream::on(&mut sidecar.client).await;
        stream.send([number]);
        streams.push(stream);
    }
    for stream in &mut streams {
        assert_eq!(stream.answer().await.expect("an answer").code, 200);
    }
}

#[tokio::test]
async fn messages_that_are_none_are_refused_in_order_and_damaged_frames_end_the_stream() {
    let upstream = UpstreamIngester::start().await;
    let mut sidecar = Sidecar::before(upstream.address, 0).await.running().await;
    let mut stream = Stream::on(&mut sidecar.client).await;
    let long = [b'x'; 200];
    for tenant in [&b""[..], b"a/b", b"..", b"\xff\xfe", &long] {
        stream.send(0..1);
        stream.send_for(tenant, 0..5);
        assert_eq!(stream.answer().await.expect("an answer").code, 200);
        let refusal = stream.answer().await.expect("an answer");
        assert!(refusal.code >= 400 && !refusal.message.is_empty(), "{refusal:?}");
    }
    for garbled in [&[0xff][..], &[0x0a, 0x05, b'a'], &[0x0a, 1, b'a', 0x12, 2, 0x0a, 0x7f]] {
        stream.send_bytes(framed(garbled));
        let refusal = stream.answer().await.expect("an answer");
        assert!(refusal.code >= 400, "{refusal:?}");
    }
    assert_eq!((sidecar.in_memory(), upstream.count(TENANT)), (1, 1));
    assert_eq!(stream.exchange(0..2).await.code, 200);
    // Not known where the next message would begin.
    stream.send_bytes(Bytes::from_static(&[1, 0, 0, 0, 1, 7]));
    assert!(stream.answer().await.is_none());
    assert_ne!(stream.ended().await, "0");

    let mut cut = Stream::on(&mut sidecar.client).await;
    cut.open.send.send_data(Bytes::from_static(&[0, 0, 0, 0, 9, 1]), true).expect("send");
    assert_ne!(cut.ended().await, "0", "cut in the middle of a message");
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_not_read_from_either() {
    let upstream = UpstreamIngester::start().await;
    let sidecar = Sidecar::before(upstream.address, 0).await.running().await;
    let stream = tokio::net::TcpStream::connect(sidecar.app.grpc_address).await.expect("connect");
    let mut builder = h2::client::Builder::new();
    // Room for some forty answers.
    builder.initial_window_size(400);
    let (client, connection) = builder.handshake::<_, Bytes>(stream).await.expect("handshake");
    let driving = tokio::spawn(connection);
    let mut client = client.ready().await.expect("ready");
    let head = head_with(PUSH_STREAM, "x-scope-orgid", WORKER);
    let (response, mut send) = client.send_request(head, false).expect("send");
    const MESSAGES: usize = 2_000;
    let message = cortexpb::StreamWriteRequest {
        tenant_id: TENANT.into(),
        request: Some(cortexpb::WriteRequest::decode(&request(0..2, 1_000)[..]).expect("sound")),
        ..Default::default()
    };
    let frame = framed(&message.encode_to_vec());
    for _ in 0..MESSAGES {
        send.send_data(frame.clone(), false).expect("send");
    }
    send.send_data(Bytes::new(), true).expect("send");
    let mut body = patiently(response).await.expect("a response").into_body();
    // Nothing more comes to be until something is read; a hundred looks are enough to see that.
    let mut answered = 0.0;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        answered = sidecar.metric("freehold_upstream_inflight_bytes").await;
    }
    assert_eq!(answered, 0.0, "nothing is held for it");
    let mut bytes = BytesMut::new();
    while let Some(chunk) = patiently(body.data()).await {
        let chunk = chunk.expect("data");
        body.flow_control().release_capacity(chunk.len()).expect("capacity");
        bytes.put_slice(&chunk);
    }
    let trailers = patiently(body.trailers()).await.expect("trailers").expect("trailers");
    assert_eq!(trailers["grpc-status"], "0");
    let mut answers = 0;
    while let Some(frame) = cut(&mut bytes) {
        assert_eq!(cortexpb::WriteResponse::decode(&frame[5..]).expect("sound").code, 200);
        answers += 1;
    }
    assert_eq!((answers, bytes.len()), (MESSAGES, 0), "each is answered once");
    driving.abort();
}

#[tokio::test]
async fn a_signed_stream_carries_its_signature_upstream_and_an_unsigned_one_goes_nowhere() {
    let (tell, mut told) = channel();
    let fake =
        Fake::start(move |request: Request<RecvStream>, mut respond: SendResponse<Bytes>| {
            let tell = tell.clone();
            async move {
                if request.uri().path() != PUSH_STREAM {
                    return answer_empty(respond).await;
                }
                tell(request.headers().clone());
                let (mut body, mut held) = (request.into_body(), BytesMut::new());
                let Ok(mut send) = respond.send_response(ok_head(), false) else { return };
                while let Some(frame) = next_frame(&mut body, &mut held).await {
                    let _ = send.send_data(answer_to(&frame), false);
                }
            }
        })
        .await;
    let sidecar = Sidecar::with(fake.address, |config| {
        config.distributor.sign_write_requests = true;
        config.distributor.sign_write_requests_keys =
            serde_json::from_str("\"key\"").expect("a text");
    });
    let mut sidecar = sidecar.await.running().await;
    let unsigned = Stream::on(&mut sidecar.client).await;
    assert_eq!(unsigned.ended().await, "2", "Cortex's code");
    let signature = StreamKeys::parse("key").sign(WORKER).expect("a key");
    let mut head = head_with(PUSH_STREAM, "x-scope-orgid", WORKER);
    head.headers_mut().insert("x-stream-signature", signature.parse().expect("a value"));
    let mut stream = Stream::over(sidecar.client.open(head).await);
    assert_eq!(stream.exchange(0..2).await.code, 200);
    let headers = told.recv().await.expect("opened");
    assert_eq!(headers["x-stream-signature"], signature.as_str());
    assert_eq!(headers["x-scope-orgid"], WORKER);
    assert!(told.try_recv().is_err(), "one stream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_answers_the_message_at_hand_and_ends_its_stream_with_an_error() {
    let upstream = UpstreamIngester::start().await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        config.ingester.drain_announce_period = freehold::units::Millis(0);
        config.server.graceful_shutdown_timeout = freehold::units::Millis::from_secs(10);
    });
    let mut sidecar = sidecar.await.running().await;
    let mut stream = Stream::on(&mut sidecar.client).await;
    assert_eq!(stream.exchange(0..1).await.code, 200);
    upstream.knobs().push_delay = Duration::from_millis(500);
    let calls = upstream.calls(PUSH_STREAM);
    stream.send(1..2);
    stream.send(2..3);
    while sidecar.metric("freehold_upstream_inflight_bytes").await == 0.0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let Sidecar { app, client, .. } = sidecar;
    let stopping = tokio::spawn(app.stop());
    assert_eq!(stream.answer().await.expect("the answer").code, 200);
    assert!(stream.answer().await.is_none(), "the next is not taken");
    assert_eq!(stream.ended().await, "14");
    assert_eq!(upstream.calls(PUSH_STREAM), calls);
    drop(client);
    patiently(stopping).await.expect("stops").expect("stops well");
    assert_eq!(upstream.count(TENANT), 2);
}

#[tokio::test]
async fn an_unknown_call_to_a_silent_upstream_ends_with_its_client() {
    let fake =
        Fake::start(|request: Request<RecvStream>, respond: SendResponse<Bytes>| async move {
            if matches!(request.uri().path(), "/a.B/C") {
                std::future::pending::<()>().await;
            }
            answer_empty(respond).await;
        })
        .await;
    let mut sidecar = Sidecar::before(fake.address, 0).await.running().await;
    let mut open = sidecar.client.open(head("/a.B/C")).await;
    open.send.send_data(framed(b"x"), true).expect("send");
    while sidecar.metric("freehold_upstream_streams").await == 0.0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    open.send.send_reset(Reason::CANCEL);
    sidecar.until_idle().await;
}
