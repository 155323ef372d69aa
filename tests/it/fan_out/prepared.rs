//! Requests as validation hands them on. Included by path from a bench too.
#![allow(dead_code, reason = "each user has its part")]

use std::borrow::Cow;

use freehold::distributor::{Counts, Discarded, Item, ItemKind, Prepared};
use freehold::labels::{LabelsBuf, ring_key};
use freehold::wire::write_request::WriteRequest;

/// All series of a request, each under the key of all its labels.
pub fn prepared<'a>(tenant: &str, body: &'a [u8]) -> Prepared<'a> {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena).expect("small");
    let mut items = Vec::new();
    let mut counts = Counts::default();
    let mut start = 0;
    while let Some(series) = request.next_series().expect("sound") {
        let message = series.message(body);
        // Series come one after the other from the first byte.
        let end = (message.as_ptr() as usize + message.len() - body.as_ptr() as usize) as u32;
        let labels = LabelsBuf::from_pairs(series.raw_labels(body));
        items.push(Item {
            key: ring_key(tenant, labels.as_labels()),
            start,
            end,
            kind: ItemKind::Series {
                samples: series.sample_count,
                histograms: series.histogram_count,
                exemplars: series.exemplar_count,
            },
        });
        counts.samples += u64::from(series.sample_count);
        start = end;
    }
    Prepared {
        body: Cow::Borrowed(body),
        items,
        counts,
        source: 0,
        discard_out_of_order: false,
        failure: None,
        discarded: Discarded::default(),
    }
}
