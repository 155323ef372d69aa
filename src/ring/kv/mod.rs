//! The store behind a ring: get, compare-and-swap and watch over raw bytes, one file a backend.
//!
//! A backend supplies a versioned read and a conditional swap; the loop around them, with its
//! bound and its back-off, is here, the same for all.
//!
//! Invariants: a value is only ever replaced by one made from it. A value that cannot be
//! understood is therefore never overwritten: the caller's closure refuses, and the loop ends.
//! Every call ends within a named time, whatever the store does; only a watch may wait for long,
//! and it can be dropped at any moment.

pub mod consul;
pub mod dial;
pub mod etcd;
pub mod file;
pub mod http;
pub mod inmemory;
pub mod memberlist;
pub mod prefix;
pub mod requests;
pub mod ring_page;
pub mod stores;

mod exchange;

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use tokio::time::{Instant, timeout};

use crate::ring::config::{KvConfig, KvConfigError, KvStoreKind};
use crate::ring::kv::consul::{ConsulKv, ConsulWatch};
use crate::ring::kv::dial::DialError;
use crate::ring::kv::etcd::{EtcdKv, EtcdWatch};
use crate::ring::kv::file::{FileKv, FileWatch};
use crate::ring::kv::http::{HttpKv, HttpWatch};
use crate::ring::kv::inmemory::{InMemoryKv, InMemoryWatch};
use crate::ring::kv::memberlist::{GossipedKv, GossipedWatch, Swapped};
use crate::ring::kv::requests::{Operation, RequestDurations};
use crate::ring::model::RingModel;

/// Swaps tried before a write is given up; Cortex's number for its stores. Each loss means that
/// another member's write succeeded, so ten losses in a row are a storm, not bad luck.
pub const CAS_ATTEMPTS_MAX: u32 = 10;

/// How long a read or a deletion may take. A store's own settings are shorter as a rule; this
/// holds for all of them, a file on a dead mount included.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a write may take with all of its races. By then a heartbeat comes too late to count.
pub const CAS_TIMEOUT: Duration = Duration::from_secs(60);

/// Largest value that is taken from a store, as large as a ring may be once decompressed.
const VALUE_BYTES_MAX: usize = 16 << 20;

/// Longest reason that is told of a failure; servers put a sentence there.
const REASON_CHARS_MAX: usize = 400;

/// Pause between two tries, jittered by half. It is constant: a loser who waits longer and
/// longer would starve behind members that heartbeat every few seconds.
pub const CAS_RETRY_MS: u64 = 100;

/// A ring's store. Cheap to clone; clones share the store.
#[derive(Clone, Debug)]
pub enum KvClient {
    InMemory(InMemoryKv),
    File(FileKv),
    Etcd(EtcdKv),
    Consul(ConsulKv),
    Http(HttpKv),
    Memberlist(GossipedKv),
}

/// Follows one key.
#[derive(Debug)]
pub enum KvWatch {
    InMemory(InMemoryWatch),
    File(FileWatch),
    Etcd(EtcdWatch),
    Consul(ConsulWatch),
    Http(HttpWatch),
    Memberlist(GossipedWatch),
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
    #[error("failed to CAS {key}: {attempts} others were faster")]
    Conflict { key: String, attempts: u32 },
    /// Cortex's text. Of gossip alone: a stamp that is no newer than what is known.
    #[error("failed to CAS-update key {key}: no change detected")]
    NoChange { key: String },
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("cannot ask {store} at {at}: {reason}")]
    Call { store: &'static str, at: String, reason: String },
    #[error("the watch of {key} ends as soon as it begins: {reason}")]
    WatchEnds { key: String, reason: String },
}

/// Why a store cannot even be tried.
#[derive(Debug, thiserror::Error)]
pub enum KvSetupError {
    #[error("the settings of the ring's store cannot be used")]
    Config(#[from] KvConfigError),
    #[error("the ring's store cannot be connected to")]
    Dial { source: DialError },
    #[error("the ACL token holds characters that no HTTP header can carry")]
    Token,
    #[error("the store's address holds characters that no request can carry")]
    Path,
    #[error("the store is on gossip, which this process takes no part in")]
    NoGossip,
}

impl KvClient {
    /// `in_memory` is the store that this process shares; it is used if the config names it.
    /// `name` is Cortex's name of the store's user, for metrics.
    pub fn new(
        config: &KvConfig,
        in_memory: &InMemoryKv,
        durations: Option<&RequestDurations>,
        name: &'static str,
    ) -> Result<Self, KvSetupError> {
        let requests = |kind| durations.map(|durations| durations.of(name, kind));
        Ok(match config.store {
            KvStoreKind::InMemory => Self::InMemory(in_memory.clone()),
            KvStoreKind::File => Self::File(FileKv::new(
                config.file.path.clone(),
                config.file.poll_interval.as_duration(),
            )),
            KvStoreKind::Etcd => Self::Etcd(EtcdKv::new(&config.etcd, requests("etcd"))?),
            KvStoreKind::Consul => Self::Consul(ConsulKv::new(&config.consul, requests("consul"))?),
            KvStoreKind::Http => Self::Http(HttpKv::new(&config.http, requests("http"))?),
            KvStoreKind::Memberlist => return Err(KvSetupError::NoGossip),
        })
    }

