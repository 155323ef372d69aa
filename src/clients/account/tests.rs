//! Accounts: arithmetic by example, and the bound by chance.

use proptest::prelude::*;

use super::*;

const S: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;
const A: Holder = Holder(1);
const B: Holder = Holder(2);

fn budget(rate: f64, burst: u64) -> Budget {
    Budget { rate, burst }
}

fn wish(spend: u64, want: u64) -> Wish {
    Wish { spend, want, least: 1 }
}

#[test]
fn expiry_is_kept_per_grant() {
    let budget = budget(0.0, 400);
    let mut account = Account::new(400.0, 0);
    assert_eq!(account.grant(budget, wish(0, 100), A, 0), Ok(100));
    assert_eq!(account.grant(budget, wish(0, 75), A, S), Ok(75));
    // 25 are spent. Were both one pot, it would live until the later of both ends.
    account.report(budget, A, 150, S);
    account.advance(budget, LEASE_NS);
    assert_eq!(account.leased(), 75, "the first is over, and took the spent part with it");
    account.advance(budget, LEASE_NS + S);
    assert_eq!(account.leased(), 0);
    assert_eq!(account.credit(), 225.0, "what expired does not come back but by the rate");
}

#[test]
fn a_refill_up_to_now_comes_before_a_report_makes_room() {
    let budget = budget(100.0, 400);
    let mut account = Account::new(400.0, 0);
    assert_eq!(account.grant(budget, wish(0, 100), A, 0), Ok(100));
    // Nobody knows when it was spent: perhaps just now.
    account.report(budget, A, 0, S);
    assert_eq!((account.credit(), account.leased()), (300.0, 0));
    account.advance(budget, S + S / 2);
    assert_eq!(account.credit(), 350.0);
}

#[test]
fn expired_grants_are_released_in_the_order_of_time_with_a_refill_up_to_each() {
    let budget = budget(100.0, 400);
    let mut account = Account::new(400.0, 0);
    assert_eq!(account.grant(budget, wish(0, 100), A, 0), Ok(100));
    assert_eq!(account.grant(budget, wish(0, 75), B, 2 * S), Ok(75));
    account.advance(budget, 10 * S);
    // Full up to the first end; then 100 in a second's refill, 2 s before the second's.
    assert_eq!(account.credit(), 400.0);
    let mut account = Account::new(400.0, 0);
    let _ = account.grant(budget, wish(0, 100), A, 0);
    let _ = account.grant(budget, wish(0, 75), B, 2 * S);
    account.advance(budget, 3 * S + 100 * MS);
    assert_eq!(account.credit(), 235.0, "no refill before the first end");
}

#[test]
fn a_lease_is_a_quarter_of_what_is_there_at_most_and_none_if_it_is_of_no_use() {
    let budget = budget(1.0, 100);
    let mut account = Account::new(100.0, 0);
    assert_eq!(account.grant(budget, wish(20, 1000), A, 0), Ok(20), "a quarter of 80");
    assert_eq!(account.grant(budget, Wish { spend: 10, want: 40, least: 20 }, B, 0), Ok(0));
    assert_eq!(account.credit(), 50.0);
    assert_eq!(account.grant(budget, wish(51, 0), B, 0), Err(Short { wait_ns: Some(S as u64) }));
    assert_eq!(account.grant(budget, wish(101, 0), B, 0), Err(Short { wait_ns: None }));
    // 90 are never there while 20 are out.
    let short = account.grant(budget, wish(90, 0), B, 0);
    assert_eq!(short, Err(Short { wait_ns: Some(40 * S as u64) }));
}

#[test]
fn case_r32_a_refund_never_lifts_an_account_over_its_burst() {
    let budget = budget(100.0, 100);
    let mut account = Account::new(100.0, 0);
    let made = account.spend(budget, 50, 0).expect("there");
    account.advance(budget, 400 * MS);
    let early = account.credit();
    account.give_back(budget, 50, made, 400 * MS);
    assert_eq!((early, account.credit()), (90.0, 100.0), "40 would have run over");
    account.give_back(budget, 50, made, 2 * S);
    assert_eq!(account.credit(), 100.0, "settled");
}

#[test]
fn a_refund_is_whole_when_nothing_would_have_run_over() {
    let budget = budget(5.0, 100);
    let mut account = Account::new(50.0, 0);
    let made = account.spend(budget, 1, 0).expect("there");
    account.give_back(budget, 1, made, 200 * MS);
    assert_eq!(account.credit(), 51.0);
}

#[test]
fn case_r38_and_r5_credit_follows_time_and_ends_at_the_burst() {
    let budget = budget(10.0, 10);
    let mut account = Account::new(10.0, 0);
    assert!(account.spend(budget, 10, 0).is_ok());
    account.advance(budget, S / 2);
    assert_eq!(account.credit(), 5.0);
    account.advance(budget, 100 * S);
    assert_eq!(account.credit(), 10.0);
}

