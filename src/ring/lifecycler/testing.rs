//! A small codec, a clock that follows tokio's paused time, and rings to hand.

use std::sync::Arc;

use tokio::time::Instant;

use crate::ring::kv::KvCodec;
use crate::ring::lifecycler::WallClock;
use crate::ring::model::{Instance, InstanceState, RingModel, Token};

pub const START_S: i64 = 1_800_000_000;

/// One line a member, its fields between bars.
pub const CODEC: KvCodec = KvCodec { decode, encode };

pub fn clock() -> WallClock {
    let start = Instant::now();
    Arc::new(move || START_S * 1000 + start.elapsed().as_millis() as i64)
}

pub fn instance(state: InstanceState, tokens: &[u32]) -> Instance {
    Instance {
        addr: "1.2.3.4:9095".to_owned(),
        timestamp_s: START_S,
        state,
        tokens: tokens.iter().copied().map(Token).collect(),
        zone: String::new(),
        registered_timestamp_s: START_S - 1000,
        unknown_fields: Vec::new(),
    }
}

/// ACTIVE members with one token each.
pub fn ring_of(ids: &[&str]) -> RingModel {
    let mut ring = RingModel::default();
    for (token, id) in ids.iter().enumerate() {
        let tokens = [u32::try_from(token).expect("few")];
        ring.instances.insert((*id).to_owned(), instance(InstanceState::Active, &tokens));
    }
    ring
}

fn encode(ring: &RingModel) -> Vec<u8> {
    let mut text = String::from("ring\n");
    for (id, i) in &ring.instances {
        let tokens: Vec<String> = i.tokens.iter().map(|t| t.0.to_string()).collect();
        let (state, tokens) = (i.state.name(), tokens.join(","));
        text += &format!(
            "{id}|{}|{}|{state}|{tokens}|{}|{}\n",
            i.addr, i.timestamp_s, i.zone, i.registered_timestamp_s
        );
    }
    text.into_bytes()
}

fn decode(bytes: &[u8]) -> Result<RingModel, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    let text = text.strip_prefix("ring\n").ok_or("no ring")?;
    let mut ring = RingModel::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let [id, addr, timestamp, state, tokens, zone, registered] = fields[..] else {
            return Err(format!("bad line {line:?}"));
        };
        let tokens = tokens.split(',').filter(|t| !t.is_empty()).map(|t| Token(t.parse().unwrap()));
        let entry = Instance {
            addr: addr.to_owned(),
            timestamp_s: timestamp.parse().unwrap(),
            state: InstanceState::from_name(state).unwrap(),
            tokens: tokens.collect(),
            zone: zone.to_owned(),
            registered_timestamp_s: registered.parse().unwrap(),
            unknown_fields: Vec::new(),
        };
        ring.instances.insert(id.to_owned(), entry);
    }
    Ok(ring)
}
