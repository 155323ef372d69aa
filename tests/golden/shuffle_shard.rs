//! `shuffle_shard.json`: Go's random sequence, the seeds, and the subrings drawn with them.

use freehold::ring::go_rand::GoRand;
use freehold::ring::ownership::{bitmap, key_set};
use freehold::ring::shuffle::{
    expected_instances, expected_instances_per_zone, shuffle_shard_seed,
};
use freehold::ring::{Operation, RingSettings, RingSnapshot, ShardRule, Subring};
use freehold::wire::ring_desc;
use serde_json::Value;

use crate::ring_walk::{bits, check_members, key, operation, snapshot, texts};
use crate::vectors::{array, base64, read, text};

#[test]
fn go_rand_draws_as_go() {
    for case in array(&read("shuffle_shard"), "go_math_rand") {
        let mut random = GoRand::new(case["seed"].as_i64().unwrap());
        for want in array(case, "uint32") {
            assert_eq!(Some(u64::from(random.next_u32())), want.as_u64(), "{}", case["seed"]);
        }
    }
}

#[test]
fn seeds_are_cortex_s() {
    for case in array(&read("shuffle_shard"), "shuffle_shard_seed") {
        let seed = shuffle_shard_seed(text(case, "identifier"), text(case, "zone"));
        assert_eq!(Some(seed), case["seed"].as_i64(), "{case}");
        let mut random = GoRand::new(seed);
        for want in array(case, "first_uint32") {
            assert_eq!(Some(u64::from(random.next_u32())), want.as_u64(), "{case}");
        }
    }
}

#[test]
fn expected_instances_are_cortex_s() {
    for case in array(&read("shuffle_shard"), "expected_instances") {
        let size = case["shard_size"].as_i64().unwrap();
        let zones = case["zones"].as_u64().unwrap() as usize;
        let per_zone = expected_instances_per_zone(size, zones);
        assert_eq!(Some(per_zone), case["per_zone"].as_i64(), "{case}");
        assert_eq!(Some(expected_instances(size, zones)), case["total"].as_i64(), "{case}");
    }
}

#[test]
fn every_subring_is_cortex_s() {
    for shape in array(&read("shuffle_shard"), "shapes") {
        let ring = snapshot(shape);
        check_members(shape, &ring);
        for case in array(shape, "cases") {
            let context = format!(
                "{} {} size {} stable {} lookback {}",
                text(shape, "name"),
                case["tenant"],
                case["size"],
                case["zone_stable"],
                case["lookback_s"]
            );
            check_case(shape, case, &ring, &context);
        }
    }
}

fn check_case(shape: &Value, case: &Value, ring: &RingSnapshot, context: &str) {
    let lookback_s = case["lookback_s"].as_i64().unwrap();
    let rule = match (case["zone_stable"].as_bool().unwrap(), lookback_s) {
        (true, _) => ShardRule::ZoneStable,
        (false, 0) => ShardRule::Balanced,
        _ => ShardRule::lookback(shape["now_ms"].as_i64().unwrap(), lookback_s * 1000),
    };
    let (tenant, size) = (text(case, "tenant"), case["size"].as_i64().unwrap());
    let subring = ring.subring(tenant, size, rule);
    assert_eq!(Some(subring.is_none()), case["whole_ring"].as_bool(), "{context}");
    let Some(subring) = subring else {
        let ids: Vec<&str> = ring.members().iter().map(|member| &*member.id).collect();
        assert_eq!(ids, texts(array(case, "instances")), "{context}");
        return;
    };
    let ids: Vec<&str> = subring.members().iter().map(|member| &*member.id).collect();
    assert_eq!(ids, texts(array(case, "instances")), "{context}");
    assert_eq!(Some(subring.circle().len() as u64), case["num_tokens"].as_u64(), "{context}");
    let zones = subring.zones();
    let zones: Vec<&str> = zones.iter().map(|zone| &**zone).collect();
    assert_eq!(zones, texts(array(case, "ring_zones")), "{context}");

    if let Some(error) = case.get("get_error") {
        let got = subring.get(freehold::keys::RingKey(0), Operation::Write).unwrap_err();
        assert_eq!(Some(got.to_string().as_str()), error.as_str(), "{context}");
    }
    if case.get("op").is_some() {
        check_inside(shape, case, ring, &subring, context);
    }
}

fn check_inside(
    shape: &Value,
    case: &Value,
    ring: &RingSnapshot,
    subring: &Subring,
    context: &str,
) {
    let op = operation(case);
    for want in array(case, "walks") {
        let walk = subring.walk(key(want), op);
        let ids: Vec<&str> = walk.iter().map(|m| m.map_or("", |member| &*member.id)).collect();
        assert_eq!(ids, texts(array(want, "raw")), "{context} {want}");
    }
    for want in array(case, "ownership") {
        let id = text(want, "instance");
        let len = subring.circle().len();
        let want_bits = bits(want, len);
        let runs = subring.owned_runs(ring, id, op);
        let backward = bitmap(&runs, len);
        assert!(backward.iter().by_vals().eq(want_bits.iter().copied()), "{context} {id}");
        for (token, owned) in subring.circle().tokens().iter().zip(&want_bits) {
            let key = freehold::keys::RingKey(token.0.checked_sub(1).unwrap_or(u32::MAX));
            let walk = subring.walk(key, op);
            let found = walk.iter().any(|member| member.is_some_and(|m| *m.id == *id));
            assert_eq!(found, *owned, "{context} {id} {key:?}");
        }

        // The view that the ingester of that id keeps of the tenant.
        let settings = RingSettings {
            extend_writes: op == Operation::Write,
            own_id: Some(id.to_owned()),
            ..(**ring.settings()).clone()
        };
        let model = ring_desc::decode(&base64(&shape["ring_b64"])).unwrap();
        let own = RingSnapshot::build(&model, ring.read_at_ms(), settings.into(), None);
        let size = case["size"].as_i64().unwrap();
        let view = own.tenant_view(text(case, "tenant"), size).unwrap();
        assert_eq!(*view.keys, key_set(&runs, subring.circle().tokens()), "{context} {id}");
        assert_eq!(view.instances, subring.members().len(), "{context} {id}");
        assert_eq!(view.share, view.keys.share(), "{context} {id}");
    }
}
