//! The query API over HTTP: from a request to a query, and from an answer to a response.
//!
//! ```text
//! request ─► tenant, client ─► form read whole, all else streams ─► frontend ─► head, body as it comes
//! ```
//!
//! Errors look as Prometheus' API writes them. A tenant header of several (`a|b`) is Cortex's way
//! to ask for many at once: it goes on as it came, and the client's budget is that of the first.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Method, Request, header};
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{ConnectInfo, State};
use axum::response::Response;
use axum::routing::any;
use futures_util::stream;

use super::client_header::ClientHeader;
use super::front_door::OwnRefusal;
use super::http::{Unread, read_into};
use super::read;
use super::room::{Held, Room};
use super::status::{ReadRefusal, http_error};
use super::tenancy::Tenancy;
use crate::frontend::asked::{Asked, Call};
use crate::frontend::{AnswerError, Answered, Frontend};
use crate::tenant::{TenantId, TenantIdError};
use crate::trail::{REQUEST_ID_HEADER, Trail};
use crate::upstream::queries::Query;

/// Between the tenants of a query over several, in Cortex's tenant federation.
const TENANTS_SEPARATOR: char = '|';

/// What the routes of this room need.
#[derive(Clone)]
pub struct QueryEdge {
    pub tenancy: Tenancy,
    pub clients: ClientHeader,
    pub frontend: Arc<Frontend>,
    /// What comes before `/api/v1`.
    pub prefixes: Vec<String>,
    /// Whether that is taken off.
    pub strip_prefix: bool,
    pub form_bytes_max: usize,
    /// How long a form may take.
    pub form_wait: Duration,
    /// What all forms together may take while they are handled.
    pub room: Room,
}

/// All calls of the API, whatever they are, as those behind us may know more of them than we do.
pub fn router(edge: QueryEdge) -> Router {
    let paths = edge.prefixes.iter().map(|prefix| format!("{prefix}/api/v1/{{*call}}"));
    paths.fold(Router::new(), |router, path| router.route(&path, any(answer))).with_state(edge)
}

async fn answer(State(edge): State<QueryEdge>, request: Request<Body>) -> Response {
    edge.answer(request).await.unwrap_or_else(|refusal| refusal)
}

impl QueryEdge {
    async fn answer(&self, request: Request<Body>) -> Result<Response, Response> {
        let (mut head, body) = request.into_parts();
        let tenant = self.tenant(&head.headers);
        let tenant = tenant.map_err(|(status, error)| http_error(status, &error.to_string()))?;
        let client = self.clients.client(&head.headers);
        let client = client.map_err(|error| refused(ReadRefusal::bad_data(error.to_string())))?;
        if let Some(name) = self.clients.name() {
            // Set anew below, once: it may not tell two queries apart.
            head.headers.remove(name);
        }
        let peer = head.extensions.get().map(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| *peer);
        let trail = head.extensions.remove::<Trail>().unwrap_or_default();
        let is_form = is_form(&head);
        let (query, held) = match is_form || body.is_end_stream() {
            true => {
                let read = read_into(&self.room, body, self.form_bytes_max, self.form_wait);
                let (form, held) = read.await.map_err(unread)?;
                (Query::with_bytes(head, form), Some(held))
            }
            false => (Query::streaming(head, body), None),
        };
        let mut query = query.map_err(refused)?;
        self.strip_prefix(&mut query);
        if let Some(peer) = peer {
            query.came_from(peer.ip());
        }
        if let Some(id) = trail.id() {
            query.set(REQUEST_ID_HEADER, id);
        }
        trail.span.text("freehold.tenant", tenant.as_str());
        if let Some(client) = &client {
            trail.span.text("freehold.client", client.as_str());
        }
        let mut asked = Asked::new(tenant, client, query);
        asked.trail = trail;
        if is_form && asked.call != Call::Other {
            asked.query.set_repeatable();
        }
        if let (Some(name), Some(client)) = (self.clients.name(), &asked.client) {
            asked.own_header = Some((name.as_str().to_owned(), client.as_str().to_owned()));
        }
        let answered = self.frontend.answer(asked).await.map_err(unanswered)?;
        Ok(response(answered, held))
    }

    /// Without a tenant 401, and 400 with one that is none, both as Cortex has them.
    fn tenant(&self, headers: &HeaderMap) -> Result<TenantId, (u16, TenantIdError)> {
        let named = self.tenancy.named(headers).map_err(|error| (401, error))?;
        let tenants = named.split(TENANTS_SEPARATOR).map(TenantId::parse);
        let tenants = tenants.collect::<Result<Vec<_>, _>>().map_err(|error| (400, error))?;
        tenants.into_iter().min().ok_or((401, TenantIdError::Missing))
    }

    fn strip_prefix(&self, query: &mut Query) {
        if !self.strip_prefix {
            return;
        }
        let path = query.path();
        let prefixes = self.prefixes.iter().filter_map(|prefix| path.strip_prefix(prefix.as_str()));
        let rest = prefixes.filter(|rest| rest.starts_with("/api/v1/")).min_by_key(|one| one.len());
        if let Some(rest) = rest.map(str::to_owned) {
            // A part of a path that was one.
            let _ = query.set_path(&rest);
        }
    }
}

/// Cortex says of a form that is too long what Go says.
fn unread(unread: Unread) -> Response {
    match unread {
        Unread::TooLarge { .. } => http_error(413, "http: request body too large"),
        other => other.into(),
    }
}

/// What we refused for our own reasons is no failure of the sender's at the front door.
fn unanswered(error: AnswerError) -> Response {
    let is_own_refusal = error.is_our_doing();
    let mut response = refused(error);
    if is_own_refusal {
        response.extensions_mut().insert(OwnRefusal);
    }
    response
}

fn refused(error: impl Into<ReadRefusal>) -> Response {
    read::refusal(&error.into())
}

/// A query's parameters in its body, as a dashboard sends long ones.
fn is_form(head: &Parts) -> bool {
    let content_type = head.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.map(HeaderValue::as_bytes).unwrap_or_default();
    let mime = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    head.method == Method::POST
        && mime.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

/// The body goes on as it comes. What it broke off with ends the connection, so that nobody takes
/// half of an answer for a whole one.
fn response(answered: Answered, held: Option<Held>) -> Response {
    let (head, age_secs) = (answered.head.clone(), answered.age_secs);
    let pieces = stream::unfold((answered, held), |(mut answered, held)| async {
        let piece = answered.next().await?;
        Some((piece, (answered, held)))
    });
    let mut response = head.response(Body::from_stream(pieces));
    if let Some(age_secs) = age_secs {
        response.headers_mut().insert(header::AGE, age_secs.into());
    }
    response
}
