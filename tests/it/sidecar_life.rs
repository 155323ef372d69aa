//! How a sidecar comes and goes for distributors, who learn of it by health checks.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use freehold::clock::Clock;
use freehold::units::Millis;
use tokio::net::TcpStream;

use super::cluster::request;
use super::pass_through::fake::{Client, framed, head, head_with, patiently};
use super::sidecar::{PUSH, Sidecar, Stream, TENANT};
use super::upstream::ingester::UpstreamIngester;

const HEALTH: &str = "/grpc.health.v1.Health/Check";
/// What the app adds to the clean-up period: see `CLIENT_CLEANUP_MARGIN` there.
const MARGIN: Duration = Duration::from_secs(5);

/// Whether a health check is answered SERVING; the answer's one field is its status.
async fn is_serving(client: &mut Client) -> bool {
    let answer = client.call(head(HEALTH), framed(b"")).await;
    assert_eq!(answer.code(), "0", "{}", answer.text());
    match &answer.body[5..] {
        [8, 1] => true,
        [8, 2] => false,
        other => panic!("{other:?}"),
    }
}

async fn push(client: &mut Client, series: u64) -> String {
    let head = head_with(PUSH, "x-scope-orgid", TENANT);
    let now_ms = Clock::start().now().unix_ms;
    let answer = client.call(head, framed(&request([series], now_ms))).await;
    answer.code().to_owned()
}

async fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_and_a_drain_are_announced_while_pushes_are_answered() {
    const PERIOD: Duration = Duration::from_secs(1);
    // Six rounds of a few milliseconds each have to fit in, on a slow and busy machine too.
    const ANNOUNCE: Duration = Duration::from_secs(6);
    const ROUNDS: u64 = 6;
    let upstream = UpstreamIngester::start().await;
    let began = Instant::now();
    let sidecar = Sidecar::with(upstream.address, |config| {
        config.ingester.client_cleanup_period = Millis::from_secs(1);
        config.ingester.drain_announce_period = Millis(ANNOUNCE.as_millis() as u64);
    });
    let sidecar = sidecar.await.running().await;
    let address = sidecar.app.grpc_address;
    let Sidecar { app, mut client, .. } = sidecar;
    // A distributor that was connected to the process before us has to find us unhealthy once.
    let mut series = 0;
    patiently(async {
        while !is_serving(&mut client).await {
            series += 1;
            assert_eq!(push(&mut client, series).await, "0", "pushes are taken all the while");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let unhealthy = began.elapsed();
    assert!(series > 10 && unhealthy >= PERIOD + MARGIN, "{unhealthy:?}, {series}");

    let mut stream = Stream::on(&mut client).await;
    assert_eq!(stream.exchange([0]).await.code, 200);
    let stopping = Instant::now();
    let stopped = tokio::spawn(app.stop());
    patiently(async {
        while is_serving(&mut client).await {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // While it is announced all goes on, for those who come now too.
    for _ in 0..ROUNDS {
        let mut newcomer = Client::connect(address).await;
        assert!(!is_serving(&mut newcomer).await);
        series += 1;
        assert_eq!(push(&mut newcomer, series).await, "0");
        assert_eq!(stream.exchange([0]).await.code, 200);
    }
    assert!(listens(address).await, "it goes on");
    patiently(async {
        while listens(address).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(stopping.elapsed() >= ANNOUNCE, "{:?}", stopping.elapsed());
    assert_eq!(stream.ended().await, "14", "no stream ends as if all were well");
    drop(client);
    patiently(stopped).await.expect("stops").expect("stops well");
    assert_eq!(upstream.count(TENANT), series + 1);
}
