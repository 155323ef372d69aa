//! Native histograms: decoded, counted, and checked as the TSDB checks them.
//!
//! A stored or forwarded histogram keeps its received bytes; what is decoded here only decides
//! whether it may be stored. One reader of its fields serves the check of a whole request, which
//! keeps nothing, and the decoding.

use std::fmt;

use super::cursor::{BYTES, Cursor, DecodeError, FIXED64, Tag, VARINT};

/// Largest histogram in a request, in bytes of protobuf: Cortex's bound.
///
/// A packed delta of one byte becomes eight in memory, so a decoded histogram stays below
/// 128 KiB.
pub const HISTOGRAM_BYTES_MAX: usize = 16 * 1024;

const SCHEMA_EXPONENTIAL_MIN: i32 = -4;
const SCHEMA_EXPONENTIAL_MAX: i32 = 8;
const SCHEMA_CUSTOM_BOUNDS: i32 = -53;

/// A native histogram, integer or float.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Observations; says which kind it is. `None` when the sender left it out.
    pub count: Option<Count>,
    pub sum: f64,
    pub schema: i32,
    pub zero_threshold: f64,
    pub zero_count: Option<Count>,
    pub negative_spans: Vec<Span>,
    pub negative_deltas: Vec<i64>,
    pub negative_counts: Vec<f64>,
    pub positive_spans: Vec<Span>,
    pub positive_deltas: Vec<i64>,
    pub positive_counts: Vec<f64>,
    pub reset_hint: i32,
    pub timestamp_ms: i64,
    pub custom_values: Vec<f64>,
    pub start_timestamp_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Count {
    Int(u64),
    Float(f64),
}

/// A run of buckets: the gap before it, and its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub offset: i32,
    pub length: u32,
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
    #[error("observation count is  {}: histogram's observation count is negative", Shortest(*.0))]
    NegativeCount(f64),
    #[error(
        "{side} side: bucket number {number} has observation count of {count}: histogram has a \
         bucket whose observation count is negative"
    )]
    NegativeBucket { side: Side, number: usize, count: BucketCount },
    #[error(
        "zero bucket has observation count of {}: histogram has a bucket whose observation \
         count is negative",
        Shortest(*.0)
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
        Fixed6(*.previous),
        Fixed6(*.current)
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Positive,
    Negative,
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
            Self::Float(count) => Shortest(*count).fmt(f),
        }
    }
}

impl Histogram {
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut histogram = Self::default();
        read_fields(bytes, |field| histogram.set(field))?;
        Ok(histogram)
    }

    fn set(&mut self, field: Field) {
        match field {
            Field::Count(count) => self.count = Some(count),
            Field::Sum(sum) => self.sum = sum,
            Field::Schema(schema) => self.schema = schema,
            Field::ZeroThreshold(threshold) => self.zero_threshold = threshold,
            Field::ZeroCount(count) => self.zero_count = Some(count),
            Field::Span(Side::Negative, span) => self.negative_spans.push(span),
            Field::Span(Side::Positive, span) => self.positive_spans.push(span),
            Field::Delta(Side::Negative, delta) => self.negative_deltas.push(delta),
            Field::Delta(Side::Positive, delta) => self.positive_deltas.push(delta),
            Field::BucketCount(Side::Negative, count) => self.negative_counts.push(count),
            Field::BucketCount(Side::Positive, count) => self.positive_counts.push(count),
            Field::ResetHint(hint) => self.reset_hint = hint,
            Field::Timestamp(ms) => self.timestamp_ms = ms,
            Field::CustomValue(value) => self.custom_values.push(value),
            Field::StartTimestamp(ms) => self.start_timestamp_ms = ms,
        }
    }

    pub fn is_float(&self) -> bool {
        matches!(self.count, Some(Count::Float(_)))
    }

    /// Buckets with their own entry, and the zero bucket if anything is in it.
    pub fn bucket_count(&self) -> usize {
        if self.is_float() {
            let zero = usize::from(self.zero_count_float() > 0.0);
            return self.positive_counts.len() + self.negative_counts.len() + zero;
        }
        let zero = usize::from(self.zero_count_int() > 0);
        self.positive_deltas.len() + self.negative_deltas.len() + zero
    }

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

        let count = match self.count {
            Some(Count::Int(count)) => count,
            _ => 0,
        };
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

    fn zero_count_int(&self) -> u64 {
        match self.zero_count {
            Some(Count::Int(count)) => count,
            _ => 0,
        }
    }

    fn zero_count_float(&self) -> f64 {
        match self.zero_count {
            Some(Count::Float(count)) => count,
            _ => 0.0,
        }
    }

    fn check_exponential_spans(
        &self,
        positive_buckets: usize,
        negative_buckets: usize,
    ) -> Result<(), HistogramError> {
        if !(SCHEMA_EXPONENTIAL_MIN..=SCHEMA_EXPONENTIAL_MAX).contains(&self.schema) {
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

/// A double as Go's `%v` prints it: shortest digits, exponent below 1e-4 and from 1e6 on.
struct Shortest(f64);

impl fmt::Display for Shortest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if !value.is_finite() {
            return write_not_finite(f, value);
        }
        if value == 0.0 || (1e-4..1e6).contains(&value.abs()) {
            return write!(f, "{value}");
        }
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        write!(f, "{digits}e{sign}{exponent:0>2}")
    }
}

