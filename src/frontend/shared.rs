//! Budgets of clients' queries that hold over all query gates: what they are called, and what they
//! may spend.
//!
//! Each client has two. A query takes a credit of both, and what a cache answered gets that of the
//! first back; the second, larger one bounds what a cache is asked for.

use std::sync::Arc;

use crate::clients::peers::TermsFn;
use crate::clients::{Key, Kind, TRIES_PER_QUERY, Terms};
use crate::limits::{Limits, Overrides};
use crate::ratelimit::Budget;
use crate::tenant::{ClientId, TenantId};

/// The terms of each budget, for those who ask its owner.
pub fn terms_of(overrides: &Arc<Overrides>) -> Arc<TermsFn> {
    let overrides = Arc::clone(overrides);
    Arc::new(move |kind, tenant| {
        let snapshot = overrides.load();
        let limits = snapshot.limits_of(tenant);
        match kind {
            Kind::ClientQueries => client_terms(limits),
            Kind::ClientQueryTries => client_terms(limits).map(tries_terms),
            Kind::TenantWrites | Kind::ClientWrites => None,
        }
    })
}

/// What each client of a tenant may ask; `None` without a limit.
pub fn client_terms(limits: &Limits) -> Option<Terms> {
    let client = limits.query_client_budget()?;
    let budget = Budget { rate: client.rate, burst: client.burst };
    let tracked_max = usize::try_from(client.tracked_clients_max).unwrap_or(usize::MAX);
    Some(Terms { budget, tracked_max })
}

/// What a client may try that may ask this.
pub fn tries_terms(client: Terms) -> Terms {
    let Budget { rate, burst } = client.budget;
    // Both stay what they are where ten times as much is no number.
    let rate = (rate * TRIES_PER_QUERY as f64).min(f64::MAX);
    let budget = Budget { rate, burst: burst.saturating_mul(TRIES_PER_QUERY) };
    Terms { budget, ..client }
}

pub fn client_key<'a>(tenant: &'a TenantId, client: &'a ClientId) -> Key<'a> {
    Key { kind: Kind::ClientQueries, tenant: tenant.as_str(), client: client.as_str() }
}

pub fn tries_key<'a>(tenant: &'a TenantId, client: &'a ClientId) -> Key<'a> {
    Key { kind: Kind::ClientQueryTries, ..client_key(tenant, client) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::InstanceLimits;

    #[test]
    fn tries_are_ten_times_the_queries_and_writes_are_none_of_ours() {
        let overrides = Arc::new(Overrides::new(Limits::default(), InstanceLimits::default()));
        let file = "overrides: {a: {client_identity_query_rate_limit: 5%, \
                    query_capacity_per_second: 50, client_identity_query_burst_size: 7, \
                    client_identity_query_tracked_clients_limit: 3, \
                    client_identity_ingestion_rate_limit: 9}}";
        overrides.publish(overrides.parse(file).expect("valid"));
        let terms_of = terms_of(&overrides);
        let queries = Terms { budget: Budget { rate: 2.5, burst: 7 }, tracked_max: 3 };
        assert_eq!(terms_of(Kind::ClientQueries, "a"), Some(queries));
        let tries = Terms { budget: Budget { rate: 25.0, burst: 70 }, ..queries };
        assert_eq!(terms_of(Kind::ClientQueryTries, "a"), Some(tries));
        assert_eq!(terms_of(Kind::ClientWrites, "a"), None);
        assert_eq!(terms_of(Kind::TenantWrites, "a"), None);
        assert_eq!(terms_of(Kind::ClientQueries, "b"), None, "no limit");
        let most = Terms { budget: Budget { rate: f64::MAX, burst: u64::MAX }, tracked_max: 1 };
        assert_eq!(tries_terms(most), most);
    }
}
