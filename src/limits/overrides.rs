//! The runtime file: what an operator changes while everything runs.
//!
//! It is Cortex's own file. `overrides` and `ingester_limits` apply here, `hard_overrides` and
//! `api_allowed_limits` are kept for whoever edits overrides, `multi_kv_config` is read past.
//!
//! What must hold: the file is taken over whole or not at all; a snapshot never changes; what
//! the file does not set has the value of our configuration. Strange names never stop a reload,
//! since an operator's Cortex may be newer than we are; they are warnings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use fnv::FnvHashMap;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::reading::{Block, Field, Layer};
use super::{IngestionRateStrategy, Limits, known_names, nearest, unknown_name};
use crate::tenant::TenantId;

/// Most warnings of one file that are kept to be shown; the rest is only counted.
pub const WARNINGS_MAX: usize = 100;

const TOP_LEVEL_NAMES: [&str; 6] = [
    "overrides",
    "ingester_limits",
    "hard_overrides",
    "api_allowed_limits",
    "multi_kv_config",
    "ingester_stream_chunks_when_using_blocks",
];

const INSTANCE_NAMES: [&str; 5] = [
    "max_ingestion_rate",
    "max_tenants",
    "max_series",
    "max_inflight_push_requests",
    "max_inflight_query_requests",
];

/// Limits of this instance over all tenants (`instance_limits:` of the configuration,
/// `ingester_limits:` of the runtime file). 0 means none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InstanceLimits {
    /// Items per second, as a moving average.
    pub max_ingestion_rate: f64,
    pub max_tenants: u64,
    /// Series over all tenants.
    pub max_series: u64,
    pub max_inflight_push_requests: u64,
    pub max_inflight_query_requests: u64,
}

/// Something in a file of limits that is legal and most likely a mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    #[error("{place}: {}", unknown_name(name, nearest.iter().copied()))]
    UnknownName { place: String, name: String, nearest: Option<&'static str> },
    #[error("{place}: {name} has no effect here, it belongs under {belongs}")]
    WrongBlock { place: String, name: String, belongs: &'static str },
    #[error(
        "{place}: ingestion_burst_size {burst} is below the rate and below a common request; \
         larger requests are never admitted"
    )]
    BurstTooSmall { place: String, burst: u64 },
    #[error(
        "{place}: native_histogram_ingestion_rate is finite and \
         native_histogram_ingestion_burst_size is 0, so no native histogram is ever admitted"
    )]
    NativeHistogramBurstZero { place: String },
    #[error("{place}: ingestion_rate_strategy cannot differ between tenants and is ignored")]
    StrategyOfTenant { place: String },
    #[error("overrides: no tenant can have the id {tenant:?}")]
    NoTenant { tenant: String },
}

/// Why a runtime file is refused.
#[derive(Debug, thiserror::Error)]
#[error("runtime file is not valid")]
pub struct ParseError(#[from] serde_saphyr::Error);

/// Warnings of one file: the first ones, and how many there were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    pub shown: Vec<Warning>,
    pub total: usize,
}

/// A parsed runtime file, laid over the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeFile {
    pub tenants: BTreeMap<String, Arc<Limits>>,
    /// `None` if the file does not speak of them.
    pub instance: Option<InstanceLimits>,
    /// Per tenant, the most that an overrides API may set; a field that is not given is bounded
    /// by its default.
    pub hard_overrides: BTreeMap<String, Arc<Limits>>,
    /// Limits that an overrides API may set at all.
    pub api_allowed_limits: Vec<String>,
    pub warnings: Warnings,
}

impl RuntimeFile {
    /// Reads a file's text. An empty file, an empty block and an empty tenant set nothing.
    pub fn parse(
        text: &str,
        defaults: &Limits,
        instance: &InstanceLimits,
    ) -> Result<Self, ParseError> {
        let mut file = Self::default();
        let reader = FileReader { file: &mut file, defaults, instance };
        serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |yaml| {
            reader.deserialize(yaml)
        })?;
        for (tenant, limits) in &file.tenants {
            let place = format!("overrides.{tenant}");
            if limits.ingestion_rate_strategy != defaults.ingestion_rate_strategy {
                file.warnings.add(Warning::StrategyOfTenant { place: place.clone() });
            }
            // What a tenant inherits has been warned about with the defaults.
            if limits.speeds() != defaults.speeds() {
                limits.warnings(&place).into_iter().for_each(|w| file.warnings.add(w));
            }
        }
        Ok(file)
    }
}

/// Publishes the limits in force.
pub struct Overrides {
    instance: InstanceLimits,
    current: ArcSwap<Snapshot>,
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
        Self { instance, current: ArcSwap::from_pointee(snapshot) }
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
        RuntimeFile::parse(text, self.load().defaults(), &self.instance)
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

impl Warnings {
    fn add(&mut self, warning: Warning) {
        self.total += 1;
        if self.shown.len() < WARNINGS_MAX {
            self.shown.push(warning);
        }
    }

