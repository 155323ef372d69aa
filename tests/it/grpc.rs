//! The gRPC edge against a bare HTTP/2 client, with a made-up ingester behind it.

use std::io::Write as _;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use bytes::{BufMut, Bytes, BytesMut};
use freehold::clients::config::ClientIdentityConfig;
use freehold::server::Drained;
use freehold::server::client_header::ClientHeader;
use freehold::server::config::ServerConfig as Config;
use freehold::server::drain::Drainer;
use freehold::server::grpc::{GrpcEdge, HealthSwitch, Settings, serve};
use freehold::server::listen::Listener;
use freehold::server::room::Room;
use freehold::server::seam::{IngesterCalls, PushError, Pushed, UserStats, Work};
use freehold::server::stream_auth::StreamKeys;
use freehold::server::tenancy::Tenancy;
use freehold::tenant::TenantId;
use freehold::units::Millis;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use prost::Message as _;
use tokio::task::JoinHandle;

use super::vectors;

const PUSH: &str = "/cortex.Ingester/Push";
const PUSH_STREAM: &str = "/cortex.Ingester/PushStream";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const WORKER: &str = "ingester-10.0.0.1-9095-stream-push-worker-0";

/// A wait in these tests fails after so long; on a healthy machine none comes near it.
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome = Result<Pushed, PushError>;
type Push = dyn Fn(&TenantId, Bytes) -> Outcome + Send + Sync;

struct Server {
    address: std::net::SocketAddr,
    drainer: Drainer,
    health: HealthSwitch,
    serving: JoinHandle<Drained>,
}

struct Setup {
    push: Box<Push>,
    work: Work,
    tenancy: Tenancy,
    clients: ClientHeader,
    stream_keys: StreamKeys,
    config: Config,
}

impl Setup {
    fn new(push: impl Fn(&TenantId, Bytes) -> Outcome + Send + Sync + 'static) -> Self {
        Self {
            push: Box::new(push),
            work: Work::Inline,
            tenancy: Tenancy::Header,
            clients: ClientHeader::default(),
            stream_keys: StreamKeys::default(),
            config: Config { graceful_shutdown_timeout: Millis(20_000), ..Config::default() },
        }
    }

    async fn start(self) -> Server {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind");
        let address = listener.local_address().expect("bound");
        let (drainer, drain) = Drainer::new();
        let health = HealthSwitch::new().await;
        let settings = Settings {
            tenancy: self.tenancy,
            clients: self.clients,
            stream_keys: self.stream_keys,
            room: Room::new(64 << 20),
            receive_message_bytes_max: self.config.grpc_server_max_recv_msg_size,
            send_message_bytes_max: self.config.grpc_server_max_send_msg_size,
            upstream: None,
            stream_answer_within: std::time::Duration::from_secs(10),
        };
        let stats = UserStats { series: 7, active_series: 5, ..UserStats::default() };
        let ingester = IngesterCalls {
            push: self.push.into(),
            judge: Arc::new(|_, _| unreachable!("no push goes on")),
            user_stats: Arc::new(move |_| stats),
            all_user_stats: Arc::new(move || vec![(TenantId::parse("a").expect("tenant"), stats)]),
        };
        let edge = GrpcEdge::new(settings, Some(ingester), self.work, &health, drain.clone());
        let config = self.config;
        let serving = tokio::spawn(async move { serve(listener, edge, &config, drain).await });
        Server { address, drainer, health, serving }
    }
}

/// A client changes nothing of an answer, nor does a name that is none.
#[tokio::test]
async fn a_push_is_answered_alike_whoever_is_named() {
    let setup = || {
        let text = "over the limit".to_owned();
        Setup::new(move |_, body| match body.is_empty() {
            true => Ok(Pushed::default()),
            false => Err(PushError::Rejected { code: 400, text: text.clone() }),
        })
    };
    let config = ClientIdentityConfig { enabled: true, ..ClientIdentityConfig::default() };
    let server = Setup { clients: ClientHeader::of_grpc(&config), ..setup() }.start().await;
    let mut client = Client::connect(&server).await;
    for named in [&[][..], &["writer 7"], &["a", "b"], &["\u{e9}"]] {
        let mut headers = vec![("x-scope-orgid", "a")];
        headers.extend(named.iter().map(|name| ("x-scope-clientid", *name)));
        let stored = client.call(PUSH, &headers, framed(0, b"")).await;
        assert_eq!((stored.code(), stored.messages.len()), ("0", 1), "{named:?}");
        let refused = client.call(PUSH, &headers, framed(0, b"x")).await;
        assert_eq!((refused.code(), refused.text().as_str()), ("400", "over the limit"));
    }
}

