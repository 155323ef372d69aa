//! A run that is recorded, with faults at known times; and which alerts would have come of it.
//!
//! The alerts are worked out afterwards from what was recorded, by the expressions and waits of
//! the table, so that a record serves rules that are changed later.
//!
//! What must hold: each fault fires its alert and nothing else; without a fault nothing fires, in
//! the everyday life before it, while a version is rolled out, and in what follows a fault.
//!
//! With `FREEHOLD_SOAK_MINUTES` the healthy time before the first fault is stretched to that.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior};

use super::alerts::Alert;
use super::lab::{Crowd, GATES, Lab};
use crate::process::now_ms;
use crate::prometheus::Prometheus;
use crate::ring_stores::etcd_server::Etcd;

/// How often everything is scraped, and the step of what is worked out.
pub const SCRAPE_S: i64 = 15;
/// A refusal is in a rate over five minutes for so long, and a scrape or two may be in between.
const AFTERMATH_MS: i64 = 6 * 60_000;

/// How long the parts of a run are.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Before the first fault; in its middle all processes are started anew.
    pub healthy: Duration,
    pub fault: Duration,
    /// After each fault.
    pub between: Duration,
}

/// A fault that there was, and the alert that it has to fire.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub what: &'static str,
    pub alert: &'static str,
    pub from_ms: i64,
    pub until_ms: i64,
}

/// What was recorded: the time, and the faults in it.
#[derive(Debug)]
pub struct Record {
    pub from_ms: i64,
    pub until_ms: i64,
    pub faults: Vec<Fault>,
}

/// An alert that fired.
#[derive(Debug)]
pub struct Firing {
    pub alert: &'static str,
    pub labels: String,
    pub from_ms: i64,
    pub until_ms: i64,
}

impl fmt::Display for Firing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = (self.until_ms - self.from_ms) / 1000;
        let since_s = self.from_ms / 1000;
        write!(f, "{} {} for {seconds} s from {since_s} on", self.alert, self.labels)
    }
}

/// Lives through the plan; `told` hears each step.
pub async fn run(lab: &mut Lab, etcd: &mut Etcd, plan: Plan, told: impl Fn(&str)) -> Record {
    let from_ms = now_ms();
    let mut faults = Vec::new();
    told("everyday life");
    live(lab, plan.healthy / 2).await;
    told("a new version is rolled out");
    lab.roll().await;
    live(lab, plan.healthy / 2).await;

    let start = |what: &'static str, alert: &'static str| {
        told(what);
        Fault { what, alert, from_ms: now_ms(), until_ms: 0 }
    };
    let mut fault = start("the ring's store is gone", "FreeholdRingStale");
    etcd.kill();
    live(lab, plan.fault).await;
    etcd.run().await;
    end(&mut faults, &mut fault);
    live(lab, plan.between).await;

    let mut fault = start("a tenant runs into its limit", "FreeholdSeriesRefused");
    lab.set_crowd(Crowd { series: 900, limit: 500 });
    live(lab, plan.fault).await;
    // What the runbook says: room for what is to stay.
    lab.set_crowd(Crowd { series: 900, limit: 2000 });
    end(&mut faults, &mut fault);
    live(lab, plan.between).await;

    let mut fault = start("an owner of budgets is killed", "FreeholdBudgetOwnerUnreachable");
    lab.kill(GATES[1]);
    live(lab, plan.fault).await;
    lab.start_again(GATES[1]).await;
    end(&mut faults, &mut fault);
    told("everyday life again");
    live(lab, plan.between).await;
    Record { from_ms, until_ms: now_ms(), faults }
}

fn end(faults: &mut Vec<Fault>, fault: &mut Fault) {
    fault.until_ms = now_ms();
    faults.push(*fault);
}

async fn live(lab: &mut Lab, time: Duration) {
    let until = Instant::now() + time;
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < until {
        seconds.tick().await;
        lab.second().await;
    }
}

