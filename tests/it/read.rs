//! What was pushed, read back: a whole process against bare connections.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use freehold::app::App;
use freehold::config::{Config, Output, QueryArgs};
use freehold::query::{self, InstanceError, QueryError};
use freehold::units::Millis;
use freehold::wire::proto::{cortexpb, prometheus};
use http::Request;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(60);
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

struct Running {
    app: App,
    _directory: tempfile::TempDir,
    now_ms: i64,
}

impl Running {
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.store.path = directory.path().join("data");
        config.server.http_listen_address = "127.0.0.1".to_owned();
        config.server.grpc_listen_address = "127.0.0.1".to_owned();
        config.server.http_listen_port = 0;
        config.admin.http_listen_address = "127.0.0.1:0".into();
        config.server.grpc_listen_port = 0;
        config.ingester.lifecycler.final_sleep = Millis(0);
        config.ingester.lifecycler.address = "127.0.0.1".to_owned();
        config.limits.enable_native_histograms = true;
        change(&mut config);
        let app = App::start(config).await.expect("starts");
        let now_ms = app.clock.now().unix_ms;
        Self { app, _directory: directory, now_ms }
    }

    async fn push(&self, tenant: &str, request: &cortexpb::WriteRequest) {
        let body = block(&request.encode_to_vec());
        let pushing = async {
            loop {
                let answer = self.send("POST /api/v1/push", tenant, PROTOBUF, &body).await;
                // Until the ring says that we are ACTIVE, a new tenant is refused.
                match answer.status {
                    200 => return,
                    500 => tokio::task::yield_now().await,
                    status => panic!("{status}: {}", answer.text()),
                }
            }
        };
        tokio::time::timeout(PATIENCE, pushing).await.expect("pushes are taken");
    }

    async fn send(&self, start: &str, tenant: &str, kind: &str, body: &[u8]) -> Answer {
        send(self.app.http_address, start, tenant, kind, body).await
    }

    async fn get(&self, tenant: &str, path: &str) -> (u16, Value) {
        let answer = self.send(&format!("GET {path}"), tenant, "text/plain", b"").await;
        let json = serde_json::from_slice(&answer.body);
        (answer.status, json.unwrap_or_else(|_| panic!("no JSON: {}", answer.text())))
    }

    /// `data` of an answer that is a success.
    async fn data(&self, path: &str) -> Value {
        let (status, mut json) = self.get("a", path).await;
        assert_eq!((status, &json["status"]), (200, &json!("success")), "{path}: {json}");
        json["data"].take()
    }

    async fn read(
        &self,
        tenant: &str,
        matchers: &[(i32, &str, &str)],
    ) -> Vec<cortexpb::TimeSeries> {
        let matchers = matchers.iter().map(|(kind, name, value)| prometheus::LabelMatcher {
            r#type: *kind,
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        });
        let query = prometheus::Query {
            start_timestamp_ms: self.now_ms - 60_000,
            end_timestamp_ms: self.now_ms + 60_000,
            matchers: matchers.collect(),
            hints: None,
        };
        let request = prometheus::ReadRequest { queries: vec![query], ..Default::default() };
        let body = block(&request.encode_to_vec());
        let answer = self.send("POST /prometheus/api/v1/read", tenant, PROTOBUF, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let bytes = snap::raw::Decoder::new().decompress_vec(&answer.body).expect("a block");
        let mut response = prometheus::ReadResponse::decode(&bytes[..]).expect("a response");
        assert_eq!(response.results.len(), 1);
        response.results.remove(0).timeseries
    }

    fn query(&self, tenant: &str, matchers: &str) -> QueryArgs {
        QueryArgs {
            addr: self.app.http_address.to_string(),
            tenant: tenant.to_owned(),
            matchers: matchers.to_owned(),
            start: None,
            end: Some(((self.now_ms + 60_000) as f64 / 1000.0).to_string()),
            output: Output::Table,
        }
    }
}

const PROTOBUF: &str = "application/x-protobuf";

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

