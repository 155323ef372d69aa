//! How we join a ring and where it is kept: the `lifecycler:` block under Cortex's names.
//!
//! Defaults are Cortex's, except the store: one process on its own has no Consul, so the ring
//! is `inmemory` until a store is named.

pub mod address;
mod stores;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::units::Millis;

pub use stores::{
    ClientTlsConfig, ConsulConfig, EtcdConfig, FileKvConfig, HttpKvConfig, KvConfig, KvConfigError,
    KvStoreKind,
};

/// Most tokens that one instance may claim: a thousandth of the ring in a thousand instances.
/// More buy no evenness, and the ring's one value is written whole with each heartbeat.
pub const NUM_TOKENS_MAX: usize = 4096;

/// `lifecycler:`, our own place in the ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifecyclerConfig {
    pub ring: RingConfig,
    /// Tokens that a new entry claims; the tokens of an entry found in the ring are kept.
    pub num_tokens: usize,
    /// 0 turns heartbeats off.
    pub heartbeat_period: Millis,
    /// How long new tokens are watched for conflicts before we go ACTIVE; 0 skips it.
    pub observe_period: Millis,
    pub join_after: Millis,
    /// How long everything must have been fine before we say that we are ready.
    pub min_ready_duration: Millis,
    /// How long we stay LEAVING before the end, so that the last metrics are scraped.
    pub final_sleep: Millis,
    /// Where tokens survive a loss of the ring; empty keeps them nowhere.
    pub tokens_file_path: PathBuf,
    pub availability_zone: String,
    pub unregister_on_shutdown: bool,
    /// Ready only while all members are, so that a rollout goes on one by one.
    pub readiness_check_ring_health: bool,
    /// Silence after which other members are taken out of the ring, as Cortex's compactors do;
    /// 0 never does, as with Cortex's ingesters: who forgets one moves its series.
    pub auto_forget_delay: Millis,
    /// Advertised address; empty takes the one that the default route leaves from.
    pub address: String,
    /// Advertised port; 0 takes the gRPC listener's.
    pub port: u16,
    /// Our id in the ring; empty takes the host's name.
    pub id: String,
}

/// `ring:`, what all of the ring's members have to agree on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RingConfig {
    pub kvstore: KvConfig,
    /// A member whose last heartbeat is older is not healthy; 0 never calls one so.
    pub heartbeat_timeout: Millis,
    pub replication_factor: usize,
    pub zone_awareness_enabled: bool,
}

/// Why a `lifecycler:` block cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("lifecycler.num_tokens is {num_tokens}; it must be 1 to {NUM_TOKENS_MAX}")]
    NumTokens { num_tokens: usize },
    #[error("lifecycler.ring.replication_factor must be at least 1")]
    ReplicationFactor,
    #[error(
        "lifecycler.heartbeat_period ({period}) must be below lifecycler.ring.heartbeat_timeout \
         ({timeout}), or this instance is unhealthy between two heartbeats"
    )]
    HeartbeatPeriod { period: Millis, timeout: Millis },
    #[error(
        "lifecycler.auto_forget_delay ({delay}) must be above lifecycler.ring.heartbeat_timeout \
         ({timeout}), or members that are only slow are forgotten"
    )]
    AutoForget { delay: Millis, timeout: Millis },
    #[error("the store of lifecycler.ring cannot be used")]
    Kv { source: KvConfigError },
}

impl Default for LifecyclerConfig {
    fn default() -> Self {
        Self {
            ring: RingConfig::default(),
            num_tokens: 128,
            heartbeat_period: Millis::from_secs(5),
            observe_period: Millis(0),
            join_after: Millis(0),
            min_ready_duration: Millis::from_secs(15),
            final_sleep: Millis::from_secs(30),
            tokens_file_path: PathBuf::new(),
            availability_zone: String::new(),
            unregister_on_shutdown: true,
            readiness_check_ring_health: true,
            auto_forget_delay: Millis(0),
            address: String::new(),
            port: 0,
            id: String::new(),
        }
    }
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            kvstore: KvConfig::default(),
            heartbeat_timeout: Millis::from_secs(60),
            replication_factor: 3,
            zone_awareness_enabled: false,
        }
    }
}

