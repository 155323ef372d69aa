//! The gRPC edge: `cortex.Ingester` and `grpc.health.v1`, as Cortex's parts call them, and
//! `freehold.budgets.v1`, by which gates share budgets.
//!
//! tonic serves the connections; the frames and trailers of a call are our own, since tonic
//! knows neither `snappy-block` nor a `grpc-status` of 400 (`docs/decisions/0005-grpc-frames.md`).
//! A write request is handed on as the bytes it came as.
//!
//! With an upstream, every call that does not end here goes through to it untouched (`pass.rs`).
//!
//! Here is no rule about pushes: a method reads its message, calls the service, and writes what
//! came of it.

mod answer;
mod budgets;
mod forward;
mod frames;
mod health;
mod intake;
mod messages;
mod pass;
mod push_stream;
mod serve;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic::Code;
use tonic::body::Body;
use tonic_health::server::HealthService;
use tower::Service;

pub use frames::FrameError;
pub use health::HealthSwitch;
pub use serve::serve;

use super::client_header::ClientHeader;
use super::drain::Drain;
use super::durations::Durations;
use super::push_log::PushLog;
use super::room::{Held, Room};
use super::seam::{BudgetCalls, IngesterCalls, PushError, Pushed, Work, WorkLost};
use super::status::GrpcStatus;
use super::stream_auth::StreamKeys;
use super::tenancy::Tenancy;
use super::trails::{begin_call, end_call};
use crate::tenant::{TenantId, TenantIdError};
use crate::trail::{Kind, Span, Tracer};
use crate::upstream::{Upstream, deadline};
use crate::wire::encoding::Encoding;
use budgets::BudgetsEdge;
use frames::{Messages, frame};
use intake::Intake;
use messages::{UserIdStatsResponse, UserStatsResponse, UsersStatsResponse, WriteResponse};
use push_stream::PushStream;

/// What every path of an ingester begins with.
const INGESTER: &str = "/cortex.Ingester/";
const PUSH: &str = "/cortex.Ingester/Push";
const PUSH_STREAM: &str = "/cortex.Ingester/PushStream";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Longest question about health: it names a service. It is not charged to the room, so that a
/// flood of pushes does not make us look dead.
const HEALTH_CHECK_BYTES_MAX: usize = 4 << 10;

/// How calls are treated.
#[derive(Clone)]
pub struct Settings {
    pub tenancy: Tenancy,
    /// Who is told in log lines of pushes.
    pub clients: ClientHeader,
    pub stream_keys: StreamKeys,
    pub receive_message_bytes_max: usize,
    /// What all messages together may take while they arrive and are handled.
    pub room: Room,
    pub send_message_bytes_max: usize,
    /// Where every call goes that is not answered here, and what is left of pushes.
    pub upstream: Option<Upstream>,
    /// How long a message of a push stream may wait for the upstream's answer.
    pub stream_answer_within: Duration,
}

/// Answers gRPC calls; cheap to clone, one clone per connection.
#[derive(Clone)]
pub struct GrpcEdge(Arc<Edge>);

struct Edge {
    settings: Settings,
    /// None in a gate.
    ingester: Option<IngesterCalls>,
    /// Empty where no budgets are shared.
    budgets: OnceLock<BudgetsEdge>,
    /// Empty where nobody traces.
    tracer: OnceLock<Tracer>,
    /// Empty where nobody measures.
    durations: OnceLock<Durations>,
    work: Work,
    health: HealthService,
    drain: Drain,
    pushes: PushLog,
}

/// A call whose headers are read.
struct Call {
    headers: HeaderMap,
    encoding: Encoding,
    intake: Intake<Body>,
}

/// Who answers a call.
enum Answered {
    Passed(Response<Body>),
    Ours(Request<Body>),
}

impl GrpcEdge {
    pub fn new(
        settings: Settings,
        ingester: Option<IngesterCalls>,
        work: Work,
        health: &HealthSwitch,
        drain: Drain,
    ) -> Self {
        let pushes = PushLog::new(settings.clients.clone());
        let health = health.service();
        Self(Arc::new(Edge {
            settings,
            ingester,
            budgets: OnceLock::new(),
            tracer: OnceLock::new(),
            durations: OnceLock::new(),
            work,
            health,
            drain,
            pushes,
        }))
    }

    /// Measures calls. Once; a second time has no effect.
    pub fn with_durations(self, durations: Durations) -> Self {
        self.0.durations.get_or_init(|| durations);
        self
    }

    /// Begins spans over calls. Once; a second time has no effect.
    pub fn with_tracer(self, tracer: Tracer) -> Self {
        self.0.tracer.get_or_init(|| tracer);
        self
    }

    /// Answers other gates, too. Once; a second time has no effect.
    pub fn with_budgets(self, calls: BudgetCalls) -> Self {
        self.0.budgets.get_or_init(|| BudgetsEdge::new(calls));
        self
    }
}

