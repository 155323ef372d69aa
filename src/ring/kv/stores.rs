//! What the stores of one process have in common.

use crate::ring::config::{KvConfig, KvStoreKind};
use crate::ring::kv::inmemory::InMemoryKv;
use crate::ring::kv::memberlist::GossipedStore;
use crate::ring::kv::memberlist::value::ValueKind;
use crate::ring::kv::requests::RequestDurations;
use crate::ring::kv::{KvClient, KvSetupError};

/// Makes clients of stores, each by its own settings.
#[derive(Clone, Debug)]
pub struct Stores {
    durations: RequestDurations,
    /// The one store on gossip, where there is one: all rings on it share it.
    gossiped: Option<GossipedStore>,
}

impl Stores {
    pub fn new(durations: RequestDurations, gossiped: Option<GossipedStore>) -> Self {
        Self { durations, gossiped }
    }

    /// For a ring. `name` is Cortex's name of the store's user, for metrics.
    pub fn ring(&self, config: &KvConfig, name: &'static str) -> Result<KvClient, KvSetupError> {
        self.client(config, name, ValueKind::Ring)
    }

    /// For elections among the replicas of HA senders.
    pub fn elections(
        &self,
        config: &KvConfig,
        name: &'static str,
    ) -> Result<KvClient, KvSetupError> {
        self.client(config, name, ValueKind::Replica)
    }

    fn client(
        &self,
        config: &KvConfig,
        name: &'static str,
        kind: ValueKind,
    ) -> Result<KvClient, KvSetupError> {
        if config.store == KvStoreKind::Memberlist {
            let gossiped = self.gossiped.as_ref().ok_or(KvSetupError::NoGossip)?;
            return Ok(KvClient::Memberlist(gossiped.client(kind)));
        }
        KvClient::new(config, &InMemoryKv::default(), Some(&self.durations), name)
    }
}
