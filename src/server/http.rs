//! The HTTP edge: routes, remote write, and serving connections.
//!
//! Bodies are bounded in size and in time before a service sees them, and errors look as Go's
//! `http.Error` writes them. Pages and read paths of other rooms are merged into the router.

mod serve;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Request, header, request::Parts};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequestParts, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt as _;
use serde::Deserialize;

pub use serve::{serve, serve_trailed};

use super::client_header::ClientHeader;
use super::front_door::Unreadable;
use super::room::{Held, NoRoom, Room};
use super::seam::{DistributorCalls, Form, Received, RequestKind};
use super::status::{CLIENT_CLOSED_REQUEST, http_error, remote_write_answer, tell_budget};
use super::tenancy::Tenancy;
use crate::distributor::{RateLimitHeaders, RoomFor};
use crate::tenant::{ClientId, TenantId, TenantIdError};
use crate::trail::{REQUEST_ID_HEADER, Trail};
use crate::upstream::distributor::Passed;
use crate::wire::remote_write::{Accepted, Headers, Version};

/// Charged for a body before any of it has come.
const FIRST_CHARGE_BYTES: usize = 64 << 10;

/// Remote write as the HTTP edge treats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteWriteSettings {
    /// `-distributor.remote-writev2-enabled`
    pub v2_enabled: bool,
    /// `-distributor.accept-unknown-remote-write-content-type`
    pub accept_unknown_content_type: bool,
    /// `-distributor.max-recv-msg-size`
    pub body_bytes_max: usize,
    /// `-distributor.otlp-max-recv-msg-size`
    pub otlp_body_bytes_max: usize,
    /// How long a body may take.
    pub body_wait: Duration,
    /// `-distributor.ratelimit-headers`
    pub ratelimit_headers: RateLimitHeaders,
}

/// Whose request it is.
struct Sender {
    tenant: TenantId,
    client: Option<ClientId>,
}

type ReadyFn = dyn Fn() -> Result<Option<String>, String> + Send + Sync;
type MetricsFn = dyn Fn() -> String + Send + Sync;
type ConfigFn = dyn Fn(ConfigView) -> String + Send + Sync;

