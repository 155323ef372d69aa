//! What was refused of a tenant, by reason, and what each reason means.

use serde::Serialize;

use crate::ingester::counters::{DiscardReason, MetadataReason};
use crate::ingester::detail::{Discarded, Refused};

#[derive(Serialize)]
pub(super) struct RefusedRow {
    pub(super) what: &'static str,
    /// As metrics have it.
    pub(super) reason: &'static str,
    pub(super) total: u64,
    pub(super) means: &'static str,
}

impl RefusedRow {
    pub(super) fn new(refused: &Refused) -> Self {
        let (what, reason, means) = match refused.what {
            Discarded::Samples(reason) => ("samples", reason.label(), of_samples(reason)),
            Discarded::Exemplars => {
                ("exemplars", "rate_limited", "the tenant sent more than its ingestion_rate")
            }
            Discarded::Metadata(reason) => ("metadata", reason.label(), of_metadata(reason)),
        };
        Self { what, reason, total: refused.total, means }
    }
}

fn of_samples(reason: DiscardReason) -> &'static str {
    match reason {
        DiscardReason::PerUserSeriesLimit => {
            "of new series, while the tenant had as many here as its limit in force"
        }
        DiscardReason::PerUserNativeHistogramSeriesLimit => {
            "of new native histogram series, while the tenant had as many here as it may"
        }
        DiscardReason::PerMetricSeriesLimit => {
            "of new series of a metric that had as many here as it may"
        }
        DiscardReason::PerLabelsetSeriesLimit => {
            "of new series in a label set that had as many here as it may"
        }
        DiscardReason::OutOfOrder => "older than their series' newest sample",
        DiscardReason::NewValueForTimestamp => {
            "with another value than the one stored for the same series and time"
        }
        DiscardReason::OutOfBounds => "older than the head reaches",
        DiscardReason::TooOld => "older than out_of_order_time_window allows",
        DiscardReason::TooFarInFuture => "farther ahead of our clock than creation_grace_period",
        DiscardReason::NativeHistogramSample => {
            "native histograms, while enable_native_histograms is off for the tenant"
        }
        DiscardReason::RateLimited => "the tenant sent more than its ingestion_rate",
        DiscardReason::NativeHistogramRateLimited => {
            "the tenant sent more than its native_histogram_ingestion_rate"
        }
    }
}

fn of_metadata(reason: MetadataReason) -> &'static str {
    match reason {
        MetadataReason::PerUserLimit => {
            "of a new metric, while as many had metadata here as max_metadata_per_user allows"
        }
        MetadataReason::PerMetricLimit => {
            "of a metric that had as much here as max_metadata_per_metric allows"
        }
        MetadataReason::RateLimited => "the tenant sent more than its ingestion_rate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::known_names;

    #[test]
    fn settings_that_meanings_name_exist() {
        let samples = DiscardReason::ALL.map(of_samples);
        let metadata = MetadataReason::ALL.map(of_metadata);
        let mut named = 0;
        for means in samples.iter().chain(&metadata) {
            for word in means.split([' ', ',']).filter(|word| word.contains('_')) {
                assert!(known_names().any(|known| known == word), "{word}");
                named += 1;
            }
        }
        assert!(named > 5);
    }
}
