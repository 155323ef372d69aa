//! `/distributor/ha_tracker`, `/ha-tracker`: which replica of each cluster is elected, until
//! when. The JSON is Cortex's.

use std::sync::Arc;

use super::answer;
use super::site::{Frame, Site};
use crate::clock::Clock;
use crate::distributor::ha::{ElectedView, HaTracker};
use crate::go_text::Rfc3339Ms;
use crate::tenant::TenantId;
use crate::units::Millis;
use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

/// Most clusters of the page, as HTML or JSON.
const ROWS_MAX: usize = 10_000;

/// A tenant's failover timeout.
pub type FailoverOf = dyn Fn(&TenantId) -> Millis + Send + Sync;

#[derive(Clone)]
struct Page {
    tracker: Arc<HaTracker>,
    failover_of: Arc<FailoverOf>,
    clock: Clock,
    site: Site,
}

#[derive(Serialize, Template)]
#[template(path = "ha_tracker.html", config = "src/admin/askama.toml")]
struct HaPage {
    #[serde(skip)]
    frame: Frame,
    elected: Vec<Row>,
    now: String,
    config: Labels,
    #[serde(skip)]
    hidden: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Labels {
    title: &'static str,
    replica_group_label: &'static str,
}

#[derive(Serialize)]
struct Row {
    #[serde(rename = "userID")]
    tenant: String,
    cluster: String,
    replica: String,
    #[serde(rename = "electedAt")]
    elected_at: String,
    /// Nanoseconds, as Go writes durations.
    #[serde(rename = "updateDuration")]
    update_ns: i64,
    #[serde(rename = "failoverDuration")]
    failover_ns: i64,
}

/// The page's routes.
pub fn router(
    tracker: Arc<HaTracker>,
    failover_of: Arc<FailoverOf>,
    clock: Clock,
    site: &Site,
) -> Router {
    site.open("/ha-tracker");
    Router::new()
        .route("/distributor/ha_tracker", get(show))
        .route("/ha-tracker", get(show))
        .with_state(Page { tracker, failover_of, clock, site: site.clone() })
}

async fn show(State(page): State<Page>, headers: HeaderMap) -> Response {
    let json = answer::wants_json(&headers);
    let permits = page.site.permits();
    answer::made(permits, move || answer::either(json, &HaPage::new(&page))).await
}

impl HaPage {
    fn new(page: &Page) -> Self {
        let now_ms = page.clock.now().unix_ms;
        let elected = page.tracker.elected(|tenant| (page.failover_of)(tenant), now_ms);
        let hidden = elected.len().saturating_sub(ROWS_MAX);
        let labels = Labels { title: "Cortex HA Tracker Status", replica_group_label: "Cluster" };
        Self {
            frame: page.site.frame("/ha-tracker"),
            elected: elected.into_iter().take(ROWS_MAX).map(Row::new).collect(),
            now: Rfc3339Ms(now_ms).to_string(),
            config: labels,
            hidden,
        }
    }
}

impl Row {
    fn new(view: ElectedView) -> Self {
        Self {
            tenant: view.tenant.as_str().to_owned(),
            cluster: view.cluster,
            replica: view.replica,
            elected_at: Rfc3339Ms(view.received_at_ms).to_string(),
            update_ns: view.update_in_ms.saturating_mul(1_000_000),
            failover_ns: view.failover_in_ms.saturating_mul(1_000_000),
        }
    }

    fn update_s(&self) -> i64 {
        self.update_ns / 1_000_000_000
    }

    fn failover_s(&self) -> i64 {
        self.failover_ns / 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use prometheus::Registry;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;
    use crate::distributor::ha::HaTrackerConfig;
    use crate::limits::Limits;
    use crate::ring::kv::KvClient;
    use crate::ring::kv::inmemory::InMemoryKv;

    #[tokio::test]
    async fn elected_replicas_are_shown_and_told() {
        let config = HaTrackerConfig { enable_ha_tracker: true, ..HaTrackerConfig::default() };
        let kv = KvClient::InMemory(InMemoryKv::default());
        let (tracker, _driver) = HaTracker::new(&config, kv, &Registry::new()).expect("new");
        let clock = Clock::start();
        let tenant = TenantId::parse("t").expect("tenant");
        let limits = Limits { accept_ha_samples: true, ..Limits::default() };
        let now_ms = clock.now().unix_ms;
        tracker.ask(&tenant, "<c>", "a", &limits, now_ms).await.expect("elected");
        let router = router(tracker, Arc::new(|_| Millis::from_secs(30)), clock, &Site::of_http());
        let ask = async |accept: &'static str| {
            let request = Request::get("/ha-tracker").header("accept", accept);
            let request = request.body(Body::empty()).expect("a request");
            let answer = router.clone().oneshot(request).await.expect("infallible");
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            String::from_utf8(body.to_vec()).expect("text")
        };
        let told: Value = serde_json::from_str(&ask("application/json").await).expect("JSON");
        let config = json!({ "Title": "Cortex HA Tracker Status", "ReplicaGroupLabel": "Cluster" });
        assert_eq!(told["config"], config);
        let row = &told["elected"][0];
        assert_eq!((&row["userID"], &row["replica"]), (&json!("t"), &json!("a")));
        assert_eq!(row["electedAt"], json!(Rfc3339Ms(now_ms).to_string()));
        let failover = row["failoverDuration"].as_i64().expect("a number");
        assert!((1..=30_000_000_000).contains(&failover), "{failover}");
        let shown = ask("text/html").await;
        assert!(shown.contains("&#60;c&#62;") || shown.contains("&lt;c&gt;"), "{shown}");
    }
}
