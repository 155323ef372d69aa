//! Lines about requests, as a run writes them: `docs/tracing-and-logs.md` says which keys they
//! have, and others look for these.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::process::Freehold;
use super::*;
use crate::pass_through::fake::{Client, head_with};

/// Keys of every line.
const OF_ALL: [&str; 4] = ["timestamp", "level", "message", "target"];

/// Keys by message, as the page lists them: `` | `write refused` | `tenant`, … | ``.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tracing-and-logs.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (_, lines) = page.split_once("## Lines about requests").expect("the section");
    let (lines, _) = lines.split_once("\n## ").expect("its end");
    let ticked = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let rows = lines.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        (ticked(cells[1]).remove(0), ticked(cells[2]).into_iter().collect())
    })
    .collect()
}

/// Answers every query with nothing, after a while; it ends when its tasks are dropped.
async fn slow_downstream() -> (SocketAddr, JoinSet<()>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("bound");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut answering = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.expect("accept");
            answering.spawn(async move {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    (address, tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_about_requests_have_the_keys_that_the_page_lists() {
    let dir = tempfile::tempdir().expect("a directory");
    let (downstream, answering) = slow_downstream().await;
    let downstream = format!("-frontend.downstream-url=http://{downstream}");
    let flags = [
        downstream.as_str(),
        "-frontend.log-queries-longer-than=10ms",
        "-front-door.admin.requests-per-address-per-minute=1",
        "-ingester.max-global-series-per-user=1",
    ];
    let freehold = Freehold::start(dir.path(), &flags).await;
    freehold.wait_ready().await;

    let sent = |name: &str| format!("X-Scope-OrgID: a\r\nX-Request-ID: {name}\r\n");
    // No write at all; a query that takes its time, and the same once nobody answers it.
    http(freehold.http, "POST", "/api/v1/push", &sent("bad"), b"x").await.expect("an answer");
    let query = "/api/v1/query?query=up";
    http(freehold.http, "GET", query, &sent("slow"), b"").await.expect("an answer");
    drop(answering);
    http(freehold.http, "GET", query, &sent("lost"), b"").await.expect("an answer");
    for _ in 0..3 {
        http(freehold.http, "GET", "/tenants", &sent("page"), b"").await.expect("an answer");
    }
    let mut client = Client::connect(freehold.grpc).await;
    let mut head = head_with("/cortex.Ingester/Push", "x-scope-orgid", "a");
    head.headers_mut().insert("x-request-id", "call".parse().expect("a value"));
    let ended = client.call(head, framed(&request(0..3, now_ms()))).await;
    assert_eq!(ended.code(), "400");

    let lines: Vec<Value> = {
        let log = freehold.process.log();
        log.lines().map(|line| serde_json::from_str(line).expect("a line")).collect()
    };
    for line in &lines {
        assert!(OF_ALL.iter().all(|key| line.get(key).is_some()), "{line}");
    }
    let documented = documented();
    let errors = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
    let errors = std::fs::read_to_string(errors).expect("the page");
    for (message, name) in [
        ("write refused", "bad"),
        ("query refused", "lost"),
        ("slow query", "slow"),
        ("refused at the front door", "page"),
        ("push refused", "call"),
    ] {
        let line = lines.iter().find(|line| line["message"] == message);
        let line = line.unwrap_or_else(|| panic!("no {message}: {}", freehold.process.log()));
        assert_eq!(line["request_id"], name, "{line}");
        let keys: BTreeSet<String> = line.as_object().expect("a map").keys().cloned().collect();
        let keys = keys.into_iter().filter(|key| !OF_ALL.contains(&key.as_str()));
        let strange: Vec<_> = keys.filter(|key| !documented[message].contains(key)).collect();
        assert!(strange.is_empty(), "{message} has keys that the page does not list: {strange:?}");
        if message.contains("refused") {
            let ids = line["error_id"].as_str().unwrap_or_else(|| panic!("no id: {line}"));
            let is_explained = |id: &str| errors.contains(&format!("\n### {id}\n"));
            assert!(ids.split(',').all(is_explained), "{line}");
        }
    }
    // Those that a run does not make at will are in the page, too.
    for message in ["slow write", "slow push", "a request of a denied address is refused"] {
        assert!(documented[message].contains("request_id"), "{message}");
    }
}
