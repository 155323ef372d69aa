//! What the HA tracker may be told: the block `distributor.ha_tracker`, under Cortex's names.
//!
//! Defaults are Cortex's, except the store: as for the ring it is `inmemory` until one is named,
//! which elects for this one process.

use serde::{Deserialize, Serialize};

use crate::ring::config::{ConsulConfig, EtcdConfig, KvConfig, KvConfigError, KvStoreKind};
use crate::units::Millis;

/// `ha_tracker:`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HaTrackerConfig {
    /// Off, samples of all replicas are taken, and the replica's label is still taken off where
    /// a tenant's limits ask for HA samples.
    pub enable_ha_tracker: bool,
    /// How old the stored time of an elected replica gets before it is written anew.
    pub ha_tracker_update_timeout: Millis,
    /// That age is shorter or longer by up to this, so that not all processes write at once.
    pub ha_tracker_update_timeout_jitter_max: Millis,
    pub kvstore: HaKvConfig,
}

/// `kvstore:`, where elected replicas are kept: as for a ring, in a store that can be written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HaKvConfig {
    pub store: HaStoreKind,
    /// Put before each `tenant/cluster` in the store.
    pub prefix: String,
    pub etcd: EtcdConfig,
    pub consul: ConsulConfig,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HaStoreKind {
    /// This process elects by itself.
    InMemory,
    Etcd,
    Consul,
    /// The gossip that rings are on; see the `memberlist:` block.
    Memberlist,
}

/// Why a `ha_tracker:` block cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HaTrackerConfigError {
    /// The text is Cortex's.
    #[error(
        "HA Tracker failover timeout ({failover}) must be at least 1s greater than update \
         timeout - max jitter ({least})"
    )]
    FailoverTimeout { failover: Millis, least: Millis },
    #[error("the store of distributor.ha_tracker cannot be used")]
    Kv { source: KvConfigError },
}

impl Default for HaTrackerConfig {
    fn default() -> Self {
        Self {
            enable_ha_tracker: false,
            ha_tracker_update_timeout: Millis::from_secs(15),
            ha_tracker_update_timeout_jitter_max: Millis::from_secs(5),
            kvstore: HaKvConfig::default(),
        }
    }
}

impl Default for HaKvConfig {
    fn default() -> Self {
        Self {
            store: HaStoreKind::InMemory,
            prefix: "ha-tracker/".to_owned(),
            etcd: EtcdConfig::default(),
            consul: ConsulConfig::default(),
        }
    }
}

impl HaKvConfig {
    /// The store as rings' clients take it.
    pub fn kv(&self) -> KvConfig {
        KvConfig {
            store: match self.store {
                HaStoreKind::InMemory => KvStoreKind::InMemory,
                HaStoreKind::Etcd => KvStoreKind::Etcd,
                HaStoreKind::Consul => KvStoreKind::Consul,
                HaStoreKind::Memberlist => KvStoreKind::Memberlist,
            },
            prefix: self.prefix.clone(),
            etcd: self.etcd.clone(),
            consul: self.consul.clone(),
            ..KvConfig::default()
        }
    }
}

impl HaTrackerConfig {
    /// `failover` is the default of all tenants. A block that is not in use is not looked at.
    pub fn validate(&self, failover: Millis) -> Result<(), HaTrackerConfigError> {
        if !self.enable_ha_tracker {
            return Ok(());
        }
        let least = self.failover_least();
        if failover < least {
            return Err(HaTrackerConfigError::FailoverTimeout { failover, least });
        }
        self.kvstore.kv().validate().map_err(|source| HaTrackerConfigError::Kv { source })
    }

    /// Least silence that may elect another replica: an elected one that is heard of is written
    /// down before, whatever the jitter.
    pub fn failover_least(&self) -> Millis {
        let update = self.ha_tracker_update_timeout.0;
        let jitter = self.ha_tracker_update_timeout_jitter_max.0;
        Millis(update.saturating_add(jitter).saturating_add(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_in_use_is_checked() {
        let on = HaTrackerConfig { enable_ha_tracker: true, ..HaTrackerConfig::default() };
        assert_eq!(on.validate(Millis::from_secs(30)), Ok(()));
        assert_eq!(on.validate(Millis::from_secs(21)), Ok(()));
        let error = on.validate(Millis::from_secs(20)).expect_err("too short");
        let text = "HA Tracker failover timeout (20s) must be at least 1s greater than update \
                    timeout - max jitter (21s)";
        assert_eq!(error.to_string(), text);
        let mut lacking = on.clone();
        lacking.kvstore.store = HaStoreKind::Etcd;
        let error = lacking.validate(Millis::from_secs(30)).expect_err("no endpoints");
        assert!(matches!(error, HaTrackerConfigError::Kv { .. }), "{error}");
        lacking.enable_ha_tracker = false;
        assert_eq!(lacking.validate(Millis(0)), Ok(()), "not in use");
    }
}