/// What the shell shows of itself.
#[derive(Clone)]
pub struct ShellCalls {
    /// What an operator should know although we are ready; else why we are not, in Cortex's
    /// words: `Ingester not ready: …`
    pub ready: Arc<ReadyFn>,
    /// The registry in Prometheus' text format.
    pub metrics: Arc<MetricsFn>,
    /// YAML.
    pub config: Arc<ConfigFn>,
    /// YAML.
    pub runtime_config: Arc<ConfigFn>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfigView {
    #[default]
    Effective,
    /// Only what differs from the defaults.
    Diff,
    Defaults,
}

/// What the routes of this file need.
#[derive(Clone)]
pub struct HttpEdge {
    pub tenancy: Tenancy,
    pub clients: ClientHeader,
    pub shell: ShellCalls,
    /// `None` where nobody takes remote writes; then there are no routes for them.
    pub distributor: Option<DistributorCalls>,
    pub remote_write: RemoteWriteSettings,
    /// What all bodies together may take while they arrive and are handled.
    pub room: Room,
}

/// The tenant of a request, for handlers of other rooms; 401 where there is none. It finds out
/// through `Extension(Tenancy)`, which `router` puts over all routes.
pub struct Tenant(pub TenantId);

/// All routes: those of this file, and `rest` of other rooms.
pub fn router(edge: HttpEdge, rest: Router) -> Router {
    let tenancy = edge.tenancy;
    let mut routes = Router::new();
    if edge.distributor.is_some() {
        for path in ["/api/v1/push", "/api/prom/push"] {
            routes = routes.route(path, post(remote_write));
        }
        routes = routes.route("/api/v1/otlp/v1/metrics", post(otlp));
    }
    let shell = shell_router(edge.shell.clone());
    routes
        .with_state(edge)
        .merge(shell)
        .merge(rest)
        .fallback(async || http_error(404, "404 page not found"))
        .layer(axum::Extension(tenancy))
}

/// What the process says of itself, on whichever listener.
pub fn shell_router(shell: ShellCalls) -> Router {
    Router::new()
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/config", get(config))
        .route("/runtime_config", get(runtime_config))
        .with_state(shell)
}

async fn ready(State(shell): State<ShellCalls>) -> Response {
    match (shell.ready)() {
        Ok(None) => text("text/plain", "ready".to_owned()),
        Ok(Some(note)) => text("text/plain", format!("ready\n{note}\n")),
        Err(reason) => http_error(503, &reason),
    }
}

async fn metrics(State(shell): State<ShellCalls>) -> Response {
    text("text/plain; version=0.0.4; charset=utf-8", (shell.metrics)())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigQuery {
    mode: String,
}

async fn config(State(shell): State<ShellCalls>, query: Query<ConfigQuery>) -> Response {
    text("text/plain; charset=utf-8", (shell.config)(query.0.into()))
}

async fn runtime_config(State(shell): State<ShellCalls>, query: Query<ConfigQuery>) -> Response {
    text("text/plain; charset=utf-8", (shell.runtime_config)(query.0.into()))
}

fn text(content_type: &'static str, body: String) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}

impl From<ConfigQuery> for ConfigView {
    fn from(query: ConfigQuery) -> Self {
        match query.mode.as_str() {
            "diff" => Self::Diff,
            "defaults" => Self::Defaults,
            _ => Self::Effective,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Tenant {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let tenancy = parts.extensions.get().copied().unwrap_or(Tenancy::Header);
        let tenant = tenancy.tenant(&parts.headers);
        tenant.map(Self).map_err(|error| match error {
            TenantIdError::Missing => http_error(401, &error.to_string()),
            error => http_error(500, &error.to_string()),
        })
    }
}

async fn remote_write(State(edge): State<HttpEdge>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    edge.remote_write(&head, body).await.unwrap_or_else(|refusal| refusal)
}

async fn otlp(State(edge): State<HttpEdge>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    edge.otlp(&head, body).await.unwrap_or_else(|refusal| refusal)
}

impl HttpEdge {
    /// The order of the checks is Cortex's, since it shows in the answers.
    async fn remote_write(&self, head: &Parts, body: Body) -> Result<Response, Response> {
        let headers = &head.headers;
        let name = self.tenancy.named(headers).map_err(|e| http_error(401, &e.to_string()))?;
        let protocol = self.protocol(headers).map_err(|text| unreadable(http_error(415, &text)))?;
        // Before the body, which would be read in vain.
        let client = self.clients.client(headers).map_err(|e| http_error(400, &e.to_string()))?;
        let bytes_max = self.remote_write.body_bytes_max;
        // A name that is none is told of before a body of version 2, and after one of version 1.
        let (tenant, (body, held)) = match protocol {
            Version::V1 => {
                let body = self.read_body(body, bytes_max).await?;
                (TenantId::parse(&name).map_err(|e| http_error(500, &e.to_string()))?, body)
            }
            Version::V2 => {
                let tenant = TenantId::parse(&name).map_err(|e| http_error(401, &e.to_string()))?;
                (tenant, self.read_body(body, bytes_max).await?)
            }
        };
        let sender = Sender { tenant, client };
        self.push(sender, Form::RemoteWrite(protocol), head, body, held).await
    }

    /// OTLP metrics. As in Cortex, a request is counted once its body could be read; the kind is
    /// counted here already, so that what comes is counted.
    async fn otlp(&self, head: &Parts, body: Body) -> Result<Response, Response> {
        let headers = &head.headers;
        let tenant = self.tenancy.tenant(headers).map_err(|error| match error {
            TenantIdError::Missing => http_error(401, &error.to_string()),
            error => http_error(500, &error.to_string()),
        })?;
        if let Some(distributor) = &self.distributor {
            (distributor.came)(RequestKind::Otlp);
        }
        let client = self.clients.client(headers).map_err(|e| http_error(400, &e.to_string()))?;
        let sender = Sender { tenant, client };
        let form = Form::Otlp {
            content_type: header_text(headers, header::CONTENT_TYPE),
            content_encoding: header_text(headers, header::CONTENT_ENCODING),
        };
        let (body, held) = self.read_body(body, self.remote_write.otlp_body_bytes_max).await?;
        self.push(sender, form, head, body, held).await
    }

    async fn push(
        &self,
        sender: Sender,
        form: Form,
        head: &Parts,
        body: Bytes,
        held: Held,
    ) -> Result<Response, Response> {
        let Sender { tenant, client } = sender;
        let headers = &head.headers;
        let Some(distributor) = &self.distributor else {
            return Err(http_error(404, "404 page not found"));
        };
        let protocol = match &form {
            Form::RemoteWrite(protocol) => *protocol,
            Form::Otlp { .. } => Version::V1,
        };
        let trail = head.extensions.get::<Trail>().cloned().unwrap_or_default();
        trail.span.text("freehold.tenant", tenant.as_str());
        trail.span.count("http.request.body.size", body.len() as u64);
        let mut passed = Passed::new(head.uri.path(), headers);
        if let Some(id) = trail.id() {
            passed.set(REQUEST_ID_HEADER, id);
        }
        if let (Some(name), Some(client)) = (self.clients.name(), &client) {
            // Once, and also where a sender has named the header as one of the connection's.
            passed.set(name, client.as_str());
            trail.span.text("freehold.client", client.as_str());
        }
        let write = Received { form, body, trail, client, passed, room: Some(room_for(held)) };
        let outcome = (distributor.push)(tenant.clone(), write).await;
        let mut response = remote_write_answer(protocol, outcome);
        let form = self.remote_write.ratelimit_headers;
        if form != RateLimitHeaders::Off
            && let Some(budget) = (distributor.budget)(&tenant)
        {
            tell_budget(&mut response, form, "tenant", budget);
        }
        Ok(response)
    }

    async fn read_body(&self, body: Body, bytes_max: usize) -> Result<(Bytes, Held), Response> {
        Ok(read_into(&self.room, body, bytes_max, self.remote_write.body_wait).await?)
    }

    fn protocol(&self, headers: &HeaderMap) -> Result<Version, String> {
        let settings = &self.remote_write;
        let content_type = header_text(headers, header::CONTENT_TYPE);
        let content_encoding = header_text(headers, header::CONTENT_ENCODING);
        let given = Headers { content_type: &content_type, content_encoding: &content_encoding };
        let accepted = Accepted {
            v2: settings.v2_enabled,
            unknown_content_type: settings.accept_unknown_content_type,
        };
        if let Some(distributor) = &self.distributor
            && let Some(kind) = kind(given, accepted)
        {
            (distributor.came)(kind);
        }
        given.version(accepted).map_err(|error| error.to_string())
    }
}

/// What a request says it is; `None` where its content type is refused. Cortex counts before it
/// looks at the encoding, and counts a version that is turned off.
fn kind(given: Headers<'_>, accepted: Accepted) -> Option<RequestKind> {
    let announced = Headers { content_encoding: "", ..given };
    match announced.version(Accepted { v2: true, unknown_content_type: false }) {
        Ok(Version::V1) => Some(RequestKind::V1),
        Ok(Version::V2) => Some(RequestKind::V2),
        Err(_) => accepted.unknown_content_type.then_some(RequestKind::Unknown),
    }
}

/// The first header of that name; empty when there is none.
fn header_text(headers: &HeaderMap, name: header::HeaderName) -> String {
    let value = headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    String::from_utf8_lossy(value).into_owned()
}

/// Why a body was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unread {
    #[error("received message larger than max ({len_bytes} vs {bytes_max})")]
    TooLarge { len_bytes: u64, bytes_max: usize },
    #[error("context canceled")]
    Gone,
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error("the request body did not arrive in time")]
    Late,
}

impl From<Unread> for Response {
    fn from(unread: Unread) -> Self {
        let status = match unread {
            Unread::TooLarge { .. } => 400,
            Unread::Gone => CLIENT_CLOSED_REQUEST,
            // A sender drops its samples on a 4xx; this one had only too little time, or we too
            // little room.
            Unread::NoRoom(_) | Unread::Late => 503,
        };
        http_error(status, &unread.to_string())
    }
}

/// A body, charged to a room as it arrives: who announces much and sends little takes little.
/// What finds no room is refused at once, so nobody holds some and waits for more.
pub(super) async fn read_into(
    room: &Room,
    body: Body,
    bytes_max: usize,
    wait: Duration,
) -> Result<(Bytes, Held), Unread> {
    let announced = body.size_hint().exact().and_then(|len| usize::try_from(len).ok());
    let first = announced.unwrap_or(usize::MAX).min(bytes_max).min(FIRST_CHARGE_BYTES);
    let mut held = room.hold(first, None).await?;
    let body = read_charged(body, bytes_max, wait, |bytes| held.grow_to(bytes)).await?;
    Ok((body, held))
}

/// Reads a body within its bounds of size and time.
pub(super) async fn read_body(
    body: Body,
    bytes_max: usize,
    wait: Duration,
) -> Result<Bytes, Response> {
    Ok(read_charged(body, bytes_max, wait, |_| Ok(())).await?)
}

/// The same; `charge` hears of the bytes so far before more are read.
async fn read_charged(
    mut body: Body,
    bytes_max: usize,
    wait: Duration,
    mut charge: impl FnMut(usize) -> Result<(), NoRoom>,
) -> Result<Bytes, Unread> {
    if let Some(len_bytes) = body.size_hint().exact()
        && usize::try_from(len_bytes).map_or(true, |len| len > bytes_max)
    {
        return Err(Unread::TooLarge { len_bytes, bytes_max });
    }
    let reading = async {
        let (mut parts, mut bytes) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Unread::Gone)?;
            let Ok(part) = frame.into_data() else { continue };
            bytes += part.len();
            if bytes > bytes_max {
                return Err(Unread::TooLarge { len_bytes: bytes_max as u64 + 1, bytes_max });
            }
            charge(bytes)?;
            parts.push(part);
        }
        Ok(match parts.as_slice() {
            [] => Bytes::new(),
            [part] => part.clone(),
            parts => parts.concat().into(),
        })
    };
    tokio::time::timeout(wait, reading).await.unwrap_or(Err(Unread::Late))
}

/// Marks an answer to what is no write, for the front door.
fn unreadable(mut response: Response) -> Response {
    response.extensions_mut().insert(Unreadable);
    response
}

/// Charges what a body unpacks to where the body is charged.
fn room_for(held: Held) -> RoomFor {
    let held = Mutex::new(held);
    Arc::new(move |bytes| {
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        held.grow_to(bytes).is_ok()
    })
}
