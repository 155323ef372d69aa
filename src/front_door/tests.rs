//! The front door as senders, guessers and operators meet it.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::config::ClassConfig;
use super::networks::Network;
use super::*;
use crate::units::Millis;

const SEC: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SEC;
const QUERY: RouteClass = RouteClass::Query;

/// A door for queries.
fn door(query: ClassConfig) -> FrontDoor {
    with(FrontDoorConfig { query, ..FrontDoorConfig::default() })
}

fn with(config: FrontDoorConfig) -> FrontDoor {
    config.validate().expect("a good configuration");
    FrontDoor::new(&config, b"a salt of a test")
}

fn failures(per_minute: u32) -> ClassConfig {
    ClassConfig { failures_per_minute: per_minute, ..ClassConfig::default() }
}

fn enter(door: &FrontDoor, address: &str, bearer: &str, now_ns: i64) -> Result<Pass, Refusal> {
    let line = format!("Bearer {bearer}");
    let lines = (!bearer.is_empty()).then_some(line.as_bytes());
    door.enter(QUERY, address.parse().expect("an address"), lines.into_iter(), now_ns)
}

/// A whole request; tells whether it got in.
fn visit(door: &FrontDoor, address: &str, bearer: &str, outcome: Outcome, now_ns: i64) -> bool {
    match enter(door, address, bearer, now_ns) {
        Err(_) => false,
        Ok(pass) => {
            door.leave(pass, outcome, now_ns);
            true
        }
    }
}

fn over(refused: Result<Pass, Refusal>) -> OverLimit {
    match refused {
        Err(Refusal::OverLimit(over)) => over,
        other => panic!("{other:?}"),
    }
}

fn metric(door: &FrontDoor, line: &str) -> bool {
    let mut families = crate::exposition::Families::default();
    door.read_metrics(&mut families);
    let text = prometheus::TextEncoder::new().encode_to_string(&families.into_vec());
    text.expect("text").lines().any(|shown| shown == line)
}

use Outcome::{Aborted, Failed, Succeeded, Uncounted};

#[test]
fn without_a_number_nobody_is_limited() {
    let door = door(ClassConfig::default());
    for _ in 0..10_000 {
        assert!(visit(&door, "192.0.2.1", "x", Failed, SEC));
    }
}

#[test]
fn an_address_fails_as_often_as_it_may_and_no_one_else_pays() {
    let door = door(failures(60));
    for _ in 0..60 {
        assert!(visit(&door, "192.0.2.1", "x", Failed, SEC));
    }
    let over = over(enter(&door, "192.0.2.1", "x", SEC));
    assert_eq!((over.limiter, over.wait_ns), (Limiter::Failures, SEC as u64));
    assert_eq!((over.left.burst, over.left.credits), (60, 0.0));
    assert!(visit(&door, "192.0.2.2", "x", Failed, SEC));
    // One a second comes back, and at most twice the number passes in any minute.
    let passed = (0..600).filter(|at| visit(&door, "192.0.2.1", "x", Failed, SEC + at * SEC / 10));
    assert_eq!(passed.count(), 59);
    assert!(metric(&door, "freehold_front_door_failures_total{class=\"query\"} 120"));
}

#[test]
fn success_and_our_own_refusals_cost_nothing() {
    let door = door(ClassConfig { ..failures(2) });
    for _ in 0..1000 {
        assert!(visit(&door, "192.0.2.1", "", Succeeded, SEC));
        assert!(visit(&door, "192.0.2.1", "", Uncounted, SEC));
    }
    assert!(visit(&door, "192.0.2.1", "", Aborted, SEC), "one");
    assert!(visit(&door, "192.0.2.1", "", Failed, SEC), "two");
    assert!(!visit(&door, "192.0.2.1", "", Succeeded, SEC));
}

#[test]
fn what_is_under_way_is_reserved() {
    let door = door(failures(3));
    let under_way: Vec<_> =
        (0..3).map(|_| enter(&door, "192.0.2.1", "guess", SEC).expect("credit")).collect();
    assert!(!visit(&door, "192.0.2.1", "guess", Succeeded, SEC));
    under_way.into_iter().for_each(|pass| door.leave(pass, Succeeded, SEC));
    assert!(visit(&door, "192.0.2.1", "guess", Succeeded, SEC));
}

#[test]
fn case_r36_random_credentials_do_not_evade_the_address() {
    let door = door(ClassConfig { requests_per_credential_per_minute: 240, ..failures(60) });
    let tries = (0..10_000).map(|at| (at, SEC + at * MINUTE / 10_000));
    let passed = tries.filter(|&(at, now)| visit(&door, "192.0.2.1", &at.to_string(), Failed, now));
    assert_eq!(passed.count(), 60 + 59);
}