#[test]
fn case_r42_a_wait_is_never_longer_than_a_whole_refill() {
    let budget = budget(10.0, 50);
    let mut account = Account::new(50.0, 3600 * S);
    assert!(account.spend(budget, 50, 3600 * S).is_ok());
    // The clock went back an hour.
    let short = account.spend(budget, 50, 0).expect_err("empty");
    assert_eq!(short.wait_ns, Some(5 * S as u64));
}

#[test]
fn what_another_owner_knew_is_believed_where_it_is_less() {
    let budget = budget(10.0, 100);
    let mut account = Account::new(10.0, 0);
    let grant = Grant { holder: A, credits: 30, expires_ns: 2 * S };
    account.take_over(budget, -20.0, &[grant], 0);
    assert_eq!((account.credit(), account.leased()), (-20.0, 30));
    account.report(budget, A, 30, 0);
    assert_eq!(account.leased(), 30, "it is the same lease");
    account.report(budget, B, 40, 0);
    assert_eq!(account.leased(), 70, "a lease that we did not know of");
    let mut account = Account::new(100.0, 0);
    account.report(budget, B, 40, 0);
    assert_eq!(account.credit(), 60.0, "credit gives way to it");
}

#[test]
fn a_debit_takes_what_is_not_there_and_the_refill_pays_it() {
    let budget = budget(10.0, 100);
    let mut account = Account::new(30.0, 0);
    account.debit(budget, 50, 0);
    assert_eq!(account.credit(), -20.0);
    assert_eq!(account.spend(budget, 1, 0), Err(Short { wait_ns: Some(2_100_000_000) }));
    assert_eq!(account.grant(budget, wish(0, 10), A, 0), Ok(0), "nothing is leased of a debt");
    assert!(!account.is_full(budget));
    assert_eq!(account.full_at_ns(budget), 12 * S);
    account.advance(budget, 4 * S);
    assert_eq!(account.credit(), 20.0);
    account.advance(budget, 100 * S);
    assert_eq!(account.credit(), 100.0, "a debt is paid once");
}

#[test]
fn a_debt_ends_at_one_burst() {
    let mut account = Account::new(30.0, 0);
    account.debit(budget(10.0, 100), u64::MAX, 0);
    assert_eq!(account.credit(), -100.0);
    account.debit(budget(10.0, 100), 1, 0);
    assert_eq!(account.credit(), -100.0);
    // A burst that was lowered makes no debt smaller.
    account.debit(budget(10.0, 20), 1, 0);
    assert_eq!(account.credit(), -100.0);
}

#[test]
fn a_charge_comes_back_to_an_account_that_is_in_debt() {
    let budget = budget(1.0, 10);
    let mut account = Account::new(10.0, 0);
    let made = account.spend(budget, 4, 0).expect("there");
    account.debit(budget, 8, 0);
    account.give_back(budget, 4, made, 0);
    assert_eq!(account.credit(), 2.0);
}

#[test]
fn what_is_held_comes_back_whole_and_nothing_takes_its_place_meanwhile() {
    let budget = budget(10.0, 20);
    let mut account = Account::new(20.0, 0);
    // A full account, and a dashboard of twenty panels.
    for at in 0..20 {
        account.spend(budget, 1, at * MS).expect("there");
        account.hold(1, at * MS);
    }
    account.advance(budget, 200 * MS);
    assert!(account.credit() < 1e-9, "no refill beside what is held: {}", account.credit());
    for at in 0..20 {
        assert_eq!(account.let_go(budget, 1, at * MS, 200 * MS), 1);
    }
    assert_eq!(account.credit(), 20.0);
    assert_eq!(account.let_go(budget, 1, 0, 200 * MS), 0, "once");
    assert!(account.is_full(budget));
}

#[test]
fn what_is_held_is_settled_after_its_time() {
    let budget = budget(10.0, 20);
    let mut account = Account::new(20.0, 0);
    account.spend(budget, 5, 0).expect("there");
    account.hold(5, 0);
    account.spend(budget, 5, 280 * MS).expect("there");
    account.hold(5, 280 * MS);
    assert_eq!(account.let_go(budget, 5, 0, 310 * MS), 0, "another's is not taken for it");
    assert_eq!(account.let_go(budget, 5, 280 * MS, 310 * MS), 5);
    // 0.1 flowed in between the first one's end, at 300 ms, and now.
    account.advance(budget, 310 * MS);
    assert!((account.credit() - 15.1).abs() < 1e-9, "{}", account.credit());
    assert_eq!(account.leases().count(), 0, "nobody holds a lease of it");
}

