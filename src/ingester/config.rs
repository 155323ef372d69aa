//! What admission may be told: bounds of the instance, and how series are counted and limited.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::limits::InstanceLimits;
use crate::ring::config::LifecyclerConfig;
use crate::units::Millis;
use crate::upstream::config::{UpstreamConfig, UpstreamConfigError};

/// Admission and series counting, under Cortex's names where Cortex has the thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngesterConfig {
    pub lifecycler: LifecyclerConfig,
    pub instance_limits: InstanceLimits,
    /// The ingester that we stand before; without an address we keep the series ourselves.
    pub upstream: UpstreamConfig,
    /// HTTP `host:port` or URL of a distributor whose settings ours are compared with; empty is
    /// none.
    pub distributor_address: String,
    /// Authorities that its certificate is checked against, with `https://`; empty takes the
    /// host's.
    pub distributor_tls_ca_path: PathBuf,
    /// Id in the ring of the ingester behind us, whose place we watch; empty takes ours.
    pub instance_id: String,

    /// Period of the cycle that recounts active and owned series.
    pub active_series_metrics_update_period: Millis,
    /// A series not touched for this long is no longer active.
    pub active_series_metrics_idle_timeout: Millis,
    /// Count the series that the ring assigns to this instance.
    pub owned_series_metrics_enabled: bool,
    /// Limit on the owned count instead of the in-memory count; needs the former.
    pub owned_series_limit_enforcement_enabled: bool,
    /// While the former is off, count what it would have admitted and refused.
    pub owned_series_shadow_enabled: bool,

    pub series_limit_mode: SeriesLimitMode,
    /// How long a limit that fell because ownership moved waits for the recount.
    ///
    /// A recount takes milliseconds; the deadline only matters when it cannot finish, and then
    /// the lower limit is applied, so that a broken ring cannot keep a raised limit for good.
    pub series_limit_hold_timeout: Millis,
    /// Comma-separated metric names that the per-metric limits do not touch.
    pub ignore_series_limit_for_metric_names: String,
    /// Ends the text of a refusal.
    pub admin_limit_message: String,
    /// Cortex's behaviour wherever ours differs on purpose: see `docs/compatibility.md`.
    pub limits_parity: bool,
    /// Whether pushes must also pass the tenant's ingestion rate limits.
    pub check_ingestion_limits: CheckIngestionLimits,
    /// Metadata not seen for this long is dropped.
    pub metadata_retain_period: Millis,
    /// How often distributors check the health of their clients: their
    /// `-distributor.client-cleanup-period`. After a start behind distributors health checks
    /// fail for so long and a margin.
    ///
    /// One that pushes by stream opens its streams anew only with a new client, and makes one
    /// when a check has failed: without this a quick restart would leave it answering 500 for us
    /// to every push, for good. Pushes are taken all the while.
    pub client_cleanup_period: Millis,
    /// How long health checks fail before a drain closes the listeners; only before an upstream.
    /// (An ingester of its own leaves the ring first, which sends the pushes elsewhere.)
    pub drain_announce_period: Millis,
}

/// How a cluster-wide series limit becomes this instance's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeriesLimitMode {
    /// Cortex's: the limit times RF over the number of instances.
    Flat,
    /// The limit times this instance's exact share of the tenant's key space.
    Share,
}

/// Whether the push path also checks a tenant's ingestion rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckIngestionLimits {
    /// With a tolerance that no compliant distributor exceeds.
    Auto,
    /// At the configured rate as it is.
    On,
    Off,
}

