//! What a client is told whose budget does not pay for its query.

use crate::clients::{Cause, Refusal};
use crate::go_text::Float;
use crate::tenant::{ClientId, TenantId};

/// Which of a client's two budgets it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// That of queries which cost those behind us something.
    Queries,
    /// That of all queries, whatever answered them.
    Tries,
}

pub fn text(refusal: &Refusal, which: Which, tenant: &TenantId, client: &ClientId) -> String {
    let (rate, burst) = (Float(refusal.budget.rate), refusal.budget.burst);
    let what = match which {
        Which::Queries => "query rate limit",
        Which::Tries => "limit of all queries, cached ones among them,",
    };
    if refusal.cause == Cause::OwnerLost {
        return format!(
            "the query budget of client {client} of tenant {tenant} cannot be checked now: the \
             query gate that keeps it does not answer, and what is set aside for that is used up; \
             please try again (rate limit: {rate} burst: {burst})"
        );
    }
    let cure = match refusal.is_over_burst() {
        false => "please query less often or contact administrator to raise it",
        true => "its burst admits no query at all, please contact administrator to raise it",
    };
    format!(
        "{what} of client {client} of tenant {tenant} exceeded: {rate} queries per second over \
         all query gates (burst: {burst}), {cure}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratelimit::Budget;

    #[test]
    fn it_says_what_happened_to_whom_and_what_to_do() {
        let tenant = TenantId::parse("team").expect("a tenant");
        let client = ClientId::parse("grafana").expect("a client");
        let refusal = |cause, burst| Refusal {
            cause,
            budget: Budget { rate: 2.5, burst },
            asked: 1,
            wait_ns: None,
        };
        let check = |refusal, which, expect: &str| {
            assert_eq!(text(&refusal, which, &tenant, &client), expect);
        };
        check(
            refusal(Cause::Budget, 7),
            Which::Queries,
            "query rate limit of client grafana of tenant team exceeded: 2.5 queries per second \
             over all query gates (burst: 7), please query less often or contact administrator to \
             raise it",
        );
        check(
            refusal(Cause::Budget, 0),
            Which::Queries,
            "query rate limit of client grafana of tenant team exceeded: 2.5 queries per second \
             over all query gates (burst: 0), its burst admits no query at all, please contact \
             administrator to raise it",
        );
        check(
            refusal(Cause::Budget, 70),
            Which::Tries,
            "limit of all queries, cached ones among them, of client grafana of tenant team \
             exceeded: 2.5 queries per second over all query gates (burst: 70), please query less \
             often or contact administrator to raise it",
        );
        check(
            refusal(Cause::OwnerLost, 7),
            Which::Queries,
            "the query budget of client grafana of tenant team cannot be checked now: the query \
             gate that keeps it does not answer, and what is set aside for that is used up; \
             please try again (rate limit: 2.5 burst: 7)",
        );
    }
}
