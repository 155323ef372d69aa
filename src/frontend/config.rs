//! What the query gate may be told: the `frontend:` block.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ring::service_ring::ServiceRingConfig;
use crate::units::Millis;
use crate::upstream::queries::config::{DownstreamConfig, DownstreamConfigError};

/// Oldest answer of our own cache: more than a refresh of a dashboard is history, and that is
/// what the results cache behind us is for.
pub const CACHE_TTL_MS_MAX: u64 = 30_000;
/// Shortest time between two canaries, each of which costs a query.
const CANARY_PERIOD_MS_MIN: u64 = 1_000;
/// Most bytes of a query's form, as in Cortex.
const BODY_BYTES_DEFAULT: usize = 10 << 20;

/// See the head of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrontendConfig {
    pub downstream: DownstreamConfig,
    /// Members own the budgets of clients' queries.
    pub ring: ServiceRingConfig,
    /// Under which the API is found, with `/api/v1` behind each; several with commas between. An
    /// empty one is `/api/v1` itself.
    pub http_prefixes: String,
    /// Takes the prefix off a query that goes on, as a Prometheus wants it.
    pub strip_http_prefix: bool,
    /// Most bytes of a query's form.
    pub max_body_size: usize,
    /// Queries of one tenant that are answered at a time, and of all tenants; at least 1.
    pub max_inflight_requests_per_tenant: usize,
    /// The same of one client, so that it leaves room for the others of its tenant.
    pub max_inflight_requests_per_client: usize,
    pub max_inflight_requests: usize,
    /// Queries that take longer stand in the log; 0 tells of none.
    pub log_queries_longer_than: Millis,
    /// Identical queries in flight are asked once.
    pub share_identical_queries: bool,
    pub cached_answers: CachedAnswers,
    /// Whose data the canary asks for. It costs the tenant one query each period.
    pub canary_tenant: String,
    pub canary_query: String,
    pub canary_period: Millis,
    /// Oldest answer of our own cache; 0 keeps none.
    pub cache_ttl: Millis,
    /// What our own cache may take.
    pub cache_bytes_max: u64,
}

/// What an answer costs that those behind us took from their cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CachedAnswers {
    /// Nothing, while a canary proves that their word for it is true.
    #[default]
    Verified,
    /// Nothing, on their word.
    Trusted,
    /// What any other costs.
    Charged,
}

/// Settings of the query gate that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontendConfigError {
    #[error(transparent)]
    Downstream(#[from] DownstreamConfigError),
    #[error(
        "-frontend.http-prefixes has {prefix:?}; a prefix begins with a slash, does not end with \
         one, and has letters, digits, dashes, dots and underlines between"
    )]
    Prefix { prefix: String },
    #[error("{flag} must be at least 1")]
    Zero { flag: &'static str },
    #[error(
        "-frontend.canary-period is {given}; it must be at least {}",
        Millis(CANARY_PERIOD_MS_MIN)
    )]
    CanaryPeriod { given: Millis },
    #[error("-frontend.canary-tenant needs a -frontend.canary-query")]
    CanaryQuery,
    #[error("-frontend.cache-ttl is {given}; it must be at most {}", Millis(CACHE_TTL_MS_MAX))]
    CacheTtl { given: Millis },
}

impl Default for FrontendConfig {
    fn default() -> Self {
        Self {
            downstream: DownstreamConfig::default(),
            ring: ServiceRingConfig::query_gate(),
            http_prefixes: "/prometheus,/api/prom".to_owned(),
            strip_http_prefix: false,
            max_body_size: BODY_BYTES_DEFAULT,
            max_inflight_requests_per_tenant: 256,
            max_inflight_requests_per_client: 64,
            max_inflight_requests: 4096,
            log_queries_longer_than: Millis(0),
            share_identical_queries: true,
            cached_answers: CachedAnswers::default(),
            canary_tenant: String::new(),
            canary_query: "count(up)".to_owned(),
            canary_period: Millis::from_secs(60),
            cache_ttl: Millis(0),
            cache_bytes_max: 64 << 20,
        }
    }
}

impl FrontendConfig {
    pub fn validate(&self) -> Result<(), FrontendConfigError> {
        self.downstream.validate()?;
        for prefix in self.prefixes() {
            let is_part = |part: &str| {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
                !part.is_empty() && part.chars().all(is_plain)
            };
            let is_good = prefix.is_empty()
                || prefix.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_part));
            if !is_good {
                return Err(FrontendConfigError::Prefix { prefix: prefix.to_owned() });
            }
        }
        for (flag, value) in [
            ("-frontend.max-inflight-requests-per-tenant", self.max_inflight_requests_per_tenant),
            ("-frontend.max-inflight-requests-per-client", self.max_inflight_requests_per_client),
            ("-frontend.max-inflight-requests", self.max_inflight_requests),
            ("-frontend.max-body-size", self.max_body_size),
        ] {
            if value == 0 {
                return Err(FrontendConfigError::Zero { flag });
            }
        }
        if self.canary_period.0 < CANARY_PERIOD_MS_MIN {
            return Err(FrontendConfigError::CanaryPeriod { given: self.canary_period });
        }
        if !self.canary_tenant.is_empty() && self.canary_query.trim().is_empty() {
            return Err(FrontendConfigError::CanaryQuery);
        }
        if self.cache_ttl.0 > CACHE_TTL_MS_MAX {
            return Err(FrontendConfigError::CacheTtl { given: self.cache_ttl });
        }
        Ok(())
    }

    /// What comes before `/api/v1`.
    pub fn prefixes(&self) -> impl Iterator<Item = &str> {
        self.http_prefixes.split(',').map(str::trim)
    }

    pub fn slow_after(&self) -> Option<Duration> {
        let slow_after = self.log_queries_longer_than;
        (slow_after.0 > 0).then(|| slow_after.as_duration())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_with_its_flag() {
        FrontendConfig::default().validate().expect("the defaults work");
        let refused = |change: fn(&mut FrontendConfig), expect: &str| {
            let mut config = FrontendConfig::default();
            change(&mut config);
            let text = config.validate().expect_err(expect).to_string();
            assert!(text.contains(expect), "{text}");
        };
        refused(|one| one.max_inflight_requests_per_tenant = 0, "requests-per-tenant must be");
        refused(|one| one.canary_period = Millis(10), "at least 1s");
        refused(|one| one.cache_ttl = Millis(60_000), "-frontend.cache-ttl is 1m");
        refused(
            |one| (one.canary_tenant, one.canary_query) = ("a".into(), " ".into()),
            "-frontend.canary-query",
        );
        for prefix in ["prometheus", "/a/", "/a//b", "/{a}", "/*", "/a b"] {
            let config = FrontendConfig { http_prefixes: prefix.into(), ..Default::default() };
            config.validate().expect_err(prefix);
        }
        let config = FrontendConfig { http_prefixes: "/a, /b/c,".into(), ..Default::default() };
        config.validate().expect("three prefixes");
        assert_eq!(config.prefixes().collect::<Vec<_>>(), ["/a", "/b/c", ""]);
    }
}
