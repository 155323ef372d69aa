//! The ring's store on gossip: every member holds all of it, and what one changes it tells the
//! others, as Cortex's memberlist store does.
//!
//! ```text
//! KvClient ─ GossipedKv: get, swap, delete, watch ─┐
//! user messages ─ receive ─────────────────────────┼► Pairs: merge ─► watches
//! full exchanges ─ merge_remote_state, local_state ┘       │
//!                                          what is new ────┴► outbox ─► who gossips
//! ```
//!
//! Who gossips is not known here: it gives us what it receives, and takes from the outbox what
//! is to be told. What came as news is told on, and only what was news in it.
//!
//! Locks: each of the mutexes guards what its field says, none is held while another is taken
//! nor while a ring is encoded or decoded.

pub mod client;
pub mod gossiping;
pub mod history;
pub mod merge;
pub mod metrics;
pub mod outbox;
pub mod page;
pub mod pairs;
pub mod tombstones;
pub mod value;
pub mod weight;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};

use self::history::{Direction, History, Message};
use self::outbox::Outbox;
use self::pairs::{Change, Encoded, Entry, Outcome, Pairs, PairsError, Told, VisibleForm};
use self::value::{Value, ValueError, ValueKind};
use crate::ring::kv::{KvError, KvValue, reason};
use crate::ring::lifecycler::WallClock;
use crate::wire::key_value_pair::{self, Pair, State};

pub use self::client::{GossipedKv, GossipedPrefixWatch, GossipedWatch};
pub use self::metrics::Metrics;
pub use self::outbox::Broadcast;
pub use self::pairs::Retention;

/// How often deleted keys are swept; Cortex's.
pub const SWEEP_PERIOD: Duration = Duration::from_secs(30);

/// Peers that tell nonsense tell it often; one line in this time says so.
const COMPLAINT_PERIOD_MS: i64 = 60_000;

/// Most bytes of a whole state: a member of memberlist takes no more, and would take none of it.
const STATE_BYTES_MAX: usize = 20 << 20;

/// What a store is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub retention: Retention,
    /// Of messages kept for the page, sent and received each; 0: none.
    pub history_bytes_max: usize,
}

/// Where the store stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not joined: those who use the store wait, or they would take an empty ring for the ring.
    Starting,
    Running,
    /// We go: what we write ourselves is told, what others tell is no longer passed on, so that
    /// our last word finds the outbox empty.
    Leaving,
    /// Nothing is told any more.
    Stopped,
}

/// Clones share the store.
#[derive(Clone)]
pub struct GossipedStore(Arc<Shared>);

struct Shared {
    settings: Settings,
    clock: WallClock,
    /// All keys. Locked to merge one message or to copy a value; never while encoding.
    pairs: Mutex<Pairs>,
    /// Wakes those who watch, after each change of any key.
    changes: watch::Sender<()>,
    phase: watch::Sender<Phase>,
    /// What is to be told and has not been taken. Locked for a push or a take.
    outbox: Mutex<Outbox>,
    /// Somebody waits for the outbox to fill.
    outbox_filled: Notify,
    /// Messages kept for the page. Locked to add one or to copy them.
    history: Mutex<History>,
    /// When we last complained of a peer, Unix milliseconds.
    complained_at_ms: Mutex<Option<i64>>,
    metrics: Metrics,
}

/// Whose change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    /// We wrote it.
    Own,
    /// We heard of it.
    Other,
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    Done,
    /// The value has changed since it was read.
    Lost,
    /// Merging found nothing new. With stamps of one second that can be a second write within it.
    Unchanged,
}

