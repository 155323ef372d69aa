//! Gates as processes that share budgets: started, joined and killed as people do it.
//!
//! Before each gate stand senders over HTTP, behind all one upstream that takes everything; what
//! counts is what senders are told. `FREEHOLD_LONG_TESTS=1` gives the runs the lengths that the
//! bounds are stated for.

mod crowds;
mod frozen;
mod hammer;
pub mod lab;
mod leased;
mod loss;
mod shadow;
mod tls;

use std::time::{Duration, Instant};

use lab::{Driver, Lab, Load, settled};

use super::process::is_long;

/// One run at a time: these tests measure rates, and others of them would take the cores.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// What a request may take beyond the time that it waits, on a machine that does much else.
const SLACK: Duration = Duration::from_secs(2);

fn seconds(short: u64, long: u64) -> Duration {
    Duration::from_secs(if is_long() { long } else { short })
}

/// Limits that leave all to the budgets of clients.
fn limits_of_clients(rate: u64, burst: u64, tracked: u64) -> String {
    format!(
        "ingestion_rate: 1e9, ingestion_burst_size: 1000000000, \
         client_identity_ingestion_rate_limit: {rate}, \
         client_identity_ingestion_burst_size: {burst}, \
         client_identity_ingestion_tracked_clients_limit: {tracked}"
    )
}