async fn send(to: SocketAddr, start: &str, tenant: &str, kind: &str, body: &[u8]) -> Answer {
    let tenant =
        if tenant.is_empty() { String::new() } else { format!("X-Scope-OrgID: {tenant}\r\n") };
    let head = format!(
        "{start} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{tenant}Content-Type: {kind}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(to).await.expect("connect");
    stream.write_all(head.as_bytes()).await.expect("write");
    stream.write_all(body).await.expect("write");
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    tokio::time::timeout(PATIENCE, reading).await.expect("an answer").expect("read");
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
    let chunked = head.contains("transfer-encoding: chunked");
    assert!(!chunked, "answers have a length: {start} {head}");
    Answer { status, head, body: bytes[end + 4..].to_vec() }
}

fn block(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).expect("small")
}

fn pairs(labels: &[(&str, &str)]) -> Vec<cortexpb::LabelPair> {
    let pair = |(name, value): &(&str, &str)| cortexpb::LabelPair {
        name: name.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    };
    labels.iter().map(pair).collect()
}

fn series(labels: &[(&str, &str)], samples: &[(f64, i64)]) -> cortexpb::TimeSeries {
    let sample = |&(value, timestamp_ms): &(f64, i64)| cortexpb::Sample {
        value,
        timestamp_ms,
        ..Default::default()
    };
    cortexpb::TimeSeries {
        labels: pairs(labels),
        samples: samples.iter().map(sample).collect(),
        ..Default::default()
    }
}

fn request(timeseries: Vec<cortexpb::TimeSeries>) -> cortexpb::WriteRequest {
    cortexpb::WriteRequest { timeseries, ..Default::default() }
}

fn bits(series: &cortexpb::TimeSeries) -> Vec<(u64, i64)> {
    series.samples.iter().map(|s| (s.value.to_bits(), s.timestamp_ms)).collect()
}

