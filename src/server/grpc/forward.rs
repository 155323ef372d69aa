//! Pushes that an upstream stores: judged by our ingester, handed on, answered by what both say.
//!
//! ```text
//! message ─► judge ─► nothing left ───────────────────────────────────────┐
//!                 └─► its frame as it came, or what is left ─► upstream ─► settle ─► answer
//! ```
//!
//! An error of the upstream's own goes first, then what we refused, then what the upstream did.
//!
//! What must hold: each push is settled once, by the upstream's word or by the lack of it; a
//! message of a push stream is answered once and in order, whatever becomes of the stream behind
//! it; an upstream stream that missed one answer is never used again, since the next answer on it
//! would be taken for another message's.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::body::Body;

use super::frames::{Messages, frame};
use super::intake::Received;
use super::messages::WriteResponse;
use super::pass::fail;
use super::push_stream::stored;
use super::{Edge, PUSH_STREAM};
use crate::server::seam::{Forward, Judged, PushError, Told};
use crate::server::status::{CLIENT_CLOSED_REQUEST, GrpcStatus, stream_answer};
use crate::server::trails::tell;
use crate::tenant::TenantId;
use crate::trail::{Kind, Span};
use crate::upstream::{Answer, SUSPICIOUS_AFTER, Upstream, UpstreamError, percent_decoded};
use crate::wire::encoding::Encoding;
use crate::wire::{signature, stream};

/// Largest answer to a push that is read: a few numbers and a text.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const SIGNATURE: &str = "x-req-signature";
pub(super) const UNAVAILABLE: u16 = 503;

/// One unary push.
pub async fn push(
    edge: &Edge,
    upstream: &Upstream,
    request: Request<Body>,
    span: &Span,
) -> Result<Response<Body>, GrpcStatus> {
    let (mut head, body) = request.into_parts();
    let call = edge.open(std::mem::take(&mut head.headers), body)?;
    let (headers, encoding) = (call.headers, call.encoding);
    let tenant = edge.settings.tenancy.tenant(&headers)?;
    head.headers = headers;
    let received = call.intake.keeping_frames().only().await?;
    let Received { frame: received, message, held: _held } = received;
    span.count("rpc.message.size", message.len() as u64);
    let Judged { forward, settle } = (edge.ingester().judge)(&tenant, &message)?;
    drop(message);
    span.text("freehold.forwarded", forwarded(&forward));
    let frame = match forward {
        Forward::Whole => received,
        Forward::Rest(rest) => {
            sign_anew(&mut head.headers, &tenant, &rest);
            frame(&rest, encoding, usize::MAX)?
        }
        Forward::Nothing => {
            let refused = settle(Told::Stored)?;
            return edge.reply(encoding, &WriteResponse::from(refused));
        }
    };
    let call = span.child(Kind::Client, "upstream");
    tell(&call, &mut head.headers);
    let answered = match upstream.call(Request::from_parts(head, Full::new(frame))).await {
        Ok(response) => Answered::read(response).await,
        Err(error) => Err(error),
    };
    match &answered {
        Ok(answered) => call.text("freehold.told", told_as(answered.told())),
        Err(error) => fail(&call, error),
    }
    drop(call);
    match answered {
        Ok(answered) => {
            let told = answered.told();
            match settle(told) {
                Err(ours) if matches!(told, Told::Stored | Told::Partly) => Err(ours.into()),
                _ => Ok(answered.into_response()),
            }
        }
        Err(error) => {
            let _ = settle(told_by(&error));
            Err(error.into())
        }
    }
}

/// How much of a push goes on, as its span says it.
fn forwarded(forward: &Forward) -> &'static str {
    match forward {
        Forward::Whole => "whole",
        Forward::Rest(_) => "rest",
        Forward::Nothing => "nothing",
    }
}

/// What the upstream has said of a push, the same way.
fn told_as(told: Told) -> &'static str {
    match told {
        Told::Stored => "stored",
        Told::Refused => "refused",
        Told::Partly => "partly",
        Told::Unknown => "unknown",
    }
}

/// The signature of a request out of which we have taken series; it needs no key.
fn sign_anew(headers: &mut HeaderMap, tenant: &TenantId, rest: &[u8]) {
    if headers.contains_key(SIGNATURE)
        && let Ok(signature) = signature::sign(tenant.as_str(), rest)
        && let Ok(signature) = HeaderValue::try_from(signature)
    {
        headers.insert(SIGNATURE, signature);
    }
}

/// What the lack of an answer says.
fn told_by(error: &UpstreamError) -> Told {
    match error {
        UpstreamError::Unreachable { .. }
        | UpstreamError::Busy { .. }
        | UpstreamError::Full { .. } => Told::Refused,
        // The one reason that promises that nothing was done.
        UpstreamError::Reset { reason, .. } if *reason == h2::Reason::REFUSED_STREAM => {
            Told::Refused
        }
        _ => Told::Unknown,
    }
}

