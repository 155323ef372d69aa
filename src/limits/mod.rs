//! The numbers that apply to a tenant: Cortex's limits under Cortex's names.
//!
//! * [`Limits`]: one tenant's numbers, or the defaults (`limits:` of the configuration).
//! * [`Overrides`] publishes what the runtime file says over them; `reload` re-reads it.
//! * [`ToldLimit`] says where each of a tenant's numbers comes from.
//! * [`LocalLimits`] turns limits of the cluster into those of this instance, with the texts of
//!   refusals.
//!
//! What must hold: a tenant's unset fields have the default's values; a wrong value is never
//! taken over; a name that Cortex knows and we do not use is accepted silently, since operators
//! point both at one file. Limits of our own are the other way round: Cortex refuses a file that
//! holds one.

pub mod exporter;
mod label_sets;
mod origin;
mod overrides;
mod query_rate;
mod reading;
pub mod reload;
mod runtime_file;
mod series_limiter;
pub mod user_overrides;

use serde::de::{self, DeserializeSeed as _, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};

use crate::units::Millis;
use reading::{Block, Field, Layer, Names};

pub use label_sets::{LABEL_SETS_MAX, LabelSet, LabelSets, LabelSetsError};
pub use origin::{Origin, ToldLimit};
pub use overrides::{BudgetsOff, Overrides, RuntimeView, Snapshot};
pub use query_rate::QueryRate;
pub use runtime_file::{InstanceLimits, ParseError, RuntimeFile, WARNINGS_MAX, Warning, Warnings};
pub use series_limiter::{
    ADMIN_LIMIT_MESSAGE, Counts, IgnoredMetrics, LimitInForce, LocalLimit, LocalLimits, NO_LIMIT,
    Numbers, Refusal, RefusalKind, Shape,
};

/// The rate that means "no limit": the largest double, as in Cortex.
const RATE_UNLIMITED: f64 = f64::MAX;

/// Names that Cortex takes, one a line; those that are no field of [`Limits`] are read past.
const CORTEX_NAMES: &str = include_str!("cortex_names.txt");

const CLIENT_RATE: &str = "client_identity_ingestion_rate_limit";
const CLIENT_BURST: &str = "client_identity_ingestion_burst_size";
const CLIENTS_TRACKED: &str = "client_identity_ingestion_tracked_clients_limit";
const CLIENT_SHADOW: &str = "client_identity_ingestion_shadow";
const QUERY_RATE: &str = "client_identity_query_rate_limit";
const QUERY_BURST: &str = "client_identity_query_burst_size";
const QUERY_CLIENTS_TRACKED: &str = "client_identity_query_tracked_clients_limit";
const QUERY_SHADOW: &str = "client_identity_query_shadow";
const QUERY_CAPACITY: &str = "query_capacity_per_second";

/// Names that Cortex does not know.
pub const OWN_NAMES: [&str; 9] = [
    CLIENT_RATE,
    CLIENT_BURST,
    CLIENTS_TRACKED,
    CLIENT_SHADOW,
    QUERY_RATE,
    QUERY_BURST,
    QUERY_CLIENTS_TRACKED,
    QUERY_SHADOW,
    QUERY_CAPACITY,
];

/// Why at least one client is tracked.
const TRACKED_WHY: &str = "clients that are not tracked would not be limited";

/// Burst that the requests of common senders stay below, in samples: Prometheus sends 2,000 and
/// OpenTelemetry collectors 8,192 at a time. Below it, and below the rate, a burst is suspicious.
const REQUEST_SAMPLES_COMMON_MAX: u64 = 10_000;

