//! How long requests take, by what they ask and how they end: Cortex's family, under its labels.
//!
//! A request over HTTP or a call over gRPC is measured until the head of its answer is there, as
//! its span is; what comes after that goes at its reader's pace. A push stream has no end worth
//! waiting for, so each of its messages is measured, from when it has come to its answer.
//!
//! What must hold: labels are bounded whatever senders ask, and answers tell; to measure a request
//! allocates nothing once its labels have been seen.

use std::collections::HashMap;
use std::sync::Arc;

use http::{Method, Response, StatusCode};
use prometheus::{HistogramOpts, HistogramVec, Registry};
use tokio::time::Instant;

use super::status::{CLIENT_CLOSED_REQUEST, GrpcStatus};

/// Cortex's buckets, in seconds.
const BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0];

/// Where none of the names below fits.
const OTHER: &str = "other";

/// Paths with a route of their own, besides those of the query API. What is not listed shares
/// [`OTHER`]: pages of operators, and whatever strangers try.
const PATHS: [&str; 19] = [
    "/",
    "/ready",
    "/metrics",
    "/config",
    "/runtime_config",
    "/services",
    "/api/v1/push",
    "/api/prom/push",
    "/api/v1/otlp/v1/metrics",
    "/api/v1/user-overrides",
    "/distributor/all_user_stats",
    "/distributor/ha_tracker",
    "/distributor/ring",
    "/ingester/all_user_stats",
    "/ingester/mode",
    "/ha-tracker",
    "/memberlist",
    "/ring",
    "/tenants",
];

/// Calls of the query API, below `/api/v1` of each prefix.
const QUERIES: [&str; 15] = [
    "query",
    "query_range",
    "query_exemplars",
    "read",
    "series",
    "labels",
    "metadata",
    "format_query",
    "parse_query",
    "rules",
    "alerts",
    "status/buildinfo",
    "status/config",
    "status/flags",
    "status/runtimeinfo",
];

/// The only one with a name in it, as Cortex writes its route.
const LABEL_VALUES: &str = "label/{name}/values";

/// Calls over gRPC that end, as they are routed; Cortex has the whole path for the route.
const CALLS: [&str; 18] = [
    "/cortex.Ingester/Push",
    "/cortex.Ingester/QueryStream",
    "/cortex.Ingester/QueryExemplars",
    "/cortex.Ingester/LabelValues",
    "/cortex.Ingester/LabelValuesStream",
    "/cortex.Ingester/LabelNames",
    "/cortex.Ingester/LabelNamesStream",
    "/cortex.Ingester/UserStats",
    "/cortex.Ingester/AllUserStats",
    "/cortex.Ingester/MetricsForLabelMatchers",
    "/cortex.Ingester/MetricsForLabelMatchersStream",
    "/cortex.Ingester/MetricsMetadata",
    "/grpc.health.v1.Health/Check",
    "/freehold.budgets.v1.Budgets/HandOver",
    "/freehold.budgets.v1.Budgets/List",
    "/freehold.budgets.v1.Budgets/Show",
    "/freehold.budgets.v1.Budgets/Reset",
    PUSH_STREAM,
];

/// Measured by message.
const PUSH_STREAM: &str = "/cortex.Ingester/PushStream";

/// Streams that go on for days, whose heads say nothing.
const UNENDING: [&str; 3] =
    [PUSH_STREAM, "/grpc.health.v1.Health/Watch", "/freehold.budgets.v1.Budgets/Exchange"];

/// What Cortex calls the method of a call over gRPC.
const GRPC: &str = "gRPC";

/// The family, and the names of routes. Cheap to clone.
#[derive(Clone)]
pub struct Durations(Arc<Inner>);

struct Inner {
    durations: HistogramVec,
    /// By path.
    routes: HashMap<String, Arc<str>>,
    /// What paths of label values begin with, and the route that they are.
    label_values: Vec<(String, Arc<str>)>,
    other: Arc<str>,
    push_stream: Arc<str>,
}

/// A request that is measured. Dropped before it ended, its sender has gone.
pub struct Timed {
    durations: Durations,
    began: Instant,
    method: &'static str,
    route: Arc<str>,
    has_ended: bool,
}

