//! What the change does to one tenant, under each of four rules.
//!
//! Cortex compares a limit with what is in memory; we can compare it with what is owned, and
//! divide it flat or by share. Whom a rule refuses follows from two numbers per instance at the
//! join, its count and its limit.
//!
//! A new series is refused to its sender when more of its replicas refuse than may fail. If new
//! series arrive evenly, an instance with room for `h` of the `n` that come its way is full once
//! `h / n` of them have come; so a key is refused from the moment when one more of its replicas
//! than may fail is full.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::growth::Growth;
use super::holding::Holding;
use super::input::TenantCount;
use crate::limits::{Limits, LocalLimit, LocalLimits, NO_LIMIT, Shape};
use crate::ring::RingSnapshot;
use crate::series::head::{BLOCK_RANGE_MS, Head, HeadRule};
use crate::units::shard_size;

/// A head is looked at once a minute, as Cortex does.
const HEAD_LOOK_MS: i64 = 60 * 1000;

/// What the outlooks of all tenants have in common, beside the rings.
pub(super) struct Rules {
    pub(super) shard_by_all_labels: bool,
    pub(super) shuffle_sharding: bool,
    /// Series that each tenant creates between the join and the heads' cut.
    pub(super) new_series: u64,
    pub(super) at_ms: i64,
}

/// Both rings, with the holdings of those tenants that use the whole of them.
pub(super) struct Before<'a> {
    growth: &'a Growth,
    whole: Option<Arc<[Holding; 2]>>,
}

/// A tenant before, at the join and after.
#[derive(Debug, Serialize)]
pub(super) struct Outlook {
    pub(super) tenant: String,
    pub(super) series: u64,
    pub(super) global_limit: i64,
    pub(super) local_limit: i64,
    /// 0 is the whole ring.
    pub(super) shard_size: i64,
    /// How long the heads hold what has moved away.
    pub(super) held_ms: i64,
    pub(super) instances: Vec<InstanceCounts>,
    pub(super) rules: Vec<RuleOutlook>,
}

/// Series of the tenant on an instance.
#[derive(Debug, Serialize)]
pub(super) struct InstanceCounts {
    pub(super) id: String,
    pub(super) before: u64,
    /// In memory once what moved has been written to where it belongs now.
    pub(super) in_memory_at_join: u64,
    /// Owned from the join on, and in memory after the cut.
    pub(super) after: u64,
}

/// The count that a limit is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Counted {
    InMemory,
    Owned,
}

/// How a limit of the cluster becomes one of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Divided {
    Flat,
    Share,
}

/// Why series are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    /// Nobody refuses.
    None,
    /// The heads still hold what has moved away.
    Head,
    /// Some instances hold more than an even part.
    Imbalance,
    /// The tenant has as many series as it may.
    TenantAtLimit,
}

#[derive(Debug, Serialize)]
pub(super) struct RuleOutlook {
    pub(super) counted: Counted,
    pub(super) divided: Divided,
    /// By instance, in the order of the instances; `None` where no limit applies.
    pub(super) limit_before: Vec<Option<u64>>,
    pub(super) limit_after: Vec<Option<u64>>,
    /// Instances that refuse every new series.
    pub(super) refusing_at_join: usize,
    pub(super) refusing_after: usize,
    /// Series beyond the limits at the join, over all instances.
    pub(super) over_at_join: u64,
    /// Part of the new series that is refused to their senders until the cut.
    pub(super) refused_part: f64,
    /// The same of `--new-series`.
    pub(super) refused_series: u64,
    /// `None`: nothing is refused, or it does not end with the cut.
    pub(super) lasts_ms: Option<i64>,
    pub(super) cause: Cause,
}

impl<'a> Before<'a> {
    pub(super) fn new(growth: &'a Growth) -> Self {
        Self { growth, whole: None }
    }

