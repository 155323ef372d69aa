//! What is told of budgets: counts of the gate and of waits. No label names a client or tenant; the
//! ring is named, since a process may be in two.

use prometheus::{Histogram, HistogramOpts};

use super::super::gate::POLICIES;
use super::{Budgets, Gates};
use crate::exposition::{Families, RefusedCount};

/// From a fifth of what an answer takes on one machine to the longest wait that can be set.
const WAIT_BUCKETS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

pub(super) fn waits(gates: Gates) -> Histogram {
    let opts = HistogramOpts::new(
        "freehold_client_waits_seconds",
        "Time that requests have waited for the owner of a budget.",
    )
    .const_label("ring", gates.name());
    Histogram::with_opts(opts.buckets(WAIT_BUCKETS.to_vec())).expect("a name and rising bounds")
}

impl Budgets {
    /// Tells of requests that were refused since nobody could ask the budget's owner.
    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        tell(RefusedCount {
            metric: "freehold_client_fallbacks_total",
            unit: "requests",
            reason: "owner lost",
            tenant: None,
            count: self.counts().lost_refused,
        });
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let (counts, ring) = (self.counts(), self.gates().name());
        let mut decisions = families.counters(
            "freehold_client_decisions_total",
            "Decisions on budgets, by what they were made by.",
        );
        let by = [
            ("own", counts.own),
            ("lease", counts.leased),
            ("denial", counts.denied_here),
            ("asked", counts.asked),
            ("lost", counts.lost.iter().sum()),
            ("own_limit", counts.alone),
        ];
        for (by, count) in by {
            decisions.sample([("by", by), ("ring", ring)], count as f64);
        }
        let mut fallbacks = families.counters(
            "freehold_client_fallbacks_total",
            "Decisions on budgets without their owner, by the policy for that.",
        );
        for ((_, mode), count) in POLICIES.iter().zip(counts.lost) {
            fallbacks.sample([("mode", *mode), ("ring", ring)], count as f64);
        }
        families.collected(&self.shared.waits);
        let mut family = families.counters(
            "freehold_client_renewals_total",
            "Leases that were asked for before the last was spent.",
        );
        family.sample([("ring", ring)], counts.renewals as f64);
        let mut family = families.counters(
            "freehold_client_not_owner_total",
            "Questions about budgets to a gate that did not own them.",
        );
        family.sample([("ring", ring)], counts.not_owner as f64);
        let evictions = counts.owner.evictions;
        let kinds = [
            ("refilled", evictions.refilled),
            ("in_debt", evictions.in_debt),
            ("ghost", evictions.ghosts),
        ];
        let mut family = families.counters(
            "freehold_client_evictions_total",
            "Accounts that had to go for others: full ones, ones in debt, and remembered debts.",
        );
        for (kind, count) in kinds {
            family.sample([("kind", kind), ("ring", ring)], count as f64);
        }
        let mut family = families.gauges(
            "freehold_client_accounts",
            "Budgets that this gate owns and something is owed of.",
        );
        family.sample([("ring", ring)], counts.owner.accounts as f64);
        let mut family = families.gauges(
            "freehold_client_leased_credits",
            "Credits of leases that this gate holds of others' budgets.",
        );
        family.sample([("ring", ring)], counts.held as f64);
        let mut family = families.counters(
            "freehold_client_handed_over_total",
            "Accounts that this gate has handed over to new owners.",
        );
        family.sample([("ring", ring)], counts.handed_over as f64);
        let mut family = families.counters(
            "freehold_client_taken_over_total",
            "Accounts that this gate has taken over from former owners.",
        );
        family.sample([("ring", ring)], counts.taken_over as f64);
        let members = self.shared.members.load();
        let up = members.keys().filter(|id| self.is_up(id)).count();
        let mut peers = families.gauges(
            "freehold_client_peers",
            "Other gates that budgets are shared with, by whether they answer.",
        );
        peers.sample([("ring", ring), ("state", "down")], (members.len() - up) as f64);
        peers.sample([("ring", ring), ("state", "up")], up as f64);
    }
}