/// A double as Go's `%f` prints it.
struct Fixed6(f64);

impl fmt::Display for Fixed6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_finite() {
            return write_not_finite(f, self.0);
        }
        write!(f, "{:.6}", self.0)
    }
}

fn write_not_finite(f: &mut fmt::Formatter<'_>, value: f64) -> fmt::Result {
    f.write_str(match value {
        _ if value.is_nan() => "NaN",
        f64::INFINITY => "+Inf",
        _ => "-Inf",
    })
}

/// One value of a histogram; of a repeated field, one element.
enum Field {
    Count(Count),
    Sum(f64),
    Schema(i32),
    ZeroThreshold(f64),
    ZeroCount(Count),
    Span(Side, Span),
    Delta(Side, i64),
    BucketCount(Side, f64),
    ResetHint(i32),
    Timestamp(i64),
    CustomValue(f64),
    StartTimestamp(i64),
}

/// Checks a histogram of a request to its last byte and returns its timestamp.
pub(super) fn check(bytes: &[u8]) -> Result<i64, DecodeError> {
    let mut timestamp_ms = 0;
    read_fields(bytes, |field| {
        if let Field::Timestamp(ms) = field {
            timestamp_ms = ms;
        }
    })?;
    Ok(timestamp_ms)
}

/// Start timestamp of a histogram.
pub(super) fn start_timestamp_ms(bytes: &[u8]) -> Result<i64, DecodeError> {
    let mut start_ms = 0;
    read_fields(bytes, |field| {
        if let Field::StartTimestamp(ms) = field {
            start_ms = ms;
        }
    })?;
    Ok(start_ms)
}

fn read_fields(bytes: &[u8], mut take: impl FnMut(Field)) -> Result<(), DecodeError> {
    if bytes.len() > HISTOGRAM_BYTES_MAX {
        return Err(DecodeError::HistogramTooLarge { bytes: bytes.len() });
    }
    let mut cursor = Cursor::new(bytes);
    while let Some(tag) = cursor.tag("Histogram")? {
        read_field(&mut cursor, tag, &mut take)?;
    }
    Ok(())
}

