//! What the query gate may be told: the `frontend:` block.

use serde::{Deserialize, Serialize};

use crate::ring;
use crate::ring::service_ring::ServiceRingConfig;

/// See the head of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrontendConfig {
    /// Who keeps the budgets of clients' queries.
    pub ring: ServiceRingConfig,
}

/// Settings of the query gate that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontendConfigError {
    #[error("the query gates' ring (-frontend.ring.*) cannot be used")]
    Ring(#[from] ring::config::ConfigError),
}

impl Default for FrontendConfig {
    fn default() -> Self {
        Self { ring: ServiceRingConfig::query_gate() }
    }
}

impl FrontendConfig {
    pub fn validate(&self) -> Result<(), FrontendConfigError> {
        self.ring.validate()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_good_and_notice_a_lost_gate_soon() {
        let config = FrontendConfig::default();
        assert_eq!(config.validate(), Ok(()));
        assert_eq!((config.ring.heartbeat_period.0, config.ring.num_tokens), (2_000, 128));
    }
}
