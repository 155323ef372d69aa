//! Answers to pushes: the ingester's part of `errors.json`.
//!
//! Each case goes through the real gRPC edge into a real ingester with a store on the disk.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use bytes::{BufMut as _, Bytes, BytesMut};
use freehold::clock::Now;
use freehold::ingester::admission::Overload;
use freehold::ingester::config::IngesterConfig;
use freehold::ingester::{Ingester, Parts, Role};
use freehold::labels::IdentityHasher;
use freehold::limits::{InstanceLimits, Limits, Overrides};
use freehold::ring::model::{Instance, InstanceState, RingModel, RingReading, Token};
use freehold::ring::{Ring, RingSettings};
use freehold::server::drain::{Drain, Drainer};
use freehold::server::grpc::{GrpcEdge, HealthSwitch, Settings};
use freehold::server::room::Room;
use freehold::server::seam::{IngesterCalls, Work};
use freehold::server::stream_auth::StreamKeys;
use freehold::server::tenancy::Tenancy;
use freehold::store::{self, Store};
use freehold::tenant::TenantId;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

use crate::vectors::{array, base64, read, text};

/// Just after the newest sample of the vectors.
const NOW: Now = Now { unix_ms: 1_700_000_001_000, steady_ns: 1_000_000_000 };

/// What cannot happen here, each with its line in `docs/compatibility.md`.
const SKIPPED: [&str; 4] =
    ["TSDB closed", "TSDB closing", "forced compaction", "too many inflight query requests"];

/// A push at the instance's limit keeps nothing here, in Cortex the series before the failing one.
const KEEPS_NOTHING: &str = "max series of the instance: the whole request is rolled back";