fn read_field(
    cursor: &mut Cursor<'_>,
    tag: Tag,
    take: &mut impl FnMut(Field),
) -> Result<(), DecodeError> {
    let field = match tag.number {
        1 => Field::Count(Count::Int(integer(cursor, tag, "CountInt")?)),
        2 => Field::Count(Count::Float(double(cursor, tag, "CountFloat")?)),
        3 => Field::Sum(double(cursor, tag, "Sum")?),
        4 => Field::Schema(zigzag32(integer(cursor, tag, "Schema")?)),
        5 => Field::ZeroThreshold(double(cursor, tag, "ZeroThreshold")?),
        6 => Field::ZeroCount(Count::Int(integer(cursor, tag, "ZeroCountInt")?)),
        7 => Field::ZeroCount(Count::Float(double(cursor, tag, "ZeroCountFloat")?)),
        8 => Field::Span(Side::Negative, span(cursor, tag, "NegativeSpans")?),
        9 => return deltas(cursor, tag, Side::Negative, take),
        10 => {
            let negative = |count| take(Field::BucketCount(Side::Negative, count));
            return doubles(cursor, tag, "NegativeCounts", negative);
        }
        11 => Field::Span(Side::Positive, span(cursor, tag, "PositiveSpans")?),
        12 => return deltas(cursor, tag, Side::Positive, take),
        13 => {
            let positive = |count| take(Field::BucketCount(Side::Positive, count));
            return doubles(cursor, tag, "PositiveCounts", positive);
        }
        14 => Field::ResetHint(integer(cursor, tag, "ResetHint")? as i32),
        15 => Field::Timestamp(integer(cursor, tag, "TimestampMs")? as i64),
        16 => {
            return doubles(cursor, tag, "CustomValues", |value| take(Field::CustomValue(value)));
        }
        17 => Field::StartTimestamp(integer(cursor, tag, "StartTimestampMs")? as i64),
        _ => return cursor.skip(tag),
    };
    take(field);
    Ok(())
}

fn integer(cursor: &mut Cursor<'_>, tag: Tag, field: &'static str) -> Result<u64, DecodeError> {
    tag.expect(VARINT, field)?;
    cursor.varint()
}

fn double(cursor: &mut Cursor<'_>, tag: Tag, field: &'static str) -> Result<f64, DecodeError> {
    tag.expect(FIXED64, field)?;
    cursor.fixed64().map(f64::from_bits)
}

fn span(cursor: &mut Cursor<'_>, tag: Tag, field: &'static str) -> Result<Span, DecodeError> {
    tag.expect(BYTES, field)?;
    let mut cursor = Cursor::new(cursor.counted()?);
    let mut span = Span::default();
    while let Some(tag) = cursor.tag("BucketSpan")? {
        match tag.number {
            1 => span.offset = zigzag32(integer(&mut cursor, tag, "Offset")?),
            2 => span.length = integer(&mut cursor, tag, "Length")? as u32,
            _ => cursor.skip(tag)?,
        }
    }
    Ok(span)
}

fn deltas(
    cursor: &mut Cursor<'_>,
    tag: Tag,
    side: Side,
    take: &mut impl FnMut(Field),
) -> Result<(), DecodeError> {
    let mut end = cursor.at() + 1;
    match tag.wire_type {
        VARINT => {}
        BYTES => end = cursor.counted_end()?,
        wire_type => {
            let field = match side {
                Side::Positive => "PositiveDeltas",
                Side::Negative => "NegativeDeltas",
            };
            return Err(DecodeError::WrongWireType { wire_type, field });
        }
    }
    while cursor.at() < end {
        take(Field::Delta(side, zigzag64(cursor.varint()?)));
    }
    Ok(())
}

fn doubles(
    cursor: &mut Cursor<'_>,
    tag: Tag,
    field: &'static str,
    mut take: impl FnMut(f64),
) -> Result<(), DecodeError> {
    let mut end = cursor.at() + 1;
    match tag.wire_type {
        FIXED64 => {}
        BYTES => end = cursor.counted_end()?,
        wire_type => return Err(DecodeError::WrongWireType { wire_type, field }),
    }
    while cursor.at() < end {
        take(f64::from_bits(cursor.fixed64()?));
    }
    Ok(())
}

fn zigzag32(value: u64) -> i32 {
    let value = value as u32;
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

fn zigzag64(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests;
