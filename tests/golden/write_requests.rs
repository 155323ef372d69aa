//! Write requests as Cortex reads them: gRPC messages, stream messages and remote-write bodies.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use freehold::labels::LabelsBuf;
use freehold::wire::histogram::{Count, Histogram, Span};
use freehold::wire::proto::cortexpb;
use freehold::wire::remote_write::{self, Headers, Options};
use freehold::wire::rewrite::{Edit, rewrite};
use freehold::wire::signature::sign;
use freehold::wire::stream::StreamWriteRequest;
use freehold::wire::write_request::{RawLabels, Series, WriteRequest};
use prost::Message as _;
use serde_json::{Map, Value, json};

use crate::vectors;

#[test]
fn requests_decode_as_in_cortex() {
    let file = vectors::read("write_requests");
    let cases = vectors::array(&file, "grpc");
    assert!(!cases.is_empty());
    for case in cases {
        let body = vectors::base64(&case["b64"]);
        let decoded = decode(&body);
        if let Some(error) = case["error"].as_str() {
            assert_eq!(decoded, Err(error.to_owned()), "{case}");
            continue;
        }
        assert_eq!(decoded.as_ref(), Ok(&case["decoded"]), "{}", case["note"]);
        if let Some(expect) = case["sign"].as_str() {
            assert_eq!(sign("tenant-1", &body).as_deref(), Ok(expect), "{}", case["note"]);
        }
        // Our protobuf sources write the bytes that Cortex does.
        if case["canonical"] == true {
            let mut message = cortexpb::WriteRequest::decode(&body[..]).expect("canonical");
            message.r#ref = Some(cortexpb::MessageWithBufRef {});
            assert_eq!(message.encode_to_vec(), body, "{}", case["note"]);
            assert_eq!(rewrite(&body, |_| Edit::Keep), body, "{}", case["note"]);
        }
    }
}

#[test]
fn malformed_requests_are_refused_in_the_same_words() {
    let file = vectors::read("write_requests");
    let cases = vectors::array(&file, "grpc_malformed");
    assert!(!cases.is_empty());
    for case in cases {
        let decoded = decode(&vectors::base64(&case["b64"]));
        match case["error"].as_str() {
            Some(error) => assert_eq!(decoded, Err(error.to_owned()), "{}", case["note"]),
            None => {
                let decoded = decoded.unwrap_or_else(|error| panic!("{}: {error}", case["note"]));
                let series = vectors::array(&decoded, "timeseries").len();
                assert_eq!(Some(series as u64), case["series"].as_u64(), "{}", case["note"]);
            }
        }
    }
}

#[test]
fn stream_messages_decode_as_in_cortex() {
    let file = vectors::read("write_requests");
    let cases = vectors::array(&file, "grpc_stream");
    assert!(!cases.is_empty());
    for case in cases {
        let body = vectors::base64(&case["b64"]);
        let message = StreamWriteRequest::decode(&body).expect("sound");
        assert_eq!(message.tenant_id, vectors::text(case, "tenant_id").as_bytes());
        let request = message.request.map(|request| decode(&request).expect("sound"));
        assert_eq!(request.unwrap_or(Value::Null), case["request"]);
    }
}

#[test]
fn remote_write_answers_as_cortex_does() {
    let file = vectors::read("write_requests");
    for part in ["remote_write_v1", "remote_write_v2", "remote_write_malformed"] {
        let cases = vectors::array(&file, part);
        assert!(!cases.is_empty());
        cases.iter().for_each(check_remote_write);
    }
}

fn check_remote_write(case: &Value) {
    let flag = |field: &str| case[field].as_bool().expect("flag");
    let headers = Headers {
        content_type: vectors::text(case, "content_type"),
        content_encoding: vectors::text(case, "content_encoding"),
    };
    let options = Options {
        recv_bytes_max: case["max_recv_msg_size"].as_u64().expect("size") as usize,
        v2_enabled: flag("remote_write_v2_enabled"),
        accept_unknown_content_type: flag("accept_unknown_content_type"),
        type_and_unit_labels: flag("enable_type_and_unit_labels"),
        start_timestamp: flag("enable_start_timestamp"),
    };
    let body = vectors::base64(&case["body_b64"]);
    let (status, response, request) = match remote_write::decode(headers, &body, &options) {
        Ok(decoded) => {
            let request = decode(&decoded.body).expect("what was decoded is sound");
            (decoded.version.success_status(), String::new(), request)
        }
        Err(error) => (error.status(), format!("{error}\n"), Value::Null),
    };
    let note = &case["note"];
    assert_eq!(Some(u64::from(status)), case["status"].as_u64(), "{note}: {response}");
    assert_eq!(response, vectors::text(case, "response"), "{note}");
    assert_eq!(request, case["request"], "{note}");
}

/// Reads a request and writes it as the vectors do.
fn decode(body: &[u8]) -> Result<Value, String> {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena).map_err(|e| e.to_string())?;
    let mut timeseries = Vec::new();
    while let Some(series) = request.next_series().map_err(|e| e.to_string())? {
        check_series(&request, &series);
        timeseries.push(series_json(&series, body));
    }
    let metadata: Vec<Value> = request
        .metadata()
        .map(|metadata| {
            let mut fields = Map::new();
            fields.insert("type".into(), metadata.kind.into());
            insert_text(&mut fields, "metric_family_name", metadata.metric_family_name);
            insert_text(&mut fields, "help", metadata.help);
            insert_text(&mut fields, "unit", metadata.unit);
            fields.into()
        })
        .collect();
    let summary = request.summary;
    assert_eq!(summary.series, timeseries.len() as u64);
    assert_eq!(summary.metadata, metadata.len() as u64);
    Ok(json!({
        "timeseries": timeseries,
        "source": summary.source,
        "metadata": metadata,
        "skip_label_name_validation": summary.skip_label_name_validation,
        "discard_out_of_order": summary.discard_out_of_order,
    }))
}

