//! `/` where the pages for operators are not: what this process is, and where to look.

use std::net::SocketAddr;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

use super::answer;
use super::site::{Frame, Site};

#[derive(Serialize, Template)]
#[template(path = "landing.html", config = "src/admin/askama.toml")]
struct LandingPage {
    #[serde(skip)]
    frame: Frame,
    version: &'static str,
    target: String,
    /// Where all pages are, if they are anywhere.
    admin_address: Option<SocketAddr>,
    pages: Vec<Link>,
}

#[derive(Serialize)]
struct Link {
    path: &'static str,
    shows: &'static str,
}

#[derive(Clone)]
struct Landing {
    target: String,
    admin_address: Option<SocketAddr>,
    site: Site,
}

/// `target` is the value of `-target`.
pub fn router(target: String, admin_address: Option<SocketAddr>, site: &Site) -> Router {
    site.open("/");
    let landing = Landing { target, admin_address, site: site.clone() };
    Router::new().route("/", get(show)).with_state(landing)
}

async fn show(State(landing): State<Landing>, headers: HeaderMap) -> Response {
    let frame = landing.site.frame("/");
    let others = frame.places().iter().filter(|place| !place.is_here);
    let pages = others.map(|place| Link { path: place.path, shows: place.words }).collect();
    let page = LandingPage {
        version: frame.version(),
        target: landing.target,
        admin_address: landing.admin_address,
        pages,
        frame,
    };
    answer::either(answer::wants_json(&headers), &page)
}
