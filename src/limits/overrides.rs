//! The limits in force: the configuration's, and the runtime file's over them.
//!
//! What must hold: a file is published whole; a snapshot never changes; a request loads it once
//! and keeps it to the end, so all of its decisions come from one state of the limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use fnv::FnvHashMap;
use serde::Serialize;

use super::runtime_file::{InstanceLimits, ParseError, RuntimeFile};
use super::{IngestionRateStrategy, Limits};
use crate::tenant::TenantId;

/// Publishes the limits in force.
pub struct Overrides {
    instance: InstanceLimits,
    off: BudgetsOff,
    current: ArcSwap<Snapshot>,
}

/// Budgets of clients that this process would keep, were they turned on: a file that sets one is
/// warned about. What it has no use for at all is not off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetsOff {
    pub writes: bool,
    pub queries: bool,
}

/// The limits in force at one time: defaults, tenants, instance. Load once per request.
#[derive(Debug)]
pub struct Snapshot {
    generation: u64,
    defaults: Arc<Limits>,
    instance: InstanceLimits,
    tenants: FnvHashMap<TenantId, Arc<Limits>>,
    file: Option<RuntimeFile>,
}

impl Overrides {
    /// Starts with the limits of the configuration and no runtime file.
    pub fn new(defaults: Limits, instance: InstanceLimits) -> Self {
        let snapshot = Snapshot {
            generation: 0,
            defaults: Arc::new(defaults),
            instance: instance.clone(),
            tenants: FnvHashMap::default(),
            file: None,
        };
        let off = BudgetsOff::default();
        Self { instance, off, current: ArcSwap::from_pointee(snapshot) }
    }

    /// For a process that could limit clients and is told not to.
    pub fn without_client_budgets(self, off: BudgetsOff) -> Self {
        Self { off, ..self }
    }

    /// The snapshot in force, for one request.
    #[inline]
    pub fn load(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// The snapshot in force, to keep.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Reads a file's text over the limits of the configuration; publishes nothing.
    pub fn parse(&self, text: &str) -> Result<RuntimeFile, ParseError> {
        let before = self.load();
        let mut file = RuntimeFile::parse(text, before.defaults(), &self.instance)?;
        file.warn_of_client_budgets(before.defaults(), self.off);
        Ok(file)
    }

    /// Puts a file in force. One caller at a time: the task that re-reads it.
    pub fn publish(&self, file: RuntimeFile) -> u64 {
        let before = self.snapshot();
        let tenants = file.tenants.iter().filter_map(|(tenant, limits)| {
            TenantId::parse(tenant).ok().map(|tenant| (tenant, Arc::clone(limits)))
        });
        let snapshot = Snapshot {
            generation: before.generation + 1,
            defaults: Arc::clone(&before.defaults),
            instance: file.instance.clone().unwrap_or_else(|| self.instance.clone()),
            tenants: tenants.collect(),
            file: Some(file),
        };
        let generation = snapshot.generation;
        self.current.store(Arc::new(snapshot));
        generation
    }
}

impl Snapshot {
    /// What applies to a tenant.
    #[inline]
    pub fn limits(&self, tenant: &TenantId) -> &Arc<Limits> {
        self.tenants.get(tenant).unwrap_or(&self.defaults)
    }

    /// As [`limits`](Self::limits), for a name from another gate.
    pub fn limits_of(&self, tenant: &str) -> &Arc<Limits> {
        self.tenants.get(tenant).unwrap_or(&self.defaults)
    }

    pub fn defaults(&self) -> &Arc<Limits> {
        &self.defaults
    }

    /// Cortex takes the strategy from the defaults for all tenants.
    pub fn ingestion_rate_strategy(&self) -> IngestionRateStrategy {
        self.defaults.ingestion_rate_strategy
    }

    pub fn instance(&self) -> &InstanceLimits {
        &self.instance
    }

    /// Counts published files; 0 before the first. Two equal generations are one snapshot.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Tenants that the file names, with what applies to them.
    pub fn tenants(&self) -> impl Iterator<Item = (&TenantId, &Arc<Limits>)> {
        self.tenants.iter()
    }

    /// The file in force, or `None` before the first.
    pub fn file(&self) -> Option<&RuntimeFile> {
        self.file.as_ref()
    }

    /// What `/runtime_config` shows: the values in force, in the form of the file.
    pub fn view(&self) -> Option<RuntimeView<'_>> {
        let file = self.file.as_ref()?;
        Some(RuntimeView {
            overrides: &file.tenants,
            ingester_limits: file.instance.as_ref(),
            hard_overrides: &file.hard_overrides,
            api_allowed_limits: &file.api_allowed_limits,
        })
    }
}

/// See [`Snapshot::view`].
#[derive(Debug, Serialize)]
pub struct RuntimeView<'a> {
    pub overrides: &'a BTreeMap<String, Arc<Limits>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingester_limits: Option<&'a InstanceLimits>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hard_overrides: &'a BTreeMap<String, Arc<Limits>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub api_allowed_limits: &'a [String],
}

impl RuntimeView<'_> {
    /// The view as YAML.
    pub fn to_yaml(&self) -> Result<String, serde_saphyr::ser::Error> {
        serde_saphyr::to_string(self)
    }
}

#[cfg(test)]
mod tests;
