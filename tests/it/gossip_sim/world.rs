//! The members, their time, and what they do with what the machine puts out: a driver for each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::ops::Sub;
use std::time::Instant;

use freehold::gossip::membership::{Membership, Output};
use freehold::gossip::settings::Settings;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::faults::{Fault, LEAVE_MS, PAUSE_MAX_MS, Plan};
use super::network::{self, Event, Events, FAIR, Half, Weather};
use super::ring::{Change, Payload, Status};

const BEAT_MS: u64 = 15_000;
const REJOIN_MS: u64 = 60_000;

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
}

struct Member<P> {
    id: String,
    /// `None`: it is not running.
    core: Option<Membership>,
    payload: P,
    addr: SocketAddr,
    life: u32,
    skew_ms: i64,
    is_frozen: bool,
    is_over: bool,
    inbox: Vec<Event>,
    wake_ms: u64,
}

pub struct World<P> {
    now_ms: u64,
    rng: SmallRng,
    events: Events,
    members: Vec<Member<P>>,
    by_addr: HashMap<SocketAddr, usize>,
    weather: Weather,
    cut: Option<u64>,
    faults: Vec<(u64, Fault)>,
    skew_max_ms: i64,
    token_bytes: usize,
    has_beats: bool,
    traffic: Traffic,
    last_port: u32,
}

impl<P: Payload> World<P> {
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
            token_bytes: plan.token_bytes,
            has_beats: true,
            traffic: Traffic::default(),
            last_port: 0,
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

