//! `/ring` and `/ingester/ring`: the members of the ring, and Forget.
//!
//! The JSON is Cortex's to the key, so that what reads Cortex's page reads this one, our own
//! file backend included.

use super::site::{Frame, Site};
use super::{RingSource, answer, index};
use crate::go_text::Rfc3339Ms;
use crate::ring::kv::KvError;
use crate::ring::lifecycler::LifecyclerError;
use crate::ring::{Member, MemberIndex, RingSnapshot};
use askama::Template;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// Shown in place of the state of a member whose heartbeat is too old.
const UNHEALTHY: &str = "Unhealthy";
/// Keys of the whole ring.
const RING_WIDTH: f64 = 4_294_967_296.0;

/// What the handlers of one ring share.
#[derive(Clone)]
pub(super) struct RingPages {
    pub(super) source: RingSource,
    pub(super) path: &'static str,
    pub(super) site: Site,
}

/// The fields told as JSON are Cortex's; a list that is empty is `null`, as Go writes it.
#[derive(Serialize, Template)]
#[template(path = "ring.html", config = "src/admin/askama.toml")]
struct RingPage {
    shards: Option<Vec<Shard>>,
    now: String,
    #[serde(rename = "storageLastUpdated")]
    storage_last_updated: String,
    #[serde(skip)]
    frame: Frame,
    #[serde(skip)]
    status: String,
    #[serde(skip)]
    healthy: usize,
    #[serde(skip)]
    replication_factor: usize,
    #[serde(skip)]
    zone_awareness: bool,
    #[serde(skip)]
    can_forget: bool,
    #[serde(skip)]
    show_tokens: bool,
}

#[derive(Serialize)]
struct Shard {
    id: String,
    state: &'static str,
    address: String,
    timestamp: String,
    /// Empty where it is not known.
    registered_timestamp: String,
    zone: String,
    tokens: Option<Vec<u32>>,
    /// Part of the ring (of its zone's ring, with zones) that leads to the member's tokens.
    #[serde(skip)]
    ownership_percent: f64,
    #[serde(skip)]
    is_own: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RingQuery {
    tokens: String,
}

pub(super) async fn show(
    State(pages): State<RingPages>,
    Query(query): Query<RingQuery>,
    headers: HeaderMap,
) -> Response {
    let json = answer::wants_json(&headers);
    let show_tokens = query.tokens == "true";
    let RingPages { source, path, site } = pages;
    let (permits, frame) = (site.permits(), site.frame(path));
    let make = move || answer::either(json, &RingPage::new(&source, show_tokens, frame));
    answer::made(permits, make).await
}

/// Takes the named member out of the ring, and leads back to the page.
pub(super) async fn forget(State(pages): State<RingPages>, request: Request) -> Response {
    match forgotten(&pages, request).await {
        // Relative, so that it holds behind a proxy's prefix and keeps the query.
        Ok(()) => {
            let back = [(header::LOCATION, HeaderValue::from_static("#"))];
            (StatusCode::FOUND, back).into_response()
        }
        Err(refusal) => refusal,
    }
}

async fn forgotten(pages: &RingPages, request: Request) -> Result<(), Response> {
    let ([id], who) = pages.site.writes().form(request, ["forget"]).await?;
    let Some(id) = id.filter(|id| !id.is_empty()) else {
        return Err(answer::error(400, "name the instance in the form field forget"));
    };
    let outcome = match &pages.source.lifecycler {
        Some(lifecycler) => lifecycler.forget(&id).await,
        None => Err(LifecyclerError::Write(KvError::ReadOnly)),
    };
    match outcome {
        Ok(()) => {
            tracing::info!(%who, instance = id, "forgotten by an operator");
            Ok(())
        }
        Err(error) => {
            tracing::warn!(%who, instance = id, %error, "not forgotten");
            let is_read_only = error == LifecyclerError::Write(KvError::ReadOnly);
            let status = if is_read_only { 409 } else { 500 };
            Err(answer::error(status, &format!("cannot forget the instance: {error}")))
        }
    }
}

impl RingPage {
    fn new(sources: &RingSource, show_tokens: bool, frame: Frame) -> Self {
        let now_ms = sources.clock.now().unix_ms;
        let snapshot = sources.ring.load();
        let shards = shards(&snapshot);
        Self {
            shards: (!shards.is_empty()).then_some(shards),
            now: Rfc3339Ms(now_ms).to_string(),
            storage_last_updated: match snapshot.read_at_ms() {
                // Go's zero time: never.
                0 => "0001-01-01T00:00:00Z".to_owned(),
                read_at_ms => Rfc3339Ms(read_at_ms).to_string(),
            },
            frame,
            status: index::ring_status(&sources.ring.status(now_ms)),
            healthy: snapshot.healthy_count(),
            replication_factor: snapshot.settings().replication_factor,
            zone_awareness: snapshot.settings().zone_awareness_enabled,
            can_forget: sources.lifecycler.is_some(),
            show_tokens,
        }
    }

    fn members(&self) -> &[Shard] {
        self.shards.as_deref().unwrap_or_default()
    }
}

impl Shard {
    fn tokens(&self) -> &[u32] {
        self.tokens.as_deref().unwrap_or_default()
    }
}

fn shards(snapshot: &RingSnapshot) -> Vec<Shard> {
    let health = snapshot.health();
    let own = snapshot.settings().own_id.as_deref();
    let ranges = snapshot.key_ranges();
    let shard = |(index, member): (u32, &Member)| {
        let tokens: Vec<u32> =
            snapshot.tokens_of(MemberIndex(index)).iter().map(|token| token.0).collect();
        let range = ranges.get(index as usize).copied().unwrap_or_default();
        let width = if health.zone_aware { range.width_in_zone } else { range.width };
        let is_fresh = health.is_fresh(member.timestamp_s);
        Shard {
            id: member.id.to_string(),
            state: if is_fresh { member.state.name() } else { UNHEALTHY },
            address: member.addr.to_string(),
            timestamp: go_time(member.timestamp_s),
            registered_timestamp: match member.registered_timestamp_s {
                0 => String::new(),
                known => go_time(known),
            },
            zone: member.zone.to_string(),
            tokens: (!tokens.is_empty()).then_some(tokens),
            ownership_percent: width as f64 / RING_WIDTH * 100.0,
            is_own: own == Some(&*member.id),
        }
    };
    (0..).zip(snapshot.members().iter()).map(shard).collect()
}

const GO_TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second] +0000 UTC");

/// Whole seconds as Go prints a time in UTC.
fn go_time(unix_s: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(unix_s).ok();
    time.and_then(|time| time.format(GO_TIME).ok()).unwrap_or_else(|| format!("{unix_s}s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_go_prints_them() {
        assert_eq!(go_time(1_795_994_175), "2026-11-29 23:16:15 +0000 UTC");
        assert_eq!(go_time(i64::MAX), "9223372036854775807s");
    }
}
