//! Questions of our own to the upstream.

use std::time::Duration;

use bytes::Bytes;
use freehold::upstream::{AskError, Upstream, UpstreamError};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Request, Response};
use prost::Message as _;

use super::fake::{Fake, channel, config, framed, ok_head, ok_trailers, patiently};
use super::read;

const ASK: &str = "/cortex.Ingester/AllUserStats";
const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Clone, PartialEq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

fn text(text: &str) -> Text {
    Text { text: text.to_owned() }
}

#[tokio::test]
async fn one_question_one_answer() {
    let (tell, mut told) = channel();
    let fake = Fake::start(move |request, mut respond: SendResponse<Bytes>| {
        let tell = tell.clone();
        async move {
            tell(read(request).await);
            let mut send = respond.send_response(ok_head(), false).expect("send");
            // In pieces that cut through head and message.
            let answer = framed(&text("an answer").encode_to_vec());
            for at in 0..answer.len() {
                send.send_data(answer.slice(at..=at), false).expect("send");
            }
            send.send_trailers(ok_trailers()).expect("send");
        }
    })
    .await;
    let upstream = Upstream::new(&config(fake.address)).expect("config");
    let answer: Text =
        patiently(upstream.ask(ASK, "t1", &text("a question"), DEADLINE)).await.expect("answer");
    assert_eq!(answer, text("an answer"));
    let got = told.recv().await.expect("asked");
    assert_eq!(got.path, ASK);
    assert_eq!(got.body, framed(&text("a question").encode_to_vec()));
    assert_eq!(got.headers["x-scope-orgid"], "t1");
    assert_eq!(got.headers["grpc-timeout"], "20000m");
    assert_eq!(got.headers["te"], "trailers");
    assert!(upstream.is_reachable());
}

#[tokio::test]
async fn many_answers_come_one_by_one_and_their_end_is_checked() {
    let fake =
        Fake::start(|request: Request<RecvStream>, mut respond: SendResponse<Bytes>| async move {
            let path = request.uri().path().to_owned();
            read(request).await;
            let mut send = respond.send_response(ok_head(), false).expect("send");
            let mut all = Vec::new();
            for i in 0..100 {
                all.extend_from_slice(&framed(&text(&format!("answer {i}")).encode_to_vec()));
            }
            send.send_data(all.into(), path == "/a.B/NoStatus").expect("send");
            let mut trailers = ok_trailers();
            match path.as_str() {
                "/a.B/NoStatus" => return,
                "/a.B/Cut" => send.send_data(framed(b"cut off").slice(..7), false).expect("send"),
                "/a.B/Failed" => {
                    trailers.insert("grpc-status", "503".parse().expect("a value"));
                    trailers.insert("grpc-message", "not%20now".parse().expect("a value"));
                }
                _ => {}
            }
            send.send_trailers(trailers).expect("send");
        })
        .await;
    let upstream = Upstream::new(&config(fake.address)).expect("config");
    let ask = async |path: &'static str| {
        let mut answers = upstream.ask_stream(path, "t1", &text("?"), DEADLINE).await?;
        let mut count = 0;
        while let Some(message) = answers.next().await? {
            assert_eq!(Text::decode(message)?, text(&format!("answer {count}")));
            count += 1;
        }
        Ok::<_, AskError>(count)
    };
    assert_eq!(patiently(ask("/a.B/Well")).await.expect("well"), 100);
    assert!(matches!(patiently(ask("/a.B/NoStatus")).await, Err(AskError::NoStatus)));
    assert!(matches!(patiently(ask("/a.B/Cut")).await, Err(AskError::Garbled { .. })));
    let failed = patiently(ask("/a.B/Failed")).await;
    assert!(
        matches!(&failed, Err(AskError::Status { code: 503, message }) if message == "not now"),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_refusal_in_the_head_a_long_message_and_silence_are_errors() {
    let fake =
        Fake::start(|request: Request<RecvStream>, mut respond: SendResponse<Bytes>| async move {
            match request.uri().path() {
                "/a.B/Refused" => {
                    let head = Response::builder()
                        .header("grpc-status", "12")
                        .header("grpc-message", "unknown method")
                        .body(())
                        .expect("a head");
                    respond.send_response(head, true).expect("send");
                }
                "/a.B/Long" => {
                    let mut send = respond.send_response(ok_head(), false).expect("send");
                    let long = Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]);
                    send.send_data(long, false).expect("send");
                    let _ = std::future::poll_fn(|cx| send.poll_reset(cx)).await;
                }
                _ => std::future::pending().await,
            }
        })
        .await;
    let upstream = Upstream::new(&config(fake.address)).expect("config");
    let ask = async |path: &'static str, deadline| {
        patiently(upstream.ask::<Text, Text>(path, "t1", &text("?"), deadline)).await
    };
    let refused = ask("/a.B/Refused", DEADLINE).await;
    assert!(matches!(refused, Err(AskError::Status { code: 12, .. })), "{refused:?}");
    let long = ask("/a.B/Long", DEADLINE).await;
    assert!(matches!(long, Err(AskError::TooLarge { .. })), "{long:?}");
    let silent = ask("/a.B/Silent", Duration::from_millis(50)).await;
    assert!(
        matches!(silent, Err(AskError::Upstream(UpstreamError::DeadlineExceeded { .. }))),
        "{silent:?}"
    );
}
