//! The longest that one packet can hold up the loop that hears it, by what a liar puts into it.
//!
//! Each is the whole way from the packet's bytes to the store, the sockets left out. A liar can lay
//! parts into each other until they are one packet; here they are opened one by one, and what came
//! of them is heard at once. What is over the bounds is part of it: to be refused has a price, too.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use freehold::gossip::membership::{Membership, Output, VERSIONS};
use freehold::gossip::message::{Alive, Message, Versions};
use freehold::gossip::settings::Settings;
use freehold::gossip::wire::{self, Label, LabelRule};
use freehold::ring::kv::memberlist::GossipedStore;
use freehold::ring::kv::memberlist::weight;
use freehold::ring::model::RingModel;
use freehold::wire::key_value_pair::{self, Pair};

use super::{NOW_S, ring, store};

/// Each is sent so often; the worst counts.
const TIMES: u64 = 20;

/// Prints what each kind of packet takes.
pub fn report() {
    let ring = ring();
    let crumbs = |time: u64| {
        let stamp = char::from(time as u8 + 1);
        let entry = |n: u64| format!("\x0a\x0e\x0a\x08{n:08}\x12\x02\x10{stamp}").into_bytes();
        user("ring", "ringDesc", &(0..65_000).flat_map(entry).collect::<Vec<u8>>())
    };
    let tokens = user("ring", "ringDesc", &one_of_many_tokens());
    let name = "r".repeat(2_000);
    let election = |n: u64| user(&format!("ha/t/{n}"), "replicaDesc", &replica(&name, n));
    let empty = user("ring", "ringDesc", &b"\x0a\x00".repeat(1 << 20));
    let huge = user("ring", "ringDesc", &vec![0; 16 << 20]);
    check("members of 16 bytes, as many as fit", &ring, |time| vec![crumbs(time); 2]);
    check("one member of many tokens, in no order", &ring, |_| vec![tokens.clone()]);
    check("empty members", &ring, |_| vec![empty.clone()]);
    check("values of 16 MiB", &ring, |_| vec![huge.clone(); 8]);
    check("elections with long names", &ring, |time| {
        (0..1024).map(|n| election(time * 1024 + n)).collect()
    });
    check("new peers", &ring, |time| (0..1024).map(|n| alive(time * 1024 + n)).collect());
    check("zeros", &ring, |_| vec![Bytes::from(vec![0; 8 << 20])]);
    check("two bytes in turn", &ring, |_| vec![Bytes::from(b"ab".repeat(4 << 20))]);
}

fn check(name: &str, ring: &RingModel, messages: impl Fn(u64) -> Vec<Bytes>) {
    let store = store(ring);
    let addr = SocketAddr::from(([10, 0, 0, 1], 7946));
    let mut machine = Membership::new(Settings::new("us", addr), 1, 0);
    let mut worst = Duration::ZERO;
    let (mut bytes, mut refused) = (0, 0);
    for time in 0..TIMES {
        let parts = messages(time);
        let packets: Vec<Bytes> = parts
            .chunks(255)
            .flat_map(|parts| wire::packet(parts, &Label::default(), true, true))
            .collect();
        let (took, left_out) = hear(&mut machine, &store, addr, &packets);
        if took > worst {
            (worst, refused) = (took, left_out);
            bytes = packets.iter().map(Bytes::len).sum();
        }
    }
    println!(
        "gossip/worst: {name}: {:.1} ms for a packet of {bytes} bytes, {refused} messages refused",
        worst.as_secs_f64() * 1e3,
    );
}

#[expect(clippy::disallowed_methods, reason = "time is what is measured")]
fn hear(
    machine: &mut Membership,
    store: &GossipedStore,
    from: SocketAddr,
    parts: &[Bytes],
) -> (Duration, usize) {
    let rule = LabelRule { label: Label::default(), is_verified: true };
    let started = Instant::now();
    let mut refused = 0;
    let mut messages = Vec::new();
    for part in parts {
        let opened = wire::open_packet(part, &rule).expect("a packet");
        refused += opened.refused;
        messages.extend(opened.messages);
    }
    refused += weight::lighten(&mut messages).err().map_or(0, |heavy| heavy.left_out);
    machine.receive(from, messages, 1);
    for output in machine.take_outputs() {
        if let Output::User(bytes) = output {
            store.receive(bytes);
        }
    }
    let took = started.elapsed();
    store.take_broadcasts();
    (took, refused)
}

fn user(key: &str, codec: &str, value: &[u8]) -> Bytes {
    let value = snap::raw::Encoder::new().compress_vec(value).expect("short enough");
    wire::encode(&Message::User(key_value_pair::encode(&Pair {
        key: key.to_owned(),
        value: value.into(),
        codec: codec.to_owned(),
        deleted: false,
        updated_at_ms: NOW_S * 1000,
    })))
}

/// 900 kB of varints, each below the one before it for as long as there are four bytes of it.
fn one_of_many_tokens() -> Vec<u8> {
    let mut state: u32 = 1;
    let tokens = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 11
    });
    let packed: Vec<u8> = tokens
        .take(300_000)
        .flat_map(|token| {
            [token as u8 | 0x80, (token >> 7) as u8 | 0x80, (token >> 14) as u8 & 0x7f]
        })
        .collect();
    let mut instance = b"\x10\x80\xe2\xcf\xaa\x06\x32".to_vec();
    length(packed.len(), &mut instance);
    instance.extend(packed);
    let mut entry = b"\x0a\x04liar\x12".to_vec();
    length(instance.len(), &mut entry);
    entry.extend(instance);
    let mut ring = b"\x0a".to_vec();
    length(entry.len(), &mut ring);
    ring.extend(entry);
    ring
}

fn replica(name: &str, n: u64) -> Vec<u8> {
    let mut replica = b"\x0a".to_vec();
    length(name.len(), &mut replica);
    replica.extend(name.as_bytes());
    replica.push(0x10);
    length(n as usize + 1, &mut replica);
    replica
}

fn length(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn alive(n: u64) -> Bytes {
    let [.., a, b] = n.to_be_bytes();
    wire::encode(&Message::Alive(Alive {
        incarnation: 1,
        name: format!("peer-{n}"),
        addr: SocketAddr::from(([10, 1, a, b], 7946)),
        meta: Bytes::new(),
        versions: Versions(Some(VERSIONS)),
    }))
}