/// A whole answer to a unary push.
struct Answered {
    head: http::response::Parts,
    data: Vec<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Answered {
    async fn read(response: Response<Answer>) -> Result<Self, UpstreamError> {
        let (head, mut body) = response.into_parts();
        let (mut data, mut trailers, mut bytes) = (Vec::new(), None, 0);
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(part) => {
                    bytes += part.len();
                    if bytes > ANSWER_BYTES_MAX {
                        let address = Arc::clone(body.address());
                        let bytes_max = ANSWER_BYTES_MAX;
                        return Err(UpstreamError::AnswerTooLarge { address, bytes_max });
                    }
                    data.push(part);
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        Ok(Self { head, data, trailers })
    }

    fn told(&self) -> Told {
        let trailers = self.trailers.as_ref().unwrap_or(&self.head.headers);
        match grpc_status(trailers) {
            Some(0) => Told::Stored,
            Some(400..=499) => Told::Partly,
            // Cancelled and deadline exceeded: what had been done by then is not told.
            None | Some(1 | 4) => Told::Unknown,
            Some(_) => Told::Refused,
        }
    }

    /// The answer as it came.
    fn into_response(self) -> Response<Body> {
        if self.data.is_empty() && self.trailers.is_none() {
            // The status is in the headers. Cortex's clients take it from there only when the
            // headers end the stream.
            return Response::from_parts(self.head, Body::empty());
        }
        let data = self.data.into_iter().map(Frame::data);
        let frames = data.chain(self.trailers.map(Frame::trailers));
        let frames = frames.map(Ok::<_, std::convert::Infallible>);
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        Response::from_parts(self.head, Body::new(body))
    }
}

/// The stream behind a push stream: opened by the first message, and anew after each break.
pub struct Line {
    upstream: Upstream,
    /// What the client's stream was opened with.
    headers: HeaderMap,
    encoding: Encoding,
    answer_within: Duration,
    open: Option<Open>,
}

struct Open {
    messages: mpsc::Sender<Bytes>,
    answers: Answers,
}

/// The answer's headers come with the first answer, so until then only the call is there.
enum Answers {
    Called(Pin<Box<dyn Future<Output = Result<Response<Answer>, UpstreamError>> + Send>>),
    Told(Messages<Answer>),
}

/// Why a message got no answer; the text is the client's.
struct Unanswered {
    told: Told,
    text: String,
}

impl Line {
    pub fn new(
        upstream: Upstream,
        headers: HeaderMap,
        encoding: Encoding,
        within: Duration,
    ) -> Self {
        Self { upstream, headers, encoding, answer_within: within, open: None }
    }

    /// One message of the client's stream: judged, handed on, answered. `body` is the write
    /// request in it.
    pub async fn push(
        &mut self,
        edge: &Edge,
        tenant: &TenantId,
        received: Received,
        body: Bytes,
        span: &Span,
    ) -> Result<WriteResponse, PushError> {
        let Received { frame: received, message, held: _held } = received;
        let Judged { forward, settle } = (edge.ingester().judge)(tenant, &body)?;
        // What was decompressed is not charged, so it does not wait with the frame.
        drop(body);
        span.text("freehold.forwarded", forwarded(&forward));
        let frame = match forward {
            Forward::Whole => received,
            Forward::Rest(rest) => {
                let message = stream::with_request(&message, &rest);
                let framed = frame(&message, self.encoding, usize::MAX);
                framed.map_err(|error| PushError::Plain { text: error.to_string() })?
            }
            Forward::Nothing => return settle(Told::Stored).map(stored),
        };
        drop(message);
        let call = span.child(Kind::Client, "upstream");
        let answered = self.exchange(frame).await;
        match &answered {
            Ok(answer) => call.text("freehold.told", told_as(told_in(answer))),
            Err(unanswered) => call.fail(&unanswered.text),
        }
        drop(call);
        match answered {
            Ok(answer) => {
                let told = told_in(&answer);
                match settle(told) {
                    // What was stored is the upstream's to say.
                    Err(ours) if matches!(told, Told::Stored | Told::Partly) => {
                        let (code, message) = stream_answer(ours);
                        Ok(WriteResponse { code: code.into(), message, ..answer })
                    }
                    _ => Ok(answer),
                }
            }
            Err(unanswered) => {
                let _ = settle(unanswered.told);
                Err(PushError::Rejected { code: UNAVAILABLE, text: unanswered.text })
            }
        }
    }

    /// Sends a message and waits for its answer. A stream that gave none is closed.
    async fn exchange(&mut self, frame: Bytes) -> Result<WriteResponse, Unanswered> {
        let kept = self.upstream.reserve(frame.len());
        let _kept = kept.map_err(|error| Unanswered::of(&error))?;
        // Taken: dropped with this future, or by an error, it is not used for the next message.
        let open = self.open.take().and_then(Open::still_good);
        let mut open = open.unwrap_or_else(|| self.call());
        let answered = timeout(self.answer_within, async {
            let mut exchange = std::pin::pin!(open.exchange(frame));
            if let Ok(answered) = timeout(SUSPICIOUS_AFTER, &mut exchange).await {
                return answered;
            }
            // The call itself has begun to be answered long ago, so it asks no more.
            self.upstream.suspect();
            exchange.await
        })
        .await;
        let answer = answered.unwrap_or_else(|_| {
            let (address, within) = (self.upstream.address(), self.answer_within);
            let text = format!("upstream {address} has not answered within {within:?}");
            Err(Unanswered { told: Told::Unknown, text })
        })?;
        self.open = Some(open);
        Ok(answer)
    }

    fn call(&self) -> Open {
        let (messages, fed) = mpsc::channel(1);
        let mut request = Request::post(Uri::from_static(PUSH_STREAM)).body(Fed(fed));
        if let Ok(request) = &mut request {
            *request.headers_mut() = self.headers.clone();
        }
        let upstream = self.upstream.clone();
        let answers = Answers::Called(Box::pin(async move {
            let request = request.expect("the path is one");
            upstream.call(request).await
        }));
        Open { messages, answers }
    }
}

impl Open {
    /// None when the stream has ended, or has said what nobody asked for: that would be taken
    /// for the next message's answer.
    fn still_good(mut self) -> Option<Self> {
        let is_quiet = match &mut self.answers {
            Answers::Told(messages) => messages.is_quiet(),
            Answers::Called(_) => true,
        };
        (is_quiet && !self.messages.is_closed()).then_some(self)
    }

    async fn exchange(&mut self, frame: Bytes) -> Result<WriteResponse, Unanswered> {
        if self.messages.send(frame).await.is_err() {
            // The sender of the body has ended, and the answer says why.
            return Err(self.broken().await);
        }
        if let Answers::Called(call) = &mut self.answers {
            let response = call.await.map_err(|error| Unanswered::of(&error))?;
            if response.headers().contains_key("grpc-status") {
                return Err(Unanswered::status(response.headers()));
            }
            let name = response.headers().get("grpc-encoding");
            let encoding =
                name.map_or(Some(Encoding::Identity), |name| Encoding::from_name(name.as_bytes()));
            let encoding = encoding.unwrap_or(Encoding::Identity);
            let messages = Messages::new(response.into_body(), encoding, ANSWER_BYTES_MAX);
            self.answers = Answers::Told(messages);
        }
        let Answers::Told(messages) = &mut self.answers else {
            return Err(Unanswered::ended());
        };
        match messages.next().await {
            Ok(Some(answer)) => WriteResponse::decode(answer)
                .map_err(|error| Unanswered { told: Told::Unknown, text: error.to_string() }),
            Ok(None) => Err(Unanswered::ended()),
            Err(error) => Err(Unanswered { told: Told::Unknown, text: error.to_string() }),
        }
    }

    async fn broken(&mut self) -> Unanswered {
        match &mut self.answers {
            Answers::Called(call) => match call.await {
                Err(error) => Unanswered::of(&error),
                Ok(response) => Unanswered::status(response.headers()),
            },
            Answers::Told(_) => Unanswered::ended(),
        }
    }
}

impl Unanswered {
    fn of(error: &UpstreamError) -> Self {
        Self { told: told_by(error), text: error.to_string() }
    }

    /// A stream that ended with its first words.
    fn status(headers: &HeaderMap) -> Self {
        let message = headers.get("grpc-message").map(HeaderValue::as_bytes);
        let told = match grpc_status(headers) {
            // Codes of what stands before the handler. Any other may be the handler's own, after
            // it has stored the message.
            Some(7 | 8 | 12 | 14 | 16) => Told::Refused,
            _ => Told::Unknown,
        };
        match message {
            Some(message) => Self { told, text: percent_decoded(message) },
            None => Self { told, ..Self::ended() },
        }
    }

    fn ended() -> Self {
        Self { told: Told::Unknown, text: "the upstream has ended the push stream".to_owned() }
    }
}

fn grpc_status(headers: &HeaderMap) -> Option<i32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

fn told_in(answer: &WriteResponse) -> Told {
    match answer.code {
        // Cortex says 200; one that says nothing has stored it too.
        0 | 200..=299 => Told::Stored,
        code if code == i32::from(CLIENT_CLOSED_REQUEST) => Told::Unknown,
        400..=498 => Told::Partly,
        _ => Told::Refused,
    }
}

/// The messages of an upstream stream, as they come; ends with the line.
struct Fed(mpsc::Receiver<Bytes>);

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(|frame| Ok(Frame::data(frame))))
    }
}
