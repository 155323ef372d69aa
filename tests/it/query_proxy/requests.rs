//! What clients send: framing, smuggling, heads and bodies of every shape.

use freehold::units::Millis;

use super::front::FRONTS;
use super::wire::{A_WHILE, OK, Stub};
use super::{Gate, setup};

async fn pair() -> (Stub, Gate) {
    let stub = Stub::saying(OK).await;
    let gate = setup(stub.url()).start().await;
    (stub, gate)
}

const TAIL: &str = "GET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n";

fn post(headers: &str, body: &str) -> String {
    format!("POST /p HTTP/1.1\r\nHost: g\r\n{headers}\r\n{body}")
}

#[tokio::test]
async fn a_request_goes_on_with_what_speaks_of_it_and_nothing_else() {
    let (stub, gate) = pair().await;
    let answer = gate
        .ask(
            "GET /api/v1/query?query=up&x=%20a+b HTTP/1.1\r\nHost: gate:80\r\nX-Scope-OrgID: a\r\n\
             Connection: close, x-foo\r\nX-Foo: 1\r\nTE: trailers\r\nUpgrade: websocket\r\n\
             Proxy-Authorization: Basic x\r\nProxy-Connection: close\r\nKeep-Alive: 5\r\n\
             Accept-Encoding: gzip, zstd\r\nX-Forwarded-For: 1.2.3.4\r\nVia: 1.1 edge\r\n\r\n",
        )
        .await;
    assert_eq!((answer.status, answer.text()), (200, "ok"));
    let seen = &stub.seen()[0];
    assert_eq!(seen.line(), "GET /api/v1/query?query=up&x=%20a+b HTTP/1.1");
    for gone in [
        "connection",
        "x-foo",
        "te",
        "upgrade",
        "proxy-authorization",
        "proxy-connection",
        "keep-alive",
        "content-length",
        "transfer-encoding",
    ] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    assert_eq!(seen.header("x-scope-orgid"), Some("a"));
    assert_eq!(seen.header("accept-encoding"), Some("gzip, zstd"), "it is not ours to choose");
    assert_eq!(seen.header("host"), Some(stub.address.to_string().as_str()));
    assert_eq!(seen.header("x-forwarded-host"), Some("gate:80"));
    assert_eq!(seen.header("x-forwarded-for"), Some("1.2.3.4, 127.0.0.1"));
    let vias: Vec<_> = seen.head.lines().filter(|line| line.starts_with("via: ")).collect();
    assert!(vias[0] == "via: 1.1 edge" && vias[1].starts_with("via: 1.1 freehold-"), "{vias:?}");
}

/// A request is answered with a status, and the downstream has seen so many whole requests, none
/// of them the one hidden in the body.
async fn check(request: &str, status: u16, whole: usize) {
    for front in FRONTS {
        let stub = Stub::saying(OK).await;
        let running = front.start(stub.url()).await;
        let mut wire = running.connect().await;
        wire.write(running.request(request).as_bytes()).await;
        let answer = wire.answer("GET").await.unwrap_or_else(|| panic!("no answer: {request:?}"));
        assert_eq!(answer.status, status, "{front:?} {request:?} {}", answer.text());
        // What follows a request that was refused is no request.
        if status != 200 {
            assert!(wire.is_closed().await, "{front:?} {request:?}");
        } else if whole == 2 {
            assert!(wire.answer("GET").await.is_some(), "{front:?} {request:?}");
        } else {
            assert!(wire.answer("GET").await.is_none(), "{front:?} {request:?}");
        }
        check_seen(&stub, request, whole);
    }
}

fn check_seen(stub: &Stub, request: &str, whole: usize) {
    let seen = stub.seen();
    let count = seen.iter().filter(|seen| seen.is_whole).count();
    assert_eq!(count, whole, "{request:?} {seen:?}");
    let is_smuggled = seen.iter().any(|seen| seen.line().contains("smuggled"));
    // It is one of its own only where the first had a plain end.
    assert!(!is_smuggled || whole == 2, "{request:?} {seen:?}");
    for seen in &seen {
        assert!(seen.count("content-length") + seen.count("transfer-encoding") <= 1, "{seen:?}");
    }
}

#[tokio::test]
async fn two_framings_at_once_smuggle_nothing() {
    // Chunks win, and the connection ends behind them, whatever comes.
    let both = "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n";
    check(&post(both, &format!("0\r\n\r\n{TAIL}")), 200, 1).await;
    let both = "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n";
    check(&post(both, &format!("0\r\n\r\n{TAIL}")), 200, 1).await;
    check(&post("Content-Length: 2\r\nContent-Length: 3\r\n", &format!("ab{TAIL}")), 400, 0).await;
    // The same twice is the same.
    let twice = "Content-Length: 2\r\nContent-Length: 2\r\nConnection: close\r\n";
    check(&post(twice, "ab"), 200, 1).await;
    check(&post("Content-Length: 2\r\n", &format!("ab{TAIL}")), 200, 2).await;
}

