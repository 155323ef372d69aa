//! Gates that leave, die or cannot be reached: nobody waits for long, and debts are not forgotten.

use freehold::clients::Cause;

use super::*;
use crate::faults::Faults;

const DEAF: Faults = Faults {
    delay: Duration::ZERO,
    stalls_to_server: true,
    stalls_to_client: true,
    refuses: false,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_r11_everybody_who_waits_for_a_gate_that_is_removed_is_answered() {
    let setup = Setup { owner_timeout: Duration::from_secs(20), ..Setup::default() };
    let cluster = Arc::new(Cluster::start(2, &setup).await);
    until("a link", || cluster[1].budgets.is_up("gate-0")).await;
    cluster[0].proxy.set(DEAF);
    let names = cluster.clients_of(0, 500);
    let mut waiting = JoinSet::new();
    let began = Instant::now();
    for name in &names {
        let (cluster, name, terms) = (Arc::clone(&cluster), name.clone(), setup.terms);
        waiting.spawn(async move { cluster[1].charge(client(&name), 1, terms).await });
    }
    until("all wait", || cluster[1].budgets.counts().asked == 500).await;
    cluster.publish(&cluster[1], &[1]);
    let answers = waiting.join_all().await;
    assert!(began.elapsed() < Duration::from_secs(10), "nobody waited for a timeout");
    // The gate that is left owns everything now.
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 500);
    assert_eq!(cluster[1].budgets.counts().own, 500);
    assert!(!cluster[1].budgets.is_up("gate-0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_owner_the_policy_decides_within_the_timeout() {
    let owner_timeout = Duration::from_millis(200);
    for (owner_lost, at, is_admitted) in [(OwnerLost::Allow, 2, true), (OwnerLost::Deny, 3, false)]
    {
        let setup = Setup { owner_timeout, owner_lost, ..Setup::default() };
        let cluster = Cluster::start(2, &setup).await;
        let names = cluster.clients_of(0, 40);
        let gate = &cluster[1];
        gate.charge(client(&names[0]), 1, setup.terms).await.expect("the owner answers");
        // Nothing is refused; nothing comes either.
        cluster[0].proxy.set(DEAF);
        let decide = async |name: &String| {
            let began = Instant::now();
            let decided = gate.charge(client(name), 1, setup.terms).await;
            assert!(began.elapsed() < owner_timeout + SLACK, "{:?}", began.elapsed());
            assert_eq!(decided.is_ok(), is_admitted);
            if let Err(refusal) = decided {
                assert_eq!(refusal.cause, Cause::OwnerLost);
            }
            began.elapsed()
        };
        let first = decide(&names[1]).await;
        assert!(first >= owner_timeout, "it was waited for: {first:?}");
        until("known to be down", || !gate.budgets.is_up("gate-0")).await;
        let asked = gate.budgets.counts().asked;
        for name in &names[2..] {
            decide(name).await;
        }
        assert_eq!(gate.budgets.counts().asked, asked, "nobody waits for what is known");
        assert_eq!(gate.budgets.counts().lost[at], 39);
        cluster[0].proxy.heal();
        until("up again", || gate.budgets.is_up("gate-0")).await;
        gate.charge(client(&names[5]), 1, setup.terms).await.expect("the owner answers again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_is_gone_is_missed_at_once() {
    let setup = Setup { owner_timeout: Duration::from_secs(20), ..Setup::default() };
    let cluster = Cluster::start(2, &setup).await;
    let names = cluster.clients_of(0, 2);
    cluster[1].charge(client(&names[0]), 1, setup.terms).await.expect("the owner answers");
    cluster[0].proxy.set(Faults { refuses: true, ..Faults::default() });
    cluster[0].proxy.reset_all();
    let began = Instant::now();
    let refused = cluster[1].charge(client(&names[1]), 1, setup.terms).await;
    assert_eq!(refused.expect_err("no owner").cause, Cause::OwnerLost);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_drains_ends_its_streams_and_its_clients_go_on() {
    let setup = Setup::default();
    let cluster = Cluster::start(2, &setup).await;
    let names = cluster.clients_of(0, 1);
    cluster[1].charge(client(&names[0]), 1, setup.terms).await.expect("the owner answers");
    cluster[0].drainer.start();
    until("down", || !cluster[1].budgets.is_up("gate-0")).await;
    cluster.publish(&cluster[1], &[1]);
    cluster[1].charge(client(&names[0]), 1, setup.terms).await.expect("it is ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debts_go_along_when_a_gate_leaves() {
    let setup = Setup::default();
    let cluster = Cluster::start(2, &setup).await;
    // More than fit one message.
    let names = cluster.clients_of(0, 1500);
    for name in &names {
        cluster[0].charge(client(name), 1000, setup.terms).await.expect("a full bucket");
    }
    // The one that leaves says so first; the other one learns it later.
    cluster.publish(&cluster[0], &[1]);
    cluster[0].budgets.leave().await;
    cluster.publish(&cluster[1], &[1]);
    assert_eq!(cluster[0].budgets.counts().handed_over, 1500);
    assert_eq!(cluster[1].budgets.counts().taken_over, 1500);
    for name in &names {
        // The budget is judged by the one that has it now, wherever it is asked.
        for gate in [&cluster[1], &cluster[0]] {
            let refused = gate.charge(client(name), 1, setup.terms).await;
            assert_eq!(refused.expect_err("the debt is known").cause, Cause::Budget);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_takes_two_seconds_when_nobody_takes_over() {
    let setup = Setup::default();
    let cluster = Cluster::start(2, &setup).await;
    let name = cluster.clients_of(0, 1).remove(0);
    cluster[0].charge(client(&name), 1, setup.terms).await.expect("a full bucket");
    cluster[1].proxy.set(DEAF);
    let began = Instant::now();
    cluster.publish(&cluster[0], &[1]);
    cluster[0].budgets.leave().await;
    assert!(began.elapsed() < Duration::from_secs(2) + SLACK, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_opened_anew_is_not_taken_for_the_old_one() {
    let setup = Setup::default();
    let cluster = Cluster::start(2, &setup).await;
    let names = cluster.clients_of(0, 20);
    for name in &names[..10] {
        cluster[1].charge(client(name), 1, setup.terms).await.expect("the owner answers");
    }
    // The ring forgets the owner for a moment: the new link counts its batches from 1.
    cluster.publish(&cluster[1], &[1]);
    cluster.publish(&cluster[1], &[0, 1]);
    for name in &names[10..] {
        cluster[1].charge(client(name), 1, setup.terms).await.expect("the owner answers");
        assert_eq!(cluster[0].spent(client(name), setup.terms), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_rings_that_differ_are_waited_for() {
    let setup = Setup::default();
    let cluster = Cluster::start(2, &setup).await;
    let name = cluster.clients_of(0, 1).remove(0);
    // The owner does not know of itself yet.
    cluster.publish(&cluster[0], &[1]);
    let learning = async {
        until("it was asked", || cluster[1].budgets.counts().not_owner > 0).await;
        cluster.publish(&cluster[0], &[0, 1]);
    };
    let (charged, ()) = tokio::join!(cluster[1].charge(client(&name), 1, setup.terms), learning);
    charged.expect("the second answer");
    assert_eq!(cluster[1].budgets.counts().lost, [0; 4]);
}
