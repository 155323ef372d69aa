//! Metrics to series: Prometheus' translation, as Cortex has it set up.
//!
//! A metric that cannot be translated ends with its first failing point; what came before is
//! kept, as are the other metrics. The order of the steps and of the failures is Prometheus'.

use std::collections::{HashMap, HashSet};

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogramDataPoint, HistogramDataPoint, Metric,
    ResourceMetrics, SummaryDataPoint,
};

use super::names::{self, Kind, NameError, Quoted};
use super::output::{LabelSet, Metadata, Output};
use super::points::{At, exemplars, number, times_of};
use super::target::{IDENTIFYING, Target};
use super::{OtlpError, OtlpOptions, attributes, exponential};
use crate::go_text::PlainFloat;
use crate::wire::histogram::HISTOGRAM_BYTES_MAX;
use crate::wire::proto::cortexpb::metric_metadata::MetricType;
use crate::wire::write_request::Sample;

const NAME: &str = "__name__";
const TARGET_INFO: &str = "target_info";

/// Time between two samples of `target_info`: half of what a query looks back.
const TARGET_INFO_INTERVAL_NS: i64 = 150 * 1_000_000_000;
/// Most of them for a resource, the newest ones. Cortex has no bound, and a point without a time
/// (which is 1970) next to one of today makes twelve million.
const TARGET_INFO_SAMPLES_MAX: i64 = 1000;

/// Most failures that are told; the rest is only counted.
const FAILURES_SHOWN_MAX: usize = 100;

/// Why metrics were left out, in their order.
#[derive(Debug, Default)]
pub(super) struct Failures {
    shown: Vec<String>,
    hidden: usize,
}

/// Why a metric ends.
pub(super) enum Stop {
    Failure(String),
    /// Without a word: Cortex drops a sum's points whose labels have no name.
    Silently,
    Request(OtlpError),
}

impl From<OtlpError> for Stop {
    fn from(error: OtlpError) -> Self {
        Self::Request(error)
    }
}

impl From<NameError> for Stop {
    fn from(error: NameError) -> Self {
        Self::Failure(error.to_string())
    }
}

impl Failures {
    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    pub(super) fn text(&self) -> String {
        let mut text = self.shown.join("; ");
        if self.hidden > 0 {
            text.push_str(&format!("; and {} more", self.hidden));
        }
        text
    }

    fn add(&mut self, failure: String) {
        if self.shown.len() < FAILURES_SHOWN_MAX {
            self.shown.push(failure);
        } else {
            self.hidden += 1;
        }
    }
}

/// Translates all resources.
pub(super) fn translate(
    resources: Vec<ResourceMetrics>,
    options: &OtlpOptions<'_>,
) -> Result<(Output, Failures), OtlpError> {
    let mut translation = Translation {
        options,
        output: Output::new(options.recv_bytes_max),
        failures: Failures::default(),
        told_targets: HashMap::new(),
    };
    for resource in &resources {
        translation.resource(resource)?;
    }
    Ok((translation.output, translation.failures))
}

struct Translation<'o> {
    options: &'o OtlpOptions<'o>,
    output: Output,
    failures: Failures,
    /// Times of the samples of `target_info` that have been written, by their labels.
    told_targets: HashMap<Vec<u8>, HashSet<i64>>,
}

