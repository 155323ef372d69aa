//! Stores that tell each other directly, and what Cortex's own tests say of one.

use std::sync::atomic::{AtomicI64, Ordering};

use super::history::Direction;
use super::page::{Format, ViewError};
use super::*;
use crate::ring::merge::{self as own_merge, Change as OwnChange, Member};
use crate::ring::model::{Instance, InstanceState, RingModel, Token};
use crate::wire::replica_desc::{self, ElectedReplica};
use crate::wire::ring_desc;
use prometheus::Registry;
use prometheus::core::Collector as _;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use InstanceState::{Active, Left};

const START_MS: i64 = 1_800_000_000_000;

struct Node {
    store: GossipedStore,
    now_ms: Arc<AtomicI64>,
}

impl Node {
    fn new() -> Self {
        Self::with_history(0)
    }

    fn with_history(history_bytes_max: usize) -> Self {
        let retention = Retention { left_ms: 300_000, deleted_ms: 300_000 };
        let settings = Settings { retention, history_bytes_max };
        let now_ms = Arc::new(AtomicI64::new(START_MS));
        let told_ms = Arc::clone(&now_ms);
        let clock: WallClock = Arc::new(move || told_ms.load(Ordering::Relaxed));
        let metrics = Metrics::register(&Registry::new()).expect("a fresh registry");
        let store = GossipedStore::new(settings, clock, metrics);
        store.enter(Phase::Running);
        Self { store, now_ms }
    }

