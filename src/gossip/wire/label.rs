//! The name of a cluster, ahead of everything it sends, so that two clusters do not become one.

use super::kind;

/// The length stands in one byte.
pub const LABEL_BYTES_MAX: usize = 255;

/// A cluster's label; the empty one is none, and is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label(String);

/// Which labels of others are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRule {
    pub label: Label,
    /// Off while a cluster is given a new label: then any will do.
    pub is_verified: bool,
}

/// Why a label cannot be used, or is not that of our cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    #[error("a cluster label has at most {LABEL_BYTES_MAX} bytes; this one has {bytes}")]
    TooLong { bytes: usize },
    #[error("the label is cut off")]
    CutOff,
    #[error("the label's header holds none")]
    Empty,
    /// What a stranger calls its cluster is nothing for a log: it may be anything.
    #[error("it is of another cluster by its label")]
    Stranger,
}

impl Label {
    pub fn new(text: impl Into<String>) -> Result<Self, LabelError> {
        let text = text.into();
        if text.len() <= LABEL_BYTES_MAX {
            Ok(Self(text))
        } else {
            Err(LabelError::TooLong { bytes: text.len() })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Bytes of the header.
    pub fn overhead(&self) -> usize {
        if self.0.is_empty() { 0 } else { 2 + self.0.len() }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if !self.0.is_empty() {
            let length = u8::try_from(self.0.len()).expect("the constructor bounds it");
            out.extend([kind::LABEL, length]);
            out.extend(self.0.as_bytes());
        }
    }
}

impl LabelRule {
    /// Bytes of the header that `bytes` open with, when its label is taken; `None` when more are
    /// needed to tell.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<Option<usize>, LabelError> {
        let (given, header) = match bytes {
            [] => return Ok(None),
            [kind::LABEL] => return Ok(None),
            [kind::LABEL, 0, ..] => return Err(LabelError::Empty),
            [kind::LABEL, length, rest @ ..] => {
                let Some(given) = rest.get(..usize::from(*length)) else { return Ok(None) };
                (given, 2 + given.len())
            }
            _ => (&[][..], 0),
        };
        if self.is_verified && given != self.label.0.as_bytes() {
            return Err(LabelError::Stranger);
        }
        Ok(Some(header))
    }
}
