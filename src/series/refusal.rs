//! What a creation brings to the limits, and the numbers of the limit that refuses it.

use super::in_force::{Limit, LimitName};
use super::ledger::Count;
use crate::keys::RingKey;

/// A series that asks to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewSeries<'a> {
    pub ring_key: RingKey,
    /// Value of the metric's name label. Looked at only while metrics are counted.
    pub metric: &'a [u8],
    /// The metric's limit does not apply, as when it is on the ignore list; it still counts.
    pub metric_exempt: bool,
    /// Ascending indices of the label sets that the series belongs to; the default partition
    /// is in it where nothing else matches. Looked at only while label sets are counted.
    pub label_sets: &'a [u16],
    /// The configuration of label sets that `label_sets` was computed by.
    pub label_sets_generation: u64,
}

/// Which half of a count is compared with its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// With enforcement on.
    Owned,
    /// With enforcement off: Cortex's way.
    #[default]
    InMemory,
}

impl Basis {
    /// The count in a word, for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Owned => "owned",
            Self::InMemory => "in-memory",
        }
    }
}

/// The numbers that decided a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    pub count: Count,
    pub basis: Basis,
    pub limit: Limit,
}

/// One limit that a creation is held against, with the numbers that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: LimitName,
    pub decided: Decided,
}

impl Check {
    pub fn passes(&self) -> bool {
        self.decided.count.by(self.decided.basis) < self.decided.limit.max
    }

    /// The refusal that it is, if it does not pass.
    pub fn verdict(self) -> Result<(), Refusal> {
        if self.passes() {
            return Ok(());
        }
        let decided = self.decided;
        Err(match self.name {
            LimitName::Series => Refusal::Series(decided),
            LimitName::NativeHistogramSeries => Refusal::NativeHistogramSeries(decided),
            LimitName::PerMetric => Refusal::Metric(decided),
            LimitName::LabelSet(index) => Refusal::LabelSet { index, decided },
        })
    }
}

/// Why a new series, or a float series that turns into a native histogram, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The whole push is to be refused and what it created released.
    #[error("the instance has as many series as it may")]
    Instance(Decided),
    #[error("the tenant has as many series as it may")]
    Series(Decided),
    #[error("the tenant has as many native histogram series as it may")]
    NativeHistogramSeries(Decided),
    #[error("the metric has as many series as it may")]
    Metric(Decided),
    #[error("label set {index} has as many series as it may")]
    LabelSet { index: u16, decided: Decided },
}
