//! The one table of flags: Cortex's name, the key it sets, and what it does.
//!
//! A row gives no type and no default: both are read from the default `Config` at the row's
//! path. Names are without dashes; one dash or two are accepted.

mod admin;
mod client_identity;
mod distributor;
mod distributor_ring;
mod distributor_upstream;
mod front_door;
mod frontend;
mod frontend_downstream;
mod frontend_ring;
mod general;
mod ha_tracker;
mod ingester;
mod ingester_client;
mod limits;
mod memberlist;
mod otlp;
mod owned_series;
mod ring;
mod ring_stores;
mod server;
mod store;
mod tracing;
mod upstream;

use super::flags::{Flag, Group};

/// Every flag, in the order in which `--help` shows them.
pub const FLAGS: &[Group] = &[
    general::FLAGS,
    server::FLAGS,
    admin::FLAGS,
    distributor::FLAGS,
    distributor_upstream::FLAGS,
    distributor_ring::FLAGS,
    frontend::FLAGS,
    frontend_downstream::FLAGS,
    frontend_ring::FLAGS,
    ha_tracker::FLAGS,
    otlp::FLAGS,
    owned_series::FLAGS,
    ingester::FLAGS,
    ingester_client::FLAGS,
    upstream::FLAGS,
    limits::FLAGS,
    client_identity::FLAGS,
    front_door::FLAGS,
    ring::FLAGS,
    ring_stores::FLAGS,
    memberlist::FLAGS,
    store::FLAGS,
    tracing::FLAGS,
];

/// Keys that other systems write differently: (their path, ours). They are refused with ours.
pub(super) const RENAMED_KEYS: &[(&str, &str)] = &[
    ("ingester.track_ingester_owned_series", "ingester.owned_series_metrics_enabled"),
    (
        "ingester.use_ingester_owned_series_for_limits",
        "ingester.owned_series_limit_enforcement_enabled",
    ),
    ("distributor.otlp.enable_type_and_unit_labels", "limits.enable_type_and_unit_labels"),
    ("ingester.owned_series_update_interval", "ingester.active_series_metrics_update_period"),
];

/// Keys that may stand in the block of the service that they are about, too: (their path there,
/// ours). A file that has both has to mean the same by them.
pub(super) const SECOND_PLACES: &[(&str, &str)] = &[
    (
        "distributor.client_identity_ingestion_rate_limit",
        "limits.client_identity_ingestion_rate_limit",
    ),
    (
        "distributor.client_identity_ingestion_burst_size",
        "limits.client_identity_ingestion_burst_size",
    ),
    (
        "distributor.client_identity_ingestion_tracked_clients_limit",
        "limits.client_identity_ingestion_tracked_clients_limit",
    ),
    ("distributor.client_identity_ingestion_shadow", "limits.client_identity_ingestion_shadow"),
    ("frontend.client_identity_query_rate_limit", "limits.client_identity_query_rate_limit"),
    ("frontend.client_identity_query_burst_size", "limits.client_identity_query_burst_size"),
    (
        "frontend.client_identity_query_tracked_clients_limit",
        "limits.client_identity_query_tracked_clients_limit",
    ),
    ("frontend.client_identity_query_shadow", "limits.client_identity_query_shadow"),
    ("frontend.query_capacity_per_second", "limits.query_capacity_per_second"),
];

/// Keys that no flag can set: lists of maps, which a command line cannot hold.
#[cfg(test)]
pub(super) const FILE_ONLY: &[&str] = &["limits.limits_per_label_set"];

const fn flag(name: &'static str, path: &'static str, help: &'static str) -> Flag {
    Flag { name, path, aliases: &[], help }
}
