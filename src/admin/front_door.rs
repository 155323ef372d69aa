//! `/front-door`: who comes too often and who fails too often, by hash; what is proven; the lists
//! and limits in force.
//!
//! Nobody is named here: addresses and credentials are the first bytes of their hashes, as in the
//! log, so that a line there can be found here. The networks are those of the configuration.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

use super::answer;
use super::site::{Frame, Site};
use crate::clock::Clock;
use crate::front_door::FrontDoor;
use crate::front_door::config::{FrontDoorConfig, WriteFailures};
use crate::front_door::networks::Network;
use crate::front_door::view::{DoorView, SenderView, TableView};

/// Networks of one list that are shown: what a person reads; the configuration has them all.
const NETWORKS_SHOWN_MAX: usize = 200;

const OFF: &str = "the front door is off: no limiter is set and nobody is denied; \
                   docs/front-door.md says how to turn it on";

/// Where the page is.
pub const PATH: &str = "/front-door";

/// What the page is made from.
pub struct FrontDoorSource {
    /// `None` where it is off.
    pub door: Option<Arc<FrontDoor>>,
    pub config: FrontDoorConfig,
    pub clock: Clock,
}

#[derive(Serialize, Template)]
#[template(path = "front_door.html", config = "src/admin/askama.toml")]
struct FrontDoorPage {
    #[serde(skip)]
    frame: Frame,
    enabled: bool,
    notes: Vec<&'static str>,
    /// Requests refused since their address is denied.
    denied: u64,
    /// Requests with lists of hops that were not used.
    untrusted_hops: u64,
    unreadable_hops: u64,
    salt_rotations: u64,
    /// Seconds for which a success proves a pair.
    proven_for_seconds: f64,
    write_failures: &'static str,
    lists: Vec<List>,
    classes: Vec<Class>,
}

/// Networks by what they are to us.
#[derive(Serialize)]
struct List {
    flag: &'static str,
    /// What it means to be on it.
    means: &'static str,
    networks: Vec<String>,
    /// All there are; not all may be shown.
    total: usize,
}

/// One class of routes with a limiter that is on.
#[derive(Serialize)]
struct Class {
    class: &'static str,
    limiters: Vec<Limiter>,
    tables: [Table; 3],
    /// Failures charged, and requests let in as a proven pair, since the start.
    failures_total: u64,
    proven_total: u64,
    /// Addresses that owe failures now, and those of them that may not fail once more.
    failing: usize,
    failing_used_up: usize,
    pairs_proven: usize,
    pairs_under_way: u64,
    most_failing: Vec<Sender>,
    busiest_addresses: Vec<Sender>,
    busiest_credentials: Vec<Sender>,
}

#[derive(Serialize)]
struct Limiter {
    limiter: &'static str,
    per_minute: u32,
    shadow: bool,
    refused_total: u64,
    shadow_refused_total: u64,
}

#[derive(Serialize)]
struct Table {
    table: &'static str,
    /// Its bound.
    flag: &'static str,
    entries: usize,
    entries_max: usize,
    evicted_idle_total: u64,
    evicted_in_debt_total: u64,
}

#[derive(Serialize)]
struct Sender {
    digest: String,
    /// `credential`, or `address`, as which senders without a credential are known.
    kind: &'static str,
    credits: f64,
    burst: u64,
}

/// Lists of senders as the template shows them: a heading and the rows.
struct Shown<'a> {
    title: &'static str,
    senders: &'a [Sender],
}

pub fn router(source: FrontDoorSource, site: &Site) -> Router {
    site.open(PATH);
    Router::new().route(PATH, get(show)).with_state((Arc::new(source), site.clone()))
}

async fn show(
    State((source, site)): State<(Arc<FrontDoorSource>, Site)>,
    headers: HeaderMap,
) -> Response {
    let json = answer::wants_json(&headers);
    let frame = site.frame(PATH);
    let make = move || answer::either(json, &FrontDoorPage::new(&source, frame));
    answer::made(site.permits(), make).await
}

