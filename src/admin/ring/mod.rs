//! The pages of a ring: its members and how evenly they share the keys, one member, and Forget.
//!
//! The same pages stand below the path of each ring that the process knows. All that they link to
//! is relative, so that it holds behind a proxy's prefix. Cortex's own path and form are on both
//! listeners; what is ours below it is on the one for operators.
//!
//! | path | is |
//! |---|---|
//! | `/ring` | the ring drawn, its zones, its members; as JSON Cortex's ring, with `?format=detail` the page's |
//! | `POST /ring` | forgets a member |
//! | `/ring/member?id=` | one member: its ranges, who is next to it, where its writes go |
//! | `/ring/forget?id=` | what forgetting would do, with the button |

mod cortex;
mod drawing;
mod entry;
mod forget;
mod member;
mod page;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::{FORM_BYTES_MAX, RingSource, Site, answer};
use crate::ring::model::InstanceState;
use cortex::CortexRing;
use drawing::Order;
use page::{RingPage, Shown};

/// Shown in place of the state of a member whose heartbeat is too old.
const UNHEALTHY: &str = "Unhealthy";

/// What the handlers of one ring share.
#[derive(Clone)]
pub(super) struct RingPages {
    source: RingSource,
    site: Site,
    path: &'static str,
    whose: Whose,
}

impl RingPages {
    /// Whether members have pages here, and forgetting one.
    fn has_own_pages(&self) -> bool {
        self.site.is_for_operators()
    }

    /// The last part of the ring's path. Links to what is below it begin with it, links back to
    /// the ring end with it, and both hold behind a prefix.
    fn last_part(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Whose ring it is; the pages' words differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Ingesters,
    Distributors,
    QueryFrontends,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RingQuery {
    tokens: String,
    /// `detail` is the page as JSON.
    format: String,
    /// Part of a member's id, zone, state or address.
    find: String,
    /// `keys` or `members`; empty is the one that shows more.
    draw: String,
}

/// The page of one ring, which Cortex has too, and on the listener for operators what is ours
/// below it.
pub(super) fn router(path: &'static str, source: RingSource, site: &Site) -> Router {
    site.open(path);
    let pages = RingPages { source, site: site.clone(), path, whose: Whose::of(path) };
    let mut router = Router::new().route(path, get(show).post(forget::forget));
    if pages.has_own_pages() {
        router = router
            .route(&format!("{path}/member"), get(member::show))
            .route(&format!("{path}/forget"), get(forget::ask));
    }
    router.layer(DefaultBodyLimit::max(FORM_BYTES_MAX)).with_state(pages)
}

async fn show(
    State(pages): State<RingPages>,
    Query(query): Query<RingQuery>,
    headers: HeaderMap,
) -> Response {
    let is_detail = query.format == "detail";
    let is_json = answer::wants_json(&headers);
    let order = match query.draw.as_str() {
        "" => None,
        name => match Order::from_name(name) {
            Some(order) => Some(order),
            None => return answer::error(400, "draw is keys or members"),
        },
    };
    let shown = Shown { order, find: query.find, tokens: query.tokens == "true" };
    answer::made(pages.site.permits(), move || {
        if is_json && !is_detail {
            answer::told(answer::JSON, &CortexRing::new(&pages.source), "")
        } else {
            answer::either(is_detail, &RingPage::new(&pages, shown))
        }
    })
    .await
}

/// A state as Cortex's page shows it.
fn shown_state(is_fresh: bool, state: InstanceState) -> &'static str {
    if is_fresh { state.name() } else { UNHEALTHY }
}

impl Whose {
    fn of(path: &str) -> Self {
        if path.starts_with("/distributor") {
            Self::Distributors
        } else if path.starts_with("/query-frontend") {
            Self::QueryFrontends
        } else {
            Self::Ingesters
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Ingesters => "Ring of ingesters",
            Self::Distributors => "Ring of distributors",
            Self::QueryFrontends => "Ring of query gates",
        }
    }

    /// What its members do with their keys, for who is about to take one out.
    fn loss(self) -> &'static str {
        match self {
            Self::Ingesters => {
                "Writes stop going to it and queries stop asking it: samples that only it holds \
                 are missing from answers until it is back or has shipped its blocks."
            }
            Self::Distributors => {
                "The budgets that it keeps are kept by the members that follow it, which learn \
                 what is spent of them from the others; rates that are divided by the number of \
                 members are divided by one less."
            }
            Self::QueryFrontends => {
                "The budgets of queries that it keeps are kept by the members that follow it, \
                 which learn what is spent of them from the others."
            }
        }
    }
}
