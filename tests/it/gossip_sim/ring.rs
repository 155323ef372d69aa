//! What is gossiped: the ring's store as it runs, and one member's part in the ring kept in it.
//!
//! Writes go through `KvClient::cas` with the changes of `ring::merge`, as the lifecycler makes
//! them. The store's clock is the member's own, which the world turns.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use freehold::ring::Token;
use freehold::ring::kv::memberlist::value::ValueKind;
use freehold::ring::kv::memberlist::{
    Broadcast, GossipedStore, Metrics, Phase, Retention, Settings,
};
use freehold::ring::kv::{KvClient, KvError};
use freehold::ring::merge::{self, Change, Member};
use freehold::ring::model::{Instance, InstanceState, RingModel};
use freehold::wire::key_value_pair::State;
use freehold::wire::ring_desc;
use futures_util::FutureExt as _;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;

const KEY: &str = "collectors/ring";

/// How long a tombstone is kept; Cortex's default.
const LEFT_MS: u64 = 300_000;

/// What tokens a member brings to its first life.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    pub count: usize,
    /// All are below it. Where it is small, members that have not heard of each other claim the
    /// same ones.
    pub end: u32,
}

impl Tokens {
    pub const FEW: Self = Self { count: 4, end: 400 };
    /// As many as Cortex's default ring has of each.
    pub const MANY: Self = Self { count: 512, end: u32::MAX };
}

/// A member's copy of the ring, and what it has still to write of itself.
pub struct Ring {
    pub store: GossipedStore,
    kv: KvClient,
    wall_ms: Arc<AtomicI64>,
    member: Member,
    rng: SmallRng,
    todo: VecDeque<Change>,
    runtime: Handle,
    /// What the members that have not left looked like, as of these bytes.
    seen: Option<(Bytes, Arc<BTreeMap<String, Instance>>)>,
}

impl Ring {
    pub fn new(id: &str, addr: String, tokens: Tokens, seed: u64, runtime: Handle) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut claims: Vec<Token> =
            (0..tokens.count).map(|_| Token(rng.random_range(0..tokens.end))).collect();
        claims.sort_unstable();
        claims.dedup();
        let wall_ms = Arc::new(AtomicI64::new(0));
        let clock = Arc::clone(&wall_ms);
        let retention = Retention { left_ms: LEFT_MS, deleted_ms: LEFT_MS };
        let settings = Settings { retention, history_bytes_max: 0 };
        let metrics = Metrics::register(&prometheus::Registry::new()).expect("a fresh registry");
        let clock = Arc::new(move || clock.load(Ordering::Relaxed));
        let store = GossipedStore::new(settings, clock, metrics);
        Self {
            kv: KvClient::Memberlist(store.client(ValueKind::Ring)),
            store,
            wall_ms,
            member: Member {
                id: id.to_owned(),
                addr,
                zone: String::new(),
                num_tokens: tokens.count,
                state: InstanceState::Joining,
                tokens: claims,
                registered_timestamp_s: 0,
                resume_state: InstanceState::Active,
            },
            rng,
            runtime,
            todo: [Change::Register, Change::Join { target: InstanceState::Active }].into(),
            seen: None,
        }
    }

    /// All that is done next happens at that time of its own clock.
    pub fn turn_clock(&self, wall_ms: i64) {
        self.wall_ms.store(wall_ms, Ordering::Relaxed);
    }

    pub fn beat(&mut self) {
        if self.todo.is_empty() {
            self.todo.push_back(Change::Refresh);
        }
    }

    /// Leaves as the lifecycler does; the entry stays for who comes back.
    pub fn leave(&mut self, for_good: bool) {
        self.member.state = InstanceState::Leaving;
        self.todo.clear();
        self.todo.push_back(Change::Refresh);
        if for_good {
            self.todo.push_back(Change::Unregister);
        }
    }

    /// Takes another's entry out, as an operator does.
    pub fn forget(&mut self, id: &str) {
        self.todo.push_back(Change::Forget { id: id.to_owned() });
    }

    pub fn has_to_write(&self) -> bool {
        !self.todo.is_empty()
    }

    /// Writes what is to be written, in order; when to go on with the rest by our clock, if some
    /// has to wait: for the gossip to be joined, or for the next second, as of two entries of one
    /// second the second is no news. `KvClient` waits itself; here its wait is dropped, and what
    /// it would do at its end is done anew.
    pub fn write(&mut self) -> Option<i64> {
        let _runtime = self.runtime.enter();
        while let Some(change) = self.todo.front() {
            let wall_ms = self.wall_ms.load(Ordering::Relaxed);
            let Self { kv, member, rng, .. } = self;
            let mut applied = None;
            let swap = kv.cas(KEY, |bytes| {
                let mut ring = bytes.map_or_else(RingModel::default, |bytes| decode(&bytes));
                let was_there = ring.instances.contains_key(&member.id);
                applied = Some(merge::apply(change, member, &mut ring, wall_ms / 1000, rng));
                let is_changed = was_there || *change != Change::Unregister;
                Ok(is_changed.then(|| ring_desc::encode(&ring).expect("it is small").into()))
            });
            match swap.now_or_never() {
                Some(Ok(())) => {}
                Some(Err(KvError::Value(why))) => panic!("the ring cannot be written: {why}"),
                Some(Err(_)) | None => return Some((wall_ms / 1000 + 1) * 1000),
            }
            if let Some(applied) = applied {
                self.member = applied;
            }
            self.todo.pop_front();
        }
        None
    }

    pub fn take_broadcasts(&self) -> Vec<Broadcast> {
        self.store.take_broadcasts()
    }

    pub fn joined(&self) {
        self.store.enter(Phase::Running);
    }

    /// The ring as those see it who use it: without tombstones.
    pub fn visible(&mut self) -> Arc<BTreeMap<String, Instance>> {
        let _runtime = self.runtime.enter();
        let read = self.kv.get(KEY).now_or_never().and_then(Result::ok);
        let bytes = read.and_then(|value| value.bytes).unwrap_or_default();
        match &self.seen {
            Some((known, seen)) if *known == bytes => Arc::clone(seen),
            _ => {
                let ring = if bytes.is_empty() { RingModel::default() } else { decode(&bytes) };
                let seen = Arc::new(ring.instances);
                self.seen = Some((bytes, Arc::clone(&seen)));
                seen
            }
        }
    }

    /// All that the store holds, tombstones included.
    pub fn held(&self) -> BTreeMap<String, Instance> {
        let mut pairs = State::new(self.store.local_state());
        match pairs.next() {
            Some(pair) => decode(&pair.expect("it is our own").0.value).instances,
            None => BTreeMap::new(),
        }
    }
}

fn decode(bytes: &[u8]) -> RingModel {
    ring_desc::decode(bytes).expect("only rings are gossiped")
}
