//! The pages that operators look at, and the two switches they have.
//!
//! One file per page. A page is a struct built from snapshots, shown as HTML by a template or
//! told as JSON to who asks for it; both come from the same struct, so they cannot disagree.
//! Where Cortex has the page, path and JSON are Cortex's.
//!
//! What must hold: no page holds a lock that pushes need for longer than a few reads; every text
//! from outside (tenants, instances, addresses, zones) is escaped; pages work without scripts.

mod answer;
pub mod clients;
pub mod gate_index;
pub mod ha_tracker;
mod index;
pub mod memberlist;
mod mode;
mod ring;
mod services;
mod stats;
mod tenants;
pub mod user_overrides;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::ingester::Ingester;
use crate::ring::Ring;
use crate::ring::lifecycler::LifecyclerHandle;

/// Largest form that is read: a field or two with an id or a mode.
const FORM_BYTES_MAX: usize = 16 << 10;
/// Pages made at once. A page of 600 members with their tokens takes some milliseconds and
/// megabytes, and operators are few; the rest waits in line.
const PAGES_AT_ONCE_MAX: usize = 4;

/// What pages are made from.
#[derive(Clone)]
pub struct Sources {
    pub ring: Arc<Ring>,
    pub ingester: Arc<Ingester>,
    /// `None` where the ring is only read.
    pub lifecycler: Option<LifecyclerHandle>,
    pub clock: Clock,
    /// Which services run in this process: the value of `-target`.
    pub target: String,
    pub version: &'static str,
    /// A store of this process is on gossip, which has a page.
    pub is_gossiped: bool,
}

/// What the page of a ring is made from.
#[derive(Clone)]
pub struct RingSource {
    pub ring: Arc<Ring>,
    /// `None` where the ring is only read.
    pub lifecycler: Option<LifecyclerHandle>,
    pub clock: Clock,
}

/// What handlers share.
#[derive(Clone)]
struct Pages {
    sources: Arc<Sources>,
    permits: Arc<Semaphore>,
}

/// All pages. They belong to the operator, not to a tenant, and ask for no tenant's id.
pub fn router(sources: Sources) -> Router {
    let permits = Arc::new(Semaphore::new(PAGES_AT_ONCE_MAX));
    let ring = RingSource {
        ring: Arc::clone(&sources.ring),
        lifecycler: sources.lifecycler.clone(),
        clock: sources.clock,
    };
    let rings = ring_routes(&["/ring", "/ingester/ring"], ring, Arc::clone(&permits));
    let pages = Pages { sources: Arc::new(sources), permits };
    Router::new()
        .route("/", get(index::show))
        .route("/ingester/all_user_stats", get(stats::show))
        .route("/ingester/mode", get(mode::switch).post(mode::switch))
        .route("/services", get(services::show))
        .route("/tenants", get(tenants::show))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(pages)
        .merge(rings)
}

/// The page of one ring alone, as `/distributor/ring` is of the distributors'.
pub fn ring_router(path: &str, source: RingSource) -> Router {
    ring_routes(&[path], source, Arc::new(Semaphore::new(PAGES_AT_ONCE_MAX)))
}

fn ring_routes(paths: &[&str], source: RingSource, permits: Arc<Semaphore>) -> Router {
    let mut router = Router::new();
    for path in paths {
        router = router.route(path, get(ring::show).post(ring::forget));
    }
    router
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(ring::RingPages { source, permits })
}
