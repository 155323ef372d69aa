//! What the distributor may be told: the `distributor:` block.

use serde::{Deserialize, Serialize};

use super::ha::{HaTrackerConfig, HaTrackerConfigError};
use crate::distributor::admission::InstanceLimits;
use crate::ratelimit::RateLimitHeaders;
use crate::ring::service_ring::{ServiceRingConfig, ServiceRingError};
use crate::units::{Millis, Secret};
use crate::upstream::distributor::config::{HttpUpstreamConfig, HttpUpstreamConfigError};
use crate::upstream::ingesters::IngestersSettings;

/// Remote write, and how series are spread over the ring, under Cortex's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DistributorConfig {
    /// Longest remote-write body in bytes, before and after decompression; checked from the
    /// declared size, so that a longer one is never allocated.
    pub max_recv_msg_size: usize,
    /// Remote write 2.0 next to 1.0. Off, such a request is answered 415.
    pub remote_writev2_enabled: bool,
    /// Read a body of another content type as remote write 1.0 instead of answering 415.
    pub accept_unknown_remote_write_content_type: bool,

    /// Limits of this process over all tenants.
    pub instance_limits: InstanceLimits,
    /// Cortex's behaviour wherever that of the distributor differs on purpose; `-limits.parity`
    /// asks for it everywhere.
    pub limits_parity: bool,
    /// Whether answers tell senders what is left of their tenant's budget.
    pub ratelimit_headers: RateLimitHeaders,
    /// The distributor that stands behind us.
    pub upstream: HttpUpstreamConfig,
    /// Who shares the rates of the global strategy.
    pub ring: ServiceRingConfig,

    pub sharding_strategy: ShardingStrategy,
    /// Ring keys from all labels instead of tenant and metric name only.
    ///
    /// Must be what the cluster's distributors use. Cortex's default is off, for history's sake;
    /// its cluster-wide series limits need it on, and ours are what one runs us for.
    pub shard_by_all_labels: bool,
    /// An instance that is not ACTIVE gets its writes and so does its successor; must be what
    /// the cluster's distributors use.
    pub extend_writes: bool,

    pub pool: PoolConfig,
    /// How long ingesters may take for a push; what has not answered then has failed.
    pub remote_timeout: Millis,
    /// Push to ingesters on long-lived streams instead of one call each.
    pub use_stream_push: bool,

    /// Sign what goes to ingesters; streams from distributors must be signed with one of the keys
    /// below.
    pub sign_write_requests: bool,
    /// Comma-separated; the first signs, all are accepted.
    pub sign_write_requests_keys: Secret,

    pub ha_tracker: HaTrackerConfig,

    /// Longest OTLP body in bytes, before and after decompression.
    pub otlp_max_recv_msg_size: usize,
    pub otlp: OtlpConfig,

    /// Export the limits of tenants as metrics, as Cortex's overrides-exporter does.
    pub overrides_exporter_enabled: bool,
}

/// `otlp:`, how OTLP metrics are translated. Names as Cortex has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpConfig {
    /// All attributes of a resource become labels of its metrics.
    pub convert_all_attributes: bool,
    /// Write no `target_info`.
    pub disable_target_info: bool,
    /// Take sums and histograms with delta temporality as they are.
    pub allow_delta_temporality: bool,
    /// Append units and `_total` to names. Default true.
    pub add_metric_suffixes: bool,
}

/// `pool:`, how the ingesters' clients are looked after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    /// Time between two looks: clients of ingesters that left the ring go, the others are checked.
    pub client_cleanup_period: Millis,
    /// Ask each ingester for its health; the client of one that does not serve is replaced.
    pub health_check_ingesters: bool,
}

/// Which instances a tenant's series may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardingStrategy {
    /// All of the ring.
    Default,
    /// A subring of the tenant's shard size.
    ShuffleSharding,
}

/// Settings of the distributor that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DistributorConfigError {
    #[error("-distributor.max-recv-msg-size is 0; nothing could be received")]
    NothingReceived,
    #[error("-distributor.otlp-max-recv-msg-size is 0; nothing could be received")]
    NoOtlpReceived,
    #[error(transparent)]
    HaTracker(#[from] HaTrackerConfigError),
    #[error("{flag} must be more than 0")]
    Zero { flag: &'static str },
    #[error(
        "-distributor.instance-limits.max-ingestion-rate is {rate}; it must be 0 or more, and 0 \
         is no limit"
    )]
    IngestionRate { rate: String },
    #[error(transparent)]
    Upstream(#[from] HttpUpstreamConfigError),
    #[error("the distributors' ring (-distributor.ring.*) cannot be used")]
    Ring(#[from] ServiceRingError),
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { client_cleanup_period: Millis::from_secs(15), health_check_ingesters: true }
    }
}

impl Default for DistributorConfig {
    fn default() -> Self {
        Self {
            max_recv_msg_size: 100 << 20,
            remote_writev2_enabled: true,
            accept_unknown_remote_write_content_type: false,
            instance_limits: InstanceLimits::default(),
            limits_parity: false,
            ratelimit_headers: RateLimitHeaders::Off,
            upstream: HttpUpstreamConfig::default(),
            ring: ServiceRingConfig::default(),
            sharding_strategy: ShardingStrategy::Default,
            shard_by_all_labels: true,
            extend_writes: true,
            pool: PoolConfig::default(),
            remote_timeout: Millis::from_secs(2),
            use_stream_push: false,
            sign_write_requests: false,
            sign_write_requests_keys: Secret::default(),
            ha_tracker: HaTrackerConfig::default(),
            otlp_max_recv_msg_size: 100 << 20,
            otlp: OtlpConfig::default(),
            overrides_exporter_enabled: false,
        }
    }
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            convert_all_attributes: false,
            disable_target_info: false,
            allow_delta_temporality: false,
            add_metric_suffixes: true,
        }
    }
}

impl DistributorConfig {
    /// What the ingesters' clients are told of it.
    pub fn ingesters(&self) -> IngestersSettings {
        let keys = self.sign_write_requests_keys.reveal().split(',');
        IngestersSettings {
            remote_timeout: self.remote_timeout.as_duration(),
            cleanup_period: self.pool.client_cleanup_period.as_duration(),
            health_check: self.pool.health_check_ingesters,
            use_stream_push: self.use_stream_push,
            sign_write_requests: self.sign_write_requests,
            stream_key: keys.map(str::to_owned).find(|key| !key.is_empty()),
        }
    }

    /// `failover` is the default of the limit `ha_tracker_failover_timeout`.
    pub fn validate(&self, failover: Millis) -> Result<(), DistributorConfigError> {
        self.ha_tracker.validate(failover)?;
        if self.otlp_max_recv_msg_size == 0 {
            return Err(DistributorConfigError::NoOtlpReceived);
        }
        if self.max_recv_msg_size == 0 {
            return Err(DistributorConfigError::NothingReceived);
        }
        let positive = [
            ("-distributor.remote-timeout", self.remote_timeout.0),
            ("-distributor.client-cleanup-period", self.pool.client_cleanup_period.0),
        ];
        if let Some((flag, _)) = positive.into_iter().find(|(_, number)| *number == 0) {
            return Err(DistributorConfigError::Zero { flag });
        }
        let rate = self.instance_limits.max_ingestion_rate;
        if rate < 0.0 || rate.is_nan() {
            return Err(DistributorConfigError::IngestionRate { rate: rate.to_string() });
        }
        self.upstream.validate()?;
        self.ring.validate()?;
        Ok(())
    }
}
