//! What stands in the runtime file, and what is strange about it.
//!
//! It is Cortex's own file. `overrides` and `ingester_limits` apply here, `hard_overrides` and
//! `api_allowed_limits` are kept for whoever edits overrides, `multi_kv_config` is read past.
//!
//! What must hold: a file is right as a whole or it is an error; what it does not set has the
//! value of our configuration. Strange names are no errors, since an operator's Cortex may be
//! newer than we are; they are warnings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fnv::FnvHashSet;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::overrides::BudgetsOff;
use super::reading::{Block, Field, Layer, Names};
use super::{CLIENT_RATE, ClientBudget, Limits, QUERY_RATE, known_names, nearest, unknown_name};
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
/// `ingester_limits:` of the runtime file). 0 means none, which is what below 0 is read as.
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
        "{place}: {name} {burst} is below the rate and below a common request; larger requests \
         are never admitted"
    )]
    BurstTooSmall { place: String, name: &'static str, burst: u64 },
    #[error(
        "{place}: native_histogram_ingestion_rate is finite and \
         native_histogram_ingestion_burst_size is 0, so no native histogram is ever admitted"
    )]
    NativeHistogramBurstZero { place: String },
    #[error(
        "{place}: client_identity_ingestion_rate_limit is set and \
         client_identity_ingestion_burst_size is 0, so no write of a client is ever admitted; set \
         the burst to what the largest request holds"
    )]
    ClientBurstZero { place: String },
    #[error(
        "{place}: client_identity_query_rate_limit is set and client_identity_query_burst_size is \
         0, so no query of a client is ever admitted; set the burst to how many may come at once"
    )]
    QueryBurstZero { place: String },
    #[error("{place}: {name} is without effect, since -client-identity.enabled is not set")]
    ClientBudgetOff { place: String, name: &'static str },
    #[error("{place}: ingestion_rate_strategy cannot differ between tenants and is ignored")]
    StrategyOfTenant { place: String },
    #[error("overrides: no tenant can have the id {tenant:?}")]
    NoTenant { tenant: String },
}

