//! The only wiring: everything is built here, bottom up, and taken down in the opposite order.
//!
//! ```text
//! start: store ─► limits ─► ring ─► ingester (restore) ─► passes ─► listeners ─► ready
//! stop:  LEAVING ─► not serving (announced) ─► drain ─► no more pushes ─► out of the ring ─► sync
//! ```
//!
//! Every task and thread started here has an owner here, and ends before `stop` returns.

mod budgets;
mod certificates;
mod distributors;
mod edges;
mod embedded;
mod error;
mod following;
mod front_door;
mod gossip;
mod ingester_metrics;
mod ingester_ring;
mod member;
mod membership;
mod overview;
mod owners;
mod pages;
mod query_gate;
mod readiness;
mod serving;
mod shown;
mod traces;
mod write_gate;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::admin;
use crate::clients::peers::Budgets;
use crate::clock::Clock;
use crate::config::{Config, Target};
use crate::distributor::ShardingStrategy;
use crate::ingester::following::{Follower, Pace};
use crate::ingester::passes::{Wake, wakes};
use crate::ingester::{Ingester, Parts, Role};
use crate::labels::IdentityHasher;
use crate::limits::reload::{ReloadStatusReader, Reloader};
use crate::limits::{BudgetsOff, Overrides};
use crate::ring::Ring;
use crate::ring::lifecycler::Lifecycler;
use crate::ring::watcher::Watcher;
use crate::server::client_header::ClientHeader;
use crate::server::drain::{Drain, Drainer};
use crate::server::grpc::{GrpcEdge, HealthSwitch};
use crate::server::http::{self, HttpEdge};
use crate::server::listen::Listener;
use crate::server::read::{self, ReadEdge};
use crate::server::room::Room;
use crate::server::seam::{BudgetCalls, Work};
use crate::server::tenancy::Tenancy;
use crate::store::Store;
use crate::telemetry;
use crate::tls::ServerTls;
use crate::upstream::Upstream;

use certificates::Certificates;
use distributors::{Started, Ticking, start_distributor};
use edges::Edges;
use embedded::{identity_secret, open_store, restore, start_passes};
use following::{SidecarReadiness, follow_upstream, start_settings_check};
use gossip::Gossip;
use ingester_metrics::{Rooms, register_metrics};
use member::{Joining, Member};
use membership::{Membership, follow_own_state};
use pages::Pages;
use query_gate::Queries;
use readiness::{Readiness, follow_readiness};
use serving::{durations, serve_grpc, serve_http};

pub use error::AppError;
pub use query_gate::QueryGate;
pub use write_gate::WriteGate;

/// How long a ring that cannot be read stays in force.
const RING_LAST_GOOD_MS: u64 = 10 * 60 * 1000;
/// Calls that may wait for the store at once; each holds one message in memory.
const STORE_CALLS_MAX: usize = 256;
/// What is added to the period of distributors' health checks (`ingester.client_cleanup_period`),
/// so that each has made one: a check may take 2 s, and periods drift.
const CLIENT_CLEANUP_MARGIN: Duration = Duration::from_secs(5);

/// Runs what the configuration names until `stop` is ready, then drains.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), AppError> {
    match config.target {
        Target::All | Target::Ingester => {
            let app = App::start(config).await?;
            let ended = app.gossip.until(stop).await;
            app.stop_after(ended).await
        }
        Target::Distributor => {
            let gate = WriteGate::start(config).await?;
            let ended = gate.gossip.until(stop).await;
            gate.stop().await.and(ended)
        }
        Target::QueryFrontend => {
            let gate = QueryGate::start(config).await?;
            let ended = gate.gossip.until(stop).await;
            gate.stop().await.and(ended)
        }
    }
}

/// A running process' insides, with an ingester among them. Tests start several of them side by side.
pub struct App {
    pub http_address: SocketAddr,
    /// Where the pages are, if they are anywhere.
    pub admin_address: Option<SocketAddr>,
    pub grpc_address: SocketAddr,
    pub ingester: Arc<Ingester>,
    pub ring: Arc<Ring>,
    pub clock: Clock,
    store: Option<Arc<Store>>,
    distributors: Option<Member>,
    /// Kept over all distributors.
    budgets: Option<Budgets>,
    queries: Option<Queries>,
    config: Arc<Config>,
    lifecycler: Option<Lifecycler>,
    watcher: Watcher,
    gossip: Gossip,
    health: HealthSwitch,
    /// How long the end is announced by health checks before it begins.
    announce: Duration,
    drainer: Drainer,
    /// Ends with the drain: servers, the reader of the runtime file, the watch on our state.
    tasks: JoinSet<()>,
    passes: JoinHandle<()>,
    wake: Wake,
}

