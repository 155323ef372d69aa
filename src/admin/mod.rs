//! The pages that operators look at, and the switches they have.
//!
//! One file per page. A page is a struct built from snapshots, shown as HTML by a template or
//! told as JSON to who asks for it; both come from the same struct, so they cannot disagree.
//! Where Cortex has the page, path and JSON are Cortex's, and it is on the HTTP listener too; ours
//! are on the listener for operators alone.
//!
//! What must hold: no page holds a lock that pushes need for longer than a few reads; every text
//! from outside (tenants, instances, addresses, zones) is escaped; pages work without scripts;
//! nothing is changed by a request that another site has made.

pub mod access;
mod answer;
pub mod clients;
pub mod config;
pub mod explain;
pub mod front_door;
pub mod ha_tracker;
pub mod landing;
pub mod memberlist;
mod mode;
pub mod overview;
mod policy;
mod ring;
pub mod services;
mod site;
mod stats;
mod tenants;
pub mod user_overrides;
mod writes;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::get;

use crate::clock::Clock;
use crate::ingester::Ingester;
use crate::ring::Ring;
use crate::ring::lifecycler::LifecyclerHandle;

pub use site::Site;
pub use writes::HEADER as CSRF_HEADER;

/// Largest form that is read: a field or two with an id or a mode.
const FORM_BYTES_MAX: usize = 16 << 10;

/// What pages are made from.
#[derive(Clone)]
pub struct Sources {
    pub ring: Arc<Ring>,
    pub ingester: Arc<Ingester>,
    /// `None` where the ring is only read.
    pub lifecycler: Option<LifecyclerHandle>,
    pub clock: Clock,
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
    site: Site,
}

/// Pages of an ingester that Cortex has too. They belong to the operator, not to a tenant, and
/// ask for no tenant's id.
pub fn ingester_router(sources: &Sources, site: &Site) -> Router {
    let ring = RingSource {
        ring: Arc::clone(&sources.ring),
        lifecycler: sources.lifecycler.clone(),
        clock: sources.clock,
    };
    let pages = Pages { sources: Arc::new(sources.clone()), site: site.clone() };
    site.open("/ingester/all_user_stats");
    Router::new()
        .route("/ingester/all_user_stats", get(stats::show))
        .route("/ingester/mode", get(mode::switch).post(mode::switch).head(mode::refuse))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(pages)
        .merge(ring_router("/ring", ring.clone(), site))
        .merge(ring_router("/ingester/ring", ring, site))
}

/// Pages of an ingester that are ours.
pub fn own_router(sources: Sources, site: &Site) -> Router {
    site.open("/tenants");
    Router::new()
        .route("/tenants", get(tenants::show))
        .route("/tenants/tenant", get(tenants::show_tenant))
        .with_state(Pages { sources: Arc::new(sources), site: site.clone() })
}

/// The pages of one ring, as `/distributor/ring` is of the distributors'.
pub fn ring_router(path: &'static str, source: RingSource, site: &Site) -> Router {
    ring::router(path, source, site)
}
