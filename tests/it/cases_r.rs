//! Cases of budgets by their ids, on gates that talk at once and on a clock of the test's.
//!
//! Those that need sockets are in `budgets`, those that need processes in `budget_gates`, and those
//! of one account or lease beside its code.

use std::collections::HashSet;
use std::sync::Arc;

use freehold::clients::config::{ColdStart, OwnerLost};
use freehold::clients::key::KEY_SECRET_BYTES;
use freehold::clients::{
    Cause, Decision, Gate, GateSettings, Key, KeyHasher, Kind, Outcome, OwnerMap, Refusal, Terms,
};
use freehold::ratelimit::Budget;

use super::process::is_long;

const SECOND: i64 = 1_000_000_000;
/// Long after the gates have learned what there was before them.
const BEGIN: i64 = 100 * SECOND;

struct Gates {
    gates: Vec<Gate<()>>,
    ids: Vec<Arc<str>>,
}

fn terms(rate: f64, burst: u64) -> Terms {
    Terms { budget: Budget { rate, burst }, tracked_max: 1000 }
}

fn client(name: &str) -> Key<'_> {
    Key { kind: Kind::ClientWrites, tenant: "team", client: name }
}

impl Gates {
    fn new(len: usize, owner_lost: OwnerLost) -> Self {
        let ids: Vec<Arc<str>> = (0..len).map(|at| format!("gate-{at}").into()).collect();
        let tokens: Vec<_> =
            (0..1024_u32).map(|token| (token << 22, (token as usize % len) as u16)).collect();
        let gate = |id: &Arc<str>| {
            let settings = GateSettings { owner_lost, cold_start: ColdStart::OneSecond };
            let hasher = KeyHasher::new([5; KEY_SECRET_BYTES]);
            let gate = Gate::new(Arc::clone(id), settings, hasher);
            for peer in ids.iter().filter(|peer| *peer != id) {
                gate.link(Arc::clone(peer), Box::new(|| {}));
            }
            gate.publish(OwnerMap::new(&tokens, &ids, id), 0);
            gate
        };
        Self { gates: ids.iter().map(gate).collect(), ids }
    }

    /// Decides at one gate; its owner answers within no time.
    fn charge(
        &self,
        at: usize,
        key: Key<'_>,
        n: u64,
        terms: Terms,
        now_ns: i64,
    ) -> Option<Refusal> {
        let gate = &self.gates[at];
        let asking = match gate.decide(key, n, terms, now_ns) {
            Decision::Admitted(_) => {
                // It may have asked for the next lease.
                self.talk(at, key, terms, now_ns);
                return None;
            }
            Decision::Refused(refusal) => return Some(refusal),
            Decision::Ask(asking) => asking,
            Decision::Lost => panic!("the ring is known"),
        };
        if gate.ask(asking, ()).is_err() {
            return match gate.lost(key, n, terms, now_ns) {
                Decision::Admitted(_) => None,
                Decision::Refused(refusal) => Some(refusal),
                other => panic!("a policy decides: {other:?}"),
            };
        }
        match self.talk(at, key, terms, now_ns) {
            Some(Outcome::Admitted(_)) => None,
            Some(Outcome::Denied { wait_ns }) => {
                Some(Refusal { cause: Cause::Budget, budget: terms.budget, asked: n, wait_ns })
            }
            other => panic!("the owner answers: {other:?}"),
        }
    }

    fn talk(&self, at: usize, key: Key<'_>, terms: Terms, now_ns: i64) -> Option<Outcome> {
        let owner = self.owner(key);
        let mut outcome = None;
        while let Some(batch) = self.gates[at].next_batch(&self.ids[owner], now_ns) {
            let asker = &self.ids[at];
            let answers = self.gates[owner].serve(asker, 1, &batch, &|_, _| Some(terms), now_ns);
            let answers = answers.expect("a new batch");
            let outcomes = self.gates[at].answered(&self.ids[owner], answers, now_ns);
            outcome = outcomes.into_iter().next_back().map(|(_, outcome)| outcome).or(outcome);
        }
        outcome
    }

    fn owner(&self, key: Key<'_>) -> usize {
        let owner = self.gates[0].owner_of(key).expect("an owner");
        self.ids.iter().position(|id| *id == owner).expect("one of them")
    }

    /// One that does not own the key.
    fn other(&self, key: Key<'_>) -> usize {
        (self.owner(key) + 1) % self.gates.len()
    }

    fn kill(&self, dead: usize, now_ns: i64) {
        for (_, gate) in self.gates.iter().enumerate().filter(|(at, _)| *at != dead) {
            gate.link_down(&self.ids[dead], now_ns);
        }
    }
}

