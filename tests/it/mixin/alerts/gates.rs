//! Budgets of clients, queries, and the front door.

use super::{Alert, Case, Fired, Severity};

pub const ALERTS: &[Alert] = &[
    Alert {
        name: "FreeholdClientRateLimited",
        severity: Severity::Info,
        hold_m: 15,
        expr: "\
sum by (cluster, job, user) (
  rate(cortex_discarded_samples_total{reason=\"client_rate_limited\"}[5m])
    * on (cluster, job, instance) group_left () freehold_build_info
) > 0",
        summary: "{{ $value | printf \"%.1f\" }} samples/s of clients of tenant \
                  {{ $labels.user }} are refused by their budgets.",
        means: "One writer is over its budget, and the others of its tenant are not touched.",
        cases: &[
            Case {
                what: "a writer that runs away",
                series: &[(
                    r#"cortex_discarded_samples_total{$A, reason="client_rate_limited", user="team"}"#,
                    "0+600x60",
                )],
                at_m: 30,
                expect: &[Fired {
                    labels: r#"$C, user="team""#,
                    summary: "10.0 samples/s of clients of tenant team are refused by their \
                              budgets.",
                }],
            },
            Case {
                what: "a writer that catches up for some minutes",
                series: &[(
                    r#"cortex_discarded_samples_total{$A, reason="client_rate_limited", user="team"}"#,
                    "0+600x5 3600+0x60",
                )],
                at_m: 14,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdBudgetOwnerUnreachable",
        severity: Severity::Warning,
        hold_m: 3,
        expr: "\
sum by (cluster, job, instance, ring) (freehold_client_peers{state=\"down\"}) > 0",
        summary: "{{ $labels.instance }} does not reach {{ $value }} gates of the ring \
                  {{ $labels.ring }} that budgets are shared with.",
        means: "Until the ring takes them for gone, budgets that they own are decided without \
                them.",
        cases: &[
            Case {
                what: "a gate was killed",
                series: &[
                    (
                        r#"freehold_client_peers{$A, ring="distributor", state="down"}"#,
                        "0+0x5 1+0x60",
                    ),
                    (
                        r#"freehold_client_fallbacks_total{$A, mode="standing_reserve", ring="distributor"}"#,
                        "0+0x5 40+0x60",
                    ),
                ],
                at_m: 10,
                expect: &[Fired {
                    labels: r#"$A, ring="distributor""#,
                    summary: "a does not reach 1 gates of the ring distributor that budgets are \
                              shared with.",
                }],
            },
            Case {
                what: "a gate was restarted",
                series: &[(
                    r#"freehold_client_peers{$A, ring="distributor", state="down"}"#,
                    "0+0x5 1 0+0x60",
                )],
                at_m: 8,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdBudgetsWithoutOwner",
        severity: Severity::Warning,
        hold_m: 10,
        expr: "\
sum by (cluster, job, instance, ring) (rate(freehold_client_fallbacks_total[5m]))
/
sum by (cluster, job, instance, ring) (rate(freehold_client_decisions_total[5m]))
> 0.01
unless on (cluster, job, instance, ring) freehold_client_peers{state=\"down\"} > 0",
        summary: "{{ $labels.instance }} decides {{ $value | humanizePercentage }} of what has a \
                  budget in the ring {{ $labels.ring }} without the owners, which it reaches.",
        means: "Owners answer too late: clients get what -client-identity.owner-lost says, which \
                may be less or more than their budget.",
        cases: &[
            Case {
                what: "an owner that is too slow",
                series: &[
                    (
                        r#"freehold_client_fallbacks_total{$A, mode="standing_reserve", ring="distributor"}"#,
                        "0+120x60",
                    ),
                    (
                        r#"freehold_client_decisions_total{$A, by="lost", ring="distributor"}"#,
                        "0+120x60",
                    ),
                    (
                        r#"freehold_client_decisions_total{$A, by="own", ring="distributor"}"#,
                        "0+2280x60",
                    ),
                    (r#"freehold_client_peers{$A, ring="distributor", state="down"}"#, "0+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$A, ring="distributor""#,
                    summary: "a decides 5% of what has a budget in the ring distributor without \
                              the owners, which it reaches.",
                }],
            },
            Case {
                what: "one answer a minute that comes too late",
                series: &[
                    (
                        r#"freehold_client_fallbacks_total{$A, mode="standing_reserve", ring="distributor"}"#,
                        "0+1x60",
                    ),
                    (
                        r#"freehold_client_decisions_total{$A, by="lease", ring="distributor"}"#,
                        "0+600x60",
                    ),
                    (r#"freehold_client_peers{$A, ring="distributor", state="down"}"#, "0+0x60"),
                ],
                at_m: 30,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdBudgetEvictionsInDebt",
        severity: Severity::Warning,
        hold_m: 15,
        expr: "\
sum by (cluster, job, instance, ring, kind) (
  rate(freehold_client_evictions_total{kind=~\"in_debt|ghost\"}[15m])
) > 0",
        summary: "{{ $labels.instance }} lets {{ $value | printf \"%.2f\" }} budgets/s go that \
                  something is owed of ({{ $labels.kind }}, ring {{ $labels.ring }}).",
        means: "A tenant has more clients than are tracked, or somebody takes new names to get \
                new budgets.",
        cases: &[
            Case {
                what: "names that change with each request",
                series: &[(
                    r#"freehold_client_evictions_total{$A, kind="in_debt", ring="distributor"}"#,
                    "0+30x60",
                )],
                at_m: 40,
                expect: &[Fired {
                    labels: r#"$A, kind="in_debt", ring="distributor""#,
                    summary: "a lets 0.50 budgets/s go that something is owed of (in_debt, ring \
                              distributor).",
                }],
            },
            Case {
                what: "full accounts go for others, which costs nothing",
                series: &[(
                    r#"freehold_client_evictions_total{$A, kind="refilled", ring="distributor"}"#,
                    "0+30x60",
                )],
                at_m: 40,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdBudgetLimitsDiffer",
        severity: Severity::Warning,
        hold_m: 15,
        expr: "\
sum by (cluster, job, instance, ring) (rate(freehold_client_decisions_total{by=\"own_limit\"}[5m]))
> 0",
        summary: "{{ $labels.instance }} keeps budgets alone for {{ $value | printf \"%.1f\" }} \
                  requests/s, since their owners in the ring {{ $labels.ring }} know no limit.",
        means: "Gates have different limits: a client may have a whole budget at each of them.",
        cases: &[
            Case {
                what: "a runtime file that one gate has not got",
                series: &[(
                    r#"freehold_client_decisions_total{$A, by="own_limit", ring="distributor"}"#,
                    "0+60x60",
                )],
                at_m: 30,
                expect: &[Fired {
                    labels: r#"$A, ring="distributor""#,
                    summary: "a keeps budgets alone for 1.0 requests/s, since their owners in the \
                              ring distributor know no limit.",
                }],
            },
            Case {
                what: "files that are read one after the other",
                series: &[
                    (
                        r#"freehold_client_decisions_total{$A, by="own_limit", ring="distributor"}"#,
                        "0 9+0x60",
                    ),
                    (
                        r#"freehold_client_decisions_total{$A, by="own", ring="distributor"}"#,
                        "0+60x60",
                    ),
                ],
                at_m: 20,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdBudgetRingsDiffer",
        severity: Severity::Warning,
        hold_m: 15,
        expr: "\
sum by (cluster, job, instance, ring) (rate(freehold_client_not_owner_total[5m]))
/ on (cluster, job, ring) group_left ()
sum by (cluster, job, ring) (rate(freehold_client_decisions_total[5m]))
> 0.01",
        summary: "{{ $labels.instance }} is asked for budgets that it does not own, by \
                  {{ $value | humanizePercentage }} of what has a budget in the ring \
                  {{ $labels.ring }}.",
        means: "Gates see different rings, so a budget may have two owners.",
        cases: &[
            Case {
                what: "two gates that never agree",
                series: &[
                    (r#"freehold_client_not_owner_total{$A, ring="distributor"}"#, "0+60x60"),
                    (
                        r#"freehold_client_decisions_total{$A, by="own", ring="distributor"}"#,
                        "0+600x60",
                    ),
                    (
                        r#"freehold_client_decisions_total{$B, by="asked", ring="distributor"}"#,
                        "0+600x60",
                    ),
                ],
                at_m: 30,
                expect: &[Fired {
                    labels: r#"$A, ring="distributor""#,
                    summary: "a is asked for budgets that it does not own, by 5% of what has a \
                              budget in the ring distributor.",
                }],
            },
            Case {
                what: "rings that change again and again, each time for a moment",
                series: &[
                    (r#"freehold_client_not_owner_total{$A, ring="distributor"}"#, "0+2x60"),
                    (
                        r#"freehold_client_decisions_total{$A, by="own", ring="distributor"}"#,
                        "0+600x60",
                    ),
                ],
                at_m: 30,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdQueriesRefused",
        severity: Severity::Info,
        hold_m: 10,
        expr: "\
sum by (cluster, job, user, reason) (
  rate(cortex_rejected_queries_total[5m])
    * on (cluster, job, instance) group_left () freehold_build_info
) > 0",
        summary: "{{ $value | printf \"%.1f\" }} queries/s of tenant {{ $labels.user }} are \
                  refused: {{ $labels.reason }}.",
        means: "Dashboards or scripts of a client are over its budget, or too many queries are \
                in flight.",
        cases: &[
            Case {
                what: "a dashboard that reloads itself",
                series: &[(
                    r#"cortex_rejected_queries_total{$A, reason="client_rate_limited", source="api", user="team"}"#,
                    "0+90x60",
                )],
                at_m: 30,
                expect: &[Fired {
                    labels: r#"$C, reason="client_rate_limited", user="team""#,
                    summary: "1.5 queries/s of tenant team are refused: client_rate_limited.",
                }],
            },
            Case {
                what: "what Cortex itself refuses",
                series: &[(
                    r#"cortex_rejected_queries_total{cluster="east", job="cortex", instance="c", reason="query_limited", source="api", user="team"}"#,
                    "0+90x60",
                )],
                at_m: 30,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdRefundsSwitchedOff",
        severity: Severity::Warning,
        hold_m: 15,
        expr: "\
freehold_frontend_cached_answers_believed == 0
and on (cluster, job, instance)
sum by (cluster, job, instance) (rate(freehold_frontend_canaries_total[15m])) > 0",
        summary: "{{ $labels.instance }} charges cached answers: its canary has not been true for \
                  15 minutes.",
        means: "Dashboards that are answered from the results cache use up the budgets of those \
                who look at them.",
        cases: &[
            Case {
                what: "queriers without statistics",
                series: &[
                    (r#"freehold_frontend_cached_answers_believed{$A}"#, "0+0x60"),
                    (r#"freehold_frontend_canaries_total{$A, finding="false"}"#, "0+1x60"),
                ],
                at_m: 40,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a charges cached answers: its canary has not been true for 15 \
                              minutes.",
                }],
            },
            Case {
                what: "charging them on purpose, without a canary",
                series: &[
                    (r#"freehold_frontend_cached_answers_believed{$A}"#, "0+0x60"),
                    (r#"freehold_frontend_canaries_total{$A, finding="false"}"#, "0+0x60"),
                ],
                at_m: 40,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdFrontDoorRefuses",
        severity: Severity::Info,
        hold_m: 15,
        expr: "\
sum by (cluster, job, class, limiter) (rate(freehold_front_door_refused_total[5m])) > 1",
        summary: "The front door refuses {{ $value | printf \"%.1f\" }} requests/s of the class \
                  {{ $labels.class }}: {{ $labels.limiter }}.",
        means: "Somebody guesses, loops, or has a budget that is too small for what stands \
                behind one address.",
        cases: &[
            Case {
                what: "somebody who guesses",
                series: &[(
                    r#"freehold_front_door_refused_total{$A, class="query", limiter="failures"}"#,
                    "0+300x60",
                )],
                at_m: 30,
                expect: &[Fired {
                    labels: r#"$C, class="query", limiter="failures""#,
                    summary: "The front door refuses 5.0 requests/s of the class query: failures.",
                }],
            },
            Case {
                what: "somebody who mistypes",
                series: &[(
                    r#"freehold_front_door_refused_total{$A, class="query", limiter="failures"}"#,
                    "0+10x60",
                )],
                at_m: 30,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdFrontDoorEvictionsInDebt",
        severity: Severity::Warning,
        hold_m: 15,
        expr: "\
sum by (cluster, job, instance, class, table) (
  rate(freehold_front_door_evictions_total{kind=\"in_debt\"}[15m])
) > 0",
        summary: "The front door of {{ $labels.instance }} forgets {{ $value | printf \"%.2f\" }} \
                  {{ $labels.table }}/s that owe something ({{ $labels.class }}).",
        means: "Somebody comes from more addresses than are kept, and each comes back with a \
                whole budget.",
        cases: &[
            Case {
                what: "a flood from everywhere",
                series: &[(
                    r#"freehold_front_door_evictions_total{$A, class="query", kind="in_debt", table="addresses"}"#,
                    "0+60x60",
                )],
                at_m: 40,
                expect: &[Fired {
                    labels: r#"$A, class="query", table="addresses""#,
                    summary: "The front door of a forgets 1.00 addresses/s that owe something \
                              (query).",
                }],
            },
            Case {
                what: "idle ones go for others",
                series: &[(
                    r#"freehold_front_door_evictions_total{$A, class="query", kind="idle", table="addresses"}"#,
                    "0+60x60",
                )],
                at_m: 40,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdFrontDoorSaltFails",
        severity: Severity::Warning,
        hold_m: 30,
        expr: "\
sum by (cluster, job, instance) (rate(freehold_front_door_salt_failures_total[15m])) > 0",
        summary: "{{ $labels.instance }} has found no salt to be used in its file for half an \
                  hour.",
        means: "The old salt stays in force; it cannot be changed, and a restart would fail.",
        cases: &[
            Case {
                what: "a file that was emptied",
                series: &[(r#"freehold_front_door_salt_failures_total{$A}"#, "0+6x60")],
                at_m: 50,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a has found no salt to be used in its file for half an hour.",
                }],
            },
            Case {
                what: "a file that was half written once",
                series: &[(r#"freehold_front_door_salt_failures_total{$A}"#, "0+0x10 1+0x60")],
                at_m: 41,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdElectionsNotRenewed",
        severity: Severity::Warning,
        hold_m: 5,
        expr: "\
sum by (cluster, job, instance) (rate(freehold_ha_tracker_renewals_failed_total[5m])) > 0",
        summary: "{{ $labels.instance }} cannot renew {{ $value | printf \"%.1f\" }} elected \
                  replicas/s in the store of the HA tracker.",
        means: "If it goes on another replica is elected although the first one sends, and \
                samples of both are taken for a moment.",
        cases: &[
            Case {
                what: "a store that takes no writes",
                series: &[(r#"freehold_ha_tracker_renewals_failed_total{$A}"#, "0+60x60")],
                at_m: 20,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a cannot renew 1.0 elected replicas/s in the store of the HA \
                              tracker.",
                }],
            },
            Case {
                what: "one that failed",
                series: &[(r#"freehold_ha_tracker_renewals_failed_total{$A}"#, "0+0x5 1+0x60")],
                at_m: 11,
                expect: &[],
            },
        ],
    },
];
