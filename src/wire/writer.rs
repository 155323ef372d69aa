//! Writes protobuf fields. Zero is left out, as protobuf has it; negative zero is a value.

use super::cursor::{BYTES, FIXED64};
use super::write_request::Sample;

/// A write request of one series with one sample, its labels as they are given.
pub fn request_of_one<'a>(
    labels: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    sample: Sample,
) -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        push_counted(&mut label, 1, name);
        push_counted(&mut label, 2, value);
        push_counted(&mut series, 1, &label);
    }
    push_sample(&mut series, sample);
    let mut request = Vec::new();
    push_counted(&mut request, 1, &series);
    request
}

/// Appends a sample as field 2 of a series.
pub(super) fn push_sample(out: &mut Vec<u8>, sample: Sample) {
    let integers = [(2, sample.timestamp_ms), (3, sample.start_timestamp_ms)];
    let mut len = if sample.value.to_bits() == 0 { 0 } else { 9 };
    for (_, value) in integers {
        if value != 0 {
            len += 1 + varint_len(value as u64);
        }
    }
    push_varint(out, 2 << 3 | u64::from(BYTES));
    push_varint(out, len);
    push_double(out, 1, sample.value);
    for (number, value) in integers {
        push_integer(out, number, value);
    }
}

pub(super) fn push_counted(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    push_varint(out, number << 3 | u64::from(BYTES));
    push_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

pub(super) fn push_double(out: &mut Vec<u8>, number: u64, value: f64) {
    if value.to_bits() != 0 {
        push_varint(out, number << 3 | u64::from(FIXED64));
        out.extend_from_slice(&value.to_bits().to_le_bytes());
    }
}

pub(super) fn push_integer(out: &mut Vec<u8>, number: u64, value: i64) {
    if value != 0 {
        push_varint(out, number << 3);
        push_varint(out, value as u64);
    }
}

pub(super) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn varint_len(value: u64) -> u64 {
    u64::from((u64::BITS - (value | 1).leading_zeros()).div_ceil(7))
}
