//! One call on one stream: the body out, the answer in, each at the pace of its receiver.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::budget::InFlight;
use super::dial::SUSPICIOUS_AFTER;
use super::pool::{Lease, Pool, TaskGuard};
use super::{BodyError, UpstreamError};

/// The answer's body. Dropping it resets the stream, unless it has ended.
pub struct Answer {
    stream: RecvStream,
    /// Of the whole call.
    deadline: Option<Pin<Box<Sleep>>>,
    is_data_over: bool,
    is_over: bool,
    /// Sends the rest of the request; ends with the answer, whose end the server has decided.
    _sender: Option<TaskGuard>,
    _in_flight: InFlight,
    /// Last, so that the place is free when the stream is.
    lease: Lease,
}

/// Moves a request's body into its stream.
struct Sender<B> {
    body: B,
    stream: SendStream<Bytes>,
}

enum SendError {
    /// The body failed; the stream has been reset.
    Body,
    /// The stream failed; why is told by its answer.
    Stream,
}

pub async fn send<B>(
    pool: &Arc<Pool>,
    request: Request<()>,
    body: B,
    deadline: Option<Instant>,
    in_flight: InFlight,
) -> Result<Response<Answer>, UpstreamError>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BodyError>,
{
    let is_bodyless = body.is_end_stream();
    let (lease, response, stream) = open(pool, request, is_bodyless, deadline).await?;
    let mut sender = (!is_bodyless).then_some(Sender { body, stream });
    let answered = answer_head(&mut sender, response);
    let outcome = within(deadline, &lease, answered).await;
    let response = outcome.map_err(|early| early.told(lease.pool().address()))?;
    let sender = sender.map(|sender| {
        pool.spawn_guarded(async move {
            // Its failure is the answer's, too.
            let _ = sender.await;
        })
    });
    Ok(response.map(|stream| Answer {
        stream,
        deadline: deadline.map(|deadline| Box::pin(sleep_until(deadline))),
        is_data_over: false,
        is_over: false,
        _sender: sender,
        _in_flight: in_flight,
        lease,
    }))
}

/// Opens a stream on whichever connection takes it. A connection that has begun to shut down
/// says so before anything is sent, so another one can be tried.
async fn open(
    pool: &Arc<Pool>,
    request: Request<()>,
    is_bodyless: bool,
    deadline: Option<Instant>,
) -> Result<(Lease, ResponseFuture, SendStream<Bytes>), UpstreamError> {
    // Each turn retires a connection, and a new one has just answered a ping: two are one that
    // is going and its successor; the third would be an upstream that goes on hanging up.
    const TURNS_MAX: usize = 3;
    let mut turn = 1;
    loop {
        let mut lease = pool.lease(deadline).await?;
        match poll_fn(|cx| lease.requests.poll_ready(cx)).await {
            Err(error) if turn == TURNS_MAX => return Err(broken(lease.pool().address(), &error)),
            Err(_) => lease.retire(),
            Ok(()) => {
                let opened = lease.requests.send_request(request, is_bodyless);
                let (response, stream) =
                    opened.map_err(|error| broken(lease.pool().address(), &error))?;
                return Ok((lease, response, stream));
            }
        }
        turn += 1;
    }
}

/// Waits for the answer's head until the deadline. Long before it, whether there is anybody to
/// answer begins to be asked: callers give up at their deadlines, and tell nothing by it.
async fn within(
    deadline: Option<Instant>,
    lease: &Lease,
    answered: impl Future<Output = Result<Response<RecvStream>, Early>>,
) -> Result<Response<RecvStream>, Early> {
    let mut answered = std::pin::pin!(answered);
    let suspicious_at = Instant::now() + SUSPICIOUS_AFTER;
    let first = deadline.map_or(suspicious_at, |deadline| deadline.min(suspicious_at));
    if let Ok(outcome) = timeout_at(first, &mut answered).await {
        return outcome;
    }
    lease.suspect();
    match deadline {
        None => answered.await,
        // Dropping what waits resets the stream.
        Some(deadline) => timeout_at(deadline, answered).await.unwrap_or(Err(Early::Deadline)),
    }
}

/// Why there is no answer.
enum Early {
    Http2(h2::Error),
    BrokenOff,
    Deadline,
}

