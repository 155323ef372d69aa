//! The tenants of this instance, and what each of them is made of.
//!
//! A tenant is made by its first push and goes when nothing of it is left in memory; its metrics
//! go with it, since they are read from it. Work on a tenant happens inside a [`Visit`], and a
//! tenant leaves the map only when nobody visits it, so no push ever counts into a tenant that
//! nobody sees any more.
//!
//! Bound: `max_tenants`, checked under the map's lock, so it holds exactly.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, RwLock};

use arc_swap::ArcSwap;

use crate::clock::Now;
use crate::ingester::counters::TenantCounters;
use crate::ingester::gate::Gate;
use crate::ingester::history::History;
use crate::ingester::metadata::MetadataTable;
use crate::ingester::recounts::TenantRecounts;
use crate::ingester::standing::Standing;
use crate::ratelimit::Ewma;
use crate::series::SeriesStore;
use crate::series::head::Head;
use crate::sync::{AtomicI64, Mutex, Ordering};
use crate::tenant::TenantId;

/// One tenant's state.
pub struct Tenant {
    pub id: TenantId,
    pub series: SeriesStore,
    /// Sample times of the head; taken twice per push, for a few comparisons.
    pub head: Mutex<Head>,
    pub metadata: MetadataTable,
    pub counters: TenantCounters,
    /// What applies to the tenant; worked out per change, loaded once per push.
    pub standing: ArcSwap<Standing>,
    /// Items per second, by where they came from.
    pub api_rate: Ewma,
    pub rule_rate: Ewma,
    /// What the last poll of the upstream told; zeros without an upstream.
    pub upstream: UpstreamFigures,
    /// The count that the limit acts on, over the last hour.
    pub history: History,
    /// What the last recounts changed.
    pub recounts: TenantRecounts,
    /// When the last push came, by the steady clock: what is in use does not vanish.
    pushed_at_ns: AtomicI64,
    gate: Gate,
}

impl Tenant {
    pub fn new(id: TenantId, series: SeriesStore, head: Head, standing: Arc<Standing>) -> Self {
        Self {
            id,
            series,
            head: Mutex::new(head),
            metadata: MetadataTable::default(),
            counters: TenantCounters::default(),
            standing: ArcSwap::new(standing),
            api_rate: Ewma::new(super::RATE_ALPHA, super::TENANT_RATE_INTERVAL),
            rule_rate: Ewma::new(super::RATE_ALPHA, super::TENANT_RATE_INTERVAL),
            upstream: UpstreamFigures::default(),
            history: History::default(),
            recounts: TenantRecounts::default(),
            pushed_at_ns: AtomicI64::new(0),
            gate: Gate::default(),
        }
    }

    pub fn note_push(&self, now: Now) {
        self.pushed_at_ns.store(now.steady_ns, Ordering::Relaxed);
    }

    pub fn pushed_at_ns(&self) -> i64 {
        self.pushed_at_ns.load(Ordering::Relaxed)
    }
}

/// Series of a tenant upstream, as metrics show them. Statistics, each by itself.
#[derive(Default)]
pub struct UpstreamFigures {
    pub series: AtomicI64,
    /// Series that no listing names.
    pub residue: AtomicI64,
    /// Series beyond ours and the residue.
    pub drift: AtomicI64,
}

/// Keeps its tenant in the map while it lives.
pub struct Visit(Arc<Tenant>);

impl Visit {
    fn enter(tenant: &Arc<Tenant>) -> Option<Self> {
        tenant.gate.enter().then(|| Self(Arc::clone(tenant)))
    }
}

impl Deref for Visit {
    type Target = Tenant;

    fn deref(&self) -> &Tenant {
        &self.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}

/// The instance has as many tenants as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot create TSDB: ingesters's max tenants limit reached")]
pub struct TooManyTenants;

/// All tenants by id.
#[derive(Default)]
pub struct Tenants {
    /// Held for a look-up; written only when a tenant comes or goes.
    map: RwLock<HashMap<TenantId, Arc<Tenant>>>,
}

impl Tenants {
    /// Enters a tenant, which `make` makes if it is not there. `max` of 0 is no limit.
    pub fn enter(
        &self,
        id: &TenantId,
        max: u64,
        make: impl FnOnce() -> Tenant,
    ) -> Result<Visit, TooManyTenants> {
        if let Some(visit) = self.visit(id) {
            return Ok(visit);
        }
        let mut map = self.map.write().expect("no panic under this lock");
        // Closing happens under this lock too, so a tenant found here is open.
        if let Some(visit) = map.get(id).and_then(Visit::enter) {
            return Ok(visit);
        }
        if is_full(map.len(), max) {
            return Err(TooManyTenants);
        }
        let tenant = Arc::new(make());
        let visit = Visit::enter(&tenant).expect("a new gate is open");
        map.insert(id.clone(), tenant);
        Ok(visit)
    }

    /// Enters a tenant that is there.
    pub fn visit(&self, id: &TenantId) -> Option<Visit> {
        let map = self.map.read().expect("no panic under this lock");
        map.get(id).and_then(Visit::enter)
    }

    /// A tenant that is there, without entering it.
    pub fn get(&self, id: &TenantId) -> Option<Arc<Tenant>> {
        self.map.read().expect("no panic under this lock").get(id).cloned()
    }

    /// Every tenant there is now, in no order.
    pub fn all(&self) -> Vec<Arc<Tenant>> {
        self.map.read().expect("no panic under this lock").values().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.map.read().expect("no panic under this lock").len()
    }

    /// Whether no further tenant may come. `max` of 0 is no limit.
    pub fn is_full(&self, max: u64) -> bool {
        is_full(self.len(), max)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a tenant out if nobody visits it and `is_done` still holds once that is certain.
    pub fn remove_if(&self, tenant: &Arc<Tenant>, is_done: impl FnOnce(&Tenant) -> bool) -> bool {
        let mut map = self.map.write().expect("no panic under this lock");
        // Under the map's lock nobody new can come in, so "done" stays true once it is.
        if !is_done(tenant) || !tenant.gate.close_if_empty() {
            return false;
        }
        map.remove(&tenant.id);
        true
    }
}

fn is_full(len: usize, max: u64) -> bool {
    max > 0 && len as u64 >= max
}
