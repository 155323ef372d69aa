//! The members, their time, and what they do with what the machine puts out: a driver for each.
//!
//! It does what `ring::kv::memberlist::gossiping` does, and in that order: what the machine puts
//! out is carried out (`settle`, there `carry_out`), what the store has to tell goes to the machine
//! (`take_broadcasts`), a called side makes its half before it merges the other's (`exchange`), the
//! store is open once joining was tried (`joining`), and who goes first tells what is to be told
//! (`stop`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::ops::Sub;
use std::sync::Arc;
use std::time::Instant;

use freehold::gossip::membership::{Membership, Output};
use freehold::gossip::settings::Settings;
use freehold::ring::kv::memberlist::{Broadcast, Phase};
use freehold::ring::model::{Instance, InstanceState};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;

use super::faults::{FORGET_AFTER_MS, Fault, LAST_WORDS_MS, LEAVE_MS, PAUSE_MAX_MS, Plan};
use super::network::{self, Event, Events, FAIR, Half, Weather};
use super::ring::{Ring, Tokens};

const BEAT_MS: u64 = 15_000;
const REJOIN_MS: u64 = 60_000;
/// After which a dead member's name is given to another address.
pub const RECLAIM_MS: u64 = 30_000;
/// How long joining is tried before the store is open; Cortex's `-memberlist.stream-timeout`.
const JOIN_MS: u64 = 10_000;
/// Between two looks at whether the last words are told.
const LAST_WORDS_POLL_MS: u64 = 50;

/// A frozen process' listener takes so many connections; the rest are lost.
const BACKLOG: usize = 128;

/// When the world begins, by a true clock.
const EPOCH_MS: i64 = 1_700_000_000_000;

/// Bytes and time spent by all, or by the one that is timed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub packets: u64,
    pub packet_bytes: u64,
    pub stream_bytes: u64,
    core_ns: u64,
    store_ns: u64,
}

struct Member {
    id: String,
    /// `None`: it is not running.
    core: Option<Membership>,
    ring: Ring,
    addr: SocketAddr,
    life: u32,
    skew_ms: i64,
    is_frozen: bool,
    is_over: bool,
    is_leaving: bool,
    /// Comes back so long after it has stopped.
    pause_ms: Option<u64>,
    inbox: Vec<Event>,
    wake_ms: u64,
}

pub struct World {
    now_ms: u64,
    rng: SmallRng,
    events: Events,
    members: Vec<Member>,
    by_addr: HashMap<SocketAddr, usize>,
    weather: Weather,
    cut: Option<u64>,
    faults: Vec<(u64, Fault)>,
    skew_max_ms: i64,
    tokens: Tokens,
    has_beats: bool,
    traffic: Traffic,
    last_port: u32,
    /// What the store's waits are made in; none of them is waited for.
    runtime: Runtime,
}

