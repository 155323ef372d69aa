//! The fields of a histogram message, value by value, and their way back.

use super::{Count, HISTOGRAM_BYTES_MAX, Histogram, Side, Span};
use crate::wire::cursor::{BYTES, Cursor, DecodeError, FIXED64, Tag, VARINT};
use crate::wire::writer::{push_counted, push_double, push_integer, push_varint};

/// One value of a histogram; of a repeated field, one element.
pub(super) enum Field {
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

pub(super) fn read_fields(bytes: &[u8], mut take: impl FnMut(Field)) -> Result<(), DecodeError> {
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

impl Histogram {
    /// The message in its shortest form. Negative zeros are kept.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_count(&mut out, self.count, CountFields { int: 1, float: 2 });
        push_double(&mut out, 3, self.sum);
        push_integer(&mut out, 4, zigzag(self.schema.into()) as i64);
        push_double(&mut out, 5, self.zero_threshold);
        push_count(&mut out, self.zero_count, CountFields { int: 6, float: 7 });
        push_spans(&mut out, 8, &self.negative_spans);
        push_deltas(&mut out, 9, &self.negative_deltas);
        push_doubles(&mut out, 10, &self.negative_counts);
        push_spans(&mut out, 11, &self.positive_spans);
        push_deltas(&mut out, 12, &self.positive_deltas);
        push_doubles(&mut out, 13, &self.positive_counts);
        push_integer(&mut out, 14, self.reset_hint.into());
        push_integer(&mut out, 15, self.timestamp_ms);
        push_doubles(&mut out, 16, &self.custom_values);
        push_integer(&mut out, 17, self.start_timestamp_ms);
        out
    }
}

/// Numbers of the two fields that a count can be.
struct CountFields {
    int: u64,
    float: u64,
}

/// Which of the two is there says something, so a zero is written too.
fn push_count(out: &mut Vec<u8>, count: Option<Count>, fields: CountFields) {
    match count {
        Some(Count::Int(count)) => {
            push_varint(out, fields.int << 3);
            push_varint(out, count);
        }
        Some(Count::Float(count)) => {
            push_varint(out, fields.float << 3 | u64::from(FIXED64));
            out.extend_from_slice(&count.to_bits().to_le_bytes());
        }
        None => {}
    }
}

fn push_spans(out: &mut Vec<u8>, number: u64, spans: &[Span]) {
    let mut message = Vec::new();
    for span in spans {
        message.clear();
        push_integer(&mut message, 1, zigzag(span.offset.into()) as i64);
        push_integer(&mut message, 2, span.length.into());
        push_counted(out, number, &message);
    }
}

fn push_deltas(out: &mut Vec<u8>, number: u64, deltas: &[i64]) {
    if !deltas.is_empty() {
        let mut packed = Vec::with_capacity(deltas.len());
        deltas.iter().for_each(|delta| push_varint(&mut packed, zigzag(*delta)));
        push_counted(out, number, &packed);
    }
}

fn push_doubles(out: &mut Vec<u8>, number: u64, values: &[f64]) {
    if !values.is_empty() {
        let packed: Vec<u8> = values.iter().flat_map(|v| v.to_bits().to_le_bytes()).collect();
        push_counted(out, number, &packed);
    }
}

/// Signed to unsigned, small either way stays small.
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}
