//! Write requests in every legal encoding, and bytes that are none.

use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::labels::{IDENTITY_SECRET_BYTES, IdentityHasher, LabelsBuf, ring_key};
use crate::wire::proto::cortexpb;
use crate::wire::rewrite::{Edit, rewrite};

type Pair = (Vec<u8>, Vec<u8>);

fn read(body: &[u8]) -> Result<(Summary, Vec<Series>, Vec<u8>), DecodeError> {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena)?;
    let mut series = Vec::new();
    while let Some(one) = request.next_series()? {
        series.push(one);
    }
    Ok((request.summary, series, arena))
}

/// Writes fields in any way that is legal, as a row of choices tells.
struct Writer<'a> {
    choices: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl<'a> Writer<'a> {
    fn new(choices: &'a [u8]) -> Self {
        Self { choices: choices.iter().cycle() }
    }

    fn one_of(&mut self, number: u8) -> u8 {
        self.choices.next().map_or(0, |choice| choice % number)
    }

    /// A varint with up to two needless bytes.
    fn varint(&mut self, out: &mut Vec<u8>, mut value: u64) {
        let needless = self.one_of(8).saturating_sub(5);
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8 | if needless > 0 { 0x80 } else { 0 });
        for i in 0..needless {
            out.push(if i + 1 < needless { 0x80 } else { 0 });
        }
    }

    fn counted(&mut self, out: &mut Vec<u8>, number: u64, content: &[u8]) {
        self.varint(out, number << 3 | 2);
        self.varint(out, content.len() as u64);
        out.extend_from_slice(content);
    }

    fn maybe_unknown(&mut self, out: &mut Vec<u8>) {
        match self.one_of(12) {
            0 => out.extend([0x78, 0x96, 0x01]),
            1 => out.extend([0x7a, 0x02, 0x0a, 0x00]),
            2 => out.extend([0x7b, 0x0a, 0x00, 0x7c]),
            3 => out.extend([0x7d, 1, 2, 3, 4]),
            _ => {}
        }
    }

    fn text(&mut self, out: &mut Vec<u8>, number: u64, text: &[u8]) {
        self.maybe_unknown(out);
        if self.one_of(8) == 0 {
            self.counted(out, number, b"overwritten");
        } else if text.is_empty() && self.one_of(2) == 0 {
            return;
        }
        self.counted(out, number, text);
    }

    fn label(&mut self, (name, value): &Pair) -> Vec<u8> {
        let mut label = Vec::new();
        let fields = [(1, name), (2, value)];
        let swapped = [(2, value), (1, name)];
        for (number, text) in if self.one_of(4) == 0 { swapped } else { fields } {
            self.text(&mut label, number, text);
        }
        self.maybe_unknown(&mut label);
        label
    }

    fn series(&mut self, labels: &[Pair]) -> Vec<u8> {
        let mut series = Vec::new();
        for label in labels {
            self.maybe_unknown(&mut series);
            if self.one_of(6) == 0 {
                self.counted(&mut series, 2, &[0x10, 0x07]);
            }
            let label = self.label(label);
            self.counted(&mut series, 1, &label);
        }
        self.counted(&mut series, 2, &[0x10, 0x09]);
        self.maybe_unknown(&mut series);
        series
    }

    fn request(&mut self, series: &[Vec<Pair>]) -> Vec<u8> {
        let mut body = Vec::new();
        for labels in series {
            self.maybe_unknown(&mut body);
            let message = self.series(labels);
            self.counted(&mut body, 1, &message);
        }
        self.maybe_unknown(&mut body);
        body
    }
}

fn pairs() -> impl Strategy<Value = Vec<Pair>> {
    let text = || {
        prop_oneof![
            4 => "[a-c_]{1,4}".prop_map(String::into_bytes),
            1 => Just(Vec::new()),
            1 => prop::collection::vec(any::<u8>(), 100..200),
        ]
    };
    prop::collection::vec((text(), text()), 0..6)
}

