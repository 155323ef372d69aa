//! Which names metrics and labels may have, under the two schemes that Prometheus knows.

use serde::{Deserialize, Serialize};

/// What a name may be made of (`-name-validation-scheme`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameScheme {
    /// ASCII letters, digits and `_`, not a digit first; `:` too in a metric's name.
    #[default]
    Legacy,
    /// Anything that is UTF-8.
    Utf8,
}

const LABEL_FIRST: u8 = 1;
const LABEL_NEXT: u8 = 1 << 1;
const METRIC_FIRST: u8 = 1 << 2;
const METRIC_NEXT: u8 = 1 << 3;

/// Where each byte may stand. One load a byte, and no branch that depends on it.
static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < classes.len() {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                LABEL_FIRST | LABEL_NEXT | METRIC_FIRST | METRIC_NEXT
            }
            b'0'..=b'9' => LABEL_NEXT | METRIC_NEXT,
            b':' => METRIC_FIRST | METRIC_NEXT,
            _ => 0,
        };
        byte += 1;
    }
    classes
}

impl NameScheme {
    #[inline]
    pub fn allows_label(self, name: &[u8]) -> bool {
        match self {
            Self::Legacy => is_made_of(name, LABEL_FIRST, LABEL_NEXT),
            Self::Utf8 => is_text(name),
        }
    }

    #[inline]
    pub fn allows_metric(self, name: &[u8]) -> bool {
        match self {
            Self::Legacy => is_made_of(name, METRIC_FIRST, METRIC_NEXT),
            Self::Utf8 => is_text(name),
        }
    }
}

#[inline]
fn is_made_of(name: &[u8], first: u8, next: u8) -> bool {
    let Some((&head, rest)) = name.split_first() else {
        return false;
    };
    let all = rest.iter().fold(next, |all, &byte| all & CLASSES[usize::from(byte)]);
    CLASSES[usize::from(head)] & first != 0 && all != 0
}

#[inline]
fn is_text(name: &[u8]) -> bool {
    let is_ascii = name.iter().fold(0, |all, &byte| all | byte) < 0x80;
    !name.is_empty() && (is_ascii || std::str::from_utf8(name).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_scheme() {
        let check = |name: &[u8], legacy_label, legacy_metric, utf8| {
            assert_eq!(NameScheme::Legacy.allows_label(name), legacy_label, "{name:?}");
            assert_eq!(NameScheme::Legacy.allows_metric(name), legacy_metric, "{name:?}");
            assert_eq!(NameScheme::Utf8.allows_label(name), utf8, "{name:?}");
            assert_eq!(NameScheme::Utf8.allows_metric(name), utf8, "{name:?}");
        };
        check(b"", false, false, false);
        check(b"a", true, true, true);
        check(b"_", true, true, true);
        check(b"Zz_09", true, true, true);
        check(b":", false, true, true);
        check(b"a:b", false, true, true);
        check(b"0a", false, false, true);
        check(b"a-b", false, false, true);
        check(b"a b", false, false, true);
        check("é".as_bytes(), false, false, true);
        check(b"a\xff", false, false, false);
        check(b"\xed\xa0\x80", false, false, false);
    }
}
