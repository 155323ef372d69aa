//! `/`: how every part of this process is and since when, what is refused now and why, and where
//! to look further.
//!
//! A page has to be right when nothing else is, so it waits for nobody: each part is read from
//! what its room keeps anyway, by a closure that the app hands in. Which parts there are depends
//! on what the process runs, and so does the list of pages.

pub mod reasons;
pub mod refusals;
pub mod role;
pub mod roles;
pub mod words;

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

use super::answer;
use super::site::{Frame, Site};
use crate::clock::{Clock, Now};
use crate::ingester::Ingester;
use crate::ring::OwnView;
use crate::ring::lifecycler::LifecyclerHandle;
use refusals::{RefusalSource, Refusals, RefusedNow};
use role::{ReadRole, RoleView, Roles, State};

/// A page that this process has, and what it shows.
pub type Listed = (&'static str, &'static str);

/// What the page is made from.
pub struct Parts {
    /// Which services run in this process: the value of `-target`.
    pub target: String,
    pub version: &'static str,
    pub roles: Vec<Arc<ReadRole>>,
    pub refusals: Vec<RefusalSource>,
    pub pages: Vec<Listed>,
    /// `None` where no series are kept.
    pub ingester: Option<IngesterSource>,
    pub clock: Clock,
}

/// Where series are kept.
pub struct IngesterSource {
    pub ingester: Arc<Ingester>,
    /// `None` where the ring is only read.
    pub lifecycler: Option<LifecyclerHandle>,
}

/// The parts of a process, looked at from its start on. Cheap to clone.
#[derive(Clone)]
pub struct Overview(Arc<Inner>);

struct Inner {
    target: String,
    version: &'static str,
    roles: Roles,
    refusals: Refusals,
    pages: Vec<Link>,
    ingester: Option<IngesterSource>,
    clock: Clock,
}

#[derive(Serialize, Template)]
#[template(path = "overview.html", config = "src/admin/askama.toml")]
struct OverviewPage {
    #[serde(skip)]
    frame: Frame,
    version: &'static str,
    target: String,
    /// The worst of all parts.
    health: State,
    roles: Vec<RoleView>,
    refused: RefusedNow,
    #[serde(flatten)]
    figures: Option<Figures>,
    pages: Vec<Link>,
}

#[derive(Clone, Serialize)]
struct Link {
    path: &'static str,
    shows: &'static str,
}

/// Of an ingester, in numbers.
#[derive(Serialize)]
struct Figures {
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
}

impl Overview {
    pub fn new(parts: Parts) -> Self {
        let Parts { target, version, roles, refusals, pages, ingester, clock } = parts;
        let now = clock.now();
        let overview = Self(Arc::new(Inner {
            target,
            version,
            roles: Roles::new(roles),
            refusals: Refusals::new(refusals, now),
            pages: pages.into_iter().map(|(path, shows)| Link { path, shows }).collect(),
            ingester,
            clock,
        }));
        overview.0.roles.look(now);
        overview
    }

    /// To be called every [`refusals::SLOT_MS`]; it takes some milliseconds with many tenants, so
    /// not on a thread of the runtime.
    pub fn look(&self) {
        let now = self.0.clock.now();
        self.0.roles.look(now);
        self.0.refusals.look(now);
    }

    pub fn router(&self, site: &Site) -> Router {
        site.open("/");
        Router::new().route("/", get(show)).with_state((self.clone(), site.clone()))
    }
}

async fn show(Shared((overview, site)): Shared<(Overview, Site)>, headers: HeaderMap) -> Response {
    let json = answer::wants_json(&headers);
    let frame = site.frame("/");
    let make = move || answer::either(json, &OverviewPage::new(&overview.0, frame));
    answer::made(site.permits(), make).await
}

impl OverviewPage {
    fn new(inner: &Inner, frame: Frame) -> Self {
        let now = inner.clock.now();
        let roles = inner.roles.look(now);
        Self {
            frame,
            version: inner.version,
            target: inner.target.clone(),
            health: roles.iter().map(|role| role.state).max().unwrap_or_default(),
            roles,
            refused: inner.refusals.now(now),
            figures: inner.ingester.as_ref().map(|source| Figures::new(source, now)),
            pages: inner.pages.clone(),
        }
    }

    /// Parts that are not well.
    fn unwell(&self) -> Vec<&str> {
        let unwell = self.roles.iter().filter(|role| role.state != State::Good);
        unwell.map(|role| role.name).collect()
    }

    fn refused_per_second(&self) -> String {
        per_second(self.refused.reasons.iter().map(|reason| reason.per_second).sum())
    }
}

impl Figures {
    fn new(source: &IngesterSource, now: Now) -> Self {
        let ingester = &source.ingester;
        let snapshot = ingester.ring.load();
        let status = source.lifecycler.as_ref().map(|lifecycler| lifecycler.status());
        let series = ingester.totals.count();
        Self {
            state: status.as_ref().map(|status| status.state.name()),
            instance: snapshot.settings().own_id.clone(),
            pushes: words::ingester_state(ingester),
            ring: words::ring_status(&ingester.ring.status(now.unix_ms)),
            members: snapshot.members().len(),
            healthy: snapshot.healthy_count(),
            owned_percent: match snapshot.own() {
                OwnView::Known(owned) => Some(owned.share * 100.0),
                OwnView::Unknown(_) => None,
            },
            tenants: ingester.tenants.len(),
            series_in_memory: series.in_memory,
            series_owned: series.owned,
            limited_by: words::basis(ingester.basis()),
        }
    }
}

impl refusals::RefusedReason {
    fn rate(&self) -> String {
        per_second(self.per_second)
    }
}

impl refusals::RefusedTenant {
    fn rate(&self) -> String {
        per_second(self.per_second)
    }

    /// Its place among the pages of who refuses.
    fn link(&self, page: &str) -> String {
        format!("{page}{}", answer::in_query(&self.tenant))
    }
}

/// A rate with as many digits as tell something.
fn per_second(rate: f64) -> String {
    match rate {
        rate if rate >= 100.0 => format!("{rate:.0}"),
        rate if rate >= 1.0 => format!("{rate:.1}"),
        rate => format!("{rate:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_as_many_digits_as_tell_something() {
        let check = |rate, expect: &str| assert_eq!(per_second(rate), expect);
        check(0.0, "0.00");
        check(0.016, "0.02");
        check(1.25, "1.2");
        check(99.94, "99.9");
        check(12_345.6, "12346");
    }
}