impl Durations {
    /// `query_prefixes` is what comes before `/api/v1` of the query API.
    pub fn register<'a>(
        registry: &Registry,
        query_prefixes: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, prometheus::Error> {
        let opts = HistogramOpts::new(
            "cortex_request_duration_seconds",
            "Time (in seconds) spent serving HTTP requests.",
        );
        let opts = opts.buckets(BUCKETS.to_vec());
        let durations = HistogramVec::new(opts, &["method", "route", "status_code", "ws"])?;
        registry.register(Box::new(durations.clone()))?;
        let mut routes = HashMap::new();
        let mut label_values = Vec::new();
        for path in PATHS {
            routes.insert(path.to_owned(), Arc::from(label(path)));
        }
        for path in CALLS {
            routes.insert(path.to_owned(), Arc::from(path));
        }
        for prefix in std::iter::once("").chain(query_prefixes) {
            let below = format!("{}/api/v1/", prefix.trim_end_matches('/'));
            for call in QUERIES {
                let path = format!("{below}{call}");
                let route = Arc::from(label(&path));
                routes.insert(path, route);
            }
            let route = Arc::from(label(&format!("{below}{LABEL_VALUES}")));
            label_values.push((format!("{below}label/"), route));
        }
        let (other, push_stream) = (Arc::from(OTHER), Arc::from(PUSH_STREAM));
        Ok(Self(Arc::new(Inner { durations, routes, label_values, other, push_stream })))
    }

    /// Begins with a request over HTTP.
    pub fn request(&self, method: &Method, path: &str) -> Timed {
        let method = match method.as_str() {
            "GET" => "GET",
            "POST" => "POST",
            "HEAD" => "HEAD",
            "PUT" => "PUT",
            "DELETE" => "DELETE",
            "OPTIONS" => "OPTIONS",
            _ => OTHER,
        };
        self.begin(method, self.route(path))
    }

    /// Begins with a call over gRPC, if it is one that ends.
    pub fn call(&self, path: &str) -> Option<Timed> {
        (!UNENDING.contains(&path)).then(|| self.begin(GRPC, self.route(path)))
    }

    /// Begins with a message of a push stream.
    pub fn message(&self) -> Timed {
        self.begin(GRPC, Arc::clone(&self.0.push_stream))
    }

    fn begin(&self, method: &'static str, route: Arc<str>) -> Timed {
        Timed { durations: self.clone(), began: Instant::now(), method, route, has_ended: false }
    }

    fn route(&self, path: &str) -> Arc<str> {
        let inner = &self.0;
        let of_values = || {
            let named = path.strip_suffix("/values")?;
            let (_, route) = inner.label_values.iter().find(|(below, _)| {
                named.strip_prefix(below).is_some_and(|name| !name.contains('/'))
            })?;
            Some(route)
        };
        Arc::clone(inner.routes.get(path).or_else(of_values).unwrap_or(&inner.other))
    }
}

impl Timed {
    pub fn answered(self, status: StatusCode) {
        // Those behind a gate of queries answer as they like.
        match status.canonical_reason() {
            Some(_) => self.end(status.as_str()),
            None if status.as_u16() == CLIENT_CLOSED_REQUEST => self.end("499"),
            None => self.end(OTHER),
        }
    }

    /// As far as the head of the answer says.
    pub fn called<B>(self, outcome: &Result<Response<B>, GrpcStatus>) {
        let code = match outcome {
            Err(status) => status.code(),
            Ok(response) => {
                let code = response.headers().get("grpc-status");
                code.and_then(|code| code.to_str().ok()?.parse().ok()).unwrap_or(0)
            }
        };
        self.coded(code);
    }

    /// With a code of gRPC, or the HTTP status that ingesters tell in its place.
    pub fn coded(self, code: i32) {
        let status = u16::try_from(code).ok().and_then(|code| StatusCode::from_u16(code).ok());
        match (code, status) {
            (0 | 200, _) => self.end("success"),
            (1, _) => self.end("cancel"),
            (_, Some(status)) => self.answered(status),
            _ => self.end("error"),
        }
    }

    fn end(mut self, status: &str) {
        self.has_ended = true;
        self.observe(status);
    }

    fn observe(&self, status: &str) {
        let labels = [self.method, &self.route, status, "false"];
        let durations = &self.durations.0.durations;
        durations.with_label_values(&labels).observe(self.began.elapsed().as_secs_f64());
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        if !self.has_ended {
            self.observe(if self.method == GRPC { "cancel" } else { "499" });
        }
    }
}