fn accepting() -> Setup {
    Setup::new(|_, _| Ok(Pushed::default()))
}

struct Client(SendRequest<Bytes>);

struct Answer {
    headers: HeaderMap,
    /// Flag and payload.
    messages: Vec<(u8, Bytes)>,
    trailers: HeaderMap,
}

impl Answer {
    /// Trailers, or the headers of an answer that is nothing but a status.
    fn status(&self) -> &HeaderMap {
        if self.headers.contains_key("grpc-status") { &self.headers } else { &self.trailers }
    }

    fn code(&self) -> &str {
        self.status()["grpc-status"].to_str().expect("a number")
    }

    fn text(&self) -> String {
        let message = self.status().get("grpc-message").map(|value| value.as_bytes());
        percent_decoded(message.unwrap_or_default())
    }
}

/// A call whose body is still being sent.
struct Open {
    send: SendStream<Bytes>,
    response: ResponseFuture,
}

impl Client {
    async fn connect(server: &Server) -> Self {
        let stream = tokio::net::TcpStream::connect(server.address).await.expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        let (client, connection) = h2::client::handshake(stream).await.expect("handshake");
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Self(client)
    }

    async fn open(&mut self, path: &str, headers: &[(&str, &str)]) -> Open {
        let client = self.0.clone().ready().await.expect("connection");
        self.0 = client;
        let mut request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("request");
        let (response, send) = self.0.send_request(request, false).expect("send");
        Open { send, response }
    }

    async fn call(&mut self, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
        let mut open = self.open(path, headers).await;
        open.send.send_data(body, true).expect("send");
        finish(patiently(open.response).await.expect("response")).await
    }
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("no answer")
}

async fn finish(response: Response<RecvStream>) -> Answer {
    let (head, mut body) = response.into_parts();
    let mut bytes = BytesMut::new();
    while let Some(chunk) = patiently(body.data()).await {
        let chunk = chunk.expect("data");
        body.flow_control().release_capacity(chunk.len()).expect("capacity");
        bytes.extend_from_slice(&chunk);
    }
    let trailers = patiently(body.trailers()).await.expect("trailers").unwrap_or_default();
    let mut messages = Vec::new();
    let mut rest = bytes.freeze();
    while !rest.is_empty() {
        messages.push(take_message(&mut rest));
    }
    Answer { headers: head.headers, messages, trailers }
}

fn take_message(bytes: &mut Bytes) -> (u8, Bytes) {
    let header = bytes.split_to(5);
    let len = u32::from_be_bytes(header[1..].try_into().expect("four bytes"));
    (header[0], bytes.split_to(len as usize))
}

fn framed(flag: u8, payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(flag);
    bytes.put_u32(u32::try_from(payload.len()).expect("short"));
    bytes.put_slice(payload);
    bytes.freeze()
}

fn percent_decoded(text: &[u8]) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let hex = [*high, *low];
                let hex = std::str::from_utf8(&hex).expect("ASCII");
                bytes.push(u8::from_str_radix(hex, 16).expect("hex"));
                rest = tail;
            }
            (byte, tail) => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

#[derive(Clone, PartialEq, prost::Message)]
struct StreamWriteRequest {
    #[prost(string, tag = "1")]
    tenant_id: String,
    #[prost(bytes = "vec", tag = "2")]
    request: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WriteResponse {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int64, tag = "3")]
    samples: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<AnyMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyMessage {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HttpResponse {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(bytes = "vec", tag = "3")]
    body: Vec<u8>,
}

fn stream_message(tenant: &str, request: &[u8]) -> Bytes {
    let message = StreamWriteRequest { tenant_id: tenant.to_owned(), request: request.to_vec() };
    framed(0, &message.encode_to_vec())
}

fn write_response(message: &(u8, Bytes)) -> WriteResponse {
    assert_eq!(message.0, 0, "not compressed");
    WriteResponse::decode(message.1.clone()).expect("a WriteResponse")
}

