//! What has been translated so far: series by their labels, and metadata by its metric.
//!
//! Samples of one label set end up in one series, as a sender of remote write has it. Series and
//! metadata are written in the order in which they were first met.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::OtlpError;
use crate::wire::histogram::HISTOGRAM_BYTES_MAX;
use crate::wire::proto::cortexpb;
use crate::wire::write_request::Sample;
use crate::wire::writer::{push_counted, push_double, push_integer, push_sample};

/// A label set under construction. An empty value is no label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelSet(BTreeMap<String, String>);

/// An exemplar of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exemplar {
    pub labels: LabelSet,
    pub value: f64,
    pub timestamp_ms: i64,
}

/// What is told of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    pub family: String,
    pub kind: cortexpb::metric_metadata::MetricType,
    pub help: String,
    pub unit: String,
}

pub(super) struct Output {
    /// By the encoded labels, to its place.
    places: HashMap<Vec<u8>, usize>,
    series: Vec<Series>,
    /// By the metric's name, in order.
    metadata: Vec<Metadata>,
    families: HashMap<String, ()>,
    label_bytes: usize,
    label_bytes_max: usize,
    bytes_max: usize,
}

/// The encoded fields of one series behind its labels, by their kind.
#[derive(Default)]
struct Series {
    labels: Vec<u8>,
    samples: Vec<u8>,
    exemplars: Vec<u8>,
    histograms: Vec<u8>,
}

impl LabelSet {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Puts a label in the place of the one of that name; an empty value only takes that away.
    pub(super) fn set(&mut self, name: &str, value: String) {
        if value.is_empty() {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), value);
        }
    }

    pub(super) fn with(&self, pairs: &[(&str, &str)]) -> Self {
        let mut labels = self.clone();
        for (name, value) in pairs {
            labels.set(name, (*value).to_owned());
        }
        labels
    }

    pub(super) fn text_bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The labels as field 1 of a series or an exemplar, in the order of their names.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.text_bytes() + 8 * self.0.len());
        let mut pair = Vec::new();
        for (name, value) in &self.0 {
            pair.clear();
            push_counted(&mut pair, 1, name.as_bytes());
            push_counted(&mut pair, 2, value.as_bytes());
            push_counted(&mut out, 1, &pair);
        }
        out
    }
}

impl Output {
    pub(super) fn new(recv_bytes_max: usize) -> Self {
        Self {
            places: HashMap::new(),
            series: Vec::new(),
            metadata: Vec::new(),
            families: HashMap::new(),
            label_bytes: 0,
            label_bytes_max: recv_bytes_max,
            bytes_max: recv_bytes_max,
        }
    }

    /// Makes sure that so many bytes of labels may be worked on, before they are.
    pub(super) fn account(&mut self, bytes: usize) -> Result<(), OtlpError> {
        self.label_bytes = self.label_bytes.saturating_add(bytes);
        if self.label_bytes > self.label_bytes_max {
            return Err(OtlpError::Labels { bytes_max: self.bytes_max });
        }
        Ok(())
    }

    pub(super) fn sample(
        &mut self,
        labels: &LabelSet,
        metadata: &Metadata,
        sample: Sample,
        exemplars: &[Exemplar],
    ) -> Result<(), OtlpError> {
        self.note(metadata);
        let series = self.series(labels)?;
        push_sample(&mut series.samples, sample);
        series.push_exemplars(exemplars);
        Ok(())
    }

    /// `false`: the histogram is larger than an ingester reads, and is left out.
    pub(super) fn histogram(
        &mut self,
        labels: &LabelSet,
        metadata: &Metadata,
        histogram: &cortexpb::Histogram,
        exemplars: &[Exemplar],
    ) -> Result<bool, OtlpError> {
        use prost::Message as _;
        if histogram.encoded_len() > HISTOGRAM_BYTES_MAX {
            return Ok(false);
        }
        self.note(metadata);
        let series = self.series(labels)?;
        push_counted(&mut series.histograms, 4, &histogram.encode_to_vec());
        series.push_exemplars(exemplars);
        Ok(true)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The bytes of a `WriteRequest`.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut message = Vec::new();
        for series in self.series {
            message.clear();
            for part in [series.labels, series.samples, series.exemplars, series.histograms] {
                message.extend_from_slice(&part);
            }
            push_counted(&mut out, 1, &message);
        }
        for Metadata { family, kind, help, unit } in self.metadata {
            message.clear();
            push_integer(&mut message, 1, i64::from(i32::from(kind)));
            for (number, text) in [(2, family), (4, help), (5, unit)] {
                if !text.is_empty() {
                    push_counted(&mut message, number, text.as_bytes());
                }
            }
            push_counted(&mut out, 3, &message);
        }
        out
    }

    /// What was told of a metric first counts.
    fn note(&mut self, metadata: &Metadata) {
        if metadata.family.is_empty() || self.families.contains_key(&metadata.family) {
            return;
        }
        self.families.insert(metadata.family.clone(), ());
        self.metadata.push(metadata.clone());
    }

    fn series(&mut self, labels: &LabelSet) -> Result<&mut Series, OtlpError> {
        self.account(labels.text_bytes())?;
        let labels = labels.encode();
        let place = match self.places.get(&labels) {
            Some(place) => *place,
            None => {
                let place = self.series.len();
                self.series.push(Series { labels: labels.clone(), ..Series::default() });
                self.places.insert(labels, place);
                place
            }
        };
        Ok(&mut self.series[place])
    }
}

impl Series {
    fn push_exemplars(&mut self, exemplars: &[Exemplar]) {
        for exemplar in exemplars {
            let mut message = exemplar.labels.encode();
            push_double(&mut message, 2, exemplar.value);
            push_integer(&mut message, 3, exemplar.timestamp_ms);
            push_counted(&mut self.exemplars, 3, &message);
        }
    }
}
