//! The front door: who is turned away before anything is known of a request.

use super::{Dashboard, Row, lines, number, q, stacked};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "front-door",
    title: "Front door",
    about: "Limits by address and credential ahead of everything on HTTP. No metric names either: the log and /front-door have their digests.",
    rows: &[
        Row {
            title: "Now",
            panels: &[
                number(
                    "Refused",
                    "By all limiters.",
                    "reqps",
                    &[q("sum(rate(freehold_front_door_refused_total{@I}[@R]))", "")],
                ),
                number(
                    "Failures charged",
                    "Requests that failed and were charged to their address.",
                    "reqps",
                    &[q("sum(rate(freehold_front_door_failures_total{@I}[@R]))", "")],
                ),
                number(
                    "Denied",
                    "Requests of addresses on -front-door.deny.",
                    "reqps",
                    &[q("sum(rate(freehold_front_door_denied_total{@I}[@R]))", "")],
                ),
                number(
                    "Evicted in debt",
                    "Runbook FreeholdFrontDoorEvictionsInDebt.",
                    "short",
                    &[q(
                        "sum(increase(freehold_front_door_evictions_total{@I, kind=\"in_debt\"}[@R]))",
                        "",
                    )],
                ),
            ],
        },
        Row {
            title: "Requests",
            panels: &[
                stacked(
                    "Refused by limiter",
                    "By failures of the address, requests of the address, or of the credential.",
                    "reqps",
                    &[q(
                        "sum by (class, limiter) (rate(freehold_front_door_refused_total{@I}[@R]))",
                        "{{class}} {{limiter}}",
                    )],
                ),
                lines(
                    "Shadow",
                    "Admitted requests that a limiter in shadow would have refused.",
                    "reqps",
                    &[q(
                        "sum by (class, limiter) (rate(freehold_front_door_shadow_refused_total{@I}[@R]))",
                        "{{class}} {{limiter}}",
                    )],
                ),
                lines(
                    "Failures and proofs",
                    "Failures charged to addresses, and requests that needed no credit since their address and credential succeeded lately.",
                    "reqps",
                    &[
                        q(
                            "sum by (class) (rate(freehold_front_door_failures_total{@I}[@R]))",
                            "{{class}} failed",
                        ),
                        q(
                            "sum by (class) (rate(freehold_front_door_proven_total{@I}[@R]))",
                            "{{class}} proven",
                        ),
                    ],
                ),
                lines(
                    "Hops not used",
                    "untrusted: a peer that is no trusted proxy wrote them; unreadable: no address. Many untrusted ones mean a proxy that is not listed.",
                    "reqps",
                    &[q(
                        "sum by (reason) (rate(freehold_front_door_unusable_hops_total{@I}[@R]))",
                        "{{reason}}",
                    )],
                ),
            ],
        },
        Row {
            title: "What is kept",
            panels: &[
                lines(
                    "Entries",
                    "Addresses, credentials and proven pairs.",
                    "short",
                    &[q(
                        "sum by (class, table) (freehold_front_door_entries{@I})",
                        "{{class}} {{table}}",
                    )],
                ),
                lines(
                    "Evictions",
                    "idle costs nobody anything; in_debt gave somebody credit.",
                    "short",
                    &[q(
                        "sum by (class, table, kind) (rate(freehold_front_door_evictions_total{@I}[@R]))",
                        "{{class}} {{table}} {{kind}}/s",
                    )],
                ),
                lines(
                    "Salt",
                    "New salts put in force, and looks at the file that found none to be used.",
                    "short",
                    &[
                        q("sum(increase(freehold_front_door_salt_rotations_total{@I}[@R]))", "new"),
                        q(
                            "sum(increase(freehold_front_door_salt_failures_total{@I}[@R]))",
                            "failed",
                        ),
                    ],
                ),
            ],
        },
    ],
};
