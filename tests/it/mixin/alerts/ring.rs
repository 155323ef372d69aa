//! The rings: whether they are read, who is in them, and whether they are the distributors' too.

use super::{Alert, Case, Fired, Severity};

pub const ALERTS: &[Alert] = &[
    Alert {
        name: "FreeholdRingStale",
        severity: Severity::Warning,
        hold_m: 2,
        expr: "\
freehold_ring_age_seconds
and on (cluster, job, instance, name) freehold_ring_status{status=\"stale\"} == 1",
        summary: "{{ $labels.instance }} cannot read the ring {{ $labels.name }}; the one in \
                  force is {{ $value | humanizeDuration }} old.",
        means: "The last good ring stays in force for ten minutes; after that ownership is \
                unknown.",
        cases: &[
            Case {
                what: "the store is gone for eight minutes",
                series: &[
                    (r#"freehold_ring_age_seconds{$A, name="ingester"}"#, "5+0x10 60+60x60"),
                    (
                        r#"freehold_ring_status{$A, name="ingester", status="fresh"}"#,
                        "1+0x10 0+0x60",
                    ),
                    (
                        r#"freehold_ring_status{$A, name="ingester", status="stale"}"#,
                        "0+0x10 1+0x60",
                    ),
                    (r#"freehold_ring_write_failures_total{$A, name="ingester"}"#, "0+0x10 1+4x60"),
                ],
                at_m: 18,
                expect: &[Fired {
                    labels: r#"$A, name="ingester""#,
                    summary: "a cannot read the ring ingester; the one in force is 8m 0s old.",
                }],
            },
            Case {
                what: "one reading that failed",
                series: &[
                    (r#"freehold_ring_age_seconds{$A, name="ingester"}"#, "5+0x60"),
                    (
                        r#"freehold_ring_status{$A, name="ingester", status="stale"}"#,
                        "0+0x10 1 0+0x60",
                    ),
                ],
                at_m: 12,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdRingLost",
        severity: Severity::Critical,
        hold_m: 5,
        expr: "\
max by (cluster, job, instance, name, status) (freehold_ring_status{status=~\"expired|unread\"})
== 1",
        summary: "The ring {{ $labels.name }} of {{ $labels.instance }} is {{ $labels.status }}.",
        means: "Limits act on what is in memory, or nobody knows who keeps which budget.",
        cases: &[
            Case {
                what: "the store has been gone for too long",
                series: &[
                    (
                        r#"freehold_ring_status{$A, name="ingester", status="stale"}"#,
                        "1+0x10 0+0x60",
                    ),
                    (
                        r#"freehold_ring_status{$A, name="ingester", status="expired"}"#,
                        "0+0x10 1+0x60",
                    ),
                    (r#"freehold_ingester_ownership_unknown{$A, user="team"}"#, "0+0x10 1+0x60"),
                ],
                at_m: 25,
                expect: &[Fired {
                    labels: r#"$A, name="ingester", status="expired""#,
                    summary: "The ring ingester of a is expired.",
                }],
            },
            Case {
                what: "not read yet, just after a start",
                series: &[(
                    r#"freehold_ring_status{$A, name="ingester", status="unread"}"#,
                    "1+0x2 0+0x60",
                )],
                at_m: 6,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdRingOld",
        severity: Severity::Warning,
        hold_m: 5,
        expr: "\
freehold_ring_age_seconds > 300
unless on (cluster, job, instance, name) freehold_ring_status{status=~\"stale|expired|unread\"} == 1",
        summary: "The ring {{ $labels.name }} of {{ $labels.instance }} is \
                  {{ $value | humanizeDuration }} old, although it can be read.",
        means: "A file or page with the ring is not kept fresh: members that came or went since \
                are not known, and limits are divided by the wrong number.",
        cases: &[
            Case {
                what: "a saved page that nobody refreshes",
                series: &[
                    (r#"freehold_ring_age_seconds{$A, name="ingester"}"#, "0+60x60"),
                    (r#"freehold_ring_status{$A, name="ingester", status="fresh"}"#, "1+0x60"),
                    (r#"freehold_ring_status{$A, name="ingester", status="stale"}"#, "0+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$A, name="ingester""#,
                    summary: "The ring ingester of a is 20m 0s old, although it can be read.",
                }],
            },
            Case {
                what: "a quiet ring that is read every five seconds",
                series: &[(r#"freehold_ring_age_seconds{$A, name="ingester"}"#, "5+0x60")],
                at_m: 40,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdRingMemberUnhealthy",
        severity: Severity::Warning,
        hold_m: 15,
        expr: "\
max by (cluster, job, name, zone) (
  cortex_ring_members{state=\"Unhealthy\"}
    * on (cluster, job, instance) group_left ()
  freehold_build_info
) > 0",
        summary: "{{ $value }} members of the ring {{ $labels.name }} have sent no heartbeat for \
                  longer than the timeout.",
        means: "They keep their keys, so their series have a replica less, and limits are \
                divided by fewer instances.",
        cases: &[
            Case {
                what: "two hosts are gone and nobody has forgotten them",
                series: &[
                    (
                        r#"cortex_ring_members{$A, name="ingester", state="Unhealthy", zone="z1"}"#,
                        "2+0x60",
                    ),
                    (
                        r#"cortex_ring_members{$B, name="ingester", state="Unhealthy", zone="z1"}"#,
                        "2+0x60",
                    ),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$C, name="ingester", zone="z1""#,
                    summary: "2 members of the ring ingester have sent no heartbeat for longer \
                              than the timeout.",
                }],
            },
            Case {
                what: "a gate that was killed and forgotten after five minutes",
                series: &[(
                    r#"cortex_ring_members{$A, name="distributor", state="Unhealthy", zone=""}"#,
                    "_x5 1+0x5 stale",
                )],
                at_m: 20,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdRingIdConflict",
        severity: Severity::Critical,
        hold_m: 0,
        expr: "\
sum by (cluster, job, instance, name) (increase(freehold_ring_id_conflicts_total[15m])) > 0",
        summary: "Another process has the id of {{ $labels.instance }} in the ring \
                  {{ $labels.name }}: {{ $value | printf \"%.0f\" }} conflicts in 15 minutes.",
        means: "Each of the two takes whole what the ring shares out: rates and budgets are \
                given twice.",
        cases: &[
            Case {
                what: "two hosts with one name",
                series: &[(
                    r#"freehold_ring_id_conflicts_total{$A, name="distributor"}"#,
                    "0+0x10 2+0x60",
                )],
                at_m: 15,
                expect: &[Fired {
                    labels: r#"$A, name="distributor""#,
                    summary: "Another process has the id of a in the ring distributor: 2 \
                              conflicts in 15 minutes.",
                }],
            },
            Case {
                what: "a conflict of yesterday",
                series: &[(
                    r#"freehold_ring_id_conflicts_total{$A, name="distributor"}"#,
                    "3+0x60",
                )],
                at_m: 30,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdRingWritesFail",
        severity: Severity::Warning,
        hold_m: 10,
        expr: "\
sum by (cluster, job, instance, name) (rate(freehold_ring_write_failures_total[5m]))
> on (cluster, job, instance, name)
sum by (cluster, job, instance, name) (rate(cortex_member_consul_heartbeats_total[5m]))
unless on (cluster, job, instance, name) freehold_ring_status{status=~\"stale|expired|unread\"} == 1",
        summary: "{{ $labels.instance }} fails to write its entry to the ring {{ $labels.name }}, \
                  which it can read, {{ $value | printf \"%.2f\" }} times a second.",
        means: "Once its heartbeat is too old others call it unhealthy: limits are divided by \
                fewer, and its budgets get new owners.",
        cases: &[
            Case {
                what: "a user that may read and not write",
                series: &[
                    (r#"freehold_ring_write_failures_total{$A, name="ingester"}"#, "0+12x60"),
                    (r#"cortex_member_consul_heartbeats_total{$A, name="ingester"}"#, "30+0x60"),
                    (r#"freehold_ring_status{$A, name="ingester", status="fresh"}"#, "1+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$A, name="ingester""#,
                    summary: "a fails to write its entry to the ring ingester, which it can read, \
                              0.20 times a second.",
                }],
            },
            Case {
                what: "some writes that lose races, and more that do not",
                series: &[
                    (r#"freehold_ring_write_failures_total{$A, name="ingester"}"#, "0+4x60"),
                    (r#"cortex_member_consul_heartbeats_total{$A, name="ingester"}"#, "0+8x60"),
                ],
                at_m: 30,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdRingMismatch",
        severity: Severity::Critical,
        hold_m: 1,
        expr: "\
sum by (cluster, job, instance) (rate(freehold_ingester_series_created_not_owned_total[5m]))
and on (cluster, job, instance) freehold_ingester_ring_mismatch == 1",
        summary: "{{ $labels.instance }} gets {{ $value | printf \"%.1f\" }} new series/s that \
                  the ring does not assign to it.",
        means: "Its settings and the distributors' differ, so limits act on what is in memory \
                until it ends.",
        cases: &[
            Case {
                what: "another replication factor",
                series: &[
                    (
                        r#"freehold_ingester_series_created_not_owned_total{$A, user="team"}"#,
                        "0+600x60",
                    ),
                    (r#"freehold_ingester_ring_mismatch{$A}"#, "0+0x5 1+0x60"),
                    (r#"freehold_ingester_ownership_unknown{$A, user="team"}"#, "0+0x5 1+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a gets 10.0 new series/s that the ring does not assign to it.",
                }],
            },
            Case {
                what: "some strays while the ring moves",
                series: &[
                    (
                        r#"freehold_ingester_series_created_not_owned_total{$A, user="team"}"#,
                        "0+5x60",
                    ),
                    (r#"freehold_ingester_ring_mismatch{$A}"#, "0+0x60"),
                ],
                at_m: 20,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdSettingsDiffer",
        severity: Severity::Warning,
        hold_m: 10,
        expr: "max by (cluster, job, instance, setting) (freehold_ingester_settings_differ) == 1",
        summary: "{{ $labels.instance }} and its distributor differ in {{ $labels.setting }}.",
        means: "What is counted as owned is not what the distributors send here.",
        cases: &[
            Case {
                what: "zone awareness on one side only",
                series: &[
                    (
                        r#"freehold_ingester_settings_differ{$A, setting="zone_awareness_enabled"}"#,
                        "1+0x60",
                    ),
                    (
                        r#"freehold_ingester_settings_differ{$A, setting="replication_factor"}"#,
                        "0+0x60",
                    ),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$A, setting="zone_awareness_enabled""#,
                    summary: "a and its distributor differ in zone_awareness_enabled.",
                }],
            },
            Case {
                what: "distributors first, ingesters five minutes later",
                series: &[(
                    r#"freehold_ingester_settings_differ{$A, setting="replication_factor"}"#,
                    "0+0x5 1+0x5 0+0x60",
                )],
                at_m: 12,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdSettingsCheckFailing",
        severity: Severity::Warning,
        hold_m: 30,
        expr: "max by (cluster, job, instance) (freehold_ingester_settings_check_failing) == 1",
        summary: "{{ $labels.instance }} has not read its distributor's settings for half an hour.",
        means: "A change of a distributor's settings would only show in series that are not \
                ours.",
        cases: &[
            Case {
                what: "a wrong address",
                series: &[(r#"freehold_ingester_settings_check_failing{$A}"#, "1+0x60")],
                at_m: 40,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a has not read its distributor's settings for half an hour.",
                }],
            },
            Case {
                what: "a distributor that was restarted",
                series: &[(
                    r#"freehold_ingester_settings_check_failing{$A}"#,
                    "0+0x10 1+0x5 0+0x60",
                )],
                at_m: 40,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdGossipSplit",
        severity: Severity::Warning,
        hold_m: 15,
        expr: "\
max by (cluster, job) (
  memberlist_client_cluster_members_count
    * on (cluster, job, instance) group_left () freehold_build_info
)
-
min by (cluster, job) (
  memberlist_client_cluster_members_count
    * on (cluster, job, instance) group_left () freehold_build_info
)
> 0",
        summary: "Members of the gossip see different numbers of each other: \
                  {{ $value }} apart.",
        means: "A part of the cluster gossips by itself: rings differ, and with them limits and \
                owners.",
        cases: &[
            Case {
                what: "one that sees nobody",
                series: &[
                    (r#"memberlist_client_cluster_members_count{$A}"#, "9+0x60"),
                    (r#"memberlist_client_cluster_members_count{$B}"#, "1+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: "$C",
                    summary: "Members of the gossip see different numbers of each other: 8 apart.",
                }],
            },
            Case {
                what: "a rollout",
                series: &[
                    (r#"memberlist_client_cluster_members_count{$A}"#, "9+0x5 8+0x2 9+0x60"),
                    (r#"memberlist_client_cluster_members_count{$B}"#, "9+0x6 8+0x2 9+0x60"),
                ],
                at_m: 9,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdGossipRefuses",
        severity: Severity::Warning,
        hold_m: 10,
        expr: "sum by (cluster, job, instance, reason) (rate(freehold_gossip_refused_total[5m])) > 0",
        summary: "{{ $labels.instance }} does not listen to some of the gossip: \
                  {{ $labels.reason }}.",
        means: "Strangers speak at the port, or settings of members differ, and then they do not \
                see each other's changes.",
        cases: &[
            Case {
                what: "another label next door",
                series: &[
                    (r#"freehold_gossip_refused_total{$A, reason="label"}"#, "0+30x60"),
                    (r#"freehold_gossip_refused_total{$A, reason="malformed"}"#, "0+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$A, reason="label""#,
                    summary: "a does not listen to some of the gossip: label.",
                }],
            },
            Case {
                what: "one that came once",
                series: &[(
                    r#"freehold_gossip_refused_total{$A, reason="malformed"}"#,
                    "0+0x10 3+0x60",
                )],
                at_m: 17,
                expect: &[],
            },
        ],
    },
];