fn message() -> impl Strategy<Value = cortexpb::WriteRequest> {
    let label = ("[a-c]{0,3}", prop::collection::vec(any::<u8>(), 0..5))
        .prop_map(|(name, value)| cortexpb::LabelPair { name: name.into_bytes(), value });
    let labels = || prop::collection::vec(label.clone(), 0..5);
    let sample = (any::<f64>(), any::<i64>(), any::<i64>()).prop_map(
        |(value, timestamp_ms, start_timestamp_ms)| cortexpb::Sample {
            value,
            timestamp_ms,
            start_timestamp_ms,
        },
    );
    let exemplar =
        (labels(), any::<f64>(), any::<i64>()).prop_map(|(labels, value, timestamp_ms)| {
            cortexpb::Exemplar { labels, value, timestamp_ms }
        });
    let histogram = (any::<i64>(), prop::collection::vec(any::<i64>(), 0..5)).prop_map(
        |(timestamp_ms, positive_deltas)| cortexpb::Histogram {
            timestamp_ms,
            positive_deltas,
            ..Default::default()
        },
    );
    let series = (
        labels(),
        prop::collection::vec(sample, 0..3),
        prop::collection::vec(exemplar, 0..3),
        prop::collection::vec(histogram, 0..3),
    )
        .prop_map(|(labels, samples, exemplars, histograms)| cortexpb::TimeSeries {
            labels,
            samples,
            exemplars,
            histograms,
        });
    let metadata = (any::<i32>(), "[a-z]{0,4}", "[a-z]{0,4}").prop_map(|(kind, name, help)| {
        cortexpb::MetricMetadata {
            r#type: kind,
            metric_family_name: name.into_bytes(),
            help: help.into_bytes(),
            unit: Vec::new(),
        }
    });
    (
        prop::collection::vec(series, 0..4),
        any::<i32>(),
        prop::collection::vec(metadata, 0..3),
        any::<(bool, bool)>(),
    )
        .prop_map(|(timeseries, source, metadata, (skip, discard))| cortexpb::WriteRequest {
            timeseries,
            source,
            metadata,
            skip_label_name_validation: skip,
            r#ref: Some(cortexpb::MessageWithBufRef {}),
            discard_out_of_order: discard,
        })
}

fn to_message(body: &[u8]) -> Result<cortexpb::WriteRequest, DecodeError> {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena)?;
    let mut timeseries = Vec::new();
    let pairs = |labels: RawLabels<'_>| {
        labels
            .map(|(name, value)| cortexpb::LabelPair { name: name.into(), value: value.into() })
            .collect()
    };
    while let Some(series) = request.next_series()? {
        timeseries.push(cortexpb::TimeSeries {
            labels: pairs(series.raw_labels(body)),
            samples: series
                .samples(body)
                .map(|sample| cortexpb::Sample {
                    value: sample.value,
                    timestamp_ms: sample.timestamp_ms,
                    start_timestamp_ms: sample.start_timestamp_ms,
                })
                .collect(),
            exemplars: series
                .exemplars(body)
                .map(|exemplar| cortexpb::Exemplar {
                    labels: pairs(exemplar.labels()),
                    value: exemplar.value,
                    timestamp_ms: exemplar.timestamp_ms,
                })
                .collect(),
            histograms: series
                .histograms(body)
                .map(|histogram| {
                    cortexpb::Histogram::decode(histogram.bytes()).expect("same bytes")
                })
                .collect(),
        });
    }
    Ok(cortexpb::WriteRequest {
        timeseries,
        source: request.summary.source,
        metadata: request
            .metadata()
            .map(|metadata| cortexpb::MetricMetadata {
                r#type: metadata.kind,
                metric_family_name: metadata.metric_family_name.into(),
                help: metadata.help.into(),
                unit: metadata.unit.into(),
            })
            .collect(),
        skip_label_name_validation: request.summary.skip_label_name_validation,
        r#ref: Some(cortexpb::MessageWithBufRef {}),
        discard_out_of_order: request.summary.discard_out_of_order,
    })
}

