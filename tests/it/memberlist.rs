//! Two processes of ours on one gossip, and what is done to them: one stands still until the other
//! takes it for dead, and somebody holds all connections of one while the other joins it.
//!
//! What must hold: in the end both see both, in one ring, with heartbeats that go on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use freehold::tls::{self, ClientTlsConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio_rustls::rustls::ClientConnection;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::pass_through::tls::Authority;
use crate::ports::Port;
use crate::process::{Freehold, wait_for};

const IDS: [&str; 2] = ["one", "two"];

struct Pair {
    ports: [Port; 2],
    dirs: [tempfile::TempDir; 2],
    more: Vec<String>,
}

impl Pair {
    fn new(more: &[String]) -> Self {
        Self {
            ports: [Port::new(), Port::new()],
            dirs: [0, 1].map(|_| tempfile::tempdir().expect("a directory")),
            more: more.to_vec(),
        }
    }

    /// One of the two, which joins the other.
    async fn start(&self, index: usize) -> Freehold {
        let (own, other) = (&self.ports[index], &self.ports[1 - index]);
        let mut flags = vec![
            "-target=ingester".to_owned(),
            "-ring.store=memberlist".to_owned(),
            "-ring.heartbeat-timeout=10s".to_owned(),
            "-memberlist.bind-addr=127.0.0.1".to_owned(),
            format!("-memberlist.bind-port={}", own.number()),
            format!("-memberlist.join=127.0.0.1:{}", other.number()),
            "-memberlist.abort-if-join-fails=false".to_owned(),
            format!("-ingester.lifecycler.ID={}", IDS[index]),
            "-ingester.heartbeat-period=1s".to_owned(),
            "-ingester.num-tokens=64".to_owned(),
        ];
        flags.extend(self.more.iter().cloned());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Freehold::start(self.dirs[index].path(), &flags).await
    }
}

/// State and stamp of each entry of the ring as one process holds it.
async fn ring(of: &Freehold) -> BTreeMap<String, (String, i64)> {
    let (_, body) = of.get("/memberlist?viewKey=collectors/ring&format=json").await;
    let ring: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let entries = ring["ingesters"].as_object().cloned().unwrap_or_default();
    let entry = |entry: &serde_json::Value| {
        let state = entry["state"].as_str().unwrap_or("ACTIVE").to_owned();
        (state, entry["timestamp"].as_i64().unwrap_or_default())
    };
    entries.iter().map(|(id, seen)| (id.clone(), entry(seen))).collect()
}

async fn members(of: &Freehold) -> Option<f64> {
    of.metric("memberlist_client_cluster_members_count").await
}

/// Waits until both see both alive and ACTIVE, with stamps that are later than those.
async fn until_one(both: [&Freehold; 2], later_than: i64) {
    for of in both {
        let explain = || of.process.log();
        wait_for(explain, async || {
            let ring = ring(of).await;
            let is_well = IDS.iter().all(|id| {
                ring.get(*id).is_some_and(|(state, at)| state == "ACTIVE" && *at > later_than)
            });
            (is_well && members(of).await == Some(2.0)).then_some(())
        })
        .await;
    }
}

fn signal(of: &Freehold, name: &str) {
    let sent = Command::new("kill").args([name, &of.process.id().to_string()]).status();
    assert!(sent.expect("kill").success());
}

/// It does not know that it was away: what it finds is that it is said to be dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stood_still_until_it_counted_as_dead_comes_back_to_one_ring() {
    let pair = Pair::new(&[]);
    let (one, two) = (pair.start(0).await, pair.start(1).await);
    until_one([&one, &two], 0).await;
    signal(&two, "-STOP");
    let explain = || one.process.log();
    wait_for(explain, async || (members(&one).await == Some(1.0)).then_some(())).await;
    let (state, died_at) = ring(&one).await["two"].clone();
    assert_eq!(state, "ACTIVE", "the gossip takes nobody out of the ring");
    let ours = ring(&one).await["one"].1;
    assert!(ours > died_at, "the other goes on meanwhile");
    signal(&two, "-CONT");
    until_one([&one, &two], ours).await;
    let refuted = two.metric("freehold_gossip_refutations_total").await;
    assert!(refuted >= Some(1.0), "{refuted:?}");
}

/// What somebody begins and does not go on with.
fn hello(authority: &Authority) -> Vec<u8> {
    let settings = ClientTlsConfig { ca_path: authority.ca(), ..ClientTlsConfig::default() };
    let client = tls::client("flood", &settings, &[]).expect("files").current();
    let name = ServerName::try_from("member").expect("a name");
    let mut connection = ClientConnection::new(client, name).expect("a connection");
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).expect("into memory");
    hello
}

/// Keeps as many handshakes open as it can, from an address of its own.
async fn flood(to: SocketAddr, hello: Arc<Vec<u8>>, number: usize) {
    loop {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 3], 0).into()).expect("a port");
        let Ok(mut stream) = socket.connect(to).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Half of them leave the hello unfinished, half the answer unanswered.
        let end = if number.is_multiple_of(2) { hello.len() } else { hello.len() / 2 };
        if stream.write_all(&hello[..end]).await.is_ok() {
            let mut sink = vec![0; 4096];
            while stream.read(&mut sink).await.is_ok_and(|read| read > 0) {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_handshakes_of_one_address_keep_no_member_out() {
    /// Three times as many as the process holds by default.
    const FLOOD: usize = 300;
    const HELD_MAX: usize = 100;
    let authority = Authority::new();
    authority.sign("member", "member");
    let path = |name: &str| authority.path(name).display().to_string();
    let pair = Pair::new(&[
        "-memberlist.tls-enabled=true".to_owned(),
        format!("-memberlist.tls-cert-path={}", path("member.pem")),
        format!("-memberlist.tls-key-path={}", path("member.key")),
        format!("-memberlist.tls-ca-path={}", path("ca.pem")),
        "-memberlist.tls-server-name=member".to_owned(),
    ]);
    let one = pair.start(0).await;
    let quiet = one.resources();
    let hello = Arc::new(hello(&authority));
    let mut flooding = JoinSet::new();
    for number in 0..FLOOD {
        flooding.spawn(flood(pair.ports[0].address, Arc::clone(&hello), number));
    }
    let explain = || one.process.log();
    wait_for(explain, async || {
        let rejected = one.metric("memberlist_tcp_transport_rejected_connections_total").await;
        (rejected >= Some(1.0)).then_some(())
    })
    .await;
    let two = pair.start(1).await;
    until_one([&one, &two], 0).await;
    // Heartbeats go on in both directions under the flood.
    let seen = ring(&one).await["two"].1.max(ring(&two).await["one"].1);
    until_one([&one, &two], seen + 5).await;
    let loaded = one.resources();
    println!("quiet {quiet:?}, under the flood {loaded:?}");
    let held = loaded.sockets.saturating_sub(quiet.sockets);
    assert!(held <= HELD_MAX + 100, "{held} sockets");
    assert!(loaded.rss_kib < quiet.rss_kib + (64 << 10), "{quiet:?}, {loaded:?}");
    let crowding = one.metric("freehold_gossip_refused_total{reason=\"crowding\"}").await;
    assert!(crowding >= Some(1.0), "{crowding:?}");
    flooding.shutdown().await;
    let explain = || one.process.log();
    wait_for(explain, async || {
        (one.resources().sockets < quiet.sockets + HELD_MAX / 2).then_some(())
    })
    .await;
    assert_eq!(members(&one).await, Some(2.0));
}
