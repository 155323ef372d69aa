//! Several addresses: who gets a query, what is sent again and what never, who is well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use freehold::units::Millis;

use super::wire::{OK, Seen, Stub, Wire, nowhere};
use super::{Gate, setup, until, url};

const ANSWERED: &str = "freehold_query_downstream_requests_total";
const HEALTHY: &str = "freehold_query_downstream_healthy";

fn post(is_whole: bool) -> String {
    let whole = if is_whole { "X-Test-Whole: 1\r\n" } else { "" };
    format!("POST /p HTTP/1.1\r\nHost: g\r\n{whole}Content-Length: 5\r\n\r\nhello")
}

#[tokio::test]
async fn those_that_are_well_share_the_queries() {
    let (one, two) = (Stub::saying(OK).await, Stub::saying(OK).await);
    let gate = setup(format!("{},{}", one.url(), two.url())).start().await;
    for _ in 0..20 {
        assert_eq!(gate.get("/g").await.status, 200);
    }
    assert_eq!((one.seen().len(), two.seen().len()), (10, 10));
}

#[tokio::test]
async fn the_one_with_less_under_way_gets_the_next() {
    let slow = Stub::start(|mut wire: Wire, notes, _| async move {
        notes.add(wire.request().await.expect("a request"));
        wire.is_closed().await;
    })
    .await;
    let quick = Stub::saying(OK).await;
    let gate = setup(format!("{},{}", slow.url(), quick.url())).start().await;
    let mut hanging = gate.connect().await;
    for _ in 0..10 {
        if !slow.seen().is_empty() {
            break;
        }
        hanging = gate.connect().await;
        hanging.write(b"GET /g HTTP/1.1\r\nHost: g\r\n\r\n").await;
        until("it is somewhere", || slow.seen().len() + quick.seen().len() > 0).await;
    }
    let before = quick.seen().len();
    for _ in 0..10 {
        assert_eq!(gate.get("/g").await.status, 200);
    }
    assert_eq!((slow.seen().len(), quick.seen().len()), (1, before + 10));
    drop(hanging);
}