/// A path as Cortex makes a label of it: what is no letter or digit becomes a line.
fn label(path: &str) -> String {
    let parts = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    match parts.collect::<Vec<_>>().join("_").to_ascii_lowercase() {
        empty if empty.is_empty() => "root".to_owned(),
        label => label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations() -> (Registry, Durations) {
        let registry = Registry::new();
        let durations = Durations::register(&registry, ["/prometheus", "/q/"]).expect("new");
        (registry, durations)
    }

    /// The labels of what was counted, each with its count.
    fn counted(registry: &Registry) -> Vec<String> {
        let text = crate::telemetry::metrics_text(registry).expect("text");
        let start = "cortex_request_duration_seconds_count";
        text.lines().filter_map(|line| line.strip_prefix(start)).map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn labels_are_cortexs_and_bounded() {
        let (registry, durations) = durations();
        let post = |path| durations.request(&Method::POST, path).answered(StatusCode::OK);
        for path in ["/", "/api/v1/push", "/api/prom/push", "/nowhere", "/elsewhere"] {
            post(path);
        }
        let expect = [
            "{method=\"POST\",route=\"api_prom_push\",status_code=\"200\",ws=\"false\"} 1",
            "{method=\"POST\",route=\"api_v1_push\",status_code=\"200\",ws=\"false\"} 1",
            "{method=\"POST\",route=\"other\",status_code=\"200\",ws=\"false\"} 2",
            "{method=\"POST\",route=\"root\",status_code=\"200\",ws=\"false\"} 1",
        ];
        assert_eq!(counted(&registry), expect);
        let (registry, durations) = self::durations();
        for number in 0..1000 {
            let method = Method::from_bytes(format!("M{number}").as_bytes()).expect("a method");
            let path = format!("/prometheus/api/v1/label/l{number}/values");
            let status = StatusCode::from_u16(600 + number % 300).expect("a status");
            durations.request(&method, &path).answered(status);
            durations.call(&format!("/cortex.Ingester/M{number}")).expect("it ends").coded(16);
        }
        let expect = [
            "{method=\"gRPC\",route=\"other\",status_code=\"error\",ws=\"false\"} 1000",
            "{method=\"other\",route=\"prometheus_api_v1_label_name_values\",\
             status_code=\"other\",ws=\"false\"} 1000",
        ];
        assert_eq!(counted(&registry), expect);
    }

    #[tokio::test]
    async fn the_query_api_is_known_below_each_prefix() {
        let (_, durations) = durations();
        let check = |path, route: &str| assert_eq!(&*durations.route(path), route, "{path}");
        check("/prometheus/api/v1/query_range", "prometheus_api_v1_query_range");
        check("/q/api/v1/query", "q_api_v1_query");
        check("/api/v1/read", "api_v1_read");
        check("/q/api/v1/label/job/values", "q_api_v1_label_name_values");
        check("/q/api/v1/label/a/b/values", "other");
        check("/q/api/v1/label//values", "q_api_v1_label_name_values");
        check("/other/api/v1/query", "other");
        check("/cortex.Ingester/Push", "/cortex.Ingester/Push");
    }

    #[tokio::test]
    async fn every_end_is_counted_once() {
        let (registry, durations) = durations();
        let push = || durations.call("/cortex.Ingester/Push").expect("it ends");
        push().called(&Ok(Response::new(())));
        push().called::<()>(&Err(GrpcStatus::http(429, "too much")));
        push().coded(14);
        drop(push());
        durations.message().coded(200);
        drop(durations.request(&Method::GET, "/ready"));
        assert!(durations.call(PUSH_STREAM).is_none() && durations.call(UNENDING[1]).is_none());
        let of = |method, route, status| {
            format!(
                "{{method=\"{method}\",route=\"{route}\",status_code=\"{status}\",\
                 ws=\"false\"}} 1"
            )
        };
        let push = "/cortex.Ingester/Push";
        let expect = [
            of("GET", "ready", "499"),
            of(GRPC, push, "429"),
            of(GRPC, push, "cancel"),
            of(GRPC, push, "error"),
            of(GRPC, push, "success"),
            of(GRPC, PUSH_STREAM, "success"),
        ];
        assert_eq!(counted(&registry), expect);
    }
}
