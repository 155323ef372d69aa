//! The plan as a table for people, and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::growth::Growth;
use super::outlook::{Cause, Counted, Divided, Outlook, RuleOutlook};
use crate::output::{self, Cell, Column, Screen, Style, Table};
use crate::ring::RingSnapshot;
use crate::units::Millis;

/// Tenants in the table, the most refused first; JSON has all.
const TENANTS_SHOWN_MAX: usize = 50;

#[derive(Serialize)]
struct Plan<'a> {
    before: Ring<'a>,
    after: Ring<'a>,
    joined: &'a [String],
    left: &'a [String],
    tokens_per_new_instance: usize,
    seed: u64,
    tenants: &'a [Outlook],
}

#[derive(Serialize)]
struct Ring<'a> {
    instances: usize,
    /// What limits are divided by.
    healthy: usize,
    zones: Vec<&'a str>,
    replication_factor: usize,
    zone_awareness_enabled: bool,
}

pub(super) fn json(growth: &Growth, outlooks: &[Outlook]) -> serde_json::Result<String> {
    let plan = Plan {
        before: Ring::new(&growth.before),
        after: Ring::new(&growth.after),
        joined: &growth.joined,
        left: &growth.left,
        tokens_per_new_instance: growth.tokens,
        seed: growth.seed,
        tenants: outlooks,
    };
    output::json(&plan)
}

pub(super) fn text(
    growth: &Growth,
    outlooks: &[Outlook],
    show_instances: bool,
    screen: &Screen,
) -> String {
    let mut out = String::new();
    let (before, after) = (Ring::new(&growth.before), Ring::new(&growth.after));
    let zones = match after.zones.as_slice() {
        [] | [""] => "no zones".to_owned(),
        zones => format!("zones {}", zones.join(" ")),
    };
    let awareness = if after.zone_awareness_enabled { "on" } else { "off" };
    let _ = writeln!(
        out,
        "Ring: {} to {} instances, {zones}, {} replicas, zone awareness {awareness}",
        before.instances, after.instances, after.replication_factor
    );
    if !growth.joined.is_empty() {
        let (count, tokens, seed) = (growth.joined.len(), growth.tokens, growth.seed);
        let _ = writeln!(out, "{count} new with {tokens} random tokens each (seed {seed})");
    }
    if !growth.left.is_empty() {
        let _ = writeln!(out, "gone: {}", growth.left.join(" "));
    }
    if before.healthy != before.instances {
        let _ = writeln!(
            out,
            "{} of {} instances are ACTIVE with a fresh heartbeat; limits are divided by those",
            before.healthy, before.instances
        );
    }
    for outlook in &outlooks[..outlooks.len().min(TENANTS_SHOWN_MAX)] {
        out.push('\n');
        write_tenant(&mut out, outlook, show_instances, screen);
    }
    if let Some(more) = outlooks.len().checked_sub(TENANTS_SHOWN_MAX).filter(|more| *more > 0) {
        let _ = writeln!(out, "\n… and {more} more tenants; --output json lists all");
    }
    out
}

impl<'a> Ring<'a> {
    fn new(ring: &'a RingSnapshot) -> Self {
        Self {
            instances: ring.members().len(),
            healthy: ring.healthy_count(),
            zones: ring.zones().iter().map(|zone| &**zone).collect(),
            replication_factor: ring.settings().replication_factor,
            zone_awareness_enabled: ring.settings().zone_awareness_enabled,
        }
    }
}

fn write_tenant(out: &mut String, outlook: &Outlook, show_instances: bool, screen: &Screen) {
    let Outlook { tenant, series, global_limit, local_limit, shard_size, .. } = outlook;
    let _ = write!(out, "Tenant {tenant}: {series} series");
    for (limit, of) in [(*global_limit, "the cluster"), (*local_limit, "each instance")] {
        if limit != 0 {
            let _ = write!(out, ", limit {limit} for {of}");
        }
    }
    if *shard_size > 0 {
        let _ = write!(out, ", shard of {shard_size}");
    }
    let held = Millis(outlook.held_ms.unsigned_abs());
    let _ = writeln!(out, "; heads hold what moves away for {held}");
    let headings = [
        "count",
        "limit",
        "before",
        "at the join",
        "refusing",
        "over by",
        "new refused",
        "lasts",
        "refusing after",
    ];
    let mut table = Table::new(headings.map(Column::word));
    for rule in &outlook.rules {
        table.row(row(outlook, rule));
    }
    table.print(out, screen);
    if show_instances {
        write_instances(out, outlook, screen);
    }
}