#[test]
fn case_r2_the_time_of_the_next_credit_stays_while_a_debt_is_asked_about() {
    let (key, terms) = (client("w"), terms(1.0, 10));
    // Asked at the owner, and elsewhere.
    for place in [Gates::owner, Gates::other] {
        let gates = Gates::new(2, OwnerLost::Deny);
        let at = place(&gates, key);
        assert_eq!(gates.charge(gates.owner(key), key, 10, terms, BEGIN), None);
        let mut due = HashSet::new();
        for step in 0..40 {
            let now_ns = BEGIN + step * SECOND / 4;
            if let Some(refusal) = gates.charge(at, key, 10, terms, now_ns) {
                let wait_ns = refusal.wait_ns.expect("it comes back");
                // To the millisecond, since waits are rounded up.
                due.insert((now_ns + wait_ns as i64 - BEGIN + 500_000) / 1_000_000);
            }
        }
        assert_eq!(due, HashSet::from([10_000]), "gate {at}");
        // Credits are doubles, and forty looks have rounded them.
        let now_ns = BEGIN + 10 * SECOND + 1000;
        assert_eq!(gates.charge(at, key, 10, terms, now_ns), None, "it is refilled");
    }
}

#[test]
fn case_r6_the_wait_is_that_for_all_credits_that_are_missing() {
    let (key, terms) = (client("w"), terms(2.0, 10));
    for place in [Gates::owner, Gates::other] {
        let gates = Gates::new(2, OwnerLost::Deny);
        let at = place(&gates, key);
        assert_eq!(gates.charge(gates.owner(key), key, 5, terms, BEGIN), None);
        let refusal = gates.charge(at, key, 10, terms, BEGIN).expect("five are missing");
        let wait_ms = refusal.wait_ns.expect("it comes back") / 1_000_000;
        assert_eq!(wait_ms, 2500, "gate {at}");
    }
}

#[test]
fn case_r15_one_of_fifty_at_once_gets_the_last_credit() {
    let gates = Gates::new(1, OwnerLost::Deny);
    let (key, terms) = (client("w"), terms(0.001, 100));
    assert_eq!(gates.charge(0, key, 99, terms, BEGIN), None);
    let admitted: usize = std::thread::scope(|scope| {
        let ask = || usize::from(gates.charge(0, key, 1, terms, BEGIN).is_none());
        let asking: Vec<_> = (0..50).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(admitted, 1);
}

#[test]
fn case_r50_a_request_above_the_burst_never_passes_and_takes_nothing() {
    let gates = Gates::new(2, OwnerLost::Deny);
    let (key, terms) = (client("w"), terms(13_333.0, 3333));
    for at in 0..2 {
        let refusal = gates.charge(at, key, 5000, terms, BEGIN).expect("above the burst");
        assert!(refusal.is_over_burst() && refusal.wait_ns.is_none(), "{refusal:?}");
    }
    assert_eq!(gates.gates[gates.other(key)].counts(BEGIN).asked, 0, "nobody was asked");
    assert_eq!(gates.charge(gates.other(key), key, 3333, terms, BEGIN), None);
}

#[test]
fn case_r54_two_names_that_race_for_one_place_are_both_judged() {
    let gates = Gates::new(1, OwnerLost::Deny);
    let terms = Terms { tracked_max: 1, ..terms(0.001, 100) };
    let rounds = 20_000;
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let gates = &gates;
            scope.spawn(move || {
                let admitted = (0..rounds)
                    .filter(|_| gates.charge(0, client(name), 1, terms, BEGIN).is_none());
                // What it owes is remembered, whoever has the place.
                assert_eq!(admitted.count(), 100, "{name}");
            });
        }
    });
    let owner = gates.gates[0].counts(BEGIN).owner;
    assert_eq!(owner.accounts, 1);
    assert_eq!(owner.evictions.ghosts, 0);
}

#[test]
fn case_r55_without_the_owner_each_gate_has_what_the_policy_says() {
    let (rate, burst) = (0.001, 1000);
    let terms = terms(rate, burst);
    // The three others ask for all that they can get.
    let check = |policy, before: u64, expect: std::ops::RangeInclusive<u64>| {
        let gates = Gates::new(4, policy);
        let key = client("w");
        let owner = gates.owner(key);
        let mut now_ns = BEGIN;
        let mut admitted = 0;
        let mut take = |gates: &Gates, at: usize, now_ns: i64| {
            let taken = gates.charge(at, key, 10, terms, now_ns).is_none();
            admitted += if taken { 10 } else { 0 };
            taken
        };
        for turn in 0..before {
            now_ns += SECOND / 10;
            let at = (owner + 1 + turn as usize % 3) % 4;
            assert!(take(&gates, at, now_ns), "{policy:?}: there is credit");
        }
        gates.kill(owner, now_ns);
        for at in (0..4).filter(|at| *at != owner) {
            for _ in 0..500 {
                take(&gates, at, now_ns);
            }
        }
        assert!(expect.contains(&admitted), "{policy:?}: {admitted}");
    };
    check(OwnerLost::Deny, 0, 0..=0);
    check(OwnerLost::StandingReserve, 0, 0..=0);
    // With leases out there is something in reserve, and never more than the budget.
    check(OwnerLost::StandingReserve, 40, 410..=burst);
    check(OwnerLost::LocalShare, 0, 3 * burst / 4..=3 * burst / 4);
    check(OwnerLost::Allow, 0, 3 * 5000..=3 * 5000);
}