/// The limits of one tenant. Where a limit is a count, 0 means none unless said otherwise. Limits
/// of series and metadata may be below 0, which refuses all of them, as in Cortex.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Samples, exemplars and metadata per second. Default 25,000.
    pub ingestion_rate: f64,
    /// Native histogram samples per second. Default: no limit, written as the largest double.
    pub native_histogram_ingestion_rate: f64,
    /// Whether the rate is meant per instance or for all. The default's counts for all tenants.
    pub ingestion_rate_strategy: IngestionRateStrategy,
    /// Most items at once; 0 admits none. Default 50,000.
    pub ingestion_burst_size: u64,
    /// Most native histogram samples at once; 0 admits none under a finite rate. Default 0.
    pub native_histogram_ingestion_burst_size: u64,

    /// Samples, exemplars and metadata per second of each client of the tenant, over all
    /// distributors. Default 0: clients are not limited, as with the largest double.
    pub client_identity_ingestion_rate_limit: f64,
    /// Most items of a client at once; 0 admits none under a rate. Default 0.
    pub client_identity_ingestion_burst_size: u64,
    /// Clients of the tenant whose budgets are kept at one owner; beyond it the least recently
    /// used are forgotten. At least 1, since 0 would limit nobody. Default 1,000.
    pub client_identity_ingestion_tracked_clients_limit: u64,
    /// Only count what budgets of clients would refuse. Default false.
    pub client_identity_ingestion_shadow: bool,

    /// Queries per second of each client of the tenant, over all query gates, as a number or as a
    /// share of the capacity below. Default 0: clients are not limited.
    pub client_identity_query_rate_limit: QueryRate,
    /// Most queries of a client at once; 0 admits none under a rate. Default 0.
    pub client_identity_query_burst_size: u64,
    /// As for writes. Default 1,000.
    pub client_identity_query_tracked_clients_limit: u64,
    /// Only count what budgets of clients would refuse. Default false.
    pub client_identity_query_shadow: bool,
    /// Queries per second that the cluster answers for the tenant, which shares are of; 0 is not
    /// known. Default 0.
    pub query_capacity_per_second: f64,

    /// Labels that distributors take off every series; each entry takes the first of its name.
    pub drop_labels: Vec<String>,
    /// Take the samples of one replica of each cluster only.
    pub accept_ha_samples: bool,
    /// Look for the two labels in each series, not in a request's first one only.
    pub accept_mixed_ha_samples: bool,
    /// Label that names the cluster of replicas. Default `cluster`.
    pub ha_cluster_label: String,
    /// Label that names the replica; it is taken off. Default `__replica__`.
    pub ha_replica_label: String,
    /// Clusters that are tracked of one tenant; 0 and below is no limit.
    pub ha_max_clusters: i64,
    /// Silence after which another replica is elected. Default 30 seconds.
    #[serde(serialize_with = "reading::write_span")]
    pub ha_tracker_failover_timeout: Millis,

    /// Bytes of a label's name. Default 1024.
    pub max_label_name_length: u64,
    /// Bytes of a label's value, the metric's name included. Default 2048.
    pub max_label_value_length: u64,
    /// Default 30.
    pub max_label_names_per_series: u64,
    /// Bytes of all names and values of a series. Default 0.
    pub max_labels_size_bytes: u64,
    /// Bytes of one native histogram sample. Default 0.
    pub max_native_histogram_sample_size_bytes: u64,
    /// Buckets of one native histogram; more are merged. Default 0.
    pub max_native_histogram_buckets: u64,
    /// Bytes of a metadata's name, help and unit each. Default 1024.
    pub max_metadata_length: u64,
    pub reject_old_samples: bool,
    /// Default 14 days.
    #[serde(serialize_with = "reading::write_span")]
    pub reject_old_samples_max_age: Millis,
    /// How far ahead of us a sample may be. Default 10 minutes.
    #[serde(serialize_with = "reading::write_span")]
    pub creation_grace_period: Millis,
    /// Default true.
    pub enforce_metadata_metric_name: bool,
    /// Default true.
    pub enforce_metric_name: bool,
    pub enable_type_and_unit_labels: bool,
    pub enable_start_timestamp: bool,
    /// Attributes of an OTLP resource that become labels of its metrics.
    pub promote_resource_attributes: Vec<String>,

    /// Instances that a tenant is spread over under shuffle sharding; below 1 a share of them.
    /// Default 0: all, as below 0.
    pub ingestion_tenant_shard_size: f64,

    /// Series per instance. Default 5,000,000.
    pub max_series_per_user: i64,
    /// Series of one metric per instance. Default 50,000.
    pub max_series_per_metric: i64,
    pub max_native_histogram_series_per_user: i64,
    /// Series in the cluster, before replication.
    pub max_global_series_per_user: i64,
    pub max_global_series_per_metric: i64,
    pub max_global_native_histogram_series_per_user: i64,
    pub limits_per_label_set: LabelSets,
    pub enable_native_histograms: bool,

    /// Metrics with metadata, per instance. Default 8,000.
    pub max_metadata_per_user: i64,
    /// Metadata of one metric, per instance. Default 10.
    pub max_metadata_per_metric: i64,
    pub max_global_metadata_per_user: i64,
    pub max_global_metadata_per_metric: i64,

    /// How far behind a series' newest sample another one may be. Default 0.
    #[serde(serialize_with = "reading::write_span")]
    pub out_of_order_time_window: Millis,
    /// Exemplars kept; 0 leaves it to the store's setting, below 0 keeps none.
    pub max_exemplars: i64,
}

