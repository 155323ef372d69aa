//! Numbers of the front door. No label names an address or a credential, not even by its hash.

use super::config::Limiter;
use super::door::Door;
use super::{FrontDoor, RouteClass};
use crate::exposition::{Families, RefusedCount};

/// What a refusal is called where class and limiter are one word.
const REFUSED: [[&str; 3]; 3] = [
    ["write failures", "write address", "write credential"],
    ["query failures", "query address", "query credential"],
    ["admin failures", "admin address", "admin credential"],
];

impl FrontDoor {
    /// Tells of everything that was refused here since the start.
    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        let (unit, tenant) = ("requests", None);
        let (metric, count) = ("freehold_front_door_denied_total", self.denied.get());
        tell(RefusedCount { metric, unit, reason: "denied", tenant, count });
        let metric = "freehold_front_door_refused_total";
        for (class, door) in RouteClass::ALL.into_iter().zip(&self.doors) {
            let Some(door) = door else { continue };
            for limiter in Limiter::ALL {
                let count = door.counts.refused[limiter as usize].get();
                let reason = REFUSED[class as usize][limiter as usize];
                tell(RefusedCount { metric, unit, reason, tenant, count });
            }
        }
    }

    pub fn read_metrics(&self, families: &mut Families) {
        families.counter(
            "freehold_front_door_denied_total",
            "Requests of addresses that are on -front-door.deny.",
            self.denied.get(),
        );
        let mut hops = families.counters(
            "freehold_front_door_unusable_hops_total",
            "Requests with a list of hops that was not used: of a peer that is no trusted proxy, or \
             a trusted proxy's that is no address.",
        );
        hops.sample([("reason", "untrusted")], self.untrusted_hops.get() as f64);
        hops.sample([("reason", "unreadable")], self.unreadable_hops.get() as f64);
        families.counter(
            "freehold_front_door_salt_rotations_total",
            "New salts put in force.",
            self.salts.load().epoch(),
        );
        self.read_limiters(families);
        self.read_tables(families);
    }

    fn read_limiters(&self, families: &mut Families) {
        let mut refused = families.counters(
            "freehold_front_door_refused_total",
            "Requests refused, by class of routes and limiter.",
        );
        for (class, door) in self.doors() {
            for limiter in Limiter::ALL {
                let count = door.counts.refused[limiter as usize].get();
                refused.sample([("class", class), ("limiter", limiter.as_str())], count as f64);
            }
        }
        let mut shadow = families.counters(
            "freehold_front_door_shadow_refused_total",
            "Requests admitted that a limiter in shadow would have refused.",
        );
        for (class, door) in self.doors() {
            for limiter in Limiter::ALL {
                let count = door.counts.shadow_refused[limiter as usize].get();
                shadow.sample([("class", class), ("limiter", limiter.as_str())], count as f64);
            }
        }
        let mut failures = families.counters(
            "freehold_front_door_failures_total",
            "Requests that failed, and were charged to their address.",
        );
        for (class, door) in self.doors() {
            failures.sample([("class", class)], door.counts.failures.get() as f64);
        }
        let mut proven = families.counters(
            "freehold_front_door_proven_total",
            "Requests that needed no credit, since their address and credential succeeded lately.",
        );
        for (class, door) in self.doors() {
            proven.sample([("class", class)], door.counts.proven.get() as f64);
        }
    }

    fn read_tables(&self, families: &mut Families) {
        let kept: Vec<_> = self.doors().map(|(class, door)| (class, door.kept())).collect();
        let tables = |kept: &super::door::Kept| {
            [
                ("addresses", kept.addresses),
                ("credentials", kept.credentials),
                ("pairs", kept.pairs),
            ]
        };
        let mut entries = families.gauges("freehold_front_door_entries", "What is kept, by table.");
        for (class, kept) in &kept {
            for (table, (len, _)) in tables(kept) {
                entries.sample([("class", class), ("table", table)], len as f64);
            }
        }
        let mut evictions = families.counters(
            "freehold_front_door_evictions_total",
            "What had to go at the bound of its table; in_debt gave somebody credit.",
        );
        for (class, kept) in &kept {
            for (table, (_, evicted)) in tables(kept) {
                for (kind, count) in [("idle", evicted.idle), ("in_debt", evicted.in_debt)] {
                    let labels = [("class", *class), ("kind", kind), ("table", table)];
                    evictions.sample(labels, count as f64);
                }
            }
        }
    }

    fn doors(&self) -> impl Iterator<Item = (&'static str, &Door)> {
        let doors = RouteClass::ALL.into_iter().zip(&self.doors);
        doors.filter_map(|(class, door)| Some((class.as_str(), door.as_ref()?)))
    }
}
