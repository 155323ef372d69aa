//! What two gates say to each other about budgets, and one gate's side of it, without the wire.
//!
//! Batches are self-clocked: one is under way at a time, and what is asked meanwhile waits for the
//! next, so that a busy pair talks in large batches and an idle one at once. A batch has a
//! sequence; one that is sent again after a broken connection gets the answer it got before.
//!
//! A report tells what is held when its batch is made, and only a key's first item in a batch has
//! one: the owner has then seen all that the holder has been granted.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::account::Wish;
use super::key::{KeyHash, OwnedKey};

/// Most items of one batch: with the longest names half a megabyte, and half a millisecond of its
/// owner's time. What is more goes in the next one.
pub const BATCH_ITEMS_MAX: usize = 1000;
/// Most items that wait for their turn: ten batches, some 10 ms of an owner's time. What finds no
/// place is decided as if the owner were lost.
pub const QUEUE_ITEMS_MAX: usize = 10 * BATCH_ITEMS_MAX;
/// Most accounts of one message that hands them over.
pub const HANDED_OVER_MAX: usize = 1000;

/// Questions to an owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Grows by one with each batch of a process to an owner; from 1.
    pub sequence: u64,
    pub items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub key: OwnedKey,
    pub wish: Wish,
    /// What the asker holds of the budget.
    pub holding: Option<u64>,
    pub refund: Option<Refund>,
    /// Credits that are taken whether they are there or not; 0 are none.
    pub debt: u64,
}

/// Credits that were asked for, spent, and bought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    pub credits: u64,
    /// Since they were asked for.
    pub age_ns: i64,
}

/// What an owner says, item by item.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    pub sequence: u64,
    pub items: Vec<Answer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The spend is paid, and so much more is leased.
    Granted { lease: u64 },
    Denied {
        /// Until there would be credit; `None` if there never will be.
        wait_ns: Option<u64>,
    },
    /// The asked gate does not own the key, by the ring that it knows.
    NotOwner,
    /// The asked gate knows no such limit: its configuration is another.
    NoLimit,
}

/// Accounts on their way to their new owner.
#[derive(Clone, Debug, PartialEq)]
pub struct HandOver {
    pub accounts: Vec<HandedOver>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HandedOver {
    pub key: OwnedKey,
    pub credit: f64,
    pub grants: Vec<HandedGrant>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HandedGrant {
    pub holder: Arc<str>,
    pub credits: u64,
    pub left_ns: i64,
}

/// A question under way; `W` is who waits for it, if anybody does.
#[derive(Debug)]
pub struct Question<W> {
    pub key: OwnedKey,
    pub hash: KeyHash,
    pub wish: Wish,
    /// Credits to be given back, and when they were asked for.
    pub refund: Option<(u64, i64)>,
    /// Credits that are owed by now.
    pub debt: u64,
    pub waiter: Option<W>,
}

/// Our side of a pair: what waits, and what is under way.
#[derive(Debug)]
pub struct Link<W> {
    is_up: bool,
    sequence: u64,
    waiting: VecDeque<Question<W>>,
    under_way: Option<UnderWay<W>>,
}

#[derive(Debug)]
struct UnderWay<W> {
    batch: Arc<Batch>,
    questions: Vec<Question<W>>,
    sent_ns: i64,
}

/// Questions that have been answered.
#[derive(Debug)]
pub struct Answered<W> {
    pub asked_ns: i64,
    pub items: Vec<(Question<W>, Answer)>,
}

impl<W> Default for Link<W> {
    fn default() -> Self {
        // Until a first connection has failed it is worth a wait.
        Self { is_up: true, sequence: 0, waiting: VecDeque::new(), under_way: None }
    }
}

impl<W> Link<W> {
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Puts a question in line; gives it back when the line is full or leads nowhere.
    pub fn ask(&mut self, question: Question<W>) -> Result<(), Question<W>> {
        if !self.is_up || self.waiting.len() >= QUEUE_ITEMS_MAX {
            return Err(question);
        }
        self.waiting.push_back(question);
        Ok(())
    }

    /// The next batch, if none is under way and there is anything to ask.
    pub fn next_batch(
        &mut self,
        now_ns: i64,
        mut holding: impl FnMut(&OwnedKey, KeyHash) -> u64,
    ) -> Option<Arc<Batch>> {
        if self.under_way.is_some() || self.waiting.is_empty() {
            return None;
        }
        let len = self.waiting.len().min(BATCH_ITEMS_MAX);
        let questions: Vec<_> = self.waiting.drain(..len).collect();
        let mut seen = HashSet::with_capacity(len);
        let items = questions.iter().map(|question| {
            let Question { key, hash, wish, .. } = question;
            let refund = question.refund.map(|(credits, asked_ns)| Refund {
                credits,
                age_ns: now_ns.saturating_sub(asked_ns).max(0),
            });
            let (wish, holding) = match seen.insert((hash, key)) {
                true => (*wish, Some(holding(key, *hash))),
                // One lease a batch is enough.
                false => (Wish { want: 0, ..*wish }, None),
            };
            Item { key: key.clone(), wish, holding, refund, debt: question.debt }
        });
        self.sequence += 1;
        let batch = Arc::new(Batch { sequence: self.sequence, items: items.collect() });
        self.under_way = Some(UnderWay { batch: Arc::clone(&batch), questions, sent_ns: now_ns });
        Some(batch)
    }

    /// The batch under way, to be sent again on a new connection.
    pub fn again(&self) -> Option<Arc<Batch>> {
        self.under_way.as_ref().map(|under_way| Arc::clone(&under_way.batch))
    }

    /// When the batch under way was sent.
    pub fn sent_ns(&self) -> Option<i64> {
        self.under_way.as_ref().map(|under_way| under_way.sent_ns)
    }

    /// Takes the answers to the batch under way; others are late, and none of what they grant is
    /// held by us.
    pub fn answered(&mut self, answers: Answers) -> Option<Answered<W>> {
        let fits = |under_way: &UnderWay<W>| {
            under_way.batch.sequence == answers.sequence
                && under_way.questions.len() == answers.items.len()
        };
        if !self.under_way.as_ref().is_some_and(fits) {
            return None;
        }
        let UnderWay { questions, sent_ns, .. } = self.under_way.take()?;
        let items = questions.into_iter().zip(answers.items).collect();
        Some(Answered { asked_ns: sent_ns, items })
    }

    /// The other side is there.
    pub fn up(&mut self) {
        self.is_up = true;
    }

    /// The other side is not there. All questions come back.
    pub fn down(&mut self) -> Vec<Question<W>> {
        self.is_up = false;
        self.give_up()
    }

    /// Gives up what is under way, and what waits behind it.
    pub fn give_up(&mut self) -> Vec<Question<W>> {
        let under_way = self.under_way.take().map(|under_way| under_way.questions);
        under_way.into_iter().flatten().chain(self.waiting.drain(..)).collect()
    }
}
