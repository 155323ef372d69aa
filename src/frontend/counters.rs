//! What the query gate counts.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use crate::exposition::{Counter, Families, RefusedCount};
use crate::sync::Mutex;
use crate::tenant::TenantId;

/// Tenants that have rows of their own. A tenant that is refused nothing has none, and those that
/// are beyond it are counted together.
const TENANTS_MAX: usize = 10_000;
/// The row of those beyond; no tenant can be called so.
const OTHERS: &str = "other tenants";

/// Who asks, in Cortex's words: what comes by HTTP.
const SOURCE: &str = "api";

#[derive(Default)]
pub struct Counters {
    /// By reason and tenant.
    rejected: Mutex<BTreeMap<(&'static str, String), u64>>,
    shadowed: Mutex<BTreeMap<String, u64>>,
    /// Charges given back, since the answer came from a cache.
    pub given_back: Counter,
    /// Queries without credit, on the word that they lately cost nothing.
    pub tried: Counter,
    /// Of those, the ones that were to be paid.
    pub owed: Counter,
    /// Queries answered by another's answer in flight.
    pub joined: Counter,
    /// Queries answered from our own cache.
    pub kept: Counter,
    /// Queries sent on.
    pub sent_on: Counter,
    /// Queries of which nothing came, and answers that broke off.
    pub failed: Counter,
    pub slow: Counter,
    pub canaries: [Counter; 3],
}

impl Counters {
    pub fn rejected(&self, reason: &'static str, tenant: &TenantId) {
        let mut rows = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = rows.len() >= TENANTS_MAX;
        let row = (reason, tenant.as_str().to_owned());
        let row = if is_full && !rows.contains_key(&row) { (reason, OTHERS.into()) } else { row };
        *rows.entry(row).or_default() += 1;
    }

    pub fn shadow_refused(&self, tenant: &TenantId) {
        let mut rows = self.shadowed.lock().unwrap_or_else(PoisonError::into_inner);
        let row = match rows.len() >= TENANTS_MAX && !rows.contains_key(tenant.as_str()) {
            true => OTHERS,
            false => tenant.as_str(),
        };
        *rows.entry(row.to_owned()).or_default() += 1;
    }

    /// Tells of queries that were refused, by reason and tenant.
    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        for ((reason, tenant), &count) in lock(&self.rejected).iter() {
            tell(rejected(reason, tenant, count));
        }
    }

    /// The same of one tenant, and what budgets of its clients would have refused.
    pub fn tell_refused_of(&self, tenant: &TenantId, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        for ((reason, of), &count) in lock(&self.rejected).iter() {
            if of == tenant.as_str() {
                tell(rejected(reason, of, count));
            }
        }
        let count = lock(&self.shadowed).get(tenant.as_str()).copied().unwrap_or_default();
        tell(RefusedCount {
            metric: "freehold_frontend_client_shadow_refused_total",
            unit: "queries",
            reason: "in shadow",
            tenant: Some(tenant.as_str()),
            count,
        });
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let help = "The total number of queries that were rejected.";
        let mut family = families.counters("cortex_rejected_queries_total", help);
        for ((reason, tenant), count) in lock(&self.rejected).iter() {
            family
                .sample([("reason", reason), ("source", SOURCE), ("user", tenant)], *count as f64);
        }
        let help = "Queries that the budgets of clients would have refused, did their tenant not \
                    ask to count only.";
        let mut family = families.counters("freehold_frontend_client_shadow_refused_total", help);
        for (tenant, count) in lock(&self.shadowed).iter() {
            family.sample([("user", tenant)], *count as f64);
        }
        let help = "Queries by what answered them: those behind us, an answer that another \
                    waited for, or our own cache.";
        let mut family = families.counters("freehold_frontend_queries_total", help);
        for (from, count) in
            [("cache", &self.kept), ("downstream", &self.sent_on), ("shared", &self.joined)]
        {
            family.sample([("from", from)], count.get() as f64);
        }
        families.counter(
            "freehold_frontend_queries_failed_total",
            "Queries that were sent on and came to nothing, or whose answers broke off.",
            self.failed.get(),
        );
        families.counter(
            "freehold_frontend_slow_queries_total",
            "Queries that took longer than -frontend.log-queries-longer-than.",
            self.slow.get(),
        );
        families.counter(
            "freehold_frontend_charges_given_back_total",
            "Queries that cost nothing, since their answers came from the results cache.",
            self.given_back.get(),
        );
        families.counter(
            "freehold_frontend_tries_without_credit_total",
            "Queries of clients without credit that were let through, since they lately came from \
             the results cache.",
            self.tried.get(),
        );
        families.counter(
            "freehold_frontend_tries_owed_total",
            "Tries without credit that missed the results cache or failed, and are owed.",
            self.owed.get(),
        );
        let help = "Canaries by what they found of the signal that an answer came from the \
                    results cache.";
        let mut family = families.counters("freehold_frontend_canaries_total", help);
        for (finding, count) in ["true", "false", "silence"].into_iter().zip(&self.canaries) {
            family.sample([("finding", finding)], count.get() as f64);
        }
    }
}

fn rejected<'a>(reason: &'static str, tenant: &'a str, count: u64) -> RefusedCount<'a> {
    RefusedCount {
        metric: "cortex_rejected_queries_total",
        unit: "queries",
        reason,
        tenant: Some(tenant),
        count,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> crate::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
