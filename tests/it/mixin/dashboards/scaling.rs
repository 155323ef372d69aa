//! Scaling: the rings while members come and go, and what moves with them.

use super::{Dashboard, Row, lines, number, q, stacked};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "scaling",
    title: "Scaling",
    about: "Members of the rings, what limits are divided by, and what moves when they change.",
    rows: &[
        Row {
            title: "Now",
            panels: &[
                number(
                    "Ingesters, healthy",
                    "ACTIVE with a fresh heartbeat: what limits of the cluster are divided by.",
                    "short",
                    &[q("max(freehold_ring_healthy_instances{@I, name=\"ingester\"})", "")],
                ),
                number(
                    "Unhealthy members",
                    "Of all rings; runbook FreeholdRingMemberUnhealthy.",
                    "short",
                    &[q(
                        "sum(max by (name, zone) (cortex_ring_members{@I, state=\"Unhealthy\"})) or vector(0)",
                        "",
                    )],
                ),
                number(
                    "Rings not fresh",
                    "Instances and rings that cannot be read; runbooks FreeholdRingStale and FreeholdRingLost.",
                    "short",
                    &[q("sum(freehold_ring_status{@I, status!=\"fresh\"})", "")],
                ),
                number(
                    "In memory and not owned",
                    "What has moved away and the heads still hold.",
                    "percentunit",
                    &[q(
                        "1 - sum(cluster_job_user:freehold_owned_series:sum{@U}) / sum(cluster_job_user:freehold_memory_series:sum{@U})",
                        "",
                    )],
                ),
            ],
        },
        Row {
            title: "Rings",
            panels: &[
                stacked(
                    "Members by state",
                    "As the instances that read the ring see it.",
                    "short",
                    &[q(
                        "max by (name, state, zone) (cortex_ring_members{@I})",
                        "{{name}} {{state}} {{zone}}",
                    )],
                ),
                lines(
                    "What limits are divided by",
                    "The lowest and the highest that instances see; apart for a moment while the ring changes.",
                    "short",
                    &[
                        q("min by (name) (freehold_ring_healthy_instances{@I})", "{{name}} lowest"),
                        q(
                            "max by (name) (freehold_ring_healthy_instances{@I})",
                            "{{name}} highest",
                        ),
                    ],
                ),
                lines(
                    "Age of the ring in force",
                    "Since it was read, or since its page was saved.",
                    "s",
                    &[q("max by (name) (freehold_ring_age_seconds{@I})", "{{name}}")],
                ),
                lines(
                    "Readings",
                    "Readings of the stored rings and those that brought none.",
                    "reqps",
                    &[
                        q("sum by (name) (rate(freehold_ring_reads_total{@I}[@R]))", "{{name}}"),
                        q(
                            "sum by (name) (rate(freehold_ring_read_failures_total{@I}[@R]))",
                            "{{name}} failed",
                        ),
                    ],
                ),
                lines(
                    "Our entries",
                    "Heartbeats written, writes that failed, members forgotten, and ids that two processes have.",
                    "reqps",
                    &[
                        q(
                            "sum by (name) (rate(cortex_member_consul_heartbeats_total{@I}[@R]))",
                            "{{name}} heartbeats",
                        ),
                        q(
                            "sum by (name) (rate(freehold_ring_write_failures_total{@I}[@R]))",
                            "{{name}} failed",
                        ),
                        q(
                            "sum by (name) (rate(freehold_ring_forgotten_total{@I}[@R]))",
                            "{{name}} forgotten",
                        ),
                        q(
                            "sum by (name) (rate(freehold_ring_id_conflicts_total{@I}[@R]))",
                            "{{name}} id conflicts",
                        ),
                    ],
                ),
                lines(
                    "Tokens",
                    "Tokens that members have, less those that they are to have: not 0 while one joins.",
                    "short",
                    &[q(
                        "sum by (name) (cortex_member_ring_tokens_to_own{@I} - cortex_member_ring_tokens_owned{@I})",
                        "{{name}} missing",
                    )],
                ),
                lines(
                    "Calls to the store",
                    "The slowest hundredth and the median.",
                    "s",
                    &[
                        q(
                            "histogram_quantile(0.99, sum by (le, operation) (rate(cortex_kv_request_duration_seconds_bucket{@I}[@R])))",
                            "{{operation}} 99 %",
                        ),
                        q(
                            "histogram_quantile(0.5, sum by (le, operation) (rate(cortex_kv_request_duration_seconds_bucket{@I}[@R])))",
                            "{{operation}} 50 %",
                        ),
                    ],
                ),
                lines(
                    "Gossip",
                    "Members that are neither dead nor gone, as each member sees them, and messages that wait. Only with memberlist.",
                    "short",
                    &[
                        q("min(memberlist_client_cluster_members_count{@I})", "members, lowest"),
                        q("max(memberlist_client_cluster_members_count{@I})", "members, highest"),
                        q(
                            "sum(memberlist_client_messages_in_broadcast_queue{@I})",
                            "messages that wait",
                        ),
                    ],
                ),
                lines(
                    "Gossip not listened to",
                    "Packets and streams by reason, and entries of rings that were left out of what others told.",
                    "short",
                    &[
                        q(
                            "sum by (reason) (rate(freehold_gossip_refused_total{@I}[@R]))",
                            "{{reason}}/s",
                        ),
                        q(
                            "sum by (reason) (rate(freehold_gossip_entries_refused_total{@I}[@R]))",
                            "entries {{reason}}/s",
                        ),
                    ],
                ),
            ],
        },
        Row {
            title: "What moves",
            panels: &[
                lines(
                    "Share of series that are owned, by instance",
                    "Falls on old instances when new ones join, and comes back as heads drop what has moved.",
                    "percentunit",
                    &[q(
                        "bottomk(20, sum by (instance) (cortex_ingester_owned_series{@I}) / sum by (instance) (freehold_ingester_memory_series{@I}))",
                        "{{instance}}",
                    )],
                ),
                lines(
                    "Owned series by instance",
                    "The fullest and the emptiest.",
                    "short",
                    &[
                        q(
                            "topk(5, sum by (instance) (cortex_ingester_owned_series{@I}))",
                            "{{instance}}",
                        ),
                        q(
                            "bottomk(5, sum by (instance) (cortex_ingester_owned_series{@I}))",
                            "{{instance}}",
                        ),
                    ],
                ),
                lines(
                    "Recounts",
                    "Tenants counted again, by what made it due.",
                    "short",
                    &[q(
                        "sum by (reason) (rate(freehold_ingester_recounts_total{@I}[@R]))",
                        "{{reason}}",
                    )],
                ),
                lines(
                    "How long a pass with recounts took",
                    "The last one of each instance.",
                    "s",
                    &[q("max(freehold_ingester_recount_duration_seconds{@I})", "slowest")],
                ),
                lines(
                    "Series that are not ours",
                    "Created although the ring does not assign them to the instance: a few while the ring moves, more when settings differ.",
                    "short",
                    &[
                        q(
                            "topk(20, sum by (instance) (rate(freehold_ingester_series_created_not_owned_total{@T}[@R])))",
                            "{{instance}}/s",
                        ),
                        q("sum(freehold_ingester_ring_mismatch{@I})", "instances with a mismatch"),
                    ],
                ),
                lines(
                    "Limits held",
                    "Tenants whose limit of before is held until their series are counted again.",
                    "short",
                    &[q(
                        "count by (instance) (freehold_ingester_series_limit{@T, reason=\"held\"}) or vector(0)",
                        "{{instance}}",
                    )],
                ),
            ],
        },
    ],
};
