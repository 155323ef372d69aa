//! Writes of the three kinds that senders have, and whole answers to them.
//!
//! The same numbers in each: counters with exemplars, native histograms, and what is told about
//! them; as OTLP, classic histograms and summaries too.

use std::collections::BTreeMap;

use bytes::Bytes;
use freehold::wire::proto::cortexpb::{
    BucketSpan, Exemplar, Histogram, LabelPair, MetricMetadata, Sample, TimeSeries, WriteRequest,
    histogram,
};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1 as otlp;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::cluster::unix_ms;

/// Series of counters in a request.
pub const COUNTERS: usize = 30;
/// Series of native histograms in a request.
pub const HISTOGRAMS: usize = 4;

/// How a sender says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    RemoteWrite1,
    RemoteWrite2,
    Otlp,
}

pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Headers that differ from answer to answer, or that only ours have: the name that a request has
/// got, which `docs/compatibility.md` lists.
const OF_EACH_ANSWER: [&str; 2] = ["date", "x-request-id"];

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case; less those of [`OF_EACH_ANSWER`].
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Request {
    /// A write of all that a sender has at one time; values differ from `round` to `round`.
    pub fn write(wire: Wire, tenant: &str, at_ms: i64, round: u64) -> Self {
        let packed = |body: Vec<u8>| snap::raw::Encoder::new().compress_vec(&body).expect("packs");
        let (path, headers, body) = match wire {
            Wire::RemoteWrite1 => (
                "/api/v1/push",
                vec![
                    ("Content-Type", "application/x-protobuf"),
                    ("Content-Encoding", "snappy"),
                    ("X-Prometheus-Remote-Write-Version", "0.1.0"),
                ],
                packed(version_1(at_ms, round).encode_to_vec()),
            ),
            Wire::RemoteWrite2 => (
                "/api/v1/push",
                vec![
                    ("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
                    ("Content-Encoding", "snappy"),
                    ("X-Prometheus-Remote-Write-Version", "2.0.0"),
                ],
                packed(v2::of(&version_1(at_ms, round)).encode_to_vec()),
            ),
            Wire::Otlp => (
                "/api/v1/otlp/v1/metrics",
                vec![("Content-Type", "application/x-protobuf")],
                metrics(at_ms, round).encode_to_vec(),
            ),
        };
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let tenant = ("X-Scope-OrgID".to_owned(), tenant.to_owned());
        Self {
            method: "POST".to_owned(),
            path: path.to_owned(),
            headers: headers.chain([tenant]).collect(),
            body,
        }
    }

    /// A write of one sample by one of several replicas that write the same.
    pub fn of_replica(tenant: &str, cluster: &str, replica: &str, at_ms: i64) -> Self {
        let series = TimeSeries {
            labels: vec![
                pair("__name__", "up"),
                pair("__replica__", replica),
                pair("cluster", cluster),
            ],
            samples: vec![Sample { value: 1.0, timestamp_ms: at_ms, ..Sample::default() }],
            ..TimeSeries::default()
        };
        let request = WriteRequest { timeseries: vec![series], ..WriteRequest::default() };
        let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
        Self { body: body.expect("packs"), ..Self::write(Wire::RemoteWrite1, tenant, at_ms, 0) }
    }

    /// A write of one new series with so many samples, in the name of a client.
    pub fn of_client(tenant: &str, client: &str, number: usize, samples: u64) -> Self {
        let at_ms = unix_ms();
        let sample = |at: u64| Sample {
            value: at as f64,
            timestamp_ms: at_ms - i64::try_from(samples - at).expect("few"),
            ..Sample::default()
        };
        let series = TimeSeries {
            labels: vec![
                pair("__name__", "written"),
                pair("number", &number.to_string()),
                pair("writer", client),
            ],
            samples: (0..samples).map(sample).collect(),
            ..TimeSeries::default()
        };
        let request = WriteRequest { timeseries: vec![series], ..WriteRequest::default() };
        let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
        let mut write = Self::write(Wire::RemoteWrite1, tenant, at_ms, 0);
        write.headers.push(("X-Scope-ClientID".to_owned(), client.to_owned()));
        Self { body: body.expect("packs"), ..write }
    }

    /// Sends it to a port of this host.
    pub async fn send(&self, port: u16) -> Answer {
        let uri = format!("http://127.0.0.1:{port}{}", self.path);
        let mut request = hyper::Request::builder().method(self.method.as_str()).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(self.body.clone()))).expect("a request");
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let headers = answer.headers().iter();
        let headers = headers.filter(|(name, _)| !OF_EACH_ANSWER.contains(&name.as_str()));
        let text = |value: &hyper::header::HeaderValue| value.to_str().expect("text").to_owned();
        let headers = headers.map(|(name, value)| (name.to_string(), text(value))).collect();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        Answer { status, headers, body: String::from_utf8(body.to_vec()).expect("text") }
    }
}

