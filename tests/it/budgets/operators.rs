//! What operators see, wherever they ask, and what a reset does.

use super::*;
use crate::faults::Faults;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_poorest_of_all_gates_are_listed_and_who_is_silent_is_named() {
    let setup = Setup::default();
    let cluster = Cluster::start(3, &setup).await;
    let mut spent = Vec::new();
    for owner in 0..3 {
        for (at, name) in cluster.clients_of(owner, 4).into_iter().enumerate() {
            let n = 100 * at as u64 + owner as u64 + 1;
            cluster[2].charge(client(&name), n, setup.terms).await.expect("credit");
            spent.push((n, name, Arc::clone(&cluster[owner].id)));
        }
    }
    spent.sort_by(|a, b| b.cmp(a));
    let top = cluster[2].budgets.top(Kind::ClientWrites, TENANT, 5).await;
    let found: Vec<_> = top
        .accounts
        .into_iter()
        .map(|(owner, account)| ((1000.0 - account.credit).round() as u64, account.client, owner))
        .collect();
    assert_eq!(found, spent[..5]);
    assert!(top.silent.is_empty());
    let others = cluster[2].budgets.top(Kind::ClientQueries, TENANT, 5).await;
    assert!(others.accounts.is_empty(), "{others:?}");

    cluster[0].proxy.set(Faults { stalls_to_server: true, ..Faults::default() });
    let began = Instant::now();
    let top = cluster[2].budgets.top(Kind::ClientWrites, TENANT, 100).await;
    assert!(began.elapsed() < Duration::from_secs(2) + SLACK);
    assert_eq!(top.silent, ["gate-0".into()]);
    assert_eq!(top.accounts.len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_r17_a_look_from_a_gate_that_knows_nothing_shows_the_owners_account() {
    let setup = Setup::default();
    let cluster = Cluster::start(3, &setup).await;
    let name = cluster.clients_of(0, 1).remove(0);
    let key = client(&name);
    for gate in &cluster.0 {
        let shown = gate.budgets.show(key).await.expect("the owner tells");
        assert_eq!((&*shown.owner, shown.account), ("gate-0", None), "nothing is owed");
    }
    cluster[1].charge(key, 1000, setup.terms).await.expect("credit");
    for gate in &cluster.0 {
        let shown = gate.budgets.show(key).await.expect("the owner tells");
        assert!(shown.account.expect("a debt").credit < 1.0);
    }
    let none = cluster[0].budgets.show(client("nobody")).await.map(|shown| shown.account);
    assert_eq!(none.expect("told"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_forgives_at_the_owner_and_everywhere() {
    let setup = Setup::default();
    let cluster = Cluster::start(3, &setup).await;
    let name = cluster.clients_of(0, 1).remove(0);
    let key = client(&name);
    for asked in 0..3 {
        cluster[1].charge(key, 1000, setup.terms).await.expect("a full bucket");
        for gate in &cluster.0 {
            gate.charge(key, 1, setup.terms).await.expect_err("all is spent");
        }
        let reset = cluster[asked].budgets.reset(key).await.expect("done");
        assert!(reset.was_owed && reset.silent.is_empty(), "{reset:?}");
        // The others believe in the denial no more.
        cluster[2].charge(key, 1, setup.terms).await.expect("forgiven");
        assert!(cluster[asked].budgets.reset(key).await.expect("done").was_owed);
    }
    let reset = cluster[2].budgets.reset(key).await.expect("done");
    assert!(!reset.was_owed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_and_decisions_are_counted() {
    let setup = Setup::default();
    let cluster = Cluster::start(3, &setup).await;
    let budgets = &cluster[1].budgets;
    let [own, others] = [1, 0].map(|owner| cluster.clients_of(owner, 1).remove(0));
    cluster[1].charge(client(&own), 1, setup.terms).await.expect("credit");
    cluster[1].charge(client(&others), 1, setup.terms).await.expect("credit");
    assert_eq!(
        metric(budgets, "freehold_client_decisions_total{by=\"own\",ring=\"distributor\"}"),
        1.0
    );
    assert_eq!(
        metric(budgets, "freehold_client_decisions_total{by=\"asked\",ring=\"distributor\"}"),
        1.0
    );
    assert_eq!(metric(budgets, "freehold_client_waits_seconds_count{ring=\"distributor\"}"), 1.0);
    assert_eq!(metric(budgets, "freehold_client_accounts{ring=\"distributor\"}"), 1.0);
    assert_eq!(metric(budgets, "freehold_client_peers{ring=\"distributor\",state=\"up\"}"), 2.0);
    cluster[0].proxy.set(Faults { refuses: true, ..Faults::default() });
    cluster[0].proxy.reset_all();
    until("down", || {
        metric(budgets, "freehold_client_peers{ring=\"distributor\",state=\"down\"}") == 1.0
    })
    .await;
    cluster[1].charge(client(&others), 1, setup.terms).await.expect_err("no owner");
    assert_eq!(
        metric(budgets, "freehold_client_fallbacks_total{mode=\"deny\",ring=\"distributor\"}"),
        1.0
    );
}
