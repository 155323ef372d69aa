//! Texts and reasons at the edges that requests reach rarely.

use super::*;
use crate::wire::histogram::{Count, Histogram, Span};

type Pair<'a> = (&'a [u8], &'a [u8]);

const SERIES: [Pair<'static>; 2] = [(METRIC_NAME, b"up"), (b"job", b"a")];

fn rules(limits: &Limits) -> LabelRules<'_> {
    LabelRules { limits, names: NameScheme::Legacy, names_are_checked: false }
}

fn check(limits: &Limits, labels: &[Pair<'_>], reason: &str, text: &str) {
    let violation = check_labels(labels.iter().copied(), &rules(limits)).expect_err(text);
    assert_eq!((violation.reason(), violation.kind()), (reason, Kind::Sample));
    assert_eq!(violation.text(labels.iter().copied()), text);
}

#[test]
fn of_several_faults_the_first_counts() {
    let limits =
        Limits { max_label_name_length: 3, max_label_value_length: 2, ..Limits::default() };
    let labels: [Pair<'_>; 2] = [(b"b-cd", b"long"), (b"a", b"1")];
    let text = r#"sample invalid label: "b-cd" metric "{b-cd=\"long\", a=\"1\"}""#;
    check(&limits, &labels, "label_invalid", text);
    let labels: [Pair<'_>; 2] = [(b"bcde", b"long"), (b"a", b"1")];
    let text = "label name too long for metric (actual: 4, limit: 3) metric: \
                \"{bcde=\\\"long\\\", a=\\\"1\\\"}\" label name: \"bcde\"";
    check(&limits, &labels, "label_name_too_long", text);
    let labels: [Pair<'_>; 2] = [(b"b", b"long"), (b"a", b"1")];
    let text = "label value too long for metric (actual: 4, limit: 2) metric: \
                \"{b=\\\"long\\\", a=\\\"1\\\"}\" label name: \"b\" label value: \"long\"";
    check(&limits, &labels, "label_value_too_long", text);
    let labels: [Pair<'_>; 2] = [(b"b", b"1"), (b"a", b"1")];
    let text = r#"labels not sorted: "a" metric "{b=\"1\", a=\"1\"}""#;
    check(&limits, &labels, "labels_not_sorted", text);
    let limits = Limits { max_label_names_per_series: 1, ..limits };
    let text = "series has too many labels (actual: 2, limit: 1) series: '{a=\"1\", b=\"1\"}'";
    check(&limits, &labels, "max_label_names_per_series", text);
}

#[test]
fn sizes_are_those_of_the_labels_messages() {
    let long = [b'v'; 200];
    let labels: [Pair<'_>; 2] = [(METRIC_NAME, b"up"), (b"job", &long)];
    // Two bytes before each text, a third where the length takes two.
    let bytes = 2 + 8 + 2 + 2 + 2 + 3 + 3 + 200;
    let limits = Limits { max_labels_size_bytes: bytes, ..Limits::default() };
    assert_eq!(check_labels(labels.iter().copied(), &rules(&limits)).expect("fits"), bytes);
    let limits = Limits { max_labels_size_bytes: bytes - 1, ..Limits::default() };
    let violation = check_labels(labels.iter().copied(), &rules(&limits)).expect_err("too large");
    assert_eq!(violation.reason(), "labels_size_bytes_exceeded");
    let head = format!("labels size bytes exceeded for metric (actual: {bytes}, limit: ");
    assert!(violation.text(labels.iter().copied()).starts_with(&head));
}

#[test]
fn names_that_are_no_text_are_escaped() {
    let labels: [Pair<'_>; 2] = [(b"a\xff", b"\xc3"), (METRIC_NAME, b"up")];
    let text = r#"sample invalid label: "a\xff" metric "up{a\xff=\"\\xc3\"}""#;
    check(&Limits::default(), &labels, "label_invalid", text);
    let limits = Limits { max_label_names_per_series: 1, ..Limits::default() };
    let text = "series has too many labels (actual: 2, limit: 1) series: 'up{a\u{fffd}=\"\\xc3\"}'";
    check(&limits, &labels, "max_label_names_per_series", text);
}

#[test]
fn times_are_allowed_up_to_their_bounds() {
    let limits = Limits { reject_old_samples: true, ..Limits::default() };
    let times = TimeRange::new(&limits, 2_000_000_000);
    let text = |ms| times.check(ms).err().map(|violation| violation.text(SERIES.into_iter()));
    let (oldest, newest) = (2_000_000_000 - 14 * 86_400_000, 2_000_600_000);
    assert_eq!((text(oldest), text(newest)), (None, None));
    let expect = format!("timestamp too old: {} metric: \"up\"", oldest - 1);
    assert_eq!(text(oldest - 1), Some(expect));
    let expect = format!("timestamp too new: {} metric: \"up\"", newest + 1);
    assert_eq!(text(newest + 1), Some(expect));
    assert!(times.holds((oldest, newest)));
    assert!(!times.holds((oldest - 1, newest)) && !times.holds((oldest, newest + 1)));
    // Without the switch nothing is too old, and no span overflows.
    let limits = Limits { creation_grace_period: crate::units::Millis(u64::MAX), ..limits };
    let limits = Limits { reject_old_samples: false, ..limits };
    assert!(TimeRange::new(&limits, 0).holds((i64::MIN, i64::MAX)));
}

fn histogram(schema: i32, buckets: u32) -> Histogram {
    Histogram {
        count: Some(Count::Int(buckets.into())),
        schema,
        positive_spans: vec![Span { offset: 1, length: buckets }],
        positive_deltas: (0..buckets).map(|i| i64::from(i == 0)).collect(),
        custom_values: match schema {
            -53 => (0..buckets).map(f64::from).collect(),
            _ => Vec::new(),
        },
        ..Histogram::default()
    }
}

#[test]
fn resolution_goes_down_until_the_buckets_fit() {
    let limits = Limits { max_native_histogram_buckets: 3, ..Limits::default() };
    let mut reduced = histogram(2, 8);
    assert!(check_histogram(&mut reduced, &limits).expect("fits after two steps"));
    assert_eq!((reduced.schema, &reduced.positive_deltas[..]), (0, &[4, 0][..]));
    assert_eq!(reduced.validate(), Ok(()));
    assert!(!check_histogram(&mut histogram(2, 3), &limits).expect("fits as it is"));
}

#[test]
fn histograms_that_cannot_be_reduced_are_refused() {
    let limits = Limits { max_native_histogram_buckets: 3, ..Limits::default() };
    let text = "native histogram bucket count exceeded for metric (limit: 3) metric: \
                \"up{job=\\\"a\\\"}\"";
    for mut histogram in [histogram(-4, 4), histogram(-53, 4)] {
        if histogram.schema == -53 {
            histogram.positive_spans[0].offset = 0;
        }
        let violation = check_histogram(&mut histogram, &limits).expect_err("too many");
        assert_eq!(violation.reason(), "native_histogram_buckets_exceeded");
        assert_eq!(violation.text(SERIES.into_iter()), text);
    }
    let violation = check_histogram(&mut histogram(9, 1), &limits).expect_err("a strange schema");
    let text = "invalid native histogram schema 9 for metric: \"up{job=\\\"a\\\"}\". supported \
                schema from -4 to 8";
    assert_eq!(violation.text(SERIES.into_iter()), text);
    let limits = Limits { max_native_histogram_sample_size_bytes: 1, ..limits };
    let violation = check_histogram(&mut histogram(9, 1), &limits).expect_err("too large");
    assert_eq!(violation.reason(), "native_histogram_sample_size_bytes_exceeded");
}
