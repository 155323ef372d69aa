//! Remote write: a received body becomes a request that an ingester takes.
//!
//! `prepare` makes of a request what ingesters take, by the rules of `validation`; the first
//! failure is the answer's text while the rest goes on.
//!
//! Where the request goes is the caller's: with `-target=all` the ingester in this process.

mod config;
pub mod fan_out;
pub mod prepare;
mod prepared;
pub mod validation;

use std::cell::RefCell;

use crate::wire::remote_write::{self, Headers, Options, RemoteWriteError};
use prepare::{PrepareError, Scratch, Treatment, prepare};

pub use config::{DistributorConfig, DistributorConfigError, PoolConfig, ShardingStrategy};
pub use prepared::{Counts, Discarded, Item, ItemKind, Prepared};

/// Why a remote write was refused, or not taken whole.
#[derive(Debug, thiserror::Error)]
pub enum PushError<E> {
    #[error(transparent)]
    Unreadable(#[from] RemoteWriteError),
    /// Nothing of it can go on.
    #[error(transparent)]
    Unfit(#[from] PrepareError),
    /// Some series were left out; the others are stored.
    #[error("{text}")]
    Invalid { text: String },
    /// What the request was handed to refused it.
    #[error(transparent)]
    Sink(E),
}

/// One remote-write request as HTTP brought it.
#[derive(Clone, Copy, Debug)]
pub struct RemoteWrite<'a> {
    pub headers: Headers<'a>,
    pub body: &'a [u8],
    /// The tenant's wishes for remote write 2.0.
    pub type_and_unit_labels: bool,
    pub start_timestamp: bool,
}

thread_local! {
    /// A thread prepares one request at a time.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Takes one remote write and hands the request that it becomes to `sink`.
pub fn push<T, E>(
    config: &DistributorConfig,
    write: RemoteWrite<'_>,
    treatment: &Treatment<'_>,
    now_ms: i64,
    sink: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<T, PushError<E>> {
    let options = Options {
        recv_bytes_max: config.max_recv_msg_size,
        v2_enabled: config.remote_writev2_enabled,
        accept_unknown_content_type: config.accept_unknown_remote_write_content_type,
        type_and_unit_labels: write.type_and_unit_labels,
        start_timestamp: write.start_timestamp,
    };
    let decoded = remote_write::decode(write.headers, write.body, &options)?;
    let prepared =
        SCRATCH.with_borrow_mut(|scratch| prepare(&decoded.body, treatment, scratch, now_ms))?;
    let taken = sink(&prepared.body).map_err(PushError::Sink)?;
    match prepared.failure {
        None => Ok(taken),
        Some(text) => Err(PushError::Invalid { text }),
    }
}
