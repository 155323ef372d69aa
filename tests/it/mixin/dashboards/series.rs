//! Series and ownership: what counts against which limit.

use super::{Dashboard, Row, lines, number, q, stacked, table};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "series",
    title: "Series and ownership",
    about: "Series in memory, active and owned; limits in force and how near tenants are to them.",
    rows: &[
        Row {
            title: "Now",
            panels: &[
                number(
                    "In memory",
                    "Series in memory of all instances, replicas included.",
                    "short",
                    &[q("sum(cluster_job_user:freehold_memory_series:sum{@U})", "")],
                ),
                number(
                    "Owned",
                    "Those that the ring assigns to the instance which holds them.",
                    "short",
                    &[q("sum(cluster_job_user:freehold_owned_series:sum{@U})", "")],
                ),
                number(
                    "Nearest to its limit",
                    "The highest use of a limit by any tenant on any instance.",
                    "percentunit",
                    &[q("max(cluster_job_user:freehold_series_used:ratio_max{@U})", "")],
                ),
                number(
                    "Tenants above 80 %",
                    "Runbook FreeholdTenantNearSeriesLimit.",
                    "short",
                    &[q(
                        "count(cluster_job_user:freehold_series_used:ratio_max{@U} > 0.8) or vector(0)",
                        "",
                    )],
                ),
                number(
                    "New series refused",
                    "Samples per second of series that a limit does not let in.",
                    "wps",
                    &[q(
                        "sum(cluster_job_user_reason:freehold_series_refused:rate5m{@U}) or vector(0)",
                        "",
                    )],
                ),
                number(
                    "Ownership unknown",
                    "Instances on which limits act on the in-memory count.",
                    "short",
                    &[q(
                        "count(max by (cluster, job, instance) (freehold_ingester_ownership_unknown{@T}) == 1) or vector(0)",
                        "",
                    )],
                ),
            ],
        },
        Row {
            title: "Tenants",
            panels: &[
                lines(
                    "Nearest to their limits",
                    "Use of the limit in force, on the fullest instance.",
                    "percentunit",
                    &[q(
                        "topk(20, cluster_job_user:freehold_series_used:ratio_max{@U})",
                        "{{user}}",
                    )],
                ),
                table(
                    "The same as a table",
                    "Now; the page /tenants of an instance says why a limit is what it is.",
                    "percentunit",
                    &[q("topk(100, cluster_job_user:freehold_series_used:ratio_max{@U})", "")],
                ),
                lines(
                    "Most owned series",
                    "Sum over instances: series times replication factor.",
                    "short",
                    &[q("topk(20, cluster_job_user:freehold_owned_series:sum{@U})", "{{user}}")],
                ),
                lines(
                    "New series refused",
                    "By tenant and limit.",
                    "wps",
                    &[q(
                        "topk(20, cluster_job_user_reason:freehold_series_refused:rate5m{@U}) or vector(0)",
                        "{{user}} {{reason}}",
                    )],
                ),
            ],
        },
        Row {
            title: "Counts and limits by instance (choose a tenant above)",
            panels: &[
                lines(
                    "Series that count, and the limit",
                    "What the limit in force is compared with on each instance, and that limit.",
                    "short",
                    &[
                        q(
                            "topk(20, sum by (instance) (freehold_ingester_series_against_limit{@T}))",
                            "{{instance}} counts",
                        ),
                        q(
                            "topk(20, sum by (instance, reason) (freehold_ingester_series_limit{@T}))",
                            "{{instance}} limit ({{reason}})",
                        ),
                    ],
                ),
                lines(
                    "In memory, active, owned",
                    "Owned may exceed active: a series limit bounds what is stored.",
                    "short",
                    &[
                        q("sum(freehold_ingester_memory_series{@T})", "in memory"),
                        q("sum(cortex_ingester_active_series{@T})", "active"),
                        q("sum(cortex_ingester_owned_series{@T})", "owned"),
                        q("sum(freehold_ingester_pending_series{@T})", "outcome not known"),
                    ],
                ),
                lines(
                    "Created and removed",
                    "Removed ones leave in leaps, as the head is cut.",
                    "short",
                    &[
                        q(
                            "sum(rate(cortex_ingester_memory_series_created_total{@T}[@R]))",
                            "created/s",
                        ),
                        q(
                            "sum(rate(cortex_ingester_memory_series_removed_total{@T}[@R]))",
                            "removed/s",
                        ),
                    ],
                ),
                lines(
                    "Beyond the limit",
                    "Series above the limit in force, as after an operator's cut; known series go on.",
                    "short",
                    &[q(
                        "topk(20, sum by (user) (freehold_ingester_series_over_limit{@T}))",
                        "{{user}}",
                    )],
                ),
                stacked(
                    "Where limits come from",
                    "Limits in force by what gave them their number: flat, share, held until the recount.",
                    "short",
                    &[q("count by (reason) (freehold_ingester_series_limit{@T})", "{{reason}}")],
                ),
                lines(
                    "Native histograms owned",
                    "Native histogram series assigned to the instances that hold them.",
                    "short",
                    &[q(
                        "topk(20, sum by (user) (freehold_ingester_owned_native_histogram_series{@T}))",
                        "{{user}}",
                    )],
                ),
                lines(
                    "Shadow",
                    "With -ingester.owned-series-shadow-enabled: refusals that enforcing would have spared, and series that it would have refused.",
                    "short",
                    &[
                        q(
                            "sum(rate(freehold_ingester_shadow_admitted_total{@T}[@R]))",
                            "would have been admitted/s",
                        ),
                        q(
                            "sum(rate(freehold_ingester_shadow_refused_total{@T}[@R]))",
                            "would have been refused/s",
                        ),
                    ],
                ),
                lines(
                    "Instances that load",
                    "After a start: in_memory until the series of before are known, active until the idle timeout has passed.",
                    "short",
                    &[q("sum by (count) (freehold_ingester_loading{@I})", "{{count}}")],
                ),
            ],
        },
        Row {
            title: "Beside a Cortex ingester",
            panels: &[
                lines(
                    "Series upstream",
                    "In the heads of the ingesters behind sidecars, and those that no listing names (residue).",
                    "short",
                    &[
                        q("sum(freehold_ingester_upstream_series{@T})", "upstream"),
                        q("sum(freehold_ingester_memory_series{@T})", "ours"),
                        q("sum(freehold_ingester_upstream_residue_series{@T})", "residue"),
                    ],
                ),
                lines(
                    "Drift",
                    "Series upstream beyond ours and the residue; a listing settles what lasts.",
                    "short",
                    &[q(
                        "topk(20, max by (instance, user) (abs(freehold_ingester_upstream_drift_series{@T})))",
                        "{{instance}} {{user}}",
                    )],
                ),
                lines(
                    "Polls and listings",
                    "Polls of the upstream's series, and listings of a tenant's series by reason.",
                    "reqps",
                    &[
                        q("sum(rate(freehold_ingester_upstream_polls_total{@I}[@R]))", "polls"),
                        q(
                            "sum(rate(freehold_ingester_upstream_poll_failures_total{@I}[@R]))",
                            "polls that failed",
                        ),
                        q(
                            "sum by (reason) (rate(freehold_ingester_upstream_listings_total{@I}[@R]))",
                            "listings: {{reason}}",
                        ),
                        q(
                            "sum(rate(freehold_ingester_upstream_listing_failures_total{@I}[@R]))",
                            "listings that failed",
                        ),
                    ],
                ),
                lines(
                    "Falls of the head",
                    "Falls of a tenant's series upstream, and whether a cut of its head explains them.",
                    "short",
                    &[q(
                        "sum by (explained) (increase(freehold_ingester_upstream_drops_total{@I}[@R]))",
                        "{{explained}}",
                    )],
                ),
            ],
        },
    ],
};
