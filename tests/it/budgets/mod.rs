//! Budgets over sockets: several gates in this process, a made-up ring, and a network between them
//! that fails when told to.

mod debts;
mod exact;
mod hostile;
mod loss;
mod operators;
mod rings;
mod tls;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freehold::clients::config::{ColdStart, OwnerLost};
use freehold::clients::peers::{Budgets, BudgetsSetup, Connector, connector};
use freehold::clients::{GateSettings, Gates, Key, KeyHasher, Kind, OwnerMap, Refusal, Terms};
use freehold::clock::Clock;
use freehold::exposition::AtScrape;
use freehold::ratelimit::Budget;
use freehold::server::config::ServerConfig;
use freehold::server::drain::Drainer;
use freehold::server::grpc::{GrpcEdge, HealthSwitch, Settings, serve};
use freehold::server::listen::Listener;
use freehold::server::room::Room;
use freehold::server::seam::{BudgetCalls, IngesterCalls, Work};
use freehold::server::stream_auth::StreamKeys;
use freehold::server::tenancy::Tenancy;
use freehold::tls::ServerTls;
use freehold::upstream::config::UpstreamConfig;
use tokio::task::JoinSet;

use super::faults::Proxy;

const TENANT: &str = "team";
/// A wait in these tests fails after so long; on a healthy machine none comes near it.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a request may take beyond the time that it waits, on a machine that does much else.
const SLACK: Duration = Duration::from_secs(2);

/// How gates are made.
struct Setup {
    terms: Terms,
    owner_timeout: Duration,
    owner_lost: OwnerLost,
    secret: u8,
    tls: Option<Arc<ServerTls>>,
    connect: Connector,
}

/// One gate and the way to it, which goes through a network that fails when told to.
struct Gate {
    id: Arc<str>,
    budgets: Budgets,
    proxy: Proxy,
    drainer: Drainer,
    _serving: JoinSet<()>,
}

struct Cluster(Vec<Gate>);

impl Default for Setup {
    fn default() -> Self {
        Self {
            terms: terms(0.001, 1000),
            owner_timeout: Duration::from_secs(5),
            owner_lost: OwnerLost::Deny,
            secret: 7,
            tls: None,
            connect: connector(UpstreamConfig::default(), None),
        }
    }
}

fn hasher(secret: u8) -> KeyHasher {
    KeyHasher::new(std::array::from_fn(|at| (at as u8).wrapping_mul(secret)))
}

fn terms(rate: f64, burst: u64) -> Terms {
    Terms { budget: Budget { rate, burst }, tracked_max: 5000 }
}

fn client(name: &str) -> Key<'_> {
    Key { kind: Kind::ClientWrites, tenant: TENANT, client: name }
}

/// One gate's budgets in one ring.
fn budgets(id: &Arc<str>, gates: Gates, setup: &Setup) -> Budgets {
    let terms = setup.terms;
    Budgets::new(BudgetsSetup {
        gates,
        us: Arc::clone(id),
        incarnation: rand::random(),
        // What is not known is full, so that nothing here depends on when a ring was learned.
        settings: GateSettings { owner_lost: setup.owner_lost, cold_start: ColdStart::Full },
        hasher: hasher(setup.secret),
        clock: Clock::start(),
        owner_timeout: setup.owner_timeout,
        terms_of: Arc::new(move |kind, _| (kind.gates() == gates).then_some(terms)),
        connect: Arc::clone(&setup.connect),
    })
}

impl Gate {
    async fn start(id: &str, setup: &Setup) -> Self {
        let id: Arc<str> = id.into();
        let budgets = budgets(&id, Gates::Distributors, setup);
        let edge = Some(BudgetCalls::of(std::slice::from_ref(&budgets)));
        let (address, drainer, serving) = start_edge(edge, setup.tls.clone()).await;
        let proxy = Proxy::start(address).await;
        Self { id, budgets, proxy, drainer, _serving: serving }
    }

    /// Charges for what is done with it.
    async fn charge(&self, key: Key<'_>, n: u64, terms: Terms) -> Result<(), Refusal> {
        let charged = self.budgets.charge(key, n, terms);
        let charged = tokio::time::timeout(PATIENCE, charged).await.expect("an answer");
        charged.map(drop)
    }

