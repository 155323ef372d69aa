//! What the answers of members come to: Cortex's rules for a write to many replica sets.
//!
//! A request is stored once each of its items is with a quorum of its replicas. It has failed
//! once too many replicas of one item failed *in one family of errors*, or once all have answered
//! without a quorum: so two refusals and a lost connection are a refusal, whatever the order.
//!
//! Invariant: a verdict comes once, and at the latest with the last answer. Answers after it
//! change nothing.

use std::fmt;

use super::batches::{Batches, ReplicaSetRule};
use super::snapshot::Member;

/// Counts the answers to one request's batches.
#[derive(Debug)]
pub struct Quorum {
    items: Vec<Item>,
    /// The items of all batches, one batch after the other.
    batch_items: Vec<u32>,
    /// Where the items of each batch end.
    batch_ends: Vec<u32>,
    /// By batch.
    failures: Vec<Option<Failure>>,
    /// Items that are with no quorum of their replicas yet.
    pending: usize,
    is_decided: bool,
}

/// An item and what its replicas have answered.
#[derive(Clone, Copy, Debug)]
struct Item {
    min_success: u32,
    max_failures: u32,
    /// Answers until nothing can change any more.
    remaining: u32,
    succeeded: u32,
    refused: Family,
    failed: Family,
}

/// The failures of one family.
#[derive(Clone, Copy, Debug, Default)]
struct Family {
    count: u32,
    /// The batch whose failure came last.
    last: u32,
}

/// How a member did not take a batch, by the status of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status' code, which may be an HTTP status; `None` when the batch was never sent.
    pub code: Option<i32>,
    pub message: String,
    /// The HTTP status in the answer's details.
    pub http: Option<u16>,
}

/// Why a request has failed, as its sender is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct QuorumError {
    /// An HTTP status.
    pub code: u16,
    pub text: String,
}

/// What a failure without an HTTP status of its own is to the sender.
const INTERNAL_SERVER_ERROR: u16 = 500;

impl Quorum {
    /// For the batches of one request; their order is that of the numbers in [`Self::record`].
    pub fn new(batches: &Batches) -> Self {
        let item = |rule: ReplicaSetRule| Item {
            min_success: rule.members - rule.max_errors,
            max_failures: rule.max_errors,
            remaining: rule.members,
            succeeded: 0,
            refused: Family::default(),
            failed: Family::default(),
        };
        let items: Vec<_> = batches.rules().map(item).collect();
        let len = batches.iter().map(|batch| batch.answered_items().len()).sum();
        let mut batch_items = Vec::with_capacity(len);
        let mut batch_ends = Vec::with_capacity(batches.iter().len());
        for batch in batches.iter() {
            batch_items.extend_from_slice(batch.answered_items());
            batch_ends.push(batch_items.len() as u32);
        }
        Self {
            failures: vec![None; batch_ends.len()],
            pending: items.len(),
            is_decided: false,
            items,
            batch_items,
            batch_ends,
        }
    }

    /// Whether there is nothing to wait for.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes the answer to a batch, once per batch; gives the verdict when it falls.
    pub fn record(
        &mut self,
        batch: usize,
        by: &Member,
        answer: Result<(), Failure>,
    ) -> Option<Result<(), QuorumError>> {
        if self.is_decided {
            return None;
        }
        let verdict = match answer {
            Ok(()) => self.succeed(batch),
            Err(failure) => self.fail(batch, failure),
        }?;
        self.is_decided = true;
        Some(match verdict {
            Verdict::Stored => Ok(()),
            Verdict::TooManyFailures(item) => {
                Err(self.error(item, "maxFailure (quorum) on a given error family", by))
            }
            Verdict::NoneLeft(item) => {
                Err(self.error(item, "not enough remaining instances to try", by))
            }
        })
    }

    fn succeed(&mut self, batch: usize) -> Option<Verdict> {
        let mut verdict = None;
        for at in self.items_of(batch) {
            let index = self.batch_items[at];
            let item = &mut self.items[index as usize];
            item.succeeded += 1;
            if item.succeeded >= item.min_success {
                // Counted once: a further success of one item must not stand for another item.
                if item.succeeded == item.min_success {
                    self.pending -= 1;
                    if self.pending == 0 {
                        verdict = verdict.or(Some(Verdict::Stored));
                    }
                }
                continue;
            }
            item.remaining -= 1;
            if item.remaining == 0 {
                verdict = verdict.or(Some(Verdict::NoneLeft(index)));
            }
        }
        verdict
    }

    fn fail(&mut self, batch: usize, failure: Failure) -> Option<Verdict> {
        let is_refusal = failure.is_refusal();
        self.failures[batch] = Some(failure);
        let mut verdict = None;
        for at in self.items_of(batch) {
            let index = self.batch_items[at];
            let item = &mut self.items[index as usize];
            let family = if is_refusal { &mut item.refused } else { &mut item.failed };
            family.count += 1;
            family.last = batch as u32;
            if family.count > item.max_failures {
                verdict = verdict.or(Some(Verdict::TooManyFailures(index)));
                continue;
            }
            item.remaining -= 1;
            if item.remaining == 0 {
                verdict = verdict.or(Some(Verdict::NoneLeft(index)));
            }
        }
        verdict
    }

    fn items_of(&self, batch: usize) -> std::ops::Range<usize> {
        let first = batch.checked_sub(1).map_or(0, |before| self.batch_ends[before]);
        first as usize..self.batch_ends[batch] as usize
    }

    /// The error of the family that has more failures; of both the same, the refusal.
    fn error(&self, item: u32, what: &str, by: &Member) -> QuorumError {
        let Item { refused, failed, .. } = self.items[item as usize];
        let deciding = if failed.count > refused.count { failed } else { refused };
        let Member { addr, state, zone, .. } = by;
        let failure = self.failures[deciding.last as usize].as_ref();
        let failure = failure.expect("an item fails by failures that were recorded");
        QuorumError {
            code: failure.http.unwrap_or(INTERNAL_SERVER_ERROR),
            text: format!("{what}, addr={addr} state={state} zone={zone}, {failure}"),
        }
    }
}

/// What falls with an answer, and for which item.
enum Verdict {
    Stored,
    TooManyFailures(u32),
    NoneLeft(u32),
}

impl Failure {
    /// A batch that was not sent.
    pub fn unsent(message: impl Into<String>) -> Self {
        Self { code: None, message: message.into(), http: None }
    }

    /// Whether it counts as the sender's fault: by the code alone, not by the details.
    pub fn is_refusal(&self) -> bool {
        self.code.is_some_and(|code| code / 100 == 4)
    }

    /// Whether metrics count it as the sender's fault: by the details alone, as in Cortex.
    pub fn is_http_4xx(&self) -> bool {
        self.http.is_some_and(|code| code / 100 == 4)
    }
}

/// As Go prints an error of gRPC.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(code) = self.code else {
            return f.write_str(&self.message);
        };
        let name = usize::try_from(code).ok().and_then(|code| CODE_NAMES.get(code));
        match name {
            Some(name) => write!(f, "rpc error: code = {name} desc = {}", self.message),
            None => write!(f, "rpc error: code = Code({code}) desc = {}", self.message),
        }
    }
}

/// gRPC's codes by number, as Go names them.
const CODE_NAMES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

#[cfg(test)]
mod tests;
