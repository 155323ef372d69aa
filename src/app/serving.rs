//! The tasks that serve the listeners, each until the drain and through it.

use std::sync::Arc;

use axum::Router;
use prometheus::Registry;
use tokio::task::JoinSet;

use super::AppError;
use crate::config::Config;
use crate::server::Drained;
use crate::server::drain::Drain;
use crate::server::durations::Durations;
use crate::server::grpc::{self, GrpcEdge};
use crate::server::http;
use crate::server::listen::Listener;
use crate::server::trails::Trails;

/// What measures requests of both listeners. Operators' own is not measured: it is no part of what
/// the cluster waits for.
pub(super) fn durations(config: &Config, registry: &Registry) -> Result<Durations, AppError> {
    Ok(Durations::register(registry, config.frontend.prefixes())?)
}

pub(super) fn serve_grpc(
    config: &Arc<Config>,
    listener: Listener,
    edge: GrpcEdge,
    drain: &Drain,
    tasks: &mut JoinSet<()>,
) {
    let (config, drain) = (Arc::clone(config), drain.clone());
    tasks.spawn(async move {
        if grpc::serve(listener, edge, &config.server, drain).await == Drained::Cut {
            tracing::warn!("gRPC calls were cut off at the end of the drain");
        }
    });
}

pub(super) fn serve_http(
    config: &Arc<Config>,
    listener: Listener,
    router: Router,
    trails: Trails,
    drain: &Drain,
    tasks: &mut JoinSet<()>,
) {
    let (config, drain) = (Arc::clone(config), drain.clone());
    tasks.spawn(async move {
        let serving = http::serve_trailed(listener, router, trails, &config.server, drain);
        if serving.await == Drained::Cut {
            tracing::warn!("HTTP requests were cut off at the end of the drain");
        }
    });
}