impl App {
    pub async fn start(config: Config) -> Result<Self, AppError> {
        let config = Arc::new(config);
        let clock = Clock::start();
        let registry = telemetry::registry();
        let (drainer, drain) = Drainer::new();
        let mut tasks = JoinSet::new();
        let (wake, wakes) = wakes();
        let tracer = traces::start(&config, clock, &registry, &mut tasks, &drain)?;

        let store = open_store(&config).await?;
        let overrides = Arc::new(overrides(&config));
        let reload_status = start_reloads(&config, &overrides, &mut tasks, drain.clone()).await?;

        let upstream = upstream(&config)?;
        let certificates = Certificates::load(&config, upstream.as_ref().and_then(Upstream::tls))?;
        certificates.follow(&mut tasks, &drain);
        // Bound before the ring is joined, since the ring announces the port.
        let server = &config.server;
        let http_listener =
            listen(server.http_address()?, server.http_listen_conn_limit, &certificates.http)
                .await?;
        let grpc_listener =
            listen(server.grpc_address()?, server.grpc_listen_conn_limit, &certificates.grpc)
                .await?;
        let admin_listener = pages::listen(&config, &certificates).await?;
        let mut pages = Pages::new();
        let local = |listener: &Listener, address| {
            listener.local_address().map_err(|source| AppError::Listen { address, source })
        };
        let http_address = local(&http_listener, config.server.http_address()?)?;
        let grpc_address = local(&grpc_listener, config.server.grpc_address()?)?;

        let (gossip, stores) = Gossip::start(&config, clock, &registry).await?;
        let membership = Membership::new(&config, grpc_address.port(), clock, &stores)?;
        let ring = Arc::new(Ring::new(membership.ring_settings(&config), RING_LAST_GOOD_MS));
        let ingester = Arc::new(Ingester::new(Parts {
            config: config.ingester.clone(),
            role: role(&config),
            ring: Arc::clone(&ring),
            overrides: Arc::clone(&overrides),
            hasher: IdentityHasher::new(identity_secret(store.as_deref())),
            store: store.clone(),
        }));
        let watcher = membership.follow(&ring, wake.clone());
        let lifecycler = membership.join(&registry)?;
        let handle = lifecycler.as_ref().map(Lifecycler::handle);
        follow_own_state(handle.clone(), &ingester, &mut tasks, drain.clone());

        let follower = upstream
            .clone()
            .map(|upstream| Follower::new(Arc::clone(&ingester), upstream, clock, Pace::default()));
        let followed = follower.as_ref().map(Follower::status);
        let room = room(&config);
        pages.shown.ingester(&ingester, &handle);
        pages.shown.behind(&store, &upstream, &followed);
        pages.shown.settings(start_settings_check(&config, &registry, &mut tasks, &drain)?);
        pages.shown.process(&config, &reload_status, &certificates, &room);
        let rooms = Rooms {
            room: &room,
            ingester: &ingester,
            followed: &followed,
            ring: &ring,
            ring_reads: watcher.counts(),
            upstream: &upstream,
            certificates,
        };
        register_metrics(&registry, rooms, clock, reload_status)?;
        let health = HealthSwitch::new().await;
        let readiness = Readiness {
            ingester: Arc::clone(&ingester),
            ring: Arc::clone(&ring),
            lifecycler: handle.clone(),
            store: store.clone(),
            sidecar: followed.map(|status| SidecarReadiness::new(status, Arc::clone(&ring))),
            clock,
        };
        let reads = ReadEdge::new(
            store.clone(),
            config.store.max_series_per_query,
            config.server.http_server_read_timeout.as_duration(),
        );
        let edges =
            Edges { config: &config, ingester: &ingester, upstream: &upstream, clock, room: &room };
        let work = match store {
            Some(_) => Work::blocking(STORE_CALLS_MAX),
            None => Work::Inline,
        };
        let grpc_edge = GrpcEdge::new(
            edges.grpc_settings(),
            Some(edges.ingester_calls()),
            work.clone(),
            &health,
            drain.clone(),
        )
        .with_tracer(tracer.clone());
        let (started, distributors) = match config.target {
            // As in Cortex, an ingester alone takes pushes from distributors only.
            Target::Ingester | Target::Distributor | Target::QueryFrontend => (None, None),
            Target::All => {
                let port = grpc_address.port();
                let joining = Joining {
                    config: &config,
                    grpc_port: port,
                    clock,
                    registry: &registry,
                    stores: &stores,
                };
                let member = Member::join_distributors(joining)?;
                let means = Ticking {
                    registry: &registry,
                    tasks: &mut tasks,
                    drain: &drain,
                    stores: &stores,
                    pages: &mut pages,
                };
                let sink = edges::local_sink(&ingester, clock, work);
                let started =
                    start_distributor(&config, &overrides, member.as_ref(), sink, clock, means)?;
                (Some(started), member)
            }
        };
        let (distributor, shared) = match started {
            None => (None, None),
            Some(Started { distributor, budgets }) => (Some(distributor), budgets),
        };
        let queries = match config.target {
            Target::Ingester | Target::Distributor | Target::QueryFrontend => {
                pages.add_to_http(read::router(reads));
                None
            }
            Target::All => {
                let joining = Joining {
                    config: &config,
                    grpc_port: grpc_address.port(),
                    clock,
                    registry: &registry,
                    stores: &stores,
                };
                let means = query_gate::Means {
                    config: &config,
                    overrides: &overrides,
                    clock,
                    registry: &registry,
                    tasks: &mut tasks,
                    drain: &drain,
                    pages: &mut pages,
                };
                Some(Queries::start(joining, means, reads, &room)?)
            }
        };
        let of_queries = queries.as_ref().and_then(|queries| queries.budgets.as_ref());
        let kept: Vec<Budgets> = shared.iter().chain(of_queries).cloned().collect();
        let grpc_edge = match kept.is_empty() {
            true => grpc_edge,
            false => grpc_edge.with_budgets(BudgetCalls::of(&kept)),
        };
        let ready = readiness.clone();
        let ready: edges::Ready = Arc::new(move || ready.check().map(|()| ready.note()));
        let ready = gossip.noted(ready);
        let calls = distributor.as_ref();
        let http_edge = HttpEdge {
            tenancy: Tenancy::from_auth_enabled(config.auth_enabled),
            clients: ClientHeader::of_http(&config.client_identity)?,
            shell: edges::shell(&config, ready, registry.clone(), &overrides),
            distributor: calls.map(|calls| edges::distributor_calls(calls, clock)),
            remote_write: edges::remote_write(&config),
            room,
        };
        let sources = admin::Sources {
            ring: Arc::clone(&ring),
            ingester: Arc::clone(&ingester),
            lifecycler: handle,
            clock,
        };
        pages.add(|site| admin::ingester_router(&sources, site));
        pages.add_ours(|site| admin::own_router(sources.clone(), site));
        pages.add_explain(&config, &overrides, (Some(&ingester), distributor.as_ref()), clock);
        gossip.add_page(&mut pages);
        let admin_address = admin_listener.as_ref().map(pages::address).transpose()?;
        pages.add_landing(&config, admin_address);
        let door = front_door::start(&config, clock, &registry, &mut pages, &mut tasks, &drain)?;
        let served = pages::Served { listener: admin_listener, shell: &http_edge.shell, clock };
        let pages = pages::serve(pages, served, &config, &drain, &mut tasks)?;
        let router = front_door::before(http::router(http_edge, pages), door);
        let durations = durations(&config, &registry)?;
        let grpc_edge = grpc_edge.with_durations(durations.clone());
        serve_grpc(&config, grpc_listener, grpc_edge, &drain, &mut tasks);
        let trails = traces::over_http(&config, tracer, durations);
        serve_http(&config, http_listener, router, trails, &drain, &mut tasks);
        let serve_after = match config.target {
            Target::All | Target::Distributor | Target::QueryFrontend => Duration::ZERO,
            Target::Ingester => {
                config.ingester.client_cleanup_period.as_duration() + CLIENT_CLEANUP_MARGIN
            }
        };
        follow_readiness(readiness, health.clone(), serve_after, &mut tasks, drain.clone());

        let passes = start_passes(&ingester, clock, wakes)?;
        match follower {
            Some(follower) => follow_upstream(follower, &ingester, &mut tasks, drain),
            None => restore(&ingester, clock).await?,
        }
        tracing::info!(
            target_services = %String::from(config.target), http = %http_address,
            grpc = %grpc_address, pages = admin_address.map(tracing::field::display),
            "started; look at /ready and /metrics over HTTP"
        );
        Ok(Self {
            http_address,
            admin_address,
            grpc_address,
            ingester,
            ring,
            clock,
            store,
            distributors,
            budgets: shared,
            queries,
            config: Arc::clone(&config),
            lifecycler,
            watcher,
            gossip,
            health,
            announce: match upstream {
                Some(_) => config.ingester.drain_announce_period.as_duration(),
                None => Duration::ZERO,
            },
            drainer,
            tasks,
            passes,
            wake,
        })
    }

