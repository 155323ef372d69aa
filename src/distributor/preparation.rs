//! A decoded request becomes one that ingesters take.
//!
//! Labels are put in the order that ingesters want, labels with an empty value are dropped, and
//! series that no ingester could take are left out; the first of them is the answer's text while
//! the others go on. A request that needs none of this goes on as the bytes it is.

use std::borrow::Cow;
use std::fmt;

use crate::distributor::prepared::{Counts, Discarded, Item, ItemKind, Prepared};
use crate::labels::{
    Labels, LabelsBuf, METRIC_NAME, prepare as prepare_labels, ring_key, ring_key_of_metric,
    write_quoted,
};
use crate::tenant::TenantId;
use crate::wire::DecodeError;
use crate::wire::rewrite::{Edit, places, rewrite};
use crate::wire::write_request::{Series, WriteRequest};

/// Why nothing of a request can go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// A series has no labels at all: refused as a whole, as in Cortex.
    #[error("empty labels found")]
    EmptyLabels,
}

/// Prepares an encoded `cortexpb.WriteRequest` of a tenant.
pub fn prepare<'a>(tenant: &TenantId, body: &'a [u8]) -> Result<Prepared<'a>, PrepareError> {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena)?;
    let mut edits = Vec::new();
    let mut kept = Vec::new();
    let mut discarded = Discarded::default();
    let mut failure = None;
    let mut number = 0;
    while let Some(series) = request.next_series()? {
        match judge(&series, body) {
            Ok(relabelled) => {
                let labels = relabelled.as_ref().map(LabelsBuf::as_labels);
                let labels = labels.unwrap_or_else(|| request.labels(&series));
                kept.push((ring_key(tenant.as_str(), labels), kind(&series)));
                edits.extend(relabelled.map(|labels| (number, Edit::Relabel(labels))));
            }
            Err(Unfit::EmptyLabels) => return Err(PrepareError::EmptyLabels),
            Err(Unfit::Invalid(reason, text)) => {
                failure.get_or_insert(text);
                edits.push((number, Edit::Drop));
                discard(&mut discarded, reason, &series);
            }
        }
        number += 1;
    }
    let summary = request.summary;
    kept.extend(request.metadata().map(|metadata| {
        (ring_key_of_metric(tenant.as_str(), metadata.metric_family_name), ItemKind::Metadata)
    }));
    let body = match edits.is_empty() {
        true => Cow::Borrowed(body),
        false => {
            let mut edits = edits.into_iter().peekable();
            Cow::Owned(rewrite(body, |number| {
                let due = edits.next_if(|(edited, _)| *edited == number);
                due.map_or(Edit::Keep, |(_, edit)| edit)
            }))
        }
    };
    let items = items(&body, &kept);
    Ok(Prepared {
        counts: counts(&items),
        items,
        body,
        source: summary.source,
        discard_out_of_order: summary.discard_out_of_order,
        failure,
        discarded,
    })
}

/// The places of what was kept. Series may stand behind metadata in a body, so each takes its
/// next of its own kind.
fn items(body: &[u8], kept: &[(crate::keys::RingKey, ItemKind)]) -> Vec<Item> {
    let of_metadata = |(_, kind): &&(_, ItemKind)| *kind == ItemKind::Metadata;
    let mut metadata = kept.iter().filter(of_metadata);
    let mut series = kept.iter().filter(|kept| !of_metadata(kept));
    let mut items = Vec::with_capacity(kept.len());
    for (number, start, end) in places(body) {
        let next = if number == 1 { series.next() } else { metadata.next() };
        items.extend(next.map(|&(key, kind)| Item { key, start, end, kind }));
    }
    items
}

fn kind(series: &Series) -> ItemKind {
    ItemKind::Series {
        samples: series.sample_count,
        histograms: series.histogram_count,
        exemplars: series.exemplar_count,
    }
}

fn counts(items: &[Item]) -> Counts {
    let mut counts = Counts::default();
    for item in items {
        match item.kind {
            ItemKind::Series { samples, histograms, exemplars } => {
                counts.samples += u64::from(samples);
                counts.histograms += u64::from(histograms);
                counts.exemplars += u64::from(exemplars);
            }
            ItemKind::Metadata => counts.metadata += 1,
        }
    }
    counts
}

fn discard(discarded: &mut Discarded, reason: &'static str, series: &Series) {
    let samples = u64::from(series.sample_count) + u64::from(series.histogram_count);
    add(&mut discarded.samples, reason, samples);
    add(&mut discarded.exemplars, reason, series.exemplar_count.into());
}

fn add(counts: &mut Vec<(&'static str, u64)>, reason: &'static str, count: u64) {
    match counts.iter_mut().find(|(known, _)| *known == reason) {
        _ if count == 0 => {}
        Some((_, sum)) => *sum += count,
        None => counts.push((reason, count)),
    }
}

/// Most labels of a series that is looked at at all: sorting more would cost memory that the
/// request's size does not bound.
const LABELS_MAX: usize = 1000;

/// Why a series goes to no ingester. The texts are Cortex's.
enum Unfit {
    EmptyLabels,
    /// The reason's label, and the text.
    Invalid(&'static str, String),
}

/// The labels that a series has to get instead of its own, if any.
fn judge(series: &Series, body: &[u8]) -> Result<Option<LabelsBuf>, Unfit> {
    let count = series.raw_labels(body).take(LABELS_MAX + 1).count();
    if count > LABELS_MAX {
        let text = format!("series has too many labels (more than {LABELS_MAX})");
        return Err(Unfit::Invalid("max_label_names_per_series", text));
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
        prepare_labels(&mut pairs);
        Some(LabelsBuf::from_pairs(pairs.iter().copied()))
    } else {
        None
    };
    let labels = match &replaced {
        Some(labels) => labels.as_labels(),
        None => series.labels(body, &[]),
    };
    if labels.metric_name().is_empty() {
        return Err(Unfit::Invalid("missing_metric_name", "sample missing metric name".to_owned()));
    }
    if let Some(name) = labels.duplicate_name() {
        let metric = metric_text(labels);
        let (name, metric) = (Quoted(name), Quoted(metric.as_bytes()));
        let text = format!("duplicate label name: {name} metric {metric}");
        return Err(Unfit::Invalid("duplicate_label_names", text));
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
