//! Credit that is taken whether it is there or not.

use super::*;
use crate::faults::Faults;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_debit_reaches_the_owner_and_is_paid_before_anything_else_is_had() {
    let setup = Setup::default();
    let cluster = Cluster::start(2, &setup).await;
    let name = cluster.clients_of(0, 1).remove(0);
    let key = client(&name);
    cluster[0].budgets.debit(key, 100, setup.terms);
    cluster[1].budgets.debit(key, 600, setup.terms);
    let served = || cluster[0].budgets.counts().served;
    until("told", || served() == 1).await;
    assert_eq!(cluster[0].spent(key, setup.terms), 700);
    cluster[1].budgets.debit(key, 900, setup.terms);
    until("told", || served() == 2).await;
    assert_eq!(cluster[0].spent(key, setup.terms), 1600, "600 below nothing");
    cluster[1].charge(key, 1, setup.terms).await.expect_err("a debt is paid first");
    cluster[0].charge(key, 1, setup.terms).await.expect_err("by the owner's clients too");
    cluster[1].budgets.debit(key, u64::MAX, setup.terms);
    until("told", || served() == 4).await;
    assert_eq!(cluster[0].spent(key, setup.terms), 2000, "a debt ends at one burst");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_debit_that_is_sent_again_is_made_once() {
    let setup = Setup::default();
    let cluster = Cluster::start(2, &setup).await;
    for name in cluster.clients_of(0, 5) {
        let key = client(&name);
        let delay = Duration::from_millis(30);
        cluster[0].proxy.set(Faults { delay, ..Faults::default() });
        let served = cluster[0].budgets.counts().served;
        cluster[1].budgets.debit(key, 10, setup.terms);
        // The owner has taken it, and its answer is on the way: that connection breaks.
        until("served", || cluster[0].budgets.counts().served > served).await;
        cluster[0].proxy.reset_all();
        // What comes behind it is answered, so it was.
        cluster[0].proxy.set(Faults::default());
        until("answered", || cluster[1].budgets.is_up("gate-0")).await;
        let _ = cluster[1].charge(key, 1, setup.terms).await;
        let spent = cluster[0].spent(key, setup.terms);
        assert!((10..=11).contains(&spent), "{spent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_debt_moves_with_its_account() {
    let setup = Setup::default();
    let cluster = Cluster::start(2, &setup).await;
    let name = cluster.clients_of(0, 1).remove(0);
    let key = client(&name);
    cluster[0].budgets.debit(key, 1300, setup.terms);
    cluster.publish(&cluster[1], &[1]);
    cluster.publish(&cluster[0], &[1]);
    cluster[0].budgets.leave().await;
    assert_eq!(cluster[1].spent(key, setup.terms), 1300);
    cluster[1].charge(key, 1, setup.terms).await.expect_err("the debt has come along");
}
