//! `freehold plan`: what a change of the number of ingesters would do to tenants' limits.
//!
//! Members are simulated in a copy of the ring; who holds what of it, before and after, is
//! answered by the very code that decides in a running ingester: walk, ownership, shuffle
//! sharding, local limits, the head's rule. Counts are expectations: a tenant's distinct series
//! times an instance's exact share of the tenant's key space.
//!
//! ```text
//! ring, counts (files or a running instance) ─► input
//! the ring with its new members              ─► growth ─► holding: shares, replica sets
//! each tenant under four rules               ─► outlook
//! table or JSON                              ─► report
//! ```
//!
//! Three moments are looked at: before; at the join, when the limits have fallen and the heads
//! still hold what has moved away; and after the heads have dropped it.

mod growth;
mod holding;
mod input;
mod outlook;
mod report;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::clock::Clock;
use crate::config::{Config, Output, PlanArgs};
use crate::distributor::ShardingStrategy;
use crate::ingester::config::SeriesLimitMode;
use crate::limits::{Limits, Overrides, Snapshot};
use crate::output::{Screen, Told};
use crate::query::{InstanceError, read_bearer};
use crate::ring::RingSettings;
use crate::tenant::TenantId;
use crate::wire::timestamp;

use growth::Growth;
pub use growth::GrowthArgs;
use input::TenantCount;
use outlook::{Before, Counted, Divided, Outlook, Rules};

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Bearer(#[from] InstanceError),
    #[error(transparent)]
    Input(#[from] input::InputError),
    #[error(transparent)]
    Growth(#[from] growth::GrowthError),
    #[error("--at {text:?} is no time; write RFC 3339 or Unix seconds")]
    Time { text: String },
    #[error("--tenant {tenant}: the counts name no such tenant")]
    NoTenant { tenant: String },
    #[error("cannot read the runtime file {path}")]
    ReadRuntimeFile { path: String, source: std::io::Error },
    #[error("cannot use the runtime file {path}")]
    RuntimeFile { path: String, source: Box<crate::limits::ParseError> },
    #[error("cannot write the plan as JSON")]
    Json(#[source] serde_json::Error),
}

/// Works the plan out and returns what to print. It is a finding when a tenant would be refused
/// new series by the rule that the configuration puts in force.
pub async fn run(args: &PlanArgs, screen: &Screen) -> Result<Told, PlanError> {
    let at_ms = match &args.at {
        Some(text) => {
            timestamp::parse_ms(text).ok_or_else(|| PlanError::Time { text: text.clone() })?
        }
        None => Clock::start().now().unix_ms,
    };
    let ring = input::read_ring(&args.ring, &args.tls_ca, at_ms).await?;
    let replicas = args.config.ingester.lifecycler.ring.replication_factor;
    // Only for the counts: the ring may be a stranger's page.
    let bearer = args.bearer_token_file.as_ref().map(read_bearer).transpose()?;
    let mut counts = input::read_counts(&args.counts, &args.tls_ca, bearer, replicas).await?;
    if let Some(tenant) = &args.tenant {
        counts.retain(|count| count.tenant.as_str() == tenant);
        if counts.is_empty() {
            return Err(PlanError::NoTenant { tenant: tenant.clone() });
        }
    }
    let overrides = read_overrides(&args.config)?;
    let growth = Growth::new(ring, &ring_settings(&args.config), &args.growth)?;
    let outlooks = outlooks(&growth, &counts, &overrides, args, at_ms);
    let text = match args.output {
        Output::Table => report::text(&growth, &outlooks, args.instances, screen),
        Output::Json => report::json(&growth, &outlooks).map_err(PlanError::Json)?,
    };
    let (counted, divided) = rule_in_force(&args.config);
    let is_refused = |outlook: &Outlook| outlook.refused_part(counted, divided) > 0.0;
    Ok(Told { text, is_finding: outlooks.iter().any(is_refused) })
}

/// What limits act on, and how they are divided.
fn rule_in_force(config: &Config) -> (Counted, Divided) {
    let ingester = &config.ingester;
    let counted = match ingester.owned_series_limit_enforcement_enabled {
        true => Counted::Owned,
        false => Counted::InMemory,
    };
    let divided = match ingester.series_limit_mode {
        SeriesLimitMode::Flat => Divided::Flat,
        SeriesLimitMode::Share => Divided::Share,
    };
    (counted, divided)
}

fn outlooks(
    growth: &Growth,
    counts: &[TenantCount],
    overrides: &Snapshot,
    args: &PlanArgs,
    at_ms: i64,
) -> Vec<Outlook> {
    let config = &args.config;
    let rules = Rules {
        shard_by_all_labels: config.distributor.shard_by_all_labels,
        shuffle_sharding: config.distributor.sharding_strategy == ShardingStrategy::ShuffleSharding,
        new_series: args.new_series,
        at_ms,
    };
    let mut before = Before::new(growth);
    let mut outlooks: Vec<_> = counts
        .iter()
        .map(|count| {
            let limits = limits_of(overrides, &count.tenant, count);
            Outlook::new(&mut before, count, &limits, &rules)
        })
        .collect();
    // Whoever is refused most comes first; equals by name.
    outlooks.sort_by(|a, b| {
        b.refused_most().total_cmp(&a.refused_most()).then_with(|| a.tenant.cmp(&b.tenant))
    });
    outlooks
}

/// The configuration's limits; what a running instance says is in force goes before them.
fn limits_of(overrides: &Snapshot, tenant: &TenantId, count: &TenantCount) -> Limits {
    let mut limits = Limits::clone(overrides.limits(tenant));
    if let Some(global) = count.global_limit {
        limits.max_global_series_per_user = global;
    }
    if let Some(local) = count.local_limit {
        limits.max_series_per_user = local;
    }
    limits
}

fn read_overrides(config: &Config) -> Result<Arc<Snapshot>, PlanError> {
    let overrides = Overrides::new(config.limits.clone(), config.ingester.instance_limits.clone());
    let path = &config.runtime_config.file;
    if !path.is_empty() {
        let read = std::fs::read_to_string(path);
        let text =
            read.map_err(|source| PlanError::ReadRuntimeFile { path: path.clone(), source })?;
        let file = overrides.parse(&text).map_err(|source| PlanError::RuntimeFile {
            path: path.clone(),
            source: Box::new(source),
        })?;
        overrides.publish(file);
    }
    Ok(overrides.snapshot())
}

fn ring_settings(config: &Config) -> RingSettings {
    let ring = &config.ingester.lifecycler.ring;
    RingSettings {
        replication_factor: ring.replication_factor,
        zone_awareness_enabled: ring.zone_awareness_enabled,
        heartbeat_timeout_ms: ring.heartbeat_timeout.0,
        extend_writes: config.distributor.extend_writes,
        own_id: None,
    }
}
