//! What a tenant's limit here would be, were it another one or the cluster another size.
//!
//! The very arithmetic that limits in force come from, on a standing that is changed. How many
//! series would then be ours is an expectation: a ring of another size hands keys out evenly, so
//! our share of them changes with the number that share them. `freehold plan` simulates the ring
//! itself and tells each instance's part.

use crate::ingester::standing::Standing;
use crate::limits::{Limits, LocalLimit, LocalLimits, NO_LIMIT, Shape};
use crate::series::Count;

/// Most instances that are asked about, as `freehold plan` simulates.
pub const INSTANCES_MAX: usize = 10_000;

/// What is to be different; `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Series of the tenant in the cluster, before replication; 0 is no limit.
    pub global_limit: Option<i64>,
    /// ACTIVE ones with a fresh heartbeat.
    pub instances: Option<usize>,
}

/// What would follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhatIf {
    pub global_limit: i64,
    pub instances: usize,
    /// Our share of the tenant's key space, as is to be expected.
    pub share: f64,
    /// `None` where there would be none.
    pub limit: Option<u64>,
    /// At once, and by Cortex's rule until the head drops what has moved: all that is in memory.
    pub in_memory: Outcome,
    /// Counted by ownership: what would be ours.
    pub owned: Outcome,
}

/// A count against the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub count: u64,
    /// Series that could still come; `None` without a limit.
    pub headroom: Option<i64>,
    /// New series would be refused.
    pub refuses: bool,
}

impl WhatIf {
    pub fn new(standing: &Standing, count: Count, asked: Asked) -> Self {
        let limits = Limits {
            max_global_series_per_user: asked
                .global_limit
                .unwrap_or(standing.limits.max_global_series_per_user),
            ..Limits::clone(&standing.limits)
        };
        let before = &standing.shape;
        let instances = asked.instances.unwrap_or(before.healthy_instances);
        let after = Shape { healthy_instances: instances, ..*before };
        let (share, owned) = expected(standing, count, before, &after);
        let shape = Shape { share: before.share.map(|_| share), ..after };
        let local = LocalLimits::new(&limits, &shape).series;
        Self {
            global_limit: limits.max_global_series_per_user,
            instances,
            share,
            limit: (local.0 < NO_LIMIT).then(|| local.most()),
            in_memory: Outcome::new(local, count.in_memory),
            owned: Outcome::new(local, owned),
        }
    }
}

impl Outcome {
    fn new(limit: LocalLimit, count: u64) -> Self {
        let signed = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let headroom = signed(limit.most()).saturating_sub(signed(count));
        Self {
            count,
            headroom: (limit.0 < NO_LIMIT).then_some(headroom),
            refuses: limit.is_reached_by(count),
        }
    }
}

/// Our share and our series after a change of the number of instances.
fn expected(standing: &Standing, count: Count, before: &Shape, after: &Shape) -> (f64, u64) {
    let [had, has] = [before, after].map(|shape| shape.instances_of_tenant().max(1) as f64);
    // While it is not known what is ours, nobody knows what will be.
    if had == has || standing.unknown.is_some() || standing.share <= 0.0 {
        return (standing.share, count.owned);
    }
    let share = (standing.share * (had / has)).min(1.0);
    (share, (count.owned as f64 * share / standing.share).round() as u64)
}

#[cfg(all(test, not(feature = "model")))]
mod tests;
