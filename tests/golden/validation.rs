//! What Cortex's distributor takes, reduces and refuses, and how it counts and words it.

use std::collections::BTreeMap;

use freehold::distributor::prepare::{PrepareError, Replicas, Scratch, Treatment, prepare};
use freehold::distributor::validation::{
    HistogramWork, Kind, LabelRules, TimeRange, Violation, check_exemplar, check_histogram,
    check_labels, check_metadata, check_metric_name, check_values, fit,
};
use freehold::distributor::{Discarded, ItemKind};
use freehold::labels::{LabelsBuf, METRIC_NAME, NameScheme, Placement};
use freehold::limits::Limits;
use freehold::wire::histogram::Histogram;
use freehold::wire::proto::cortexpb;
use freehold::wire::rewrite::push_series;
use freehold::wire::write_request::{Exemplar, Metadata, Series, WriteRequest};
use prost::Message as _;
use serde_json::{Map, Value, json};

use crate::vectors;
use crate::write_requests::{histogram_json, series_json};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

#[test]
fn labels_are_judged_as_in_cortex() {
    let file = vectors::read("validation");
    let cases = vectors::array(&file, "labels");
    assert!(!cases.is_empty());
    for case in cases {
        let limits = limits(case);
        let rules = rules(case, &limits);
        let labels = vectors::labels(case, "labels");
        let checked = check_labels(pairs(&labels), &rules).map(|_| ());
        check_violation(case, checked, &labels);
    }
}

#[test]
fn labels_that_fit_are_those_that_pass() {
    let file = vectors::read("validation");
    for case in vectors::array(&file, "labels") {
        // The other function wants a metric's name; it gets the rules without that one.
        let limits = Limits { enforce_metric_name: false, ..limits(case) };
        let labels = vectors::labels(case, "labels");
        if labels.iter().any(|(_, value)| value.is_empty()) {
            continue;
        }
        let buffer = LabelsBuf::from_pairs(labels.iter().cloned());
        let fits = fit(buffer.as_labels(), &rules(case, &limits), |_, _| {}).is_some();
        assert_eq!(fits, case["reason"].is_null(), "{case}");
    }
}

#[test]
fn metric_names_are_judged_as_in_cortex() {
    let file = vectors::read("validation");
    let cases = vectors::array(&file, "metric_name");
    assert!(!cases.is_empty());
    for case in cases {
        let limits = limits(case);
        let labels = vectors::labels(case, "labels");
        let name = labels.iter().find(|(name, _)| name == METRIC_NAME);
        let checked = check_metric_name(name.map(|(_, value)| &value[..]), &rules(case, &limits));
        check_violation(case, checked, &labels);
    }
}

#[test]
fn times_are_judged_as_in_cortex() {
    let file = vectors::read("validation");
    let cases = vectors::array(&file, "sample_timestamp");
    assert!(!cases.is_empty());
    for case in cases {
        let times = TimeRange::new(&limits(case), integer(case, "now_ms"));
        let timestamp_ms = integer(case, "timestamp_ms");
        let checked = times.check(timestamp_ms);
        assert_eq!(times.holds((timestamp_ms, timestamp_ms)), checked.is_ok(), "{case}");
        check_violation(case, checked, &vectors::labels(case, "labels"));
    }
}

#[test]
fn exemplars_are_judged_as_in_cortex() {
    let file = vectors::read("validation");
    let cases = vectors::array(&file, "exemplar");
    assert!(!cases.is_empty());
    for case in cases {
        let bytes = exemplar_message(&case["exemplar"]).encode_to_vec();
        let exemplar = Exemplar::decode(&bytes).expect("encoded above");
        check_violation(case, check_exemplar(&exemplar), &vectors::labels(case, "labels"));
    }
}

#[test]
fn metadata_is_judged_as_in_cortex() {
    let file = vectors::read("validation");
    let cases = vectors::array(&file, "metadata");
    assert!(!cases.is_empty());
    for case in cases {
        let [name, help, unit] =
            ["metric_family_name", "help", "unit"].map(|field| bytes(&case["metadata"], field));
        let metadata = Metadata { kind: 0, metric_family_name: &name, help: &help, unit: &unit };
        match check_metadata(&metadata, &limits(case)) {
            Ok(()) => assert!(case["reason"].is_null() && case["result"].is_null(), "{case}"),
            Err(violation) => {
                assert_eq!(Some(violation.reason()), case["reason"].as_str(), "{case}");
                check_http_error(&case["result"], &violation.text());
            }
        }
    }
}