/// See [`Limits::ingestion_rate_strategy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IngestionRateStrategy {
    #[default]
    Local,
    Global,
    /// For all distributors together, exactly, however writes are spread over them: each spends
    /// what the owner of the tenant's budget has handed out to it.
    Leased,
}

/// What each client of a tenant may write, or ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientBudget {
    /// Items or queries per second; finite and more than 0.
    pub rate: f64,
    /// Most items at once.
    pub burst: u64,
    /// Clients that one owner keeps; at least 1.
    pub tracked_clients_max: u64,
    /// Nothing is refused, only counted.
    pub is_shadow: bool,
}

/// What the limits of series lean on elsewhere in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    pub shard_by_all_labels: bool,
    pub active_series_metrics_enabled: bool,
}

/// Why limits cannot work with the rest of the configuration. The texts are Cortex's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    #[error(
        "the ingester.max-global-series-per-user limit is unsupported if \
         distributor.shard-by-all-labels is disabled"
    )]
    GlobalSeries,
    #[error(
        "the ingester.max-global-native-histogram-series-per-user limit is unsupported if \
         distributor.shard-by-all-labels or ingester.active-series-metrics-enabled is disabled"
    )]
    GlobalNativeHistogramSeries,
    #[error(
        "the ingester.max-local-native-histogram-series-per-user limit is unsupported if \
         ingester.active-series-metrics-enabled is disabled"
    )]
    LocalNativeHistogramSeries,
    /// Ours, as the limit is.
    #[error("{}", SHARE_OF_NOTHING)]
    ShareOfNothing,
}

/// What is wrong with a share where no capacity is set.
const SHARE_OF_NOTHING: &str = "client_identity_query_rate_limit is a share of \
                                query_capacity_per_second, which is not set; set it to the \
                                queries per second that are answered for the tenant, or the limit \
                                to a number";

impl Limits {
    /// Checks limits that are set against what they need.
    pub fn validate(&self, support: Support) -> Result<(), LimitsError> {
        let Support { shard_by_all_labels, active_series_metrics_enabled } = support;
        if self.max_global_series_per_user > 0 && !shard_by_all_labels {
            return Err(LimitsError::GlobalSeries);
        }
        let counted_globally = shard_by_all_labels && active_series_metrics_enabled;
        if self.max_global_native_histogram_series_per_user > 0 && !counted_globally {
            return Err(LimitsError::GlobalNativeHistogramSeries);
        }
        if self.max_native_histogram_series_per_user > 0 && !active_series_metrics_enabled {
            return Err(LimitsError::LocalNativeHistogramSeries);
        }
        self.validate_query_rate()
    }

