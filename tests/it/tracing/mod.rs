//! Spans and names of requests, over real sockets: a collector that remembers what it was told,
//! a gate, a sidecar, and what stands behind them.

mod lines;
mod names;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use freehold::app::WriteGate;
use freehold::config::{Config, Target};
use freehold::ring::config::KvStoreKind;
use freehold::ring::model::{Instance, InstanceState, RingModel, Token};
use freehold::trail::config::TracingKind;
use freehold::units::Millis;
use freehold::wire::proto::otlptrace::{
    AnyValue, ExportTraceServiceRequest, Resource, Span, any_value,
};
use freehold::wire::ring_desc;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Request};
use prost::Message as _;
use tokio::task::JoinSet;

use super::cluster::request;
use super::pass_through::fake::{Fake, framed, head_with, ok_head, ok_trailers, patiently};
use super::ports::Port;
use super::process::{http, now_ms};
use super::sidecar::{PUSH_STREAM, Sidecar, Stream, TENANT, WORKER};
use super::upstream::ingester::UpstreamIngester;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

/// A collector that takes everything.
struct Collector {
    fake: Fake,
    told: Arc<Mutex<Vec<(String, Span)>>>,
}

impl Collector {
    async fn start() -> Self {
        let told: Arc<Mutex<Vec<(String, Span)>>> = Arc::default();
        let heard = Arc::clone(&told);
        let fake = Fake::start(move |request, respond| {
            let heard = Arc::clone(&heard);
            async move {
                let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
                assert_eq!(request.uri().path(), path);
                let request = body(request.into_body()).await;
                let request = ExportTraceServiceRequest::decode(request).expect("sound");
                let mut told = heard.lock().expect("lock");
                for spans in request.resource_spans {
                    let service = service(&spans.resource.expect("an origin"));
                    let spans = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
                    told.extend(spans.map(|span| (service.clone(), span)));
                }
                drop(told);
                answer(respond, b"");
            }
        })
        .await;
        Self { fake, told }
    }

    /// Those of one process that have the name, in the order in which they ended.
    fn spans(&self, service: &str, name: &str) -> Vec<Span> {
        let told = self.told.lock().expect("lock");
        let is_it = |(of, span): &&(String, Span)| of == service && span.name == name;
        told.iter().filter(is_it).map(|(_, span)| span.clone()).collect()
    }

    fn one(&self, service: &str, name: &str) -> Span {
        let mut spans = self.spans(service, name);
        assert_eq!(spans.len(), 1, "{service} {name}: {spans:?}");
        spans.remove(0)
    }

    fn is_silent(&self) -> bool {
        self.told.lock().expect("lock").is_empty()
    }
}

async fn body(mut stream: RecvStream) -> Bytes {
    let mut bytes = BytesMut::new();
    while let Some(Ok(chunk)) = stream.data().await {
        let _ = stream.flow_control().release_capacity(chunk.len());
        bytes.extend_from_slice(&chunk);
    }
    // Without its frame.
    bytes.advance(5.min(bytes.len()));
    bytes.freeze()
}

fn answer(mut respond: SendResponse<Bytes>, message: &[u8]) {
    let Ok(mut send) = respond.send_response(ok_head(), false) else { return };
    let _ = send.send_data(framed(message), false);
    let _ = send.send_trailers(ok_trailers());
}

fn service(resource: &Resource) -> String {
    let pair = resource.attributes.iter().find(|pair| pair.key == "service.name");
    text(&pair.expect("a service").value).to_owned()
}

fn text(value: &Option<AnyValue>) -> &str {
    match value {
        Some(AnyValue { value: Some(any_value::Value::StringValue(text)) }) => text,
        other => panic!("{other:?}"),
    }
}

