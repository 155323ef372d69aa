//! Native histograms: decoded, counted, and checked as the TSDB checks them.
//!
//! A stored or forwarded histogram keeps its received bytes; what is decoded here only decides
//! whether it may be stored. One reader of its fields serves the check of a whole request, which
//! keeps nothing, and the decoding.

use super::cursor::DecodeError;

mod fields;
mod reduction;
mod validation;

use fields::{Field, read_fields};
use validation::is_exponential;
pub use validation::{
    BucketCount, HistogramError, SCHEMA_CUSTOM_BOUNDS, SCHEMA_EXPONENTIAL_MAX,
    SCHEMA_EXPONENTIAL_MIN, SpanSide,
};

/// Largest histogram in a request, in bytes of protobuf: Cortex's bound.
///
/// A packed delta of one byte becomes eight in memory, so a decoded histogram stays below
/// 128 KiB.
pub const HISTOGRAM_BYTES_MAX: usize = 16 * 1024;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Positive,
    Negative,
}

impl Histogram {
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut histogram = Self::default();
        histogram.read(bytes)?;
        Ok(histogram)
    }

    /// Decodes another histogram in place of this one; only the memory of the lists stays.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.clear();
        read_fields(bytes, |field| self.set(field))
    }

    fn clear(&mut self) {
        let taken = std::mem::take(self);
        *self = Self {
            negative_spans: emptied(taken.negative_spans),
            negative_deltas: emptied(taken.negative_deltas),
            negative_counts: emptied(taken.negative_counts),
            positive_spans: emptied(taken.positive_spans),
            positive_deltas: emptied(taken.positive_deltas),
            positive_counts: emptied(taken.positive_counts),
            custom_values: emptied(taken.custom_values),
            ..Self::default()
        };
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

    /// Whether its buckets have bounds of their own instead of exponential ones.
    pub fn has_custom_buckets(&self) -> bool {
        self.schema == SCHEMA_CUSTOM_BOUNDS
    }

    /// Whether its schema is one that the TSDB takes.
    pub fn has_known_schema(&self) -> bool {
        self.has_custom_buckets() || is_exponential(self.schema)
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

    fn count_int(&self) -> u64 {
        match self.count {
            Some(Count::Int(count)) => count,
            _ => 0,
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

fn emptied<T>(mut list: Vec<T>) -> Vec<T> {
    list.clear();
    list
}

/// Schema of a histogram that has been checked.
pub(super) fn schema(bytes: &[u8]) -> i32 {
    let mut schema = 0;
    // An error would have ended the request when it was read, so here it only ends.
    let _ = read_fields(bytes, |field| {
        if let Field::Schema(found) = field {
            schema = found;
        }
    });
    schema
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

#[cfg(test)]
mod tests;
