//! `-target=query-frontend`: a gate for queries, with nothing stored in this process.
//!
//! ```text
//! start: limits ─► those who answer ─► listeners bound ─► query gates' ring ─► budgets ─► frontend ─► HTTP
//! stop:  LEAVING ─► drain ─► out of the ring
//! ```

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use prometheus::Registry;
use tokio::task::JoinSet;
use tower::Service as _;

use super::certificates::Certificates;
use super::gossip::Gossip;
use super::member::{Joining, Member};
use super::pages::{self, Pages};
use super::readiness::ring_note;
use super::{
    AppError, budgets, durations, edges, front_door, listen, room, serve_grpc, serve_http,
    start_reloads, traces,
};
use crate::admin;
use crate::admin::clients::ClientsSource;
use crate::clients::Gates;
use crate::clients::peers::Budgets;
use crate::clock::Clock;
use crate::config::{Config, Target};
use crate::exposition::{AtScrape, Families, RefusedCount};
use crate::frontend::{AskFn, Frontend, Parts, shared};
use crate::limits::Overrides;
use crate::server::client_header::ClientHeader;
use crate::server::drain::{Drain, Drainer};
use crate::server::grpc::{GrpcEdge, HealthSwitch};
use crate::server::http;
use crate::server::queries::{self, QueryEdge};
use crate::server::read::{self, ReadEdge};
use crate::server::room::Room;
use crate::server::seam::{BudgetCalls, Work};
use crate::server::status::ReadRefusal;
use crate::server::tenancy::Tenancy;
use crate::telemetry;
use crate::tenant::TenantId;
use crate::upstream::queries::{DownstreamError, Downstreams, Query, Reply};

/// A running query gate. Tests start several of them side by side.
pub struct QueryGate {
    pub http_address: SocketAddr,
    /// Where the pages are, if they are anywhere.
    pub admin_address: Option<SocketAddr>,
    /// Where other gates ask for budgets, if any are kept.
    pub grpc_address: Option<SocketAddr>,
    pub frontend: Arc<Frontend>,
    /// Kept over all query gates.
    pub budgets: Option<Budgets>,
    config: Arc<Config>,
    queries: Queries,
    pub(super) gossip: Gossip,
    drainer: Drainer,
    /// Ends with the drain: servers, the reader of the runtime file, health checks, the canary.
    tasks: JoinSet<()>,
}

/// What a query gate runs with.
pub(super) struct Means<'a> {
    pub(super) config: &'a Arc<Config>,
    pub(super) overrides: &'a Arc<Overrides>,
    pub(super) clock: Clock,
    pub(super) registry: &'a Registry,
    pub(super) tasks: &'a mut JoinSet<()>,
    pub(super) drain: &'a Drain,
    pub(super) pages: &'a mut Pages,
}

/// The gate itself, and what belongs to it.
pub(super) struct Started {
    pub(super) frontend: Arc<Frontend>,
    pub(super) budgets: Option<Budgets>,
}

