//! One rule, one example.

use super::*;
use crate::labels::{LabelsBuf, ring_key, ring_key_of_metric, ring_key_of_tenant};

fn prepared<'a>(body: &'a [u8], treatment: &Treatment<'_>) -> Prepared<'a> {
    let prepared = prepare(body, treatment, &mut Scratch::default(), NOW_MS).expect("sound");
    check_whole(&prepared);
    prepared
}

#[test]
fn a_request_that_is_fit_stays_the_bytes_it_is() {
    let body = encoded(vec![
        series(&[("__name__", "up"), ("job", "a")]),
        cortexpb::TimeSeries {
            exemplars: vec![exemplar()],
            histograms: vec![histogram(&[1, 2, 3])],
            ..series(&[("__name__", "latency"), ("job", "a")])
        },
    ]);
    let limits = Limits { drop_labels: vec!["pod".into()], ..Limits::default() };
    let prepared = prepared(&body, &treatment(&limits));
    assert!(matches!(prepared.body, Cow::Borrowed(same) if std::ptr::eq(same, &body[..])));
    assert_eq!(prepared.failure, None);
    assert_eq!(prepared.discarded, Discarded::default());
    let counts = Counts { samples: 2, histograms: 1, exemplars: 1, metadata: 0 };
    assert_eq!(prepared.counts, counts);
    let labels = LabelsBuf::from_pairs([("__name__", "up"), ("job", "a")]);
    assert_eq!(prepared.items[0].key, ring_key("tenant-1", labels.as_labels()));
}

#[test]
fn labels_are_sorted_and_lose_what_nobody_wants() {
    let limits = Limits { drop_labels: vec!["pod".into(), "a".into()], ..Limits::default() };
    let check = |received: &[(&str, &str)], expect: &[(&str, &str)]| {
        let body = encoded(vec![series(received), series(&[("__name__", "other")])]);
        let prepared = prepared(&body, &treatment(&limits));
        let messages = messages(&prepared);
        let expect: Vec<_> = expect.iter().map(|(name, value)| pair(name, value)).collect();
        assert_eq!(messages[0].timeseries[0].labels, expect);
        assert_eq!(messages[0].timeseries[0].samples, [sample(NOW_MS)]);
        assert_eq!(messages[1].timeseries, [series(&[("__name__", "other")])]);
        assert_eq!(prepared.failure, None);
    };
    check(&[("job", "b"), ("__name__", "up")], &[("__name__", "up"), ("job", "b")]);
    check(&[("__name__", "up"), ("job", "")], &[("__name__", "up")]);
    check(&[("__name__", "up"), ("pod", "p"), ("z", "1")], &[("__name__", "up"), ("z", "1")]);
    // Each name takes its first label only.
    check(
        &[("__name__", "up"), ("a", "1"), ("pod", ""), ("a", "2")],
        &[("__name__", "up"), ("a", "2")],
    );
}

#[test]
fn one_bad_series_does_not_sink_the_others() {
    let bad = |timestamp_ms| cortexpb::TimeSeries {
        samples: vec![sample(timestamp_ms)],
        ..series(&[("__name__", "late"), ("job", "a")])
    };
    let body = encoded(vec![
        series(&[("__name__", "up")]),
        bad(NOW_MS + 600_001),
        series(&[("job", "no name")]),
        series(&[("__name__", "down")]),
    ]);
    let limits = Limits::default();
    let prepared = prepared(&body, &treatment(&limits));
    let text = "timestamp too new: 1700000600001 metric: \"late\"";
    assert_eq!(prepared.failure.as_deref(), Some(text));
    assert_eq!(prepared.counts.samples, 2);
    assert_eq!(prepared.discarded.samples, [("too_far_in_future", 1), ("missing_metric_name", 1)]);
    assert_eq!(prepared.discarded.exemplars, [("missing_metric_name", 0)]);
    let names: Vec<_> = messages(&prepared)
        .iter()
        .map(|message| message.timeseries[0].labels[0].value.clone())
        .collect();
    assert_eq!(names, [b"up".to_vec(), b"down".to_vec()]);
}

#[test]
fn a_series_failure_is_told_before_one_of_metadata() {
    let nameless = cortexpb::WriteRequest {
        metadata: vec![cortexpb::MetricMetadata::default()],
        ..Default::default()
    };
    let series = encoded(vec![series(&[("job", "a")])]);
    let body = [nameless.encode_to_vec(), series].concat();
    let limits = Limits::default();
    let prepared = prepared(&body, &treatment(&limits));
    assert_eq!(prepared.failure.as_deref(), Some("sample missing metric name"));
    assert_eq!(prepared.discarded.metadata, [("missing_metric_name", 1)]);
    assert!(prepared.items.is_empty());
}

