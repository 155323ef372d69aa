//! `/tenants`: each tenant's counts, the limit that acts on them, and when they meet it.
//!
//! The page for the question "who is near a limit, or at it?". `tenant.rs` is the page of one.

mod row;
mod tenant;
mod trend;
mod what_if;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::answer::in_query;
use super::site::Frame;
use super::{Pages, Sources, answer};
use crate::ingester::listing::{TenantOrder, TenantPage, Wanted};

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
    sort: TenantOrder,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct TenantsQuery {
    /// Part of a name; empty lets every tenant through.
    tenant: String,
    sort: TenantOrder,
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
        let ingester = &sources.ingester;
        let TenantsQuery { tenant: filter, sort, page } = query;
        let wanted = Wanted { name_part: &filter, order: sort, page, page_len: ROWS_MAX };
        let TenantPage { tenants, page, pages, matching, total } =
            ingester.tenant_page(wanted, sources.clock.now());
        Self {
            frame,
            tenants: tenants.iter().map(|(view, trend)| Row::new(view, trend)).collect(),
            matching,
            total,
            page,
            pages,
            limited_by: ingester.basis().label(),
            filter,
            sort,
        }
    }

    /// The query of this page under another order, from its start.
    fn sorted_by(&self, sort: &TenantOrder) -> String {
        self.query(*sort, 1)
    }

    fn previous(&self) -> Option<String> {
        (self.page > 1).then(|| self.query(self.sort, self.page - 1))
    }

    fn next(&self) -> Option<String> {
        (self.page < self.pages).then(|| self.query(self.sort, self.page + 1))
    }

    fn query(&self, sort: TenantOrder, page: usize) -> String {
        format!("?tenant={}&sort={}&page={page}", in_query(&self.filter), sort.name())
    }
}

impl Row {
    /// Where the tenant's own page is. Any name fits a query.
    fn link(&self) -> String {
        format!("/tenants/tenant?id={}", in_query(&self.tenant))
    }
}

/// Orders and their headings, as the columns stand.
const ORDERS: [(TenantOrder, &str); 8] = [
    (TenantOrder::Tenant, "Tenant"),
    (TenantOrder::Used, "Used"),
    (TenantOrder::TimeToLimit, "Time to limit"),
    (TenantOrder::Headroom, "Headroom"),
    (TenantOrder::Owned, "Owned"),
    (TenantOrder::InMemory, "In-memory"),
    (TenantOrder::Active, "Active"),
    (TenantOrder::Refused, "Refused"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingester::views::TenantView;
    use crate::series::{Basis, Counts, InForce};
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
    fn links_name_orders_as_queries_do() {
        for (order, _) in ORDERS {
            let read: TenantOrder = serde_json::from_value(order.name().into()).expect("known");
            assert_eq!(read, order);
        }
    }
}
