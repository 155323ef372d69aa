//! What the downstream says: framing, odd statuses, and answers that break off.

use std::time::Duration;

use freehold::units::Millis;

use super::front::{FRONTS, Front, Running};
use super::wire::{Answer, OK, Stub, Wire};
use super::{Gate, setup};

const GET: &[u8] = b"GET /g HTTP/1.1\r\nHost: g\r\n\r\n";

/// What a client hears of an answer, and then of the next on the same connection.
async fn told(
    front: Front,
    answer: &[u8],
    method: &str,
) -> (Option<Answer>, Option<Answer>, Stub, Running) {
    let stub = Stub::saying_once(answer).await;
    let running = front.start(stub.url()).await;
    let mut wire = running.connect().await;
    let request = running.request(&format!("{method} /g HTTP/1.1\r\nHost: g\r\n\r\n"));
    wire.write(request.as_bytes()).await;
    let first = wire.answer(method).await;
    wire.write(request.as_bytes()).await;
    let second = wire.answer(method).await;
    (first, second, stub, running)
}

/// The answer goes through as it is, and the connection is as good as before.
async fn check_whole(answer: &str, method: &str, status: u16, body: &str) -> Answer {
    let mut last = None;
    for front in FRONTS {
        let (first, second, _, _) = told(front, answer.as_bytes(), method).await;
        for one in [first, second] {
            let one = one.unwrap_or_else(|| panic!("no answer: {front:?} {answer:?}"));
            let got = (one.status, one.text(), one.is_whole);
            assert_eq!(got, (status, body, true), "{front:?} {answer:?}");
            last = Some(one);
        }
    }
    last.expect("there are fronts")
}

#[tokio::test]
async fn answers_of_every_framing_arrive_as_what_they_hold() {
    let ok = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}");
    check_whole(&ok("Content-Length: 5\r\n\r\nhello"), "GET", 200, "hello").await;
    check_whole(&ok("Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"), "GET", 200, "hello")
        .await;
    check_whole(&ok("Content-Length: 0\r\n\r\n"), "GET", 200, "").await;
    let chunked = |chunks: &str| ok(&format!("Transfer-Encoding: chunked\r\n\r\n{chunks}"));
    for chunks in [
        "5\r\nhello\r\n0\r\n\r\n",
        "2;ext=\"a;b\"\r\nhe\r\n3\r\nllo\r\n0;x\r\n\r\n",
        "0005\r\nhello\r\n00\r\n\r\n",
    ] {
        check_whole(&chunked(chunks), "GET", 200, "hello").await;
    }
    // To the end of the connection; the client is told the length by chunks.
    check_whole("HTTP/1.0 200 OK\r\n\r\nhello", "GET", 200, "hello").await;
    // Chunks win over a length, which is not handed on.
    let both = ok("Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    let answer = check_whole(&both, "GET", 200, "hello").await;
    assert_eq!(answer.header("content-length"), None);
    check_whole("HTTP/1.1 299 Odd Reason\r\nContent-Length: 1\r\n\r\nx", "GET", 299, "x").await;
    check_whole("HTTP/1.1 500 Oops\r\nContent-Length: 1\r\n\r\nx", "GET", 500, "x").await;
    check_whole(
        "HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nContent-Length: 1\r\n\r\nx",
        "GET",
        429,
        "x",
    )
    .await;
}

#[tokio::test]
async fn an_answer_may_come_byte_by_byte() {
    let stub = Stub::start(|mut wire, notes, _| async move {
        while let Some(seen) = wire.request().await {
            notes.add(seen);
            let answer = "HTTP/1.1 200 OK\r\nServer-Timing: a;dur=1\r\nTransfer-Encoding: chunked\r\n\r\n\
                          5;e\r\nhello\r\n6\r\n world\r\n0\r\nX-T: 1\r\n\r\n";
            wire.drip(answer.as_bytes()).await;
        }
    })
    .await;
    let gate = setup(stub.url()).start().await;
    let answer = gate.get("/g").await;
    assert_eq!((answer.text(), answer.is_whole), ("hello world", true));
    assert_eq!(answer.header("server-timing"), Some("a;dur=1"));
}

