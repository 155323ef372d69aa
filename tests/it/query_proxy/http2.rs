//! HTTP/2, towards clients and towards the downstream.

use std::time::Duration;

use bytes::Bytes;
use freehold::server::Drained;
use freehold::tls::ClientAuth;
use freehold::units::Millis;
use h2::Reason;
use h2::client::SendRequest;
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::wire::{OK, Stub, Wire};
use super::{Gate, PATIENCE, setup, until, url};
use crate::pass_through::tls::{Authority, listener_tls};

/// A client's connection, and how it ended.
struct Client {
    requests: SendRequest<Bytes>,
    ended: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    async fn connect(gate: &Gate) -> Self {
        Self::over(TcpStream::connect(gate.address).await.expect("connect")).await
    }

    async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(1 << 20).max_header_list_size(1 << 20);
        let (requests, connection) = builder.handshake(stream).await.expect("handshake");
        Self { requests, ended: tokio::spawn(connection) }
    }

    /// Sends a request; its answer, whole.
    async fn ask(&self, request: Request<()>, body: &[u8]) -> Result<Response<Vec<u8>>, h2::Error> {
        let mut requests = self.requests.clone().ready().await?;
        let (response, mut stream) = requests.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body), true)?;
        }
        let (head, mut body) = response.await?.into_parts();
        let mut bytes = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece?;
            body.flow_control().release_capacity(piece.len()).expect("what was taken");
            bytes.extend_from_slice(&piece);
        }
        Ok(Response::from_parts(head, bytes))
    }

    async fn get(&self, path: &str) -> Result<Response<Vec<u8>>, h2::Error> {
        self.ask(get(path), b"").await
    }

    /// Waits for the connection's end.
    async fn end(self) -> Result<(), h2::Error> {
        drop(self.requests);
        tokio::time::timeout(PATIENCE, self.ended).await.expect("an end").expect("no panic")
    }
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://gate:80{path}")).body(()).expect("a request")
}

#[tokio::test]
async fn queries_come_over_http2_as_over_http1() {
    let stub = Stub::saying(OK).await;
    let gate = setup(stub.url()).start().await;
    let client = Client::connect(&gate).await;
    let answer = client.get("/api/v1/query?query=up").await.expect("an answer");
    assert_eq!((answer.status().as_u16(), answer.body().as_slice()), (200, &b"ok"[..]));
    assert_eq!(answer.headers()["content-length"], "2");
    let request = Request::post("http://gate:80/p").header("x-scope-orgid", "a");
    let request = request.header("connection-x", "y").body(()).expect("a request");
    let answer = client.ask(request, b"hello").await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let seen = stub.seen();
    assert_eq!(seen[0].line(), "GET /api/v1/query?query=up HTTP/1.1");
    assert_eq!(seen[0].header("host"), Some(stub.address.to_string().as_str()));
    assert_eq!(seen[0].header("x-forwarded-host"), Some("gate:80"));
    assert_eq!((seen[1].body.as_slice(), seen[1].is_whole), (&b"hello"[..], true));
    assert!(seen[0].header("via").expect("a via").starts_with("2 freehold-"));
    let heads = Request::head("http://gate/g").body(()).expect("a request");
    let answer = client.ask(heads, b"").await;
    // The stub sends a body to a HEAD, which is nobody's.
    assert_eq!(answer.expect("an answer").body().len(), 0);
    assert!(stub.connections() <= 2, "{}", stub.connections());
}

#[tokio::test]
async fn many_at_once_share_a_connection() {
    let stub = Stub::saying(OK).await;
    let gate = setup(stub.url()).start().await;
    let client = Client::connect(&gate).await;
    let asking: Vec<_> = (0..200).map(|_| client.get("/g")).collect();
    for answer in futures_util::future::join_all(asking).await {
        assert_eq!(answer.expect("an answer").status(), 200);
    }
}