/// Messages of a stream that we answer otherwise: field of the case, Cortex's value, ours.
const STREAM_DIFFERENCES: [(&str, &str, &str); 2] = [
    ("no tenant in the context", r#"{"code":200,"message":""}"#, "2 no org id"),
    (
        "empty tenant in the message",
        r#"{"code":500,"message":"user=: cannot create TSDB: ingesters's max tenants limit reached"}"#,
        "2 no org id",
    ),
];

#[tokio::test]
async fn a_push_is_answered_as_by_cortex() {
    let vectors = read("errors");
    let mut skipped = BTreeSet::new();
    let mut kept_nothing = 0;
    for case in array(&vectors, "ingester_push") {
        let name = text(case, "name");
        if SKIPPED.contains(&name) {
            skipped.insert(name);
            continue;
        }
        let bench = Bench::of_case(case);
        let answer = bench.push_all(case).await;
        assert_eq!(answer.code, case["grpc_code"], "{name}: {answer:?}");
        assert_eq!(answer.message, case["grpc_message"], "{name}");
        assert_eq!(answer.http(), case["http"], "{name}");
        let tenant = bench.ingester.tenants.visit(&tenant(text(case, "tenant")));
        let series = tenant.map(|tenant| tenant.series.counts().series.in_memory);
        if name == KEEPS_NOTHING {
            assert_eq!((series, &case["series_in_head"]), (Some(0), &json!(1)), "{name}");
            kept_nothing += 1;
        } else {
            assert_eq!(json!(series), case["series_in_head"], "{name}");
        }
    }
    assert_eq!(kept_nothing, 1);
    assert_eq!(skipped, SKIPPED.into(), "what is skipped is in the vectors");
}

#[test]
fn an_overloaded_instance_refuses_in_cortex_words() {
    let vectors = read("errors");
    let mut not_here = Vec::new();
    for error in array(&vectors, "ingester_instance_errors") {
        let ours = match text(error, "kind") {
            "too_many_inflight_push" => Overload::InFlight.to_string(),
            "max_samples_push_rate" => Overload::Rate.to_string(),
            "max_tenants" => freehold::ingester::tenants::TooManyTenants.to_string(),
            "max_series" => freehold::ingester::MAX_SERIES.to_owned(),
            kind => {
                not_here.push(kind);
                continue;
            }
        };
        assert_eq!(ours, text(error, "text"));
    }
    assert_eq!(not_here, ["too_many_inflight_query"], "queries are not an ingester's here");
}

#[tokio::test]
async fn a_message_of_a_stream_is_answered_as_by_cortex() {
    let vectors = read("errors");
    // The cases follow one another on one ingester.
    let limits = Limits { max_series_per_user: 1, ..limits(&json!({})) };
    let instance = InstanceLimits { max_tenants: 2, ..InstanceLimits::default() };
    let bench = Bench::new(limits, instance);
    bench.ingester.run();
    bench.ingester.note_ring_state(InstanceState::Active);
    let mut differing = Vec::new();
    for case in array(&vectors, "ingester_push_stream") {
        let name = text(case, "name");
        let context = Some(text(case, "context_tenant")).filter(|name| !name.is_empty());
        let message = base64(&case["message_b64"]);
        let answer = bench.call("/cortex.Ingester/PushStream", context, &message).await;
        let difference = STREAM_DIFFERENCES.iter().find(|(differing, ..)| *differing == name);
        if let Some((_, cortex, ours)) = difference {
            assert_eq!(case["response"].to_string(), *cortex, "{name}");
            assert_eq!(format!("{} {}", answer.code, answer.message), *ours, "{name}");
            differing.push(name);
        } else if let Some(error) = case.get("stream_error") {
            assert_eq!(answer.code, error["grpc_code"], "{name}");
            assert_eq!(answer.message, error["message"], "{name}");
        } else {
            assert_eq!((answer.code, answer.body.len() > 5), (0, true), "{name}: {answer:?}");
            let response = WriteResponse::decode(&answer.body[5..]).expect("a response");
            let response = json!({ "code": response.code, "message": response.message });
            assert_eq!(response, case["response"], "{name}");
        }
    }
    assert_eq!(differing, STREAM_DIFFERENCES.map(|(name, ..)| name), "all are in the vectors");
}

/// An ingester behind its gRPC edge.
struct Bench {
    ingester: Arc<Ingester>,
    /// The edge ends its streams when the first half goes.
    drain: (Drainer, Drain),
    /// Holds the store's files.
    _dir: TempDir,
}

/// How a call ended.
#[derive(Debug)]
struct Answer {
    code: i64,
    message: String,
    details: Option<RpcStatus>,
    body: Bytes,
}

impl Bench {
    fn new(limits: Limits, instance: InstanceLimits) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let config = store::Config { path: dir.path().into(), ..store::Config::default() };
        let store = Store::open(config).expect("a store");
        let ingester = Arc::new(Ingester::new(Parts {
            config: IngesterConfig { limits_parity: true, ..IngesterConfig::default() },
            role: Role {
                behind_distributors: true,
                shard_by_all_labels: true,
                shuffle_sharding: false,
                has_upstream: false,
            },
            ring: Arc::new(ring_of_one()),
            overrides: Arc::new(Overrides::new(limits, instance)),
            hasher: IdentityHasher::new(store.identity_secret()),
            store: Some(store),
        }));
        Self { ingester, drain: Drainer::new(), _dir: dir }
    }

    /// The ingester in the state that the case asks for.
    fn of_case(case: &Value) -> Self {
        let setup = &case["setup"];
        let known = setup.as_object().expect("a setup").keys().all(|key| {
            let state = ["note", "state", "inflight_before", "rate_before", "limits"];
            state.contains(&key.as_str()) || is_instance_limit(key) || is_tenant_limit(key)
        });
        assert!(known, "unknown setup: {setup}");
        let number = |key: &str| setup[key].as_u64().unwrap_or(0);
        let instance = InstanceLimits {
            max_inflight_push_requests: number("max_inflight_push_requests"),
            max_ingestion_rate: setup["max_ingestion_rate"].as_f64().unwrap_or(0.0),
            max_tenants: number("max_tenants"),
            max_series: number("max_series"),
            max_inflight_query_requests: 0,
        };
        let bench = Self::new(limits(setup), instance);
        let ingester = &bench.ingester;
        if text(case, "name") != "ingester not running" {
            ingester.run();
        }
        let state = setup["state"].as_str().unwrap_or("ACTIVE");
        ingester.note_ring_state(InstanceState::from_name(state).expect("a state"));
        if let Some(rate) = setup["rate_before"].as_u64() {
            ingester.admission.ingested(rate);
            ingester.admission.tick();
        }
        bench
    }

    /// Pushes the requests of a case in order; the answer to the last.
    async fn push_all(&self, case: &Value) -> Answer {
        let name = text(case, "name");
        let requests: Vec<Vec<u8>> = array(case, "requests_b64").iter().map(base64).collect();
        let (last, before) = requests.split_last().expect("a request");
        let ours = text(case, "tenant");
        let first = if name == "max tenants" { "another" } else { ours };
        for request in before {
            let answer = self.push(Some(first), request).await;
            assert_eq!(answer.code, 0, "{name}: {answer:?}");
        }
        if name == "ingester stopping" {
            assert_eq!(self.push(Some(ours), last).await.code, 0, "{name}");
            self.ingester.stop();
        }
        let unlimited = InstanceLimits::default();
        let in_flight = case["setup"]["inflight_before"].as_u64().unwrap_or(0);
        let _in_flight: Vec<_> =
            (0..in_flight).map(|_| self.ingester.admission.admit(&unlimited)).collect();
        self.push(Some(ours).filter(|_| name != "no tenant"), last).await
    }

    async fn push(&self, tenant: Option<&str>, request: &[u8]) -> Answer {
        self.call("/cortex.Ingester/Push", tenant, request).await
    }

    async fn call(&self, path: &str, tenant: Option<&str>, message: &[u8]) -> Answer {
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(message.len() as u32);
        framed.put_slice(message);
        let mut request = http::Request::post(path).header("content-type", "application/grpc");
        if let Some(tenant) = tenant {
            request = request.header("x-scope-orgid", tenant);
        }
        let body = tonic::body::Body::new(Full::new(framed.freeze()));
        let request = request.body(body).expect("a request");
        let response = self.edge().await.oneshot(request).await.expect("infallible");
        Answer::read(response).await
    }

    async fn edge(&self) -> GrpcEdge {
        let ingester = Arc::clone(&self.ingester);
        let calls = IngesterCalls {
            push: Arc::new(move |tenant, body: Bytes| Ok(ingester.push(tenant, &body, NOW)?)),
            judge: Arc::new(|_, _| unreachable!("no push goes on")),
            user_stats: Arc::new(|_| Default::default()),
            all_user_stats: Arc::new(Vec::new),
        };
        let settings = Settings {
            tenancy: Tenancy::Header,
            clients: Default::default(),
            stream_keys: StreamKeys::default(),
            upstream: None,
            stream_answer_within: std::time::Duration::from_secs(10),
            room: Room::new(64 << 20),
            receive_message_bytes_max: 1 << 20,
            send_message_bytes_max: 1 << 20,
        };
        GrpcEdge::new(
            settings,
            Some(calls),
            Work::Inline,
            &HealthSwitch::new().await,
            self.drain.1.clone(),
        )
    }
}

