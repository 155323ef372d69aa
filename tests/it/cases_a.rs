//! Field cases of scaling and of the conversion of limits, through real rings and ingesters.

use std::collections::BTreeMap;

use freehold::ingester::config::SeriesLimitMode;
use freehold::labels::ring_key;
use freehold::ring::model::InstanceState;
use freehold::ring::{MemberIndex, Operation};
use freehold::series::InForce;

use super::cluster::{Cluster, Setup, labels, request, tenant};

const ALL: [&str; 3] = ["ingester-0", "ingester-1", "ingester-2"];

/// One zone-less instance per series, so that flat arithmetic can be seen in full.
fn single_copies(global_limit: i64, enforcement: bool) -> Setup {
    Setup { replication_factor: 1, zones: 0, ..Setup::new(global_limit, enforcement) }
}

fn limit(cluster: &Cluster, node: &str) -> Option<u64> {
    cluster.view(node, &tenant("a")).limit
}

#[test]
fn case_a1_a_scale_up_keeps_accepting_and_owned_falls() {
    // The case's numbers by a hundred: 27,000 series allowed, 75 instances become 249.
    let id = tenant("a");
    let mut setup = Setup::new(27_000, true);
    setup.tokens_each = 32;
    let mut cluster = Cluster::new(setup, 75);
    // Only ours is of interest: it gets what the ring gives it.
    let own = "ingester-0";
    let mine = |cluster: &Cluster, numbers: std::ops::Range<u64>| -> Vec<u64> {
        let member = cluster.seen.member_index(own).expect("in the ring");
        let holds = |number: &u64| {
            let key = ring_key("a", labels(*number).as_labels());
            cluster.seen.walk(key, Operation::Write).contains(&member)
        };
        numbers.filter(holds).collect()
    };
    let before = mine(&cluster, 0..12_500);
    assert!(cluster.push_to(own, &id, &request(before.clone(), cluster.now.unix_ms)).is_ok());
    for _ in 75..249 {
        cluster.join(InstanceState::Active);
    }
    cluster.publish();
    let next = mine(&cluster, 20_000..20_400);
    assert!(cluster.push_to(own, &id, &request(next.clone(), cluster.now.unix_ms)).is_ok());
    cluster.renew();
    let kept = mine(&cluster, 0..12_500).len() + next.len();
    let view = cluster.view(own, &id);
    assert_eq!(view.limit, Some(27_000 * 3 / 249));
    assert_eq!(view.counts.series.owned, kept as u64);
    assert_eq!(view.counts.series.in_memory, (before.len() + next.len()) as u64);
    assert!(view.counts.series.in_memory > 325 && view.counts.series.owned < 325, "{view:?}");
    let more = mine(&cluster, 30_000..30_400);
    assert!(cluster.push_to(own, &id, &request(more, cluster.now.unix_ms)).is_ok());
}

#[test]
fn case_a3_old_instances_refuse_in_memory_and_accept_owned() {
    for (enforcement, refused) in [(true, 0), (false, 20)] {
        let id = tenant("a");
        let mut cluster = Cluster::new(Setup::new(1_750, enforcement), 3);
        cluster.push(&id, 0..1_200, 0);
        for _ in 0..3 {
            cluster.join(InstanceState::Active);
        }
        cluster.spread();
        assert_eq!(limit(&cluster, "ingester-0"), Some(875));
        let outcomes = cluster.push(&id, 1_200..1_220, 0);
        assert!(outcomes.refused >= refused / 2 && (refused > 0 || outcomes.refused == 0));
        assert!(outcomes.by_instance.keys().all(|id| ALL.contains(&id.as_str())), "new ones take");
    }
}

#[test]
fn case_a4_a_raised_shard_size_is_swapped_with_its_count() {
    let id = tenant("a");
    let mut setup = single_copies(3_000, true);
    setup.limits.ingestion_tenant_shard_size = 3.0;
    let mut cluster = Cluster::new(setup, 12);
    cluster.push(&id, 0..2_250, 3);
    let old: Vec<String> = cluster
        .subring(&id, 3)
        .expect("a shard")
        .members()
        .iter()
        .map(|m| m.id.to_string())
        .collect();
    for node in &old {
        assert_eq!(limit(&cluster, node), Some(1_000));
    }
    cluster.reload("overrides: {a: {ingestion_tenant_shard_size: 6, max_global_series_per_user: 3000, max_series_per_user: 0, max_series_per_metric: 0}}");
    for node in &old {
        let view = cluster.view(node, &id);
        assert_eq!(view.limit, Some(500));
        assert!(view.counts.series.owned < view.counts.series.in_memory);
        assert_ne!(view.in_force, InForce::Held, "the recount is done");
    }
    assert_eq!(cluster.push(&id, 2_250..2_300, 6).refused, 0);
}

