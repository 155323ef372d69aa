//! The answers of `cortex.Ingester` that the edge itself writes, made of our own values.
//!
//! A write request stays the bytes it came as; the ingester decodes them.

use crate::server::seam::{Pushed, UserStats};

pub use crate::wire::proto::cortex::{UserIdStatsResponse, UserStatsResponse, UsersStatsResponse};
pub use crate::wire::proto::cortexpb::WriteResponse;

impl From<Pushed> for WriteResponse {
    fn from(pushed: Pushed) -> Self {
        let count = |items: u64| i64::try_from(items).unwrap_or(i64::MAX);
        Self {
            samples: count(pushed.samples),
            histograms: count(pushed.histograms),
            exemplars: count(pushed.exemplars),
            ..Self::default()
        }
    }
}

impl From<UserStats> for UserStatsResponse {
    fn from(stats: UserStats) -> Self {
        Self {
            ingestion_rate: stats.ingestion_rate,
            num_series: stats.series,
            api_ingestion_rate: stats.api_ingestion_rate,
            rule_ingestion_rate: stats.rule_ingestion_rate,
            active_series: stats.active_series,
            // Blocks are Cortex's way of keeping samples, not ours.
            loaded_blocks: 0,
        }
    }
}
