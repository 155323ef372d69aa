//! A whole sidecar with mTLS on both sides, whose certificates change while it runs.

use std::net::SocketAddr;
use std::sync::Arc;

use freehold::tls::{self, ClientAuth, ClientTlsConfig};
use tokio::task::JoinSet;

use super::cluster::request;
use super::pass_through::fake::{Client, framed, head_with, patiently};
use super::pass_through::tls::{Authority, connect, copy, listener_tls, tls_before};
use super::sidecar::{PUSH, Sidecar, TENANT};
use super::upstream::ingester::UpstreamIngester;

/// A distributor's connection; none where it is refused.
async fn dial(address: SocketAddr, config: &ClientTlsConfig) -> Option<Client> {
    let tls = tls::client("test", config, &["h2"]).expect("files");
    let stream = patiently(connect(address, &tls)).await.ok()?;
    patiently(Client::over(stream)).await.ok()
}

/// The code of a push; none where the connection turns out to be refused, of which TLS 1.3 tells
/// with the first answer only.
async fn push(client: &mut Client, series: u64) -> Option<String> {
    let head = head_with(PUSH, "x-scope-orgid", TENANT);
    let answer = client.try_call(head, framed(&request([series], 1_000))).await?;
    Some(answer.code().to_owned())
}

async fn push_once(address: SocketAddr, config: &ClientTlsConfig, series: u64) -> Option<String> {
    push(&mut dial(address, config).await?, series).await
}

async fn reloaded(metrics: SocketAddr, side: &str) {
    let line = format!("freehold_tls_reloads_total{{for=\"{side}\"}} 1");
    patiently(async {
        loop {
            let got = super::process::http(metrics, "GET", "/metrics", "", &[]).await;
            let text = String::from_utf8(got.expect("an answer").1).expect("text");
            if text.lines().any(|have| have == line) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_check_each_other_and_take_new_certificates_as_they_run() {
    // Whom distributors and the sidecar trust, and whom the sidecar and the ingester do.
    let (front, front_next) = (Authority::new(), Authority::new());
    let (back, back_next) = (Authority::new(), Authority::new());
    let stranger = Authority::new();
    for authority in [&front, &front_next, &stranger] {
        authority.sign("sidecar", "localhost");
        authority.sign("distributor", "distributor");
    }
    for authority in [&back, &back_next] {
        authority.sign("ingester", "ingester-0");
        authority.sign("sidecar", "sidecar");
    }
    let mut upstream = UpstreamIngester::start().await;
    let mut tasks = JoinSet::new();
    let ingester_tls =
        listener_tls(&back.server("ingester", ClientAuth::RequireAndVerify), &["h2"]);
    let behind = tls_before(upstream.address, Arc::clone(&ingester_tls), &mut tasks).await;
    let sidecar = Sidecar::with(behind, |config| {
        config.server.grpc_tls_config = front.server("sidecar", ClientAuth::RequireAndVerify);
        let ours = back.client(Some("sidecar"));
        let upstream = &mut config.ingester.upstream;
        upstream.tls_enabled = true;
        upstream.tls_cert_path = ours.cert_path;
        upstream.tls_key_path = ours.key_path;
        upstream.tls_ca_path = ours.ca_path;
        upstream.tls_server_name = "ingester-0".to_owned();
        config.ingester.drain_announce_period = freehold::units::Millis(0);
    });
    let sidecar = sidecar.await.running().await;
    let (address, metrics) = (sidecar.app.grpc_address, sidecar.app.http_address);
    let known = front.client(Some("distributor"));
    let before = ClientTlsConfig { ca_path: front_next.ca(), ..known.clone() };
    let mut open = dial(address, &known).await.expect("both know each other");
    assert_eq!(push(&mut open, 0).await.as_deref(), Some("0"));
    let signed_by_stranger =
        ClientTlsConfig { ca_path: front.ca(), ..stranger.client(Some("distributor")) };
    for (case, config) in [
        ("an authority that the sidecar does not know", &signed_by_stranger),
        ("nothing shown", &front.client(None)),
        ("a client that does not know the sidecar's", &stranger.client(Some("distributor"))),
    ] {
        assert_eq!(push_once(address, config, 1).await, None, "{case}");
    }
    let mut plain = Client::connect(address).await;
    assert_eq!(push(&mut plain, 1).await, None, "in the clear");
    assert_eq!(upstream.count(TENANT), 1);

    // The ingester's side goes first: until the sidecar has the new files they do not meet.
    for file in ["ingester.pem", "ingester.key", "ca.pem"] {
        copy(&back_next.path(file), &back.path(file));
    }
    assert!(ingester_tls.look(), "the ingester's new pair");
    for file in ["sidecar.pem", "sidecar.key"] {
        copy(&back_next.path(file), &back.path(file));
    }
    for file in ["sidecar.pem", "sidecar.key", "ca.pem"] {
        copy(&front_next.path(file), &front.path(file));
    }
    reloaded(metrics, "upstream").await;
    reloaded(metrics, "server_grpc").await;
    // What was open goes on with what it was made with.
    assert_eq!(push(&mut open, 2).await.as_deref(), Some("0"));
    // The next connection to the ingester can only be made with the new certificates.
    upstream.restart(|_, _| {}).await;
    patiently(async {
        while push(&mut open, 3).await.as_deref() != Some("0") {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    let renewed = front_next.client(Some("distributor"));
    assert_eq!(push_once(address, &renewed, 4).await.as_deref(), Some("0"));
    let stranger = ClientTlsConfig { ca_path: front_next.ca(), ..signed_by_stranger };
    assert_eq!(push_once(address, &stranger, 5).await, None, "nobody knows the stranger yet");
    assert_eq!(push_once(address, &before, 5).await, None, "nor any more who was known");
    assert_eq!(upstream.count(TENANT), 4);
    drop((open, plain));
    sidecar.app.stop().await.expect("stops");
}