    fn wait(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn ring(&self) -> RingModel {
        let value = self.store.read("ring", ValueKind::Ring).expect("readable");
        value.bytes.map(|bytes| ring_desc::decode(&bytes).expect("own bytes")).unwrap_or_default()
    }

    fn write(&self, change: impl FnOnce(&mut RingModel, i64)) -> Swapped {
        let value = self.store.read("ring", ValueKind::Ring).expect("readable");
        let mut ring = self.ring();
        change(&mut ring, self.now_ms.load(Ordering::Relaxed) / 1000);
        self.store.swap("ring", value.version, Value::Ring(ring)).expect("sound")
    }

    fn beat(&self, id: &str) -> Swapped {
        self.write(|ring, now_s| {
            let entry = ring.instances.entry(id.to_owned()).or_insert_with(|| entry(now_s));
            entry.timestamp_s = now_s;
        })
    }

    fn forget(&self, id: &str) -> Swapped {
        self.write(|ring, _| {
            ring.instances.remove(id);
        })
    }

    fn tell(&self, others: &[&Node]) -> usize {
        let told = self.store.take_broadcasts();
        for broadcast in &told {
            others.iter().for_each(|other| other.store.receive(broadcast.bytes.clone()));
        }
        told.len()
    }

    fn exchange(&self, other: &Node) {
        let (ours, theirs) = (self.store.local_state(), other.store.local_state());
        other.store.merge_remote_state(ours);
        self.store.merge_remote_state(theirs);
    }

    /// Everything that the store holds, but for what is its own.
    fn held(&self) -> Vec<(String, Value, bool)> {
        let pairs = self.store.pairs();
        pairs.iter().map(|(key, entry)| (key.clone(), entry.value.clone(), entry.deleted)).collect()
    }
}

fn entry(timestamp_s: i64) -> Instance {
    Instance {
        addr: "10.0.0.1:9095".to_owned(),
        timestamp_s,
        state: Active,
        tokens: Vec::new(),
        zone: String::new(),
        registered_timestamp_s: 0,
        unknown_fields: Vec::new(),
    }
}

fn states(ring: &RingModel) -> Vec<(&str, InstanceState)> {
    ring.instances.iter().map(|(id, entry)| (id.as_str(), entry.state)).collect()
}

/// Cortex's TestNotifyMsgResendsOnlyChanges.
#[test]
fn what_is_news_is_told_on_and_nothing_else() {
    let (a, b) = (Node::new(), Node::new());
    a.beat("a");
    let first = a.store.take_broadcasts();
    assert_eq!((first.len(), first[0].version), (1, 1));
    assert_eq!((first[0].key.as_str(), &first[0].content[..]), ("ring", &["a".to_owned()][..]));
    b.store.receive(first[0].bytes.clone());
    assert_eq!(b.store.take_broadcasts()[0].bytes, first[0].bytes);
    b.store.receive(first[0].bytes.clone());
    assert!(b.store.take_broadcasts().is_empty());
    // A state with one member more: only that one is told on.
    a.wait(1000);
    a.beat("c");
    b.store.merge_remote_state(a.store.local_state());
    let told = b.store.take_broadcasts();
    assert_eq!((told.len(), &told[0].content[..]), (1, &["c".to_owned()][..]));
}

#[test]
fn a_write_within_the_same_second_is_no_news_until_the_next() {
    let node = Node::new();
    assert_eq!(node.beat("a"), Swapped::Done);
    node.wait(999);
    assert_eq!(node.beat("a"), Swapped::Unchanged);
    node.wait(1);
    assert_eq!(node.beat("a"), Swapped::Done);
    assert_eq!(node.forget("a"), Swapped::Done, "an end needs no newer stamp");
}

#[test]
fn a_forgotten_member_stays_gone_for_what_is_older_and_comes_back_by_its_heartbeat() {
    let (a, b) = (Node::new(), Node::new());
    a.beat("a");
    b.beat("b");
    a.exchange(&b);
    a.tell(&[&b]);
    b.tell(&[&a]);
    // b's heartbeat is still under way when a forgets it.
    b.wait(1000);
    b.beat("b");
    let late = b.store.take_broadcasts();
    a.wait(2000);
    assert_eq!(a.forget("b"), Swapped::Done);
    late.iter().for_each(|broadcast| a.store.receive(broadcast.bytes.clone()));
    assert_eq!(states(&a.ring()), [("a", Active)]);
    let told = a.store.view_key("ring", Format::Json).expect("there");
    assert!(told.contains("\"state\":\"LEFT\""), "the tombstone is in the store: {told}");
    a.tell(&[&b]);
    assert_eq!(states(&b.ring()), [("a", Active)], "and it is told");
    // An old state from elsewhere does not bring it back.
    assert_eq!(late.len(), 1);
    b.store.receive(late[0].bytes.clone());
    assert_eq!(states(&b.ring()), [("a", Active)]);
    // By b's clock it is still the second before: its heartbeat is stamped later all the same.
    assert_eq!(b.beat("b"), Swapped::Done);
    b.tell(&[&a]);
    assert_eq!(states(&a.ring()), [("a", Active), ("b", Active)]);
}

/// A peer's clock, or a forged push: the entry is a minute ahead of us, whom it is about.
#[test]
fn an_entry_of_ours_from_the_near_future_is_ours_to_correct() {
    let (ours, other) = (Node::new(), Node::new());
    ours.beat("a");
    ours.tell(&[&other]);
    other.wait(60_000);
    other.write(|ring, now_s| {
        let forged = Instance { state: Left, tokens: Vec::new(), ..entry(now_s) };
        ring.instances.insert("a".to_owned(), forged);
    });
    other.tell(&[&ours]);
    assert!(ours.ring().instances.is_empty());
    assert_eq!(ours.beat("a"), Swapped::Done);
    ours.tell(&[&other]);
    assert_eq!(states(&other.ring()), [("a", Active)]);
    assert_eq!(ours.ring(), other.ring());
}

#[test]
fn what_is_left_out_of_a_ring_is_counted_and_the_rest_is_told_on() {
    let node = Node::new();
    let told = |node: &Node, ids: &[(&str, i64)]| {
        let now_s = node.now_ms.load(Ordering::Relaxed) / 1000;
        let entries = ids.iter().map(|(id, after_s)| ((*id).to_owned(), entry(now_s + after_s)));
        let ring = RingModel { instances: entries.collect(), unknown_fields: Vec::new() };
        let value = ring_desc::encode(&ring).expect("small").into();
        let (key, codec) = ("ring".to_owned(), "ringDesc".to_owned());
        key_value_pair::encode(&Pair { key, value, codec, deleted: false, updated_at_ms: 0 })
    };
    node.store.receive(told(&node, &[("a", 0), ("b", 1801), ("c", 4000)]));
    assert_eq!(states(&node.ring()), [("a", Active)]);
    assert_eq!(node.store.take_broadcasts().len(), 1);
    assert_eq!(node.store.0.metrics.left_out_of("future"), 2);
    assert_eq!(node.store.0.metrics.left_out_of("crowded"), 0);
}

#[test]
fn of_a_crowd_those_go_whose_time_is_over_and_no_others() {
    let node = Node::new();
    let crowd = |now_s: i64| RingModel {
        instances: (0..merge::MEMBERS_TOLD_MAX)
            .map(|n| {
                let state = if n % 2 == 0 { Active } else { Left };
                (format!("m{n:06}"), Instance { state, ..entry(now_s) })
            })
            .collect(),
        unknown_fields: Vec::new(),
    };
    let now_s = node.now_ms.load(Ordering::Relaxed) / 1000;
    let message = |ring: &RingModel| {
        let value = ring_desc::encode(ring).expect("it fits").into();
        let (key, codec) = ("ring".to_owned(), "ringDesc".to_owned());
        key_value_pair::encode(&Pair { key, value, codec, deleted: false, updated_at_ms: 0 })
    };
    node.store.receive(message(&crowd(now_s)));
    let looked_at = |node: &Node| {
        let tombstones = node.store.0.metrics.clone();
        (tombstones.kept_of("ring"), tombstones.removed_of("ring"))
    };
    assert_eq!(looked_at(&node), (merge::MEMBERS_TOLD_MAX as i64 / 2, 0));
    let beat = RingModel {
        instances: [("m000000".to_owned(), entry(now_s + 1))].into(),
        unknown_fields: Vec::new(),
    };
    node.store.receive(message(&beat));
    assert_eq!(node.store.take_broadcasts().len(), 2);
    // When their time is over all of them go, and those alone.
    node.wait(302_000);
    node.store.receive(message(&RingModel {
        instances: [("m000000".to_owned(), entry(now_s + 300))].into(),
        unknown_fields: Vec::new(),
    }));
    let half = merge::MEMBERS_TOLD_MAX / 2;
    assert_eq!(looked_at(&node), (0, half as u64));
    assert_eq!(node.ring().instances.len(), half);
}

#[test]
fn our_leave_is_a_tombstone_that_goes_after_its_time() {
    let (a, b) = (Node::new(), Node::new());
    let member = Member {
        id: "a".to_owned(),
        addr: "10.0.0.1:9095".to_owned(),
        zone: String::new(),
        num_tokens: 4,
        state: InstanceState::Pending,
        tokens: Vec::new(),
        registered_timestamp_s: 0,
        resume_state: Active,
    };
    let mut rng = SmallRng::seed_from_u64(1);
    let mut apply = |change: &OwnChange, member: &Member| {
        let mut shown = None;
        let swapped = a.write(|ring, now_s| {
            shown = Some(own_merge::apply(change, member, ring, now_s, &mut rng));
        });
        assert_eq!(swapped, Swapped::Done, "{change:?}");
        a.wait(1000);
        a.tell(&[&b]);
        shown.expect("applied")
    };
    let member = apply(&OwnChange::Register, &member);
    let member = apply(&OwnChange::Join { target: Active }, &member);
    assert_eq!(b.ring().instances["a"].tokens, member.tokens);
    assert_eq!(member.tokens.len(), 4);
    apply(&OwnChange::Unregister, &member);
    assert!(b.ring().instances.is_empty());
    let left = |node: &Node| match &node.held()[0].1 {
        Value::Ring(ring) => states(ring) == [("a", Left)],
        Value::Replica(_) => false,
    };
    assert!(left(&a) && left(&b));
    // Whatever comes next takes the old tombstone with it.
    b.wait(303_000);
    b.beat("b");
    match &b.held()[0].1 {
        Value::Ring(ring) => assert_eq!(states(ring), [("b", Active)]),
        other => panic!("{other:?}"),
    }
    // The other still has it, and telling of it changes nothing.
    b.store.take_broadcasts();
    b.store.merge_remote_state(a.store.local_state());
    assert!(b.store.take_broadcasts().is_empty());
    assert_eq!(states(&b.ring()), [("b", Active)]);
}

#[test]
fn tokens_taken_by_a_conflict_are_seen_and_replaced_while_joining() {
    let (a, b) = (Node::new(), Node::new());
    let member = |id: &str, tokens: &[u32]| Member {
        id: id.to_owned(),
        addr: format!("{id}:9095"),
        zone: String::new(),
        num_tokens: 2,
        state: InstanceState::Joining,
        tokens: tokens.iter().copied().map(Token).collect(),
        registered_timestamp_s: 1,
        resume_state: Active,
    };
    let mut rng = SmallRng::seed_from_u64(1);
    let mut apply = |node: &Node, change: &OwnChange, member: &Member| {
        let mut shown = None;
        node.write(|ring, now_s| {
            shown = Some(own_merge::apply(change, member, ring, now_s, &mut rng));
        });
        node.wait(1000);
        shown.expect("applied")
    };
    // Both join at once and choose one token alike.
    let join = OwnChange::Join { target: InstanceState::Joining };
    let first = apply(&a, &join, &member("a", &[1, 2]));
    let second = apply(&b, &join, &member("b", &[2, 3]));
    a.exchange(&b);
    let verify = OwnChange::Verify { target: Active };
    let first = apply(&a, &verify, &first);
    assert_eq!((first.state, &first.tokens[..]), (Active, &[Token(1), Token(2)][..]));
    let second = apply(&b, &verify, &second);
    assert_eq!(second.state, InstanceState::Joining, "it observes its new token first");
    assert_eq!(second.tokens.len(), 2);
    assert!(second.tokens.contains(&Token(3)) && !second.tokens.contains(&Token(2)));
    a.exchange(&b);
    let second = apply(&b, &verify, &second);
    assert_eq!(second.state, Active);
    a.exchange(&b);
    assert_eq!(a.held(), b.held());
}

/// Cortex's TestMultipleCodecs, and what it cannot use.
#[test]
fn kinds_are_kept_apart_and_strange_messages_counted() {
    let (a, b) = (Node::new(), Node::new());
    a.beat("a");
    let elected = ElectedReplica { replica: "r".to_owned(), received_at_ms: 5, deleted_at_ms: 0 };
    a.store.swap("ha/t/c", 0, Value::Replica(elected.clone())).expect("sound");
    a.tell(&[&b]);
    let read = b.store.read("ha/t/c", ValueKind::Replica).expect("readable").bytes.expect("there");
    assert_eq!(replica_desc::decode(&read).expect("a replica"), elected);
    assert_eq!(states(&b.ring()), [("a", Active)]);

    let metrics = &b.store.0.metrics;
    let received = metrics.received.get();
    let pair = |key: &str, codec: &str, value: &'static [u8]| Pair {
        key: key.to_owned(),
        value: Bytes::from_static(value),
        codec: codec.to_owned(),
        deleted: false,
        updated_at_ms: 0,
    };
    let before = b.held();
    let strange = [
        Bytes::from_static(b"\xff"),
        key_value_pair::encode(&pair("", "ringDesc", b"\0")),
        key_value_pair::encode(&pair("k", "partitionRingDesc", b"\0")),
        // Understood as pairs, so not invalid by Cortex's count; their values are no good.
        key_value_pair::encode(&pair("ring", "ringDesc", b"\xff")),
        key_value_pair::encode(&pair("ring", "replicaDesc", b"\0")),
    ];
    strange.into_iter().for_each(|message| b.store.receive(message));
    assert_eq!(metrics.received.get() - received, 5);
    assert_eq!(metrics.received_invalid.get(), 3);
    assert_eq!(b.held(), before);
    // In a state the others are still read.
    let mut state = Vec::new();
    key_value_pair::append(&pair("k", "partitionRingDesc", b"\0"), &mut state);
    state.extend_from_slice(&a.store.local_state());
    state.extend_from_slice(b"\0\0\0");
    let c = Node::new();
    c.store.merge_remote_state(state.into());
    assert_eq!(c.held(), before);
}

