//! One member of a gossip as a state machine: an input and the time go in, outputs come out.
//!
//! ```text
//! receive(packet) ─► answer pings, pass probes on ─────────────────► Send, StreamPing
//!                 ─► merge what it says of peers ─► rumours ─┐       Joined, Updated, Gone
//!                 ─► what is the layer's above ──────────────┼─────► User
//! broadcast(change) ─────────────────────────► changes ──────┤
//! tick ─► probe the next peer; suspects that ran out of time │
//!      ─► gossip: rumours, then changes, to a few peers ◄────┘─────► Send
//!      ─► compare everything with one peer ────────────────────────► PushPullWith
//! ```
//!
//! It speaks protocol version 2 of HashiCorp's memberlist and understands 1 to 5, as a member of
//! Cortex does. It knows no sockets, tasks and clocks: the driver carries out the outputs, hands
//! in what arrives, and calls [`Membership::tick`] when [`Membership::next_deadline_ms`] has come.
//! What was received is to be handed in before a tick that is due: after a pause the answers are
//! there and only wait to be read.
//!
//! Times are milliseconds of a clock that never goes back. All chance comes from one seed.
//!
//! Invariants: we are always among the peers, and alive until we leave; nobody else can make us
//! say otherwise, only make us refute it.

mod exchange;
mod merging;
mod probing;
mod spreading;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::gossip::awareness::Awareness;
use crate::gossip::broadcasts::{About, Broadcasts, PART_OVERHEAD, TooBig};
use crate::gossip::message::{Message, PeerState, Ping, Source};
use crate::gossip::peers::{NAME_BYTES_MAX, Peer, Peers};
use crate::gossip::probe::{Probe, Relays};
use crate::gossip::schedule::{self, Pulse};
use crate::gossip::settings::Settings;
use crate::gossip::suspicion::Suspicions;
use crate::gossip::wire;

pub use exchange::Incompatible;

/// Versions we announce: the protocol from 1 to 5, spoken as 2; a delegate without versions.
pub const VERSIONS: [u8; 6] = [1, 5, 2, 0, 0, 0];

/// What the driver is to do, or to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Messages that together stay within a packet's bytes; `wire::packet` wraps them.
    Send {
        to: SocketAddr,
        parts: Vec<Bytes>,
        /// Whether the peer checks a checksum.
        has_checksum: bool,
    },
    /// Send our half over a stream, take theirs and [`Membership::merge`] it.
    PushPullWith {
        to: SocketAddr,
        is_join: bool,
    },
    /// Ping over a stream until then; if it is answered, call [`Membership::stream_answered`].
    StreamPing {
        to: SocketAddr,
        ping: Ping,
        until_ms: u64,
    },
    /// Somebody's broadcast for the layer above.
    User(Bytes),
    Joined(Peer),
    /// What it says of itself changed.
    Updated(Peer),
    /// Dead, or left by its own word.
    Gone(Peer),
    /// That we leave has been told as often as anything is.
    LeaveSpread,
    Warning(Warning),
}

/// What an operator may want to know; nothing of it stops us.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    #[error("conflicting address for {name}: mine {ours}, theirs {theirs}")]
    NameConflict { name: String, ours: SocketAddr, theirs: SocketAddr },
    #[error(
        "alive message of {name} has protocol versions {versions:?}, which do not go with ours"
    )]
    Versions { name: String, versions: [u8; 6] },
    #[error("no room for one more peer: {name}")]
    PeersFull { name: String },
    #[error("ping from {from} is meant for {target}")]
    NotForUs { from: SocketAddr, target: String },
    #[error("{name} answers over streams and not to packets; the network may be misconfigured")]
    StreamsOnly { name: String },
    #[error("refuting that we are {}, said by {from}", .state.name())]
    Refuting { state: PeerState, from: String },
    #[error("suspect {name} ran out of time and counts as dead")]
    SuspectDied { name: String },
    #[error("membership message dropped")]
    RumourTooBig(#[source] TooBig),
    #[error(
        "{name} is said to be at incarnation {said}, which is beyond {most}, as far as it may be"
    )]
    Leap { name: String, said: u32, most: u32 },
}

