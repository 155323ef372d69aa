//! The JSON form of the protocol, as protobuf's rules for JSON have it.
//!
//! The protocol's crate reads it too, but where a message holds one of several others it takes
//! what it cannot read for absent: a temporality by its name, or a value that is none, made a
//! metric without data and an error about something else. So the messages around such a choice
//! are read here, and what is wrong is told with its line and column.

use std::fmt;
use std::str::FromStr;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge,
    Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    Summary, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// Fields that nothing here uses are read past, as unknown ones are.
pub(super) fn read(body: &[u8]) -> Result<Vec<ResourceMetrics>, serde_json::Error> {
    let request: Request = serde_json::from_slice(body)?;
    Ok(request.resource_metrics.into_iter().map(|read| read.0).collect())
}

/// Messages as they are used. Each is made of its form as soon as that is read, so that many of
/// them take no more room than those of a protobuf body.
#[derive(Deserialize)]
#[serde(from = "ResourceForm")]
struct ReadResource(ResourceMetrics);

#[derive(Deserialize)]
#[serde(from = "ScopeForm")]
struct ReadScope(ScopeMetrics);

#[derive(Deserialize)]
#[serde(from = "MetricForm")]
struct ReadMetric(Metric);

#[derive(Deserialize)]
#[serde(from = "NumberForm")]
struct ReadPoint(NumberDataPoint);

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Request {
    resource_metrics: Vec<ReadResource>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceForm {
    resource: Option<Resource>,
    scope_metrics: Vec<ReadScope>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ScopeForm {
    metrics: Vec<ReadMetric>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MetricForm {
    name: String,
    description: String,
    unit: String,
    gauge: Option<GaugeForm>,
    sum: Option<SumForm>,
    histogram: Option<HistogramForm>,
    exponential_histogram: Option<ExponentialForm>,
    summary: Option<Summary>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GaugeForm {
    data_points: Vec<ReadPoint>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SumForm {
    data_points: Vec<ReadPoint>,
    aggregation_temporality: Temporality,
    is_monotonic: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HistogramForm {
    data_points: Vec<HistogramDataPoint>,
    aggregation_temporality: Temporality,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ExponentialForm {
    data_points: Vec<ExponentialHistogramDataPoint>,
    aggregation_temporality: Temporality,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NumberForm {
    attributes: Vec<KeyValue>,
    start_time_unix_nano: Whole<u64>,
    time_unix_nano: Whole<u64>,
    exemplars: Vec<Exemplar>,
    flags: u32,
    as_double: Option<Double>,
    as_int: Option<Whole<i64>>,
}

impl From<ResourceForm> for ReadResource {
    fn from(form: ResourceForm) -> Self {
        Self(ResourceMetrics {
            resource: form.resource,
            scope_metrics: form.scope_metrics.into_iter().map(|read| read.0).collect(),
            ..ResourceMetrics::default()
        })
    }
}

impl From<ScopeForm> for ReadScope {
    fn from(form: ScopeForm) -> Self {
        let metrics = form.metrics.into_iter().map(|read| read.0).collect();
        Self(ScopeMetrics { metrics, ..ScopeMetrics::default() })
    }
}

impl From<MetricForm> for ReadMetric {
    /// Of several kinds of data the first in the order of their numbers is meant.
    fn from(form: MetricForm) -> Self {
        let gauge = form.gauge.map(|gauge| Data::Gauge(gauge.into()));
        let sum = form.sum.map(|sum| Data::Sum(sum.into()));
        let histogram = form.histogram.map(|histogram| Data::Histogram(histogram.into()));
        let exponential = form.exponential_histogram.map(|e| Data::ExponentialHistogram(e.into()));
        let data = gauge.or(sum).or(histogram).or(exponential);
        Self(Metric {
            name: form.name,
            description: form.description,
            unit: form.unit,
            data: data.or(form.summary.map(Data::Summary)),
            ..Metric::default()
        })
    }
}

impl From<GaugeForm> for Gauge {
    fn from(form: GaugeForm) -> Self {
        Self { data_points: form.data_points.into_iter().map(|read| read.0).collect() }
    }
}

impl From<SumForm> for Sum {
    fn from(form: SumForm) -> Self {
        Self {
            data_points: form.data_points.into_iter().map(|read| read.0).collect(),
            aggregation_temporality: form.aggregation_temporality.0,
            is_monotonic: form.is_monotonic,
        }
    }
}

impl From<HistogramForm> for Histogram {
    fn from(form: HistogramForm) -> Self {
        let aggregation_temporality = form.aggregation_temporality.0;
        Self { data_points: form.data_points, aggregation_temporality }
    }
}

impl From<ExponentialForm> for ExponentialHistogram {
    fn from(form: ExponentialForm) -> Self {
        let aggregation_temporality = form.aggregation_temporality.0;
        Self { data_points: form.data_points, aggregation_temporality }
    }
}

impl From<NumberForm> for ReadPoint {
    fn from(form: NumberForm) -> Self {
        let as_double = form.as_double.map(|told| number_data_point::Value::AsDouble(told.0));
        let as_int = form.as_int.map(|told| number_data_point::Value::AsInt(told.0));
        Self(NumberDataPoint {
            attributes: form.attributes,
            start_time_unix_nano: form.start_time_unix_nano.0,
            time_unix_nano: form.time_unix_nano.0,
            exemplars: form.exemplars,
            flags: form.flags,
            value: as_double.or(as_int),
        })
    }
}

/// A temporality's number, which may be told by its name.
#[derive(Default)]
struct Temporality(i32);

/// A whole number of 64 bits, which may be told as a text, since JSON's own are doubles.
#[derive(Default)]
struct Whole<T>(T);

/// A double, whose values that JSON lacks are told as texts: `"NaN"`, `"Infinity"`.
#[derive(Default)]
struct Double(f64);

impl<'de> Deserialize<'de> for Temporality {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let told = from.deserialize_any(Scalars)?;
        let number = match &told {
            Scalar::Text(name) => AggregationTemporality::from_str_name(name).map(|t| t as i32),
            Scalar::Whole(number) => i32::try_from(*number).ok(),
            Scalar::Double(_) => None,
        };
        let wrong = || D::Error::custom(format!("aggregationTemporality is {told}"));
        number.map(Self).ok_or_else(wrong)
    }
}

impl<'de, T: FromStr + TryFrom<i128>> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let told = from.deserialize_any(Scalars)?;
        let number = match &told {
            Scalar::Text(digits) => digits.parse().ok(),
            Scalar::Whole(number) => T::try_from(*number).ok(),
            Scalar::Double(_) => None,
        };
        number.map(Self).ok_or_else(|| D::Error::custom(format!("{told} is no whole number")))
    }
}

impl<'de> Deserialize<'de> for Double {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let told = from.deserialize_any(Scalars)?;
        let number = match &told {
            // Rust's own reading knows `NaN`, `Infinity` and `-Infinity` too.
            Scalar::Text(text) => text.parse().ok(),
            Scalar::Whole(number) => Some(*number as f64),
            Scalar::Double(number) => Some(*number),
        };
        number.map(Self).ok_or_else(|| D::Error::custom(format!("{told} is no number")))
    }
}

/// What a number may be told as.
enum Scalar {
    Text(String),
    Whole(i128),
    Double(f64),
}

/// Longest text that is repeated in an error: a sender sees what it wrote, and no more.
const TEXT_CHARS_MAX: usize = 100;

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => {
                let shown: String = text.chars().take(TEXT_CHARS_MAX).collect();
                write!(f, "{shown:?}")
            }
            Self::Whole(number) => write!(f, "{number}"),
            Self::Double(number) => write!(f, "{number}"),
        }
    }
}

struct Scalars;

impl Visitor<'_> for Scalars {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Whole(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Whole(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Double(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(fields: &str) -> Result<Sum, String> {
        let json = format!(
            "{{\"resourceMetrics\":[{{\"scopeMetrics\":[{{\"metrics\":[{{\"sum\":{{{fields}}}}}]}}]}}]}}"
        );
        let read = read(json.as_bytes()).map_err(|error| error.to_string())?;
        match read[0].scope_metrics[0].metrics[0].data.clone() {
            Some(Data::Sum(sum)) => Ok(sum),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn temporalities_have_names_and_numbers() {
        let check = |told: &str, expect: Result<i32, &str>| {
            let read = sum(&format!("\"aggregationTemporality\":{told}"));
            match (read, expect) {
                (Ok(sum), Ok(number)) => assert_eq!(sum.aggregation_temporality, number, "{told}"),
                (Err(error), Err(text)) => assert!(error.starts_with(text), "{told}: {error}"),
                (read, _) => panic!("{told}: {read:?}"),
            }
        };
        check("\"AGGREGATION_TEMPORALITY_CUMULATIVE\"", Ok(2));
        check("\"AGGREGATION_TEMPORALITY_DELTA\"", Ok(1));
        check("\"AGGREGATION_TEMPORALITY_UNSPECIFIED\"", Ok(0));
        check("2", Ok(2));
        check("7", Ok(7));
        check("\"CUMULATIVE\"", Err("aggregationTemporality is \"CUMULATIVE\" at line 1 column "));
        check("1.5", Err("aggregationTemporality is 1.5 at line 1 column "));
        check("[]", Err("invalid type: sequence, expected a number or a text at line 1 column "));
        let long = format!("\"{}\"", "x".repeat(100_000));
        check(&long, Err(&format!("aggregationTemporality is \"{}\" at", "x".repeat(100))));
    }

    #[test]
    fn values_are_read_or_told_of() {
        let check = |fields: &str, expect: Result<f64, &str>| {
            let read = sum(&format!("\"dataPoints\":[{{{fields}}}]"));
            match (read, expect) {
                (Ok(sum), Ok(value)) => {
                    let read = match sum.data_points[0].value {
                        Some(number_data_point::Value::AsDouble(value)) => value,
                        Some(number_data_point::Value::AsInt(value)) => value as f64,
                        None => f64::INFINITY,
                    };
                    assert!(read == value || (read.is_nan() && value.is_nan()), "{fields}: {read}");
                }
                (Err(error), Err(text)) => assert!(error.starts_with(text), "{fields}: {error}"),
                (read, _) => panic!("{fields}: {read:?}"),
            }
        };
        check("\"asDouble\":1.5", Ok(1.5));
        check("\"asDouble\":2", Ok(2.0));
        check("\"asDouble\":\"NaN\"", Ok(f64::NAN));
        check("\"asDouble\":\"-Infinity\"", Ok(f64::NEG_INFINITY));
        check("\"asInt\":\"-5\"", Ok(-5.0));
        check("\"asInt\":5", Ok(5.0));
        check("\"asInt\":null,\"asDouble\":3", Ok(3.0));
        check("\"asInt\":\"five\"", Err("\"five\" is no whole number at line 1 column "));
        check("\"asInt\":1.5", Err("1.5 is no whole number at line 1 column "));
        check("\"asInt\":\"9223372036854775808\"", Err("\"9223372036854775808\" is no whole"));
        check("\"asDouble\":\"x\"", Err("\"x\" is no number at line 1 column "));
        check("\"timeUnixNano\":-1", Err("-1 is no whole number at line 1 column "));
        check("\"timeUnixNano\":true", Err("invalid type: boolean `true`, expected a number"));
    }
}
