//! `/` of a gate, which keeps no series: what this process is, and where to look.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

use super::answer;

#[derive(Clone, Serialize, Template)]
#[template(path = "gate_index.html", config = "src/admin/askama.toml")]
struct GateIndexPage {
    version: &'static str,
    target: String,
    pages: Vec<Link>,
}

#[derive(Clone, Serialize)]
struct Link {
    path: &'static str,
    shows: &'static str,
}

/// A page that this process has, and what it shows.
pub type Listed = (&'static str, &'static str);

/// `target` is the value of `-target`.
pub fn router(target: String, version: &'static str, pages: &[Listed]) -> Router {
    let pages = pages.iter().map(|(path, shows)| Link { path, shows }).collect();
    Router::new().route("/", get(show)).with_state(Arc::new(GateIndexPage {
        version,
        target,
        pages,
    }))
}

async fn show(State(page): State<Arc<GateIndexPage>>, headers: HeaderMap) -> Response {
    answer::either(answer::wants_json(&headers), &*page)
}
