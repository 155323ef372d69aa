//! The process itself: its own limits, its files, its certificates.

use super::{Alert, Case, Fired, Severity};

pub const ALERTS: &[Alert] = &[
    Alert {
        name: "FreeholdInstanceRefuses",
        severity: Severity::Critical,
        hold_m: 2,
        expr: "\
sum by (cluster, job, instance, limit) (
  label_replace(rate(freehold_ingester_pushes_refused_total[5m]), \"at\", \"ingester\", \"\", \"\")
  or
  label_replace(rate(freehold_distributor_requests_refused_total[5m]), \"at\", \"distributor\", \"\", \"\")
  or
  label_replace(rate(freehold_server_refused_requests_total[5m]), \"limit\", \"max_inflight_bytes\", \"\", \"\")
) > 0",
        summary: "{{ $labels.instance }} refuses {{ $value | printf \"%.1f\" }} requests/s whole: \
                  {{ $labels.limit }} is reached.",
        means: "The process protects itself: requests of every tenant are answered 503 and \
                tried again.",
        cases: &[
            Case {
                what: "too many series in the instance",
                series: &[
                    (
                        r#"freehold_ingester_pushes_refused_total{$A, limit="max_series"}"#,
                        "0+60x60",
                    ),
                    (r#"freehold_ingester_instance_usage{$A, limit="max_series"}"#, "1000+0x60"),
                    (r#"cortex_ingester_instance_limits{$A, limit="max_series"}"#, "1000+0x60"),
                ],
                at_m: 30,
                expect: &[Fired {
                    labels: r#"$A, limit="max_series""#,
                    summary: "a refuses 1.0 requests/s whole: max_series is reached.",
                }],
            },
            Case {
                what: "bytes under way, in ingester and distributor of one process",
                series: &[
                    (r#"freehold_server_refused_requests_total{$A}"#, "0+60x60"),
                    (
                        r#"freehold_ingester_pushes_refused_total{$A, limit="max_ingestion_rate"}"#,
                        "0+60x60",
                    ),
                    (
                        r#"freehold_distributor_requests_refused_total{$A, limit="max_ingestion_rate"}"#,
                        "0+60x60",
                    ),
                ],
                at_m: 30,
                expect: &[
                    Fired {
                        labels: r#"$A, limit="max_inflight_bytes""#,
                        summary: "a refuses 1.0 requests/s whole: max_inflight_bytes is reached.",
                    },
                    Fired {
                        labels: r#"$A, limit="max_ingestion_rate""#,
                        summary: "a refuses 2.0 requests/s whole: max_ingestion_rate is reached.",
                    },
                ],
            },
            Case {
                what: "refusals of half an hour ago",
                series: &[(
                    r#"freehold_ingester_pushes_refused_total{$A, limit="max_series"}"#,
                    "0+60x5 360+0x60",
                )],
                at_m: 30,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdInstanceNearLimit",
        severity: Severity::Warning,
        hold_m: 5,
        expr: "\
max by (cluster, job, instance, limit) (
  freehold_ingester_instance_usage
    / on (cluster, job, instance, limit)
  (cortex_ingester_instance_limits > 0)
  or
  label_replace(
    label_replace(cortex_distributor_inflight_push_requests, \"limit\", \"max_inflight_push_requests\", \"\", \"\")
      or
    label_replace(cortex_distributor_inflight_client_requests, \"limit\", \"max_inflight_client_requests\", \"\", \"\")
      or
    label_replace(cortex_distributor_ingestion_rate_samples_per_second, \"limit\", \"max_ingestion_rate\", \"\", \"\"),
    \"at\", \"distributor\", \"\", \"\"
  )
    / on (cluster, job, instance, limit) group_left ()
  (cortex_distributor_instance_limits > 0 and on (cluster, job, instance) freehold_build_info)
) > 0.8
unless on (cluster, job, instance, limit)
(
  rate(freehold_ingester_pushes_refused_total[5m]) > 0
  or
  rate(freehold_distributor_requests_refused_total[5m]) > 0
)",
        summary: "{{ $labels.instance }} is at {{ $value | humanizePercentage }} of its \
                  {{ $labels.limit }}.",
        means: "At 100 % requests of every tenant are refused whole.",
        cases: &[
            Case {
                what: "series and requests at 90 %",
                series: &[
                    (r#"freehold_ingester_instance_usage{$A, limit="max_series"}"#, "900+0x60"),
                    (r#"cortex_ingester_instance_limits{$A, limit="max_series"}"#, "1000+0x60"),
                    (r#"cortex_distributor_inflight_push_requests{$B}"#, "90+0x60"),
                    (
                        r#"cortex_distributor_instance_limits{$B, limit="max_inflight_push_requests"}"#,
                        "100+0x60",
                    ),
                ],
                at_m: 20,
                expect: &[
                    Fired {
                        labels: r#"$A, limit="max_series""#,
                        summary: "a is at 90% of its max_series.",
                    },
                    Fired {
                        labels: r#"$B, limit="max_inflight_push_requests""#,
                        summary: "b is at 90% of its max_inflight_push_requests.",
                    },
                ],
            },
            Case {
                what: "a limit of 0 is none, and Cortex's own limits are its own alerts' business",
                series: &[
                    (r#"freehold_ingester_instance_usage{$A, limit="max_series"}"#, "900000+0x60"),
                    (r#"cortex_ingester_instance_limits{$A, limit="max_series"}"#, "0+0x60"),
                    (
                        r#"cortex_distributor_inflight_push_requests{cluster="east", job="cortex", instance="c"}"#,
                        "99+0x60",
                    ),
                    (
                        r#"cortex_distributor_instance_limits{cluster="east", job="cortex", instance="c", limit="max_inflight_push_requests"}"#,
                        "100+0x60",
                    ),
                ],
                at_m: 30,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdRuntimeFileFailing",
        severity: Severity::Warning,
        hold_m: 5,
        expr: "\
max by (cluster, job, instance) (
  cortex_runtime_config_last_reload_successful == 0
  and on (cluster, job, instance) freehold_build_info
)",
        summary: "{{ $labels.instance }} has refused its runtime file for five minutes.",
        means: "The last good file stays in force; changes since are not. A restart would fail.",
        cases: &[
            Case {
                what: "a wrong value",
                series: &[(
                    r#"cortex_runtime_config_last_reload_successful{$A}"#,
                    "1+0x5 0+0x60",
                )],
                at_m: 20,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a has refused its runtime file for five minutes.",
                }],
            },
            Case {
                what: "a Cortex whose file is refused",
                series: &[(
                    r#"cortex_runtime_config_last_reload_successful{cluster="east", job="cortex", instance="c"}"#,
                    "0+0x60",
                )],
                at_m: 20,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdRuntimeFileWarnings",
        severity: Severity::Info,
        hold_m: 30,
        expr: "max by (cluster, job) (freehold_runtime_config_warnings) > 0",
        summary: "The runtime file in force has {{ $value }} names or values that are likely \
                  mistakes.",
        means: "What they were meant to set is not set.",
        cases: &[
            Case {
                what: "a misspelt limit",
                series: &[
                    (r#"freehold_runtime_config_warnings{$A}"#, "1+0x60"),
                    (r#"freehold_runtime_config_warnings{$B}"#, "1+0x60"),
                ],
                at_m: 40,
                expect: &[Fired {
                    labels: "$C",
                    summary: "The runtime file in force has 1 names or values that are likely \
                              mistakes.",
                }],
            },
            Case {
                what: "one that is put right",
                series: &[(r#"freehold_runtime_config_warnings{$A}"#, "1+0x20 0+0x60")],
                at_m: 40,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdCertificateExpiring",
        severity: Severity::Warning,
        hold_m: 10,
        expr: "\
min by (cluster, job, instance, for) (
  freehold_tls_certificate_expires_timestamp_seconds - time()
) < 14 * 86400
unless
min by (cluster, job, instance, for) (
  freehold_tls_certificate_expires_timestamp_seconds - time()
) < 3 * 86400",
        summary: "The certificate of {{ $labels.instance }} for {{ $labels.for }} ends in \
                  {{ $value | humanizeDuration }}.",
        means: "After that no connection is made by it.",
        cases: &[
            Case {
                what: "ten days",
                series: &[(
                    r#"freehold_tls_certificate_expires_timestamp_seconds{$A, for="server_grpc"}"#,
                    "865200+0x60",
                )],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$A, for="server_grpc""#,
                    summary: "The certificate of a for server_grpc ends in 10d 0h 0m 0s.",
                }],
            },
            Case {
                what: "three months",
                series: &[(
                    r#"freehold_tls_certificate_expires_timestamp_seconds{$A, for="server_grpc"}"#,
                    "7776000+0x60",
                )],
                at_m: 20,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdCertificateExpiring",
        severity: Severity::Critical,
        hold_m: 10,
        expr: "\
min by (cluster, job, instance, for) (
  freehold_tls_certificate_expires_timestamp_seconds - time()
) < 3 * 86400",
        summary: "The certificate of {{ $labels.instance }} for {{ $labels.for }} ends in \
                  {{ $value | humanizeDuration }}.",
        means: "After that no connection is made by it.",
        cases: &[
            Case {
                what: "a day",
                series: &[(
                    r#"freehold_tls_certificate_expires_timestamp_seconds{$A, for="server_http"}"#,
                    "87600+0x60",
                )],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$A, for="server_http""#,
                    summary: "The certificate of a for server_http ends in 1d 0h 0m 0s.",
                }],
            },
            Case {
                what: "a renewed one",
                series: &[(
                    r#"freehold_tls_certificate_expires_timestamp_seconds{$A, for="server_http"}"#,
                    "87600+0x5 7776000+0x60",
                )],
                at_m: 20,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdCertificateNotReloaded",
        severity: Severity::Warning,
        hold_m: 10,
        expr: "max by (cluster, job, instance, for) (freehold_tls_reload_failing) == 1",
        summary: "{{ $labels.instance }} cannot use the certificate files for {{ $labels.for }} \
                  that are in place.",
        means: "The old ones stay in force until they end. A restart would fail.",
        cases: &[
            Case {
                what: "a key that does not fit",
                series: &[(r#"freehold_tls_reload_failing{$A, for="server_http"}"#, "1+0x60")],
                at_m: 20,
                expect: &[Fired {
                    labels: r#"$A, for="server_http""#,
                    summary: "a cannot use the certificate files for server_http that are in \
                              place.",
                }],
            },
            Case {
                what: "certificate and key change one after the other",
                series: &[(
                    r#"freehold_tls_reload_failing{$A, for="server_http"}"#,
                    "0+0x5 1 0+0x60",
                )],
                at_m: 20,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdRestartsOften",
        severity: Severity::Warning,
        hold_m: 0,
        expr: "\
changes(process_start_time_seconds[1h]) >= 3
and on (cluster, job, instance) freehold_build_info",
        summary: "{{ $labels.instance }} has started {{ $value }} times in an hour.",
        means: "It is killed, or ends by itself: its log says why, or the kernel's does.",
        cases: &[
            Case {
                what: "out of memory, again and again",
                series: &[(
                    r#"process_start_time_seconds{$A}"#,
                    "1+0x10 600+0x10 1200+0x10 1800+0x60",
                )],
                at_m: 40,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a has started 3 times in an hour.",
                }],
            },
            Case {
                what: "a rollout, and one more",
                series: &[(r#"process_start_time_seconds{$A}"#, "1+0x10 600+0x10 1200+0x60")],
                at_m: 40,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdFilesNearLimit",
        severity: Severity::Warning,
        hold_m: 15,
        expr: "\
process_open_fds / process_max_fds > 0.8
and on (cluster, job, instance) freehold_build_info",
        summary: "{{ $labels.instance }} has {{ $value | humanizePercentage }} of the files open \
                  that it may.",
        means: "At 100 % no connection is taken and no file opened.",
        cases: &[
            Case {
                what: "a limit of 1024",
                series: &[
                    (r#"process_open_fds{$A}"#, "922+0x60"),
                    (r#"process_max_fds{$A}"#, "1024+0x60"),
                ],
                at_m: 20,
                expect: &[Fired {
                    labels: "$A",
                    summary: "a has 90.04% of the files open that it may.",
                }],
            },
            Case {
                what: "another process of the machine",
                series: &[
                    (r#"process_open_fds{cluster="east", job="node", instance="n"}"#, "1000+0x60"),
                    (r#"process_max_fds{cluster="east", job="node", instance="n"}"#, "1024+0x60"),
                ],
                at_m: 30,
                expect: &[],
            },
        ],
    },
    Alert {
        name: "FreeholdTracesLost",
        severity: Severity::Info,
        hold_m: 30,
        expr: "\
sum by (cluster, job, instance) (rate(freehold_trace_spans_total{fate!=\"sent\"}[5m]))
/
sum by (cluster, job, instance) (rate(freehold_trace_spans_total[5m]))
> 0.1",
        summary: "{{ $labels.instance }} loses {{ $value | humanizePercentage }} of its spans.",
        means: "Traces have holes. Requests are not touched by it.",
        cases: &[
            Case {
                what: "a collector that is away",
                series: &[
                    (r#"freehold_trace_spans_total{$A, fate="sent"}"#, "90+0x60"),
                    (r#"freehold_trace_spans_total{$A, fate="unsent"}"#, "0+60x60"),
                    (r#"freehold_trace_spans_total{$A, fate="queue_full"}"#, "0+60x60"),
                ],
                at_m: 40,
                expect: &[Fired { labels: "$A", summary: "a loses 100% of its spans." }],
            },
            Case {
                what: "some that came too fast",
                series: &[
                    (r#"freehold_trace_spans_total{$A, fate="sent"}"#, "0+600x60"),
                    (r#"freehold_trace_spans_total{$A, fate="queue_full"}"#, "0+6x60"),
                ],
                at_m: 40,
                expect: &[],
            },
        ],
    },
];
