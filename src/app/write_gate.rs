//! `-target=distributor`: a gate for writes, with nothing stored in this process.
//!
//! ```text
//! start: limits ─► way on ─► listener bound ─► distributors' ring ─► distributor ─► HTTP
//! stop:  LEAVING ─► drain ─► out of the ring
//! ```

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::certificates::Certificates;
use super::distributors::{Started, Ticking, start_distributor};
use super::gossip::Gossip;
use super::ingester_ring::IngesterRing;
use super::member::{Joining, Member};
use super::pages::{self, Pages};
use super::readiness::ring_note;
use super::{
    AppError, durations, edges, front_door, listen, room, serve_grpc, serve_http, start_reloads,
    traces,
};
use crate::admin;
use crate::clients::peers::Budgets;
use crate::clock::Clock;
use crate::config::Config;
use crate::distributor::fan_out::FanOut;
use crate::distributor::{Distributor, RingSink, Sink};
use crate::exposition::{AtScrape, Families};
use crate::ring::Ring;
use crate::server::client_header::ClientHeader;
use crate::server::drain::{Drain, Drainer};
use crate::server::grpc::{GrpcEdge, HealthSwitch};
use crate::server::http;
use crate::server::seam::{BudgetCalls, Work};
use crate::server::tenancy::Tenancy;
use crate::telemetry;
use crate::tls::ClientTls;
use crate::upstream::distributor::HttpUpstream;
use crate::upstream::ingesters::Ingesters;

/// A running write gate. Tests start several of them side by side.
pub struct WriteGate {
    pub http_address: SocketAddr,
    /// Where the pages are, if they are anywhere.
    pub admin_address: Option<SocketAddr>,
    /// Where other gates ask for budgets, if any are shared.
    pub grpc_address: Option<SocketAddr>,
    pub distributor: Arc<Distributor>,
    pub clock: Clock,
    config: Arc<Config>,
    member: Option<Member>,
    /// Kept over all distributors.
    pub budgets: Option<Budgets>,
    /// Where writes go to the ring's ingesters.
    ingesters: Option<IngesterRing>,
    pub(super) gossip: Gossip,
    drainer: Drainer,
    /// Ends with the drain: the server, the reader of the runtime file, the upkeep.
    tasks: JoinSet<()>,
}

impl WriteGate {
    pub async fn start(config: Config) -> Result<Self, AppError> {
        let config = Arc::new(config);
        let clock = Clock::start();
        let registry = telemetry::registry();
        let (drainer, drain) = Drainer::new();
        let mut tasks = JoinSet::new();
        let tracer = traces::start(&config, clock, &registry, &mut tasks, &drain)?;

        let overrides = Arc::new(super::overrides(&config));
        let reloads = start_reloads(&config, &overrides, &mut tasks, drain.clone()).await?;
        let way_on = WayOn::new(&config)?;
        let certificates = Certificates::load(&config, way_on.tls())?;
        certificates.follow(&mut tasks, &drain);

        let address = config.server.http_address()?;
        let connections_max = config.server.http_listen_conn_limit;
        let listener = listen(address, connections_max, &certificates.http).await?;
        let http_address =
            listener.local_address().map_err(|source| AppError::Listen { address, source })?;

        let admin_listener = pages::listen(&config, &certificates).await?;
        let mut pages = Pages::new();

        // Other gates ask for budgets over gRPC, and the ring announces the port.
        let grpc_listener = match super::budgets::are_wanted(&config) {
            false => None,
            true => {
                let address = config.server.grpc_address()?;
                let connections_max = config.server.grpc_listen_conn_limit;
                Some(listen(address, connections_max, &certificates.grpc).await?)
            }
        };
        let grpc_address = match &grpc_listener {
            None => None,
            Some(listener) => {
                let address = config.server.grpc_address()?;
                let local = listener.local_address();
                Some(local.map_err(|source| AppError::Listen { address, source })?)
            }
        };

        let (gossip, stores) = Gossip::start(&config, clock, &registry).await?;
        let grpc_port = grpc_address.map_or(config.server.grpc_listen_port, |one| one.port());
        let joining =
            Joining { config: &config, grpc_port, clock, registry: &registry, stores: &stores };
        let member = Member::join_distributors(joining)?;
        let (sink, ingesters) = match way_on {
            WayOn::Upstream(upstream) => (Sink::Upstream(upstream), None),
            WayOn::Ingesters(clients) => {
                let ingesters = IngesterRing::follow(&config, clock, &registry, &stores)?;
                (ring_sink(&config, ingesters.ring(), clients, &mut tasks, &drain), Some(ingesters))
            }
        };
        let means = Ticking {
            registry: &registry,
            tasks: &mut tasks,
            drain: &drain,
            stores: &stores,
            pages: &mut pages,
        };
        let Started { distributor, budgets } =
            start_distributor(&config, &overrides, member.as_ref(), sink, clock, means)?;
        let room = room(&config);
        pages.shown.process(&config, &reloads, &certificates, &room);
        let read = move |families: &mut Families| certificates.read_metrics(families);
        registry.register(Box::new(AtScrape::new("tls_families", read)))?;
        if let Some(reloads) = reloads {
            let read = move |families: &mut Families| reloads.read_metrics(families);
            registry.register(Box::new(AtScrape::new("runtime_config_families", read)))?;
        }

        if let Some(ingesters) = &ingesters {
            pages.shown.ingester_ring(ingesters.ring());
            for path in ["/ring", "/ingester/ring"] {
                pages.add(|site| admin::ring_router(path, ingesters.page(clock), site));
            }
        }
        let ring = ingesters.as_ref().map(|ingesters| Arc::clone(ingesters.ring()));
        let ready = gossip.noted(readiness(member.as_ref(), ring, clock));
        pages.add_explain(&config, &overrides, (None, Some(&distributor)), clock);
        gossip.add_page(&mut pages);
        let admin_address = admin_listener.as_ref().map(pages::address).transpose()?;
        pages.add_landing(&config, admin_address);
        let shown = room.clone();
        let read = move |families: &mut Families| shown.read_metrics(families);
        registry.register(Box::new(AtScrape::new("server_families", read)))?;
        let edge = http::HttpEdge {
            tenancy: Tenancy::from_auth_enabled(config.auth_enabled),
            clients: ClientHeader::of_http(&config.client_identity)?,
            shell: edges::shell(&config, ready, registry.clone(), &overrides),
            distributor: Some(edges::distributor_calls(&distributor, clock)),
            remote_write: edges::remote_write(&config),
            room,
        };
        let durations = durations(&config, &registry)?;
        if let (Some(listener), Some(budgets)) = (grpc_listener, &budgets) {
            let health = HealthSwitch::new().await;
            health.set_serving(true).await;
            let settings = edges::gate_grpc_settings(&config, &edge.room);
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
            // Where other gates ask for budgets; not there where none are shared.
            grpc = grpc_address.map(tracing::field::display),
            pages = admin_address.map(tracing::field::display),
            to = match config.distributor.upstream.url.as_str() {
                "" => "the ingesters of the ring",
                url => url,
            },
            "started; look at /ready and /metrics"
        );
        Ok(Self {
            http_address,
            admin_address,
            grpc_address,
            distributor,
            clock,
            config,
            member,
            budgets,
            ingesters,
            gossip,
            drainer,
            tasks,
        })
    }

