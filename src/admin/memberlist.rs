//! `/memberlist`: the gossip as Cortex shows it, with its members, keys and messages.
//!
//! The parameters are Cortex's: `viewKey` and `viewMsg`, each with a `format`, and `downloadKey`.
//! Dropping the kept messages changes something, so unlike Cortex's it takes a form.

mod told;

use super::site::{Frame, Site};
use super::{FORM_BYTES_MAX, answer};
use crate::go_text::Rfc3339Ms;
use crate::ring::kv::memberlist::gossiping::{GossipView, PeerView};
use crate::ring::kv::memberlist::page::{Format, KeyView, MessageView, ViewError};
use askama::Template;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use serde::Serialize;

use told::Told;

/// Most members, keys and messages that the page shows of each.
const ROWS_MAX: usize = 10_000;

const PATH: &str = "/memberlist";

#[derive(Clone)]
struct Page {
    gossip: GossipView,
    site: Site,
}

#[derive(Serialize, Template)]
#[template(path = "memberlist.html", config = "src/admin/askama.toml")]
struct MemberlistPage {
    #[serde(skip)]
    frame: Frame,
    health_score: u32,
    members: Vec<MemberRow>,
    keys: Vec<KeyRow>,
    received: Vec<MessageRow>,
    sent: Vec<MessageRow>,
    #[serde(skip)]
    hidden: usize,
    /// By name; those of the rows.
    #[serde(skip)]
    peers: Vec<PeerView>,
    /// Unix milliseconds.
    #[serde(skip)]
    read_at_ms: i64,
}

#[derive(Serialize)]
struct MemberRow {
    name: String,
    address: String,
    state: &'static str,
}

#[derive(Serialize)]
struct KeyRow {
    /// As a parameter takes it.
    #[serde(skip)]
    parameter: String,
    #[serde(flatten)]
    key: KeyView,
}

#[derive(Serialize)]
struct MessageRow {
    at: String,
    #[serde(flatten)]
    message: MessageView,
}

pub fn router(gossip: GossipView, site: &Site) -> Router {
    site.open(PATH);
    Router::new()
        .route(PATH, get(show).post(drop_messages))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(Page { gossip, site: site.clone() })
}

async fn show(
    State(page): State<Page>,
    Query(parameters): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    let json = answer::wants_json(&headers);
    let Page { gossip, site } = page;
    let frame = site.frame(PATH);
    answer::made(site.permits(), move || {
        let value = |name: &str| {
            parameters.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
        };
        let format = Format::from_name(value("format").unwrap_or_default());
        let store = gossip.store();
        if let Some(key) = value("viewKey") {
            return text(store.view_key(key, format));
        }
        if let Some(id) = value("viewMsg") {
            return match id.parse() {
                Ok(id) => text(store.view_message(id, format)),
                Err(_) => answer::error(400, "viewMsg is the number of a message"),
            };
        }
        if let Some(key) = value("downloadKey") {
            return download(&gossip, key);
        }
        let page = MemberlistPage::new(&gossip, frame);
        if json { answer::told(answer::JSON, &Told::new(&page), "") } else { answer::shown(&page) }
    })
    .await
}

async fn drop_messages(State(page): State<Page>, request: Request) -> Response {
    match page.site.writes().form(request, ["deleteMessages"]).await {
        Ok(([Some(asked)], who)) if asked == "true" => {
            tracing::info!(%who, "kept messages of the gossip dropped by an operator");
            page.gossip.store().delete_messages();
            Redirect::to(PATH).into_response()
        }
        Ok(_) => answer::error(400, "deleteMessages=true drops the kept messages"),
        Err(response) => response,
    }
}

fn text(shown: Result<String, ViewError>) -> Response {
    match shown {
        Ok(text) => {
            let mut response = answer::with_type(StatusCode::OK, answer::TEXT, text);
            // Other members' texts are in it.
            let nosniff = HeaderValue::from_static("nosniff");
            response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
            response
        }
        Err(error) => refused(&error),
    }
}

fn refused(error: &ViewError) -> Response {
    let status = match error {
        ViewError::NoValue | ViewError::NoMessage | ViewError::NoCodec => 404,
        ViewError::Decode(_) | ViewError::Encode(_) => 500,
    };
    answer::error(status, &error.to_string())
}

fn download(gossip: &GossipView, key: &str) -> Response {
    match gossip.store().download(key) {
        Err(error) => refused(&error),
        Ok(download) => {
            // The key is whatever another member made it.
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
            let filename: String = download.filename.chars().map(plain).collect();
            let disposition = format!("attachment; filename={filename}");
            let mut response = download.bytes.into_response();
            let headers = response.headers_mut();
            if let Ok(disposition) = HeaderValue::from_str(&disposition) {
                headers.insert(header::CONTENT_DISPOSITION, disposition);
            }
            let bytes = HeaderValue::from_static("application/octet-stream");
            headers.insert(header::CONTENT_TYPE, bytes);
            response
        }
    }
}

impl MemberlistPage {
    fn new(gossip: &GossipView, frame: Frame) -> Self {
        let store = gossip.store().view();
        let mut peers = gossip.peers();
        let rows = [peers.len(), store.keys.len(), store.received.len(), store.sent.len()];
        let message =
            |message: MessageView| MessageRow { at: Rfc3339Ms(message.at_ms).to_string(), message };
        peers.truncate(ROWS_MAX);
        Self {
            frame,
            health_score: gossip.health_score(),
            members: peers
                .iter()
                .map(|peer| MemberRow {
                    name: peer.name.clone(),
                    address: peer.address.to_string(),
                    state: peer.state.name(),
                })
                .collect(),
            keys: store.keys.into_iter().take(ROWS_MAX).map(KeyRow::new).collect(),
            received: store.received.into_iter().take(ROWS_MAX).map(message).collect(),
            sent: store.sent.into_iter().take(ROWS_MAX).map(message).collect(),
            hidden: rows.into_iter().map(|count| count.saturating_sub(ROWS_MAX)).sum(),
            peers,
            read_at_ms: store.read_at_ms,
        }
    }

    /// With the name that stands above them.
    fn messages(&self) -> [(&'static str, &Vec<MessageRow>); 2] {
        [("Received messages", &self.received), ("Sent messages", &self.sent)]
    }
}

impl KeyRow {
    fn new(key: KeyView) -> Self {
        let parameter = form_urlencoded::byte_serialize(key.key.as_bytes()).collect();
        Self { parameter, key }
    }
}
