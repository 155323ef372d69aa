//! Which series are in the head: what a restart needs, and what the head drops.
//!
//! A tracker purges entries and has their rows deleted a moment later, while a push may create one
//! of them anew. Deleting the new row would hide the series from the next restart. So rows are
//! dropped with all commits of head rows shut out, and only those that the caller still confirms
//! as gone: a creation before that question keeps its row, one after it commits after the delete.
//! (An entry whose first push is still under way is fresh, so no tracker purges it.)

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use crate::labels::{Identity, Labels};
use crate::store::layout::{self, BlockNumber, TenantNumber};
use crate::store::tenants::{self, HeadRange, Tenant};
use crate::store::{HeadSeries, Sample, Store, StoreError};
use crate::tenant::TenantId;

/// Rows deleted per batch: some milliseconds for which pushes with new series wait.
const DROP_ROWS_MAX: usize = 10_000;

impl Store {
    /// Every series in every head, tenant by tenant. For the start, before pushes are taken.
    pub fn for_each_head(
        &self,
        mut visit: impl FnMut(&TenantId, HeadSeries),
    ) -> Result<(), StoreError> {
        let by_number: HashMap<TenantNumber, Arc<Tenant>> =
            self.tenants.all().into_iter().map(|tenant| (tenant.number, tenant)).collect();
        let mut tenant: Option<&Arc<Tenant>> = None;
        for row in self.heads.iter() {
            let (key, value) = row.into_inner().map_err(StoreError::read)?;
            let (number, series) = layout::parse_head(&key, &value)?;
            let known = match tenant {
                Some(last) if last.number == number => last,
                _ => by_number
                    .get(&number)
                    .ok_or(StoreError::Corrupt { what: "head row of no tenant" })?,
            };
            tenant = Some(known);
            visit(&known.id, series);
        }
        Ok(())
    }

    /// Tenants that ever wrote, in no order.
    pub fn tenant_ids(&self) -> Vec<TenantId> {
        self.tenants.all().into_iter().map(|tenant| tenant.id.clone()).collect()
    }

    /// Times of the oldest and newest sample in the tenant's head; none without a head. After a
    /// kill it may lag behind what was in flight.
    pub fn head_range(&self, tenant: &TenantId) -> Option<HeadRange> {
        self.tenants.get(tenant)?.head_range()
    }

    /// Deletes the head rows of those `identities` that `is_gone` confirms; returns how many.
    ///
    /// `is_gone` says whether the tracker has no entry for the series *now*; see the file's head.
    /// It is asked while commits of new series wait, so it must not wait for one.
    /// With `oldest_ms` the head's range begins there from now on.
    pub fn drop_heads(
        &self,
        tenant: &TenantId,
        identities: &[Identity],
        oldest_ms: Option<i64>,
        is_gone: impl Fn(Identity) -> bool,
    ) -> Result<usize, StoreError> {
        let Some(tenant) = self.tenants.get(tenant) else { return Ok(0) };
        let mut dropped = 0;
        for part in identities.chunks(DROP_ROWS_MAX) {
            let _gate = self.heads_gate.write().unwrap_or_else(PoisonError::into_inner);
            let mut batch = self.db.batch();
            for &identity in part {
                if is_gone(identity) {
                    batch.remove(&self.heads, layout::head_key(tenant.number, identity));
                }
            }
            let rows = batch.len();
            self.commit(batch)?;
            dropped += rows;
        }
        if let (Some(oldest_ms), Some(range)) = (oldest_ms, tenant.head_range()) {
            let newest_ms = range.newest_ms.max(oldest_ms);
            self.set_head_range(&tenant, HeadRange { oldest_ms, newest_ms })?;
        }
        Ok(dropped)
    }

