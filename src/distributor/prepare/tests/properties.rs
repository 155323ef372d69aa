//! Any request, against a preparation that decodes everything and works on owned messages.

use proptest::prelude::*;

use super::*;
use crate::distributor::validation::{check_exemplar, check_histogram, check_labels, fit};
use crate::labels::{LabelsBuf, METRIC_NAME, ring_key_of_metric};
use crate::wire::histogram::Histogram;
use crate::wire::write_request::{Exemplar, check};

/// What the other preparation makes of a request.
#[derive(Debug, Default, PartialEq)]
struct Naive {
    series: Vec<(RingKey, cortexpb::TimeSeries)>,
    metadata: Vec<(RingKey, cortexpb::MetricMetadata)>,
    failure: Option<String>,
    discarded_samples: u64,
    discarded_exemplars: u64,
    discarded_metadata: u64,
    reduced: u64,
}

/// Cortex's steps, one after the other, on messages that are decoded whole. `None`: refused.
fn naive(body: &[u8], treatment: &Treatment<'_>) -> Option<Naive> {
    let request = cortexpb::WriteRequest::decode(body).ok()?;
    let limits = treatment.limits;
    let names_are_checked = request.skip_label_name_validation;
    let rules = LabelRules { limits, names: treatment.names, names_are_checked };
    let mut made = Naive::default();
    for mut series in request.timeseries {
        if series.labels.is_empty() {
            return None;
        }
        let all = (series.samples.len() + series.histograms.len()) as u64;
        let exemplars = series.exemplars.len() as u64;
        let mut unwanted: Vec<&str> = limits.drop_labels.iter().map(String::as_str).collect();
        if let Replicas::Removed { replica_label } = treatment.replicas {
            unwanted.insert(0, replica_label);
        }
        for name in unwanted {
            let at = series.labels.iter().position(|label| label.name == name.as_bytes());
            at.map(|at| series.labels.remove(at));
        }
        let metric = series.labels.iter().find(|label| label.name == METRIC_NAME).cloned();
        let metric = metric.map(|label| label.value);
        let is_named = metric.as_ref().is_some_and(|name| treatment.names.allows_metric(name));
        if limits.enforce_metric_name && !is_named {
            let text = match &metric {
                None => "sample missing metric name".to_owned(),
                Some(_) => "sample invalid metric name".to_owned(),
            };
            made.failure.get_or_insert(text);
            made.discarded_samples += all;
            made.discarded_exemplars += exemplars;
            continue;
        }
        series.labels.retain(|label| !label.value.is_empty());
        if series.labels.is_empty() {
            made.discarded_samples += all;
            made.discarded_exemplars += exemplars;
            continue;
        }
        series.labels.sort_by(|a, b| a.name.cmp(&b.name));
        let pairs = || series.labels.iter().map(|label| (&label.name[..], &label.value[..]));
        let buffer = LabelsBuf::from_pairs(pairs());
        let key = treatment.placement.ring_key(treatment.tenant, buffer.as_labels()).ok()?;
        if let Err(violation) = check_labels(pairs(), &rules) {
            made.failure.get_or_insert(violation.text(pairs()));
            made.discarded_samples += 1;
            continue;
        }
        let times = TimeRange::new(limits, NOW_MS);
        let late = |ms: i64| times.check(ms).err().map(|violation| violation.text(pairs()));
        if let Some(text) = series.samples.iter().find_map(|sample| late(sample.timestamp_ms)) {
            made.failure.get_or_insert(text);
            made.discarded_samples += 1;
            continue;
        }
        let wrong_exemplar = series.exemplars.iter().find_map(|exemplar| {
            let bytes = exemplar.encode_to_vec();
            let exemplar = Exemplar::decode(&bytes).expect("encoded above");
            check_exemplar(&exemplar).err().map(|violation| violation.text(pairs()))
        });
        if let Some(text) = wrong_exemplar {
            made.failure.get_or_insert(text);
            made.discarded_exemplars += 1;
            continue;
        }
        let mut wrong_histogram = None;
        for message in &mut series.histograms {
            wrong_histogram = late(message.timestamp_ms);
            if wrong_histogram.is_some() {
                break;
            }
            let mut histogram = Histogram::decode(&message.encode_to_vec()).expect("encoded");
            match check_histogram(&mut histogram, limits) {
                Ok(false) => {}
                Ok(true) => {
                    made.reduced += 1;
                    *message = cortexpb::Histogram::decode(&histogram.encode()[..]).expect("same");
                }
                Err(violation) => {
                    wrong_histogram = Some(violation.text(buffer.as_labels().iter()));
                    break;
                }
            }
        }
        if let Some(text) = wrong_histogram {
            made.failure.get_or_insert(text);
            made.discarded_samples += 1;
            continue;
        }
        made.series.push((key, series));
    }
    for metadata in request.metadata {
        let texts = [&metadata.metric_family_name, &metadata.help, &metadata.unit];
        let is_long = texts.iter().any(|text| text.len() as u64 > limits.max_metadata_length);
        if is_long || limits.enforce_metadata_metric_name && metadata.metric_family_name.is_empty()
        {
            made.discarded_metadata += 1;
            continue;
        }
        let name = &metadata.metric_family_name;
        let key = match treatment.placement {
            Placement::ByAllLabels => ring_key_of_metric(treatment.tenant, name),
            Placement::ByMetric => ring_key_of_tenant(treatment.tenant),
        };
        made.metadata.push((key, metadata));
    }
    Some(made)
}

