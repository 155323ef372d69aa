//! `/ingester/all_user_stats`: tenants' series and rates, as Cortex's ingester lists them.

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Serialize, Serializer};

use super::site::Frame;
use super::{Pages, Sources, answer};
use crate::go_text::Rfc3339Ms;
use crate::tenant::TenantId;

#[derive(Template)]
#[template(path = "stats.html", config = "src/admin/askama.toml")]
struct StatsPage {
    frame: Frame,
    now: String,
    users: Vec<UserStats>,
}

/// One tenant under the keys of Cortex's JSON.
#[derive(Serialize)]
struct UserStats {
    #[serde(rename = "userID", serialize_with = "as_text")]
    user_id: TenantId,
    #[serde(rename = "ingestionRate", serialize_with = "as_go")]
    ingestion_rate: f64,
    #[serde(rename = "numSeries")]
    num_series: u64,
    #[serde(rename = "APIIngestionRate", serialize_with = "as_go")]
    api_ingestion_rate: f64,
    #[serde(rename = "RuleIngestionRate", serialize_with = "as_go")]
    rule_ingestion_rate: f64,
    #[serde(rename = "activeSeries")]
    active_series: u64,
    /// Blocks of ours are never loaded back into memory.
    #[serde(rename = "loadedBlocks")]
    loaded_blocks: u64,
    /// An ingester tells of itself and asks nobody.
    #[serde(rename = "queriedIngesters")]
    queried_ingesters: u64,
}

/// The JSON is a bare list under a type of plain text, as Cortex answers it.
pub(super) async fn show(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    let json = answer::wants_json(&headers);
    let frame = pages.site.frame("/ingester/all_user_stats");
    let make = move |sources: &Sources| {
        let page = StatsPage::new(sources, frame);
        if json { answer::told(answer::TEXT, &page.users, "\n") } else { answer::shown(&page) }
    };
    answer::page(pages, make).await
}

impl StatsPage {
    fn new(sources: &Sources, frame: Frame) -> Self {
        let all = sources.ingester.all_user_stats();
        let users = all.into_iter().map(|(tenant, stats)| UserStats {
            user_id: tenant,
            ingestion_rate: stats.ingestion_rate,
            num_series: stats.series,
            api_ingestion_rate: stats.api_ingestion_rate,
            rule_ingestion_rate: stats.rule_ingestion_rate,
            active_series: stats.active_series,
            loaded_blocks: 0,
            queried_ingesters: 0,
        });
        let now = Rfc3339Ms(sources.clock.now().unix_ms).to_string();
        Self { frame, now, users: users.collect() }
    }
}

fn as_text<S: Serializer>(tenant: &TenantId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(tenant.as_str())
}

/// Below this every whole number is exact in a double.
const WHOLE_MAX: f64 = 1e15;

/// Go writes a whole number without a fraction.
fn as_go<S: Serializer>(rate: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if rate.fract() == 0.0 && rate.abs() < WHOLE_MAX {
        serializer.serialize_i64(*rate as i64)
    } else {
        serializer.serialize_f64(*rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_written_as_go_writes_them() {
        let check = |rate: f64, expect: &str| {
            let mut text = Vec::new();
            as_go(&rate, &mut serde_json::Serializer::new(&mut text)).expect("a number");
            assert_eq!(String::from_utf8(text).expect("text"), expect);
        };
        check(0.0, "0");
        check(12.0, "12");
        check(0.25, "0.25");
    }
}
