//! The owner of a budget stands still for a while, and then goes on as if nothing had been.

use super::lab::{decisions, last_at, slowest, with};
use super::*;

/// Of `-client-identity.owner-timeout`.
const OWNER_TIMEOUT: Duration = Duration::from_millis(250);

fn signal(gate: &crate::process::Freehold, name: &str) {
    let id = gate.process.id().to_string();
    let sent = std::process::Command::new("kill").args([name, &id]).status();
    assert!(sent.expect("kill").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_stands_still_is_waited_for_by_nobody_and_comes_back_as_one_of_them() {
    const RATE: u64 = 2000;
    const BURST: u64 = 4000;
    const SAMPLES: u64 = 100;
    // The one that stands still, and its heir.
    const OWNERS: u64 = 2;
    let _alone = ALONE.lock().await;
    // Long enough that another takes its place, which then has to give it back.
    let (overdue, still) = (seconds(3, 6), seconds(6, 10));
    let overdue_flag = format!("-client-identity.owner-overdue={}s", overdue.as_secs());
    let flags = ["-client-identity.enabled", &overdue_flag];
    let lab = Lab::start(3, &limits_of_clients(RATE, BURST, 1000), &flags).await;
    let mut loads = Vec::new();
    for (owner, times) in [(0, 2.0), (1, 0.5), (2, 0.5), (0, 0.5)] {
        loads.push(Load {
            client: Some(lab.client_of(owner, &format!("of-{owner}-{times}")).await),
            // Nobody waits for the one that stands still but those who ask it.
            gates: vec![1, 2],
            requests_per_s: times * RATE as f64 / SAMPLES as f64,
            samples: SAMPLES,
        });
    }
    let stopped_after = seconds(3, 5);
    let span = stopped_after + still + seconds(3, 6);
    let driver = lab.driver();
    let stopping = async {
        tokio::time::sleep(stopped_after).await;
        signal(&lab.gates[0], "-STOP");
        tokio::time::sleep(still).await;
        signal(&lab.gates[0], "-CONT");
    };
    let (told, ()) = tokio::join!(driver.run(&loads, span), stopping);
    for (load, told) in loads.iter().zip(&told) {
        let took = slowest(told);
        println!("{:?}: slowest {took:?}, {} of {}", load.client, with(200, told), told.len());
        assert!(took < OWNER_TIMEOUT + SLACK, "a request hung for {took:?}");
        assert!(told.iter().all(|told| [200, 429, 503].contains(&told.status)), "{told:?}");
    }
    let admitted = with(200, &told[0]) as u64 * SAMPLES;
    let may = BURST as f64 + RATE as f64 * last_at(&told[0]).as_secs_f64();
    println!("its client: {admitted} of {may:.0} for each of {OWNERS} owners");
    assert!(admitted as f64 <= OWNERS as f64 * may, "{admitted} of {may}");
    assert!(admitted as f64 >= 0.5 * may, "{admitted} of {may}");
    for (owner, told) in told.iter().enumerate().skip(1).take(2) {
        assert_eq!(with(200, told), told.len(), "gate {owner} has stood by: {told:?}");
    }
    let mut lost = 0.0;
    for gate in &lab.gates[1..] {
        lost += decisions(gate, "lost").await;
    }
    assert!(lost > 0.0, "decisions without the owner are counted");

    // All is as before.
    settled(&lab.gates).await;
    let mut before = Vec::new();
    for gate in &lab.gates {
        before.push(decisions(gate, "lost").await);
    }
    let calm: Vec<_> = loads
        .iter()
        .map(|load| Load { gates: vec![0, 1, 2], requests_per_s: 5.0, ..load.clone() })
        .collect();
    for told in driver.run(&calm, Duration::from_secs(2)).await {
        assert_eq!(with(200, &told), told.len(), "{told:?}");
    }
    for (gate, before) in lab.gates.iter().zip(before) {
        assert_eq!(decisions(gate, "lost").await, before, "the ring has healed");
    }
}