/// Three series of `up`, as most tests need them.
fn ups(now_ms: i64) -> cortexpb::WriteRequest {
    request(vec![
        series(&[("__name__", "up"), ("job", "db")], &[(1.0, now_ms)]),
        series(&[("__name__", "up"), ("job", "web")], &[(0.0, now_ms)]),
        series(&[("__name__", "up"), ("zone", "z\"1")], &[(1.5, now_ms)]),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_pushed_comes_back_to_the_bit() {
    let running = Running::start(|_| {}).await;
    let now_ms = running.now_ms;
    let mut sent = series(
        &[("__name__", "m"), ("a", "1")],
        &[(1.5, now_ms - 3), (0.1 + 0.2, now_ms - 2), (STALE, now_ms - 1)],
    );
    sent.exemplars = vec![cortexpb::Exemplar {
        labels: pairs(&[("trace_id", "t1")]),
        value: 0.25,
        timestamp_ms: now_ms - 2,
    }];
    let span = |offset, length| cortexpb::BucketSpan { offset, length };
    let integer = cortexpb::Histogram {
        count: Some(cortexpb::histogram::Count::CountInt(3)),
        zero_count: Some(cortexpb::histogram::ZeroCount::ZeroCountInt(0)),
        sum: 2.5,
        schema: 1,
        positive_spans: vec![span(0, 2)],
        positive_deltas: vec![1, 1],
        timestamp_ms: now_ms,
        ..Default::default()
    };
    let float = cortexpb::Histogram {
        count: Some(cortexpb::histogram::Count::CountFloat(3.5)),
        zero_count: Some(cortexpb::histogram::ZeroCount::ZeroCountFloat(0.5)),
        sum: -1.0,
        schema: -2,
        negative_spans: vec![span(3, 2)],
        negative_counts: vec![1.0, 2.0],
        timestamp_ms: now_ms,
        ..Default::default()
    };
    let of = |name: &str, histogram: &cortexpb::Histogram| cortexpb::TimeSeries {
        labels: pairs(&[("__name__", name)]),
        histograms: vec![histogram.clone()],
        ..Default::default()
    };
    let mut over_http = request(vec![sent.clone(), of("n", &integer)]);
    over_http.metadata = vec![cortexpb::MetricMetadata {
        r#type: 1,
        metric_family_name: b"m".to_vec(),
        help: b"Says \"m\".".to_vec(),
        unit: b"s".to_vec(),
    }];
    running.push("a", &over_http).await;
    push_over_grpc(running.app.grpc_address, "a", &request(vec![of("o", &float)])).await;

    let read = running.read("a", &[(2, "__name__", "m|n|o")]).await;
    assert_eq!(read.len(), 3);
    assert_eq!((&read[0].labels, bits(&read[0])), (&sent.labels, bits(&sent)));
    assert_eq!(read[1].histograms, [integer]);
    assert_eq!(read[2].histograms, [float]);

    let metadata = running.data("/api/v1/metadata").await;
    assert_eq!(metadata, json!({"m": [{"type": "counter", "help": "Says \"m\".", "unit": "s"}]}));
    let exemplars = running.data("/api/v1/query_exemplars?query=m").await;
    assert_eq!(exemplars[0]["seriesLabels"], json!({"__name__": "m", "a": "1"}));
    let exemplar = &exemplars[0]["exemplars"][0];
    assert_eq!(exemplar["labels"], json!({"trace_id": "t1"}));
    assert_eq!(exemplar["value"], "0.25");

    let printed =
        query::run(&running.query("a", "{__name__=~'m|n'}")).await.expect("an answer").text;
    assert!(printed.starts_with("m{a=\"1\"}\n  20"), "{printed}");
    assert!(printed.contains("  stale\n") && printed.contains("  1.5\n"), "{printed}");
    assert!(printed.contains("n\n") && printed.contains("histogram count 3, sum 2.5"), "{printed}");
    running.app.stop().await.expect("stops");
}

async fn push_over_grpc(to: SocketAddr, tenant: &str, request: &cortexpb::WriteRequest) {
    let stream = TcpStream::connect(to).await.expect("connect");
    let (client, connection) = h2::client::handshake(stream).await.expect("handshake");
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let mut client = client.ready().await.expect("connection");
    let head = Request::post("http://x/cortex.Ingester/Push")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-scope-orgid", tenant)
        .body(())
        .expect("request");
    let (response, mut body) = client.send_request(head, false).expect("send");
    let message = request.encode_to_vec();
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(&message);
    body.send_data(framed.freeze(), true).expect("send");
    let mut response = response.await.expect("response").into_body();
    while let Some(data) = response.data().await {
        data.expect("data");
    }
    let trailers = response.trailers().await.expect("trailers").expect("a status");
    assert_eq!(trailers["grpc-status"], "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_names_and_values_are_listed_by_all_matchers_for_their_tenant_only() {
    let running = Running::start(|_| {}).await;
    running.push("a", &ups(running.now_ms)).await;
    let count = async |selector: &str| {
        let selector: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
        let data = running.data(&format!("/prometheus/api/v1/series?match[]={selector}")).await;
        data.as_array().expect("a list").len()
    };
    assert_eq!(count("up").await, 3);
    assert_eq!(count(r#"up{job="db"}"#).await, 1);
    assert_eq!(count(r#"up{job!="db"}"#).await, 2);
    assert_eq!(count(r#"{job=~"d.|w.b"}"#).await, 2);
    assert_eq!(count(r#"up{job!~".+"}"#).await, 1);
    let both = "/api/v1/series?match[]=up%7Bjob%3D%22db%22%7D&match[]=up&limit=2";
    let (_, limited) = running.get("a", both).await;
    assert_eq!(
        limited["data"],
        json!([{"__name__": "up", "job": "db"}, {"__name__": "up", "job": "web"}])
    );
    assert_eq!(limited["warnings"], json!(["results truncated due to limit"]));
    assert_eq!(running.data("/api/v1/labels").await, json!(["__name__", "job", "zone"]));
    assert_eq!(running.data("/api/prom/api/v1/label/zone/values").await, json!(["z\"1"]));
    let form = b"match[]=up{job=\"db\"}";
    let kind = "application/x-www-form-urlencoded";
    let posted = running.send("POST /api/v1/labels", "a", kind, form).await;
    assert_eq!(posted.text(), r#"{"status":"success","data":["__name__","job"]}"#);
    assert!(posted.head.contains("content-type: application/json"));
    // Before everything that is stored.
    assert_eq!(running.data("/api/v1/labels?end=2001-01-01T00:00:00Z").await, json!([]));

    assert_eq!(running.read("b", &[(0, "__name__", "up")]).await, []);
    assert_eq!(running.get("b", "/api/v1/labels").await.1["data"], json!([]));
    let error = query::run(&running.query("b", "up")).await.expect_err("no such tenant");
    assert!(matches!(error, QueryError::UnknownTenant { .. }), "{error}");
    let none = query::run(&running.query("a", "down")).await.expect("an answer").text;
    assert!(none.starts_with("no series of tenant a match"), "{none}");
    running.app.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_answered_is_refused_with_its_reason() {
    let running = Running::start(|config| config.store.max_series_per_query = 2).await;
    running.push("a", &ups(running.now_ms)).await;
    let check = async |path: &str, status: u16, kind: &str, text: &str| {
        let (got, json) = running.get("a", path).await;
        assert_eq!((got, &json["errorType"]), (status, &json!(kind)), "{path}: {json}");
        assert_eq!(json["status"], "error");
        assert!(json["error"].as_str().expect("a text").contains(text), "{json}");
    };
    check("/api/v1/series", 400, "bad_data", "no match[]").await;
    check("/api/v1/series?match[]=%7Ba%3D~%22(%22%7D", 400, "bad_data", "regular expression").await;
    check("/api/v1/series?match[]=%7B%7D", 400, "bad_data", "non-empty matcher").await;
    check("/api/v1/labels?start=x", 400, "bad_data", "valid timestamp").await;
    check("/api/v1/series?match[]=up", 422, "execution", "more than 2 series").await;

    let check = async |body: &[u8], status: u16, text: &str| {
        let answer = running.send("POST /api/v1/read", "a", PROTOBUF, body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(answer.text().contains(text), "{}", answer.text());
    };
    check(b"no block", 400, "no snappy block").await;
    check(&block(b"no request"), 400, "not what remote read sends").await;
    let all = prometheus::ReadRequest {
        queries: vec![prometheus::Query { end_timestamp_ms: i64::MAX, ..Default::default() }],
        ..Default::default()
    };
    check(&block(&all.encode_to_vec()), 422, "more than 2 series").await;
    let nobody = running.send("GET /api/v1/labels", "", "text/plain", b"").await;
    assert_eq!((nobody.status, nobody.text().as_str()), (401, "no org id\n"));
    let nowhere = running.send("GET /api/v1/query", "a", "text/plain", b"").await;
    assert_eq!(nowhere.status, 501);

    let bad = query::run(&running.query("a", "up[5m]")).await;
    assert!(matches!(bad, Err(QueryError::Matchers(_))));
    let refused = query::run(&running.query("a", "up")).await.expect_err("too many");
    assert!(refused.to_string().contains("422: the query selects more than 2 series"), "{refused}");
    let args = running.query("a", "up");
    running.app.stop().await.expect("stops");
    let gone = query::run(&args).await.expect_err("nobody is there");
    let is_gone = matches!(gone, QueryError::Instance(InstanceError::NotRunning { .. }));
    assert!(is_gone, "{gone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_store_readers_are_told_so() {
    let running = Running::start(|config| config.store.enabled = false).await;
    let (status, json) = running.get("a", "/api/v1/labels").await;
    assert_eq!((status, &json["errorType"]), (422, &json!("execution")));
    assert!(json["error"].as_str().expect("a text").contains("store.enabled"));
    running.app.stop().await.expect("stops");
}