/// Counts since the start, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Peers refused for want of room or for their size.
    pub peers_refused: u64,
    /// Probes for others refused for want of room.
    pub relays_refused: u64,
    pub probes: u64,
    pub probes_failed: u64,
    pub refutations: u64,
    /// Pings of strangers beyond the few that are answered.
    pub pings_unanswered: u64,
    /// What was said of an incarnation that nobody can have come to.
    pub leaps: u64,
}

/// See the file's head.
#[derive(Debug)]
pub struct Membership {
    settings: Settings,
    rng: SmallRng,
    peers: Peers,
    /// Of our own life; grows with each refutation.
    incarnation: u32,
    has_left: bool,
    awareness: Awareness,
    suspicions: Suspicions,

    last_sequence: u32,
    /// The place in `peers` that is probed next.
    lap_place: usize,
    probe: Option<Probe>,
    /// A probe was due while one was in flight; it follows at once.
    is_probe_owed: bool,
    relays: Relays,
    /// The second, and how many strangers were answered in it.
    strangers: (u64, u32),

    probe_pulse: Pulse,
    gossip_pulse: Pulse,
    push_pull_pulse: Pulse,

    /// About peers; they ride before the changes.
    rumours: Broadcasts,
    /// Of the layer above.
    changes: Broadcasts,

    outputs: Vec<Output>,
    counts: Counts,
}

impl Membership {
    /// A member that knows only itself.
    pub fn new(settings: Settings, seed: u64, now_ms: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let us = Peer {
            name: settings.name.as_str().into(),
            addr: settings.addr,
            meta: settings.meta.clone(),
            incarnation: 1,
            state: PeerState::Alive,
            versions: VERSIONS,
            changed_ms: now_ms,
        };
        let mut push_pull_pulse = Pulse::new(settings.push_pull_interval_ms, now_ms, &mut rng);
        // A first exchange too soon would find nobody; joining makes one anyway.
        push_pull_pulse.delay(settings.push_pull_interval_ms);
        let part_bytes_max = settings.packet_bytes_max.saturating_sub(PART_OVERHEAD);
        let mut member = Self {
            probe_pulse: Pulse::new(settings.probe_interval_ms, now_ms, &mut rng),
            gossip_pulse: Pulse::new(settings.gossip_interval_ms, now_ms, &mut rng),
            push_pull_pulse,
            awareness: Awareness::new(settings.health_score_max),
            rumours: Broadcasts::new(part_bytes_max),
            changes: Broadcasts::new(part_bytes_max),
            peers: Peers::new(us),
            settings,
            rng,
            incarnation: 1,
            has_left: false,
            suspicions: Suspicions::default(),
            last_sequence: 0,
            lap_place: 0,
            probe: None,
            is_probe_owed: false,
            relays: Relays::default(),
            strangers: (0, 0),
            outputs: Vec::new(),
            counts: Counts::default(),
        };
        member.spread_ourselves();
        member
    }

    /// A packet's messages, from the address the packet names.
    pub fn receive(&mut self, from: SocketAddr, messages: Vec<Message>, now_ms: u64) {
        for message in messages {
            match message {
                Message::Ping(ping) => self.answer_ping(from, &ping, now_ms),
                Message::IndirectPing(request) => self.relay_ping(from, request, now_ms),
                Message::Ack(ack) => self.hear_ack(ack.sequence, now_ms),
                Message::Nack(nack) => self.hear_nack(nack.sequence),
                Message::Suspect(suspect) => self.suspect(&suspect, now_ms),
                Message::Alive(alive) => self.alive(alive, now_ms),
                Message::Dead(dead) => self.dead(&dead, now_ms),
                Message::User(bytes) => self.outputs.push(Output::User(bytes)),
            }
        }
    }