    /// Warns of names that a block at `place` has no use for; `names` are those it has, and a
    /// name found in another block is told to belong there.
    fn add_strange(
        &mut self,
        place: &str,
        strange: Vec<String>,
        names: impl Fn() -> Vec<&'static str>,
    ) {
        for name in strange {
            let place = place.to_owned();
            let belongs = if known_names().any(|known| known == name) {
                Some("overrides.<tenant>")
            } else if INSTANCE_NAMES.contains(&name.as_str()) {
                Some("ingester_limits")
            } else if TOP_LEVEL_NAMES.contains(&name.as_str()) {
                Some("the top of the file")
            } else {
                None
            };
            self.add(match belongs {
                Some(belongs) => Warning::WrongBlock { place, name, belongs },
                None => {
                    let nearest = nearest(&name, names().into_iter());
                    Warning::UnknownName { place, name, nearest }
                }
            });
        }
    }
}

impl Limits {
    /// What [`Limits::warnings`] looks at.
    fn speeds(&self) -> (f64, u64, f64, u64) {
        (
            self.ingestion_rate,
            self.ingestion_burst_size,
            self.native_histogram_ingestion_rate,
            self.native_histogram_ingestion_burst_size,
        )
    }
}

impl Block for InstanceLimits {
    fn set<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: &mut Field<'_, A>,
    ) -> Result<bool, A::Error> {
        match name {
            "max_ingestion_rate" => self.max_ingestion_rate = field.rate()?,
            "max_tenants" => self.max_tenants = field.count()?,
            "max_series" => self.max_series = field.count()?,
            "max_inflight_push_requests" => self.max_inflight_push_requests = field.count()?,
            "max_inflight_query_requests" => self.max_inflight_query_requests = field.count()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn is_read_past(_: &str) -> bool {
        false
    }
}

/// The instance limits of our own configuration: there an unknown name is an error.
impl<'de> Deserialize<'de> for InstanceLimits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut strange = Vec::new();
        let layer = Layer { place: "", base: &Self::default(), strange: &mut strange };
        let instance = layer.deserialize(deserializer)?;
        match strange.first() {
            None => Ok(instance),
            Some(name) => Err(de::Error::custom(unknown_name(name, INSTANCE_NAMES.into_iter()))),
        }
    }
}

/// Bounds of the YAML reader, wide enough for tens of thousands of tenants that share anchors.
/// The file is the operator's own, so they only keep an accident from eating all memory.
fn yaml_options() -> serde_saphyr::Options {
    const NODES_MAX: usize = 20_000_000;
    let mut options = serde_saphyr::Options::default();
    options.with_snippet = false;
    // Fields judge their own values, and a name that is read past may have any.
    options.reject_non_finite_typeless_float = false;
    options.alias_limits.max_total_replayed_events = NODES_MAX;
    if let Some(budget) = &mut options.budget {
        budget.max_events = NODES_MAX;
        budget.max_nodes = NODES_MAX;
        budget.max_aliases = NODES_MAX;
        budget.max_merge_keys = NODES_MAX;
        budget.enforce_alias_anchor_ratio = false;
    }
    options
}

/// Reads the top level of a runtime file into `file`.
struct FileReader<'a> {
    file: &'a mut RuntimeFile,
    defaults: &'a Limits,
    instance: &'a InstanceLimits,
}

impl<'de> DeserializeSeed<'de> for FileReader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FileReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a runtime configuration")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let Self { file, defaults, instance } = self;
        let RuntimeFile { tenants, hard_overrides, warnings, .. } = file;
        let mut strange = Vec::new();
        while let Some(name) = values.next_key::<String>()? {
            match name.as_str() {
                "overrides" => {
                    let place = "overrides";
                    values.next_value_seed(TenantsReader { place, tenants, defaults, warnings })?;
                }
                "hard_overrides" => {
                    let (place, tenants) = ("hard_overrides", &mut *hard_overrides);
                    values.next_value_seed(TenantsReader { place, tenants, defaults, warnings })?;
                }
                "ingester_limits" => {
                    let mut strange = Vec::new();
                    let layer = Layer { place: &name, base: instance, strange: &mut strange };
                    file.instance = Some(values.next_value_seed(layer)?);
                    warnings.add_strange("ingester_limits", strange, || INSTANCE_NAMES.to_vec());
                }
                "api_allowed_limits" => {
                    let names = values.next_value::<Option<Vec<String>>>()?;
                    file.api_allowed_limits = names.unwrap_or_default();
                }
                "multi_kv_config" | "ingester_stream_chunks_when_using_blocks" => {
                    values.next_value::<IgnoredAny>()?;
                }
                _ => {
                    values.next_value::<IgnoredAny>()?;
                    strange.push(name);
                }
            }
        }
        warnings.add_strange("top of the file", strange, || TOP_LEVEL_NAMES.to_vec());
        Ok(())
    }
}

/// Reads one block of limits per tenant, each over the defaults.
struct TenantsReader<'a> {
    place: &'static str,
    tenants: &'a mut BTreeMap<String, Arc<Limits>>,
    defaults: &'a Limits,
    warnings: &'a mut Warnings,
}

impl<'de> DeserializeSeed<'de> for TenantsReader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TenantsReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("limits by tenant")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while let Some(tenant) = values.next_key::<String>()? {
            let place = format!("{}.{tenant}", self.place);
            let mut strange = Vec::new();
            let layer = Layer { place: &place, base: self.defaults, strange: &mut strange };
            let limits = values.next_value_seed(layer)?;
            self.warnings.add_strange(&place, strange, || known_names().collect());
            if TenantId::parse(&tenant).is_err() {
                self.warnings.add(Warning::NoTenant { tenant: tenant.clone() });
            }
            self.tenants.insert(tenant, Arc::new(limits));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
