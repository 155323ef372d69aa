//! How a service joins a ring that only counts its members, or shares out keys that are no
//! series: Cortex's `distributor.ring:` block, and the ring of the query gates.
//!
//! Such a member is a small ingester's: it has nothing to hand over, so it joins at once, leaves
//! without sleeping, and who has died is forgotten after a while. Its life is that of
//! `lifecycle.rs`, by other settings.

use serde::{Deserialize, Serialize};

use super::config::{KvConfig, KvConfigError, LifecyclerConfig, NUM_TOKENS_MAX, RingConfig};
use crate::units::Millis;

/// Name of the ingesters' ring in its store, after the prefix: Cortex's.
pub const INGESTER_RING: &str = "ring";
/// Name of the distributors' ring: Cortex's.
pub const DISTRIBUTOR_RING: &str = "distributor";
/// Name of the query gates' ring. Cortex's query-frontends have none.
pub const QUERY_GATE_RING: &str = "query-frontends";

/// Timeouts after which a silent member is forgotten: twice what an operator who restarts one
/// needs, and few enough that a crash loop does not fill the ring.
const FORGET_TIMEOUTS: u64 = 5;

/// See the head of the file. The names are those of Cortex's block, where it has the thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceRingConfig {
    pub kvstore: KvConfig,
    /// 0 turns heartbeats off.
    pub heartbeat_period: Millis,
    /// A member whose last heartbeat is older is not healthy; 0 never calls one so.
    pub heartbeat_timeout: Millis,
    /// Silence after which a member is taken out; 0 never does.
    pub auto_forget_delay: Millis,
    /// Points that share out the ring's keys, as many as evenness asks for; 0 where the ring only
    /// counts its members.
    pub num_tokens: usize,
    /// Empty takes the host's name.
    pub instance_id: String,
    /// Empty takes the address that the default route leaves from.
    pub instance_addr: String,
    /// 0 takes the gRPC listener's.
    pub instance_port: u16,
}

/// Why such a block cannot be used. Which block it is says whoever has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceRingError {
    #[error("num_tokens is {num_tokens}; it must be at most {NUM_TOKENS_MAX}")]
    NumTokens { num_tokens: usize },
    #[error(
        "heartbeat_period ({period}) must be below heartbeat_timeout ({timeout}), or this member \
         is unhealthy between two heartbeats"
    )]
    HeartbeatPeriod { period: Millis, timeout: Millis },
    #[error(
        "auto_forget_delay ({delay}) must be above heartbeat_timeout ({timeout}), or members that \
         are only slow are forgotten"
    )]
    AutoForget { delay: Millis, timeout: Millis },
    #[error("its store cannot be used")]
    Kv { source: KvConfigError },
}

/// The distributors' ring as Cortex's members are in it.
impl Default for ServiceRingConfig {
    fn default() -> Self {
        let heartbeat_timeout = Millis::from_secs(60);
        Self {
            kvstore: KvConfig::default(),
            heartbeat_period: Millis::from_secs(5),
            heartbeat_timeout,
            auto_forget_delay: Millis(heartbeat_timeout.0 * FORGET_TIMEOUTS),
            num_tokens: 1,
            instance_id: String::new(),
            instance_addr: String::new(),
            instance_port: 0,
        }
    }
}

impl ServiceRingConfig {
    /// The query gates' ring: a key there is a client's budget, so the loss of its owner has to
    /// be noticed within seconds, and the keys are to be shared out evenly.
    pub fn query_gate() -> Self {
        let heartbeat_timeout = Millis::from_secs(6);
        Self {
            heartbeat_period: Millis::from_secs(2),
            heartbeat_timeout,
            // A minute at the least: a gate that restarts is no dead gate.
            auto_forget_delay: Millis::from_secs(60),
            num_tokens: 128,
            ..Self::default()
        }
    }

    pub fn validate(&self) -> Result<(), ServiceRingError> {
        // Having no tokens is what an ingester may not, and such a member may.
        if self.num_tokens > NUM_TOKENS_MAX {
            return Err(ServiceRingError::NumTokens { num_tokens: self.num_tokens });
        }
        let (period, timeout) = (self.heartbeat_period, self.heartbeat_timeout);
        if timeout.0 > 0 && period >= timeout {
            return Err(ServiceRingError::HeartbeatPeriod { period, timeout });
        }
        let delay = self.auto_forget_delay;
        if delay.0 > 0 && delay <= timeout {
            return Err(ServiceRingError::AutoForget { delay, timeout });
        }
        self.kvstore.validate().map_err(|source| ServiceRingError::Kv { source })
    }

    /// The life that such a member leads.
    pub fn lifecycler(&self) -> LifecyclerConfig {
        LifecyclerConfig {
            ring: RingConfig {
                kvstore: self.kvstore.clone(),
                heartbeat_timeout: self.heartbeat_timeout,
                replication_factor: 1,
                zone_awareness_enabled: false,
            },
            num_tokens: self.num_tokens,
            heartbeat_period: self.heartbeat_period,
            observe_period: Millis(0),
            join_after: Millis(0),
            min_ready_duration: Millis(0),
            final_sleep: Millis(0),
            unregister_on_shutdown: true,
            // A neighbour's fall is no reason to take nothing.
            readiness_check_ring_health: false,
            auto_forget_delay: self.auto_forget_delay,
            address: self.instance_addr.clone(),
            port: self.instance_port,
            id: self.instance_id.clone(),
            ..LifecyclerConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_cortexs_and_valid() {
        for config in [ServiceRingConfig::default(), ServiceRingConfig::query_gate()] {
            assert_eq!(config.validate(), Ok(()));
            let text = serde_saphyr::to_string(&config).expect("writes");
            assert_eq!(serde_saphyr::from_str::<ServiceRingConfig>(&text).expect("reads"), config);
        }
        let life = ServiceRingConfig::default().lifecycler();
        assert_eq!((life.num_tokens, life.ring.replication_factor), (1, 1));
        assert_eq!(life.ring.kvstore.key(DISTRIBUTOR_RING), "collectors/distributor");
        assert_eq!(life.ring.kvstore.key(INGESTER_RING), "collectors/ring");
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let check = |change: fn(&mut ServiceRingConfig), is_valid: bool| {
            let mut config = ServiceRingConfig::default();
            change(&mut config);
            assert_eq!(config.validate().is_ok(), is_valid, "{config:?}");
        };
        check(|c| c.num_tokens = 0, true);
        check(|c| c.num_tokens = NUM_TOKENS_MAX + 1, false);
        check(|c| c.heartbeat_period = Millis::from_secs(60), false);
        check(|c| c.auto_forget_delay = Millis::from_secs(60), false);
        check(|c| c.auto_forget_delay = Millis(0), true);
    }
}
