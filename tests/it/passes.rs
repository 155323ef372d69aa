//! The passes behind the pushes: many tenants, idle ones, and everything at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use freehold::clock::{Clock, Now};
use freehold::exposition::Families;
use freehold::ring::model::InstanceState;

use super::cluster::{Cluster, Setup, request, tenant};

const SECOND_NS: i64 = 1_000_000_000;

#[test]
fn ten_thousand_shards_on_a_large_ring_follow_a_change() {
    const SHARD_SIZE: i64 = 9;
    const TENANTS: usize = 10_000;
    let mut setup = Setup::new(0, true);
    setup.limits.ingestion_tenant_shard_size = SHARD_SIZE as f64;
    let mut cluster = Cluster::new(setup, 1);
    for _ in 1..600 {
        cluster.add_member(InstanceState::Active);
    }
    cluster.publish();
    let body = request(0..3, cluster.now.unix_ms);
    let ring = cluster.nodes["ingester-0"].ingester.ring.load();
    let ours = (0..)
        .map(|n| tenant(&format!("tenant-{n}")))
        .filter(|id| ring.tenant_view(id.as_str(), SHARD_SIZE).is_ok_and(|view| view.share > 0.0));
    let tenants: Vec<_> = ours.take(TENANTS).collect();
    for id in &tenants {
        cluster.push_to("ingester-0", id, &body).expect("accepted");
    }
    for gone in ["ingester-3", "ingester-300"] {
        cluster.model.instances.remove(gone);
    }
    cluster.publish();
    #[expect(clippy::disallowed_methods, reason = "a figure to look at, not to decide by")]
    let started = Instant::now();
    cluster.renew();
    println!("{TENANTS} tenants renewed in {:?}", started.elapsed());
    let node = &cluster.nodes["ingester-0"];
    let ring = node.ingester.ring.load();
    for view in node.ingester.tenant_views(cluster.now) {
        let expected = ring.tenant_view(view.tenant.as_str(), SHARD_SIZE).expect("known");
        assert_eq!(view.share, expected.share);
        let owned = (0..3).filter(|&number| {
            let labels = super::cluster::labels(number);
            let key = freehold::labels::ring_key(view.tenant.as_str(), labels.as_labels());
            expected.keys.contains(key)
        });
        assert_eq!(view.counts.series.owned, owned.count() as u64);
    }
}

#[test]
fn a_ring_that_nobody_reads_any_more_runs_out_of_time() {
    let id = tenant("a");
    let mut cluster = Cluster::new(Setup::new(300, true), 3);
    cluster.push(&id, 0..100, 0);
    let start = cluster.now;
    let at = |seconds: i64| Now {
        unix_ms: start.unix_ms + seconds * 1_000,
        steady_ns: start.steady_ns + seconds * SECOND_NS,
    };
    let node = cluster.nodes.get_mut("ingester-0").expect("ours");
    for seconds in (0..=740).step_by(20) {
        node.passes.tick(at(seconds));
        node.passes.renew(at(seconds));
        let views = node.ingester.tenant_views(at(seconds));
        let expired = views[0].unknown.is_some();
        assert!(!expired || seconds > 720, "{seconds}");
        assert!(expired || seconds < 740, "{seconds}");
    }
}

#[test]
fn case_b19_an_idle_tenant_takes_its_metrics_with_it() {
    // A tenant whose every series was refused has nothing to stay for.
    let id = tenant("gone");
    let mut setup = Setup::new(0, true);
    setup.limits.max_series_per_user = 1;
    let mut cluster = Cluster::new(setup, 3);
    cluster.push(&id, 0..2, 0);
    let start = cluster.now;
    let node = cluster.nodes.get_mut("ingester-0").expect("ours");
    let shown = |node: &super::cluster::Node| {
        let mut families = Families::default();
        node.ingester.read_metrics(&Clock::start(), &mut families);
        format!("{:?}", families.into_vec()).contains("gone")
    };
    assert!(shown(node));
    let tenants = node.ingester.tenants.all();
    assert_eq!(tenants[0].series.purge_all(), 1);
    drop(tenants);
    for minutes in [9, 11] {
        let now = Now {
            unix_ms: start.unix_ms + minutes * 60_000,
            steady_ns: start.steady_ns + minutes * 60 * SECOND_NS,
        };
        node.passes.tick(now);
        assert_eq!(shown(node), minutes < 10, "after {minutes} minutes");
    }
    assert_eq!(node.ingester.totals.count().in_memory, 0);
}

