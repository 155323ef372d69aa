//! Tracing, where it is on: the way to the collector, and the task that goes it.

use std::time::Duration;

use prometheus::Registry;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::AppError;
use crate::clock::Clock;
use crate::config::Config;
use crate::exposition::{AtScrape, Families};
use crate::ring::lifecycler;
use crate::server::drain::Drain;
use crate::server::durations::Durations;
use crate::server::front_door::Routes;
use crate::server::trails::Trails;
use crate::tls::{self, RELOAD_PERIOD};
use crate::trail::config::TracingKind;
use crate::trail::{Exporter, Origin, Sampling, Tracer};
use crate::upstream::Upstream;

/// How long spans may still be sent when all requests are over.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// What begins spans; it begins none while tracing is off.
pub(super) fn start(
    config: &Config,
    clock: Clock,
    registry: &Registry,
    tasks: &mut JoinSet<()>,
    drain: &Drain,
) -> Result<Tracer, AppError> {
    let tracing = &config.tracing;
    if tracing.kind == TracingKind::Jaeger {
        tracing::info!(
            "-tracing.type=jaeger is taken for off: spans go out over OTLP, which Jaeger takes \
             (-tracing.type=otel, -tracing.otel.otlp-endpoint)"
        );
    }
    if !tracing.is_on() {
        return Ok(Tracer::default());
    }
    let otel = &tracing.otel;
    let tls = match otel.tls_enabled {
        false => None,
        true => Some(
            tls::client("tracing", &otel.client_tls(), &["h2"]).map_err(AppError::CollectorTls)?,
        ),
    };
    if let Some(followed) = tls.clone() {
        let mut drain = drain.clone();
        tasks.spawn(async move { followed.follow(RELOAD_PERIOD, drain.started()).await });
    }
    let upstream = Upstream::with_tls(&otel.upstream(), tls).map_err(AppError::Collector)?;
    let origin = Origin {
        service: format!("freehold-{}", String::from(config.target)),
        instance: lifecycler::settings(&config.ingester.lifecycler, 0).id,
        version: env!("CARGO_PKG_VERSION"),
    };
    let sampling = Sampling::of_ratio(otel.sample_ratio);
    let (tracer, exporter) = Exporter::new(upstream, origin, sampling, clock);
    let (counts, queued) = exporter.shown();
    let read = move |families: &mut Families| counts.read_metrics(&queued, families);
    registry.register(Box::new(AtScrape::new("trace_families", read)))?;
    let grace = config.server.graceful_shutdown_timeout.as_duration();
    let (mut ending, mut over) = (drain.clone(), drain.clone());
    tasks.spawn(async move {
        // It ends with the last tracer. Whatever keeps one for longer does not keep the process.
        tokio::select! {
            () = exporter.run(async move { ending.started().await }) => {}
            () = async move { over.started().await; sleep(grace + FLUSH_MAX).await } => {}
        }
    });
    Ok(tracer)
}

/// The trails of requests over HTTP.
pub(super) fn over_http(config: &Config, tracer: Tracer, durations: Durations) -> Trails {
    Trails::new(tracer, Routes::new(config.frontend.prefixes())).with_durations(durations)
}

/// The trails of operators' requests, which are neither traced nor measured.
pub(super) fn of_operators(config: &Config) -> Trails {
    Trails::new(Tracer::default(), Routes::new(config.frontend.prefixes()))
}
