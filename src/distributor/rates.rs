//! A tenant's rates: the main one for all items of a request, then that of native histograms.
//!
//! Over the first the whole request is refused; over the second only its histograms are left out.
//! Nothing is charged partially: what is refused further in is given back, unless Cortex's
//! behaviour is asked for, which keeps it.
//!
//! With the `global` strategy the rate is divided by the healthy members of the distributors'
//! ring; the burst never is, since one request may come whole to one distributor. With `leased`
//! the main rate is one budget over all of them; that of native histograms is divided still.
//!
//! After the tenant's rate comes that of the client, if one is named and its tenant limits it.

use std::sync::Arc;
use std::time::Duration;

use super::shared;
use crate::clients::peers::Budgets;
use crate::clients::{self, Cause, Key, Terms};
use crate::clock::Now;
use crate::distributor::prepared::Counts;
use crate::exposition::Families;
use crate::limits::{IngestionRateStrategy, Limits, Snapshot};
use crate::ratelimit::{BucketView, Budget, Charge, Items, OverRate, Strategy, TenantLimiter};
use crate::ring::Ring;
use crate::tenant::{ClientId, TenantId};

/// Who shares a tenant's global rate.
#[derive(Clone)]
pub enum Peers {
    /// Nobody else: this distributor has the whole rate.
    Alone,
    /// The ACTIVE members with a fresh heartbeat of the distributors' ring.
    Ring(Arc<Ring>),
}

/// The limiters of all tenants.
pub struct Rates {
    peers: Peers,
    parity: bool,
    items: TenantLimiter,
    histograms: TenantLimiter,
    /// Where budgets hold over all distributors.
    shared: Option<Budgets>,
}

/// The tenant that is charged, and by which numbers.
#[derive(Clone, Copy)]
pub struct Account<'a> {
    pub tenant: &'a TenantId,
    pub limits: &'a Limits,
    pub strategy: Strategy,
    /// The tenant's rate is one budget over all distributors.
    pub is_leased: bool,
    pub now: Now,
}

/// What a request was charged, to be given back if nothing comes of it.
#[derive(Debug, Default)]
#[must_use = "a charge that may have to be given back must be kept until the request is decided"]
pub struct Charges {
    items: Option<Charge>,
    leased: Option<clients::Charge>,
    histograms: Option<Charge>,
    client: Option<(ClientId, clients::Charge)>,
}

/// A limit that was hit.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    pub text: String,
    /// Value of the `reason` label.
    pub reason: &'static str,
    /// Until the same request would pass; `None` if it never can.
    pub wait_ns: Option<u64>,
    pub over: OverRate,
    /// The budget could not be looked at: it is no fault of the sender's.
    pub is_unknown: bool,
}

/// A tenant's main rate as this instance applies it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateView {
    /// As configured, before the strategy made it this instance's.
    pub configured: f64,
    pub strategy: Strategy,
    /// One budget over all distributors, which its owner keeps: neither of the next two counts.
    pub is_leased: bool,
    /// Distributors that share the rate; 0 while their ring is not known.
    pub healthy: usize,
    pub budget: Budget,
    /// As it stands; `None` before the tenant's first request, when it is full.
    pub bucket: Option<BucketView>,
}

/// What a client's budget says of a request.
#[derive(Debug, PartialEq)]
pub enum ClientVerdict {
    Passed,
    /// It would have been refused, did the tenant not ask to count only.
    Shadowed,
    Refused(Refused),
}

impl<'a> Account<'a> {
    pub fn new(tenant: &'a TenantId, overrides: &'a Snapshot, now: Now) -> Self {
        let strategy = match overrides.ingestion_rate_strategy() {
            IngestionRateStrategy::Local => Strategy::Local,
            IngestionRateStrategy::Global | IngestionRateStrategy::Leased => Strategy::Global,
        };
        let is_leased = overrides.ingestion_rate_strategy() == IngestionRateStrategy::Leased;
        Self { tenant, limits: overrides.limits(tenant), strategy, is_leased, now }
    }
}

impl Rates {
    /// Rates and bursts are asked for again once `recheck_period` is over.
    pub fn new(
        peers: Peers,
        shared: Option<Budgets>,
        parity: bool,
        recheck_period: Duration,
    ) -> Self {
        Self {
            peers,
            shared,
            parity,
            items: TenantLimiter::new(recheck_period),
            histograms: TenantLimiter::new(recheck_period),
        }
    }