#[test]
fn case_f16_walking_a_network_opens_no_second_budget() {
    let door = door(failures(60));
    let passed = (0..10_000).filter(|at| {
        let address = format!("2001:db8:1:22{:02x}::{at:x}", at % 256);
        visit(&door, &address, "", Failed, SEC)
    });
    assert_eq!(passed.count(), 60);
    assert!(metric(&door, "freehold_front_door_entries{class=\"query\",table=\"addresses\"} 1"));
}

#[test]
fn who_was_right_before_gets_in_beside_one_who_guesses() {
    let door = door(failures(60));
    for colleague in 0..199 {
        assert!(visit(&door, "192.0.2.1", &format!("good {colleague}"), Succeeded, SEC));
    }
    // The looping one takes every credit that there is, and each that comes back, for nine minutes.
    while visit(&door, "192.0.2.1", "expired", Failed, SEC) {}
    for second in 0..540 {
        let now = (2 + second) * SEC;
        let looping = (0..10).filter(|_| visit(&door, "192.0.2.1", "expired", Failed, now));
        assert_eq!(looping.count(), 1);
        let colleague = format!("good {}", second % 199);
        assert!(visit(&door, "192.0.2.1", &colleague, Succeeded, now), "{second}");
        assert!(!visit(&door, "192.0.2.1", &format!("guess {second}"), Succeeded, now));
    }
    assert!(metric(&door, "freehold_front_door_proven_total{class=\"query\"} 540"));
}

#[test]
fn a_proof_ends_with_a_failure_and_with_its_time_and_the_failure_is_charged() {
    let door = door(failures(2));
    let at = "192.0.2.1";
    assert!(visit(&door, at, "good", Succeeded, SEC));
    let spend = |now| while visit(&door, at, "", Failed, now) {};
    spend(SEC);
    // Aborted says nothing against the credential; it is charged, into debt.
    assert!(visit(&door, at, "good", Aborted, SEC));
    assert!(visit(&door, at, "good", Failed, SEC));
    assert!(!visit(&door, at, "good", Succeeded, SEC), "no longer proven");
    let over = over(enter(&door, at, "good", SEC));
    assert_eq!((over.left.credits, over.wait_ns), (-1.0, MINUTE as u64));
    // Proven again, and ten minutes later no more.
    let later = 10 * MINUTE;
    assert!(visit(&door, at, "good", Succeeded, later));
    spend(later);
    assert!(visit(&door, at, "good", Succeeded, later + 1));
    spend(20 * MINUTE);
    assert!(visit(&door, at, "good", Uncounted, 20 * MINUTE));
    spend(20 * MINUTE + 1);
    assert!(!visit(&door, at, "good", Succeeded, 20 * MINUTE + 1));
}

#[test]
fn a_proof_is_of_a_credential_at_its_address_for_its_class() {
    let config =
        FrontDoorConfig { query: failures(1), admin: failures(1), ..FrontDoorConfig::default() };
    let door = with(config);
    let (one, good) = ("192.0.2.1", "good");
    // A page that everybody may see proves nothing to a tenant's data.
    let ip: IpAddr = one.parse().expect("an address");
    let lines = || [&b"Bearer good"[..]].into_iter();
    let pass = door.enter(RouteClass::Admin, ip, lines(), SEC).expect("in");
    door.leave(pass, Succeeded, SEC);
    assert!(visit(&door, one, "other", Failed, SEC));
    assert!(!visit(&door, one, good, Succeeded, SEC));
    assert!(visit(&door, "192.0.2.2", good, Succeeded, SEC));
    assert!(!visit(&door, one, good, Succeeded, SEC), "proven elsewhere");
    // Nothing presented is nothing proven.
    assert!(visit(&door, "192.0.2.3", "", Succeeded, SEC));
    assert!(visit(&door, "192.0.2.3", "", Failed, SEC));
    assert!(!visit(&door, "192.0.2.3", "", Succeeded, SEC));
}

#[test]
fn proofs_can_be_turned_off() {
    let proven_for = Millis(0);
    let door = with(FrontDoorConfig { query: failures(1), proven_for, ..Default::default() });
    assert!(visit(&door, "192.0.2.1", "good", Succeeded, SEC));
    assert!(visit(&door, "192.0.2.1", "bad", Failed, SEC));
    assert!(!visit(&door, "192.0.2.1", "good", Succeeded, SEC));
}