fn label() -> impl Strategy<Value = cortexpb::LabelPair> {
    let name = prop_oneof![
        4 => "[a-e]{1,2}",
        2 => Just("__name__".to_owned()),
        1 => Just("__replica__".to_owned()),
        1 => "[-é:0-9]{0,2}",
    ];
    let value = prop_oneof![
        6 => "[a-z_]{1,9}".prop_map(String::into_bytes),
        1 => Just(Vec::new()),
        1 => prop::collection::vec(any::<u8>(), 0..3),
        1 => "[ab]{120,140}".prop_map(String::into_bytes),
    ];
    (name, value).prop_map(|(name, value)| cortexpb::LabelPair { name: name.into(), value })
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => Just(NOW_MS),
        1 => NOW_MS + 599_999..NOW_MS + 600_002,
        1 => NOW_MS - 60_001..NOW_MS - 59_998,
        1 => any::<i64>(),
    ]
}

fn one_series() -> impl Strategy<Value = cortexpb::TimeSeries> {
    let usual = (prop::collection::btree_map("[a-e]{1,2}", "[a-z]{1,5}", 0..4), "[a-z]{1,5}")
        .prop_map(|(labels, metric)| {
            let metric = Some(("__name__".to_owned(), metric));
            let pairs = metric.into_iter().chain(labels);
            pairs.map(|(name, value)| pair(&name, &value)).collect::<Vec<_>>()
        });
    let labels = prop_oneof![2 => usual, 1 => prop::collection::vec(label(), 0..6)];
    let exemplar = (prop::collection::vec(label(), 0..2), time())
        .prop_map(|(labels, timestamp_ms)| cortexpb::Exemplar { labels, value: 1.0, timestamp_ms });
    let histogram = (prop::collection::vec(-1..20_i64, 0..9), time(), -6..10_i32).prop_map(
        |(counts, timestamp_ms, schema)| cortexpb::Histogram {
            timestamp_ms,
            schema,
            ..super::histogram(&counts)
        },
    );
    (
        labels,
        prop::collection::vec(time().prop_map(sample), 0..3),
        prop::collection::vec(exemplar, 0..2),
        prop::collection::vec(histogram, 0..3),
    )
        .prop_map(|(labels, samples, exemplars, histograms)| cortexpb::TimeSeries {
            labels,
            samples,
            exemplars,
            histograms,
        })
}

/// A request in pieces, since messages that follow each other are one: fields in any order.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let of_series = (one_series(), any::<bool>()).prop_map(|(series, labels_last)| {
        if !labels_last {
            return encoded(vec![series]);
        }
        let labels = cortexpb::TimeSeries { labels: series.labels.clone(), ..Default::default() };
        let values = cortexpb::TimeSeries { labels: Vec::new(), ..series };
        let message = [values.encode_to_vec(), labels.encode_to_vec()].concat();
        let mut field = vec![0x0a];
        prost::encoding::encode_varint(message.len() as u64, &mut field);
        [field, message].concat()
    });
    let of_metadata = ("[a-z]{0,12}", "[a-z]{0,12}").prop_map(|(name, help)| {
        let metadata = cortexpb::MetricMetadata {
            metric_family_name: name.into(),
            help: help.into(),
            ..Default::default()
        };
        cortexpb::WriteRequest { metadata: vec![metadata], ..Default::default() }.encode_to_vec()
    });
    let of_flags = (0..3, any::<bool>(), any::<bool>()).prop_map(|(source, skip, discard)| {
        cortexpb::WriteRequest {
            source,
            skip_label_name_validation: skip,
            discard_out_of_order: discard,
            ..Default::default()
        }
        .encode_to_vec()
    });
    let piece = prop_oneof![6 => of_series, 2 => of_metadata, 1 => of_flags];
    prop::collection::vec(piece, 0..7).prop_map(|pieces| pieces.concat())
}

