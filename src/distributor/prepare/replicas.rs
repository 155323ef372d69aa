//! Samples that several replicas of one Prometheus send: which labels tell, and what is decided.
//!
//! Who is elected is for the tracker to say, which knows time and the cluster. Here its verdict
//! arrives: for a request as a whole, given by its first series, or for each series by itself
//! where a tenant mixes both kinds (`accept_mixed_ha_samples`).

use crate::wire::DecodeError;
use crate::wire::write_request::{RawLabels, WriteRequest};

/// What becomes of the label that tells a replica from its twins.
#[derive(Clone, Copy)]
pub enum Replicas<'a> {
    /// Nothing is deduplicated, or the request is not from a replica: the label stays.
    Kept,
    /// The request is the elected replica's: the label goes from all series, so that they are
    /// the same ones when another is elected.
    Removed { replica_label: &'a str },
    /// Every series is judged by itself.
    Judged { labels: HaLabels<'a>, judge: &'a dyn Fn(HaSeries<'_>) -> Verdict },
}

/// Names of the two labels, a tenant's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaLabels<'a> {
    pub cluster: &'a str,
    pub replica: &'a str,
}

/// Values of the two labels; empty when a label is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HaPair<'a> {
    pub cluster: &'a [u8],
    pub replica: &'a [u8],
}

/// A series of a replica, as its judge sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaSeries<'a> {
    pub pair: HaPair<'a>,
    /// Samples and histograms, for the count of deduplicated samples.
    pub samples: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// From the elected replica.
    Accepted,
    /// From another: left out without a word. The judge counts it.
    Deduplicated,
    /// The tenant has as many clusters as it may: left out and counted here.
    TooManyClusters,
    /// The tracker could not tell: left out without a word, as in Cortex.
    Unknown,
}

impl<'a> HaPair<'a> {
    /// The pair of a label list; of a label that comes twice the last counts.
    pub fn of(labels: RawLabels<'a>, names: HaLabels<'_>) -> Self {
        let mut pair = Self::default();
        for (name, value) in labels {
            if name == names.replica.as_bytes() {
                pair.replica = value;
            }
            if name == names.cluster.as_bytes() {
                pair.cluster = value;
            }
        }
        pair
    }

    /// Whether both labels are there, so that it is a replica's.
    pub fn is_whole(&self) -> bool {
        !self.cluster.is_empty() && !self.replica.is_empty()
    }
}

/// The pair of a request's first series, which speaks for all of it; `None` without series.
pub fn replica_of_first_series<'a>(
    body: &'a [u8],
    names: HaLabels<'_>,
) -> Result<Option<HaPair<'a>>, DecodeError> {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena)?;
    let first = request.next_series()?;
    Ok(first.map(|series| HaPair::of(series.raw_labels(body), names)))
}

/// Shows the pair of every series that has one, so that verdicts can be fetched before a request
/// is prepared.
pub fn each_replica<'a>(
    body: &'a [u8],
    names: HaLabels<'_>,
    mut show: impl FnMut(HaPair<'a>),
) -> Result<(), DecodeError> {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena)?;
    while let Some(series) = request.next_series()? {
        let pair = HaPair::of(series.raw_labels(body), names);
        if pair.is_whole() {
            show(pair);
        }
    }
    Ok(())
}
