//! Budgets that hold over all distributors: a tenant's own under the strategy `leased`, and those
//! of its clients. What they are called, what they may spend, and what a refused sender is told.

use std::sync::Arc;

use crate::clients::peers::TermsFn;
use crate::clients::{Cause, Key, Kind, Refusal, Terms};
use crate::go_text::Float;
use crate::limits::{IngestionRateStrategy, Limits, Overrides};
use crate::ratelimit::{Budget, OverRate, RATE_UNLIMITED};
use crate::tenant::{ClientId, TenantId};

/// What the reason of a refusal by a client's budget is called.
pub const CLIENT_RATE_LIMITED: &str = "client_rate_limited";

/// The terms of each budget, for those who ask its owner.
pub fn terms_of(overrides: &Arc<Overrides>) -> Arc<TermsFn> {
    let overrides = Arc::clone(overrides);
    Arc::new(move |kind, tenant| {
        let snapshot = overrides.load();
        let limits = snapshot.limits_of(tenant);
        match kind {
            Kind::TenantWrites => match snapshot.ingestion_rate_strategy() {
                IngestionRateStrategy::Leased => tenant_terms(limits),
                IngestionRateStrategy::Local | IngestionRateStrategy::Global => None,
            },
            Kind::ClientWrites => client_terms(limits),
            Kind::ClientQueries | Kind::ClientQueryTries => None,
        }
    })
}

/// What a tenant may write; `None` without a limit.
pub fn tenant_terms(limits: &Limits) -> Option<Terms> {
    let budget = Budget { rate: limits.ingestion_rate, burst: limits.ingestion_burst_size };
    (budget.rate != RATE_UNLIMITED).then_some(Terms { budget, tracked_max: 1 })
}

/// What each client of a tenant may write; `None` without a limit.
pub fn client_terms(limits: &Limits) -> Option<Terms> {
    let client = limits.client_budget()?;
    let budget = Budget { rate: client.rate, burst: client.burst };
    let tracked_max = usize::try_from(client.tracked_clients_max).unwrap_or(usize::MAX);
    Some(Terms { budget, tracked_max })
}

pub fn tenant_key(tenant: &TenantId) -> Key<'_> {
    Key { kind: Kind::TenantWrites, tenant: tenant.as_str(), client: "" }
}

pub fn client_key<'a>(tenant: &'a TenantId, client: &'a ClientId) -> Key<'a> {
    Key { kind: Kind::ClientWrites, tenant: tenant.as_str(), client: client.as_str() }
}

/// A refusal in the terms of the limiters of one process.
pub fn over_rate(refusal: &Refusal) -> OverRate {
    let Budget { rate, burst } = refusal.budget;
    OverRate { rate, burst, wait_ns: refusal.wait_ns, asked: refusal.asked }
}

/// What the sender is told.
pub fn text(refusal: &Refusal, whose: &str, samples: u64, metadata: u64) -> String {
    let Refusal { budget, asked, .. } = refusal;
    let rate = Float(budget.rate);
    if refusal.cause == Cause::OwnerLost {
        return format!(
            "the ingestion budget of {whose} cannot be checked now: the distributor that keeps it \
             does not answer, and what is set aside for that is used up; please try again (rate \
             limit: {rate} burst: {} asked: {asked})",
            budget.burst
        );
    }
    let (bound, cure) = match refusal.is_over_burst() {
        false => ("the rate is used up".to_owned(), "contact administrator to raise it"),
        true => (
            format!("a request of {asked} items is above the burst and can never be admitted"),
            "send smaller requests or contact administrator to raise it",
        ),
    };
    format!(
        "ingestion rate limit ({rate}) of {whose} exceeded while adding {samples} samples and \
         {metadata} metadata; {bound} (limit over all distributors: {rate} burst: {} asked: \
         {asked}), please {cure}",
        budget.burst
    )
}