proptest! {
    /// The encodings differ in field order, needless bytes, overwritten and unknown fields, and
    /// in what stands between the labels.
    #[test]
    fn all_encodings_of_a_label_set_give_one_identity_and_one_ring_key(
        series in prop::collection::vec(pairs(), 1..4),
        choices in prop::collection::vec(any::<u8>(), 1..200),
    ) {
        let hasher = IdentityHasher::new([7; IDENTITY_SECRET_BYTES]);
        let body = Writer::new(&choices).request(&series);
        let (summary, read, arena) = read(&body).expect("legal");
        prop_assert_eq!(summary.series, series.len() as u64);
        prop_assert!(arena.len() <= body.len());
        for (series, pairs) in read.iter().zip(&series) {
            let expect = LabelsBuf::from_pairs(pairs.iter().cloned());
            let (labels, expect) = (series.labels(&body, &arena), expect.as_labels());
            prop_assert_eq!(labels.as_bytes(), expect.as_bytes());
            prop_assert_eq!(hasher.identity(labels), hasher.identity(expect));
            prop_assert_eq!(ring_key("t", labels), ring_key("t", expect));
            let sorted = pairs.is_sorted_by(|(a, _), (b, _)| a <= b);
            prop_assert_eq!(series.names_in_order(&body), sorted);
            prop_assert_eq!(series.time_range_ms().map(|(_, newest)| newest), Some(9));
        }
    }

    #[test]
    fn requests_decode_as_prost_has_them(message in message()) {
        let body = message.encode_to_vec();
        let decoded = to_message(&body).expect("sound");
        // Compared as bytes, in which a NaN equals itself.
        prop_assert_eq!(decoded.encode_to_vec(), body.clone());
        prop_assert_eq!(rewrite(&body, |_| Edit::Keep), body);
    }

    #[test]
    fn rewritten_requests_lack_what_was_left_out_only(
        message in message(),
        keep in prop::collection::vec(any::<bool>(), 4),
    ) {
        let mut expect = message.clone();
        let mut number = 0;
        expect.timeseries.retain(|_| { number += 1; keep[number - 1] });
        let edit = |series| if keep[series] { Edit::Keep } else { Edit::Drop };
        prop_assert_eq!(rewrite(&message.encode_to_vec(), edit), expect.encode_to_vec());
        let mut expect = message.clone();
        expect.timeseries.iter_mut().for_each(|series| series.histograms.clear());
        let rewritten = rewrite(&message.encode_to_vec(), |_| Edit::WithoutHistograms);
        prop_assert_eq!(rewritten, expect.encode_to_vec());
    }

    /// Whatever comes is read to its end or refused, and all that is offered of it can be read.
    #[test]
    fn any_bytes_are_read_or_refused(
        message in message(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut body = message.encode_to_vec();
        body.extend(noise);
        if body.is_empty() {
            return Ok(());
        }
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body.truncate(cut.index(body.len()) + 1);
        let Ok((summary, series, arena)) = read(&body) else { return Ok(()) };
        let mut counted = Summary { series: series.len() as u64, ..summary };
        (counted.samples, counted.histograms, counted.exemplars) = (0, 0, 0);
        for series in &series {
            counted.samples += series.samples(&body).count() as u64;
            counted.exemplars += series.exemplars(&body).count() as u64;
            for histogram in series.histograms(&body) {
                counted.histograms += 1;
                prop_assert!(histogram.decode().is_ok());
            }
            let expect = LabelsBuf::from_pairs(series.raw_labels(&body));
            prop_assert_eq!(series.labels(&body, &arena), expect.as_labels());
        }
        prop_assert_eq!(counted, summary);
        prop_assert_eq!(crate::wire::signature::sign("t", &body).is_ok(), true);
    }
}

#[test]
fn labels_stay_in_the_body_when_they_are_canonical_there() {
    let long = vec![b'v'; 300];
    let labels = [(&b"__name__"[..], &b"m"[..]), (b"a", &long), (b"b", &long[..120])];
    let message = cortexpb::TimeSeries {
        labels: labels
            .map(|(name, value)| cortexpb::LabelPair { name: name.into(), value: value.into() })
            .to_vec(),
        samples: vec![cortexpb::Sample { value: 1.0, timestamp_ms: 5, start_timestamp_ms: 0 }],
        ..Default::default()
    };
    let body =
        cortexpb::WriteRequest { timeseries: vec![message], ..Default::default() }.encode_to_vec();
    let (_, series, arena) = read(&body).expect("sound");
    assert!(arena.is_empty());
    assert_eq!(series[0].labels(&body, &arena), LabelsBuf::from_pairs(labels).as_labels());
}

#[test]
fn labels_of_empty_value_count_for_the_order_of_names() {
    let request = |pairs: &[(&str, &str)]| {
        let labels = pairs.iter().map(|(name, value)| cortexpb::LabelPair {
            name: name.as_bytes().into(),
            value: value.as_bytes().into(),
        });
        let series = cortexpb::TimeSeries { labels: labels.collect(), ..Default::default() };
        cortexpb::WriteRequest { timeseries: vec![series], ..Default::default() }.encode_to_vec()
    };
    let body = request(&[("b", ""), ("a", "1")]);
    let (_, series, arena) = read(&body).expect("sound");
    assert!(!series[0].names_in_order(&body));
    assert_eq!(series[0].labels_text(&body).to_string(), r#"{b="", a="1"}"#);
    assert_eq!(series[0].labels(&body, &arena).to_string(), r#"{a="1"}"#);
    assert_eq!(series[0].time_range_ms(), None);
}

#[test]
fn the_arena_is_emptied_for_each_request() {
    let mut arena = vec![1, 2, 3];
    let request = WriteRequest::new(&[], &mut arena).expect("empty");
    assert_eq!(request.summary, Summary::default());
    assert!(arena.is_empty());
}
