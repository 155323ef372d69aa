//! Who goes at the bound, and what is remembered of it.

use super::*;

const S: i64 = 1_000_000_000;

fn terms(rate: f64, burst: u64, tracked_max: usize) -> Terms {
    Terms { budget: Budget { rate, burst }, tracked_max }
}

fn hash(name: &str) -> KeyHash {
    KeyHash(xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
}

fn spend(accounts: &mut Accounts, name: &str, n: u64, now_ns: i64) -> bool {
    let budget = accounts.terms().budget;
    let account = accounts.get(hash(name), name, now_ns, || Start::Full);
    account.spend(budget, n, now_ns).is_ok()
}

#[test]
fn case_r12_evictions_are_counted_by_kind_and_debt_is_remembered() {
    let mut accounts = Accounts::new(terms(1.0, 10, 2));
    for name in ["a", "b", "c"] {
        assert!(spend(&mut accounts, name, 10, 0));
    }
    assert_eq!(accounts.len(), 2);
    let expect = Evictions { in_debt: 1, ..Evictions::default() };
    assert_eq!(accounts.evictions, expect, "a went, in debt");
    assert!(!spend(&mut accounts, "a", 1, 0), "and is as much in debt when it comes back");
    assert!(spend(&mut accounts, "a", 5, 5 * S), "its debt has shrunk meanwhile");
    assert!(!spend(&mut accounts, "a", 1, 5 * S));
}

#[test]
fn a_debt_below_nothing_is_remembered_of_who_had_to_go() {
    let mut accounts = Accounts::new(terms(1.0, 10, 1));
    let budget = accounts.terms().budget;
    accounts.get(hash("a"), "a", 0, || Start::Full).debit(budget, 18, 0);
    assert!(spend(&mut accounts, "b", 10, 0), "a is pushed out");
    assert_eq!(accounts.evictions.in_debt, 1);
    let account = accounts.get(hash("a"), "a", 3 * S, || Start::Full);
    assert_eq!(account.credit(), -5.0, "3 s have paid 3 of 8");
    accounts.sweep(17 * S);
    assert_eq!(accounts.len(), 1, "10 more are owed than the burst alone");
    accounts.sweep(18 * S);
    assert_eq!(accounts.len(), 0);
}

#[test]
fn who_owes_nothing_goes_before_who_was_used_least_lately() {
    let mut accounts = Accounts::new(terms(1.0, 10, 3));
    assert!(spend(&mut accounts, "debtor", 10, 0));
    assert!(spend(&mut accounts, "rich", 1, 0));
    assert!(spend(&mut accounts, "late", 10, S));
    assert!(spend(&mut accounts, "new", 1, 2 * S));
    assert_eq!(accounts.evictions, Evictions { refilled: 1, ..Evictions::default() });
    assert!(accounts.find(hash("debtor"), "debtor").is_some());
    assert!(accounts.find(hash("rich"), "rich").is_none());
}

#[test]
fn a_flood_of_names_leaves_a_debtor_its_debt_and_a_client_in_use_its_account() {
    let mut accounts = Accounts::new(terms(100.0, 10_000, 1000));
    assert!(spend(&mut accounts, "debtor", 10_000, 0));
    for at in 0..200_000_i64 {
        // 10,000 names a second, each owing a little.
        let now = at * (S / 10_000);
        assert!(spend(&mut accounts, &format!("name-{at}"), 50, now));
        if at % 200 == 0 {
            assert!(spend(&mut accounts, "steady", 1, now));
        }
    }
    assert_eq!(accounts.len(), 1000);
    let now = 20 * S;
    assert!(!spend(&mut accounts, "debtor", 2_100, now), "20 s have brought 2,000");
    assert!(spend(&mut accounts, "debtor", 1_900, now));
    let budget = accounts.terms().budget;
    let steady = accounts.get(hash("steady"), "steady", now, || Start::Full);
    steady.advance(budget, now);
    assert!(steady.credit() > 9_990.0, "{}", steady.credit());
}

#[test]
fn case_r19_a_limit_that_was_raised_admits_the_next() {
    let mut accounts = Accounts::new(terms(10.0, 10, 10));
    assert!(spend(&mut accounts, "a", 10, 0));
    for _ in 0..50 {
        assert!(!spend(&mut accounts, "a", 1, 0));
    }
    accounts.set_terms(terms(20.0, 20, 10), 0);
    assert!(spend(&mut accounts, "a", 2, S / 10));
}

#[test]
fn a_bound_that_was_lowered_is_kept_at_once() {
    let mut accounts = Accounts::new(terms(1.0, 10, 100));
    for at in 0..100 {
        assert!(spend(&mut accounts, &format!("{at}"), 5, at));
    }
    accounts.set_terms(terms(1.0, 10, 7), 100);
    assert_eq!(accounts.len(), 7);
    assert_eq!(accounts.evictions.in_debt, 93);
}

#[test]
fn entries_that_move_keep_their_names_and_their_order() {
    let mut accounts = Accounts::new(terms(1.0, 10, 50));
    let mut kept = Vec::new();
    for at in 0..500_u64 {
        let name = format!("{}", at * 7919 % 60);
        spend(&mut accounts, &name, 1, at as i64);
        kept.retain(|one| *one != name);
        kept.push(name);
        if kept.len() > 50 {
            kept.remove(0);
        }
        if at % 11 == 0 {
            let gone = kept.remove(at as usize % kept.len());
            accounts.remove(hash(&gone), &gone);
        }
        for name in &kept {
            assert!(accounts.find(hash(name), name).is_some(), "{name} at {at}");
        }
        assert_eq!(accounts.len(), kept.len());
    }
}

#[test]
fn a_sweep_leaves_who_owes() {
    let mut accounts = Accounts::new(terms(1.0, 10, 50));
    for at in 0..20_u64 {
        spend(&mut accounts, &format!("{at}"), at % 10 + 1, 0);
    }
    accounts.sweep(5 * S);
    assert_eq!(accounts.len(), 10);
    assert!(!accounts.is_idle(5 * S));
    accounts.sweep(10 * S);
    assert!(accounts.is_idle(10 * S));
}

#[test]
fn an_account_costs_less_than_a_hundred_bytes_without_its_name() {
    let entry = std::mem::size_of::<Entry>() - std::mem::size_of::<Box<str>>();
    // With the index at its load and a ghost of its own.
    let index = 5.0 / 0.4375_f64;
    assert!(entry as f64 + index + 16.0 <= 112.0, "{entry}");
    assert!(entry <= 72, "{entry}");
}
