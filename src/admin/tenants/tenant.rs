//! `/tenants/tenant?id=…`: all that is known here of one tenant, and what would be if.
//!
//! The page for the question "why was this series refused?", or why it was not.

mod limits;
mod refusals;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::row::Row;
use super::trend::Chart;
use super::what_if::WhatIfView;
use crate::admin::site::Frame;
use crate::admin::{Pages, Sources, answer};
use crate::go_text::Rfc3339Ms;
use crate::ingester::detail::{LabelSetsUse, TenantDetail, Upstream};
use crate::ingester::recounts::{RecountPass, RecountReason, Recounted};
use crate::series::{Basis, Largest};
use crate::tenant::TenantId;

use limits::{LimitRow, ToldRow};
use refusals::RefusedRow;

#[derive(Serialize, Template)]
#[template(path = "tenant.html", config = "src/admin/askama.toml")]
struct TenantPage {
    #[serde(skip)]
    frame: Frame,
    tenant: String,
    /// Something of the tenant is in memory here; else only what would apply is known.
    is_here: bool,
    /// The count that limits act on.
    limited_by: &'static str,
    here: Option<Here>,
    /// Every limit of the tenant, with what set it.
    limits: Vec<ToldRow>,
}

/// What is here of the tenant.
#[derive(Serialize)]
struct Here {
    row: Row,
    #[serde(skip)]
    chart: Option<Chart>,
    /// Series are still being listed after a start, so counts are at least what the upstream had.
    is_loading: bool,
    /// Samples and histograms per second, as a moving average.
    ingestion_rate: f64,
    rule_ingestion_rate: f64,
    upstream: Option<UpstreamView>,
    local_limits: Vec<LimitRow>,
    /// `None`: nobody counts series by metric.
    metrics: Option<Metrics>,
    /// `None`: nobody counts series by label set.
    label_sets: Option<LabelSets>,
    refused: Vec<RefusedRow>,
    recounts: Vec<RecountRow>,
    what_if: WhatIfView,
}

/// The tenant's series in the ingester behind us.
#[derive(Serialize)]
struct UpstreamView {
    series: i64,
    /// Of these, those that no listing names.
    residue: i64,
    /// Beyond ours and the residue; below zero, ours beyond the upstream's.
    drift: i64,
}

#[derive(Serialize)]
struct Metrics {
    largest: Vec<MetricRow>,
    total: usize,
    is_partial: bool,
    /// Of each metric.
    limit: Option<u64>,
}

#[derive(Serialize)]
struct MetricRow {
    /// What is not text in it is replaced; a long name ends in three dots.
    metric: String,
    owned: u64,
    in_memory: u64,
    used_percent: Option<f64>,
}

#[derive(Serialize)]
struct LabelSets {
    largest: Vec<LabelSetRow>,
    total: usize,
    is_partial: bool,
}

#[derive(Serialize)]
struct LabelSetRow {
    label_set: String,
    owned: u64,
    in_memory: u64,
    global_limit: i64,
    limit: Option<u64>,
    used_percent: Option<f64>,
    refused_samples_total: u64,
}

/// A pass that recounted, and what it moved.
#[derive(Serialize)]
struct RecountRow {
    at: String,
    reasons: Vec<ReasonCount>,
    took_seconds: f64,
    /// Owned series of all tenants.
    owned_before: u64,
    owned_after: u64,
    /// `None`: nothing of this tenant moved.
    tenant: Option<Moved>,
}

#[derive(Serialize)]
struct ReasonCount {
    reason: &'static str,
    tenants: u64,
}

#[derive(Serialize)]
struct Moved {
    reason: &'static str,
    owned_before: u32,
    owned_after: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::admin) struct TenantQuery {
    id: String,
    /// What-if: a limit of the cluster, and a number of instances; empty is as it is.
    global_limit: String,
    instances: String,
}

/// Characters of a name or label set that are shown.
const SHOWN_CHARS_MAX: usize = 200;

