//! One push as one atomic batch.
//!
//! Rows pile up in memory and reach the store in [`Writer::commit`], all or none. A writer that is
//! dropped instead has written nothing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use fjall::{OwnedWriteBatch, Slice};

use crate::keys::RingKey;
use crate::labels::{Identity, Labels};
use crate::store::blocks::Block;
use crate::store::layout::{self, BlockNumber};
use crate::store::tenants::{self, HeadRange, Tenant};
use crate::store::{Metadata, SeriesKind, Store, StoreError};
use crate::tenant::TenantId;

/// What a commit has stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    pub samples: usize,
    pub series: usize,
    pub exemplars: usize,
    pub metadata: usize,
}

/// A batch of one tenant's rows. See [`Store::begin`].
pub struct Writer<'a> {
    store: &'a Store,
    tenant: Arc<Tenant>,
    now_ms: i64,
    batch: OwnedWriteBatch,
    /// The block of the last row; nearly always that of the next one.
    block: Option<Arc<Block>>,
    key: Vec<u8>,
    range: Option<HeadRange>,
    has_heads: bool,
    counts: Committed,
}

impl Store {
    /// Starts a batch. `rows` is about how many rows it will get.
    pub fn begin(&self, tenant: &TenantId, now_ms: i64, rows: usize) -> Writer<'_> {
        Writer {
            store: self,
            tenant: self.tenants.get_or_add(tenant),
            now_ms,
            batch: OwnedWriteBatch::with_capacity(self.db.clone(), rows + 2),
            block: None,
            key: Vec::new(),
            range: None,
            has_heads: false,
            counts: Committed::default(),
        }
    }
}

impl Writer<'_> {
    /// The series' labels, due with its first sample in the block of `t_ms`; more often is fine.
    pub fn series(
        &mut self,
        identity: Identity,
        labels: Labels<'_>,
        t_ms: i64,
    ) -> Result<(), StoreError> {
        self.key.clear();
        layout::push_metric(&mut self.key, self.tenant.number, labels.metric_name());
        self.key.extend_from_slice(&identity.0.to_be_bytes());
        let key = Slice::from(self.key.as_slice());
        let block = block_at(self.store, &mut self.block, t_ms, self.now_ms)?;
        self.batch.insert(&block.series, key, labels.as_bytes());
        self.counts.series += 1;
        Ok(())
    }

    /// The series entered the tenant's head, or its kind changed.
    pub fn head(&mut self, identity: Identity, ring_key: RingKey, kind: SeriesKind) {
        let key = layout::head_key(self.tenant.number, identity);
        self.batch.insert(&self.store.heads, key, layout::head_value(ring_key, kind));
        self.has_heads = true;
    }

    /// A float, by its bits; `start_ms` 0 is none.
    pub fn sample(
        &mut self,
        identity: Identity,
        t_ms: i64,
        value_bits: u64,
        start_ms: i64,
    ) -> Result<(), StoreError> {
        let (value, value_bytes) = layout::float_value(value_bits, start_ms);
        self.row(identity, t_ms, Slice::from(&value[..value_bytes]))
    }

    /// A native histogram, as the bytes of its protobuf message.
    pub fn histogram(
        &mut self,
        identity: Identity,
        t_ms: i64,
        raw: &[u8],
    ) -> Result<(), StoreError> {
        self.row(identity, t_ms, Slice::from(layout::histogram_value(raw)))
    }

    /// An exemplar of the series, as the bytes of its protobuf message.
    pub fn exemplar(
        &mut self,
        identity: Identity,
        t_ms: i64,
        raw: &[u8],
    ) -> Result<(), StoreError> {
        let key = layout::exemplar_key(self.tenant.row_key(identity), layout::offset(t_ms), raw);
        let block = block_at(self.store, &mut self.block, t_ms, self.now_ms)?;
        self.batch.insert(self.store.blocks.extras(block)?, key, raw);
        self.counts.exemplars += 1;
        Ok(())
    }

    /// What a metric is. Kept in the block of now, so it goes unless it is written again.
    pub fn metadata(&mut self, metadata: &Metadata<'_>) -> Result<(), StoreError> {
        let value = layout::metadata_value(metadata);
        let key = layout::metadata_key(self.tenant.number, metadata, &value);
        let block = block_at(self.store, &mut self.block, self.now_ms, self.now_ms)?;
        self.batch.insert(self.store.blocks.extras(block)?, key, value);
        self.counts.metadata += 1;
        Ok(())
    }

    /// Stores the batch: all of it, or on an error nothing.
    ///
    /// Blocks while the disk is far behind. Not for an async task.
    pub fn commit(mut self) -> Result<Committed, StoreError> {
        if self.batch.is_empty() {
            return Ok(self.counts);
        }
        if !self.tenant.is_stored.load(Ordering::Acquire) {
            let (key, value) = self.tenant.row();
            self.batch.insert(&self.store.meta, key, value);
        }
        if let Some(range) = self.range.and_then(|range| self.tenant.widen_head(range)) {
            let value = tenants::head_row_value(range);
            self.batch.insert(&self.store.meta, self.tenant.head_row_key(), value);
        }
        let gate = self
            .has_heads
            .then(|| self.store.heads_gate.read().unwrap_or_else(PoisonError::into_inner));
        self.store.commit(self.batch)?;
        drop(gate);
        self.tenant.is_stored.store(true, Ordering::Release);
        Ok(self.counts)
    }

    fn row(&mut self, identity: Identity, t_ms: i64, value: Slice) -> Result<(), StoreError> {
        let key = layout::sample_key(self.tenant.row_key(identity), layout::offset(t_ms));
        let block = block_at(self.store, &mut self.block, t_ms, self.now_ms)?;
        self.batch.insert(&block.samples, key, value);
        self.counts.samples += 1;
        let range = self.range.get_or_insert(HeadRange { oldest_ms: t_ms, newest_ms: t_ms });
        range.oldest_ms = range.oldest_ms.min(t_ms);
        range.newest_ms = range.newest_ms.max(t_ms);
        Ok(())
    }
}

/// The block of a time, remembered in `last`.
fn block_at<'a>(
    store: &Store,
    last: &'a mut Option<Arc<Block>>,
    t_ms: i64,
    now_ms: i64,
) -> Result<&'a Block, StoreError> {
    let number = BlockNumber::of(t_ms);
    let block = match last.take() {
        Some(block) if block.number == number => block,
        _ => store.blocks.get_or_add(t_ms, now_ms)?,
    };
    Ok(last.insert(block))
}