#[test]
fn native_histograms_are_judged_and_reduced_as_in_cortex() {
    let file = vectors::read("validation");
    let cases = vectors::array(&file, "native_histogram");
    assert!(!cases.is_empty());
    for case in cases {
        let received = vectors::base64(&case["histogram_b64"]);
        let mut histogram = Histogram::decode(&received).expect("sound");
        assert_eq!(histogram_json(&histogram), case["histogram"], "{case}");
        assert_eq!(Some(histogram.cortex_len() as u64), case["size_bytes"].as_u64(), "{case}");
        let labels = vectors::labels(case, "labels");
        match check_histogram(&mut histogram, &limits(case)) {
            Err(violation) => check_violation(case, Err(violation), &labels),
            Ok(reduced) => {
                assert!(case["reason"].is_null(), "{case}");
                assert_eq!(Some(reduced), case["reduced"].as_bool(), "{case}");
                if reduced {
                    assert_eq!(histogram_json(&histogram), case["result"], "{case}");
                    assert_eq!(histogram.encode(), vectors::base64(&case["result_b64"]), "{case}");
                }
            }
        }
    }
}

#[test]
fn series_are_judged_as_in_cortex() {
    let file = vectors::read("validation");
    let cases = vectors::array(&file, "series");
    assert!(!cases.is_empty());
    let mut work = HistogramWork::default();
    for case in cases {
        let case = &without_overwritten_deltas(case);
        let limits = limits(case);
        let message = series_message(&case["series"]);
        let request = cortexpb::WriteRequest { timeseries: vec![message], ..Default::default() };
        let body = request.encode_to_vec();
        let series = only_series(&body);
        let times = TimeRange::new(&limits, integer(case, "now_ms"));
        let mut reduced = 0;
        let checked =
            check_labels(series.raw_labels(&body), &rules(case, &limits)).and_then(|_| {
                let checked = check_values(&series, &body, (&limits, times), &mut work, |_| {});
                reduced = work.reduced.len() as u64;
                checked
            });
        let mut discarded = Discarded { reduced_resolution: reduced, ..Discarded::default() };
        match checked {
            Ok(()) => {
                assert!(case["error"].is_null(), "{case}");
                assert_eq!(Some(reduced > 0), case["changed"].as_bool(), "{case}");
                let mut rewritten = Vec::new();
                push_series(&mut rewritten, series.message(&body), None, &work.reduced);
                let result = series_json(&only_series(&rewritten), &rewritten);
                let unchanged = &case["series"];
                let expect = if reduced > 0 { &case["result"] } else { unchanged };
                assert_eq!(&result, expect, "{case}");
            }
            Err(violation) => {
                let text = violation.text(series.raw_labels(&body));
                assert_eq!(Some(&text[..]), case["error"].as_str(), "{case}");
                let counts = match violation.kind() {
                    Kind::Sample => &mut discarded.samples,
                    Kind::Exemplar => &mut discarded.exemplars,
                };
                counts.push((violation.reason(), 1));
            }
        }
        assert_eq!(discarded_json(&discarded), case["discarded"], "{case}");
    }
}

/// A case with the deltas of its integer histograms at zero if Cortex has reduced one.
///
/// It merges deltas where they lie, and these cases were written down afterwards: what `series`
/// shows is no longer what came in, and contradicts the count beside it. How far a histogram is
/// reduced depends on its spans alone; what becomes of deltas is in `native_histogram`.
fn without_overwritten_deltas(case: &Value) -> Value {
    let mut case = case.clone();
    let discarded = &case["discarded"];
    let reduced = ["reduced_resolution", "samples/native_histogram_buckets_exceeded"];
    if reduced.iter().all(|counter| discarded[counter].is_null()) {
        return case;
    }
    for part in ["series", "result"] {
        let histograms = case.get_mut(part).and_then(|series| series["histograms"].as_array_mut());
        for histogram in histograms.into_iter().flatten() {
            if histogram["count_int"].is_u64() {
                histogram["count_int"] = histogram["zero_count_int"].as_u64().unwrap_or(0).into();
                for side in ["positive_deltas", "negative_deltas"] {
                    let deltas = histogram[side].as_array_mut().expect("deltas");
                    deltas.fill(0.into());
                }
            }
        }
    }
    case
}

