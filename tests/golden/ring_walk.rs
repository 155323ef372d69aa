//! `ring_walk.json`: what Cortex's ring answers, field by field.

use freehold::keys::RingKey;
use freehold::ring::model::InstanceState;
use freehold::ring::ownership::{bitmap, key_set};
use freehold::ring::{Operation, Position, RingSettings, RingSnapshot, Walker};
use freehold::wire::ring_desc;
use serde_json::Value;

use crate::vectors::{array, base64, read, text};

#[test]
fn every_ring_answers_as_cortex() {
    let vectors = read("ring_walk");
    for shape in array(&vectors, "shapes") {
        let ring = snapshot(shape);
        check_codec(shape);
        check_members(shape, &ring);
        check_ranges(shape, &ring);
        check_walks(shape, &ring);
        check_ownership(&array(shape, "ownership").iter().collect::<Vec<_>>(), shape, &ring);
    }
}

/// The ring of a shape, of this file or of the shuffle shards.
pub fn snapshot(shape: &Value) -> RingSnapshot {
    let config = &shape["config"];
    let settings = RingSettings {
        replication_factor: config["replication_factor"].as_u64().unwrap() as usize,
        zone_awareness_enabled: config["zone_awareness_enabled"].as_bool().unwrap(),
        heartbeat_timeout_ms: config["heartbeat_timeout_s"].as_u64().unwrap() * 1000,
        extend_writes: true,
        own_id: None,
    };
    let model = ring_desc::decode(&base64(&shape["ring_b64"])).expect("stored ring");
    RingSnapshot::build(&model, shape["now_ms"].as_i64().unwrap(), settings.into(), None)
}

pub fn operation(value: &Value) -> Operation {
    match text(value, "op") {
        "Write" => Operation::Write,
        "WriteNoExtend" => Operation::WriteNoExtend,
        other => panic!("operation {other}"),
    }
}

pub fn key(value: &Value) -> RingKey {
    RingKey(u32::try_from(value["key"].as_u64().unwrap()).unwrap())
}

pub fn texts(values: &[Value]) -> Vec<&str> {
    values.iter().map(|value| value.as_str().unwrap()).collect()
}

/// A bitmap of the vectors as bits, with its count checked.
pub fn bits(value: &Value, len: usize) -> Vec<bool> {
    let bytes = base64(&value["bitmap_b64"]);
    assert_eq!(bytes.len(), len.div_ceil(8));
    let bits: Vec<bool> = (0..bytes.len() * 8).map(|i| bytes[i >> 3] >> (i & 7) & 1 == 1).collect();
    assert!(bits[len..].iter().all(|bit| !bit));
    let popcount = bits.iter().filter(|bit| **bit).count() as u64;
    assert_eq!(Some(popcount), value["popcount"].as_u64());
    bits[..len].to_vec()
}

fn check_codec(shape: &Value) {
    let name = text(shape, "name");
    let stored = base64(&shape["ring_b64"]);
    let model = ring_desc::decode(&stored).unwrap();
    let again = ring_desc::encode(&model).unwrap();
    assert_eq!(ring_desc::decode(&again).unwrap(), model, "{name}");
    // Same bytes but for the order of the map's entries, which has no meaning.
    let sorted = |value: &[u8]| {
        let mut bytes = snap::raw::Decoder::new().decompress_vec(value).unwrap();
        bytes.sort_unstable();
        bytes
    };
    assert_eq!(sorted(&again), sorted(&stored), "{name}");

    let Some(plain) = shape["ring"].as_object() else { return };
    assert_eq!(model.instances.len(), plain.len(), "{name}");
    for (id, want) in plain {
        let got = &model.instances[id];
        let tokens: Vec<u64> = got.tokens.iter().map(|token| u64::from(token.0)).collect();
        let want_tokens = want["tokens"].as_array().map_or(&[][..], Vec::as_slice);
        let want_tokens: Vec<u64> = want_tokens.iter().map(|t| t.as_u64().unwrap()).collect();
        assert_eq!(got.addr, text(want, "addr"), "{name} {id}");
        assert_eq!(Some(got.timestamp_s), want["timestamp"].as_i64(), "{name} {id}");
        assert_eq!(Some(got.state as i64), want["state"].as_i64(), "{name} {id}");
        assert_eq!(tokens, want_tokens, "{name} {id}");
        assert_eq!(got.zone, text(want, "zone"), "{name} {id}");
        let registered = want["registered_timestamp"].as_i64();
        assert_eq!(Some(got.registered_timestamp_s), registered, "{name} {id}");
    }
}

