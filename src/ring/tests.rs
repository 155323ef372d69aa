//! The ring against a plain reading of its rules, on rings of every shape, and the field cases.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::go_rand::GoRand;
use super::model::{Heartbeat, Instance, InstanceState, RingModel};
use super::ownership::{bitmap, key_set};
use super::shuffle::shuffle_shard_seed;
use super::*;
use crate::keys::{KeySet, RingKey};

const NOW_MS: i64 = 1_700_000_000_000;
const TIMEOUT_MS: u64 = 60_000;

fn settings(replication_factor: usize, zone_awareness_enabled: bool) -> RingSettings {
    RingSettings {
        replication_factor,
        zone_awareness_enabled,
        heartbeat_timeout_ms: TIMEOUT_MS,
        extend_writes: true,
        own_id: None,
    }
}

fn own(id: &str, settings: RingSettings) -> RingSettings {
    RingSettings { own_id: Some(id.to_owned()), ..settings }
}

fn instance(zone: &str, state: InstanceState, tokens: &[u32]) -> Instance {
    Instance {
        addr: format!("{zone}:9095"),
        timestamp_s: NOW_MS / 1000,
        state,
        tokens: tokens.iter().copied().map(Token).collect(),
        zone: zone.to_owned(),
        registered_timestamp_s: 0,
        unknown_fields: Vec::new(),
    }
}

fn model(instances: impl IntoIterator<Item = (String, Instance)>) -> RingModel {
    RingModel { instances: instances.into_iter().collect(), unknown_fields: Vec::new() }
}

/// `count` ACTIVE members over `zones` zones in turn, with tokens from a fixed sequence.
fn even_ring(count: usize, zones: usize, tokens_each: usize) -> RingModel {
    let mut random = GoRand::new(7);
    model((0..count).map(|i| {
        let tokens: Vec<u32> = (0..tokens_each).map(|_| random.next_u32()).collect();
        let zone = if zones == 0 { String::new() } else { format!("zone-{}", i % zones) };
        (format!("ingester-{i:02}"), instance(&zone, InstanceState::Active, &tokens))
    }))
}

fn snapshot(model: &RingModel, settings: RingSettings) -> RingSnapshot {
    RingSnapshot::build(model, NOW_MS, settings.into(), None)
}

fn ids<'a>(ring: &'a RingSnapshot, walk: &[MemberIndex]) -> Vec<&'a str> {
    walk.iter().map(|member| &*ring.members()[member.index()].id).collect()
}

/// What `member` holds for writes, as keys.
fn keys_of(ring: &RingSnapshot, id: &str) -> KeySet {
    let member = ring.member_index(id).unwrap();
    let runs = ring.owned_runs(member, ring.settings().write_operation());
    key_set(&runs, ring.circle().tokens())
}

fn own_keys(ring: &RingSnapshot) -> Arc<KeySet> {
    match ring.own() {
        OwnView::Known(owned) => Arc::clone(&owned.keys),
        OwnView::Unknown(reason) => panic!("{reason}"),
    }
}

/// A fixed sequence of keys that has nothing to do with the tokens.
fn some_keys(count: usize) -> impl Iterator<Item = RingKey> {
    let mut random = GoRand::new(99);
    (0..count).map(move |_| RingKey(random.next_u32()))
}

/// The walk as the rules read, with maps and sets and no cleverness: the oracle.
fn plain_walk(
    model: &RingModel,
    settings: &RingSettings,
    op: Operation,
    key: RingKey,
) -> Vec<String> {
    let mut owners: BTreeMap<u32, &str> = BTreeMap::new();
    // In order of ids, so that the greatest id of a contested token stays.
    for (id, instance) in &model.instances {
        for token in &instance.tokens {
            owners.insert(token.0, id);
        }
    }
    let zones: BTreeSet<&str> = model.instances.values().map(|i| i.zone.as_str()).collect();
    let mut replication_factor = settings.replication_factor;
    let mut extras = settings.replication_factor % zones.len().max(1);
    let per_zone = settings.replication_factor / zones.len().max(1);
    let mut by_zone: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found: Vec<String> = Vec::new();
    let clockwise = owners.iter().filter(|(t, _)| **t > key.0);
    for (_, id) in clockwise.chain(owners.iter().filter(|(t, _)| **t <= key.0)) {
        if found.len() >= replication_factor {
            break;
        }
        if found.iter().any(|other| other == id) {
            continue;
        }
        let Instance { zone, state, .. } = &model.instances[*id];
        let capped = settings.zone_awareness_enabled && !zone.is_empty();
        let in_zone = by_zone.get(zone.as_str()).copied().unwrap_or(0);
        if capped && in_zone >= per_zone + usize::from(extras > 0) {
            continue;
        }
        found.push((*id).to_owned());
        if op.extends(*state) {
            replication_factor += 1;
        } else if capped {
            by_zone.insert(zone, in_zone + 1);
            if in_zone > 0 && in_zone >= per_zone {
                extras -= 1;
            }
        }
    }
    found
}