/// Reads one answer of a stream.
async fn next_answer(body: &mut RecvStream) -> WriteResponse {
    let mut bytes = patiently(body.data()).await.expect("an answer").expect("data");
    body.flow_control().release_capacity(bytes.len()).expect("capacity");
    let message = take_message(&mut bytes);
    assert!(bytes.is_empty(), "one answer at a time");
    write_response(&message)
}

fn compress(encoding: &str, message: &[u8]) -> Vec<u8> {
    match encoding {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(message).expect("gzip");
            encoder.finish().expect("gzip")
        }
        "zstd" => zstd::encode_all(message, 3).expect("zstd"),
        "snappy" => {
            let mut encoder = snap::write::FrameEncoder::new(Vec::new());
            encoder.write_all(message).expect("snappy");
            encoder.into_inner().expect("snappy")
        }
        "snappy-block" => snap::raw::Encoder::new().compress_vec(message).expect("snappy"),
        other => panic!("unknown encoding {other}"),
    }
}

fn decompress(encoding: &str, packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match encoding {
        "gzip" => std::io::copy(&mut flate2::read::GzDecoder::new(packed), &mut plain),
        "zstd" => return zstd::decode_all(packed).expect("zstd"),
        "snappy" => std::io::copy(&mut snap::read::FrameDecoder::new(packed), &mut plain),
        "snappy-block" => return snap::raw::Decoder::new().decompress_vec(packed).expect("snappy"),
        other => panic!("unknown encoding {other}"),
    }
    .expect("decompress");
    plain
}

#[tokio::test]
async fn pushes_arrive_whole_in_every_encoding_and_are_answered_in_it() {
    let (sender, received) = mpsc::channel();
    let server = Setup::new(move |tenant, body| {
        sender.send((tenant.to_string(), body)).expect("test is there");
        Ok(Pushed { samples: 1000, ..Pushed::default() })
    })
    .start()
    .await;
    let mut client = Client::connect(&server).await;
    // Larger than a DATA frame and than a window's half.
    let request: Vec<u8> = (0..900_000_u32).map(|i| (i / 7 % 251) as u8).collect();
    for encoding in ["gzip", "zstd", "snappy", "snappy-block"] {
        let headers = [("x-scope-orgid", "a"), ("grpc-encoding", encoding)];
        let body = framed(1, &compress(encoding, &request));
        let answer = client.call(PUSH, &headers, body).await;
        assert_eq!(answer.code(), "0", "{encoding}: {}", answer.text());
        let (tenant, body) = received.recv().expect("pushed");
        assert_eq!(tenant, "a");
        assert!(body == request, "{encoding}: the request changed on its way");
        assert_eq!(answer.headers["grpc-encoding"], encoding);
        assert_eq!(answer.headers["grpc-accept-encoding"], "gzip,zstd,snappy,snappy-block");
        assert_eq!(answer.headers["content-type"], "application/grpc");
        let (flag, packed) = &answer.messages[0];
        assert_eq!(*flag, 1);
        let plain = decompress(encoding, packed);
        assert_eq!(WriteResponse::decode(&plain[..]).expect("decode").samples, 1000);
    }
    for headers in
        [&[("x-scope-orgid", "a")][..], &[("x-scope-orgid", "a"), ("grpc-encoding", "identity")]]
    {
        let answer = client.call(PUSH, headers, framed(0, &request)).await;
        assert_eq!(answer.code(), "0");
        assert!(received.recv().expect("pushed").1 == request);
        assert_eq!(write_response(&answer.messages[0]).samples, 1000);
        assert!(!answer.headers.contains_key("grpc-encoding"));
    }
}

#[tokio::test]
async fn an_empty_answer_is_five_zero_bytes_whatever_the_encoding() {
    let server = accepting().start().await;
    let mut client = Client::connect(&server).await;
    let headers = [("x-scope-orgid", "a"), ("grpc-encoding", "snappy-block")];
    let answer = client.call(PUSH, &headers, framed(1, &compress("snappy-block", b"x"))).await;
    assert_eq!(answer.headers["grpc-encoding"], "snappy-block");
    assert_eq!(answer.messages, [(0, Bytes::new())]);
    assert_eq!(answer.code(), "0");
}

