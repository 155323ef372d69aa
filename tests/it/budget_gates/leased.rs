//! A tenant whose writes do not come evenly to all gates.

use super::lab::{Told, with};
use super::*;

const RATE: u64 = 5000;
const SAMPLES: u64 = 100;

/// 95 % of the limit, nine tenths of it to one gate.
async fn run(strategy: &str, span: Duration) -> Vec<Vec<Told>> {
    let limits = format!("ingestion_rate: {RATE}, ingestion_burst_size: {RATE}");
    let strategy = format!("-distributor.ingestion-rate-limit-strategy={strategy}");
    let flags =
        [strategy.as_str(), "-client-identity.enabled", "-client-identity.owner-timeout=2s"];
    let lab = Lab::start(3, &limits, &flags).await;
    let load = |(gate, part): (usize, f64)| Load {
        client: None,
        gates: vec![gate],
        requests_per_s: 0.95 * part * RATE as f64 / SAMPLES as f64,
        samples: SAMPLES,
    };
    let loads: Vec<_> = [(0, 0.9), (1, 0.05), (2, 0.05)].map(load).into();
    lab.driver().run(&loads, span).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_c1_r49_an_uneven_tenant_within_its_limit_is_refused_nothing() {
    let _alone = ALONE.lock().await;
    let told = run("leased", seconds(6, 20)).await;
    for (gate, told) in told.iter().enumerate() {
        let refused = told.len() - with(200, told);
        println!("leased: gate {gate}: {refused} of {} refused", told.len());
        assert_eq!(refused, 0, "gate {gate}: {told:?}");
    }
    // Its share of the rate is a third, and the burst is over after two seconds.
    let told = run("global", Duration::from_secs(6)).await;
    let refused = with(429, &told[0]);
    println!("global: {refused} of {} refused at the busy gate", told[0].len());
    assert!(refused > told[0].len() / 4, "{refused} of {}", told[0].len());
    assert_eq!(with(429, &told[1]) + with(429, &told[2]), 0);
}
