//! Writes: what comes, what is refused, and what becomes of the rest.

use super::{Dashboard, Row, lines, number, q, stacked};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "writes",
    title: "Writes",
    about: "What comes by remote write and gRPC, what is refused and why, and what lies behind.",
    rows: &[
        Row {
            title: "Now",
            panels: &[
                number(
                    "Received",
                    "Samples that validation let pass, at gates and with -target=all.",
                    "wps",
                    &[q("sum(rate(cortex_distributor_received_samples_total{@T}[@R]))", "")],
                ),
                number(
                    "Refused",
                    "Samples refused for any reason, by gates and ingesters.",
                    "wps",
                    &[q("sum(rate(cortex_discarded_samples_total{@T}[@R])) or vector(0)", "")],
                ),
                number(
                    "Refused whole",
                    "Requests refused by limits of a process; senders try them again.",
                    "reqps",
                    &[q(
                        "(sum(rate(freehold_ingester_pushes_refused_total{@I}[@R])) or vector(0)) + (sum(rate(freehold_distributor_requests_refused_total{@I}[@R])) or vector(0)) + sum(rate(freehold_server_refused_requests_total{@I}[@R]))",
                        "",
                    )],
                ),
                number(
                    "Stored",
                    "Float samples and histograms stored by ingesters with a store of their own.",
                    "wps",
                    &[q(
                        "sum(rate(cortex_ingester_ingested_samples_total{@I}[@R])) + sum(rate(cortex_ingester_ingested_native_histograms_total{@I}[@R]))",
                        "",
                    )],
                ),
            ],
        },
        Row {
            title: "What comes",
            panels: &[
                stacked(
                    "Samples received by type",
                    "Samples that validation let pass.",
                    "wps",
                    &[q(
                        "sum by (type) (rate(cortex_distributor_received_samples_total{@T}[@R]))",
                        "{{type}}",
                    )],
                ),
                lines(
                    "Requests by form",
                    "Remote write 1.0 (prw1), 2.0 (prw2), OTLP, or what says nothing of itself.",
                    "reqps",
                    &[q(
                        "sum by (type) (rate(cortex_distributor_push_requests_total{@I}[@R]))",
                        "{{type}}",
                    )],
                ),
                lines(
                    "Tenants that send most",
                    "Samples that came in, refused ones included.",
                    "wps",
                    &[q(
                        "topk(10, sum by (user) (rate(cortex_distributor_samples_in_total{@T}[@R])))",
                        "{{user}}",
                    )],
                ),
                lines(
                    "Age of the latest sample",
                    "Of the tenants that are most behind. It grows for a tenant that stopped.",
                    "s",
                    &[q(
                        "topk(10, time() - max by (user) (cortex_distributor_latest_seen_sample_timestamp_seconds{@T} > 0))",
                        "{{user}}",
                    )],
                ),
            ],
        },
        Row {
            title: "What is refused",
            panels: &[
                stacked(
                    "Samples refused by reason",
                    "By gates and ingesters together; runbook FreeholdSeriesRefused for per_*, FreeholdWritesRateLimited for rates.",
                    "wps",
                    &[q(
                        "sum by (reason) (rate(cortex_discarded_samples_total{@T}[@R])) or vector(0)",
                        "{{reason}}",
                    )],
                ),
                lines(
                    "Tenants that are refused most",
                    "Samples, by tenant and reason.",
                    "wps",
                    &[q(
                        "topk(10, sum by (user, reason) (rate(cortex_discarded_samples_total{@T}[@R]))) or vector(0)",
                        "{{user}} {{reason}}",
                    )],
                ),
                lines(
                    "Requests refused whole",
                    "By the limit of the process that was reached.",
                    "reqps",
                    &[
                        q(
                            "sum by (limit) (rate(freehold_ingester_pushes_refused_total{@I}[@R]))",
                            "ingester {{limit}}",
                        ),
                        q(
                            "sum by (limit) (rate(freehold_distributor_requests_refused_total{@I}[@R]))",
                            "distributor {{limit}}",
                        ),
                        q(
                            "sum(rate(freehold_server_refused_requests_total{@I}[@R]))",
                            "max_inflight_bytes",
                        ),
                    ],
                ),
                lines(
                    "Limits of a process",
                    "The highest use of each limit of an instance; 100 % refuses everybody.",
                    "percentunit",
                    &[
                        q(
                            "max by (limit) (freehold_ingester_instance_usage{@I} / on (cluster, job, instance, limit) (cortex_ingester_instance_limits{@I} > 0)) or vector(0)",
                            "ingester {{limit}}",
                        ),
                        q(
                            "max(cortex_distributor_inflight_push_requests{@I} / on (cluster, job, instance) (cortex_distributor_instance_limits{@I, limit=\"max_inflight_push_requests\"} > 0)) or vector(0)",
                            "distributor max_inflight_push_requests",
                        ),
                        q(
                            "max(cortex_distributor_ingestion_rate_samples_per_second{@I} / on (cluster, job, instance) (cortex_distributor_instance_limits{@I, limit=\"max_ingestion_rate\"} > 0)) or vector(0)",
                            "distributor max_ingestion_rate",
                        ),
                    ],
                ),
            ],
        },
        Row {
            title: "Under way",
            panels: &[
                lines(
                    "How long writes take",
                    "Median and 99th percentile to the head of the answer, by route; of a push stream by message.",
                    "s",
                    &[
                        q(
                            "histogram_quantile(0.99, sum by (le, route) (rate(cortex_request_duration_seconds_bucket{@I, route=~\"/cortex.Ingester/Push.*|.*_push|.*_otlp_v1_metrics\"}[@R])))",
                            "p99 {{route}}",
                        ),
                        q(
                            "histogram_quantile(0.5, sum by (le, route) (rate(cortex_request_duration_seconds_bucket{@I, route=~\"/cortex.Ingester/Push.*|.*_push|.*_otlp_v1_metrics\"}[@R])))",
                            "median {{route}}",
                        ),
                    ],
                ),
                lines(
                    "Pushes under way",
                    "At the distributor now, at the ingester the most in the last minute.",
                    "short",
                    &[
                        q(
                            "max by (instance) (cortex_distributor_inflight_push_requests{@I})",
                            "distributor {{instance}}",
                        ),
                        q(
                            "max by (instance) (cortex_ingester_inflight_push_requests{@I})",
                            "ingester {{instance}}",
                        ),
                    ],
                ),
                lines(
                    "Bytes under way",
                    "Bodies being received or handled, of -server.max-inflight-bytes.",
                    "bytes",
                    &[q("max by (instance) (freehold_server_inflight_bytes{@I})", "{{instance}}")],
                ),
            ],
        },
        Row {
            title: "To the ring's ingesters",
            panels: &[
                lines(
                    "Batches by ingester",
                    "Batches that gates without a distributor behind them send.",
                    "reqps",
                    &[q(
                        "topk(20, sum by (ingester) (rate(cortex_distributor_ingester_appends_total{@I}[@R])))",
                        "{{ingester}}",
                    )],
                ),
                lines(
                    "Failed batches by ingester",
                    "4xx are refusals with a reason, 5xx failures.",
                    "reqps",
                    &[q(
                        "topk(20, sum by (ingester, status) (rate(cortex_distributor_ingester_append_failures_total{@I}[@R]))) or vector(0)",
                        "{{ingester}} {{status}}",
                    )],
                ),
                lines(
                    "Requests without a verdict",
                    "Writes that had no quorum within the remote timeout.",
                    "reqps",
                    &[q(
                        "sum(rate(cortex_distributor_ingester_push_timeouts_total{@I}[@R]))",
                        "timeouts",
                    )],
                ),
                lines(
                    "Pushes to ingesters under way",
                    "The gates' clients with the most pushes waiting or under way.",
                    "short",
                    &[q(
                        "topk(20, max by (ingester) (cortex_ingester_client_inflight_push_requests{@I}))",
                        "{{ingester}}",
                    )],
                ),
            ],
        },
        Row {
            title: "To the distributor behind a gate",
            panels: &[
                lines(
                    "Answers by status",
                    "What the distributor behind the gate answers.",
                    "reqps",
                    &[q(
                        "sum by (status) (rate(freehold_distributor_upstream_answers_total{@I}[@R]))",
                        "{{status}}",
                    )],
                ),
                lines(
                    "Without an answer, or not sent",
                    "Requests that broke, took too long or reached nobody, and those not sent for a bound of ours.",
                    "reqps",
                    &[
                        q(
                            "sum by (cause) (rate(freehold_distributor_upstream_failures_total{@I}[@R]))",
                            "{{cause}}",
                        ),
                        q(
                            "sum by (bound) (rate(freehold_distributor_upstream_refused_total{@I}[@R]))",
                            "not sent: {{bound}}",
                        ),
                    ],
                ),
                lines(
                    "Under way to it",
                    "Requests, by gate.",
                    "short",
                    &[q(
                        "max by (instance) (freehold_distributor_upstream_inflight_requests{@I})",
                        "{{instance}}",
                    )],
                ),
                lines(
                    "Reachable",
                    "0 while no connection to it can be made.",
                    "none",
                    &[q(
                        "min by (instance) (freehold_distributor_upstream_reachable{@I})",
                        "{{instance}}",
                    )],
                ),
            ],
        },
    ],
};
