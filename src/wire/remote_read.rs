//! Remote read: requests, and answers written from stored bytes.
//!
//! Both are snappy blocks of protobuf, and no length in them is trusted. Canonical labels are the label fields of a series already, and histograms are kept as they
//! came, so both are copied. Samples keep all their bits: a staleness marker stays one, and
//! negative zero, which generated code would leave out, is written.

use prost::Message as _;

use crate::labels::{Labels, LabelsBuf};

use super::histogram::Histogram;
use super::proto::{cortexpb, prometheus};
use super::selector::{Comparison, LabelMatcher, Selector};
use super::write_request::Sample;
use super::writer::{push_counted, push_sample};

/// Largest request, before and after decompression. Decoded, it takes some fifty times that.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Queries in one request; Prometheus sends one.
const QUERIES_MAX: usize = 32;

/// What one query asks for; both ends of the time are within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub start_ms: i64,
    pub end_ms: i64,
    pub selector: Selector,
}

/// Why bytes are no request, or no answer, of remote read.
#[derive(Debug, thiserror::Error)]
pub enum RemoteReadError {
    #[error("the message is no snappy block")]
    Snappy(#[from] snap::Error),
    #[error("the message has {bytes} bytes, more than {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("the message is not what remote read sends")]
    Protobuf(#[from] prost::DecodeError),
    #[error("the request has {queries} queries, more than {QUERIES_MAX}")]
    TooManyQueries { queries: usize },
    #[error("unknown matcher type {number}")]
    UnknownMatcher { number: i32 },
    #[error("only the response type SAMPLES is supported")]
    ResponseType,
}

/// Reads a request that accepts samples.
pub fn decode_request(block: &[u8]) -> Result<Vec<Query>, RemoteReadError> {
    let bytes = decompress(block, REQUEST_BYTES_MAX)?;
    let request = prometheus::ReadRequest::decode(&bytes[..])?;
    let queries = request.queries.len();
    if queries > QUERIES_MAX {
        return Err(RemoteReadError::TooManyQueries { queries });
    }
    let samples = prometheus::read_request::ResponseType::Samples as i32;
    let accepted = request.accepted_response_types;
    if !accepted.is_empty() && !accepted.contains(&samples) {
        return Err(RemoteReadError::ResponseType);
    }
    request.queries.into_iter().map(query).collect()
}

fn query(query: prometheus::Query) -> Result<Query, RemoteReadError> {
    use prometheus::label_matcher::Type;
    let matcher = |matcher: prometheus::LabelMatcher| {
        let comparison = match Type::try_from(matcher.r#type) {
            Ok(Type::Eq) => Comparison::Equal,
            Ok(Type::Neq) => Comparison::NotEqual,
            Ok(Type::Re) => Comparison::Regex,
            Ok(Type::Nre) => Comparison::NotRegex,
            Err(_) => return Err(RemoteReadError::UnknownMatcher { number: matcher.r#type }),
        };
        Ok(LabelMatcher { comparison, name: matcher.name, value: matcher.value })
    };
    let matchers = query.matchers.into_iter().map(matcher).collect::<Result<_, _>>()?;
    Ok(Query {
        start_ms: query.start_timestamp_ms,
        end_ms: query.end_timestamp_ms,
        selector: Selector { matchers },
    })
}

/// A request of one query.
pub fn encode_request(query: &Query) -> Result<Vec<u8>, RemoteReadError> {
    use prometheus::label_matcher::Type;
    let matchers = query.selector.matchers.iter().map(|matcher| prometheus::LabelMatcher {
        r#type: match matcher.comparison {
            Comparison::Equal => Type::Eq,
            Comparison::NotEqual => Type::Neq,
            Comparison::Regex => Type::Re,
            Comparison::NotRegex => Type::Nre,
        } as i32,
        name: matcher.name.clone(),
        value: matcher.value.clone(),
    });
    let query = prometheus::Query {
        start_timestamp_ms: query.start_ms,
        end_timestamp_ms: query.end_ms,
        matchers: matchers.collect(),
        hints: None,
    };
    let request = prometheus::ReadRequest { queries: vec![query], ..Default::default() };
    compress(&request.encode_to_vec())
}

/// A series of an answer, with everything of it in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadSeries {
    pub labels: LabelsBuf,
    pub samples: Vec<Sample>,
    pub histograms: Vec<Histogram>,
}

/// Reads the answer to a request of one query, of at most `bytes_max` bytes decompressed.
pub fn decode_response(block: &[u8], bytes_max: usize) -> Result<Vec<ReadSeries>, RemoteReadError> {
    let bytes = decompress(block, bytes_max)?;
    let response = prometheus::ReadResponse::decode(&bytes[..])?;
    let series = response.results.into_iter().flat_map(|result| result.timeseries);
    let series = series.map(|series| ReadSeries {
        labels: LabelsBuf::from_pairs(
            series.labels.iter().map(|label| (&label.name, &label.value)),
        ),
        samples: series
            .samples
            .iter()
            .map(|sample| Sample {
                value: sample.value,
                timestamp_ms: sample.timestamp_ms,
                start_timestamp_ms: sample.start_timestamp_ms,
            })
            .collect(),
        histograms: series
            .histograms
            .iter()
            .filter_map(|histogram| Histogram::decode(&histogram.encode_to_vec()).ok())
            .collect(),
    });
    Ok(series.collect())
}

/// An exemplar, from the bytes of its message.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadExemplar {
    pub labels: LabelsBuf,
    pub value: f64,
    pub timestamp_ms: i64,
}

impl ReadExemplar {
    pub fn decode(bytes: &[u8]) -> Result<Self, RemoteReadError> {
        let exemplar = cortexpb::Exemplar::decode(bytes)?;
        let labels = exemplar.labels.iter().map(|label| (&label.name, &label.value));
        Ok(Self {
            labels: LabelsBuf::from_pairs(labels),
            value: exemplar.value,
            timestamp_ms: exemplar.timestamp_ms,
        })
    }
}

/// A snappy block of these bytes.
pub fn compress(bytes: &[u8]) -> Result<Vec<u8>, RemoteReadError> {
    Ok(snap::raw::Encoder::new().compress_vec(bytes)?)
}

fn decompress(block: &[u8], bytes_max: usize) -> Result<Vec<u8>, RemoteReadError> {
    let bytes = snap::raw::decompress_len(block)?;
    if bytes > bytes_max {
        return Err(RemoteReadError::TooLarge { bytes, max: bytes_max });
    }
    Ok(snap::raw::Decoder::new().decompress_vec(block)?)
}

/// A `prometheus.ReadResponse`: one result per query, in their order.
#[derive(Clone, Debug, Default)]
pub struct ReadResponse(Vec<u8>);

impl ReadResponse {
    pub fn push(&mut self, result: &QueryResult) {
        push_counted(&mut self.0, 1, &result.0);
    }

