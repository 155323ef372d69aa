//! What a run is told: one field per room, filled from defaults, a YAML file and flags.
//!
//! Each room owns the type of its field; here they are only put together. Precedence is flag,
//! then file, then default. Types and defaults come from `Config::default()` alone, names of
//! flags from the table in `flags.rs` alone, and the reference in `docs/configuration.md` is
//! generated from both, so that none of the three can contradict another.
//!
//! Invariant: whatever key or flag is not known, or does not fit, ends the start with its name
//! and the nearest right one. Nothing is silently without effect.

mod command;
mod document;
mod flags;
mod load;
mod table;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::admin::config::{AdminConfig, AdminConfigError};
use crate::clients::config::{ClientIdentityConfig, ClientIdentityConfigError};
use crate::distributor::{DistributorConfig, DistributorConfigError};
use crate::front_door::config::{FrontDoorConfig, FrontDoorConfigError};
use crate::frontend::config::{FrontendConfig, FrontendConfigError};
use crate::gossip::config::{MemberlistConfig, MemberlistConfigError};
use crate::ingester::config::{IngesterConfig, IngesterConfigError};
use crate::labels::NameScheme;
use crate::limits::reload;
use crate::limits::{Limits, LimitsError, Support};
use crate::ring;
use crate::ring::config::KvStoreKind;
use crate::server::config::{ServerConfig, ServerConfigError};
use crate::store;
use crate::tenant::{TenantId, TenantIdError};
use crate::trail::config::{TracingConfig, TracingConfigError};
use crate::units::Millis;
use crate::upstream::ingesters::config::{IngesterClientConfig, IngesterClientConfigError};

pub use command::{
    AskedArgs, ClientsArgs, ClientsAsk, Command, ExplainArgs, LoadArgs, LoadTo, Output, PlanArgs,
    QueryArgs, RingArgs, RingAsk, TenantsArgs, write_manual,
};
pub(crate) use document::differing;
pub use document::{diff_yaml, effective_json, effective_yaml, reference_markdown};
pub use flags::{Flag, Group};
pub use table::FLAGS;

/// Everything a run is told. The field names are the YAML file's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub target: Target,
    /// Tenants come from `X-Scope-OrgID`; off, every request belongs to `no_auth_tenant`.
    pub auth_enabled: bool,
    pub no_auth_tenant: String,
    /// What names of metrics and labels may be made of.
    pub name_validation_scheme: NameScheme,
    pub server: ServerConfig,
    /// Where the pages for operators are, and who may see them.
    pub admin: AdminConfig,
    pub distributor: DistributorConfig,
    pub frontend: FrontendConfig,
    pub ingester_client: IngesterClientConfig,
    pub ingester: IngesterConfig,
    /// How the clients of tenants are named, and who keeps their budgets.
    pub client_identity: ClientIdentityConfig,
    /// Limits by address and credential, ahead of everything on HTTP.
    pub front_door: FrontDoorConfig,
    /// What every tenant may, unless the runtime file says otherwise.
    pub limits: Limits,
    pub runtime_config: reload::Config,
    /// How this process is a member of a gossip, where a ring is kept by one.
    pub memberlist: MemberlistConfig,
    pub store: store::Config,
    /// Where spans of requests go.
    pub tracing: TracingConfig,
}

/// Which services run in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// Every service, one process.
    All,
    /// Pushes over gRPC only, no remote write.
    Ingester,
    /// Remote write only, nothing stored: the write gate.
    Distributor,
    /// The query API only, in front of those who answer: the query gate.
    QueryFrontend,
}

/// Why a text names no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no target {name:?}; there are all, ingester, distributor and query-frontend")]
pub struct TargetError {
    name: String,
}

