//! A real ingester as far as a sidecar can tell, in this process: Cortex's answers and habits.
//!
//! It keeps series and their newest times, no samples. What Cortex does that is surprising is
//! done here too: a push keeps what it can and answers 400 with the first failure; a series whose
//! first sample is refused is in the head all the same, counted and never listed; a listing's
//! range that lies before all data means the head's; one that reaches behind the head names
//! series of recent blocks; a tenant that is closing is listed as empty, with status OK; while it
//! starts or stops every call is UNAVAILABLE. [`Knobs`] make it slow, mute or refusing.
//!
//! Included by path from a bench too, so it needs nothing else of the tests.
#![allow(dead_code, reason = "each user has its part")]

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use freehold::labels::LabelsBuf;
use freehold::wire::proto::{cortex, cortexpb};
use freehold::wire::status::http_status_details;
use freehold::wire::write_request::WriteRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use prost::Message;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Label sets in one message of a listing, as Cortex sends them.
const LISTED_PER_MESSAGE: usize = 128;
const HOUR_MS: i64 = 60 * 60 * 1000;

/// What a test can do to every call, at any time.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    /// Waits so long before it looks at a push, a poll, a listing.
    pub push_delay: Duration,
    pub poll_delay: Duration,
    pub listing_delay: Duration,
    /// Between two messages of a listing.
    pub message_delay: Duration,
    /// Refuses each push whole, with this gRPC code and text; an HTTP code comes with details.
    pub refuse: Option<(i32, String)>,
    /// Starts or stops: everything but health is UNAVAILABLE.
    pub is_not_running: bool,
    /// Takes pushes and never answers them.
    pub is_silent: bool,
    /// Takes pushes and looks at them once this is over.
    pub is_held: bool,
    /// Its own limit on a tenant's series; 0 is none.
    pub series_max: u64,
    /// `query_ingesters_within` is set: ranges are taken by the letter.
    pub ranges_are_literal: bool,
    /// A listing breaks off after so many messages.
    pub break_listing_after: Option<usize>,
}

/// A tenant's head and its recent blocks.
#[derive(Clone, Debug, Default)]
pub struct Tenant {
    /// Newest sample by canonical labels.
    pub series: BTreeMap<Vec<u8>, i64>,
    /// Series without samples.
    pub bare: BTreeSet<Vec<u8>>,
    pub blocks: Vec<Block>,
    /// What listings answer instead of looking, for who measures the other side.
    prepared: Option<Arc<Vec<Bytes>>>,
    /// Answers listings with nothing.
    pub is_closing: bool,
    /// Samples before this are out of bounds.
    min_valid_ms: i64,
    /// Sample times of the head.
    oldest_ms: Option<i64>,
    newest_ms: i64,
}

/// What a cut has moved out of the head: samples from `from_ms` and before `before_ms`.
#[derive(Clone, Debug)]
pub struct Block {
    pub from_ms: i64,
    pub before_ms: i64,
    pub series: BTreeSet<Vec<u8>>,
}

#[derive(Default)]
struct State {
    tenants: Mutex<BTreeMap<String, Tenant>>,
    knobs: Mutex<Knobs>,
    /// Calls begun, by path.
    calls: Mutex<BTreeMap<String, usize>>,
}

/// See the head of the file. Its connections end when it is dropped, as a killed process' do.
pub struct UpstreamIngester {
    pub address: SocketAddr,
    /// Bound and never listening, so that the port stays ours while it is killed.
    _held: TcpSocket,
    state: Arc<State>,
    serving: Option<JoinSet<()>>,
}

impl UpstreamIngester {
    pub async fn start() -> Self {
        let held = TcpSocket::new_v4().expect("a socket");
        // Alone when it is taken; only then may a listener be beside it.
        held.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        held.set_reuseaddr(true).expect("an option");
        let address = held.local_addr().expect("bound");
        let state = Arc::new(State::default());
        let serving = serve(address, Arc::clone(&state)).await;
        Self { address, _held: held, state, serving: Some(serving) }
    }