#[tokio::test]
async fn lengths_that_are_none_are_refused() {
    for length in ["+2", "-2", "0x2", "2,2", "2 2", "2a", "", "99999999999999999999", "1e1"] {
        check(&post(&format!("Content-Length: {length}\r\n"), &format!("ab{TAIL}")), 400, 0).await;
    }
    check(&post("Content-Length: \t 2 \t\r\nConnection: close\r\n", "ab"), 200, 1).await;
}

#[tokio::test]
async fn codings_that_we_do_not_take_off_are_refused() {
    let chunks = format!("0\r\n\r\n{TAIL}");
    for coding in ["xchunked", "chunked, identity", "identity", "\"chunked\"", "chunked;a=b", ""] {
        check(&post(&format!("Transfer-Encoding: {coding}\r\n"), &chunks), 400, 0).await;
    }
    for coding in ["gzip, chunked", "chunked, chunked", "chunked\r\nTransfer-Encoding: chunked"] {
        check(&post(&format!("Transfer-Encoding: {coding}\r\n"), &chunks), 501, 0).await;
    }
    for line in [
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\u{b}chunked",
        " Transfer-Encoding: chunked",
    ] {
        check(&post(&format!("{line}\r\n"), &chunks), 400, 0).await;
    }
    let old = format!("POST /p HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
    check(&old, 400, 0).await;
    check(
        &post("Transfer-Encoding: CHUNKED\r\nConnection: close\r\n", "2\r\nab\r\n0\r\n\r\n"),
        200,
        1,
    )
    .await;
}

#[tokio::test]
async fn heads_that_are_none_are_refused() {
    let get = |lines: &str| format!("GET /g HTTP/1.1\r\nHost: g\r\n{lines}\r\n{TAIL}");
    for lines in [
        "X Y: 1\r\n",
        "X\u{0}Y: 1\r\n",
        "X: a\u{0}b\r\n",
        "X: a\rb\r\n",
        ": 1\r\n",
        "X\r\n",
        "X: a\r\n b\r\n",
        "X: a\r\n\tb\r\n",
        " X: 1\r\n",
        "(): 1\r\n",
        "X: a\u{7f}b\r\n",
    ] {
        check(&get(lines), 400, 0).await;
    }
    for line in [
        "GET /g",
        "GET  /g HTTP/1.1",
        "GET /g HTTP/1.1 x",
        "GET /g HTTP/2.0",
        "GET /g HTTP/1.2",
        "GET /g http/1.1",
        "G\u{0}T /g HTTP/1.1",
        "GET /a b HTTP/1.1",
        "PRI * HTTP/2.0",
    ] {
        check(&format!("{line}\r\nHost: g\r\n\r\n{TAIL}"), 400, 0).await;
    }
}

#[tokio::test]
async fn a_request_names_its_host_once() {
    check(&format!("GET /g HTTP/1.1\r\n\r\n{TAIL}"), 400, 0).await;
    check(&format!("GET /g HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n{TAIL}"), 400, 0).await;
    check(&format!("GET /g HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n{TAIL}"), 400, 0).await;
    check("GET /g HTTP/1.0\r\nX-Scope-OrgID: t\r\n\r\n", 200, 1).await;
    let (stub, gate) = pair().await;
    let answer = gate.ask("GET http://evil/a?b=c HTTP/1.1\r\nHost: g\r\n\r\n").await;
    assert_eq!(answer.status, 200);
    let seen = &stub.seen()[0];
    assert_eq!(seen.line(), "GET /a?b=c HTTP/1.1");
    assert_eq!(seen.header("host"), Some(stub.address.to_string().as_str()));
    assert_eq!(seen.count("host"), 1);
}

#[tokio::test]
async fn tunnels_and_echoes_are_refused() {
    let (stub, gate) = pair().await;
    let check = async |request: &str, status| {
        assert_eq!(gate.ask(request).await.status, status, "{request:?}");
    };
    check("CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n", 405).await;
    check("TRACE /g HTTP/1.1\r\nHost: g\r\n\r\n", 405).await;
    check("GET g HTTP/1.1\r\nHost: g\r\n\r\n", 400).await;
    check("OPTIONS * HTTP/1.1\r\nHost: g\r\n\r\n", 400).await;
    assert_eq!(stub.seen(), []);
    // An upgrade is not offered on: the downstream answers the request as any other.
    let upgrade = "GET /g HTTP/1.1\r\nHost: g\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n";
    check(upgrade, 200).await;
    assert_eq!(stub.seen()[0].header("upgrade"), None);
}

#[tokio::test]
async fn chunks_of_every_shape_arrive_as_what_they_hold() {
    let (stub, gate) = pair().await;
    for chunks in [
        "5\r\nhello\r\n0\r\n\r\n",
        "5;a=b;c=\"d;e\"\r\nhello\r\n0;last\r\n\r\n",
        "1\r\nh\r\n1\r\ne\r\n3\r\nllo\r\n0\r\n\r\n",
        "0000005\r\nhello\r\n000\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
    ] {
        for is_dripped in [false, true] {
            let mut wire = gate.connect().await;
            let request = post("Transfer-Encoding: chunked\r\n", chunks);
            match is_dripped {
                true => wire.drip(request.as_bytes()).await,
                false => assert!(wire.write(request.as_bytes()).await),
            }
            let answer = wire.answer("POST").await.expect("an answer");
            assert_eq!(answer.status, 200, "{chunks:?}");
            let seen = stub.seen().pop().expect("a request");
            assert_eq!((&*seen.body, seen.is_whole), (&b"hello"[..], true), "{chunks:?}");
            // The connection is as good as before.
            wire.write(b"GET /next HTTP/1.1\r\nHost: g\r\n\r\n").await;
            assert_eq!(wire.answer("GET").await.expect("an answer").status, 200);
        }
    }
}

#[tokio::test]
async fn chunks_that_are_none_end_in_400_and_never_in_a_whole_request() {
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(64 << 10));
    let trailers = format!("5\r\nhello\r\n0\r\nX: {}\r\n\r\n", "x".repeat(256 << 10));
    for chunks in [
        "-5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "5\u{0}\r\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        long.as_str(),
        trailers.as_str(),
    ] {
        check(&post("Transfer-Encoding: chunked\r\n", &format!("{chunks}{TAIL}")), 400, 0).await;
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_never_looks_whole() {
    for request in [
        post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n"),
        post("Transfer-Encoding: chunked\r\n", "5\r\nhel"),
        post("Content-Length: 9\r\n", "hello"),
    ] {
        let stub = Stub::saying(OK).await;
        let gate = setup(stub.url()).start().await;
        let mut wire = gate.connect().await;
        wire.write(request.as_bytes()).await;
        wire.close_writing().await;
        assert!(wire.rest().await.is_empty() || stub.seen().iter().all(|seen| !seen.is_whole));
        super::until("the downstream sees the end", || !stub.seen().is_empty()).await;
        assert!(!stub.seen()[0].is_whole, "{request:?} {:?}", stub.seen());
        assert_eq!(stub.seen().len(), 1, "and it is not sent twice");
    }
}

#[tokio::test]
async fn heads_have_their_bounds() {
    let (stub, gate) = pair().await;
    let header = |len| format!("GET /g HTTP/1.1\r\nHost: g\r\nX: {}\r\n\r\n", "x".repeat(len));
    assert_eq!(gate.ask(&header(120 << 10)).await.status, 200);
    assert_eq!(gate.ask(&header(129 << 10)).await.status, 431);
    assert_eq!(gate.ask(&header(1 << 20)).await.status, 431);
    let many = |count| format!("GET /g HTTP/1.1\r\nHost: g\r\n{}\r\n", "X: y\r\n".repeat(count));
    assert_eq!(gate.ask(&many(90)).await.status, 200);
    assert_eq!(gate.ask(&many(1000)).await.status, 431);
    let target = |len| format!("GET /{} HTTP/1.1\r\nHost: g\r\n\r\n", "x".repeat(len));
    assert_eq!(gate.ask(&target(60_000)).await.status, 200);
    assert_eq!(gate.ask(&target(70_000)).await.status, 414);
    let long = format!("{} /g HTTP/1.1\r\nHost: g\r\n\r\n", "M".repeat(1 << 20));
    assert_eq!(gate.ask(&long).await.status, 431);
    assert_eq!(stub.seen().len(), 3);
}

#[tokio::test]
async fn who_sends_a_head_slowly_is_not_waited_for() {
    let stub = Stub::saying(OK).await;
    let mut setup = setup(stub.url());
    setup.server.http_server_idle_timeout = Millis(50);
    let gate = setup.start().await;
    for start in ["", "P", "PRI * HTTP/2.0\r\n", "GET /g HTTP/1.1\r\nHo"] {
        let mut wire = gate.connect().await;
        wire.write(start.as_bytes()).await;
        let told = wire.rest().await;
        assert!(told.is_empty(), "{start:?} {told:?}");
    }
    assert_eq!(stub.seen(), []);
}

#[tokio::test]
async fn who_sends_a_body_slowly_is_told_408() {
    let stub = Stub::saying(OK).await;
    let mut setup = setup(stub.url());
    setup.downstream.idle_timeout = Millis(100);
    let gate = setup.start().await;
    // Stopped, and dripping a byte before the end of each pause.
    let answer = gate.ask(&post("Content-Length: 10\r\n", "abc")).await;
    assert_eq!(answer.status, 408, "{}", answer.text());
    let mut wire = gate.connect().await;
    wire.write(post("Content-Length: 1000\r\n", "abc").as_bytes()).await;
    let dripping = async {
        loop {
            wire.write(b"x").await;
            tokio::time::sleep(A_WHILE / 2).await;
            if wire.has_more() {
                return wire.answer("POST").await.expect("an answer").status;
            }
        }
    };
    let status = tokio::time::timeout(super::PATIENCE, dripping).await.expect("given up");
    assert_eq!(status, 408);
    super::until("both are seen", || stub.seen().len() == 2).await;
    assert!(stub.seen().iter().all(|seen| !seen.is_whole));
}

#[tokio::test]
async fn a_client_that_waits_for_leave_gets_it() {
    let (stub, gate) = pair().await;
    let mut wire = gate.connect().await;
    wire.write(post("Expect: 100-continue\r\nContent-Length: 5\r\n", "").as_bytes()).await;
    assert_eq!(wire.head().await.expect("leave"), "HTTP/1.1 100 Continue\r\n\r\n");
    wire.write(b"hello").await;
    assert_eq!(wire.answer("POST").await.expect("an answer").status, 200);
    let seen = &stub.seen()[0];
    assert_eq!((&*seen.body, seen.header("expect")), (&b"hello"[..], None));
}

#[tokio::test]
async fn requests_behind_each_other_are_answered_in_their_order() {
    let stub = Stub::start(|mut wire, notes, _| async move {
        while let Some(seen) = wire.request().await {
            let path = seen.line().split(' ').nth(1).expect("a path").to_owned();
            notes.add(seen);
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
            wire.write(answer.as_bytes()).await;
        }
    })
    .await;
    let gate = setup(stub.url()).start().await;
    let mut wire = gate.connect().await;
    let requests: String =
        (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: g\r\n\r\n")).collect();
    wire.write(requests.as_bytes()).await;
    for n in 0..20 {
        let answer = wire.answer("GET").await.expect("an answer");
        assert_eq!(answer.text(), format!("/{n}"));
    }
}

#[tokio::test]
async fn a_body_that_was_refused_is_no_next_request() {
    let (stub, gate) = pair().await;
    let hidden = TAIL;
    let mut wire = gate.connect().await;
    let refused = format!(
        "TRACE /g HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n{hidden}GET /next HTTP/1.1\r\nHost: g\r\n\r\n",
        hidden.len()
    );
    wire.write(refused.as_bytes()).await;
    assert_eq!(wire.answer("TRACE").await.expect("an answer").status, 405);
    // Either the connection ends, or the next is the next.
    if let Some(answer) = wire.answer("GET").await {
        assert_eq!(answer.status, 200);
    }
    assert!(
        stub.seen().iter().all(|seen| seen.line() == "GET /next HTTP/1.1"),
        "{:?}",
        stub.seen()
    );
}

#[tokio::test]
async fn a_client_that_has_gone_is_noticed_and_its_query_broken_off() {
    for is_half in [false, true] {
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        let stub = Stub::start(move |mut wire, notes, _| {
            let tell = tell.clone();
            async move {
                notes.add(wire.request().await.expect("a request"));
                tell.send(wire.is_closed().await).await.expect("the test is there");
            }
        })
        .await;
        let gate = setup(stub.url()).start().await;
        let mut wire = gate.connect().await;
        wire.write(b"GET /g HTTP/1.1\r\nHost: g\r\n\r\n").await;
        super::until("it is there", || stub.seen().len() == 1).await;
        assert_eq!(gate.downstreams.in_flight(), 1);
        match is_half {
            true => {
                wire.close_writing().await;
                assert!(wire.is_closed().await, "there is no answer for half a client");
            }
            false => drop(wire),
        }
        assert_eq!(told.recv().await, Some(true), "the downstream hears of it");
        super::until("nothing is under way", || gate.downstreams.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_given_up() {
    use tokio::io::AsyncWriteExt as _;
    let listener = super::listener().await;
    let address = listener.local_address().expect("bound");
    let _client = tokio::net::TcpStream::connect(address).await.expect("connect");
    let mut connection = listener.accept().await;
    connection.bound_writes(A_WHILE);
    let writing = async {
        loop {
            if let Err(error) = connection.write_all(&[b'x'; 64 << 10]).await {
                return error.kind();
            }
        }
    };
    let ended = tokio::time::timeout(super::PATIENCE, writing).await.expect("given up");
    assert_eq!(ended, std::io::ErrorKind::TimedOut);
}
