//! Budgets of writes and of queries: how pages ask for either, and what they call them.

use crate::clients::Gates;

/// What pages say of one kind.
pub(super) struct Words {
    /// As `kind=` has it.
    pub name: &'static str,
    /// What a budget counts.
    pub unit: &'static str,
    /// Who keep to it together.
    pub over: &'static str,
    /// Nothing is kept over all gates.
    pub off: &'static str,
    pub no_limit: &'static str,
    pub shadow: &'static str,
}

const WRITES: Words = Words {
    name: "writes",
    unit: "items",
    over: "distributors",
    off: "no budgets are kept over all distributors here; for those of clients start every gate \
          with -client-identity.enabled=true and set client_identity_ingestion_rate_limit among \
          the tenant's limits, for tenants' own rates start them with \
          -distributor.ingestion-rate-limit-strategy=leased",
    no_limit: "clients of this tenant have no limit: set client_identity_ingestion_rate_limit \
               among its limits",
    shadow: "shadow: clients of this tenant are not refused, only counted \
             (client_identity_ingestion_shadow)",
};

const QUERIES: Words = Words {
    name: "queries",
    unit: "queries",
    over: "query gates",
    off: "no budgets of queries are kept over all query gates here; start every query gate with \
          -client-identity.enabled=true and set client_identity_query_rate_limit among the \
          tenant's limits",
    no_limit: "queries of this tenant's clients have no limit: set \
               client_identity_query_rate_limit among its limits",
    shadow: "shadow: queries of this tenant's clients are not refused, only counted \
             (client_identity_query_shadow)",
};

/// No budget is of all of a tenant's queries.
pub(super) const NO_TENANT_QUERIES: &str = "a tenant's queries have no budget of their own, only \
                                            those of its clients: name one";

pub(super) fn words(gates: Gates) -> &'static Words {
    match gates {
        Gates::Distributors => &WRITES,
        Gates::QueryFrontends => &QUERIES,
    }
}

/// As a link, a form or a command says it.
pub fn name(gates: Gates) -> &'static str {
    words(gates).name
}

/// The other way round.
pub fn parse(name: &str) -> Option<Gates> {
    [Gates::Distributors, Gates::QueryFrontends]
        .into_iter()
        .find(|gates| words(*gates).name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_name() {
        for gates in [Gates::Distributors, Gates::QueryFrontends] {
            assert_eq!(parse(name(gates)), Some(gates));
        }
        assert_eq!(parse("reads"), None);
    }
}
