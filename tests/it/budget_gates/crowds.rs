//! More names than an owner keeps budgets of.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;

use super::lab::{body, with};
use super::*;

const TRACKED: u64 = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_f16_one_shot_names_take_no_memory_and_forgive_no_debt() {
    // So little that no name is refilled while it has its account: a sweep would forget that one
    // then, and how many are evicted would hang on how fast they come. A hundred seconds for each,
    // in which all three thousand accounts are other names' at thirty a second already.
    const RATE: u64 = 1;
    const BURST: u64 = 10_000;
    let _alone = ALONE.lock().await;
    let names = if is_long() { 20_000 } else { 5000 };
    let flags = ["-client-identity.enabled", "-client-identity.owner-timeout=2s"];
    let lab = Lab::start(3, &limits_of_clients(RATE, BURST, TRACKED), &flags).await;
    let driver = lab.driver();
    let (large, small) = (body(1000), body(100));
    // All of its budget at once: a thousand seconds of debt.
    let mut taken = 0;
    for turn in 0..30 {
        taken += u64::from(driver.push(turn % 3, Some("debtor"), &large).await.status == 200);
    }
    assert!(taken * 1000 <= BURST + 30 * RATE && taken >= 6, "{taken}");

    let well = Load {
        client: Some("well-behaved".to_owned()),
        gates: vec![0, 1, 2],
        requests_per_s: 2.0,
        samples: 2,
    };
    let (flood, rest) = (names / 4, names - names / 4);
    let mut resident = Vec::new();
    for (round, names) in [flood, rest].into_iter().enumerate() {
        let running = AtomicU64::new(0);
        let flooding = async {
            let refused = push_once_each(&driver, round, names, &small).await;
            running.store(1, Ordering::Relaxed);
            refused
        };
        let behaving = async {
            let mut told = Vec::new();
            while running.load(Ordering::Relaxed) == 0 {
                let span = Duration::from_secs(1);
                told.extend(driver.run(std::slice::from_ref(&well), span).await.remove(0));
            }
            told
        };
        let (refused, told) = tokio::join!(flooding, behaving);
        assert_eq!(refused, 0, "a new name has its budget");
        assert_eq!(with(200, &told), told.len(), "{told:?}");
        resident.push(lab.gates.iter().map(|gate| gate.resources().rss_kib).collect::<Vec<_>>());
    }
    println!("resident KiB after {flood} and {names} names: {resident:?}");
    for (early, late) in resident[0].iter().zip(&resident[1]) {
        // Names that came within the last seconds are remembered where they came, too.
        assert!(*late < early + early / 10 + 4096, "{resident:?}");
    }
    let mut evicted = 0.0;
    for gate in &lab.gates {
        let accounts =
            gate.metric("freehold_client_accounts{ring=\"distributor\"}").await.expect("a gauge");
        assert!(accounts <= TRACKED as f64, "{accounts}");
        for kind in ["in_debt", "refilled"] {
            let name =
                format!("freehold_client_evictions_total{{kind=\"{kind}\",ring=\"distributor\"}}");
            evicted += gate.metric(&name).await.expect("a count");
        }
    }
    assert!(evicted >= names as f64 - 3.0 * TRACKED as f64 - 10.0, "{evicted}");
    for gate in 0..3 {
        // One a second has come back since.
        let told = driver.push(gate, Some("debtor"), &body(6000)).await;
        assert_eq!(told.status, 429, "the debt is remembered");
    }
}

/// Sixteen senders, each request under a name of its own; how many were not taken.
async fn push_once_each(driver: &Driver, round: usize, names: usize, body: &bytes::Bytes) -> usize {
    let next = Arc::new(AtomicU64::new(0));
    let mut senders = JoinSet::new();
    for _ in 0..16 {
        let (driver, next, body) = (driver.clone(), Arc::clone(&next), body.clone());
        senders.spawn(async move {
            let mut refused = 0;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed) as usize;
                if number >= names {
                    return refused;
                }
                let client = format!("once-{round}-{number}");
                let told = driver.push(number % 3, Some(&client), &body).await;
                refused += usize::from(told.status != 200);
            }
        });
    }
    senders.join_all().await.into_iter().sum()
}