#[test]
fn requests_are_counted_by_address_and_by_credential() {
    let door = door(ClassConfig {
        requests_per_address_per_minute: 10,
        requests_per_credential_per_minute: 4,
        ..ClassConfig::default()
    });
    let at = "192.0.2.1";
    for _ in 0..4 {
        assert!(visit(&door, at, "one", Succeeded, SEC));
    }
    assert_eq!(over(enter(&door, at, "one", SEC)).limiter, Limiter::Credential);
    // Cases R20 to R22: what the credential was refused has cost the address nothing.
    for _ in 0..100 {
        assert!(!visit(&door, at, "one", Succeeded, SEC));
    }
    for _ in 0..4 {
        assert!(visit(&door, at, "two", Succeeded, SEC));
    }
    // The same credential elsewhere has the same budget.
    assert!(!visit(&door, "192.0.2.2", "two", Succeeded, SEC));
    for _ in 0..2 {
        assert!(visit(&door, at, "", Succeeded, SEC));
    }
    let over = over(enter(&door, at, "", SEC));
    assert_eq!((over.limiter, over.wait_ns), (Limiter::Address, 6 * SEC as u64));
}

#[test]
fn several_credentials_are_none() {
    let door = door(ClassConfig { requests_per_credential_per_minute: 1, ..Default::default() });
    let ip: IpAddr = [192, 0, 2, 1].into();
    let two = || [&b"Bearer a"[..], b"Bearer b"].into_iter();
    let pass = door.enter(QUERY, ip, two(), SEC).expect("the address' first");
    door.leave(pass, Succeeded, SEC);
    assert!(!visit(&door, "192.0.2.1", "", Succeeded, SEC), "one budget for what is none");
    assert!(visit(&door, "192.0.2.1", "a", Succeeded, SEC));
}

#[test]
fn a_refused_request_gives_back_its_reservation() {
    let door = door(ClassConfig { requests_per_credential_per_minute: 1, ..failures(2) });
    assert!(visit(&door, "192.0.2.1", "x", Uncounted, SEC));
    for _ in 0..100 {
        assert!(!visit(&door, "192.0.2.1", "x", Uncounted, SEC));
    }
    assert!(visit(&door, "192.0.2.1", "y", Failed, SEC));
    assert!(visit(&door, "192.0.2.1", "z", Failed, SEC));
    assert_eq!(over(enter(&door, "192.0.2.1", "w", SEC)).limiter, Limiter::Failures);
}

#[test]
fn case_r23_and_r24_a_shadow_counts_and_the_next_limiter_still_limits() {
    let config = ClassConfig {
        failures_per_minute: 5,
        requests_per_address_per_minute: 10,
        requests_per_credential_per_minute: 20,
        shadow: vec![Limiter::Failures, Limiter::Address],
    };
    let door = door(config);
    let passed = (0..30).filter(|_| visit(&door, "192.0.2.1", "x", Failed, SEC)).count();
    assert_eq!(passed, 20);
    let is = |metric_line: &str, count: usize| {
        assert!(metric(&door, &format!("{metric_line} {count}")), "{metric_line} {count}");
    };
    let shadow = "freehold_front_door_shadow_refused_total{class=\"query\",limiter=";
    is(&format!("{shadow}\"failures\"}}"), 25);
    is(&format!("{shadow}\"address\"}}"), 20);
    is(&format!("{shadow}\"credential\"}}"), 0);
    let refused = "freehold_front_door_refused_total{class=\"query\",limiter=";
    is(&format!("{refused}\"failures\"}}"), 0);
    is(&format!("{refused}\"credential\"}}"), 10);
}

#[test]
fn a_denied_address_gets_nothing_and_an_allowed_one_everything() {
    let networks = |text: &str| vec![Network::parse(text).expect("a network")];
    let door = with(FrontDoorConfig {
        allow: networks("192.0.2.0/24"),
        deny: networks("192.0.2.128/25"),
        query: ClassConfig { requests_per_address_per_minute: 1, ..failures(1) },
        ..FrontDoorConfig::default()
    });
    for _ in 0..10 {
        assert!(visit(&door, "192.0.2.1", "x", Failed, SEC));
        assert!(visit(&door, "::ffff:192.0.2.1", "x", Failed, SEC));
        assert!(matches!(enter(&door, "192.0.2.200", "x", SEC), Err(Refusal::Denied)));
    }
    assert!(visit(&door, "198.51.100.1", "x", Failed, SEC));
    assert!(!visit(&door, "198.51.100.1", "x", Failed, SEC));
    assert!(metric(&door, "freehold_front_door_denied_total 10"));
}

