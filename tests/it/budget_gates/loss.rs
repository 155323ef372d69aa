//! The owner of a budget is killed while its clients write.

use super::lab::{decisions, last_at, slowest, with};
use super::*;

const OWNER_TIMEOUT: Duration = Duration::from_millis(250);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_f14_an_owner_that_is_killed_costs_one_more_budget_at_most_and_nobody_else() {
    const RATE: u64 = 2000;
    const BURST: u64 = 4000;
    const SAMPLES: u64 = 100;
    // Owners that follow each other: the one that is killed, and its heir.
    const OWNERS: u64 = 2;
    let _alone = ALONE.lock().await;
    let overdue = seconds(3, 6);
    let overdue_flag = format!("-client-identity.owner-overdue={}s", overdue.as_secs());
    let flags = ["-client-identity.enabled", &overdue_flag];
    let mut lab = Lab::start(3, &limits_of_clients(RATE, BURST, 1000), &flags).await;
    let mut loads = Vec::new();
    // Each sends to all gates; the first one more than it may, the last one has the same owner.
    for (owner, times) in [(0, 2.0), (1, 0.5), (2, 0.5), (0, 0.5)] {
        let prefix = format!("of-{owner}-{times}");
        loads.push(Load {
            client: Some(lab.client_of(owner, &prefix).await),
            gates: vec![0, 1, 2],
            requests_per_s: times * RATE as f64 / SAMPLES as f64,
            samples: SAMPLES,
        });
    }
    let killed_after = seconds(4, 10);
    // Heartbeats are looked at once in a while, and on a busy machine later.
    let back_within = overdue + Duration::from_secs(5);
    let span = killed_after + back_within + Duration::from_secs(3);
    let driver = lab.driver();
    let began = Instant::now();
    let killing = async {
        tokio::time::sleep(killed_after).await;
        lab.gates[0].process.kill();
        began.elapsed()
    };
    let (told, killed_at) = tokio::join!(driver.run(&loads, span), killing);

    for told in &told {
        let took = slowest(told);
        assert!(took < OWNER_TIMEOUT + SLACK, "a request hung for {took:?}");
        assert!(with(0, told) > 0 && told.iter().all(|told| told.status != 0 || told.gate == 0));
    }
    let dead = &told[0];
    let admitted = with(200, dead) as u64 * SAMPLES;
    let may = BURST as f64 + RATE as f64 * last_at(dead).as_secs_f64();
    println!("the dead one's client: {admitted} of {may:.0} for each of {OWNERS} owners");
    assert!(admitted as f64 <= OWNERS as f64 * may, "{admitted} of {may}");
    let back_at = killed_at + back_within;
    let later = dead.iter().filter(|told| told.at > back_at && told.gate != 0);
    let (later, taken): (Vec<_>, Vec<_>) = (later.clone().collect(), later.collect());
    let taken = taken.into_iter().filter(|told| told.status == 200).count();
    assert!(!later.is_empty() && taken * 4 > later.len(), "{taken} of {} are taken", later.len());
    let first = dead.iter().filter(|told| told.at > killed_at && told.status == 200);
    let first = first.map(|told| told.at - killed_at).min();
    println!("the first write is taken {first:?} after the kill");
    // Who keeps to its rate has leases, and a part of them in reserve.
    let modest = &told[3];
    let without = |told: &lab::Told| told.at > killed_at && told.at < killed_at + OWNER_TIMEOUT * 4;
    let spent = modest.iter().filter(|told| told.status == 200 && without(told)).count();
    println!("{spent} writes of the dead one's modest client are taken in the first second");
    assert!(spent > 0, "{modest:?}");
    for (owner, told) in told.iter().enumerate().skip(1).take(2) {
        let refused: Vec<_> = told.iter().filter(|told| ![0, 200].contains(&told.status)).collect();
        assert!(refused.is_empty(), "gate {owner} is there: {refused:?}");
    }

    // It comes back, as an operator's manager does it.
    let again = lab.gate(0).await;
    lab.gates[0] = again;
    settled(&lab.gates).await;
    let mut lost = Vec::new();
    for gate in &lab.gates {
        lost.push(decisions(gate, "lost").await);
    }
    assert!(lost[1] > 0.0 && lost[2] > 0.0, "decisions without the owner are counted: {lost:?}");
    let driver = lab.driver();
    let calm: Vec<_> =
        loads.iter().map(|load| Load { requests_per_s: 5.0, ..load.clone() }).collect();
    for told in driver.run(&calm, Duration::from_secs(2)).await {
        assert_eq!(with(200, &told), told.len(), "{told:?}");
    }
    for (gate, lost) in lab.gates.iter().zip(lost) {
        assert_eq!(decisions(gate, "lost").await, lost, "the ring has healed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_f14_an_owner_that_leaves_under_load_gives_no_second_burst() {
    const RATE: u64 = 1000;
    const BURST: u64 = 20_000;
    const SAMPLES: u64 = 100;
    let _alone = ALONE.lock().await;
    let flags = ["-client-identity.enabled", "-client-identity.owner-timeout=2s"];
    let lab = Lab::start(3, &limits_of_clients(RATE, BURST, 1000), &flags).await;
    let mut loads = Vec::new();
    for (owner, times) in [(0, 4.0), (1, 0.5), (2, 0.5)] {
        loads.push(Load {
            client: Some(lab.client_of(owner, &format!("of-{owner}")).await),
            gates: vec![1, 2],
            requests_per_s: times * RATE as f64 / SAMPLES as f64,
            samples: SAMPLES,
        });
    }
    // Its burst is spent before the owner goes, and would be worth ten seconds and more again.
    let driver = lab.driver();
    let leaving = async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        let id = lab.gates[0].process.id().to_string();
        let told = std::process::Command::new("kill").args(["-TERM", &id]).status();
        assert!(told.expect("kill").success());
    };
    let (told, ()) = tokio::join!(driver.run(&loads, seconds(14, 24)), leaving);
    let admitted = with(200, &told[0]) as u64 * SAMPLES;
    let may = BURST as f64 + RATE as f64 * last_at(&told[0]).as_secs_f64();
    println!("of the one that left: {admitted} of {may:.0}");
    // What an heir may give that was told nothing is a second's worth.
    assert!(admitted as f64 <= may + RATE as f64, "{admitted} of {may}");
    assert!(admitted as f64 >= 0.9 * may, "{admitted} of {may}");
    for (owner, told) in told.iter().enumerate().skip(1) {
        assert_eq!(with(200, told), told.len(), "gate {owner} is there: {told:?}");
    }
    let handed = lab.gates[1]
        .metric("freehold_client_taken_over_total{ring=\"distributor\"}")
        .await
        .expect("a count")
        + lab.gates[2]
            .metric("freehold_client_taken_over_total{ring=\"distributor\"}")
            .await
            .expect("a count");
    assert!(handed >= 1.0, "no account has arrived");
    println!("accounts that have arrived: {handed}");
}
