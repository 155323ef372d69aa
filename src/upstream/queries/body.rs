//! The body of a query: whole, or streaming through.
//!
//! A stream can be sent once. But as long as nobody has asked it for a byte nothing is lost, so
//! the query keeps a hold on it while it is sent: a connection that cannot be made does not cost
//! the request.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::Instant;

use super::pace::{Pace, TooSlow};
use crate::upstream::BodyError;

/// What is sent with a query.
#[derive(Debug)]
pub(super) enum QueryBody {
    Whole(Bytes),
    Stream(Stream),
}

/// A body that comes in while it goes out. Clones are holds on the same one; locked for one poll
/// of one frame, by who sends and, now and then, by who watches.
#[derive(Clone)]
pub(super) struct Stream(Arc<Mutex<Streaming>>);

struct Streaming {
    body: UnsyncBoxBody<Bytes, BodyError>,
    /// None before it is sent.
    pace: Option<Pace>,
    is_touched: bool,
    /// When the last piece came, or the end.
    moved_at: Instant,
    fault: Option<Fault>,
}

/// Why a body did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its sender has gone.
    BrokenOff,
    /// Its sender broke the rules of the protocol.
    Malformed,
    Slow(TooSlow),
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub is_touched: bool,
    pub moved_at: Instant,
    pub fault: Option<Fault>,
}

/// What is told to the one who sends; the reason is kept with the stream.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request did not come to its end")]
struct Unfinished;

impl QueryBody {
    pub fn stream<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        let body = body.map_err(Into::into).boxed_unsync();
        Self::Stream(Stream(Arc::new(Mutex::new(Streaming {
            body,
            pace: None,
            is_touched: false,
            moved_at: Instant::now(),
            fault: None,
        }))))
    }

    /// One to be sent. Pauses of a stream are bounded from now on.
    pub fn outgoing(&self, pause_max: Duration) -> Self {
        match self {
            Self::Whole(bytes) => Self::Whole(bytes.clone()),
            Self::Stream(stream) => {
                let mut streaming = stream.lock();
                streaming.pace.get_or_insert_with(|| Pace::new(pause_max));
                streaming.moved_at = Instant::now();
                drop(streaming);
                Self::Stream(stream.clone())
            }
        }
    }

    /// Nothing of it is gone.
    pub fn is_untouched(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Stream(stream) => !stream.progress().is_touched,
        }
    }
}

impl Stream {
    pub fn progress(&self) -> Progress {
        let Streaming { is_touched, moved_at, fault, .. } = *self.lock();
        Progress { is_touched, moved_at, fault }
    }

    fn lock(&self) -> MutexGuard<'_, Streaming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streaming {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.is_touched = true;
        if self.fault.is_some() {
            return Poll::Ready(Some(Err(Unfinished.into())));
        }
        let polled = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(polled) => polled,
            Poll::Pending => {
                let Some(pace) = &mut self.pace else { return Poll::Pending };
                let slow = ready!(pace.poll_pause(cx));
                return Poll::Ready(Some(Err(self.failed(Fault::Slow(slow)))));
            }
        };
        let Some(frame) = polled else {
            self.moved_at = Instant::now();
            return Poll::Ready(None);
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Poll::Ready(Some(Err(self.failed(fault(&*error))))),
        };
        self.moved_at = Instant::now();
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        if let Some(Err(slow)) = self.pace.as_mut().map(|pace| pace.moved(bytes)) {
            return Poll::Ready(Some(Err(self.failed(Fault::Slow(slow)))));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn failed(&mut self, fault: Fault) -> BodyError {
        self.fault = Some(fault);
        Unfinished.into()
    }
}

/// Chunks that are none are told as bad data; all else looks like a sender that has gone.
fn fault(error: &(dyn std::error::Error + 'static)) -> Fault {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)) {
            return Fault::Malformed;
        }
        cause = error.source();
    }
    Fault::BrokenOff
}

impl Body for QueryBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(stream) => stream.lock().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream(stream) => stream.lock().body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(stream) => stream.lock().body.size_hint(),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.progress()).finish()
    }
}
