//! The answer to a query: its head at once, its body as it comes.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

use super::address::InFlight;
use super::pace::{Pace, TooSlow};
use super::server_timing;
use crate::upstream::BodyError;
use crate::upstream::end_to_end::end_to_end;

/// An answer, from its headers on. Whoever drops it before its end breaks the request off.
#[derive(Debug)]
pub struct Reply {
    pub head: ReplyHead,
    pub body: ReplyBody,
}

/// Status and headers of an answer, those that speak of it and not of its connection.
#[derive(Clone, Debug)]
pub struct ReplyHead {
    status: StatusCode,
    headers: HeaderMap,
    /// It answers a HEAD: its length is that of a body which does not come.
    is_bodiless: bool,
}

/// The body of an answer, piece by piece, with its trailers if it has some.
#[derive(Debug)]
pub struct ReplyBody {
    frames: Frames,
    pace: Pace,
    trailers: Option<HeaderMap>,
    is_failed: bool,
}

/// Whose answer it is.
#[derive(Debug)]
enum Frames {
    Theirs(Incoming, InFlight),
    Ours(UnsyncBoxBody<Bytes, BodyError>),
}

/// Who answers where nobody behind us does.
const OURSELVES: &str = "this process";

/// Why an answer does not come to its end. What has been handed on of it is no whole answer, and
/// whoever has it must be told by breaking it off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    #[error("{address} broke off its answer: {cause}")]
    Broken { address: Arc<str>, cause: String },
    #[error("{address} did not go on with its answer within {} ms", waited.as_millis())]
    Slow { address: Arc<str>, waited: Duration },
}

impl Reply {
    pub(super) fn new(
        response: Response<Incoming>,
        is_bodiless: bool,
        in_flight: InFlight,
        pause_max: Duration,
    ) -> Self {
        let (head, frames) = response.into_parts();
        let head = ReplyHead::new(head.status, head.headers, is_bodiless);
        let pace = Pace::new(pause_max);
        let frames = Frames::Theirs(frames, in_flight);
        Self { head, body: ReplyBody { frames, pace, trailers: None, is_failed: false } }
    }

    /// An answer of this process, to go the same way. Its pauses are our own, and bounded where
    /// they come from; here by `pause_max`.
    pub fn ours<B>(response: Response<B>, pause_max: Duration) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        let (head, body) = response.into_parts();
        let mut headers = end_to_end(head.headers);
        // Else nobody would know it any more once it goes on piece by piece.
        if let Some(bytes) = body.size_hint().exact() {
            headers.entry(header::CONTENT_LENGTH).or_insert(bytes.into());
        }
        let head = ReplyHead { status: head.status, headers, is_bodiless: false };
        let frames = Frames::Ours(body.map_err(Into::into).boxed_unsync());
        let pace = Pace::new(pause_max);
        Self { head, body: ReplyBody { frames, pace, trailers: None, is_failed: false } }
    }

    pub fn status(&self) -> u16 {
        self.head.status()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub fn server_timing_ms(&self, name: &str) -> Option<f64> {
        self.head.server_timing_ms(name)
    }

    /// The next piece of the body; none at its end.
    pub async fn next(&mut self) -> Option<Result<Bytes, ReplyError>> {
        self.body.next().await
    }

    pub fn into_response(self) -> Response<ReplyBody> {
        self.head.into_response(self.body)
    }
}

