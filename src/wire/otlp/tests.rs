//! Expectations are worked out by hand from Prometheus' rules, not taken from our output.

use std::io::Write as _;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint, exemplar, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::wire::proto::cortexpb;

const MS: u64 = 1_000_000;
const AT: u64 = 1_700_000_000_000 * MS;
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

const OPTIONS: OtlpOptions<'static> = OtlpOptions {
    recv_bytes_max: 1 << 20,
    convert_all_attributes: false,
    disable_target_info: true,
    allow_delta_temporality: false,
    add_metric_suffixes: true,
    type_and_unit_labels: false,
    promote_resource_attributes: &[],
};

const PROTOBUF: OtlpHeaders<'static> =
    OtlpHeaders { content_type: "application/x-protobuf", content_encoding: "" };

fn pair(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<KeyValue> {
    pairs.iter().map(|(key, value)| pair(key, value)).collect()
}

fn point(value: f64, attributes: &[(&str, &str)]) -> NumberDataPoint {
    NumberDataPoint {
        attributes: pairs(attributes),
        time_unix_nano: AT,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn metric(name: &str, unit: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        description: format!("About {name}."),
        data: Some(data),
        ..Metric::default()
    }
}

fn gauge(name: &str, points: Vec<NumberDataPoint>) -> Metric {
    metric(name, "", Data::Gauge(Gauge { data_points: points }))
}

fn sum(name: &str, unit: &str, temporality: i32, points: Vec<NumberDataPoint>) -> Metric {
    let sum = Sum { data_points: points, aggregation_temporality: temporality, is_monotonic: true };
    metric(name, unit, Data::Sum(sum))
}

fn request(resource: &[(&str, &str)], metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
    let resource = Some(Resource { attributes: pairs(resource), ..Resource::default() });
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let resource_metrics =
        vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

/// Series as lines `{labels} value@ms …`, exemplars behind `#`, native histograms as `H`.
fn shown(body: &[u8]) -> Vec<String> {
    let request = cortexpb::WriteRequest::decode(body).expect("a write request");
    let labels = |labels: &[cortexpb::LabelPair]| {
        let pairs = labels.iter().map(|l| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            format!("{}={:?}", text(&l.name), text(&l.value))
        });
        format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
    };
    let line = |series: &cortexpb::TimeSeries| {
        let mut line = labels(&series.labels);
        for sample in &series.samples {
            let stale = sample.value.to_bits() == 0x7ff0_0000_0000_0002;
            let value = if stale { "stale".to_owned() } else { sample.value.to_string() };
            line.push_str(&format!(" {value}@{}", sample.timestamp_ms));
        }
        for exemplar in &series.exemplars {
            let (at, value) = (exemplar.timestamp_ms, exemplar.value);
            line.push_str(&format!(" # {}{value}@{at}", labels(&exemplar.labels)));
        }
        for histogram in &series.histograms {
            let spans = |spans: &[cortexpb::BucketSpan]| -> Vec<(i32, u32)> {
                spans.iter().map(|span| (span.offset, span.length)).collect()
            };
            line.push_str(&format!(
                " H{}:{:?}/{}z{:?}+{:?}{:?}-{:?}{:?}r{}@{}",
                histogram.schema,
                histogram.count,
                histogram.sum,
                histogram.zero_count,
                spans(&histogram.positive_spans),
                histogram.positive_deltas,
                spans(&histogram.negative_spans),
                histogram.negative_deltas,
                histogram.reset_hint,
                histogram.timestamp_ms,
            ));
        }
        line
    };
    request.timeseries.iter().map(line).collect()
}

fn decoded(
    request: &ExportMetricsServiceRequest,
    options: &OtlpOptions<'_>,
) -> Result<OtlpDecoded, OtlpError> {
    decode_otlp(PROTOBUF, &request.encode_to_vec(), options)
}

fn check(request: &ExportMetricsServiceRequest, options: &OtlpOptions<'_>, expect: &[&str]) {
    let decoded = decoded(request, options).expect("translated");
    assert_eq!(shown(&decoded.body), expect);
    assert_eq!(decoded.summary.series, expect.len() as u64);
}

#[test]
fn gauges_and_sums_become_series() {
    let int = NumberDataPoint {
        value: Some(number_data_point::Value::AsInt(-7)),
        ..point(0.0, &[("b", "2"), ("a.x", "1")])
    };
    let none = NumberDataPoint { value: None, ..point(0.0, &[]) };
    let gone = NumberDataPoint { flags: 1, ..point(4.0, &[("z", "")]) };
    let exemplar = Exemplar {
        time_unix_nano: AT - MS / 2,
        trace_id: vec![0xab; 16],
        span_id: vec![0; 8],
        filtered_attributes: pairs(&[("odd name", "v")]),
        value: Some(exemplar::Value::AsInt(3)),
    };
    let with_exemplar = NumberDataPoint { exemplars: vec![exemplar], ..point(9.5, &[]) };
    let metrics = vec![
        gauge("queue.length", vec![int, none, gone]),
        sum("io", "By", CUMULATIVE, vec![with_exemplar]),
    ];
    let resource = [("service.name", "api"), ("service.namespace", "shop"), ("host", "h")];
    check(
        &request(&resource, metrics),
        &OPTIONS,
        &[
            "{__name__=\"queue_length\",a_x=\"1\",b=\"2\",job=\"shop/api\"} -7@1700000000000",
            "{__name__=\"queue_length\",job=\"shop/api\"} 0@1700000000000 stale@1700000000000",
            "{__name__=\"io_bytes_total\",job=\"shop/api\"} 9.5@1700000000000 \
             # {odd name=\"v\",trace_id=\"abababababababababababababababab\"}3@1699999999999",
        ],
    );
}

#[test]
fn names_that_fall_together_are_joined_in_order() {
    let attributes = [("a_b", "3"), ("a.b", "2"), ("a-b", "1"), ("job", "mine"), ("le", "x")];
    let metrics = vec![gauge("m", vec![point(1.0, &attributes)])];
    let resource = [("service.name", "api"), ("service.instance.id", "i")];
    check(
        &request(&resource, metrics),
        &OPTIONS,
        &["{__name__=\"m\",a_b=\"1;2;3\",instance=\"i\",job=\"api\",le=\"x\"} 1@1700000000000"],
    );
}

#[test]
fn histograms_become_classic_ones() {
    let exemplar = |value: f64| Exemplar {
        value: Some(exemplar::Value::AsDouble(value)),
        ..Exemplar::default()
    };
    let histogram = HistogramDataPoint {
        time_unix_nano: AT,
        count: 10,
        sum: Some(5.5),
        bucket_counts: vec![1, 4, 5],
        explicit_bounds: vec![0.005, 1.0],
        exemplars: vec![exemplar(0.001), exemplar(0.5), exemplar(7.0)],
        ..HistogramDataPoint::default()
    };
    let without_sum = HistogramDataPoint {
        time_unix_nano: AT + 1000 * MS,
        count: 2,
        flags: 1,
        ..HistogramDataPoint::default()
    };
    let data = Data::Histogram(Histogram {
        data_points: vec![histogram, without_sum],
        aggregation_temporality: CUMULATIVE,
    });
    check(
        &request(&[], vec![metric("latency", "s", data)]),
        &OPTIONS,
        &[
            "{__name__=\"latency_seconds_sum\"} 5.5@1700000000000",
            "{__name__=\"latency_seconds_count\"} 10@1700000000000 stale@1700000001000",
            "{__name__=\"latency_seconds_bucket\",le=\"0.005\"} 1@1700000000000 # {}0.001@0",
            "{__name__=\"latency_seconds_bucket\",le=\"1\"} 5@1700000000000 # {}0.5@0",
            "{__name__=\"latency_seconds_bucket\",le=\"+Inf\"} 10@1700000000000 \
             stale@1700000001000 # {}7@0",
        ],
    );
}

#[test]
fn exponential_histograms_become_native_ones() {
    let point = ExponentialHistogramDataPoint {
        time_unix_nano: AT,
        count: 9,
        sum: Some(2.5),
        scale: 1,
        zero_count: 1,
        positive: Some(Buckets { offset: -1, bucket_counts: vec![2, 0, 0, 0, 5] }),
        negative: Some(Buckets { offset: 2, bucket_counts: vec![1] }),
        ..ExponentialHistogramDataPoint::default()
    };
    let data = |temporality| {
        Data::ExponentialHistogram(ExponentialHistogram {
            data_points: vec![point.clone()],
            aggregation_temporality: temporality,
        })
    };
    // Positive: bucket 0 has 2, three empty ones follow (more than two: a new span), then 5.
    let expect = |hint: u8| {
        format!(
            "{{__name__=\"h\"}} H1:Some(CountInt(9))/2.5zSome(ZeroCountInt(1))\
             +[(0, 1), (3, 1)][2, 3]-[(3, 1)][1]r{hint}@1700000000000"
        )
    };
    check(&request(&[], vec![metric("h", "", data(CUMULATIVE))]), &OPTIONS, &[&expect(0)]);
    let deltas = OtlpOptions { allow_delta_temporality: true, ..OPTIONS };
    check(&request(&[], vec![metric("h", "", data(DELTA))]), &deltas, &[&expect(3)]);
}

#[test]
fn summaries_become_quantiles() {
    let point = SummaryDataPoint {
        attributes: pairs(&[("quantile", "mine")]),
        time_unix_nano: AT,
        count: 3,
        sum: 6.0,
        quantile_values: vec![
            ValueAtQuantile { quantile: 0.5, value: 1.0 },
            ValueAtQuantile { quantile: 1.0, value: 4.0 },
        ],
        ..SummaryDataPoint::default()
    };
    let data = Data::Summary(Summary { data_points: vec![point] });
    check(
        &request(&[], vec![metric("s", "", data)]),
        &OPTIONS,
        &[
            "{__name__=\"s_sum\",quantile=\"mine\"} 6@1700000000000",
            "{__name__=\"s_count\",quantile=\"mine\"} 3@1700000000000",
            "{__name__=\"s\",quantile=\"0.5\"} 1@1700000000000",
            "{__name__=\"s\",quantile=\"1\"} 4@1700000000000",
        ],
    );
}

#[test]
fn resources_are_told_once_and_over_the_time_of_their_metrics() {
    let options = OtlpOptions { disable_target_info: false, ..OPTIONS };
    let early = NumberDataPoint { time_unix_nano: AT - 200_000 * MS, ..point(1.0, &[("a", "1")]) };
    let metrics = vec![gauge("m", vec![point(2.0, &[("a", "2")]), early])];
    let resource = [("service.name", "api"), ("host.name", "h")];
    let mut two = request(&resource, metrics);
    two.resource_metrics.push(two.resource_metrics[0].clone());
    check(
        &two,
        &options,
        &[
            "{__name__=\"m\",a=\"2\",job=\"api\"} 2@1700000000000 2@1700000000000",
            "{__name__=\"m\",a=\"1\",job=\"api\"} 1@1699999800000 1@1699999800000",
            "{__name__=\"target_info\",host_name=\"h\",job=\"api\"} 1@1699999800000 \
             1@1699999950000 1@1700000000000",
        ],
    );
    // Nothing but who it is, or nobody that it is.
    for resource in [&[("service.name", "api")][..], &[("host.name", "h")]] {
        let decoded =
            decoded(&request(resource, vec![gauge("m", vec![point(1.0, &[])])]), &options);
        assert_eq!(decoded.expect("translated").summary.series, 1, "{resource:?}");
    }
}

#[test]
fn a_resource_of_all_times_is_told_a_bounded_number_of_times() {
    let options = OtlpOptions { disable_target_info: false, ..OPTIONS };
    let never = NumberDataPoint { time_unix_nano: 0, ..point(1.0, &[("a", "1")]) };
    let last = NumberDataPoint { time_unix_nano: u64::MAX >> 1, ..point(1.0, &[("a", "1")]) };
    let resource = [("service.name", "api"), ("host.name", "h")];
    for last in [point(1.0, &[]), last] {
        let at_ms = last.time_unix_nano / MS;
        let metrics = vec![gauge("m", vec![never.clone(), last])];
        let decoded = decoded(&request(&resource, metrics), &options).expect("translated");
        let line = shown(&decoded.body).pop().expect("target_info is last");
        let times: Vec<&str> = line.split("1@").skip(1).map(str::trim).collect();
        assert!((1000..=1001).contains(&times.len()), "{}", times.len());
        assert_eq!(times.last(), Some(&&*at_ms.to_string()));
    }
}

#[test]
fn attributes_of_the_resource_become_labels_as_asked() {
    let names = ["host.name".to_owned(), "a".to_owned(), "absent".to_owned()];
    let resource = [("host.name", "h"), ("a", "resource"), ("zone", "z")];
    let metrics = || vec![gauge("m", vec![point(1.0, &[("a", "point")])])];
    let promote = OtlpOptions { promote_resource_attributes: &names, ..OPTIONS };
    check(
        &request(&resource, metrics()),
        &promote,
        &["{__name__=\"m\",a=\"point\",host_name=\"h\"} 1@1700000000000"],
    );
    let all = OtlpOptions { convert_all_attributes: true, ..promote };
    check(
        &request(&resource, metrics()),
        &all,
        &["{__name__=\"m\",a=\"resource\",host_name=\"h\",zone=\"z\"} 1@1700000000000"],
    );
    let typed = OtlpOptions { type_and_unit_labels: true, ..OPTIONS };
    check(
        &request(&[], vec![sum("io", "By/s", CUMULATIVE, vec![point(1.0, &[])])]),
        &typed,
        &["{__name__=\"io_bytes_per_second_total\",__type__=\"counter\",\
           __unit__=\"bytes_per_second\"} 1@1700000000000"],
    );
}

#[test]
fn metadata_is_told_once_for_each_metric() {
    let metrics = vec![
        sum("io", "By", CUMULATIVE, vec![point(1.0, &[("a", "1")]), point(1.0, &[("a", "2")])]),
        metric("io", "By", Data::Gauge(Gauge { data_points: vec![point(1.0, &[])] })),
    ];
    let decoded = decoded(&request(&[], metrics), &OPTIONS).expect("translated");
    let request = cortexpb::WriteRequest::decode(&decoded.body[..]).expect("a write request");
    let line = |metadata: &cortexpb::MetricMetadata| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let cortexpb::MetricMetadata { r#type, metric_family_name, help, unit } = metadata;
        format!("{} {} {} {}", r#type, text(metric_family_name), text(help), text(unit))
    };
    let metadata: Vec<String> = request.metadata.iter().map(line).collect();
    assert_eq!(metadata, ["1 io_bytes_total About io. bytes", "2 io_bytes About io. bytes"]);
    assert_eq!(decoded.summary.metadata, 2);
}

#[test]
fn what_cannot_be_translated_is_left_out_or_an_error() {
    let good = || gauge("good", vec![point(1.0, &[])]);
    let cases = [
        (
            sum("io", "By", DELTA, vec![point(1.0, &[])]),
            "invalid temporality and type combination for metric \"io\"",
        ),
        (
            sum("io", "By", 0, vec![point(1.0, &[])]),
            "invalid temporality and type combination for metric \"io\"",
        ),
        (gauge("empty", vec![]), "empty data points. empty is dropped"),
        (
            Metric { name: "none".to_owned(), ..Metric::default() },
            "could not get aggregation temporality for none as it has unsupported metric type \
             Empty",
        ),
        (
            gauge("...", vec![point(1.0, &[])]),
            "normalization for metric \"...\" resulted in empty name",
        ),
        (gauge("m", vec![point(1.0, &[("", "v")])]), "label name is empty"),
    ];
    for (metric, text) in cases {
        let alone = decoded(&request(&[], vec![metric.clone()]), &OPTIONS).expect_err(text);
        assert_eq!(alone, OtlpError::Nothing(text.to_owned()));
        let both = decoded(&request(&[], vec![metric, good()]), &OPTIONS).expect("the good one");
        assert_eq!((both.summary.series, both.left_out.as_deref()), (1, Some(text)));
    }
    // A sum's labels fail without a word.
    let silent = sum("io", "", CUMULATIVE, vec![point(1.0, &[("..", "v")]), point(1.0, &[])]);
    let decoded_ = decoded(&request(&[], vec![silent]), &OPTIONS).expect("nothing");
    assert_eq!((decoded_.summary.series, decoded_.left_out), (0, None));
    let two = vec![gauge("e", vec![]), gauge("f", vec![])];
    let error = decoded(&request(&[], two), &OPTIONS).expect_err("nothing left").to_string();
    assert_eq!(error, "empty data points. e is dropped; empty data points. f is dropped");
}

#[test]
fn json_reads_as_protobuf_does() {
    let json = r#"{"resourceMetrics":[{"resource":{"attributes":[
        {"key":"service.name","value":{"stringValue":"api"}}]},"scopeMetrics":[{"metrics":[
        {"name":"io","unit":"By","description":"About io.","sum":{"aggregationTemporality":2,
        "isMonotonic":true,"dataPoints":[{"asInt":"5","timeUnixNano":"1700000000000000000",
        "attributes":[{"key":"n","value":{"intValue":"7"}}]}]}},
        {"name":"h","histogram":{"aggregationTemporality":"AGGREGATION_TEMPORALITY_CUMULATIVE","dataPoints":[{"count":"2","sum":3.5,
        "timeUnixNano":1700000000000000000,"bucketCounts":["1","1"],"explicitBounds":[1]}]}}
        ]}]}],"unknown":1}"#;
    let headers = OtlpHeaders { content_type: "application/json", content_encoding: "" };
    let decoded = decode_otlp(headers, json.as_bytes(), &OPTIONS).expect("translated");
    let expect = [
        "{__name__=\"io_bytes_total\",job=\"api\",n=\"7\"} 5@1700000000000",
        "{__name__=\"h_sum\",job=\"api\"} 3.5@1700000000000",
        "{__name__=\"h_count\",job=\"api\"} 2@1700000000000",
        "{__name__=\"h_bucket\",job=\"api\",le=\"1\"} 1@1700000000000",
        "{__name__=\"h_bucket\",job=\"api\",le=\"+Inf\"} 2@1700000000000",
    ];
    assert_eq!(shown(&decoded.body), expect);
    let empty = decode_otlp(headers, b"{}", &OPTIONS).expect("nothing is right too");
    assert!(empty.body.is_empty());
    assert!(matches!(decode_otlp(headers, b"{", &OPTIONS), Err(OtlpError::Message(_))));
    // What cannot be read is told, and is not taken for absent.
    let damaged = json.replace("\"asInt\":\"5\"", "\"asInt\":\"5x\"");
    let error = decode_otlp(headers, damaged.as_bytes(), &OPTIONS).expect_err("no number");
    let text = error.to_string();
    assert!(text.starts_with("\"5x\" is no whole number at line 4 column "), "{text}");
}

