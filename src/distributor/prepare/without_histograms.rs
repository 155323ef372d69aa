//! A prepared request whose native histograms have to go, for the limiter of their rate.

use std::borrow::Cow;

use crate::wire::rewrite::{content_of, push_series_without_histograms};

use super::super::prepared::{Counts, HistogramRule, Item, ItemKind, Prepared};

/// Leaves the histograms out. A series that has no sample left goes with its exemplars, since
/// these are about the histograms; what else a series carries goes on, if the rule lets it.
pub fn without_histograms(prepared: Prepared<'_>, rule: HistogramRule) -> Prepared<'_> {
    if prepared.counts.histograms == 0 {
        return prepared;
    }
    let body = &prepared.body[..];
    let mut out = Vec::with_capacity(body.len());
    let mut items = Vec::with_capacity(prepared.items.len());
    let mut counts = Counts { histograms: 0, ..prepared.counts };
    let mut taken = 0;
    for item in &prepared.items {
        // Fields that are no item stay where they are.
        out.extend_from_slice(part(body, taken, item.start));
        taken = item.end;
        let field = part(body, item.start, item.end);
        let start = out.len() as u32;
        let kind = match item.kind {
            ItemKind::Series { samples, histograms, exemplars } if histograms > 0 => {
                if samples == 0 || rule == HistogramRule::WholeSeries {
                    counts.samples -= u64::from(samples);
                    counts.exemplars -= u64::from(exemplars);
                    continue;
                }
                push_series_without_histograms(&mut out, content_of(field));
                ItemKind::Series { samples, histograms: 0, exemplars }
            }
            kind => {
                out.extend_from_slice(field);
                kind
            }
        };
        items.push(Item { key: item.key, start, end: out.len() as u32, kind });
    }
    out.extend_from_slice(part(body, taken, u32::MAX));
    Prepared { body: Cow::Owned(out), items, counts, ..prepared }
}

/// The bytes from `start` to `end`, or to the end of the body if that comes first.
fn part(body: &[u8], start: u32, end: u32) -> &[u8] {
    let end = (end as usize).min(body.len());
    body.get(start as usize..end).unwrap_or_default()
}
