//! Our side of a pair: the task that asks one peer.
//!
//! ```text
//! connect: Hello, Welcome ─► talk: a batch, its answers, the next batch …
//!    ▲      a stream that breaks, or is silent for a second │
//!    ├── at once, the first time: the same batch again ◄────┤
//!    └── after a wait: all questions came back before ◄─────┘
//! ```
//!
//! A connection that was silent is not used again: the next stream is on another one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Shared;
use super::member::Member;
use crate::upstream::{AnswerStream, AskError, NotTaken, Questions};
use crate::wire::budgets::{
    self, BudgetsError, Hello, Reply, VERSION, Welcome, encode_batch, encode_hello,
};

const EXCHANGE: &str = "/freehold.budgets.v1.Budgets/Exchange";

/// Longest wait for a connection and a stream on it, and for the answers to a batch. An owner's
/// work on the largest is a thousandth of it; the rest is for a pause of its process, or the
/// network's. Requests have gone on without it long before.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Wait before the first try of a peer that is down.
const WAIT_MIN: Duration = Duration::from_millis(100);
/// Longest such wait: a peer that has come back is used within the life of a lease.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Each further wait is so many times longer: gRPC's.
const WAIT_FACTOR: f64 = 1.6;
/// Waits are spread by this part up and down, so that a peer that comes back is not met by all at
/// once: gRPC's.
const WAIT_JITTER: f64 = 0.2;

pub struct LinkTask {
    shared: Arc<Shared>,
    member: Arc<Member>,
}

/// Why a stream ended, or never began.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    #[error("the peer's words make no sense: {0}")]
    Words(#[from] BudgetsError),
    #[error("the peer has ended the stream")]
    Ended,
    #[error("the peer has not answered within {} ms", ANSWER_WITHIN.as_millis())]
    Silent,
    #[error("the address is that of another gate: {id}")]
    Another { id: Arc<str> },
    #[error("the peer speaks version {version}, not {VERSION}")]
    Version { version: u32 },
    #[error("the peer has answered what it was not asked")]
    Unasked,
}

impl LinkTask {
    pub fn new(shared: Arc<Shared>, member: Arc<Member>) -> Self {
        Self { shared, member }
    }

    /// Until the task is aborted.
    pub async fn run(self) {
        // Streams in a row that were of no use.
        let mut failures = 0_u32;
        let mut is_told_down = false;
        loop {
            let error = match self.connect().await {
                Err(error) => error,
                Ok((questions, answers)) => {
                    self.member.as_link(|| self.shared.gate.link_up(&self.member.id));
                    if std::mem::take(&mut is_told_down) {
                        let Member { id, address, .. } = &*self.member;
                        tracing::info!(peer = %id, %address, "a gate answers again");
                    }
                    let began = Instant::now();
                    let (error, answered) = self.talk(questions, answers).await;
                    // One that was open for a while without a question was sound.
                    let is_sound = !matches!(error, LinkError::Silent);
                    if answered > 0 || is_sound && began.elapsed() >= ANSWER_WITHIN {
                        failures = 0;
                    }
                    error
                }
            };
            failures = failures.saturating_add(1);
            if matches!(error, LinkError::Silent) {
                self.leave_connection();
            }
            if failures == 1 {
                continue;
            }
            if let Some(outcomes) = self
                .member
                .as_link(|| self.shared.gate.link_down(&self.member.id, self.shared.now_ns()))
            {
                Shared::deliver(outcomes);
            }
            if !std::mem::replace(&mut is_told_down, true) {
                let Member { id, address, .. } = &*self.member;
                tracing::warn!(peer = %id, %address, %error, "a gate does not answer");
            }
            sleep(wait_after(failures - 1)).await;
        }
    }

    async fn connect(&self) -> Result<(Questions, AnswerStream), LinkError> {
        let hello = encode_hello(&Hello {
            id: Arc::clone(self.shared.gate.us()),
            incarnation: self.member.incarnation,
            version: VERSION,
            placement: self.shared.placement,
            gates: self.shared.gates,
        });
        let opened = async {
            let upstream = self.member.upstream();
            let (questions, mut answers) = upstream.converse(EXCHANGE, &hello).await?;
            let first = answers.next().await?.ok_or(LinkError::Ended)?;
            match budgets::decode_reply(&first)? {
                Reply::Welcome(Welcome { id, .. }) if id != self.member.id => {
                    Err(LinkError::Another { id })
                }
                Reply::Welcome(Welcome { version, .. }) if version != VERSION => {
                    Err(LinkError::Version { version })
                }
                Reply::Welcome(_) => Ok((questions, answers)),
                Reply::Answers(_) => Err(LinkError::Unasked),
            }
        };
        timeout(ANSWER_WITHIN, opened).await.unwrap_or(Err(LinkError::Silent))
    }

