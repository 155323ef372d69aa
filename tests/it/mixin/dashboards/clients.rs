//! Budgets of clients: what decides, what is refused, and who keeps them.

use super::{Dashboard, Row, lines, number, q, stacked};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "clients",
    title: "Clients",
    about: "Budgets of clients within their tenants, for writes and for queries. No metric names a client: freehold clients top and /distributor/clients do.",
    rows: &[
        Row {
            title: "Now",
            panels: &[
                number(
                    "Refused",
                    "Samples of clients over their budgets.",
                    "wps",
                    &[q(
                        "sum(rate(cortex_discarded_samples_total{@T, reason=\"client_rate_limited\"}[@R])) or vector(0)",
                        "",
                    )],
                ),
                number(
                    "Queries refused",
                    "Queries of clients over their budgets.",
                    "reqps",
                    &[q(
                        "sum(rate(cortex_rejected_queries_total{@T, reason=\"client_rate_limited\"}[@R])) or vector(0)",
                        "",
                    )],
                ),
                number(
                    "Gates not reached",
                    "Runbook FreeholdBudgetOwnerUnreachable.",
                    "short",
                    &[q("sum(freehold_client_peers{@I, state=\"down\"})", "")],
                ),
                number(
                    "Decided without an owner",
                    "Requests per second.",
                    "reqps",
                    &[q("sum(rate(freehold_client_fallbacks_total{@I}[@R]))", "")],
                ),
            ],
        },
        Row {
            title: "Decisions",
            panels: &[
                stacked(
                    "By what they were made",
                    "own and lease ask nobody; asked waits for the owner; lost is without one.",
                    "reqps",
                    &[q(
                        "sum by (ring, by) (rate(freehold_client_decisions_total{@I}[@R]))",
                        "{{ring}} {{by}}",
                    )],
                ),
                lines(
                    "Waiting for the owner",
                    "Of the requests that had to ask.",
                    "s",
                    &[
                        q(
                            "histogram_quantile(0.99, sum by (le, ring) (rate(freehold_client_waits_seconds_bucket{@I}[@R])))",
                            "{{ring}} 99 %",
                        ),
                        q(
                            "histogram_quantile(0.5, sum by (le, ring) (rate(freehold_client_waits_seconds_bucket{@I}[@R])))",
                            "{{ring}} 50 %",
                        ),
                    ],
                ),
                lines(
                    "Tenants whose clients are refused",
                    "Samples; freehold clients top says which client.",
                    "wps",
                    &[q(
                        "topk(10, sum by (user) (rate(cortex_discarded_samples_total{@T, reason=\"client_rate_limited\"}[@R]))) or vector(0)",
                        "{{user}}",
                    )],
                ),
                lines(
                    "Shadow",
                    "What budgets would have refused, of tenants that only count.",
                    "short",
                    &[
                        q(
                            "sum(rate(freehold_distributor_client_shadow_refused_total{@T}[@R])) or vector(0)",
                            "samples/s",
                        ),
                        q(
                            "sum(rate(freehold_frontend_client_shadow_refused_total{@T}[@R])) or vector(0)",
                            "queries/s",
                        ),
                    ],
                ),
            ],
        },
        Row {
            title: "Owners",
            panels: &[
                lines(
                    "Gates that budgets are shared with",
                    "Others in the ring, by whether they answer.",
                    "short",
                    &[q("sum by (ring, state) (freehold_client_peers{@I})", "{{ring}} {{state}}")],
                ),
                lines(
                    "Without the owner",
                    "By -client-identity.owner-lost.",
                    "reqps",
                    &[q(
                        "sum by (ring, mode) (rate(freehold_client_fallbacks_total{@I}[@R]))",
                        "{{ring}} {{mode}}",
                    )],
                ),
                lines(
                    "Budgets that something is owed of",
                    "By the gate that owns them.",
                    "short",
                    &[q(
                        "topk(20, sum by (instance, ring) (freehold_client_accounts{@I}))",
                        "{{instance}} {{ring}}",
                    )],
                ),
                lines(
                    "Credit out on leases",
                    "What gates hold of others' budgets.",
                    "short",
                    &[q("sum by (ring) (freehold_client_leased_credits{@I})", "{{ring}}")],
                ),
                lines(
                    "Evictions",
                    "Accounts that had to go for others: in_debt and ghost mean that more clients come than are tracked.",
                    "short",
                    &[q(
                        "sum by (ring, kind) (rate(freehold_client_evictions_total{@I}[@R]))",
                        "{{ring}} {{kind}}/s",
                    )],
                ),
                lines(
                    "Changes of owners",
                    "Accounts handed over and taken over, and questions to a gate that was not the owner.",
                    "short",
                    &[
                        q(
                            "sum by (ring) (rate(freehold_client_handed_over_total{@I}[@R]))",
                            "{{ring}} handed over/s",
                        ),
                        q(
                            "sum by (ring) (rate(freehold_client_taken_over_total{@I}[@R]))",
                            "{{ring}} taken over/s",
                        ),
                        q(
                            "sum by (ring) (rate(freehold_client_not_owner_total{@I}[@R]))",
                            "{{ring}} not the owner/s",
                        ),
                        q(
                            "sum by (ring) (rate(freehold_client_renewals_total{@I}[@R]))",
                            "{{ring}} renewals/s",
                        ),
                    ],
                ),
            ],
        },
    ],
};