#[test]
fn nothing_is_passed_on_while_we_leave_but_our_own_word() {
    let (a, b) = (Node::new(), Node::new());
    a.beat("a");
    let news = a.store.take_broadcasts();
    b.store.enter(Phase::Leaving);
    b.store.enter(Phase::Running);
    assert_eq!(b.store.phase(), Phase::Leaving, "back is no way");
    b.store.receive(news[0].bytes.clone());
    assert!(b.store.take_broadcasts().is_empty());
    assert_eq!(states(&b.ring()), [("a", Active)], "it is known all the same");
    b.beat("b");
    assert_eq!(b.tell(&[&a]), 1);
    b.store.enter(Phase::Stopped);
    b.wait(1000);
    assert_eq!(b.beat("b"), Swapped::Done);
    assert!(b.store.take_broadcasts().is_empty());
}

/// Cortex's TestDeletePropagatedViaLocalStateSync.
#[test]
fn a_deleted_key_is_told_in_states_until_it_is_swept() {
    let (a, b) = (Node::new(), Node::new());
    let elected = ElectedReplica { replica: "r".to_owned(), received_at_ms: 5, deleted_at_ms: 0 };
    a.store.swap("k", 0, Value::Replica(elected)).expect("sound");
    a.exchange(&b);
    a.wait(1);
    a.store.delete("k").expect("sound");
    a.exchange(&b);
    assert_eq!(b.store.read("k", ValueKind::Replica).expect("readable").bytes, None);
    let keys = |node: &Node| node.store.0.metrics.values.get();
    assert_eq!((keys(&a), keys(&b)), (1, 1));
    a.wait(300_001);
    a.store.sweep();
    b.store.sweep();
    assert_eq!((keys(&a), keys(&b)), (0, 1), "each by its clock");
    assert_eq!(a.store.0.metrics.swept.get(), 1);
}