fn row(outlook: &Outlook, rule: &RuleOutlook) -> [Cell; 9] {
    let instances = &outlook.instances;
    let at_join = |at: usize| match rule.counted {
        Counted::InMemory => instances[at].in_memory_at_join,
        Counted::Owned => instances[at].after,
    };
    let before = instances.iter().map(|instance| instance.before).max().unwrap_or(0);
    let join = (0..instances.len()).map(at_join).max().unwrap_or(0);
    let style = if rule.refused_part > 0.0 { Style::Bad } else { Style::Good };
    [
        Cell::from(counted(rule.counted)),
        Cell::from(divided(rule.divided)),
        Cell::from(format!("{before} of {}", least(&rule.limit_before))),
        Cell::from(format!("{join} of {}", least(&rule.limit_after))),
        Cell::from(format!("{} of {}", rule.refusing_at_join, instances.len())),
        Cell::from(rule.over_at_join.to_string()),
        Cell::new(
            style,
            match (rule.refused_part > 0.0, rule.refused_series) {
                (false, _) => "none".to_owned(),
                (true, 0) => format!("{:.1} %", rule.refused_part * 100.0),
                (true, series) => format!("{:.1} %, {series}", rule.refused_part * 100.0),
            },
        ),
        Cell::from(match (rule.cause, rule.lasts_ms) {
            (Cause::None, _) => "-".to_owned(),
            (Cause::Head, Some(lasts_ms)) => Millis(lasts_ms.unsigned_abs()).to_string(),
            (Cause::TenantAtLimit, _) => "on: the tenant is at its limit".to_owned(),
            (Cause::Head | Cause::Imbalance, _) => "on: uneven tokens or zones".to_owned(),
        }),
        Cell::from(rule.refusing_after.to_string()),
    ]
}

/// The largest count stands beside the smallest limit: whoever is between refuses.
fn least(limits: &[Option<u64>]) -> String {
    let least = limits.iter().flatten().min();
    least.map_or_else(|| "no limit".to_owned(), u64::to_string)
}

fn write_instances(out: &mut String, outlook: &Outlook, screen: &Screen) {
    let named = |rule: &&RuleOutlook| rule.counted == Counted::InMemory;
    let rules: Vec<_> = outlook.rules.iter().filter(named).collect();
    let heading = |rule: &&RuleOutlook| match rule.divided {
        Divided::Flat => "flat limit",
        Divided::Share => "share limit",
    };
    let headings = ["instance", "before", "in memory", "after"].into_iter();
    let mut table = Table::new(headings.chain(rules.iter().map(heading)).map(Column::word));
    for (at, instance) in outlook.instances.iter().enumerate() {
        let counts = [instance.before, instance.in_memory_at_join, instance.after];
        let limits = rules.iter().map(|rule| {
            let shown = |limit: Option<u64>| limit.map_or("-".to_owned(), |l| l.to_string());
            format!("{} to {}", shown(rule.limit_before[at]), shown(rule.limit_after[at]))
        });
        let numbers = counts.into_iter().map(|count| count.to_string()).chain(limits);
        table.row(std::iter::once(instance.id.clone()).chain(numbers).map(Cell::from));
    }
    table.print(out, screen);
}

fn counted(counted: Counted) -> &'static str {
    match counted {
        Counted::InMemory => "in memory",
        Counted::Owned => "owned",
    }
}

fn divided(divided: Divided) -> &'static str {
    match divided {
        Divided::Flat => "flat",
        Divided::Share => "share",
    }
}