#[tokio::test]
async fn trailers_reach_who_asks_for_them() {
    let answer = "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                  2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n";
    let stub = Stub::saying(answer).await;
    let gate = setup(stub.url()).start().await;
    let asked =
        gate.ask("GET /g HTTP/1.1\r\nHost: g\r\nTE: trailers\r\nConnection: TE\r\n\r\n").await;
    assert_eq!((asked.text(), asked.trailers.as_str()), ("ok", "x-sum: 7\n"));
    let unasked = gate.get("/g").await;
    assert_eq!((unasked.text(), unasked.trailers.as_str(), unasked.is_whole), ("ok", "", true));
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let head = check_whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", 200, "").await;
    assert_eq!(head.header("content-length"), Some("5"), "that of what a GET would get");
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    check_whole(head, "HEAD", 200, "").await;
    check_whole("HTTP/1.1 204 No Content\r\n\r\n", "GET", 204, "").await;
    let none =
        check_whole("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "GET", 204, "").await;
    assert_eq!(none.header("content-length"), None);
    let same = "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 5\r\n\r\n";
    let same = check_whole(same, "GET", 304, "").await;
    assert_eq!(same.header("etag"), Some("\"a\""));
    // Bytes behind such a head are nobody's body, and nobody's next answer.
    for (method, head) in [
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello"),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        ),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
    ] {
        check_whole(head, method, head[9..12].parse().expect("a status"), "").await;
    }
}

#[tokio::test]
async fn what_comes_before_the_answer_is_passed_over() {
    for early in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
    ] {
        let answer = check_whole(&format!("{early}{OK}"), "GET", 200, "ok").await;
        assert_eq!(answer.header("link"), None);
    }
}

#[tokio::test]
async fn a_switch_of_protocols_that_nobody_asked_for_is_no_answer() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nraw";
    for front in FRONTS {
        let (answer, _, _, _) = told(front, switch.as_bytes(), "GET").await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 502, "{front:?} {}", answer.text());
        assert!(answer.text().contains("switched protocols"));
    }
}

