//! Data points: their times, values and exemplars.

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar as OtlpExemplar, Metric, NumberDataPoint, exemplar, number_data_point,
};

use super::attributes;
use super::output::{Exemplar, LabelSet};
use super::translate::Stop;
use crate::wire::write_request::Sample;

/// Flag of a data point: its series had no value at that time.
pub(super) const NO_RECORDED_VALUE: u32 = 1;
/// The value of a series that has ended; a NaN of its own.
pub(super) const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Characters of an exemplar's labels, by OpenMetrics; attributes beyond are left out.
const EXEMPLAR_CHARS_MAX: usize = 128;

/// When a point's samples are, and whether they have a value.
#[derive(Clone, Copy)]
pub(super) struct At {
    timestamp_ms: i64,
    is_stale: bool,
}

impl At {
    pub(super) fn new(time_unix_nano: u64, flags: u32) -> Self {
        let is_stale = flags & NO_RECORDED_VALUE != 0;
        Self { timestamp_ms: milliseconds(time_unix_nano), is_stale }
    }

    pub(super) fn sample(self, value: f64) -> Sample {
        let value = if self.is_stale { STALE } else { value };
        Sample { value, timestamp_ms: self.timestamp_ms, start_timestamp_ms: 0 }
    }
}

/// Towards zero, as Cortex cuts it; times beyond the year 2262 wrap around there.
pub(super) fn milliseconds(time_unix_nano: u64) -> i64 {
    time_unix_nano as i64 / 1_000_000
}

pub(super) fn number(point: &NumberDataPoint) -> Sample {
    let value = match point.value {
        Some(number_data_point::Value::AsInt(value)) => value as f64,
        Some(number_data_point::Value::AsDouble(value)) => value,
        None => 0.0,
    };
    At::new(point.time_unix_nano, point.flags).sample(value)
}

pub(super) fn exemplars(exemplars: &[OtlpExemplar]) -> Result<Vec<Exemplar>, Stop> {
    let translate = |exemplar: &OtlpExemplar| {
        let value = match exemplar.value {
            Some(exemplar::Value::AsInt(value)) => value as f64,
            Some(exemplar::Value::AsDouble(value)) => value,
            None => {
                let text = "unsupported exemplar value type: Empty";
                return Err(Stop::Failure(text.to_owned()));
            }
        };
        let mut pairs: Vec<(&str, String)> = Vec::new();
        for (name, id) in [("trace_id", &exemplar.trace_id), ("span_id", &exemplar.span_id)] {
            if id.iter().any(|byte| *byte != 0) {
                pairs.push((name, id.iter().map(|byte| format!("{byte:02x}")).collect()));
            }
        }
        let chars: usize = pairs.iter().map(|(name, id)| name.len() + id.len()).sum();
        let filtered: Vec<(&str, String)> = exemplar
            .filtered_attributes
            .iter()
            .map(|attribute| (attribute.key.as_str(), attributes::text(attribute)))
            .collect();
        let filtered_chars: usize =
            filtered.iter().map(|(key, text)| key.chars().count() + text.chars().count()).sum();
        if chars + filtered_chars <= EXEMPLAR_CHARS_MAX {
            pairs.extend(filtered);
        }
        let mut labels = LabelSet::default();
        for (name, value) in pairs {
            labels.set(name, value);
        }
        let timestamp_ms = (exemplar.time_unix_nano as i64).div_euclid(1_000_000);
        Ok(Exemplar { labels, value, timestamp_ms })
    };
    exemplars.iter().map(translate).collect()
}

pub(super) fn times_of(metric: &Metric) -> Vec<u64> {
    match &metric.data {
        None => Vec::new(),
        Some(Data::Gauge(gauge)) => gauge.data_points.iter().map(|p| p.time_unix_nano).collect(),
        Some(Data::Sum(sum)) => sum.data_points.iter().map(|p| p.time_unix_nano).collect(),
        Some(Data::Histogram(h)) => h.data_points.iter().map(|p| p.time_unix_nano).collect(),
        Some(Data::ExponentialHistogram(h)) => {
            h.data_points.iter().map(|p| p.time_unix_nano).collect()
        }
        Some(Data::Summary(s)) => s.data_points.iter().map(|p| p.time_unix_nano).collect(),
    }
}