fn any_state() -> impl Strategy<Value = InstanceState> {
    prop_oneof![
        3 => Just(InstanceState::Active),
        1 => prop::sample::select(InstanceState::ALL.to_vec()),
    ]
}

/// Tokens that collide, sit on the edges of the ring, or are spread over it.
fn any_token() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), 0_u32..12, Just(0), Just(u32::MAX), (0_u32..40).prop_map(|n| n << 27),]
}

fn any_ring() -> impl Strategy<Value = (RingModel, RingSettings)> {
    let shape = (1_usize..=24, 1_usize..=7, 0_usize..=6, any::<bool>(), any::<bool>(), 1_usize..9);
    shape.prop_flat_map(|(count, rf, zones, zone_aware, extend_writes, tokens_max)| {
        let member = (
            prop::collection::vec(any_token(), 0..=tokens_max),
            any_state(),
            // The first zone is the empty one, in some rings next to others.
            0..=zones,
        );
        prop::collection::vec(member, count).prop_map(move |members| {
            let members = members.into_iter().enumerate().map(|(i, (tokens, state, zone))| {
                let zone = if zone == 0 { String::new() } else { format!("zone-{zone}") };
                (format!("i{i:02}"), instance(&zone, state, &tokens))
            });
            let settings = RingSettings { extend_writes, ..settings(rf, zone_aware) };
            (model(members), settings)
        })
    })
}

