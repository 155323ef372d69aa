//! Recording rules: sums over tenants and instances that alerts and dashboards ask for again and
//! again. With 10,000 tenants on 600 instances the raw series are six million.

pub struct Rule {
    /// `labels:metric:operation`
    pub name: &'static str,
    pub expr: &'static str,
}

pub const RECORDED: &[Rule] = &[
    Rule {
        name: "cluster_job_user:freehold_series_used:ratio_max",
        expr: "\
max by (cluster, job, user) (
  freehold_ingester_series_against_limit
    / on (cluster, job, instance, user)
  max by (cluster, job, instance, user) (freehold_ingester_series_limit)
)",
    },
    Rule {
        name: "cluster_job_user_reason:freehold_series_refused:rate5m",
        expr: "\
sum by (cluster, job, user, reason) (
  rate(cortex_discarded_samples_total{reason=~\"per_(user|metric|labelset)_.*\"}[5m])
    * on (cluster, job, instance) group_left ()
  freehold_build_info
)",
    },
    Rule {
        name: "cluster_job_user:freehold_owned_series:sum",
        expr: "sum by (cluster, job, user) (cortex_ingester_owned_series)",
    },
    Rule {
        name: "cluster_job_user:freehold_memory_series:sum",
        expr: "sum by (cluster, job, user) (freehold_ingester_memory_series)",
    },
];
