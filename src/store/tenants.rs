//! The tenants' numbers in this store, and the time range of each tenant's head.
//!
//! Invariant: a tenant keeps its number and mask for the life of the store. The row that says so is
//! in the batch of the tenant's first write, so no row under a number is ever without it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use fjall::Keyspace;

use crate::labels::Identity;
use crate::store::StoreError;
use crate::store::layout::{RowKey, TenantNumber};
use crate::tenant::TenantId;

const TENANT_PREFIX: &[u8] = b"tenant/";
const HEAD_PREFIX: &[u8] = b"head/";

/// Times of the oldest and the newest sample in a tenant's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRange {
    pub oldest_ms: i64,
    pub newest_ms: i64,
}

pub struct Tenant {
    pub id: TenantId,
    pub number: TenantNumber,
    mask: u128,
    /// Set once a batch with the tenant's row was committed. Until then each batch carries it.
    pub is_stored: AtomicBool,
    /// As the `head/` row says it. Guarded alone; never held across a commit.
    head: Mutex<Option<HeadRange>>,
}

impl Tenant {
    pub fn row_key(&self, identity: Identity) -> RowKey {
        RowKey(identity.0 ^ self.mask)
    }

    pub fn head_range(&self) -> Option<HeadRange> {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Widens the head's range; returns the new range when it changed.
    pub fn widen_head(&self, by: HeadRange) -> Option<HeadRange> {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let wide = head.map_or(by, |head| HeadRange {
            oldest_ms: head.oldest_ms.min(by.oldest_ms),
            newest_ms: head.newest_ms.max(by.newest_ms),
        });
        if *head == Some(wide) {
            return None;
        }
        *head = Some(wide);
        *head
    }

    pub fn set_head_range(&self, range: Option<HeadRange>) {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = range;
    }

    /// Key and value of the tenant's row.
    pub fn row(&self) -> (Vec<u8>, [u8; 20]) {
        let mut value = [0; 20];
        value[..4].copy_from_slice(&self.number.0.to_be_bytes());
        value[4..].copy_from_slice(&self.mask.to_be_bytes());
        ([TENANT_PREFIX, self.id.as_str().as_bytes()].concat(), value)
    }

    pub fn head_row_key(&self) -> Vec<u8> {
        [HEAD_PREFIX, &self.number.0.to_be_bytes()].concat()
    }
}

pub fn head_row_value(range: HeadRange) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&range.oldest_ms.to_be_bytes());
    value[8..].copy_from_slice(&range.newest_ms.to_be_bytes());
    value
}

pub struct Tenants {
    /// Only grows; a tenant takes about 200 bytes.
    by_id: RwLock<HashMap<TenantId, Arc<Tenant>>>,
    /// The next free number; changed under the write lock of `by_id`.
    next: AtomicU32,
}

impl Tenants {
    pub fn load(meta: &Keyspace) -> Result<Self, StoreError> {
        let mut by_id = HashMap::new();
        let mut next = 0;
        for row in meta.prefix(TENANT_PREFIX) {
            let (key, value) = row.into_inner().map_err(StoreError::read)?;
            let tenant = parse_tenant(&key[TENANT_PREFIX.len()..], &value)
                .ok_or(StoreError::Corrupt { what: "tenant row" })?;
            next = next.max(tenant.number.0 + 1);
            if let Some(range) = meta.get(tenant.head_row_key()).map_err(StoreError::read)? {
                let range =
                    parse_range(&range).ok_or(StoreError::Corrupt { what: "head range" })?;
                tenant.set_head_range(Some(range));
            }
            by_id.insert(tenant.id.clone(), Arc::new(tenant));
        }
        Ok(Self { by_id: RwLock::new(by_id), next: AtomicU32::new(next) })
    }

    pub fn get(&self, id: &TenantId) -> Option<Arc<Tenant>> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub fn get_or_add(&self, id: &TenantId) -> Arc<Tenant> {
        if let Some(tenant) = self.get(id) {
            return tenant;
        }
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        let added = by_id.entry(id.clone()).or_insert_with(|| {
            Arc::new(Tenant {
                id: id.clone(),
                number: TenantNumber(self.next.fetch_add(1, Ordering::Relaxed)),
                mask: rand::random(),
                is_stored: AtomicBool::new(false),
                head: Mutex::new(None),
            })
        });
        added.clone()
    }

    pub fn all(&self) -> Vec<Arc<Tenant>> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        by_id.values().cloned().collect()
    }
}

fn parse_tenant(id: &[u8], value: &[u8]) -> Option<Tenant> {
    let (number, mask) = value.split_first_chunk::<4>()?;
    Some(Tenant {
        id: TenantId::parse(std::str::from_utf8(id).ok()?).ok()?,
        number: TenantNumber(u32::from_be_bytes(*number)),
        mask: u128::from_be_bytes(mask.try_into().ok()?),
        is_stored: AtomicBool::new(true),
        head: Mutex::new(None),
    })
}

fn parse_range(value: &[u8]) -> Option<HeadRange> {
    let (oldest, newest) = value.split_first_chunk::<8>()?;
    Some(HeadRange {
        oldest_ms: i64::from_be_bytes(*oldest),
        newest_ms: i64::from_be_bytes(newest.try_into().ok()?),
    })
}
