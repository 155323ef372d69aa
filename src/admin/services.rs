//! `/services`: what runs in this process and how it is, under Cortex's names.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

use super::answer;
use super::overview::words;
use super::site::{Frame, Site};
use crate::clock::{Clock, Now};
use crate::ingester::Ingester;
use crate::ring::{Ring, RingStatus};

const PATH: &str = "/services";

/// How a service is, in the words of Cortex's service states.
pub type ReadService = dyn Fn(Now) -> &'static str + Send + Sync;

/// What the page is made from.
pub struct ServicesSource {
    /// By their names, which are Cortex's.
    pub services: Vec<(&'static str, Arc<ReadService>)>,
    pub clock: Clock,
}

#[derive(Default, Serialize, Template)]
#[template(path = "services.html", config = "src/admin/askama.toml")]
pub(super) struct ServicesPage {
    #[serde(skip)]
    frame: Frame,
    services: Vec<Service>,
}

#[derive(Serialize)]
struct Service {
    name: &'static str,
    status: &'static str,
}

pub fn router(source: Arc<ServicesSource>, site: &Site) -> Router {
    site.open(PATH);
    Router::new().route(PATH, get(show)).with_state((source, site.clone()))
}

async fn show(
    State((source, site)): State<(Arc<ServicesSource>, Site)>,
    headers: HeaderMap,
) -> Response {
    let json = answer::wants_json(&headers);
    let frame = site.frame(PATH);
    let make = move || {
        let now = source.clock.now();
        let services = source.services.iter();
        let services = services.map(|(name, read)| Service { name, status: read(now) }).collect();
        answer::either(json, &ServicesPage { frame, services })
    };
    answer::made(site.permits(), make).await
}

/// One that runs for as long as it answers.
pub fn running() -> Arc<ReadService> {
    Arc::new(|_| "Running")
}

/// A ring that is followed.
pub fn of_ring(ring: &Arc<Ring>) -> Arc<ReadService> {
    let ring = Arc::clone(ring);
    Arc::new(move |now| match ring.status(now.unix_ms) {
        RingStatus::Unread(_) => "Starting",
        RingStatus::Fresh | RingStatus::Stale(_) => "Running",
        RingStatus::Expired(_) => "Failed",
    })
}

pub fn of_ingester(ingester: &Arc<Ingester>) -> Arc<ReadService> {
    let ingester = Arc::clone(ingester);
    Arc::new(move |_| words::ingester_state(&ingester))
}