    /// The same store for another user of it, told apart in metrics.
    pub fn for_user(&self, name: &'static str) -> Self {
        let mut other = self.clone();
        let requests = match &mut other {
            Self::InMemory(_) | Self::File(_) | Self::Memberlist(_) => return other,
            Self::Etcd(kv) => &mut kv.requests,
            Self::Consul(kv) => &mut kv.requests,
            Self::Http(kv) => &mut kv.requests,
        };
        *requests = requests.as_ref().map(|requests| requests.named(name));
        other
    }

    /// Whether members can register themselves there.
    pub fn is_writable(&self) -> bool {
        match self {
            Self::InMemory(_) | Self::Etcd(_) | Self::Consul(_) | Self::Memberlist(_) => true,
            Self::File(_) | Self::Http(_) => false,
        }
    }

    pub async fn get(&self, key: &str) -> Result<KvValue, KvError> {
        let getting = async {
            match self {
                Self::InMemory(kv) => kv.get(key).await,
                Self::File(kv) => kv.get().await,
                Self::Etcd(kv) => kv.get(key).await,
                Self::Consul(kv) => kv.get(key).await,
                Self::Http(kv) => kv.get().await,
                Self::Memberlist(kv) => kv.get(key).await,
            }
        };
        self.within(CALL_TIMEOUT, Operation::Get, getting).await
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
        let attempts = self.cas_attempts_max();
        let swapping = async {
            let mut failure = None;
            for _ in 0..attempts {
                match failure {
                    None => {}
                    Some(Swapped::Unchanged) => self.until_news_count().await,
                    Some(_) => tokio::time::sleep(jittered_by_half(CAS_RETRY_MS)).await,
                }
                let current = self.get_to_swap(key).await?;
                let Some(bytes) = change(current.bytes).map_err(KvError::Value)? else {
                    return Ok(());
                };
                // No ring is empty as bytes, so this is one that could not be encoded.
                if bytes.is_empty() {
                    return Err(KvError::Value("the new value is empty".to_owned()));
                }
                match self.swap(key, current.version, bytes).await? {
                    Swapped::Done => return Ok(()),
                    outcome => failure = Some(outcome),
                }
            }
            let key = key.to_owned();
            Err(match failure {
                Some(Swapped::Unchanged) => KvError::NoChange { key },
                _ => KvError::Conflict { key, attempts },
            })
        };
        let outcome = self.within(CAS_TIMEOUT, Operation::Cas, swapping).await;
        if let (Self::Memberlist(kv), Err(_)) = (self, &outcome) {
            kv.count_failed_cas();
        }
        outcome
    }

    pub async fn delete(&self, key: &str) -> Result<(), KvError> {
        let deleting = async {
            match self {
                Self::InMemory(kv) => {
                    kv.remove(key);
                    Ok(())
                }
                Self::Etcd(kv) => kv.delete(key).await,
                Self::Consul(kv) => kv.delete(key).await,
                Self::Memberlist(kv) => kv.delete(key).await,
                Self::File(_) | Self::Http(_) => Err(KvError::ReadOnly),
            }
        };
        self.within(CALL_TIMEOUT, Operation::Delete, deleting).await
    }

    /// The watch's first value is the present one.
    pub fn watch(&self, key: &str) -> KvWatch {
        match self {
            Self::InMemory(kv) => KvWatch::InMemory(kv.watch(key)),
            Self::File(kv) => KvWatch::File(kv.watch()),
            Self::Etcd(kv) => KvWatch::Etcd(kv.watch(key)),
            Self::Consul(kv) => KvWatch::Consul(kv.watch(key)),
            Self::Http(kv) => KvWatch::Http(kv.watch()),
            Self::Memberlist(kv) => KvWatch::Memberlist(kv.watch(key)),
        }
    }

    /// A value that a swap may start from.
    async fn get_to_swap(&self, key: &str) -> Result<KvValue, KvError> {
        match self {
            Self::InMemory(kv) => kv.get(key).await,
            Self::Etcd(kv) => kv.get(key).await,
            Self::Consul(kv) => kv.get_fresh(key).await,
            Self::Memberlist(kv) => kv.get(key).await,
            Self::File(_) | Self::Http(_) => Err(KvError::ReadOnly),
        }
    }