/// Why a run does not start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("unknown flag -{flag}; the nearest known flag is -{nearest}")]
    UnknownFlag { flag: String, nearest: &'static str },
    #[error("flag -{flag} needs a value")]
    MissingValue { flag: &'static str },
    #[error("an argument is not UTF-8: {argument:?}")]
    NotUtf8 { argument: std::ffi::OsString },
    /// What clap found wrong; it names the argument and shows the usage itself.
    #[error("{text}")]
    Usage { text: String },

    #[error("cannot read the configuration file {}", path.display())]
    ReadFile { path: PathBuf, source: std::io::Error },
    #[error("the configuration file {} is longer than {bytes_max} bytes", path.display())]
    FileTooLong { path: PathBuf, bytes_max: u64 },
    #[error("the configuration file {} is no YAML", path.display())]
    Yaml { path: PathBuf, source: Box<serde_saphyr::Error> },
    #[error("the configuration file {} must be a map of keys at its top", path.display())]
    NoMap { path: PathBuf },
    #[error("unknown key {key} in {}; the nearest known key is {nearest}", path.display())]
    UnknownKey { path: PathBuf, key: String, nearest: String },
    #[error("key {key} in {} is called {now} here", path.display())]
    RenamedKey { path: PathBuf, key: String, now: &'static str },
    #[error(
        "keys {} and {} in {} set one thing, to {} and {}; give one of them",
        keys[0], keys[1], path.display(), values[0], values[1]
    )]
    TwoPlaces { path: PathBuf, keys: [String; 2], values: [String; 2] },
    #[error("key {key} in {} must be a map of keys", path.display())]
    NoBlock { path: PathBuf, key: String },

    #[error("{place} cannot be {value}")]
    Value { place: String, value: String, source: serde_json::Error },
    #[error("{place} cannot be {value}: it takes {expected}")]
    Kind { place: String, value: String, expected: &'static str },

    #[error("-auth.no-auth-tenant is no tenant id")]
    NoAuthTenant { source: TenantIdError },
    #[error(transparent)]
    Server(#[from] ServerConfigError),
    #[error(transparent)]
    Admin(#[from] AdminConfigError),
    #[error(transparent)]
    Distributor(#[from] DistributorConfigError),
    #[error(
        "-target=distributor has nobody to send to: set -distributor.upstream-url, or -ring.store \
         to etcd, consul, memberlist, file or http, where the ingesters' ring is"
    )]
    NoWayOn,
    #[error("-distributor.upstream-url is for -target=distributor; this target stores by itself")]
    UpstreamUnused,
    #[error(transparent)]
    Frontend(#[from] FrontendConfigError),
    #[error("the query gates' ring (-frontend.ring.*) cannot be used")]
    FrontendRing(#[source] ring::service_ring::ServiceRingError),
    #[error("-target=query-frontend has nobody who answers queries: set -frontend.downstream-url")]
    NobodyAnswers,
    #[error(transparent)]
    IngesterClient(#[from] IngesterClientConfigError),
    #[error(transparent)]
    Ingester(#[from] IngesterConfigError),
    #[error(transparent)]
    Lifecycler(#[from] ring::config::ConfigError),
    #[error(transparent)]
    ClientIdentity(#[from] ClientIdentityConfigError),
    #[error(transparent)]
    FrontDoor(#[from] FrontDoorConfigError),
    #[error(transparent)]
    Limits(#[from] LimitsError),
    #[error(transparent)]
    RuntimeConfig(#[from] reload::ConfigError),
    #[error(transparent)]
    Memberlist(#[from] MemberlistConfigError),
    #[error(transparent)]
    Store(#[from] store::ConfigError),
    #[error(transparent)]
    Tracing(#[from] TracingConfigError),
}

impl ConfigError {
    /// Whether the command line cannot be read, whatever it may want.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::UnknownFlag { .. }
                | Self::MissingValue { .. }
                | Self::NotUtf8 { .. }
                | Self::Usage { .. }
        )
    }
}

impl Config {
    /// The defaults of a target.
    ///
    /// Everything in one process is a cluster of one: each series is there once, nothing has to
    /// be waited for, and nobody scrapes what has left. Else they are Cortex's.
    pub fn for_target(target: Target) -> Self {
        let mut config = Self { target, ..Self::default() };
        if target != Target::All {
            config.ingester.lifecycler = ring::config::LifecyclerConfig::default();
        }
        config
    }
}

impl Default for Config {
    fn default() -> Self {
        let mut ingester = IngesterConfig::default();
        ingester.lifecycler.ring.replication_factor = 1;
        ingester.lifecycler.min_ready_duration = Millis(0);
        ingester.lifecycler.final_sleep = Millis(0);
        Self {
            target: Target::All,
            auth_enabled: true,
            // Cortex's fixed name for "everybody"; its data are found again under it.
            no_auth_tenant: "fake".into(),
            name_validation_scheme: NameScheme::Legacy,
            server: ServerConfig::default(),
            admin: AdminConfig::default(),
            distributor: DistributorConfig::default(),
            frontend: FrontendConfig::default(),
            ingester_client: IngesterClientConfig::default(),
            ingester,
            client_identity: ClientIdentityConfig::default(),
            front_door: FrontDoorConfig::default(),
            limits: Limits::default(),
            runtime_config: reload::Config::default(),
            memberlist: MemberlistConfig::default(),
            store: store::Config::default(),
            tracing: TracingConfig::default(),
        }
    }
}

impl Config {
    /// Relations between fields that no single type can hold.
    pub fn validate(&self) -> Result<(), ConfigError> {
        TenantId::parse(&self.no_auth_tenant)
            .map_err(|source| ConfigError::NoAuthTenant { source })?;
        self.server.validate()?;
        self.admin.validate()?;
        self.distributor.validate(self.limits.ha_tracker_failover_timeout)?;
        self.frontend.validate()?;
        self.frontend.ring.validate().map_err(ConfigError::FrontendRing)?;
        if self.target == Target::QueryFrontend && !self.frontend.downstream.is_set() {
            return Err(ConfigError::NobodyAnswers);
        }
        self.ingester_client.validate()?;
        let is_gate = self.target == Target::Distributor;
        if !is_gate && self.distributor.upstream.is_set() {
            return Err(ConfigError::UpstreamUnused);
        }
        let store = self.ingester.lifecycler.ring.kvstore.store;
        if is_gate && !self.distributor.upstream.is_set() && store == KvStoreKind::InMemory {
            return Err(ConfigError::NoWayOn);
        }
        self.ingester.validate()?;
        self.ingester.lifecycler.validate()?;
        self.client_identity.validate()?;
        self.front_door.validate()?;
        self.limits.validate(Support {
            shard_by_all_labels: self.distributor.shard_by_all_labels,
            // Counting is always on here; Cortex can turn it off.
            active_series_metrics_enabled: true,
        })?;
        self.runtime_config.validate()?;
        self.memberlist.validate()?;
        self.store.validate()?;
        self.tracing.validate()?;
        Ok(())
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        match name.as_str() {
            "all" => Ok(Self::All),
            "ingester" => Ok(Self::Ingester),
            "distributor" => Ok(Self::Distributor),
            "query-frontend" => Ok(Self::QueryFrontend),
            _ => Err(TargetError { name }),
        }
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        match target {
            Target::All => "all".into(),
            Target::Ingester => "ingester".into(),
            Target::Distributor => "distributor".into(),
            Target::QueryFrontend => "query-frontend".into(),
        }
    }
}

#[cfg(test)]
mod tests;