    pub fn knobs(&self) -> MutexGuard<'_, Knobs> {
        self.state.knobs.lock().expect("no panic under this lock")
    }

    pub fn tenants(&self) -> MutexGuard<'_, BTreeMap<String, Tenant>> {
        self.state.tenants.lock().expect("no panic under this lock")
    }

    pub fn calls(&self, path: &str) -> usize {
        let calls = self.state.calls.lock().expect("no panic under this lock");
        calls.get(path).copied().unwrap_or(0)
    }

    /// As `AllUserStats` counts them.
    pub fn count(&self, tenant: &str) -> u64 {
        self.tenants().get(tenant).map_or(0, Tenant::count)
    }

    /// A push that does not come over the wire.
    pub fn push(&self, tenant: &str, body: &[u8]) -> Result<(), String> {
        let series_max = self.knobs().series_max;
        self.tenants().entry(tenant.to_owned()).or_default().push(tenant, body, series_max)
    }

    /// From now on listings answer with what the head holds now, without looking.
    pub fn prepare_listing(&self, tenant: &str) {
        if let Some(tenant) = self.tenants().get_mut(tenant) {
            let listed: Vec<_> = tenant.series.keys().cloned().collect();
            tenant.prepared = Some(Arc::new(listing_messages(&listed)));
        }
    }

    /// The head drops everything before `before_ms`, and with it series without samples.
    pub fn cut_head(&self, tenant: &str, before_ms: i64) {
        self.tenants().entry(tenant.to_owned()).or_default().cut(before_ms);
    }

    /// `/ingester/flush`: the whole head goes.
    pub fn flush(&self, tenant: &str) {
        self.cut_head(tenant, i64::MAX);
    }

    /// The tenant is closed and gone.
    pub fn close(&self, tenant: &str) {
        self.tenants().remove(tenant);
    }

    /// Breaks every connection and listens no more.
    pub async fn kill(&mut self) {
        if let Some(mut serving) = self.serving.take() {
            serving.shutdown().await;
        }
    }

    /// Listens again at the same address, with the heads that `replay` leaves of each tenant.
    pub async fn restart(&mut self, mut replay: impl FnMut(&str, &mut Tenant)) {
        self.kill().await;
        for (id, tenant) in self.tenants().iter_mut() {
            replay(id, tenant);
        }
        self.serving = Some(serve(self.address, Arc::clone(&self.state)).await);
    }
}

impl Tenant {
    pub fn count(&self) -> u64 {
        (self.series.len() + self.bare.len()) as u64
    }

    /// A series with a sample, without a push.
    pub fn enter(&mut self, labels: &[u8], at_ms: i64) {
        self.take(labels, at_ms, 0).expect("in bounds");
    }