impl Translation<'_> {
    fn resource(&mut self, resource: &ResourceMetrics) -> Result<(), OtlpError> {
        let attributes = resource.resource.as_ref().map_or(&[][..], |r| &r.attributes);
        let target = Target::new(attributes, self.options);
        let mut times: Option<(u64, u64)> = None;
        for metric in resource.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
            for time in times_of(metric) {
                let (first, last) = times.unwrap_or((u64::MAX, 0));
                times = Some((first.min(time), last.max(time)));
            }
            match self.metric(&target, metric) {
                Ok(()) | Err(Stop::Silently) => {}
                Err(Stop::Failure(failure)) => self.failures.add(failure),
                Err(Stop::Request(error)) => return Err(error),
            }
        }
        match times {
            // The largest time of all is "none" in Cortex.
            Some((first, last)) if first < u64::MAX => {
                match self.target_info(&target, first as i64, last as i64) {
                    Ok(()) | Err(Stop::Silently) => Ok(()),
                    Err(Stop::Failure(failure)) => {
                        self.failures.add(failure);
                        Ok(())
                    }
                    Err(Stop::Request(error)) => Err(error),
                }
            }
            _ => Ok(()),
        }
    }

    fn metric(&mut self, target: &Target<'_>, metric: &Metric) -> Result<(), Stop> {
        let name = &metric.name;
        let Some(data) = &metric.data else {
            return Err(Stop::Failure(format!(
                "could not get aggregation temporality for {name} as it has unsupported metric \
                 type Empty"
            )));
        };
        let is_delta = match data {
            Data::Gauge(_) | Data::Summary(_) => Some(false),
            Data::Sum(sum) => self.delta(sum.aggregation_temporality),
            Data::Histogram(histogram) => self.delta(histogram.aggregation_temporality),
            Data::ExponentialHistogram(histogram) => self.delta(histogram.aggregation_temporality),
        };
        let Some(is_delta) = is_delta else {
            let name = Quoted(name);
            let text = format!("invalid temporality and type combination for metric {name}");
            return Err(Stop::Failure(text));
        };
        let metadata = self.metadata(metric, data, is_delta)?;
        let is_empty = match data {
            Data::Gauge(gauge) => gauge.data_points.is_empty(),
            Data::Sum(sum) => sum.data_points.is_empty(),
            Data::Histogram(histogram) => histogram.data_points.is_empty(),
            Data::ExponentialHistogram(histogram) => histogram.data_points.is_empty(),
            Data::Summary(summary) => summary.data_points.is_empty(),
        };
        if is_empty {
            return Err(Stop::Failure(format!("empty data points. {name} is dropped")));
        }
        match data {
            Data::Gauge(gauge) => {
                for point in &gauge.data_points {
                    let labels = self.named(target, &point.attributes, &metadata)?;
                    self.output.sample(&labels, &metadata, number(point), &[])?;
                }
            }
            Data::Sum(sum) => {
                for point in &sum.data_points {
                    let labels = self.named(target, &point.attributes, &metadata);
                    let labels = labels.map_err(|stop| match stop {
                        Stop::Failure(_) => Stop::Silently,
                        stop => stop,
                    })?;
                    let exemplars = exemplars(&point.exemplars)?;
                    self.output.sample(&labels, &metadata, number(point), &exemplars)?;
                }
            }
            Data::Histogram(histogram) => {
                for point in &histogram.data_points {
                    self.classic_histogram(target, point, &metadata)?;
                }
            }
            Data::ExponentialHistogram(histogram) => {
                for point in &histogram.data_points {
                    self.native_histogram(target, point, &metadata, is_delta)?;
                }
            }
            Data::Summary(summary) => {
                for point in &summary.data_points {
                    self.summary(target, point, &metadata)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a temporality that may be taken is delta; `None` for one that may not.
    fn delta(&self, temporality: i32) -> Option<bool> {
        match AggregationTemporality::try_from(temporality) {
            Ok(AggregationTemporality::Cumulative) => Some(false),
            Ok(AggregationTemporality::Delta) if self.options.allow_delta_temporality => Some(true),
            _ => None,
        }
    }

    fn metadata(&self, metric: &Metric, data: &Data, is_delta: bool) -> Result<Metadata, Stop> {
        let (kind, metric_type) = match data {
            Data::Gauge(_) => (Kind::Gauge, MetricType::Gauge),
            Data::Sum(sum) if sum.is_monotonic => (Kind::MonotonicSum, MetricType::Counter),
            Data::Sum(_) => (Kind::Other, MetricType::Gauge),
            Data::Histogram(_) | Data::ExponentialHistogram(_) => {
                (Kind::Other, MetricType::Histogram)
            }
            Data::Summary(_) => (Kind::Other, MetricType::Summary),
        };
        let suffixes = self.options.add_metric_suffixes;
        Ok(Metadata {
            family: names::metric(&metric.name, &metric.unit, kind, suffixes)?,
            // Deltas have no type of their own.
            kind: if is_delta { MetricType::Unknown } else { metric_type },
            help: metric.description.clone(),
            unit: names::unit(&metric.unit),
        })
    }

    fn classic_histogram(
        &mut self,
        target: &Target<'_>,
        point: &HistogramDataPoint,
        metadata: &Metadata,
    ) -> Result<(), Stop> {
        let base = self.labels(target, &point.attributes, metadata)?;
        let at = At::new(point.time_unix_nano, point.flags);
        let family = &metadata.family;
        if let Some(sum) = point.sum {
            let labels = base.with(&[(NAME, &format!("{family}_sum"))]);
            self.output.sample(&labels, metadata, at.sample(sum), &[])?;
        }
        let count = point.count as f64;
        let labels = base.with(&[(NAME, &format!("{family}_count"))]);
        self.output.sample(&labels, metadata, at.sample(count), &[])?;

        let exemplars = exemplars(&point.exemplars)?;
        let mut exemplars = &exemplars[..];
        let bucket = format!("{family}_bucket");
        let mut cumulative: u64 = 0;
        for (bound, here) in point.explicit_bounds.iter().zip(&point.bucket_counts) {
            cumulative = cumulative.wrapping_add(*here);
            // Both are in ascending order; what is not ends up in a later bucket.
            let first_above = exemplars.iter().position(|exemplar| exemplar.value > *bound);
            let (inside, above) = exemplars.split_at(first_above.unwrap_or(exemplars.len()));
            exemplars = above;
            let le = PlainFloat(*bound).to_string();
            self.output.account(base.text_bytes())?;
            let labels = base.with(&[("le", &le), (NAME, &bucket)]);
            self.output.sample(&labels, metadata, at.sample(cumulative as f64), inside)?;
        }
        let labels = base.with(&[("le", "+Inf"), (NAME, &bucket)]);
        self.output.sample(&labels, metadata, at.sample(count), exemplars)?;
        Ok(())
    }

    fn native_histogram(
        &mut self,
        target: &Target<'_>,
        point: &ExponentialHistogramDataPoint,
        metadata: &Metadata,
        is_delta: bool,
    ) -> Result<(), Stop> {
        let histogram =
            exponential::native(point, is_delta).map_err(|e| Stop::Failure(e.to_string()))?;
        let labels = self.named(target, &point.attributes, metadata)?;
        let exemplars = exemplars(&point.exemplars)?;
        if !self.output.histogram(&labels, metadata, &histogram, &exemplars)? {
            let name = Quoted(&metadata.family);
            self.failures.add(format!(
                "a native histogram of {name} exceeds limit {HISTOGRAM_BYTES_MAX} bytes"
            ));
        }
        Ok(())
    }

    fn summary(
        &mut self,
        target: &Target<'_>,
        point: &SummaryDataPoint,
        metadata: &Metadata,
    ) -> Result<(), Stop> {
        let base = self.labels(target, &point.attributes, metadata)?;
        let at = At::new(point.time_unix_nano, point.flags);
        let family = &metadata.family;
        let labels = base.with(&[(NAME, &format!("{family}_sum"))]);
        self.output.sample(&labels, metadata, at.sample(point.sum), &[])?;
        let labels = base.with(&[(NAME, &format!("{family}_count"))]);
        self.output.sample(&labels, metadata, at.sample(point.count as f64), &[])?;
        for quantile in &point.quantile_values {
            let text = PlainFloat(quantile.quantile).to_string();
            self.output.account(base.text_bytes())?;
            let labels = base.with(&[("quantile", &text), (NAME, family)]);
            self.output.sample(&labels, metadata, at.sample(quantile.value), &[])?;
        }
        Ok(())
    }

    /// Tells what else is known of a resource, over the time of its metrics.
    fn target_info(&mut self, target: &Target<'_>, first: i64, last: i64) -> Result<(), Stop> {
        if self.options.disable_target_info {
            return Ok(());
        }
        let identifying =
            IDENTIFYING.iter().filter(|key| attributes::get(target.attributes, key).is_some());
        if target.attributes.len() == identifying.count() {
            // All of it is in `job` and `instance`.
            return Ok(());
        }
        let metadata = Metadata {
            family: TARGET_INFO.to_owned(),
            kind: MetricType::Gauge,
            help: "Target metadata".to_owned(),
            unit: String::new(),
        };
        let mut labels =
            target.bare().labels(&mut self.output, target.attributes, &IDENTIFYING, None)?;
        labels.set(NAME, TARGET_INFO.to_owned());
        if labels.get("job").is_none() && labels.get("instance").is_none() {
            return Ok(());
        }
        let steps = last.saturating_sub(first).saturating_sub(1).max(-1) / TARGET_INFO_INTERVAL_NS;
        let skipped = (steps + 1 - TARGET_INFO_SAMPLES_MAX).max(0);
        let told = self.told_targets.entry(labels.encode()).or_default();
        let mut time = first.saturating_add(skipped.saturating_mul(TARGET_INFO_INTERVAL_NS));
        let mut tell = |time_ns: i64| -> Result<(), Stop> {
            let timestamp_ms = time_ns.div_euclid(1_000_000);
            if told.insert(timestamp_ms) {
                let sample = Sample { value: 1.0, timestamp_ms, start_timestamp_ms: 0 };
                self.output.sample(&labels, &metadata, sample, &[])?;
            }
            Ok(())
        };
        while time < last {
            tell(time)?;
            let Some(next) = time.checked_add(TARGET_INFO_INTERVAL_NS) else { break };
            time = next;
        }
        tell(last)
    }

    /// The labels of a point, with its metric's name.
    fn named(
        &mut self,
        target: &Target<'_>,
        attributes: &[KeyValue],
        metadata: &Metadata,
    ) -> Result<LabelSet, Stop> {
        let mut labels = self.labels(target, attributes, metadata)?;
        labels.set(NAME, metadata.family.clone());
        Ok(labels)
    }

    fn labels(
        &mut self,
        target: &Target<'_>,
        attributes: &[KeyValue],
        metadata: &Metadata,
    ) -> Result<LabelSet, Stop> {
        let told = self.options.type_and_unit_labels.then_some(metadata);
        target.labels(&mut self.output, attributes, &[], told)
    }
}
