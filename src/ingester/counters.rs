//! What happened to a tenant's pushes, in numbers that go when the tenant goes.
//!
//! Statistics: each number is right by itself, and a scrape may see one push half counted.

use std::collections::BTreeMap;

pub use crate::exposition::Counter;
use crate::sync::Mutex;

/// Ids of label sets that a tenant's counters remember; later ones are not counted.
const LABEL_SET_IDS_MAX: usize = 1000;

/// Why a sample was discarded: the `reason` label, with Cortex's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DiscardReason {
    PerUserSeriesLimit,
    PerUserNativeHistogramSeriesLimit,
    PerMetricSeriesLimit,
    PerLabelsetSeriesLimit,
    OutOfOrder,
    NewValueForTimestamp,
    OutOfBounds,
    TooOld,
    TooFarInFuture,
    /// Native histograms are not enabled for the tenant.
    NativeHistogramSample,
    RateLimited,
    NativeHistogramRateLimited,
}

/// Why a sample is refused for the sake of a limit on series.
const SERIES_LIMITS: [DiscardReason; 4] = [
    DiscardReason::PerUserSeriesLimit,
    DiscardReason::PerUserNativeHistogramSeriesLimit,
    DiscardReason::PerMetricSeriesLimit,
    DiscardReason::PerLabelsetSeriesLimit,
];

impl DiscardReason {
    pub const ALL: [Self; 12] = [
        Self::PerUserSeriesLimit,
        Self::PerUserNativeHistogramSeriesLimit,
        Self::PerMetricSeriesLimit,
        Self::PerLabelsetSeriesLimit,
        Self::OutOfOrder,
        Self::NewValueForTimestamp,
        Self::OutOfBounds,
        Self::TooOld,
        Self::TooFarInFuture,
        Self::NativeHistogramSample,
        Self::RateLimited,
        Self::NativeHistogramRateLimited,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Self::PerUserSeriesLimit => "per_user_series_limit",
            Self::PerUserNativeHistogramSeriesLimit => "per_user_native_histogram_series_limit",
            Self::PerMetricSeriesLimit => "per_metric_series_limit",
            Self::PerLabelsetSeriesLimit => "per_labelset_series_limit",
            Self::OutOfOrder => "sample-out-of-order",
            Self::NewValueForTimestamp => "new-value-for-timestamp",
            Self::OutOfBounds => "sample-out-of-bounds",
            Self::TooOld => "sample-too-old",
            Self::TooFarInFuture => "too_far_in_future",
            Self::NativeHistogramSample => "native-histogram-sample",
            Self::RateLimited => "rate_limited",
            Self::NativeHistogramRateLimited => "native_histogram_rate_limited",
        }
    }
}

/// Why metadata was discarded: the `reason` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum MetadataReason {
    PerUserLimit,
    PerMetricLimit,
    RateLimited,
}

impl MetadataReason {
    pub const ALL: [Self; 3] = [Self::PerUserLimit, Self::PerMetricLimit, Self::RateLimited];

    pub fn label(self) -> &'static str {
        match self {
            Self::PerUserLimit => "per_user_metadata_limit",
            Self::PerMetricLimit => "per_metric_metadata_limit",
            Self::RateLimited => "rate_limited",
        }
    }
}

/// A tenant's counters.
#[derive(Default)]
pub struct TenantCounters {
    discarded_samples: [Counter; DiscardReason::ALL.len()],
    discarded_exemplars_rate_limited: Counter,
    discarded_metadata: [Counter; MetadataReason::ALL.len()],
    /// Samples refused by a label set, by its id. As many as an operator has configured since
    /// the tenant came, at most [`LABEL_SET_IDS_MAX`].
    discarded_in_label_sets: Mutex<BTreeMap<String, u64>>,
    pub metadata_created: Counter,
    pub metadata_removed: Counter,
    pub out_of_order_labels: Counter,
}

impl TenantCounters {
    pub fn discard_samples(&self, reason: DiscardReason, n: u64) {
        self.discarded_samples[reason as usize].add(n);
    }

    pub fn discarded_samples(&self, reason: DiscardReason) -> u64 {
        self.discarded_samples[reason as usize].get()
    }

    /// Samples refused by any limit on series.
    pub fn refused_by_series_limits(&self) -> u64 {
        SERIES_LIMITS.iter().map(|&reason| self.discarded_samples(reason)).sum()
    }

    pub fn discard_in_label_set(&self, id: &str) {
        let mut sets = self.discarded_in_label_sets.lock().expect("no panic under this lock");
        if let Some(count) = sets.get_mut(id) {
            *count += 1;
        } else if sets.len() < LABEL_SET_IDS_MAX {
            sets.insert(id.to_owned(), 1);
        }
    }

    pub fn discarded_in_label_sets(&self) -> BTreeMap<String, u64> {
        self.discarded_in_label_sets.lock().expect("no panic under this lock").clone()
    }

    pub fn discard_metadata(&self, reason: MetadataReason, n: u64) {
        self.discarded_metadata[reason as usize].add(n);
    }

    pub fn discarded_metadata(&self, reason: MetadataReason) -> u64 {
        self.discarded_metadata[reason as usize].get()
    }

    pub fn discard_exemplars(&self, n: u64) {
        self.discarded_exemplars_rate_limited.add(n);
    }

    pub fn discarded_exemplars(&self) -> u64 {
        self.discarded_exemplars_rate_limited.get()
    }
}

/// What the whole instance took in and refused.
#[derive(Default)]
pub struct InstanceCounters {
    pub samples: Counter,
    pub samples_failed: Counter,
    pub histograms: Counter,
    pub histograms_failed: Counter,
    pub exemplars: Counter,
    pub exemplars_failed: Counter,
    pub metadata: Counter,
    pub metadata_failed: Counter,
    /// Pushes refused as a whole, by the limit of the instance.
    pub refused_in_flight: Counter,
    pub refused_rate: Counter,
    pub refused_tenants: Counter,
    pub refused_series: Counter,
}
