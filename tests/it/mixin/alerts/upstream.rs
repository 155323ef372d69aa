//! What lies behind: the ingester of a sidecar, the distributor of a gate, the ring's ingesters,
//! and those who answer queries.

use super::{Alert, Case, Fired, Severity};

pub const ALERTS: &[Alert] = &[
    Alert {
        name: "FreeholdUpstreamUnreachable",
        severity: Severity::Critical,
        hold_m: 2,
        expr: "\
label_replace(freehold_upstream_reachable, \"upstream\", \"ingester\", \"\", \"\") == 0
or
label_replace(freehold_distributor_upstream_reachable, \"upstream\", \"distributor\", \"\", \"\") == 0",
        summary: "{{ $labels.instance }} has had no connection to the {{ $labels.upstream }} behind \
                  it for two minutes.",
        means: "Every write that comes here is answered 503.",
        cases: &[
            Case {
                what: "the ingester behind a sidecar is down, and its polls fail",
                series: &[
                    (r#"freehold_upstream_reachable{$A}"#, "1+0x5 0+0x60"),
                    (r#"freehold_ingester_upstream_reached{$A}"#, "1+0x5 0+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$A, upstream="ingester""#,
                    summary: "a has had no connection to the ingester behind it for two minutes.",
                }],
            },
            Case {
                what: "a distributor that restarts",
                series: &[(r#"freehold_distributor_upstream_reachable{$B}"#, "1+0x5 0 1+0x60")],
                at_m: 7,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdUpstreamPollsFail",
        severity: Severity::Warning,
        hold_m: 10,
        expr: "\
max by (cluster, job, instance) (freehold_ingester_upstream_reached) == 0
unless on (cluster, job, instance) freehold_upstream_reachable == 0",
        summary: "{{ $labels.instance }} reaches its ingester and cannot poll its series.",
        means: "Series that the ingester drops are still counted here, so limits refuse too much.",
        cases: &[
            Case {
                what: "an ingester that does not know the call",
                series: &[
                    (r#"freehold_ingester_upstream_reached{$A}"#, "0+0x60"),
                    (r#"freehold_upstream_reachable{$A}"#, "1+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a reaches its ingester and cannot poll its series.",
                }],
            },
            Case {
                what: "one poll in between",
                series: &[
                    (r#"freehold_ingester_upstream_reached{$A}"#, "1+0x5 0+0x2 1+0x60"),
                    (r#"freehold_upstream_reachable{$A}"#, "1+0x60"),
                ],
                at_m: 20,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdListingsFail",
        severity: Severity::Warning,
        hold_m: 30,
        expr: "\
sum by (cluster, job, instance) (rate(freehold_ingester_upstream_listing_failures_total[15m]))
* 3600 > 0",
        summary: "{{ $value | printf \"%.1f\" }} listings an hour of {{ $labels.instance }} fail.",
        means: "What is counted cannot be put right by what the ingester has.",
        cases: &[
            Case {
                what: "two an hour and more",
                series: &[(r#"freehold_ingester_upstream_listing_failures_total{$A}"#, "0+1x90")],
                at_m: 60,
                expect: &[Fired {
                    labels: "$A",
                    summary: "60.0 listings an hour of a fail.",
                }],
            },
            Case {
                what: "one that failed while the ingester closed a tenant",
                series: &[(
                    r#"freehold_ingester_upstream_listing_failures_total{$A}"#,
                    "0+0x10 1+0x80",
                )],
                at_m: 40,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdResidueGrowing",
        severity: Severity::Warning,
        hold_m: 30,
        expr: "\
freehold_ingester_upstream_residue_series > 0.05 * freehold_ingester_upstream_series
and
deriv(freehold_ingester_upstream_residue_series[1h]) > 0",
        summary: "{{ $value | printf \"%.0f\" }} series of tenant {{ $labels.user }} upstream of \
                  {{ $labels.instance }} are in no listing, and it is more all the time.",
        means: "The ingester holds series that limits here do not count, so its own backstop is \
                met before them.",
        cases: &[
            Case {
                what: "first samples that are refused upstream, again and again",
                series: &[
                    (
                        r#"freehold_ingester_upstream_residue_series{$A, user="team"}"#,
                        "500+10x200",
                    ),
                    (r#"freehold_ingester_upstream_series{$A, user="team"}"#, "10000+0x200"),
                ],
                at_m: 80,
                expect: &[Fired {
                    labels: r#"$A, user="team""#,
                    summary: "1300 series of tenant team upstream of a are in no listing, and it \
                              is more all the time.",
                }],
            },
            Case {
                what: "some of them, always as many",
                series: &[
                    (
                        r#"freehold_ingester_upstream_residue_series{$A, user="team"}"#,
                        "900+0x200",
                    ),
                    (r#"freehold_ingester_upstream_series{$A, user="team"}"#, "10000+0x200"),
                ],
                at_m: 80,
                expect: &[],
            },
            Case {
                what: "growing, and few",
                series: &[
                    (r#"freehold_ingester_upstream_residue_series{$A, user="team"}"#, "0+1x200"),
                    (r#"freehold_ingester_upstream_series{$A, user="team"}"#, "10000+0x200"),
                ],
                at_m: 80,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdDriftStays",
        severity: Severity::Warning,
        hold_m: 30,
        expr: "\
abs(freehold_ingester_upstream_drift_series)
> 0.01 * freehold_ingester_upstream_series + 10",
        summary: "The counts of tenant {{ $labels.user }} on {{ $labels.instance }} have been \
                  {{ $value | printf \"%.0f\" }} series from the ingester's for half an hour.",
        means: "Limits act on a wrong count: too high refuses too early, too low too late.",
        cases: &[
            Case {
                what: "series that the ingester has lost",
                series: &[
                    (r#"freehold_ingester_upstream_drift_series{$A, user="team"}"#, "-400+0x60"),
                    (r#"freehold_ingester_upstream_series{$A, user="team"}"#, "10000+0x60"),
                ],
                at_m: 40,
                expect: &[Fired {
                    labels: r#"$A, user="team""#,
                    summary: "The counts of tenant team on a have been 400 series from the \
                              ingester's for half an hour.",
                }],
            },
            Case {
                what: "a drift that a listing settles",
                series: &[
                    (
                        r#"freehold_ingester_upstream_drift_series{$A, user="team"}"#,
                        "900+0x10 0+0x60",
                    ),
                    (r#"freehold_ingester_upstream_series{$A, user="team"}"#, "10000+0x60"),
                ],
                at_m: 40,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdAppendsFail",
        severity: Severity::Warning,
        hold_m: 5,
        expr: "\
sum by (cluster, job, ingester) (
  rate(cortex_distributor_ingester_append_failures_total{status=\"5xx\"}[5m])
    * on (cluster, job, instance) group_left () freehold_build_info
)
/
sum by (cluster, job, ingester) (
  rate(cortex_distributor_ingester_appends_total[5m])
    * on (cluster, job, instance) group_left () freehold_build_info
)
> 0.1",
        summary: "{{ $value | humanizePercentage }} of the batches to {{ $labels.ingester }} fail.",
        means: "Its series have a replica less; with a second such ingester writes fail.",
        cases: &[
            Case {
                what: "an ingester that answers every second batch",
                series: &[
                    (
                        r#"cortex_distributor_ingester_append_failures_total{$A, ingester="i-3", status="5xx", type="samples"}"#,
                        "0+30x60",
                    ),
                    (
                        r#"cortex_distributor_ingester_appends_total{$A, ingester="i-3", type="samples"}"#,
                        "0+60x60",
                    ),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$C, ingester="i-3""#,
                    summary: "50% of the batches to i-3 fail.",
                }],
            },
            Case {
                what: "refusals with a reason are no failures of an ingester",
                series: &[
                    (
                        r#"cortex_distributor_ingester_append_failures_total{$A, ingester="i-3", status="4xx", type="samples"}"#,
                        "0+60x60",
                    ),
                    (
                        r#"cortex_distributor_ingester_appends_total{$A, ingester="i-3", type="samples"}"#,
                        "0+60x60",
                    ),
                ],
                at_m: 20,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdDownstreamUnhealthy",
        severity: Severity::Warning,
        hold_m: 5,
        expr: "\
count by (cluster, job, address) (
  freehold_query_downstream_healthy == 0
  and on (cluster, job, instance)
  sum by (cluster, job, instance) (freehold_query_downstream_healthy) > 0
)",
        summary: "{{ $value }} query gates do not reach {{ $labels.address }}, or it is not well.",
        means: "The others answer its queries.",
        cases: &[
            Case {
                what: "one of two",
                series: &[
                    (r#"freehold_query_downstream_healthy{$A, address="f-1:80"}"#, "0+0x60"),
                    (r#"freehold_query_downstream_healthy{$A, address="f-2:80"}"#, "1+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$C, address="f-1:80""#,
                    summary: "1 query gates do not reach f-1:80, or it is not well.",
                }],
            },
            Case {
                what: "a rollout of those behind",
                series: &[
                    (r#"freehold_query_downstream_healthy{$A, address="f-1:80"}"#, "1+0x3 0+0x2 1+0x60"),
                    (r#"freehold_query_downstream_healthy{$A, address="f-2:80"}"#, "1+0x7 0+0x2 1+0x60"),
                ],
                at_m: 12,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdDownstreamLost",
        severity: Severity::Critical,
        hold_m: 1,
        expr: "\
sum by (cluster, job, instance) (freehold_query_downstream_healthy) == 0",
        summary: "{{ $labels.instance }} has nobody behind it who answers queries.",
        means: "Queries are answered 503 or wait for their timeout.",
        cases: &[
            Case {
                what: "both gone",
                series: &[
                    (r#"freehold_query_downstream_healthy{$A, address="f-1:80"}"#, "0+0x60"),
                    (r#"freehold_query_downstream_healthy{$A, address="f-2:80"}"#, "0+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a has nobody behind it who answers queries.",
                }],
            },
            Case {
                what: "one is left",
                series: &[
                    (r#"freehold_query_downstream_healthy{$A, address="f-1:80"}"#, "0+0x4"),
                    (r#"freehold_query_downstream_healthy{$A, address="f-2:80"}"#, "1+0x4"),
                ],
                at_m: 4,
                expect: &[],
            },
        ],
    },
];
