//! A whole sidecar before an ingester in this process: pushes, unary and streamed.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use freehold::app::App;
use freehold::config::{Config, Target};
use freehold::ring::config::KvStoreKind;
use freehold::ring::model::{Instance, InstanceState, RingModel, Token};
use freehold::tenant::TenantId;
use freehold::wire::proto::cortexpb;
use freehold::wire::{ring_desc, signature};
use h2::RecvStream;
use http::Request;
use prost::Message as _;

use super::cluster::request;
use super::pass_through::fake::{
    Client, Fake, Open, channel, cut, framed, head, head_with, patiently,
};
use super::process::now_ms;
use super::upstream::ingester::UpstreamIngester;

pub const PUSH: &str = "/cortex.Ingester/Push";
pub const PUSH_STREAM: &str = "/cortex.Ingester/PushStream";
pub const WORKER: &str = "ingester-127.0.0.1-9095-stream-push-worker-7";
pub const TENANT: &str = "a";

/// A stored ring whose one member, `ingester-0`, owns all.
pub fn ring_of_one() -> Vec<u8> {
    let instance = Instance {
        addr: "127.0.0.1:9095".to_owned(),
        timestamp_s: now_ms() / 1000,
        state: InstanceState::Active,
        tokens: vec![Token(1), Token(1 << 31)],
        zone: String::new(),
        registered_timestamp_s: 0,
        unknown_fields: Vec::new(),
    };
    let instances = [("ingester-0".to_owned(), instance)].into_iter().collect();
    let model = RingModel { instances, unknown_fields: Vec::new() };
    ring_desc::encode(&model).expect("small")
}

pub struct Sidecar {
    pub app: App,
    pub client: Client,
    _dir: tempfile::TempDir,
}

impl Sidecar {
    /// Before an ingester that owns the whole ring.
    pub async fn before(upstream: std::net::SocketAddr, series_max: i64) -> Self {
        let change = |config: &mut Config| config.limits.max_global_series_per_user = series_max;
        Self::with(upstream, change).await
    }

    pub async fn with(upstream: std::net::SocketAddr, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ring");
        std::fs::write(&path, ring_of_one()).expect("written");

        let mut config = Config { target: Target::Ingester, ..Config::default() };
        config.server.http_listen_port = 0;
        config.admin.http_listen_address = "127.0.0.1:0".into();
        config.server.grpc_listen_port = 0;
        config.server.http_listen_address = "127.0.0.1".to_owned();
        config.server.grpc_listen_address = "127.0.0.1".to_owned();
        config.server.graceful_shutdown_timeout = freehold::units::Millis::from_secs(2);
        let ring = &mut config.ingester.lifecycler.ring;
        ring.kvstore.store = KvStoreKind::File;
        ring.kvstore.file.path = path;
        ring.replication_factor = 1;
        config.ingester.upstream.address = upstream.to_string();
        config.ingester.upstream.connect_backoff_base_delay = freehold::units::Millis(5);
        config.ingester.upstream.connect_backoff_max_delay = freehold::units::Millis(50);
        config.ingester.instance_id = "ingester-0".to_owned();
        config.ingester.owned_series_limit_enforcement_enabled = true;
        change(&mut config);
        let app = App::start(config).await.expect("starts");
        let client = Client::connect(app.grpc_address).await;
        Self { app, client, _dir: dir }
    }

    pub async fn running(self) -> Self {
        self.until("running", |sidecar| sidecar.app.ingester.is_running()).await;
        self
    }

