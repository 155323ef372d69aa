//! `freehold.budgets.v1.Budgets`: what other gates ask about budgets, where we share any.
//!
//! A stream serves one gate that asks: its hello, then batch after batch, each answered before
//! the next is read. Messages are charged to a room of their own: a flood of pushes must not make
//! owners look lost, or each gate would fall back to what it may do without.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use tokio::time::timeout;
use tonic::Code;
use tonic::body::Body;

use super::Edge;
use super::answer::{self, Step};
use super::frames::{Messages, frame};
use super::intake::Intake;
use crate::server::drain::Drain;
use crate::server::room::Room;
use crate::server::seam::BudgetCalls;
use crate::server::status::GrpcStatus;
use crate::upstream::deadline;
use crate::wire::budgets::{
    BudgetsError, Hello, MESSAGE_BYTES_MAX, Question, Reply, decode_hand_over, decode_list_request,
    decode_question, decode_reset_request, decode_show_request, encode_hand_over_reply,
    encode_list_reply, encode_reply, encode_reset_reply, encode_show_reply,
};
use crate::wire::encoding::Encoding;

const SERVICE: &str = "freehold.budgets.v1.Budgets";
/// What every path of the service begins with.
pub const PREFIX: &str = "/freehold.budgets.v1.Budgets/";

/// Most streams at once: one per gate that asks, and for a while one that is left behind when it
/// connects anew. Further ones are refused, and their gates go on without us.
const STREAMS_MAX: usize = 1024;
/// What all messages together may take while they arrive and are handled: 64 of the longest. A
/// common batch is a few kilobytes.
const ROOM_BYTES: usize = 64 * MESSAGE_BYTES_MAX;
/// How long a stream may take to say who asks. It is sent together with the call.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// The service.
pub struct BudgetsEdge {
    calls: BudgetCalls,
    room: Room,
    streams: Arc<AtomicUsize>,
}

/// A place among the streams; given back when dropped.
struct Place(Arc<AtomicUsize>);

struct Exchange {
    calls: BudgetCalls,
    drain: Drain,
    encoding: Encoding,
    intake: Intake<Body>,
    /// Who asks, once it has said so.
    hello: Option<Hello>,
    _place: Place,
}

impl BudgetsEdge {
    pub fn new(calls: BudgetCalls) -> Self {
        Self { calls, room: Room::new(ROOM_BYTES), streams: Arc::default() }
    }

    pub async fn answer(
        &self,
        edge: &Edge,
        request: Request<Body>,
    ) -> Result<Response<Body>, GrpcStatus> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let method = path.strip_prefix(PREFIX).unwrap_or_default();
        let encoding = edge.encoding(&head.headers)?;
        let messages = Messages::new(body, encoding, MESSAGE_BYTES_MAX);
        let intake = Intake::new(messages, self.room.clone(), deadline(&head.headers));
        if method == "Exchange" {
            let exchange = self.exchange(edge.drain.clone(), encoding, intake)?;
            return Ok(answer::stream(encoding, exchange, Exchange::step).await);
        }
        let calls = &self.calls;
        // Whatever the method, its message is read first, and only within the bounds.
        let serve = match method {
            "HandOver" => |calls: &BudgetCalls, message: &[u8]| {
                (calls.take_over)(decode_hand_over(message)?);
                Ok(encode_hand_over_reply())
            },
            "List" => |calls: &BudgetCalls, message: &[u8]| {
                Ok(encode_list_reply(&(calls.list)(&decode_list_request(message)?)))
            },
            "Show" => |calls: &BudgetCalls, message: &[u8]| {
                Ok(encode_show_reply(&(calls.show)(&decode_show_request(message)?)))
            },
            "Reset" => |calls: &BudgetCalls, message: &[u8]| {
                Ok(encode_reset_reply((calls.reset)(&decode_reset_request(message)?)))
            },
            _ => {
                let text = format!("unknown method {method} for service {SERVICE}");
                return Err(GrpcStatus::new(Code::Unimplemented, text));
            }
        };
        let received = intake.only().await?;
        let reply: Result<Vec<u8>, BudgetsError> = serve(calls, &received.message);
        let framed = frame(&reply?, encoding, MESSAGE_BYTES_MAX)?;
        Ok(answer::unary(encoding, framed))
    }

    fn exchange(
        &self,
        drain: Drain,
        encoding: Encoding,
        intake: Intake<Body>,
    ) -> Result<Exchange, GrpcStatus> {
        // Relaxed: the count guards no other memory.
        let before = self.streams.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&self.streams));
        if before >= STREAMS_MAX {
            let text = format!("too many streams about budgets: {STREAMS_MAX}");
            return Err(GrpcStatus::new(Code::ResourceExhausted, text));
        }
        let calls = self.calls.clone();
        Ok(Exchange { calls, drain, encoding, intake, hello: None, _place: place })
    }
}

impl Exchange {
    async fn step(mut self) -> (Self, Step) {
        let step = self.try_step().await.unwrap_or_else(Step::End);
        (self, step)
    }

    async fn try_step(&mut self) -> Result<Step, GrpcStatus> {
        let is_greeted = self.hello.is_some();
        let next = async {
            match is_greeted {
                true => Ok(self.intake.next().await),
                false => timeout(HELLO_WITHIN, self.intake.next()).await,
            }
        };
        // What is lost with a dropped read was not answered, and the end of the stream says so.
        let received = tokio::select! {
            biased;
            () = self.drain.started() => {
                return Err(GrpcStatus::new(Code::Unavailable, "server is shutting down"));
            }
            received = next => received,
        };
        let received = received.map_err(|_| {
            GrpcStatus::new(Code::DeadlineExceeded, "the stream did not say who asks")
        })?;
        let Some(received) = received? else { return Ok(Step::End(GrpcStatus::ok())) };
        let question = decode_question(&received.message)?;
        // Its bytes are no longer held.
        drop(received);
        let reply = self.reply(question)?;
        let framed = frame(&encode_reply(&reply), self.encoding, MESSAGE_BYTES_MAX)?;
        Ok(Step::Answer(framed))
    }

    fn reply(&mut self, question: Question) -> Result<Reply, GrpcStatus> {
        let refused = |text: String| GrpcStatus::new(Code::FailedPrecondition, text);
        match (question, &self.hello) {
            (Question::Hello(hello), None) => {
                let welcome = (self.calls.greet)(&hello);
                let welcome = welcome.map_err(|error| refused(error.to_string()))?;
                self.hello = Some(hello);
                Ok(Reply::Welcome(welcome))
            }
            (Question::Batch(batch), Some(hello)) => match (self.calls.serve)(hello, &batch) {
                Some(answers) => Ok(Reply::Answers(answers)),
                None => Err(refused(format!("batch {} comes too late", batch.sequence))),
            },
            (Question::Hello(_), Some(_)) => Err(refused("a second hello".to_owned())),
            (Question::Batch(_), None) => Err(refused("a batch before the hello".to_owned())),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