#[test]
fn a_series_without_labels_refuses_the_request_unless_it_is_none() {
    let good = encoded(vec![series(&[("job", "a")])]);
    let metadata = cortexpb::WriteRequest {
        metadata: vec![cortexpb::MetricMetadata::default()],
        ..Default::default()
    };
    let body = [good, metadata.encode_to_vec(), encoded(vec![series(&[])])].concat();
    let limits = Limits::default();
    let mut scratch = Scratch::default();
    let error = prepare(&body, &treatment(&limits), &mut scratch, NOW_MS).expect_err("refused");
    assert_eq!(error.to_string(), "empty labels found");
    let PrepareError::EmptyLabels { discarded } = error else { panic!("{error:?}") };
    assert_eq!(discarded.samples, [("missing_metric_name", 1)]);
    assert_eq!(discarded.metadata, []);
    // The rest is read all the same.
    let cut = [&body[..], &[0x0a]].concat();
    let error = prepare(&cut, &treatment(&limits), &mut scratch, NOW_MS).expect_err("refused");
    assert!(matches!(error, PrepareError::Unreadable(DecodeError::UnexpectedEof)), "{error:?}");
}

#[test]
fn a_flag_behind_the_series_frees_their_label_names() {
    let request = |skip| {
        cortexpb::WriteRequest {
            timeseries: vec![series(&[("__name__", "up"), ("a-b", "1")])],
            skip_label_name_validation: skip,
            ..Default::default()
        }
        .encode_to_vec()
    };
    let limits = Limits::default();
    let (free, checked) = (request(true), request(false));
    assert!(prepared(&free, &treatment(&limits)).failure.is_none());
    let text = r#"sample invalid label: "a-b" metric "up{a-b=\"1\"}""#;
    assert_eq!(prepared(&checked, &treatment(&limits)).failure.as_deref(), Some(text));
}

#[test]
fn histograms_with_too_many_buckets_are_written_anew() {
    let limits = Limits { max_native_histogram_buckets: 2, ..Limits::default() };
    let body = encoded(vec![cortexpb::TimeSeries {
        histograms: vec![histogram(&[1, 2]), histogram(&[1, 2, 3, 4])],
        ..series(&[("__name__", "latency")])
    }]);
    let prepared = prepared(&body, &treatment(&limits));
    assert_eq!(prepared.discarded.reduced_resolution, 1);
    let messages = messages(&prepared);
    let [first, second] = &messages[0].timeseries[0].histograms[..] else { panic!("{messages:?}") };
    assert_eq!(first, &histogram(&[1, 2]));
    assert_eq!((second.schema, &second.positive_deltas[..]), (2, &[3, 4][..]));
    assert_eq!(messages[0].timeseries[0].samples, [sample(NOW_MS)]);
}

#[test]
fn a_series_of_endless_labels_is_refused_without_sorting_it() {
    let names: Vec<String> = (0..50_000).map(|i| format!("l{}", 99_999 - i)).collect();
    let mut labels = vec![("__name__", "up")];
    labels.extend(names.iter().map(|name| (&name[..], "v")));
    let body = encoded(vec![series(&labels)]);
    let limits = Limits::default();
    let failure = prepared(&body, &treatment(&limits)).failure.expect("too many");
    let head = "series has too many labels (actual: 50001, limit: 30) series: 'up{l";
    assert!(failure.starts_with(head), "{failure:.100}");
    // What is allowed is taken, however much it is.
    let limits = Limits { max_label_names_per_series: 50_001, ..Limits::default() };
    assert_eq!(prepared(&body, &treatment(&limits)).counts.samples, 1);
}

#[test]
fn too_many_items_are_refused() {
    let body = [0x1a, 0x00].repeat(ITEMS_MAX + 1);
    let limits = Limits { enforce_metadata_metric_name: false, ..Limits::default() };
    let error = prepare(&body, &treatment(&limits), &mut Scratch::default(), NOW_MS);
    assert!(matches!(error, Err(PrepareError::TooManyItems)));
}

