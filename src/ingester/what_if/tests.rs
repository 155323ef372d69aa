//! What is foretold, against standings of rings that are as asked, and against the store itself.

use std::sync::Arc;

use super::*;
use crate::ingester::config::SeriesLimitMode;
use crate::ingester::standing::Rules;
use crate::keys::RingKey;
use crate::labels::Identity;
use crate::ring::go_rand::GoRand;
use crate::ring::model::{Instance, InstanceState, RingModel};
use crate::ring::{RingSettings, RingSnapshot, Token};
use crate::series::{self, Basis, Item, Kind, LimitName, NewSeries, SeriesStore, Tick, Totals};
use crate::tenant::TenantId;

const NOW_MS: i64 = 1_800_000_000_000;

fn ring(instances: usize) -> RingSnapshot {
    let mut random = GoRand::new(7);
    let mut model = RingModel::default();
    for number in 0..instances {
        let mut tokens: Vec<_> = (0..128).map(|_| Token(random.next_u32())).collect();
        tokens.sort_unstable();
        let instance = Instance {
            addr: format!("ingester-{number}:9095"),
            timestamp_s: NOW_MS / 1000,
            state: InstanceState::Active,
            tokens,
            zone: format!("zone-{}", number % 3),
            registered_timestamp_s: NOW_MS / 1000,
            unknown_fields: Vec::new(),
        };
        model.instances.insert(format!("ingester-{number}"), instance);
    }
    let settings = RingSettings {
        replication_factor: 3,
        zone_awareness_enabled: true,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: Some("ingester-0".to_owned()),
    };
    RingSnapshot::build(&model, NOW_MS, Arc::new(settings), None)
}

fn standing(instances: usize, limits: Limits, mode: SeriesLimitMode) -> Standing {
    let tenant = TenantId::parse("a").expect("a tenant");
    let rules = Rules { mode, shard_by_all_labels: true, shuffle_sharding: true, mismatch: false };
    Standing::new(&tenant, &Arc::new(limits), &ring(instances), rules, None)
}

fn limits(global: i64, local: i64, shard_size: f64) -> Limits {
    Limits {
        max_global_series_per_user: global,
        max_series_per_user: local,
        ingestion_tenant_shard_size: shard_size,
        ..Limits::default()
    }
}

fn count(in_memory: u64, owned: u64) -> Count {
    Count { in_memory, owned }
}

#[test]
fn what_is_foretold_is_what_a_ring_of_that_size_gives() {
    for (global, local, shard_size) in
        [(9_000, 0, 0.0), (9_000, 700, 0.0), (9_000, 0, 9.0), (0, 0, 0.0), (-1, 0, 0.0)]
    {
        for instances in [3, 6, 7, 12, 93] {
            let before = standing(6, limits(5_000, local, shard_size), SeriesLimitMode::Flat);
            let asked = Asked { global_limit: Some(global), instances: Some(instances) };
            let told = WhatIf::new(&before, count(100, 90), asked);
            let after =
                standing(instances, limits(global, local, shard_size), SeriesLimitMode::Flat);
            let real = after.local_limits(&after.shape).series;
            let expect = (real < NO_LIMIT as u64).then_some(real);
            assert_eq!(told.limit, expect, "{global} {local} {shard_size} {instances}");
            assert_eq!(told.in_memory.refuses, real <= 100);
        }
    }
}

#[test]
fn nothing_asked_foretells_what_is_in_force() {
    for mode in [SeriesLimitMode::Flat, SeriesLimitMode::Share] {
        let standing = standing(7, limits(9_000, 0, 0.0), mode);
        let told = WhatIf::new(&standing, count(100, 90), Asked::default());
        assert_eq!(told.limit, Some(standing.local_limits(&standing.shape).series));
        assert_eq!((told.instances, told.global_limit), (7, 9_000));
        assert_eq!((told.share, told.owned.count), (standing.share, 90));
    }
}

#[test]
fn a_share_shrinks_with_the_number_that_share() {
    let standing = standing(6, limits(9_000, 0, 0.0), SeriesLimitMode::Share);
    let told = |instances| {
        let asked = Asked { instances: Some(instances), ..Asked::default() };
        WhatIf::new(&standing, count(4_000, 3_000), asked)
    };
    let doubled = told(12);
    assert_eq!(doubled.share, standing.share / 2.0);
    assert_eq!(doubled.limit, Some((9_000.0 * doubled.share) as u64));
    assert_eq!(doubled.owned.count, 1_500);
    assert_eq!(doubled.in_memory.count, 4_000, "what has moved stays in memory for a while");
    assert!(doubled.in_memory.refuses && !doubled.owned.refuses, "{doubled:?}");
    assert_eq!(told(2).share, 1.0, "nobody holds more than everything");
}

#[test]
fn what_is_refused_is_what_the_store_refuses() {
    let standing = standing(6, limits(20, 0, 0.0), SeriesLimitMode::Flat);
    for global in [16, 20, 22, 24, 40] {
        let asked = Asked { global_limit: Some(global), ..Asked::default() };
        let changed = self::standing(6, limits(global, 0, 0.0), SeriesLimitMode::Flat);
        let store =
            SeriesStore::new(series::Options::default(), changed.view(), Arc::new(Totals::new()));
        let rules = series::Rules { basis: Basis::Owned, ..series::Rules::default() };
        let create = |number: u32| {
            let identity = Identity(u128::from(number) << 96 | u128::from(number));
            let item = Item { identity, first_ms: 1, newest_ms: 1, kind: Kind::Float };
            let new = NewSeries {
                ring_key: RingKey(number.wrapping_mul(0x9e37_79b9)),
                metric: b"m",
                metric_exempt: false,
                label_sets: &[],
                label_sets_generation: 0,
            };
            store.create(&item, &new, &rules, Tick::new(1)).is_ok()
        };
        assert!((1..=20).all(create), "nothing is limited yet");
        store.set_limits(changed.local_limits(&changed.shape));
        let told = WhatIf::new(&standing, store.counts().series, asked);
        let in_force = store.limit(LimitName::Series, Basis::Owned, Tick::new(1));
        assert_eq!(told.limit, Some(in_force.max));
        assert_eq!(told.owned.refuses, !create(21), "{global}: {told:?}");
    }
}
