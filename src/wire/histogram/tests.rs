//! Histograms that are taken and the texts of those that are not.

use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::wire::proto::cortexpb;

/// Three buckets with 1, 2 and 1 observations, one at zero.
fn integer() -> Histogram {
    Histogram {
        count: Some(Count::Int(5)),
        zero_count: Some(Count::Int(1)),
        sum: 3.0,
        positive_spans: vec![Span { offset: -2, length: 2 }],
        positive_deltas: vec![1, 1],
        negative_spans: vec![Span { offset: 0, length: 1 }],
        negative_deltas: vec![1],
        ..Histogram::default()
    }
}

fn float() -> Histogram {
    Histogram {
        count: Some(Count::Float(5.0)),
        zero_count: Some(Count::Float(1.0)),
        positive_spans: vec![Span { offset: -2, length: 1 }, Span { offset: 3, length: 1 }],
        positive_counts: vec![1.0, 2.0],
        negative_spans: vec![Span { offset: 0, length: 1 }],
        negative_counts: vec![1.0],
        ..Histogram::default()
    }
}

fn custom() -> Histogram {
    Histogram {
        count: Some(Count::Int(3)),
        schema: -53,
        positive_spans: vec![Span { offset: 1, length: 2 }],
        positive_deltas: vec![1, 1],
        custom_values: vec![1.0, 2.5],
        ..Histogram::default()
    }
}

#[test]
fn sound_histograms_pass() {
    for histogram in [integer(), float(), custom(), Histogram::default()] {
        assert_eq!(histogram.validate(), Ok(()), "{histogram:?}");
    }
    let nan = Histogram { sum: f64::NAN, count: Some(Count::Int(9)), ..integer() };
    assert_eq!(nan.validate(), Ok(()));
}

#[test]
fn buckets_are_counted_with_the_zero_bucket() {
    assert_eq!([integer(), float(), custom()].map(|h| h.bucket_count()), [4, 4, 2]);
    assert_eq!(Histogram { zero_count: None, ..float() }.bucket_count(), 3);
}

#[test]
fn faults_are_told_in_prometheus_words() {
    let check = |base: fn() -> Histogram, change: fn(&mut Histogram), expect: &str| {
        let mut histogram = base();
        change(&mut histogram);
        assert_eq!(histogram.validate().expect_err(expect).to_string(), expect);
    };
    check(
        integer,
        |h| h.count = Some(Count::Int(9)),
        "5 observations found in buckets, but the Count field is 9: histogram's observation count \
         should equal the number of observations found in the buckets (in absence of NaN)",
    );
    check(
        integer,
        |h| {
            h.sum = f64::NAN;
            h.count = Some(Count::Int(4));
        },
        "5 observations found in buckets, but the Count field is 4: histogram's observation count \
         should be at least the number of observations found in the buckets",
    );
    check(
        integer,
        |h| h.positive_deltas = vec![1, -4],
        "positive side: bucket number 2 has observation count of -3: histogram has a bucket whose \
         observation count is negative",
    );
    check(
        float,
        |h| h.negative_counts = vec![-0.5],
        "negative side: bucket number 1 has observation count of -0.5: histogram has a bucket \
         whose observation count is negative",
    );
    check(
        float,
        |h| h.positive_counts = vec![1.0, -12_345_678.0],
        "positive side: bucket number 2 has observation count of -1.2345678e+07: histogram has a \
         bucket whose observation count is negative",
    );
    check(
        float,
        |h| h.zero_count = Some(Count::Float(-1e-5)),
        "zero bucket has observation count of -1e-05: histogram has a bucket whose observation \
         count is negative",
    );
    check(
        float,
        |h| h.count = Some(Count::Float(f64::NEG_INFINITY)),
        "observation count is  -Inf: histogram's observation count is negative",
    );
    check(
        float,
        |h| h.positive_spans[1].offset = -3,
        "positive side: span number 2 with offset -3: histogram has a span whose offset is \
         negative",
    );
    check(
        integer,
        |h| h.negative_spans[0].length = 4,
        "negative side: spans need 4 buckets, have 1 buckets: histogram spans specify different \
         number of buckets than provided",
    );
    check(
        integer,
        |h| h.schema = 9,
        "histogram has an invalid schema, which must be between -4 and 8 for exponential buckets, \
         or -53 for custom buckets, got schema 9",
    );
    check(
        integer,
        |h| h.custom_values = vec![1.0],
        "histogram with exponential schema must not have custom bounds",
    );
    check(
        custom,
        |h| h.custom_values = vec![1.0],
        "custom buckets: only 1 custom bounds defined which is insufficient to cover total span \
         length of 3: histogram custom bounds are too few",
    );
    check(
        custom,
        |h| h.custom_values = vec![1.0, 1.0],
        "custom buckets: previous bound is 1.000000 and current is 1.000000: histogram custom \
         bounds must be in strictly increasing order",
    );
    check(
        custom,
        |h| h.custom_values = vec![1.0, f64::INFINITY],
        "custom buckets: last +Inf bound must not be explicitly defined: histogram custom bounds \
         must be finite",
    );
    check(
        custom,
        |h| h.custom_values = vec![f64::NAN, 1.0],
        "custom buckets: histogram custom bounds must not be NaN",
    );
    check(
        custom,
        |h| h.positive_spans[0].offset = -1,
        "custom buckets: span number 1 with offset -1: histogram has a span whose offset is \
         negative",
    );
    check(
        custom,
        |h| h.zero_count = Some(Count::Int(1)),
        "custom buckets: must have zero count of 0",
    );
    check(custom, |h| h.zero_threshold = 0.1, "custom buckets: must have zero threshold of 0");
    check(
        custom,
        |h| h.negative_spans = vec![Span::default()],
        "custom buckets: must not have negative spans",
    );
    check(
        custom,
        |h| h.negative_deltas = vec![1],
        "custom buckets: must not have negative buckets",
    );
}