impl FrontDoorPage {
    fn new(source: &FrontDoorSource, frame: Frame) -> Self {
        let FrontDoorSource { door, config, clock } = source;
        let view = door.as_ref().map(|door| door.view(clock.steady_ns())).unwrap_or_default();
        let mut notes = Vec::new();
        if door.is_none() {
            notes.push(OFF);
        }
        if door.is_some() && config.trusted_proxies.is_empty() {
            notes.push(
                "no proxy is trusted, so the other end of a connection is taken for the sender; \
                 where a proxy stands before this process, all of its senders are one",
            );
        }
        Self {
            frame,
            enabled: door.is_some(),
            notes,
            denied: view.denied,
            untrusted_hops: view.untrusted_hops,
            unreadable_hops: view.unreadable_hops,
            salt_rotations: view.salt_rotations,
            proven_for_seconds: config.proven_for.0 as f64 / 1000.0,
            write_failures: match config.write_failures {
                WriteFailures::Auth => "401, 403, and bodies that cannot be read",
                WriteFailures::All => "all from 400 on, and requests that are broken off",
            },
            lists: vec![
                List::new("-front-door.deny", "get nothing but a 403", &config.deny),
                List::new("-front-door.allow", "no limiter looks at them", &config.allow),
                List::new(
                    "-front-door.trusted-proxies",
                    "their lists of hops are believed",
                    &config.trusted_proxies,
                ),
            ],
            classes: view
                .doors
                .into_iter()
                .map(|(class, door)| Class::new(class.as_str(), door))
                .collect(),
        }
    }
}

impl List {
    fn new(flag: &'static str, means: &'static str, networks: &[Network]) -> Self {
        let shown = networks.iter().take(NETWORKS_SHOWN_MAX).map(Network::to_string).collect();
        Self { flag, means, networks: shown, total: networks.len() }
    }
}

impl Class {
    fn new(class: &'static str, door: DoorView) -> Self {
        let limiters = door.limiters.iter().map(|one| Limiter {
            limiter: one.limiter.as_str(),
            per_minute: one.per_minute,
            shadow: one.is_shadow,
            refused_total: one.refused,
            shadow_refused_total: one.shadow_refused,
        });
        Self {
            class,
            limiters: limiters.collect(),
            tables: [
                Table::new("addresses", "-front-door.max-addresses", door.addresses),
                Table::new("credentials", "-front-door.max-credentials", door.credentials),
                Table::new("pairs", "-front-door.max-proven-pairs", door.pairs),
            ],
            failures_total: door.failures,
            proven_total: door.proven,
            failing: door.failing,
            failing_used_up: door.failing_used_up,
            pairs_proven: door.pairs_proven,
            pairs_under_way: door.pairs_under_way,
            most_failing: senders(door.most_failing),
            busiest_addresses: senders(door.busiest_addresses),
            busiest_credentials: senders(door.busiest_credentials),
        }
    }

    fn lists(&self) -> [Shown<'_>; 3] {
        [
            Shown { title: "Most failures", senders: &self.most_failing },
            Shown { title: "Busiest addresses", senders: &self.busiest_addresses },
            Shown { title: "Busiest credentials", senders: &self.busiest_credentials },
        ]
    }
}

impl Table {
    fn new(table: &'static str, flag: &'static str, view: TableView) -> Self {
        Self {
            table,
            flag,
            entries: view.entries,
            entries_max: view.entries_max,
            evicted_idle_total: view.evicted.idle,
            evicted_in_debt_total: view.evicted.in_debt,
        }
    }
}

impl Sender {
    /// What of its burst is used; all of it where something is owed.
    fn used(&self) -> f64 {
        (self.burst as f64 - self.credits).clamp(0.0, self.burst as f64)
    }

    fn is_used_up(&self) -> bool {
        self.credits < 1.0
    }
}

fn senders(rows: Vec<SenderView>) -> Vec<Sender> {
    let row = |row: SenderView| Sender {
        digest: row.digest,
        kind: if row.is_credential { "credential" } else { "address" },
        credits: row.credits,
        burst: row.burst,
    };
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_owes_has_used_all_of_it() {
        let sender =
            |credits| Sender { digest: String::new(), kind: "address", credits, burst: 10 };
        assert_eq!((sender(7.5).used(), sender(7.5).is_used_up()), (2.5, false));
        assert_eq!((sender(-3.0).used(), sender(-3.0).is_used_up()), (10.0, true));
        assert_eq!((sender(0.9).used(), sender(0.9).is_used_up()), (9.1, true));
    }

    #[test]
    fn long_lists_of_networks_are_cut_and_counted() {
        let networks: Vec<_> = (0..300_u32)
            .map(|number| Network::parse(&format!("10.0.{}.{}", number / 256, number % 256)))
            .map(|network| network.expect("a network"))
            .collect();
        let list = List::new("-front-door.deny", "denied", &networks);
        assert_eq!((list.networks.len(), list.total), (NETWORKS_SHOWN_MAX, 300));
        assert_eq!(list.networks[0], "10.0.0.0/32");
    }
}
