//! What others may see of the ingester: figures of tenants, for pages and for `UserStats`.

use crate::clock::Now;
use crate::ingester::Ingester;
use crate::ingester::standing::Unknown;
use crate::ingester::tenants::Tenant;
use crate::limits::NO_LIMIT;
use crate::series::{Basis, Counts, InForce, LimitName, Tick};
use crate::tenant::TenantId;

/// A tenant's figures as Cortex's `UserStats` tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UserStats {
    pub ingestion_rate: f64,
    pub series: u64,
    pub api_ingestion_rate: f64,
    pub rule_ingestion_rate: f64,
    pub active_series: u64,
}

/// A tenant's counts beside the limit that acts on them.
#[derive(Clone, Debug)]
pub struct TenantView {
    pub tenant: TenantId,
    pub counts: Counts,
    pub basis: Basis,
    /// Local limit on series in force; `None` where there is none.
    pub limit: Option<u64>,
    pub in_force: InForce,
    /// Limit of the cluster, 0 for none.
    pub global_limit: i64,
    /// Limit set for each instance by itself, 0 for none.
    pub local_limit: i64,
    /// Samples refused by any limit on series, since the tenant came.
    pub refused_samples_total: u64,
    pub instances: usize,
    pub replication_factor: usize,
    pub share: f64,
    pub unknown: Option<Unknown>,
}

impl TenantView {
    /// The count that the limit acts on.
    pub fn used(&self) -> u64 {
        self.counts.series.by(self.basis)
    }

    /// Series that may still come; negative after an operator's cut.
    pub fn headroom(&self) -> Option<i64> {
        headroom(self.limit, self.used())
    }
}

pub(super) fn headroom(limit: Option<u64>, used: u64) -> Option<i64> {
    let limit = i64::try_from(limit?).unwrap_or(i64::MAX);
    Some(limit.saturating_sub(i64::try_from(used).unwrap_or(i64::MAX)))
}

impl Ingester {
    pub fn user_stats(&self, id: &TenantId) -> UserStats {
        self.tenants.visit(id).map_or_else(UserStats::default, |tenant| stats(&tenant))
    }

    /// Tenants with series, most series first, as Cortex lists them.
    pub fn all_user_stats(&self) -> Vec<(TenantId, UserStats)> {
        let tenants = self.tenants.all();
        let mut all: Vec<_> =
            tenants.iter().map(|tenant| (tenant.id.clone(), stats(tenant))).collect();
        all.sort_by(|(a_id, a), (b_id, b)| b.series.cmp(&a.series).then(a_id.cmp(b_id)));
        all
    }

    /// Whether active counts are still filling up after a start: a series is active only once
    /// something has touched it in this process.
    pub fn is_active_count_loading(&self, now: Now) -> bool {
        u128::try_from(now.steady_ns).is_ok_and(|up_ns| {
            up_ns < self.config.active_series_metrics_idle_timeout.as_duration().as_nanos()
        })
    }

    /// Every tenant with its limit in force, by name.
    pub fn tenant_views(&self, now: Now) -> Vec<TenantView> {
        let tenants = self.tenants.all();
        let mut views: Vec<_> =
            tenants.iter().map(|tenant| self.tenant_view(tenant, now)).collect();
        views.sort_by(|a, b| a.tenant.cmp(&b.tenant));
        views
    }

    pub(super) fn tenant_view(&self, tenant: &Tenant, now: Now) -> TenantView {
        let standing = tenant.standing.load();
        let (limit, in_force) = self.limit_in_force(tenant, now);
        TenantView {
            tenant: tenant.id.clone(),
            counts: tenant.series.counts(),
            basis: self.basis(),
            limit,
            in_force,
            global_limit: standing.limits.max_global_series_per_user,
            local_limit: standing.limits.max_series_per_user,
            refused_samples_total: tenant.counters.refused_by_series_limits(),
            instances: standing.shape.healthy_instances,
            replication_factor: standing.shape.replication_factor,
            share: standing.share,
            unknown: standing.unknown,
        }
    }

    /// The local limit on a tenant's series, `None` where there is none, and what gave it its
    /// number.
    pub(super) fn limit_in_force(&self, tenant: &Tenant, now: Now) -> (Option<u64>, InForce) {
        let tick = Tick::new(now.steady_s());
        let limit = tenant.series.limit(LimitName::Series, self.basis(), tick);
        ((limit.max < NO_LIMIT as u64).then_some(limit.max), limit.in_force)
    }
}

fn stats(tenant: &Tenant) -> UserStats {
    let counts = tenant.series.counts();
    let (api, rule) = (tenant.api_rate.rate(), tenant.rule_rate.rate());
    UserStats {
        ingestion_rate: api + rule,
        series: counts.series.in_memory,
        api_ingestion_rate: api,
        rule_ingestion_rate: rule,
        active_series: counts.active,
    }
}
