//! Batches against one look-up per key.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::ring::model::{Instance, InstanceState, RingModel, Token};
use crate::ring::{RingSettings, RingSnapshot, ShardRule};

const NOW_S: i64 = 1_700_000_000;

fn instance(address: &str, zone: &str, state: InstanceState, tokens: Vec<u32>) -> Instance {
    Instance {
        addr: address.into(),
        timestamp_s: NOW_S,
        state,
        tokens: tokens.into_iter().map(Token).collect(),
        zone: zone.into(),
        registered_timestamp_s: NOW_S,
        unknown_fields: Vec::new(),
    }
}

fn ring(instances: Vec<Instance>, replication_factor: usize, zones: bool) -> RingSnapshot {
    let named = instances.into_iter().enumerate();
    let model = RingModel {
        instances: named.map(|(at, instance)| (format!("i-{at:02}"), instance)).collect(),
        unknown_fields: Vec::new(),
    };
    let settings = RingSettings {
        replication_factor,
        zone_awareness_enabled: zones,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: None,
    };
    RingSnapshot::build(&model, NOW_S * 1000, settings.into(), None)
}

/// Items by address, from one look-up per key.
fn naive(
    ring: &RingSnapshot,
    op: Operation,
    keys: &[RingKey],
) -> Result<BTreeMap<String, BTreeSet<u32>>, AssignError> {
    let mut items: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for (item, key) in (0..).zip(keys) {
        for member in ring.get(*key, op)?.members {
            items.entry(member.addr.to_string()).or_default().insert(item);
        }
    }
    Ok(items)
}

fn shown(batches: &Batches, place: &Placement<'_>) -> BTreeMap<String, BTreeSet<u32>> {
    let mut items = BTreeMap::new();
    for batch in batches.iter() {
        assert!(batch.items().is_sorted_by(|a, b| a < b), "in the request's order, each once");
        let address = place.members[batch.member().index()].addr.to_string();
        let shown = items.insert(address, batch.items().collect());
        assert!(shown.is_none(), "one batch per address");
    }
    items
}

/// Every part is small enough or one item, and all parts together are what was cut.
fn check_split(
    batches: &mut Batches,
    place: &Placement<'_>,
    bytes_max: u64,
    bytes_of: impl Fn(u32) -> u64,
) {
    let answered = |batches: &Batches| {
        let mut items: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for batch in batches.iter() {
            let address = place.members[batch.member().index()].addr.to_string();
            items.entry(address).or_default().extend(batch.answered_items());
        }
        items
    };
    let mut before = answered(batches);
    batches.split(bytes_max, &bytes_of);
    let mut after = answered(batches);
    // A batch without items is there too: its members have none.
    before.values_mut().chain(after.values_mut()).for_each(|items| items.sort_unstable());
    assert_eq!(after, before);
    let mut seen = BTreeSet::new();
    for batch in batches.iter() {
        assert!(batch.items().is_sorted_by(|a, b| a < b), "in the request's order, each once");
        let bytes: u64 = batch.items().map(&bytes_of).sum();
        assert!(bytes <= bytes_max || batch.items().count() == 1, "{bytes} bytes");
        for item in batch.items() {
            assert!(seen.insert((batch.member().index(), item)), "in one part for each address");
        }
    }
}

fn keys(keys: &[u32]) -> Vec<RingKey> {
    keys.iter().copied().map(RingKey).collect()
}

proptest! {
    #[test]
    fn every_item_is_where_a_look_up_of_its_own_finds_it(
        members in prop::collection::vec(
            (0..3u8, 0..6usize, prop::collection::vec(any::<u32>(), 0..6), 0..12u8),
            1..9,
        ),
        requests in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..60), 1..4),
        replication_factor in 1..5usize,
        zones in any::<bool>(),
        extends in any::<bool>(),
    ) {
        let members = members.into_iter().map(|(zone, state, tokens, address)| {
            // Mostly ACTIVE, or nothing could be placed at all.
            let state = InstanceState::ALL[if state < 3 { 0 } else { state - 2 }];
            instance(&format!("host-{address}:9095"), &format!("z{zone}"), state, tokens)
        });
        let ring = ring(members.collect(), replication_factor, zones);
        let op = if extends { Operation::Write } else { Operation::WriteNoExtend };
        let place = ring.placement();
        // One value for all requests, as its memory is meant to be used.
        let mut batches = Batches::default();
        for request in requests {
            let keys = keys(&request);
            let outcome = batches.assign(&place, op, keys.iter().copied());
            let expect = naive(&ring, op, &keys);
            match (outcome, expect) {
                (Ok(()), Ok(expect)) => {
                    prop_assert_eq!(shown(&batches, &place), expect);
                    check_split(&mut batches, &place, 60, |item| u64::from(keys[item as usize].0 % 90));
                }
                (outcome, expect) => prop_assert_eq!(outcome, expect.map(drop)),
            }
        }
    }
}