    pub async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let waiting = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        assert!(waited.is_ok(), "waited in vain: {what}");
    }

    /// `grpc-status` and text of a push of these series.
    pub async fn push(&mut self, numbers: impl IntoIterator<Item = u64>) -> (String, String) {
        self.push_at(numbers, now_ms()).await
    }

    pub async fn push_at(
        &mut self,
        numbers: impl IntoIterator<Item = u64>,
        at_ms: i64,
    ) -> (String, String) {
        let body = request(numbers, at_ms);
        let ended = self.client.call(head_with(PUSH, "x-scope-orgid", TENANT), framed(&body)).await;
        (ended.code().to_owned(), percent_decoded(ended.text()))
    }

    /// One metric of the sidecar's own page.
    pub async fn metric(&self, name: &str) -> f64 {
        let got = super::process::http(self.app.http_address, "GET", "/metrics", "", &[]).await;
        let text = String::from_utf8(got.expect("an answer").1).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |line| line.parse().expect("a number"))
    }

    /// Nothing is under way to the upstream any more.
    pub async fn until_idle(&self) {
        let idle = async {
            for name in ["inflight_requests", "inflight_bytes", "streams"] {
                while self.metric(&format!("freehold_upstream_{name}")).await != 0.0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        patiently(idle).await;
    }

    pub async fn pending(&self) -> f64 {
        self.metric(&format!("freehold_ingester_pending_series{{user=\"{TENANT}\"}}")).await
    }

    pub fn in_memory(&self) -> u64 {
        let tenant = TenantId::parse(TENANT).expect("a name");
        self.app.ingester.user_stats(&tenant).series
    }
}

/// A push stream of a distributor.
pub struct Stream {
    pub open: Open,
    pub answers: Option<RecvStream>,
    bytes: BytesMut,
}

impl Stream {
    async fn open(sidecar: &mut Sidecar) -> Self {
        Self::on(&mut sidecar.client).await
    }

    pub async fn on(client: &mut Client) -> Self {
        Self::over(client.open(head_with(PUSH_STREAM, "x-scope-orgid", WORKER)).await)
    }

    pub fn over(open: Open) -> Self {
        Self { open, answers: None, bytes: BytesMut::new() }
    }

    pub fn send(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.send_for(TENANT.as_bytes(), numbers);
    }

    pub fn send_for(&mut self, tenant: &[u8], numbers: impl IntoIterator<Item = u64>) {
        let body = request(numbers, now_ms());
        let message = cortexpb::StreamWriteRequest {
            tenant_id: tenant.to_vec(),
            request: Some(cortexpb::WriteRequest::decode(&body[..]).expect("sound")),
            ..Default::default()
        };
        self.send_bytes(framed(&message.encode_to_vec()));
    }

    pub fn send_bytes(&mut self, bytes: Bytes) {
        self.open.send.send_data(bytes, false).expect("send");
    }

    /// The status that the stream has ended with.
    pub async fn ended(mut self) -> String {
        let response;
        let headers = match &mut self.answers {
            None => {
                response = patiently(self.open.response).await.expect("a response");
                response.headers().clone()
            }
            Some(answers) => {
                patiently(answers.trailers()).await.expect("trailers").unwrap_or_default()
            }
        };
        headers["grpc-status"].to_str().expect("a number").to_owned()
    }

    /// The next answer; `None` at the end of the stream.
    pub async fn answer(&mut self) -> Option<cortexpb::WriteResponse> {
        if self.answers.is_none() {
            let response = patiently(&mut self.open.response).await.expect("a response");
            self.answers = Some(response.into_body());
        }
        let answers = self.answers.as_mut().expect("just there");
        loop {
            if let Some(frame) = cut(&mut self.bytes) {
                return Some(cortexpb::WriteResponse::decode(&frame[5..]).expect("sound"));
            }
            let chunk = patiently(answers.data()).await?.expect("data");
            answers.flow_control().release_capacity(chunk.len()).expect("capacity");
            self.bytes.extend_from_slice(&chunk);
        }
    }

    pub async fn exchange(
        &mut self,
        numbers: impl IntoIterator<Item = u64>,
    ) -> cortexpb::WriteResponse {
        self.send(numbers);
        self.answer().await.expect("an answer")
    }
}

fn percent_decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("hex"));
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// A fake that tells of each push, and answers what questions of ours it can.
async fn recording() -> (Fake, tokio::sync::mpsc::Receiver<(http::HeaderMap, Bytes)>) {
    let (tell, told) = channel();
    let fake = Fake::start(move |request: Request<RecvStream>, respond| {
        let tell = tell.clone();
        async move {
            if request.uri().path() != PUSH {
                return answer_empty(respond).await;
            }
            let (head, mut body) = request.into_parts();
            let mut bytes = BytesMut::new();
            while let Some(Ok(chunk)) = body.data().await {
                let _ = body.flow_control().release_capacity(chunk.len());
                bytes.extend_from_slice(&chunk);
            }
            tell((head.headers, bytes.freeze()));
            answer_empty(respond).await;
        }
    })
    .await;
    (fake, told)
}