#[tokio::test]
async fn what_cannot_be_reached_costs_no_query_not_even_one_that_streams() {
    let (gone, stub) = (nowhere().await, Stub::saying(OK).await);
    let gate = setup(format!("{},{}", url(gone), stub.url())).start().await;
    for is_whole in [true, false] {
        for _ in 0..10 {
            let answer = gate.ask(&post(is_whole)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    let seen = stub.seen();
    assert!(seen.len() == 20 && seen.iter().all(|seen| seen.is_whole && seen.body == b"hello"));
    let gone = gone.to_string();
    let labels = [("address", gone.as_str())];
    assert_eq!(gate.metric(HEALTHY, &labels), 0.0);
    let tries = gate.metric(ANSWERED, &[labels[0], ("outcome", "unreachable")]);
    assert!((1.0..5.0).contains(&tries), "not with each query: {tries}");
    assert_eq!(gate.downstreams.well(), (1, 2));
}

#[tokio::test]
async fn where_nobody_can_be_reached_all_are_named_and_the_first_back_is_found() {
    let (one, two) = (nowhere().await, nowhere().await);
    let gate = setup(format!("{},{}", url(one), url(two))).start().await;
    let answer = gate.get("/g").await;
    assert_eq!(answer.status, 503);
    for address in [one, two] {
        assert!(answer.text().contains(&format!("{address} (")), "{}", answer.text());
    }
    let answer = gate.get("/g").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains(&two.to_string()), "{}", answer.text());
    let _back = Stub::start_at(two, |mut wire, notes, _| async move {
        while let Some(seen) = wire.request().await {
            notes.add(seen);
            wire.write(OK.as_bytes()).await;
        }
    })
    .await;
    let asking = async {
        while gate.get("/g").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::PATIENCE, asking).await.expect("it is found again");
}

/// Answers the first request of the first connection, and hangs up on whatever follows it there
/// after `told` of an answer; other connections are answered.
async fn hanging_up(told: &'static str) -> Stub {
    Stub::start(move |mut wire, notes, number| async move {
        while let Some(seen) = wire.request().await {
            let is_second = number == 0 && seen.line().contains("/second");
            notes.add(seen);
            if is_second {
                wire.write(told.as_bytes()).await;
                return;
            }
            wire.write(OK.as_bytes()).await;
        }
    })
    .await
}

async fn second(gate: &Gate, method: &str, is_whole: bool) -> u16 {
    assert_eq!(gate.get("/first").await.status, 200);
    let request = post(is_whole).replace("POST /p", &format!("{method} /second"));
    gate.ask(&request).await.status
}

fn seconds(stub: &Stub) -> usize {
    stub.seen().iter().filter(|seen| seen.line().contains("/second")).count()
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_costs_a_second_try_where_that_is_safe() {
    let check = async |told, method, is_whole, is_repeatable, status, sent| {
        let stub = hanging_up(told).await;
        let mut setup = setup(stub.url());
        setup.is_repeatable = is_repeatable;
        let gate = setup.start().await;
        assert_eq!(second(&gate, method, is_whole).await, status, "{told:?} {method} {is_whole}");
        assert_eq!(seconds(&stub), sent, "{told:?} {method} {is_whole}");
        let repeated = gate.metric("freehold_query_downstream_repeated_total", &[]);
        assert_eq!(repeated, (sent - 1) as f64);
    };
    check("", "GET", true, false, 200, 2).await;
    check("", "POST", true, true, 200, 2).await;
    check("", "POST", true, false, 502, 1).await;
    check("", "PUT", true, false, 502, 1).await;
    // What has been sent of a stream is gone.
    check("", "GET", false, false, 502, 1).await;
    // Something of an answer was heard: it was at work.
    check("HTTP/1.1 2", "GET", true, false, 502, 1).await;
}

#[tokio::test]
async fn a_query_that_kills_who_answers_it_is_not_handed_round() {
    let deadly = || {
        Stub::start(|mut wire: Wire, notes, _| async move {
            notes.add(wire.request().await.expect("a request"));
        })
    };
    let (one, two) = (deadly().await, deadly().await);
    let gate = setup(format!("{},{}", one.url(), two.url())).start().await;
    let answer = gate.get("/g").await;
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert_eq!(one.seen().len() + two.seen().len(), 1);
}

#[tokio::test]
async fn a_restart_of_the_downstream_is_not_noticed() {
    let stub = Stub::saying(OK).await;
    let address = stub.address;
    let gate = setup(stub.url()).start().await;
    for _ in 0..5 {
        assert_eq!(gate.get("/g").await.status, 200);
    }
    drop(stub);
    until("it is gone", || std::net::TcpStream::connect(address).is_err()).await;
    let _again = Stub::start_at(address, |mut wire, _, _| async move {
        while wire.request().await.is_some() {
            wire.write(OK.as_bytes()).await;
        }
    })
    .await;
    for _ in 0..5 {
        assert_eq!(gate.get("/g").await.status, 200);
    }
}

/// Answers queries; its page says whether it is ready.
async fn checked(is_ready: Arc<AtomicBool>) -> Stub {
    Stub::start(move |mut wire, notes, _| {
        let is_ready = Arc::clone(&is_ready);
        async move {
            while let Some(seen) = wire.request().await {
                let is_check = seen.line().starts_with("GET /ready ");
                notes.add(seen);
                match is_check && !is_ready.load(Ordering::SeqCst) {
                    true => wire.write(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").await,
                    false => wire.write(OK.as_bytes()).await,
                };
            }
        }
    })
    .await
}

fn queries(seen: &[Seen]) -> usize {
    seen.iter().filter(|seen| !seen.line().contains("/ready")).count()
}

#[tokio::test]
async fn one_that_says_it_is_not_ready_gets_no_queries_while_others_are() {
    let is_ready = Arc::new(AtomicBool::new(false));
    let sick = checked(Arc::clone(&is_ready)).await;
    let well = checked(Arc::new(AtomicBool::new(true))).await;
    let mut setup = setup(format!("{}/base,{}", sick.url(), well.url()));
    setup.downstream.health_check_path = "/ready".into();
    setup.downstream.health_check_period = Millis(10);
    let gate = setup.start().await;
    until("it is found out", || gate.downstreams.well() == (1, 2)).await;
    for _ in 0..10 {
        assert_eq!(gate.get("/g").await.status, 200);
    }
    assert_eq!((queries(&sick.seen()), queries(&well.seen())), (0, 10));
    // Asked all the same when there is nobody else: it knows best.
    drop(well);
    until("both are found out", || gate.downstreams.well() == (0, 2)).await;
    assert_eq!(gate.get("/g").await.status, 200);
    assert_eq!(queries(&sick.seen()), 1);
    assert!(sick.seen().iter().any(|seen| seen.line() == "GET /base/g HTTP/1.1"));
    is_ready.store(true, Ordering::SeqCst);
    until("it is well again", || gate.downstreams.well() == (1, 2)).await;
    assert!(gate.metric("freehold_query_downstream_failed_checks_total", &[]) >= 2.0);
}

#[tokio::test]
async fn more_than_the_bound_under_way_is_refused_at_once() {
    let stub = Stub::start(|mut wire: Wire, notes, _| async move {
        notes.add(wire.request().await.expect("a request"));
        wire.is_closed().await;
    })
    .await;
    let mut setup = setup(stub.url());
    setup.downstream.max_inflight_requests = 2;
    let gate = setup.start().await;
    let mut hanging = Vec::new();
    for count in 1..=2 {
        let mut wire = gate.connect().await;
        wire.write(b"GET /g HTTP/1.1\r\nHost: g\r\n\r\n").await;
        until("it is there", || stub.seen().len() == count).await;
        hanging.push(wire);
    }
    let answer = gate.get("/g").await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("too many queries under way"));
    drop(hanging);
    until("there is room again", || gate.downstreams.in_flight() == 0).await;
}

#[tokio::test]
async fn a_gate_that_is_behind_itself_says_so() {
    let listener = super::listener().await;
    let address = listener.local_address().expect("bound");
    let gate = setup(url(address)).listen(listener).await;
    let answer = gate.get("/g").await;
    assert_eq!(answer.status, 508, "{}", answer.text());
    assert!(answer.text().contains("-frontend.downstream-url"));
    assert_eq!(gate.metric("freehold_query_downstream_refused_total", &[("reason", "loop")]), 1.0);
}

#[tokio::test]
async fn gates_behind_each_other_are_no_loop() {
    let stub = Stub::saying(OK).await;
    let back = setup(stub.url()).start().await;
    let front = setup(url(back.address)).start().await;
    let answer = front.get("/g").await;
    assert_eq!((answer.status, answer.text()), (200, "ok"));
    assert_eq!(stub.seen()[0].header("x-forwarded-for"), Some("127.0.0.1, 127.0.0.1"));
}
