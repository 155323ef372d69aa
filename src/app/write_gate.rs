//! `-target=distributor`: a gate for writes, with nothing stored in this process.
//!
//! ```text
//! start: limits ─► upstream ─► listeners bound ─► distributors' ring ─► distributor ─► HTTP
//! stop:  LEAVING ─► drain ─► out of the ring
//! ```

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::certificates::Certificates;
use super::distributors::{Member, Ticking, start_distributor};
use super::{AppError, edges, listen, serve_http, start_reloads};
use crate::admin;
use crate::clock::Clock;
use crate::config::Config;
use crate::distributor::{Distributor, Sink};
use crate::exposition::{AtScrape, Families};
use crate::limits::Overrides;
use crate::ring::kv::requests::RequestDurations;
use crate::ring::lifecycler::LifecyclerHandle;
use crate::server::drain::Drainer;
use crate::server::http;
use crate::server::tenancy::Tenancy;
use crate::telemetry;
use crate::upstream::distributor::HttpUpstream;

/// A running write gate. Tests start several of them side by side.
pub struct WriteGate {
    pub http_address: SocketAddr,
    pub distributor: Arc<Distributor>,
    pub clock: Clock,
    member: Option<Member>,
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

        let instance = config.ingester.instance_limits.clone();
        let overrides = Arc::new(Overrides::new(config.limits.clone(), instance));
        let reloads = start_reloads(&config, &overrides, &mut tasks, drain.clone()).await?;
        let upstream = HttpUpstream::new(&config.distributor.upstream)?;
        let certificates = Certificates::of_gate(&config.server, &upstream)?;
        certificates.follow(&mut tasks, &drain);

        let address = config.server.http_address()?;
        let connections_max = config.server.http_listen_conn_limit;
        let listener = listen(address, connections_max, &certificates.http).await?;
        let http_address =
            listener.local_address().map_err(|source| AppError::Listen { address, source })?;

        let durations = RequestDurations::register(&registry)?;
        let grpc_port = config.server.grpc_listen_port;
        let member = Member::join(&config, grpc_port, clock, &registry, &durations)?;
        let means = Ticking { registry: &registry, tasks: &mut tasks, drain: &drain };
        let sink = Sink::Upstream(upstream);
        let distributor =
            start_distributor(&config, &overrides, member.as_ref(), sink, clock, means)?;
        let read = move |families: &mut Families| certificates.read_metrics(families);
        registry.register(Box::new(AtScrape::new("tls_families", read)))?;
        if let Some(reloads) = reloads {
            let read = move |families: &mut Families| reloads.read_metrics(families);
            registry.register(Box::new(AtScrape::new("runtime_config_families", read)))?;
        }

        let pages = match &member {
            Some(member) => admin::ring_router("/distributor/ring", member.page(clock)),
            None => axum::Router::new(),
        };
        let ready = readiness(member.as_ref().map(Member::handle));
        let edge = http::HttpEdge {
            tenancy: Tenancy::from_auth_enabled(config.auth_enabled),
            shell: edges::shell(&config, ready, registry, &overrides),
            distributor: Some(edges::distributor_calls(&distributor, clock)),
            remote_write: edges::remote_write(&config),
        };
        serve_http(&config, listener, http::router(edge, pages), &drain, &mut tasks);
        tracing::info!(
            target_services = %String::from(config.target), http = %http_address,
            upstream = config.distributor.upstream.url, "started; look at /ready and /metrics"
        );
        Ok(Self { http_address, distributor, clock, member, drainer, tasks })
    }

    /// Leaves the ring, answers what is under way, and ends everything that was started.
    pub async fn stop(mut self) -> Result<(), AppError> {
        if let Some(member) = &self.member {
            member.leave().await;
        }
        self.drainer.start();
        while self.tasks.join_next().await.is_some() {}
        if let Some(member) = self.member {
            member.stop().await;
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Ready once we are in the ring, where there is one. A distributor behind us that is down is no
/// reason: what cannot be sent on is answered 503, and another gate could not send it on either.
fn readiness(handle: Option<LifecyclerHandle>) -> edges::Ready {
    Arc::new(move || match &handle {
        None => Ok(None),
        Some(handle) => match handle.readiness() {
            Ok(()) => Ok(None),
            Err(reason) => Err(format!("Distributor not ready: {reason}")),
        },
    })
}
