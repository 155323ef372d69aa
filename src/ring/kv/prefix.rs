//! All keys under a prefix, followed at once: for what is kept in many small values, as elected
//! replicas are, and not in a ring's single one.
//!
//! A store tells either all that there is or what has changed, whichever it can; a reading says
//! which. So who follows keeps one rule for both: take over what is told, and drop the rest only
//! where all was told.
//!
//! Invariant: the first reading, and the first behind an error, is whole.

use crate::ring::kv::consul::ConsulPrefixWatch;
use crate::ring::kv::etcd::EtcdPrefixWatch;
use crate::ring::kv::inmemory::InMemoryPrefixWatch;
use crate::ring::kv::memberlist::GossipedPrefixWatch;
use crate::ring::kv::{KvClient, KvError, KvValue};

/// Most keys of a reading: one cannot be sized by what others put into the store. At a hundred
/// bytes each they fill half of the largest answer that is taken. More are an error, and what
/// was followed so far stays as it is.
pub const PAIRS_MAX: usize = 200_000;

/// What is known of a prefix's keys by now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixReading {
    /// The full keys with their values; no bytes where a key has been deleted.
    pub pairs: Vec<(String, KvValue)>,
    /// Keys that are not told are not there.
    pub is_whole: bool,
}

/// Follows the keys under a prefix.
#[derive(Debug)]
pub enum PrefixWatch {
    InMemory(InMemoryPrefixWatch),
    Etcd(EtcdPrefixWatch),
    Consul(ConsulPrefixWatch),
    Memberlist(GossipedPrefixWatch),
}

impl KvClient {
    /// The watch's first reading tells all that there is.
    pub fn watch_prefix(&self, prefix: &str) -> Result<PrefixWatch, KvError> {
        match self {
            Self::InMemory(kv) => Ok(PrefixWatch::InMemory(kv.watch_prefix(prefix))),
            Self::Etcd(kv) => Ok(PrefixWatch::Etcd(kv.watch_prefix(prefix))),
            Self::Consul(kv) => Ok(PrefixWatch::Consul(kv.watch_prefix(prefix))),
            Self::Memberlist(kv) => Ok(PrefixWatch::Memberlist(kv.watch_prefix(prefix))),
            Self::File(_) | Self::Http(_) => Err(KvError::ReadOnly),
        }
    }
}

impl PrefixWatch {
    /// What is new; a store may also repeat what has been told. Cancel-safe, as
    /// [`KvWatch::next`](super::KvWatch::next).
    pub async fn next(&mut self) -> Result<PrefixReading, KvError> {
        match self {
            Self::InMemory(watch) => watch.next().await,
            Self::Etcd(watch) => watch.next().await,
            Self::Consul(watch) => watch.next().await,
            Self::Memberlist(watch) => watch.next().await,
        }
    }
}

/// Refuses more keys than are followed.
pub(super) fn check_count(prefix: &str, count: usize) -> Result<(), KvError> {
    if count <= PAIRS_MAX {
        return Ok(());
    }
    Err(KvError::Value(format!("there are more than {PAIRS_MAX} keys under {prefix}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::kv::inmemory::InMemoryKv;
    use bytes::Bytes;

    #[tokio::test]
    async fn a_prefix_is_told_whole_and_without_its_neighbours() {
        let store = InMemoryKv::default();
        let kv = KvClient::InMemory(store.clone());
        for key in ["p/a", "p/b/c", "p", "q/a"] {
            assert!(store.replace(key, 0, Bytes::from_static(b"v")));
        }
        let mut watch = kv.watch_prefix("p/").expect("writable");
        let keys = |reading: PrefixReading| -> Vec<String> {
            assert!(reading.is_whole);
            reading.pairs.into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(keys(watch.next().await.unwrap()), ["p/a", "p/b/c"]);
        store.remove("p/a");
        assert_eq!(keys(watch.next().await.unwrap()), ["p/b/c"]);
        assert!(store.replace("p/d", 0, Bytes::from_static(b"w")));
        assert_eq!(keys(watch.next().await.unwrap()), ["p/b/c", "p/d"]);
    }
}
