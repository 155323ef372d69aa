//! Who is still there: one peer after another is asked, and who does not answer is suspected.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::gossip::membership::{Membership, Output, Warning, cut};
use crate::gossip::message::{Ack, IndirectPing, Message, Nack, PeerState, Ping, Suspect};
use crate::gossip::peers::Peer;
use crate::gossip::probe::{Probe, Relay};
use crate::gossip::wire;

/// Pings of strangers answered in a second. Each may be a dial that hangs for five, so they take
/// a part of the places for dials at most.
const STRANGERS_PER_SECOND_MAX: u32 = 20;

impl Membership {
    /// A ping came over a stream; the answer goes back on it. `None`: it is meant for another.
    pub fn answer_stream_ping(&mut self, from: SocketAddr, ping: &Ping) -> Option<Ack> {
        if !self.is_meant_for_us(from, &ping.target) {
            return None;
        }
        Some(Ack { sequence: ping.sequence, payload: Bytes::new() })
    }

    /// The peer answered the ping of that sequence over a stream.
    pub fn stream_answered(&mut self, sequence: u32) {
        if let Some(probe) = &mut self.probe
            && probe.sequence == sequence
        {
            probe.is_stream_answered = true;
        }
    }

    pub(super) fn answer_ping(&mut self, from: SocketAddr, ping: &Ping, now_ms: u64) {
        if !self.is_meant_for_us(from, &ping.target) {
            return;
        }
        let to = ping.source.as_ref().map_or(from, |source| source.addr);
        let name = ping.source.as_ref().map(|source| source.name.as_str());
        let peer = name.and_then(|name| self.peers.get(name));
        if peer.is_none_or(|peer| peer.addr != to) && !self.may_answer_stranger(now_ms) {
            self.counts.pings_unanswered += 1;
            return;
        }
        let has_checksum = self.checks(name);
        let ack = Ack { sequence: ping.sequence, payload: Bytes::new() };
        self.send(to, has_checksum, &Message::Ack(ack));
    }

    /// A ping names where its answer goes, which is a dial that may hang. Members know each other
    /// before they ping; the few that do not are answered, a flood of made-up ones is not.
    fn may_answer_stranger(&mut self, now_ms: u64) -> bool {
        let second = now_ms / 1000;
        if self.strangers.0 != second {
            self.strangers = (second, 0);
        }
        self.strangers.1 = self.strangers.1.saturating_add(1);
        self.strangers.1 <= STRANGERS_PER_SECOND_MAX
    }

    pub(super) fn relay_ping(&mut self, from: SocketAddr, request: IndirectPing, now_ms: u64) {
        let sequence = self.next_sequence();
        let mut target_addr = request.target_addr;
        if target_addr.port() == 0 {
            target_addr.set_port(self.settings.addr.port());
        }
        let source = request.source.as_ref();
        let relay = Relay {
            sequence: request.sequence,
            reply_to: source.map_or(from, |source| source.addr),
            has_checksum: self.checks(source.map(|source| source.name.as_str())),
            wants_nack: request.wants_nack,
        };
        let until_ms = now_ms.saturating_add(self.settings.probe_timeout_ms);
        if !self.relays.start(sequence, until_ms, relay) {
            self.counts.relays_refused += 1;
            return;
        }
        let has_checksum = self.checks(Some(&request.target));
        let ping = Ping { sequence, target: request.target, source: self.source() };
        self.send(target_addr, has_checksum, &Message::Ping(ping));
    }

    pub(super) fn hear_ack(&mut self, sequence: u32, now_ms: u64) {
        if let Some(probe) = self.probe.as_ref().filter(|probe| probe.sequence == sequence) {
            if now_ms <= probe.until_ms {
                self.awareness.improve();
            } else {
                // It did answer, and nobody has judged yet: it is us who come late.
                self.awareness.worsen(1);
            }
            return self.end_probe(now_ms);
        }
        if let Some(relay) = self.relays.take(sequence) {
            let ack = Ack { sequence: relay.sequence, payload: Bytes::new() };
            self.send(relay.reply_to, relay.has_checksum, &Message::Ack(ack));
        }
    }

    pub(super) fn hear_nack(&mut self, sequence: u32) {
        if let Some(probe) = &mut self.probe
            && probe.sequence == sequence
        {
            probe.nacks = probe.nacks.saturating_add(1).min(probe.nacks_expected);
        }
    }

    pub(super) fn end_relays(&mut self, now_ms: u64) {
        while let Some(relay) = self.relays.take_over(now_ms) {
            if relay.wants_nack {
                let nack = Nack { sequence: relay.sequence };
                self.send(relay.reply_to, relay.has_checksum, &Message::Nack(nack));
            }
        }
    }

    pub(super) fn go_on_probing(&mut self, now_ms: u64) {
        if self.probe.as_ref().is_some_and(|probe| probe.next_ms() <= now_ms && !probe.is_indirect)
        {
            self.ask_others();
        }
        if self.probe.as_ref().is_some_and(|probe| probe.until_ms <= now_ms) {
            self.judge(now_ms);
        }
        if self.probe_pulse.take(now_ms) {
            if self.probe.is_some() {
                self.is_probe_owed = true;
            } else {
                self.probe_next(now_ms);
            }
        }
    }

