//! One client that sends far more than it may, and quiet ones next to a noisy one.

use super::lab::{last_at, with};
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hammers_three_gates_gets_its_budget_exactly() {
    const RATE: u64 = 5000;
    const BURST: u64 = 5000;
    const SAMPLES: u64 = 100;
    let _alone = ALONE.lock().await;
    let flags = ["-client-identity.enabled", "-client-identity.owner-timeout=2s"];
    let lab = Lab::start(3, &limits_of_clients(RATE, BURST, 1000), &flags).await;
    let load = Load {
        client: Some("w".to_owned()),
        gates: vec![0, 1, 2],
        requests_per_s: 4.0 * RATE as f64 / SAMPLES as f64,
        samples: SAMPLES,
    };
    let told = lab.driver().run(&[load], seconds(4, 20)).await.remove(0);
    let admitted = with(200, &told) as u64 * SAMPLES;
    assert_eq!(with(200, &told) + with(429, &told), told.len(), "the owner is there");
    let earned = BURST as f64 + RATE as f64 * last_at(&told).as_secs_f64();
    let part = admitted as f64 / earned;
    println!("{admitted} samples of {earned:.0}: {part:.4}, {} requests", told.len());
    assert!(admitted as f64 <= earned, "{admitted} of {earned}");
    let least = if is_long() { 0.99 } else { 0.95 };
    assert!(part >= least, "{admitted} of {earned}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_noisy_client_costs_its_quiet_neighbours_nothing() {
    const RATE: u64 = 1000;
    const SAMPLES: u64 = 100;
    let _alone = ALONE.lock().await;
    let flags = ["-client-identity.enabled", "-client-identity.owner-timeout=2s"];
    let mut lab = Lab::start(2, &limits_of_clients(RATE, 2 * RATE, 1000), &flags).await;
    let loads = |gates: &[usize]| {
        let load = |client: String, times: f64| Load {
            client: Some(client),
            gates: gates.to_vec(),
            requests_per_s: times * RATE as f64 / SAMPLES as f64,
            samples: SAMPLES,
        };
        let quiet = (0..9).map(|number| load(format!("quiet-{number}"), 0.5));
        [load("noisy".to_owned(), 20.0)].into_iter().chain(quiet).collect::<Vec<_>>()
    };
    let check = |told: &[Vec<lab::Told>], when: &str| {
        let noisy = with(200, &told[0]) as u64 * SAMPLES;
        let may = 2.0 * RATE as f64 + RATE as f64 * last_at(&told[0]).as_secs_f64();
        println!("{when}: the noisy one {noisy} of {may:.0}");
        // A budget may have two owners for a moment, while a gate joins.
        assert!(noisy as f64 <= 2.0 * may, "{when}: {noisy} of {may}");
        assert!(with(429, &told[0]) > told[0].len() / 2, "{when}: it is too much");
        for (number, quiet) in told[1..].iter().enumerate() {
            assert_eq!(with(200, quiet), quiet.len(), "{when}: quiet-{number}: {quiet:?}");
        }
    };
    let span = seconds(3, 10);
    let driver = lab.driver();
    check(&driver.run(&loads(&[0, 1]), span).await, "before");
    let during = loads(&[0, 1]);
    let (told, gate) = tokio::join!(driver.run(&during, 2 * span), lab.gate(2));
    check(&told, "while a gate joins");
    lab.gates.push(gate);
    settled(&lab.gates).await;
    check(&lab.driver().run(&loads(&[0, 1, 2]), span).await, "after");
}
