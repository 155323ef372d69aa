//! What must hold for an address that several share, and for one that nobody has.

use std::time::Instant;

use axum::body::Bytes;
use http::StatusCode;
use tokio::task::JoinSet;

use super::super::process::is_long;
use super::{Lab, PROXY, STRANGER, good, value};

/// Credits that an address has had at most since then: all at once, and what came back.
fn budget(per_minute: usize, since: Instant) -> usize {
    per_minute + (since.elapsed().as_secs_f64() * per_minute as f64 / 60.0) as usize + 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colleagues_keep_working_beside_one_who_loops_on_an_expired_token() {
    const OFFICE: &str = "198.51.100.7";
    let lab = Lab::start(|config| config.front_door.write.failures_per_minute = 60).await;
    let mut sender = lab.sender(PROXY).await;
    let began = Instant::now();
    for colleague in 0..199 {
        assert_eq!(sender.write(OFFICE, &format!("good-{colleague}")).await, 200);
    }
    let mut refused = 0;
    let mut looping = lab.sender(PROXY).await;
    // Six tries for each write of a colleague, so that no credit is ever left.
    for colleague in 0..199 {
        for _ in 0..6 {
            match looping.write(OFFICE, "expired").await {
                401 => {}
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
        let status = sender.write(OFFICE, &format!("good-{colleague}")).await;
        assert_eq!(status, 200, "{colleague}");
    }
    assert!(lab.behind.turned_away() <= budget(60, began), "{}", lab.behind.turned_away());
    assert_eq!(refused, 6 * 199 - lab.behind.turned_away());
    assert_eq!(lab.behind.let_in(), 2 * 199);
    // Somebody new of the office has to wait, unless a credit came back in that very moment;
    // elsewhere nobody has to.
    let mut new = Vec::new();
    for number in 0..10 {
        while looping.write(OFFICE, "expired").await != 429 {}
        new.push(sender.write(OFFICE, &format!("good-new-{number}")).await);
    }
    assert!(new.contains(&429), "{new:?}");
    assert_eq!(sender.write("198.51.100.8", "good-new").await, 200);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_r36_random_tokens_get_no_further_than_the_failure_budget() {
    let tries = if is_long() { 10_000 } else { 2_000 };
    let lab = Lab::start(|config| {
        config.front_door.write.failures_per_minute = 60;
        config.front_door.write.requests_per_credential_per_minute = 240;
    })
    .await;
    let began = Instant::now();
    let mut guessing = JoinSet::new();
    for guesser in 0..4 {
        let mut sender = lab.sender(PROXY).await;
        guessing.spawn(async move {
            for guess in 0..tries / 4 {
                let status = sender.write("198.51.100.7", &format!("{guesser}-{guess}")).await;
                assert!(matches!(status, 401 | 429), "{status}");
            }
        });
    }
    guessing.join_all().await;
    assert!(lab.behind.turned_away() >= 60);
    assert!(lab.behind.turned_away() <= budget(60, began), "{}", lab.behind.turned_away());
    let metrics = lab.metrics().await;
    let refused = "freehold_front_door_refused_total{class=\"write\",limiter=\"failures\"}";
    assert_eq!(value(&metrics, refused) as usize, tries - lab.behind.turned_away());
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walking_a_network_of_one_customer_opens_no_second_budget() {
    let lab = Lab::start(|config| config.front_door.write.failures_per_minute = 60).await;
    let mut sender = lab.sender(PROXY).await;
    let began = Instant::now();
    for step in 0..600 {
        let address = format!("[2001:db8:7:11{:02x}::{:x}]:{}", step % 256, step + 1, 1000 + step);
        let status = sender.write(&address, "guess").await;
        assert!(matches!(status, 401 | 429), "{status}");
    }
    assert!(lab.behind.turned_away() <= budget(60, began), "{}", lab.behind.turned_away());
    assert_eq!(sender.write("2001:db8:7:1200::1", "guess").await, 401, "the next customer");
    let entries = "freehold_front_door_entries{class=\"write\",table=\"addresses\"}";
    assert_eq!(value(&lab.metrics().await, entries), 2.0);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_f16_and_r30_forged_hops_change_nothing() {
    let lab = Lab::start(|config| config.front_door.write.failures_per_minute = 60).await;
    let began = Instant::now();
    // Through the proxy, which appends the truth.
    let mut sender = lab.sender(PROXY).await;
    for step in 0..300_u32 {
        let forged = format!("10.{}.{}.1, \"x, 203.0.113.5", step % 200, step % 7);
        let status = sender.write(&forged, "guess").await;
        assert!(matches!(status, 401 | 429), "{status}");
    }
    let through_the_proxy = lab.behind.turned_away();
    assert!(through_the_proxy <= budget(60, began), "{through_the_proxy}");
    // Directly, where nothing is believed; the address of the connection has its own budget.
    let mut stranger = lab.sender(STRANGER).await;
    for step in 0..300_u32 {
        let status = stranger.write(&format!("10.0.0.{}", step % 200), "guess").await;
        assert!(matches!(status, 401 | 429), "{status}");
    }
    let directly = lab.behind.turned_away() - through_the_proxy;
    assert!((60..=budget(60, began)).contains(&directly), "{directly}");
    let metrics = lab.metrics().await;
    let untrusted = "freehold_front_door_unusable_hops_total{reason=\"untrusted\"}";
    assert_eq!(value(&metrics, untrusted), 300.0);
    let entries = "freehold_front_door_entries{class=\"write\",table=\"addresses\"}";
    assert_eq!(value(&metrics, entries), 2.0);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everyday_refusals_of_writes_cost_nothing_and_what_is_no_write_does() {
    let lab = Lab::start(|config| {
        config.front_door.write.failures_per_minute = 3;
        config.limits.ingestion_rate = 0.001;
        config.limits.ingestion_burst_size = 12;
    })
    .await;
    let mut sender = lab.sender(PROXY).await;
    // A late sample, a tenant without room, a store that is down, and at last our own 429.
    for says in [StatusCode::BAD_REQUEST, StatusCode::SERVICE_UNAVAILABLE, StatusCode::NOT_FOUND] {
        *lab.behind.says.lock().expect("lock") = Some(says);
        for _ in 0..4 {
            assert_eq!(sender.write("198.51.100.7", "good").await, says.as_u16());
        }
    }
    for _ in 0..10 {
        let answer = sender.write_whole("198.51.100.7", "good", good()).await;
        assert_eq!(answer.status, 429);
        assert!(answer.body.starts_with("ingestion rate limit"), "{}", answer.body);
    }
    // What is no write: three, and then the front door.
    for _ in 0..3 {
        let answer = sender.write_whole("198.51.100.7", "good", Bytes::from_static(b"\xffx")).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
    }
    let answer = sender.write_whole("198.51.100.7", "good", good()).await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (429, "too many failed requests from this address\n")
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_get_no_more_than_one_after_the_other() {
    let lab = Lab::start(|config| {
        config.front_door.write.failures_per_minute = 20;
        config.front_door.write.requests_per_address_per_minute = 300;
    })
    .await;
    let began = Instant::now();
    let mut senders = JoinSet::new();
    for number in 0..20 {
        let mut sender = lab.sender(PROXY).await;
        senders.spawn(async move {
            let mut seen = [0_usize; 2];
            for turn in 0..40 {
                let token = if turn % 2 == 0 { "guess" } else { "other" };
                match sender.write("198.51.100.7", &format!("{token}-{number}-{turn}")).await {
                    401 => seen[0] += 1,
                    429 => seen[1] += 1,
                    other => panic!("{other}"),
                }
            }
            seen
        });
    }
    let seen = senders.join_all().await;
    let guesses: usize = seen.iter().map(|seen| seen[0]).sum();
    assert_eq!(guesses, lab.behind.turned_away());
    assert!((20..=budget(20, began)).contains(&guesses), "{guesses}");
    assert_eq!(seen.iter().map(|seen| seen[0] + seen[1]).sum::<usize>(), 800);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_r20_a_credential_that_is_refused_costs_its_building_nothing() {
    let lab = Lab::start(|config| {
        config.front_door.write.requests_per_address_per_minute = 10;
        config.front_door.write.requests_per_credential_per_minute = 5;
    })
    .await;
    let mut sender = lab.sender(PROXY).await;
    let began = Instant::now();
    let mut passed = 0;
    for _ in 0..40 {
        passed += usize::from(sender.write("198.51.100.7", "good-a").await == 200);
    }
    assert!((5..=budget(5, began)).contains(&passed), "{passed}");
    for _ in 0..4 {
        assert_eq!(sender.write("198.51.100.7", "good-b").await, 200);
    }
    lab.stop().await;
}
