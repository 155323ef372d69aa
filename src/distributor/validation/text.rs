//! Series and names as validation's answers show them: Go's words and cuts.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::labels::{METRIC_NAME, write_quoted};

/// Longest quoted text of an answer, in characters: Cortex's `%.200q`.
const SHOWN_CHARS_MAX: usize = 200;
/// Bytes that as many characters take at most; what lies behind them is never shown.
const SHOWN_BYTES_MAX: usize = SHOWN_CHARS_MAX * 4;

/// Most labels that the answer to too many labels lists. Cortex lists all of them; a body of
/// 100 MiB has room for twenty million, and each costs an allocation here.
const LABELS_LISTED_MAX: usize = 10_000;

/// Bytes as Go's `%.200q` shows them. A byte that is no UTF-8 counts as a character.
pub(super) struct Shown<T>(pub T);

impl<T: AsRef<[u8]>> fmt::Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quoted(f, first_chars(self.0.as_ref(), SHOWN_CHARS_MAX))
    }
}

struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quoted(f, self.0)
    }
}

/// Number of characters as Go counts them: each byte that is no UTF-8 is one.
pub(super) fn chars(bytes: &[u8]) -> usize {
    bytes.utf8_chunks().map(|part| part.valid().chars().count() + part.invalid().len()).sum()
}

fn first_chars(bytes: &[u8], chars_max: usize) -> &[u8] {
    if bytes.len() <= chars_max {
        return bytes;
    }
    let mut left = chars_max;
    let mut end = 0;
    for part in bytes.utf8_chunks() {
        if let Some((at, _)) = part.valid().char_indices().nth(left) {
            return &bytes[..end + at];
        }
        left -= part.valid().chars().count();
        let invalid = part.invalid().len().min(left);
        end += part.valid().len() + invalid;
        left -= invalid;
        if invalid < part.invalid().len() {
            break;
        }
    }
    &bytes[..end]
}

/// A series as most answers name it: the metric, then its other labels in their order. Cut where
/// [`Shown`] shows nothing any more. A name that is no UTF-8 stays what it is until it is quoted.
pub(super) fn series_text<'l>(
    labels: impl Iterator<Item = (&'l [u8], &'l [u8])> + Clone,
) -> Vec<u8> {
    let is_metric = |(name, value): (&[u8], &[u8])| name == METRIC_NAME && !value.is_empty();
    let metric_at = labels.clone().position(is_metric);
    let metric = metric_at.and_then(|at| labels.clone().nth(at)).map(|(_, value)| value);
    let mut text = metric.map(|metric| first_bytes(metric).to_vec()).unwrap_or_default();
    let mut separator: &[u8] = b"{";
    for (at, (name, value)) in labels.enumerate() {
        if Some(at) == metric_at {
            continue;
        }
        if text.len() > SHOWN_BYTES_MAX {
            break;
        }
        text.extend_from_slice(separator);
        push_label(&mut text, first_bytes(name), first_chars(value, SHOWN_CHARS_MAX));
        separator = b", ";
    }
    match (separator, metric) {
        (b"{", Some(_)) => {}
        (b"{", None) => text.extend_from_slice(b"{}"),
        _ => text.push(b'}'),
    }
    text
}

/// A series as the answer to too many labels names it: a set of labels, ordered by their texts.
pub(super) fn metric_text<'l>(labels: impl Iterator<Item = (&'l [u8], &'l [u8])>) -> String {
    let mut labels: BTreeMap<&[u8], &[u8]> = labels.take(LABELS_LISTED_MAX).collect();
    let metric = labels.remove(METRIC_NAME);
    let mut others: Vec<Vec<u8>> = labels
        .into_iter()
        .map(|(name, value)| {
            let mut text = Vec::new();
            push_label(&mut text, name, value);
            text
        })
        .collect();
    others.sort_unstable();
    let mut text = metric.unwrap_or_default().to_vec();
    if !others.is_empty() || metric.is_none() {
        text.push(b'{');
        text.extend_from_slice(&others.join(&b", "[..]));
        text.push(b'}');
    }
    readable(&text)
}

/// `name="value"`, the value quoted.
fn push_label(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut quoted = String::new();
    // Writing to a string cannot fail.
    let _ = write!(quoted, "={}", Quoted(value));
    text.extend_from_slice(name);
    text.extend_from_slice(quoted.as_bytes());
}

fn first_bytes(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(SHOWN_BYTES_MAX)]
}

/// An answer is a text: each byte that is no UTF-8 becomes a replacement character, as where
/// Go's JSON shows it.
fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        text.push_str(part.valid());
        text.extend(part.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hundred_characters_are_shown() {
        let check = |bytes: &[u8], expect: usize| {
            assert_eq!(first_chars(bytes, 200), &bytes[..expect], "{bytes:?}");
        };
        check(b"", 0);
        check(&[b'a'; 200], 200);
        check(&[b'a'; 201], 200);
        check("é".repeat(200).as_bytes(), 400);
        check("é".repeat(201).as_bytes(), 400);
        check(&[0xff; 300], 200);
        let mixed = [&[b'a'; 199][..], &[0xe2, 0x82], "é".as_bytes()].concat();
        check(&mixed, 200);
        let mixed = [&[0xff; 150][..], "é".repeat(60).as_bytes()].concat();
        check(&mixed, 250);
    }

    #[test]
    fn characters_are_counted_as_go_counts_them() {
        let check = |bytes: &[u8], expect| assert_eq!(chars(bytes), expect, "{bytes:?}");
        check(b"abc", 3);
        check("é😀".as_bytes(), 2);
        check(&[0xe2, 0x82, b'a', 0xff], 4);
    }

    type Pair = (&'static str, &'static str);

    fn pairs(labels: &[Pair]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        labels.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
    }

    #[test]
    fn series_are_named_in_their_order() {
        let check = |labels: &[Pair], expect: &str| {
            assert_eq!(series_text(pairs(labels)), expect.as_bytes());
        };
        check(&[], "{}");
        check(&[("__name__", "up")], "up");
        check(&[("__name__", "")], "{__name__=\"\"}");
        check(&[("b", "2"), ("__name__", "up"), ("a", "\n")], "up{b=\"2\", a=\"\\n\"}");
        check(&[("__name__", "x"), ("__name__", "y")], "x{__name__=\"y\"}");
    }

    #[test]
    fn metrics_are_sets_ordered_by_text() {
        let check = |labels: &[Pair], expect: &str| assert_eq!(metric_text(pairs(labels)), expect);
        check(&[], "{}");
        check(&[("__name__", "up")], "up");
        check(&[("b", "2"), ("__name__", "up"), ("a", "1")], "up{a=\"1\", b=\"2\"}");
        // `1` stands before `=`.
        check(&[("a", "1"), ("a1", "2"), ("a", "3")], "{a1=\"2\", a=\"3\"}");
    }

    #[test]
    fn endless_series_have_short_texts() {
        let labels = vec![("name", "value"); 1_000_000];
        assert!(series_text(pairs(&labels)).len() < 2 * SHOWN_BYTES_MAX);
    }
}