#[test]
fn case_a5_a_limit_by_share_accepts_everywhere_where_the_flat_one_does_not() {
    // The case's numbers by three, with its 128 tokens: 56,100 of 60,000 series on 93.
    let id = tenant("a");
    let mut refusing = Vec::new();
    for mode in [SeriesLimitMode::Share, SeriesLimitMode::Flat] {
        let mut setup = Setup::new(60_000, true);
        setup.tokens_each = 128;
        setup.config.series_limit_mode = mode;
        let cluster = Cluster::new(setup, 93);
        let mut by_member: BTreeMap<MemberIndex, Vec<u64>> = BTreeMap::new();
        for number in 0..56_100 {
            let key = ring_key("a", labels(number).as_labels());
            for member in cluster.seen.walk(key, Operation::Write) {
                by_member.entry(member).or_default().push(number);
            }
        }
        let refuses = by_member.iter().filter(|(member, numbers)| {
            let node = &cluster.seen.members()[member.index()].id;
            let body = request(numbers.iter().copied(), cluster.now.unix_ms);
            cluster.push_to(node, &id, &body).is_err()
        });
        refusing.push(refuses.count());
    }
    println!("of 93 instances refuse by share {}, flat {}", refusing[0], refusing[1]);
    assert!(refusing[0] <= 1 && refusing[1] >= 10, "{refusing:?}");
}

#[test]
fn case_a6_until_the_recount_the_old_limit_applies() {
    let id = tenant("a");
    let mut cluster = Cluster::new(Setup::new(300, true), 3);
    cluster.push(&id, 0..250, 0);
    for _ in 0..3 {
        cluster.join(InstanceState::Active);
    }
    cluster.publish();
    assert_eq!(limit(&cluster, "ingester-0"), Some(300), "the recount has not run");
    let moved = cluster.view("ingester-0", &id);
    assert_eq!(moved.used(), 250);
    cluster.renew();
    let view = cluster.view("ingester-0", &id);
    assert_eq!(view.limit, Some(150));
    assert!(view.used() < 250);
}

#[test]
fn case_a7_and_a27_a_member_without_tokens_changes_nothing_until_it_has_some() {
    let id = tenant("a");
    let mut cluster = Cluster::new(Setup::new(300, true), 3);
    cluster.push(&id, 0..250, 0);
    let new = cluster.join(InstanceState::Pending);
    let tokens = std::mem::take(&mut cluster.model.instances.get_mut(&new).expect("new").tokens);
    cluster.spread();
    assert_eq!(limit(&cluster, "ingester-0"), Some(300));
    assert_eq!(cluster.push(&id, 250..260, 0).refused, 0);
    // What it owns is unknown to itself, which never reads as "none" and never as "no limit".
    assert!(cluster.push_to(&new, &id, &request(0..10, cluster.now.unix_ms)).is_ok());
    let view = cluster.view(&new, &id);
    assert!(view.unknown.is_some() && view.limit == Some(300), "{view:?}");
    assert_eq!(view.used(), 10);
    cluster.model.instances.get_mut(&new).expect("new").tokens = tokens;
    cluster.set_state(&new, InstanceState::Active);
    cluster.spread();
    assert_eq!(limit(&cluster, "ingester-0"), Some(225));
    assert!(cluster.view(&new, &id).unknown.is_none());
}

#[test]
fn case_a8_tokens_and_heartbeat_in_either_order_decide_alike() {
    let mut decisions = Vec::new();
    for tokens_first in [true, false] {
        let id = tenant("a");
        let mut cluster = Cluster::new(Setup::new(300, true), 3);
        cluster.push(&id, 0..250, 0);
        let new = cluster.join(InstanceState::Active);
        let entry = cluster.model.instances.get_mut(&new).expect("new");
        let (timestamp_s, tokens) = (entry.timestamp_s, entry.tokens.clone());
        if tokens_first {
            entry.timestamp_s -= 3_600;
        } else {
            entry.tokens.clear();
        }
        cluster.spread();
        let entry = cluster.model.instances.get_mut(&new).expect("new");
        (entry.timestamp_s, entry.tokens) = (timestamp_s, tokens);
        cluster.spread();
        let views = ALL.map(|node| cluster.view(node, &id));
        decisions.push(views.map(|view| (view.limit, view.counts.series)));
    }
    assert_eq!(decisions[0], decisions[1]);
}