    /// Some budgets are kept by others.
    pub fn has_owners(&self) -> bool {
        self.shared.is_some()
    }

    /// Charges a whole request to its tenant.
    pub async fn charge(&self, account: Account<'_>, counts: &Counts) -> Result<Charges, Refused> {
        if let (Some(budgets), true) = (&self.shared, account.is_leased) {
            let Some(terms) = shared::tenant_terms(account.limits) else {
                return Ok(Charges::default());
            };
            let key = shared::tenant_key(account.tenant);
            let leased = self.charge_shared(budgets, key, terms, counts).await?;
            return Ok(Charges { leased: Some(leased), ..Charges::default() });
        }
        let limits = account.limits;
        let (rate, burst) = (limits.ingestion_rate, limits.ingestion_burst_size);
        let budget = || account.strategy.budget(rate, burst, self.healthy());
        let taken = self.items.take(account.tenant, counts.total(), account.now.steady_ns, budget);
        match taken {
            Ok(charge) => Ok(Charges { items: Some(charge), ..Charges::default() }),
            Err(over) => Err(self.refused(over, items(counts), account.strategy, rate)),
        }
    }

    /// Charges a request that its tenant could pay to its client, if that has a budget; a refusal
    /// gives the tenant's credit back.
    pub async fn charge_client(
        &self,
        account: Account<'_>,
        client: Option<&ClientId>,
        counts: &Counts,
        charges: &mut Charges,
    ) -> ClientVerdict {
        let (Some(budgets), Some(client)) = (&self.shared, client) else {
            return ClientVerdict::Passed;
        };
        let Some(terms) = shared::client_terms(account.limits) else {
            return ClientVerdict::Passed;
        };
        let key = shared::client_key(account.tenant, client);
        match self.charge_shared(budgets, key, terms, counts).await {
            Ok(charge) => {
                charges.client = Some((client.clone(), charge));
                ClientVerdict::Passed
            }
            Err(_) if account.limits.client_identity_ingestion_shadow => ClientVerdict::Shadowed,
            Err(refused) => {
                // Also where Cortex would keep it: it has no such refusals.
                let charges = std::mem::take(charges);
                self.give_back_tenant(account.tenant, charges, account.now.steady_ns);
                ClientVerdict::Refused(refused)
            }
        }
    }

    async fn charge_shared(
        &self,
        budgets: &Budgets,
        key: Key<'_>,
        terms: Terms,
        counts: &Counts,
    ) -> Result<clients::Charge, Refused> {
        budgets.charge(key, counts.total(), terms).await.map_err(|refusal| {
            let over = shared::over_rate(&refusal);
            let is_clients = key.kind == clients::Kind::ClientWrites;
            let whose = match is_clients {
                true => format!("client {} of tenant {}", key.client, key.tenant),
                false => format!("tenant {}", key.tenant),
            };
            let samples = counts.samples + counts.histograms;
            let text = match self.parity && !is_clients && refusal.cause == Cause::Budget {
                true => over.cortex_text(items(counts)),
                false => shared::text(&refusal, &whose, samples, counts.metadata),
            };
            let reason = match is_clients {
                true => shared::CLIENT_RATE_LIMITED,
                false => over.reason(items(counts), self.parity),
            };
            let is_unknown = refusal.cause == Cause::OwnerLost;
            Refused { text, reason, wait_ns: refusal.wait_ns, over, is_unknown }
        })
    }

    /// Charges the native histograms of a request that has been charged as a whole.
    pub fn charge_histograms(
        &self,
        account: Account<'_>,
        histograms: u64,
        charges: &mut Charges,
    ) -> Result<(), Refused> {
        if histograms == 0 {
            return Ok(());
        }
        let limits = account.limits;
        let (rate, burst) =
            (limits.native_histogram_ingestion_rate, limits.native_histogram_ingestion_burst_size);
        let budget = || account.strategy.budget(rate, burst, self.healthy());
        let now_ns = account.now.steady_ns;
        match self.histograms.take(account.tenant, histograms, now_ns, budget) {
            Ok(charge) => {
                charges.histograms = Some(charge);
                Ok(())
            }
            Err(over) => {
                let items = Items::NativeHistograms { samples: histograms };
                Err(self.refused(over, items, account.strategy, rate))
            }
        }
    }