impl ReplyHead {
    fn new(status: StatusCode, headers: HeaderMap, is_bodiless: bool) -> Self {
        let is_chunked = headers.contains_key(header::TRANSFER_ENCODING);
        let mut headers = end_to_end(headers);
        match headers.get(header::CONTENT_LENGTH).cloned() {
            // Chunks have won over it; it is not the body's.
            Some(_) if is_chunked => {
                headers.remove(header::CONTENT_LENGTH);
            }
            // Once, however often it was told.
            Some(length) => {
                headers.insert(header::CONTENT_LENGTH, length);
            }
            None => {}
        }
        Self { status, headers, is_bodiless }
    }

    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The first header of that name, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// All lines of the head, in no stated order.
    pub fn header_lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
    }

    /// Sets a header, once; false where name or value cannot be one, and then nothing changes.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        match (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            (Ok(name), Ok(value)) => {
                self.headers.insert(name, value);
                true
            }
            _ => false,
        }
    }

    pub fn remove(&mut self, name: &str) {
        self.headers.remove(name);
    }

    /// What `Server-Timing` says of a metric, in milliseconds.
    pub fn server_timing_ms(&self, name: &str) -> Option<f64> {
        let lines = self.headers.get_all("server-timing").iter();
        server_timing::duration_ms(lines.map(HeaderValue::as_bytes), name)
    }

    /// The length of the body as it was announced.
    pub fn content_length(&self) -> Option<u64> {
        self.header(header::CONTENT_LENGTH.as_str())?.parse().ok()
    }

    /// As [`Self::into_response`], of a head that several have.
    pub fn response<B: Body>(&self, body: B) -> Response<B> {
        self.clone().into_response(body)
    }

    /// Puts head and body together again. The body may be another than the one it came with, as
    /// long as its bytes are the same; a length that cannot be its own is not announced.
    pub fn into_response<B: Body>(mut self, body: B) -> Response<B> {
        let announced = self.content_length();
        let is_wrong = match (announced, body.size_hint().exact()) {
            (None, _) => true,
            // Of a body which does not come, whatever stands for it here.
            (Some(_), _) if self.is_bodiless || self.status == StatusCode::NOT_MODIFIED => false,
            (Some(announced), Some(exact)) => announced != exact,
            (Some(_), None) => false,
        };
        if is_wrong || self.status == StatusCode::NO_CONTENT {
            self.headers.remove(header::CONTENT_LENGTH);
        }
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

impl ReplyBody {
    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, ReplyError>> {
        loop {
            match poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await? {
                Err(error) => return Some(Err(error)),
                Ok(frame) => match frame.into_data() {
                    Ok(bytes) => return Some(Ok(bytes)),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    /// Lines behind the body, once `next` has come to its end.
    pub fn trailer_lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let lines = self.trailers.iter().flat_map(HeaderMap::iter);
        lines.map(|(name, value)| (name.as_str(), value.as_bytes()))
    }

    fn slow(&mut self, slow: TooSlow) -> ReplyError {
        let address = self.fail();
        ReplyError::Slow { address, waited: slow.waited }
    }

    fn fail(&mut self) -> Arc<str> {
        self.is_failed = true;
        match &self.frames {
            Frames::Theirs(_, in_flight) => {
                in_flight.count_broken();
                in_flight.address()
            }
            Frames::Ours(_) => OURSELVES.into(),
        }
    }
}

impl Frames {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Theirs(frames, _) => {
                Pin::new(frames).poll_frame(cx).map(|polled| polled.map(|one| Ok(one?)))
            }
            Self::Ours(frames) => Pin::new(frames).poll_frame(cx),
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = ReplyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        let this = &mut *self;
        if this.is_failed {
            return Poll::Ready(None);
        }
        let Poll::Ready(polled) = this.frames.poll_frame(cx) else {
            let slow = ready!(this.pace.poll_pause(cx));
            return Poll::Ready(Some(Err(this.slow(slow))));
        };
        Poll::Ready(match polled {
            None => None,
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                Some(match this.pace.moved(bytes) {
                    Ok(()) => Ok(frame),
                    Err(slow) => Err(this.slow(slow)),
                })
            }
            Some(Err(error)) => {
                let address = this.fail();
                Some(Err(ReplyError::Broken { address, cause: error.to_string() }))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.frames {
            Frames::Theirs(frames, _) => frames.is_end_stream(),
            Frames::Ours(frames) => frames.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.frames {
            Frames::Theirs(frames, _) => frames.size_hint(),
            Frames::Ours(frames) => frames.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Empty, Full};

    use super::*;

    fn head(status: u16, length: &'static str, is_bodiless: bool) -> ReplyHead {
        let mut headers = HeaderMap::new();
        if !length.is_empty() {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static(length));
        }
        let status = StatusCode::from_u16(status).expect("a status");
        ReplyHead { status, headers, is_bodiless }
    }

    #[test]
    fn a_length_is_told_only_where_it_is_the_bodys() {
        let check = |head: ReplyHead, body: &'static str, expect: Option<&str>| {
            let shown = format!("{head:?}");
            let response = head.into_response(Full::new(Bytes::from_static(body.as_bytes())));
            let told = response.headers().get(header::CONTENT_LENGTH);
            assert_eq!(told.map(|value| value.to_str().expect("text")), expect, "{shown} {body}");
        };
        check(head(200, "4", false), "body", Some("4"));
        check(head(200, "5", false), "body", None);
        check(head(200, "x", false), "body", None);
        check(head(200, "", false), "body", None);
        check(head(204, "0", false), "", None);
        check(head(200, "0", false), "", Some("0"));
        // What a HEAD would have got, and what has not been modified.
        check(head(200, "5", true), "", Some("5"));
        check(head(304, "5", false), "", Some("5"));
    }

    #[test]
    fn a_length_beside_chunks_is_nobodys() {
        let check = |lines: &[(&'static str, &'static str)], expect: &[&str]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_static(value));
            }
            let head = ReplyHead::new(StatusCode::OK, headers, false);
            let told: Vec<_> = head.headers.get_all(header::CONTENT_LENGTH).iter().collect();
            assert_eq!(told, expect, "{lines:?}");
        };
        check(&[("content-length", "9"), ("transfer-encoding", "chunked")], &[]);
        check(&[("content-length", "9"), ("content-length", "9")], &["9"]);
        check(&[("content-length", "9")], &["9"]);
    }

    #[test]
    fn a_head_can_be_changed_before_it_goes_on() {
        let mut head = head(200, "5", false);
        assert!(head.set("Retry-After", "3") && !head.set("x", "a\nb"));
        head.remove("content-length");
        let response = head.into_response(Empty::<Bytes>::new());
        assert_eq!(response.headers().len(), 1);
        assert_eq!(response.headers()["retry-after"], "3");
    }
}
