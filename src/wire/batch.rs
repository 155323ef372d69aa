//! A write request made of some fields of another one, copied as they lie.
//!
//! What goes to one ingester is a part of the series that a distributor received: ranges of one
//! body. They are copied without being read; what a distributor says of the whole is written
//! around them, in the order in which Cortex writes it.

use super::writer::{push_counted, push_integer};

/// What a distributor says of every part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSource {
    /// Enum number: 0 API, 1 RULE.
    pub source: i32,
    pub discard_out_of_order: bool,
}

/// Cortex writes this empty message into each request, and one into each of a stream's messages.
const REQUEST_REF: u64 = 1001;
const STREAM_REF: u64 = 1000;

/// Appends a `cortexpb.WriteRequest`. `series` and `metadata` are ranges of `body`, each a field
/// with its tag; what does not lie in it is left out.
pub fn write_batch(
    out: &mut Vec<u8>,
    body: &[u8],
    series: impl Iterator<Item = (u32, u32)>,
    metadata: impl Iterator<Item = (u32, u32)>,
    source: BatchSource,
) {
    copy(out, body, series);
    push_integer(out, 2, i64::from(source.source));
    copy(out, body, metadata);
    push_counted(out, REQUEST_REF, &[]);
    push_integer(out, 1002, i64::from(source.discard_out_of_order));
}

/// Appends a `cortexpb.StreamWriteRequest` around a write request.
pub fn write_stream_batch(out: &mut Vec<u8>, tenant: &str, request: &[u8]) {
    push_counted(out, 1, tenant.as_bytes());
    push_counted(out, 2, request);
    push_counted(out, STREAM_REF, &[]);
}

/// Neighbours are copied in one go.
fn copy(out: &mut Vec<u8>, body: &[u8], ranges: impl Iterator<Item = (u32, u32)>) {
    let mut ranges = ranges.peekable();
    while let Some((start, mut end)) = ranges.next() {
        while let Some((_, next_end)) = ranges.next_if(|(next, _)| *next == end) {
            end = next_end;
        }
        out.extend_from_slice(body.get(start as usize..end as usize).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::wire::proto::cortexpb;

    fn request() -> (Vec<u8>, Vec<(u32, u32)>) {
        let label = |name: &str, value: &str| cortexpb::LabelPair {
            name: name.to_owned().into(),
            value: value.to_owned().into(),
        };
        let series = |name: &str| cortexpb::TimeSeries {
            labels: vec![label("__name__", name)],
            ..Default::default()
        };
        let metadata =
            cortexpb::MetricMetadata { metric_family_name: b"a".to_vec(), ..Default::default() };
        let whole = cortexpb::WriteRequest {
            timeseries: ["a", "b", "c"].map(series).into(),
            metadata: vec![metadata],
            skip_label_name_validation: true,
            ..Default::default()
        };
        let body = whole.encode_to_vec();
        // Three series of equal length come first, then the metadata.
        let len = (1 + 1 + whole.timeseries[0].encoded_len()) as u32;
        let metadata_len = (1 + 1 + whole.metadata[0].encoded_len()) as u32;
        let ranges =
            vec![(0, len), (len, 2 * len), (2 * len, 3 * len), (3 * len, 3 * len + metadata_len)];
        (body, ranges)
    }

    #[test]
    fn a_part_is_what_cortex_would_write_of_it() {
        let (body, ranges) = request();
        let whole = cortexpb::WriteRequest::decode(&body[..]).expect("sound");
        let check = |series: &[usize], metadata: bool, source: BatchSource| {
            let mut out = Vec::new();
            let chosen = series.iter().map(|at| ranges[*at]);
            let meta = ranges[3..].iter().copied().filter(|_| metadata);
            write_batch(&mut out, &body, chosen, meta, source);
            let expect = cortexpb::WriteRequest {
                timeseries: series.iter().map(|at| whole.timeseries[*at].clone()).collect(),
                metadata: if metadata { whole.metadata.clone() } else { Vec::new() },
                source: source.source,
                discard_out_of_order: source.discard_out_of_order,
                r#ref: Some(cortexpb::MessageWithBufRef {}),
                ..Default::default()
            };
            assert_eq!(out, expect.encode_to_vec());
            let mut streamed = Vec::new();
            write_stream_batch(&mut streamed, "team-a", &out);
            let expect = cortexpb::StreamWriteRequest {
                tenant_id: b"team-a".to_vec(),
                request: Some(expect),
                r#ref: Some(cortexpb::MessageWithBufRef {}),
            };
            assert_eq!(streamed, expect.encode_to_vec());
        };
        check(&[0, 1, 2], true, BatchSource::default());
        check(&[0, 2], false, BatchSource { source: 1, discard_out_of_order: true });
        check(&[1], true, BatchSource { source: 0, discard_out_of_order: true });
        check(&[], false, BatchSource { source: 1, discard_out_of_order: false });
    }

    #[test]
    fn a_range_outside_of_the_body_is_left_out() {
        let mut out = Vec::new();
        let series = [(0, 2), (5, 9), (3, 1)].into_iter();
        write_batch(&mut out, b"abc", series, std::iter::empty(), BatchSource::default());
        assert_eq!(out, b"ab\xca\x3e\x00");
    }
}
