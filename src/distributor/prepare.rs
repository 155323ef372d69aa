//! A received request becomes one that ingesters take: the order of it all.
//!
//! One pass over the borrowed request. Of each series: its replica is judged, labels that nobody
//! wants go, the metric's name is checked, labels with an empty value go, names are sorted, the
//! ring key is hashed, and the rules of `validation` are applied. A series that breaks one is
//! left out; the others go on, and the first that broke one is the answer's text.
//!
//! A request that needs nothing of this, as nearly all do, stays the bytes it is: items are
//! ranges of them, and nothing is allocated for a series. From the first change on a new body is
//! written beside the reading.
//!
//! What must hold: what is refused or counted, and in which order, is Cortex's; a request that
//! is no sound protobuf, down to its last byte, has had no effect at all.

mod keys;
mod observed;
mod output;
mod replicas;
mod series;
mod without_histograms;

use crate::keys::RingKey;
use crate::labels::{LabelsBuf, NameScheme, Placement, ring_key_of_tenant};
use crate::limits::Limits;
use crate::wire::DecodeError;
use crate::wire::write_request::{Content, Metadata, RequestField, WriteRequest};

use super::prepared::{Counts, Discarded, Item, ItemKind, Prepared};
use super::validation::{HistogramWork, LabelRules, TimeRange, check_metadata};
use keys::WaitingKeys;
use output::Output;

pub use observed::{HISTOGRAM_BUCKETS_BOUNDS, LABELS_BOUNDS, Observed, Spread};
pub use replicas::{
    HaLabels, HaPair, HaSeries, Replicas, Verdict, each_replica, replica_of_first_series,
};
pub use without_histograms::without_histograms;

/// Most series and metadata of a request: places of them take 28 bytes each, so that they stay
/// near the size of the largest body. In 100 MiB more of them would have 25 bytes each, which is
/// no series at all; such a request is refused.
pub const ITEMS_MAX: usize = 4 << 20;

/// Bytes of a usual series, for a first guess at the number of items; a wrong one only means
/// that the list of them has to grow.
const ITEM_BYTES_USUAL: usize = 256;

/// What applies to one tenant's requests.
#[derive(Clone, Copy)]
pub struct Treatment<'a> {
    pub tenant: &'a str,
    pub limits: &'a Limits,
    pub names: NameScheme,
    pub placement: Placement,
    /// Whether anybody asks for keys of series; without, they are all the same.
    pub is_placed: bool,
    pub replicas: Replicas<'a>,
}

/// Memory that requests share one after the other, and what the last of them showed.
#[derive(Debug, Default)]
pub struct Scratch {
    arena: Vec<u8>,
    work: Work,
    /// For metrics; of a request that was refused as a whole, up to there.
    pub observed: Observed,
}

/// Most bytes of labels that a scratch keeps from one request to the next; a thousand times a
/// usual series. Each thread that takes writes has a scratch.
const BYTES_KEPT_MAX: usize = 1 << 20;

impl Scratch {
    /// Gives back what an uncommonly large request took.
    pub fn trim(&mut self) {
        if self.arena.capacity() > BYTES_KEPT_MAX {
            *self = Self::default();
        }
    }
}

/// Memory for the series at hand.
#[derive(Debug, Default)]
struct Work {
    labels: LabelsBuf,
    keys: WaitingKeys,
    histograms: HistogramWork,
    /// Which entries of `drop_labels` have taken their label.
    dropped: Vec<bool>,
}

/// Why a request is refused as a whole. The texts are Cortex's.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Unreadable(#[from] DecodeError),
    #[error("request has too many series and metadata (limit: {ITEMS_MAX})")]
    TooManyItems,
    /// A series has no labels at all. 400.
    #[error("empty labels found")]
    EmptyLabels {
        /// What was left out before it.
        discarded: Discarded,
    },
    /// A series that is placed by its metric has none. Cortex takes this for a fault of its own
    /// and answers 500.
    #[error("no metric name label")]
    MetricNameMissing {
        /// What was left out before it.
        discarded: Discarded,
    },
}

impl PrepareError {
    /// What had been left out before the request was refused.
    pub fn discarded(&self) -> &Discarded {
        const NOTHING: &Discarded = &Discarded {
            samples: Vec::new(),
            exemplars: Vec::new(),
            metadata: Vec::new(),
            reduced_resolution: 0,
        };
        match self {
            Self::EmptyLabels { discarded } | Self::MetricNameMissing { discarded } => discarded,
            Self::Unreadable(_) | Self::TooManyItems => NOTHING,
        }
    }
}

/// Why a series ends the whole request.
enum Refusal {
    TooManyItems,
    EmptyLabels,
    MetricNameMissing,
}