/// What may happen to an account.
#[derive(Clone, Copy, Debug)]
enum Act {
    Spend(u64),
    Refund,
    Debit(u64),
    Grant {
        holder: u32,
        spend: u64,
        want: u64,
    },
    /// A holder spends, and later reports.
    Use {
        holder: u32,
        n: u64,
    },
    Report {
        holder: u32,
    },
    Wait(i64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (1..40_u64).prop_map(Act::Spend),
        Just(Act::Refund),
        (1..90_u64).prop_map(Act::Debit),
        (1..4_u32, 0..20_u64, 0..80_u64).prop_map(|(holder, spend, want)| Act::Grant {
            holder,
            spend,
            want
        }),
        (1..4_u32, 1..30_u64).prop_map(|(holder, n)| Act::Use { holder, n }),
        (1..4_u32).prop_map(|holder| Act::Report { holder }),
        (1..900_i64).prop_map(|ms| Act::Wait(ms * MS)),
    ]
}

proptest! {
    /// Holders are as bad as they may be: each grant is spent at any time until its end, oldest
    /// or newest first, and told of late or never. Debits make nobody richer: what is spent beside
    /// them keeps to the bound, and with them to the bound and the largest debt.
    #[test]
    fn no_window_has_more_than_burst_and_refill(
        acts in proptest::collection::vec(act(), 1..120),
        rate in prop_oneof![Just(3.0), Just(40.0), Just(400.0)],
        newest_first in any::<bool>(),
        is_held in any::<bool>(),
    ) {
        let budget = budget(rate, 100);
        let mut account = Account::new(100.0, 0);
        let mut held: Vec<(u32, u64, i64)> = Vec::new();
        let mut charge = None;
        let mut spent: Vec<(i64, i64)> = Vec::new();
        let mut debits: Vec<(i64, f64)> = Vec::new();
        let mut now = 0;
        for act in acts {
            held.retain(|(_, _, end)| *end > now);
            match act {
                Act::Wait(ns) => now += ns,
                Act::Spend(n) => {
                    if let Ok(made) = account.spend(budget, n, now) {
                        charge = Some((n, made, spent.len()));
                        spent.push((now, n as i64));
                        if is_held {
                            account.hold(n, now);
                        }
                    }
                }
                Act::Refund => {
                    if let Some((n, made, at)) = charge.take() {
                        if is_held {
                            spent[at].1 -= account.let_go(budget, n, spent[at].0, now) as i64;
                        } else {
                            account.give_back(budget, n, made, now);
                            spent[at].1 = 0;
                        }
                    }
                }
                Act::Debit(n) => {
                    account.advance(budget, now);
                    let before = account.credit();
                    account.debit(budget, n, now);
                    let taken = before - account.credit();
                    let is_whole = (taken - n as f64).abs() < 1e-9;
                    let is_at_floor = account.credit() == -100.0 && taken < n as f64;
                    prop_assert!(is_whole || is_at_floor, "{taken} of {n}");
                    debits.push((now, taken));
                }
                Act::Grant { holder, spend, want } => {
                    let granted = account.grant(budget, wish(spend, want), Holder(holder), now);
                    if let Ok(lease) = granted {
                        spent.push((now, spend as i64));
                        held.push((holder, lease, now + LEASE_NS));
                        if is_held {
                            account.hold(spend, now);
                        }
                    }
                }
                Act::Use { holder, n } => {
                    let mut own: Vec<_> =
                        held.iter_mut().filter(|(one, ..)| *one == holder).collect();
                    if newest_first {
                        own.reverse();
                    }
                    let mut missing = n;
                    for (_, left, _) in own {
                        let part = missing.min(*left);
                        *left -= part;
                        missing -= part;
                    }
                    spent.push((now, (n - missing) as i64));
                }
                Act::Report { holder } => {
                    let of = |(one, left, _): &(u32, u64, i64)| if *one == holder { *left } else { 0 };
                    let holding = held.iter().map(of).sum();
                    account.report(budget, Holder(holder), holding, now);
                }
            }
            account.advance(budget, now);
            prop_assert!(account.credit() + account.reserved() as f64 <= 100.0 + 1e-6);
            let out: u64 = held.iter().filter(|(_, _, end)| *end > now).map(|one| one.1).sum();
            prop_assert!(account.leased() >= out, "{} < {out}", account.leased());
        }
        for first in 0..spent.len() {
            let mut sum = 0;
            for last in first..spent.len() {
                sum += spent[last].1;
                let length_s = (spent[last].0 - spent[first].0) as f64 / 1e9;
                let bound = 100.0 + rate * length_s;
                prop_assert!(sum as f64 <= bound + 1e-6, "{sum} > {bound}");
                let within = spent[first].0..=spent[last].0;
                let of = |(at, taken): &(i64, f64)| if within.contains(at) { *taken } else { 0.0 };
                let all = sum as f64 + debits.iter().map(of).sum::<f64>();
                prop_assert!(all <= bound + 100.0 + 1e-6, "{all} > {bound} and a debt");
            }
        }
    }
}
