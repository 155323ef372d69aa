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
use super::forward::Line;
use super::frames::{FrameError, Framed, Messages, frame};
use super::messages::WriteResponse;
use super::{Edge, header_values};
use crate::server::drain::Drain;
use crate::server::seam::{PushError, Pushed};
use crate::server::status::{GrpcStatus, stream_answer};
use crate::server::stream_auth::check_message_tenant;
use crate::tenant::{TenantId, TenantIdError};
use crate::wire::encoding::Encoding;
use crate::wire::stream::StreamWriteRequest;

pub struct PushStream {
    edge: Arc<Edge>,
    drain: Drain,
    encoding: Encoding,
    messages: Messages<Body>,
    /// The name that the stream was opened with: a tenant's, or a distributor's worker's.
    name: Option<String>,
    /// The way on, where there is an upstream.
    line: Option<Line>,
}

impl PushStream {
    pub fn open(
        edge: Arc<Edge>,
        headers: &HeaderMap,
        encoding: Encoding,
        messages: Messages<Body>,
    ) -> Result<Self, GrpcStatus> {
        let name = edge.stream_name(headers)?;
        if !edge.settings.stream_keys.is_empty() {
            let signed = name.as_deref().ok_or(TenantIdError::Missing)?;
            let signatures = header_values(headers, "x-stream-signature");
            edge.settings.stream_keys.check(signed, &signatures)?;
        }
        let drain = edge.drain.clone();
        let line = edge.settings.upstream.as_ref().map(|upstream| {
            let within = edge.settings.stream_answer_within;
            Line::new(upstream.clone(), headers.clone(), encoding, within)
        });
        Ok(Self { edge, drain, encoding, messages, name, line })
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
            received = next(&mut self.messages, self.line.is_some()) => received?,
        };
        let Some(received) = received else {
            return Ok(Step::End(GrpcStatus::ok()));
        };
        let answer = self.answer(received).await?;
        let bytes_max = self.edge.settings.send_message_bytes_max;
        Ok(Step::Answer(frame(&answer.encode_to_vec(), self.encoding, bytes_max)?))
    }

    async fn answer(&mut self, received: Framed) -> Result<WriteResponse, GrpcStatus> {
        let message = received.message.clone();
        let request = match StreamWriteRequest::decode(&message) {
            Ok(request) => request,
            Err(error) => return Ok(refused(PushError::Malformed { text: error.to_string() })),
        };
        let tenant = String::from_utf8_lossy(request.tenant_id);
        check_message_tenant(self.name.as_deref(), &tenant)?;
        let tenant = match TenantId::parse(&tenant) {
            Ok(tenant) => tenant,
            Err(error) => return Ok(refused(PushError::Plain { text: error.to_string() })),
        };
        let body = body_of(&message, request.request);
        if let Some(line) = &mut self.line {
            let pushed = line.push(&self.edge, &tenant, received, &body).await;
            return Ok(pushed.unwrap_or_else(refused));
        }
        let outcome = match self.edge.push(tenant, body).await {
            Ok(outcome) => outcome,
            Err(lost) => Err(PushError::Plain { text: lost.to_string() }),
        };
        Ok(outcome.map_or_else(refused, stored))
    }
}

/// The next message; its frame too where it goes on, else an empty one.
async fn next(messages: &mut Messages<Body>, goes_on: bool) -> Result<Option<Framed>, FrameError> {
    if goes_on {
        return messages.next_framed().await;
    }
    let message = messages.next().await?;
    Ok(message.map(|message| Framed { frame: Bytes::new(), message }))
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