#[test]
fn case_d9_a_huge_histogram_is_refused_by_its_size() {
    let bytes = vec![0; HISTOGRAM_BYTES_MAX + 1];
    let expect = "native histogram size 16385 bytes exceeds limit 16384 bytes";
    assert_eq!(Histogram::decode(&bytes).expect_err("too large").to_string(), expect);
}

fn message() -> impl Strategy<Value = cortexpb::Histogram> {
    use cortexpb::histogram::{Count, ZeroCount};
    let span = (any::<i32>(), any::<u32>())
        .prop_map(|(offset, length)| cortexpb::BucketSpan { offset, length });
    let spans = || prop::collection::vec(span.clone(), 0..5);
    let deltas = || prop::collection::vec(any::<i64>(), 0..20);
    let counts = || prop::collection::vec(any::<f64>(), 0..20);
    let numbers = (any::<f64>(), any::<i32>(), any::<f64>(), any::<i32>(), any::<i64>());
    let kinds = prop::option::of((any::<bool>(), any::<u64>(), any::<f64>()));
    let sides = (spans(), deltas(), counts(), spans(), deltas(), counts());
    (kinds, numbers, sides, counts(), any::<i64>()).prop_map(
        |(kind, (sum, schema, zero_threshold, reset_hint, timestamp_ms), sides, bounds, start)| {
            let (negative_spans, negative_deltas, negative_counts, ..) = sides.clone();
            let (.., positive_spans, positive_deltas, positive_counts) = sides;
            cortexpb::Histogram {
                count: kind.map(|(float, int, double)| {
                    if float { Count::CountFloat(double) } else { Count::CountInt(int) }
                }),
                zero_count: kind.map(|(float, int, double)| {
                    if float {
                        ZeroCount::ZeroCountFloat(double)
                    } else {
                        ZeroCount::ZeroCountInt(int)
                    }
                }),
                sum,
                schema,
                zero_threshold,
                negative_spans,
                negative_deltas,
                negative_counts,
                positive_spans,
                positive_deltas,
                positive_counts,
                reset_hint,
                timestamp_ms,
                custom_values: bounds,
                start_timestamp_ms: start,
            }
        },
    )
}

fn from_message(message: &cortexpb::Histogram) -> Histogram {
    let spans = |spans: &[cortexpb::BucketSpan]| {
        spans.iter().map(|span| Span { offset: span.offset, length: span.length }).collect()
    };
    Histogram {
        count: message.count.map(|count| match count {
            cortexpb::histogram::Count::CountInt(count) => Count::Int(count),
            cortexpb::histogram::Count::CountFloat(count) => Count::Float(count),
        }),
        sum: message.sum,
        schema: message.schema,
        zero_threshold: message.zero_threshold,
        zero_count: message.zero_count.map(|count| match count {
            cortexpb::histogram::ZeroCount::ZeroCountInt(count) => Count::Int(count),
            cortexpb::histogram::ZeroCount::ZeroCountFloat(count) => Count::Float(count),
        }),
        negative_spans: spans(&message.negative_spans),
        negative_deltas: message.negative_deltas.clone(),
        negative_counts: message.negative_counts.clone(),
        positive_spans: spans(&message.positive_spans),
        positive_deltas: message.positive_deltas.clone(),
        positive_counts: message.positive_counts.clone(),
        reset_hint: message.reset_hint,
        timestamp_ms: message.timestamp_ms,
        custom_values: message.custom_values.clone(),
        start_timestamp_ms: message.start_timestamp_ms,
    }
}

