//! Ingesters that are slow, mute, killed, or back.

use super::super::pass_through::fake::{Fake, ok_head, ok_trailers};
use super::super::upstream::ingester::UpstreamIngester;
use super::*;

async fn two_good() -> [UpstreamIngester; 2] {
    [UpstreamIngester::start().await, UpstreamIngester::start().await]
}

#[tokio::test]
async fn an_ingester_that_is_back_on_its_address_is_written_to_within_seconds() {
    for setup in Setup::both() {
        let gate = setup.start();
        let good = two_good().await;
        let mut killed = UpstreamIngester::start().await;
        let all = [good[0].address, killed.address, good[1].address];
        let ring = ring(&all);
        gate.push(&ring, 0..10).await.expect("stored");
        gate.until_idle().await;
        assert_eq!(killed.count(TENANT), 10);

        killed.kill().await;
        for _ in 0..20 {
            gate.push(&ring, 0..20).await.expect("two are a quorum");
        }
        gate.until_idle().await;
        assert!(gate.failures("ingester-1", "5xx") >= 1.0);
        assert_eq!(killed.count(TENANT), 10);

        killed.restart(|_, _| {}).await;
        // Nobody but the pushes themselves finds out: no health check ran.
        let back = async {
            while killed.count(TENANT) < 30 {
                gate.push(&ring, 0..30).await.expect("stored");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), back).await.expect("written to again");
        let failures = gate.failures("ingester-1", "5xx");
        for _ in 0..20 {
            gate.push(&ring, 0..30).await.expect("stored");
        }
        gate.until_idle().await;
        assert_eq!(gate.failures("ingester-1", "5xx"), failures, "every stream is a new one");
    }
}

#[tokio::test]
async fn case_d8_a_mute_ingester_holds_its_bound_and_fails_fast() {
    for mut setup in Setup::both() {
        setup.client.max_inflight_push_requests = 5;
        setup.distributor.remote_timeout = Millis(4000);
        let gate = setup.start();
        let good = two_good().await;
        let mute = UpstreamIngester::start().await;
        mute.knobs().is_silent = true;
        let ring = ring(&[good[0].address, mute.address, good[1].address]);
        for _ in 0..50 {
            gate.push(&ring, 0..10).await.expect("two are a quorum");
            let name = "cortex_ingester_client_inflight_push_requests";
            let held = gate.metric(name, &[("ingester", &mute.address.to_string())]);
            assert!(held <= 6.0, "{held}: the bound, and one that is being refused");
        }
        // Whoever waits for it has its verdict at the deadline, and is counted.
        let timeouts = gate.metric("cortex_distributor_ingester_push_timeouts_total", &[]);
        assert_eq!(timeouts, 0.0, "nobody waits for it");
        until("those over the bound", || gate.failures("ingester-1", "5xx") >= 45.0).await;
        assert!(gate.fan_out.ingesters().in_flight() <= 5);
        gate.until_idle().await;
        assert_eq!(gate.failures("ingester-1", "5xx"), 50.0, "the others at their deadline");
    }
}

#[tokio::test]
async fn two_that_are_over_their_bound_are_told_in_cortex_words() {
    let mut setup = Setup::default();
    setup.client.max_inflight_push_requests = 1;
    // The second push has to come while the first is under way.
    setup.distributor.remote_timeout = Millis(3000);
    let gate = setup.start();
    let all = [UpstreamIngester::start().await, UpstreamIngester::start().await];
    let good = UpstreamIngester::start().await;
    for mute in &all {
        mute.knobs().is_silent = true;
    }
    let ring = ring(&[all[0].address, good.address, all[1].address]);
    let (first, second) = tokio::join!(gate.push(&ring, 0..10), async {
        until("the first push", || gate.fan_out.ingesters().in_flight() >= 2).await;
        gate.push(&ring, 0..10).await
    });
    let text = second.expect_err("over the bound").to_string();
    assert!(text.ends_with(", too many inflight push requests in ingester client"), "{text}");
    let first = first.expect_err("no answer");
    assert_eq!(first.code(), Some(500));
    let end = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
    assert!(first.to_string().ends_with(end), "{first}");
    assert_eq!(gate.metric("cortex_distributor_ingester_push_timeouts_total", &[]), 1.0);
}

#[tokio::test]
async fn a_stream_that_ends_well_without_an_answer_has_not_taken_the_message() {
    let fake = Fake::start(|request, mut respond| async move {
        let _request = request;
        if let Ok(mut send) = respond.send_response(ok_head(), false) {
            let _ = send.send_trailers(ok_trailers());
        }
    })
    .await;
    let gate = Setup::streams().start();
    let ring = ring_of(&[fake.address], 1, |_| String::new());
    let error = gate.push(&ring, 0..1).await.expect_err("not taken");
    let end = "rpc error: code = Unavailable desc = the stream ended without an answer";
    assert!(error.to_string().ends_with(end), "{error}");
}

#[tokio::test]
async fn an_ingester_that_does_not_run_is_unavailable() {
    let starting = UpstreamIngester::start().await;
    starting.knobs().is_not_running = true;
    for setup in Setup::both() {
        let gate = setup.start();
        let ring = ring_of(&[starting.address], 1, |_| String::new());
        let error = gate.push(&ring, 0..1).await.expect_err("not running");
        assert_eq!(error.code(), Some(500));
        assert!(error.to_string().ends_with("rpc error: code = Unavailable desc = Starting"));
    }
}
