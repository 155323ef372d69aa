//! What the gossip of a large ring takes of a member's core, on a clock of its own.
//!
//! The member is real from a packet's bytes to a packet's bytes: wire, machine, store, its own
//! heartbeats through `KvClient`, one follower of the ring, full exchanges. The others are played:
//! each heartbeat comes as often as each of them tells it, in packets of as many as are told at a
//! time. What is left out are the sockets, and the transport's digest.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use freehold::gossip::membership::{Membership, Output, VERSIONS};
use freehold::gossip::message::{Ack, Message, PeerReport, PeerState, PushPull, Versions};
use freehold::gossip::settings::Settings;
use freehold::gossip::wire::stream::{self, Decoder, StreamMessage};
use freehold::gossip::wire::{self, Label, LabelRule};
use freehold::ring::kv::KvClient;
use freehold::ring::kv::memberlist::value::ValueKind;
use freehold::ring::kv::memberlist::{Broadcast, GossipedStore};
use freehold::ring::model::RingModel;
use freehold::wire::ring_desc::{self, RingDescReader};
use futures_util::FutureExt as _;

use super::{NOW_S, message, ring, store_by};

/// Packets that come in a second: each of the others sends three every 200 ms.
const PACKETS_PER_S: u64 = 15;
/// How long a heartbeat is told: 15 packets a second in 0.8 s are the 12 that 600 members tell.
const TOLD_FROM_MS: u64 = 200;
const TOLD_TO_MS: u64 = 1_000;
const SECONDS: u64 = 60;
const US: &str = "ingester-000";

/// Where the time goes.
#[derive(Clone, Copy)]
enum Part {
    /// Packets to messages.
    Open,
    Machine,
    /// What others tell, to what is told on.
    Store,
    /// Messages to packets, compression tried.
    Pack,
    /// Our own heartbeats.
    Beat,
    /// Who follows the ring.
    Watch,
    Exchange,
}

const PARTS: [&str; 7] = ["open", "machine", "store", "pack", "beat", "watch", "exchange"];

struct Us {
    machine: Membership,
    store: GossipedStore,
    kv: KvClient,
    reader: RingDescReader,
    rule: LabelRule,
    wall_ms: Arc<AtomicI64>,
    spent: [Duration; PARTS.len()],
    longest: [Duration; PARTS.len()],
    now_ms: u64,
    packets: u64,
    sent_bytes: u64,
    received_bytes: u64,
    answers: Vec<(SocketAddr, Message)>,
    theirs: Bytes,
}

/// Prints the parts of a core that heartbeats of all members at that period take.
pub fn report(beat_period_ms: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("it needs no files");
    let _runtime = runtime.enter();
    let ring = ring();
    let mut us = Us::new(&ring);
    let peers: Vec<(String, SocketAddr)> = ring
        .instances
        .iter()
        .filter(|(id, _)| *id != US)
        .map(|(id, entry)| (id.clone(), entry.addr.parse().expect("an address")))
        .collect();
    let mut told: Vec<(u64, Bytes)> = Vec::new();
    let mut packets_due = 0;
    for now_ms in 1..SECONDS * 1000 {
        us.turn_to(now_ms);
        // Peers heartbeat one after the other.
        let count = peers.len() as u64;
        let beats = now_ms * count / beat_period_ms - (now_ms - 1) * count / beat_period_ms;
        for beat in 0..beats {
            let at = ((now_ms * count / beat_period_ms - beat) % count) as usize;
            told.push((now_ms, heartbeat(&ring, &peers[at].0, now_ms)));
        }
        told.retain(|(at_ms, _)| at_ms + TOLD_TO_MS > now_ms);
        packets_due += PACKETS_PER_S;
        if packets_due >= 1000 {
            packets_due -= 1000;
            let from = peers[(now_ms * 7_919 % count) as usize].1;
            let parts: Vec<Bytes> = told
                .iter()
                .filter(|(at_ms, _)| at_ms + TOLD_FROM_MS <= now_ms)
                .map(|(_, part)| part.clone())
                .collect();
            us.hear(from, &parts);
        }
        for (from, answer) in std::mem::take(&mut us.answers) {
            us.hear(from, &[wire::encode(&answer)]);
        }
        us.tick();
        if now_ms % beat_period_ms == beat_period_ms / 2 {
            us.beat();
        }
        if now_ms % 1000 == 999 {
            us.look();
        }
    }
    us.print(beat_period_ms);
}

impl Us {
    fn new(ring: &RingModel) -> Self {
        let wall_ms = Arc::new(AtomicI64::new(NOW_S * 1000));
        let clock = Arc::clone(&wall_ms);
        let store = store_by(ring, Arc::new(move || clock.load(Ordering::Relaxed)));
        let addr_of = |id: &str| ring.instances[id].addr.parse().expect("an address");
        let mut machine = Membership::new(Settings::new(US, addr_of(US)), 1, 0);
        let reports: Vec<PeerReport> = ring
            .instances
            .keys()
            .filter(|id| *id != US)
            .map(|id| PeerReport {
                name: id.clone(),
                addr: addr_of(id),
                meta: Bytes::new(),
                incarnation: 1,
                state: PeerState::Alive,
                versions: Versions(Some(VERSIONS)),
            })
            .collect();
        machine.merge(reports.clone(), 0).expect("all speak the same");
        machine.take_outputs();
        let theirs = StreamMessage::PushPull(PushPull {
            join: false,
            peers: reports,
            user_state: store.local_state(),
        });
        Self {
            machine,
            kv: KvClient::Memberlist(store.client(ValueKind::Ring)),
            store,
            reader: RingDescReader::new(),
            rule: LabelRule { label: Label::default(), is_verified: true },
            wall_ms,
            spent: Default::default(),
            longest: Default::default(),
            now_ms: 0,
            packets: 0,
            sent_bytes: 0,
            received_bytes: 0,
            answers: Vec::new(),
            theirs: stream::encode(&theirs, None, true),
        }
    }