    /// Keeps what can be kept; the first failure's text.
    fn push(&mut self, id: &str, body: &[u8], series_max: u64) -> Result<(), String> {
        let mut arena = Vec::new();
        let mut request = WriteRequest::new(body, &mut arena).map_err(|error| error.to_string())?;
        let mut failure = None;
        while let Some(series) = request.next_series().map_err(|error| error.to_string())? {
            let labels = request.labels(&series).as_bytes().to_vec();
            for sample in series.samples(body) {
                let at_ms = sample.timestamp_ms;
                if let Err(error) = self.take(&labels, at_ms, series_max) {
                    let labels = freehold::labels::Labels::from_canonical(&labels);
                    failure.get_or_insert(format!(
                        "user={id}: err: {error}. timestamp={at_ms}, series={labels}"
                    ));
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn take(&mut self, labels: &[u8], at_ms: i64, series_max: u64) -> Result<(), &'static str> {
        let is_known = self.series.contains_key(labels) || self.bare.contains(labels);
        if !is_known && series_max > 0 && self.count() >= series_max {
            return Err("per-user series limit exceeded");
        }
        // The series comes to be before its sample is looked at.
        if at_ms < self.min_valid_ms.max(self.newest_ms.saturating_sub(HOUR_MS)) {
            if !is_known {
                self.bare.insert(labels.to_vec());
            }
            return Err("out of bounds");
        }
        match self.series.get_mut(labels) {
            Some(newest_ms) if at_ms < *newest_ms => return Err("out of order sample"),
            Some(newest_ms) => *newest_ms = at_ms,
            None => {
                self.bare.remove(labels);
                self.series.insert(labels.to_vec(), at_ms);
            }
        }
        self.oldest_ms = Some(self.oldest_ms.map_or(at_ms, |oldest_ms| oldest_ms.min(at_ms)));
        self.newest_ms = self.newest_ms.max(at_ms);
        Ok(())
    }

    fn cut(&mut self, before_ms: i64) {
        let from_ms = self.head_ms();
        self.oldest_ms = (before_ms < i64::MAX).then_some(before_ms);
        let gone: BTreeSet<_> = self.series.keys().cloned().collect();
        self.blocks.push(Block { from_ms, before_ms, series: gone });
        self.series.retain(|_, newest_ms| *newest_ms >= before_ms);
        self.bare.clear();
        self.min_valid_ms = if before_ms == i64::MAX { self.newest_ms + 1 } else { before_ms };
    }

    fn head_ms(&self) -> i64 {
        self.oldest_ms.unwrap_or(i64::MAX)
    }

    /// What a listing of this range names.
    fn list(&self, from_ms: i64, to_ms: i64, is_literal: bool) -> BTreeSet<Vec<u8>> {
        if self.is_closing {
            return BTreeSet::new();
        }
        let start_ms = self.blocks.first().map_or(self.head_ms(), |block| block.from_ms);
        let (mut from_ms, mut to_ms) = (from_ms, to_ms);
        if !is_literal && to_ms < start_ms {
            (from_ms, to_ms) = (self.head_ms(), self.newest_ms);
        } else if !is_literal && from_ms < start_ms {
            (from_ms, to_ms) = (0, i64::MAX);
        }
        let mut listed = BTreeSet::new();
        if to_ms >= self.head_ms() {
            let in_head = self.series.iter().filter(|(_, newest_ms)| **newest_ms >= from_ms);
            listed.extend(in_head.map(|(labels, _)| labels.clone()));
        }
        for block in &self.blocks {
            if block.from_ms <= to_ms && from_ms < block.before_ms {
                listed.extend(block.series.iter().cloned());
            }
        }
        listed
    }
}

/// What is answered beside the messages.
enum Ended {
    Ok,
    /// gRPC's own code.
    Plain(i32, String),
    /// An HTTP code, with details.
    Http(i32, String),
    /// No answer at all: the stream is reset.
    Broken,
}

async fn serve(address: SocketAddr, state: Arc<State>) -> JoinSet<()> {
    let socket = TcpSocket::new_v4().expect("a socket");
    // After a kill the port is taken again at once.
    socket.set_reuseaddr(true).expect("an option");
    socket.bind(address).expect("bind");
    let listener: TcpListener = socket.listen(1024).expect("listen");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("nodelay");
            connections.spawn(speak(stream, Arc::clone(&state)));
        }
    });
    tasks
}

async fn speak(stream: TcpStream, state: Arc<State>) {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(1000);
    let Ok(mut connection) = builder.handshake(stream).await else { return };
    let mut calls = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        calls.spawn(answer(request, respond, Arc::clone(&state)));
    }
}

async fn answer(request: Request<RecvStream>, respond: SendResponse<Bytes>, state: Arc<State>) {
    let path = request.uri().path().to_owned();
    *state.calls.lock().expect("no panic").entry(path.clone()).or_default() += 1;
    let header = |name: &str| {
        let value = request.headers().get(name).map(|value| value.to_str().expect("ASCII"));
        value.unwrap_or_default().to_owned()
    };
    let (tenant, encoding) = (header("x-scope-orgid"), header("grpc-encoding"));
    let mut answer = Answer { respond, send: None };
    let mut messages = Messages { body: request.into_body(), bytes: BytesMut::new(), encoding };
    let knobs = state.knobs.lock().expect("no panic").clone();
    let ended = match path.as_str() {
        "/grpc.health.v1.Health/Check" => {
            // One field: status SERVING.
            answer.message(&[0x08, 0x01]).await;
            Ended::Ok
        }
        _ if knobs.is_not_running => Ended::Plain(14, "Starting".to_owned()),
        "/cortex.Ingester/Push" => push(&state, &knobs, &tenant, &mut messages, &mut answer).await,
        "/cortex.Ingester/PushStream" => push_stream(&state, &mut messages, &mut answer).await,
        "/cortex.Ingester/AllUserStats" => {
            tokio::time::sleep(knobs.poll_delay).await;
            answer.message(&all_user_stats(&state).encode_to_vec()).await;
            Ended::Ok
        }
        "/cortex.Ingester/MetricsForLabelMatchersStream" => {
            list(&state, &knobs, &tenant, &mut messages, &mut answer).await
        }
        _ => Ended::Plain(12, format!("unknown method {path}")),
    };
    answer.end(ended).await;
}

