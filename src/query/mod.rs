//! `freehold query`: what a running instance holds of a tenant's series, printed for people; and
//! in `clients` what its distributors keep of budgets.
//!
//! Asks by remote read, so what is printed is what any reader gets. The output is bounded: the
//! newest samples of the first series, and how many were left out.

pub mod clients;
pub mod explain;
mod instance;

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;

use crate::clock::Clock;
use crate::config::QueryArgs;
use crate::go_text::{Float, Rfc3339Ms};
use crate::labels::{Labels, LabelsBuf, METRIC_NAME};
use crate::server::read::ANSWER_BYTES_MAX;
use crate::server::tenancy::TENANT_HEADER;
use crate::wire::histogram::{Count, Histogram};
use crate::wire::remote_read::{self, Query, ReadSeries, RemoteReadError};
use crate::wire::selector::{Selector, SelectorError};
use crate::wire::timestamp;

pub use instance::InstanceError;

/// Time that is looked at unless told otherwise.
const SPAN_MS: i64 = 3600 * 1000;
/// How long the instance may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Series printed; the rest are counted.
const SERIES_MAX: usize = 50;
/// Samples printed of a series, the newest.
const SAMPLES_MAX: usize = 20;
/// Bits of the value that says that a series ended.
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("cannot read MATCHERS; write a series selector such as 'up{{job=\"node\"}}'")]
    Matchers(#[from] SelectorError),
    #[error("--{flag} {text:?} is no time; write RFC 3339 or Unix seconds")]
    Time { flag: &'static str, text: String },
    #[error("--tenant {tenant:?} cannot be sent in a header")]
    Tenant { tenant: String },
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error("{addr} did not answer within {PATIENCE:?}; ask for fewer series or less time")]
    TooSlow { addr: String },
    #[error("{addr} has no remote read; name freehold's HTTP listener by --addr")]
    NotFreehold { addr: String },
    #[error("{addr} refuses the query with status {status}: {text}")]
    Refused { addr: String, status: u16, text: String },
    #[error("nothing is stored for tenant {tenant:?} in that time; check --tenant and --start")]
    UnknownTenant { tenant: String },
    #[error("cannot read the answer of {addr}")]
    Answer { addr: String, source: RemoteReadError },
}

/// Asks a running instance and returns what to print.
pub async fn run(args: &QueryArgs) -> Result<String, QueryError> {
    let selector = Selector::parse(&args.matchers)?;
    let end_ms = match &args.end {
        Some(text) => time("end", text)?,
        None => Clock::start().now().unix_ms,
    };
    let start_ms = match &args.start {
        Some(text) => time("start", text)?,
        None => end_ms.saturating_sub(SPAN_MS),
    };
    let asked = Query { start_ms, end_ms, selector };
    let block = remote_read::encode_request(&asked).map_err(|source| args.unread(source))?;
    let answer = args.send("/api/v1/read", "application/x-protobuf", block.into()).await?;
    let series = remote_read::decode_response(&answer, ANSWER_BYTES_MAX);
    let series = series.map_err(|source| args.unread(source))?;
    if !series.is_empty() {
        return Ok(print(&series));
    }
    // A mistaken tenant looks like a tenant without series.
    let form = format!("start={}&end={}&limit=1", seconds(start_ms), seconds(end_ms));
    let names =
        args.send("/api/v1/labels", "application/x-www-form-urlencoded", form.into()).await?;
    if String::from_utf8_lossy(&names).contains("\"data\":[]") {
        return Err(QueryError::UnknownTenant { tenant: args.tenant.clone() });
    }
    let (start, end) = (Rfc3339Ms(start_ms), Rfc3339Ms(end_ms));
    Ok(format!(
        "no series of tenant {} match {} from {start} to {end}\n",
        args.tenant, asked.selector
    ))
}

fn time(flag: &'static str, text: &str) -> Result<i64, QueryError> {
    timestamp::parse_ms(text).ok_or_else(|| QueryError::Time { flag, text: text.to_owned() })
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

impl QueryArgs {
    async fn send(&self, path: &str, kind: &str, body: Bytes) -> Result<Bytes, QueryError> {
        let asking = self.exchange(path, kind, body);
        let late = |_| QueryError::TooSlow { addr: self.addr.clone() };
        tokio::time::timeout(PATIENCE, asking).await.map_err(late)?
    }

    async fn exchange(&self, path: &str, kind: &str, body: Bytes) -> Result<Bytes, QueryError> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, kind)
            .header(TENANT_HEADER, &self.tenant)
            .body(Full::new(body));
        let request = request.map_err(|_| QueryError::Tenant { tenant: self.tenant.clone() })?;
        let answer = instance::exchange(&self.addr, request, ANSWER_BYTES_MAX).await?;
        self.judge(answer.status(), answer.into_body())
    }

    fn judge(&self, status: StatusCode, body: Bytes) -> Result<Bytes, QueryError> {
        let addr = self.addr.clone();
        match status {
            StatusCode::OK => Ok(body),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                Err(QueryError::NotFreehold { addr })
            }
            status => {
                let text = String::from_utf8_lossy(&body).trim_end().to_owned();
                Err(QueryError::Refused { addr, status: status.as_u16(), text })
            }
        }
    }

    fn unread(&self, source: RemoteReadError) -> QueryError {
        QueryError::Answer { addr: self.addr.clone(), source }
    }
}

fn print(series: &[ReadSeries]) -> String {
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
    let count = match histogram.count {
        Some(Count::Int(count)) => count.to_string(),
        Some(Count::Float(count)) => Float(count).to_string(),
        None => "0".to_owned(),
    };
    let (sum, buckets) = (Float(histogram.sum), histogram.bucket_count());
    format!("histogram count {count}, sum {sum}, {buckets} buckets, schema {}", histogram.schema)
}
