//! A request as it leaves validation: what goes on, where it lies, and what was left out.
//!
//! Items are places in one body, so whoever sends a part of them copies ranges and decodes
//! nothing again.

use std::borrow::Cow;

use crate::keys::RingKey;
use crate::wire::rewrite::push_without_histograms;

/// What preparation made of one write request.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The received `cortexpb.WriteRequest`, or what is left of it once something was changed or
    /// dropped.
    pub body: Cow<'a, [u8]>,
    /// Series and metadata that go on, in the order of the body.
    pub items: Vec<Item>,
    pub counts: Counts,
    /// Enum number: 0 API, 1 RULE; others are kept.
    pub source: i32,
    pub discard_out_of_order: bool,
    /// Why the first item that was left out was; the others go on.
    pub failure: Option<String>,
    pub discarded: Discarded,
}

/// One series or metadata of a prepared body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Where the ring puts it.
    pub key: RingKey,
    /// Its field of the body, tag and length included: `start..end`.
    pub start: u32,
    pub end: u32,
    pub kind: ItemKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    Series { samples: u32, histograms: u32, exemplars: u32 },
    Metadata,
}

/// How much goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub samples: u64,
    pub histograms: u64,
    pub exemplars: u64,
    pub metadata: u64,
}

/// How much was left out, by kind and reason; the reasons are the few of validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    pub samples: Vec<(&'static str, u64)>,
    pub exemplars: Vec<(&'static str, u64)>,
    pub metadata: Vec<(&'static str, u64)>,
    /// Native histograms whose resolution was reduced; they are kept.
    pub reduced_resolution: u64,
}

impl Counts {
    /// What a tenant's rate is charged.
    pub fn total(&self) -> u64 {
        self.samples + self.histograms + self.exemplars + self.metadata
    }
}

/// Which part of a series goes when native histograms are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistogramRule {
    /// The histograms; float samples of the same series go on.
    HistogramsOnly,
    /// Every series that has any, whole: Cortex's.
    WholeSeries,
}

impl Prepared<'_> {
    /// Nothing is left to be sent.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Something was left out, so that what goes on is not what was received.
    pub fn has_losses(&self) -> bool {
        self.failure.is_some() || self.discarded != Discarded::default()
    }

    /// Leaves the native histograms out; returns how many items of the request are gone,
    /// exemplars of histograms included.
    pub fn drop_histograms(&mut self, rule: HistogramRule) -> u64 {
        let mut body = Vec::with_capacity(self.body.len());
        let mut items = Vec::with_capacity(self.items.len());
        let (mut at, mut gone) = (0, 0);
        for item in &self.items {
            let (start, end) = (item.start as usize, item.end as usize);
            // What stands between two items belongs to the request as a whole.
            body.extend_from_slice(&self.body[at..start]);
            at = end;
            // Fits: what is left is not longer than what was received.
            let kept_start = body.len() as u32;
            let kind = match item.kind {
                ItemKind::Series { samples, histograms, exemplars } if histograms > 0 => {
                    gone += u64::from(histograms);
                    if samples == 0 || rule == HistogramRule::WholeSeries {
                        gone += u64::from(exemplars);
                        self.counts.exemplars -= u64::from(exemplars);
                        self.counts.samples -= u64::from(samples);
                        continue;
                    }
                    push_without_histograms(&mut body, &self.body[start..end]);
                    ItemKind::Series { samples, histograms: 0, exemplars }
                }
                kind => {
                    body.extend_from_slice(&self.body[start..end]);
                    kind
                }
            };
            items.push(Item { start: kept_start, end: body.len() as u32, kind, ..*item });
        }
        body.extend_from_slice(&self.body[at..]);
        self.body = Cow::Owned(body);
        self.items = items;
        self.counts.histograms = 0;
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::write_request::check;

    /// A series: one byte of label name and value each, then so many samples and histograms.
    fn series(label: u8, samples: u32, histograms: u32) -> (Vec<u8>, ItemKind) {
        let mut message = vec![0x0a, 6, 0x0a, 1, label, 0x12, 1, label];
        for _ in 0..samples {
            message.extend([0x12, 2, 0x10, 5]);
        }
        for _ in 0..histograms {
            message.extend([0x22, 2, 0x78, 5]);
        }
        let mut field = vec![0x0a, message.len() as u8];
        field.extend(message);
        (field, ItemKind::Series { samples, histograms, exemplars: 0 })
    }

    fn prepared(fields: &[(Vec<u8>, ItemKind)], gap: &[u8]) -> Prepared<'static> {
        let (mut body, mut items, mut counts) = (gap.to_vec(), Vec::new(), Counts::default());
        for (field, kind) in fields {
            let start = body.len() as u32;
            body.extend(field);
            items.push(Item { key: RingKey(7), start, end: body.len() as u32, kind: *kind });
            body.extend(gap);
            if let ItemKind::Series { samples, histograms, .. } = kind {
                counts.samples += u64::from(*samples);
                counts.histograms += u64::from(*histograms);
            }
        }
        Prepared {
            body: body.into(),
            items,
            counts,
            source: 0,
            discard_out_of_order: false,
            failure: None,
            discarded: Discarded::default(),
        }
    }

    #[test]
    fn case_c15_only_histograms_go_and_all_else_stays_byte_for_byte() {
        let source_rule = [0x10, 1];
        let fields = [series(b'a', 1, 0), series(b'b', 0, 2), series(b'c', 1, 1)];
        let mut request = prepared(&fields, &source_rule);
        assert_eq!(check(&request.body).expect("sound").histograms, 3);
        assert_eq!(request.drop_histograms(HistogramRule::HistogramsOnly), 3);
        let summary = check(&request.body).expect("still sound");
        assert_eq!((summary.series, summary.samples, summary.histograms), (2, 2, 0));
        assert_eq!(summary.source, 1);
        assert_eq!((request.counts.samples, request.counts.histograms), (2, 0));
        let place = request.items[1];
        let kept = &request.body[place.start as usize..place.end as usize];
        assert_eq!(kept, series(b'c', 1, 0).0);
    }

    #[test]
    fn cortex_leaves_out_the_series_whole() {
        let mut request = prepared(&[series(b'a', 1, 0), series(b'c', 1, 1)], &[]);
        request.drop_histograms(HistogramRule::WholeSeries);
        assert_eq!(request.body, series(b'a', 1, 0).0);
        assert_eq!(request.items.len(), 1);
    }
}