    fn turn_to(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.wall_ms.store(NOW_S * 1000 + now_ms as i64, Ordering::Relaxed);
    }

    #[expect(clippy::disallowed_methods, reason = "time is what is measured")]
    fn timed<T>(&mut self, part: Part, act: impl FnOnce(&mut Self) -> T) -> T {
        let started = Instant::now();
        let outcome = act(self);
        let took = started.elapsed();
        self.spent[part as usize] += took;
        self.longest[part as usize] = self.longest[part as usize].max(took);
        outcome
    }

    fn hear(&mut self, from: SocketAddr, parts: &[Bytes]) {
        for packet in wire::packet(parts, &Label::default(), true, true) {
            self.received_bytes += packet.len() as u64;
            let opened = self.timed(Part::Open, |us| wire::open_packet(&packet, &us.rule));
            let messages = opened.expect("a packet").messages;
            self.timed(Part::Machine, |us| us.machine.receive(from, messages, us.now_ms));
        }
        self.settle();
    }

    fn tick(&mut self) {
        let now_ms = self.now_ms;
        if self.machine.next_deadline_ms().is_some_and(|due_ms| due_ms <= now_ms) {
            self.timed(Part::Machine, |us| us.machine.tick(now_ms));
            self.settle();
        }
    }

    fn settle(&mut self) {
        for output in self.timed(Part::Machine, |us| us.machine.take_outputs()) {
            match output {
                Output::Send { to, parts, has_checksum } => self.send(to, &parts, has_checksum),
                Output::User(bytes) => self.timed(Part::Store, |us| us.store.receive(bytes)),
                // As many call us as we call.
                Output::PushPullWith { .. } => (0..2).for_each(|_| self.exchange()),
                _ => {}
            }
        }
        let broadcasts = self.timed(Part::Store, |us| us.store.take_broadcasts());
        self.timed(Part::Machine, |us| {
            for Broadcast { key, content, version, bytes } in broadcasts {
                us.machine.broadcast(&key, &content, version, bytes).expect("it fits");
            }
        });
    }

    fn send(&mut self, to: SocketAddr, parts: &[Bytes], has_checksum: bool) {
        let label = Label::default();
        let packets = self.timed(Part::Pack, |_| wire::packet(parts, &label, true, has_checksum));
        self.packets += packets.len() as u64;
        self.sent_bytes += packets.iter().map(Bytes::len).sum::<usize>() as u64;
        let opened = parts.first().map(|part| wire::open_packet(part, &self.rule));
        let messages = opened.and_then(Result::ok).map(|opened| opened.messages);
        if let Some([Message::Ping(ping)]) = messages.as_deref() {
            let ack = Ack { sequence: ping.sequence, payload: Bytes::new() };
            self.answers.push((to, Message::Ack(ack)));
        }
    }

    fn exchange(&mut self) {
        let theirs = self.theirs.clone();
        self.timed(Part::Exchange, |us| {
            let ours = StreamMessage::PushPull(PushPull {
                join: false,
                peers: us.machine.reports(),
                user_state: us.store.local_state(),
            });
            stream::encode(&ours, None, true);
            let mut decoder = Decoder::answer();
            let mut message = None;
            for piece in theirs.chunks(16 << 10) {
                decoder.push(piece);
                message = decoder.decode().expect("an exchange");
            }
            let Some(StreamMessage::PushPull(theirs)) = message else { panic!("no exchange") };
            us.machine.merge(theirs.peers, us.now_ms).expect("all speak the same");
            us.store.merge_remote_state(theirs.user_state);
        });
    }

    fn beat(&mut self) {
        self.timed(Part::Beat, |us| {
            let now_s = us.wall_ms.load(Ordering::Relaxed) / 1000;
            let swap = us.kv.cas("ring", |bytes| {
                let mut ring = ring_desc::decode(&bytes.expect("a ring")).expect("decode");
                ring.instances.get_mut(US).expect("we are there").timestamp_s = now_s;
                Ok(Some(ring_desc::encode(&ring).expect("encode").into()))
            });
            swap.now_or_never().expect("no wait").expect("a newer second");
        });
        self.settle();
    }

    fn look(&mut self) {
        self.timed(Part::Watch, |us| {
            let read = us.kv.get("ring").now_or_never().expect("no wait").expect("a ring");
            us.reader.read(&read.bytes.expect("a ring")).expect("decode");
        });
    }

    fn print(&self, beat_period_ms: u64) {
        let percent = |spent: Duration| spent.as_secs_f64() / SECONDS as f64 * 100.0;
        let all = percent(self.spent.iter().sum());
        println!(
            "gossip/member/600x512, heartbeats every {beat_period_ms} ms: {all:.2} % of a core; \
             {} packets/s out, {} kB/s out, {} kB/s in",
            self.packets / SECONDS,
            self.sent_bytes / SECONDS / 1000,
            self.received_bytes / SECONDS / 1000,
        );
        for ((part, spent), longest) in PARTS.iter().zip(self.spent).zip(self.longest) {
            let (percent, longest) = (percent(spent), longest.as_micros());
            println!("  {part:<10}{percent:>6.2} %   longest {longest} µs");
        }
    }
}

fn heartbeat(ring: &RingModel, id: &str, now_ms: u64) -> Bytes {
    let mut entry = ring.instances[id].clone();
    entry.timestamp_s = NOW_S + (now_ms / 1000) as i64;
    let instances = [(id.to_owned(), entry)].into_iter().collect();
    let message = message(RingModel { instances, unknown_fields: Vec::new() });
    wire::encode(&Message::User(message))
}
