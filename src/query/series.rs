//! Series and their samples as text, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::go_text::{Float, Rfc3339Ms};
use crate::labels::{Labels, LabelsBuf, METRIC_NAME};
use crate::output;
use crate::wire::histogram::{Count, Histogram};
use crate::wire::remote_read::ReadSeries;

/// Series printed; the rest are counted.
const SERIES_MAX: usize = 50;
/// Samples printed of a series, the newest.
const SAMPLES_MAX: usize = 20;
/// Bits of the value that says that a series ended.
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

/// A series for scripts. Values are texts, as in Prometheus' API: JSON has no NaN.
#[derive(Serialize)]
struct ShownSeries {
    labels: BTreeMap<String, String>,
    samples: Vec<ShownSample>,
    histograms: Vec<ShownHistogram>,
}

#[derive(Serialize)]
struct ShownSample {
    timestamp_ms: i64,
    value: String,
}

#[derive(Serialize)]
struct ShownHistogram {
    timestamp_ms: i64,
    count: String,
    sum: String,
    buckets: u64,
    schema: i32,
}

/// Everything, for scripts.
pub(super) fn json(series: &[ReadSeries]) -> serde_json::Result<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shown = series.iter().map(|series| {
        let labels = series.labels.as_labels();
        let samples = series.samples.iter().map(|sample| ShownSample {
            timestamp_ms: sample.timestamp_ms,
            value: float_text(sample.value),
        });
        let histograms = series.histograms.iter().map(|histogram| ShownHistogram {
            timestamp_ms: histogram.timestamp_ms,
            count: count_text(histogram),
            sum: float_text(histogram.sum),
            buckets: histogram.bucket_count() as u64,
            schema: histogram.schema,
        });
        ShownSeries {
            labels: labels.iter().map(|(name, value)| (text(name), text(value))).collect(),
            samples: samples.collect(),
            histograms: histograms.collect(),
        }
    });
    output::json(&shown.collect::<Vec<_>>())
}

/// For people.
pub(super) fn print(series: &[ReadSeries]) -> String {
    let mut out = String::new();
    for series in &series[..series.len().min(SERIES_MAX)] {
        print_series(&mut out, series);
    }
    if let Some(more) = series.len().checked_sub(SERIES_MAX).filter(|more| *more > 0) {
        let _ = writeln!(out, "… and {more} more series; narrow the selector to see them");
    }
    out
}

fn print_series(out: &mut String, series: &ReadSeries) {
    let _ = writeln!(out, "{}", series_text(series.labels.as_labels()));
    let floats = series.samples.iter().map(|s| (s.timestamp_ms, float_text(s.value)));
    let histograms = series.histograms.iter().map(|h| (h.timestamp_ms, histogram_text(h)));
    let mut samples: Vec<_> = floats.chain(histograms).collect();
    samples.sort_by_key(|(t_ms, _)| *t_ms);
    let older = samples.len().saturating_sub(SAMPLES_MAX);
    if older > 0 {
        let _ = writeln!(out, "  … {older} older");
    }
    let shown = samples[older..].iter().map(|(t_ms, value)| (Rfc3339Ms(*t_ms).to_string(), value));
    let shown: Vec<_> = shown.collect();
    let width = shown.iter().map(|(time, _)| time.len()).max().unwrap_or(0);
    for (time, value) in shown {
        let _ = writeln!(out, "  {time:<width$}  {value}");
    }
}

/// `up{job="node"}`, where the metric's name can stand before the braces.
fn series_text(labels: Labels<'_>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    match std::str::from_utf8(labels.metric_name()) {
        Ok(metric) if !metric.is_empty() && metric.chars().all(plain) => {
            let others = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
            let others = LabelsBuf::from_pairs(others);
            if others.as_labels().is_empty() {
                return metric.to_owned();
            }
            format!("{metric}{}", others.as_labels())
        }
        _ => labels.to_string(),
    }
}

fn float_text(value: f64) -> String {
    if value.to_bits() == STALE_BITS { "stale".to_owned() } else { Float(value).to_string() }
}

fn histogram_text(histogram: &Histogram) -> String {
    if histogram.sum.to_bits() == STALE_BITS {
        return "stale".to_owned();
    }
    let (count, sum) = (count_text(histogram), Float(histogram.sum));
    let buckets = histogram.bucket_count();
    format!("histogram count {count}, sum {sum}, {buckets} buckets, schema {}", histogram.schema)
}

fn count_text(histogram: &Histogram) -> String {
    match histogram.count {
        Some(Count::Int(count)) => count.to_string(),
        Some(Count::Float(count)) => Float(count).to_string(),
        None => "0".to_owned(),
    }
}
