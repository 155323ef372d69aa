//! What the way to those who answer tells of itself.

use super::address::Downstream;
use super::{Counts, Inner};
use crate::exposition::{Counter, Families, RefusedCount};

pub(super) fn read(inner: &Inner, families: &mut Families) {
    let mut requests = families.counters(
        "freehold_query_downstream_requests_total",
        "Queries sent to an address, by what became of them: an answer's head, or none.",
    );
    for address in &inner.addresses {
        let counts = &address.counts;
        for (outcome, counter) in [
            ("answered", &counts.answered),
            ("broken", &counts.broken),
            ("deadline", &counts.deadline),
            ("unreachable", &counts.unreachable),
        ] {
            requests.sample([("address", &address.name), ("outcome", outcome)], shown(counter));
        }
    }
    let mut repeated = families.counters(
        "freehold_query_downstream_repeated_total",
        "Queries sent again, since nothing of the first time can have been taken.",
    );
    for address in &inner.addresses {
        repeated.sample([("address", &address.name)], shown(&address.counts.repeated));
    }
    let mut failed = families.counters(
        "freehold_query_downstream_failed_checks_total",
        "Health checks that found an address not well, or not at all.",
    );
    for address in &inner.addresses {
        failed.sample([("address", &address.name)], shown(&address.counts.checks_failed));
    }
    let mut in_flight = families.gauges(
        "freehold_query_downstream_inflight_requests",
        "Queries to an address that are under way.",
    );
    for address in &inner.addresses {
        in_flight.sample([("address", &address.name)], address.in_flight() as f64);
    }
    let mut well = families.gauges(
        "freehold_query_downstream_healthy",
        "0 while an address gets no queries that another could have.",
    );
    for address in &inner.addresses {
        well.sample([("address", &address.name)], f64::from(u8::from(is_well(address))));
    }
    let mut refused = families.counters(
        "freehold_query_downstream_refused_total",
        "Queries not sent on, by why: nobody can be reached, too many under way, come back to us.",
    );
    for (reason, counter) in inner.counts.refused() {
        refused.sample([("reason", reason)], shown(counter));
    }
}

/// Tells of queries that were not sent on, by why.
pub(super) fn tell_refused(inner: &Inner, tell: &mut dyn FnMut(RefusedCount<'_>)) {
    for (reason, counter) in inner.counts.refused() {
        let (metric, count) = ("freehold_query_downstream_refused_total", counter.get());
        tell(RefusedCount { metric, unit: "queries", reason, tenant: None, count });
    }
}

impl Counts {
    fn refused(&self) -> [(&'static str, &Counter); 3] {
        [("down", &self.refused_down), ("loop", &self.loops), ("requests", &self.refused_requests)]
    }
}

fn is_well(address: &Downstream) -> bool {
    address.health().is_well()
}

fn shown(counter: &Counter) -> f64 {
    counter.get() as f64
}
