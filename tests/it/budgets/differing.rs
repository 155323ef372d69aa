//! Gates whose limits differ, for a moment or for good.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_that_its_owner_knows_no_limit_of_is_kept_where_one_is_known() {
    const BURST: u64 = 10;
    let terms = terms(0.001, BURST);
    let setup = Setup {
        terms,
        without_limits: "gate-0",
        // Somebody who waited for a better answer would be seen.
        owner_timeout: Duration::from_secs(20),
        ..Setup::default()
    };
    let cluster = Cluster::start(3, &setup).await;
    let name = cluster.clients_of(0, 1).remove(0);
    let key = client(&name);
    let began = Instant::now();
    for gate in [&cluster[1], &cluster[2]] {
        let mut admitted = 0;
        for _ in 0..2 * BURST {
            match gate.charge(key, 1, terms).await {
                Ok(()) => admitted += 1,
                Err(refusal) => assert_eq!(refusal.cause, freehold::clients::Cause::Budget),
            }
        }
        assert_eq!(admitted, BURST, "what one gate would give in its own name");
        let counts = gate.budgets.counts();
        assert_eq!((counts.alone, counts.lost_refused, counts.not_owner), (2 * BURST, 0, 0));
    }
    assert!(began.elapsed() < setup.owner_timeout, "nobody waited for another answer");

    // What bought nothing comes back there, too.
    let other = cluster.clients_of(0, 2).remove(1);
    let key = client(&other);
    let charge = cluster[1].budgets.charge(key, BURST, terms).await.expect("a full budget");
    assert!(cluster[1].charge(key, 1, terms).await.is_err());
    cluster[1].budgets.give_back(key, charge);
    cluster[1].charge(key, BURST, terms).await.expect("it came back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_an_owner_comes_to_know_holds_over_all_gates() {
    const BURST: u64 = 10;
    let limits = terms(0.001, BURST);
    let known = Arc::new(std::sync::Mutex::new(None));
    let file = Arc::clone(&known);
    let setup = Setup { terms: limits, ..Setup::default() };
    let owner =
        Gate::start_with("gate-0", &setup, Arc::new(move |_, _| *file.lock().expect("lock")));
    let mut gates = vec![owner.await];
    gates.push(Gate::start("gate-1", &setup).await);
    gates.push(Gate::start("gate-2", &setup).await);
    let cluster = Cluster(gates);
    for gate in &cluster.0 {
        cluster.publish(gate, &[0, 1, 2]);
    }
    let names = cluster.clients_of(0, 2);
    cluster[1].charge(client(&names[0]), 1, limits).await.expect("kept alone");
    *known.lock().expect("lock") = Some(limits);
    let mut admitted = 0;
    for turn in 0..3 * BURST as usize {
        let gate = &cluster[1 + turn % 2];
        admitted += u64::from(gate.charge(client(&names[1]), 1, limits).await.is_ok());
    }
    assert_eq!(admitted, BURST);
}