impl QueryGate {
    pub async fn start(config: Config) -> Result<Self, AppError> {
        let config = Arc::new(config);
        let clock = Clock::start();
        let registry = telemetry::registry();
        let (drainer, drain) = Drainer::new();
        let mut tasks = JoinSet::new();
        let tracer = traces::start(&config, clock, &registry, &mut tasks, &drain)?;

        let overrides = Arc::new(super::overrides(&config));
        let reloads = start_reloads(&config, &overrides, &mut tasks, drain.clone()).await?;
        let downstreams = Downstreams::new(&config.frontend.downstream)?;
        let certificates = Certificates::load(&config, downstreams.tls())?;
        certificates.follow(&mut tasks, &drain);

        let server = &config.server;
        let address = server.http_address()?;
        let listener = listen(address, server.http_listen_conn_limit, &certificates.http).await?;
        let http_address =
            listener.local_address().map_err(|source| AppError::Listen { address, source })?;
        let admin_listener = pages::listen(&config, &certificates).await?;
        let mut pages = Pages::new();
        // Other gates ask for budgets over gRPC, and the ring announces the port.
        let grpc_listener = match config.client_identity.enabled {
            false => None,
            true => {
                let address = server.grpc_address()?;
                let connections_max = server.grpc_listen_conn_limit;
                let listener = listen(address, connections_max, &certificates.grpc).await?;
                let local = listener.local_address();
                Some((local.map_err(|source| AppError::Listen { address, source })?, listener))
            }
        };
        let grpc_address = grpc_listener.as_ref().map(|(address, _)| *address);

        let (gossip, stores) = Gossip::start(&config, clock, &registry).await?;
        let member = Member::join_query_gates(Joining {
            config: &config,
            grpc_port: grpc_address.map_or(server.grpc_listen_port, |one| one.port()),
            clock,
            registry: &registry,
            stores: &stores,
        })?;
        follow_downstreams(&downstreams, &registry, &mut tasks, &drain)?;
        pages.shown.downstreams(&downstreams);
        let means = Means {
            config: &config,
            overrides: &overrides,
            clock,
            registry: &registry,
            tasks: &mut tasks,
            drain: &drain,
            pages: &mut pages,
        };
        let Started { frontend, budgets } =
            start_frontend(means, member.as_ref(), asking(downstreams))?;
        let room = room(&config);
        pages.shown.process(&config, &reloads, &certificates, &room);
        let read = move |families: &mut Families| certificates.read_metrics(families);
        registry.register(Box::new(AtScrape::new("tls_families", read)))?;
        if let Some(reloads) = reloads {
            let read = move |families: &mut Families| reloads.read_metrics(families);
            registry.register(Box::new(AtScrape::new("runtime_config_families", read)))?;
        }
        let shown = room.clone();
        let read = move |families: &mut Families| shown.read_metrics(families);
        registry.register(Box::new(AtScrape::new("server_families", read)))?;
        let ready = gossip.noted(readiness(member.as_ref(), clock));
        pages.add_explain(&config, &overrides, (None, None), clock);
        gossip.add_page(&mut pages);
        pages.add_to_http(queries::router(query_edge(&config, &frontend, &room)?));
        let admin_address = admin_listener.as_ref().map(pages::address).transpose()?;
        pages.add_landing(&config, admin_address);
        let edge = http::HttpEdge {
            tenancy: Tenancy::from_auth_enabled(config.auth_enabled),
            clients: ClientHeader::of_http(&config.client_identity)?,
            shell: edges::shell(&config, ready, registry.clone(), &overrides),
            distributor: None,
            remote_write: edges::remote_write(&config),
            room: room.clone(),
        };
        let durations = durations(&config, &registry)?;
        if let (Some((_, listener)), Some(budgets)) = (grpc_listener, &budgets) {
            let health = HealthSwitch::new().await;
            health.set_serving(true).await;
            let settings = edges::gate_grpc_settings(&config, &room);
            let grpc_edge = GrpcEdge::new(settings, None, Work::Inline, &health, drain.clone());
            let grpc_edge = grpc_edge.with_budgets(BudgetCalls::of(std::slice::from_ref(budgets)));
            let grpc_edge = grpc_edge.with_durations(durations.clone());
            serve_grpc(&config, listener, grpc_edge, &drain, &mut tasks);
        }
        let door = front_door::start(&config, clock, &registry, &mut pages, &mut tasks, &drain)?;
        let served = pages::Served { listener: admin_listener, shell: &edge.shell, clock };
        let pages = pages::serve(pages, served, &config, &drain, &mut tasks)?;
        let router = front_door::before(http::router(edge, pages), door);
        let trails = traces::over_http(&config, tracer, durations);
        serve_http(&config, listener, router, trails, &drain, &mut tasks);
        tracing::info!(
            target_services = %String::from(config.target), http = %http_address,
            pages = admin_address.map(tracing::field::display),
            to = config.frontend.downstream.url.as_str(), "started; look at /ready and /metrics"
        );
        let queries = Queries { member, budgets: budgets.clone() };
        Ok(Self {
            http_address,
            admin_address,
            grpc_address,
            frontend,
            budgets,
            config,
            queries,
            gossip,
            drainer,
            tasks,
        })
    }

