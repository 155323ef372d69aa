//! A recorded scale-up: three instances near a tenant's limit, three more join.
//!
//! Run with `--nocapture` to see the figures.

use freehold::ingester::config::SeriesLimitMode;
use freehold::ring::model::InstanceState;

use super::cluster::{Cluster, Outcomes, Setup, tenant};

const GLOBAL_LIMIT: i64 = 6_000;
/// Series that the tenant has before: 80 % of its limit.
const BEFORE: u64 = 4_800;
/// New ones in each of the three phases; together they stay below it.
const NEW: u64 = 200;

/// What became of the new series while instances were joining, between the change of the ring
/// and the recounts, and after.
struct Recorded {
    joining: Outcomes,
    between: Outcomes,
    after: Outcomes,
}

fn scale_up(enforcement: bool, shard_size: i64) -> Recorded {
    let id = tenant("a");
    let mut setup = Setup::new(GLOBAL_LIMIT, enforcement);
    setup.limits.ingestion_tenant_shard_size = shard_size as f64;
    let mut cluster = Cluster::new(setup, 3);
    let before = cluster.push(&id, 0..BEFORE, shard_size);
    assert_eq!((before.accepted, before.refused), (BEFORE, 0));
    // Three zones of one instance each: everybody holds everything.
    for node in cluster.nodes.keys() {
        assert_eq!(cluster.view(node, &id).used(), BEFORE);
    }
    let joined: Vec<_> = (0..3).map(|_| cluster.join(InstanceState::Joining)).collect();
    let phase = |n: u64| BEFORE + n * NEW..BEFORE + (n + 1) * NEW;
    let mut joining = Outcomes::default();
    // A shard may consist of JOINING members alone, which nobody can write to.
    if shard_size == 0 {
        cluster.spread();
        joining = cluster.push(&id, phase(0), shard_size);
    }
    for id in joined {
        cluster.set_state(&id, InstanceState::Active);
    }
    cluster.publish();
    let between = cluster.push(&id, phase(1), shard_size);
    cluster.renew();
    let after = cluster.push(&id, phase(2), shard_size);
    Recorded { joining, between, after }
}

#[test]
fn a_scale_up_refuses_no_series_with_enforcement_and_half_without() {
    let on = scale_up(true, 0);
    let off = scale_up(false, 0);
    let writes = NEW * 3;
    for (name, recorded) in [("on", &on), ("off", &off)] {
        let refused = |outcomes: &Outcomes| outcomes.by_instance.values().sum::<u64>();
        println!(
            "scale-up 3 to 6 at 80 % of the limit, enforcement {name}: of {writes} writes of new \
             series each, refused {} while joining, {} before the recount, {} after it",
            refused(&recorded.joining),
            refused(&recorded.between),
            refused(&recorded.after),
        );
    }
    assert_eq!((on.joining.refused, on.between.refused, on.after.refused), (0, 0, 0));
    assert_eq!(on.joining.accepted + on.between.accepted + on.after.accepted, NEW * 3);
    assert_eq!(off.joining.refused, 0, "JOINING instances do not lower the limit");
    let by_old = |outcomes: &Outcomes| {
        let old = ["ingester-0", "ingester-1", "ingester-2"];
        old.iter().filter_map(|id| outcomes.by_instance.get(*id)).sum::<u64>()
    };
    let refused = by_old(&off.after);
    assert_eq!(refused, off.after.by_instance.values().sum::<u64>(), "only old ones refuse");
    assert!(refused * 5 > writes * 2 && refused * 5 < writes * 3, "{refused} of {writes}");
}

#[test]
fn a_scale_up_with_shuffle_sharding_refuses_no_series() {
    for shard_size in [3, 6] {
        let on = scale_up(true, shard_size);
        assert_eq!((on.between.refused, on.after.refused), (0, 0), "shard size {shard_size}");
    }
}

#[test]
fn a_scale_down_refuses_no_series() {
    let id = tenant("a");
    let mut cluster = Cluster::new(Setup::new(GLOBAL_LIMIT, true), 6);
    let before = cluster.push(&id, 0..BEFORE, 0);
    assert_eq!((before.accepted, before.refused), (BEFORE, 0));
    assert_eq!(cluster.owned(&id), BEFORE * 3);
    let leaving = ["ingester-3", "ingester-4", "ingester-5"];
    for gone in leaving {
        cluster.set_state(gone, InstanceState::Leaving);
    }
    // Writes extend past who leaves, so its keys arrive elsewhere at once.
    cluster.publish();
    let between = cluster.push(&id, BEFORE..BEFORE + 100, 0);
    cluster.renew();
    let while_leaving = cluster.push(&id, BEFORE + 100..BEFORE + 200, 0);
    for gone in leaving {
        cluster.model.instances.remove(gone);
        cluster.nodes.remove(gone);
    }
    cluster.spread();
    // Everything known comes again, to those who hold it now.
    let all = cluster.push(&id, 0..BEFORE + 300, 0);
    assert_eq!((between.refused, while_leaving.refused, all.refused), (0, 0, 0));
    assert_eq!(cluster.owned(&id), (BEFORE + 300) * 3);
}

#[test]
fn a_scale_up_one_by_one_refuses_no_series_with_limits_by_share() {
    // On the way from three to six, zones are of different sizes: only a limit by share is fair
    // to all of them then.
    let id = tenant("a");
    let mut setup = Setup::new(GLOBAL_LIMIT, true);
    setup.config.series_limit_mode = SeriesLimitMode::Share;
    let mut cluster = Cluster::new(setup, 3);
    cluster.push(&id, 0..BEFORE, 0);
    let mut next = BEFORE;
    for _ in 0..3 {
        cluster.join(InstanceState::Active);
        cluster.publish();
        let between = cluster.push(&id, next..next + 80, 0);
        cluster.renew();
        let after = cluster.push(&id, next + 80..next + 160, 0);
        assert_eq!((between.refused, after.refused), (0, 0), "{} instances", cluster.nodes.len());
        next += 160;
    }
}
