//! The messages of `cortex.Ingester` that the edge itself reads and writes.
//!
//! A write request stays the bytes it came as; the ingester decodes them.

use bytes::Bytes;

use crate::server::seam::{Pushed, UserStats};

#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamWriteRequest {
    /// Bytes, since Cortex does not check that its strings are UTF-8.
    #[prost(bytes = "bytes", tag = "1")]
    pub tenant_id: Bytes,
    /// An encoded `WriteRequest`, a slice of the message.
    #[prost(bytes = "bytes", tag = "2")]
    pub request: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteResponse {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(int64, tag = "3")]
    pub samples: i64,
    #[prost(int64, tag = "4")]
    pub histograms: i64,
    #[prost(int64, tag = "5")]
    pub exemplars: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UserStatsResponse {
    #[prost(double, tag = "1")]
    pub ingestion_rate: f64,
    #[prost(uint64, tag = "2")]
    pub num_series: u64,
    #[prost(double, tag = "3")]
    pub api_ingestion_rate: f64,
    #[prost(double, tag = "4")]
    pub rule_ingestion_rate: f64,
    #[prost(uint64, tag = "5")]
    pub active_series: u64,
    #[prost(uint64, tag = "6")]
    pub loaded_blocks: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UserIdStatsResponse {
    #[prost(string, tag = "1")]
    pub user_id: String,
    #[prost(message, optional, tag = "2")]
    pub data: Option<UserStatsResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UsersStatsResponse {
    #[prost(message, repeated, tag = "1")]
    pub stats: Vec<UserIdStatsResponse>,
}

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
