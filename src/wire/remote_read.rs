//! Answers to remote read, written from stored bytes.
//!
//! Canonical labels are the label fields of a series already, and histograms are kept as they
//! came, so both are copied. Samples keep all their bits: a staleness marker stays one, and
//! negative zero, which generated code would leave out, is written.

use crate::labels::Labels;

use super::write_request::Sample;
use super::writer::{push_counted, push_sample};

/// A `prometheus.ReadResponse`: one result per query, in their order.
#[derive(Clone, Debug, Default)]
pub struct ReadResponse(Vec<u8>);

impl ReadResponse {
    pub fn push(&mut self, result: &QueryResult) {
        push_counted(&mut self.0, 1, &result.0);
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
    use prost::Message as _;

    use super::*;
    use crate::labels::LabelsBuf;
    use crate::wire::proto::{cortexpb, prometheus};

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