    /// What is held before and after, of the whole ring or of the tenant's shard.
    fn holdings(&mut self, tenant: &str, sizes: [i64; 2]) -> Arc<[Holding; 2]> {
        let rings = [&self.growth.before, &self.growth.after];
        let make = |sizes: [i64; 2]| {
            let [before, after] = [0, 1].map(|at| Holding::new(rings[at], tenant, sizes[at]));
            Arc::new([before, after])
        };
        if sizes != [0, 0] {
            return make(sizes);
        }
        Arc::clone(self.whole.get_or_insert_with(|| make(sizes)))
    }
}

impl Outlook {
    pub(super) fn new(
        before: &mut Before<'_>,
        count: &TenantCount,
        limits: &Limits,
        rules: &Rules,
    ) -> Self {
        let growth = before.growth;
        let rings = [&growth.before, &growth.after];
        let configured =
            if rules.shuffle_sharding { limits.ingestion_tenant_shard_size } else { 0.0 };
        let sizes = rings.map(|ring| shard_size(configured, ring.members().len()).max(0));
        let holdings = before.holdings(count.tenant.as_str(), sizes);
        let [held_before, held_after] = &*holdings;

        // Who has gone has nothing more to refuse.
        let ids: Vec<Arc<str>> = held_after.members().cloned().collect();
        let series_of = |share: f64| (count.series * share).round() as u64;
        let instances: Vec<_> = ids
            .iter()
            .map(|id| InstanceCounts {
                id: id.to_string(),
                before: series_of(held_before.share(id)),
                in_memory_at_join: series_of(held_before.share_of_both(held_after, id)),
                after: series_of(held_after.share(id)),
            })
            .collect();
        let held_ms = held_ms(rules.at_ms);
        let tenant = Tenant { ids: &ids, instances: &instances, holdings: &holdings, rings };
        let mut outlooks = Vec::new();
        for counted in [Counted::InMemory, Counted::Owned] {
            for divided in [Divided::Flat, Divided::Share] {
                let shape = |ring: usize, id: &str| {
                    shape(rings[ring], &holdings[ring], id, divided, configured, rules)
                };
                let limit =
                    |ring: usize, id: &str| LocalLimits::new(limits, &shape(ring, id)).series;
                let mut outlook = tenant.rule(counted, divided, limit, rules.new_series);
                outlook.lasts_ms = (outlook.cause == Cause::Head).then_some(held_ms);
                let global = limits.max_global_series_per_user;
                if outlook.cause == Cause::Imbalance && global > 0 && count.series >= global as f64
                {
                    outlook.cause = Cause::TenantAtLimit;
                }
                outlooks.push(outlook);
            }
        }
        Self {
            tenant: count.tenant.to_string(),
            series: count.series.round() as u64,
            global_limit: limits.max_global_series_per_user,
            local_limit: limits.max_series_per_user,
            shard_size: sizes[1],
            held_ms,
            instances,
            rules: outlooks,
        }
    }

    /// By the harshest rule.
    pub(super) fn refused_most(&self) -> f64 {
        self.rules.iter().map(|rule| rule.refused_part).fold(0.0, f64::max)
    }

    /// By one rule.
    pub(super) fn refused_part(&self, counted: Counted, divided: Divided) -> f64 {
        let is_asked = |rule: &&RuleOutlook| (rule.counted, rule.divided) == (counted, divided);
        self.rules.iter().find(is_asked).map_or(0.0, |rule| rule.refused_part)
    }
}

/// One tenant on both rings.
struct Tenant<'a> {
    ids: &'a [Arc<str>],
    instances: &'a [InstanceCounts],
    holdings: &'a [Holding; 2],
    rings: [&'a RingSnapshot; 2],
}