#[tokio::test]
async fn every_error_of_cortex_ingester_keeps_its_number_and_text() {
    // The ingester answers with what the vector at hand says; the edge words it.
    let next = Arc::new(Mutex::new(Ok(Pushed::default())));
    let outcome = Arc::clone(&next);
    let server = Setup::new(move |_, _| outcome.lock().expect("lock").clone()).start().await;
    let mut client = Client::connect(&server).await;
    let file = vectors::read("errors");
    let mut seen = 0;
    for case in vectors::array(&file, "ingester_push") {
        let text = vectors::text(case, "grpc_message").to_owned();
        let code = case["grpc_code"].as_i64().expect("a number");
        *next.lock().expect("lock") = match code {
            0 => continue,
            2 => Err(PushError::Plain { text: text.clone() }),
            14 => Err(PushError::Unavailable { text: text.clone() }),
            code => Err(PushError::Rejected { code: code as u16, text: text.clone() }),
        };
        let answer = client.call(PUSH, &[("x-scope-orgid", "a")], framed(0, b"x")).await;
        assert_eq!(answer.code(), code.to_string());
        assert_eq!(answer.text(), text);
        // One HEADERS frame: neither message nor trailers.
        assert!(answer.messages.is_empty() && answer.trailers.is_empty());
        let details = answer.headers.get("grpc-status-details-bin");
        assert_eq!(details.is_some(), !case["http"].is_null(), "{text}");
        if let Some(details) = details {
            let details = BASE64_STANDARD_NO_PAD.decode(details).expect("base64, no padding");
            let details = RpcStatus::decode(&details[..]).expect("google.rpc.Status");
            assert_eq!((i64::from(details.code), &details.message), (code, &text));
            let [any] = &details.details[..] else { panic!("one detail") };
            assert_eq!(any.type_url, "type.googleapis.com/httpgrpc.HTTPResponse");
            let http = HttpResponse::decode(&any.value[..]).expect("HTTPResponse");
            assert_eq!(i64::from(http.code), case["http"]["code"].as_i64().expect("a number"));
            assert_eq!(http.body, vectors::text(&case["http"], "body").as_bytes());
        }
        seen += 1;
    }
    assert!(seen > 20);
}

#[tokio::test]
async fn every_stream_case_of_cortex_ingester_is_answered_alike() {
    let next = Arc::new(Mutex::new(Ok(Pushed::default())));
    let outcome = Arc::clone(&next);
    let server = Setup::new(move |_, _| outcome.lock().expect("lock").clone()).start().await;
    let mut client = Client::connect(&server).await;
    let file = vectors::read("errors");
    for case in vectors::array(&file, "ingester_push_stream") {
        let name = vectors::text(case, "name");
        let context = vectors::text(case, "context_tenant");
        if vectors::text(case, "message_tenant").is_empty() || context.is_empty() {
            continue; // No stream without a name gets through; the next test says so.
        }
        let response = &case["response"];
        *next.lock().expect("lock") = match response["code"].as_i64() {
            None | Some(200) => Ok(Pushed::default()),
            Some(500) => {
                Err(PushError::Plain { text: vectors::text(response, "message").to_owned() })
            }
            Some(code) => Err(PushError::Rejected {
                code: code as u16,
                text: vectors::text(response, "message").to_owned(),
            }),
        };
        let body = framed(0, &vectors::base64(&case["message_b64"]));
        let answer = client.call(PUSH_STREAM, &[("x-scope-orgid", context)], body).await;
        let refusal = &case["stream_error"];
        if refusal.is_null() {
            let got = write_response(&answer.messages[0]);
            assert_eq!(i64::from(got.code), response["code"].as_i64().expect("code"), "{name}");
            assert_eq!(got.message, vectors::text(response, "message"), "{name}");
            assert_eq!(answer.code(), "0", "{name}");
        } else {
            assert_eq!(answer.code(), refusal["grpc_code"].to_string(), "{name}");
            assert_eq!(answer.text(), vectors::text(refusal, "message"), "{name}");
            assert!(answer.messages.is_empty(), "{name}");
        }
    }
}

