//! What requests are called, on every hop and in every answer.

use std::net::SocketAddr;

use super::super::process::now_ms;
use super::super::sidecar::{PUSH, Sidecar, TENANT};
use super::*;
use crate::pass_through::fake::{Client, head_with};

/// One request, and the name in its answer.
async fn named(address: SocketAddr, target: &str, headers: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("connect");
    let head = format!("{target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    patiently(stream.read_to_string(&mut answer)).await.expect("text");
    let head = answer.split("\r\n\r\n").next().unwrap_or_default();
    let line = head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
    line.map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_goes_through_all_hops_and_comes_back() {
    let taker = Taker::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let gate = gate(dir.path(), taker.fake.address, |_| {}).await;
    assert_eq!(push(gate.http_address, "X-Request-ID: r-1\r\n").await, 200);
    let head = taker.last();
    assert_eq!(head["x-request-id"], "r-1");
    let told: Vec<_> = head.get_all("x-request-metadata-propagation-string").iter().collect();
    assert_eq!(told, ["x-cortex-request-id", "r-1", "x-cortex-request-source", "api"]);
    assert_eq!(push(gate.http_address, "X-Request-ID: a b\r\n").await, 200);
    let made = taker.last()["x-request-id"].to_str().expect("text").to_owned();
    assert!(made.len() == 32 && made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{made}");

    let address = gate.http_address;
    let write = "POST /api/v1/push";
    let refused = "Content-Length: 0\r\nX-Request-ID: r-2\r\n";
    assert_eq!(named(address, write, refused).await, Some("r-2".into()), "nobody's write");
    let page = named(address, "GET /config", "").await;
    assert_eq!(page.map(|name| name.len()), Some(32));
    assert_eq!(named(address, "GET /ready", "X-Request-ID: r-3\r\n").await, None);
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_keeps_its_name_and_gets_none() {
    let upstream = UpstreamIngester::start().await;
    let collector = Collector::start().await;
    let address = collector.fake.address;
    let sidecar = Sidecar::with(upstream.address, |config| traced(config, address, 1.0)).await;
    let sidecar = sidecar.running().await;
    let mut client = Client::connect(sidecar.app.grpc_address).await;
    for name in [None, Some("c-7")] {
        let mut head = head_with(PUSH, "x-scope-orgid", TENANT);
        if let Some(name) = name {
            for value in ["x-cortex-request-id", name] {
                let value = value.parse().expect("a value");
                head.headers_mut().append("x-request-metadata-propagation-string", value);
            }
        }
        let ended = client.call(head, framed(&request(0..3, now_ms()))).await;
        assert_eq!(ended.code(), "0");
    }
    sidecar.app.stop().await.expect("stops");
    let names: Vec<_> = collector
        .spans("freehold-ingester", "call")
        .iter()
        .map(|span| notes(span).remove("freehold.request_id"))
        .collect();
    assert_eq!(names, [None, Some("c-7".into())]);
}