pub(in crate::admin) async fn show(
    State(pages): State<Pages>,
    Query(query): Query<TenantQuery>,
    headers: HeaderMap,
) -> Response {
    let json = answer::wants_json(&headers);
    let tenant = match TenantId::parse(&query.id) {
        Ok(tenant) => tenant,
        Err(why) => return answer::error(400, &why.to_string()),
    };
    let frame = pages.site.frame("/tenants");
    let make = move |sources: &Sources| {
        let page = TenantPage::new(sources, &tenant, &query, frame);
        let mut response = answer::either(json, &page);
        if !page.is_here {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        response
    };
    answer::page(pages, make).await
}

impl TenantPage {
    fn new(sources: &Sources, tenant: &TenantId, query: &TenantQuery, frame: Frame) -> Self {
        let ingester = &sources.ingester;
        let told = ingester.overrides.load().told(tenant);
        let detail = ingester.tenant_detail(tenant, sources.clock.now());
        let basis = ingester.basis();
        let here = detail.map(|detail| Here::new(detail, basis, query));
        Self {
            frame,
            tenant: tenant.to_string(),
            is_here: here.is_some(),
            limited_by: basis.label(),
            here,
            limits: told.into_iter().map(ToldRow::new).collect(),
        }
    }

    /// Limits that the tenant's block of the runtime file sets.
    fn overrides(&self) -> usize {
        self.limits.iter().filter(|limit| limit.is_override()).count()
    }
}

impl Here {
    fn new(detail: TenantDetail, basis: Basis, query: &TenantQuery) -> Self {
        let view = &detail.view;
        let (global_limit, instances) = (&*query.global_limit, &*query.instances);
        let count = view.counts.series;
        let what_if = WhatIfView::new(&detail.standing, count, basis, global_limit, instances);
        let metric_limit = limits::of_metric(&detail.limits);
        Self {
            chart: Chart::new(&detail.trend, view.limit),
            row: Row::new(view, &detail.trend),
            is_loading: detail.is_loading,
            ingestion_rate: detail.rates.ingestion_rate,
            rule_ingestion_rate: detail.rates.rule_ingestion_rate,
            upstream: detail.upstream.map(UpstreamView::new),
            local_limits: detail.limits.iter().map(LimitRow::new).collect(),
            metrics: detail.metrics.map(|largest| Metrics::new(largest, metric_limit, basis)),
            label_sets: detail.label_sets.map(|sets| LabelSets::new(sets, basis)),
            refused: detail.refused.iter().map(RefusedRow::new).collect(),
            recounts: detail.recounts.iter().map(RecountRow::new).collect(),
            what_if,
        }
    }
}

impl UpstreamView {
    fn new(upstream: Upstream) -> Self {
        let Upstream { series, residue, drift } = upstream;
        Self { series, residue, drift }
    }
}

impl Metrics {
    fn new(largest: Largest, limit: Option<u64>, basis: Basis) -> Self {
        let rows = largest.metrics.iter().map(|metric| {
            let name = String::from_utf8_lossy(&metric.name);
            MetricRow {
                metric: shortened(&name, metric.name_bytes > metric.name.len()),
                owned: metric.count.owned,
                in_memory: metric.count.in_memory,
                used_percent: limit
                    .and_then(|limit| super::row::percent(metric.count.by(basis), limit)),
            }
        });
        Self {
            largest: rows.collect(),
            total: largest.total,
            is_partial: largest.is_partial,
            limit,
        }
    }
}

impl LabelSets {
    fn new(sets: LabelSetsUse, basis: Basis) -> Self {
        let rows = sets.largest.iter().map(|set| LabelSetRow {
            label_set: shortened(&set.id, false),
            owned: set.count.owned,
            in_memory: set.count.in_memory,
            global_limit: set.global,
            limit: set.limit,
            used_percent: set
                .limit
                .and_then(|limit| super::row::percent(set.count.by(basis), limit)),
            refused_samples_total: set.refused,
        });
        Self { largest: rows.collect(), total: sets.total, is_partial: sets.is_partial }
    }
}

impl RecountRow {
    fn new((pass, moved): &(RecountPass, Option<Recounted>)) -> Self {
        let reasons = RecountReason::ALL.into_iter().zip(pass.tenants);
        let reasons = reasons.filter(|(_, tenants)| *tenants > 0);
        Self {
            at: Rfc3339Ms(pass.at_ms).to_string(),
            reasons: reasons
                .map(|(reason, tenants)| ReasonCount { reason: reason.label(), tenants })
                .collect(),
            took_seconds: pass.took_us as f64 / 1e6,
            owned_before: pass.owned_before,
            owned_after: pass.owned_after,
            tenant: moved.map(|moved| Moved {
                reason: moved.reason.label(),
                owned_before: moved.owned_before,
                owned_after: moved.owned_after,
            }),
        }
    }
}

/// A text's beginning, with three dots where there is more.
fn shortened(text: &str, is_cut: bool) -> String {
    let mut chars = text.chars();
    let mut shown: String = chars.by_ref().take(SHOWN_CHARS_MAX).collect();
    if is_cut || chars.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_broken_names_are_shown_by_their_beginning() {
        assert_eq!(shortened("up", false), "up");
        assert_eq!(shortened("up", true), "up…");
        let long = "é".repeat(SHOWN_CHARS_MAX + 1);
        let expect = format!("{}…", "é".repeat(SHOWN_CHARS_MAX));
        assert_eq!(shortened(&long, false), expect);
        // Cut in the middle of a character, as the first bytes of a name may be.
        let cut = &"é".as_bytes()[..1];
        assert_eq!(shortened(&String::from_utf8_lossy(cut), true), "\u{fffd}…");
    }
}
