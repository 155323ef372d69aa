//! An unmodified Cortex with real `freehold` processes: its distributor in front of our ingesters,
//! our sidecars in front of its ingesters, our write gates in front of its distributor or in its
//! place.
//!
//! Needs a Cortex binary (`FREEHOLD_CORTEX_BIN`) and etcd; each test says so and passes where
//! there is none.

mod beside;
mod budgets;
pub mod cluster;
mod gate;
mod gossip;
mod requests;
mod sidecar;

use freehold::ring::model::InstanceState;
use tokio::sync::Mutex;

use cluster::{RingFile, Setup, until};

/// One cluster at a time: together they would starve each other on a small machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

const SERIES: usize = 2100;

fn flags(list: &[&str]) -> Vec<String> {
    list.iter().map(|flag| (*flag).to_owned()).collect()
}

/// What the distributor routes to a freehold is what that freehold counts as owned.
async fn check_counts(name: &str, setup: Setup, states: &[(usize, InstanceState)]) {
    let replication_factor = setup.replication_factor;
    let Some(mut cluster) = setup.start().await else { return };
    for &(index, state) in states {
        cluster.set_state(index, state);
    }
    if !states.is_empty() {
        cluster.publish().await;
    }
    cluster.push_all("t1", 0..SERIES, 300).await;
    // Once more: what is known already changes no count.
    cluster.push_all("t1", 0..SERIES, 700).await;
    let extending = states.iter().any(|(_, state)| *state != InstanceState::Active);
    let expected = (replication_factor * SERIES) as u64;
    // The distributor answers at a majority; the slowest replica comes behind it.
    let mut owned = Vec::new();
    until("all replicas have arrived", async || {
        owned = cluster.owned("t1").await;
        if extending {
            owned.iter().sum::<u64>() >= expected
        } else {
            owned.iter().sum::<u64>() == expected
        }
    })
    .await;
    let in_memory = cluster.in_memory("t1").await;
    println!("{name}: owned {owned:?}, in memory {in_memory:?}");
    assert_eq!(owned, in_memory, "{name}");
    let astray = cluster.series("freehold_ingester_series_created_not_owned_total", "t1").await;
    assert_eq!(astray.iter().sum::<u64>(), 0, "{name}");
    let stats = cluster.get("/distributor/all_user_stats").await.expect("stats");
    let stats: serde_json::Value = serde_json::from_str(&stats.body).expect("JSON");
    let tenant = &stats[0];
    assert_eq!(tenant["userID"], "t1", "{stats}");
    assert_eq!(tenant["numSeries"].as_u64(), Some(in_memory.iter().sum()), "{stats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_freehold_owns_what_the_distributor_routes_to_it() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let setup = Setup { replication_factor: 1, ..Setup::default() };
    check_counts("RF 1, unary, snappy-block", setup, &[]).await;

    let setup = Setup {
        instances: 6,
        members: 6,
        ring_file: RingFile::Page,
        cortex: flags(&["-ingester.client.grpc-compression=gzip"]),
        ..Setup::default()
    };
    check_counts("RF 3 on 6, unary, gzip, /ring page", setup, &[]).await;

    let setup = Setup {
        instances: 6,
        members: 6,
        zones: 3,
        both: flags(&[
            "-distributor.sign-write-requests=true",
            "-distributor.sign-write-requests-keys=new,old",
        ]),
        cortex: flags(&["-ingester.client.grpc-compression=", "-distributor.use-stream-push=true"]),
        ..Setup::default()
    };
    check_counts("RF 3 on 6 in 3 zones, signed streams, no compression", setup, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_of_a_tenant_are_the_distributors() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let sharded = || {
        flags(&[
            "-distributor.sharding-strategy=shuffle-sharding",
            "-distributor.ingestion-tenant-shard-size=4",
        ])
    };
    let setup = Setup {
        instances: 6,
        members: 6,
        both: sharded(),
        cortex: flags(&[
            "-ingester.client.grpc-compression=zstd",
            "-distributor.use-stream-push=true",
        ]),
        ..Setup::default()
    };
    check_counts("RF 3, shard of 4 of 6, streams, zstd", setup, &[]).await;

    let setup = Setup {
        instances: 9,
        members: 9,
        zones: 3,
        both: sharded(),
        cortex: flags(&["-ingester.client.grpc-compression=snappy"]),
        ..Setup::default()
    };
    check_counts("RF 3, shard of 4 of 9 in 3 zones, unary, snappy", setup, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_take_no_writes_move_ownership_as_they_move_writes() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let six = || Setup { instances: 6, members: 6, ..Setup::default() };
    let states = [(1, InstanceState::ReadOnly), (4, InstanceState::Leaving)];
    check_counts("READONLY and LEAVING, writes extended", six(), &states).await;
    let setup = Setup { both: flags(&["-distributor.extend-writes=false"]), ..six() };
    check_counts("READONLY, writes not extended", setup, &states[..1]).await;
}

/// Three full freeholds, three more join while the distributor pushes new series.
async fn scale_up(enforced: bool) -> Option<(usize, Vec<String>)> {
    let setup = Setup {
        instances: 6,
        freehold: vec![
            "-ingester.max-global-series-per-user=2200".to_owned(),
            format!("-ingester.owned-series-limit-enforcement-enabled={enforced}"),
        ],
        ..Setup::default()
    };
    let mut cluster = setup.start().await?;
    cluster.push_all("t1", 0..1800, 300).await;
    until("all replicas have arrived", async || cluster.owned("t1").await[..3] == [1800; 3]).await;
    for index in 3..6 {
        cluster.join(index);
    }
    cluster.publish().await;
    until("what moved is no longer owned", async || {
        cluster.owned("t1").await[..3].iter().all(|owned| *owned < 1200)
    })
    .await;
    assert!(cluster.in_memory("t1").await[..3].iter().all(|series| *series >= 1800));
    let mut refused = Vec::new();
    for start in (1800..2000).step_by(5) {
        let answer = cluster.push("t1", start..start + 5).await;
        match answer.status {
            200 => {}
            400 => refused.push(answer.body),
            other => panic!("{other}: {}", answer.body),
        }
    }
    let owned = cluster.owned("t1").await;
    println!("enforced {enforced}: {} of 40 pushes refused, owned {owned:?}", refused.len());
    Some((refused.len(), refused))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_refuses_nothing_when_the_limit_is_on_owned_series() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let Some((refused, texts)) = scale_up(true).await else { return };
    assert_eq!(refused, 0, "{texts:?}");
    let Some((refused, texts)) = scale_up(false).await else { return };
    assert!(refused > 0);
    let text = "per-user series limit of 2200 exceeded, please contact administrator to raise it \
                (local limit: 5000000 global limit: 2200 actual local limit: 1100)";
    assert!(texts.iter().all(|found| found.contains(text)), "{texts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_reach_the_client_with_their_status_and_text() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for stream in [false, true] {
        let cortex = || vec![format!("-distributor.use-stream-push={stream}")];
        let freehold = flags(&[
            "-ingester.check-ingestion-limits=on",
            "-distributor.ingestion-rate-limit=1",
            "-distributor.ingestion-burst-size=150",
        ]);
        let setup = Setup { cortex: cortex(), freehold, ..Setup::default() };
        let Some(cluster) = setup.start().await else { return };
        assert_eq!(cluster.push("t1", 0..100).await.status, 200);
        let answer = cluster.push("t1", 0..100).await;
        assert_eq!(answer.status, 429, "{}", answer.body);
        assert!(
            answer.body.contains("ingestion rate limit (1) exceeded while adding 100 samples"),
            "{}",
            answer.body
        );
        drop(cluster);

        let freehold = flags(&["-ingester.instance-limits.max-series=50"]);
        let setup = Setup { cortex: cortex(), freehold, ..Setup::default() };
        let Some(cluster) = setup.start().await else { return };
        cluster.push_all("t1", 0..40, 40).await;
        until("all replicas have arrived", async || cluster.owned("t1").await == [40; 3]).await;
        let answer = cluster.push("t1", 0..100).await;
        assert_eq!(answer.status, 500, "{}", answer.body);
        assert!(
            answer.body.contains("cannot add series: ingesters's max series limit reached"),
            "{}",
            answer.body
        );
        assert_eq!(cluster.owned("t1").await, [40; 3]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_go_on_after_a_freehold_was_killed_and_started_again() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let setup = Setup { replication_factor: 1, store: true, ..Setup::default() };
    let Some(mut cluster) = setup.start().await else { return };
    cluster.push_all("t1", 0..900, 300).await;
    let before = cluster.owned("t1").await;
    cluster.freeholds[0].kill();
    assert_eq!(cluster.push("t1", 0..900).await.status, 500);
    cluster.freeholds[0].start();
    cluster.freeholds[0].until_ready().await;
    assert_eq!(cluster.owned("t1").await, before);
    until("pushes go through again", async || cluster.push("t1", 0..900).await.status == 200).await;
    assert_eq!(cluster.owned("t1").await, before);
}
