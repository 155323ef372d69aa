//! `/tenants`: each tenant's counts, the limit that acts on them, and why it is that number.
//!
//! The page for the question "why was this series refused?", or why it was not.

use std::cmp::Reverse;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::site::Frame;
use super::{Pages, Sources, answer, index};
use crate::ingester::views::TenantView;
use crate::series::InForce;

/// Most tenants of one page, as HTML or JSON; the rest is on the following ones.
const ROWS_MAX: usize = 500;

#[derive(Serialize, Template)]
#[template(path = "tenants.html", config = "src/admin/askama.toml")]
struct TenantsPage {
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
    frame: Frame,
    #[serde(skip)]
    filter: String,
    #[serde(skip)]
    sort: Sort,
}

#[derive(Serialize)]
struct Row {
    tenant: String,
    in_memory: u64,
    active: u64,
    owned: u64,
    /// `None` where there is none.
    limit: Option<u64>,
    /// Series that may still come; negative after an operator's cut.
    headroom: Option<i64>,
    /// What gave the limit its number.
    in_force: &'static str,
    why: String,
    /// Why we do not know which series are ours.
    ownership_unknown: Option<String>,
    /// Our share of the tenant's key space; the shares of all instances sum to the replicas.
    share: f64,
    global_limit: i64,
    local_limit: i64,
    instances: usize,
    native_histograms: NativeHistograms,
    created_total: u64,
    created_not_owned_total: u64,
    removed_total: u64,
    refused_samples_total: u64,
}

#[derive(Serialize)]
struct NativeHistograms {
    in_memory: u64,
    active: u64,
    owned: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Tenant,
    InMemory,
    Active,
    Owned,
    /// Least first, tenants without a limit last.
    Headroom,
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
        let mut views = sources.ingester.tenant_views(sources.clock.now());
        let total = views.len();
        views.retain(|view| view.tenant.as_str().contains(&query.tenant));
        query.sort.apply(&mut views);
        let matching = views.len();
        let pages = matching.div_ceil(ROWS_MAX).max(1);
        let page = query.page.clamp(1, pages);
        let shown = views.iter().skip((page - 1) * ROWS_MAX).take(ROWS_MAX);
        Self {
            tenants: shown.map(Row::new).collect(),
            matching,
            total,
            page,
            pages,
            limited_by: index::basis(sources.ingester.basis()),
            frame,
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
        format!("?tenant={}&sort={}&page={page}", answer::in_query(&self.filter), sort.name())
    }
}

impl Sort {
    /// Names and headings, in the order of the columns.
    const ALL: [(Self, &'static str); 6] = [
        (Self::Tenant, "Tenant"),
        (Self::InMemory, "In-memory"),
        (Self::Active, "Active"),
        (Self::Owned, "Owned"),
        (Self::Headroom, "Headroom"),
        (Self::Refused, "Refused"),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::InMemory => "in_memory",
            Self::Active => "active",
            Self::Owned => "owned",
            Self::Headroom => "headroom",
            Self::Refused => "refused",
        }
    }

    /// Views come by name, and equals keep that order.
    fn apply(self, views: &mut [TenantView]) {
        match self {
            Self::Tenant => {}
            Self::InMemory => views.sort_by_key(|view| Reverse(view.counts.series.in_memory)),
            Self::Active => views.sort_by_key(|view| Reverse(view.counts.active)),
            Self::Owned => views.sort_by_key(|view| Reverse(view.counts.series.owned)),
            Self::Headroom => views.sort_by_key(|view| view.headroom().unwrap_or(i64::MAX)),
            Self::Refused => views.sort_by_key(|view| Reverse(view.refused_samples_total)),
        }
    }
}

impl Row {
    fn new(view: &TenantView) -> Self {
        let counts = &view.counts;
        Self {
            tenant: view.tenant.to_string(),
            in_memory: counts.series.in_memory,
            active: counts.active,
            owned: counts.series.owned,
            limit: view.limit,
            headroom: view.headroom(),
            in_force: match (view.limit, view.in_force) {
                (None, _) => "none",
                (_, InForce::Flat) => "flat",
                (_, InForce::Share) => "share",
                (_, InForce::Held) => "held",
            },
            why: why(view),
            ownership_unknown: view.unknown.map(|unknown| unknown.to_string()),
            share: view.share,
            global_limit: view.global_limit,
            local_limit: view.local_limit,
            instances: view.instances,
            native_histograms: NativeHistograms {
                in_memory: counts.native_histogram.in_memory,
                active: counts.active_native_histogram,
                owned: counts.native_histogram.owned,
            },
            created_total: counts.created_total,
            created_not_owned_total: counts.created_not_owned_total,
            removed_total: counts.removed_total,
            refused_samples_total: view.refused_samples_total,
        }
    }
}

/// Why the limit in force is that number, in one sentence.
fn why(view: &TenantView) -> String {
    let Some(limit) = view.limit else {
        return "no limit applies".to_owned();
    };
    let global = view.global_limit;
    let is_local = i64::try_from(limit).is_ok_and(|limit| limit == view.local_limit);
    let reason = match view.in_force {
        InForce::Held => {
            "held from before the ring changed, until the series are counted again".to_owned()
        }
        _ if is_local || global <= 0 => "set for each instance (max_series_per_user)".to_owned(),
        InForce::Share => format!("{global} for the cluster, {:.4} of it ours", view.share),
        InForce::Flat => format!(
            "{global} for the cluster, by {} instances with {} replicas",
            view.instances, view.replication_factor
        ),
    };
    match &view.unknown {
        Some(unknown) => format!("{reason}; every series counts as owned: {unknown}"),
        None => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingester::standing::Unknown;
    use crate::ring::UnknownOwnership;
    use crate::series::{Basis, Counts};
    use crate::tenant::TenantId;

    fn view(limit: Option<u64>, in_force: InForce) -> TenantView {
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
    fn the_reason_of_a_limit_is_told_in_a_sentence() {
        let check = |view: TenantView, expect: &str| assert_eq!(why(&view), expect);
        check(view(None, InForce::Flat), "no limit applies");
        check(
            view(Some(4500), InForce::Flat),
            "9000 for the cluster, by 6 instances with 3 replicas",
        );
        check(view(Some(4500), InForce::Share), "9000 for the cluster, 0.5000 of it ours");
        check(view(Some(5000), InForce::Flat), "set for each instance (max_series_per_user)");
        check(
            view(Some(4500), InForce::Held),
            "held from before the ring changed, until the series are counted again",
        );
        let unknown = Some(Unknown::Ring(UnknownOwnership::NotInRing));
        let text = why(&TenantView { unknown, ..view(Some(4500), InForce::Flat) });
        assert!(text.contains("; every series counts as owned: "), "{text}");
    }

    #[test]
    fn orders_put_what_needs_a_look_first() {
        let mut views = vec![
            view(None, InForce::Flat),
            view(Some(9), InForce::Flat),
            view(Some(3), InForce::Flat),
        ];
        Sort::Headroom.apply(&mut views);
        let limits: Vec<_> = views.iter().map(|view| view.limit).collect();
        assert_eq!(limits, [Some(3), Some(9), None]);
        for (sort, _) in Sort::ALL {
            let read: Sort = serde_json::from_value(sort.name().into()).expect("a known name");
            assert_eq!(read, sort, "links name orders as queries do");
        }
    }
}
