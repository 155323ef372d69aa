//! Queries: what answers them, what is refused, what costs nothing, and who is behind.

use super::{Dashboard, Row, lines, number, q, stacked};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "queries",
    title: "Queries",
    about: "The query gate: answers, refusals, cached answers, and those who answer behind it.",
    rows: &[
        Row {
            title: "Now",
            panels: &[
                number(
                    "Queries",
                    "Answered, by whatever.",
                    "reqps",
                    &[q("sum(rate(freehold_frontend_queries_total{@I}[@R]))", "")],
                ),
                number(
                    "Refused",
                    "By budgets of clients and bounds of what is in flight.",
                    "reqps",
                    &[q("sum(rate(cortex_rejected_queries_total{@T}[@R])) or vector(0)", "")],
                ),
                number(
                    "Failed",
                    "Came to nothing, or broke off.",
                    "reqps",
                    &[q("sum(rate(freehold_frontend_queries_failed_total{@I}[@R]))", "")],
                ),
                number(
                    "In flight",
                    "Queries that are being answered.",
                    "short",
                    &[q("sum(freehold_frontend_inflight_requests{@I})", "")],
                ),
            ],
        },
        Row {
            title: "Answers",
            panels: &[
                lines(
                    "How long queries take",
                    "Median and 99th percentile to the head of the answer, by route, whoever answers.",
                    "s",
                    &[
                        q(
                            "histogram_quantile(0.99, sum by (le, route) (rate(cortex_request_duration_seconds_bucket{@I, route=~\".*api_v1_(query|query_range|query_exemplars|read|series|labels|label_name_values|metadata)|/cortex.Ingester/(Query|Label|Metrics).*\"}[@R])))",
                            "p99 {{route}}",
                        ),
                        q(
                            "histogram_quantile(0.5, sum by (le, route) (rate(cortex_request_duration_seconds_bucket{@I, route=~\".*api_v1_(query|query_range|query_exemplars|read|series|labels|label_name_values|metadata)|/cortex.Ingester/(Query|Label|Metrics).*\"}[@R])))",
                            "median {{route}}",
                        ),
                    ],
                ),
                stacked(
                    "By what answered",
                    "downstream; shared with another that asked the same; our own cache.",
                    "reqps",
                    &[q(
                        "sum by (from) (rate(freehold_frontend_queries_total{@I}[@R]))",
                        "{{from}}",
                    )],
                ),
                lines(
                    "Refused by reason",
                    "The tenants that are refused most.",
                    "reqps",
                    &[q(
                        "topk(10, sum by (user, reason) (rate(cortex_rejected_queries_total{@T}[@R]))) or vector(0)",
                        "{{user}} {{reason}}",
                    )],
                ),
                lines(
                    "Slow and failed",
                    "Slower than -frontend.log-queries-longer-than; came to nothing. The log names them.",
                    "reqps",
                    &[
                        q("sum(rate(freehold_frontend_slow_queries_total{@I}[@R]))", "slow"),
                        q("sum(rate(freehold_frontend_queries_failed_total{@I}[@R]))", "failed"),
                    ],
                ),
                lines(
                    "In flight by gate",
                    "Queries that are being answered.",
                    "short",
                    &[q(
                        "sum by (instance) (freehold_frontend_inflight_requests{@I})",
                        "{{instance}}",
                    )],
                ),
            ],
        },
        Row {
            title: "Cached answers",
            panels: &[
                lines(
                    "Given back",
                    "Queries that cost nothing, tries without credit, and those of them that are owed.",
                    "reqps",
                    &[
                        q(
                            "sum(rate(freehold_frontend_charges_given_back_total{@I}[@R]))",
                            "given back",
                        ),
                        q(
                            "sum(rate(freehold_frontend_tries_without_credit_total{@I}[@R]))",
                            "tries without credit",
                        ),
                        q("sum(rate(freehold_frontend_tries_owed_total{@I}[@R]))", "owed"),
                    ],
                ),
                lines(
                    "Canaries",
                    "What they found of the word that an answer was cached, and whether it is believed (1).",
                    "short",
                    &[
                        q(
                            "sum by (finding) (rate(freehold_frontend_canaries_total{@I}[@R]))",
                            "{{finding}}/s",
                        ),
                        q(
                            "min by (instance) (freehold_frontend_cached_answers_believed{@I})",
                            "believed by {{instance}}",
                        ),
                    ],
                ),
            ],
        },
        Row {
            title: "Who answers behind",
            panels: &[
                stacked(
                    "Queries by outcome",
                    "answered: a head came.",
                    "reqps",
                    &[q(
                        "sum by (outcome) (rate(freehold_query_downstream_requests_total{@I}[@R]))",
                        "{{outcome}}",
                    )],
                ),
                lines(
                    "By address",
                    "Queries sent to it.",
                    "reqps",
                    &[q(
                        "sum by (address) (rate(freehold_query_downstream_requests_total{@I}[@R]))",
                        "{{address}}",
                    )],
                ),
                lines(
                    "Healthy",
                    "Gates for which an address is well.",
                    "short",
                    &[q("sum by (address) (freehold_query_downstream_healthy{@I})", "{{address}}")],
                ),
                lines(
                    "Under way",
                    "By address.",
                    "short",
                    &[q(
                        "sum by (address) (freehold_query_downstream_inflight_requests{@I})",
                        "{{address}}",
                    )],
                ),
                lines(
                    "Sent again, not sent, not well",
                    "Queries sent a second time, those not sent on by reason, and health checks that failed.",
                    "reqps",
                    &[
                        q(
                            "sum(rate(freehold_query_downstream_repeated_total{@I}[@R]))",
                            "sent again",
                        ),
                        q(
                            "sum by (reason) (rate(freehold_query_downstream_refused_total{@I}[@R]))",
                            "not sent: {{reason}}",
                        ),
                        q(
                            "sum by (address) (rate(freehold_query_downstream_failed_checks_total{@I}[@R]))",
                            "{{address}} not well",
                        ),
                    ],
                ),
            ],
        },
    ],
};
