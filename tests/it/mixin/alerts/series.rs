//! A tenant's series against its limit, and what is refused for it.

use super::{Alert, Case, Fired, Severity};

pub const ALERTS: &[Alert] = &[
    Alert {
        name: "FreeholdTenantNearSeriesLimit",
        severity: Severity::Warning,
        hold_m: 15,
        expr: "\
cluster_job_user:freehold_series_used:ratio_max > 0.8
unless cluster_job_user:freehold_series_used:ratio_max > 0.9
unless on (cluster, job, user)
cluster_job_user_reason:freehold_series_refused:rate5m > 0",
        summary: "Tenant {{ $labels.user }} has {{ $value | humanizePercentage }} of its series \
                  limit on the fullest ingester.",
        means: "At 100 % its new series are refused; series that are known go on.",
        cases: &[
            Case {
                what: "85 % on one of two ingesters",
                series: &[
                    (r#"freehold_ingester_series_against_limit{$A, user="team"}"#, "85+0x60"),
                    (r#"freehold_ingester_series_against_limit{$B, user="team"}"#, "40+0x60"),
                    (
                        r#"freehold_ingester_series_limit{$A, reason="flat", user="team"}"#,
                        "100+0x60",
                    ),
                    (
                        r#"freehold_ingester_series_limit{$B, reason="flat", user="team"}"#,
                        "100+0x60",
                    ),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$C, user="team""#,
                    summary: "Tenant team has 85% of its series limit on the fullest ingester.",
                }],
            },
            Case {
                what: "79 % is not near",
                series: &[
                    (r#"freehold_ingester_series_against_limit{$A, user="team"}"#, "79+0x60"),
                    (
                        r#"freehold_ingester_series_limit{$A, reason="flat", user="team"}"#,
                        "100+0x60",
                    ),
                ],
                at_m: 40,
                expect: &[],
            },
            Case {
                what: "no limit, no share of it",
                series: &[(
                    r#"freehold_ingester_series_against_limit{$A, user="team"}"#,
                    "79000+0x60",
                )],
                at_m: 40,
                expect: &[],
            },
            Case {
                what: "a limit that is held and then flat is one limit",
                series: &[
                    (r#"freehold_ingester_series_against_limit{$A, user="team"}"#, "85+0x60"),
                    (
                        r#"freehold_ingester_series_limit{$A, reason="held", user="team"}"#,
                        "100+0x10 stale",
                    ),
                    (
                        r#"freehold_ingester_series_limit{$A, reason="flat", user="team"}"#,
                        "_x10 100+0x60",
                    ),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$C, user="team""#,
                    summary: "Tenant team has 85% of its series limit on the fullest ingester.",
                }],
            },
        ],
    },
    Alert {
        name: "FreeholdTenantNearSeriesLimit",
        severity: Severity::Critical,
        hold_m: 5,
        expr: "\
cluster_job_user:freehold_series_used:ratio_max > 0.9
unless on (cluster, job, user)
cluster_job_user_reason:freehold_series_refused:rate5m > 0",
        summary: "Tenant {{ $labels.user }} has {{ $value | humanizePercentage }} of its series \
                  limit on the fullest ingester.",
        means: "At 100 % its new series are refused; series that are known go on.",
        cases: &[
            Case {
                what: "96 % and nothing refused yet",
                series: &[
                    (r#"freehold_ingester_series_against_limit{$A, user="team"}"#, "96+0x60"),
                    (
                        r#"freehold_ingester_series_limit{$A, reason="share", user="team"}"#,
                        "100+0x60",
                    ),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$C, user="team""#,
                    summary: "Tenant team has 96% of its series limit on the fullest ingester.",
                }],
            },
            Case {
                what: "a ring change that is over within its five minutes",
                series: &[
                    (
                        r#"freehold_ingester_series_against_limit{$A, user="team"}"#,
                        "70+0x5 95+0x3 70+0x60",
                    ),
                    (
                        r#"freehold_ingester_series_limit{$A, reason="held", user="team"}"#,
                        "100+0x60",
                    ),
                ],
                at_m: 10,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdSeriesRefused",
        severity: Severity::Critical,
        hold_m: 2,
        expr: "cluster_job_user_reason:freehold_series_refused:rate5m > 0",
        summary: "{{ $value | printf \"%.1f\" }} samples/s of new series of tenant \
                  {{ $labels.user }} are refused: {{ $labels.reason }}.",
        means: "A limit on series is reached: samples of series that are not known yet are lost, \
                those of known series are stored.",
        cases: &[
            Case {
                what: "refused all the time; being near the limit as well is no second alert",
                series: &[
                    (
                        r#"cortex_discarded_samples_total{$A, reason="per_user_series_limit", user="team"}"#,
                        "0+120x60",
                    ),
                    (r#"freehold_ingester_series_against_limit{$A, user="team"}"#, "100+0x60"),
                    (
                        r#"freehold_ingester_series_limit{$A, reason="flat", user="team"}"#,
                        "100+0x60",
                    ),
                ],
                at_m: 30,
                expect: &[Fired {
                    labels: r#"$C, reason="per_user_series_limit", user="team""#,
                    summary: "2.0 samples/s of new series of tenant team are refused: \
                              per_user_series_limit.",
                }],
            },
            Case {
                what: "refusals of a Cortex ingester are its own alerts' business",
                series: &[(
                    r#"cortex_discarded_samples_total{cluster="east", job="cortex", instance="c", reason="per_user_series_limit", user="team"}"#,
                    "0+120x60",
                )],
                at_m: 30,
                expect: &[],
            },
            Case {
                what: "samples that are too late are everyday life",
                series: &[(
                    r#"cortex_discarded_samples_total{$A, reason="sample-too-old", user="team"}"#,
                    "0+120x60",
                )],
                at_m: 30,
                expect: &[],
            },
            Case {
                what: "refusals long ago",
                series: &[(
                    r#"cortex_discarded_samples_total{$A, reason="per_metric_series_limit", user="team"}"#,
                    "0+120x5 600+0x60",
                )],
                at_m: 20,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdWritesRateLimited",
        severity: Severity::Warning,
        hold_m: 10,
        expr: "\
sum by (cluster, job, user, reason) (
  rate(cortex_discarded_samples_total{reason=~\"rate_limited|native_histogram_rate_limited\"}[5m])
    * on (cluster, job, instance) group_left ()
  freehold_build_info
) > 0",
        summary: "{{ $value | printf \"%.1f\" }} samples/s of tenant {{ $labels.user }} are \
                  refused: {{ $labels.reason }}.",
        means: "The tenant writes more than its rate. Senders that retry a 429 fall behind, \
                others lose the samples.",
        cases: &[
            Case {
                what: "both gates refuse",
                series: &[
                    (
                        r#"cortex_discarded_samples_total{$A, reason="rate_limited", user="team"}"#,
                        "0+60x60",
                    ),
                    (
                        r#"cortex_discarded_samples_total{$B, reason="rate_limited", user="team"}"#,
                        "0+30x60",
                    ),
                ],
                at_m: 30,
                expect: &[Fired {
                    labels: r#"$C, reason="rate_limited", user="team""#,
                    summary: "1.5 samples/s of tenant team are refused: rate_limited.",
                }],
            },
            Case {
                what: "a burst of a minute",
                series: &[(
                    r#"cortex_discarded_samples_total{$A, reason="rate_limited", user="team"}"#,
                    "0 5000+0x60",
                )],
                at_m: 11,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdOwnershipUnknown",
        severity: Severity::Warning,
        hold_m: 10,
        expr: "\
count by (cluster, job, instance) (freehold_ingester_ownership_unknown == 1)
unless on (cluster, job, instance) freehold_ingester_ring_mismatch == 1
unless on (cluster, job, instance) freehold_ingester_loading{count=\"in_memory\"} == 1
unless on (cluster, job, instance) freehold_ring_status{status=~\"expired|unread\"} == 1",
        summary: "{{ $labels.instance }} does not know which series of {{ $value }} tenants are \
                  its own.",
        means: "Limits act on what is in memory, as in Cortex: after a scale-up writes may be \
                refused that should not be.",
        cases: &[
            Case {
                what: "the instance's id is not in the ring",
                series: &[
                    (r#"freehold_ingester_ownership_unknown{$A, user="team"}"#, "1+0x60"),
                    (r#"freehold_ingester_ownership_unknown{$A, user="other"}"#, "1+0x60"),
                    (r#"freehold_ingester_ring_mismatch{$A}"#, "0+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a does not know which series of 2 tenants are its own.",
                }],
            },
            Case {
                what: "while it loads",
                series: &[
                    (r#"freehold_ingester_ownership_unknown{$A, user="team"}"#, "1+0x10 0+0x60"),
                    (r#"freehold_ingester_loading{$A, count="in_memory"}"#, "1+0x10 0+0x60"),
                ],
                at_m: 12,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdLoadingTooLong",
        severity: Severity::Warning,
        hold_m: 15,
        expr: "\
max by (cluster, job, instance) (freehold_ingester_loading{count=\"in_memory\"}) == 1",
        summary: "{{ $labels.instance }} has not learned its series for more than 15 minutes.",
        means: "It is not ready, and counts are the upstream's at the start and what came since.",
        cases: &[
            Case {
                what: "loading without end",
                series: &[
                    (r#"freehold_ingester_loading{$A, count="in_memory"}"#, "1+0x60"),
                    (r#"freehold_ingester_loading{$A, count="active"}"#, "1+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a has not learned its series for more than 15 minutes.",
                }],
            },
            Case {
                what: "active counts fill up in the idle timeout, as they have to",
                series: &[
                    (r#"freehold_ingester_loading{$A, count="in_memory"}"#, "1+0x3 0+0x60"),
                    (r#"freehold_ingester_loading{$A, count="active"}"#, "1+0x20 0+0x60"),
                ],
                at_m: 19,
                expect: &[],
            },
        ],
    },
];
