//! One ring on gossip: two processes of an unmodified Cortex, its distributor and an ingester,
//! and two ingesters of ours.
//!
//! What must hold: whoever starts first, all see one ring; what one member does is seen by all
//! others in [`SEEN_WITHIN`], whichever of the two kinds either is.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::time::Instant;

use super::ONE_AT_A_TIME;
use super::beside::{get, gossip_flags};
use super::cluster::{cortex_binary, free_port, http, until};
use crate::process::Process;

/// Four intervals of gossip would do; the figure.
const SEEN_WITHIN: Duration = Duration::from_secs(5);
/// Heartbeats come every second.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(6);
const NUMBER: usize = 4;
const IDS: [&str; NUMBER] = ["cortex-distributor", "cortex-0", "freehold-0", "freehold-1"];
/// Those of them that are in the ring.
const INGESTERS: [usize; 3] = [1, 2, 3];

struct Member {
    id: &'static str,
    http: u16,
    gossip: u16,
    process: Option<Process>,
}

/// One entry of the ring: its state, its heartbeat, its tokens.
type Entry = (String, i64, usize);

struct Ring {
    members: Vec<Member>,
    dir: tempfile::TempDir,
}

impl Ring {
    /// Starts them in this order, each once the one before it serves.
    async fn start(order: [usize; NUMBER]) -> Self {
        let members =
            IDS.map(|id| Member { id, http: free_port(), gossip: free_port(), process: None });
        let dir = tempfile::tempdir().expect("a directory");
        let mut ring = Self { members: members.into(), dir };
        for index in order {
            ring.start_one(index);
            let http = ring.members[index].http;
            until("a member serves", async || get(http, "/memberlist", "").await.is_ok()).await;
        }
        ring
    }

    fn start_one(&mut self, index: usize) {
        let seeds: Vec<u16> = self.members.iter().map(|member| member.gossip).collect();
        let member = &mut self.members[index];
        let home = self.dir.path().join(member.id);
        std::fs::create_dir_all(&home).expect("a directory");
        let grpc = free_port();
        let mut flags = gossip_flags(member.gossip, member.gossip);
        flags.extend(seeds.iter().map(|seed| format!("-memberlist.join=127.0.0.1:{seed}")));
        flags.extend([
            "-server.http-listen-address=127.0.0.1".to_owned(),
            format!("-server.http-listen-port={}", member.http),
            "-server.grpc-listen-address=127.0.0.1".to_owned(),
            format!("-server.grpc-listen-port={grpc}"),
            format!("-ring.heartbeat-timeout={}s", UNHEALTHY_AFTER.as_secs()),
            "-distributor.replication-factor=1".to_owned(),
            format!("-ingester.lifecycler.ID={}", member.id),
            "-ingester.lifecycler.addr=127.0.0.1".to_owned(),
            format!("-ingester.lifecycler.port={grpc}"),
            "-ingester.heartbeat-period=1s".to_owned(),
            "-ingester.num-tokens=64".to_owned(),
            "-ingester.min-ready-duration=0s".to_owned(),
            "-ingester.final-sleep=4s".to_owned(),
        ]);
        let mut command = match member.id.strip_prefix("cortex-") {
            Some(role) => {
                let target = if role == "distributor" { "distributor" } else { "ingester" };
                flags.extend([
                    format!("-target={target}"),
                    "-ingester.join-after=0s".to_owned(),
                    "-distributor.ring.store=inmemory".to_owned(),
                    "-distributor.ring.instance-addr=127.0.0.1".to_owned(),
                    "-blocks-storage.backend=filesystem".to_owned(),
                    "-blocks-storage.filesystem.dir=blocks".to_owned(),
                    "-blocks-storage.tsdb.dir=tsdb".to_owned(),
                ]);
                Command::new(cortex_binary().expect("looked for before"))
            }
            None => {
                flags.extend([
                    "-target=ingester".to_owned(),
                    "-store.path=data".to_owned(),
                    "-memberlist.message-history-buffer-bytes=100000".to_owned(),
                ]);
                Command::new(env!("CARGO_BIN_EXE_freehold"))
            }
        };
        command.current_dir(&home).args(flags);
        member.process = Some(Process::spawn(&mut command, &home.join("log")));
    }

    /// The whole ring as one member holds it, those that LEFT included.
    async fn seen_by(&self, index: usize) -> BTreeMap<String, Entry> {
        let path = "/memberlist?viewKey=collectors/ring&format=json";
        let Ok(answer) = get(self.members[index].http, path, "").await else {
            return BTreeMap::new();
        };
        let ring: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let entries = ring["ingesters"].as_object().cloned().unwrap_or_default();
        let entry = |entry: &serde_json::Value| {
            let state = entry["state"].as_str().unwrap_or("ACTIVE").to_owned();
            let tokens = entry["tokens"].as_array().map_or(0, Vec::len);
            (state, entry["timestamp"].as_i64().unwrap_or_default(), tokens)
        };
        entries.iter().map(|(id, seen)| (id.clone(), entry(seen))).collect()
    }