/// What the reader says of a series agrees with what is in it.
fn check_series(request: &WriteRequest<'_, '_>, series: &Series) {
    let body = request.body();
    let labels = LabelsBuf::from_pairs(series.raw_labels(body));
    assert_eq!(request.labels(series), labels.as_labels());
    assert_eq!(series.samples(body).count(), series.sample_count as usize);
    assert_eq!(series.histograms(body).count(), series.histogram_count as usize);
    assert_eq!(series.exemplars(body).count(), series.exemplar_count as usize);
    let times: Vec<i64> = series
        .samples(body)
        .map(|sample| sample.timestamp_ms)
        .chain(series.histograms(body).map(|histogram| histogram.timestamp_ms()))
        .collect();
    let range = times.iter().min().zip(times.iter().max()).map(|(a, b)| (*a, *b));
    assert_eq!(series.time_range_ms(), range);
}

pub(crate) fn series_json(series: &Series, body: &[u8]) -> Value {
    let samples: Vec<Value> = series
        .samples(body)
        .map(|sample| {
            json!({
                "value_bits": bits(sample.value),
                "timestamp_ms": sample.timestamp_ms,
                "start_timestamp_ms": sample.start_timestamp_ms,
            })
        })
        .collect();
    let exemplars: Vec<Value> = series
        .exemplars(body)
        .map(|exemplar| {
            let mut fields = Map::new();
            insert_labels(&mut fields, exemplar.labels());
            fields.insert("value_bits".into(), bits(exemplar.value).into());
            fields.insert("timestamp_ms".into(), exemplar.timestamp_ms.into());
            fields.into()
        })
        .collect();
    let histograms: Vec<Value> = series
        .histograms(body)
        .map(|histogram| histogram_json(&histogram.decode().expect("checked")))
        .collect();
    let mut fields = Map::new();
    insert_labels(&mut fields, series.raw_labels(body));
    fields.insert("samples".into(), samples.into());
    fields.insert("exemplars".into(), exemplars.into());
    fields.insert("histograms".into(), histograms.into());
    fields.into()
}

pub(crate) fn histogram_json(histogram: &Histogram) -> Value {
    let spans = |spans: &[Span]| -> Value {
        spans.iter().map(|span| json!([span.offset, span.length])).collect()
    };
    let doubles = |values: &[f64]| -> Value { values.iter().map(|value| bits(*value)).collect() };
    let mut fields = Map::new();
    insert_count(&mut fields, "count", histogram.count);
    fields.insert("sum_bits".into(), bits(histogram.sum).into());
    fields.insert("schema".into(), histogram.schema.into());
    fields.insert("zero_threshold_bits".into(), bits(histogram.zero_threshold).into());
    insert_count(&mut fields, "zero_count", histogram.zero_count);
    fields.insert("negative_spans".into(), spans(&histogram.negative_spans));
    fields.insert("negative_deltas".into(), json!(histogram.negative_deltas));
    fields.insert("negative_counts_bits".into(), doubles(&histogram.negative_counts));
    fields.insert("positive_spans".into(), spans(&histogram.positive_spans));
    fields.insert("positive_deltas".into(), json!(histogram.positive_deltas));
    fields.insert("positive_counts_bits".into(), doubles(&histogram.positive_counts));
    fields.insert("reset_hint".into(), histogram.reset_hint.into());
    fields.insert("timestamp_ms".into(), histogram.timestamp_ms.into());
    fields.insert("custom_values_bits".into(), doubles(&histogram.custom_values));
    fields.insert("start_timestamp_ms".into(), histogram.start_timestamp_ms.into());
    fields.into()
}

fn insert_count(fields: &mut Map<String, Value>, name: &str, count: Option<Count>) {
    match count {
        Some(Count::Int(count)) => fields.insert(format!("{name}_int"), count.into()),
        Some(Count::Float(count)) => {
            fields.insert(format!("{name}_float_bits"), bits(count).into())
        }
        None => None,
    };
}

fn insert_labels(fields: &mut Map<String, Value>, labels: RawLabels<'_>) {
    let text = |bytes| std::str::from_utf8(bytes);
    let texts: Result<Vec<Value>, _> = labels
        .clone()
        .map(|(name, value)| Ok::<_, std::str::Utf8Error>(json!([text(name)?, text(value)?])))
        .collect();
    match texts {
        Ok(labels) => fields.insert("labels".into(), labels.into()),
        Err(_) => {
            let encode = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
            let labels: Vec<Value> =
                labels.map(|(name, value)| json!([encode(name), encode(value)])).collect();
            fields.insert("labels_b64".into(), labels.into())
        }
    };
}

fn insert_text(fields: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => fields.insert(name.into(), text.into()),
        Err(_) => fields.insert(format!("{name}_b64"), BASE64_STANDARD.encode(bytes).into()),
    };
}

fn bits(value: f64) -> String {
    format!("{:016x}", value.to_bits())
}
