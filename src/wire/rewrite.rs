//! A request with some of its series left out or under other labels; all else byte for byte.

use super::cursor::{BYTES, Cursor};
use super::writer::push_varint;
use crate::labels::{Labels, LabelsBuf};

/// What becomes of one series.
pub enum Edit {
    Keep,
    Drop,
    WithoutHistograms,
    Relabel(LabelsBuf),
}

/// Applies `edit` to each series by its number. `body` has been read and found sound; a part of
/// it that is not is left out with all that follows.
pub fn rewrite(body: &[u8], mut edit: impl FnMut(usize) -> Edit) -> Vec<u8> {
    let mut kept = Vec::with_capacity(body.len());
    let mut cursor = Cursor::new(body);
    let mut series = 0;
    while let Ok(Some(tag)) = cursor.tag("WriteRequest") {
        if tag.number != 1 || tag.wire_type != BYTES {
            if cursor.skip(tag).is_err() {
                break;
            }
            kept.extend_from_slice(cursor.since(tag.start));
            continue;
        }
        let Ok(message) = cursor.counted() else {
            break;
        };
        match edit(series) {
            Edit::Keep => kept.extend_from_slice(cursor.since(tag.start)),
            Edit::Drop => {}
            Edit::WithoutHistograms => push_series_without_histograms(&mut kept, message),
            Edit::Relabel(labels) => {
                push_series(&mut kept, message, Some(labels.as_labels()), &[]);
            }
        }
        series += 1;
    }
    kept
}

/// Appends a series, as a field of a request, with other labels and with some of its histograms
/// replaced. Those come with their numbers among the series' histograms, in order.
pub fn push_series(
    out: &mut Vec<u8>,
    message: &[u8],
    labels: Option<Labels<'_>>,
    histograms: &[(u32, Vec<u8>)],
) {
    push_in_front(out, 1, |out| {
        if let Some(labels) = labels {
            out.extend_from_slice(labels.as_bytes());
        }
        let mut replaced = histograms.iter().peekable();
        let mut number = 0;
        let mut cursor = Cursor::new(message);
        while let Ok(Some(tag)) = cursor.tag("") {
            if cursor.skip(tag).is_err() {
                break;
            }
            match tag.number {
                1 if labels.is_some() => continue,
                4 => {
                    let replacement = replaced.next_if(|(replaced, _)| *replaced == number);
                    number += 1;
                    if let Some((_, histogram)) = replacement {
                        push_in_front(out, 4, |out| out.extend_from_slice(histogram));
                        continue;
                    }
                }
                _ => {}
            }
            out.extend_from_slice(cursor.since(tag.start));
        }
    });
}

/// Appends a series, as a field of a request, that has lost its histograms.
pub fn push_series_without_histograms(out: &mut Vec<u8>, message: &[u8]) {
    push_in_front(out, 1, |out| push_other_fields(out, message, 4));
}

/// The content of a field that has been read and found sound.
pub fn content_of(field: &[u8]) -> &[u8] {
    let mut cursor = Cursor::new(field);
    match cursor.tag("") {
        Ok(Some(_)) => cursor.counted().unwrap_or_default(),
        _ => &[],
    }
}

/// Appends a counted field whose length shows only once its content is there: the head is
/// written behind it and turned to the front, which needs no second buffer.
fn push_in_front(out: &mut Vec<u8>, number: u64, content: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    content(out);
    let end = out.len();
    push_varint(out, number << 3 | u64::from(BYTES));
    push_varint(out, (end - start) as u64);
    let head_len = out.len() - end;
    out[start..].rotate_right(head_len);
}

/// Appends all fields of a message but those of one number, as they are.
pub(super) fn push_other_fields(out: &mut Vec<u8>, message: &[u8], number: i32) {
    let mut cursor = Cursor::new(message);
    while let Ok(Some(tag)) = cursor.tag("") {
        if cursor.skip(tag).is_err() {
            break;
        }
        if tag.number != number {
            out.extend_from_slice(cursor.since(tag.start));
        }
    }
}
