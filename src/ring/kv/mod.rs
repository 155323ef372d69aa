//! The store behind a ring: get, compare-and-swap and watch over raw bytes, one file a backend.
//!
//! A backend supplies a versioned read and a conditional swap; the loop around them, with its
//! bound and its back-off, is here, the same for all.
//!
//! Invariant: a value is only ever replaced by one made from it. A value that cannot be
//! understood is therefore never overwritten: the caller's closure refuses, and the loop ends.

pub mod file;
pub mod inmemory;
pub mod ring_page;

use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;

use crate::ring::config::{KvConfig, KvStoreKind};
use crate::ring::kv::file::{FileKv, FileWatch};
use crate::ring::kv::inmemory::{InMemoryKv, InMemoryWatch};
use crate::ring::model::RingModel;

/// Swaps tried before a write is given up; Cortex's number for its stores. Each loss means that
/// another member's write succeeded, so ten losses in a row are a storm, not bad luck.
pub const CAS_ATTEMPTS_MAX: u32 = 10;

/// Pause between two tries, jittered by half. It is constant: a loser who waits longer and
/// longer would starve behind members that heartbeat every few seconds.
pub const CAS_RETRY_MS: u64 = 100;

/// A ring's store. Cheap to clone; clones share the store.
#[derive(Clone, Debug)]
pub enum KvClient {
    InMemory(InMemoryKv),
    File(FileKv),
}

/// Follows one key.
#[derive(Debug)]
pub enum KvWatch {
    InMemory(InMemoryWatch),
    File(FileWatch),
}

/// A key's value at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvValue {
    /// `None`: the key is not there.
    pub bytes: Option<Bytes>,
    /// Names this value to a swap; grows with each change.
    pub version: u64,
    /// When the bytes left the ring's true store, where that is earlier than now: Unix
    /// milliseconds.
    pub stored_at_ms: Option<i64>,
}

