//! An unmodified Cortex distributor in front of real `freehold -target=ingester` processes.
//!
//! Needs a Cortex binary (`FREEHOLD_CORTEX_BIN`) and etcd; each test says so and passes where
//! there is none.

mod cluster;

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
