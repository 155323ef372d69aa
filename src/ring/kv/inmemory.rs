//! A store for members of one process: the single binary, and tests.
//!
//! Invariant: a key's version grows with each change and is never reused, a deletion included,
//! so that a swap against a deleted and re-made value fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use crate::ring::kv::prefix::{PrefixReading, check_count};
use crate::ring::kv::{KvError, KvValue};

/// Clones share the store.
#[derive(Clone, Debug, Default)]
pub struct InMemoryKv {
    /// One channel a key, which holds the value too. Keys are rings, which come from
    /// configuration, and elected replicas, which their tracker bounds. Locked for a look-up only.
    keys: Arc<Mutex<BTreeMap<String, watch::Sender<KvValue>>>>,
    /// Counts changes of all keys, for those who follow a prefix.
    changes: Arc<watch::Sender<u64>>,
    #[cfg(test)]
    faults: Arc<Mutex<Faults>>,
}

/// Tells all of a prefix at each change.
#[derive(Debug)]
pub struct InMemoryPrefixWatch {
    kv: InMemoryKv,
    prefix: String,
    changes: watch::Receiver<u64>,
    is_first: bool,
}

#[derive(Debug)]
pub struct InMemoryWatch {
    values: watch::Receiver<KvValue>,
    is_first: bool,
}

/// What tests make of a store that is far away.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
struct Faults {
    swaps_to_fail: u32,
    delay: std::time::Duration,
    unreachable: bool,
}

impl InMemoryKv {
    /// The value as of now; what `swap` needs is its version.
    pub fn read(&self, key: &str) -> KvValue {
        self.channel(key).borrow().clone()
    }

    /// Replaces the value if its version is still `version`; tells whether it did.
    pub fn replace(&self, key: &str, version: u64, bytes: Bytes) -> bool {
        let is_replaced = self.channel(key).send_if_modified(|value| {
            if value.version != version {
                return false;
            }
            *value = KvValue { bytes: Some(bytes), version: value.version + 1, stored_at_ms: None };
            true
        });
        if is_replaced {
            self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        }
        is_replaced
    }

    pub fn remove(&self, key: &str) {
        self.channel(key).send_if_modified(|value| {
            let was_there = value.bytes.is_some();
            if was_there {
                *value = KvValue { version: value.version + 1, ..KvValue::default() };
            }
            was_there
        });
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    pub fn watch(&self, key: &str) -> InMemoryWatch {
        InMemoryWatch { values: self.channel(key).subscribe(), is_first: true }
    }

    pub(super) fn watch_prefix(&self, prefix: &str) -> InMemoryPrefixWatch {
        let changes = self.changes.subscribe();
        InMemoryPrefixWatch { kv: self.clone(), prefix: prefix.to_owned(), changes, is_first: true }
    }

    /// Keys under a prefix that have a value.
    pub fn list(&self, prefix: &str) -> Vec<(String, KvValue)> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let under = keys.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let pairs = under.map(|(key, channel)| (key.clone(), channel.borrow().clone()));
        pairs.filter(|(_, value)| value.bytes.is_some()).collect()
    }

    pub(super) async fn get(&self, key: &str) -> Result<KvValue, KvError> {
        #[cfg(test)]
        self.suffer().await?;
        Ok(self.read(key))
    }

    pub(super) async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: Bytes,
    ) -> Result<bool, KvError> {
        #[cfg(test)]
        {
            self.suffer().await?;
            let mut faults = self.faults.lock().expect("no panic under this lock");
            if faults.swaps_to_fail > 0 {
                faults.swaps_to_fail -= 1;
                return Ok(false);
            }
        }
        Ok(self.replace(key, version, bytes))
    }

    fn channel(&self, key: &str) -> watch::Sender<KvValue> {
        // A panic elsewhere leaves no half-made map behind: each use is one call on it.
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = keys.get(key) {
            return channel.clone();
        }
        keys.entry(key.to_owned()).or_insert_with(|| watch::Sender::new(KvValue::default())).clone()
    }
}

impl InMemoryPrefixWatch {
    pub(super) async fn next(&mut self) -> Result<PrefixReading, KvError> {
        if !self.is_first && self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.is_first = false;
        // Marked as seen before the look, so that a change during it is told next.
        self.changes.borrow_and_update();
        #[cfg(test)]
        self.kv.suffer().await?;
        let pairs = self.kv.list(&self.prefix);
        check_count(&self.prefix, pairs.len())?;
        Ok(PrefixReading { pairs, is_whole: true })
    }
}

impl InMemoryWatch {
    pub(super) async fn next(&mut self) -> Result<KvValue, KvError> {
        if self.is_first {
            self.is_first = false;
        } else if self.values.changed().await.is_err() {
            // The store is gone with all who could write to it: nothing will ever change.
            std::future::pending::<()>().await;
        }
        Ok(self.values.borrow_and_update().clone())
    }
}

#[cfg(test)]
impl InMemoryKv {
    pub(crate) fn fail_next_swaps(&self, swaps: u32) {
        self.faults.lock().expect("no panic under this lock").swaps_to_fail = swaps;
    }

    pub(crate) fn set_delay(&self, delay: std::time::Duration) {
        self.faults.lock().expect("no panic under this lock").delay = delay;
    }

    pub(crate) fn set_unreachable(&self, unreachable: bool) {
        self.faults.lock().expect("no panic under this lock").unreachable = unreachable;
    }

    async fn suffer(&self) -> Result<(), KvError> {
        let faults = self.faults.lock().expect("no panic under this lock").clone();
        tokio::time::sleep(faults.delay).await;
        if faults.unreachable {
            return Err(KvError::Read { path: "store".into(), reason: "unreachable".into() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watch_starts_with_the_present_and_skips_to_the_newest() {
        let kv = InMemoryKv::default();
        let mut watch = kv.watch("k");
        assert_eq!(watch.next().await.unwrap().bytes, None);
        for value in [&b"a"[..], b"b"] {
            let version = kv.read("k").version;
            assert!(kv.replace("k", version, Bytes::from_static(value)));
        }
        assert_eq!(watch.next().await.unwrap().bytes.as_deref(), Some(&b"b"[..]));
        kv.remove("k");
        assert_eq!(watch.next().await.unwrap().bytes, None);
    }

    #[tokio::test]
    async fn a_swap_against_a_deleted_and_remade_value_fails() {
        let kv = InMemoryKv::default();
        assert!(kv.replace("k", 0, Bytes::from_static(b"a")));
        let seen = kv.read("k").version;
        kv.remove("k");
        let version = kv.read("k").version;
        assert!(kv.replace("k", version, Bytes::from_static(b"a")));
        assert!(!kv.replace("k", seen, Bytes::from_static(b"b")));
    }

    #[test]
    fn keys_and_clones_share_one_store() {
        let kv = InMemoryKv::default();
        let other = kv.clone();
        assert!(kv.replace("a", 0, Bytes::from_static(b"1")));
        assert_eq!(other.read("a").bytes.as_deref(), Some(&b"1"[..]));
        assert_eq!(other.read("b").bytes, None);
    }
}
