//! Passing a call through to the upstream, byte for byte.
//!
//! Headers, pieces and trailers go on as they came, in both directions, each at the pace of its
//! receiver. Only an upstream that breaks off has its end said for it: by a status, never OK; and
//! where a call is traced, the headers that name its trace name our span of it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::Code;
use tonic::body::Body;

use crate::server::drain::Drain;
use crate::server::status::GrpcStatus;
use crate::server::trails::tell;
use crate::trail::{Kind, Span};
use crate::upstream::{Answer, Upstream, UpstreamError};

pub async fn pass(
    upstream: &Upstream,
    mut request: Request<Body>,
    span: &Span,
) -> Result<Response<Body>, GrpcStatus> {
    let call = span.child(Kind::Client, "upstream");
    tell(&call, request.headers_mut());
    let response = upstream.call(request).await.inspect_err(|error| fail(&call, error))?;
    Ok(response.map(|answer| Body::new(Passed { answer, is_over: false })))
}

/// Notes on a span why a call came to nothing.
pub fn fail(call: &Span, error: &UpstreamError) {
    if call.is_recorded() {
        call.fail(&error.to_string());
    }
}

/// As `pass`, for a stream that may go on for as long as the process: the drain ends it.
pub async fn pass_until_drain(
    upstream: &Upstream,
    request: Request<Body>,
    mut drain: Drain,
) -> Result<Response<Body>, GrpcStatus> {
    let response = upstream.call(request).await?;
    Ok(response.map(|answer| {
        let drained = Box::pin(async move { drain.started().await });
        Body::new(UntilDrain { passed: Passed { answer, is_over: false }, drained })
    }))
}

/// An answer whose failure is told in trailers.
struct Passed {
    answer: Answer,
    is_over: bool,
}

struct UntilDrain {
    passed: Passed,
    drained: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl http_body::Body for Passed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut this.answer).poll_frame(cx);
        polled.map(|frame| {
            frame.map(|frame| {
                Ok(frame.unwrap_or_else(|error| {
                    this.is_over = true;
                    trailers(&error.into())
                }))
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}

impl http_body::Body for UntilDrain {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.passed).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        // Polled once only after it is ready: what was passed is over then.
        if this.drained.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        this.passed.is_over = true;
        let status = GrpcStatus::new(Code::Unavailable, "server is shutting down");
        Poll::Ready(Some(Ok(trailers(&status))))
    }

    fn is_end_stream(&self) -> bool {
        self.passed.is_end_stream()
    }
}

fn trailers(status: &GrpcStatus) -> Frame<Bytes> {
    let mut trailers = HeaderMap::with_capacity(2);
    status.write_to(&mut trailers);
    Frame::trailers(trailers)
}