#[tokio::test]
async fn without_one_valid_tenant_nothing_is_pushed() {
    let server = Setup::new(|_, _| panic!("nothing may arrive")).start().await;
    let mut client = Client::connect(&server).await;
    let one = [("x-scope-orgid", "a/b")];
    let two = [("x-scope-orgid", "a"), ("x-scope-orgid", "b")];
    let unsupported = "tenant ID 'a/b' contains unsupported character '/'";
    for (headers, text) in
        [(&[][..], "no org id"), (&one[..], unsupported), (&two[..], "no org id")]
    {
        let answer = client.call(PUSH, headers, framed(0, b"x")).await;
        assert_eq!((answer.code(), answer.text().as_str()), ("2", text));
    }
    let answer = client.call(PUSH_STREAM, &[], stream_message("a", b"x")).await;
    assert_eq!((answer.code(), answer.text().as_str()), ("2", "no org id"));
    let headers = [("x-scope-orgid", WORKER)];
    let answer = client.call(PUSH_STREAM, &headers, stream_message("", b"x")).await;
    let got = write_response(&answer.messages[0]);
    assert_eq!((got.code, got.message.as_str()), (500, "no org id"));
}

#[tokio::test]
async fn with_auth_disabled_everybody_is_the_fixed_tenant() {
    let setup = Setup::new(|tenant, _| {
        assert_eq!(tenant.as_str(), "fake");
        Ok(Pushed::default())
    });
    let server = Setup { tenancy: Tenancy::Fixed, ..setup }.start().await;
    let mut client = Client::connect(&server).await;
    let answer = client.call(PUSH, &[], framed(0, b"x")).await;
    assert_eq!(answer.code(), "0");
}

#[tokio::test]
async fn case_d9_oversized_and_garbled_messages_are_refused_and_the_connection_lives() {
    let setup = Setup::new(|_, body| {
        assert_eq!(body, "fine");
        Ok(Pushed::default())
    });
    let config = Config { grpc_server_max_recv_msg_size: 1000, ..setup.config.clone() };
    let server = Setup { config, ..setup }.start().await;
    let mut client = Client::connect(&server).await;
    let bomb = vec![0; 2 << 20];
    let inside = "grpc: received message after decompression larger than max 1000";
    let cases = [
        ("", framed(0, &[0; 1001]), "8", "grpc: received message larger than max (1001 vs. 1000)"),
        ("gzip", framed(1, &compress("gzip", &bomb[..500_000])), "8", inside),
        ("zstd", framed(1, &compress("zstd", &bomb)), "8", inside),
        ("snappy-block", framed(1, &compress("snappy-block", &bomb[..15_000])), "8", inside),
        ("snappy", framed(1, &compress("snappy", &bomb[..15_000])), "8", inside),
        (
            "snappy-block",
            framed(1, b"\x05\xff\xff"),
            "13",
            "grpc: failed to decompress the message: snappy-block: corrupt input",
        ),
        ("", framed(1, b"x"), "13", "grpc: compressed flag set with identity or empty encoding"),
        ("", framed(7, b"x"), "13", "grpc: received unexpected payload format 7"),
        ("", Bytes::from_static(&[0, 0, 0, 0, 9, 1]), "13", "unexpected EOF"),
        ("", Bytes::new(), "13", "the request has no message"),
        (
            "br",
            framed(0, b"fine"),
            "12",
            "grpc: Decompressor is not installed for grpc-encoding \"br\"",
        ),
    ];
    for (encoding, body, code, text) in cases {
        let mut headers = vec![("x-scope-orgid", "a")];
        if !encoding.is_empty() {
            headers.push(("grpc-encoding", encoding));
        }
        let answer = client.call(PUSH, &headers, body).await;
        assert_eq!((answer.code(), answer.text().as_str()), (code, text));
    }
    let answer = client.call(PUSH, &[("x-scope-orgid", "a")], framed(0, b"fine")).await;
    assert_eq!(answer.code(), "0");
}

#[tokio::test]
async fn other_methods_are_unimplemented() {
    let server = accepting().start().await;
    let mut client = Client::connect(&server).await;
    for (path, text) in [
        ("/cortex.Ingester/QueryStream", "unknown method QueryStream for service cortex.Ingester"),
        ("/cortex.Distributor/Push", "unknown service cortex.Distributor"),
        ("/nothing", "malformed method name: \"/nothing\""),
    ] {
        let answer = client.call(path, &[("x-scope-orgid", "a")], framed(0, b"")).await;
        assert_eq!((answer.code(), answer.text().as_str()), ("12", text));
    }
}

