//! The gossiping store as its users see it: get, swap and watch of bytes, no calls to anybody.
//!
//! Heartbeats change a large ring more than a hundred times a second, and each telling of it costs
//! its reader a whole ring. So a watch tells at once what moves the ring, and heartbeats once a
//! second; then several watches of a ring are told the same bytes, encoded once.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::value::ValueKind;
use super::{GossipedStore, Phase, Swapped, VisibleForm};
use crate::ring::kv::prefix::{PrefixReading, check_count};
use crate::ring::kv::{KvError, KvValue, reason};

/// Shortest time between two tellings of nothing but heartbeats. They are stamped by the second.
pub const HEARTBEATS_PERIOD: Duration = Duration::from_secs(1);

/// The store for values of one kind. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GossipedKv {
    store: GossipedStore,
    kind: ValueKind,
}

/// Follows one key.
#[derive(Debug)]
pub struct GossipedWatch {
    kv: GossipedKv,
    key: String,
    changes: watch::Receiver<()>,
    /// The key's latest change that was told; `None` before the first telling.
    seen: Option<u64>,
    /// When that was.
    told_at: Instant,
}

/// Follows the keys under a prefix.
#[derive(Debug)]
pub struct GossipedPrefixWatch {
    kv: GossipedKv,
    prefix: String,
    changes: watch::Receiver<()>,
    /// The store's latest change that was told; `None` before the first telling.
    seen: Option<u64>,
}

impl GossipedKv {
    pub(super) fn new(store: GossipedStore, kind: ValueKind) -> Self {
        Self { store, kind }
    }

    pub fn store(&self) -> &GossipedStore {
        &self.store
    }

    pub(in crate::ring::kv) async fn get(&self, key: &str) -> Result<KvValue, KvError> {
        self.claim(key);
        self.started().await;
        self.store.read(key, self.kind)
    }

    pub(in crate::ring::kv) async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: Bytes,
    ) -> Result<Swapped, KvError> {
        self.claim(key);
        self.started().await;
        let value = self.kind.decode(&bytes);
        let (value, _) = value.map_err(|error| KvError::Value(reason(&error)))?;
        self.store.swap(key, version, value)
    }

    pub(in crate::ring::kv) async fn delete(&self, key: &str) -> Result<(), KvError> {
        self.started().await;
        self.store.delete(key)
    }

    pub(in crate::ring::kv) fn watch(&self, key: &str) -> GossipedWatch {
        self.claim(key);
        GossipedWatch {
            kv: self.clone(),
            key: key.to_owned(),
            changes: self.store.0.changes.subscribe(),
            seen: None,
            told_at: Instant::now(),
        }
    }

    pub(in crate::ring::kv) fn watch_prefix(&self, prefix: &str) -> GossipedPrefixWatch {
        let changes = self.store.0.changes.subscribe();
        GossipedPrefixWatch { kv: self.clone(), prefix: prefix.to_owned(), changes, seen: None }
    }

    /// Until a new stamp is newer than one of now.
    pub(in crate::ring::kv) async fn next_second(&self) {
        let left_ms = 1000 - self.store.now_ms().rem_euclid(1000);
        sleep(Duration::from_millis(left_ms.unsigned_abs())).await;
    }

    pub(in crate::ring::kv) fn count_failed_cas(&self) {
        self.store.0.metrics.cas_failures.inc();
    }

    /// A ring that is used here is one of ours; what is elected has many keys.
    fn claim(&self, key: &str) {
        match self.kind {
            ValueKind::Ring => self.store.claim_ring(key),
            ValueKind::Replica => {}
        }
    }

    /// Waits until we have joined the others, or tried to.
    async fn started(&self) {
        let mut phases = self.store.0.phase.subscribe();
        // The store holds the sender, so there is always one to come.
        let _ = phases.wait_for(|phase| *phase != Phase::Starting).await;
    }
}

impl GossipedWatch {
    /// Cancel-safe: what was told is noted without a wait in between.
    pub(in crate::ring::kv) async fn next(&mut self) -> Result<KvValue, KvError> {
        self.kv.started().await;
        loop {
            // Marked as seen before the look, so that a change during it wakes us.
            self.changes.borrow_and_update();
            let changed_at = self.kv.store.pairs().changed_at(&self.key);
            let due_at = self.told_at + HEARTBEATS_PERIOD;
            let is_due = match self.seen {
                None => true,
                Some(seen) => {
                    changed_at.moved > seen || (changed_at.any > seen && Instant::now() >= due_at)
                }
            };
            if is_due {
                self.told_at = Instant::now();
                let seen = self.seen.unwrap_or(0);
                let told = self.kv.store.read_newer(&self.key, seen, HEARTBEATS_PERIOD);
                // What cannot be told is not tried again before it has changed.
                self.seen = Some(told.as_ref().map_or(changed_at.any, |(_, change)| *change));
                return told.map(|(value, _)| value);
            }
            let waits_for_period = self.seen.is_some_and(|seen| changed_at.any > seen);
            // Both arms are cancel-safe: neither takes anything with it.
            tokio::select! {
                // The store is held by `kv`, so its sender lives.
                _ = self.changes.changed() => {}
                () = sleep_until(due_at), if waits_for_period => {}
            }
        }
    }
}

impl GossipedPrefixWatch {
    pub(in crate::ring::kv) async fn next(&mut self) -> Result<PrefixReading, KvError> {
        self.kv.started().await;
        loop {
            self.changes.borrow_and_update();
            let (copies, now) = {
                let pairs = self.kv.store.pairs();
                let copies: Vec<_> = match self.seen {
                    None => {
                        let under = pairs.under(&self.prefix);
                        under.map(|(key, entry)| (key.clone(), entry.visible())).collect()
                    }
                    Some(seen) => {
                        let changed = pairs.changed_since(&self.prefix, seen);
                        changed.map(|(key, entry)| (key.clone(), entry.visible())).collect()
                    }
                };
                (copies, pairs.changes())
            };
            let is_whole = self.seen.is_none();
            if is_whole {
                check_count(&self.prefix, copies.len())?;
            }
            self.seen = Some(now);
            if is_whole || !copies.is_empty() {
                return Ok(PrefixReading { pairs: encoded(copies), is_whole });
            }
            // Cancel-safe: it takes nothing with it. The store is held by `kv`.
            let _ = self.changes.changed().await;
        }
    }
}

fn encoded(copies: Vec<(String, super::pairs::Visible)>) -> Vec<(String, KvValue)> {
    let mut pairs = Vec::with_capacity(copies.len());
    for (key, visible) in copies {
        let bytes = match visible.form {
            VisibleForm::Nothing => None,
            VisibleForm::Encoded(bytes) => Some(bytes),
            VisibleForm::Value(value) => match value.encode() {
                Ok(bytes) => Some(bytes),
                Err(error) => {
                    // A ring, which nobody looks for under a prefix.
                    tracing::warn!(key, reason = reason(&error), "a value cannot be told");
                    continue;
                }
            },
        };
        let version = visible.version;
        pairs.push((key, KvValue { bytes, version, stored_at_ms: None }));
    }
    pairs
}
