//! One request on its way to many ingesters.
//!
//! The caller gets the verdict as soon as it falls. What is still under way then goes on to its
//! end in tasks that [`Ingesters`] own, each bounded by the request's deadline and the budgets,
//! so that replicas get the samples although nobody waits for them any more.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::client::{Client, Outgoing, call_headers};
use super::{CLIENT_METADATA, Contents, Ingesters, Pushing};
use crate::ring::{Failure, Member, Quorum, QuorumError};
use crate::trail::{Kind, REQUEST_ID_HEADER, Span, Trail};
use crate::upstream::answers::FRAME_HEADER_LEN;
use crate::upstream::budget::{Budget, InFlight};
use crate::wire::batch::write_stream_batch;
use crate::wire::encoding::Encoding;
use crate::wire::signature;

use super::failure;

/// Takes a request's batches in their order, then sends them all.
pub struct Spread<'a> {
    ingesters: &'a Ingesters,
    tenant: &'a str,
    trail: Option<&'a Trail>,
    quorum: Quorum,
    /// What unary pushes of this request have in common; none when the tenant fits no header.
    headers: Option<HeaderMap>,
    sendings: Vec<Sending>,
    scratch: &'a mut MessageScratch,
}

/// Memory for messages on their way out, kept from request to request.
#[derive(Debug, Default)]
pub struct MessageScratch {
    wrapped: Vec<u8>,
    packed: Vec<u8>,
}

/// A batch and where it goes, or why it does not.
struct Sending {
    member: Member,
    contents: Contents,
    span: Span,
    outgoing: Result<(Arc<Client>, Outgoing, InFlight), Failure>,
}

/// What the tasks of one request share.
struct Shared {
    ingesters: Ingesters,
    quorum: Mutex<Quorum>,
    verdict: Mutex<Option<oneshot::Sender<Result<(), QuorumError>>>>,
}

/// Deadlines go over the wire in whole milliseconds, so an answer may be given up this much early.
const DEADLINE_GRAIN: Duration = Duration::from_millis(1);

/// What waits for the verdict. Dropping it gives up waiting, nothing else.
pub struct Awaited {
    verdict: Option<oneshot::Receiver<Result<(), QuorumError>>>,
    ingesters: Ingesters,
    deadline: Instant,
}

impl<'a> Spread<'a> {
    pub(super) fn new(
        ingesters: &'a Ingesters,
        pushing: &Pushing<'a>,
        quorum: Quorum,
        scratch: &'a mut MessageScratch,
    ) -> Self {
        let headers = call_headers(ingesters.encoding(), pushing.tenant)
            .map(|headers| with_request_metadata(headers, pushing));
        let &Pushing { tenant, trail, .. } = pushing;
        Self { ingesters, tenant, trail, quorum, headers, sendings: Vec::new(), scratch }
    }

    /// The next batch, a `cortexpb.WriteRequest`, for a member of the ring.
    pub fn add(&mut self, member: &Member, contents: Contents, request: &[u8]) {
        let span = self.trail.map_or_else(Span::default, |trail| {
            let span = trail.span.child(Kind::Client, "ingester");
            span.text("server.address", &member.addr);
            span.text("freehold.ingester", &member.id);
            span.count("rpc.message.size", request.len() as u64);
            span
        });
        let outgoing = self.prepare(member, request, &span);
        self.sendings.push(Sending { member: member.clone(), contents, span, outgoing });
    }

    /// Sends all batches. Nothing is sent before this, and everything is once it returns.
    pub fn send(self) -> Awaited {
        let ingesters = self.ingesters.clone();
        let deadline = Instant::now() + ingesters.remote_timeout();
        if self.quorum.is_empty() {
            return Awaited { verdict: None, ingesters, deadline };
        }
        let (told, verdict) = oneshot::channel();
        let shared = Arc::new(Shared {
            ingesters: ingesters.clone(),
            quorum: Mutex::new(self.quorum),
            verdict: Mutex::new(Some(told)),
        });
        for (batch, sending) in self.sendings.into_iter().enumerate() {
            let Sending { member, contents, span, outgoing } = sending;
            match outgoing {
                Err(failure) => {
                    span.fail(&failure.message);
                    shared.record(batch, &member, contents, Err(failure));
                }
                Ok((client, outgoing, in_flight)) => {
                    let shared = Arc::clone(&shared);
                    // It ends by the deadline, with every answer told.
                    ingesters.spawn(async move {
                        let counted = shared.ingesters.count_in_flight();
                        let outcome = client.push(outgoing, deadline).await;
                        if let Err(failure) = &outcome {
                            span.fail(&failure.message);
                        }
                        drop((counted, in_flight, span));
                        shared.record(batch, &member, contents, outcome);
                    });
                }
            }
        }
        Awaited { verdict: Some(verdict), ingesters, deadline }
    }

