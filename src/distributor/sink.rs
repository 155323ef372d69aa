//! Where admitted requests go: an ingester in this process, the ring's ingesters, or a
//! distributor behind this gate.
//!
//! A sink gets the request as it was prepared and as it was received, and takes of the two what
//! it needs. What it says of a failure tells whether anything can have been processed: only if
//! not is the tenant given back what it was charged.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::distributor::fan_out::{FanOut, FanOutError};
use crate::distributor::prepared::Prepared;
use crate::distributor::{Form, Received};
use crate::exposition::{Families, RefusedCount};
use crate::ring::Ring;
use crate::tenant::{ClientId, TenantId};
use crate::trail::{Kind, Span};
use crate::units::shard_size;
use crate::upstream::distributor::{Answer, HttpUpstream, HttpUpstreamError, Passed};
use crate::upstream::ingesters::Pushing;
use crate::wire::remote_write::packed;

/// The tenant's header, as every part of Cortex has it.
const TENANT_HEADER: &str = "x-scope-orgid";

/// Where a distributor takes remote writes, for what came by another path.
const PUSH_PATH: &str = "/api/v1/push";

/// Where requests go. A closed set: each has its own way of telling what became of a request.
pub enum Sink {
    /// An ingester in this process.
    Local(LocalPush),
    /// The ingesters of the ring, over gRPC.
    Ring(RingSink),
    /// A distributor, over HTTP.
    Upstream(HttpUpstream),
}

/// The ring, and the way to its ingesters.
pub struct RingSink {
    pub ring: Arc<Ring>,
    pub fan_out: FanOut,
}

type LocalFuture = Pin<Box<dyn Future<Output = Result<(), SinkError>> + Send>>;

/// Stores an encoded `cortexpb.WriteRequest` of a tenant in this process.
pub type LocalPush = Arc<dyn Fn(TenantId, Vec<u8>) -> LocalFuture + Send + Sync>;

/// What a sink made of a request.
#[derive(Debug)]
pub enum Sent {
    /// It is stored.
    Stored,
    /// What the distributor behind us said, to be handed on as it is.
    Answered(Answer),
}

/// Why a sink did not take a request whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The receiver's own decision. Ingesters tell it as the status that the sender is to get,
    /// so it is handed on and not understood here.
    #[error("{text}")]
    Told { status: u16, text: String, wait_ns: Option<u64> },
    /// A limit further in refused the request whole; nothing of it was processed.
    #[error("{text}")]
    Refused { status: u16, text: String, wait_ns: Option<u64> },
    /// The ring has nobody to take some of it; nothing was sent.
    #[error("{text}")]
    Unplaced { text: String },
    /// The receiver does not serve.
    #[error("{text}")]
    Unavailable { text: String },
    /// Nobody else's fault; a sender may try again.
    #[error("{text}")]
    Failed { text: String },
    #[error(transparent)]
    Upstream(#[from] HttpUpstreamError),
}

/// A request on its way: as it was received, and what preparation made of it.
pub(super) struct Outgoing<'a> {
    pub write: Received,
    /// The decoded body that `prepared` may borrow from.
    pub prepared: Prepared<'a>,
    pub has_losses: bool,
    /// The tenant's, as configured; a part of the ingesters when it is below 1.
    pub shard_size: f64,
}

impl Sink {
    pub(super) async fn send(
        &self,
        tenant: &TenantId,
        outgoing: Outgoing<'_>,
    ) -> Result<Sent, SinkError> {
        match self {
            Self::Local(push) => {
                let span = outgoing.write.trail.span.child(Kind::Internal, "store");
                let pushed = push(tenant.clone(), outgoing.prepared.body.into_owned()).await;
                failed(&span, &pushed);
                pushed?;
                Ok(Sent::Stored)
            }
            Self::Ring(sink) => {
                sink.push(tenant, &outgoing).await?;
                Ok(Sent::Stored)
            }
            Self::Upstream(upstream) => {
                let Outgoing { write, prepared, has_losses, .. } = outgoing;
                let Received { form, mut passed, body, trail, .. } = write;
                passed.set(TENANT_HEADER, tenant.as_str());
                let span = trail.span.child(Kind::Client, "distributor");
                for (name, value) in span.headers() {
                    passed.set(name, &value);
                }
                if !has_losses {
                    return Ok(Sent::Answered(forward(upstream, passed, body, &span).await?));
                }
                // What is left is a request of version 1, whatever it came as.
                if matches!(form, Form::Otlp { .. }) {
                    passed.set_path(PUSH_PATH);
                }
                passed.set("content-type", "application/x-protobuf");
                passed.set("content-encoding", "snappy");
                passed.set("x-prometheus-remote-write-version", "0.1.0");
                let body = Bytes::from(packed(&prepared.body));
                let answer = forward(upstream, passed, body, &span).await?;
                match answer.status.is_success() {
                    true => Ok(Sent::Stored),
                    false => Ok(Sent::Answered(answer)),
                }
            }
        }
    }