/// Makes of `body`, a `cortexpb.WriteRequest`, what goes on of it.
pub fn prepare<'a>(
    body: &'a [u8],
    treatment: &Treatment<'_>,
    scratch: &mut Scratch,
    now_ms: i64,
) -> Result<Prepared<'a>, PrepareError> {
    let Scratch { arena, work, observed } = scratch;
    *observed = Observed::default();
    let limits = treatment.limits;
    let mut preparation = Preparation {
        body,
        treatment,
        // Whether the sender has checked them stands behind the series, so it is looked up when
        // one has a name that is wrong.
        rules: LabelRules { limits, names: treatment.names, names_are_checked: false },
        knows_if_checked: false,
        times: TimeRange::new(limits, now_ms),
        tenant_key: ring_key_of_tenant(treatment.tenant),
        output: Output::new(body),
        items: Vec::with_capacity(body.len() / ITEM_BYTES_USUAL),
        counts: Counts::default(),
        discarded: Discarded::default(),
        failure: None,
        metadata_failure: None,
        pairs: Vec::new(),
        work,
        observed,
    };
    preparation.work.keys.clear();
    let mut request = WriteRequest::new(body, arena)?;
    let mut refusal = None;
    while let Some(field) = request.next_field()? {
        // After a refusal only the rest's soundness is of interest: bytes that are no request
        // are told apart first.
        if refusal.is_none() {
            refusal = preparation.take(&field).err();
        }
    }
    preparation.work.keys.finish(preparation.tenant_key, &mut preparation.items);
    preparation.work.histograms.reduced.clear();
    let summary = request.summary;
    preparation.observed.received = Counts {
        samples: summary.samples,
        histograms: summary.histograms,
        exemplars: summary.exemplars,
        metadata: summary.metadata,
    };
    if let Some(refusal) = refusal {
        // Metadata comes last in Cortex, wherever it lies in the request.
        let discarded = Discarded { metadata: Vec::new(), ..preparation.discarded };
        return Err(match refusal {
            Refusal::TooManyItems => PrepareError::TooManyItems,
            Refusal::EmptyLabels => PrepareError::EmptyLabels { discarded },
            Refusal::MetricNameMissing => PrepareError::MetricNameMissing { discarded },
        });
    }
    Ok(Prepared {
        body: preparation.output.finish()?,
        items: preparation.items,
        counts: preparation.counts,
        source: summary.source,
        discard_out_of_order: summary.discard_out_of_order,
        failure: preparation.failure.or(preparation.metadata_failure),
        discarded: preparation.discarded,
    })
}

/// One request on its way.
struct Preparation<'a, 't> {
    body: &'a [u8],
    treatment: &'t Treatment<'t>,
    rules: LabelRules<'t>,
    knows_if_checked: bool,
    times: TimeRange,
    tenant_key: RingKey,
    output: Output<'a>,
    items: Vec<Item>,
    counts: Counts,
    discarded: Discarded,
    failure: Option<String>,
    /// Counts only if no series has failed, even one that comes later.
    metadata_failure: Option<String>,
    /// Labels of the series at hand, when they cannot stay as they are.
    pairs: Vec<(&'a [u8], &'a [u8])>,
    work: &'t mut Work,
    observed: &'t mut Observed,
}

impl<'a> Preparation<'a, '_> {
    fn take(&mut self, field: &RequestField<'a>) -> Result<(), Refusal> {
        if self.items.len() == ITEMS_MAX {
            return Err(Refusal::TooManyItems);
        }
        match &field.content {
            Content::Series(series) => self.take_series(field, series),
            Content::Metadata(metadata) => {
                self.take_metadata(field, metadata);
                Ok(())
            }
            Content::Other => {
                self.output.keep(field);
                Ok(())
            }
        }
    }

    fn take_metadata(&mut self, field: &RequestField<'_>, metadata: &Metadata<'_>) {
        if let Err(violation) = check_metadata(metadata, self.treatment.limits) {
            self.metadata_failure.get_or_insert_with(|| violation.text());
            count(&mut self.discarded.metadata, violation.reason(), 1);
            self.output.leave_out(field);
            return;
        }
        let Treatment { tenant, placement, .. } = *self.treatment;
        let key = placement.metadata_ring_key(tenant, metadata.metric_family_name);
        let (start, end) = self.output.keep(field);
        self.items.push(Item { key, start, end, kind: ItemKind::Metadata });
        self.counts.metadata += 1;
    }
}

/// Adds to the count of a reason. Zero is added too: Cortex's counter then exists.
fn count(counts: &mut Vec<(&'static str, u64)>, reason: &'static str, number: u64) {
    match counts.iter_mut().find(|(counted, _)| *counted == reason) {
        Some((_, count)) => *count += number,
        None => counts.push((reason, number)),
    }
}

#[cfg(test)]
mod tests;