#[test]
fn case_a33_placement_by_metric_gives_all_of_a_metric_one_key() {
    let body = encoded(vec![
        series(&[("__name__", "up"), ("job", "a")]),
        series(&[("job", "b"), ("__name__", "up")]),
    ]);
    let metadata = cortexpb::WriteRequest {
        metadata: vec![cortexpb::MetricMetadata {
            metric_family_name: b"up".to_vec(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let body = [body, metadata.encode_to_vec()].concat();
    let limits = Limits { enforce_metric_name: false, ..Limits::default() };
    let by_metric = Treatment { placement: Placement::ByMetric, ..treatment(&limits) };
    let keys = |prepared: Prepared<'_>| prepared.items.iter().map(|i| i.key).collect::<Vec<_>>();
    let of_metric = ring_key_of_metric("tenant-1", b"up");
    let of_tenant = ring_key_of_tenant("tenant-1");
    assert_eq!(keys(prepared(&body, &by_metric)), [of_metric, of_metric, of_tenant]);

    let nameless = encoded(vec![series(&[("job", "a")])]);
    let error = prepare(&nameless, &by_metric, &mut Scratch::default(), NOW_MS);
    assert_eq!(error.expect_err("refused").to_string(), "no metric name label");
    assert_eq!(prepared(&nameless, &treatment(&limits)).items.len(), 1);
}

#[test]
fn case_b12_two_series_with_one_key_stay_two() {
    let names = |name, value| series(&[("__name__", "m"), (name, value)]);
    let body = encoded(vec![names("ab", "c"), names("a", "bc")]);
    let limits = Limits::default();
    let prepared = prepared(&body, &treatment(&limits));
    assert_eq!(prepared.items.len(), 2);
    assert_eq!(prepared.items[0].key, prepared.items[1].key);
}

#[test]
fn case_c15_without_histograms_the_floats_go_on() {
    let histogram_only = |name| cortexpb::TimeSeries {
        samples: Vec::new(),
        exemplars: vec![exemplar()],
        histograms: vec![histogram(&[1])],
        ..series(&[("__name__", name)])
    };
    let mixed = cortexpb::TimeSeries {
        exemplars: vec![exemplar()],
        histograms: vec![histogram(&[1]), histogram(&[2])],
        ..series(&[("__name__", "mixed")])
    };
    let request = cortexpb::WriteRequest {
        timeseries: vec![
            histogram_only("a"),
            series(&[("__name__", "up")]),
            mixed.clone(),
            histogram_only("b"),
        ],
        source: 1,
        discard_out_of_order: true,
        metadata: vec![cortexpb::MetricMetadata {
            metric_family_name: b"up".to_vec(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let body = request.encode_to_vec();
    let limits = Limits::default();

    let all = prepared(&body, &treatment(&limits));
    let keys: Vec<_> = all.items.iter().map(|item| item.key).collect();
    let floats = without_histograms(all, HistogramRule::HistogramsOnly);
    check_whole(&floats);
    let counts = Counts { samples: 2, histograms: 0, exemplars: 1, metadata: 1 };
    assert_eq!(floats.counts, counts);
    let kept: Vec<_> = floats.items.iter().map(|item| item.key).collect();
    assert_eq!(kept, [keys[1], keys[2], keys[4]]);
    let rest = cortexpb::TimeSeries { histograms: Vec::new(), ..mixed };
    assert_eq!(messages(&floats)[1].timeseries, [rest]);

    // As Cortex does it.
    let whole =
        without_histograms(prepared(&body, &treatment(&limits)), HistogramRule::WholeSeries);
    check_whole(&whole);
    let counts = Counts { samples: 1, histograms: 0, exemplars: 0, metadata: 1 };
    assert_eq!(whole.counts, counts);

    let none = encoded(vec![series(&[("__name__", "up")])]);
    let same =
        without_histograms(prepared(&none, &treatment(&limits)), HistogramRule::HistogramsOnly);
    assert!(matches!(same.body, Cow::Borrowed(_)));
}

#[test]
fn case_d9_a_histogram_that_would_grow_huge_is_refused_before_it_is_decoded() {
    // A million deltas of a byte each; eight bytes each once decoded.
    let huge = cortexpb::Histogram { positive_deltas: vec![0; 1_000_000], ..histogram(&[1]) };
    let body = encoded(vec![cortexpb::TimeSeries {
        histograms: vec![huge],
        ..series(&[("__name__", "latency")])
    }]);
    let limits = Limits::default();
    let error = prepare(&body, &treatment(&limits), &mut Scratch::default(), NOW_MS);
    assert!(matches!(
        error,
        Err(PrepareError::Unreadable(DecodeError::HistogramTooLarge { bytes })) if bytes > 1_000_000
    ));
}

#[test]
fn the_elected_replicas_label_goes() {
    let replica = |value| series(&[("__name__", "up"), ("__replica__", value), ("cluster", "c")]);
    let body = encoded(vec![replica("r1"), replica("r2"), series(&[("__name__", "down")])]);
    let limits = Limits::default();
    let treatment = Treatment {
        replicas: Replicas::Removed { replica_label: "__replica__" },
        ..treatment(&limits)
    };
    let prepared = prepared(&body, &treatment);
    let bare = series(&[("__name__", "up"), ("cluster", "c")]);
    let messages: Vec<_> =
        messages(&prepared).into_iter().flat_map(|message| message.timeseries).collect();
    assert_eq!(messages, [bare.clone(), bare, series(&[("__name__", "down")])]);
    assert_eq!(prepared.items[0].key, prepared.items[1].key);
}

const HA: HaLabels<'static> = HaLabels { cluster: "cluster", replica: "__replica__" };

/// A tracker that knows its verdicts by the replica's name, and remembers whom it was asked.
#[test]
fn case_f2_deduplicated_samples_are_neither_kept_nor_charged() {
    let asked = RefCell::new(Vec::new());
    let judge = |series: HaSeries<'_>| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (cluster, replica) = (text(series.pair.cluster), text(series.pair.replica));
        asked.borrow_mut().push((cluster, replica.clone(), series.samples));
        match &replica[..] {
            "elected" => Verdict::Accepted,
            "many" => Verdict::TooManyClusters,
            "lost" => Verdict::Unknown,
            _ => Verdict::Deduplicated,
        }
    };
    let replica = |value| series(&[("__name__", "up"), ("__replica__", value), ("cluster", "c")]);
    let long = "r".repeat(2049);
    let body = encoded(vec![
        replica("other"),
        replica("elected"),
        replica("many"),
        replica("lost"),
        series(&[("__name__", "up"), ("cluster", "c")]),
        replica(&long),
    ]);
    let limits = Limits::default();
    let mut scratch = Scratch::default();
    let replicas = Replicas::Judged { labels: HA, judge: &judge };
    let treatment = Treatment { replicas, ..treatment(&limits) };
    let prepared = prepare(&body, &treatment, &mut scratch, NOW_MS).expect("sound");
    check_whole(&prepared);
    assert_eq!(prepared.counts.total(), 3);
    let bare = series(&[("__name__", "up"), ("cluster", "c")]);
    for message in messages(&prepared) {
        assert_eq!(message.timeseries, std::slice::from_ref(&bare));
    }
    assert_eq!(prepared.failure, None);
    assert_eq!(prepared.discarded.samples, [("too_many_ha_clusters", 1)]);
    assert_eq!(scratch.observed.samples_without_replica, 1);
    let names: Vec<_> = asked.borrow().iter().map(|(_, replica, _)| replica.clone()).collect();
    assert_eq!(names, ["other", "elected", "many", "lost"]);
    assert_eq!(asked.borrow()[0], ("c".to_owned(), "other".to_owned(), 1));
}

#[test]
fn replicas_are_found_before_a_request_is_prepared() {
    let body = encoded(vec![
        series(&[("__name__", "up"), ("__replica__", "r"), ("cluster", "c")]),
        series(&[("__name__", "up"), ("cluster", "c")]),
    ]);
    let pair = HaPair { cluster: b"c", replica: b"r" };
    assert_eq!(replica_of_first_series(&body, HA), Ok(Some(pair)));
    assert_eq!(replica_of_first_series(&[], HA), Ok(None));
    assert_eq!(replica_of_first_series(&[0x0a], HA), Err(DecodeError::UnexpectedEof));
    let mut shown = Vec::new();
    each_replica(&body, HA, |pair| shown.push(pair)).expect("sound");
    assert_eq!(shown, [pair]);
}

#[test]
fn metrics_get_what_a_request_showed() {
    let mut custom = histogram(&[1, 2]);
    (custom.schema, custom.custom_values) = (-53, vec![1.0, 2.0, 3.0]);
    let body = encoded(vec![
        cortexpb::TimeSeries {
            samples: vec![sample(NOW_MS - 5), sample(NOW_MS - 9)],
            ..series(&[("__name__", "up"), ("job", "a")])
        },
        cortexpb::TimeSeries {
            histograms: vec![custom, histogram(&[1])],
            ..series(&[("__name__", "latency")])
        },
        series(&[("nameless", "a")]),
    ]);
    let limits = Limits::default();
    let mut scratch = Scratch::default();
    prepare(&body, &treatment(&limits), &mut scratch, NOW_MS).expect("sound");
    let observed = &scratch.observed;
    let received = Counts { samples: 4, histograms: 2, exemplars: 0, metadata: 0 };
    assert_eq!(observed.received, received);
    assert_eq!((observed.received_custom_buckets, observed.kept_custom_buckets), (1, 1));
    assert_eq!(observed.newest_ms, Some(NOW_MS));
    assert_eq!((observed.labels.count(), observed.labels.sum, observed.labels.upto[0]), (2, 3, 2));
    assert_eq!((observed.label_bytes_series, observed.label_bytes), (2, 14 + 8 + 19));
    assert_eq!(observed.histogram_buckets.upto[..2], [1, 1]);
}
