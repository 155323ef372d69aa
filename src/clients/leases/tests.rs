//! Leases, denials and reserves of one budget.

use proptest::prelude::*;

use super::*;
use crate::clients::account::LEASE_NS;
use crate::clients::key::{KEY_SECRET_BYTES, KeyHasher, Kind};

const S: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;

struct One {
    leases: Leases,
    hash: KeyHash,
}

const KEY: Key<'static> = Key { kind: Kind::ClientWrites, tenant: "t", client: "c" };

impl One {
    fn new() -> Self {
        let hash = KeyHasher::new([1; KEY_SECRET_BYTES]).hash(KEY);
        Self { leases: Leases::default(), hash }
    }

    fn spend(&self, n: u64, now_ns: i64) -> Spent {
        spend(&self.leases, KEY, self.hash, n, now_ns)
    }

    fn granted(&self, credits: u64, asked_ns: i64) {
        self.leases.granted(KEY, self.hash, credits, asked_ns, asked_ns);
    }

    fn holding(&self, now_ns: i64) -> u64 {
        self.leases.holding(KEY, self.hash, now_ns)
    }
}

fn spend(leases: &Leases, key: Key<'_>, hash: KeyHash, n: u64, now_ns: i64) -> Spent {
    match leases.spend(key, hash, n, now_ns) {
        Ok(charge) => Spent::Paid(charge, None),
        Err(look) => look.spend(key, hash, n, now_ns),
    }
}

#[test]
fn a_first_request_asks_for_itself_and_the_next_for_a_lease() {
    let one = One::new();
    assert_eq!(one.spend(10, 0), Spent::Ask(Wish { spend: 10, want: 0, least: 10 }));
    assert_eq!(one.spend(10, S / 2), Spent::Ask(Wish { spend: 10, want: 20, least: 10 }));
    one.granted(20, S / 2);
    assert!(matches!(one.spend(10, S), Spent::Paid(_, None)));
}

#[test]
fn a_lease_ends_before_its_owner_takes_it_for_ended() {
    let one = One::new();
    one.spend(1, 0);
    one.granted(100, 0);
    assert!(matches!(one.spend(1, LEASE_NS - LEASE_NS / 50 - 1), Spent::Paid(..)));
    assert!(matches!(one.spend(1, LEASE_NS - LEASE_NS / 50), Spent::Ask(_)));
}

#[test]
fn a_lease_is_renewed_once_before_it_is_spent() {
    let one = One::new();
    one.spend(1, 0);
    one.granted(10, 0);
    let mut renewals = 0;
    for at in 1..9_i64 {
        if let Spent::Paid(_, Some(wish)) = one.spend(1, at * 100 * MS) {
            renewals += 1;
            assert!(wish.want > 1 && wish.spend == 0, "{wish:?}");
        }
    }
    assert_eq!(renewals, 1);
}

#[test]
fn a_reserve_is_kept_for_when_the_owner_is_lost() {
    let one = One::new();
    one.spend(1, 0);
    one.granted(16, 0);
    let paid = (0..16).take_while(|_| matches!(one.spend(1, MS), Spent::Paid(..))).count();
    assert_eq!(paid, 14, "an eighth is kept");
    let reserve = |n| one.leases.spend_reserve(KEY, one.hash, n, 2 * MS);
    assert!(reserve(1).is_some());
    assert!(reserve(2).is_none());
    assert!(reserve(1).is_some());
    assert!(reserve(1).is_none());
}

#[test]
fn a_denial_holds_for_requests_as_large_until_its_time_is_over() {
    let one = One::new();
    one.spend(10, 0);
    one.leases.denied(KEY, one.hash, 10, Some(500 * MS as u64), 0);
    let wait_ns = Some(400 * MS as u64);
    assert_eq!(one.spend(10, 100 * MS), Spent::Denied { wait_ns });
    assert_eq!(one.spend(11, 100 * MS), Spent::Denied { wait_ns });
    assert!(matches!(one.spend(9, 100 * MS), Spent::Ask(_)), "less may be there");
    assert!(matches!(one.spend(10, 500 * MS), Spent::Ask(_)));
    one.leases.denied(KEY, one.hash, 10, Some(60 * S as u64), S);
    assert!(matches!(one.spend(10, 2 * S), Spent::Ask(_)), "believed for a second at most");
}