#[test]
fn a_new_salt_forgets_neither_debts_nor_proofs_nor_what_is_under_way() {
    let config = ClassConfig {
        requests_per_address_per_minute: 100,
        requests_per_credential_per_minute: 100,
        ..failures(4)
    };
    let door = door(config);
    let at = "192.0.2.1";
    assert!(visit(&door, at, "good", Succeeded, SEC));
    let [kept, returned] = [(); 2].map(|()| enter(&door, at, "guess", SEC).expect("in"));
    assert!(visit(&door, at, "", Failed, SEC));
    let asked = enter(&door, at, "", SEC).expect("the last credit");
    assert!(enter(&door, at, "", SEC).is_err());
    door.rotate(b"another salt of a test", SEC);
    assert!(enter(&door, at, "", SEC).is_err(), "the debt is found");
    assert!(visit(&door, at, "good", Succeeded, SEC), "and the proof");
    door.leave(kept, Failed, SEC);
    door.leave(returned, Succeeded, SEC);
    let over =
        over(enter(&door, at, "guess 2", SEC).and_then(|_| enter(&door, at, "guess 3", SEC)));
    assert_eq!(over.left.credits, 0.0, "one of two came back");
    door.leave(asked, Uncounted, SEC);
    assert!(metric(&door, "freehold_front_door_entries{class=\"query\",table=\"addresses\"} 1"));
    assert!(metric(&door, "freehold_front_door_salt_rotations_total 1"));
    // A second one, and the time of the first is over.
    let later = 11 * MINUTE;
    door.rotate(b"a third salt of a test", later);
    assert!(visit(&door, at, "", Failed, later));
    let under_second = enter(&door, at, "", later).expect("credit");
    door.leave(under_second, Failed, later + 11 * MINUTE);
}

#[test]
fn a_failure_under_a_new_salt_ends_a_proof_of_the_old_one() {
    let door = door(failures(1));
    let at = "192.0.2.1";
    assert!(visit(&door, at, "good", Succeeded, SEC));
    let under_way = enter(&door, at, "good", SEC).expect("proven");
    door.rotate(b"another salt of a test", SEC);
    door.leave(under_way, Failed, SEC);
    assert!(!visit(&door, at, "good", Succeeded, SEC), "no proof, and the failure was charged");
}

#[test]
fn an_answer_says_what_its_class_counts() {
    let auth = door(failures(1));
    let all = with(FrontDoorConfig {
        write_failures: WriteFailures::All,
        charge_own_refusals: true,
        ..FrontDoorConfig::default()
    });
    let answer = |status| Answer { status, is_own_refusal: false, is_unreadable: false };
    for (status, query, write) in [
        (200, Succeeded, Succeeded),
        (204, Succeeded, Succeeded),
        (302, Succeeded, Succeeded),
        (400, Failed, Uncounted),
        (401, Failed, Failed),
        (403, Failed, Failed),
        (404, Failed, Uncounted),
        (422, Failed, Uncounted),
        (429, Failed, Uncounted),
        (500, Failed, Uncounted),
        (504, Failed, Uncounted),
    ] {
        assert_eq!(auth.outcome(QUERY, answer(status)), query, "{status}");
        assert_eq!(auth.outcome(RouteClass::Admin, answer(status)), query, "{status}");
        assert_eq!(auth.outcome(RouteClass::Write, answer(status)), write, "{status}");
        assert_eq!(all.outcome(RouteClass::Write, answer(status)), query, "{status}");
    }
    let own = Answer { is_own_refusal: true, ..answer(429) };
    let unreadable = Answer { is_unreadable: true, ..answer(400) };
    for class in RouteClass::ALL {
        assert_eq!(auth.outcome(class, own), Uncounted);
        assert_eq!(all.outcome(class, own), Failed);
        assert_eq!(auth.outcome(class, unreadable), Failed);
        assert_eq!(all.outcome_of_abort(class), Aborted);
    }
    assert_eq!(auth.outcome_of_abort(QUERY), Aborted);
    assert_eq!(auth.outcome_of_abort(RouteClass::Write), Uncounted);
}

#[test]
fn case_r5_r6_and_r38_what_is_left_is_told_as_it_stands() {
    let config = ClassConfig { requests_per_credential_per_minute: 60, ..Default::default() };
    let door = door(config);
    let left = |now_ns| {
        let pass = enter(&door, "192.0.2.1", "x", now_ns).expect("in");
        let (limiter, left) = pass.left().expect("a limiter on requests");
        door.leave(pass, Succeeded, now_ns);
        assert_eq!((limiter, left.burst), (Limiter::Credential, 60));
        left.credits
    };
    assert_eq!(left(SEC), 59.0);
    (0..58).for_each(|_| _ = left(SEC));
    assert_eq!(left(SEC), 0.0);
    assert_eq!(left(SEC + 30 * SEC), 29.0, "half of it is back after half of the time");
    assert_eq!(left(600 * SEC), 59.0, "and never more than all");
}