impl Tenant<'_> {
    fn rule(
        &self,
        counted: Counted,
        divided: Divided,
        limit: impl Fn(usize, &str) -> LocalLimit,
        new_series: u64,
    ) -> RuleOutlook {
        let is_new = |id: &str| self.rings[0].member_index(id).is_none();
        let shown = |limit: LocalLimit| (limit.0 < NO_LIMIT).then(|| limit.most());
        let mut outlook = RuleOutlook {
            counted,
            divided,
            limit_before: Vec::with_capacity(self.ids.len()),
            limit_after: Vec::with_capacity(self.ids.len()),
            refusing_at_join: 0,
            refusing_after: 0,
            over_at_join: 0,
            refused_part: 0.0,
            refused_series: 0,
            lasts_ms: None,
            cause: Cause::None,
        };
        let mut full_at = HashMap::with_capacity(self.ids.len());
        for (id, counts) in self.ids.iter().zip(self.instances) {
            let (before, after) = (limit(0, id), limit(1, id));
            outlook.limit_before.push(if is_new(id) { None } else { shown(before) });
            outlook.limit_after.push(shown(after));
            let at_join = match counted {
                Counted::InMemory => counts.in_memory_at_join,
                Counted::Owned => counts.after,
            };
            outlook.refusing_at_join += usize::from(after.is_reached_by(at_join));
            outlook.refusing_after += usize::from(after.is_reached_by(counts.after));
            outlook.over_at_join += at_join.saturating_sub(after.most());
            let comes = new_series as f64 * self.holdings[1].share(id);
            full_at.insert(Arc::clone(id), full_at_part(after, at_join, comes));
        }
        outlook.refused_part = self.refused_part(&full_at);
        outlook.refused_series = (new_series as f64 * outlook.refused_part).round() as u64;
        outlook.cause = match (outlook.refused_part > 0.0, outlook.refusing_after) {
            (false, 0) if outlook.refusing_at_join == 0 => Cause::None,
            (_, 0) => Cause::Head,
            _ => Cause::Imbalance,
        };
        outlook
    }

    /// Part of the new series that too many of their replicas refuse.
    fn refused_part(&self, full_at: &HashMap<Arc<str>, f64>) -> f64 {
        if full_at.values().all(|&part| part >= 1.0) {
            return 0.0;
        }
        let mut refused = 0.0;
        let mut parts = Vec::new();
        for replicas in self.holdings[1].replicas() {
            parts.clear();
            let full = |id| full_at.get(id).copied().unwrap_or(1.0);
            parts.extend(replicas.members.iter().map(full));
            parts.sort_by(f64::total_cmp);
            let refused_from = parts.get(replicas.max_errors).copied().unwrap_or(1.0);
            refused += replicas.part * (1.0 - refused_from);
        }
        refused
    }
}

/// The part of the new series after which an instance refuses: 0 from the start, 1 never.
fn full_at_part(limit: LocalLimit, count: u64, comes: f64) -> f64 {
    let room = limit.most().saturating_sub(count);
    match (room, comes) {
        (0, _) => 0.0,
        (room, comes) if comes > room as f64 => room as f64 / comes,
        _ => 1.0,
    }
}

fn shape(
    ring: &RingSnapshot,
    holding: &Holding,
    id: &str,
    divided: Divided,
    shard_size: f64,
    rules: &Rules,
) -> Shape {
    Shape {
        // As where nobody is healthy: we ourselves serve.
        healthy_instances: ring.healthy_count().max(1),
        zones_count: ring.zones().len(),
        zone_awareness: ring.settings().zone_awareness_enabled,
        replication_factor: ring.settings().replication_factor,
        shard_by_all_labels: rules.shard_by_all_labels,
        shard_size,
        share: (divided == Divided::Share).then(|| holding.share(id)),
    }
}

/// How long a head holds a series whose last sample here came at `at_ms`.
///
/// The head of a tenant that writes all the time is run through the rule that running heads
/// follow, from well before the join to the cut that lies behind it.
pub(super) fn held_ms(at_ms: i64) -> i64 {
    let mut head = Head::new(HeadRule::default());
    let mut t_ms = at_ms.saturating_sub(4 * BLOCK_RANGE_MS);
    loop {
        head.appended(t_ms, t_ms, t_ms);
        while let Some(cut) = head.due(t_ms) {
            head.cut(cut.before_ms, Some(cut.before_ms));
            if cut.before_ms > at_ms {
                return t_ms - at_ms;
            }
        }
        t_ms += HEAD_LOOK_MS;
    }
}