#[tokio::test]
async fn statistics_are_told_under_cortex_numbers() {
    let server = accepting().start().await;
    let mut client = Client::connect(&server).await;
    // Field 2 (series) is 7, field 5 (active) is 5.
    let stats = b"\x10\x07\x28\x05";
    let headers = [("x-scope-orgid", "a")];
    let answer = client.call("/cortex.Ingester/UserStats", &headers, framed(0, b"")).await;
    assert_eq!(answer.messages, [(0, Bytes::from_static(stats))]);
    let answer = client.call("/cortex.Ingester/AllUserStats", &headers, framed(0, b"")).await;
    let all = b"\x0a\x09\x0a\x01a\x12\x04\x10\x07\x28\x05";
    assert_eq!(answer.messages, [(0, Bytes::from_static(all))]);
    let answer = client.call("/cortex.Ingester/AllUserStats", &[], framed(0, b"")).await;
    assert_eq!(answer.text(), "no org id");
}

#[tokio::test]
async fn health_follows_the_switch_for_any_service_name_and_encoding() {
    let server = accepting().start().await;
    let mut client = Client::connect(&server).await;
    let check = async |client: &mut Client| {
        // A distributor sends the empty message uncompressed under its usual encoding.
        let headers = [("x-scope-orgid", "0"), ("grpc-encoding", "snappy-block")];
        let answer = client.call(HEALTH_CHECK, &headers, framed(0, b"")).await;
        assert_eq!(answer.code(), "0");
        let (flag, packed) = &answer.messages[0];
        assert_eq!(*flag, 1);
        decompress("snappy-block", packed)
    };
    assert_eq!(check(&mut client).await, [8, 2], "NOT_SERVING at first");
    server.health.set_serving(true).await;
    assert_eq!(check(&mut client).await, [8, 1]);
    let named = client.call(HEALTH_CHECK, &[], framed(0, b"\x0a\x03abc")).await;
    assert_eq!(named.messages, [(0, Bytes::from_static(&[8, 1]))]);
    server.health.set_serving(false).await;
    assert_eq!(check(&mut client).await, [8, 2]);
}

#[tokio::test]
async fn a_watch_sees_each_change_and_ends_with_the_server() {
    let server = accepting().start().await;
    let mut client = Client::connect(&server).await;
    let mut open = client.open("/grpc.health.v1.Health/Watch", &[]).await;
    open.send.send_data(framed(0, b""), true).expect("send");
    let response = patiently(open.response).await.expect("response");
    let mut body = response.into_body();
    for (expect, next) in [(2, Some(true)), (1, None)] {
        let chunk = patiently(body.data()).await.expect("a change").expect("data");
        assert_eq!(chunk[5..], [8, expect]);
        if let Some(next) = next {
            server.health.set_serving(next).await;
        }
    }
    server.drainer.start();
    assert!(patiently(body.data()).await.is_none());
    let trailers = patiently(body.trailers()).await.expect("trailers").expect("some");
    assert_eq!(trailers["grpc-status"], "14");
}