async fn answer_empty(mut respond: h2::server::SendResponse<Bytes>) {
    use super::pass_through::fake::{ok_head, ok_trailers};
    let Ok(mut send) = respond.send_response(ok_head(), false) else { return };
    let _ = send.send_data(framed(b""), false);
    let _ = send.send_trailers(ok_trailers());
}

#[tokio::test]
async fn a_push_of_which_nothing_is_refused_goes_on_byte_for_byte() {
    let (fake, mut told) = recording().await;
    let mut sidecar = Sidecar::before(fake.address, 0).await.running().await;
    let body = request(0..3, now_ms());
    let packed = snap::raw::Encoder::new().compress_vec(&body).expect("packed");
    let mut frame = framed(&packed).to_vec();
    frame[0] = 1;
    let mut head = head_with(PUSH, "x-scope-orgid", TENANT);
    let headers = head.headers_mut();
    headers.insert("grpc-encoding", "snappy-block".parse().expect("a value"));
    headers.insert("grpc-timeout", "2S".parse().expect("a value"));
    headers.append("x-request-metadata-propagation-string", "one".parse().expect("a value"));
    headers.append("x-request-metadata-propagation-string", "two".parse().expect("a value"));
    headers.insert("x-req-signature", "v1/17".parse().expect("a value"));
    let sent = head.headers().clone();
    let ended = sidecar.client.call(head, Bytes::from(frame.clone())).await;
    assert_eq!((ended.code(), &ended.body[..]), ("0", &[0, 0, 0, 0, 0][..]));
    let (headers, received) = patiently(told.recv()).await.expect("a push");
    assert_eq!(&received[..], &frame[..]);
    for name in sent.keys() {
        let values = |headers: &http::HeaderMap| -> Vec<_> {
            headers.get_all(name).iter().cloned().collect()
        };
        assert_eq!(values(&headers), values(&sent), "{name}");
    }
    assert_eq!(sidecar.in_memory(), 3);
}

#[tokio::test]
async fn case_e3_known_series_pass_at_the_limit_and_the_rest_is_signed_anew() {
    let (fake, mut told) = recording().await;
    let mut sidecar = Sidecar::before(fake.address, 100).await.running().await;
    assert_eq!(sidecar.push(0..100).await.0, "0");
    patiently(told.recv()).await.expect("a push");
    let at_ms = now_ms();
    let body = request(0..105, at_ms);
    let mut head = head_with(PUSH, "x-scope-orgid", TENANT);
    head.headers_mut().insert("x-req-signature", "v1/17".parse().expect("a value"));
    let ended = sidecar.client.call(head, framed(&body)).await;
    assert_eq!(ended.code(), "400");
    let text = percent_decoded(ended.text());
    assert!(text.contains("per-user series limit of 100 exceeded"), "{text}");
    let (headers, received) = patiently(told.recv()).await.expect("a push");
    let rest = request(0..100, at_ms);
    assert_eq!(&received[..], &framed(&rest)[..]);
    let signature = signature::sign(TENANT, &rest).expect("sound");
    assert_eq!(headers["x-req-signature"], signature.as_str());
    assert_eq!(sidecar.in_memory(), 100);
    // Of a request with new series only nothing is left to send.
    assert_eq!(sidecar.push(200..210).await.0, "400");
    assert!(told.try_recv().is_err(), "nothing goes on");
}

