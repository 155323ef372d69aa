//! What the stores of one process have in common.

use crate::ring::config::KvConfig;
use crate::ring::kv::inmemory::InMemoryKv;
use crate::ring::kv::requests::RequestDurations;
use crate::ring::kv::{KvClient, KvSetupError};

/// Makes clients of stores, each by its own settings.
#[derive(Clone, Debug)]
pub struct Stores {
    durations: RequestDurations,
}

impl Stores {
    pub fn new(durations: RequestDurations) -> Self {
        Self { durations }
    }

    /// For a ring, or what else is kept in one value. `name` is Cortex's name of the store's
    /// user, for metrics.
    pub fn client(&self, config: &KvConfig, name: &'static str) -> Result<KvClient, KvSetupError> {
        KvClient::new(config, &InMemoryKv::default(), Some(&self.durations), name)
    }
}
