//! The plan as a table for people, and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::growth::Growth;
use super::outlook::{Cause, Counted, Divided, Outlook, RuleOutlook};
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
    Ok(serde_json::to_string_pretty(&plan)? + "\n")
}

pub(super) fn text(growth: &Growth, outlooks: &[Outlook], show_instances: bool) -> String {
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
        write_tenant(&mut out, outlook, show_instances);
    }
    if let Some(more) = outlooks.len().checked_sub(TENANTS_SHOWN_MAX).filter(|more| *more > 0) {
        let _ = writeln!(out, "\n… and {more} more tenants; --format=json lists all");
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

fn write_tenant(out: &mut String, outlook: &Outlook, show_instances: bool) {
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
    let heading = ["count", "limit", "before", "at the join", "refusing", "over by", "new refused"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows[0].extend(["lasts", "refusing after"].map(str::to_owned));
    rows.extend(outlook.rules.iter().map(|rule| row(outlook, rule)));
    write_columns(out, &rows);
    if show_instances {
        write_instances(out, outlook);
    }
}

fn row(outlook: &Outlook, rule: &RuleOutlook) -> Vec<String> {
    let instances = &outlook.instances;
    let at_join = |at: usize| match rule.counted {
        Counted::InMemory => instances[at].in_memory_at_join,
        Counted::Owned => instances[at].after,
    };
    let before = instances.iter().map(|instance| instance.before).max().unwrap_or(0);
    let join = (0..instances.len()).map(at_join).max().unwrap_or(0);
    vec![
        counted(rule.counted).to_owned(),
        divided(rule.divided).to_owned(),
        format!("{before} of {}", least(&rule.limit_before)),
        format!("{join} of {}", least(&rule.limit_after)),
        format!("{} of {}", rule.refusing_at_join, instances.len()),
        rule.over_at_join.to_string(),
        match (rule.refused_part > 0.0, rule.refused_series) {
            (false, _) => "none".to_owned(),
            (true, 0) => format!("{:.1} %", rule.refused_part * 100.0),
            (true, series) => format!("{:.1} %, {series}", rule.refused_part * 100.0),
        },
        match (rule.cause, rule.lasts_ms) {
            (Cause::None, _) => "-".to_owned(),
            (Cause::Head, Some(lasts_ms)) => Millis(lasts_ms.unsigned_abs()).to_string(),
            (Cause::TenantAtLimit, _) => "on: the tenant is at its limit".to_owned(),
            (Cause::Head | Cause::Imbalance, _) => "on: uneven tokens or zones".to_owned(),
        },
        rule.refusing_after.to_string(),
    ]
}

/// The largest count stands beside the smallest limit: whoever is between refuses.
fn least(limits: &[Option<u64>]) -> String {
    let least = limits.iter().flatten().min();
    least.map_or_else(|| "no limit".to_owned(), u64::to_string)
}

fn write_instances(out: &mut String, outlook: &Outlook) {
    let mut heading =
        vec!["instance".to_owned(), "before".into(), "in memory".into(), "after".into()];
    let named = |rule: &RuleOutlook| rule.counted == Counted::InMemory;
    let rules: Vec<_> = outlook.rules.iter().filter(|rule| named(rule)).collect();
    heading.extend(rules.iter().map(|rule| format!("{} limit", divided(rule.divided))));
    let mut rows = vec![heading];
    for (at, instance) in outlook.instances.iter().enumerate() {
        let mut row = vec![instance.id.clone()];
        let counts = [instance.before, instance.in_memory_at_join, instance.after];
        row.extend(counts.map(|count| count.to_string()));
        row.extend(rules.iter().map(|rule| {
            let shown = |limit: Option<u64>| limit.map_or("-".to_owned(), |l| l.to_string());
            format!("{} to {}", shown(rule.limit_before[at]), shown(rule.limit_after[at]))
        }));
        rows.push(row);
    }
    write_columns(out, &rows);
}

/// Lines of one width each column, two spaces before each.
pub(crate) fn write_columns(out: &mut String, rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (text, width) in row.iter().zip(&widths) {
            let _ = write!(line, "  {text:<width$}");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
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