/// Why a runtime file is refused.
#[derive(Debug, thiserror::Error)]
#[error("runtime file is not valid")]
pub struct ParseError(#[source] Box<serde_saphyr::Error>);

impl From<serde_saphyr::Error> for ParseError {
    fn from(source: serde_saphyr::Error) -> Self {
        Self(Box::new(source))
    }
}

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
    /// Which limits each of these tenants' blocks sets, be it to the default's value. Some dozen
    /// bytes a limit.
    pub set_names: BTreeMap<String, Box<[&'static str]>>,
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

impl RuntimeFile {
    /// Warns of budgets of clients, for a process in which they are off.
    pub(super) fn warn_of_client_budgets(&mut self, defaults: &Limits, off: BudgetsOff) {
        for (tenant, limits) in &self.tenants {
            let inherited = budgets_that_are_off(defaults, off);
            let own = budgets_that_are_off(limits, off);
            let place = format!("overrides.{tenant}");
            for ((budget, name), (default, _)) in own.into_iter().zip(inherited) {
                if budget.is_some() && budget != default {
                    let place = place.clone();
                    self.warnings.add(Warning::ClientBudgetOff { place, name });
                }
            }
        }
    }
}

/// Budgets of clients that are off, and what sets each.
fn budgets_that_are_off(
    limits: &Limits,
    off: BudgetsOff,
) -> [(Option<ClientBudget>, &'static str); 2] {
    let BudgetsOff { writes, queries } = off;
    [
        (limits.client_budget().filter(|_| writes), CLIENT_RATE),
        (limits.query_client_budget().filter(|_| queries), QUERY_RATE),
    ]
}

impl Limits {
    /// Warns of budgets of clients where they are off.
    pub fn warnings_of_budgets_off(&self, place: &str, off: BudgetsOff) -> Vec<Warning> {
        let set =
            budgets_that_are_off(self, off).into_iter().filter(|(budget, _)| budget.is_some());
        let warning = |(_, name)| Warning::ClientBudgetOff { place: place.to_owned(), name };
        set.map(warning).collect()
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
    fn speeds(&self) -> [(f64, u64); 4] {
        [
            (self.ingestion_rate, self.ingestion_burst_size),
            (self.native_histogram_ingestion_rate, self.native_histogram_ingestion_burst_size),
            (self.client_identity_ingestion_rate_limit, self.client_identity_ingestion_burst_size),
            (self.query_rate().unwrap_or_default(), self.client_identity_query_burst_size),
        ]
    }
}

impl Block for InstanceLimits {
    fn set<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: &mut Field<'_, A>,
    ) -> Result<bool, A::Error> {
        match name {
            "max_ingestion_rate" => self.max_ingestion_rate = field.number()?.max(0.0),
            "max_tenants" => self.max_tenants = field.count_or_none()?,
            "max_series" => self.max_series = field.count_or_none()?,
            "max_inflight_push_requests" => {
                self.max_inflight_push_requests = field.count_or_none()?
            }
            "max_inflight_query_requests" => {
                self.max_inflight_query_requests = field.count_or_none()?
            }
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
        let mut names = Names::default();
        let layer = Layer { place: "", base: &Self::default(), names: &mut names };
        let instance = layer.deserialize(deserializer)?;
        match names.strange.first() {
            None => Ok(instance),
            Some(name) => Err(de::Error::custom(unknown_name(name, INSTANCE_NAMES.into_iter()))),
        }
    }
}

/// Bounds of the YAML reader, wide enough for tens of thousands of tenants that share anchors.
/// The file is the operator's own, so they only keep an accident from eating all memory.
pub(super) fn yaml_options() -> serde_saphyr::Options {
    const NODES_MAX: usize = 20_000_000;
    let mut options = serde_saphyr::Options::default();
    options.with_snippet = false;
    // Fields judge their own values, and a name that is read past may have any.
    options.non_finite_float_policy = serde_saphyr::options::NonFiniteFloatPolicy::PassThrough;
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
        let RuntimeFile { tenants, set_names, hard_overrides, warnings, .. } = file;
        let known: FnvHashSet<&'static str> = known_names().collect();
        let mut strange = Vec::new();
        while let Some(name) = values.next_key::<String>()? {
            match name.as_str() {
                "overrides" => {
                    values.next_value_seed(TenantsReader {
                        place: "overrides",
                        tenants,
                        set_names: Some(set_names),
                        known: &known,
                        defaults,
                        warnings,
                    })?;
                }
                "hard_overrides" => {
                    values.next_value_seed(TenantsReader {
                        place: "hard_overrides",
                        tenants: hard_overrides,
                        set_names: None,
                        known: &known,
                        defaults,
                        warnings,
                    })?;
                }
                "ingester_limits" => {
                    let mut names = Names::default();
                    let layer = Layer { place: &name, base: instance, names: &mut names };
                    file.instance = Some(values.next_value_seed(layer)?);
                    let strange = names.strange;
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
    /// Where it is remembered which names each block sets, if that matters.
    set_names: Option<&'a mut BTreeMap<String, Box<[&'static str]>>>,
    /// All names of limits.
    known: &'a FnvHashSet<&'static str>,
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

    fn visit_map<A: MapAccess<'de>>(mut self, mut values: A) -> Result<(), A::Error> {
        while let Some(tenant) = values.next_key::<String>()? {
            let place = format!("{}.{tenant}", self.place);
            let mut names = Names::default();
            let layer = Layer { place: &place, base: self.defaults, names: &mut names };
            let limits = values.next_value_seed(layer)?;
            // The block may have set one of both over a default of the other.
            limits
                .validate_query_rate()
                .map_err(|error| de::Error::custom(format_args!("{place}: {error}")))?;
            let Names { set, strange } = names;
            self.warnings.add_strange(&place, strange, || known_names().collect());
            if TenantId::parse(&tenant).is_err() {
                self.warnings.add(Warning::NoTenant { tenant: tenant.clone() });
            }
            if let Some(set_names) = &mut self.set_names {
                let known = set.iter().filter_map(|name| self.known.get(name.as_str()));
                set_names.insert(tenant.clone(), known.copied().collect());
            }
            self.tenants.insert(tenant, Arc::new(limits));
        }
        Ok(())
    }
}