#[test]
fn counts_are_exact_when_everything_changes_under_sixteen_writers() {
    const WRITERS: u64 = 16;
    const SERIES_EACH: u64 = 150;
    const LIMIT: u64 = 2_000;
    let id = tenant("a");
    let mut setup = Setup::new(0, false);
    setup.limits.max_series_per_user = LIMIT as i64;
    setup.tokens_each = 64;
    let mut cluster = Cluster::new(setup, 6);
    let now_ms = cluster.now.unix_ms;
    let node = cluster.nodes.remove("ingester-0").expect("ours");
    let (ingester, mut passes) = (node.ingester, node.passes);
    let now = cluster.now;
    let done = AtomicBool::new(false);
    let mut most = 0;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (ingester, id) = (&ingester, &id);
                scope.spawn(move || {
                    // Neighbours share half of their series.
                    let first = writer * SERIES_EACH / 2 * 2;
                    for number in first..first + SERIES_EACH * 3 / 2 {
                        let body = request([number, first], now_ms);
                        let _ = ingester.push(id, &body, now);
                    }
                })
            })
            .collect();
        let done = &done;
        let changes = scope.spawn(|| {
            let mut most = 0;
            let mut turn = 0_i64;
            while !done.load(Ordering::Acquire) || turn < 8 {
                turn += 1;
                if turn % 2 == 0 {
                    cluster.join(InstanceState::Active);
                } else {
                    cluster.set_state("ingester-1", InstanceState::Leaving);
                }
                let reading = freehold::ring::model::RingReading::Whole(cluster.model.clone());
                ingester.ring.publish(&reading, now_ms);
                let sets = format!(
                    "overrides: {{a: {{max_series_per_user: {LIMIT}, max_series_per_metric: {}, \
                     max_global_series_per_user: 0}}}}",
                    if turn % 3 == 0 { 100_000 } else { 0 },
                );
                let file = ingester.overrides.parse(&sets).expect("a runtime file");
                ingester.overrides.publish(file);
                passes.renew(now);
                passes.tick(now);
                for tenant in ingester.tenants.all() {
                    most = most.max(tenant.series.counts().series.in_memory);
                }
            }
            passes.renew(now);
            most
        });
        for writer in writers {
            writer.join().expect("a writer");
        }
        done.store(true, Ordering::Release);
        most = changes.join().expect("the changes");
    });
    let tenants = ingester.tenants.all();
    let counts = tenants[0].series.counts();
    assert_eq!(counts.series.in_memory, LIMIT, "more was tried than may be");
    assert!(most <= LIMIT);
    // The naive model: every series there is, asked of the ring's own walk.
    let ring = ingester.ring.load();
    let own = ring.member_index("ingester-0").expect("in the ring");
    let hasher = freehold::labels::IdentityHasher::new([7; 192]);
    let mut model = freehold::series::Count::default();
    for number in 0..WRITERS * SERIES_EACH * 2 {
        let labels = super::cluster::labels(number);
        if tenants[0].series.contains(hasher.identity(labels.as_labels())) {
            let key = freehold::labels::ring_key("a", labels.as_labels());
            model.in_memory += 1;
            let holders = ring.walk(key, freehold::ring::Operation::Write);
            model.owned += u64::from(holders.contains(&own));
        }
    }
    assert_eq!(counts.series, model);
    assert_eq!(ingester.totals.count(), model);
}