    async fn swap(&self, key: &str, version: u64, bytes: Bytes) -> Result<Swapped, KvError> {
        let is_swapped = match self {
            Self::InMemory(kv) => kv.swap(key, version, bytes).await?,
            Self::Etcd(kv) => kv.swap(key, version, bytes).await?,
            Self::Consul(kv) => kv.swap(key, version, bytes).await?,
            Self::Memberlist(kv) => return kv.swap(key, version, bytes).await,
            Self::File(_) | Self::Http(_) => return Err(KvError::ReadOnly),
        };
        Ok(if is_swapped { Swapped::Done } else { Swapped::Lost })
    }

    /// Waits until a write that brought no news may bring some.
    ///
    /// Gossip tells old from new by stamps of one second, so a second write of ours within it,
    /// such as LEAVING right behind a heartbeat, is not news. It must not be given up, since no
    /// other write may follow; the closure stamps it anew in the next second. Cortex waits a
    /// whole one.
    async fn until_news_count(&self) {
        if let Self::Memberlist(kv) = self {
            kv.next_second().await;
        }
    }

    fn cas_attempts_max(&self) -> u32 {
        match self {
            Self::Etcd(kv) => kv.cas_attempts_max,
            _ => CAS_ATTEMPTS_MAX,
        }
    }

    /// Says that no answer came within a deadline, and of whom, where the store is elsewhere.
    pub(super) fn silent(&self, within: Duration) -> KvError {
        let (store, at) = match self {
            Self::InMemory(_) | Self::File(_) | Self::Memberlist(_) => {
                return KvError::Timeout(within);
            }
            Self::Etcd(kv) => ("etcd", kv.endpoints()),
            Self::Consul(kv) => ("Consul", kv.endpoint()),
            Self::Http(kv) => ("the ring page", kv.endpoint()),
        };
        KvError::Call { store, at, reason: KvError::Timeout(within).to_string() }
    }

    /// Ends a call at its deadline, and counts how long it took where a store is far away.
    async fn within<T>(
        &self,
        deadline: Duration,
        operation: Operation,
        call: impl Future<Output = Result<T, KvError>>,
    ) -> Result<T, KvError> {
        let asked_at = Instant::now();
        let outcome = match timeout(deadline, call).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.silent(deadline)),
        };
        let requests = match self {
            Self::InMemory(_) | Self::File(_) | Self::Memberlist(_) => None,
            Self::Etcd(kv) => kv.requests.as_ref(),
            Self::Consul(kv) => kv.requests.as_ref(),
            Self::Http(kv) => kv.requests.as_ref(),
        };
        if let Some(requests) = requests {
            requests.observe(operation, asked_at, &outcome);
        }
        outcome
    }
}

impl KvWatch {
    /// The next value that differs from the last one; changes in between may be skipped. A store
    /// that confirms the last one may repeat it.
    ///
    /// Cancel-safe: a dropped call loses no value. After an error the next call tries again
    /// when the backend does, so the caller paces itself only against repeated errors.
    pub async fn next(&mut self) -> Result<KvValue, KvError> {
        match self {
            Self::InMemory(watch) => watch.next().await,
            Self::File(watch) => watch.next().await,
            Self::Etcd(watch) => watch.next().await,
            Self::Consul(watch) => watch.next().await,
            Self::Http(watch) => watch.next().await,
            Self::Memberlist(watch) => watch.next().await,
        }
    }
}

/// An error with its causes, in one line.
fn reason(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    one_line(&text)
}

/// A text from elsewhere, cut to what a log line and a page can hold.
fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().map(plain).take(REASON_CHARS_MAX).collect()
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
        assert_eq!(
            outcome,
            Err(KvError::Conflict { key: "k".to_owned(), attempts: CAS_ATTEMPTS_MAX })
        );
        assert_eq!(calls, CAS_ATTEMPTS_MAX);
    }

    #[tokio::test]
    async fn a_change_that_refuses_the_value_leaves_it() {
        let kv = KvClient::InMemory(InMemoryKv::default());
        kv.cas("k", |_| Ok(Some(Bytes::from_static(b"garbled")))).await.unwrap();
        let outcome = kv.cas("k", |_| Err("no ring".to_owned())).await;
        assert_eq!(outcome, Err(KvError::Value("no ring".to_owned())));
        kv.cas("k", |_| Ok(None)).await.unwrap();
        assert!(kv.cas("k", |_| Ok(Some(Bytes::new()))).await.is_err(), "no ring is no bytes");
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