fn pair(name: &str, value: &str) -> LabelPair {
    LabelPair { name: name.as_bytes().to_vec(), value: value.as_bytes().to_vec() }
}

fn version_1(at_ms: i64, round: u64) -> WriteRequest {
    let labels = |name: &str, number: usize| {
        vec![pair("__name__", name), pair("instance", &format!("host-{number}")), pair("job", "j")]
    };
    let counters = (0..COUNTERS).map(|number| TimeSeries {
        labels: labels("requests_total", number),
        samples: vec![Sample {
            value: (number as u64 + 100 * round) as f64,
            timestamp_ms: at_ms,
            ..Sample::default()
        }],
        exemplars: vec![Exemplar {
            labels: vec![pair("trace_id", &format!("t-{number}-{round}"))],
            value: 0.5,
            timestamp_ms: at_ms,
        }],
        ..TimeSeries::default()
    });
    let histograms = (0..HISTOGRAMS).map(|number| TimeSeries {
        labels: labels("latency_seconds", number),
        histograms: vec![Histogram {
            count: Some(histogram::Count::CountInt(7 + round)),
            sum: 3.5,
            schema: 2,
            zero_threshold: 0.001,
            zero_count: Some(histogram::ZeroCount::ZeroCountInt(1)),
            positive_spans: vec![BucketSpan { offset: -2, length: 2 }],
            // Buckets hold what the deltas to the one before add up to: 2, then the rest.
            positive_deltas: vec![2, 2 + i64::try_from(round).expect("few")],
            timestamp_ms: at_ms,
            ..Histogram::default()
        }],
        ..TimeSeries::default()
    });
    let about = |name: &str, kind: i32, unit: &str| MetricMetadata {
        r#type: kind,
        metric_family_name: name.into(),
        help: format!("About {name}.").into(),
        unit: unit.into(),
    };
    WriteRequest {
        timeseries: counters.chain(histograms).collect(),
        metadata: vec![about("requests_total", 1, ""), about("latency_seconds", 3, "seconds")],
        ..WriteRequest::default()
    }
}