    /// A share has to be of something. Both are set on their own, so no single field can tell.
    fn validate_query_rate(&self) -> Result<(), LimitsError> {
        match self.query_rate() {
            Some(_) => Ok(()),
            None => Err(LimitsError::ShareOfNothing),
        }
    }

    /// Queries per second of each client as a number; `None` for a share of what is not known.
    fn query_rate(&self) -> Option<f64> {
        self.client_identity_query_rate_limit.per_second(self.query_capacity_per_second)
    }

    /// What each client may write; `None` where clients are not limited.
    pub fn client_budget(&self) -> Option<ClientBudget> {
        let rate = self.client_identity_ingestion_rate_limit;
        (rate > 0.0 && rate != RATE_UNLIMITED).then_some(ClientBudget {
            rate,
            burst: self.client_identity_ingestion_burst_size,
            tracked_clients_max: self.client_identity_ingestion_tracked_clients_limit,
            is_shadow: self.client_identity_ingestion_shadow,
        })
    }

    /// What each client may ask; `None` where clients are not limited.
    pub fn query_client_budget(&self) -> Option<ClientBudget> {
        // A share of nothing known is refused where limits are read.
        let rate = self.query_rate()?;
        (rate > 0.0 && rate != RATE_UNLIMITED).then_some(ClientBudget {
            rate,
            burst: self.client_identity_query_burst_size,
            tracked_clients_max: self.client_identity_query_tracked_clients_limit,
            is_shadow: self.client_identity_query_shadow,
        })
    }

    /// Settings that are legal and most likely a mistake; `place` tells where they stand.
    pub fn warnings(&self, place: &str) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut check_burst = |rate: f64, burst: u64, name| {
            let below_rate = (burst as f64) < rate;
            if rate != RATE_UNLIMITED && below_rate && burst < REQUEST_SAMPLES_COMMON_MAX {
                warnings.push(Warning::BurstTooSmall { place: place.to_owned(), name, burst });
            }
        };
        check_burst(self.ingestion_rate, self.ingestion_burst_size, "ingestion_burst_size");
        match self.client_budget() {
            None => {}
            Some(ClientBudget { burst: 0, .. }) => {
                warnings.push(Warning::ClientBurstZero { place: place.to_owned() });
            }
            Some(budget) => check_burst(budget.rate, budget.burst, CLIENT_BURST),
        }
        // A burst below the rate is none of these: each request is one query.
        if self.query_client_budget().is_some_and(|budget| budget.burst == 0) {
            warnings.push(Warning::QueryBurstZero { place: place.to_owned() });
        }
        let histograms_admitted = self.native_histogram_ingestion_burst_size > 0
            || self.native_histogram_ingestion_rate == RATE_UNLIMITED;
        if !histograms_admitted {
            warnings.push(Warning::NativeHistogramBurstZero { place: place.to_owned() });
        }
        warnings
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ingestion_rate: 25_000.0,
            native_histogram_ingestion_rate: RATE_UNLIMITED,
            ingestion_rate_strategy: IngestionRateStrategy::Local,
            ingestion_burst_size: 50_000,
            native_histogram_ingestion_burst_size: 0,
            client_identity_ingestion_rate_limit: 0.0,
            client_identity_ingestion_burst_size: 0,
            client_identity_ingestion_tracked_clients_limit: 1_000,
            client_identity_ingestion_shadow: false,
            client_identity_query_rate_limit: QueryRate::default(),
            client_identity_query_burst_size: 0,
            client_identity_query_tracked_clients_limit: 1_000,
            client_identity_query_shadow: false,
            query_capacity_per_second: 0.0,
            drop_labels: Vec::new(),
            accept_ha_samples: false,
            accept_mixed_ha_samples: false,
            ha_cluster_label: "cluster".to_owned(),
            ha_replica_label: "__replica__".to_owned(),
            ha_max_clusters: 0,
            ha_tracker_failover_timeout: Millis::from_secs(30),
            max_label_name_length: 1024,
            max_label_value_length: 2048,
            max_label_names_per_series: 30,
            max_labels_size_bytes: 0,
            max_native_histogram_sample_size_bytes: 0,
            max_native_histogram_buckets: 0,
            max_metadata_length: 1024,
            reject_old_samples: false,
            reject_old_samples_max_age: Millis::from_secs(14 * 24 * 3600),
            creation_grace_period: Millis::from_secs(600),
            enforce_metadata_metric_name: true,
            enforce_metric_name: true,
            enable_type_and_unit_labels: false,
            enable_start_timestamp: false,
            promote_resource_attributes: Vec::new(),
            ingestion_tenant_shard_size: 0.0,
            max_series_per_user: 5_000_000,
            max_series_per_metric: 50_000,
            max_native_histogram_series_per_user: 0,
            max_global_series_per_user: 0,
            max_global_series_per_metric: 0,
            max_global_native_histogram_series_per_user: 0,
            limits_per_label_set: LabelSets::default(),
            enable_native_histograms: false,
            max_metadata_per_user: 8_000,
            max_metadata_per_metric: 10,
            max_global_metadata_per_user: 0,
            max_global_metadata_per_metric: 0,
            out_of_order_time_window: Millis(0),
            max_exemplars: 0,
        }
    }
}