#[test]
fn requests_are_prepared_as_in_cortex() {
    let file = vectors::read("validation");
    let cases = vectors::array(&file, "request");
    assert!(!cases.is_empty());
    let mut scratch = Scratch::default();
    for case in cases {
        let limits = limits(case);
        let body = vectors::base64(&case["request_b64"]);
        let treatment = Treatment {
            tenant: vectors::text(case, "tenant"),
            limits: &limits,
            names: scheme(case),
            placement: match case["shard_by_all_labels"].as_bool().expect("flag") {
                true => Placement::ByAllLabels,
                false => Placement::ByMetric,
            },
            is_placed: true,
            replicas: Replicas::Kept,
        };
        let prepared = match prepare(&body, &treatment, &mut scratch, integer(case, "now_ms")) {
            Ok(prepared) => prepared,
            Err(error) => {
                check_request_error(case, &error);
                continue;
            }
        };
        assert!(case["request_error"].is_null(), "{case}");
        match &prepared.failure {
            None => assert!(case["first_partial_error"].is_null(), "{case}"),
            Some(text) => check_http_error(&case["first_partial_error"], text),
        }
        assert_eq!(discarded_json(&prepared.discarded), case["discarded"], "{case}");

        let mut found: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for item in &prepared.items {
            let field = &prepared.body[item.start as usize..item.end as usize];
            let (keys, values, value) = match item.kind {
                ItemKind::Series { samples, histograms, exemplars } => {
                    let series = only_series(field);
                    let labels: Pairs = owned(series.raw_labels(field));
                    let value = with_labels(
                        json!({
                            "samples": samples, "histograms": histograms, "exemplars": exemplars,
                        }),
                        &labels,
                    );
                    match histograms {
                        0 => ("series_keys", "series", value),
                        _ => ("native_histogram_series_keys", "native_histogram_series", value),
                    }
                }
                ItemKind::Metadata => {
                    let mut arena = Vec::new();
                    let mut request = WriteRequest::new(field, &mut arena).expect("small");
                    assert!(request.next_series().expect("sound").is_none());
                    let metadata = request.metadata().next().expect("an item of metadata");
                    let name = std::str::from_utf8(metadata.metric_family_name).expect("text");
                    ("metadata_keys", "metadata", name.into())
                }
            };
            found.entry(keys).or_default().push(item.key.0.into());
            found.entry(values).or_default().push(value);
        }
        for field in [
            "series_keys",
            "series",
            "native_histogram_series_keys",
            "native_histogram_series",
            "metadata_keys",
            "metadata",
        ] {
            let found = found.remove(field).unwrap_or_default();
            assert_eq!(found, vectors::array(case, field), "{field} of {case}");
        }
        let counts = json!({
            "float": prepared.counts.samples,
            "histogram": prepared.counts.histograms,
            "nhcb": scratch.observed.kept_custom_buckets,
            "exemplars": prepared.counts.exemplars,
        });
        assert_eq!(counts, case["counts"], "{case}");
        assert_eq!(prepared.counts.metadata, vectors::array(case, "metadata").len() as u64);
    }
}

fn check_request_error(case: &Value, error: &PrepareError) {
    let discarded = match error {
        PrepareError::EmptyLabels { discarded } => {
            check_http_error(&case["request_error"], &error.to_string());
            discarded
        }
        // No HTTP error in Cortex, so a text alone.
        PrepareError::MetricNameMissing { discarded, .. } => {
            assert_eq!(case["request_error"]["error"], error.to_string(), "{case}");
            discarded
        }
        _ => panic!("{error} for {case}"),
    };
    assert_eq!(discarded_json(discarded), case["discarded"], "{case}");
}

/// An error as Cortex's `httpgrpc` makes it.
fn check_http_error(expect: &Value, text: &str) {
    let error = format!("rpc error: code = Code(400) desc = {text}");
    assert_eq!(expect, &json!({ "code": 400, "message": text, "error": error }));
}

fn check_violation(case: &Value, checked: Result<(), Violation<'_>>, labels: &Pairs) {
    match checked {
        Ok(()) => assert!(case["reason"].is_null() && case["error"].is_null(), "{case}"),
        Err(violation) => {
            assert_eq!(Some(violation.reason()), case["reason"].as_str(), "{case}");
            let text = violation.text(pairs(labels));
            assert_eq!(Some(&text[..]), case["error"].as_str(), "{case}");
        }
    }
}

/// All counters that there are, those at zero too.
fn discarded_json(discarded: &Discarded) -> Value {
    let mut counters = Map::new();
    for (kind, counts) in [
        ("samples", &discarded.samples),
        ("exemplars", &discarded.exemplars),
        ("metadata", &discarded.metadata),
    ] {
        for &(reason, count) in counts {
            counters.insert(format!("{kind}/{reason}"), count.into());
        }
    }
    if discarded.reduced_resolution > 0 {
        counters.insert("reduced_resolution".into(), discarded.reduced_resolution.into());
    }
    counters.into()
}

/// The limits of a case: what it says over the defaults. Times are in milliseconds there.
fn limits(case: &Value) -> Limits {
    let fields = case["limits"].as_object().into_iter().flatten();
    let fields: Map<String, Value> = fields
        .map(|(name, value)| match name.strip_suffix("_ms") {
            Some(name) => (name.to_owned(), format!("{value}ms").into()),
            None => (name.clone(), value.clone()),
        })
        .collect();
    serde_json::from_value(fields.into()).unwrap_or_else(|error| panic!("{error}: {case}"))
}

fn scheme(case: &Value) -> NameScheme {
    serde_json::from_value(case["scheme"].clone()).expect("a scheme")
}