async fn push(
    state: &State,
    knobs: &Knobs,
    tenant: &str,
    messages: &mut Messages,
    answer: &mut Answer,
) -> Ended {
    let Some(body) = messages.next().await else { return Ended::Broken };
    until_released(state).await;
    tokio::time::sleep(knobs.push_delay).await;
    if knobs.is_silent {
        std::future::pending::<()>().await;
    }
    match push_one(state, tenant, &body) {
        Ok(()) => {
            answer.message(&[]).await;
            Ended::Ok
        }
        Err((code, text)) if code >= 100 => Ended::Http(code, text),
        Err((code, text)) => Ended::Plain(code, text),
    }
}

async fn until_released(state: &State) {
    let is_held = || state.knobs.lock().expect("no panic").is_held;
    while is_held() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn push_one(state: &State, tenant: &str, body: &[u8]) -> Result<(), (i32, String)> {
    let knobs = state.knobs.lock().expect("no panic").clone();
    if let Some(refusal) = knobs.refuse {
        return Err(refusal);
    }
    let mut tenants = state.tenants.lock().expect("no panic");
    let tenant_state = tenants.entry(tenant.to_owned()).or_default();
    tenant_state.push(tenant, body, knobs.series_max).map_err(|text| (400, text))
}

async fn push_stream(state: &State, messages: &mut Messages, answer: &mut Answer) -> Ended {
    while let Some(message) = messages.next().await {
        until_released(state).await;
        let knobs = state.knobs.lock().expect("no panic").clone();
        tokio::time::sleep(knobs.push_delay).await;
        if knobs.is_silent {
            std::future::pending::<()>().await;
        }
        let Ok(message) = cortexpb::StreamWriteRequest::decode(&message[..]) else {
            return Ended::Plain(13, "garbled".to_owned());
        };
        let tenant = String::from_utf8_lossy(&message.tenant_id).into_owned();
        let body = message.request.unwrap_or_default().encode_to_vec();
        let (code, text) = match push_one(state, &tenant, &body) {
            Ok(()) => (200, String::new()),
            Err((code, text)) => (if code >= 100 { code } else { 500 }, text),
        };
        let told = cortexpb::WriteResponse { code, message: text, ..Default::default() };
        answer.message(&told.encode_to_vec()).await;
    }
    Ended::Ok
}

fn all_user_stats(state: &State) -> cortex::UsersStatsResponse {
    let tenants = state.tenants.lock().expect("no panic");
    let stats = tenants.iter().map(|(id, tenant)| {
        let num_series = tenant.count();
        let data = cortex::UserStatsResponse { num_series, ..Default::default() };
        cortex::UserIdStatsResponse { user_id: id.clone(), data: Some(data) }
    });
    cortex::UsersStatsResponse { stats: stats.collect() }
}

async fn list(
    state: &State,
    knobs: &Knobs,
    tenant: &str,
    messages: &mut Messages,
    answer: &mut Answer,
) -> Ended {
    let Some(question) = messages.next().await else { return Ended::Broken };
    let question = cortex::MetricsForLabelMatchersRequest::decode(&question[..]);
    let question = question.expect("a question");
    assert_eq!(question.limit, 0);
    let matches_all = question.matchers_set.iter().all(|set| {
        set.matchers
            .iter()
            .all(|one| one.r#type == 2 && one.name == "__name__" && one.value == ".*")
    });
    assert!(matches_all && question.matchers_set.len() == 1, "{question:?}");
    tokio::time::sleep(knobs.listing_delay).await;
    let messages = {
        let tenants = state.tenants.lock().expect("no panic");
        let found = tenants.get(tenant).map(|tenant| match &tenant.prepared {
            Some(prepared) => Arc::clone(prepared),
            None => {
                let (from_ms, to_ms) = (question.start_timestamp_ms, question.end_timestamp_ms);
                let listed = tenant.list(from_ms, to_ms, knobs.ranges_are_literal);
                Arc::new(listing_messages(&listed.into_iter().collect::<Vec<_>>()))
            }
        });
        found.unwrap_or_default()
    };
    for (number, message) in messages.iter().enumerate() {
        if knobs.break_listing_after == Some(number) {
            return Ended::Broken;
        }
        answer.message(message).await;
        if knobs.message_delay > Duration::ZERO {
            tokio::time::sleep(knobs.message_delay).await;
        }
    }
    Ended::Ok
}

/// The canonical form of labels is that of a `Metric`'s.
fn listing_messages(listed: &[Vec<u8>]) -> Vec<Bytes> {
    let message = |part: &[Vec<u8>]| {
        let mut message = Vec::new();
        for labels in part {
            message.put_u8(0x0a);
            prost::encoding::encode_varint(labels.len() as u64, &mut message);
            message.extend_from_slice(labels);
        }
        Bytes::from(message)
    };
    listed.chunks(LISTED_PER_MESSAGE).map(message).collect()
}

/// Messages of a request.
struct Messages {
    body: RecvStream,
    bytes: BytesMut,
    encoding: String,
}

impl Messages {
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(message) = self.cut() {
                return Some(message);
            }
            let chunk = self.body.data().await?.ok()?;
            let _ = self.body.flow_control().release_capacity(chunk.len());
            self.bytes.extend_from_slice(&chunk);
        }
    }

    fn cut(&mut self) -> Option<Vec<u8>> {
        let len = u32::from_be_bytes(self.bytes.get(1..5)?.try_into().ok()?) as usize;
        if self.bytes.len() < 5 + len {
            return None;
        }
        let is_compressed = self.bytes[0] == 1;
        self.bytes.advance(5);
        let message = self.bytes.split_to(len).to_vec();
        if !is_compressed {
            return Some(message);
        }
        Some(match self.encoding.as_str() {
            "snappy-block" => snap::raw::Decoder::new().decompress_vec(&message).expect("snappy"),
            "gzip" => {
                let mut plain = Vec::new();
                let mut reader = flate2::read::GzDecoder::new(&message[..]);
                std::io::Read::read_to_end(&mut reader, &mut plain).expect("gzip");
                plain
            }
            other => panic!("compressed by {other:?}"),
        })
    }
}

