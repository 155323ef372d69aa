//! `/services`: what runs in this process and how it is, under Cortex's names.

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;

use super::site::Frame;
use super::{Pages, Sources, answer, index};
use crate::ring::RingStatus;

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

pub(super) async fn show(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    let json = answer::wants_json(&headers);
    let frame = pages.site.frame("/services");
    let make = move |sources: &Sources| answer::either(json, &ServicesPage::new(sources, frame));
    answer::page(pages, make).await
}

impl ServicesPage {
    fn new(sources: &Sources, frame: Frame) -> Self {
        let ring = match sources.ring.status(sources.clock.now().unix_ms) {
            RingStatus::Unread(_) => "Starting",
            RingStatus::Fresh | RingStatus::Stale(_) => "Running",
            RingStatus::Expired(_) => "Failed",
        };
        let services = vec![
            Service { name: "ingester-service", status: index::ingester_state(sources) },
            Service { name: "ring", status: ring },
            // It has answered this.
            Service { name: "server", status: "Running" },
        ];
        Self { frame, services }
    }
}