impl Service<Request<Body>> for GrpcEdge {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(())) // admission is the services' business
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let edge = Arc::clone(&self.0);
        Box::pin(async move {
            let durations = edge.durations.get();
            let timed = durations.and_then(|durations| durations.call(request.uri().path()));
            let outcome = edge.answer(request).await;
            if let Some(timed) = timed {
                timed.called(&outcome);
            }
            Ok(outcome.unwrap_or_else(|status| answer::status_only(&status)))
        })
    }
}

impl Edge {
    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, GrpcStatus> {
        if let Some(refusal) = not_grpc(&request) {
            return Ok(refusal);
        }
        if request.uri().path().starts_with(budgets::PREFIX)
            && let Some(budgets) = self.budgets.get()
        {
            let until = deadline(request.headers());
            return within(until, budgets.answer(&self, request)).await;
        }
        if self.ingester.is_none() && request.uri().path().starts_with(INGESTER) {
            let text = "unknown service cortex.Ingester".to_owned();
            return Err(GrpcStatus::new(Code::Unimplemented, text));
        }
        let span = self.begin(&request);
        let outcome = self.answer_call(request, &span).await;
        end_call(&span, &outcome);
        outcome
    }

    /// A span over a call for which somebody waits. A push stream goes on for days, and a health
    /// check says nothing.
    fn begin(&self, request: &Request<Body>) -> Span {
        match request.uri().path() {
            PUSH_STREAM => Span::default(),
            path if path.starts_with(INGESTER) => {
                begin_call(self.tracer.get(), path, request.headers())
            }
            _ => Span::default(),
        }
    }

    async fn answer_call(
        self: Arc<Self>,
        request: Request<Body>,
        span: &Span,
    ) -> Result<Response<Body>, GrpcStatus> {
        let request = match self.passed(request, span).await? {
            Answered::Passed(response) => return Ok(response),
            Answered::Ours(request) => request,
        };
        let named = match request.uri().path() {
            PUSH => self.pushes.named(self.settings.tenancy, request.headers()),
            _ => None,
        };
        let Some(named) = named else {
            return self.answer_ours(request, span).await;
        };
        let outcome = Arc::clone(&self).answer_ours(request, span).await;
        self.pushes.tell(&named, span, &outcome);
        outcome
    }

    fn ingester(&self) -> &IngesterCalls {
        self.ingester.as_ref().expect("its calls were turned away before")
    }

    /// What does not go through untouched.
    async fn answer_ours(
        self: Arc<Self>,
        request: Request<Body>,
        span: &Span,
    ) -> Result<Response<Body>, GrpcStatus> {
        if let Some(upstream) = &self.settings.upstream
            && request.uri().path() == PUSH
        {
            return forward::push(&self, upstream, request, span).await;
        }
        let until = deadline(request.headers());
        within(until, self.answer_here(request, span)).await
    }