    fn prepare(
        &mut self,
        member: &Member,
        request: &[u8],
        span: &Span,
    ) -> Result<(Arc<Client>, Outgoing, InFlight), Failure> {
        let client = self.ingesters.client(&member.addr)?;
        let outgoing = if self.ingesters.use_stream_push() {
            self.scratch.wrapped.clear();
            write_stream_batch(&mut self.scratch.wrapped, self.tenant, request);
            let wrapped = std::mem::take(&mut self.scratch.wrapped);
            let frame = self.frame(&wrapped);
            self.scratch.wrapped = wrapped;
            Outgoing::Streamed { frame: frame? }
        } else {
            let mut headers =
                self.headers.clone().ok_or_else(|| Failure::unsent("the tenant fits no header"))?;
            if self.ingesters.sign_write_requests() {
                let signed = signature::sign(self.tenant, request);
                let signature = signed.map_err(|error| Failure::unsent(error.to_string()))?;
                let signature = HeaderValue::from_str(&signature).expect("digits");
                headers.insert("x-req-signature", signature);
            }
            for (name, value) in span.headers() {
                if let Ok(value) = HeaderValue::try_from(value) {
                    headers.insert(HeaderName::from_static(name), value);
                }
            }
            Outgoing::Unary { headers, frame: self.frame(request)? }
        };
        let bytes = match &outgoing {
            Outgoing::Unary { frame, .. } | Outgoing::Streamed { frame } => frame.len() as u64,
        };
        let in_flight = Budget::enter(self.ingesters.budget(), bytes);
        let in_flight = in_flight.map_err(|error| failure::of_upstream(&error))?;
        Ok((client, outgoing, in_flight))
    }

    /// A message with its flag and length, in memory of exactly its size.
    fn frame(&mut self, message: &[u8]) -> Result<Bytes, Failure> {
        const INTERNAL: i32 = 13;
        let encoding = self.ingesters.encoding();
        let packed = &mut self.scratch.packed;
        packed.clear();
        let (flag, payload) = match encoding {
            Encoding::Identity => (0, message),
            encoding => {
                let compressed = encoding.compress_into(message, packed);
                compressed.map_err(|error| failure::status(INTERNAL, error.to_string()))?;
                (1, &packed[..])
            }
        };
        let max = self.ingesters.send_message_bytes_max();
        let len = match u32::try_from(payload.len()) {
            Ok(len) if payload.len() <= max => len,
            _ => {
                let told =
                    format!("trying to send message larger than max ({} vs. {max})", payload.len());
                return Err(failure::too_large(told));
            }
        };
        let mut frame = BytesMut::with_capacity(FRAME_HEADER_LEN + payload.len());
        frame.put_u8(flag);
        frame.put_u32(len);
        frame.put_slice(payload);
        Ok(frame.freeze())
    }
}

impl MessageScratch {
    /// What a request leaves behind.
    pub fn bytes_kept(&self) -> usize {
        self.wrapped.capacity() + self.packed.capacity()
    }
}

impl Shared {
    fn record(
        &self,
        batch: usize,
        member: &Member,
        contents: Contents,
        outcome: Result<(), Failure>,
    ) {
        self.ingesters.counters().count(&member.id, contents, &outcome);
        let verdict =
            self.quorum.lock().expect("no panic under this lock").record(batch, member, outcome);
        if let Some(verdict) = verdict
            && let Some(told) = self.verdict.lock().expect("no panic under this lock").take()
        {
            // Whoever asked may have gone.
            let _ = told.send(verdict);
        }
    }
}

impl Awaited {
    /// The verdict, by the request's deadline at the latest.
    pub async fn verdict(self) -> Result<(), QuorumError> {
        let Some(verdict) = self.verdict else {
            return Ok(());
        };
        let verdict = verdict.await.unwrap_or_else(|_| {
            // The tasks have ended with the process' clients.
            Err(QuorumError { code: 500, text: "context canceled".to_owned() })
        });
        if Instant::now() + DEADLINE_GRAIN >= self.deadline {
            self.ingesters.count_timeout();
        }
        verdict
    }
}

/// What Cortex tells ingesters of the request that a push belongs to: one header many times,
/// names and values in turn.
fn with_request_metadata(mut headers: HeaderMap, pushing: &Pushing<'_>) -> HeaderMap {
    const METADATA: &str = "x-request-metadata-propagation-string";
    for (name, value) in pushing.request_metadata {
        let pair = (HeaderValue::from_str(name), HeaderValue::from_str(value));
        // What fits no header is not told; it is for logs only.
        if let (Ok(name), Ok(value)) = pair {
            headers.append(METADATA, name);
            headers.append(METADATA, value);
        }
    }
    // A gate of ours behind an ingester's address reads it here.
    let id = pushing.trail.and_then(Trail::id);
    if let Some(Ok(id)) = id.map(HeaderValue::from_str) {
        headers.insert(HeaderName::from_static(REQUEST_ID_HEADER), id);
    }
    if let Some(Ok(client)) = pushing.client.map(HeaderValue::from_str) {
        headers.insert(CLIENT_METADATA, client);
    }
    if let Some(Ok(source)) = pushing.source_ips.map(HeaderValue::from_str) {
        headers.insert("extract-forwarded-x-forwarded-for", source);
    }
    headers
}