fn notes(span: &Span) -> BTreeMap<String, String> {
    let shown = |value: &Option<AnyValue>| match &value.as_ref().expect("a value").value {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    span.attributes.iter().map(|pair| (pair.key.clone(), shown(&pair.value))).collect()
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An ingester that takes every push, and the heads of those that came.
struct Taker {
    fake: Fake,
    heads: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Taker {
    async fn start() -> Self {
        let heads: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
        let seen = Arc::clone(&heads);
        let fake = Fake::start(move |request: Request<RecvStream>, respond| {
            let seen = Arc::clone(&seen);
            async move {
                let (head, stream) = request.into_parts();
                body(stream).await;
                if head.uri.path() == "/cortex.Ingester/Push" {
                    seen.lock().expect("lock").push(head.headers);
                }
                answer(respond, b"");
            }
        })
        .await;
        Self { fake, heads }
    }

    fn last(&self) -> HeaderMap {
        self.heads.lock().expect("lock").last().expect("something came").clone()
    }
}

fn traced(config: &mut Config, collector: SocketAddr, ratio: f64) {
    config.tracing.kind = TracingKind::Otel;
    config.tracing.otel.otlp_endpoint = collector.to_string();
    config.tracing.otel.sample_ratio = ratio;
    config.server.graceful_shutdown_timeout = Millis::from_secs(5);
    config.ingester.drain_announce_period = Millis(0);
}

/// A gate before the one ingester of a ring.
async fn gate(dir: &Path, ingester: SocketAddr, change: impl FnOnce(&mut Config)) -> WriteGate {
    let instance = Instance {
        addr: ingester.to_string(),
        timestamp_s: now_ms() / 1000,
        state: InstanceState::Active,
        tokens: vec![Token(1), Token(1 << 31)],
        zone: String::new(),
        registered_timestamp_s: 0,
        unknown_fields: Vec::new(),
    };
    let instances = [("ingester-0".to_owned(), instance)].into_iter().collect();
    let ring = RingModel { instances, unknown_fields: Vec::new() };
    let path = dir.join("gates-ring");
    std::fs::write(&path, ring_desc::encode(&ring).expect("small")).expect("written");
    let mut config = Config::for_target(Target::Distributor);
    config.server.http_listen_address = "127.0.0.1".into();
    config.server.http_listen_port = 0;
    let ring = &mut config.ingester.lifecycler.ring;
    ring.kvstore.store = KvStoreKind::File;
    ring.kvstore.file.path = path;
    ring.replication_factor = 1;
    change(&mut config);
    config.validate().expect("a good configuration");
    let gate = WriteGate::start(config).await.expect("starts");
    patiently(async {
        while http(gate.http_address, "GET", "/ready", "", &[]).await.expect("an answer").0 != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    gate
}

async fn push(address: SocketAddr, headers: &str) -> u16 {
    let body = request(0..3, now_ms());
    let body = snap::raw::Encoder::new().compress_vec(&body).expect("packs");
    let headers = format!(
        "X-Scope-OrgID: a\r\nContent-Type: application/x-protobuf\r\n\
         Content-Encoding: snappy\r\n{headers}"
    );
    http(address, "POST", "/api/v1/push", &headers, &body).await.expect("an answer").0
}

async fn metric(address: SocketAddr, name: &str) -> f64 {
    let (_, text) = http(address, "GET", "/metrics", "", &[]).await.expect("an answer");
    let text = String::from_utf8(text).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_through_gate_and_sidecar_is_one_trace_whichever_header_began_it() {
    let w3c = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\ntracestate: vendor=1\r\n");
    let jaeger = format!("uber-trace-id: {TRACE}:{CALLER}:0:1\r\n");
    for header in [w3c, jaeger] {
        let collector = Collector::start().await;
        let address = collector.fake.address;
        let upstream = UpstreamIngester::start().await;
        let sidecar = Sidecar::with(upstream.address, |config| traced(config, address, 0.0)).await;
        let sidecar = sidecar.running().await;
        let dir = tempfile::tempdir().expect("a directory");
        let behind = sidecar.app.grpc_address;
        let gate = gate(dir.path(), behind, |config| traced(config, address, 0.0)).await;
        let headers = format!("{header}X-Request-ID: r-1\r\n");
        assert_eq!(push(gate.http_address, &headers).await, 200);
        gate.stop().await.expect("stops");
        sidecar.app.stop().await.expect("stops");

        let (of_gate, of_sidecar) = ("freehold-distributor", "freehold-ingester");
        let write = collector.one(of_gate, "write");
        let sent = collector.one(of_gate, "ingester");
        let call = collector.one(of_sidecar, "call");
        let behind = collector.one(of_sidecar, "upstream");
        for span in [&write, &sent, &call, &behind] {
            assert_eq!(hex(&span.trace_id), TRACE, "{span:?}");
            assert!(span.status.is_none(), "{span:?}");
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        }
        assert_eq!(hex(&write.parent_span_id), CALLER);
        assert_eq!(sent.parent_span_id, write.span_id);
        assert_eq!(call.parent_span_id, sent.span_id);
        assert_eq!(behind.parent_span_id, call.span_id);
        let kinds = [write.kind, sent.kind, call.kind, behind.kind];
        assert_eq!(kinds, [SERVER, CLIENT, SERVER, CLIENT]);

        let told = notes(&write);
        let note = |name: &str| told[name].as_str();
        assert_eq!((note("freehold.tenant"), note("freehold.request_id")), ("a", "r-1"));
        assert_eq!((note("freehold.series"), note("http.response.status_code")), ("3", "200"));
        assert_eq!(note("url.path"), "/api/v1/push");
        assert!(note("http.request.body.size").parse::<u64>().expect("a number") > 0);
        let told = notes(&call);
        let note = |name: &str| told[name].as_str();
        assert_eq!((note("rpc.method"), note("freehold.request_id")), ("Push", "r-1"));
        assert_eq!((note("freehold.forwarded"), note("freehold.tenant")), ("whole", "a"));
        let state = if header.starts_with("traceparent") { "vendor=1" } else { "" };
        assert_eq!((write.trace_state.as_str(), call.trace_state.as_str()), (state, state));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_of_a_push_stream_is_a_span_of_whoever_opened_it() {
    let collector = Collector::start().await;
    let address = collector.fake.address;
    let upstream = UpstreamIngester::start().await;
    let sidecar = Sidecar::with(upstream.address, |config| traced(config, address, 1.0)).await;
    let mut sidecar = sidecar.running().await;
    let opening = |sampled: &str| {
        let mut head = head_with(PUSH_STREAM, "x-scope-orgid", WORKER);
        let caller = format!("00-{TRACE}-{CALLER}-{sampled}");
        head.headers_mut().insert("traceparent", caller.parse().expect("a value"));
        head
    };
    let mut stream = Stream::over(sidecar.client.open(opening("01")).await);
    assert_eq!(stream.exchange(0..3).await.code, 200);
    stream.send_bytes(framed(b"\x0a"));
    assert_eq!(stream.answer().await.expect("an answer").code, 400);
    assert_eq!(stream.exchange(0..2).await.code, 200);
    // Its opener has decided that nothing of it is recorded.
    let mut untold = Stream::over(sidecar.client.open(opening("00")).await);
    assert_eq!(untold.exchange(0..3).await.code, 200);
    drop((stream, untold));
    sidecar.app.stop().await.expect("stops");

    let messages = collector.spans("freehold-ingester", "message");
    let behind = collector.spans("freehold-ingester", "upstream");
    assert_eq!((messages.len(), behind.len()), (2, 2), "{messages:?}");
    for (message, call) in messages.iter().zip(&behind) {
        assert_eq!(
            (hex(&message.trace_id), hex(&message.parent_span_id)),
            (TRACE.into(), CALLER.into())
        );
        assert_eq!((call.parent_span_id.clone(), call.kind), (message.span_id.clone(), CLIENT));
        assert_eq!(message.kind, SERVER);
        let told = notes(message);
        let note = |name: &str| told[name].as_str();
        assert_eq!((note("rpc.method"), note("http.response.status_code")), ("PushStream", "200"));
        assert_eq!((note("freehold.tenant"), note("freehold.forwarded")), (TENANT, "whole"));
        assert_eq!(notes(call)["freehold.told"], "stored");
    }
    assert_ne!(messages[0].span_id, messages[1].span_id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_recorded_stream_as_many_messages_are_recorded_as_the_ratio_says() {
    let collector = Collector::start().await;
    let address = collector.fake.address;
    let upstream = UpstreamIngester::start().await;
    let sidecar = Sidecar::with(upstream.address, |config| traced(config, address, 0.0)).await;
    let mut sidecar = sidecar.running().await;
    let mut head = head_with(PUSH_STREAM, "x-scope-orgid", WORKER);
    let caller = format!("00-{TRACE}-{CALLER}-01");
    head.headers_mut().insert("traceparent", caller.parse().expect("a value"));
    let mut stream = Stream::over(sidecar.client.open(head).await);
    for _ in 0..20 {
        assert_eq!(stream.exchange(0..3).await.code, 200);
    }
    drop(stream);
    sidecar.app.stop().await.expect("stops");
    assert!(collector.is_silent());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_hop_hears_of_a_trace_in_the_forms_in_which_it_came() {
    let collector = Collector::start().await;
    let taker = Taker::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let address = collector.fake.address;
    let gate = gate(dir.path(), taker.fake.address, |config| traced(config, address, 0.0)).await;
    let w3c = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n");
    let jaeger = format!("uber-trace-id: {TRACE}:{CALLER}:0:1\r\n");
    for (header, forms) in [
        (w3c.clone(), &["traceparent"][..]),
        (jaeger.clone(), &["uber-trace-id"]),
        (format!("{w3c}{jaeger}"), &["traceparent", "uber-trace-id"]),
    ] {
        assert_eq!(push(gate.http_address, &header).await, 200);
        let head = taker.last();
        for form in ["traceparent", "uber-trace-id"] {
            let told = head.get(form).map(|value| value.to_str().expect("text"));
            assert_eq!(told.is_some(), forms.contains(&form), "{head:?}");
            if let Some(told) = told {
                assert!(told.contains(TRACE) && !told.contains(CALLER), "our span: {told}");
            }
        }
        // A request that nobody has named is called by its trace.
        assert_eq!(head["x-request-id"], TRACE);
    }
    gate.stop().await.expect("stops");
    let spans = collector.spans("freehold-distributor", "ingester");
    let last = spans.last().expect("three of them");
    assert_eq!(spans.len(), 3);
    let told = taker.last();
    let expect = format!("00-{TRACE}-{}-01", hex(&last.span_id));
    assert_eq!(told["traceparent"].to_str().expect("text"), expect);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ratio_is_for_traces_that_begin_here_and_the_next_hop_hears_the_decision() {
    for (ratio, flags, count) in [(0.0, "-00", 0), (1.0, "-01", 1)] {
        let collector = Collector::start().await;
        let taker = Taker::start().await;
        let dir = tempfile::tempdir().expect("a directory");
        let address = collector.fake.address;
        let change = |config: &mut Config| traced(config, address, ratio);
        let gate = gate(dir.path(), taker.fake.address, change).await;
        assert_eq!(push(gate.http_address, "").await, 200);
        let told = taker.last()["traceparent"].to_str().expect("text").to_owned();
        assert!(told.ends_with(flags), "{told}");
        // Who was told that it is not recorded does not record it, whatever the ratio is.
        let unwanted = format!("traceparent: 00-{TRACE}-{CALLER}-00\r\n");
        assert_eq!(push(gate.http_address, &unwanted).await, 200);
        let told = taker.last()["traceparent"].to_str().expect("text").to_owned();
        assert_eq!(told, format!("00-{TRACE}-{CALLER}-00"));
        gate.stop().await.expect("stops");
        let spans = collector.spans("freehold-distributor", "write");
        assert_eq!(spans.len(), count);
        assert!(spans.iter().all(|span| span.parent_span_id.is_empty()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_says_on_its_span_what_and_why() {
    let collector = Collector::start().await;
    let taker = Taker::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let address = collector.fake.address;
    let change = |config: &mut Config| {
        traced(config, address, 1.0);
        (config.limits.ingestion_rate, config.limits.ingestion_burst_size) = (0.001, 1);
    };
    let gate = gate(dir.path(), taker.fake.address, change).await;
    assert_eq!(push(gate.http_address, "").await, 429);
    gate.stop().await.expect("stops");
    let write = collector.one("freehold-distributor", "write");
    let told = notes(&write);
    assert_eq!(
        (told["freehold.refused"].as_str(), told["http.response.status_code"].as_str()),
        ("3", "429")
    );
    assert!(told.contains_key("freehold.refused.reason"), "{told:?}");
    let status = write.status.expect("an error");
    assert!(status.code == 2 && status.message.contains("limit"), "{status:?}");
    assert!(collector.spans("freehold-distributor", "ingester").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tracing_nothing_is_sent_and_no_header_is_added() {
    let collector = Collector::start().await;
    let taker = Taker::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let address = collector.fake.address;
    let change = |config: &mut Config| {
        traced(config, address, 1.0);
        config.tracing.kind = TracingKind::Jaeger;
    };
    let gate = gate(dir.path(), taker.fake.address, change).await;
    assert_eq!(push(gate.http_address, "").await, 200);
    let head = taker.last();
    assert!(!head.contains_key("traceparent") && !head.contains_key("uber-trace-id"), "{head:?}");
    let (_, text) = http(gate.http_address, "GET", "/metrics", "", &[]).await.expect("an answer");
    assert!(!String::from_utf8(text).expect("text").contains("freehold_trace_"));
    gate.stop().await.expect("stops");
    assert!(collector.is_silent());
}

/// Of collectors that nobody has started, and that take a batch and never answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_collector_costs_a_bounded_queue_and_no_push_any_time() {
    const PUSHES: usize = 1500;
    let mute = Fake::start(|_, respond| async move {
        let _held = respond;
        std::future::pending::<()>().await;
    })
    .await;
    let nobody = Port::new();
    for collector in [mute.address, nobody.address] {
        let taker = Taker::start().await;
        let dir = tempfile::tempdir().expect("a directory");
        let gate =
            gate(dir.path(), taker.fake.address, |config| traced(config, collector, 1.0)).await;
        let address = gate.http_address;
        let mut pushing = JoinSet::new();
        for _ in 0..4 {
            pushing.spawn(async move {
                for _ in 0..PUSHES / 4 {
                    assert_eq!(patiently(push(address, "")).await, 200);
                }
            });
        }
        pushing.join_all().await;
        // Two spans each, of which a batch is out, a queue is full, and the rest is counted.
        let dropped = metric(address, "freehold_trace_spans_total{fate=\"queue_full\"}").await;
        let unsent = metric(address, "freehold_trace_spans_total{fate=\"unsent\"}").await;
        let queued = metric(address, "freehold_trace_spans_queued").await;
        assert!(queued <= 2048.0, "{queued}");
        assert!(dropped + unsent >= (2 * PUSHES - 2048 - 512) as f64, "{dropped} {unsent}");
        assert_eq!(metric(address, "freehold_trace_spans_total{fate=\"sent\"}").await, 0.0);
        // Nor does it hold the end of the process.
        patiently(gate.stop()).await.expect("stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_collector_rejects_is_counted_as_rejected() {
    let fake = Fake::start(|request: Request<RecvStream>, respond| async move {
        body(request.into_body()).await;
        // partial_success { rejected_spans: 1, error_message: "no" }
        answer(respond, &[0x0a, 6, 0x08, 1, 0x12, 2, b'n', b'o']);
    })
    .await;
    let taker = Taker::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let gate =
        gate(dir.path(), taker.fake.address, |config| traced(config, fake.address, 1.0)).await;
    assert_eq!(push(gate.http_address, "").await, 200);
    let address = gate.http_address;
    patiently(async {
        while metric(address, "freehold_trace_spans_total{fate=\"rejected\"}").await == 0.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(metric(address, "freehold_trace_spans_total{fate=\"sent\"}").await, 1.0);
    gate.stop().await.expect("stops");
}