#[test]
fn a_ring_that_cannot_take_a_key_is_said_in_cortex_words() {
    let check = |ring: &RingSnapshot, expect: &str| {
        let mut batches = Batches::default();
        let outcome = batches.assign(&ring.placement(), Operation::Write, keys(&[7]).into_iter());
        assert_eq!(outcome.unwrap_err().to_string(), expect);
    };
    let active = |address: &str, token| instance(address, "", InstanceState::Active, token);
    check(&ring(vec![], 3, false), "DoBatch: InstancesCount <= 0");
    check(&ring(vec![active("a:1", vec![])], 3, false), "empty ring");
    check(
        &ring(vec![active("a:1", vec![5])], 3, false),
        "at least 2 live replicas required, could only find 1",
    );
    let mut silent = active("b:1", vec![9]);
    silent.timestamp_s -= 61;
    check(
        &ring(vec![active("a:1", vec![5]), silent], 3, true),
        "at least 2 live replicas required across different availability zones, \
         could only find 1 - unhealthy instances: b:1",
    );
}

#[test]
fn members_that_share_an_address_get_one_batch_and_answer_twice() {
    let active = |token| instance("a:1", "", InstanceState::Active, vec![token]);
    let ring = ring(vec![active(5), active(9)], 2, false);
    let mut batches = Batches::default();
    let keys = keys(&[1, 6]);
    batches.assign(&ring.placement(), Operation::Write, keys.into_iter()).expect("two replicas");
    let all: Vec<_> = batches.iter().collect();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].items().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(all[0].answered_items(), [0, 0, 1, 1]);
}

#[test]
fn a_batch_is_cut_where_it_gets_too_large() {
    let ring = ring(vec![instance("a:1", "", InstanceState::Active, vec![5])], 1, false);
    let mut batches = Batches::default();
    let check = |batches: &mut Batches, sizes: &[u64], expect: &[&[u32]]| {
        let keys = keys(&vec![1; sizes.len()]);
        batches.assign(&ring.placement(), Operation::Write, keys.into_iter()).expect("one replica");
        batches.split(10, |item| sizes[item as usize]);
        let parts: Vec<Vec<u32>> = batches.iter().map(|batch| batch.items().collect()).collect();
        assert_eq!(parts, expect, "{sizes:?}");
    };
    check(&mut batches, &[5, 5], &[&[0, 1]]);
    check(&mut batches, &[5, 5, 1], &[&[0, 1], &[2]]);
    check(&mut batches, &[50, 1, 1], &[&[0], &[1, 2]]);
    check(&mut batches, &[1, 50, 1], &[&[0], &[1], &[2]]);
    check(&mut batches, &[6, 6, 6, 6], &[&[0], &[1], &[2], &[3]]);
    check(&mut batches, &[1], &[&[0]]);
}

/// Zones of 38, 1 and 1 members can never give what five replicas ask of them.
#[test]
fn a_set_that_cannot_be_filled_costs_no_turn_of_the_ring_for_each_key() {
    let members = (0..40_u32).map(|at| {
        let zone = format!("z{}", at.saturating_sub(37));
        let tokens = (0..64).map(|token: u32| (at * 64 + token).wrapping_mul(0x9e37_79b9));
        instance(&format!("h{at}:1"), &zone, InstanceState::Active, tokens.collect())
    });
    let ring = ring(members.collect(), 5, true);
    let requested: Vec<_> = (0..2000_u32).map(|at| RingKey(at.wrapping_mul(0x85eb_ca6b))).collect();
    let mut batches = Batches::default();
    let place = ring.placement();
    batches.assign(&place, Operation::Write, requested.iter().copied()).expect("a quorum");
    assert_eq!(shown(&batches, &place), naive(&ring, Operation::Write, &requested).expect("same"));
}

#[test]
fn a_subring_takes_its_tenants_keys_and_no_others() {
    let members = (0..12_u32).map(|at| {
        let tokens = (0..32).map(|token: u32| (at * 32 + token).wrapping_mul(0x9e37_79b9));
        let zone = format!("z{}", at % 3);
        instance(&format!("h{at}:1"), &zone, InstanceState::Active, tokens.collect())
    });
    let ring = ring(members.collect(), 3, true);
    let subring = ring.subring("tenant", 3, ShardRule::Balanced).expect("a part");
    let mut batches = Batches::default();
    let requested: Vec<_> = (0..500_u32).map(|at| RingKey(at.wrapping_mul(0x85eb_ca6b))).collect();
    for place in [subring.placement(), subring.renewed(&ring).placement()] {
        batches.assign(&place, Operation::Write, requested.iter().copied()).expect("placed");
        let members: BTreeSet<_> = subring.members().iter().map(|m| m.addr.to_string()).collect();
        let shown = shown(&batches, &place);
        assert_eq!(shown.keys().cloned().collect::<BTreeSet<_>>(), members);
        assert!(shown.values().all(|items| items.len() == 500), "three members, three replicas");
    }
}
