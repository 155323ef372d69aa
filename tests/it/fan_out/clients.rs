//! The clients: how they are looked after.

use super::super::pass_through::fake::{Fake, framed, ok_head, ok_trailers};
use super::*;

#[tokio::test]
async fn clients_go_with_their_ingesters() {
    let gate = Setup::default().start();
    let nodes = nodes(4).await;
    let all = addresses(&nodes);
    gate.push(&ring(&all), 0..100).await.expect("stored");
    gate.until_idle().await;
    let ingesters = gate.fan_out.ingesters();
    assert_eq!(ingesters.addresses().len(), 4);

    let smaller = ring(&all[..3]);
    ingesters.clean(&smaller).await;
    let mut kept: Vec<_> = ingesters.addresses().iter().map(|a| a.to_string()).collect();
    kept.sort_unstable();
    let mut expect: Vec<_> = all[..3].iter().map(SocketAddr::to_string).collect();
    expect.sort_unstable();
    assert_eq!(kept, expect);
    assert_eq!(gate.metric("cortex_distributor_ingester_clients", &[]), 3.0);
    let name = "cortex_distributor_ingester_appends_total";
    assert_eq!(gate.metric(name, &[("ingester", "ingester-3")]), 0.0, "its counters go too");
    assert_eq!(gate.metric(name, &[("ingester", "ingester-0")]), 1.0);
}

#[tokio::test]
async fn a_client_whose_ingester_does_not_serve_is_replaced() {
    let gate = Setup::default().start();
    let nodes = nodes(3).await;
    let ring = ring(&addresses(&nodes));
    gate.push(&ring, 0..10).await.expect("stored");
    gate.until_idle().await;
    nodes[1].health.set_serving(false).await;
    let ingesters = gate.fan_out.ingesters();
    ingesters.clean(&ring).await;
    let gone = nodes[1].address.to_string();
    assert!(!ingesters.addresses().iter().any(|address| **address == *gone));
    assert_eq!(ingesters.addresses().len(), 2);

    // It is in the ring, so it is written to as before, through a new client.
    nodes[1].health.set_serving(true).await;
    gate.push(&ring, 0..20).await.expect("stored");
    gate.until_idle().await;
    assert_eq!(nodes[1].series(TENANT), 20);
    ingesters.clean(&ring).await;
    assert_eq!(ingesters.addresses().len(), 3);
}

#[tokio::test]
async fn without_health_checks_only_the_ring_decides() {
    let mut setup = Setup::default();
    setup.distributor.pool.health_check_ingesters = false;
    let gate = setup.start();
    let nodes = nodes(3).await;
    let ring = ring(&addresses(&nodes));
    gate.push(&ring, 0..10).await.expect("stored");
    nodes[1].health.set_serving(false).await;
    gate.fan_out.ingesters().clean(&ring).await;
    assert_eq!(gate.fan_out.ingesters().addresses().len(), 3);
}

#[tokio::test]
async fn pushes_one_after_the_other_share_a_stream() {
    let (tell, mut told) = super::super::pass_through::fake::channel();
    let fake = Fake::start(move |request: http::Request<h2::RecvStream>, mut respond| {
        let name = request.headers()["x-scope-orgid"].to_str().expect("ASCII").to_owned();
        tell((name, request.headers().contains_key("grpc-timeout")));
        async move {
            let mut body = request.into_body();
            let Ok(mut send) = respond.send_response(ok_head(), false) else { return };
            while let Some(Ok(chunk)) = body.data().await {
                let _ = body.flow_control().release_capacity(chunk.len());
                // Small messages come in one piece each.
                let _ = send.send_data(framed(&[0x08, 0xc8, 0x01]), false);
            }
            let _ = send.send_trailers(ok_trailers());
        }
    })
    .await;
    let gate = Setup::streams().start();
    let ring = ring_of(&[fake.address], 1, |_| String::new());
    for _ in 0..50 {
        gate.push(&ring, 0..1).await.expect("taken");
    }
    let address = fake.address.to_string().replace(':', "-");
    let name = format!("ingester-{address}-stream-push-worker-0");
    assert_eq!(told.recv().await, Some((name, false)));
    assert!(told.try_recv().is_err(), "one stream for one message at a time");
    assert_eq!(fake.connections.load(std::sync::atomic::Ordering::SeqCst), 1);
}