fn rules<'a>(case: &Value, limits: &'a Limits) -> LabelRules<'a> {
    let names_are_checked = case["skip_label_name_validation"] == true;
    LabelRules { limits, names: scheme(case), names_are_checked }
}

fn integer(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or_else(|| panic!("{field} of {value}"))
}

fn double(value: &Value) -> f64 {
    f64::from_bits(vectors::bits(value))
}

/// A text of `field`, or of `field_b64` when it is not UTF-8.
fn bytes(value: &Value, field: &str) -> Vec<u8> {
    match value[field].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => vectors::base64(&value[format!("{field}_b64")]),
    }
}

fn pairs(labels: &Pairs) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    labels.iter().map(|(name, value)| (&name[..], &value[..]))
}

fn owned<'a>(labels: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Pairs {
    labels.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

fn with_labels(mut value: Value, labels: &Pairs) -> Value {
    let texts: Option<Vec<Value>> = labels
        .iter()
        .map(|(name, value)| {
            Some(json!([std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?]))
        })
        .collect();
    match texts {
        Some(texts) => value["labels"] = texts.into(),
        None => {
            use base64::prelude::{BASE64_STANDARD, Engine as _};
            let encode = |bytes: &Vec<u8>| BASE64_STANDARD.encode(bytes);
            value["labels_b64"] =
                labels.iter().map(|(name, value)| json!([encode(name), encode(value)])).collect();
        }
    }
    value
}

fn only_series(body: &[u8]) -> Series {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena).expect("small");
    let series = request.next_series().expect("sound").expect("a series");
    assert!(request.next_series().expect("sound").is_none());
    series
}

fn label_messages(value: &Value) -> Vec<cortexpb::LabelPair> {
    let labels = vectors::labels(value, "labels");
    labels.into_iter().map(|(name, value)| cortexpb::LabelPair { name, value }).collect()
}

fn exemplar_message(value: &Value) -> cortexpb::Exemplar {
    let bits = &value["value_bits"];
    cortexpb::Exemplar {
        labels: label_messages(value),
        value: if bits.is_null() { 0.0 } else { double(bits) },
        timestamp_ms: integer(value, "timestamp_ms"),
    }
}

fn series_message(value: &Value) -> cortexpb::TimeSeries {
    let samples = vectors::array(value, "samples").iter().map(|sample| cortexpb::Sample {
        value: double(&sample["value_bits"]),
        timestamp_ms: integer(sample, "timestamp_ms"),
        start_timestamp_ms: integer(sample, "start_timestamp_ms"),
    });
    let histograms = vectors::array(value, "histograms").iter().map(histogram_message);
    cortexpb::TimeSeries {
        labels: label_messages(value),
        samples: samples.collect(),
        exemplars: vectors::array(value, "exemplars").iter().map(exemplar_message).collect(),
        histograms: histograms.collect(),
    }
}

fn histogram_message(value: &Value) -> cortexpb::Histogram {
    use cortexpb::histogram::{Count, ZeroCount};
    let integers = |field: &str| -> Vec<i64> {
        vectors::array(value, field).iter().map(|v| v.as_i64().expect("integer")).collect()
    };
    let doubles =
        |field: &str| -> Vec<f64> { vectors::array(value, field).iter().map(double).collect() };
    let spans = |field: &str| -> Vec<cortexpb::BucketSpan> {
        let spans = vectors::array(value, field).iter();
        spans
            .map(|span| cortexpb::BucketSpan {
                offset: span[0].as_i64().expect("offset") as i32,
                length: span[1].as_u64().expect("length") as u32,
            })
            .collect()
    };
    let unsigned = |field: &str| value[field].as_u64();
    let optional = |field: &str| value.get(field).map(double);
    cortexpb::Histogram {
        count: unsigned("count_int")
            .map(Count::CountInt)
            .or(optional("count_float_bits").map(Count::CountFloat)),
        sum: double(&value["sum_bits"]),
        schema: integer(value, "schema") as i32,
        zero_threshold: double(&value["zero_threshold_bits"]),
        zero_count: unsigned("zero_count_int")
            .map(ZeroCount::ZeroCountInt)
            .or(optional("zero_count_float_bits").map(ZeroCount::ZeroCountFloat)),
        negative_spans: spans("negative_spans"),
        negative_deltas: integers("negative_deltas"),
        negative_counts: doubles("negative_counts_bits"),
        positive_spans: spans("positive_spans"),
        positive_deltas: integers("positive_deltas"),
        positive_counts: doubles("positive_counts_bits"),
        reset_hint: integer(value, "reset_hint") as i32,
        timestamp_ms: integer(value, "timestamp_ms"),
        custom_values: doubles("custom_values_bits"),
        start_timestamp_ms: integer(value, "start_timestamp_ms"),
    }
}