#[test]
fn case_r3_credits_come_back_while_requests_keep_coming() {
    let config = ClassConfig { requests_per_address_per_minute: 20, ..Default::default() };
    let door = door(config);
    (0..20).for_each(|_| assert!(visit(&door, "192.0.2.1", "", Succeeded, SEC)));
    let came = (1..=11).filter(|at| visit(&door, "192.0.2.1", "", Succeeded, SEC + at * SEC));
    assert_eq!(came.collect::<Vec<_>>(), [3, 6, 9]);
}

#[test]
fn case_r42_no_wait_is_longer_than_a_whole_bucket() {
    let door = door(ClassConfig { requests_per_address_per_minute: 10, ..failures(10) });
    let hour = 60 * MINUTE;
    for now in [SEC, hour, 2 * SEC, 3 * SEC] {
        (0..30).for_each(|_| _ = visit(&door, "192.0.2.1", "", Failed, now));
    }
    let over = over(enter(&door, "192.0.2.1", "", 4 * SEC));
    assert!(over.wait_ns <= MINUTE as u64, "{}", over.wait_ns);
    assert!(visit(&door, "192.0.2.1", "", Failed, hour + MINUTE));
}

#[test]
fn threads_together_get_no_more_than_one() {
    let door = door(ClassConfig { requests_per_address_per_minute: 5_000, ..failures(100) });
    let passed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (door, passed) = (&door, &passed);
            scope.spawn(move || {
                for turn in 0..2_000 {
                    let bearer = format!("{thread} {turn}");
                    let outcome = if turn % 3 == 0 { Failed } else { Aborted };
                    if visit(door, "192.0.2.1", &bearer, outcome, SEC) {
                        passed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(passed.load(Ordering::Relaxed), 100);
    assert_eq!(over(enter(&door, "192.0.2.1", "", SEC)).left.credits, 0.0);
}

#[test]
fn case_r33_success_of_many_at_once_leaks_nothing() {
    let door = door(failures(50));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let door = &door;
            scope.spawn(move || {
                for turn in 0..2_000 {
                    if turn == 1_000 && thread == 0 {
                        door.rotate(b"another salt of a test", SEC);
                    }
                    assert!(visit(door, "192.0.2.1", "", Succeeded, SEC));
                }
            });
        }
    });
    for _ in 0..50 {
        assert!(visit(&door, "192.0.2.1", "", Failed, SEC), "every reservation came back");
    }
    assert!(!visit(&door, "192.0.2.1", "", Failed, SEC));
}

#[test]
fn nothing_that_is_kept_is_what_it_stands_for() {
    let config = ClassConfig {
        requests_per_address_per_minute: 100,
        requests_per_credential_per_minute: 100,
        ..failures(60)
    };
    let door = door(config);
    let token = "s3cr3t-t0k3n";
    for address in ["203.0.113.77", "2001:db8:77:7700::1"] {
        assert!(visit(&door, address, token, Succeeded, SEC));
        let pass = enter(&door, address, token, SEC).expect("in");
        let shown = format!("{door:?} {pass:?}");
        door.leave(pass, Failed, SEC);
        for raw in
            ["203.0.113", "203, 0, 113", "cb00714d", "2001:db8", "20010db8", token, "73336372"]
        {
            assert!(!shown.to_lowercase().contains(raw), "{raw} in {shown}");
        }
        assert!(shown.len() > 1000, "all tables are shown: {shown}");
    }
}

#[test]
fn a_proven_pair_hides_no_more_guesses_than_an_address_may_fail() {
    let door = door(failures(60));
    let at = "192.0.2.1";
    assert!(visit(&door, at, "good", Succeeded, SEC));
    let mut failed = 0;
    for cycle in 0..5 {
        let now = SEC + cycle * SEC;
        // Two slow ones go well, and a crowd in between does not.
        let slow: Vec<_> = (0..2).filter_map(|_| enter(&door, at, "good", now).ok()).collect();
        let crowd: Vec<_> = (0..80).filter_map(|_| enter(&door, at, "good", now).ok()).collect();
        for pass in crowd {
            door.leave(pass, Failed, now + SEC / 2);
            failed += 1;
        }
        for pass in slow {
            door.leave(pass, Succeeded, now + SEC * 9 / 10);
        }
    }
    // Those that were hidden, those that reserved, and what came back meanwhile.
    assert!(failed <= 60 + 60 + 6, "{failed}");
}
