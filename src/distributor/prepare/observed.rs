//! What a request showed on its way, for metrics that Cortex's distributor has.

use super::Counts;

/// Numbers of one request; nothing is decided by them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// All that came, before anything was left out.
    pub received: Counts,
    /// Histograms with bounds of their own, as they came and as they went on.
    pub received_custom_buckets: u64,
    pub kept_custom_buckets: u64,
    /// Newest time of a sample or histogram of a series that was judged, valid or not.
    pub newest_ms: Option<i64>,
    /// Samples and histograms of series without a replica's labels, where each is judged.
    pub samples_without_replica: u64,
    /// Labels of each series that got as far as its labels.
    pub labels: Spread<5>,
    /// Bytes of names and values of series whose labels were sound, and how many these were.
    pub label_bytes: u64,
    pub label_bytes_series: u64,
    /// Buckets of each histogram before its rules were applied.
    pub histogram_buckets: Spread<10>,
}

/// Values by bucket, as a histogram metric wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread<const N: usize> {
    /// Values up to each bound, not those up to the one before.
    pub upto: [u64; N],
    pub above: u64,
    pub sum: u64,
}

/// Cortex's bounds of `cortex_labels_per_sample`.
pub const LABELS_BOUNDS: [u64; 5] = [5, 10, 15, 20, 25];
/// Cortex's bounds of `cortex_distributor_received_histogram_buckets`.
pub const HISTOGRAM_BUCKETS_BOUNDS: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

impl<const N: usize> Default for Spread<N> {
    fn default() -> Self {
        Self { upto: [0; N], above: 0, sum: 0 }
    }
}

impl<const N: usize> Spread<N> {
    #[inline]
    pub(super) fn observe(&mut self, value: u64, bounds: &[u64; N]) {
        match bounds.iter().position(|bound| value <= *bound) {
            Some(at) => self.upto[at] += 1,
            None => self.above += 1,
        }
        self.sum += value;
    }

    pub fn count(&self) -> u64 {
        self.upto.iter().sum::<u64>() + self.above
    }
}