fn some_limits() -> impl Strategy<Value = Limits> {
    (
        any::<(bool, bool, bool)>(),
        prop_oneof![Just(30_u64), 1..4_u64],
        prop_oneof![Just(2048_u64), 1..6_u64],
        prop_oneof![Just(0_u64), 20..60_u64],
        prop_oneof![Just(0_u64), 1..6_u64],
        prop_oneof![Just(0_u64), 10..40_u64],
        prop::collection::vec("[a-c]|__name__", 0..3),
    )
        .prop_map(|(flags, labels, value, size, buckets, bytes, drop_labels)| Limits {
            enforce_metric_name: flags.0,
            enforce_metadata_metric_name: flags.1,
            reject_old_samples: flags.2,
            reject_old_samples_max_age: crate::units::Millis(60_000),
            max_label_names_per_series: labels,
            max_label_value_length: value,
            max_labels_size_bytes: size,
            max_native_histogram_buckets: buckets,
            max_native_histogram_sample_size_bytes: bytes,
            max_metadata_length: 10,
            drop_labels,
            ..Limits::default()
        })
}

fn some_treatment(limits: &Limits, bits: u8) -> Treatment<'_> {
    Treatment {
        names: if bits & 1 == 0 { NameScheme::Legacy } else { NameScheme::Utf8 },
        placement: if bits & 2 == 0 { Placement::ByAllLabels } else { Placement::ByMetric },
        replicas: match bits & 4 {
            0 => Replicas::Kept,
            _ => Replicas::Removed { replica_label: "__replica__" },
        },
        ..treatment(limits)
    }
}

