//! A request as it leaves validation: what goes on, where it lies, and what was left out.
//!
//! Items are places in one body, so whoever sends a part of them copies ranges and decodes
//! nothing again.

use std::borrow::Cow;

use crate::keys::RingKey;

/// What preparation made of one write request.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The received `cortexpb.WriteRequest`, or what is left of it once something was changed or
    /// dropped.
    pub body: Cow<'a, [u8]>,
    /// Series and metadata that go on, in the order of the body.
    pub items: Vec<Item>,
    pub counts: Counts,
    /// Enum number: 0 API, 1 RULE; others are kept.
    pub source: i32,
    pub discard_out_of_order: bool,
    /// Why the first item that was left out was; the others go on.
    pub failure: Option<String>,
    pub discarded: Discarded,
}

/// One series or metadata of a prepared body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Where the ring puts it.
    pub key: RingKey,
    /// Its field of the body, tag and length included: `start..end`.
    pub start: u32,
    pub end: u32,
    pub kind: ItemKind,
}

impl Item {
    /// As much as it takes of a message.
    pub fn len_bytes(&self) -> u64 {
        u64::from(self.end.saturating_sub(self.start))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    Series { samples: u32, histograms: u32, exemplars: u32 },
    Metadata,
}

/// How much goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub samples: u64,
    pub histograms: u64,
    pub exemplars: u64,
    pub metadata: u64,
}

/// How much was left out, by kind and reason; the reasons are the few of validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    pub samples: Vec<(&'static str, u64)>,
    pub exemplars: Vec<(&'static str, u64)>,
    pub metadata: Vec<(&'static str, u64)>,
    /// Native histograms whose resolution was reduced; they are kept.
    pub reduced_resolution: u64,
}

impl Discarded {
    /// Items that were left out.
    pub fn total(&self) -> u64 {
        let kinds = [&self.samples, &self.exemplars, &self.metadata];
        kinds.into_iter().flatten().map(|(_, count)| count).sum()
    }
}

impl Counts {
    /// What a tenant's rate is charged.
    pub fn total(&self) -> u64 {
        self.samples + self.histograms + self.exemplars + self.metadata
    }
}

/// Which part of a series goes when native histograms are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistogramRule {
    /// The histograms; float samples of the same series go on.
    HistogramsOnly,
    /// Every series that has any, whole: Cortex's.
    WholeSeries,
}

impl Prepared<'_> {
    /// Nothing is left to be sent.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Something was left out, so that what goes on is not what was received.
    pub fn has_losses(&self) -> bool {
        self.failure.is_some() || self.discarded != Discarded::default()
    }
}