/// Why a told value was not taken.
#[derive(Debug, thiserror::Error)]
enum TakeError {
    #[error(transparent)]
    Value(#[from] ValueError),
    #[error(transparent)]
    Pairs(#[from] PairsError),
}

impl GossipedStore {
    pub fn new(settings: Settings, clock: WallClock, metrics: Metrics) -> Self {
        Self(Arc::new(Shared {
            settings,
            clock,
            pairs: Mutex::new(Pairs::new(settings.retention)),
            changes: watch::Sender::new(()),
            phase: watch::Sender::new(Phase::Starting),
            outbox: Mutex::default(),
            outbox_filled: Notify::new(),
            history: Mutex::new(History::new(settings.history_bytes_max)),
            complained_at_ms: Mutex::default(),
            metrics,
        }))
    }

    /// The store for who keeps values of that kind in it.
    pub fn client(&self, kind: ValueKind) -> GossipedKv {
        GossipedKv::new(self.clone(), kind)
    }

    /// Moves on in life; back is no way.
    pub fn enter(&self, phase: Phase) {
        self.0.phase.send_if_modified(|current| {
            let moves = (*current as u8) < phase as u8;
            if moves {
                *current = phase;
            }
            moves
        });
    }

    pub fn phase(&self) -> Phase {
        *self.0.phase.borrow()
    }

    /// Takes a user message: one key's news.
    pub fn receive(&self, message: Bytes) {
        let size = message.len();
        let metrics = &self.0.metrics;
        metrics.received.inc();
        metrics.received_bytes.inc_by(size as u64);
        let pair = match key_value_pair::decode(message) {
            Ok(pair) => pair,
            Err(error) => {
                metrics.received_invalid.inc();
                return self.complain("failed to unmarshal received KV Pair", "", &reason(&error));
            }
        };
        if pair.key.is_empty() {
            metrics.received_invalid.inc();
            return self.complain("received an invalid KV Pair (empty key)", "", "");
        }
        let Some(kind) = ValueKind::from_name(&pair.codec) else {
            metrics.received_invalid.inc();
            let message = "failed to decode received value, unknown codec";
            return self.complain(message, &pair.key, &pair.codec);
        };
        self.take(pair, kind, size);
    }

    /// Everything that we hold, for a peer that exchanges states with us.
    pub fn local_state(&self) -> Bytes {
        let copies: Vec<_> = {
            let pairs = self.pairs();
            // Ours first, so that they are not among those that find no room.
            let copy = |(key, entry): (&String, &Entry)| (key.clone(), entry.told(), entry.version);
            pairs.own_first().map(copy).collect()
        };
        let metrics = &self.0.metrics;
        metrics.pulls.inc();
        let now_ms = self.now_ms();
        let mut state = Vec::new();
        for (key, told, version) in copies {
            let pair = match pair(key, &told) {
                Ok(pair) => pair,
                Err((key, error)) => {
                    self.complain("failed to encode remote state", &key, &reason(&error));
                    continue;
                }
            };
            let before = state.len();
            key_value_pair::append(&pair, &mut state);
            if state.len() > STATE_BYTES_MAX {
                state.truncate(before);
                self.complain("a key is left out of the state that others are told", &pair.key, "");
                continue;
            }
            let size = state.len() - before;
            self.keep(Direction::Sent, pair, now_ms, Kept { size, version, changes: Vec::new() });
        }
        metrics.pull_bytes.inc_by(state.len() as u64);
        state.into()
    }

    /// Takes everything that a peer holds.
    pub fn merge_remote_state(&self, state: Bytes) {
        self.0.metrics.pushes.inc();
        self.0.metrics.push_bytes.inc_by(state.len() as u64);
        for taken in State::new(state) {
            let (pair, size) = match taken {
                Ok(taken) => taken,
                Err(error) => {
                    return self.complain("failed to parse remote state", "", &reason(&error));
                }
            };
            match ValueKind::from_name(&pair.codec) {
                Some(kind) if !pair.key.is_empty() => self.take(pair, kind, size),
                _ => {
                    let message = "failed to parse remote state: unknown codec for key";
                    self.complain(message, &pair.key, &pair.codec);
                }
            }
        }
    }

    /// Drops keys that were deleted long ago; to be called every [`SWEEP_PERIOD`].
    pub fn sweep(&self) {
        let now_ms = self.now_ms();
        let (swept, left) = {
            let mut pairs = self.pairs();
            (pairs.sweep(now_ms), pairs.len())
        };
        self.0.metrics.swept.inc_by(swept.len() as u64);
        self.0.metrics.values.set(i64::try_from(left).unwrap_or(i64::MAX));
        swept.iter().for_each(|key| self.0.metrics.forget(key));
    }

    /// Takes what is to be told out of the outbox, oldest first.
    pub fn take_broadcasts(&self) -> Vec<Broadcast> {
        self.outbox().take()
    }

    /// Whether anything is to be told that was not taken yet.
    pub fn has_broadcasts(&self) -> bool {
        !self.outbox().is_empty()
    }

    /// Waits until there is something to be told. Cancel-safe, and for one waiter.
    pub async fn broadcasts_ready(&self) {
        loop {
            let filled = self.0.outbox_filled.notified();
            if !self.outbox().is_empty() {
                return;
            }
            filled.await;
        }
    }

    /// Sees to it that a ring of ours has room, whatever others tell.
    fn claim_ring(&self, key: &str) {
        self.pairs().claim_ring(key);
    }

    fn read(&self, key: &str, kind: ValueKind) -> Result<KvValue, KvError> {
        if self.pairs().is_of_another_kind(key, kind) {
            // A write without a version puts a value of the right kind in its place.
            return Ok(KvValue { bytes: None, version: 0, stored_at_ms: None });
        }
        self.read_anew(key).map(|(value, _)| value)
    }

    /// A value for who has seen that change, and the number of the one that made it. All who
    /// follow a large ring share what one of them has had encoded within that time.
    fn read_newer(
        &self,
        key: &str,
        seen: u64,
        within: Duration,
    ) -> Result<(KvValue, u64), KvError> {
        let within_ms = i64::try_from(within.as_millis()).unwrap_or(i64::MAX);
        let lately = self.pairs().lately_encoded(key, seen, within_ms, self.now_ms());
        match lately {
            Some(Encoded { bytes, version, change, .. }) => {
                Ok((KvValue { bytes: Some(bytes), version, stored_at_ms: None }, change))
            }
            None => self.read_anew(key),
        }
    }

    fn read_anew(&self, key: &str) -> Result<(KvValue, u64), KvError> {
        let (visible, change) = {
            let pairs = self.pairs();
            (pairs.visible(key), pairs.changed_at(key).any)
        };
        let version = visible.version;
        let bytes = match visible.form {
            VisibleForm::Nothing => None,
            VisibleForm::Encoded(bytes) => Some(bytes),
            VisibleForm::Value(value) => {
                let bytes = value.encode().map_err(|error| KvError::Value(reason(&error)))?;
                let at_ms = self.now_ms();
                let encoded = Encoded { bytes: bytes.clone(), version, change, at_ms };
                self.pairs().keep_encoded(key, encoded);
                Some(bytes)
            }
        };
        Ok((KvValue { bytes, version, stored_at_ms: None }, change))
    }

    fn swap(&self, key: &str, version: u64, value: Value) -> Result<Swapped, KvError> {
        self.0.metrics.cas_attempts.inc();
        let swapped = self.pairs().swap(key, version, value, self.now_ms());
        match swapped {
            Ok(outcome) => {
                if !self.publish(key, outcome, Author::Own) {
                    return Ok(Swapped::Unchanged);
                }
                self.0.metrics.cas_successes.inc();
                Ok(Swapped::Done)
            }
            Err(PairsError::VersionMismatch) => Ok(Swapped::Lost),
            Err(error) => Err(KvError::Value(format!("merge failed: {error}"))),
        }
    }

    fn delete(&self, key: &str) -> Result<(), KvError> {
        let deleted = self.pairs().delete(key, self.now_ms());
        let outcome = deleted.map_err(|error| KvError::Value(error.to_string()))?;
        self.publish(key, outcome, Author::Own);
        Ok(())
    }

    /// Merges what another member tells of a key.
    fn take(&self, pair: Pair, kind: ValueKind, size: usize) {
        let now_ms = self.now_ms();
        let taken = kind.decode(&pair.value).map_err(TakeError::from).and_then(|(value, odd)| {
            if odd > 0 {
                self.0.metrics.left_out_odd(odd);
                let why = format!("{odd} entries have states or texts that are unknown here");
                self.complain("a ring was taken but for odd entries", &pair.key, &why);
            }
            let Pair { deleted, updated_at_ms, .. } = pair;
            let told = Told { value, deleted, updated_at_ms };
            Ok(self.pairs().merge(&pair.key, told, now_ms)?)
        });
        let change = taken.as_ref().ok().and_then(|outcome| outcome.change.as_ref());
        let kept = Kept {
            size,
            version: change.map_or(0, |change| change.version),
            changes: change.map(|change| change.value.content()).unwrap_or_default(),
        };
        let key = pair.key.clone();
        self.keep(Direction::Received, pair, now_ms, kept);
        match taken {
            Ok(outcome) => {
                if let Some(why) = &outcome.left_out.why {
                    self.0.metrics.left_out(&outcome.left_out);
                    self.complain("entries of a ring are left out", &key, &why.to_string());
                }
                self.publish(&key, outcome, Author::Other);
            }
            Err(error) => self.complain("failed to store received value", &key, &reason(&error)),
        }
    }

    /// Tells of what changed, here and to others; whether anything did.
    fn publish(&self, key: &str, outcome: Outcome, author: Author) -> bool {
        let Outcome { change, tombstones, .. } = outcome;
        if let Some(tombstones) = tombstones {
            self.0.metrics.looked_through(key, tombstones);
        }
        let Some(change) = change else { return false };
        if change.version == 1 {
            let held = self.pairs().len();
            self.0.metrics.values.set(i64::try_from(held).unwrap_or(i64::MAX));
        }
        self.0.changes.send_replace(());
        match (self.phase(), author) {
            (Phase::Starting | Phase::Running, _) | (Phase::Leaving, Author::Own) => {
                self.broadcast(change);
            }
            (Phase::Leaving, Author::Other) => {}
            (Phase::Stopped, Author::Own) => {
                tracing::warn!(key, "a write is not told to others: the gossip has ended");
            }
            (Phase::Stopped, Author::Other) => {}
        }
        true
    }

    fn broadcast(&self, change: Change) {
        let Change { key, value, version, deleted, updated_at_ms } = change;
        let content = value.content();
        let pair = match pair(key, &Told { value, deleted, updated_at_ms }) {
            Ok(pair) => pair,
            Err((key, error)) => {
                self.0.metrics.dropped.inc();
                return self.complain("failed to encode change", &key, &reason(&error));
            }
        };
        let bytes = key_value_pair::encode(&pair);
        let key = pair.key.clone();
        let kept = Kept { size: bytes.len(), version, changes: content.clone() };
        self.keep(Direction::Sent, pair, self.now_ms(), kept);
        let dropped = self.outbox().push(Broadcast { key, content, version, bytes });
        self.0.metrics.dropped.inc_by(dropped);
        self.0.outbox_filled.notify_one();
    }

    fn keep(&self, direction: Direction, pair: Pair, at_ms: i64, kept: Kept) {
        if self.0.settings.history_bytes_max == 0 {
            return;
        }
        let Pair { key, value, codec, deleted, updated_at_ms } = pair;
        // A part of a received message would keep all of it alive.
        let value = Bytes::copy_from_slice(&value);
        let Kept { size, version, changes } = kept;
        self.history().add(
            direction,
            Message {
                id: 0,
                at_ms,
                size,
                key,
                value,
                codec,
                deleted,
                updated_at_ms,
                version,
                changes,
            },
        );
    }

    /// Says what is wrong with what a peer sent, now and then.
    fn complain(&self, what: &str, key: &str, why: &str) {
        let now_ms = self.now_ms();
        let mut complained = lock(&self.0.complained_at_ms);
        let is_due = complained.is_none_or(|at_ms| now_ms - at_ms >= COMPLAINT_PERIOD_MS);
        if is_due {
            *complained = Some(now_ms);
            drop(complained);
            tracing::warn!(key, reason = why, "{what}");
        }
    }

    fn now_ms(&self) -> i64 {
        (self.0.clock)()
    }

    fn pairs(&self) -> MutexGuard<'_, Pairs> {
        lock(&self.0.pairs)
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        lock(&self.0.outbox)
    }

    fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.0.history)
    }
}

impl fmt::Debug for GossipedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GossipedStore").field("phase", &self.phase()).finish_non_exhaustive()
    }
}

/// What the history notes of a message beside its pair.
struct Kept {
    size: usize,
    version: u64,
    changes: Vec<String>,
}

/// A key's value in the form in which it travels.
fn pair(key: String, told: &Told) -> Result<Pair, (String, ValueError)> {
    match told.value.encode() {
        Ok(value) => Ok(Pair {
            key,
            value,
            codec: told.value.kind().name().to_owned(),
            deleted: told.deleted,
            updated_at_ms: told.updated_at_ms,
        }),
        Err(error) => Err((key, error)),
    }
}

/// A panic elsewhere leaves nothing half-made behind: a merge checks before it changes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
