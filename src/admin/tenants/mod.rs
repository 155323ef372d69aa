//! `/tenants`: each tenant's counts, the limit that acts on them, and when they meet it.
//!
//! The page for the question "who is near a limit, or at it?". `tenant.rs` is the page of one.

mod row;
mod tenant;
mod trend;
mod what_if;

use std::cmp::Reverse;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::answer::in_query;
use super::site::Frame;
use super::{Pages, Sources, answer};
use crate::clock::Now;
use crate::ingester::Ingester;
use crate::ingester::views::TenantView;

use row::Row;

pub(super) use tenant::show as show_tenant;

/// Most tenants of one page, as HTML or JSON; the rest is on the following ones.
const ROWS_MAX: usize = 500;

#[derive(Serialize, Template)]
#[template(path = "tenants.html", config = "src/admin/askama.toml")]
struct TenantsPage {
    #[serde(skip)]
    frame: Frame,
    tenants: Vec<Row>,
    /// Tenants that the filter lets through, on all pages.
    matching: usize,
    /// Tenants in memory.
    total: usize,
    page: usize,
    pages: usize,
    /// The count that limits act on.
    limited_by: &'static str,
    #[serde(skip)]
    filter: String,
    #[serde(skip)]
    sort: Sort,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Tenant,
    InMemory,
    Active,
    Owned,
    Headroom,
    Used,
    TimeToLimit,
    Refused,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct TenantsQuery {
    /// Part of a name; empty lets every tenant through.
    tenant: String,
    sort: Sort,
    /// From 1.
    page: usize,
}

pub(super) async fn show(
    State(pages): State<Pages>,
    Query(query): Query<TenantsQuery>,
    headers: HeaderMap,
) -> Response {
    let json = answer::wants_json(&headers);
    let frame = pages.site.frame("/tenants");
    let make =
        move |sources: &Sources| answer::either(json, &TenantsPage::new(sources, query, frame));
    answer::page(pages, make).await
}

impl TenantsPage {
    fn new(sources: &Sources, query: TenantsQuery, frame: Frame) -> Self {
        let now = sources.clock.now();
        let ingester = &sources.ingester;
        let mut views = ingester.tenant_views(now);
        let total = views.len();
        views.retain(|view| view.tenant.as_str().contains(&query.tenant));
        query.sort.apply(&mut views, ingester, now);
        let matching = views.len();
        let pages = matching.div_ceil(ROWS_MAX).max(1);
        let page = query.page.clamp(1, pages);
        let shown = views.iter().skip((page - 1) * ROWS_MAX).take(ROWS_MAX);
        Self {
            frame,
            tenants: shown.map(|view| Row::new(view, &ingester.trend(view, now))).collect(),
            matching,
            total,
            page,
            pages,
            limited_by: ingester.basis().label(),
            filter: query.tenant,
            sort: query.sort,
        }
    }

    /// The query of this page under another order, from its start.
    fn sorted_by(&self, sort: &Sort) -> String {
        self.query(*sort, 1)
    }

    fn previous(&self) -> Option<String> {
        (self.page > 1).then(|| self.query(self.sort, self.page - 1))
    }

    fn next(&self) -> Option<String> {
        (self.page < self.pages).then(|| self.query(self.sort, self.page + 1))
    }

    fn query(&self, sort: Sort, page: usize) -> String {
        format!("?tenant={}&sort={}&page={page}", in_query(&self.filter), sort.name())
    }
}

impl Row {
    /// Where the tenant's own page is. Any name fits a query.
    fn link(&self) -> String {
        format!("/tenants/tenant?id={}", in_query(&self.tenant))
    }
}

impl Sort {
    /// Names and headings, in the order of the columns.
    const ALL: [(Self, &'static str); 8] = [
        (Self::Tenant, "Tenant"),
        (Self::Used, "Used"),
        (Self::TimeToLimit, "Time to limit"),
        (Self::Headroom, "Headroom"),
        (Self::Owned, "Owned"),
        (Self::InMemory, "In-memory"),
        (Self::Active, "Active"),
        (Self::Refused, "Refused"),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::InMemory => "in_memory",
            Self::Active => "active",
            Self::Owned => "owned",
            Self::Headroom => "headroom",
            Self::Used => "used",
            Self::TimeToLimit => "time_to_limit",
            Self::Refused => "refused",
        }
    }

    /// Views come by name, and equals keep that order.
    fn apply(self, views: &mut [TenantView], ingester: &Ingester, now: Now) {
        match self {
            Self::Tenant => {}
            Self::InMemory => views.sort_by_key(|view| Reverse(view.counts.series.in_memory)),
            Self::Active => views.sort_by_key(|view| Reverse(view.counts.active)),
            Self::Owned => views.sort_by_key(|view| Reverse(view.counts.series.owned)),
            Self::Headroom => views.sort_by_key(|view| view.headroom().unwrap_or(i64::MAX)),
            Self::Used => views.sort_by(|a, b| used_share(b).total_cmp(&used_share(a))),
            // The only order that needs every tenant's slope, each worked out once.
            Self::TimeToLimit => {
                views.sort_by_cached_key(|view| ingester.to_limit(view, now));
            }
            Self::Refused => views.sort_by_key(|view| Reverse(view.refused_samples_total)),
        }
    }
}

/// The part of its limit that a tenant uses; below all where there is no limit.
fn used_share(view: &TenantView) -> f64 {
    match view.limit {
        Some(0) => f64::INFINITY,
        Some(limit) => view.used() as f64 / limit as f64,
        None => -1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{Basis, Count, Counts, InForce};
    use crate::tenant::TenantId;

    pub(super) fn view(limit: Option<u64>, in_force: InForce) -> TenantView {
        TenantView {
            tenant: TenantId::parse("a").expect("a tenant"),
            counts: Counts::default(),
            basis: Basis::Owned,
            limit,
            in_force,
            global_limit: 9000,
            local_limit: 5000,
            refused_samples_total: 0,
            instances: 6,
            replication_factor: 3,
            share: 0.5,
            unknown: None,
        }
    }

    #[test]
    fn those_that_use_most_of_their_limit_come_first() {
        let used = |limit, owned| {
            let mut view = view(limit, InForce::Flat);
            view.counts.series = Count { in_memory: owned, owned };
            view
        };
        let mut views = [used(None, 900), used(Some(100), 50), used(Some(10), 9), used(Some(0), 0)];
        views.sort_by(|a, b| used_share(b).total_cmp(&used_share(a)));
        let limits: Vec<_> = views.iter().map(|view| view.limit).collect();
        assert_eq!(limits, [Some(0), Some(10), Some(100), None]);
    }

    #[test]
    fn links_name_orders_as_queries_do() {
        for (sort, _) in Sort::ALL {
            let read: Sort = serde_json::from_value(sort.name().into()).expect("a known name");
            assert_eq!(read, sort);
        }
    }
}