/// `io.prometheus.write.v2.Request`, as senders write it.
mod v2 {
    use super::{Histogram, LabelPair, MetricMetadata, Sample, WriteRequest};

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Request {
        #[prost(string, repeated, tag = "4")]
        symbols: Vec<String>,
        #[prost(message, repeated, tag = "5")]
        timeseries: Vec<TimeSeries>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TimeSeries {
        #[prost(uint32, repeated, tag = "1")]
        labels_refs: Vec<u32>,
        #[prost(message, repeated, tag = "2")]
        samples: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        histograms: Vec<Histogram>,
        #[prost(message, repeated, tag = "4")]
        exemplars: Vec<Exemplar>,
        #[prost(message, optional, tag = "5")]
        metadata: Option<Metadata>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Exemplar {
        #[prost(uint32, repeated, tag = "1")]
        labels_refs: Vec<u32>,
        #[prost(double, tag = "2")]
        value: f64,
        #[prost(int64, tag = "3")]
        timestamp: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Metadata {
        #[prost(int32, tag = "1")]
        kind: i32,
        #[prost(uint32, tag = "3")]
        help_ref: u32,
        #[prost(uint32, tag = "4")]
        unit_ref: u32,
    }

    /// The same numbers; metadata at each series of its metric.
    pub fn of(request: &WriteRequest) -> Request {
        let mut symbols = vec![String::new()];
        let mut at = |text: &[u8]| {
            let text = std::str::from_utf8(text).expect("text");
            let known = symbols.iter().position(|symbol| symbol == text);
            let at = known.unwrap_or_else(|| {
                symbols.push(text.to_owned());
                symbols.len() - 1
            });
            u32::try_from(at).expect("few")
        };
        let mut refs = |labels: &[LabelPair]| {
            let pairs = labels.iter().flat_map(|pair| [&pair.name, &pair.value]);
            pairs.map(|text| at(text)).collect::<Vec<_>>()
        };
        let mut timeseries: Vec<_> = request
            .timeseries
            .iter()
            .map(|series| TimeSeries {
                labels_refs: refs(&series.labels),
                samples: series.samples.clone(),
                histograms: series.histograms.clone(),
                exemplars: series
                    .exemplars
                    .iter()
                    .map(|exemplar| Exemplar {
                        labels_refs: refs(&exemplar.labels),
                        value: exemplar.value,
                        timestamp: exemplar.timestamp_ms,
                    })
                    .collect(),
                metadata: None,
            })
            .collect();
        for (converted, series) in timeseries.iter_mut().zip(&request.timeseries) {
            let name = &series.labels[0].value;
            let is_about = |about: &&MetricMetadata| &about.metric_family_name == name;
            let about = request.metadata.iter().find(is_about).expect("told");
            let (help_ref, unit_ref) = (at(&about.help), at(&about.unit));
            converted.metadata = Some(Metadata { kind: about.r#type, help_ref, unit_ref });
        }
        Request { symbols, timeseries }
    }
}

fn metrics(at_ms: i64, round: u64) -> ExportMetricsServiceRequest {
    let value = |text: &str| Some(AnyValue { value: Some(Value::StringValue(text.to_owned())) });
    let pair = |key: &str, text: &str| KeyValue {
        key: key.to_owned(),
        value: value(text),
        ..KeyValue::default()
    };
    let at = u64::try_from(at_ms).expect("after 1970") * 1_000_000;
    let host = |number: usize| vec![pair("instance.host", &format!("host-{number}"))];
    let number = |number: usize| otlp::NumberDataPoint {
        attributes: host(number),
        time_unix_nano: at,
        value: Some(otlp::number_data_point::Value::AsDouble(number as f64 + round as f64)),
        exemplars: vec![otlp::Exemplar {
            time_unix_nano: at,
            trace_id: vec![7; 16],
            span_id: vec![9; 8],
            value: Some(otlp::exemplar::Value::AsDouble(0.25)),
            ..otlp::Exemplar::default()
        }],
        ..otlp::NumberDataPoint::default()
    };
    let metric = |name: &str, unit: &str, data| otlp::Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        description: format!("About {name}."),
        data: Some(data),
        ..otlp::Metric::default()
    };
    const CUMULATIVE: i32 = 2;
    let counters = metric(
        "http.requests",
        "1",
        otlp::metric::Data::Sum(otlp::Sum {
            data_points: (0..COUNTERS).map(number).collect(),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
    );
    let gauge = metric(
        "room.temperature",
        "Cel",
        otlp::metric::Data::Gauge(otlp::Gauge { data_points: vec![number(1)] }),
    );
    let classic = metric(
        "http.request.duration",
        "s",
        otlp::metric::Data::Histogram(otlp::Histogram {
            data_points: vec![otlp::HistogramDataPoint {
                attributes: host(1),
                time_unix_nano: at,
                count: 9 + round,
                sum: Some(4.5),
                bucket_counts: vec![2, 3 + round, 4],
                explicit_bounds: vec![0.1, 1.0],
                ..otlp::HistogramDataPoint::default()
            }],
            aggregation_temporality: CUMULATIVE,
        }),
    );
    let exponential = |number: usize| otlp::ExponentialHistogramDataPoint {
        attributes: host(number),
        time_unix_nano: at,
        count: 8 + round,
        sum: Some(2.5),
        scale: 3,
        zero_count: 1,
        positive: Some(otlp::exponential_histogram_data_point::Buckets {
            offset: -1,
            bucket_counts: vec![3, 0, 4 + round],
        }),
        ..otlp::ExponentialHistogramDataPoint::default()
    };
    let native = metric(
        "db.latency",
        "ms",
        otlp::metric::Data::ExponentialHistogram(otlp::ExponentialHistogram {
            data_points: (0..HISTOGRAMS).map(exponential).collect(),
            aggregation_temporality: CUMULATIVE,
        }),
    );
    let quantile = |quantile, value| otlp::summary_data_point::ValueAtQuantile { quantile, value };
    let summary = metric(
        "gc.pause",
        "s",
        otlp::metric::Data::Summary(otlp::Summary {
            data_points: vec![otlp::SummaryDataPoint {
                attributes: host(1),
                time_unix_nano: at,
                count: 5 + round,
                sum: 1.5,
                quantile_values: vec![quantile(0.5, 0.1), quantile(0.99, 0.9)],
                ..otlp::SummaryDataPoint::default()
            }],
        }),
    );
    let resource = Resource {
        attributes: vec![
            pair("service.name", "shop"),
            pair("service.instance.id", "shop-1"),
            pair("cloud.region", "north"),
        ],
        ..Resource::default()
    };
    let scope = otlp::ScopeMetrics {
        metrics: vec![counters, gauge, classic, native, summary],
        ..otlp::ScopeMetrics::default()
    };
    let resource_metrics = otlp::ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![scope],
        ..otlp::ResourceMetrics::default()
    };
    ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }
}
