//! Takes a member out of the ring: the page that says what this does, and the form behind it.
//!
//! The form is Cortex's, `POST /ring` with `forget=<id>`, so that its scripts work here too; who
//! may send it is decided where all of the pages' writes are.

use askama::Template;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::super::answer;
use super::super::site::Frame;
use super::entry::Entry;
use super::member::{self, Neighbour};
use super::{RingPages, Whose};
use crate::ring::kv::KvError;
use crate::ring::lifecycler::LifecyclerError;
use crate::ring::shares::Shares;

/// Others named among those who take over; the member's own page has more of them.
const HEIRS_MAX: usize = 5;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ForgetQuery {
    id: Option<String>,
}

#[derive(Template)]
#[template(path = "ring_forget.html", config = "src/admin/askama.toml")]
pub(super) struct ForgetPage {
    frame: Frame,
    last_part: &'static str,
    whose: Whose,
    entry: Entry,
    /// Who takes most of its keys.
    heirs: Vec<Neighbour>,
    heartbeat_timeout_seconds: u64,
    /// `false` where the ring is only read.
    can_forget: bool,
}

/// What forgetting would do.
pub(super) async fn ask(
    State(pages): State<RingPages>,
    Query(query): Query<ForgetQuery>,
) -> Response {
    let Some(id) = query.id else {
        return member::unnamed();
    };
    answer::made(pages.site.permits(), move || match ForgetPage::new(&pages, &id) {
        Some(page) => answer::shown(&page),
        None => member::unknown(&id),
    })
    .await
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
    let ring = pages.path;
    match outcome {
        Ok(()) => {
            tracing::info!(%who, ring, instance = id, "forgotten by an operator");
            Ok(())
        }
        Err(error) => {
            tracing::warn!(%who, ring, instance = id, %error, "not forgotten");
            let is_read_only = error == LifecyclerError::Write(KvError::ReadOnly);
            let status = if is_read_only { 409 } else { 500 };
            Err(answer::error(status, &format!("cannot forget the instance: {error}")))
        }
    }
}

impl ForgetPage {
    /// `None` without a member of that id.
    pub(super) fn new(pages: &RingPages, id: &str) -> Option<Self> {
        let snapshot = pages.source.ring.load();
        let member = snapshot.member_index(id)?;
        let shares = Shares::of(&snapshot);
        let (mut heirs, _) = member::neighbours(&snapshot, shares.circuit_of(member), member);
        heirs.retain(|heir| heir.takes_percent > 0.0);
        heirs.truncate(HEIRS_MAX);
        Some(Self {
            frame: pages.site.frame(pages.path),
            last_part: pages.last_part(),
            whose: pages.whose,
            entry: Entry::new(&snapshot, &shares, member, pages.source.clock.now().unix_ms),
            heirs,
            heartbeat_timeout_seconds: snapshot.settings().heartbeat_timeout_ms / 1000,
            can_forget: pages.source.lifecycler.is_some(),
        })
    }
}
