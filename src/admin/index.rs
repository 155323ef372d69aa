//! `/`: what this process is, and where to look.

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;

use super::site::Frame;
use super::{Pages, Sources, answer};
use crate::ring::{OwnView, RingStatus};
use crate::series::Basis;

#[derive(Serialize, Template)]
#[template(path = "index.html", config = "src/admin/askama.toml")]
struct IndexPage {
    version: &'static str,
    target: String,
    /// Our id in the ring, if we have one.
    instance: Option<String>,
    state: Option<&'static str>,
    pushes: &'static str,
    ring: String,
    members: usize,
    healthy: usize,
    /// Our share of the key space in percent; `None` while it is not known.
    owned_percent: Option<f64>,
    tenants: usize,
    series_in_memory: u64,
    series_owned: u64,
    /// The count that limits act on.
    limited_by: &'static str,
    #[serde(skip)]
    frame: Frame,
    #[serde(skip)]
    is_gossiped: bool,
}

pub(super) async fn show(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    let json = answer::wants_json(&headers);
    let frame = pages.site.frame("/");
    answer::page(pages, move |sources| answer::either(json, &IndexPage::new(sources, frame))).await
}

/// The count that limits act on, in words.
pub(super) fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Owned => "owned",
        Basis::InMemory => "in-memory",
    }
}

/// Whether pushes are taken, in the words of Cortex's service states.
pub(super) fn ingester_state(sources: &Sources) -> &'static str {
    match sources.ingester.is_running() {
        true => "Running",
        false if sources.ingester.is_stopped() => "Stopping",
        false => "Starting",
    }
}

/// How far the ring in force can be trusted.
pub(super) fn ring_status(status: &RingStatus) -> String {
    match status {
        RingStatus::Unread(None) => "not read yet".to_owned(),
        RingStatus::Unread(Some(failing)) => format!("not read yet: {}", failing.error),
        RingStatus::Fresh => "fresh".to_owned(),
        RingStatus::Stale(failing) => format!("stale, the last good one: {}", failing.error),
        RingStatus::Expired(failing) => {
            format!("expired, what we own is unknown: {}", failing.error)
        }
    }
}

impl IndexPage {
    fn new(sources: &Sources, frame: Frame) -> Self {
        let snapshot = sources.ring.load();
        let now = sources.clock.now();
        let status = sources.lifecycler.as_ref().map(|lifecycler| lifecycler.status());
        let series = sources.ingester.totals.count();
        Self {
            version: sources.version,
            target: sources.target.clone(),
            state: status.as_ref().map(|status| status.state.name()),
            instance: snapshot.settings().own_id.clone(),
            pushes: ingester_state(sources),
            ring: ring_status(&sources.ring.status(now.unix_ms)),
            members: snapshot.members().len(),
            healthy: snapshot.healthy_count(),
            owned_percent: match snapshot.own() {
                OwnView::Known(owned) => Some(owned.share * 100.0),
                OwnView::Unknown(_) => None,
            },
            tenants: sources.ingester.tenants.len(),
            series_in_memory: series.in_memory,
            series_owned: series.owned,
            limited_by: basis(sources.ingester.basis()),
            frame,
            is_gossiped: sources.is_gossiped,
        }
    }
}
