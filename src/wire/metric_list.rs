//! `cortex.MetricsForLabelMatchersStreamResponse`: label sets, read from borrowed bytes.
//!
//! An ingester that holds a million series sends them in some ten thousand of these messages, so
//! nothing is allocated for a label set: it is a slice of the message when it is canonical there,
//! as nearly always, and is rewritten into the reader's scratch when not.
//!
//! Invariant: all legal encodings of one label list give the same [`Labels`].

use super::cursor::{BYTES, Cursor, DecodeError};
use super::write_request::read_label;
use crate::labels::{Labels, LabelsBuf};

/// A pull reader of one message: [`next`](Self::next) until it gives `None`.
#[derive(Debug)]
pub struct MetricList<'a, 'scratch> {
    cursor: Cursor<'a>,
    scratch: &'scratch mut LabelsBuf,
}

impl<'a, 'scratch> MetricList<'a, 'scratch> {
    /// Starts to read `message`; only the memory of `scratch` is used.
    pub fn new(message: &'a [u8], scratch: &'scratch mut LabelsBuf) -> Self {
        Self { cursor: Cursor::new(message), scratch }
    }

    /// The next label set. After an error the rest of the message is lost.
    #[expect(clippy::should_implement_trait, reason = "an item may borrow the scratch")]
    pub fn next(&mut self) -> Result<Option<Labels<'_>>, DecodeError> {
        while let Some(tag) = self.cursor.tag("MetricsForLabelMatchersStreamResponse")? {
            if tag.number != 1 {
                self.cursor.skip(tag)?;
                continue;
            }
            tag.expect(BYTES, "Metric")?;
            let metric = self.cursor.counted()?;
            return match Labels::parse(metric) {
                Some(labels) => Ok(Some(labels)),
                None => rewrite(metric, self.scratch).map(Some),
            };
        }
        Ok(None)
    }
}

#[inline(never)]
fn rewrite<'s>(metric: &[u8], scratch: &'s mut LabelsBuf) -> Result<Labels<'s>, DecodeError> {
    scratch.clear();
    let mut cursor = Cursor::new(metric);
    while let Some(tag) = cursor.tag("Metric")? {
        if tag.number != 1 {
            cursor.skip(tag)?;
            continue;
        }
        tag.expect(BYTES, "Labels")?;
        let (name, value) = read_label(cursor.counted()?)?;
        scratch.push(name, value);
    }
    Ok(scratch.as_labels())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::wire::proto::{cortex, cortexpb};

    fn message(sets: &[Vec<(Vec<u8>, Vec<u8>)>]) -> Vec<u8> {
        let metric = sets
            .iter()
            .map(|set| cortexpb::Metric {
                labels: set
                    .iter()
                    .map(|(name, value)| cortexpb::LabelPair {
                        name: name.clone(),
                        value: value.clone(),
                    })
                    .collect(),
            })
            .collect();
        cortex::MetricsForLabelMatchersStreamResponse { metric }.encode_to_vec()
    }

    fn read(message: &[u8]) -> Result<Vec<Vec<u8>>, DecodeError> {
        let mut scratch = LabelsBuf::new();
        let mut list = MetricList::new(message, &mut scratch);
        let mut sets = Vec::new();
        while let Some(labels) = list.next()? {
            sets.push(labels.as_bytes().to_vec());
        }
        Ok(sets)
    }

    proptest! {
        #[test]
        fn every_list_is_read_as_its_sender_meant_it(
            sets in prop::collection::vec(
                prop::collection::vec(
                    (prop::collection::vec(any::<u8>(), 0..9), prop::collection::vec(any::<u8>(), 0..200)),
                    0..5,
                ),
                0..6,
            )
        ) {
            let expected: Vec<_> = sets
                .iter()
                .map(|set| LabelsBuf::from_pairs(set.iter().cloned()).as_labels().as_bytes().to_vec())
                .collect();
            prop_assert_eq!(read(&message(&sets)), Ok(expected));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn another_encoding_of_the_same_labels_is_the_same_label_set() {
        // Value before name, a length with a needless byte, an unknown field between labels.
        let label_turned = [0x0a, 7, 0x12, 1, b'v', 0x0a, 0x82, 0x00, b'n'];
        let mut turned = label_turned.to_vec();
        // The name's length above says two bytes; give it them.
        turned[1] = 8;
        turned.push(b'm');
        turned.extend_from_slice(&[0x78, 1]);
        let mut bytes = vec![0x0a, turned.len() as u8];
        bytes.extend_from_slice(&turned);
        let plain = LabelsBuf::from_pairs([("nm", "v")]);
        assert_eq!(read(&bytes), Ok(vec![plain.as_labels().as_bytes().to_vec()]));
    }

    #[test]
    fn a_cut_message_is_an_error() {
        let bytes = message(&[vec![(b"__name__".to_vec(), b"up".to_vec())]]);
        assert_eq!(read(&bytes[..bytes.len() - 1]), Err(DecodeError::UnexpectedEof));
    }
}
