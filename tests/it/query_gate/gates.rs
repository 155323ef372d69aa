//! Several gates: a noisy client gets what one gate would give it, and nobody else notices.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use freehold::app::QueryGate;
use freehold::clients::{Key, Kind};
use freehold::limits::QueryRate;
use freehold::ring::config::KvStoreKind;

use super::stub::Stub;
use super::{Asker, config, until};
use crate::ring_stores::fake_consul::FakeConsul;

const RATE: f64 = 5.0;
const BURST: u64 = 10;
const QUIET: usize = 19;

async fn gates(len: usize, stub: &Stub, consul: &FakeConsul) -> Vec<QueryGate> {
    let mut gates = Vec::new();
    for at in 0..len {
        let mut config = config(stub.address);
        config.frontend.ring.instance_id = format!("gate-{at}");
        config.frontend.ring.kvstore.store = KvStoreKind::Consul;
        config.frontend.ring.kvstore.consul = consul.config().consul;
        config.frontend.cached_answers = freehold::frontend::config::CachedAnswers::Charged;
        config.frontend.share_identical_queries = false;
        config.limits.client_identity_query_rate_limit = QueryRate::PerSecond(RATE);
        config.limits.client_identity_query_burst_size = BURST;
        config.validate().expect("a good configuration");
        gates.push(QueryGate::start(config).await.expect("starts"));
    }
    // Each knows a ring in which every one owns something.
    let owners = |gate: &QueryGate| {
        let budgets = gate.budgets.as_ref().expect("kept here");
        let names = (0..2000).map(|at| at.to_string());
        let owner = |client: String| {
            let key = Key { kind: Kind::ClientQueries, tenant: "team", client: &client };
            budgets.owner_of(key)
        };
        names.filter_map(owner).collect::<std::collections::HashSet<_>>().len()
    };
    until(|| gates.iter().all(|gate| owners(gate) == len)).await;
    gates
}

/// A client asks all gates in turn for as long as told; gives what was admitted and refused.
async fn storm(
    addresses: Vec<SocketAddr>,
    client: String,
    pause: Duration,
    until: Instant,
) -> [u64; 2] {
    let asker = Asker::new();
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let mut asking = tokio::task::JoinSet::new();
    for at in 0.. {
        if Instant::now() >= until {
            break;
        }
        let (asker, counts) = (asker.clone(), Arc::clone(&counts));
        let (address, client) = (addresses[at % addresses.len()], client.clone());
        asking.spawn(async move {
            let answer = asker.range(address, &client, "storm").await;
            assert!(matches!(answer.status, 200 | 429), "{}", answer.text());
            counts[usize::from(answer.status == 429)].fetch_add(1, Ordering::Relaxed);
        });
        tokio::time::sleep(pause).await;
    }
    while let Some(one) = asking.join_next().await {
        one.expect("an answer");
    }
    [0, 1].map(|at: usize| counts[at].load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dashboard_storm_costs_the_others_nothing_and_more_gates_give_it_no_more() {
    let secs = if std::env::var_os("FREEHOLD_LONG_TESTS").is_some() { 20 } else { 5 };
    for len in [2, 6] {
        let (stub, consul) = (Stub::start().await, FakeConsul::start().await);
        let gates = gates(len, &stub, &consul).await;
        let addresses: Vec<_> = gates.iter().map(|gate| gate.http_address).collect();
        let began = Instant::now();
        let until = began + Duration::from_secs(secs);
        let noisy = storm(addresses.clone(), "noisy".into(), Duration::from_millis(20), until);
        let quiet = (0..QUIET).map(|at| {
            // A little below the budget.
            storm(addresses.clone(), format!("quiet-{at}"), Duration::from_millis(250), until)
        });
        let (noisy, quiet) = tokio::join!(noisy, futures_util::future::join_all(quiet));
        let took = began.elapsed().as_secs_f64();
        let bound = BURST as f64 + RATE * took;
        println!(
            "{len} gates, {took:.2} s: noisy {noisy:?} of at most {bound:.1}, quiet {quiet:?}"
        );
        assert!(noisy[0] as f64 <= bound, "{noisy:?} of {bound}");
        assert!(noisy[0] as f64 >= 0.8 * (BURST as f64 + RATE * secs as f64), "{noisy:?}");
        assert!(noisy[1] > 0);
        for (at, [admitted, refused]) in quiet.into_iter().enumerate() {
            assert_eq!(refused, 0, "quiet-{at}");
            assert!(admitted > 0);
        }
        for gate in gates {
            gate.stop().await.expect("stops");
        }
    }
}