    /// Waits until all members but `except` see it of `id`, and tells how long that took.
    async fn until_all_see(
        &self,
        what: &str,
        id: &str,
        except: &[usize],
        holds: impl Fn(&Entry) -> bool,
    ) -> Duration {
        let started = Instant::now();
        for index in (0..NUMBER).filter(|index| !except.contains(index)) {
            until(&format!("{} sees {what} of {id}", IDS[index]), async || {
                self.seen_by(index).await.get(id).is_some_and(&holds)
            })
            .await;
        }
        let took = started.elapsed();
        println!("  {what} of {id}: seen by all after {took:.1?}");
        assert!(took <= SEEN_WITHIN, "{what} of {id} took {took:?}");
        took
    }

    /// The state of `id` on the page of the ring, which also tells health.
    async fn shown_by(&self, index: usize, id: &str) -> String {
        let Ok(page) = get(self.members[index].http, "/ring", "").await else {
            return String::new();
        };
        let page: serde_json::Value = serde_json::from_str(&page.body).unwrap_or_default();
        let shards = page["shards"].as_array().cloned().unwrap_or_default();
        let shard = shards.iter().find(|shard| shard["id"] == id);
        shard.and_then(|shard| shard["state"].as_str()).unwrap_or("none").to_owned()
    }

    async fn post(&self, index: usize, path: &str, form: &str) {
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        let answer = http(self.members[index].http, "POST", path, &headers, form.as_bytes()).await;
        let answer = answer.expect("an answer");
        assert!(answer.status < 400, "{path}: {} {}", answer.status, answer.body);
    }

    fn signal(&self, index: usize, signal: &str) {
        let process = self.members[index].process.as_ref().expect("it runs");
        let status = Command::new("kill").args([signal, &process.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    fn kill(&mut self, index: usize) {
        self.members[index].process = None;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for member in &self.members {
                eprintln!("{}:\n{}", member.id, last_lines(&self.dir.path().join(member.id)));
            }
        }
    }
}

fn last_lines(home: &Path) -> String {
    let text = std::fs::read_to_string(home.join("log")).unwrap_or_default();
    let lines = text.lines().collect::<Vec<_>>();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

async fn all_see_one_ring(ring: &Ring) {
    for index in INGESTERS {
        let whole = |entry: &Entry| entry.0 == "ACTIVE" && entry.2 == 64;
        ring.until_all_see("64 tokens", IDS[index], &[], whole).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_cortex_and_two_of_ours_form_one_ring_whoever_is_first() {
    let _alone = ONE_AT_A_TIME.lock().await;
    if cortex_binary().is_none() {
        return;
    }
    for order in [[0, 1, 2, 3], [2, 3, 1, 0]] {
        println!("started in the order {:?}:", order.map(|index| IDS[index]));
        let mut ring = Ring::start(order).await;
        all_see_one_ring(&ring).await;
        each_sees_what_others_do(&ring).await;
        who_dies_is_unhealthy_and_can_be_forgotten(&mut ring).await;
        who_leaves_is_seen_leaving_and_left(&ring).await;
    }
}

async fn each_sees_what_others_do(ring: &Ring) {
    for index in INGESTERS {
        let id = IDS[index];
        let (_, before, _) = ring.seen_by(index).await[id].clone();
        ring.until_all_see("a heartbeat", id, &[], |entry| entry.1 > before).await;
    }
    for (index, id) in [(1, IDS[1]), (2, IDS[2])] {
        for mode in ["READONLY", "ACTIVE"] {
            ring.post(index, "/ingester/mode", &format!("mode={mode}")).await;
            ring.until_all_see(mode, id, &[], |entry| entry.0 == mode).await;
        }
    }
}

/// One of ours, whom Cortex forgets; then Cortex's, whom we forget. Both come back.
async fn who_dies_is_unhealthy_and_can_be_forgotten(ring: &mut Ring) {
    for (dead, forgetter) in [(3, 0), (1, 2)] {
        let id = IDS[dead];
        ring.kill(dead);
        for index in [0, 2] {
            until("the dead is unhealthy", async || ring.shown_by(index, id).await == "Unhealthy")
                .await;
        }
        ring.post(forgetter, "/ring", &format!("forget={id}")).await;
        ring.until_all_see("LEFT", id, &[dead], |entry| entry.0 == "LEFT" && entry.2 == 0).await;
        ring.start_one(dead);
        until("it is back", async || {
            ring.seen_by(0).await.get(id).is_some_and(|entry| entry.0 == "ACTIVE" && entry.2 == 64)
        })
        .await;
    }
    all_see_one_ring(ring).await;
}

async fn who_leaves_is_seen_leaving_and_left(ring: &Ring) {
    // One of ours serves no pages any more once it leaves.
    for (index, gone) in [(1, &[][..]), (2, &[1, 2])] {
        let id = IDS[index];
        ring.signal(index, "-TERM");
        ring.until_all_see("LEAVING", id, gone, |entry| entry.0 == "LEAVING").await;
        // It lingers for its last metrics.
        until("it has left", async || {
            ring.seen_by(3).await.get(id).is_some_and(|entry| entry.0 == "LEFT")
        })
        .await;
        ring.until_all_see("LEFT", id, &[1, 2], |entry| entry.0 == "LEFT").await;
    }
}