#[tokio::test]
async fn a_stream_answers_in_order_and_its_headers_come_with_the_first_answer() {
    let server = Setup::new(|tenant, body| match &body[..] {
        b"bad" => Err(PushError::Rejected { code: 400, text: format!("user={tenant}: bad") }),
        b"garbled" => Err(PushError::Malformed { text: "unexpected EOF".to_owned() }),
        _ => Ok(Pushed { samples: body.len() as u64, ..Pushed::default() }),
    })
    .start()
    .await;
    let mut client = Client::connect(&server).await;
    let mut open = client.open(PUSH_STREAM, &[("x-scope-orgid", WORKER)]).await;
    // Another call on the same connection is answered; the stream has sent no headers still.
    client.call(PUSH, &[("x-scope-orgid", "a")], framed(0, b"x")).await;
    let mut response = open.response;
    assert!(futures_util::FutureExt::now_or_never(&mut response).is_none());

    let mut all = BytesMut::new();
    all.put(stream_message("a", b"12345"));
    all.put(stream_message("b", b"bad"));
    all.put(stream_message("c", b"garbled"));
    all.put(framed(0, b"\x0a\x7f")); // no protobuf at all
    all.put(stream_message("a", b"123"));
    open.send.send_data(all.freeze(), false).expect("send");
    let mut body = patiently(response).await.expect("response").into_body();
    let answer =
        |code, message: &str, samples| WriteResponse { code, message: message.to_owned(), samples };
    assert_eq!(next_answer(&mut body).await, answer(200, "", 5));
    assert_eq!(next_answer(&mut body).await, answer(400, "user=b: bad", 0));
    assert_eq!(next_answer(&mut body).await, answer(400, "unexpected EOF", 0));
    assert_eq!(next_answer(&mut body).await.code, 400);
    assert_eq!(next_answer(&mut body).await, answer(200, "", 3));
    open.send.send_data(Bytes::new(), true).expect("end");
    assert!(patiently(body.data()).await.is_none());
    let trailers = patiently(body.trailers()).await.expect("trailers").expect("some");
    assert_eq!(trailers["grpc-status"], "0");
}

#[tokio::test]
async fn case_e4_a_stream_for_another_tenant_or_without_a_signature_is_refused() {
    let keys = StreamKeys::parse("new,old");
    let setup = Setup { stream_keys: keys, ..accepting() };
    let server = setup.start().await;
    let mut client = Client::connect(&server).await;
    let signature = StreamKeys::parse("old").sign(WORKER).expect("a key");
    let mut check = async |headers: &[(&str, &str)], code: &str, text: &str| {
        let answer = client.call(PUSH_STREAM, headers, stream_message("a", b"x")).await;
        assert_eq!((answer.code(), answer.text().as_str()), (code, text));
        answer.messages.len()
    };
    let name = ("x-scope-orgid", WORKER);
    let signed = ("x-stream-signature", signature.as_str());
    assert_eq!(check(&[name, signed], "0", "").await, 1);
    assert_eq!(check(&[name], "2", "signature not present").await, 0);
    assert_eq!(check(&[name, signed, signed], "2", "signature not present").await, 0);
    assert_eq!(check(&[("x-scope-orgid", "a"), signed], "2", "signature mismatch").await, 0);
    assert_eq!(check(&[name, ("x-stream-signature", "00")], "2", "signature mismatch").await, 0);
}

#[tokio::test]
async fn a_stream_that_breaks_a_frame_ends_with_an_error_after_its_answers() {
    let server = accepting().start().await;
    let mut client = Client::connect(&server).await;
    let mut body = BytesMut::new();
    body.put(stream_message("a", b"x"));
    body.put_slice(&[0, 0, 0]);
    let answer = client.call(PUSH_STREAM, &[("x-scope-orgid", WORKER)], body.freeze()).await;
    assert_eq!(answer.messages.len(), 1);
    assert_eq!(answer.code(), "13");
}

#[tokio::test]
async fn a_thousand_streams_on_one_connection_leave_room_for_health_checks() {
    let server = accepting().start().await;
    let mut client = Client::connect(&server).await;
    let mut answered = Vec::new();
    for worker in 0..1000 {
        let name = format!("ingester-127.0.0.1-9095-stream-push-worker-{worker}");
        let mut open = client.open(PUSH_STREAM, &[("x-scope-orgid", &name)]).await;
        open.send.send_data(stream_message("a", b"x"), false).expect("send");
        let mut body = patiently(open.response).await.expect("response").into_body();
        assert_eq!(next_answer(&mut body).await.code, 200);
        answered.push((open.send, body));
    }
    let answer = client.call(HEALTH_CHECK, &[], framed(0, b"")).await;
    assert_eq!(answer.code(), "0");
    for (send, body) in &mut answered {
        send.send_data(stream_message("b", b"y"), true).expect("send");
        assert_eq!(next_answer(body).await.code, 200);
        assert!(patiently(body.data()).await.is_none());
    }
}