    /// Asks until the stream ends; tells why, and how many batches it answered.
    async fn talk(&self, questions: Questions, answers: AnswerStream) -> (LinkError, u64) {
        let mut answered = 0;
        let error = match self.try_talk(&questions, answers, &mut answered).await {
            Err(error) => error,
            Ok(()) => LinkError::Ended,
        };
        (error, answered)
    }

    async fn try_talk(
        &self,
        questions: &Questions,
        answers: AnswerStream,
        answered: &mut u64,
    ) -> Result<(), LinkError> {
        let Shared { gate, .. } = &*self.shared;
        let id = &self.member.id;
        // Until when the batch under way has to be answered.
        let mut due = None;
        let mut to_send = self.member.as_link(|| gate.batch_again(id)).flatten();
        let mut reading = Box::pin(next(answers));
        loop {
            if due.is_none() && to_send.is_none() {
                let now_ns = self.shared.now_ns();
                to_send = self.member.as_link(|| gate.next_batch(id, now_ns)).flatten();
            }
            if let Some(batch) = to_send.take() {
                questions.send(&encode_batch(&batch))?;
                due = Some(Instant::now() + ANSWER_WITHIN);
            }
            let silent_at = due.unwrap_or_else(Instant::now);
            // A wake that is taken here is followed by a look; the reading goes on where it was.
            tokio::select! {
                (answers, message) = &mut reading => {
                    let message = message?.ok_or(LinkError::Ended)?;
                    self.take(&message)?;
                    *answered += 1;
                    due = None;
                    reading.set(next(answers));
                }
                () = self.member.wake.notified(), if due.is_none() => {}
                () = sleep_until(silent_at), if due.is_some() => return Err(LinkError::Silent),
            }
        }
    }

    /// Takes the answers to the batch under way.
    fn take(&self, message: &[u8]) -> Result<(), LinkError> {
        let Reply::Answers(answers) = budgets::decode_reply(message)? else {
            return Err(LinkError::Unasked);
        };
        let Shared { gate, .. } = &*self.shared;
        let id = &self.member.id;
        let now_ns = self.shared.now_ns();
        let taken = self.member.as_link(|| {
            let was_asked = gate.sent_ns(id).is_some();
            let outcomes = gate.answered(id, answers, now_ns);
            // Other answers than those to the batch leave it under way.
            (outcomes, was_asked && gate.sent_ns(id).is_none())
        });
        let (outcomes, is_answer) = taken.ok_or(LinkError::Ended)?;
        Shared::deliver(outcomes);
        if is_answer { Ok(()) } else { Err(LinkError::Unasked) }
    }

    fn leave_connection(&self) {
        self.member.upstream().suspect();
        if let Ok(upstream) = (self.shared.connect)(&self.member.address) {
            self.member.replace_upstream(upstream);
        }
    }
}

/// Reads on to the next message, and gives the stream back with it: what was read of one is not
/// lost when somebody stops waiting for a moment.
async fn next(mut answers: AnswerStream) -> (AnswerStream, Result<Option<Bytes>, AskError>) {
    let message = answers.next().await;
    (answers, message)
}

fn wait_after(failures: u32) -> Duration {
    let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
    let grown = WAIT_MIN.as_secs_f64() * WAIT_FACTOR.powi(exponent);
    let wait = grown.min(WAIT_MAX.as_secs_f64());
    let spread: f64 = rand::random_range(-WAIT_JITTER..=WAIT_JITTER);
    Duration::from_secs_f64(wait * (1.0 + spread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_most_and_are_spread() {
        let check = |failures, least_ms, most_ms| {
            for _ in 0..100 {
                let wait_ms = wait_after(failures).as_millis();
                assert!((least_ms..=most_ms).contains(&wait_ms), "{failures}: {wait_ms}");
            }
        };
        check(1, 80, 120);
        check(2, 128, 192);
        check(100, 1600, 2400);
        check(u32::MAX, 1600, 2400);
    }
}
