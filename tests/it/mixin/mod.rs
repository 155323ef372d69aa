//! The mixin: dashboards, alerts and recording rules, written from the tables here into
//! `docs/mixin`, and what proves them.
//!
//! The files are what people load; the tables are what is edited. `FREEHOLD_BLESS=1 cargo test
//! --test it mixin` writes the files.

mod alerts;
mod dashboards;
mod files;
mod healthy;
mod lab;
mod live;
mod rules;
mod soak;
mod yaml;

use std::path::Path;
use std::time::Duration;

use super::process::is_long;
use super::prometheus;
use super::ring_stores::etcd_server::Etcd;

/// Long: ten minutes of health, then three faults of four minutes and what follows each; 40 minutes
/// in all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_recorded_run_fires_its_alert_and_nothing_else() {
    if !is_long() {
        println!("skipped: long; FREEHOLD_LONG_TESTS=1 runs it");
        return;
    }
    if !prometheus::is_installed() {
        println!("skipped: no prometheus on PATH (apt-get install prometheus)");
        return;
    }
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let healthy = std::env::var("FREEHOLD_SOAK_MINUTES").ok();
    let healthy = healthy.map_or(10, |text| text.parse().expect("minutes before the first fault"));
    let plan = soak::Plan { healthy: minutes(healthy), fault: minutes(4), between: minutes(6) };
    let dir = tempfile::tempdir().expect("a directory");
    let program = Path::new(env!("CARGO_BIN_EXE_freehold"));
    let scrape = format!("{}s", soak::SCRAPE_S);
    let Some(mut etcd) = Etcd::start().await else { return };
    let store = lab::Store::etcd(&etcd);
    let mut lab = lab::Lab::start(dir.path(), program, &store, (&scrape, ""), vec![]).await;
    let record = soak::run(&mut lab, &mut etcd, plan, |step| println!("{step}")).await;
    let firings = soak::firings(&lab.prometheus, &alerts::all(), &record).await;
    println!("{:?}", lab.told);
    firings.iter().for_each(|firing| println!("{firing}"));
    let wrong = soak::wrong(&record, &firings);
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", lab.logs());
}