impl Block for Limits {
    fn set<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: &mut Field<'_, A>,
    ) -> Result<bool, A::Error> {
        match name {
            "ingestion_rate" => self.ingestion_rate = field.rate()?,
            "native_histogram_ingestion_rate" => {
                self.native_histogram_ingestion_rate = field.rate()?;
            }
            "ingestion_rate_strategy" => self.ingestion_rate_strategy = field.other()?,
            "ingestion_burst_size" => self.ingestion_burst_size = field.count()?,
            "native_histogram_ingestion_burst_size" => {
                self.native_histogram_ingestion_burst_size = field.count()?;
            }
            CLIENT_RATE => self.client_identity_ingestion_rate_limit = field.rate()?,
            CLIENT_BURST => self.client_identity_ingestion_burst_size = field.count()?,
            CLIENTS_TRACKED => {
                self.client_identity_ingestion_tracked_clients_limit =
                    field.positive(TRACKED_WHY)?;
            }
            CLIENT_SHADOW => self.client_identity_ingestion_shadow = field.flag()?,
            QUERY_RATE => self.client_identity_query_rate_limit = field.query_rate()?,
            QUERY_BURST => self.client_identity_query_burst_size = field.count()?,
            QUERY_CLIENTS_TRACKED => {
                self.client_identity_query_tracked_clients_limit = field.positive(TRACKED_WHY)?;
            }
            QUERY_SHADOW => self.client_identity_query_shadow = field.flag()?,
            QUERY_CAPACITY => self.query_capacity_per_second = field.rate()?,
            "drop_labels" => self.drop_labels = field.other()?,
            "accept_ha_samples" => self.accept_ha_samples = field.flag()?,
            "accept_mixed_ha_samples" => self.accept_mixed_ha_samples = field.flag()?,
            "ha_cluster_label" => self.ha_cluster_label = field.other()?,
            "ha_replica_label" => self.ha_replica_label = field.other()?,
            "ha_max_clusters" => self.ha_max_clusters = field.signed()?,
            "ha_tracker_failover_timeout" => {
                self.ha_tracker_failover_timeout = field.span()?;
            }
            "max_label_name_length" => self.max_label_name_length = field.count()?,
            "max_label_value_length" => self.max_label_value_length = field.count()?,
            "max_label_names_per_series" => self.max_label_names_per_series = field.count()?,
            "max_labels_size_bytes" => self.max_labels_size_bytes = field.count_or_none()?,
            "max_native_histogram_sample_size_bytes" => {
                self.max_native_histogram_sample_size_bytes = field.count_or_none()?;
            }
            "max_native_histogram_buckets" => self.max_native_histogram_buckets = field.count()?,
            "max_metadata_length" => self.max_metadata_length = field.count()?,
            "reject_old_samples" => self.reject_old_samples = field.flag()?,
            "reject_old_samples_max_age" => self.reject_old_samples_max_age = field.span()?,
            "creation_grace_period" => self.creation_grace_period = field.span()?,
            "enforce_metadata_metric_name" => {
                self.enforce_metadata_metric_name = field.flag()?;
            }
            "enforce_metric_name" => self.enforce_metric_name = field.flag()?,
            "enable_type_and_unit_labels" => {
                self.enable_type_and_unit_labels = field.flag()?;
            }
            "enable_start_timestamp" => self.enable_start_timestamp = field.flag()?,
            "promote_resource_attributes" => {
                let names: Option<Vec<String>> = field.other()?;
                self.promote_resource_attributes = names.unwrap_or_default();
            }
            "ingestion_tenant_shard_size" => self.ingestion_tenant_shard_size = field.number()?,
            "max_series_per_user" => self.max_series_per_user = field.signed()?,
            "max_series_per_metric" => self.max_series_per_metric = field.signed()?,
            "max_native_histogram_series_per_user" => {
                self.max_native_histogram_series_per_user = field.signed()?;
            }
            "max_global_series_per_user" => self.max_global_series_per_user = field.signed()?,
            "max_global_series_per_metric" => self.max_global_series_per_metric = field.signed()?,
            "max_global_native_histogram_series_per_user" => {
                self.max_global_native_histogram_series_per_user = field.signed()?;
            }
            "limits_per_label_set" => self.limits_per_label_set = field.other()?,
            "enable_native_histograms" => self.enable_native_histograms = field.flag()?,
            "max_metadata_per_user" => self.max_metadata_per_user = field.signed()?,
            "max_metadata_per_metric" => self.max_metadata_per_metric = field.signed()?,
            "max_global_metadata_per_user" => self.max_global_metadata_per_user = field.signed()?,
            "max_global_metadata_per_metric" => {
                self.max_global_metadata_per_metric = field.signed()?;
            }
            "out_of_order_time_window" => self.out_of_order_time_window = field.span()?,
            "max_exemplars" => self.max_exemplars = field.signed()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn is_read_past(name: &str) -> bool {
        known_names().any(|known| known == name)
    }
}

/// The defaults, as our own configuration gives them: there an unknown name is an error.
impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut names = Names::default();
        let layer = Layer { place: "", base: &Self::default(), names: &mut names };
        let limits = layer.deserialize(deserializer)?;
        match names.strange.first() {
            None => Ok(limits),
            Some(name) => Err(de::Error::custom(unknown_name(name, known_names()))),
        }
    }
}