#[test]
fn the_page_shows_keys_messages_and_values_as_cortexs() {
    let (a, b) = (Node::with_history(10_000), Node::with_history(10_000));
    a.write(|ring, now_s| {
        let entry = Instance { tokens: vec![Token(1), Token(300)], ..entry(now_s) };
        ring.instances.insert("a".to_owned(), entry);
    });
    a.tell(&[&b]);
    let view = b.store.view();
    assert_eq!(view.keys[0].details(), "version: 1, codec: ringDesc");
    assert_eq!((view.received.len(), view.sent.len()), (1, 1));
    let received = &view.received[0];
    assert_eq!(
        (received.id, received.version, &received.changes[..]),
        (1, 1, &["a".to_owned()][..])
    );
    let json = "{\"ingesters\":{\"a\":{\"addr\":\"10.0.0.1:9095\",\"timestamp\":1800000000,\
                \"tokens\":[1,300]}}}\n";
    assert_eq!(b.store.view_key("ring", Format::from_name("json")).as_deref(), Ok(json));
    assert_eq!(b.store.view_message(1, Format::Json).as_deref(), Ok(json));
    let text = "&ring.Desc{Ingesters: map[string]InstanceDesc{\"a\": ring.InstanceDesc{\
                Addr:\"10.0.0.1:9095\", Timestamp:1800000000, State:0, \
                Tokens:[]uint32{0x1, 0x12c}, Zone:\"\", RegisteredTimestamp:0},},\n}";
    assert_eq!(b.store.view_key("ring", Format::from_name("struct")).as_deref(), Ok(text));
    let pretty = b.store.view_key("ring", Format::JsonPretty).expect("there");
    assert!(pretty.starts_with("{\n    \"ingesters\": {\n        \"a\": {\n"), "{pretty}");
    assert_eq!(b.store.view_key("k", Format::Json), Err(ViewError::NoValue));
    assert_eq!(b.store.view_message(9, Format::Json), Err(ViewError::NoMessage));
    let download = b.store.download("ring").expect("there");
    assert_eq!(download.filename, "1-ring");
    assert_eq!(ring_desc::decode(&download.bytes).expect("a ring"), b.ring());
    b.store.delete_messages();
    assert!(b.store.view().received.is_empty());
    assert!(b.store.history().messages(Direction::Sent).next().is_none());
}