    async fn answer_here(
        self: Arc<Self>,
        request: Request<Body>,
        span: &Span,
    ) -> Result<Response<Body>, GrpcStatus> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        match path {
            PUSH => {
                let call = self.open(head.headers, body)?;
                let tenant = self.settings.tenancy.tenant(&call.headers)?;
                let received = call.intake.only().await?;
                span.count("rpc.message.size", received.message.len() as u64);
                let storing = span.child(Kind::Internal, "store");
                let pushed = self.push(tenant, received.message, received.held).await??;
                drop(storing);
                span.count("freehold.samples", pushed.samples + pushed.histograms);
                self.reply(call.encoding, &WriteResponse::from(pushed))
            }
            PUSH_STREAM => {
                let Call { headers, encoding, intake } = self.open(head.headers, body)?;
                let stream = PushStream::open(self, &headers, encoding, intake)?;
                Ok(answer::stream(encoding, stream, PushStream::step).await)
            }
            "/cortex.Ingester/UserStats" => {
                let call = self.open(head.headers, body)?;
                let tenant = self.settings.tenancy.tenant(&call.headers)?;
                call.intake.only().await?;
                let stats = Arc::clone(&self.ingester().user_stats);
                let stats = self.work.run(move || stats(&tenant)).await?;
                self.reply(call.encoding, &UserStatsResponse::from(stats))
            }
            "/cortex.Ingester/AllUserStats" => {
                let call = self.open(head.headers, body)?;
                self.settings.tenancy.named(&call.headers)?;
                call.intake.only().await?;
                let stats = Arc::clone(&self.ingester().all_user_stats);
                let stats = self.work.run(move || stats()).await?;
                let stats = stats.into_iter().map(|(tenant, stats)| UserIdStatsResponse {
                    user_id: tenant.as_str().to_owned(),
                    data: Some(stats.into()),
                });
                self.reply(call.encoding, &UsersStatsResponse { stats: stats.collect() })
            }
            HEALTH_CHECK => {
                let encoding = self.question(&head.headers, body).await?;
                let checked = health::check(&self.health).await?;
                self.reply(encoding, &checked)
            }
            HEALTH_WATCH => {
                let encoding = self.question(&head.headers, body).await?;
                let drain = self.drain.clone();
                let watch = health::Watch::open(&self.health, encoding, drain).await?;
                Ok(answer::stream(encoding, watch, health::Watch::step).await)
            }
            path => Err(unknown(path)),
        }
    }

    /// What does not end here goes through, if there is an upstream: all but pushes, and health
    /// checks while we say ourselves that we do not serve.
    async fn passed(&self, request: Request<Body>, span: &Span) -> Result<Answered, GrpcStatus> {
        let Some(upstream) = &self.settings.upstream else {
            return Ok(Answered::Ours(request));
        };
        let response = match request.uri().path() {
            PUSH | PUSH_STREAM => return Ok(Answered::Ours(request)),
            HEALTH_CHECK | HEALTH_WATCH if !health::is_serving(&self.health).await => {
                return Ok(Answered::Ours(request));
            }
            HEALTH_WATCH => pass::pass_until_drain(upstream, request, self.drain.clone()).await?,
            _ => pass::pass(upstream, request, span).await?,
        };
        Ok(Answered::Passed(response))
    }

    fn open(&self, headers: HeaderMap, body: Body) -> Result<Call, GrpcStatus> {
        let encoding = self.encoding(&headers)?;
        let messages = Messages::new(body, encoding, self.settings.receive_message_bytes_max);
        let intake = Intake::new(messages, self.settings.room.clone(), deadline(&headers));
        Ok(Call { headers, encoding, intake })
    }

    /// Reads a question about health, in which there is nothing that we answer by.
    async fn question(&self, headers: &HeaderMap, body: Body) -> Result<Encoding, GrpcStatus> {
        let encoding = self.encoding(headers)?;
        let mut messages = Messages::new(body, encoding, HEALTH_CHECK_BYTES_MAX);
        messages.next().await?.ok_or(FrameError::NoMessage)?;
        messages.ended().await?;
        Ok(encoding)
    }

    fn encoding(&self, headers: &HeaderMap) -> Result<Encoding, GrpcStatus> {
        let Some(name) = headers.get("grpc-encoding") else {
            return Ok(Encoding::Identity);
        };
        let encoding = Encoding::from_name(name.as_bytes()).ok_or_else(|| {
            let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
            FrameError::UnknownEncoding { name }
        });
        Ok(encoding?)
    }

    async fn push(
        &self,
        tenant: TenantId,
        request: Bytes,
        held: Held,
    ) -> Result<Result<Pushed, PushError>, WorkLost> {
        match &self.work {
            // Saves the clone of a reference count on the hot path.
            Work::Inline => Ok((self.ingester().push)(&tenant, request)),
            work => {
                let push = Arc::clone(&self.ingester().push);
                // What a thread works on stays charged, whatever becomes of the caller.
                let call = move || {
                    let pushed = push(&tenant, request);
                    drop(held);
                    pushed
                };
                work.run(call).await
            }
        }
    }

    /// The name that a push stream was opened with. It need not be a tenant's.
    fn stream_name(&self, headers: &HeaderMap) -> Result<Option<String>, TenantIdError> {
        Ok(Some(self.settings.tenancy.named(headers)?.into_owned()))
    }

    fn reply(
        &self,
        encoding: Encoding,
        message: &impl Message,
    ) -> Result<Response<Body>, GrpcStatus> {
        let bytes = message.encode_to_vec();
        Ok(answer::unary(encoding, frame(&bytes, encoding, self.settings.send_message_bytes_max)?))
    }
}

async fn within(
    until: Option<Instant>,
    answered: impl Future<Output = Result<Response<Body>, GrpcStatus>>,
) -> Result<Response<Body>, GrpcStatus> {
    match until {
        None => answered.await,
        Some(until) => timeout_at(until, answered).await.unwrap_or_else(|_| {
            let text = "context deadline exceeded".to_owned();
            Err(GrpcStatus::new(Code::DeadlineExceeded, text))
        }),
    }
}

fn header_values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect()
}

/// What grpc-go answers to requests that are no calls.
fn not_grpc(request: &Request<Body>) -> Option<Response<Body>> {
    let (code, text) = if request.method() != Method::POST {
        let method = request.method();
        (StatusCode::METHOD_NOT_ALLOWED, format!("received a method {method}, not POST"))
    } else {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let content_type = content_type.map_or(&b""[..], http::HeaderValue::as_bytes);
        match content_type.strip_prefix(b"application/grpc") {
            Some([] | [b'+' | b';', ..]) => return None,
            _ => {
                let content_type = String::from_utf8_lossy(content_type);
                let text = format!("invalid gRPC request content-type {content_type:?}");
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, text)
            }
        }
    };
    let mut refusal = answer::status_only(&GrpcStatus::new(Code::Internal, text));
    *refusal.status_mut() = code;
    Some(refusal)
}

fn unknown(path: &str) -> GrpcStatus {
    let text = match path.strip_prefix('/').and_then(|path| path.rsplit_once('/')) {
        Some((service @ ("cortex.Ingester" | "grpc.health.v1.Health"), method)) => {
            format!("unknown method {method} for service {service}")
        }
        Some((service, _)) => format!("unknown service {service}"),
        None => format!("malformed method name: {path:?}"),
    };
    GrpcStatus::new(Code::Unimplemented, text)
}