    /// What is owed here of a budget that leases nothing.
    fn spent(&self, key: Key<'_>, terms: Terms) -> u64 {
        use freehold::wire::budgets::Shown;
        match self.budgets.show_own(&key.to_owned()) {
            Shown::Account(Some(account)) => {
                (terms.budget.burst as f64 - account.credit - account.leased as f64).round() as u64
            }
            Shown::Account(None) => 0,
            Shown::NotOwner => panic!("not the owner"),
        }
    }
}

impl Cluster {
    /// Gates that know each other, with all links open.
    async fn start(len: usize, setup: &Setup) -> Self {
        let mut gates = Vec::new();
        for at in 0..len {
            gates.push(Gate::start(&format!("gate-{at}"), setup).await);
        }
        let cluster = Self(gates);
        let all: Vec<_> = (0..len).collect();
        for gate in &cluster.0 {
            cluster.publish(gate, &all);
        }
        cluster
    }

    /// Tells one gate of a ring with these in it.
    fn publish(&self, gate: &Gate, ring: &[usize]) {
        let members: Vec<Arc<str>> = ring.iter().map(|at| Arc::clone(&self.0[*at].id)).collect();
        let owners: Vec<_> = (0..64_u32)
            .map(|token| (token << 26, (token as usize % members.len()) as u16))
            .collect();
        let addresses: HashMap<Arc<str>, Arc<str>> = ring
            .iter()
            .map(|at| &self.0[*at])
            .map(|gate| (Arc::clone(&gate.id), gate.proxy.address.to_string().into()))
            .collect();
        gate.budgets.publish(OwnerMap::new(&owners, &members, &gate.id), &addresses);
    }

    /// Names of clients that `owner` owns, by the ring that the first gate knows.
    fn clients_of(&self, owner: usize, len: usize) -> Vec<String> {
        let owner = &self.0[owner].id;
        let names = (0..).map(|number| format!("client-{number}"));
        let owned =
            names.filter(|name| self.0[0].budgets.owner_of(client(name)).as_ref() == Some(owner));
        owned.take(len).collect()
    }
}

impl std::ops::Index<usize> for Cluster {
    type Output = Gate;

    fn index(&self, at: usize) -> &Gate {
        &self.0[at]
    }
}

/// A gRPC edge that shares these budgets, or none.
async fn start_edge(
    calls: Option<BudgetCalls>,
    tls: Option<Arc<ServerTls>>,
) -> (std::net::SocketAddr, Drainer, JoinSet<()>) {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind");
    let listener = listener.with_tls(tls);
    let address = listener.local_address().expect("bound");
    let (drainer, drain) = Drainer::new();
    let health = HealthSwitch::new().await;
    let settings = Settings {
        clients: freehold::server::client_header::ClientHeader::default(),
        tenancy: Tenancy::Header,
        stream_keys: StreamKeys::default(),
        // None of it is for budgets, which do not wait for pushes.
        room: Room::new(1),
        receive_message_bytes_max: 1,
        send_message_bytes_max: 1,
        upstream: None,
        stream_answer_within: Duration::from_secs(10),
    };
    let ingester = IngesterCalls {
        push: Arc::new(|_, _| unreachable!("nobody pushes")),
        judge: Arc::new(|_, _| unreachable!("nobody pushes")),
        user_stats: Arc::new(|_| Default::default()),
        all_user_stats: Arc::new(Vec::new),
    };
    let mut edge = GrpcEdge::new(settings, Some(ingester), Work::Inline, &health, drain.clone());
    if let Some(calls) = calls {
        edge = edge.with_budgets(calls);
    }
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let config = ServerConfig {
            graceful_shutdown_timeout: freehold::units::Millis(100),
            ..ServerConfig::default()
        };
        serve(listener, edge, &config, drain).await;
    });
    (address, drainer, serving)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The value of a sample, by its name and labels as the text form has them.
fn metric(budgets: &Budgets, sample: &str) -> f64 {
    let registry = prometheus::Registry::new();
    let budgets = budgets.clone();
    let source = AtScrape::new("test_budgets", move |families| budgets.read_metrics(families));
    registry.register(Box::new(source)).expect("new");
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.expect("a sample").parse().expect("a number")
}
