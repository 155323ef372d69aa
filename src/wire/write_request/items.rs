//! What a series and a request carry, each read from its own message.
//!
//! The pull reader has checked these messages when it hands out places of them, so iterators
//! here end where they would otherwise have to report an error.

use crate::wire::cursor::{BYTES, Cursor, DecodeError, FIXED64, VARINT};
use crate::wire::histogram::{self, Histogram};

/// Contents of the counted fields of one number in a message that has been checked.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    pub cursor: Cursor<'a>,
    pub number: i32,
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        // An error would have ended the request when it was read, so here it only ends.
        while let Ok(Some(tag)) = self.cursor.tag("") {
            if tag.number == self.number {
                return self.cursor.counted().ok();
            }
            self.cursor.skip(tag).ok()?;
        }
        None
    }
}

/// Labels of a series or an exemplar as received: in their order, empty values included.
#[derive(Clone, Debug)]
pub struct RawLabels<'a>(Fields<'a>);

impl<'a> RawLabels<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(Fields { cursor: Cursor::new(message), number: 1 })
    }
}

impl<'a> Iterator for RawLabels<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        read_label(self.0.next()?).ok()
    }
}

/// One float sample. The value is compared and kept by its bits: a staleness marker is a NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub value: f64,
    pub timestamp_ms: i64,
    pub start_timestamp_ms: i64,
}

impl Sample {
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        // What nearly every sender writes: value, then time, and nothing else.
        if let [0x09, a, b, c, d, e, f, g, h, 0x10, time @ ..] = bytes
            && let Some(timestamp_ms) = whole_varint(time)
        {
            let value = f64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
            return Ok(Self { value, timestamp_ms, start_timestamp_ms: 0 });
        }
        let mut sample = Self::default();
        let mut cursor = Cursor::new(bytes);
        while let Some(tag) = cursor.tag("Sample")? {
            match tag.number {
                1 => {
                    tag.expect(FIXED64, "Value")?;
                    sample.value = f64::from_bits(cursor.fixed64()?);
                }
                2 => {
                    tag.expect(VARINT, "TimestampMs")?;
                    sample.timestamp_ms = cursor.varint()? as i64;
                }
                3 => {
                    tag.expect(VARINT, "StartTimestampMs")?;
                    sample.start_timestamp_ms = cursor.varint()? as i64;
                }
                _ => cursor.skip(tag)?,
            }
        }
        Ok(sample)
    }
}

/// One exemplar, and the bytes that it came as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar<'a> {
    pub bytes: &'a [u8],
    pub value: f64,
    pub timestamp_ms: i64,
}

impl<'a> Exemplar<'a> {
    pub fn labels(&self) -> RawLabels<'a> {
        RawLabels::new(self.bytes)
    }

    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut exemplar = Self { bytes, value: 0.0, timestamp_ms: 0 };
        let mut cursor = Cursor::new(bytes);
        while let Some(tag) = cursor.tag("Exemplar")? {
            match tag.number {
                1 => {
                    tag.expect(BYTES, "Labels")?;
                    read_label(cursor.counted()?)?;
                }
                2 => {
                    tag.expect(FIXED64, "Value")?;
                    exemplar.value = f64::from_bits(cursor.fixed64()?);
                }
                3 => {
                    tag.expect(VARINT, "TimestampMs")?;
                    exemplar.timestamp_ms = cursor.varint()? as i64;
                }
                _ => cursor.skip(tag)?,
            }
        }
        Ok(exemplar)
    }
}

/// A native histogram of a request that has been checked, as the bytes that it came as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawHistogram<'a>(pub(super) &'a [u8]);

impl<'a> RawHistogram<'a> {
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn timestamp_ms(self) -> i64 {
        histogram::check(self.0).unwrap_or_default()
    }

    /// Whether its buckets have bounds of their own.
    pub fn has_custom_buckets(self) -> bool {
        histogram::schema(self.0) == histogram::SCHEMA_CUSTOM_BOUNDS
    }

    pub fn decode(self) -> Result<Histogram, DecodeError> {
        Histogram::decode(self.0)
    }
}

/// What a request says of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// Enum number; those that Cortex does not know are kept.
    pub kind: i32,
    pub metric_family_name: &'a [u8],
    pub help: &'a [u8],
    pub unit: &'a [u8],
}

impl<'a> Metadata<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut metadata = Self::default();
        let mut cursor = Cursor::new(bytes);
        while let Some(tag) = cursor.tag("MetricMetadata")? {
            let (text, field) = match tag.number {
                1 => {
                    tag.expect(VARINT, "Type")?;
                    metadata.kind = cursor.varint()? as i32;
                    continue;
                }
                2 => (&mut metadata.metric_family_name, "MetricFamilyName"),
                4 => (&mut metadata.help, "Help"),
                5 => (&mut metadata.unit, "Unit"),
                _ => {
                    cursor.skip(tag)?;
                    continue;
                }
            };
            tag.expect(BYTES, field)?;
            *text = cursor.counted()?;
        }
        Ok(metadata)
    }
}

/// Name and value of a label message; of a field that comes twice the last counts.
pub(in crate::wire) fn read_label(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let (mut name, mut value) = (&[][..], &[][..]);
    let mut cursor = Cursor::new(bytes);
    while let Some(tag) = cursor.tag("LabelPair")? {
        match tag.number {
            1 => {
                tag.expect(BYTES, "Name")?;
                name = cursor.counted()?;
            }
            2 => {
                tag.expect(BYTES, "Value")?;
                value = cursor.counted()?;
            }
            _ => cursor.skip(tag)?,
        }
    }
    Ok((name, value))
}

/// The varint that fills `bytes` to the last; short enough to need no check of its width.
#[inline]
fn whole_varint(bytes: &[u8]) -> Option<i64> {
    if !(1..=9).contains(&bytes.len()) {
        return None;
    }
    let mut v = 0u64;
    let last = bytes.len() - 1;
    for (i, &b) in bytes.iter().enumerate() {
        if (b < 0x80) != (i == last) {
            return None;
        }
        v |= u64::from(b & 0x7f) << (7 * i);
    }
    Some(v as i64)
}