#[tokio::test]
async fn what_the_upstream_refuses_whole_leaves_nothing_and_its_word_goes_first() {
    let upstream = UpstreamIngester::start().await;
    let mut sidecar = Sidecar::before(upstream.address, 10).await.running().await;
    assert_eq!(sidecar.push(0..5).await.0, "0");
    let text = "cannot push: too many inflight push requests in ingester";
    upstream.knobs().refuse = Some((2, text.to_owned()));
    // Three of these are over our own limit; the upstream's error is the answer all the same.
    assert_eq!(sidecar.push(0..13).await, ("2".to_owned(), text.to_owned()));
    assert_eq!(sidecar.in_memory(), 5);
    upstream.knobs().refuse = None;
    assert_eq!(sidecar.push(0..10).await.0, "0");
    assert_eq!((sidecar.in_memory(), upstream.count(TENANT)), (10, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_the_upstream_refuses_is_answered_by_one_headers_frame() {
    let upstream = UpstreamIngester::start().await;
    upstream.knobs().refuse = Some((400, "user=a: per-user series limit exceeded".to_owned()));
    let mut sidecar = Sidecar::before(upstream.address, 0).await.running().await;
    let response = patiently(async {
        let mut open = sidecar.client.open(head_with(PUSH, "x-scope-orgid", TENANT)).await;
        open.send.send_data(framed(&request([1], now_ms())), true).expect("send");
        open.response.await.expect("response")
    })
    .await;
    // Cortex's client takes headers and an empty end for a broken answer, and a refusal for good
    // would be tried again for ever.
    assert!(response.body().is_end_stream());
    assert_eq!(response.headers()["grpc-status"], "400");
}

#[tokio::test]
async fn what_a_partial_refusal_leaves_open_counts_until_it_is_told() {
    let upstream = UpstreamIngester::start().await;
    upstream.knobs().series_max = 4;
    let mut sidecar = Sidecar::before(upstream.address, 8).await.running().await;
    let (code, text) = sidecar.push(0..6).await;
    assert_eq!(code, "400");
    assert!(text.contains("per-user series limit exceeded"), "the upstream's text: {text}");
    assert_eq!(sidecar.in_memory(), 6, "undecided series count");
    // Ours is the first refusal now, and the upstream's only the second.
    let (code, text) = sidecar.push(0..9).await;
    assert_eq!(code, "400");
    assert!(text.contains("per-user series limit of 8 exceeded"), "{text}");
    upstream.knobs().series_max = 0;
    assert_eq!(sidecar.push(0..8).await.0, "0");
    assert_eq!((sidecar.in_memory(), upstream.count(TENANT)), (8, 8));
}

#[tokio::test]
async fn an_upstream_that_is_down_costs_nothing_but_the_push() {
    let mut upstream = UpstreamIngester::start().await;
    let mut sidecar = Sidecar::before(upstream.address, 10).await.running().await;
    assert_eq!(sidecar.push(0..5).await.0, "0");
    upstream.kill().await;
    let mut codes = Vec::new();
    for _ in 0..3 {
        let (code, text) = sidecar.push(0..8).await;
        assert!(text.contains(&upstream.address.to_string()), "{text}");
        codes.push(code);
    }
    assert_eq!(codes, ["14", "14", "14"]);
    upstream.restart(|_, _| {}).await;
    let mut code = String::new();
    for _ in 0..200 {
        code = sidecar.push(0..8).await.0;
        if code == "0" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(code, "0", "comes back by itself");
    assert_eq!((sidecar.in_memory(), upstream.count(TENANT)), (8, 8));
}

/// A caller that gives up leaves its series undecided, never unlimited.
#[tokio::test]
async fn a_deadline_leaves_new_series_counted() {
    let upstream = UpstreamIngester::start().await;
    let mut sidecar = Sidecar::before(upstream.address, 10).await.running().await;
    upstream.knobs().is_silent = true;
    let body = request(0..6, now_ms());
    let mut head = head_with(PUSH, "x-scope-orgid", TENANT);
    head.headers_mut().insert("grpc-timeout", "100m".parse().expect("a value"));
    let ended = sidecar.client.call(head, framed(&body)).await;
    assert_eq!(ended.code(), "4");
    assert_eq!(sidecar.in_memory(), 6);
    upstream.knobs().is_silent = false;
    let (code, text) = sidecar.push(100..110).await;
    assert_eq!(code, "400", "four had room: {text}");
    assert_eq!(sidecar.in_memory(), 10);
}

#[tokio::test]
async fn messages_of_a_stream_are_answered_by_both_verdicts() {
    let upstream = UpstreamIngester::start().await;
    let mut sidecar = Sidecar::before(upstream.address, 10).await.running().await;
    let mut stream = Stream::open(&mut sidecar).await;
    assert_eq!(stream.exchange(0..8).await.code, 200);
    let answer = stream.exchange(0..12).await;
    assert_eq!(answer.code, 400);
    assert!(answer.message.contains("per-user series limit of 10 exceeded"), "{answer:?}");
    assert_eq!((sidecar.in_memory(), upstream.count(TENANT)), (10, 10));
    upstream.knobs().refuse = Some((500, "broken".to_owned()));
    let answer = stream.exchange(0..12).await;
    assert_eq!((answer.code, answer.message.as_str()), (500, "broken"));
    assert_eq!(upstream.calls(PUSH_STREAM), 1, "one stream behind one");
    // The client half-closes, and only then is the status OK.
    stream.open.send.send_data(Bytes::new(), true).expect("send");
    assert!(stream.answer().await.is_none());
    let trailers = patiently(stream.answers.expect("open").trailers()).await.expect("trailers");
    assert_eq!(trailers.expect("trailers")["grpc-status"], "0");
}

/// Whatever happens to the upstream, each message gets one answer, in order, on the same stream.
#[tokio::test]
async fn case_e6_a_stream_outlives_its_upstream_and_each_message_is_answered_once() {
    let mut upstream = UpstreamIngester::start().await;
    let mut sidecar = Sidecar::before(upstream.address, 0).await.running().await;
    let mut stream = Stream::open(&mut sidecar).await;
    assert_eq!(stream.exchange(0..2).await.code, 200);
    upstream.knobs().push_delay = Duration::from_secs(20);
    stream.send(2..4);
    while upstream.calls(PUSH_STREAM) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    upstream.kill().await;
    let answer = stream.answer().await.expect("an answer");
    assert_eq!(answer.code, 503, "{answer:?}");
    let answer = stream.exchange(4..6).await;
    assert_eq!(answer.code, 503, "{answer:?}");
    upstream.knobs().push_delay = Duration::ZERO;
    upstream.restart(|_, _| {}).await;
    let mut code = 0;
    for _ in 0..200 {
        code = stream.exchange(6..8).await.code;
        if code == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(code, 200, "the same stream works again");
    assert_eq!(stream.exchange(0..8).await.code, 200);
    assert_eq!((sidecar.in_memory(), upstream.count(TENANT)), (8, 8));
}

/// An upstream that restarts while nothing is under way costs no message.
#[tokio::test]
async fn a_stream_that_broke_while_idle_is_opened_anew_before_the_next_message() {
    let mut upstream = UpstreamIngester::start().await;
    let mut sidecar = Sidecar::before(upstream.address, 0).await.running().await;
    let mut stream = Stream::open(&mut sidecar).await;
    assert_eq!(stream.exchange(0..2).await.code, 200);
    upstream.restart(|_, _| {}).await;
    // Until the broken connection has been noticed, and the next is there.
    let mut client = sidecar.client.clone();
    let probe = async {
        loop {
            let ended = client.call(head("/grpc.health.v1.Health/Check"), framed(b"")).await;
            if ended.code() == "0" && upstream.calls("/grpc.health.v1.Health/Check") > 0 {
                break;
            }
            let (code, _) = sidecar.push(0..2).await;
            if code == "0" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    patiently(probe).await;
    assert_eq!(stream.exchange(2..4).await.code, 200);
}

#[tokio::test]
async fn a_hundred_streams_push_at_once() {
    let upstream = Arc::new(UpstreamIngester::start().await);
    let mut sidecar = Sidecar::before(upstream.address, 0).await.running().await;
    let mut streams = Vec::new();
    for _ in 0..150 {
        streams.push(Stream::open(&mut sidecar).await);
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.send([number as u64]);
    }
    for stream in &mut streams {
        assert_eq!(stream.answer().await.expect("an answer").code, 200);
    }
    assert_eq!((sidecar.in_memory(), upstream.count(TENANT)), (150, 150));
}