impl World {
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let mut world = Self {
            now_ms: 0,
            rng: SmallRng::seed_from_u64(seed),
            events: Events::default(),
            members: Vec::new(),
            by_addr: HashMap::new(),
            weather: FAIR,
            cut: None,
            faults: plan.faults.clone(),
            skew_max_ms: plan.skew_max_ms,
            tokens: plan.tokens,
            has_beats: true,
            traffic: Traffic::default(),
            last_port: 0,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .expect("it needs no files"),
        };
        for (at, (at_ms, _)) in plan.faults.iter().enumerate() {
            world.events.push(*at_ms, Event::Fault(at));
        }
        for _ in 0..plan.members {
            let at_ms = world.rng.random_range(0..10_000);
            world.newcomer(at_ms);
        }
        world
    }

    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub fn run_for(&mut self, span_ms: u64) {
        self.run_until(self.now_ms + span_ms);
    }

    pub fn run_until(&mut self, until_ms: u64) {
        while let Some((at_ms, event)) = self.events.pop(until_ms) {
            self.now_ms = at_ms;
            self.happen(event);
        }
        self.now_ms = self.now_ms.max(until_ms);
    }

    /// Nothing disturbs any more.
    pub fn calm(&mut self) {
        self.weather = FAIR;
        self.cut = None;
    }

    pub fn stop_beats(&mut self) {
        self.has_beats = false;
    }

    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Time that the first member's machine and its store took since then, per second.
    pub fn us_per_s(&self, before: Traffic, seconds: u64) -> (u64, u64) {
        let Traffic { core_ns, store_ns, .. } = self.traffic - before;
        (core_ns / 1000 / seconds, store_ns / 1000 / seconds)
    }

    /// Where somebody's view of who is there differs from the truth.
    pub fn members_differ(&mut self) -> Option<String> {
        let truth: BTreeSet<(&str, SocketAddr)> =
            self.running().map(|member| (member.id.as_str(), member.addr)).collect();
        for member in self.running() {
            let peers = member.core.as_ref().unwrap().peers();
            let seen: BTreeSet<(&str, SocketAddr)> = peers
                .iter()
                .filter(|peer| !peer.is_gone())
                .map(|peer| (&*peer.name, peer.addr))
                .collect();
            if seen != truth {
                let missing: Vec<_> = truth.difference(&seen).collect();
                let gone: Vec<_> = seen.difference(&truth).collect();
                let id = &member.id;
                return Some(format!("{id} does not see {missing:?}, and still sees {gone:?}"));
            }
        }
        None
    }

    /// Where somebody's ring differs from that of the others in more than heartbeats, lacks
    /// somebody who is there, or has a token twice.
    pub fn ring_differs(&mut self) -> Option<String> {
        let rings: Vec<_> = self
            .members
            .iter_mut()
            .filter(|member| member.core.is_some())
            .map(|member| (member.id.clone(), member.ring.visible()))
            .collect();
        let what = |entry: &Instance| (entry.addr.clone(), entry.state, entry.tokens.clone());
        let (_, first) = rings.first()?;
        for (id, ring) in &rings {
            let has_same = |(id, entry): (&String, &Instance)| {
                first.get(id).is_some_and(|other| what(entry) == what(other))
            };
            if !Arc::ptr_eq(ring, first)
                && (ring.len() != first.len() || !ring.iter().all(has_same))
            {
                return Some(format!("the ring of {id} is {ring:?}, another's {first:?}"));
            }
        }
        let is_there =
            |id: &String| first.get(id).is_some_and(|entry| entry.state == InstanceState::Active);
        if let Some((lost, _)) = rings.iter().find(|(id, _)| !is_there(id)) {
            return Some(format!("{lost} is not ACTIVE in the ring"));
        }
        let mut holders = BTreeMap::new();
        for (id, entry) in first.iter() {
            for token in &entry.tokens {
                if let Some(other) = holders.insert(*token, id) {
                    return Some(format!("{other} and {id} both have {token:?}"));
                }
            }
        }
        None
    }

    /// Where two rings differ at all, but for tombstones, which go at each one's own time.
    pub fn states_differ(&mut self) -> Option<String> {
        let mut rings = self.views().map(|mut ring| {
            ring.retain(|_, entry| entry.state != InstanceState::Left);
            ring
        });
        let first = rings.next()?;
        let other = rings.find(|other| *other != first)?;
        Some(format!("one has {first:?}, another {other:?}"))
    }

    /// The ring as each of those running holds it, with its tombstones.
    pub fn views(&self) -> impl Iterator<Item = BTreeMap<String, Instance>> {
        self.running().map(|member| member.ring.held())
    }

    fn running(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.core.is_some())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Fault(at) => self.befall(self.faults[at].1.clone()),
            Event::Heal => self.cut = None,
            Event::Clear => self.weather = FAIR,
            Event::Thaw { member } => self.thaw(member),
            Event::Start { member } => self.start(member),
            Event::Stop { member, life } if self.is_now(member, life) => self.stop(member),
            Event::Wake { member, life } if self.is_now(member, life) => {
                self.members[member].wake_ms = u64::MAX;
                if !self.members[member].is_frozen {
                    let now_ms = self.now_ms;
                    self.timed(member, |core| core.tick(now_ms));
                    self.settle(member);
                }
            }
            Event::Beat { member, life } if self.is_now(member, life) => self.beat(member),
            Event::Rejoin { member, life } if self.is_now(member, life) => self.rejoin(member),
            Event::Write { member, life } if self.is_now(member, life) => self.write(member),
            Event::Joined { member, life } if self.is_now(member, life) => {
                self.members[member].ring.joined();
            }
            Event::LastWords { member, life, until_ms } if self.is_now(member, life) => {
                self.last_words(member, until_ms);
            }
            Event::Forget { member } => self.forget(member),
            Event::Packet { to, .. }
            | Event::Called { to, .. }
            | Event::Answered { to, .. }
            | Event::StreamPing { to, .. }
            | Event::StreamPong { to, .. } => self.arrive(to, event),
            Event::Stop { .. }
            | Event::Wake { .. }
            | Event::Beat { .. }
            | Event::Rejoin { .. }
            | Event::Write { .. }
            | Event::Joined { .. }
            | Event::LastWords { .. } => {}
        }
    }

    fn befall(&mut self, fault: Fault) {
        match fault {
            Fault::Weather { loss, delay_max_ms, for_ms } => {
                self.weather = Weather { loss, delay_max_ms };
                self.events.push(self.now_ms + for_ms, Event::Clear);
            }
            Fault::Partition { cut, for_ms } => {
                self.cut = Some(cut);
                self.events.push(self.now_ms + for_ms, Event::Heal);
            }
            Fault::Restart { member, is_graceful } => {
                let pause_ms = self.rng.random_range(100..PAUSE_MAX_MS);
                let restarted = &mut self.members[member];
                if restarted.core.is_none() || restarted.is_over || restarted.is_leaving {
                    return;
                }
                restarted.pause_ms = Some(pause_ms);
                if is_graceful { self.goodbye(member, false) } else { self.stop(member) }
            }
            Fault::Crash { member } => {
                self.members[member].is_over = true;
                self.kill(member);
            }
            Fault::Leave { member } => {
                let leaver = &mut self.members[member];
                leaver.is_over = true;
                leaver.pause_ms = None;
                match &leaver.core {
                    // It had left its entry for its next life.
                    _ if leaver.is_leaving => self.forget_later(member),
                    Some(_) => self.goodbye(member, true),
                    None => self.forget_later(member),
                }
            }
            Fault::Freeze { member, for_ms } => {
                self.members[member].is_frozen = true;
                self.events.push(self.now_ms + for_ms, Event::Thaw { member });
            }
            Fault::Newcomer => self.newcomer(self.now_ms + 1),
        }
    }

    fn newcomer(&mut self, at_ms: u64) {
        let member = self.members.len();
        let id = format!("m{member}");
        let skew_ms = self.rng.random_range(-self.skew_max_ms..=self.skew_max_ms);
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        let ring = self.new_ring(&id, addr);
        self.members.push(Member {
            ring,
            id,
            core: None,
            addr,
            life: 0,
            skew_ms,
            is_frozen: false,
            is_over: false,
            is_leaving: false,
            pause_ms: None,
            inbox: Vec::new(),
            wake_ms: u64::MAX,
        });
        self.events.push(at_ms, Event::Start { member });
    }

    /// A new life: nothing of the old one is left but the name.
    fn start(&mut self, at: usize) {
        if self.members[at].core.is_some() || self.members[at].is_over {
            return;
        }
        self.last_port += 1;
        let [.., high, low] = self.last_port.to_be_bytes();
        let addr = SocketAddr::from(([10, 0, high, low], 7946));
        let id = self.members[at].id.clone();
        let ring = self.new_ring(&id, addr);
        let member = &mut self.members[at];
        let settings = Settings { dead_reclaim_ms: RECLAIM_MS, ..Settings::new(&member.id, addr) };
        member.core = Some(Membership::new(settings, self.rng.random(), self.now_ms));
        member.ring = ring;
        member.is_leaving = false;
        member.addr = addr;
        member.life += 1;
        member.wake_ms = u64::MAX;
        let life = member.life;
        self.by_addr.insert(addr, at);
        self.rejoin(at);
        self.events.push(self.now_ms + JOIN_MS, Event::Joined { member: at, life });
        let first_ms = self.rng.random_range(100..2_000);
        self.events.push(self.now_ms + first_ms, Event::Write { member: at, life });
        self.events.push(self.now_ms + first_ms + BEAT_MS, Event::Beat { member: at, life });
    }

    fn stop(&mut self, at: usize) {
        let member = &mut self.members[at];
        member.core = None;
        member.life += 1;
        member.is_frozen = false;
        member.inbox.clear();
        self.by_addr.remove(&member.addr);
        if let Some(pause_ms) = member.pause_ms.take() {
            self.events.push(self.now_ms + pause_ms, Event::Start { member: at });
        }
    }

    /// Gone without a word, for good.
    fn kill(&mut self, at: usize) {
        self.members[at].pause_ms = None;
        self.stop(at);
        self.forget_later(at);
    }

    fn forget_later(&mut self, at: usize) {
        self.events.push(self.now_ms + FORGET_AFTER_MS, Event::Forget { member: at });
    }

    fn new_ring(&mut self, id: &str, addr: SocketAddr) -> Ring {
        let seed = self.rng.random();
        Ring::new(id, addr.to_string(), self.tokens, seed, self.runtime.handle().clone())
    }

    /// Leaves the ring, then the gossip.
    fn goodbye(&mut self, at: usize, for_good: bool) {
        let member = &mut self.members[at];
        if member.is_frozen {
            // Who does not run does not say good-bye; this is a kill.
            return if for_good { self.kill(at) } else { self.stop(at) };
        }
        member.is_leaving = true;
        member.ring.leave(for_good);
        let (life, until_ms) = (member.life, self.now_ms + LAST_WORDS_MS);
        self.write(at);
        self.last_words_later(at, life, until_ms, LAST_WORDS_POLL_MS);
    }

    fn last_words_later(&mut self, member: usize, life: u32, until_ms: u64, after_ms: u64) {
        let event = Event::LastWords { member, life, until_ms };
        self.events.push(self.now_ms + after_ms, event);
    }

    /// Goes once all is told that is to be told, or it takes too long.
    fn last_words(&mut self, at: usize, until_ms: u64) {
        let now_ms = self.now_ms;
        let member = &mut self.members[at];
        let life = member.life;
        let Some(core) = &member.core else { return };
        if core.has_left() {
            return;
        }
        if member.is_frozen {
            return self.last_words_later(at, life, until_ms, 1_000);
        }
        if !member.ring.has_to_write() {
            member.ring.store.enter(Phase::Leaving);
            let is_told = core.peers().live() <= 1 || core.changes().is_empty();
            if now_ms >= until_ms || (is_told && !member.ring.store.has_broadcasts()) {
                self.events.push(now_ms + LEAVE_MS, Event::Stop { member: at, life });
                self.timed(at, |core| core.leave(now_ms));
                return self.settle(at);
            }
        }
        self.last_words_later(at, life, until_ms, LAST_WORDS_POLL_MS);
    }

    /// An operator has somebody who runs take the entry out.
    fn forget(&mut self, gone: usize) {
        let found = self
            .members
            .iter()
            .position(|member| member.core.is_some() && !member.is_leaving && !member.is_frozen);
        let Some(at) = found else {
            return self.events.push(self.now_ms + 1_000, Event::Forget { member: gone });
        };
        let id = self.members[gone].id.clone();
        self.members[at].ring.forget(&id);
        self.write(at);
    }

    fn thaw(&mut self, at: usize) {
        self.members[at].is_frozen = false;
        for event in std::mem::take(&mut self.members[at].inbox) {
            self.happen(event);
        }
        self.settle(at);
    }

    fn beat(&mut self, at: usize) {
        let member = &mut self.members[at];
        let life = member.life;
        if self.has_beats && !member.is_frozen && !member.is_leaving {
            member.ring.beat();
            // Early by a little, which tombstones of keys do not notice.
            member.ring.store.sweep();
            self.write(at);
        }
        self.events.push(self.now_ms + BEAT_MS, Event::Beat { member: at, life });
    }

    /// Writes what there is to write; what has to wait does so.
    fn write(&mut self, at: usize) {
        let (now_ms, life) = (self.now_ms, self.members[at].life);
        if self.members[at].is_frozen {
            return self.events.push(now_ms + 1_000, Event::Write { member: at, life });
        }
        let mut again_ms = None;
        self.timed_store(at, |ring| again_ms = ring.write());
        if let Some(again_ms) = again_ms {
            let wait_ms = again_ms - self.members[at].wall_ms(now_ms);
            let at_ms = now_ms + u64::try_from(wait_ms).expect("it is to come");
            self.events.push(at_ms, Event::Write { member: at, life });
        }
        self.settle(at);
    }

    /// As a name service tells it: two of those who run.
    fn rejoin(&mut self, at: usize) {
        let life = self.members[at].life;
        let others: Vec<SocketAddr> = self
            .running()
            .map(|member| member.addr)
            .filter(|a| *a != self.members[at].addr)
            .collect();
        if !others.is_empty() && !self.members[at].is_frozen {
            let two: Vec<SocketAddr> =
                (0..2).map(|_| others[self.rng.random_range(0..others.len())]).collect();
            self.timed(at, |core| {
                core.join(&two);
            });
            self.settle(at);
        }
        if others.is_empty() {
            // There is nobody to join.
            self.members[at].ring.joined();
        }
        let pause_ms = if others.is_empty() { 1_000 } else { REJOIN_MS };
        self.events.push(self.now_ms + pause_ms, Event::Rejoin { member: at, life });
    }

    fn arrive(&mut self, to: SocketAddr, event: Event) {
        let Some(&at) = self.by_addr.get(&to) else { return };
        let now_ms = self.now_ms;
        let member = &mut self.members[at];
        if member.is_frozen {
            if member.inbox.len() < BACKLOG {
                member.inbox.push(event);
            }
            return;
        }
        match event {
            Event::Packet { from, messages, .. } => {
                self.timed(at, |core| core.receive(from, messages, now_ms));
            }
            Event::Called { from, half, .. } => {
                let mine = self.half(at);
                if self.is_open(to, from) {
                    let at_ms = self.weather.stream_arrival_ms(now_ms, &mut self.rng);
                    self.traffic.stream_bytes += mine.bytes();
                    self.events.push(at_ms, Event::Answered { to: from, half: mine });
                }
                self.merge(at, half);
            }
            Event::Answered { half, .. } => {
                self.merge(at, half);
                self.members[at].ring.joined();
            }
            Event::StreamPing { from, ping, until_ms, .. } => {
                let mut answer = None;
                self.timed(at, |core| answer = core.answer_stream_ping(from, &ping));
                if let Some(ack) = answer.filter(|_| self.is_open(to, from)) {
                    let at_ms = self.weather.stream_arrival_ms(now_ms, &mut self.rng);
                    let sequence = ack.sequence;
                    self.events.push(at_ms, Event::StreamPong { to: from, sequence, until_ms });
                }
            }
            Event::StreamPong { sequence, until_ms, .. } if now_ms <= until_ms => {
                self.timed(at, |core| core.stream_answered(sequence));
            }
            _ => {}
        }
        self.settle(at);
    }

    fn merge(&mut self, at: usize, half: Half) {
        let now_ms = self.now_ms;
        let mut merged = Ok(());
        self.timed(at, |core| merged = core.merge(half.reports, now_ms));
        merged.expect("all speak the same");
        self.timed_store(at, |ring| ring.store.merge_remote_state(half.state));
    }

    fn half(&mut self, at: usize) -> Half {
        let reports = self.members[at].core.as_ref().map(Membership::reports).unwrap_or_default();
        let mut state = bytes::Bytes::new();
        self.timed_store(at, |ring| state = ring.store.local_state());
        Half { reports, state }
    }

    /// Carries out what the machine wants, and sets its alarm.
    fn settle(&mut self, at: usize) {
        let from = self.members[at].addr;
        let Some(core) = &mut self.members[at].core else { return };
        for output in core.take_outputs() {
            match output {
                Output::Send { to, parts, .. } => self.send(from, to, &parts),
                Output::PushPullWith { to, .. } => self.call(at, to),
                Output::StreamPing { to, ping, until_ms } => {
                    if self.is_open(from, to) {
                        let at_ms = self.weather.stream_arrival_ms(self.now_ms, &mut self.rng);
                        self.events.push(at_ms, Event::StreamPing { from, to, ping, until_ms });
                    }
                }
                Output::User(bytes) => self.timed_store(at, |ring| ring.store.receive(bytes)),
                Output::LeaveSpread => {
                    let life = self.members[at].life;
                    self.events.push(self.now_ms, Event::Stop { member: at, life });
                }
                Output::Joined(_) | Output::Updated(_) | Output::Gone(_) | Output::Warning(_) => {}
            }
        }
        for Broadcast { key, content, version, bytes } in self.members[at].ring.take_broadcasts() {
            // What is too large for a packet goes by full exchanges.
            self.timed(at, |core| {
                let _ = core.broadcast(&key, &content, version, bytes);
            });
        }
        let member = &mut self.members[at];
        let Some(wake_ms) = member.core.as_ref().and_then(Membership::next_deadline_ms) else {
            return;
        };
        // A millisecond at least, as no driver is quicker.
        let wake_ms = wake_ms.max(self.now_ms + 1);
        if wake_ms < member.wake_ms {
            member.wake_ms = wake_ms;
            let life = member.life;
            self.events.push(wake_ms, Event::Wake { member: at, life });
        }
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, parts: &[bytes::Bytes]) {
        self.traffic.packets += 1;
        self.traffic.packet_bytes += network::packet_bytes(parts);
        if self.is_open(from, to)
            && let Some(at_ms) = self.weather.arrival_ms(self.now_ms, &mut self.rng)
        {
            let messages = network::read(parts);
            self.events.push(at_ms, Event::Packet { from, to, messages });
        }
    }

    fn call(&mut self, at: usize, to: SocketAddr) {
        let from = self.members[at].addr;
        if self.is_open(from, to) && self.by_addr.contains_key(&to) {
            let half = self.half(at);
            self.traffic.stream_bytes += half.bytes();
            let at_ms = self.weather.stream_arrival_ms(self.now_ms, &mut self.rng);
            self.events.push(at_ms, Event::Called { from, to, half });
        }
    }

    /// Whether one reaches the other.
    fn is_open(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let Some(cut) = self.cut else { return true };
        let side = |addr| self.by_addr.get(&addr).map(|at| (*at as u64).is_multiple_of(cut + 1));
        side(from) == side(to)
    }

    fn is_now(&self, at: usize, life: u32) -> bool {
        self.members[at].life == life && self.members[at].core.is_some()
    }

    /// The first member stands for all: looking at the clock costs as much as what is timed.
    #[expect(clippy::disallowed_methods, reason = "what the machine costs is measured here")]
    fn timed(&mut self, at: usize, input: impl FnOnce(&mut Membership)) {
        let Some(core) = &mut self.members[at].core else { return };
        if at != 0 {
            return input(core);
        }
        let started = Instant::now();
        input(core);
        self.traffic.core_ns += started.elapsed().as_nanos() as u64;
    }

    /// The same for its store, whose clock is turned to its time.
    #[expect(clippy::disallowed_methods, reason = "what the store costs is measured here")]
    fn timed_store(&mut self, at: usize, input: impl FnOnce(&mut Ring)) {
        let wall_ms = self.members[at].wall_ms(self.now_ms);
        let ring = &mut self.members[at].ring;
        ring.turn_clock(wall_ms);
        if at != 0 {
            return input(ring);
        }
        let started = Instant::now();
        input(ring);
        self.traffic.store_ns += started.elapsed().as_nanos() as u64;
    }
}

impl Member {
    fn wall_ms(&self, now_ms: u64) -> i64 {
        EPOCH_MS + now_ms as i64 + self.skew_ms
    }
}

impl Half {
    fn bytes(&self) -> u64 {
        // What a report takes as MessagePack, with its field names.
        (self.reports.iter().map(|report| 90 + report.name.len()).sum::<usize>() + self.state.len())
            as u64
    }
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            packet_bytes: self.packet_bytes - before.packet_bytes,
            stream_bytes: self.stream_bytes - before.stream_bytes,
            core_ns: self.core_ns - before.core_ns,
            store_ns: self.store_ns - before.store_ns,
        }
    }
}