#[test]
fn case_a13_a_ring_without_a_healthy_instance_keeps_the_limit() {
    let id = tenant("a");
    let mut cluster = Cluster::new(Setup::new(300, true), 3);
    assert_eq!(cluster.push(&id, 0..300, 0).refused, 0);
    for instance in cluster.model.instances.values_mut() {
        instance.timestamp_s -= 3_600;
    }
    cluster.spread();
    assert_eq!(cluster.nodes["ingester-0"].ingester.ring.load().healthy_count(), 0);
    assert_eq!(limit(&cluster, "ingester-0"), Some(300));
    let new = request([300], cluster.now.unix_ms);
    assert!(cluster.push_to("ingester-0", &id, &new).is_err());
    // A tenant that nobody knew before is not without a limit either.
    let strange = tenant("b");
    assert!(cluster.push_to("ingester-0", &strange, &new).is_ok());
    assert_eq!(cluster.view("ingester-0", &strange).limit, Some(900));
}

#[test]
fn case_a18_a_silent_instance_lowers_only_the_number_of_instances() {
    let id = tenant("a");
    let mut cluster = Cluster::new(Setup::new(1_000, true), 6);
    cluster.push(&id, 0..500, 0);
    let before = cluster.view("ingester-0", &id);
    cluster.model.instances.get_mut("ingester-3").expect("a member").timestamp_s -= 3_600;
    cluster.spread();
    let after = cluster.view("ingester-0", &id);
    assert_eq!((before.limit, after.limit), (Some(500), Some(600)));
    assert_eq!(before.counts.series, after.counts.series);
    assert_eq!(before.share, after.share);
}

#[test]
fn case_a19_the_shard_size_is_what_the_limit_is_divided_by() {
    let id = tenant("a");
    let mut setup = Setup::new(30_000, true);
    setup.tokens_each = 16;
    setup.limits.ingestion_tenant_shard_size = 6.0;
    let mut cluster = Cluster::new(setup, 100);
    cluster.push(&id, 0..10, 6);
    let shard = cluster.subring(&id, 6).expect("a shard");
    let mut seen = 0;
    for member in shard.members() {
        let views = cluster.nodes[&*member.id].ingester.tenant_views(cluster.now);
        assert!(views.iter().all(|view| view.limit == Some(15_000)), "{views:?}");
        seen += views.len();
    }
    assert!(seen >= 3);
}

#[test]
fn case_a25_a_ring_that_cannot_be_read_keeps_its_numbers() {
    let id = tenant("a");
    let mut cluster = Cluster::new(Setup::new(300, true), 3);
    cluster.push(&id, 0..250, 0);
    let before = cluster.view("ingester-0", &id);
    let (ring, now) = (cluster.nodes["ingester-0"].ingester.ring.clone(), cluster.now);
    ring.read_failed(now.unix_ms, "the store is away");
    cluster.renew();
    let after = cluster.view("ingester-0", &id);
    assert_eq!((before.limit, before.counts), (after.limit, after.counts));
    // For its time; then what is ours is unknown, and everything counts.
    ring.read_failed(now.unix_ms + 600_001, "the store is away");
    cluster.renew();
    let expired = cluster.view("ingester-0", &id);
    assert!(expired.unknown.is_some());
    assert_eq!((expired.limit, expired.used()), (Some(300), 250));
}

#[test]
fn case_a31_and_a32_an_operators_cut_sheds_nobody_and_applies_during_a_scale_up() {
    let id = tenant("a");
    let mut cluster = Cluster::new(Setup::new(100, true), 3);
    cluster.push(&id, 0..80, 0);
    let cut = "overrides: {a: {max_global_series_per_user: 50, max_series_per_user: 0, max_series_per_metric: 0}}";
    cluster.reload(cut);
    assert_eq!(cluster.push(&id, 0..80, 0).refused, 0);
    assert_eq!(cluster.push(&id, 80..81, 0).refused, 1);
    assert_eq!(cluster.view("ingester-0", &id).headroom(), Some(-30));
    // The ring grows and the operator cuts once more, in the same renewal.
    for _ in 0..3 {
        cluster.join(InstanceState::Active);
    }
    cluster.publish();
    cluster.reload(&cut.replace("50", "20"));
    for node in ALL {
        assert_eq!(limit(&cluster, node), Some(10));
    }
}
