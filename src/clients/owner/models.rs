//! Two threads at one account in every order that matters, explored by loom.
//!
//! `cargo test --features model --lib clients::owner::models`

use loom::thread;

use super::*;

const S: i64 = 1_000_000_000;
const KEY: Key<'static> = Key { kind: Kind::ClientWrites, tenant: "t", client: "c" };
const HASH: KeyHash = KeyHash(7);
const BURST: u64 = 8;

/// A budget that does not refill while anybody looks.
fn budget() -> KeyedTerms<'static> {
    let terms = Terms { budget: Budget { rate: 1e-9, burst: BURST }, tracked_max: 2 };
    KeyedTerms { key: KEY, hash: HASH, terms }
}

fn spend(owner: &Owner, n: u64) -> u64 {
    owner.spend(budget(), n, S, || Start::Full).map_or(0, |_| n)
}

fn grant(owner: &Owner, want: u64) -> u64 {
    let wish = Wish { spend: 1, want, least: 1 };
    owner.grant(budget(), wish, Holder(1), S, || Start::Full).map_or(0, |lease| 1 + lease)
}

fn beside<A: 'static, B>(
    owner: Owner,
    one: impl FnOnce(&Owner) -> A + 'static,
    other: impl FnOnce(&Owner) -> B,
) -> (Owner, A, B) {
    let owner = Arc::new(owner);
    let shared = Arc::clone(&owner);
    let thread = thread::spawn(move || one(&shared));
    let result = other(&owner);
    let first = thread.join().expect("the modelled thread ends");
    (Arc::into_inner(owner).expect("the thread has ended"), first, result)
}

#[test]
fn what_is_granted_and_what_is_spent_are_of_one_burst() {
    loom::model(|| {
        let (owner, spent, granted) =
            beside(Owner::default(), |owner| spend(owner, 7), |owner| grant(owner, 1));
        assert!(spent + granted <= BURST, "{spent} and {granted}");
        let view = owner.view(KEY, HASH, S).expect("something is owed");
        assert!((view.credit - (BURST - spent - granted) as f64).abs() < 1e-6, "{view:?}");
    });
}
