//! Follows the keys under a prefix of Consul: a blocking query that lists them all.
//!
//! Consul tells no changes, only that there are some; so each reading is whole, and a query that
//! has waited in vain tells the same again.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Deserialize;

use super::{ConsulKv, next_index};
use crate::ring::kv::prefix::{PrefixReading, check_count};
use crate::ring::kv::{KvError, KvValue};

#[derive(Debug)]
pub struct ConsulPrefixWatch {
    kv: ConsulKv,
    prefix: String,
    index: u64,
    last_query_failed: bool,
}

/// A pair of a list, which tells its key too.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NamedPair {
    key: String,
    modify_index: u64,
    value: Option<String>,
}

impl ConsulPrefixWatch {
    pub(super) fn new(kv: ConsulKv, prefix: String) -> Self {
        Self { kv, prefix, index: 0, last_query_failed: false }
    }

    /// Cancel-safe as the watch of a key: what is remembered changes behind the answer.
    pub(in crate::ring::kv) async fn next(&mut self) -> Result<PrefixReading, KvError> {
        self.kv.pace.turn().await;
        let wait_index = if self.last_query_failed { 0 } else { self.index };
        let outcome = self.list(wait_index).await;
        self.last_query_failed = outcome.is_err();
        let (pairs, index) = outcome?;
        self.index = next_index(self.index, index);
        Ok(PrefixReading { pairs, is_whole: true })
    }

    async fn list(&self, wait_index: u64) -> Result<(Vec<(String, KvValue)>, u64), KvError> {
        let kv = &self.kv;
        let query = format!("{}&recurse=", kv.query(kv.consistency(), Some(wait_index)));
        let request = kv.request(Method::GET, &self.prefix, &query, Bytes::new());
        let answer = kv.ask(request).await?;
        let index = super::index_of(&answer);
        match answer.status {
            StatusCode::OK => {}
            // No key has the prefix.
            StatusCode::NOT_FOUND => return Ok((Vec::new(), index)),
            _ => return Err(kv.refused(&answer)),
        }
        let pairs: Vec<NamedPair> = serde_json::from_slice(&answer.body)
            .map_err(|error| kv.error(format!("the answer is no list of pairs: {error}")))?;
        check_count(&self.prefix, pairs.len())?;
        let pairs = pairs.into_iter().map(|pair| {
            let value = kv.stored(pair.value.unwrap_or_default(), pair.modify_index)?;
            Ok((pair.key, value))
        });
        Ok((pairs.collect::<Result<_, KvError>>()?, index))
    }
}