    /// Requests of ours that are under way.
    pub(super) fn requests_in_flight(&self) -> u64 {
        match self {
            Self::Local(_) => 0,
            Self::Ring(sink) => sink.fan_out.ingesters().in_flight(),
            Self::Upstream(upstream) => upstream.in_flight(),
        }
    }

    /// Series are spread over ingesters here, by their keys.
    pub(super) fn places(&self) -> bool {
        matches!(self, Self::Ring(_))
    }

    /// Somebody behind us counts the same traffic under the same names.
    pub(super) fn is_counted_behind(&self) -> bool {
        matches!(self, Self::Upstream(_))
    }

    pub(super) fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        match self {
            Self::Local(_) | Self::Ring(_) => {}
            Self::Upstream(upstream) => upstream.tell_refused(tell),
        }
    }

    pub(super) fn read_metrics(&self, families: &mut Families) {
        families.gauge(
            "cortex_distributor_inflight_client_requests",
            "Current number of inflight client requests in distributor.",
            self.requests_in_flight() as f64,
        );
        match self {
            Self::Local(_) => {}
            Self::Ring(sink) => sink.fan_out.ingesters().read_metrics(families),
            Self::Upstream(upstream) => upstream.read_metrics(families),
        }
    }
}

/// Sends a request on, with what came of it on its span.
async fn forward(
    upstream: &HttpUpstream,
    passed: Passed,
    body: Bytes,
    span: &Span,
) -> Result<Answer, HttpUpstreamError> {
    let answered = upstream.forward(passed, body).await;
    if let Ok(answer) = &answered {
        span.count("http.response.status_code", answer.status.as_u16().into());
    }
    failed(span, &answered);
    answered
}

fn failed<T, E: std::fmt::Display>(span: &Span, outcome: &Result<T, E>) {
    if let Err(error) = outcome
        && span.is_recorded()
    {
        span.fail(&error.to_string());
    }
}

impl RingSink {
    async fn push(&self, tenant: &TenantId, outgoing: &Outgoing<'_>) -> Result<(), FanOutError> {
        let ring = self.ring.load();
        let shard_size = shard_size(outgoing.shard_size, ring.members().len());
        let trail = &outgoing.write.trail;
        let pushing = Pushing {
            tenant: tenant.as_str(),
            client: outgoing.write.client.as_ref().map(ClientId::as_str),
            request_metadata: &[
                ("x-cortex-request-id", trail.id().unwrap_or_default()),
                ("x-cortex-request-source", "api"),
            ],
            source_ips: None,
            trail: Some(trail),
        };
        self.fan_out.push(&pushing, &outgoing.prepared, &ring, shard_size).await
    }
}

impl From<FanOutError> for SinkError {
    fn from(error: FanOutError) -> Self {
        match error {
            FanOutError::Unplaced(error) => Self::Unplaced { text: error.to_string() },
            FanOutError::Ingesters(error) => {
                Self::Told { status: error.code, text: error.text, wait_ns: None }
            }
        }
    }
}

impl SinkError {
    /// Nothing of the request can have been processed, so nothing is charged for it.
    pub fn is_unprocessed(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Unplaced { .. } | Self::Unavailable { .. } => true,
            Self::Upstream(error) => error.is_unsent(),
            Self::Told { .. } | Self::Failed { .. } => false,
        }
    }

    /// When the sender may come back, where that is known.
    pub fn wait_ns(&self) -> Option<u64> {
        match self {
            Self::Told { wait_ns, .. } | Self::Refused { wait_ns, .. } => *wait_ns,
            Self::Upstream(error) => error.wait().map(nanos),
            Self::Unplaced { .. } | Self::Unavailable { .. } | Self::Failed { .. } => None,
        }
    }
}

fn nanos(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)
}