/// Between stored bytes and the model. A value, so that this room needs no format.
#[derive(Clone, Copy, Debug)]
pub struct KvCodec {
    pub decode: fn(&[u8]) -> Result<RingModel, String>,
    pub encode: fn(&RingModel) -> Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    #[error("the store is read-only")]
    ReadOnly,
    #[error("cannot read {path}: {reason}")]
    Read { path: String, reason: String },
    #[error("{path} is larger than {bytes_max} bytes")]
    TooLarge { path: String, bytes_max: u64 },
    #[error("cannot use the stored value: {0}")]
    Value(String),
    #[error("failed to CAS {key}: {CAS_ATTEMPTS_MAX} others were faster")]
    Conflict { key: String },
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl KvClient {
    /// `in_memory` is the store that this process shares; it is used if the config names it.
    pub fn new(config: &KvConfig, in_memory: &InMemoryKv) -> Self {
        match config.store {
            KvStoreKind::InMemory => Self::InMemory(in_memory.clone()),
            KvStoreKind::File => Self::File(FileKv::new(
                config.file.path.clone(),
                config.file.poll_interval.as_duration(),
            )),
        }
    }

    /// Whether members can register themselves there.
    pub fn is_writable(&self) -> bool {
        match self {
            Self::InMemory(_) => true,
            Self::File(_) => false,
        }
    }

    pub async fn get(&self, key: &str) -> Result<KvValue, KvError> {
        match self {
            Self::InMemory(kv) => kv.get(key).await,
            Self::File(kv) => kv.get().await,
        }
    }

    /// Replaces the value of `key` by what `change` makes of it, again for each lost race.
    ///
    /// `change` answers `None` to leave the value as it is, and an error to end the attempt.
    pub async fn cas(
        &self,
        key: &str,
        mut change: impl FnMut(Option<Bytes>) -> Result<Option<Bytes>, String>,
    ) -> Result<(), KvError> {
        if !self.is_writable() {
            return Err(KvError::ReadOnly);
        }
        for attempt in 0..CAS_ATTEMPTS_MAX {
            if attempt > 0 {
                tokio::time::sleep(jittered_by_half(CAS_RETRY_MS)).await;
            }
            let current = self.get(key).await?;
            let Some(bytes) = change(current.bytes).map_err(KvError::Value)? else {
                return Ok(());
            };
            if self.swap(key, current.version, bytes).await? {
                return Ok(());
            }
        }
        Err(KvError::Conflict { key: key.to_owned() })
    }

    pub async fn delete(&self, key: &str) -> Result<(), KvError> {
        match self {
            Self::InMemory(kv) => {
                kv.remove(key);
                Ok(())
            }
            Self::File(_) => Err(KvError::ReadOnly),
        }
    }

    /// The watch's first value is the present one.
    pub fn watch(&self, key: &str) -> KvWatch {
        match self {
            Self::InMemory(kv) => KvWatch::InMemory(kv.watch(key)),
            Self::File(kv) => KvWatch::File(kv.watch()),
        }
    }

    async fn swap(&self, key: &str, version: u64, bytes: Bytes) -> Result<bool, KvError> {
        match self {
            Self::InMemory(kv) => kv.swap(key, version, bytes).await,
            Self::File(_) => Err(KvError::ReadOnly),
        }
    }
}

impl KvWatch {
    /// The next value that differs from the last one; changes in between may be skipped.
    ///
    /// Cancel-safe: a dropped call loses no value. After an error the next call tries again
    /// when the backend does, so the caller paces itself only against repeated errors.
    pub async fn next(&mut self) -> Result<KvValue, KvError> {
        match self {
            Self::InMemory(watch) => watch.next().await,
            Self::File(watch) => watch.next().await,
        }
    }
}

/// Between half of `period_ms` and all of it.
pub(crate) fn jittered_by_half(period_ms: u64) -> Duration {
    Duration::from_millis(period_ms - rand::rng().random_range(0..=period_ms / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lost_race_applies_the_change_to_the_newer_value() {
        let store = InMemoryKv::default();
        let kv = KvClient::InMemory(store.clone());
        store.fail_next_swaps(3);
        let mut calls = 0;
        kv.cas("k", |old| {
            calls += 1;
            let mut new = old.unwrap_or_default().to_vec();
            new.push(b'x');
            Ok(Some(new.into()))
        })
        .await
        .unwrap();
        assert_eq!(calls, 4);
        assert_eq!(kv.get("k").await.unwrap().bytes.as_deref(), Some(&b"x"[..]));
    }

    #[tokio::test(start_paused = true)]
    async fn races_are_lost_a_bounded_number_of_times() {
        let store = InMemoryKv::default();
        let kv = KvClient::InMemory(store.clone());
        store.fail_next_swaps(u32::MAX);
        let mut calls = 0;
        let outcome = kv
            .cas("k", |_| {
                calls += 1;
                Ok(Some(Bytes::from_static(b"v")))
            })
            .await;
        assert_eq!(outcome, Err(KvError::Conflict { key: "k".to_owned() }));
        assert_eq!(calls, CAS_ATTEMPTS_MAX);
    }

    #[tokio::test]
    async fn a_change_that_refuses_the_value_leaves_it() {
        let kv = KvClient::InMemory(InMemoryKv::default());
        kv.cas("k", |_| Ok(Some(Bytes::from_static(b"garbled")))).await.unwrap();
        let outcome = kv.cas("k", |_| Err("no ring".to_owned())).await;
        assert_eq!(outcome, Err(KvError::Value("no ring".to_owned())));
        kv.cas("k", |_| Ok(None)).await.unwrap();
        assert_eq!(kv.get("k").await.unwrap().bytes.as_deref(), Some(&b"garbled"[..]));
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "the test waits for their end")]
    async fn members_of_many_tasks_lose_no_write() {
        let kv = KvClient::InMemory(InMemoryKv::default());
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let kv = kv.clone();
                tokio::spawn(async move {
                    kv.cas("k", |old| {
                        let mut new = old.unwrap_or_default().to_vec();
                        new.push(0);
                        Ok(Some(new.into()))
                    })
                    .await
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(kv.get("k").await.unwrap().bytes.unwrap().len(), 20);
    }
}