    /// Gives back what a request was charged for `credits` items that were left out of it.
    pub fn give_back_part(&self, account: Account<'_>, charges: &mut Charges, credits: u64) {
        let tenant = account.tenant;
        // Cortex has no clients, so there is nothing to be like it in.
        if let (Some((client, charge)), Some(budgets)) = (&mut charges.client, &self.shared) {
            budgets.give_back(shared::client_key(tenant, client), charge.split(credits));
        }
        if self.parity {
            return;
        }
        if let (Some(charge), Some(budgets)) = (&mut charges.leased, &self.shared) {
            budgets.give_back(shared::tenant_key(tenant), charge.split(credits));
        }
        if let Some(charge) = &mut charges.items {
            let part = charge.split(credits);
            self.items.give_back(tenant, part, account.now.steady_ns);
        }
    }

    /// Gives back what a request was charged of which nothing came. `now_ns` is when that became
    /// known: what has refilled since the charge is not returned too.
    pub fn give_back(&self, tenant: &TenantId, mut charges: Charges, now_ns: i64) {
        if let (Some((client, charge)), Some(budgets)) = (charges.client.take(), &self.shared) {
            budgets.give_back(shared::client_key(tenant, &client), charge);
        }
        if !self.parity {
            self.give_back_tenant(tenant, charges, now_ns);
        }
    }

    fn give_back_tenant(&self, tenant: &TenantId, charges: Charges, now_ns: i64) {
        if let Some(charge) = charges.items {
            self.items.give_back(tenant, charge, now_ns);
        }
        if let (Some(charge), Some(budgets)) = (charges.leased, &self.shared) {
            budgets.give_back(shared::tenant_key(tenant), charge);
        }
        if let Some(charge) = charges.histograms {
            self.histograms.give_back(tenant, charge, now_ns);
        }
    }

    /// The tenant's main rate, and how its bucket stands.
    pub fn of(&self, account: Account<'_>) -> RateView {
        let limits = account.limits;
        let (configured, burst) = (limits.ingestion_rate, limits.ingestion_burst_size);
        let healthy = self.healthy();
        RateView {
            configured,
            strategy: account.strategy,
            is_leased: account.is_leased && self.shared.is_some(),
            healthy,
            budget: account.strategy.budget(configured, burst, healthy),
            bucket: self.view(account.tenant, account.now),
        }
    }

    /// Whether a client that is named would be charged too.
    pub fn limits_clients(&self, account: Account<'_>) -> bool {
        self.shared.is_some() && shared::client_terms(account.limits).is_some()
    }

    /// The tenant's main bucket as it stands; `None` before its first request.
    pub fn view(&self, tenant: &TenantId, now: Now) -> Option<BucketView> {
        self.items.view(tenant, now.steady_ns)
    }

    /// Drops the buckets of tenants that are idle and owe nothing.
    pub fn sweep(&self, now: Now) {
        self.items.sweep(now.steady_ns);
        self.histograms.sweep(now.steady_ns);
    }

    /// Distributors that share a global rate; 0 while the ring is not known, when the whole rate
    /// applies here.
    fn healthy(&self) -> usize {
        match &self.peers {
            Peers::Alone => 1,
            Peers::Ring(ring) => ring.load().healthy_count(),
        }
    }

    fn refused(&self, over: OverRate, items: Items, strategy: Strategy, rate: f64) -> Refused {
        Refused {
            text: match self.parity {
                true => over.cortex_text(items),
                false => over.text(items, strategy, rate),
            },
            reason: over.reason(items, self.parity),
            wait_ns: over.wait_ns,
            over,
            is_unknown: false,
        }
    }

    pub fn read_metrics(&self, families: &mut Families) {
        families.gauge(
            "freehold_distributor_healthy_distributors",
            "Distributors that share the rates of the global strategy, this one included; 0 while \
             the ring is not known.",
            self.healthy() as f64,
        );
        families.counter(
            "freehold_distributor_untracked_charges_total",
            "Requests judged by a bucket that was not kept, since there are too many tenants.",
            self.items.untracked_total() + self.histograms.untracked_total(),
        );
    }
}

fn items(counts: &Counts) -> Items {
    let samples = counts.samples + counts.histograms;
    Items::Ingestion { samples, metadata: counts.metadata }
}