    /// Leaves the ring, answers what is under way, and ends everything that was started.
    pub async fn stop(mut self) -> Result<(), AppError> {
        self.queries.leave(&self.config).await;
        self.drainer.start();
        while self.tasks.join_next().await.is_some() {}
        self.queries.stop().await;
        self.gossip.stop().await;
        tracing::info!("stopped");
        Ok(())
    }
}

/// The query gate of a process that does everything.
pub(super) struct Queries {
    member: Option<Member>,
    pub(super) budgets: Option<Budgets>,
}

impl Queries {
    /// With its routes and pages added.
    pub(super) fn start(
        joining: Joining<'_>,
        means: Means<'_>,
        reads: ReadEdge,
        room: &Room,
    ) -> Result<Self, AppError> {
        let config = Arc::clone(means.config);
        let downstreams = match config.frontend.downstream.is_set() {
            false => None,
            true => Some(Downstreams::new(&config.frontend.downstream)?),
        };
        if let Some(downstreams) = &downstreams {
            follow_downstreams(downstreams, means.registry, means.tasks, means.drain)?;
            means.pages.shown.downstreams(downstreams);
        }
        let member = Member::join_query_gates(joining)?;
        let ask = asking_here(&config, reads, downstreams);
        let pages = &mut *means.pages;
        let (frontend, budgets) = {
            let means = Means { pages: &mut *pages, ..means };
            let Started { frontend, budgets } = start_frontend(means, member.as_ref(), ask)?;
            (frontend, budgets)
        };
        pages.add_to_http(queries::router(query_edge(&config, &frontend, room)?));
        Ok(Self { member, budgets })
    }

    pub(super) async fn leave(&self, config: &Config) {
        let Some(member) = &self.member else { return };
        member.leave().await;
        if let Some(budgets) = &self.budgets {
            budgets::leave(budgets, member, config).await;
        }
    }

    pub(super) async fn stop(self) {
        if let Some(member) = self.member {
            member.stop().await;
        }
    }
}

/// Asks those behind us.
pub(super) fn asking(downstreams: Downstreams) -> Arc<AskFn> {
    Arc::new(move |query| {
        let downstreams = downstreams.clone();
        Box::pin(async move { downstreams.send(query).await })
    })
}

/// Asks the embedded store what it can answer, and those behind us, if there are any, for the rest.
pub(super) fn asking_here(
    config: &Config,
    reads: ReadEdge,
    downstreams: Option<Downstreams>,
) -> Arc<AskFn> {
    let tenancy = Tenancy::from_auth_enabled(config.auth_enabled);
    let reads = read::router(reads).layer(axum::Extension(tenancy));
    let pause_max = config.frontend.downstream.idle_timeout.as_duration();
    Arc::new(move |mut query: Query| {
        let (mut reads, downstreams) = (reads.clone(), downstreams.clone());
        Box::pin(async move {
            if is_promql(query.path()) {
                return match downstreams {
                    Some(downstreams) => downstreams.send(query).await,
                    None => Ok(Reply::ours(read::refusal(&no_promql()), pause_max)),
                };
            }
            // The store has one address for all prefixes.
            let at = query.path().find(API).unwrap_or_default();
            let path = query.path()[at..].to_owned();
            if !query.set_path(&path) {
                return Err(DownstreamError::Unsendable);
            }
            let request = query.into_request().map(Body::new);
            let Ok(response) = reads.call(request).await;
            Ok(Reply::ours(response, pause_max))
        })
    })
}

/// What all paths of the API have in them.
const API: &str = "/api/v1/";

/// Calls that evaluate expressions.
fn is_promql(path: &str) -> bool {
    let call = path.split_once(API).map(|(_, call)| call);
    matches!(call, Some("query" | "query_range" | "format_query" | "parse_query"))
}

fn no_promql() -> ReadRefusal {
    let text = "this process keeps samples and evaluates no PromQL; run a Prometheus with a \
                remote_read of http://<this process>/api/v1/read, and give its address as \
                -frontend.downstream-url";
    ReadRefusal::not_here(text)
}

