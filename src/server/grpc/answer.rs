//! How calls are answered: headers, frames, trailers.

use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use tonic::body::Body;

use crate::server::status::GrpcStatus;
use crate::wire::encoding::{ACCEPTED, Encoding};

/// A source of answers on a stream.
pub enum Step {
    Answer(Bytes),
    End(GrpcStatus),
}

/// An answer that is nothing but a status, in one HEADERS frame.
pub fn status_only(status: &GrpcStatus) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-accept-encoding", HeaderValue::from_static(ACCEPTED));
    status.write_to(headers);
    response
}

/// One framed message and the status OK.
pub fn unary(encoding: Encoding, message: Bytes) -> Response<Body> {
    let trailers = ready(Some(Ok::<_, Infallible>(trailers(&GrpcStatus::ok()))));
    with_headers(encoding, Body::new(Full::new(message).with_trailers(trailers)))
}

/// A stream of answers. The headers wait for the first one, as grpc-go's do.
pub async fn stream<S, F, Fut>(encoding: Encoding, mut source: S, step: F) -> Response<Body>
where
    S: Send + 'static,
    F: Fn(S) -> Fut + Send + 'static,
    Fut: Future<Output = (S, Step)> + Send + 'static,
{
    let (next, first) = step(source).await;
    source = next;
    let first = match first {
        Step::Answer(message) => message,
        Step::End(status) => return status_only(&status),
    };
    let rest = stream::unfold((Some(source), Some(first), step), |(source, first, step)| async {
        if let Some(message) = first {
            return Some((Ok::<_, Infallible>(Frame::data(message)), (source, None, step)));
        }
        // Trailers were sent when the source is gone.
        let (source, outcome) = step(source?).await;
        match outcome {
            Step::Answer(message) => Some((Ok(Frame::data(message)), (Some(source), None, step))),
            Step::End(status) => Some((Ok(Frame::trailers(trailers(&status))), (None, None, step))),
        }
    });
    with_headers(encoding, Body::new(StreamBody::new(rest)))
}

fn with_headers(encoding: Encoding, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-accept-encoding", HeaderValue::from_static(ACCEPTED));
    if encoding != Encoding::Identity {
        headers.insert("grpc-encoding", HeaderValue::from_static(encoding.name()));
    }
    response
}

fn trailers(status: &GrpcStatus) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(3);
    status.write_to(&mut trailers);
    trailers
}