    /// The next peer of the lap; a new lap forgets those that are long gone.
    fn probe_next(&mut self, now_ms: u64) {
        // Each peer and the end of the lap once: memberlist counts the end as a peer, and so with
        // one other probes only every second time.
        let mut looked_at = 0;
        while looked_at <= self.peers.count() {
            let Some(peer) = self.peers.at(self.lap_place) else {
                let before_ms = now_ms.saturating_sub(self.settings.gossip_to_dead_ms);
                self.peers.reap_and_shuffle(before_ms, &mut self.rng);
                self.lap_place = 0;
                looked_at += 1;
                continue;
            };
            self.lap_place += 1;
            if peer.is_gone() || self.peers.is_us(&peer.name) {
                looked_at += 1;
                continue;
            }
            let peer = peer.clone();
            return self.start_probe(&peer, now_ms);
        }
    }

    fn start_probe(&mut self, peer: &Peer, now_ms: u64) {
        self.counts.probes += 1;
        let sequence = self.next_sequence();
        // Who is unwell waits longer for the others; not for the direct answer, which waiting
        // does not make more likely.
        let until_ms =
            now_ms.saturating_add(self.awareness.stretch(self.settings.probe_interval_ms));
        let timeout_ms = now_ms.saturating_add(self.settings.probe_timeout_ms);
        self.probe = Some(Probe {
            sequence,
            target: Arc::clone(&peer.name),
            addr: peer.addr,
            direct_until_ms: timeout_ms.min(until_ms),
            until_ms,
            is_indirect: false,
            nacks_expected: 0,
            nacks: 0,
            is_stream_answered: false,
        });
        let target = peer.name.to_string();
        let ping = Message::Ping(Ping { sequence, target, source: self.source() });
        if peer.state == PeerState::Alive {
            return self.send(peer.addr, peer.knows_checksums(), &ping);
        }
        // A suspect hears of it from us, so that it can refute it as soon as it can.
        let suspect = Message::Suspect(self.suspicion_of(peer));
        self.outputs.push(Output::Send {
            to: peer.addr,
            parts: vec![wire::encode(&ping), wire::encode(&suspect)],
            has_checksum: peer.knows_checksums(),
        });
    }

    /// No answer to packets of ours: maybe to those of others, or over a stream.
    fn ask_others(&mut self) {
        let Some(mut probe) = self.probe.take() else { return };
        probe.is_indirect = true;
        let fits = |peer: &Peer| peer.state == PeerState::Alive && peer.name != probe.target;
        let asked: Vec<Peer> = self
            .peers
            .sample(self.settings.indirect_probes, &mut self.rng, fits)
            .into_iter()
            .cloned()
            .collect();
        for peer in &asked {
            let wants_nack = peer.knows_nacks();
            probe.nacks_expected += u32::from(wants_nack);
            let request = IndirectPing {
                sequence: probe.sequence,
                target: probe.target.to_string(),
                target_addr: probe.addr,
                wants_nack,
                source: self.source(),
            };
            self.send(peer.addr, peer.knows_checksums(), &Message::IndirectPing(request));
        }
        if self.peers.get(&probe.target).is_some_and(Peer::knows_stream_pings) {
            let target = probe.target.to_string();
            let ping = Ping { sequence: probe.sequence, target, source: self.source() };
            self.outputs.push(Output::StreamPing {
                to: probe.addr,
                ping,
                until_ms: probe.until_ms,
            });
        }
        self.probe = Some(probe);
    }

    /// The time is over without an answer to any packet.
    fn judge(&mut self, now_ms: u64) {
        let Some(probe) = self.probe.clone() else { return };
        if probe.is_stream_answered {
            self.awareness.improve();
            self.warn(Warning::StreamsOnly { name: probe.target.to_string() });
        } else {
            self.counts.probes_failed += 1;
            self.awareness.worsen(probe.penalty());
            if let Some(suspect) = self.peers.get(&probe.target).map(|peer| self.suspicion_of(peer))
            {
                self.suspect(&suspect, now_ms);
            }
        }
        self.end_probe(now_ms);
    }

    fn end_probe(&mut self, now_ms: u64) {
        self.probe = None;
        if std::mem::take(&mut self.is_probe_owed) {
            self.probe_next(now_ms);
        }
    }

    fn suspicion_of(&self, peer: &Peer) -> Suspect {
        let from = self.settings.name.clone();
        Suspect { incarnation: peer.incarnation, name: peer.name.to_string(), from }
    }

    fn is_meant_for_us(&mut self, from: SocketAddr, target: &str) -> bool {
        // Old members name no target.
        let is_ours = target.is_empty() || self.peers.is_us(target);
        if !is_ours {
            self.warn(Warning::NotForUs { from, target: cut(target) });
        }
        is_ours
    }

    fn checks(&self, name: Option<&str>) -> bool {
        name.and_then(|name| self.peers.get(name)).is_some_and(Peer::knows_checksums)
    }
}
