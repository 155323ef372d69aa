//! Exponential histograms become native ones.
//!
//! A finer scale than native histograms have is merged down; a coarser one than they have is an
//! error. Bucket 0 of OTLP is bucket 1 of a native histogram, whose buckets are named by their
//! upper bound. Runs of up to two empty buckets are written out, longer ones start a new span.

use opentelemetry_proto::tonic::metrics::v1::ExponentialHistogramDataPoint;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;

use super::points::{NO_RECORDED_VALUE, STALE, milliseconds};
use crate::wire::proto::cortexpb::{self, BucketSpan, histogram};

const SCHEMA_MIN: i32 = -4;
const SCHEMA_MAX: i32 = 8;
/// What is nearer to zero is zero; Cortex's number.
const ZERO_THRESHOLD: f64 = 1e-128;
/// Most empty buckets in a row that are written out.
const GAP_WRITTEN_MAX: i32 = 2;

/// There is no native histogram for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot convert exponential to native histogram. Scale must be >= {SCHEMA_MIN}, was {scale}"
)]
pub(super) struct ScaleTooCoarse {
    scale: i32,
}

pub(super) fn native(
    point: &ExponentialHistogramDataPoint,
    is_delta: bool,
) -> Result<cortexpb::Histogram, ScaleTooCoarse> {
    if point.scale < SCHEMA_MIN {
        return Err(ScaleTooCoarse { scale: point.scale });
    }
    let schema = point.scale.min(SCHEMA_MAX);
    let scale_down = point.scale.saturating_sub(schema).min(i32::BITS as i32 - 1) as u32;
    let (positive_spans, positive_deltas) = layout(point.positive.as_ref(), scale_down);
    let (negative_spans, negative_deltas) = layout(point.negative.as_ref(), scale_down);
    let is_stale = point.flags & NO_RECORDED_VALUE != 0;
    let (count, sum) = if is_stale {
        (STALE.to_bits(), STALE)
    } else {
        (point.count, point.sum.unwrap_or_default())
    };
    // What is not known to be continuous may not be said to be. A delta is told as a gauge, so
    // that no chunk is cut for it.
    let hint = if is_delta { histogram::ResetHint::Gauge } else { histogram::ResetHint::Unknown };
    Ok(cortexpb::Histogram {
        count: Some(histogram::Count::CountInt(count)),
        sum,
        schema,
        zero_threshold: ZERO_THRESHOLD,
        zero_count: Some(histogram::ZeroCount::ZeroCountInt(point.zero_count)),
        negative_spans,
        negative_deltas,
        positive_spans,
        positive_deltas,
        reset_hint: hint.into(),
        timestamp_ms: milliseconds(point.time_unix_nano),
        ..cortexpb::Histogram::default()
    })
}

/// Spans, and the counts of their buckets as differences from one to the next.
fn layout(buckets: Option<&Buckets>, scale_down: u32) -> (Vec<BucketSpan>, Vec<i64>) {
    let Some(buckets) = buckets.filter(|buckets| !buckets.bucket_counts.is_empty()) else {
        return (Vec::new(), Vec::new());
    };
    // Numbers wrap around as Go's do; the histogram is then refused by its validation.
    let index_of = |index: i32| (index >> scale_down).wrapping_add(1);
    let mut index = index_of(buckets.offset);
    let mut out = Layout {
        spans: vec![BucketSpan { offset: index, length: 0 }],
        deltas: Vec::new(),
        last_count: 0,
    };
    let mut count: i64 = 0;
    for (place, &here) in buckets.bucket_counts.iter().enumerate() {
        let next = index_of((place as i32).wrapping_add(buckets.offset));
        if next == index {
            count = count.wrapping_add(here as i64);
            continue;
        }
        if count == 0 {
            count = here as i64;
            continue;
        }
        out.skip(next.wrapping_sub(index).wrapping_sub(1));
        out.push(count);
        count = here as i64;
        index = next;
    }
    let last = buckets.bucket_counts.len() as i32;
    let last = index_of(last.wrapping_add(buckets.offset).wrapping_sub(1));
    out.skip(last.wrapping_sub(index));
    out.push(count);
    (out.spans, out.deltas)
}

struct Layout {
    /// Never empty.
    spans: Vec<BucketSpan>,
    deltas: Vec<i64>,
    last_count: i64,
}

impl Layout {
    /// So many empty buckets come next.
    fn skip(&mut self, gap: i32) {
        if gap > GAP_WRITTEN_MAX {
            self.spans.push(BucketSpan { offset: gap, length: 0 });
        } else {
            (0..gap).for_each(|_| self.push(0));
        }
    }

    fn push(&mut self, count: i64) {
        if let Some(span) = self.spans.last_mut() {
            span.length += 1;
        }
        self.deltas.push(count.wrapping_sub(self.last_count));
        self.last_count = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_laid_out_in_spans() {
        let check = |offset, counts: &[u64], scale_down, spans: &[(i32, u32)], deltas: &[i64]| {
            let buckets = Buckets { offset, bucket_counts: counts.to_vec() };
            let (have, have_deltas) = layout(Some(&buckets), scale_down);
            let have: Vec<_> = have.iter().map(|span| (span.offset, span.length)).collect();
            assert_eq!((&have[..], &have_deltas[..]), (spans, deltas), "{offset} {counts:?}");
        };
        check(0, &[], 0, &[], &[]);
        check(0, &[4, 3, 2, 1], 0, &[(1, 4)], &[4, -1, -1, -1]);
        check(-2, &[3, 1], 0, &[(-1, 2)], &[3, -2]);
        // Merged by two: buckets 0 and 1, 2 and 3, 4.
        check(0, &[4, 3, 2, 1, 5], 1, &[(1, 3)], &[7, -4, 2]);
        // Index 3 >> 1 stands alone in front of 4 and 5.
        check(3, &[1, 2, 3], 1, &[(2, 2)], &[1, 4]);
    }

    #[test]
    fn a_scale_without_a_schema_is_an_error_and_a_finer_one_is_merged() {
        let point = |scale| ExponentialHistogramDataPoint {
            scale,
            count: 3,
            sum: Some(1.5),
            zero_count: 1,
            positive: Some(Buckets { offset: 0, bucket_counts: vec![1, 1] }),
            time_unix_nano: 2_500_000,
            ..ExponentialHistogramDataPoint::default()
        };
        let error = native(&point(-5), false).expect_err("too coarse").to_string();
        let text = "cannot convert exponential to native histogram. Scale must be >= -4, was -5";
        assert_eq!(error, text);
        let merged = native(&point(9), false).expect("merged");
        assert_eq!((merged.schema, merged.timestamp_ms), (8, 2));
        assert_eq!(merged.positive_deltas, [2]);
        let far = native(&point(i32::MAX), true).expect("merged to one");
        assert_eq!((far.schema, &far.positive_deltas[..]), (8, &[2][..]));
        assert_eq!(far.reset_hint, 3);
    }
}
