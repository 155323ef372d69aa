//! What is under way between members, and whether it arrives.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use freehold::gossip::message::{Message, PeerReport, Ping};
use freehold::gossip::wire;
use rand::RngExt;
use rand::rngs::SmallRng;

/// Something that happens at its time.
pub enum Event {
    Packet {
        from: SocketAddr,
        to: SocketAddr,
        messages: Vec<Message>,
    },
    /// A full exchange reaches the side that was called, and its answer the one that called.
    Called {
        from: SocketAddr,
        to: SocketAddr,
        half: Half,
    },
    Answered {
        to: SocketAddr,
        half: Half,
    },
    StreamPing {
        from: SocketAddr,
        to: SocketAddr,
        ping: Ping,
        until_ms: u64,
    },
    StreamPong {
        to: SocketAddr,
        sequence: u32,
        until_ms: u64,
    },
    /// The member of that number, in that life, has something to do.
    Wake {
        member: usize,
        life: u32,
    },
    Beat {
        member: usize,
        life: u32,
    },
    Rejoin {
        member: usize,
        life: u32,
    },
    /// What it has to write of itself could not be written until now.
    Write {
        member: usize,
        life: u32,
    },
    /// Joining has been tried for as long as it may.
    Joined {
        member: usize,
        life: u32,
    },
    /// It waits until what it has to tell is told, at most until then.
    LastWords {
        member: usize,
        life: u32,
        until_ms: u64,
    },
    /// An operator has the member's entry taken out.
    Forget {
        member: usize,
    },
    /// The end of a graceful goodbye, whether all has been said or not.
    Stop {
        member: usize,
        life: u32,
    },
    Start {
        member: usize,
    },
    Fault(usize),
    Thaw {
        member: usize,
    },
    Heal,
    Clear,
}

pub struct Half {
    pub reports: Vec<PeerReport>,
    pub state: Bytes,
}

#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub loss: f64,
    pub delay_max_ms: u64,
}

/// A good day: a packet in a thousand is lost, a dial fails now and then.
pub const FAIR: Weather = Weather { loss: 0.001, delay_max_ms: 20 };

/// Bytes around a packet's messages: kind, address and digest of the transport, checksum.
const PACKET_OVERHEAD: usize = 2 + 21 + 16 + 5;

#[derive(Default)]
pub struct Events {
    /// Boxed, as the map moves what it holds again and again.
    by_time: BTreeMap<(u64, u64), Box<Event>>,
    last: u64,
}

impl Events {
    pub fn push(&mut self, at_ms: u64, event: Event) {
        self.last += 1;
        self.by_time.insert((at_ms, self.last), Box::new(event));
    }

    /// The next one, unless it is later than that.
    pub fn pop(&mut self, until_ms: u64) -> Option<(u64, Event)> {
        let entry = self.by_time.first_entry().filter(|entry| entry.key().0 <= until_ms)?;
        let at_ms = entry.key().0;
        Some((at_ms, *entry.remove()))
    }
}

impl Weather {
    /// When a packet arrives, if it does.
    pub fn arrival_ms(self, now_ms: u64, rng: &mut SmallRng) -> Option<u64> {
        (!rng.random_bool(self.loss)).then(|| now_ms + rng.random_range(1..=self.delay_max_ms))
    }

    /// A stream's bytes are sent again until they arrive.
    pub fn stream_arrival_ms(self, now_ms: u64, rng: &mut SmallRng) -> u64 {
        let mut at_ms = now_ms + rng.random_range(1..=self.delay_max_ms);
        while rng.random_bool(self.loss) {
            at_ms += 200;
        }
        at_ms
    }
}

/// Bytes of a packet of these parts, not compressed.
pub fn packet_bytes(parts: &[Bytes]) -> u64 {
    let messages: usize = parts.iter().map(|part| part.len() + 2).sum();
    (messages + 2 + PACKET_OVERHEAD) as u64
}

/// The parts as the other side reads them.
pub fn read(parts: &[Bytes]) -> Vec<Message> {
    let rule = wire::LabelRule { label: wire::Label::default(), is_verified: true };
    let mut messages = Vec::with_capacity(parts.len());
    for part in parts {
        let opened = wire::open_packet(part, &rule).expect("it is a packet of its own");
        assert_eq!(opened.refused, 0);
        messages.extend(opened.messages);
    }
    messages
}
