//! A stream of our own in both directions, for whoever both asks and listens for long.
//!
//! Messages go out without compression and one at a time; what comes in is bounded like every
//! answer. Dropping either half ends it for the other side: the questions as said to be over, the
//! answers by a reset.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::Frame;
use tokio::sync::mpsc;

use super::Upstream;
use super::answers::AnswerStream;
use super::ask::{AskError, call_headers, framed};

/// Our half of a conversation.
pub struct Questions(mpsc::Sender<Bytes>);

/// The last message has not been taken yet, or nobody takes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream takes no message now")]
pub struct NotTaken;

/// The messages of a stream as its body: it ends when the sender is dropped.
pub struct MessageBody(pub(super) mpsc::Receiver<Bytes>);

impl Upstream {
    /// Opens a stream with a first message, and waits for the head of its answer, for as long as
    /// the caller does.
    pub async fn converse(
        &self,
        method: &'static str,
        first: &[u8],
    ) -> Result<(Questions, AnswerStream), AskError> {
        let (messages, receiver) = mpsc::channel(1);
        messages.try_send(framed(first)?).expect("room for one");
        let mut request = Request::post(method).body(MessageBody(receiver)).expect("a path");
        *request.headers_mut() = call_headers();
        let answer = self.call(request).await?;
        if answer.status() != StatusCode::OK {
            return Err(AskError::Garbled { what: "its head is none of gRPC's" });
        }
        let answers = AnswerStream::new(answer, self.0.message_bytes_max)?;
        Ok((Questions(messages), answers))
    }
}

impl Questions {
    /// Sends a message, if the one before it is on its way.
    pub fn send(&self, message: &[u8]) -> Result<(), NotTaken> {
        let framed = framed(message).map_err(|_| NotTaken)?;
        self.0.try_send(framed).map_err(|_| NotTaken)
    }
}

impl http_body::Body for MessageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().0.poll_recv(cx).map(|message| message.map(|bytes| Ok(Frame::data(bytes))))
    }
}