#[tokio::test]
async fn headers_of_the_downstreams_connection_stay_there() {
    let answer = "HTTP/1.1 200 OK\r\nConnection: close, X-Foo\r\nX-Foo: 1\r\nKeep-Alive: timeout=5\r\n\
                  Proxy-Authenticate: Basic\r\nUpgrade: h2c\r\nX-Bar: 2\r\nDate: then\r\nContent-Length: 2\r\n\r\nok";
    let answer = check_whole(answer, "GET", 200, "ok").await;
    for gone in ["connection", "x-foo", "keep-alive", "proxy-authenticate", "upgrade"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
    assert_eq!((answer.header("x-bar"), answer.header("date")), (Some("2"), Some("then")));
}

#[tokio::test]
async fn compressed_bodies_go_through_byte_for_byte() {
    let gzip: Vec<u8> =
        (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nVary: Accept-Encoding\r\nContent-Length: {}\r\n\r\n",
        gzip.len()
    )
    .into_bytes();
    answer.extend_from_slice(&gzip);
    for front in FRONTS {
        let (first, second, _, _) = told(front, &answer, "GET").await;
        let first = first.expect("an answer");
        assert_eq!(first.header("content-encoding"), Some("gzip"));
        assert_eq!(first.header("vary"), Some("Accept-Encoding"));
        assert_eq!(first.header("content-length"), Some("100000"));
        assert!(first.body == gzip && second.expect("a second").body == gzip);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_never_looks_whole() {
    for start in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n-1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloFFFFFFFFFFFFFFFFFFF\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nFFFFFFFFFFFFFFFFF\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\nworld\r\n0\r\n\r\n",
    ] {
        for front in FRONTS {
            let (answer, second, _, running) = told(front, start.as_bytes(), "GET").await;
            // What breaks off at once takes its head along.
            if let Some(answer) = answer {
                assert_eq!((answer.status, answer.is_whole), (200, false), "{front:?} {start:?}");
                assert!("hello".starts_with(answer.text()), "{front:?} {start:?}");
            }
            assert!(second.is_none(), "nothing follows what broke: {front:?} {start:?}");
            let Some(gate) = &running.gate else { continue };
            let broken = [("outcome", "broken")];
            assert_eq!(gate.metric("freehold_query_downstream_requests_total", &broken), 1.0);
            super::until("nothing is under way", || gate.downstreams.in_flight() == 0).await;
        }
    }
}

#[tokio::test]
async fn answers_that_are_none_become_502() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(1000));
    for answer in [
        "",
        "garbage\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/3.0 200 OK\r\n\r\n",
        "<html>\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX Y: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\u{0}b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Len",
        long.as_str(),
        many.as_str(),
    ] {
        for front in FRONTS {
            let (told, _, stub, _) = told(front, answer.as_bytes(), "GET").await;
            let (told, shown) = (told.expect("an answer"), &answer[..answer.len().min(60)]);
            assert_eq!(told.status, 502, "{front:?} {shown:?} {}", told.text());
            let address = stub.address.to_string();
            assert!(told.text().contains(&address), "{front:?} {shown:?} {}", told.text());
        }
    }
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_is_not_the_next_ones() {
    // Right behind the first, and later, while the connection idles.
    for wait in [Duration::ZERO, Duration::from_millis(20)] {
        let stub = Stub::start(move |mut wire, notes, _| async move {
            while let Some(seen) = wire.request().await {
                let own = seen.line().contains("/second");
                notes.add(seen);
                let answer =
                    if own { OK } else { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst" };
                let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
                if own {
                    wire.write(answer.as_bytes()).await;
                } else if wait.is_zero() {
                    wire.write(format!("{answer}{evil}").as_bytes()).await;
                } else {
                    wire.write(answer.as_bytes()).await;
                    tokio::time::sleep(wait).await;
                    wire.write(evil.as_bytes()).await;
                }
            }
        })
        .await;
        let gate = setup(stub.url()).start().await;
        assert_eq!(gate.get("/first").await.text(), "first");
        tokio::time::sleep(wait * 2).await;
        assert_eq!(gate.get("/second").await.text(), "ok");
    }
}

/// Answers with `start` and then with `drip`, again and again.
async fn slow(start: &'static str, drip: &'static str) -> (Stub, Gate) {
    let stub = Stub::start(move |mut wire: Wire, notes, _| async move {
        notes.add(wire.request().await.expect("a request"));
        wire.write(start.as_bytes()).await;
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if !wire.write(drip.as_bytes()).await {
                return;
            }
        }
    })
    .await;
    let mut setup = setup(stub.url());
    setup.downstream.response_timeout = Millis(200);
    setup.downstream.idle_timeout = Millis(200);
    (stub, setup.start().await)
}

#[tokio::test]
async fn a_downstream_that_does_not_answer_is_given_up() {
    for (start, drip) in [("", ""), ("", "x"), ("HTTP/1.1 200 OK\r\nX: ", "y")] {
        let (stub, gate) = slow(start, drip).await;
        let answer = gate.get("/g").await;
        let expect: &[u16] = if start.is_empty() && drip == "x" { &[502, 504] } else { &[504] };
        assert!(expect.contains(&answer.status), "{start:?} {drip:?} {}", answer.text());
        assert!(answer.text().contains(&stub.address.to_string()));
        assert_eq!(gate.downstreams.in_flight(), 0);
        assert_eq!(stub.seen().len(), 1, "it is not asked twice");
    }
}

#[tokio::test]
async fn an_answer_that_stops_or_drips_is_broken_off() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello";
    for drip in ["", "x"] {
        let (_stub, gate) = slow(head, drip).await;
        let answer = gate.get("/g").await;
        assert_eq!((answer.status, answer.is_whole), (200, false), "{drip:?}");
        super::until("nothing is under way", || gate.downstreams.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn a_reader_that_has_gone_breaks_the_answer_off() {
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let stub = Stub::start(move |mut wire, notes, _| {
        let tell = tell.clone();
        async move {
            notes.add(wire.request().await.expect("a request"));
            wire.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
            while wire.write(chunk.as_bytes()).await {
                tokio::task::yield_now().await;
            }
            tell.send(()).await.expect("the test is there");
        }
    })
    .await;
    let gate = setup(stub.url()).start().await;
    let mut wire = gate.connect().await;
    wire.write(GET).await;
    assert!(wire.skip(10_000).await);
    wire.reset();
    let told = tokio::time::timeout(super::PATIENCE, told.recv()).await;
    assert!(told.is_ok(), "the downstream goes on for nobody");
    super::until("nothing is under way", || gate.downstreams.in_flight() == 0).await;
}