    /// Where budgets of queries are kept, if they are.
    pub fn query_budgets(&self) -> Option<&Budgets> {
        self.queries.as_ref()?.budgets.as_ref()
    }

    /// Leaves the ring, answers what is under way, and ends everything that was started.
    pub async fn stop(mut self) -> Result<(), AppError> {
        if let Some(member) = &self.distributors {
            member.leave().await;
            if let Some(budgets) = &self.budgets {
                budgets::leave(budgets, member, &self.config).await;
            }
        }
        if let Some(queries) = &self.queries {
            queries.leave(&self.config).await;
        }
        if let Some(lifecycler) = &self.lifecycler {
            lifecycler.leave().await;
        }
        self.health.end().await;
        // Distributors learn of the end by their health checks, while all is still answered.
        tokio::time::sleep(self.announce).await;
        self.drainer.start();
        while self.tasks.join_next().await.is_some() {}
        self.ingester.stop();
        self.wake.wake();
        if let Some(member) = self.distributors {
            member.stop().await;
        }
        if let Some(queries) = self.queries {
            queries.stop().await;
        }
        if let Some(lifecycler) = self.lifecycler
            && let Err(error) = lifecycler.stop().await
        {
            tracing::warn!(%error, "our entry in the ring was not put in order");
        }
        self.watcher.stop().await;
        self.gossip.stop().await;
        let passes = self.passes;
        // A pass ends within one tenant's turn.
        let _ = tokio::task::spawn_blocking(move || passes.join()).await?;
        if let Some(store) = self.store {
            tokio::task::spawn_blocking(move || store.sync()).await??;
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// The ingester that we stand before, if we do.
fn upstream(config: &Config) -> Result<Option<Upstream>, AppError> {
    let config = &config.ingester.upstream;
    Ok(if config.is_set() { Some(Upstream::new(config)?) } else { None })
}

/// What requests may take while they arrive and are handled. What a sidecar received is held
/// until its upstream has answered, so both bounds are on the same bytes.
fn room(config: &Config) -> Room {
    let (server, upstream) = (config.server.max_inflight_bytes, &config.ingester.upstream);
    Room::new(if upstream.is_set() { server.min(upstream.max_inflight_bytes) } else { server })
}

fn role(config: &Config) -> Role {
    Role {
        behind_distributors: config.target == Target::Ingester,
        shard_by_all_labels: config.distributor.shard_by_all_labels,
        shuffle_sharding: config.distributor.sharding_strategy == ShardingStrategy::ShuffleSharding,
        has_upstream: config.ingester.upstream.is_set(),
    }
}

/// The limits of the configuration, until a runtime file is read over them.
fn overrides(config: &Config) -> Overrides {
    let instance = config.ingester.instance_limits.clone();
    let overrides = Overrides::new(config.limits.clone(), instance);
    overrides.without_client_budgets(budgets_off(config))
}

/// Budgets of clients that would apply here if they were turned on: to who takes remote writes,
/// and to who takes queries.
fn budgets_off(config: &Config) -> BudgetsOff {
    if config.client_identity.enabled {
        return BudgetsOff::default();
    }
    let (writes, queries) = match config.target {
        Target::All => (true, true),
        Target::Distributor => (true, false),
        Target::QueryFrontend => (false, true),
        Target::Ingester => (false, false),
    };
    BudgetsOff { writes, queries }
}

async fn start_reloads(
    config: &Config,
    overrides: &Arc<Overrides>,
    tasks: &mut JoinSet<()>,
    mut drain: Drain,
) -> Result<Option<ReloadStatusReader>, AppError> {
    let mut warnings = config.limits.warnings("limits");
    warnings.extend(config.limits.warnings_of_budgets_off("limits", budgets_off(config)));
    for warning in warnings {
        tracing::warn!(%warning, "limits");
    }
    let Some(mut reloader) = Reloader::new(&config.runtime_config, Arc::clone(overrides)) else {
        return Ok(None);
    };
    // Starting without an operator's limits would admit what they forbid.
    reloader.load().await?;
    let status = reloader.status();
    tasks.spawn(async move { reloader.run(async move { drain.started().await }).await });
    Ok(Some(status))
}

async fn listen(
    address: SocketAddr,
    connections_max: usize,
    tls: &Option<Arc<ServerTls>>,
) -> Result<Listener, AppError> {
    let listener = Listener::bind(address, connections_max).await;
    let listener = listener.map_err(|source| AppError::Listen { address, source })?;
    Ok(listener.with_tls(tls.clone()))
}