impl Answer {
    async fn read(response: http::Response<tonic::body::Body>) -> Self {
        let (head, body) = response.into_parts();
        let collected = body.collect().await.expect("a body");
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let body = collected.to_bytes();
        let field = |name| head.headers.get(name).or_else(|| trailers.get(name));
        let field = |name| field(name).map(|value| value.to_str().expect("ASCII"));
        let details = field("grpc-status-details-bin").map(|packed| {
            let bytes = BASE64_STANDARD_NO_PAD.decode(packed).expect("base64");
            RpcStatus::decode(&*bytes).expect("a status")
        });
        Self {
            code: field("grpc-status").and_then(|code| code.parse().ok()).expect("a status"),
            message: percent_decoded(field("grpc-message").unwrap_or_default()),
            details,
            body,
        }
    }

    /// The HTTP answer inside the status, as the vectors write it.
    fn http(&self) -> Value {
        let Some(details) = &self.details else {
            return Value::Null;
        };
        assert_eq!((i64::from(details.code), &details.message), (self.code, &self.message));
        let response = HttpResponse::decode(&*details.details[0].value).expect("a response");
        let body = String::from_utf8(response.body).expect("text");
        json!({ "code": response.code, "body": body })
    }
}

fn is_instance_limit(key: &str) -> bool {
    ["max_inflight_push_requests", "max_ingestion_rate", "max_tenants", "max_series"].contains(&key)
}

fn is_tenant_limit(key: &str) -> bool {
    let known = serde_json::to_value(Limits::default()).expect("limits");
    known.get(key).is_some()
}

/// The tenant's limits of a setup. The vectors' ingester takes native histograms.
fn limits(setup: &Value) -> Limits {
    let mut limits = json!({ "enable_native_histograms": true });
    let direct = setup.as_object().expect("a setup").iter().filter(|(key, _)| is_tenant_limit(key));
    for (key, value) in direct.chain(setup["limits"].as_object().into_iter().flatten()) {
        limits[key] = value.clone();
    }
    serde_json::from_value(limits).expect("limits by name")
}

/// A ring with nobody but us, so that limits of the cluster are ours.
fn ring_of_one() -> Ring {
    let settings = RingSettings {
        replication_factor: 1,
        zone_awareness_enabled: false,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: Some("us".to_owned()),
    };
    let ring = Ring::new(settings, 600_000);
    let us = Instance {
        addr: "127.0.0.1:9095".to_owned(),
        timestamp_s: NOW.unix_ms / 1000,
        state: InstanceState::Active,
        tokens: vec![Token(7)],
        zone: String::new(),
        registered_timestamp_s: 0,
        unknown_fields: Vec::new(),
    };
    let model = RingModel { instances: [("us".to_owned(), us)].into(), ..RingModel::default() };
    ring.publish(&RingReading::Whole(model), NOW.unix_ms);
    ring
}

fn tenant(id: &str) -> TenantId {
    TenantId::parse(id).expect("a tenant")
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let digits = std::str::from_utf8(&tail[..2]).expect("two digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("hex"));
            rest = &tail[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

#[derive(Clone, PartialEq, prost::Message)]
struct WriteResponse {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Any {
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