#[tokio::test]
async fn tls_agrees_on_either_version() {
    let ours = Authority::new();
    ours.sign("server", "localhost");
    let stub = Stub::saying(OK).await;
    let tls = listener_tls(&ours.server("server", ClientAuth::None), &["h2", "http/1.1"]);
    let listener = super::listener().await.with_tls(Some(tls));
    let gate = setup(stub.url()).listen(listener).await;
    for (protocols, agreed) in [
        (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
        (&["http/1.1"][..], Some(b"http/1.1")),
        (&[][..], None),
    ] {
        let settings = freehold::tls::client("test", &ours.client(None), protocols);
        let connector = TlsConnector::from(settings.expect("files").current());
        let stream = TcpStream::connect(gate.address).await.expect("connect");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = connector.connect(name, stream).await.expect("handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed);
        if agreed == Some(b"h2") {
            let client = Client::over(stream).await;
            assert_eq!(client.get("/g").await.expect("an answer").status(), 200);
            continue;
        }
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = stream;
        let request = b"GET /g HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("write");
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\n"), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_answered_431() {
    let stub = Stub::saying(OK).await;
    let gate = setup(stub.url()).start().await;
    let client = Client::connect(&gate).await;
    let with = |len| {
        let request = Request::get("http://gate/g").header("x", "x".repeat(len));
        request.body(()).expect("a request")
    };
    assert_eq!(client.ask(with(100 << 10), b"").await.expect("an answer").status(), 200);
    match client.ask(with(200 << 10), b"").await {
        Ok(answer) => assert_eq!(answer.status(), 431),
        // So long that the connection is not worth keeping.
        Err(error) => assert!(error.is_go_away() || error.is_reset() || error.is_io(), "{error}"),
    }
    assert_eq!(stub.seen().len(), 1);
    let client = Client::connect(&gate).await;
    assert_eq!(client.get("/g").await.expect("an answer").status(), 200);
}

/// The preface, and settings that change nothing.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

#[tokio::test]
async fn what_only_http1_knows_smuggles_nothing_over_http2() {
    let literal = |name: &str, value: &str| {
        let mut line = vec![0, name.len() as u8];
        line.extend(name.as_bytes());
        line.push(value.len() as u8);
        line.extend(value.as_bytes());
        line
    };
    let hidden = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n";
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("content-length", "2"),
        ("content-length", "100"),
        ("x", "a\r\nContent-Length: 0\r\n\r\nGET /smuggled HTTP/1.1"),
        ("x y", "a"),
        ("X-Upper", "a"),
        (":path", "/smuggled"),
        ("x: a\r\ny", "b"),
    ] {
        let stub = Stub::saying(OK).await;
        let gate = setup(stub.url()).start().await;
        let mut wire = gate.connect().await;
        // :method POST, :scheme http, :path /, :authority g
        let mut block = vec![0x83, 0x86, 0x84, 0x41, 0x01, b'g'];
        block.extend(literal(name, value));
        let mut frames = GREETING.to_vec();
        frames.extend(frame(HEADERS, END_HEADERS, 1, &block));
        frames.extend(frame(DATA, END_STREAM, 1, hidden));
        wire.write(&frames).await;
        let refusal = loop {
            let Some((kind, status)) = wire.frame().await else { break true };
            match kind {
                RESET | GO_AWAY => break true,
                // `:status` 200 is the eighth of the table.
                HEADERS => break status != Some(0x88),
                _ => {}
            }
        };
        assert!(refusal, "{name:?} {value:?}");
        let seen = stub.seen();
        assert!(seen.iter().all(|seen| !seen.is_whole), "{name:?} {value:?} {seen:?}");
    }
}

#[tokio::test]
async fn who_opens_and_gives_up_without_end_loses_the_connection() {
    let stub = Stub::saying(OK).await;
    let gate = setup(stub.url()).start().await;
    // h2's client would wait for its turn; this one writes frames as they are.
    let mut wire = gate.connect().await;
    let mut frames = GREETING.to_vec();
    // :method GET, :scheme http, :path /, :authority g
    let block = [0x82, 0x86, 0x84, 0x41, 0x01, b'g'];
    for stream in (1..200_001_u32).step_by(2) {
        frames.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
        frames.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
    }
    wire.write(&frames).await;
    let told = wire.rest().await;
    let calm = [0, 0, 0, 0xb];
    assert!(told.windows(4).any(|window| window == calm), "ENHANCE_YOUR_CALM");
    until("nothing is under way", || gate.downstreams.in_flight() == 0).await;
    assert_eq!(gate.get("/g").await.status, 200);
}

#[tokio::test]
async fn a_stream_that_is_given_up_breaks_its_query_off_and_no_other() {
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let stub = Stub::start(move |mut wire: Wire, notes, _| {
        let tell = tell.clone();
        async move {
            while let Some(seen) = wire.request().await {
                let hangs = seen.line().contains("/hang");
                notes.add(seen);
                if hangs {
                    wire.is_closed().await;
                    return tell.send(()).await.expect("the test is there");
                }
                wire.write(OK.as_bytes()).await;
            }
        }
    })
    .await;
    let gate = setup(stub.url()).start().await;
    let client = Client::connect(&gate).await;
    let mut requests = client.requests.clone().ready().await.expect("ready");
    let (_response, mut stream) = requests.send_request(get("/hang"), true).expect("sent");
    until("it is there", || !stub.seen().is_empty()).await;
    assert_eq!(client.get("/g").await.expect("an answer").status(), 200);
    stream.send_reset(Reason::CANCEL);
    tokio::time::timeout(PATIENCE, told.recv()).await.expect("the downstream hears of it");
    assert_eq!(client.get("/g").await.expect("an answer").status(), 200);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_reset() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let stub = Stub::saying_once(answer).await;
        let gate = setup(stub.url()).start().await;
        let client = Client::connect(&gate).await;
        let error = client.get("/g").await.expect_err("no whole answer");
        assert!(error.is_reset(), "{error}");
    }
}

#[tokio::test]
async fn a_drain_lets_requests_at_hand_finish() {
    let (release, released) = tokio::sync::watch::channel(false);
    let stub = Stub::start(move |mut wire: Wire, notes, _| {
        let mut released = released.clone();
        async move {
            while let Some(seen) = wire.request().await {
                notes.add(seen);
                released.wait_for(|is_released| *is_released).await.expect("the test is there");
                wire.write(OK.as_bytes()).await;
            }
        }
    })
    .await;
    let mut gate = setup(stub.url()).start().await;
    let client = Client::connect(&gate).await;
    let idle = Client::connect(&gate).await;
    let asking = client.get("/g");
    let draining = async {
        until("it is there", || !stub.seen().is_empty()).await;
        gate.drainer.start();
        assert!(idle.end().await.is_ok(), "an idle connection ends well");
        release.send(true).expect("the stub is there");
    };
    let (answer, ()) = tokio::join!(asking, draining);
    assert_eq!(answer.expect("an answer").status(), 200);
    assert!(client.end().await.is_ok());
    let drained = tokio::time::timeout(PATIENCE, &mut gate.serving).await.expect("in time");
    assert_eq!(drained.expect("serving"), Drained::Whole);
}

#[tokio::test]
async fn a_connection_that_is_not_used_is_ended_well() {
    let stub = Stub::saying(OK).await;
    let mut setup = setup(stub.url());
    setup.server.http_server_idle_timeout = Millis(50);
    let gate = setup.start().await;
    let client = Client::connect(&gate).await;
    assert_eq!(client.get("/g").await.expect("an answer").status(), 200);
    assert!(client.end().await.is_ok());
}

/// A gate whose downstream is another one, over HTTP/2.
async fn behind(stub: &Stub) -> (Gate, Gate) {
    let back = setup(stub.url()).start().await;
    let front = setup(url(back.address).replace("http:", "h2c:")).start().await;
    (front, back)
}

#[tokio::test]
async fn the_downstream_may_speak_http2_without_tls() {
    let stub = Stub::saying(OK).await;
    let (front, _back) = behind(&stub).await;
    let answer = front.get("/g?a=b").await;
    assert_eq!((answer.status, answer.text()), (200, "ok"));
    let answer = front.ask(
        "POST /p HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    assert_eq!(answer.await.status, 200);
    let seen = stub.seen();
    assert_eq!(seen[0].line(), "GET /g?a=b HTTP/1.1");
    let vias: Vec<_> = seen[0].head.lines().filter(|line| line.starts_with("via: ")).collect();
    assert!(vias[0].starts_with("via: 1.1 ") && vias[1].starts_with("via: 2 "), "{vias:?}");
    assert_eq!((seen[1].body.as_slice(), seen[1].is_whole), (&b"hello"[..], true));
}

#[tokio::test]
async fn an_answer_over_http2_that_breaks_off_never_looks_whole() {
    let stub =
        Stub::saying_once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            .await;
    let (front, _back) = behind(&stub).await;
    let mut wire = front.connect().await;
    wire.write(b"GET /g HTTP/1.1\r\nHost: g\r\n\r\n").await;
    // What breaks off at once takes its head along.
    if let Some(answer) = wire.answer("GET").await {
        assert_eq!((answer.status, answer.is_whole), (200, false));
    }
}

#[tokio::test]
async fn a_downstream_that_drains_is_followed_by_the_next() {
    let stub = Stub::saying(OK).await;
    let (one, two) = (setup(stub.url()).start().await, setup(stub.url()).start().await);
    let urls = format!("h2c://{},h2c://{}", one.address, two.address);
    let front = setup(urls).start().await;
    for _ in 0..4 {
        assert_eq!(front.get("/g").await.status, 200);
    }
    one.drainer.start();
    for _ in 0..20 {
        let answer = front.get("/g").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_downstream_may_speak_either_version_over_tls() {
    let ours = Authority::new();
    ours.sign("server", "localhost");
    for (protocols, via) in [(&["h2", "http/1.1"][..], "via: 2 "), (&["http/1.1"][..], "via: 1.1 ")]
    {
        let stub = Stub::saying(OK).await;
        let tls = listener_tls(&ours.server("server", ClientAuth::None), protocols);
        let listener = super::listener().await.with_tls(Some(tls));
        let back = setup(stub.url()).listen(listener).await;
        let mut setup = setup(url(back.address).replace("http:", "https:"));
        setup.downstream.tls_ca_path = ours.ca();
        setup.downstream.tls_server_name = "localhost".into();
        let front = setup.start().await;
        for _ in 0..3 {
            let answer = front.get("/g").await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let vias: Vec<_> = stub.seen()[0].head.lines().map(str::to_owned).collect();
        assert!(vias.iter().any(|line| line.starts_with(via)), "{vias:?}");
        // Whom we do not trust gets nothing.
        let mut setup = super::setup(url(back.address).replace("http:", "https:"));
        setup.downstream.tls_ca_path = Authority::new().ca();
        assert!(freehold::upstream::queries::Downstreams::new(&setup.downstream).is_err());
        let theirs = Authority::new();
        setup.downstream.tls_ca_path = theirs.ca();
        setup.downstream.tls_server_name = "localhost".into();
        let front = setup.start().await;
        assert_eq!(front.get("/g").await.status, 503);
    }
}