    /// Bytes written so far, for a bound on answers.
    pub fn len_bytes(&self) -> usize {
        self.0.len()
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A `prometheus.QueryResult`: series, for a reader that expects them sorted by labels.
#[derive(Clone, Debug, Default)]
pub struct QueryResult(Vec<u8>);

impl QueryResult {
    /// Appends a series; samples and histograms in order of time.
    pub fn push_series<'a>(
        &mut self,
        labels: Labels<'_>,
        samples: impl IntoIterator<Item = Sample>,
        histograms: impl IntoIterator<Item = &'a [u8]>,
    ) {
        let mut series = labels.as_bytes().to_vec();
        for sample in samples {
            push_sample(&mut series, sample);
        }
        for histogram in histograms {
            push_counted(&mut series, 4, histogram);
        }
        push_counted(&mut self.0, 1, &series);
    }

    /// Bytes written so far, for a bound on answers.
    pub fn len_bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_back_and_absurd_ones_are_refused() {
        let selector = Selector::parse(r#"a{b!="c",d=~"e",f!~"g"}"#).expect("a selector");
        let query = Query { start_ms: -5, end_ms: i64::MAX, selector };
        let block = encode_request(&query).expect("small");
        assert_eq!(decode_request(&block).expect("sound"), [query]);

        let refused = |request: &prometheus::ReadRequest| {
            let block = compress(&request.encode_to_vec()).expect("small");
            decode_request(&block).expect_err("refused")
        };
        let chunks = prometheus::ReadRequest { accepted_response_types: vec![1], queries: vec![] };
        assert!(matches!(refused(&chunks), RemoteReadError::ResponseType));
        let queries = vec![prometheus::Query::default(); QUERIES_MAX + 1];
        let many = prometheus::ReadRequest { queries, ..Default::default() };
        assert!(matches!(refused(&many), RemoteReadError::TooManyQueries { .. }));
        let error = decode_request(&[0xff, 0xff, 0xff, 0xff, 0x0f]).expect_err("4 GiB");
        assert!(matches!(error, RemoteReadError::TooLarge { .. }), "{error}");
        assert!(matches!(decode_request(b"no"), Err(RemoteReadError::Snappy(_))));
    }

    #[test]
    fn what_is_written_reads_back_to_the_bit() {
        let stale = f64::from_bits(0x7ff0_0000_0000_0002);
        let samples = [(1.5, 1), (stale, -2), (-0.0, 3), (0.0, 0)]
            .map(|(value, timestamp_ms)| Sample { value, timestamp_ms, start_timestamp_ms: 300 });
        let labels = LabelsBuf::from_pairs([("__name__", "m"), ("a", "1")]);
        let histogram = cortexpb::Histogram { timestamp_ms: 9, ..Default::default() };
        let mut result = QueryResult::default();
        result.push_series(labels.as_labels(), samples, [&histogram.encode_to_vec()[..]]);
        let mut response = ReadResponse::default();
        response.push(&QueryResult::default());
        response.push(&result);

        let read = prometheus::ReadResponse::decode(&response.into_bytes()[..]).expect("sound");
        assert!(read.results[0].timeseries.is_empty());
        let series = &read.results[1].timeseries[0];
        assert_eq!(series.labels[1].value, b"1");
        assert_eq!(series.histograms, [histogram]);
        let bits = |value: f64| value.to_bits();
        for (read, written) in series.samples.iter().zip(samples) {
            assert_eq!(bits(read.value), bits(written.value));
            assert_eq!(read.timestamp_ms, written.timestamp_ms);
            assert_eq!(read.start_timestamp_ms, written.start_timestamp_ms);
        }
        assert_eq!(series.samples.len(), samples.len());
    }
}