#[test]
fn case_f12_a_client_of_two_tenants_has_two_budgets() {
    let gates = Gates::new(3, OwnerLost::Deny);
    let terms = terms(0.001, 30);
    for tenant in ["a", "b"] {
        let key = Key { kind: Kind::ClientWrites, tenant, client: "w" };
        // Over all gates together.
        let admitted = (0..90).filter(|at| gates.charge(at % 3, key, 1, terms, BEGIN).is_none());
        assert_eq!(admitted.count(), 30, "{tenant}");
    }
}

#[test]
fn case_r40_a_million_names_leave_neighbours_their_budgets_and_debtors_their_debts() {
    let names = if is_long() { 1_000_000 } else { 50_000 };
    let gates = Gates::new(3, OwnerLost::Deny);
    let terms = terms(10.0, 10_000);
    for _ in 0..100 {
        gates.charge(0, client("debtor"), 100, terms, BEGIN);
    }
    assert!(gates.charge(0, client("debtor"), 100, terms, BEGIN).is_some(), "all is spent");
    let mut now_ns = BEGIN;
    for number in 0..names {
        // Two thousand names a second, and between them one who uses half of its rate.
        now_ns += SECOND / 2000;
        let name = format!("once-{number}");
        assert_eq!(gates.charge(number % 3, client(&name), 100, terms, now_ns), None, "{name}");
        if number % 2000 == 0 {
            let well = client("well-behaved");
            assert_eq!(gates.charge(number / 2000 % 3, well, 5, terms, now_ns), None);
        }
        if number % 10_000 == 0 {
            gates.gates.iter().for_each(|gate| gate.sweep(now_ns));
        }
    }
    for gate in &gates.gates {
        let counts = gate.counts(now_ns);
        assert!(counts.owner.accounts <= 1000 && counts.owner.evictions.in_debt > 0, "{counts:?}");
        // What is known of others' clients is what came in the last seconds.
        assert!(counts.known <= 11 * 2000, "{counts:?}");
    }
    let earned = (now_ns - BEGIN) as u64 / SECOND as u64 * 10;
    for at in 0..3 {
        let refused = gates.charge(at, client("debtor"), earned + 100, terms, now_ns);
        assert!(refused.is_some(), "gate {at}: more than it can have earned");
    }
}

/// Sends what `parts` say at each of as many gates, for a minute; how many were refused.
fn refused(parts: &[f64], rate: f64, request: u64) -> (usize, usize) {
    let gates = Gates::new(parts.len(), OwnerLost::StandingReserve);
    let terms = terms(rate, rate as u64);
    let key = Key { kind: Kind::TenantWrites, tenant: "team", client: "" };
    let mut due: Vec<f64> = parts.iter().enumerate().map(|(at, _)| at as f64 / 997.0).collect();
    let (mut refused, mut asked) = (0, 0);
    for step in 0..60_000_i64 {
        let now_ns = BEGIN + step * SECOND / 1000;
        for (at, part) in parts.iter().enumerate() {
            while due[at] <= step as f64 / 1000.0 {
                due[at] += request as f64 / part;
                asked += 1;
                refused += usize::from(gates.charge(at, key, request, terms, now_ns).is_some());
            }
        }
    }
    (refused, asked)
}

#[test]
fn case_c1_one_of_four_gates_may_have_seven_tenths_of_a_tenants_rate() {
    let (refused, asked) = refused(&[700.0, 80.0, 80.0, 80.0], 1000.0, 10);
    assert!(asked > 5000);
    assert_eq!(refused, 0, "of {asked}");
}

#[test]
fn case_c2_r49_zones_of_thirty_five_and_five_gates_are_refused_nothing_within_the_rate() {
    let parts: Vec<f64> =
        (0..40).map(|at| if at < 35 { 45_000.0 / 35.0 } else { 45_000.0 / 5.0 }).collect();
    let (refused, asked) = refused(&parts, 100_000.0, 100);
    assert!(asked > 50_000);
    assert_eq!(refused, 0, "of {asked}");
}