    /// Time that the first member's machine took since then, per second.
    pub fn core_us_per_s(&self, before: Traffic, seconds: u64) -> u64 {
        (self.traffic.core_ns - before.core_ns) / 1000 / seconds
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

    /// Where somebody's ring differs from that of the others, or lacks somebody who is there.
    pub fn ring_differs(&mut self) -> Option<String> {
        let running: Vec<String> = self.running().map(|member| member.id.clone()).collect();
        // Tombstones go at each one's own time.
        let rings: Vec<BTreeSet<String>> = self
            .views()
            .map(|view| {
                let active = view.into_iter().filter(|(_, status)| *status == Status::Active);
                active.map(|(id, _)| id).collect()
            })
            .collect();
        for (id, ring) in running.iter().zip(&rings) {
            if *ring != rings[0] {
                return Some(format!("the ring of {id} is {ring:?}, another's {:?}", rings[0]));
            }
            if let Some(lost) = running.iter().find(|id| !ring.contains(*id)) {
                return Some(format!("in the ring of {id} {lost} is missing"));
            }
        }
        None
    }

    pub fn states_differ(&mut self) -> Option<String> {
        let now_ms = self.now_ms;
        let running: Vec<&mut Member<P>> =
            self.members.iter_mut().filter(|member| member.core.is_some()).collect();
        let mut states = running.into_iter().map(|member| {
            let wall_ms = member.wall_ms(now_ms);
            (member.id.clone(), member.payload.state(wall_ms))
        });
        let (first, state) = states.next()?;
        let other = states.find(|(_, other)| *other != state)?;
        Some(format!("{first} has {state:?}, {} has {:?}", other.0, other.1))
    }

    /// The ring as each of those running sees it.
    pub fn views(&mut self) -> impl Iterator<Item = BTreeMap<String, Status>> {
        let now_ms = self.now_ms;
        self.members.iter_mut().filter(|member| member.core.is_some()).map(move |member| {
            let wall_ms = member.wall_ms(now_ms);
            member.payload.view(wall_ms)
        })
    }

    fn running(&self) -> impl Iterator<Item = &Member<P>> {
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
            Event::Packet { to, .. }
            | Event::Called { to, .. }
            | Event::Answered { to, .. }
            | Event::StreamPing { to, .. }
            | Event::StreamPong { to, .. } => self.arrive(to, event),
            Event::Stop { .. } | Event::Wake { .. } | Event::Beat { .. } | Event::Rejoin { .. } => {
            }
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
                if self.members[member].core.is_none() || self.members[member].is_over {
                    return;
                }
                let gone_ms = if is_graceful { self.goodbye(member, false) } else { 0 };
                if !is_graceful {
                    self.stop(member);
                }
                self.events.push(self.now_ms + gone_ms + pause_ms, Event::Start { member });
            }
            Fault::Crash { member } => {
                self.members[member].is_over = true;
                self.stop(member);
                // Its entry in the ring is taken out by an operator, through another member.
                let id = self.members[member].id.clone();
                self.forget(&id);
            }
            Fault::Leave { member } => {
                self.members[member].is_over = true;
                self.goodbye(member, true);
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
        self.members.push(Member {
            payload: P::new(&id, self.token_bytes),
            id,
            core: None,
            addr: SocketAddr::from(([127, 0, 0, 1], 1)),
            life: 0,
            skew_ms,
            is_frozen: false,
            is_over: false,
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
        let member = &mut self.members[at];
        let settings = Settings { dead_reclaim_ms: 30_000, ..Settings::new(&member.id, addr) };
        member.core = Some(Membership::new(settings, self.rng.random(), self.now_ms));
        member.payload = P::new(&member.id, self.token_bytes);
        member.addr = addr;
        member.life += 1;
        member.wake_ms = u64::MAX;
        let life = member.life;
        self.by_addr.insert(addr, at);
        self.rejoin(at);
        let first_ms = self.rng.random_range(100..2_000);
        self.events.push(self.now_ms + first_ms, Event::Beat { member: at, life });
    }

    fn stop(&mut self, at: usize) {
        let member = &mut self.members[at];
        member.core = None;
        member.life += 1;
        member.is_frozen = false;
        member.inbox.clear();
        self.by_addr.remove(&member.addr);
    }

    /// Leaves in good order; tells when it will be gone.
    fn goodbye(&mut self, at: usize, for_good: bool) -> u64 {
        let now_ms = self.now_ms;
        let member = &mut self.members[at];
        if member.core.is_none() {
            return 0;
        }
        if member.is_frozen {
            // Who does not run does not say good-bye; this is a kill.
            self.stop(at);
            if for_good {
                let id = self.members[at].id.clone();
                self.forget(&id);
            }
            return 0;
        }
        let wall_ms = member.wall_ms(now_ms);
        if for_good && let Some(change) = member.payload.leave(wall_ms) {
            member.broadcast(change);
        }
        let life = member.life;
        self.timed(at, |core| core.leave(now_ms));
        self.settle(at);
        self.events.push(now_ms + LEAVE_MS, Event::Stop { member: at, life });
        LEAVE_MS
    }

    /// Somebody who runs says that `id` has left.
    fn forget(&mut self, id: &str) {
        let now_ms = self.now_ms;
        let found = self.members.iter().position(|member| {
            member.core.as_ref().is_some_and(|core| !core.has_left()) && !member.is_frozen
        });
        let Some(at) = found else { return };
        let wall_ms = self.members[at].wall_ms(now_ms);
        let mut scribe = P::new(id, self.token_bytes);
        // Later than any heartbeat of a clock that is fast.
        let fast_ms = 2 * self.skew_max_ms + 1_000;
        let Some(left) = scribe.leave(wall_ms + fast_ms) else { return };
        if let Some(change) = self.members[at].payload.merge(&left.bytes, wall_ms) {
            self.members[at].broadcast(change);
        }
        self.settle(at);
    }

    fn thaw(&mut self, at: usize) {
        self.members[at].is_frozen = false;
        for event in std::mem::take(&mut self.members[at].inbox) {
            self.happen(event);
        }
        self.settle(at);
    }

    fn beat(&mut self, at: usize) {
        let life = self.members[at].life;
        let has_left = self.members[at].core.as_ref().is_some_and(Membership::has_left);
        if self.has_beats && !self.members[at].is_frozen && !has_left {
            let wall_ms = self.members[at].wall_ms(self.now_ms);
            if let Some(change) = self.members[at].payload.beat(wall_ms) {
                self.members[at].broadcast(change);
            }
            self.settle(at);
        }
        self.events.push(self.now_ms + BEAT_MS, Event::Beat { member: at, life });
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
            Event::Answered { half, .. } => self.merge(at, half),
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
        self.hear(at, &half.state);
    }

    fn half(&mut self, at: usize) -> Half {
        let member = &mut self.members[at];
        let wall_ms = member.wall_ms(self.now_ms);
        let reports = member.core.as_ref().map(Membership::reports).unwrap_or_default();
        Half { reports, state: member.payload.state(wall_ms) }
    }

    fn hear(&mut self, at: usize, bytes: &bytes::Bytes) {
        let wall_ms = self.members[at].wall_ms(self.now_ms);
        if let Some(change) = self.members[at].payload.merge(bytes, wall_ms) {
            self.members[at].broadcast(change);
        }
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
                Output::User(bytes) => self.hear(at, &bytes),
                Output::LeaveSpread
                | Output::Joined(_)
                | Output::Updated(_)
                | Output::Gone(_)
                | Output::Warning(_) => {}
            }
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
}

impl<P: Payload> Member<P> {
    fn wall_ms(&self, now_ms: u64) -> i64 {
        EPOCH_MS + now_ms as i64 + self.skew_ms
    }

    fn broadcast(&mut self, change: Change) {
        let Some(core) = &mut self.core else { return };
        let Change { key, content, version, bytes } = change;
        // What is too large for a packet goes by full exchanges.
        let _ = core.broadcast(key, &content, version, bytes);
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
        }
    }
}