    /// Leaves the ring, answers what is under way, and ends everything that was started.
    pub async fn stop(mut self) -> Result<(), AppError> {
        if let Some(member) = &self.member {
            member.leave().await;
            if let Some(budgets) = &self.budgets {
                super::budgets::leave(budgets, member, &self.config).await;
            }
        }
        self.drainer.start();
        while self.tasks.join_next().await.is_some() {}
        if let Some(member) = self.member {
            member.stop().await;
        }
        if let Some(ingesters) = self.ingesters {
            ingesters.stop().await;
        }
        self.gossip.stop().await;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Where admitted writes go.
enum WayOn {
    Upstream(HttpUpstream),
    Ingesters(Ingesters),
}

impl WayOn {
    /// To a distributor if there is one, else to the ingesters of the ring.
    fn new(config: &Config) -> Result<Self, AppError> {
        let distributor = &config.distributor;
        if distributor.upstream.is_set() {
            return Ok(Self::Upstream(HttpUpstream::new(&distributor.upstream)?));
        }
        Ok(Self::Ingesters(Ingesters::new(&config.ingester_client, distributor.ingesters())?))
    }

    fn tls(&self) -> Option<&Arc<ClientTls>> {
        match self {
            Self::Upstream(upstream) => upstream.tls(),
            Self::Ingesters(ingesters) => ingesters.tls(),
        }
    }
}

fn ring_sink(
    config: &Config,
    ring: &Arc<Ring>,
    clients: Ingesters,
    tasks: &mut JoinSet<()>,
    drain: &Drain,
) -> Sink {
    let (upkeep, followed, mut drain) = (clients.clone(), Arc::clone(ring), drain.clone());
    tasks.spawn(async move {
        // Both arms may be dropped: a health check is made again, and a start of the drain stays.
        tokio::select! {
            () = drain.started() => {}
            () = upkeep.run(move || followed.load()) => {}
        }
    });
    let distributor = &config.distributor;
    let fan_out = FanOut::new(clients, distributor.sharding_strategy, distributor.extend_writes);
    Sink::Ring(RingSink { ring: Arc::clone(ring), fan_out })
}

/// Ready once we are in the distributors' ring, where there is one, and know the ingesters', where
/// we send to them. A distributor behind us that is down is no reason: what cannot be sent on is
/// answered 503, and another gate could not send it on either.
fn readiness(member: Option<&Member>, ingesters: Option<Arc<Ring>>, clock: Clock) -> edges::Ready {
    let not_ready = |reason: &str| format!("Distributor not ready: {reason}");
    let member = member.map(|member| (member.handle(), Arc::clone(member.ring())));
    Arc::new(move || {
        let mut notes = Vec::new();
        if let Some((handle, ring)) = &member {
            handle.readiness().map_err(|reason| not_ready(&reason.to_string()))?;
            let expired = "rates are divided by a ring that is too old";
            let note = ring_note(ring, clock.now().unix_ms, expired);
            notes.extend(note.map(|note| format!("distributors' {note}")));
        }
        if let Some(ring) = &ingesters {
            let note = IngesterRing::check(ring, clock).map_err(|reason| not_ready(&reason))?;
            notes.extend(note);
        }
        Ok((!notes.is_empty()).then(|| notes.join("\n")))
    })
}