fn sum(counts: &[(&str, u64)]) -> u64 {
    counts.iter().map(|(_, count)| count).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_prepared_request_is_what_the_plain_way_makes_of_it(
        body in body(),
        limits in some_limits(),
        bits: u8,
    ) {
        let treatment = some_treatment(&limits, bits);
        let mut scratch = Scratch::default();
        let prepared = prepare(&body, &treatment, &mut scratch, NOW_MS);
        let Some(expect) = naive(&body, &treatment) else {
            prop_assert!(prepared.is_err());
            return Ok(());
        };
        let prepared = prepared.expect("taken by the plain way");
        check_whole(&prepared);
        let (mut series, mut metadata) = (Vec::new(), Vec::new());
        for (item, message) in prepared.items.iter().zip(messages(&prepared)) {
            series.extend(message.timeseries.into_iter().map(|series| (item.key, series)));
            metadata.extend(message.metadata.into_iter().map(|metadata| (item.key, metadata)));
        }
        prop_assert_eq!(series, expect.series);
        prop_assert_eq!(metadata, expect.metadata);
        if let Some(text) = expect.failure {
            prop_assert!(prepared.failure.as_ref().is_some_and(|failure| failure.starts_with(&text)));
        }
        prop_assert_eq!(sum(&prepared.discarded.samples), expect.discarded_samples);
        prop_assert_eq!(sum(&prepared.discarded.exemplars), expect.discarded_exemplars);
        prop_assert_eq!(sum(&prepared.discarded.metadata), expect.discarded_metadata);
        prop_assert_eq!(prepared.discarded.reduced_resolution, expect.reduced);
        check_whole(&without_histograms(prepared, HistogramRule::HistogramsOnly));
    }

    #[test]
    fn what_was_prepared_needs_nothing_more(body in body(), limits in some_limits(), bits: u8) {
        let limits = Limits { drop_labels: Vec::new(), ..limits };
        let treatment = Treatment { replicas: Replicas::Kept, ..some_treatment(&limits, bits) };
        let mut scratch = Scratch::default();
        let Ok(first) = prepare(&body, &treatment, &mut scratch, NOW_MS) else { return Ok(()) };
        let second = prepare(&first.body, &treatment, &mut scratch, NOW_MS).expect("sound");
        prop_assert!(matches!(second.body, Cow::Borrowed(_)));
        prop_assert_eq!(second.items, first.items);
        prop_assert_eq!(second.counts, first.counts);
        prop_assert_eq!(second.failure, None);
    }

    #[test]
    fn who_places_nothing_gets_the_same_but_for_the_keys(
        body in body(),
        limits in some_limits(),
        bits: u8,
    ) {
        let placed = some_treatment(&limits, bits);
        let unplaced = Treatment { is_placed: false, ..placed };
        let mut scratch = Scratch::default();
        let placed = prepare(&body, &placed, &mut scratch, NOW_MS);
        let unplaced = prepare(&body, &unplaced, &mut scratch, NOW_MS);
        let (placed, unplaced) = match (placed, unplaced) {
            (Ok(placed), Ok(unplaced)) => (placed, unplaced),
            (placed, unplaced) => {
                let text = |outcome: Result<Prepared<'_>, PrepareError>| {
                    outcome.err().map(|error| error.to_string())
                };
                prop_assert_eq!(text(placed), text(unplaced));
                return Ok(());
            }
        };
        let places = |prepared: &Prepared<'_>| -> Vec<_> {
            prepared.items.iter().map(|item| (item.start, item.end, item.kind)).collect()
        };
        prop_assert_eq!(places(&placed), places(&unplaced));
        prop_assert_eq!(placed.body, unplaced.body);
        prop_assert_eq!(placed.counts, unplaced.counts);
        prop_assert_eq!(placed.failure, unplaced.failure);
        prop_assert_eq!(placed.discarded, unplaced.discarded);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), bits: u8) {
        let limits = Limits::default();
        let treatment = some_treatment(&limits, bits);
        let _ = prepare(&bytes, &treatment, &mut Scratch::default(), NOW_MS);
    }

    #[test]
    fn no_damage_makes_it_panic(
        body in body(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        limits in some_limits(),
        bits: u8,
    ) {
        let mut body = body;
        for (at, byte) in damage {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = byte;
            }
        }
        let treatment = some_treatment(&limits, bits);
        if let Ok(prepared) = prepare(&body, &treatment, &mut Scratch::default(), NOW_MS) {
            // Read by our own reader: the other one is stricter than Cortex.
            let summary = check(&prepared.body).expect("sound");
            let Counts { samples, histograms, exemplars, metadata } = prepared.counts;
            prop_assert_eq!(summary.series + metadata, prepared.items.len() as u64);
            prop_assert_eq!(summary.metadata, metadata);
            prop_assert_eq!(summary.samples, samples);
            prop_assert_eq!(summary.histograms, histograms);
            prop_assert_eq!(summary.exemplars, exemplars);
            for item in &prepared.items {
                let field = &prepared.body[item.start as usize..item.end as usize];
                let one = check(field).expect("a whole field");
                prop_assert_eq!(one.series + one.metadata, 1);
            }
        }
    }

    #[test]
    fn labels_fit_exactly_when_they_break_no_rule(
        labels in prop::collection::vec(label(), 0..6),
        limits in some_limits(),
        sorted: bool,
        bits: u8,
    ) {
        let mut pairs: Vec<_> = labels.into_iter().map(|label| (label.name, label.value)).collect();
        if sorted {
            pairs.sort();
        }
        let buffer = LabelsBuf::from_pairs(pairs);
        let labels = buffer.as_labels();
        let names = some_treatment(&limits, bits).names;
        let rules = LabelRules { limits: &limits, names, names_are_checked: bits & 8 != 0 };
        let metric = labels.get(METRIC_NAME);
        let is_named = !limits.enforce_metric_name
            || metric.is_some_and(|name| names.allows_metric(name));
        let expect = check_labels(labels.iter(), &rules).ok().filter(|_| is_named);
        let mut shown = Vec::new();
        let found = fit(labels, &rules, |name, value| shown.push((name, value)));
        prop_assert_eq!(found.map(|fit| fit.bytes), expect);
        if found.is_some() {
            prop_assert_eq!(shown, labels.iter().collect::<Vec<_>>());
        }
    }
}