/// Keys at, below and above every token, and some between.
fn telling_keys(ring: &RingSnapshot) -> Vec<RingKey> {
    let tokens = ring.circle().tokens().iter().map(|token| token.0);
    let near = tokens.flat_map(|t| [t.wrapping_sub(1), t, t.wrapping_add(1)]);
    near.map(RingKey).chain(some_keys(20)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn walk_and_ownership_are_the_plain_walk((model, settings) in any_ring()) {
        for op in [Operation::Write, Operation::WriteNoExtend, Operation::Read] {
            let ring = snapshot(&model, settings.clone());
            let len = ring.circle().len();
            let all_runs: Vec<_> = (0..ring.members().len() as u32)
                .map(|member| ring.owned_runs(MemberIndex(member), op))
                .collect();
            let sets: Vec<KeySet> = all_runs
                .iter()
                .map(|runs| key_set(runs, ring.circle().tokens()).with_class_table())
                .collect();
            for key in telling_keys(&ring) {
                let walk = ring.walk(key, op);
                let plain = plain_walk(&model, &settings, op, key);
                prop_assert_eq!(ids(&ring, &walk), plain, "{:?} {:?}", op, key);
                for (member, keys) in (0..).map(MemberIndex).zip(&sets) {
                    prop_assert_eq!(keys.contains(key), walk.contains(&member), "{:?}", key);
                }
            }
            let mut walker = Walker::new(ring.layout(), op);
            for position in (0..len as u32).map(Position) {
                let walk = walker.walk_from(position);
                for (member, runs) in (0..).map(MemberIndex).zip(&all_runs) {
                    let owned = bitmap(runs, len)[position.index()];
                    prop_assert_eq!(owned, walk.contains(&member), "{:?} {:?}", op, position);
                }
            }
        }
    }

    #[test]
    fn shares_sum_to_the_lengths_of_the_walks((model, settings) in any_ring()) {
        let ring = snapshot(&model, settings.clone());
        let op = settings.write_operation();
        let tokens = ring.circle().tokens();
        let held: u64 = model.instances.keys().map(|id| keys_of(&ring, id).width()).sum();
        let mut walker = Walker::new(ring.layout(), op);
        let mut walked = 0_u64;
        let mut shortest = usize::MAX;
        for (index, token) in tokens.iter().enumerate() {
            let width = match index.checked_sub(1) {
                Some(before) => u64::from(token.0 - tokens[before].0),
                None => (1 << 32) - u64::from(tokens[tokens.len() - 1].0 - token.0),
            };
            let len = walker.walk_from(Position(index as u32)).len();
            walked += width * len as u64;
            shortest = shortest.min(len);
        }
        prop_assert_eq!(held, walked);
        let all_active = model.instances.values().all(|i| i.state == InstanceState::Active);
        if all_active && shortest == settings.replication_factor {
            prop_assert_eq!(held, (settings.replication_factor as u64) << 32);
        }
    }

    #[test]
    fn a_tenant_s_view_is_the_walk_in_its_subring(
        (model, settings) in any_ring(),
        size in 0_i64..12,
        tenant in "[a-z]{0,4}",
    ) {
        let op = settings.write_operation();
        for id in model.instances.keys() {
            let ring = snapshot(&model, own(id, settings.clone()));
            let Ok(view) = ring.tenant_view(&tenant, size) else {
                prop_assert!(model.instances[id].tokens.is_empty());
                continue;
            };
            let subring = ring.subring(&tenant, size, ShardRule::Balanced);
            let Some(subring) = subring else {
                prop_assert!(Arc::ptr_eq(&view.keys, &own_keys(&ring)));
                continue;
            };
            prop_assert_eq!(view.instances, subring.members().len());
            if subring.circle().is_empty() {
                prop_assert_eq!(view.keys.width(), 0);
                continue;
            }
            for key in telling_keys(&ring) {
                let walk = subring.walk(key, op);
                let held = walk.iter().any(|member| member.is_some_and(|m| *m.id == **id));
                prop_assert_eq!(view.keys.contains(key), held, "{:?}", key);
            }
        }
    }

    #[test]
    fn rivals_of_the_own_zone_alone_give_the_walk_s_keys(
        states in prop::collection::vec(any_state(), 6..24),
        seed: i64,
        size in 3_i64..12,
        extend_writes: bool,
        low in 0_u32..3,
    ) {
        let mut random = GoRand::new(seed);
        let model = model(states.iter().zip(0..).map(|(&state, i)| {
            let mut tokens: Vec<u32> = (0..5).map(|_| random.next_u32()).collect();
            if i == 0 {
                // Edges: key 0 and a token that stands twice.
                tokens.extend([low, low, u32::MAX]);
            }
            (format!("ingester-{i:02}"), instance(&format!("zone-{}", i % 3), state, &tokens))
        }));
        let settings = RingSettings { extend_writes, ..settings(3, true) };
        for id in model.instances.keys() {
            let ring = snapshot(&model, own(id, settings.clone()));
            let op = ring.settings().write_operation();
            let Some(subring) = ring.subring("tenant", size, ShardRule::Balanced) else {
                continue;
            };
            let view = ring.tenant_view("tenant", size).expect("we are in the ring");
            let runs = subring.owned_runs(&ring, id, op);
            prop_assert_eq!(&*view.keys, &key_set(&runs, subring.circle().tokens()), "{}", id);
        }
    }

    #[test]
    fn fingerprint_tells_what_can_move_ownership((model, settings) in any_ring(), at in any::<usize>()) {
        let ring = snapshot(&model, own("i00", settings));
        let rebuilt = |changed: &RingModel| {
            RingSnapshot::build(changed, NOW_MS, Arc::clone(ring.settings()), Some(&ring))
        };
        let id = format!("i{:02}", at % model.instances.len());
        let change = |change: fn(&mut Instance)| {
            let mut changed = model.clone();
            change(changed.instances.get_mut(&id).unwrap());
            rebuilt(&changed)
        };
        for same in [
            change(|i| i.timestamp_s += 1),
            change(|i| i.addr.push('x')),
            change(|i| i.registered_timestamp_s += 1),
            change(|i| i.tokens.reverse()),
        ] {
            prop_assert_eq!(same.generation(), ring.generation());
            prop_assert!(std::ptr::eq(same.layout(), ring.layout()));
        }
        for other in [
            change(|i| i.zone.push('x')),
            change(|i| i.tokens.push(Token(77))),
            change(|i| i.state = match i.state {
                InstanceState::Active => InstanceState::Leaving,
                _ => InstanceState::Active,
            }),
        ] {
            prop_assert_eq!(other.generation(), ring.generation() + 1);
        }
    }
}

#[test]
fn an_unfillable_set_is_found_without_a_full_turn_per_key() {
    let mut ring_model = even_ring(98, 1, 32);
    let lone = [[1, 1 << 31], [2, 3 << 30]];
    for (i, tokens) in lone.iter().enumerate() {
        let zone = format!("lone-{i}");
        ring_model.instances.insert(zone.clone(), instance(&zone, InstanceState::Active, tokens));
    }
    let settings = own("ingester-42", settings(5, true));
    let ring = snapshot(&ring_model, settings.clone());
    for key in some_keys(50) {
        let want = plain_walk(&ring_model, &settings, Operation::Write, key);
        assert_eq!(ids(&ring, &ring.walk(key, Operation::Write)), want);
        // Two from the big zone, one from each lone member: four of five.
        assert_eq!(want.len(), 4);
        assert_eq!(own_keys(&ring).contains(key), want.iter().any(|id| id == "ingester-42"));
    }
}

#[test]
fn own_view_says_why_it_is_unknown() {
    let check =
        |model: &RingModel, settings: RingSettings, reason| match snapshot(model, settings).own() {
            OwnView::Unknown(got) => assert_eq!(*got, reason),
            OwnView::Known(_) => panic!("known instead of {reason:?}"),
        };
    let mut ring_model = even_ring(3, 0, 4);
    let rules = || settings(3, false);
    check(&ring_model, rules(), UnknownOwnership::NoOwnId);
    check(&RingModel::default(), own("a", rules()), UnknownOwnership::RingEmpty);
    check(&ring_model, own("a", rules()), UnknownOwnership::NotInRing);
    ring_model.instances.insert("a".to_owned(), instance("", InstanceState::Pending, &[]));
    check(&ring_model, own("a", rules()), UnknownOwnership::NoTokens);
}

#[test]
fn a_heartbeat_on_the_timeout_is_fresh() {
    let check = |timestamp_s, timeout_ms, fresh| {
        let health =
            Health { heartbeat_timeout_ms: timeout_ms, read_at_ms: 100_000, zone_aware: false };
        assert_eq!(health.is_fresh(timestamp_s), fresh, "{timestamp_s} {timeout_ms}");
    };
    check(40, 60_000, true);
    check(39, 60_000, false);
    check(500, 60_000, true);
    check(0, 0, true);
    check(i64::MIN, 60_000, false);
    check(i64::MAX, 60_000, true);
}

fn heartbeats(model: &RingModel, timestamp_s: i64) -> RingReading {
    let beat = |(id, instance): (&String, &Instance)| Heartbeat {
        id: id.clone(),
        addr: instance.addr.clone(),
        timestamp_s,
        registered_timestamp_s: instance.registered_timestamp_s,
    };
    RingReading::Heartbeats(model.instances.iter().map(beat).collect())
}

#[test]
fn heartbeats_replace_counts_and_share_the_rest() {
    let ring = Ring::new(own("ingester-00", settings(3, true)), 600_000);
    let model = even_ring(6, 3, 16);
    assert_eq!(ring.publish(&RingReading::Whole(model.clone()), NOW_MS), Published::Moved);
    let before = ring.load();
    assert_eq!(before.healthy_count(), 6);

    let later_ms = NOW_MS + 120_000;
    let stale = heartbeats(&model, NOW_MS / 1000);
    assert_eq!(ring.publish(&stale, later_ms), Published::Refreshed);
    let after = ring.load();
    assert_eq!((after.healthy_count(), after.read_at_ms()), (0, later_ms));
    assert_eq!(after.generation(), before.generation());
    assert!(std::ptr::eq(after.layout(), before.layout()));
    assert!(Arc::ptr_eq(&own_keys(&after), &own_keys(&before)));

    let fresh = heartbeats(&model, later_ms / 1000);
    assert_eq!(ring.publish(&fresh, later_ms), Published::Refreshed);
    assert_eq!(ring.load().healthy_count(), 6);

    let other = heartbeats(&even_ring(5, 3, 16), later_ms / 1000);
    assert_eq!(ring.publish(&other, later_ms), Published::OutOfStep);
    assert_eq!(ring.load().members().len(), 6);
}

#[test]
fn case_a13_a_ring_that_reads_empty_for_one_tick_is_not_taken_over() {
    let ring = Ring::new(own("ingester-00", settings(3, true)), 600_000);
    let reading = RingReading::Whole(even_ring(6, 3, 16));
    ring.publish(&reading, NOW_MS);
    let (good, generation) = (ring.load(), ring.generation());
    let empty = RingReading::Whole(RingModel::default());
    assert_eq!(ring.publish(&empty, NOW_MS + 5_000), Published::KeptLastGood);
    // The divisor of limits and what is ours stay; the status is what the alert goes by.
    assert!(Arc::ptr_eq(&ring.load(), &good));
    assert_eq!((ring.load().healthy_count(), ring.generation()), (6, generation));
    assert!(matches!(ring.status(NOW_MS + 5_000), RingStatus::Stale(_)));
    let mut families = crate::exposition::Families::default();
    metrics::read(&ring, "ingester", NOW_MS + 5_000, &mut families);
    assert!(shows(families, "freehold_ring_status", "stale"));
    assert_eq!(ring.publish(&reading, NOW_MS + 10_000), Published::Refreshed);
    assert_eq!(ring.status(NOW_MS + 10_000), RingStatus::Fresh);
}

/// Whether the family has a sample of 1 with this label value.
fn shows(families: crate::exposition::Families, name: &str, label: &str) -> bool {
    families.into_vec().iter().filter(|family| family.name() == name).any(|family| {
        family.get_metric().iter().any(|metric| {
            let labelled = metric.get_label().iter().any(|pair| pair.value() == label);
            labelled && metric.get_gauge().get_value() == 1.0
        })
    })
}

#[test]
fn the_last_good_ring_stays_for_its_time_and_no_longer() {
    let ring = Ring::new(own("ingester-00", settings(3, true)), 600_000);
    assert_eq!(ring.status(NOW_MS), RingStatus::Unread(None));
    let reading = RingReading::Whole(even_ring(6, 3, 16));
    ring.publish(&reading, NOW_MS);
    assert_eq!(ring.status(NOW_MS + 1_000_000), RingStatus::Fresh);
    let good = ring.load();

    // The time runs from the first failure, not from the last change of a quiet ring.
    let failed_ms = NOW_MS + 1_000_000;
    ring.read_failed(failed_ms, "connection refused");
    let empty = RingReading::Whole(RingModel::default());
    assert_eq!(ring.publish(&empty, failed_ms + 1_000), Published::KeptLastGood);
    let failing = Failing { since_ms: failed_ms, error: EMPTY_RING_ERROR.to_owned() };
    assert_eq!(ring.status(failed_ms + 600_000), RingStatus::Stale(failing.clone()));
    assert!(Arc::ptr_eq(&ring.load(), &good));
    assert_eq!(ring.age_ms(failed_ms), 1_000_000);

    assert_eq!(ring.status(failed_ms + 600_001), RingStatus::Expired(failing));
    ring.read_failed(failed_ms + 600_001, "connection refused");
    let expired = ring.load();
    assert!(matches!(expired.own(), OwnView::Unknown(UnknownOwnership::Expired)));
    assert_eq!(expired.generation(), good.generation() + 1);
    // The walk and the counts of the last good ring are still the best we have.
    assert_eq!(expired.healthy_count(), 6);
    ring.read_failed(failed_ms + 700_000, "connection refused");
    assert!(Arc::ptr_eq(&ring.load(), &expired));

    assert_eq!(ring.publish(&reading, failed_ms + 800_000), Published::Moved);
    assert_eq!(ring.status(failed_ms + 800_000), RingStatus::Fresh);
    assert_eq!(own_keys(&ring.load()), own_keys(&good));
}

#[test]
fn case_a7_a_tokenless_member_moves_no_key_and_does_not_count() {
    let mut ring_model = even_ring(3, 0, 32);
    let rules = own("ingester-00", settings(2, false));
    let before = snapshot(&ring_model, rules.clone());
    let joining = |state, tokens: &[u32]| instance("", state, tokens);
    let fourth = "ingester-03".to_owned();
    let claimed: Vec<u32> = some_keys(32).map(|key| key.0).collect();
    ring_model.instances.insert(fourth.clone(), joining(InstanceState::Pending, &[]));
    let pending = snapshot(&ring_model, rules.clone());
    assert_eq!(pending.healthy_count(), 3);
    assert_eq!(own_keys(&pending), own_keys(&before));

    ring_model.instances.insert(fourth, joining(InstanceState::Active, &claimed));
    let active = snapshot(&ring_model, rules);
    assert_eq!(active.healthy_count(), 4);
    assert!(own_keys(&active).width() < own_keys(&before).width());
}

#[test]
fn case_a11_more_zones_than_replicas_still_hold_a_series_three_times() {
    let ring_model = even_ring(25, 5, 64);
    let ring = snapshot(&ring_model, settings(3, true));
    for key in some_keys(200) {
        let walk = ring.walk(key, Operation::Write);
        let zones: BTreeSet<_> = walk.iter().map(|m| &ring.members()[m.index()].zone).collect();
        assert_eq!((walk.len(), zones.len()), (3, 3));
    }
    let held: u64 = ring_model.instances.keys().map(|id| keys_of(&ring, id).width()).sum();
    assert_eq!(held, 3 << 32);
}

#[test]
fn case_a15_readonly_members_do_not_count_and_their_zone_stands_in() {
    let mut ring_model = even_ring(10, 3, 32);
    let readonly = ["ingester-00", "ingester-01", "ingester-05"];
    for id in readonly {
        ring_model.instances.get_mut(id).unwrap().state = InstanceState::ReadOnly;
    }
    for extend_writes in [true, false] {
        let ring = snapshot(&ring_model, RingSettings { extend_writes, ..settings(3, true) });
        assert_eq!(ring.healthy_count(), 7);
        for key in some_keys(300) {
            let op = ring.settings().write_operation();
            let set = ring.get(key, op).unwrap();
            let zones: BTreeSet<_> = set.members.iter().map(|member| &member.zone).collect();
            assert_eq!((set.members.len(), zones.len()), (3, 3), "{key:?}");
            assert!(set.members.iter().all(|member| !readonly.contains(&&*member.id)));
        }
    }
}

#[test]
fn case_a17_a_leaving_member_s_keys_gain_an_owner_only_when_writes_extend() {
    let active = even_ring(6, 3, 32);
    let mut leaving = active.clone();
    leaving.instances.get_mut("ingester-02").unwrap().state = InstanceState::Leaving;
    let was = snapshot(&active, settings(3, true));
    for extend_writes in [true, false] {
        let ring = snapshot(&leaving, RingSettings { extend_writes, ..settings(3, true) });
        let op = ring.settings().write_operation();
        for key in some_keys(500) {
            let before = was.walk(key, op);
            let before = ids(&was, &before);
            let after = ring.walk(key, op);
            let after = ids(&ring, &after);
            let writable = ring.get(key, op).unwrap().members.len();
            if !before.contains(&"ingester-02") {
                assert_eq!(after, before);
                continue;
            }
            let gained: Vec<_> = after.iter().filter(|id| !before.contains(id)).collect();
            if extend_writes {
                // The other member of its zone.
                assert_eq!((gained, writable), (vec![&"ingester-05"], 3), "{key:?}");
            } else {
                assert_eq!((gained.len(), writable), (0, 2), "{key:?}");
            }
        }
    }
}

#[test]
fn case_a18_a_missed_heartbeat_moves_no_key() {
    let mut ring_model = even_ring(6, 3, 32);
    let rules = own("ingester-00", settings(3, true));
    let before = snapshot(&ring_model, rules.clone());
    ring_model.instances.get_mut("ingester-03").unwrap().timestamp_s -= 61;
    let after = RingSnapshot::build(&ring_model, NOW_MS, rules.into(), Some(&before));
    assert_eq!((before.healthy_count(), after.healthy_count()), (6, 5));
    assert_eq!(after.generation(), before.generation());
    for key in some_keys(200) {
        assert_eq!(after.walk(key, Operation::Write), before.walk(key, Operation::Write));
    }
}

#[test]
fn case_a21_zones_need_not_match_the_replication_factor() {
    for (zones, zone_aware) in [(4, true), (2, true), (3, false), (1, true)] {
        let ring_model = even_ring(8, zones, 16);
        let rules = settings(3, zone_aware);
        let ring = snapshot(&ring_model, rules.clone());
        for id in ring_model.instances.keys() {
            let keys = keys_of(&ring, id);
            for key in some_keys(200) {
                let walk = plain_walk(&ring_model, &rules, Operation::Write, key);
                assert_eq!(keys.contains(key), walk.contains(id), "{zones} zones {id} {key:?}");
            }
        }
    }
}

#[test]
fn case_a22_a_single_member_without_a_zone_owns_all() {
    for zone_aware in [true, false] {
        let ring = snapshot(&even_ring(1, 0, 4), own("ingester-00", settings(1, zone_aware)));
        let OwnView::Known(owned) = ring.own() else { panic!("unknown") };
        assert_eq!(owned.share, 1.0);
        assert_eq!(*owned.keys, KeySet::all().with_class_table());
        assert!(owned.positions.all());
    }
}

#[test]
fn case_a23_a_shard_of_one_moves_as_a_whole_and_back() {
    let tenant = "tenant-1";
    let before = even_ring(4, 0, 8);
    let drawn = GoRand::new(shuffle_shard_seed(tenant, "")).next_u32();
    let view = |model: &RingModel| {
        let ring = snapshot(model, settings(3, false));
        let subring = ring.subring(tenant, 1, ShardRule::Balanced).unwrap();
        let id = subring.members()[0].id.to_string();
        (id, subring.members().len())
    };
    let (first, len) = view(&before);
    assert_eq!(len, 1);
    let held = |model: &RingModel| {
        let ring = snapshot(model, own(&first, settings(3, false)));
        let view = ring.tenant_view(tenant, 1).unwrap();
        some_keys(10).filter(|key| view.keys.contains(*key)).count()
    };
    // The newcomer sorts first and stands right behind the drawn key.
    let mut during = before.clone();
    let newcomer = instance("", InstanceState::Active, &[drawn.wrapping_add(1)]);
    during.instances.insert("a-newcomer".to_owned(), newcomer);
    assert_eq!(view(&during), ("a-newcomer".to_owned(), 1));
    assert_eq!([held(&before), held(&during), held(&before)], [10, 0, 10]);
}

#[test]
fn case_a29_edges_leave_no_hole_and_no_overlap() {
    let ring_model = model([
        ("a".to_owned(), instance("", InstanceState::Active, &[0, 100])),
        ("b".to_owned(), instance("", InstanceState::Active, &[u32::MAX, 50])),
    ]);
    let ring = snapshot(&ring_model, settings(1, false));
    let (a, b) = (keys_of(&ring, "a"), keys_of(&ring, "b"));
    let check = |key, owner: &str| {
        let got = ring.walk(RingKey(key), Operation::Write);
        assert_eq!(ids(&ring, &got), [owner], "{key}");
        assert_eq!(a.contains(RingKey(key)), owner == "a", "{key}");
        assert_eq!(b.contains(RingKey(key)), owner == "b", "{key}");
    };
    // A key equal to a token belongs to the next token.
    check(0, "b");
    check(49, "b");
    check(50, "a");
    check(99, "a");
    check(100, "b");
    check(u32::MAX - 1, "b");
    check(u32::MAX, "a");
    assert_eq!(a.width() + b.width(), 1 << 32);
}

#[test]
fn case_a30_own_ranges_and_the_distributor_s_walk_never_disagree() {
    let mut keys = some_keys(100_000);
    for (count, zones, rf) in [(3, 0, 3), (10, 3, 3), (24, 4, 3), (24, 2, 5), (13, 6, 7)] {
        let mut ring_model = even_ring(count, zones, 24);
        let states = InstanceState::ALL.into_iter().cycle();
        for (instance, state) in ring_model.instances.values_mut().step_by(4).zip(states) {
            instance.state = state;
        }
        let ring = snapshot(&ring_model, settings(rf, zones > 0));
        let sets: Vec<KeySet> =
            ring_model.instances.keys().map(|id| keys_of(&ring, id).with_class_table()).collect();
        let mut walker = Walker::new(ring.layout(), Operation::Write);
        for key in keys.by_ref().take(20_000) {
            let walk = walker.walk_from(ring.circle().search(key));
            for (member, set) in (0..).map(MemberIndex).zip(&sets) {
                assert_eq!(set.contains(key), walk.contains(&member), "{count} {key:?}");
            }
        }
    }
}

#[test]
fn case_a33_series_of_one_key_lie_on_the_same_replicas() {
    let ring_model = even_ring(9, 3, 32);
    let ring = snapshot(&ring_model, settings(3, true));
    for key in some_keys(100) {
        let holders = ring_model.instances.keys().filter(|id| keys_of(&ring, id).contains(key));
        assert_eq!(holders.count(), 3);
    }
}