#[test]
fn writes_and_tombstones_are_counted() {
    let node = Node::new();
    node.beat("a");
    node.forget("a");
    let tombstones = node.store.0.metrics.clone();
    tombstones.looked_through("ring", merge::Tombstones { kept: 2, removed: 3 });
    assert_eq!(tombstones.cas_attempts.get(), 2);
    assert_eq!(tombstones.cas_successes.get(), 2);
    assert_eq!(tombstones.values.collect()[0].get_metric()[0].get_gauge().get_value(), 1.0);
    tombstones.forget("ring");
    tombstones.forget("ring");
}

#[tokio::test]
async fn who_gossips_waits_for_news() {
    let node = Node::new();
    let waiting = node.store.broadcasts_ready();
    let mut waiting = std::pin::pin!(waiting);
    tokio::select! {
        biased;
        () = &mut waiting => panic!("nothing is to be told"),
        () = tokio::task::yield_now() => {}
    }
    node.beat("a");
    waiting.await;
    assert_eq!(node.store.take_broadcasts().len(), 1);
    node.wait(1000);
    node.beat("a");
    node.store.broadcasts_ready().await;
}

/// Members come, heartbeat, leave and are forgotten, replicas are elected and deleted, by clocks
/// that differ, while messages are lost, come twice and out of order. Then each pair of
/// neighbours exchanges states, twice around, and all hold the same.
#[test]
fn stores_agree_after_an_exchange_whatever_was_lost() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let nodes: Vec<Node> = (0..rng.random_range(2..6)).map(|_| Node::new()).collect();
        nodes.iter().for_each(|node| node.wait(rng.random_range(0..3000)));
        let mut under_way: Vec<(usize, Bytes)> = Vec::new();
        for _ in 0..150 {
            let at = rng.random_range(0..nodes.len());
            let node = &nodes[at];
            match rng.random_range(0..12) {
                0 => drop(node.forget(&format!("m{at}"))),
                1 => drop(node.forget(&format!("m{}", rng.random_range(0..nodes.len())))),
                2 => {
                    let now_ms = node.now_ms.load(Ordering::Relaxed);
                    let elected = ElectedReplica {
                        replica: format!("r{at}"),
                        received_at_ms: now_ms,
                        deleted_at_ms: 0,
                    };
                    let version =
                        node.store.read("ha", ValueKind::Replica).expect("readable").version;
                    node.store.swap("ha", version, Value::Replica(elected)).expect("sound");
                }
                3 => node.store.delete("ha").expect("sound"),
                _ => drop(node.beat(&format!("m{at}"))),
            }
            for broadcast in node.store.take_broadcasts() {
                for to in 0..nodes.len() {
                    // Lost, once, or twice.
                    let copies = rng.random_range(0..3);
                    under_way.extend((0..copies).map(|_| (to, broadcast.bytes.clone())));
                }
            }
            for _ in 0..rng.random_range(0..4) {
                if !under_way.is_empty() {
                    let (to, bytes) = under_way.swap_remove(rng.random_range(0..under_way.len()));
                    nodes[to].store.receive(bytes);
                }
            }
            nodes.iter().for_each(|node| node.wait(rng.random_range(0..700)));
        }
        for (to, bytes) in under_way {
            nodes[to].store.receive(bytes);
        }
        for _ in 0..2 {
            for at in 0..nodes.len() {
                nodes[at].exchange(&nodes[(at + 1) % nodes.len()]);
            }
        }
        for node in &nodes[1..] {
            assert_eq!(node.held(), nodes[0].held(), "seed {seed}");
        }
    }
}
