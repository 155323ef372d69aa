//! What a ring change, a heartbeat and a look-up cost.
//!
//! Rival: a walk from every position, which is how ownership would be found without the
//! backward walk. Seeds are fixed; shapes are `instances × tokens`, three zones, RF 3, every
//! tenth member LEAVING, unless the name says otherwise.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use freehold::keys::RingKey;
use freehold::ring::go_rand::GoRand;
use freehold::ring::model::{Instance, InstanceState, RingModel, RingReading};
use freehold::ring::ownership::{bitmap, key_set};
use freehold::ring::{
    MemberIndex, Operation, OwnView, Position, Ring, RingSettings, RingSnapshot, Token, Walker,
};
use freehold::wire::ring_desc::{self, RingDescReader};

const NOW_MS: i64 = 1_700_000_000_000;
const TOKENS_EACH: usize = 512;
const LAST_GOOD_MS: u64 = 600_000;
const OWN: MemberIndex = MemberIndex(0);

fn ring_benches(c: &mut Criterion) {
    for instances in [100, 600] {
        let shape = format!("{instances}x{TOKENS_EACH}");
        let model = even_ring(instances);
        ownership(c, &shape, &model, settings(3));
        change(c, &shape, &model);
        look_up(c, &shape, &model);
    }
    ownership(c, "unfillable-rf5-98-1-1", &lopsided_ring(), settings(5));
    tenant_views(c);
}

/// From a sorted ring to runs, key set with class table, and bitmap.
fn ownership(c: &mut Criterion, shape: &str, model: &RingModel, settings: RingSettings) {
    let ring = RingSnapshot::build(model, NOW_MS, settings.into(), None);
    let len = ring.circle().len();
    let mut group = c.benchmark_group(format!("ring/ownership/{shape}"));
    group.bench_function("backward", |b| {
        b.iter(|| {
            let runs = ring.owned_runs(OWN, Operation::Write);
            let keys = key_set(&runs, ring.circle().tokens()).with_class_table();
            black_box((bitmap(&runs, len), keys))
        });
    });
    // Milliseconds a round, up to seconds where sets cannot be filled.
    group.sample_size(10);
    group.bench_function("rival-walk-per-position", |b| {
        b.iter(|| {
            let mut walker = Walker::new(ring.layout(), Operation::Write);
            let positions = (0..len as u32).map(Position);
            let holds = positions.filter(|&start| walker.walk_from(start).contains(&OWN));
            black_box(holds.count())
        });
    });
    group.finish();
}

/// From stored bytes to the published snapshot: with tokens moved, and with every heartbeat
/// renewed and nothing else.
fn change(c: &mut Criterion, shape: &str, model: &RingModel) {
    let mut moved = model.clone();
    let mut beaten = model.clone();
    for (beaten, moved) in beaten.instances.values_mut().zip(moved.instances.values_mut()) {
        beaten.timestamp_s += 10;
        moved.tokens[0].0 ^= 1;
    }
    let [stored, moved, beaten] =
        [model, &moved, &beaten].map(|model| ring_desc::encode(model).expect("encode"));

    let mut group = c.benchmark_group(format!("ring/change/{shape}"));
    let ring = Ring::new(settings(3), LAST_GOOD_MS);
    let mut reader = RingDescReader::new();
    let mut read = |value: &[u8]| {
        let reading = reader.read(value).expect("read");
        ring.publish(&reading, NOW_MS);
        matches!(reading, RingReading::Whole(_))
    };
    let mut turn = 0_usize;
    group.bench_function("whole", |b| {
        b.iter(|| {
            turn += 1;
            assert!(read([&stored, &moved][turn % 2]));
        });
    });
    read(&stored);
    group.bench_function("heartbeats", |b| {
        b.iter(|| {
            turn += 1;
            assert!(!read([&stored, &beaten][turn % 2]));
        });
    });
    group.finish();
}