/// An answer on its way.
struct Answer {
    respond: SendResponse<Bytes>,
    send: Option<SendStream<Bytes>>,
}

impl Answer {
    /// Headers go with the first message, as from Cortex.
    fn stream(&mut self) -> Option<&mut SendStream<Bytes>> {
        if self.send.is_none() {
            let head = Response::builder().header("content-type", "application/grpc");
            let head = head.body(()).expect("a head");
            self.send = self.respond.send_response(head, false).ok();
        }
        self.send.as_mut()
    }

    async fn message(&mut self, message: &[u8]) {
        let mut framed = BytesMut::with_capacity(5 + message.len());
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).expect("short"));
        framed.put_slice(message);
        let mut rest = framed.freeze();
        let Some(stream) = self.stream() else { return };
        // No more than the other side takes: a listing is not to lie in a buffer.
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            let Some(Ok(room)) = poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
            let part = rest.split_to(room.min(rest.len()));
            if stream.send_data(part, false).is_err() {
                return;
            }
        }
    }

    async fn end(mut self, ended: Ended) {
        let mut status = HeaderMap::new();
        match ended {
            Ended::Broken => {
                match self.send {
                    Some(mut send) => send.send_reset(h2::Reason::INTERNAL_ERROR),
                    None => self.respond.send_reset(h2::Reason::INTERNAL_ERROR),
                }
                return;
            }
            Ended::Ok => {
                status.insert("grpc-status", HeaderValue::from_static("0"));
                if let Some(stream) = self.stream() {
                    let _ = stream.send_trailers(status);
                }
                return;
            }
            Ended::Plain(code, text) => {
                status.insert("grpc-status", HeaderValue::from(code));
                status.insert("grpc-message", percent_encoded(&text));
            }
            Ended::Http(code, text) => {
                status.insert("grpc-status", HeaderValue::from(code));
                status.insert("grpc-message", percent_encoded(&text));
                let details = BASE64_STANDARD_NO_PAD.encode(http_status_details(code, &text));
                let details = HeaderValue::from_str(&details).expect("base64");
                status.insert("grpc-status-details-bin", details);
            }
        }
        match self.send {
            Some(mut send) => {
                let _ = send.send_trailers(status);
            }
            None => {
                let mut head = Response::new(());
                *head.headers_mut() = status;
                let kind = HeaderValue::from_static("application/grpc");
                head.headers_mut().insert("content-type", kind);
                let _ = self.respond.send_response(head, true);
            }
        }
    }
}

fn percent_encoded(text: &str) -> HeaderValue {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&encoded).expect("visible ASCII")
}

/// Canonical labels of a series of these tests.
pub fn labels(metric: &str, number: u64) -> LabelsBuf {
    LabelsBuf::from_pairs([("__name__", metric), ("i", number.to_string().as_str())])
}