#[test]
fn headers_and_sizes_are_checked_first() {
    let body = request(&[], vec![gauge("m", vec![point(1.0, &[])])]).encode_to_vec();
    let ask = |content_type, content_encoding, body: &[u8], recv_bytes_max| {
        let headers = OtlpHeaders { content_type, content_encoding };
        decode_otlp(headers, body, &OtlpOptions { recv_bytes_max, ..OPTIONS })
            .map(|decoded| decoded.summary.series)
            .map_err(|error| error.to_string())
    };
    let zip = |bytes: &[u8]| {
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        zipped.write_all(bytes).expect("in memory");
        zipped.finish().expect("in memory")
    };
    let protobuf = "application/x-protobuf";
    let text = |text: &str| Err(text.to_owned());
    assert_eq!(ask(protobuf, "", &body, 1000), Ok(1));
    assert_eq!(ask(protobuf, "gzip", &zip(&body), 1000), Ok(1));
    assert_eq!(
        ask(protobuf, "zstd", &body, 1000),
        text(
            "unsupported compression: zstd, Supported compression types are \"gzip\" or '' (no \
             compression)"
        )
    );
    assert_eq!(
        ask("text/plain", "", &body, 1000),
        text(
            "unsupported content type: text/plain, supported: [application/json, \
             application/x-protobuf]"
        )
    );
    let larger = |bytes, max| text(&format!("received message larger than max ({bytes} vs {max})"));
    assert_eq!(ask(protobuf, "", &body, 10), larger(body.len(), 10));
    let bomb = zip(&vec![0; 1 << 20]);
    assert_eq!(ask(protobuf, "gzip", &bomb, 5000), larger(5001, 5000));
    assert_eq!(ask(protobuf, "gzip", b"no gzip", 1000), text("gzip: invalid data"));
    assert_eq!(ask(protobuf, "", &[0x0a, 5], 1000), text("unexpected EOF"));
}

