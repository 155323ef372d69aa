//! What gossip about a large ring costs a member: a full exchange of state, one heartbeat as it
//! comes first and as it comes again, and a member that joins; and first, in `member`, all of it
//! as a part of a core, and in `worst` what a single packet can take.
//!
//! Rival: conflicts searched for among all tokens by a hash map, at each merge that brings
//! tokens. The seed is fixed; the shape is `instances × tokens`. Of 600 members that heartbeat
//! every five seconds 120 heartbeats come in a second, each some dozen times.

#[path = "gossip/member.rs"]
mod member;
#[path = "gossip/worst.rs"]
mod worst;

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use freehold::ring::Token;
use freehold::ring::go_rand::GoRand;
use freehold::ring::kv::memberlist::merge::{Origin, merge};
use freehold::ring::kv::memberlist::{GossipedStore, Metrics, Phase, Retention, Settings};
use freehold::ring::lifecycler::WallClock;
use freehold::ring::model::{Instance, InstanceState, RingModel};
use freehold::wire::key_value_pair::{self, Pair};
use freehold::wire::ring_desc;

const NOW_S: i64 = 1_700_000_000;
const INSTANCES: usize = 600;
const TOKENS_EACH: usize = 512;

fn gossip_benches(c: &mut Criterion) {
    member::report(15_000);
    // The harder case: as often as Freehold's and Cortex's own default has it.
    member::report(5_000);
    worst::report();
    let ring = ring();
    exchanges(c, &ring);
    messages(c, &ring);
}

/// A peer's whole ring, from its bytes to what is new in it.
fn exchanges(c: &mut Criterion, ring: &RingModel) {
    let mut beaten = ring.clone();
    let mut moved = ring.clone();
    for (beaten, moved) in beaten.instances.values_mut().zip(moved.instances.values_mut()) {
        beaten.timestamp_s += 5;
        moved.timestamp_s += 5;
        moved.tokens[0].0 ^= 1;
    }
    let mut group = c.benchmark_group(format!("gossip/exchange/{INSTANCES}x{TOKENS_EACH}"));
    let mut bench = |name: &str, ours: &RingModel, theirs: &RingModel, changed: usize| {
        let bytes = ring_desc::encode(theirs).expect("encode");
        let exchange = |mut ours: RingModel| {
            let theirs = ring_desc::decode(&bytes).expect("decode");
            let merged = merge(&mut ours, theirs, Origin::Peer, NOW_S).expect("merge");
            assert_eq!(merged.as_ref().map_or(0, |merged| merged.change.instances.len()), changed);
            (ours, merged)
        };
        group.bench_function(name, |b| {
            b.iter_batched(|| ours.clone(), exchange, BatchSize::LargeInput);
        });
    };
    bench("nothing-new", ring, ring, 0);
    bench("heartbeats", ring, &beaten, INSTANCES);
    bench("tokens-moved", ring, &moved, INSTANCES);
    bench("all-new", &RingModel::default(), ring, INSTANCES);
    let bytes = ring_desc::encode(&moved).expect("encode");
    group.bench_function("rival-all-tokens-hashed", |b| {
        b.iter_batched(
            || ring.clone(),
            |mut ours| {
                let theirs = ring_desc::decode(&bytes).expect("decode");
                let change = theirs.clone();
                ours.instances.extend(theirs.instances);
                let mut holders = HashMap::new();
                let claims = ours
                    .instances
                    .iter()
                    .flat_map(|(id, entry)| entry.tokens.iter().map(move |token| (*token, id)));
                let contested =
                    claims.filter(|(token, id)| holders.insert(*token, *id).is_some()).count();
                (black_box(contested), change, ours.clone())
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// One member's user message, from its bytes to the broadcast that passes it on; and the whole
/// state for a peer.
fn messages(c: &mut Criterion, ring: &RingModel) {
    let mut group = c.benchmark_group(format!("gossip/message/{INSTANCES}x{TOKENS_EACH}"));
    let store = store(ring);
    let id = "ingester-300";
    let mut beat_s = NOW_S;
    let mut beat = |tokens_moved: bool| {
        beat_s += 1;
        let mut entry = ring.instances[id].clone();
        entry.timestamp_s = beat_s;
        if tokens_moved {
            entry.tokens[0].0 ^= beat_s as u32;
        }
        message(RingModel {
            instances: [(id.to_owned(), entry)].into_iter().collect(),
            unknown_fields: Vec::new(),
        })
    };
    group.bench_function("heartbeat", |b| {
        b.iter_batched(
            || beat(false),
            |message| {
                store.receive(message);
                let told = store.take_broadcasts();
                assert_eq!(told.len(), 1);
                told
            },
            BatchSize::PerIteration,
        );
    });
    let again = beat(false);
    store.receive(again.clone());
    store.take_broadcasts();
    group.bench_function("heartbeat-again", |b| {
        b.iter(|| {
            store.receive(again.clone());
            assert!(store.take_broadcasts().is_empty());
        });
    });
    group.bench_function("tokens-moved", |b| {
        b.iter_batched(
            || beat(true),
            |message| {
                store.receive(message);
                store.take_broadcasts()
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("local-state", |b| b.iter(|| store.local_state()));
    group.finish();
}

fn store(ring: &RingModel) -> GossipedStore {
    // Ahead of all that is told, however long the bench runs.
    store_by(ring, Arc::new(|| (NOW_S + 1_000_000_000) * 1000))
}

fn store_by(ring: &RingModel, clock: WallClock) -> GossipedStore {
    let settings = Settings {
        retention: Retention { left_ms: 300_000, deleted_ms: 300_000 },
        history_bytes_max: 0,
    };
    let metrics = Metrics::register(&prometheus::Registry::new()).expect("a fresh registry");
    let store = GossipedStore::new(settings, clock, metrics);
    store.enter(Phase::Running);
    store.receive(message(ring.clone()));
    store.take_broadcasts();
    store
}

fn message(ring: RingModel) -> Bytes {
    key_value_pair::encode(&Pair {
        key: "ring".to_owned(),
        value: ring_desc::encode(&ring).expect("encode").into(),
        codec: "ringDesc".to_owned(),
        deleted: false,
        updated_at_ms: NOW_S * 1000,
    })
}

fn ring() -> RingModel {
    let mut random = GoRand::new(1);
    let mut taken = HashSet::new();
    let instances = (0..INSTANCES).map(|i| {
        // In a ring that was agreed on no token has two claimants.
        let mut tokens: Vec<Token> = std::iter::repeat_with(|| Token(random.next_u32()))
            .filter(|token| taken.insert(*token))
            .take(TOKENS_EACH)
            .collect();
        tokens.sort_unstable();
        let instance = Instance {
            addr: format!("10.0.{}.{}:9095", i / 256, i % 256),
            timestamp_s: NOW_S,
            state: InstanceState::Active,
            tokens,
            zone: format!("zone-{}", i % 3),
            registered_timestamp_s: NOW_S - 86_400,
            unknown_fields: Vec::new(),
        };
        (format!("ingester-{i:03}"), instance)
    });
    RingModel { instances: instances.collect(), unknown_fields: Vec::new() }
}

criterion_group!(benches, gossip_benches);
criterion_main!(benches);