impl Early {
    fn told(self, address: &Arc<str>) -> UpstreamError {
        match self {
            Self::Http2(error) => broken(address, &error),
            Self::BrokenOff => UpstreamError::BrokenOff { address: Arc::clone(address) },
            Self::Deadline => UpstreamError::DeadlineExceeded { address: Arc::clone(address) },
        }
    }
}

/// Waits for the answer's head and sends the body meanwhile; `sender` is gone once all is sent.
async fn answer_head<B>(
    sender: &mut Option<Sender<B>>,
    mut response: ResponseFuture,
) -> Result<Response<RecvStream>, Early>
where
    B: Body<Data = Bytes> + Unpin,
{
    poll_fn(|cx| {
        if let Some(sending) = sender {
            match Pin::new(sending).poll(cx) {
                Poll::Pending => {}
                Poll::Ready(Err(SendError::Body)) => return Poll::Ready(Err(Early::BrokenOff)),
                Poll::Ready(Ok(()) | Err(SendError::Stream)) => *sender = None,
            }
        }
        Pin::new(&mut response).poll(cx).map_err(Early::Http2)
    })
    .await
}

fn broken(address: &Arc<str>, error: &h2::Error) -> UpstreamError {
    let address = Arc::clone(address);
    match error.reason() {
        Some(reason) if error.is_reset() => UpstreamError::Reset { address, reason },
        _ => UpstreamError::Broken { address, cause: error.to_string().into() },
    }
}

impl<B> Future for Sender<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Output = Result<(), SendError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            ready!(this.poll_room(cx))?;
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if ready!(this.pass_on(frame))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                None => {
                    let sent = this.stream.send_data(Bytes::new(), true);
                    return Poll::Ready(sent.map_err(|_| SendError::Stream));
                }
                Some(Err(_)) => {
                    this.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(Err(SendError::Body));
                }
            }
        }
    }
}

impl<B> Sender<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    /// Ready when the receiver takes something. Only then is the body asked for more, so that
    /// at most one piece of it is held here.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        if self.stream.capacity() > 0 {
            // Not to send on a stream that the other side has given up.
            return match self.stream.poll_reset(cx) {
                Poll::Ready(_) => Poll::Ready(Err(SendError::Stream)),
                Poll::Pending => Poll::Ready(Ok(())),
            };
        }
        // How much comes is not known yet; HTTP/2 holds what exceeds the window.
        self.stream.reserve_capacity(1);
        loop {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(0)) => {}
                Some(Ok(_)) => return Poll::Ready(Ok(())),
                Some(Err(_)) | None => return Poll::Ready(Err(SendError::Stream)),
            }
        }
    }

    /// True when that was the last.
    fn pass_on(&mut self, frame: Frame<Bytes>) -> Poll<Result<bool, SendError>> {
        let stream_failed = |_| SendError::Stream;
        let frame = match frame.into_data() {
            Ok(data) => {
                let is_last = self.body.is_end_stream();
                let sent = self.stream.send_data(data, is_last).map_err(stream_failed);
                return Poll::Ready(sent.map(|()| is_last));
            }
            Err(frame) => frame,
        };
        let trailers = frame.into_trailers().unwrap_or_else(|_| HeaderMap::new());
        // Gives back what was reserved for more data.
        self.stream.reserve_capacity(0);
        Poll::Ready(self.stream.send_trailers(trailers).map_err(stream_failed).map(|()| true))
    }
}

impl Answer {
    /// `host:port` of where it comes from.
    pub fn address(&self) -> &Arc<str> {
        self.lease.pool().address()
    }

    fn fail(&mut self, error: UpstreamError) -> UpstreamError {
        self.is_over = true;
        self.lease.pool().note_failure(&error);
        error
    }

    fn poll_frame_in_time(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_data_over {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // The next piece is asked for when this one has found its reader.
                    self.stream.flow_control().release_capacity(data.len())?;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_data_over = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        self.is_over = true;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = this.poll_frame_in_time(cx) {
            return Poll::Ready(
                frame.map(|frame| frame.map_err(|error| this.fail(broken(this.address(), &error)))),
            );
        }
        if let Some(deadline) = &mut this.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            let address = Arc::clone(this.address());
            let error = this.fail(UpstreamError::DeadlineExceeded { address });
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.stream.is_end_stream()
    }
}