#[test]
fn few_bytes_do_not_become_many() {
    // Empty data points of two bytes each.
    let points = [0x0a, 0].repeat(VALUES_MAX + 1);
    let wrapped = |number: u8, content: &[u8]| {
        let mut out = vec![number << 3 | 2];
        prost::encoding::encode_varint(content.len() as u64, &mut out);
        out.extend_from_slice(content);
        out
    };
    let body = wrapped(1, &wrapped(2, &wrapped(2, &wrapped(5, &points))));
    let options = OtlpOptions { recv_bytes_max: 1 << 30, ..OPTIONS };
    assert_eq!(decode_otlp(PROTOBUF, &body, &options).unwrap_err(), OtlpError::TooManyValues);
    let headers = OtlpHeaders { content_type: "application/json", content_encoding: "" };
    let json = format!("{{\"resourceMetrics\":[{}]}}", "{},".repeat(VALUES_MAX));
    let error = decode_otlp(headers, json.as_bytes(), &options).unwrap_err();
    assert_eq!(error, OtlpError::TooManyValues);
    // One long label in each of many buckets.
    let histogram = HistogramDataPoint {
        attributes: pairs(&[("a", &"x".repeat(100_000))]),
        bucket_counts: vec![1; 1000],
        explicit_bounds: vec![1.0; 1000],
        ..HistogramDataPoint::default()
    };
    let data = Data::Histogram(Histogram {
        data_points: vec![histogram],
        aggregation_temporality: CUMULATIVE,
    });
    let error = decoded(&request(&[], vec![metric("h", "", data)]), &OPTIONS).unwrap_err();
    assert_eq!(error, OtlpError::Labels { bytes_max: 1 << 20 });
}