    /// A change of the layer above, to be spread: what of `key` it tells, and which version of it.
    pub fn broadcast(
        &mut self,
        key: &str,
        content: &[String],
        version: u64,
        bytes: Bytes,
    ) -> Result<(), TooBig> {
        let part = wire::encode(&Message::User(bytes));
        self.changes.push(About::new(key, content, version), part)
    }

    /// Asks for a full exchange with each of them. Tells how many of them are ourselves: they count
    /// as having answered, or the first member of a cluster could not join it.
    pub fn join(&mut self, seeds: &[SocketAddr]) -> usize {
        let others = seeds.iter().filter(|seed| **seed != self.settings.addr);
        let before = self.outputs.len();
        self.outputs.extend(others.map(|to| Output::PushPullWith { to: *to, is_join: true }));
        seeds.len() - (self.outputs.len() - before)
    }

    /// Says good-bye. What is still to be spread goes on being spread; [`Output::LeaveSpread`]
    /// tells when we may go.
    pub fn leave(&mut self, now_ms: u64) {
        if self.has_left {
            return;
        }
        self.has_left = true;
        self.bury_ourselves(now_ms);
        if self.peers.live() == 0 {
            self.outputs.push(Output::LeaveSpread);
        }
    }

    /// Does what is due. Earlier than [`Self::next_deadline_ms`] there is nothing to do.
    pub fn tick(&mut self, now_ms: u64) {
        self.end_suspicions(now_ms);
        self.end_relays(now_ms);
        self.go_on_probing(now_ms);
        if self.push_pull_pulse.take(now_ms) {
            self.compare_with_one();
            let interval_ms = self.settings.push_pull_interval_ms;
            let stretched = schedule::push_pull_interval_ms(interval_ms, self.peers.count());
            self.push_pull_pulse.stretch(stretched);
        }
        if self.gossip_pulse.take(now_ms) {
            // Last, so that what the rest found out goes along.
            self.gossip(now_ms);
        }
    }

    /// When [`Self::tick`] has something to do next.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let probe_ms = self.probe.as_ref().map(Probe::next_ms);
        // With nothing to tell there is no reason to wake up.
        let has_news = !self.rumours.is_empty() || !self.changes.is_empty();
        let gossip_ms = self.gossip_pulse.next_ms().filter(|_| has_news);
        let times = [
            probe_ms,
            self.probe_pulse.next_ms(),
            gossip_ms,
            self.push_pull_pulse.next_ms(),
            self.suspicions.next_ms(),
            self.relays.next_ms(),
        ];
        times.into_iter().flatten().min()
    }

    /// What came of the inputs since the last call; to be asked for after each input.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// All peers we know of, ourselves and the dead included.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// 0 is well.
    pub fn health_score(&self) -> u32 {
        self.awareness.score()
    }

    /// What is waiting to be spread for the layer above.
    pub fn changes(&self) -> &Broadcasts {
        &self.changes
    }

    /// What is waiting to be spread about peers.
    pub fn rumours(&self) -> &Broadcasts {
        &self.rumours
    }

    pub fn suspicions(&self) -> &Suspicions {
        &self.suspicions
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn has_left(&self) -> bool {
        self.has_left
    }

    fn warn(&mut self, warning: Warning) {
        self.outputs.push(Output::Warning(warning));
    }

    fn next_sequence(&mut self) -> u32 {
        self.last_sequence = self.last_sequence.wrapping_add(1);
        self.last_sequence
    }

    fn source(&self) -> Option<Source> {
        Some(Source { name: self.settings.name.clone(), addr: self.settings.addr })
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(&self.peers.us().name)
    }
}

/// A stranger's name as far as a log should show it.
fn cut(name: &str) -> String {
    name.chars().take(NAME_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests;
