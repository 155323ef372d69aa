//! How long a decision waits for its owner, over sockets on loopback.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freehold::clients::config::{ColdStart, OwnerLost};
use freehold::clients::key::KEY_SECRET_BYTES;
use freehold::clients::peers::{Budgets, BudgetsSetup, connector};
use freehold::clients::{GateSettings, Gates, Key, KeyHasher, Kind, OwnerMap, Terms};
use freehold::clock::Clock;
use freehold::ratelimit::Budget;
use freehold::server::client_header::ClientHeader;
use freehold::server::config::ServerConfig;
use freehold::server::drain::Drainer;
use freehold::server::grpc::{GrpcEdge, HealthSwitch, Settings, serve};
use freehold::server::listen::Listener;
use freehold::server::room::Room;
use freehold::server::seam::{BudgetCalls, Work};
use freehold::server::stream_auth::StreamKeys;
use freehold::server::tenancy::Tenancy;
use freehold::upstream::config::UpstreamConfig;
use tokio::task::JoinSet;

const TERMS: Terms =
    Terms { budget: Budget { rate: 1000.0, burst: 100_000 }, tracked_max: 1_000_000 };

pub fn report(is_test: bool) {
    let waits = if is_test { 20 } else { 20_000 };
    let runtime = |name: &str| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).thread_name(name).enable_all().build().expect("a runtime")
    };
    // Each gate has a thread, as on two machines.
    let (of_owner, of_holder) = (runtime("bench-owner"), runtime("bench-holder"));
    let owner = budgets("owner");
    let address = of_owner.block_on(serving(&owner));
    for (budgets, runtime) in [(&owner, &of_owner), (&budgets("holder"), &of_holder)] {
        let _runtime = runtime.enter();
        let us = if std::ptr::eq(budgets, &owner) { "owner" } else { "holder" };
        // The holder owns nothing, so its address is never asked.
        let addresses: HashMap<Arc<str>, Arc<str>> =
            [("owner", address.as_str())].map(|(id, at)| (Arc::from(id), Arc::from(at))).into();
        let members = [Arc::from("owner")];
        budgets.publish(OwnerMap::new(&[(0, 0)], &members, us), &addresses);
        if us == "holder" {
            println!("decisions that wait for an owner, loopback:");
            for at_once in [1, 16, 128] {
                let times = runtime.block_on(waits_of(budgets, at_once, waits));
                let part = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
                println!(
                    "  {at_once:>3} at once: p50 {:?}, p99 {:?}, most {:?} of {} (bar p99 2 ms)",
                    part(0.5),
                    part(0.99),
                    part(1.0),
                    times.len()
                );
            }
            let counts = budgets.counts();
            assert_eq!((counts.lost, counts.leased), ([0; 4], 0), "each has waited");
        }
    }
}

fn budgets(us: &str) -> Budgets {
    Budgets::new(BudgetsSetup {
        gates: Gates::Distributors,
        us: us.into(),
        incarnation: 1,
        settings: GateSettings { owner_lost: OwnerLost::Deny, cold_start: ColdStart::Full },
        hasher: KeyHasher::new([3; KEY_SECRET_BYTES]),
        clock: Clock::start(),
        owner_timeout: Duration::from_secs(5),
        terms_of: Arc::new(|_, _| Some(TERMS)),
        connect: connector(UpstreamConfig::default(), None),
    })
}

/// Serves on the runtime that this is called on, for as long as that lives.
async fn serving(budgets: &Budgets) -> String {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind");
    let address = listener.local_address().expect("bound").to_string();
    let settings = Settings {
        clients: ClientHeader::default(),
        tenancy: Tenancy::Header,
        stream_keys: StreamKeys::default(),
        room: Room::new(1),
        receive_message_bytes_max: 1,
        send_message_bytes_max: 1,
        upstream: None,
        stream_answer_within: Duration::from_secs(10),
    };
    let calls = BudgetCalls::of(std::slice::from_ref(budgets));
    tokio::spawn(async move {
        let (_drainer, drain) = Drainer::new();
        let health = HealthSwitch::new().await;
        let edge = GrpcEdge::new(settings, None, Work::Inline, &health, drain.clone());
        serve(listener, edge.with_budgets(calls), &ServerConfig::default(), drain).await
    });
    address
}

/// Each is the first request of a new client, which holds nothing; sorted.
async fn waits_of(budgets: &Budgets, at_once: usize, waits: usize) -> Vec<Duration> {
    let mut running = JoinSet::new();
    for asker in 0..at_once {
        let budgets = budgets.clone();
        running.spawn(async move {
            let mut times = Vec::new();
            for number in 0..(waits / at_once).max(1) {
                let client = format!("client-{at_once}-{asker}-{number}");
                let key = Key { kind: Kind::ClientWrites, tenant: "tenant-0", client: &client };
                let began = Instant::now();
                let charged = budgets.charge(key, 100, TERMS).await;
                // Also the first one of all, which waits for the connection.
                times.push(began.elapsed());
                let _spent = charged.expect("a full bucket");
            }
            times
        });
    }
    let mut times = running.join_all().await.concat();
    times.sort();
    times
}