impl LifecyclerConfig {
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(1..=NUM_TOKENS_MAX).contains(&self.num_tokens) {
            return Err(ConfigError::NumTokens { num_tokens: self.num_tokens });
        }
        let (period, timeout) = (self.heartbeat_period, self.ring.heartbeat_timeout);
        if timeout.0 > 0 && period >= timeout {
            return Err(ConfigError::HeartbeatPeriod { period, timeout });
        }
        let delay = self.auto_forget_delay;
        if delay.0 > 0 && delay <= timeout {
            return Err(ConfigError::AutoForget { delay, timeout });
        }
        self.ring.validate()
    }
}

impl RingConfig {
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.replication_factor == 0 {
            return Err(ConfigError::ReplicationFactor);
        }
        self.kvstore.validate().map_err(|source| ConfigError::Kv { source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> LifecyclerConfig {
        serde_saphyr::from_str(text).expect(text)
    }

    #[test]
    fn cortexs_block_is_read_under_its_own_names() {
        let config = parse(
            "address: 127.0.0.1\nfinal_sleep: 0s\nheartbeat_period: 1s\nid: ingester-1\n\
             min_ready_duration: 0s\nport: 19301\ntokens_file_path: /data/tokens\n\
             availability_zone: a\nring:\n  heartbeat_timeout: 10s\n  replication_factor: 1\n  \
             zone_awareness_enabled: true\n  kvstore:\n    store: file\n    prefix: p/\n    \
             file:\n      path: /tmp/ring\n",
        );
        assert_eq!((config.id.as_str(), config.port), ("ingester-1", 19301));
        assert_eq!(config.ring.heartbeat_timeout, Millis::from_secs(10));
        assert_eq!(config.ring.kvstore.store, KvStoreKind::File);
        assert_eq!(config.ring.kvstore.key("ring"), "p/ring");
        assert_eq!(config.num_tokens, 128, "what is not named keeps its default");
        assert_eq!(config.validate(), Ok(()));
    }

    #[test]
    fn defaults_are_valid_and_survive_being_written() {
        let config = LifecyclerConfig::default();
        assert_eq!(config.validate(), Ok(()));
        let text = serde_saphyr::to_string(&config).unwrap();
        assert_eq!(parse(&text), config);
    }

    #[test]
    fn contradictions_are_refused() {
        let check = |change: fn(&mut LifecyclerConfig), error: ConfigError| {
            let mut config = LifecyclerConfig::default();
            change(&mut config);
            assert_eq!(config.validate(), Err(error));
        };
        check(|c| c.num_tokens = 0, ConfigError::NumTokens { num_tokens: 0 });
        check(|c| c.num_tokens = 5000, ConfigError::NumTokens { num_tokens: 5000 });
        check(|c| c.ring.replication_factor = 0, ConfigError::ReplicationFactor);
        check(
            |c| c.ring.kvstore.store = KvStoreKind::File,
            ConfigError::Kv { source: KvConfigError::Missing { store: "file", key: "file.path" } },
        );
        check(
            |c| c.heartbeat_period = Millis::from_secs(60),
            ConfigError::HeartbeatPeriod {
                period: Millis::from_secs(60),
                timeout: Millis::from_secs(60),
            },
        );
        check(
            |c| c.auto_forget_delay = Millis::from_secs(60),
            ConfigError::AutoForget {
                delay: Millis::from_secs(60),
                timeout: Millis::from_secs(60),
            },
        );
        assert!(serde_saphyr::from_str::<LifecyclerConfig>("num_token: 1").is_err());
    }
}