/// Their numbers, and whether they are well.
pub(super) fn follow_downstreams(
    downstreams: &Downstreams,
    registry: &Registry,
    tasks: &mut JoinSet<()>,
    drain: &Drain,
) -> Result<(), AppError> {
    let shown = downstreams.clone();
    let read = move |families: &mut Families| shown.read_metrics(families);
    registry.register(Box::new(AtScrape::new("downstream_families", read)))?;
    let (checked, mut drain) = (downstreams.clone(), drain.clone());
    tasks.spawn(async move {
        // A check may be dropped: it is made again.
        tokio::select! {
            () = drain.started() => {}
            () = checked.run() => {}
        }
    });
    Ok(())
}

/// A query gate, with its budgets kept, its numbers registered and its canary out.
pub(super) fn start_frontend(
    means: Means<'_>,
    member: Option<&Member>,
    ask: Arc<AskFn>,
) -> Result<Started, AppError> {
    let Means { config, overrides, clock, registry, tasks, drain, pages } = means;
    let budgets = match member {
        None => None,
        Some(member) => {
            let means = budgets::Means { registry, tasks, drain, clock };
            Some(budgets::start(config, member, shared::terms_of(overrides), means)?)
        }
    };
    let frontend = Frontend::new(Parts {
        config: config.frontend.clone(),
        overrides: Arc::clone(overrides),
        budgets: budgets.clone(),
        ask,
        clock,
    });
    let shown = Arc::clone(&frontend);
    let read = move |families: &mut Families| shown.read_metrics(families);
    registry.register(Box::new(AtScrape::new("frontend_families", read)))?;
    let (watching, mut drain) = (Arc::clone(&frontend), drain.clone());
    tasks.spawn(async move {
        // A canary may be dropped: it proves nothing then.
        tokio::select! {
            () = drain.started() => {}
            () = watching.watch() => {}
        }
    });
    pages.shown.frontend(&frontend);
    pages.shown.member(member);
    pages.shown.budgets(&budgets);
    let refused = Arc::clone(&frontend);
    let refused = move |tenant: &TenantId, tell: &mut dyn FnMut(RefusedCount<'_>)| {
        refused.tell_refused_of(tenant, tell);
    };
    let clients = ClientsSource {
        writes: None,
        queries: budgets.clone(),
        overrides: Arc::clone(overrides),
        are_clients_known: config.client_identity.enabled,
        refused: Arc::new(refused),
    };
    pages.add_ours(|site| admin::clients::router(Gates::QueryFrontends, clients, site));
    if let Some(member) = member {
        pages.add(|site| admin::ring_router("/query-frontend/ring", member.page(clock), site));
    }
    Ok(Started { frontend, budgets })
}

pub(super) fn query_edge(
    config: &Arc<Config>,
    frontend: &Arc<Frontend>,
    room: &Room,
) -> Result<QueryEdge, AppError> {
    let settings = &config.frontend;
    let mut prefixes: Vec<_> = settings.prefixes().map(str::to_owned).collect();
    // Where samples are kept, their readers find them as they would find a Prometheus'.
    if config.target == Target::All && !prefixes.iter().any(String::is_empty) {
        prefixes.push(String::new());
    }
    Ok(QueryEdge {
        tenancy: Tenancy::from_auth_enabled(config.auth_enabled),
        clients: ClientHeader::of_http(&config.client_identity)?,
        frontend: Arc::clone(frontend),
        prefixes,
        strip_prefix: settings.strip_http_prefix,
        form_bytes_max: settings.max_body_size,
        form_wait: config.server.http_server_read_timeout.as_duration(),
        room: room.clone(),
    })
}

/// Ready once we are in the query gates' ring, where there is one. Those behind us that are down
/// are no reason: what cannot be asked is answered 503, and another gate could not ask it either.
fn readiness(member: Option<&Member>, clock: Clock) -> edges::Ready {
    let member = member.map(|member| (member.handle(), Arc::clone(member.ring())));
    Arc::new(move || {
        let Some((handle, ring)) = &member else { return Ok(None) };
        let not_ready = |reason: String| format!("Query gate not ready: {reason}");
        handle.readiness().map_err(|reason| not_ready(reason.to_string()))?;
        let expired = "budgets are kept by a ring that is too old";
        let note = ring_note(ring, clock.now().unix_ms, expired);
        Ok(note.map(|note| format!("query gates' {note}")))
    })
}