fn look_up(c: &mut Criterion, shape: &str, model: &RingModel) {
    let ring = RingSnapshot::build(model, NOW_MS, settings(3).into(), None);
    let OwnView::Known(owned) = ring.own() else { panic!("own view is unknown") };
    let mut random = GoRand::new(3);
    let keys: Vec<RingKey> = (0..4096).map(|_| RingKey(random.next_u32())).collect();
    let mut at = 0;
    let mut next = || {
        at = (at + 1) % keys.len();
        keys[at]
    };
    let mut walker = Walker::new(ring.layout(), Operation::Write);
    let mut group = c.benchmark_group(format!("ring/look-up/{shape}"));
    group.bench_function("position", |b| b.iter(|| ring.circle().search(next())));
    group.bench_function("owned", |b| b.iter(|| owned.keys.contains(next())));
    group.bench_function("rival-position-bitmap", |b| {
        b.iter(|| owned.positions[ring.circle().search(next()).index()]);
    });
    group.bench_function("walk", |b| {
        b.iter(|| walker.walk_from(ring.circle().search(next())).len());
    });
    group.bench_function("get", |b| b.iter(|| ring.get(next(), Operation::Write).is_ok()));
    group.finish();
}

/// Views of tenants with shard size 9 on the large ring: ten thousand as they come, of whom we
/// serve few, and a thousand that all have us in their shard, the worst case.
fn tenant_views(c: &mut Criterion) {
    const SHARD_SIZE: i64 = 9;
    let ring = RingSnapshot::build(&even_ring(600), NOW_MS, settings(3).into(), None);
    let name = |i: usize| format!("tenant-{i}");
    let serves = |tenant: &String| {
        let view = ring.tenant_view(tenant, SHARD_SIZE);
        view.is_ok_and(|view| view.keys.bounds_len() > 0)
    };
    let any: Vec<String> = (0..10_000).map(name).collect();
    let ours: Vec<String> = (0..).map(name).filter(serves).take(1_000).collect();
    let mut group = c.benchmark_group("ring/tenant-views/600x512");
    group.sample_size(10);
    for (lot, tenants) in [("10000-any", &any), ("1000-ours", &ours)] {
        group.bench_function(lot, |b| {
            b.iter_batched(
                || Vec::with_capacity(tenants.len()),
                |mut views| {
                    views.extend(tenants.iter().map(|t| ring.tenant_view(t, SHARD_SIZE)));
                    views
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn settings(replication_factor: usize) -> RingSettings {
    RingSettings {
        replication_factor,
        zone_awareness_enabled: true,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: Some("ingester-000".to_owned()),
    }
}

fn even_ring(instances: usize) -> RingModel {
    ring(instances, |i| format!("zone-{}", i % 3))
}

/// Two zones of one member each can never give what five replicas ask of them.
fn lopsided_ring() -> RingModel {
    ring(100, |i| format!("zone-{}", i.saturating_sub(97)))
}

fn ring(instances: usize, zone: impl Fn(usize) -> String) -> RingModel {
    let mut random = GoRand::new(1);
    let instances = (0..instances).map(|i| {
        let mut tokens: Vec<Token> = (0..TOKENS_EACH).map(|_| Token(random.next_u32())).collect();
        tokens.sort_unstable();
        let leaving = i % 10 == 9;
        let instance = Instance {
            addr: format!("10.0.{}.{}:9095", i / 256, i % 256),
            timestamp_s: NOW_MS / 1000,
            state: if leaving { InstanceState::Leaving } else { InstanceState::Active },
            tokens,
            zone: zone(i),
            registered_timestamp_s: NOW_MS / 1000 - 86_400,
            unknown_fields: Vec::new(),
        };
        (format!("ingester-{i:03}"), instance)
    });
    RingModel { instances: instances.collect(), unknown_fields: Vec::new() }
}

criterion_group!(benches, ring_benches);
criterion_main!(benches);
