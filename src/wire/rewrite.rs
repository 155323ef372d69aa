//! A request with some of its series left out or under other labels; all else byte for byte.

use super::cursor::{BYTES, Cursor};
use super::writer::push_counted;
use crate::labels::LabelsBuf;

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
            Edit::WithoutHistograms => {
                let mut rest = Vec::with_capacity(message.len());
                push_other_fields(&mut rest, message, 4);
                push_counted(&mut kept, 1, &rest);
            }
            Edit::Relabel(labels) => push_counted(&mut kept, 1, &relabelled(message, &labels)),
        }
        series += 1;
    }
    kept
}

/// Appends the field of a series without its native histograms. `field` has been found sound.
pub fn push_without_histograms(out: &mut Vec<u8>, field: &[u8]) {
    let mut cursor = Cursor::new(field);
    if let Ok(Some(_)) = cursor.tag("TimeSeries")
        && let Ok(message) = cursor.counted()
    {
        let mut rest = Vec::with_capacity(message.len());
        push_other_fields(&mut rest, message, 4);
        push_counted(out, 1, &rest);
    }
}

/// Where each series and each metadata of a request lies: its field's number, and `start..end`
/// with tag and length. `body` has been read and found sound.
pub fn places(body: &[u8]) -> impl Iterator<Item = (i32, u32, u32)> + '_ {
    let mut cursor = Cursor::new(body);
    std::iter::from_fn(move || {
        while let Ok(Some(tag)) = cursor.tag("WriteRequest") {
            cursor.skip(tag).ok()?;
            if matches!(tag.number, 1 | 3) {
                // Fits: a longer body is not read at all.
                return Some((tag.number, tag.start as u32, cursor.at() as u32));
            }
        }
        None
    })
}

/// A series' message with its labels replaced and put in front.
fn relabelled(message: &[u8], labels: &LabelsBuf) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len());
    out.extend_from_slice(labels.as_labels().as_bytes());
    push_other_fields(&mut out, message, 1);
    out
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
