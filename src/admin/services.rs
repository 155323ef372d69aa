//! `/services`: what runs in this process and how it is, under Cortex's names.

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;

use super::{Pages, Sources, answer, index};
use crate::ring::RingStatus;

#[derive(Serialize, Template)]
#[template(path = "services.html", config = "src/admin/askama.toml")]
struct ServicesPage {
    services: Vec<Service>,
}

#[derive(Serialize)]
struct Service {
    name: &'static str,
    status: &'static str,
}

pub(super) async fn show(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    let json = answer::wants_json(&headers);
    answer::page(pages, move |sources| answer::either(json, &ServicesPage::new(sources))).await
}

impl ServicesPage {
    fn new(sources: &Sources) -> Self {
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
        Self { services }
    }
}