#[test]
fn a_charge_comes_back_to_its_lease_and_is_told_as_held_until_it_cannot() {
    let one = One::new();
    one.spend(1, 0);
    one.granted(100, 0);
    let Spent::Paid(charge, _) = one.spend(40, S) else { panic!("it is there") };
    assert_eq!(one.holding(S), 100, "40 may come back");
    one.leases.give_back(KEY, one.hash, charge, S + 100 * MS);
    assert_eq!(one.holding(S + 100 * MS), 100);
    let Spent::Paid(charge, _) = one.spend(40, S + 100 * MS) else { panic!("it is there") };
    assert_eq!(one.holding(S + 400 * MS), 60, "settled");
    one.leases.give_back(KEY, one.hash, charge, S + 400 * MS);
    assert_eq!(one.holding(S + 400 * MS), 60);
    let Spent::Paid(charge, _) = one.spend(10, S + 450 * MS) else { panic!("it is there") };
    one.leases.give_back(KEY, one.hash, charge, 4 * S);
    assert_eq!(one.holding(4 * S), 0, "its lease has ended");
}

#[test]
fn what_is_idle_is_forgotten_and_what_is_held_is_not() {
    let one = One::new();
    one.spend(1, 0);
    one.granted(100, 0);
    one.leases.sweep(S);
    assert_eq!(one.leases.counts(S), (1, 100));
    one.leases.sweep(2 * LEASE_NS);
    assert_eq!(one.leases.counts(2 * LEASE_NS), (0, 0));
}

#[test]
fn case_r40_a_flood_of_names_finds_a_bound() {
    let leases = Leases::default();
    let hasher = KeyHasher::new([1; KEY_SECRET_BYTES]);
    for at in 0..400_000 {
        let client = format!("{at}");
        let key = Key { kind: Kind::ClientWrites, tenant: "t", client: &client };
        assert!(matches!(spend(&leases, key, hasher.hash(key), 1, 0), Spent::Ask(_)));
    }
    assert_eq!(leases.counts(0).0, SHARDS * SHARD_ENTRIES_MAX);
    // A second later the idle ones may go, but none of these is yet.
    leases.sweep(3 * LEASE_NS);
    assert_eq!(leases.counts(3 * LEASE_NS).0, 0);
}

#[test]
fn most_requests_are_paid_without_a_look() {
    let one = One::new();
    one.spend(1, S);
    one.granted(1000, S);
    let paid = |at_ns| one.leases.spend(KEY, one.hash, 1, at_ns).is_ok();
    assert_eq!((0..900).take_while(|_| paid(S + MS)).count(), 700, "until it is to be renewed");
    assert!(!paid(S + 125 * MS), "nor is a later slot's paid so");
    assert_eq!(one.holding(S + 125 * MS), 1000, "what was spent may come back");
    assert_eq!(one.leases.decided(), Decided { paid: 700, denied: 0 });
}

proptest! {
    /// A pocket changes no decision: a bare entry that is looked at for each says the same.
    #[test]
    fn pockets_decide_as_their_entries(
        n in 1_u64..20,
        steps in prop::collection::vec((0_u8..8, 0_i64..80, 0_u64..400), 1..300),
    ) {
        let one = One::new();
        let mut bare = Entry::new(KEY.to_owned(), one.hash, S);
        let mut now_ns = S;
        one.spend(n, now_ns);
        bare.opened(n, now_ns);
        let mut charges = Vec::new();
        for (step, elapsed_ms, credits) in steps {
            now_ns += elapsed_ms * MS;
            match step {
                0 => {
                    one.leases.granted(KEY, one.hash, credits, now_ns - MS, now_ns);
                    bare.granted(credits, now_ns - MS, now_ns);
                }
                1 => {
                    one.leases.denied(KEY, one.hash, n, Some(30 * MS as u64), now_ns);
                    bare.denied(n, Some(30 * MS as u64), now_ns);
                }
                2 => {
                    if let Some(charge) = charges.pop() {
                        one.leases.give_back(KEY, one.hash, charge, now_ns);
                        bare.give_back(charge, now_ns);
                    }
                }
                3 => {
                    let charge = one.leases.spend_reserve(KEY, one.hash, n, now_ns);
                    prop_assert_eq!(charge, bare.pay(n, 0, now_ns));
                }
                4 => prop_assert_eq!(one.holding(now_ns), bare.holding(now_ns)),
                _ => {
                    for _ in 0..credits % 16 {
                        let spent = one.spend(n, now_ns);
                        prop_assert_eq!(spent, bare.spend(n, now_ns));
                        if let Spent::Paid(charge, _) = spent {
                            charges.push(charge);
                        }
                    }
                }
            }
        }
        prop_assert_eq!(one.holding(now_ns), bare.holding(now_ns));
    }
}