    /// Deletes all head rows of a tenant whose tracker entry is gone; its samples stay.
    pub fn forget_tenant_head(&self, tenant: &TenantId) -> Result<(), StoreError> {
        let Some(tenant) = self.tenants.get(tenant) else { return Ok(()) };
        let _gate = self.heads_gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut batch = self.db.batch();
        for row in self.heads.prefix(tenant.number.0.to_be_bytes()) {
            batch.remove(&self.heads, row.key().map_err(StoreError::read)?);
            if batch.len() >= DROP_ROWS_MAX {
                self.commit(std::mem::replace(&mut batch, self.db.batch()))?;
            }
        }
        batch.remove(&self.meta, tenant.head_row_key());
        self.commit(batch)?;
        tenant.set_head_range(None);
        Ok(())
    }

    /// Calls `visit` with the labels of every series in the tenant's head, in no order.
    ///
    /// For limits by metric or label set that appear at run time. Holds the tenant's identities in
    /// memory for the time (about 20 bytes each). Returns how many labels were not found, which is
    /// 0 unless retention was shorter than the head.
    pub fn for_each_head_series(
        &self,
        tenant: &TenantId,
        mut visit: impl FnMut(Identity, Labels<'_>),
    ) -> Result<usize, StoreError> {
        let Some(tenant) = self.tenants.get(tenant) else { return Ok(0) };
        let prefix = tenant.number.0.to_be_bytes();
        let snapshot = self.db.snapshot();
        let mut wanted = hashbrown::HashSet::new();
        for row in fjall::Readable::prefix(&snapshot, &self.heads, prefix) {
            let (key, value) = row.into_inner().map_err(StoreError::read)?;
            wanted.insert(layout::parse_head(&key, &value)?.1.identity);
        }
        // Newest first: nearly all series of a head have samples in its last block.
        for block in self.blocks.in_range(i64::MIN, i64::MAX).iter().rev() {
            if wanted.is_empty() {
                break;
            }
            for row in fjall::Readable::prefix(&snapshot, &block.series, prefix) {
                let (key, labels) = row.into_inner().map_err(StoreError::read)?;
                let identity = layout::series_identity(&key)?;
                if wanted.remove(&identity) {
                    visit(identity, Labels::from_canonical(&labels));
                }
            }
        }
        Ok(wanted.len())
    }

    /// The series' newest sample, in any block.
    pub fn newest_sample(
        &self,
        tenant: &TenantId,
        identity: Identity,
    ) -> Result<Option<Sample>, StoreError> {
        let Some(tenant) = self.tenants.get(tenant) else { return Ok(None) };
        let row = tenant.row_key(identity);
        let range = layout::sample_key(row, 0)..=layout::sample_key(row, u32::MAX);
        for block in self.blocks.in_range(i64::MIN, i64::MAX).iter().rev() {
            if let Some(found) = block.samples.range(range.clone()).next_back() {
                let (key, value) = found.into_inner().map_err(StoreError::read)?;
                let t_ms = block.number.time_ms(layout::sample_offset(&key)?);
                return Ok(Some(Sample { t_ms, value: layout::parse_value(&value)? }));
            }
        }
        Ok(None)
    }

    /// The series' sample at exactly this time.
    pub fn sample_at(
        &self,
        tenant: &TenantId,
        identity: Identity,
        t_ms: i64,
    ) -> Result<Option<Sample>, StoreError> {
        let Some(tenant) = self.tenants.get(tenant) else { return Ok(None) };
        let Some(block) = self.blocks.get(BlockNumber::of(t_ms)) else { return Ok(None) };
        let key = layout::sample_key(tenant.row_key(identity), layout::offset(t_ms));
        let Some(value) = block.samples.get(key).map_err(StoreError::read)? else {
            return Ok(None);
        };
        Ok(Some(Sample { t_ms, value: layout::parse_value(&value)? }))
    }

    fn set_head_range(&self, tenant: &Tenant, range: HeadRange) -> Result<(), StoreError> {
        let mut batch = self.db.batch();
        batch.insert(&self.meta, tenant.head_row_key(), tenants::head_row_value(range));
        self.commit(batch)?;
        tenant.set_head_range(Some(range));
        Ok(())
    }
}
