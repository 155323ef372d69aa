//! The checks that the TSDB makes before it appends a histogram, in its order and words.

use std::fmt;

use super::{Count, Histogram, Side, Span};
use crate::go_text::{FixedFloat, Float};

/// Widest exponential buckets: each bound is 65,536 times the one before.
pub const SCHEMA_EXPONENTIAL_MIN: i32 = -4;
/// Narrowest exponential buckets: 256 to a power of two.
pub const SCHEMA_EXPONENTIAL_MAX: i32 = 8;
/// Buckets with bounds of their own.
pub const SCHEMA_CUSTOM_BOUNDS: i32 = -53;

pub(super) fn is_exponential(schema: i32) -> bool {
    (SCHEMA_EXPONENTIAL_MIN..=SCHEMA_EXPONENTIAL_MAX).contains(&schema)
}

/// Why the TSDB takes no such histogram. The texts are Prometheus'.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HistogramError {
    #[error(
        "{found} observations found in buckets, but the Count field is {count}: histogram's \
         observation count should be at least the number of observations found in the buckets"
    )]
    CountNotBigEnough { found: u64, count: u64 },
    #[error(
        "{found} observations found in buckets, but the Count field is {count}: histogram's \
         observation count should equal the number of observations found in the buckets (in \
         absence of NaN)"
    )]
    CountMismatch { found: u64, count: u64 },
    #[error("observation count is  {}: histogram's observation count is negative", Float(*.0))]
    NegativeCount(f64),
    #[error(
        "{side} side: bucket number {number} has observation count of {count}: histogram has a \
         bucket whose observation count is negative"
    )]
    NegativeBucket { side: Side, number: usize, count: BucketCount },
    #[error(
        "zero bucket has observation count of {}: histogram has a bucket whose observation \
         count is negative",
        Float(*.0)
    )]
    NegativeZeroBucket(f64),
    #[error(
        "{side}: span number {number} with offset {offset}: histogram has a span whose offset is \
         negative"
    )]
    NegativeOffset { side: SpanSide, number: usize, offset: i32 },
    #[error(
        "{side}: spans need {needed} buckets, have {found} buckets: histogram spans specify \
         different number of buckets than provided"
    )]
    SpansMismatch { side: SpanSide, needed: u64, found: usize },
    #[error(
        "custom buckets: only {bounds} custom bounds defined which is insufficient to cover total \
         span length of {needed}: histogram custom bounds are too few"
    )]
    TooFewBounds { bounds: usize, needed: u64 },
    #[error(
        "custom buckets: previous bound is {} and current is {}: histogram custom bounds must be \
         in strictly increasing order",
        FixedFloat(*.previous),
        FixedFloat(*.current)
    )]
    BoundsNotIncreasing { previous: f64, current: f64 },
    #[error(
        "custom buckets: last +Inf bound must not be explicitly defined: histogram custom bounds \
         must be finite"
    )]
    BoundInfinite,
    #[error("custom buckets: histogram custom bounds must not be NaN")]
    BoundNan,
    #[error("custom buckets: must have zero count of 0")]
    CustomZeroCount,
    #[error("custom buckets: must have zero threshold of 0")]
    CustomZeroThreshold,
    #[error("custom buckets: must not have negative spans")]
    CustomNegativeSpans,
    #[error("custom buckets: must not have negative buckets")]
    CustomNegativeBuckets,
    #[error("histogram with exponential schema must not have custom bounds")]
    ExponentialWithBounds,
    #[error(
        "histogram has an invalid schema, which must be between {SCHEMA_EXPONENTIAL_MIN} and \
         {SCHEMA_EXPONENTIAL_MAX} for exponential buckets, or {SCHEMA_CUSTOM_BOUNDS} for custom \
         buckets, got schema {0}"
    )]
    InvalidSchema(i32),
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Positive => "positive",
            Self::Negative => "negative",
        })
    }
}

/// Whose spans are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanSide {
    Exponential(Side),
    Custom,
}

impl fmt::Display for SpanSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exponential(side) => write!(f, "{side} side"),
            Self::Custom => f.write_str("custom buckets"),
        }
    }
}

/// Observations of one bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BucketCount {
    Int(i64),
    Float(f64),
}

impl fmt::Display for BucketCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(count) => count.fmt(f),
            Self::Float(count) => Float(*count).fmt(f),
        }
    }
}

impl Histogram {
    /// What the TSDB checks before it appends, in its order.
    pub fn validate(&self) -> Result<(), HistogramError> {
        if self.is_float() { self.validate_float() } else { self.validate_int() }
    }

    fn validate_int(&self) -> Result<(), HistogramError> {
        let zero_count = self.zero_count_int();
        let mut found = zero_count;
        if self.schema == SCHEMA_CUSTOM_BOUNDS {
            let buckets = Buckets {
                positive: self.positive_deltas.len(),
                negative: self.negative_deltas.len(),
            };
            self.check_custom(buckets, zero_count == 0)?;
        } else {
            self.check_exponential_spans(self.positive_deltas.len(), self.negative_deltas.len())?;
            found = found.wrapping_add(sum_deltas(Side::Negative, &self.negative_deltas)?);
            self.check_no_bounds()?;
        }
        found = found.wrapping_add(sum_deltas(Side::Positive, &self.positive_deltas)?);

        let count = self.count_int();
        // Observations of NaN are in no bucket, and they make the sum NaN.
        if self.sum.is_nan() {
            if found > count {
                return Err(HistogramError::CountNotBigEnough { found, count });
            }
        } else if found != count {
            return Err(HistogramError::CountMismatch { found, count });
        }
        Ok(())
    }

