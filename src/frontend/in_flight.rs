//! How many requests of a tenant, and of all, are answered at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};

use crate::sync::{Mutex, MutexGuard};
use crate::tenant::TenantId;

/// See the head of the file.
pub struct InFlight {
    /// All of them, and those of one tenant.
    requests_max: usize,
    requests_per_tenant_max: usize,
    count: Arc<Mutex<Count>>,
}

#[derive(Default)]
struct Count {
    all: usize,
    /// Without the tenants that have none.
    of: HashMap<TenantId, usize>,
}

/// A request under way; it ends when dropped.
pub struct UnderWay {
    tenant: TenantId,
    count: Arc<Mutex<Count>>,
}

/// As many are under way as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    #[error(
        "too many requests of this tenant are being answered ({max}), please try again later or \
         contact administrator to raise -frontend.max-inflight-requests-per-tenant"
    )]
    OfTenant { max: usize },
    #[error(
        "too many requests are being answered ({max}), please try again later or contact \
         administrator to raise -frontend.max-inflight-requests"
    )]
    All { max: usize },
}

impl InFlight {
    pub fn new(requests_max: usize, requests_per_tenant_max: usize) -> Self {
        Self { requests_max, requests_per_tenant_max, count: Arc::default() }
    }

    pub fn enter(&self, tenant: &TenantId) -> Result<UnderWay, Full> {
        let mut count = lock(&self.count);
        if count.all >= self.requests_max {
            return Err(Full::All { max: self.requests_max });
        }
        match count.of.get_mut(tenant) {
            None => {
                count.of.insert(tenant.clone(), 1);
            }
            Some(of_tenant) if *of_tenant >= self.requests_per_tenant_max => {
                return Err(Full::OfTenant { max: self.requests_per_tenant_max });
            }
            Some(of_tenant) => *of_tenant += 1,
        }
        count.all += 1;
        Ok(UnderWay { tenant: tenant.clone(), count: Arc::clone(&self.count) })
    }

    pub fn all(&self) -> usize {
        lock(&self.count).all
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut count = lock(&self.count);
        count.all -= 1;
        if let Entry::Occupied(mut of_tenant) = count.of.entry(self.tenant.clone()) {
            *of_tenant.get_mut() -= 1;
            if *of_tenant.get() == 0 {
                of_tenant.remove();
            }
        }
    }
}

fn lock(count: &Mutex<Count>) -> MutexGuard<'_, Count> {
    count.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_fills_its_own_part_and_all_the_whole() {
        let in_flight = InFlight::new(3, 2);
        let tenant = |name: &str| TenantId::parse(name).expect("tenant");
        let enter = |name: &str| in_flight.enter(&tenant(name));
        let first = enter("a").expect("first");
        let _second = enter("a").expect("second");
        assert_eq!(enter("a").err(), Some(Full::OfTenant { max: 2 }));
        let _other = enter("b").expect("another's");
        assert_eq!(enter("c").err(), Some(Full::All { max: 3 }));
        drop(first);
        assert_eq!(in_flight.all(), 2);
        drop(enter("c").expect("there is room again"));
        assert_eq!(lock(&in_flight.count).of.len(), 2, "who has none is not kept");
    }
}