#[tokio::test]
async fn a_client_that_cancels_leaves_the_server_working() {
    let server = accepting().start().await;
    let mut client = Client::connect(&server).await;
    for path in [PUSH, PUSH_STREAM] {
        for _ in 0..20 {
            let mut open = client.open(path, &[("x-scope-orgid", WORKER)]).await;
            open.send.send_data(Bytes::from_static(&[0, 0, 0, 1, 0, 1]), false).expect("send");
            open.send.send_reset(h2::Reason::CANCEL);
        }
        let answer = client.call(PUSH, &[("x-scope-orgid", "a")], framed(0, b"x")).await;
        assert_eq!(answer.code(), "0");
    }
}

/// Pushes that wait until the test lets them go.
fn gated() -> (Setup, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (arrive, arrived) = mpsc::channel();
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let setup = Setup::new(move |_, _| {
        arrive.send(()).expect("test is there");
        gate.lock().expect("lock").recv_timeout(PATIENCE).expect("released");
        Ok(Pushed::default())
    });
    (Setup { work: Work::blocking(1), ..setup }, arrived, release)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_answers_each_message_at_hand_once_and_ends_streams_with_an_error() {
    let (setup, arrived, release) = gated();
    let server = setup.start().await;
    let mut client = Client::connect(&server).await;
    let idle = client.open(PUSH_STREAM, &[("x-scope-orgid", WORKER)]).await;
    let mut busy = client.open(PUSH_STREAM, &[("x-scope-orgid", WORKER)]).await;
    // The second message is not at hand: it is unanswered, and the end must not be OK.
    busy.send.send_data(stream_message("a", b"1"), false).expect("send");
    busy.send.send_data(stream_message("a", b"2"), true).expect("send");
    arrived.recv_timeout(PATIENCE).expect("the first push");
    let health = client.call(HEALTH_CHECK, &[], framed(0, b"")).await;
    assert_eq!(health.code(), "0");

    server.drainer.start();
    let ended = finish(patiently(idle.response).await.expect("response")).await;
    assert_eq!((ended.code(), ended.messages.len()), ("14", 0));
    release.send(()).expect("push waits");
    let ended = finish(patiently(busy.response).await.expect("response")).await;
    assert_eq!(ended.messages.len(), 1);
    assert_eq!(write_response(&ended.messages[0]).code, 200);
    assert_eq!(ended.code(), "14");
    assert!(arrived.try_recv().is_err(), "the second message was not pushed");
    assert_eq!(patiently(server.serving).await.expect("serving"), Drained::Whole);
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_does_not_wait_longer_than_its_time() {
    let (setup, arrived, release) = gated();
    let config = Config { graceful_shutdown_timeout: Millis(50), ..setup.config.clone() };
    let server = Setup { config, ..setup }.start().await;
    let mut client = Client::connect(&server).await;
    let mut open = client.open(PUSH, &[("x-scope-orgid", "a")]).await;
    open.send.send_data(framed(0, b"x"), true).expect("send");
    arrived.recv_timeout(PATIENCE).expect("the push");
    server.drainer.start();
    assert_eq!(patiently(server.serving).await.expect("serving"), Drained::Cut);
    release.send(()).expect("push waits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_ends_the_wait_for_a_busy_store() {
    let (setup, arrived, release) = gated();
    let server = setup.start().await;
    let mut client = Client::connect(&server).await;
    let mut first = client.open(PUSH, &[("x-scope-orgid", "a")]).await;
    first.send.send_data(framed(0, b"x"), true).expect("send");
    arrived.recv_timeout(PATIENCE).expect("the push");
    let headers = [("x-scope-orgid", "a"), ("grpc-timeout", "20000u")];
    let late = client.call(PUSH, &headers, framed(0, b"x")).await;
    assert_eq!(late.code(), "4");
    release.send(()).expect("push waits");
    let answer = finish(patiently(first.response).await.expect("response")).await;
    assert_eq!(answer.code(), "0");
    assert!(arrived.try_recv().is_err(), "the late push was not made");
}

#[tokio::test]
async fn what_is_no_grpc_is_told_so() {
    let server = accepting().start().await;
    let mut client = Client::connect(&server).await;
    let request = Request::post(format!("http://localhost{PUSH}"))
        .header("content-type", "application/json")
        .body(())
        .expect("request");
    let (response, _) = client.0.send_request(request, true).expect("send");
    let response = patiently(response).await.expect("response");
    assert_eq!(response.status(), 415);
    assert_eq!(response.headers()["grpc-status"], "13");
    client.open(PUSH, &[]).await;
}