proptest! {
    #[test]
    fn histograms_decode_as_prost_has_them(message in message()) {
        let bytes = message.encode_to_vec();
        let decoded = Histogram::decode(&bytes).expect("sound");
        // Read back, since a negative zero is not written. Compared as text, in which a NaN
        // equals itself.
        let message = cortexpb::Histogram::decode(&bytes[..]).expect("sound");
        prop_assert_eq!(format!("{decoded:?}"), format!("{:?}", from_message(&message)));
        prop_assert_eq!(check(&bytes), Ok(message.timestamp_ms));
        prop_assert_eq!(start_timestamp_ms(&bytes), Ok(message.start_timestamp_ms));
        prop_assert_eq!(decoded.encode(), bytes);
        let _ = decoded.validate();
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(histogram) = Histogram::decode(&bytes) {
            let _ = histogram.validate();
        }
    }
}

/// Counts by bucket, from spans and counts of either kind.
fn buckets(spans: &[Span], counts: impl Iterator<Item = f64>) -> Vec<(i32, f64)> {
    let mut at = 0;
    let places = spans.iter().flat_map(|span| {
        let first = at + span.offset;
        at = first + span.length as i32;
        first..at
    });
    places.collect::<Vec<_>>().into_iter().zip(counts).collect()
}

fn counts_of(deltas: &[i64]) -> impl Iterator<Item = f64> {
    deltas.iter().scan(0, |count, delta| {
        *count += delta;
        Some(*count as f64)
    })
}

proptest! {
    #[test]
    fn half_the_resolution_puts_neighbours_together(
        spans in prop::collection::vec((0..5_i32, 0..4_u32), 0..6),
        first in -9..9_i32,
        counts in prop::collection::vec(0..100_i64, 24),
        is_float: bool,
    ) {
        let mut spans: Vec<Span> =
            spans.into_iter().map(|(offset, length)| Span { offset, length }).collect();
        spans.iter_mut().take(1).for_each(|span| span.offset = first);
        let len = spans.iter().map(|span| span.length as usize).sum::<usize>();
        let counts = &counts[..len];
        let deltas = (0..len).map(|i| counts[i] - if i == 0 { 0 } else { counts[i - 1] });
        let mut histogram = Histogram {
            count: Some(match is_float {
                true => Count::Float(0.0),
                false => Count::Int(0),
            }),
            negative_spans: spans.clone(),
            schema: 4,
            ..Histogram::default()
        };
        if is_float {
            histogram.negative_counts = counts.iter().map(|count| *count as f64).collect();
        } else {
            histogram.negative_deltas = deltas.collect();
        }
        let mut expect: Vec<(i32, f64)> = Vec::new();
        for (bucket, count) in buckets(&spans, counts.iter().map(|count| *count as f64)) {
            // Bucket 2n takes 2n - 1 along: bounds are upper bounds.
            let merged = (bucket + 1).div_euclid(2);
            match expect.last_mut() {
                Some((last, sum)) if *last == merged => *sum += count,
                _ => expect.push((merged, count)),
            }
        }
        histogram.halve_resolution();
        let found = match is_float {
            true => buckets(&histogram.negative_spans, histogram.negative_counts.iter().copied()),
            false => buckets(&histogram.negative_spans, counts_of(&histogram.negative_deltas)),
        };
        prop_assert_eq!(found, expect);
        prop_assert_eq!(histogram.schema, 3);
        prop_assert!(histogram.negative_spans.iter().all(|span| span.length > 0));
        prop_assert!(histogram.negative_spans.iter().skip(1).all(|span| span.offset > 0));
    }

    #[test]
    fn its_length_is_known_without_writing_it(
        bits in prop::collection::vec(any::<i64>(), 16),
        lists in prop::collection::vec(0..4_usize, 7),
    ) {
        let doubles = |n: usize| bits.iter().take(n).map(|b| f64::from_bits(*b as u64)).collect();
        let spans = |n: usize| {
            bits.iter().take(n).map(|b| Span { offset: *b as i32, length: (*b >> 32) as u32 })
        };
        let histogram = Histogram {
            count: Some(Count::Int(bits[0] as u64)),
            zero_count: (bits[1] > 0).then_some(Count::Float(2.0)),
            sum: bits[2] as f64,
            schema: bits[3] as i32,
            reset_hint: bits[4] as i32,
            timestamp_ms: bits[5],
            start_timestamp_ms: bits[6] >> 40,
            negative_spans: spans(lists[0]).collect(),
            positive_spans: spans(lists[1]).collect(),
            negative_deltas: bits[..lists[2]].to_vec(),
            positive_deltas: bits[4..4 + lists[3]].to_vec(),
            negative_counts: doubles(lists[4]),
            positive_counts: doubles(lists[5]),
            custom_values: doubles(lists[6]),
            ..Histogram::default()
        };
        prop_assert_eq!(histogram.cortex_len(), histogram.encode().len());
    }
}
