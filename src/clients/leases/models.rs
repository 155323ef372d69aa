//! Two threads at one budget in every order that matters, explored by loom.
//!
//! `cargo test --features model --lib clients::leases::models`

use loom::thread;

use super::*;
use crate::clients::account::LEASE_NS;
use crate::clients::key::Kind;
use crate::sync::Arc;

const S: i64 = 1_000_000_000;
const KEY: Key<'static> = Key { kind: Kind::ClientWrites, tenant: "t", client: "c" };
const HASH: KeyHash = KeyHash(7);
/// When a charge of the first second cannot come back any more.
const SETTLED: i64 = S + S / 2;

/// Leases of one budget of which `credits` are held, a part of them in its pocket.
fn holding(credits: u64) -> Arc<Leases> {
    let leases = Leases::default();
    assert_eq!(spend(&leases, 1, S), 0, "nothing is there yet");
    leases.granted(KEY, HASH, credits, S, S);
    Arc::new(leases)
}

/// What was paid: all of it or nothing.
fn spend(leases: &Leases, n: u64, now_ns: i64) -> u64 {
    paid(leases, n, now_ns).map_or(0, |_| n)
}

fn paid(leases: &Leases, n: u64, now_ns: i64) -> Option<LeaseCharge> {
    match leases.spend(KEY, HASH, n, now_ns) {
        Ok(charge) => Some(charge),
        Err(look) => match look.spend(KEY, HASH, n, now_ns) {
            Spent::Paid(charge, _) => Some(charge),
            Spent::Denied { .. } | Spent::Ask(_) => None,
        },
    }
}

/// Runs `one` beside `other` and hands back their results.
fn beside<A: 'static, B>(
    leases: &Arc<Leases>,
    one: impl FnOnce(&Leases) -> A + 'static,
    other: impl FnOnce(&Leases) -> B,
) -> (A, B) {
    let shared = Arc::clone(leases);
    let thread = thread::spawn(move || one(&shared));
    let result = other(leases);
    (thread.join().expect("the modelled thread ends"), result)
}

#[test]
fn one_credit_is_not_spent_twice() {
    loom::model(|| {
        // A renewal is to be thought of below 1 of 2: the pocket holds one, the entry the other.
        let leases = holding(2);
        let both = |leases: &Leases| spend(leases, 1, S) + spend(leases, 1, S);
        let (one, other) = beside(&leases, both, both);
        assert_eq!(one + other, 2, "all that is there, and no more");
        assert_eq!(leases.holding(KEY, HASH, SETTLED), 0);
    });
}

#[test]
fn a_renewal_beside_a_spend_adds_what_it_grants() {
    loom::model(|| {
        let leases = holding(2);
        let spends = |leases: &Leases| spend(leases, 1, S) + spend(leases, 2, S);
        let (spent, ()) = beside(&leases, spends, |leases| leases.granted(KEY, HASH, 3, S, S));
        assert!(spent == 1 || spent == 3, "{spent}");
        assert_eq!(leases.holding(KEY, HASH, SETTLED), 5 - spent);
    });
}

#[test]
fn a_lease_that_has_ended_pays_nobody_and_leaves_nothing() {
    loom::model(|| {
        let leases = holding(3);
        let end = S + LEASE_NS;
        let (before, after) =
            beside(&leases, |leases| spend(leases, 1, S), move |leases| spend(leases, 1, end));
        assert!(before <= 1);
        assert_eq!((after, leases.holding(KEY, HASH, end)), (0, 0));
    });
}

#[test]
fn what_is_handed_back_is_not_spent_too() {
    loom::model(|| {
        let leases = holding(3);
        let spends = |leases: &Leases| spend(leases, 1, S) + spend(leases, 1, S);
        let (spent, told) = beside(&leases, spends, |leases| {
            // As on a change of owner: what is held is told, and then given up.
            let told = leases.held_where(S, |_| true).len();
            leases.drop_key(KEY, HASH);
            told
        });
        assert!(spent <= 2);
        assert_eq!(told, 1, "charges that may come back are held, too");
        assert_eq!(spend(&leases, 1, S), 0, "nothing is left of it");
    });
}

#[test]
fn a_charge_that_comes_back_is_there_for_one_other() {
    loom::model(|| {
        let leases = holding(2);
        let charge = paid(&leases, 2, S).expect("it is there");
        let (spent, ()) = beside(
            &leases,
            |leases| spend(leases, 2, S) + spend(leases, 2, S),
            move |leases| leases.give_back(KEY, HASH, charge, S),
        );
        assert!(spent <= 2, "{spent}");
        assert_eq!(leases.holding(KEY, HASH, SETTLED), 2 - spent);
    });
}
