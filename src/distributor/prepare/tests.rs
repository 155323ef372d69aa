//! Prepared requests, against a preparation that takes everything apart, and by example.

use std::borrow::Cow;
use std::cell::RefCell;

use prost::Message as _;

use super::*;
use crate::distributor::HistogramRule;
use crate::wire::proto::cortexpb;

mod examples;
mod properties;

const NOW_MS: i64 = 1_700_000_000_000;

fn treatment(limits: &Limits) -> Treatment<'_> {
    Treatment {
        tenant: "tenant-1",
        limits,
        names: NameScheme::Legacy,
        placement: Placement::ByAllLabels,
        is_placed: true,
        replicas: Replicas::Kept,
    }
}

fn pair(name: &str, value: &str) -> cortexpb::LabelPair {
    cortexpb::LabelPair { name: name.into(), value: value.into() }
}

fn sample(timestamp_ms: i64) -> cortexpb::Sample {
    cortexpb::Sample { value: 1.5, timestamp_ms, start_timestamp_ms: 0 }
}

fn series(labels: &[(&str, &str)]) -> cortexpb::TimeSeries {
    cortexpb::TimeSeries {
        labels: labels.iter().map(|(name, value)| pair(name, value)).collect(),
        samples: vec![sample(NOW_MS)],
        ..Default::default()
    }
}

/// As many buckets as `counts`, from 1 on.
fn histogram(counts: &[i64]) -> cortexpb::Histogram {
    use cortexpb::histogram::{Count, ZeroCount};
    let mut last = 0;
    let mut deltas = Vec::new();
    for count in counts {
        deltas.push(count - last);
        last = *count;
    }
    cortexpb::Histogram {
        count: Some(Count::CountInt(counts.iter().sum::<i64>() as u64)),
        zero_count: Some(ZeroCount::ZeroCountInt(0)),
        schema: 3,
        positive_spans: vec![cortexpb::BucketSpan { offset: 1, length: counts.len() as u32 }],
        positive_deltas: deltas,
        timestamp_ms: NOW_MS,
        ..Default::default()
    }
}

fn exemplar() -> cortexpb::Exemplar {
    cortexpb::Exemplar { labels: vec![pair("trace", "a")], value: 1.0, timestamp_ms: NOW_MS }
}

fn encoded(timeseries: Vec<cortexpb::TimeSeries>) -> Vec<u8> {
    let r#ref = Some(cortexpb::MessageWithBufRef {});
    cortexpb::WriteRequest { timeseries, r#ref, ..Default::default() }.encode_to_vec()
}

/// The message of each item, read from its place alone.
fn messages(prepared: &Prepared<'_>) -> Vec<cortexpb::WriteRequest> {
    let field = |item: &Item| &prepared.body[item.start as usize..item.end as usize];
    let decode = |item| cortexpb::WriteRequest::decode(field(item)).expect("a whole field");
    prepared.items.iter().map(decode).collect()
}

/// What must hold of every prepared request.
fn check_whole(prepared: &Prepared<'_>) {
    let mut counts = Counts::default();
    let mut end = 0;
    for (item, message) in prepared.items.iter().zip(messages(prepared)) {
        assert!(end <= item.start && item.start < item.end, "places are in order");
        end = item.end;
        match item.kind {
            ItemKind::Series { samples, histograms, exemplars } => {
                let [series] = &message.timeseries[..] else { panic!("one series: {message:?}") };
                assert_eq!(samples as usize, series.samples.len());
                assert_eq!(histograms as usize, series.histograms.len());
                assert_eq!(exemplars as usize, series.exemplars.len());
                counts.samples += u64::from(samples);
                counts.histograms += u64::from(histograms);
                counts.exemplars += u64::from(exemplars);
            }
            ItemKind::Metadata => {
                assert_eq!(message.metadata.len(), 1);
                counts.metadata += 1;
            }
        }
    }
    assert_eq!(counts, prepared.counts);
    let body = cortexpb::WriteRequest::decode(&prepared.body[..]).expect("sound");
    assert_eq!(body.timeseries.len() + body.metadata.len(), prepared.items.len());
    assert_eq!(
        (body.source, body.discard_out_of_order),
        (prepared.source, prepared.discard_out_of_order,)
    );
}
