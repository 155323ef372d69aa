//! Cortex's rules for what a distributor takes: labels, times, exemplars, histograms, metadata.
//!
//! Each rule is a function of values that says what is wrong, with the reason under which Cortex
//! counts it and the text that it answers. Order matters everywhere: of several faults the first
//! is the one that counts. Nothing here knows of requests; `prepare` does.
//!
//! A [`Violation`] borrows what it names. Its text is only built for the one that becomes the
//! answer, so a request full of faults costs no more than one of sound series.

mod labels;
mod metadata;
mod samples;
mod text;

use crate::labels::{LabelSetText, METRIC_NAME, NameScheme};
use crate::limits::Limits;
use crate::wire::histogram::{HistogramError, SCHEMA_EXPONENTIAL_MAX, SCHEMA_EXPONENTIAL_MIN};
use crate::wire::write_request::RawLabels;

pub use labels::{LabelsFit, check_labels, check_metric_name, fit};
pub use metadata::{MetadataViolation, check_metadata};
pub use samples::{HistogramWork, TimeRange, check_exemplar, check_histogram, check_values};
use text::{Shown, metric_text, series_text};

/// What holds for the names and labels of one request.
#[derive(Clone, Copy, Debug)]
pub struct LabelRules<'a> {
    pub limits: &'a Limits,
    pub names: NameScheme,
    /// The sender has checked the names of labels.
    pub names_are_checked: bool,
}