/// What would have fired, in the order of the table.
pub async fn firings(prometheus: &Prometheus, alerts: &[&Alert], record: &Record) -> Vec<Firing> {
    let mut firings = Vec::new();
    for alert in alerts {
        let series = range(prometheus, &alert.expanded(), record).await;
        for one in series.as_array().expect("series") {
            let times = one["values"].as_array().expect("values").iter();
            let times_ms: Vec<i64> =
                times.map(|value| (value[0].as_f64().expect("a time") * 1000.0) as i64).collect();
            for (from_ms, until_ms) in spells(&times_ms) {
                let from_ms = from_ms + alert.hold_ms();
                if from_ms <= until_ms {
                    let labels = one["metric"].to_string();
                    firings.push(Firing { alert: alert.name, labels, from_ms, until_ms });
                }
            }
        }
    }
    firings
}

/// Times without a gap, as first and last.
fn spells(times_ms: &[i64]) -> Vec<(i64, i64)> {
    let mut spells: Vec<(i64, i64)> = Vec::new();
    for &time_ms in times_ms {
        match spells.last_mut() {
            Some((_, last)) if time_ms - *last <= SCRAPE_S * 1000 => *last = time_ms,
            _ => spells.push((time_ms, time_ms)),
        }
    }
    spells
}

async fn range(prometheus: &Prometheus, query: &str, record: &Record) -> Value {
    let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let (from, until) = (record.from_ms as f64 / 1000.0, record.until_ms as f64 / 1000.0);
    let path =
        format!("/api/v1/query_range?query={query}&start={from:.3}&end={until:.3}&step={SCRAPE_S}");
    let (status, body) = prometheus.get(&path).await.expect("an answer");
    assert_eq!(status, 200, "{body}");
    let mut answer: Value = serde_json::from_str(&body).expect("JSON");
    answer["data"]["result"].take()
}

/// What is wrong with the firings: those that no fault explains, and faults without any.
pub fn wrong(record: &Record, firings: &[Firing]) -> Vec<String> {
    let explains = |fault: &Fault, firing: &Firing| {
        fault.alert == firing.alert
            && fault.from_ms <= firing.from_ms
            && firing.until_ms <= fault.until_ms + AFTERMATH_MS
    };
    let unexplained = firings
        .iter()
        .filter(|firing| !record.faults.iter().any(|fault| explains(fault, firing)))
        .map(|firing| format!("nothing explains {firing}"));
    let unnoticed = record
        .faults
        .iter()
        .filter(|fault| !firings.iter().any(|firing| explains(fault, firing)))
        .map(|fault| format!("{} did not fire: {}", fault.alert, fault.what));
    unexplained.chain(unnoticed).collect()
}

#[test]
fn a_firing_without_its_fault_and_a_fault_without_its_firing_are_told() {
    let minute = |n: i64| n * 60_000;
    let fault = |alert, from| Fault {
        what: "a fault",
        alert,
        from_ms: minute(from),
        until_ms: minute(from + 4),
    };
    let firing = |alert, from, until| Firing {
        alert,
        labels: String::new(),
        from_ms: minute(from),
        until_ms: minute(until),
    };
    let faults = vec![fault("A", 10), fault("B", 30)];
    let record = Record { from_ms: 0, until_ms: minute(60), faults };
    let check = |firings: &[Firing], expect: usize| {
        let wrong = wrong(&record, firings);
        assert_eq!(wrong.len(), expect, "{wrong:?}");
    };
    check(&[firing("A", 12, 18), firing("B", 31, 40)], 0);
    check(&[firing("A", 12, 14)], 1);
    check(&[firing("A", 12, 14), firing("B", 31, 32), firing("C", 31, 32)], 1);
    // Before its fault, and long after it.
    check(&[firing("A", 9, 12), firing("B", 31, 32)], 2);
    check(&[firing("A", 12, 25), firing("B", 31, 32)], 2);
}

#[test]
fn a_spell_ends_where_a_step_is_missing() {
    let at = |steps: &[i64]| steps.iter().map(|step| step * SCRAPE_S * 1000).collect::<Vec<_>>();
    let spell = |from: i64, until: i64| (from * SCRAPE_S * 1000, until * SCRAPE_S * 1000);
    assert_eq!(spells(&at(&[])), []);
    assert_eq!(spells(&at(&[3])), [spell(3, 3)]);
    assert_eq!(spells(&at(&[1, 2, 3, 5, 6])), [spell(1, 3), spell(5, 6)]);
}