pub fn check_members(shape: &Value, ring: &RingSnapshot) {
    let name = text(shape, "name");
    let want = array(shape, "instances");
    assert_eq!(ring.members().len(), want.len(), "{name}");
    for (member, want) in ring.members().iter().zip(want) {
        let index = ring.member_index(&member.id).unwrap();
        assert_eq!(*member.id, *text(want, "id"), "{name}");
        assert_eq!(*member.addr, *text(want, "addr"), "{name}");
        assert_eq!(*member.zone, *text(want, "zone"), "{name}");
        assert_eq!(Some(member.state), InstanceState::from_name(text(want, "state")), "{name}");
        assert_eq!(Some(member.timestamp_s), want["timestamp"].as_i64(), "{name}");
        let registered = want["registered_timestamp"].as_i64();
        assert_eq!(Some(member.registered_timestamp_s), registered, "{name}");
        let tokens = want["num_tokens"].as_u64();
        assert_eq!(Some(ring.tokens_of(index).len() as u64), tokens, "{name}");
    }
    assert_eq!(Some(ring.circle().len() as u64), shape["num_tokens"].as_u64(), "{name}");
    let zones: Vec<&str> = ring.zones().iter().map(|zone| &**zone).collect();
    assert_eq!(zones, texts(array(shape, "ring_zones")), "{name}");
    if let Some(healthy) = shape.get("healthy_instances_count") {
        assert_eq!(Some(ring.healthy_count() as u64), healthy.as_u64(), "{name}");
        assert_eq!(Some(ring.zones().len() as u64), shape["zones_count"].as_u64(), "{name}");
    }
}

fn check_ranges(shape: &Value, ring: &RingSnapshot) {
    let name = text(shape, "name");
    let ranges = ring.key_ranges();
    let want = array(shape, "key_ranges");
    assert_eq!(ranges.len(), want.len(), "{name}");
    for want in want {
        let id = text(want, "instance");
        let range = ranges[ring.member_index(id).unwrap().index()];
        assert_eq!(Some(u64::from(range.positions)), want["tokens"].as_u64(), "{name} {id}");
        assert_eq!(Some(range.width), want["owned"].as_u64(), "{name} {id}");
        assert_eq!(Some(range.width_in_zone), want["owned_in_zone"].as_u64(), "{name} {id}");
    }
}

fn check_walks(shape: &Value, ring: &RingSnapshot) {
    for want in array(shape, "walks") {
        let context = format!("{} {want}", text(shape, "name"));
        let (key, op) = (key(want), operation(want));
        let walk = ring.walk(key, op);
        let raw: Vec<&str> = walk.iter().map(|m| &*ring.members()[m.index()].id).collect();
        let want_raw = want["raw"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(raw, texts(want_raw), "{context}");
        match ring.get(key, op) {
            Ok(set) => {
                let ids: Vec<&str> = set.members.iter().map(|member| &*member.id).collect();
                assert_eq!(ids, texts(array(want, "ids")), "{context}");
                assert_eq!(Some(set.max_errors as u64), want["max_errors"].as_u64(), "{context}");
                assert!(want.get("error").is_none_or(Value::is_null), "{context}");
            }
            Err(error) => assert_eq!(error.to_string(), text(want, "error"), "{context}"),
        }
    }
}

/// The bitmap, by the backward walk from own tokens and by a walk from every position.
fn check_ownership(wanted: &[&Value], shape: &Value, ring: &RingSnapshot) {
    for want in wanted {
        let context = format!("{} {} {}", text(shape, "name"), want["op"], want["instance"]);
        let (member, op) = (ring.member_index(text(want, "instance")).unwrap(), operation(want));
        let len = ring.circle().len();
        let want_bits = bits(want, len);

        let runs = ring.owned_runs(member, op);
        let backward = bitmap(&runs, len);
        assert!(backward.iter().by_vals().eq(want_bits.iter().copied()), "{context}");

        let mut walker = Walker::new(ring.layout(), op);
        let forward = |index| walker.walk_from(Position(index)).contains(&member);
        assert!((0..len as u32).map(forward).eq(want_bits.iter().copied()), "{context}");

        let keys = key_set(&runs, ring.circle().tokens()).with_class_table();
        for (token, owned) in ring.circle().tokens().iter().zip(&want_bits) {
            // The key that found the bit; a token that stands twice has equal bits.
            let key = RingKey(token.0.checked_sub(1).unwrap_or(u32::MAX));
            assert_eq!(keys.contains(key), *owned, "{context} {key:?}");
        }
    }
}
