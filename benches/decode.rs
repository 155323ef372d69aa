//! Reading a push: 1000 series from bytes, against a conventional pipeline and against F.
//!
//! F is serial FNV-1 over the same labels, the calibrator of all bars. The rival decodes into
//! owned strings, then hashes a ring key and an identity label by label.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use freehold::labels::{
    IDENTITY_SECRET_BYTES, IdentityHasher, Labels, LabelsBuf, fnv1_32, ring_key,
};
use freehold::wire::write_request::WriteRequest;
use prost::Message;
use std::hint::black_box;
use xxhash_rust::xxh3::Xxh3;

mod shared;

const SERIES: u64 = 1000;
const TENANT: &str = "tenant-1";

#[derive(Clone, PartialEq, Message)]
struct OwnedRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<OwnedSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct OwnedSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<OwnedLabel>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<OwnedSample>,
}

#[derive(Clone, PartialEq, Message)]
struct OwnedLabel {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct OwnedSample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp_ms: i64,
}

fn decode(c: &mut Criterion) {
    let body = shared::request(0..SERIES, 1_700_000_000_000);
    let hasher = IdentityHasher::new(std::array::from_fn::<_, IDENTITY_SECRET_BYTES, _>(|i| {
        (i as u8).wrapping_mul(37).wrapping_add(11)
    }));
    let labels: Vec<LabelsBuf> =
        (0..SERIES).map(|number| LabelsBuf::from_pairs(shared::labels(number))).collect();
    let content_bytes: usize = labels
        .iter()
        .flat_map(|labels| labels.as_labels().iter())
        .map(|(name, value)| name.len() + value.len())
        .sum();
    assert_eq!(content_bytes, 244 * SERIES as usize, "the shape that the bars are set for");
    let mut arena = Vec::new();

    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(SERIES));
    group.bench_function("F: serial FNV-1", |b| {
        b.iter(|| labels.iter().fold(0, |sum, labels| sum ^ ring_key(TENANT, labels.as_labels()).0))
    });
    group.bench_function("parse", |b| {
        b.iter(|| {
            read(black_box(&body), &mut arena, |labels, newest_ms| {
                labels.as_bytes().len() as u64 ^ newest_ms as u64
            })
        })
    });
    group.bench_function("parse and identity", |b| {
        b.iter(|| {
            read(black_box(&body), &mut arena, |labels, newest_ms| {
                hasher.identity(labels).0 as u64 ^ newest_ms as u64
            })
        })
    });
    group.bench_function("rival: owned strings, ring key, identity", |b| {
        b.iter(|| {
            let request = OwnedRequest::decode(black_box(&body[..])).expect("sound");
            request.timeseries.iter().fold(0, |sum, series| sum ^ rival(series))
        })
    });
    group.finish();
}

/// Reads a request to its end and folds what `take` makes of each series.
fn read(body: &[u8], arena: &mut Vec<u8>, take: impl Fn(Labels<'_>, i64) -> u64) -> u64 {
    let mut request = WriteRequest::new(body, arena).expect("small");
    let mut sum = 0;
    while let Some(series) = request.next_series().expect("sound") {
        let (_, newest_ms) = series.time_range_ms().unwrap_or_default();
        sum ^= take(request.labels(&series), newest_ms);
    }
    sum
}

fn rival(series: &OwnedSeries) -> u64 {
    let mut key = fnv1_32(0x811c_9dc5, TENANT.as_bytes());
    let mut identity = Xxh3::new();
    for label in &series.labels {
        key = fnv1_32(fnv1_32(key, label.name.as_bytes()), label.value.as_bytes());
        for part in [label.name.as_bytes(), &[0xff], label.value.as_bytes(), &[0xff]] {
            identity.update(part);
        }
    }
    let newest_ms = series.samples.iter().map(|sample| sample.timestamp_ms).max().unwrap_or(0);
    identity.digest128() as u64 ^ u64::from(key) ^ newest_ms as u64
}

criterion_group!(benches, decode);
criterion_main!(benches);