/// All names that a block of limits may hold: Cortex's, and ours.
pub fn known_names() -> impl Iterator<Item = &'static str> {
    cortex_names().chain(OWN_NAMES)
}

fn cortex_names() -> impl Iterator<Item = &'static str> {
    CORTEX_NAMES.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// The known name that somebody who wrote `name` may have meant.
fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // Half of the name wrong is another name.
    let closest = known.map(|known| (strsim::damerau_levenshtein(name, known), known)).min()?;
    (closest.0 * 2 <= name.len()).then_some(closest.1)
}

fn unknown_name<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    match nearest(name, known) {
        Some(nearest) => format!("unknown limit {name}, did you mean {nearest}?"),
        None => format!("unknown limit {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<Limits, String> {
        serde_saphyr::from_str(yaml).map_err(|e| e.to_string())
    }

    #[test]
    fn the_names_are_those_of_the_vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/cortex_limit_names.txt");
        let vectors = std::fs::read_to_string(path).expect("vectors");
        let expect: Vec<&str> = vectors.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(cortex_names().collect::<Vec<_>>(), expect);
        assert!(OWN_NAMES.iter().all(|own| !expect.contains(own)));
    }

    #[test]
    fn every_field_has_a_known_name_and_can_be_read() {
        let shown = serde_json::to_value(Limits::default()).expect("serializes");
        let fields = shown.as_object().expect("fields by name");
        assert!(fields.len() > 30);
        for (name, value) in fields {
            assert!(known_names().any(|known| known == name), "{name}");
            let alone = serde_json::json!({ name: value });
            let read: Limits = serde_json::from_value(alone).expect(name);
            assert_eq!(read, Limits::default(), "{name}");
            let wrong = serde_json::json!({ name: [["wrong"]] });
            assert!(serde_json::from_value::<Limits>(wrong).is_err(), "{name} is not read");
        }
    }

    #[test]
    fn names_that_cortex_alone_uses_are_accepted() {
        let all: String = known_names()
            .filter(|name| !is_field(name))
            .map(|name| format!("{name}: {{anything: [1]}}\n"))
            .collect();
        assert_eq!(read(&all), Ok(Limits::default()));
    }

    fn is_field(name: &str) -> bool {
        serde_json::to_value(Limits::default()).expect("serializes").get(name).is_some()
    }

    #[test]
    fn an_unknown_name_in_our_configuration_is_an_error_with_the_nearest_one() {
        let error = read("max_serie_per_user: 5").expect_err("unknown");
        assert!(error.contains("did you mean max_series_per_user?"), "{error}");
        let error = serde_saphyr::from_str::<InstanceLimits>("max_tenant: 5").expect_err("unknown");
        assert!(error.to_string().contains("did you mean max_tenants?"), "{error}");
    }

    #[test]
    fn limits_that_lean_on_other_settings_are_checked() {
        let all = Support { shard_by_all_labels: true, active_series_metrics_enabled: true };
        let check = |limits: Limits, support: Support, error| {
            assert_eq!(limits.validate(all), Ok(()));
            assert_eq!(limits.validate(support), Err(error));
        };
        let by_metric = Support { shard_by_all_labels: false, ..all };
        let uncounted = Support { active_series_metrics_enabled: false, ..all };
        let limits = Limits { max_global_series_per_user: 1, ..Limits::default() };
        check(limits, by_metric, LimitsError::GlobalSeries);
        let limits = Limits { max_native_histogram_series_per_user: 1, ..Limits::default() };
        check(limits, uncounted, LimitsError::LocalNativeHistogramSeries);
        let limits = Limits { max_global_native_histogram_series_per_user: 1, ..Limits::default() };
        check(limits.clone(), uncounted, LimitsError::GlobalNativeHistogramSeries);
        check(limits, by_metric, LimitsError::GlobalNativeHistogramSeries);
    }

    #[test]
    fn the_defaults_are_not_warned_about() {
        assert_eq!(Limits::default().warnings("limits"), []);
    }

    #[test]
    fn clients_have_a_budget_where_there_is_a_rate() {
        let budget = |yaml: &str| read(yaml).expect("good").client_budget();
        let rate = "client_identity_ingestion_rate_limit";
        let set = format!("{rate}: 2.5\nclient_identity_ingestion_burst_size: 7\n");
        let expect =
            ClientBudget { rate: 2.5, burst: 7, tracked_clients_max: 1000, is_shadow: false };
        assert_eq!(budget(&set), Some(expect));
        let more = "client_identity_ingestion_tracked_clients_limit: 3\n\
                    client_identity_ingestion_shadow: true\n";
        let expect = ClientBudget { tracked_clients_max: 3, is_shadow: true, ..expect };
        assert_eq!(budget(&format!("{set}{more}")), Some(expect));
        for none in ["0", "1.7976931348623157e+308"] {
            assert_eq!(budget(&format!("{rate}: {none}")), None, "{none}");
        }
        assert_eq!(budget("client_identity_ingestion_burst_size: 7"), None);
        for wrong in ["-1", ".inf", ".nan", "many"] {
            let error = read(&format!("{rate}: {wrong}")).expect_err(wrong);
            assert!(error.contains("client_identity_ingestion_rate_limit"), "{error}");
        }
    }

    #[test]
    fn case_r16_tracking_nobody_is_refused_and_never_means_unlimited() {
        let error = read("client_identity_ingestion_tracked_clients_limit: 0").expect_err("0");
        let text = "client_identity_ingestion_tracked_clients_limit: 0 is not a whole number of 1 \
                    or more, since clients that are not tracked would not be limited";
        assert!(error.contains(text), "{error}");
        for wrong in ["-1", "1.5", "all"] {
            let yaml = format!("client_identity_ingestion_tracked_clients_limit: {wrong}");
            read(&yaml).expect_err(wrong);
        }
    }

    #[test]
    fn clients_may_ask_so_many_queries_or_a_share_of_all() {
        let read = |yaml: &str| read(yaml).expect("good");
        let share = "client_identity_query_rate_limit: 5%\nclient_identity_query_burst_size: 7\n";
        let limits = read(&format!("{share}query_capacity_per_second: 50"));
        let expect =
            ClientBudget { rate: 2.5, burst: 7, tracked_clients_max: 1000, is_shadow: false };
        assert_eq!(limits.query_client_budget(), Some(expect));
        assert_eq!(limits.client_budget(), None, "writes are another matter");
        let more = "client_identity_query_rate_limit: 2.5\nclient_identity_query_burst_size: 7\n\
                    client_identity_query_tracked_clients_limit: 3\n\
                    client_identity_query_shadow: true\n";
        let expect = ClientBudget { tracked_clients_max: 3, is_shadow: true, ..expect };
        assert_eq!(read(more).query_client_budget(), Some(expect));
        for none in ["0", "1.7976931348623157e+308"] {
            let limits = read(&format!("client_identity_query_rate_limit: {none}"));
            assert_eq!(limits.query_client_budget(), None, "{none}");
        }
        let support = Support { shard_by_all_labels: true, active_series_metrics_enabled: true };
        let limits = read(share);
        assert_eq!(limits.validate(support), Err(LimitsError::ShareOfNothing));
        assert_eq!(limits.query_client_budget(), None);
    }

    #[test]
    fn a_rate_of_queries_that_is_neither_number_nor_share_is_refused() {
        read("client_identity_query_rate_limit: .inf").expect_err("no number of YAML's");
        for wrong in ["-1", "many", "0%", "101%", "'5'", "true"] {
            let error =
                read(&format!("client_identity_query_rate_limit: {wrong}")).expect_err(wrong);
            let text = "is not a finite number of 0 or more, nor a share of more than 0% and at \
                        most 100%";
            assert!(error.contains("client_identity_query_rate_limit: "), "{error}");
            assert!(error.contains(text), "{error}");
        }
        read("client_identity_query_tracked_clients_limit: 0").expect_err("tracks nobody");
        read("query_capacity_per_second: 5%").expect_err("no number");
    }

    #[test]
    fn a_burst_of_no_query_is_warned_about_for_numbers_and_shares() {
        let place = "limits".to_owned();
        for rate in ["2", "5%\nquery_capacity_per_second: 10"] {
            let yaml = format!("client_identity_query_rate_limit: {rate}");
            let warnings = read(&yaml).expect("good").warnings("limits");
            assert_eq!(warnings, [Warning::QueryBurstZero { place: place.clone() }], "{rate}");
            let yaml = format!("{yaml}\nclient_identity_query_burst_size: 1");
            assert_eq!(read(&yaml).expect("good").warnings("limits"), []);
        }
    }

    #[test]
    fn the_strategy_has_three_words() {
        for (word, expect) in [
            ("local", IngestionRateStrategy::Local),
            ("global", IngestionRateStrategy::Global),
            ("leased", IngestionRateStrategy::Leased),
        ] {
            let limits = read(&format!("ingestion_rate_strategy: {word}")).expect(word);
            assert_eq!(limits.ingestion_rate_strategy, expect);
        }
        read("ingestion_rate_strategy: shared").expect_err("no such strategy");
    }
}
