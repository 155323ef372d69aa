//! A ring in etcd, by its v3 API over gRPC.
//!
//! A swap is a transaction on the revision of the value's last change, which is 0 for a key that
//! is not there. The watch is in `watch`; how calls reach a server is in `calls`.
//!
//! Invariant: reads are linearizable, so a value that is read is not older than one that was
//! read or written before by anybody.

mod calls;
mod prefix;
mod watch;

use bytes::Bytes;
use tokio_stream::StreamExt as _;
use tonic::Streaming;

use self::calls::Calls;
use super::requests::Requests;
use super::{KvError, KvSetupError, KvValue};
use crate::ring::config::EtcdConfig;
use crate::wire::proto::etcdserverpb::{
    Compare, DeleteRangeRequest, DeleteRangeResponse, KeyValue, PutRequest, RangeRequest,
    RangeResponse, RequestOp, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
    WatchResponse, compare, request_op, watch_request,
};

pub use self::prefix::EtcdPrefixWatch;
pub use self::watch::EtcdWatch;

/// Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct EtcdKv {
    calls: Calls,
    pub(super) cas_attempts_max: u32,
    pub(super) requests: Option<Requests>,
}

/// A value, and the store's revision at which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    value: KvValue,
    revision: i64,
}

impl EtcdKv {
    /// Connects at the first call. Needs a runtime: connections are tasks of it.
    pub(super) fn new(
        config: &EtcdConfig,
        requests: Option<Requests>,
    ) -> Result<Self, KvSetupError> {
        let calls = Calls::new(config)?;
        Ok(Self { calls, cas_attempts_max: config.max_retries, requests })
    }

    /// All servers, since any of them may have been asked.
    pub(super) fn endpoints(&self) -> String {
        self.calls.authorities()
    }

    pub(super) async fn get(&self, key: &str) -> Result<KvValue, KvError> {
        Ok(self.read(key).await?.value)
    }

    pub(super) async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: Bytes,
    ) -> Result<bool, KvError> {
        let put = PutRequest { key: key.as_bytes().to_vec(), value: bytes.to_vec() };
        let unchanged = Compare {
            result: compare::CompareResult::Equal.into(),
            target: compare::CompareTarget::Mod.into(),
            key: key.as_bytes().to_vec(),
            target_union: Some(compare::TargetUnion::ModRevision(
                i64::try_from(version).unwrap_or(i64::MAX),
            )),
        };
        let question = TxnRequest {
            compare: vec![unchanged],
            success: vec![RequestOp { request: Some(request_op::Request::RequestPut(put)) }],
        };
        // A try whose answer got lost may have succeeded. The next try then finds the value
        // changed, which sends the caller back to read what it wrote itself.
        let answer: TxnResponse = self.calls.ask("/etcdserverpb.KV/Txn", &question).await?;
        Ok(answer.succeeded)
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), KvError> {
        let question = DeleteRangeRequest { key: key.as_bytes().to_vec() };
        let _: DeleteRangeResponse =
            self.calls.ask("/etcdserverpb.KV/DeleteRange", &question).await?;
        Ok(())
    }

    pub(super) fn watch_prefix(&self, prefix: &str) -> EtcdPrefixWatch {
        EtcdPrefixWatch::new(self.clone(), prefix.to_owned())
    }

    pub(super) fn watch(&self, key: &str) -> EtcdWatch {
        EtcdWatch::new(self.clone(), key.to_owned())
    }

    async fn read(&self, key: &str) -> Result<Reading, KvError> {
        let question = RangeRequest { key: key.as_bytes().to_vec(), ..RangeRequest::default() };
        let answer: RangeResponse = self.calls.ask("/etcdserverpb.KV/Range", &question).await?;
        let revision = answer.header.map_or(0, |header| header.revision);
        let value = answer.kvs.into_iter().next().map(value_of).unwrap_or_default();
        Ok(Reading { value, revision })
    }

    /// Tells the key's changes from `start_revision` on.
    async fn open_watch(
        &self,
        key: &str,
        start_revision: i64,
    ) -> Result<Streaming<WatchResponse>, KvError> {
        self.open_watch_of(key.as_bytes().to_vec(), Vec::new(), start_revision).await
    }

    /// As [`open_watch`](Self::open_watch), of the keys from one to the one before `range_end`.
    async fn open_watch_of(
        &self,
        key: Vec<u8>,
        range_end: Vec<u8>,
        start_revision: i64,
    ) -> Result<Streaming<WatchResponse>, KvError> {
        let create = WatchCreateRequest { key, range_end, start_revision };
        let question = WatchRequest {
            request_union: Some(watch_request::RequestUnion::CreateRequest(create)),
        };
        // A stream whose client has nothing more to say is ended by the server.
        let questions = || tokio_stream::once(question.clone()).chain(tokio_stream::pending());
        self.calls.listen("/etcdserverpb.Watch/Watch", questions).await
    }

    /// The next call starts with another server and a new login.
    fn start_over(&self) {
        self.calls.start_over();
    }
}

fn value_of(pair: KeyValue) -> KvValue {
    KvValue {
        bytes: Some(pair.value.into()),
        version: u64::try_from(pair.mod_revision).unwrap_or(0),
        stored_at_ms: None,
    }
}
