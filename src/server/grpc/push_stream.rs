//! `PushStream`: messages for many tenants on one stream, each answered once and in order.
//!
//! A client takes the end of a stream with status OK for the answer to whatever it has sent, so
//! the status is OK only when the client has said that no more comes and all is answered. A
//! server that goes down answers the message at hand and then ends its streams with an error.
//!
//! One message is read at a time: what comes behind it waits in the connection's window.
//!
//! With an upstream the stream still ends here: `forward.rs` keeps one of its own behind it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use prost::Message as _;
use tonic::Code;
use tonic::body::Body;

use super::answer::Step;
use super::forward::{Line, UNAVAILABLE};
use super::frames::{FrameError, frame};
use super::intake::{Intake, Received};
use super::messages::WriteResponse;
use super::{Edge, header_values};
use crate::server::drain::Drain;
use crate::server::durations::Durations;
use crate::server::seam::{PushError, Pushed};
use crate::server::status::{GrpcStatus, stream_answer};
use crate::server::stream_auth::check_message_tenant;
use crate::server::trails::{StreamTrail, end_message};
use crate::tenant::{TenantId, TenantIdError};
use crate::trail::{Kind, Span};
use crate::wire::encoding::Encoding;
use crate::wire::stream::StreamWriteRequest;

pub struct PushStream {
    edge: Arc<Edge>,
    drain: Drain,
    encoding: Encoding,
    intake: Intake<Body>,
    /// The name that the stream was opened with: a tenant's, or a distributor's worker's.
    name: Option<String>,
    /// The way on, where there is an upstream.
    line: Option<Line>,
    /// Where messages have spans.
    trail: Option<StreamTrail>,
}

impl PushStream {
    pub fn open(
        edge: Arc<Edge>,
        headers: &HeaderMap,
        encoding: Encoding,
        intake: Intake<Body>,
    ) -> Result<Self, GrpcStatus> {
        let name = edge.stream_name(headers)?;
        if !edge.settings.stream_keys.is_empty() {
            let signed = name.as_deref().ok_or(TenantIdError::Missing)?;
            let signatures = header_values(headers, "x-stream-signature");
            edge.settings.stream_keys.check(signed, &signatures)?;
        }
        let drain = edge.drain.clone();
        let trail = StreamTrail::open(edge.tracer.get(), headers);
        let line = edge.settings.upstream.as_ref().map(|upstream| {
            let within = edge.settings.stream_answer_within;
            Line::new(upstream.clone(), headers.clone(), encoding, within)
        });
        let intake = if line.is_some() { intake.keeping_frames() } else { intake };
        Ok(Self { edge, drain, encoding, intake, name, line, trail })
    }

    /// Waits for the next message and answers it, or ends the stream.
    pub async fn step(mut self) -> (Self, Step) {
        let step = self.try_step().await.unwrap_or_else(Step::End);
        (self, step)
    }

    async fn try_step(&mut self) -> Result<Step, GrpcStatus> {
        // The message that is lost with the dropped read was not answered, and the error that
        // ends the stream says so.
        let received = tokio::select! {
            biased;
            () = self.drain.started() => {
                return Err(GrpcStatus::new(Code::Unavailable, "server is shutting down"));
            }
            received = self.intake.next() => received,
        };
        let answer = match received {
            Ok(Some(received)) => {
                let timed = self.edge.durations.get().map(Durations::message);
                let answer = self.answer(received).await?;
                if let Some(timed) = timed {
                    timed.coded(answer.code);
                }
                answer
            }
            Ok(None) => return Ok(Step::End(GrpcStatus::ok())),
            // Its sender tries again, here or at another replica; the stream goes on.
            Err(FrameError::NoRoom(error)) => {
                refused(PushError::Rejected { code: UNAVAILABLE, text: error.to_string() })
            }
            Err(error) => return Err(error.into()),
        };
        let bytes_max = self.edge.settings.send_message_bytes_max;
        Ok(Step::Answer(frame(&answer.encode_to_vec(), self.encoding, bytes_max)?))
    }

    async fn answer(&mut self, received: Received) -> Result<WriteResponse, GrpcStatus> {
        let request = match StreamWriteRequest::decode(&received.message) {
            Ok(request) => request,
            Err(error) => return Ok(refused(PushError::Malformed { text: error.to_string() })),
        };
        let tenant = String::from_utf8_lossy(request.tenant_id);
        check_message_tenant(self.name.as_deref(), &tenant)?;
        let tenant = match TenantId::parse(&tenant) {
            Ok(tenant) => tenant,
            Err(error) => return Ok(refused(PushError::Plain { text: error.to_string() })),
        };
        let body = body_of(&received.message, request.request);
        let span = match &self.trail {
            Some(trail) => trail.message(&tenant, body.len()),
            None => Span::default(),
        };
        let answer = self.push(tenant, received, body, &span).await;
        end_message(&span, answer.code, &answer.message);
        Ok(answer)
    }

    async fn push(
        &mut self,
        tenant: TenantId,
        received: Received,
        body: Bytes,
        span: &Span,
    ) -> WriteResponse {
        if let Some(line) = &mut self.line {
            let pushed = line.push(&self.edge, &tenant, received, body, span).await;
            return pushed.unwrap_or_else(refused);
        }
        let storing = span.child(Kind::Internal, "store");
        let outcome = match self.edge.push(tenant, body, received.held).await {
            Ok(outcome) => outcome,
            Err(lost) => Err(PushError::Plain { text: lost.to_string() }),
        };
        drop(storing);
        outcome.map_or_else(refused, stored)
    }
}

/// The write request in `message`: a slice of it, unless its parts had to be joined.
fn body_of(message: &Bytes, request: Option<Cow<'_, [u8]>>) -> Bytes {
    match request {
        None => Bytes::new(),
        Some(Cow::Borrowed(part)) => message.slice_ref(part),
        Some(Cow::Owned(joined)) => joined.into(),
    }
}

pub(super) fn stored(pushed: Pushed) -> WriteResponse {
    WriteResponse { code: 200, ..WriteResponse::from(pushed) }
}

fn refused(error: PushError) -> WriteResponse {
    let (code, message) = stream_answer(error);
    WriteResponse { code: code.into(), message, ..WriteResponse::default() }
}
