//! Remote write: a received body becomes a request that an ingester takes.
//!
//! Labels are put in the order that ingesters want, labels with an empty value are dropped, and
//! series that no ingester could take are left out; the first of them is the answer's text while
//! the others go on. A request that needs none of this is handed on as the bytes it is.
//!
//! Where the request goes is the caller's: with `-target=all` the ingester in this process.

mod config;
pub mod fan_out;
mod prepared;

use std::fmt;

use crate::labels::{Labels, LabelsBuf, METRIC_NAME, prepare, write_quoted};
use crate::wire::DecodeError;
use crate::wire::remote_write::{self, Headers, Options, RemoteWriteError};
use crate::wire::rewrite::{Edit, rewrite};
use crate::wire::write_request::{Series, WriteRequest};

pub use config::{DistributorConfig, DistributorConfigError, PoolConfig, ShardingStrategy};
pub use prepared::{Counts, Discarded, Item, ItemKind, Prepared};

/// Why a remote write was refused, or not taken whole.
#[derive(Debug, thiserror::Error)]
pub enum PushError<E> {
    #[error(transparent)]
    Unreadable(#[from] RemoteWriteError),
    /// A series has no labels at all: refused as a whole, as in Cortex.
    #[error("empty labels found")]
    EmptyLabels,
    /// Some series were left out; the others are stored.
    #[error("{text}")]
    Invalid { text: String },
    /// What the request was handed to refused it.
    #[error(transparent)]
    Sink(E),
}

/// One remote-write request as HTTP brought it.
#[derive(Clone, Copy, Debug)]
pub struct RemoteWrite<'a> {
    pub headers: Headers<'a>,
    pub body: &'a [u8],
    /// The tenant's wishes for remote write 2.0.
    pub type_and_unit_labels: bool,
    pub start_timestamp: bool,
}

/// Takes one remote write and hands the request that it becomes to `sink`.
pub fn push<T, E>(
    config: &DistributorConfig,
    write: RemoteWrite<'_>,
    sink: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<T, PushError<E>> {
    let options = Options {
        recv_bytes_max: config.max_recv_msg_size,
        v2_enabled: config.remote_writev2_enabled,
        accept_unknown_content_type: config.accept_unknown_remote_write_content_type,
        type_and_unit_labels: write.type_and_unit_labels,
        start_timestamp: write.start_timestamp,
    };
    let decoded = remote_write::decode(write.headers, write.body, &options)?;
    let prepared = prepare_request(&decoded.body)?;
    let body = prepared.body.as_deref().unwrap_or(&decoded.body);
    let taken = sink(body).map_err(PushError::Sink)?;
    match prepared.failure {
        None => Ok(taken),
        Some(text) => Err(PushError::Invalid { text }),
    }
}

/// A request fit for ingesters.
struct Fit {
    /// `None` when the received bytes are fit as they are.
    body: Option<Vec<u8>>,
    /// Why the first of the series that were left out was.
    failure: Option<String>,
}

fn prepare_request<E>(body: &[u8]) -> Result<Fit, PushError<E>> {
    let unreadable = |error: DecodeError| PushError::Unreadable(error.into());
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena).map_err(unreadable)?;
    let mut edits = Vec::new();
    let mut number = 0;
    let mut failure = None;
    while let Some(series) = request.next_series().map_err(unreadable)? {
        match judge(&series, body) {
            Ok(None) => {}
            Ok(Some(labels)) => edits.push((number, Edit::Relabel(labels))),
            Err(Unfit::EmptyLabels) => return Err(PushError::EmptyLabels),
            Err(Unfit::Invalid(text)) => {
                failure.get_or_insert(text);
                edits.push((number, Edit::Drop));
            }
        }
        number += 1;
    }
    if edits.is_empty() {
        return Ok(Fit { body: None, failure });
    }
    let mut edits = edits.into_iter().peekable();
    let body = rewrite(body, |number| match edits.next_if(|(edited, _)| *edited == number) {
        Some((_, edit)) => edit,
        None => Edit::Keep,
    });
    Ok(Fit { body: Some(body), failure })
}

/// Most labels of a series that is looked at at all: sorting more would cost memory that the
/// request's size does not bound.
const LABELS_MAX: usize = 1000;

/// Why a series goes to no ingester. The texts are Cortex's.
enum Unfit {
    EmptyLabels,
    Invalid(String),
}

/// The labels that a series has to get instead of its own, if any.
fn judge(series: &Series, body: &[u8]) -> Result<Option<LabelsBuf>, Unfit> {
    let count = series.raw_labels(body).take(LABELS_MAX + 1).count();
    if count > LABELS_MAX {
        let text = format!("series has too many labels (more than {LABELS_MAX})");
        return Err(Unfit::Invalid(text));
    }
    let mut raw = series.raw_labels(body);
    let Some(first) = raw.next() else {
        return Err(Unfit::EmptyLabels);
    };
    let has_empty = first.1.is_empty() || raw.any(|(_, value)| value.is_empty());
    let in_order = series.names_in_order(body);
    let mut pairs: Vec<_> = Vec::new();
    let replaced = if has_empty || !in_order {
        pairs.extend(series.raw_labels(body));
        prepare(&mut pairs);
        Some(LabelsBuf::from_pairs(pairs.iter().copied()))
    } else {
        None
    };
    let labels = match &replaced {
        Some(labels) => labels.as_labels(),
        None => series.labels(body, &[]),
    };
    if labels.metric_name().is_empty() {
        return Err(Unfit::Invalid("sample missing metric name".to_owned()));
    }
    if let Some(name) = labels.duplicate_name() {
        let metric = metric_text(labels);
        let (name, metric) = (Quoted(name), Quoted(metric.as_bytes()));
        return Err(Unfit::Invalid(format!("duplicate label name: {name} metric {metric}")));
    }
    Ok(replaced)
}

/// A series as validation errors name it: the metric, then its other labels.
fn metric_text(labels: Labels<'_>) -> String {
    let mut metric = None;
    let others = labels.iter().filter(|(name, value)| {
        let is_metric = metric.is_none() && *name == METRIC_NAME;
        if is_metric {
            metric = Some(*value);
        }
        !is_metric
    });
    let others: Vec<_> = others
        .map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), Quoted(value)))
        .collect();
    let metric = String::from_utf8_lossy(metric.unwrap_or_default());
    if others.is_empty() {
        metric.into_owned()
    } else {
        format!("{metric}{{{}}}", others.join(", "))
    }
}

/// A text as Go's `%q` writes it, cut to the length that validation errors show.
struct Quoted<'a>(&'a [u8]);

/// Longest quoted text of a validation error, in characters.
const QUOTED_CHARS_MAX: usize = 200;

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(self.0);
        let shown: String = text.chars().take(QUOTED_CHARS_MAX).collect();
        write_quoted(f, shown.as_bytes())
    }
}