    fn validate_float(&self) -> Result<(), HistogramError> {
        let zero_count = self.zero_count_float();
        if self.schema == SCHEMA_CUSTOM_BOUNDS {
            let buckets = Buckets {
                positive: self.positive_counts.len(),
                negative: self.negative_counts.len(),
            };
            self.check_custom(buckets, zero_count == 0.0)?;
        } else {
            self.check_exponential_spans(self.positive_counts.len(), self.negative_counts.len())?;
            check_counts(Side::Negative, &self.negative_counts)?;
            if zero_count < 0.0 {
                return Err(HistogramError::NegativeZeroBucket(zero_count));
            }
            self.check_no_bounds()?;
        }
        match self.count {
            Some(Count::Float(count)) if count < 0.0 => Err(HistogramError::NegativeCount(count)),
            _ => check_counts(Side::Positive, &self.positive_counts),
        }
    }

    fn check_exponential_spans(
        &self,
        positive_buckets: usize,
        negative_buckets: usize,
    ) -> Result<(), HistogramError> {
        if !is_exponential(self.schema) {
            return Err(HistogramError::InvalidSchema(self.schema));
        }
        for (side, spans, buckets) in [
            (Side::Positive, &self.positive_spans, positive_buckets),
            (Side::Negative, &self.negative_spans, negative_buckets),
        ] {
            let side = SpanSide::Exponential(side);
            // The first span's offset is a place, not a gap.
            check_offsets(side, spans, 1)?;
            check_bucket_number(side, spans, buckets)?;
        }
        Ok(())
    }

    fn check_no_bounds(&self) -> Result<(), HistogramError> {
        if self.custom_values.is_empty() {
            return Ok(());
        }
        Err(HistogramError::ExponentialWithBounds)
    }

    fn check_custom(&self, buckets: Buckets, zero_is_empty: bool) -> Result<(), HistogramError> {
        self.check_bounds()?;
        check_offsets(SpanSide::Custom, &self.positive_spans, 0)?;
        check_bucket_number(SpanSide::Custom, &self.positive_spans, buckets.positive)?;
        let gaps = self.positive_spans.iter().map(|span| u64::from(span.offset.unsigned_abs()));
        let needed = span_buckets(&self.positive_spans) + gaps.sum::<u64>();
        if needed > self.custom_values.len() as u64 + 1 {
            return Err(HistogramError::TooFewBounds { bounds: self.custom_values.len(), needed });
        }
        if !zero_is_empty {
            return Err(HistogramError::CustomZeroCount);
        }
        if self.zero_threshold != 0.0 {
            return Err(HistogramError::CustomZeroThreshold);
        }
        if !self.negative_spans.is_empty() {
            return Err(HistogramError::CustomNegativeSpans);
        }
        if buckets.negative != 0 {
            return Err(HistogramError::CustomNegativeBuckets);
        }
        Ok(())
    }

    fn check_bounds(&self) -> Result<(), HistogramError> {
        let mut previous = f64::NEG_INFINITY;
        for (i, &current) in self.custom_values.iter().enumerate() {
            if current.is_nan() {
                return Err(HistogramError::BoundNan);
            }
            if i > 0 && current <= previous {
                return Err(HistogramError::BoundsNotIncreasing { previous, current });
            }
            previous = current;
        }
        if previous == f64::INFINITY {
            return Err(HistogramError::BoundInfinite);
        }
        Ok(())
    }
}

/// How many bucket entries a histogram has of the kind that its count names.
struct Buckets {
    positive: usize,
    negative: usize,
}

fn check_offsets(side: SpanSide, spans: &[Span], skipped: usize) -> Result<(), HistogramError> {
    let negative = spans.iter().enumerate().skip(skipped).find(|(_, span)| span.offset < 0);
    match negative {
        Some((i, span)) => {
            Err(HistogramError::NegativeOffset { side, number: i + 1, offset: span.offset })
        }
        None => Ok(()),
    }
}

fn check_bucket_number(
    side: SpanSide,
    spans: &[Span],
    buckets: usize,
) -> Result<(), HistogramError> {
    let needed = span_buckets(spans);
    if needed == buckets as u64 {
        return Ok(());
    }
    Err(HistogramError::SpansMismatch { side, needed, found: buckets })
}

fn span_buckets(spans: &[Span]) -> u64 {
    spans.iter().map(|span| u64::from(span.length)).sum()
}

fn sum_deltas(side: Side, deltas: &[i64]) -> Result<u64, HistogramError> {
    let mut count = 0_i64;
    let mut sum = 0_u64;
    for (i, &delta) in deltas.iter().enumerate() {
        count = count.wrapping_add(delta);
        if count < 0 {
            let count = BucketCount::Int(count);
            return Err(HistogramError::NegativeBucket { side, number: i + 1, count });
        }
        sum = sum.wrapping_add(count as u64);
    }
    Ok(sum)
}

fn check_counts(side: Side, counts: &[f64]) -> Result<(), HistogramError> {
    match counts.iter().position(|count| *count < 0.0) {
        Some(i) => {
            let count = BucketCount::Float(counts[i]);
            Err(HistogramError::NegativeBucket { side, number: i + 1, count })
        }
        None => Ok(()),
    }
}