/// Settings of admission that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IngesterConfigError {
    #[error(
        "{flag} needs -ingester.owned-series-metrics-enabled: \
         what is not counted cannot be limited"
    )]
    NeedsOwnedCount { flag: &'static str },
    #[error("{flag} is 0s; the cycle would never run or never end")]
    ZeroPeriod { flag: &'static str },
    #[error("{flag} is {value}; it must be a number of 0 or more, 0 for no limit")]
    NoRate { flag: &'static str, value: String },
    #[error(transparent)]
    Upstream(#[from] UpstreamConfigError),
}

impl Default for IngesterConfig {
    fn default() -> Self {
        Self {
            lifecycler: LifecyclerConfig::default(),
            instance_limits: InstanceLimits::default(),
            upstream: UpstreamConfig::default(),
            distributor_address: String::new(),
            distributor_tls_ca_path: PathBuf::new(),
            instance_id: String::new(),
            active_series_metrics_update_period: Millis::from_secs(60),
            active_series_metrics_idle_timeout: Millis::from_secs(600),
            owned_series_metrics_enabled: true,
            owned_series_limit_enforcement_enabled: false,
            owned_series_shadow_enabled: false,
            series_limit_mode: SeriesLimitMode::Flat,
            series_limit_hold_timeout: Millis::from_secs(300),
            ignore_series_limit_for_metric_names: String::new(),
            limits_parity: false,
            admin_limit_message: "please contact administrator to raise it".into(),
            check_ingestion_limits: CheckIngestionLimits::Auto,
            metadata_retain_period: Millis::from_secs(600),
            client_cleanup_period: Millis::from_secs(15),
            drain_announce_period: Millis::from_secs(15),
        }
    }
}

impl IngesterConfig {
    pub fn validate(&self) -> Result<(), IngesterConfigError> {
        for (flag, is_set) in [
            (
                "-ingester.owned-series-limit-enforcement-enabled",
                self.owned_series_limit_enforcement_enabled,
            ),
            ("-ingester.owned-series-shadow-enabled", self.owned_series_shadow_enabled),
        ] {
            if is_set && !self.owned_series_metrics_enabled {
                return Err(IngesterConfigError::NeedsOwnedCount { flag });
            }
        }
        for (flag, period) in [
            (
                "-ingester.active-series-metrics-update-period",
                self.active_series_metrics_update_period,
            ),
            (
                "-ingester.active-series-metrics-idle-timeout",
                self.active_series_metrics_idle_timeout,
            ),
            ("-ingester.metadata-retain-period", self.metadata_retain_period),
        ] {
            if period == Millis(0) {
                return Err(IngesterConfigError::ZeroPeriod { flag });
            }
        }
        let rate = self.instance_limits.max_ingestion_rate;
        if !(rate.is_finite() && rate >= 0.0) {
            return Err(IngesterConfigError::NoRate {
                flag: "-ingester.instance-limits.max-ingestion-rate",
                value: rate.to_string(),
            });
        }
        self.upstream.validate()?;
        Ok(())
    }

    /// Metric names that the per-metric limits do not touch, one by one.
    pub fn ignored_metric_names(&self) -> impl Iterator<Item = &str> {
        self.ignore_series_limit_for_metric_names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enforcement_and_shadow_without_the_count_are_refused_naming_both_flags() {
        let unmeasured =
            IngesterConfig { owned_series_metrics_enabled: false, ..Default::default() };
        let check = |config: IngesterConfig, flag: &str| {
            let text = config.validate().expect_err(flag).to_string();
            assert!(text.contains(flag), "{text}");
            assert!(text.contains("-ingester.owned-series-metrics-enabled"), "{text}");
        };
        check(
            IngesterConfig { owned_series_limit_enforcement_enabled: true, ..unmeasured.clone() },
            "-ingester.owned-series-limit-enforcement-enabled",
        );
        check(
            IngesterConfig { owned_series_shadow_enabled: true, ..unmeasured.clone() },
            "-ingester.owned-series-shadow-enabled",
        );
        assert_eq!(unmeasured.validate(), Ok(()), "with all three off it is Cortex's behaviour");
    }

    #[test]
    fn an_idle_timeout_of_zero_is_refused() {
        let config =
            IngesterConfig { active_series_metrics_idle_timeout: Millis(0), ..Default::default() };
        assert!(matches!(config.validate(), Err(IngesterConfigError::ZeroPeriod { .. })));
    }

    #[test]
    fn an_ingestion_rate_that_is_no_rate_is_refused() {
        for rate in [-1.0, f64::NAN, f64::INFINITY] {
            let mut config = IngesterConfig::default();
            config.instance_limits.max_ingestion_rate = rate;
            assert!(matches!(config.validate(), Err(IngesterConfigError::NoRate { .. })), "{rate}");
        }
    }

    #[test]
    fn ignored_metric_names_are_split_at_commas_and_trimmed() {
        let config = IngesterConfig {
            ignore_series_limit_for_metric_names: "up, ,scrape_duration_seconds,".into(),
            ..Default::default()
        };
        let names: Vec<_> = config.ignored_metric_names().collect();
        assert_eq!(names, ["up", "scrape_duration_seconds"]);
    }
}