/// Why a series is left out.
#[derive(Clone, Debug)]
pub enum Violation<'a> {
    MetricNameMissing,
    MetricNameInvalid(&'a [u8]),
    TooManyLabels { count: usize, limit: u64 },
    LabelNameInvalid(&'a [u8]),
    LabelNameTooLong { name: &'a [u8], limit: u64 },
    LabelValueTooLong { name: &'a [u8], value: &'a [u8], limit: u64 },
    DuplicateName(&'a [u8]),
    NotSorted(&'a [u8]),
    LabelsTooLarge { bytes: u64, limit: u64 },
    SampleTooOld { timestamp_ms: i64 },
    SampleTooNew { timestamp_ms: i64 },
    ExemplarLabelsMissing { timestamp_ms: i64 },
    ExemplarTimestampMissing { labels: RawLabels<'a> },
    ExemplarLabelsTooLong { labels: RawLabels<'a>, timestamp_ms: i64 },
    HistogramTooLarge { bytes: usize, limit: u64 },
    HistogramSchema(i32),
    HistogramInvalid(HistogramError),
    HistogramBuckets { limit: u64 },
}

/// Whose counter a violation adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sample,
    Exemplar,
}

impl Violation<'_> {
    /// Value of the label `reason` of Cortex's counters.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::MetricNameMissing => "missing_metric_name",
            Self::MetricNameInvalid(_) => "metric_name_invalid",
            Self::TooManyLabels { .. } => "max_label_names_per_series",
            Self::LabelNameInvalid(_) => "label_invalid",
            Self::LabelNameTooLong { .. } => "label_name_too_long",
            Self::LabelValueTooLong { .. } => "label_value_too_long",
            Self::DuplicateName(_) => "duplicate_label_names",
            Self::NotSorted(_) => "labels_not_sorted",
            Self::LabelsTooLarge { .. } => "labels_size_bytes_exceeded",
            Self::SampleTooOld { .. } => "greater_than_max_sample_age",
            Self::SampleTooNew { .. } => "too_far_in_future",
            Self::ExemplarLabelsMissing { .. } => "exemplar_labels_missing",
            Self::ExemplarTimestampMissing { .. } => "exemplar_timestamp_invalid",
            Self::ExemplarLabelsTooLong { .. } => "exemplar_labels_too_long",
            Self::HistogramTooLarge { .. } => "native_histogram_sample_size_bytes_exceeded",
            Self::HistogramSchema(_) => "native_histogram_invalid_schema",
            Self::HistogramInvalid(_) => "native_histogram_invalid",
            Self::HistogramBuckets { .. } => "native_histogram_buckets_exceeded",
        }
    }

    /// Whether it is counted among the discarded samples or the discarded exemplars.
    pub fn kind(&self) -> Kind {
        match self {
            Self::ExemplarLabelsMissing { .. }
            | Self::ExemplarTimestampMissing { .. }
            | Self::ExemplarLabelsTooLong { .. } => Kind::Exemplar,
            _ => Kind::Sample,
        }
    }

    /// Cortex's answer, for a series with these labels.
    pub fn text<'l>(&self, labels: impl Iterator<Item = (&'l [u8], &'l [u8])> + Clone) -> String {
        let series = || Shown(series_text(labels.clone()));
        let metric = || {
            let name = labels.clone().find(|(name, _)| *name == METRIC_NAME);
            Shown(name.map(|(_, value)| value.to_vec()).unwrap_or_default())
        };
        match self {
            Self::MetricNameMissing => "sample missing metric name".to_owned(),
            Self::MetricNameInvalid(name) => {
                format!("sample invalid metric name: {}", Shown(name))
            }
            Self::TooManyLabels { count, limit } => {
                let shown = metric_text(labels.clone());
                format!(
                    "series has too many labels (actual: {count}, limit: {limit}) series: '{shown}'"
                )
            }
            Self::LabelNameInvalid(name) => {
                format!("sample invalid label: {} metric {}", Shown(name), series())
            }
            Self::LabelNameTooLong { name, limit } => format!(
                "label name too long for metric (actual: {}, limit: {limit}) metric: {} label \
                 name: {}",
                name.len(),
                series(),
                Shown(name)
            ),
            Self::LabelValueTooLong { name, value, limit } => format!(
                "label value too long for metric (actual: {}, limit: {limit}) metric: {} label \
                 name: {} label value: {}",
                value.len(),
                series(),
                Shown(name),
                Shown(value)
            ),
            Self::DuplicateName(name) => {
                format!("duplicate label name: {} metric {}", Shown(name), series())
            }
            Self::NotSorted(name) => {
                format!("labels not sorted: {} metric {}", Shown(name), series())
            }
            Self::LabelsTooLarge { bytes, limit } => format!(
                "labels size bytes exceeded for metric (actual: {bytes}, limit: {limit}) metric: {}",
                series()
            ),
            Self::SampleTooOld { timestamp_ms } => {
                format!("timestamp too old: {timestamp_ms} metric: {}", metric())
            }
            Self::SampleTooNew { timestamp_ms } => {
                format!("timestamp too new: {timestamp_ms} metric: {}", metric())
            }
            Self::ExemplarLabelsMissing { timestamp_ms } => format!(
                "exemplar missing labels, timestamp: {timestamp_ms} series: {} labels: {{}}",
                LabelSetText(labels)
            ),
            Self::ExemplarTimestampMissing { labels: exemplar } => format!(
                "exemplar missing timestamp, timestamp: 0 series: {} labels: {}",
                LabelSetText(labels),
                LabelSetText(exemplar.clone())
            ),
            Self::ExemplarLabelsTooLong { labels: exemplar, timestamp_ms } => format!(
                "exemplar combined labelset exceeds {EXEMPLAR_CHARS_MAX} characters, timestamp: \
                 {timestamp_ms} series: {} labels: {}",
                LabelSetText(labels),
                LabelSetText(exemplar.clone())
            ),
            Self::HistogramTooLarge { bytes, limit } => format!(
                "native histogram sample size bytes exceeded for metric (actual: {bytes}, limit: \
                 {limit}) metric: {}",
                series()
            ),
            Self::HistogramSchema(schema) => format!(
                "invalid native histogram schema {schema} for metric: {}. supported schema from \
                 {SCHEMA_EXPONENTIAL_MIN} to {SCHEMA_EXPONENTIAL_MAX}",
                series()
            ),
            Self::HistogramInvalid(error) => {
                format!("invalid native histogram, validation err: {error}, metric: {}", series())
            }
            Self::HistogramBuckets { limit } => format!(
                "native histogram bucket count exceeded for metric (limit: {limit}) metric: {}",
                series()
            ),
        }
    }
}

/// Most characters of all names and values of an exemplar, as OpenMetrics has it.
const EXEMPLAR_CHARS_MAX: usize = 128;

#[cfg(test)]
mod tests;
