//! Push streams to one ingester, opened as they are needed and kept for the next message.
//!
//! A stream carries one message at a time, so many messages at once need many streams. There is
//! no task behind a stream: whoever has a message takes an idle stream or opens one, sends, waits
//! for the answer and puts the stream back. Whoever gives up drops the stream, which resets it.
//!
//! What must hold: a message is sent once; a stream that has ended, or has said something unasked,
//! is never used again, so an ingester that is back on its address is spoken to by a new stream
//! at once; a stream that ends well with a message unanswered has not taken it.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderValue, Request};
use prost::Message as _;
use tokio::sync::{Semaphore, mpsc};

use super::client::call_headers;
use super::failure;
use crate::ring::Failure;
use crate::upstream::conversation::MessageBody;
use crate::upstream::{AnswerStream, Upstream};
use crate::wire::encoding::Encoding;
use crate::wire::proto::cortexpb::WriteResponse;
use crate::wire::signature::sign_stream;

const PUSH_STREAM: &str = "/cortex.Ingester/PushStream";

/// Most streams to one ingester: what Cortex's client opens. Beyond it messages wait for a
/// stream, until their deadline.
pub const STREAMS_MAX: usize = 100;

/// Longest answer to a message: a code and the text of a refusal, which names labels.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How streams are opened: under the name of a worker, signed where there is a key.
pub struct StreamOpener {
    pub encoding: Encoding,
    pub key: Option<String>,
}

pub struct Streams {
    opener: Arc<StreamOpener>,
    places: Semaphore,
    /// Last used, first taken: the others stay idle, and their number small.
    idle: Mutex<Vec<Stream>>,
    numbers: Arc<Numbers>,
}

/// An open stream without a message under way.
struct Stream {
    messages: mpsc::Sender<Bytes>,
    answers: AnswerStream,
    _number: Number,
}

/// Numbers of workers, the smallest free one first.
#[derive(Default)]
struct Numbers(Mutex<Vec<bool>>);

/// A worker's number; free again when dropped.
struct Number {
    value: usize,
    all: Arc<Numbers>,
}

impl Streams {
    pub fn new(opener: Arc<StreamOpener>) -> Self {
        Self {
            opener,
            places: Semaphore::new(STREAMS_MAX),
            idle: Mutex::default(),
            numbers: Arc::default(),
        }
    }

    /// Sends a framed message and waits for its answer. The caller bounds the time.
    pub async fn push(&self, upstream: &Upstream, frame: Bytes) -> Result<(), Failure> {
        let _place = self.places.acquire().await.expect("the semaphore is never closed");
        let (mut stream, sent) = match self.take_idle() {
            Some(stream) => {
                let sent = stream.messages.send(frame).await;
                (stream, sent.is_ok())
            }
            None => (self.open(upstream, frame).await?, true),
        };
        // A stream that takes no message has told why, or will.
        let answer = stream.answers.next().await.map_err(failure::of_ask)?;
        let answer = match answer {
            Some(answer) if sent => answer,
            _ => return Err(failure::unanswered()),
        };
        let response =
            WriteResponse::decode(answer).map_err(|error| failure::of_ask(error.into()))?;
        self.idle.lock().expect("no panic under this lock").push(stream);
        match response.code {
            OK => Ok(()),
            code => Err(failure::of_response(code, response.message)),
        }
    }

    fn take_idle(&self) -> Option<Stream> {
        loop {
            let mut stream = self.idle.lock().expect("no panic under this lock").pop()?;
            if stream.answers.is_quiet() {
                return Some(stream);
            }
        }
    }

    /// The answer's head comes with the first answer, so the first message goes along.
    async fn open(&self, upstream: &Upstream, first: Bytes) -> Result<Stream, Failure> {
        let number = Numbers::take(&self.numbers);
        // Colons are no characters of tenants' names, and a worker's name is read as one.
        let address = upstream.address().replace(':', "-");
        let name = format!("ingester-{address}-stream-push-worker-{}", number.value);
        let (messages, receiver) = mpsc::channel(1);
        messages.try_send(first).expect("room for one");
        let mut request = Request::post(PUSH_STREAM).body(MessageBody(receiver)).expect("a path");
        let headers = call_headers(self.opener.encoding, &name)
            .ok_or_else(|| Failure::unsent("the ingester's address fits no header"))?;
        *request.headers_mut() = headers;
        if let Some(key) = &self.opener.key {
            let signature = HeaderValue::from_str(&sign_stream(key, &name)).expect("hex");
            request.headers_mut().insert("x-stream-signature", signature);
        }
        let answer = upstream.call(request).await;
        let answer = answer.map_err(|error| failure::of_upstream(&error))?;
        if answer.status() != http::StatusCode::OK {
            return Err(failure::of_http(answer.status()));
        }
        let answers = AnswerStream::new(answer, ANSWER_BYTES_MAX).map_err(failure::of_ask)?;
        Ok(Stream { messages, answers, _number: number })
    }
}

/// Of a message that was taken, as an HTTP status.
const OK: i32 = 200;

impl Numbers {
    fn take(all: &Arc<Self>) -> Number {
        let mut taken = all.0.lock().expect("no panic under this lock");
        let value = taken.iter().position(|is_taken| !is_taken).unwrap_or(taken.len());
        if value == taken.len() {
            taken.push(true);
        } else {
            taken[value] = true;
        }
        drop(taken);
        Number { value, all: Arc::clone(all) }
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.all.0.lock().expect("no panic under this lock")[self.value] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_start_small_and_come_back() {
        let all = Arc::default();
        let first = Numbers::take(&all);
        let second = Numbers::take(&all);
        assert_eq!((first.value, second.value), (0, 1));
        drop(first);
        assert_eq!(Numbers::take(&all).value, 0);
    }
}
