//! How many requests of a client, of a tenant, and of all are answered at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, PoisonError};

use crate::sync::{Mutex, MutexGuard};
use crate::tenant::{ClientId, TenantId};

/// See the head of the file.
pub struct InFlight {
    /// All of them, and those of one tenant.
    requests_max: usize,
    requests_per_tenant_max: usize,
    /// Those of one client of a tenant.
    requests_per_client_max: usize,
    count: Arc<Mutex<Count>>,
}

#[derive(Default)]
struct Count {
    all: usize,
    /// Without the tenants that have none.
    of: HashMap<TenantId, usize>,
    /// The same of clients.
    of_client: HashMap<Who, usize>,
}

type Who = (TenantId, ClientId);

/// A request under way; it ends when dropped.
pub struct UnderWay {
    tenant: TenantId,
    client: Option<ClientId>,
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
        "too many requests of this client are being answered ({max}), please try again later or \
         contact administrator to raise -frontend.max-inflight-requests-per-client"
    )]
    OfClient { max: usize },
    #[error(
        "too many requests are being answered ({max}), please try again later or contact \
         administrator to raise -frontend.max-inflight-requests"
    )]
    All { max: usize },
}

impl InFlight {
    pub fn new(
        requests_max: usize,
        requests_per_tenant_max: usize,
        requests_per_client_max: usize,
    ) -> Self {
        let count = Arc::default();
        Self { requests_max, requests_per_tenant_max, requests_per_client_max, count }
    }

    /// Who waits for another's answer is under way too, and so is who reads slowly.
    pub fn enter(&self, tenant: &TenantId, client: Option<&ClientId>) -> Result<UnderWay, Full> {
        let mut count = lock(&self.count);
        let of_tenant = count.of.get(tenant).copied().unwrap_or_default();
        let who = client.map(|client| (tenant.clone(), client.clone()));
        let of_client = who.as_ref().and_then(|who| count.of_client.get(who)).copied();
        if count.all >= self.requests_max {
            return Err(Full::All { max: self.requests_max });
        }
        if of_tenant >= self.requests_per_tenant_max {
            return Err(Full::OfTenant { max: self.requests_per_tenant_max });
        }
        if of_client.unwrap_or_default() >= self.requests_per_client_max {
            return Err(Full::OfClient { max: self.requests_per_client_max });
        }
        count.all += 1;
        *count.of.entry(tenant.clone()).or_default() += 1;
        if let Some(who) = who {
            *count.of_client.entry(who).or_default() += 1;
        }
        let (tenant, client) = (tenant.clone(), client.cloned());
        Ok(UnderWay { tenant, client, count: Arc::clone(&self.count) })
    }

    pub fn all(&self) -> usize {
        lock(&self.count).all
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut count = lock(&self.count);
        count.all -= 1;
        one_less(&mut count.of, self.tenant.clone());
        if let Some(client) = self.client.take() {
            one_less(&mut count.of_client, (self.tenant.clone(), client));
        }
    }
}

fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, of: K) {
    if let Entry::Occupied(mut count) = counts.entry(of) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
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
        let in_flight = InFlight::new(3, 2, 1);
        let tenant = |name: &str| TenantId::parse(name).expect("tenant");
        let enter = |name: &str| in_flight.enter(&tenant(name), None);
        let first = enter("a").expect("first");
        let _second = enter("a").expect("second");
        assert_eq!(enter("a").err(), Some(Full::OfTenant { max: 2 }));
        let _other = enter("b").expect("another's");
        assert_eq!(enter("c").err(), Some(Full::All { max: 3 }));
        drop(first);
        assert_eq!(in_flight.all(), 2);
        drop(enter("c").expect("there is room again"));
        assert_eq!(lock(&in_flight.count).of.len(), 2, "who has none is not kept");
        let client = ClientId::parse("grafana").expect("client");
        let one = in_flight.enter(&tenant("b"), Some(&client)).expect("its first");
        let second = in_flight.enter(&tenant("b"), Some(&client));
        assert!(second.is_err(), "all three are taken");
        drop(one);
        let in_flight = InFlight::new(9, 9, 1);
        let one = in_flight.enter(&tenant("b"), Some(&client)).expect("its first");
        let second = in_flight.enter(&tenant("b"), Some(&client)).err();
        assert_eq!(second, Some(Full::OfClient { max: 1 }));
        assert!(in_flight.enter(&tenant("a"), Some(&client)).is_ok(), "another tenant's");
        drop(one);
        assert!(lock(&in_flight.count).of_client.is_empty());
    }
}
