//! What the ingesters' answers come to for the sender.

use super::super::upstream::ingester::UpstreamIngester;
use super::*;

async fn three() -> Vec<UpstreamIngester> {
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(UpstreamIngester::start().await);
    }
    all
}

fn ring_of_three(ingesters: &[UpstreamIngester]) -> RingSnapshot {
    ring(&ingesters.iter().map(|ingester| ingester.address).collect::<Vec<_>>())
}

fn refuse(ingester: &UpstreamIngester, code: i32, text: &str) {
    ingester.knobs().refuse = Some((code, text.to_owned()));
}

#[tokio::test]
async fn one_ingester_may_be_down_and_two_are_told_in_cortex_words() {
    for setup in Setup::both() {
        let gate = setup.start();
        let nodes = nodes(3).await;
        let mut all = addresses(&nodes);
        let dead = [Port::new(), Port::new()];
        all[0] = dead[0].address;
        gate.push(&ring(&all), 0..100).await.expect("two are a quorum");
        gate.until_idle().await;
        assert_eq!((nodes[1].series(TENANT), nodes[2].series(TENANT)), (100, 100));
        assert_eq!(
            (gate.failures("ingester-0", "5xx"), gate.failures("ingester-1", "5xx")),
            (1.0, 0.0)
        );

        all[1] = dead[1].address;
        let error = gate.push(&ring(&all), 100..200).await.expect_err("one is none");
        assert_eq!(error.code(), Some(500));
        let text = error.to_string();
        let start = "maxFailure (quorum) on a given error family, addr=127.0.0.1:";
        assert!(text.starts_with(start), "{text}");
        let middle =
            " state=ACTIVE zone=, rpc error: code = Unavailable desc = upstream 127.0.0.1:";
        assert!(text.contains(middle), "{text}");
        // What could be stored is, although the sender was told that it failed.
        gate.until_idle().await;
        assert_eq!(nodes[2].series(TENANT), 200);
    }
}

#[tokio::test]
async fn case_e2_two_refusals_and_a_lost_ingester_are_a_refusal() {
    for setup in Setup::both() {
        let gate = setup.start();
        let all = three().await;
        refuse(&all[0], 400, "user=team-a: out of order");
        refuse(&all[2], 400, "user=team-a: out of order");
        // In every place of time: before, between and after the others.
        for delay_ms in [0, 5, 40] {
            refuse(&all[1], 13, "disk full");
            all[1].knobs().push_delay = Duration::from_millis(delay_ms);
            let error = gate.push(&ring_of_three(&all), 0..10).await.expect_err("refused");
            assert_eq!(error.code(), Some(400), "{error}");
            let end = "rpc error: code = Code(400) desc = user=team-a: out of order";
            assert!(error.to_string().ends_with(end), "{error}");
            gate.until_idle().await;
        }
        // Two of the other family turn it.
        refuse(&all[2], 13, "disk full");
        let error = gate.push(&ring_of_three(&all), 0..10).await.expect_err("failed");
        assert_eq!(error.code(), Some(500), "{error}");
    }
}

#[tokio::test]
async fn one_of_each_kind_is_no_quorum_and_the_refusal_is_told() {
    let gate = Setup::default().start();
    let all = three().await;
    refuse(&all[0], 400, "no");
    refuse(&all[1], 14, "stopping");
    let error = gate.push(&ring_of_three(&all), 0..10).await.expect_err("one is none");
    assert_eq!(error.code(), Some(400));
    let text = error.to_string();
    assert!(text.starts_with("not enough remaining instances to try, addr="), "{text}");
    assert!(text.ends_with("rpc error: code = Code(400) desc = no"), "{text}");
}

#[tokio::test]
async fn case_e9_a_tenant_at_its_limit_on_one_replica_is_stored_and_counted() {
    for setup in Setup::both() {
        let gate = setup.start();
        let mut nodes = nodes(2).await;
        nodes.push(Node::with(10, StreamKeys::default()).await);
        let ring = ring(&addresses(&nodes));
        gate.push(&ring, 0..10).await.expect("stored");
        gate.push(&ring, 0..30).await.expect("two are a quorum");
        gate.until_idle().await;
        let kept: Vec<_> = nodes.iter().map(|node| node.series(TENANT)).collect();
        assert_eq!(kept, [30, 30, 10]);
        assert_eq!(gate.failures("ingester-2", "4xx"), 1.0);
        assert_eq!(gate.failures("ingester-2", "5xx"), 0.0);
    }
}

#[tokio::test]
async fn rate_limited_ingesters_are_a_429() {
    for setup in Setup::both() {
        let gate = setup.start();
        let all = three().await;
        for ingester in &all {
            refuse(ingester, 429, "slow down");
        }
        let error = gate.push(&ring_of_three(&all), 0..10).await.expect_err("refused");
        assert_eq!(error.code(), Some(429));
        assert!(error.to_string().ends_with("rpc error: code = Code(429) desc = slow down"));
    }
}

#[tokio::test]
async fn a_ring_that_cannot_take_the_request_is_told_before_anything_is_sent() {
    let gate = Setup::default().start();
    let nodes = nodes(1).await;
    let error = gate.push(&ring(&addresses(&nodes)), 0..10).await.expect_err("one of three");
    assert_eq!(error.code(), None);
    assert_eq!(error.to_string(), "at least 2 live replicas required, could only find 1");
    let error = gate.push(&ring(&[]), 0..10).await.expect_err("nobody");
    assert_eq!(error.to_string(), "DoBatch: InstancesCount <= 0");
    assert_eq!(nodes[0].series(TENANT), 0);
    assert!(gate.fan_out.ingesters().addresses().is_empty(), "nobody was dialled");
    gate.push(&ring(&[]), []).await.expect_err("as in Cortex, however little there is to send");
}

#[tokio::test]
async fn who_stops_waiting_stops_nothing() {
    let gate = Setup::default().start();
    let all = three().await;
    for ingester in &all {
        ingester.knobs().push_delay = Duration::from_millis(50);
    }
    let ring = ring_of_three(&all);
    let waited = tokio::time::timeout(Duration::from_millis(5), gate.push(&ring, 0..10)).await;
    assert!(waited.is_err(), "given up");
    gate.fan_out.ingesters().finish().await;
    assert_eq!(gate.fan_out.ingesters().in_flight(), 0);
    assert!(all.iter().all(|ingester| ingester.count(TENANT) == 10));
}

#[tokio::test]
async fn the_verdict_does_not_wait_for_the_slowest_which_is_written_all_the_same() {
    for setup in Setup::both() {
        let gate = setup.start();
        let all = three().await;
        all[1].knobs().is_held = true;
        gate.push(&ring_of_three(&all), 0..10).await.expect("two are a quorum");
        assert_eq!(all[1].count(TENANT), 0);
        all[1].knobs().is_held = false;
        gate.until_idle().await;
        assert_eq!(all[1].count(TENANT), 10);
    }
}