proptest! {
    #[test]
    fn malformed_bodies_are_errors(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        json: bool,
    ) {
        let content_type = if json { "application/json" } else { "application/x-protobuf" };
        let headers = OtlpHeaders { content_type, content_encoding: "" };
        let _ = decode_otlp(headers, &bytes, &OPTIONS);
    }

    #[test]
    fn damaged_bodies_are_errors_or_other_requests(at in 0_usize..400, byte: u8, cut in 0_usize..400) {
        let exponential = ExponentialHistogramDataPoint {
            scale: 3,
            positive: Some(Buckets { offset: 5, bucket_counts: vec![1, 0, 0, 0, 2] }),
            exemplars: vec![Exemplar::default()],
            ..ExponentialHistogramDataPoint::default()
        };
        let data = Data::ExponentialHistogram(ExponentialHistogram {
            data_points: vec![exponential],
            aggregation_temporality: CUMULATIVE,
        });
        let metrics = vec![
            metric("h", "s", data),
            sum("io", "By/s", CUMULATIVE, vec![point(1.0, &[("a.b", "c"), ("a_b", "d")])]),
        ];
        let resource = [("service.name", "api"), ("host", "h")];
        let mut body = request(&resource, metrics).encode_to_vec();
        if let Some(place) = body.get_mut(at) {
            *place = byte;
        }
        body.truncate(body.len().saturating_sub(cut / 4));
        let options = OtlpOptions { disable_target_info: false, ..OPTIONS };
        if let Ok(decoded) = decode_otlp(PROTOBUF, &body, &options) {
            prop_assert_eq!(write_request::check(&decoded.body).expect("ours"), decoded.summary);
        }
    }
}
