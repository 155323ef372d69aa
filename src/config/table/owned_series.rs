//! Flags of the component "Owned series".

use super::super::flags::{Flag, Group};
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Owned series",
    flags: &[
        Flag {
            name: "ingester.owned-series-metrics-enabled",
            path: "ingester.owned_series_metrics_enabled",
            aliases: &["ingester.track-ingester-owned-series"],
            help: "Count the series that the ring assigns to this instance.",
        },
        Flag {
            name: "ingester.owned-series-limit-enforcement-enabled",
            path: "ingester.owned_series_limit_enforcement_enabled",
            aliases: &["ingester.use-ingester-owned-series-for-limits"],
            help: "Apply series limits to the owned count instead of the in-memory count; \
                   needs -ingester.owned-series-metrics-enabled.",
        },
        flag(
            "ingester.owned-series-shadow-enabled",
            "ingester.owned_series_shadow_enabled",
            "While enforcement is off, count the series that it would have admitted and \
             refused, and change nothing; needs -ingester.owned-series-metrics-enabled.",
        ),
        flag(
            "ingester.series-limit-mode",
            "ingester.series_limit_mode",
            "How a cluster-wide limit becomes a local one: flat (as Cortex) or share (by the \
             exact share of the key space).",
        ),
        flag(
            "ingester.series-limit-hold-timeout",
            "ingester.series_limit_hold_timeout",
            "Longest wait of a limit that fell with a ring change for the recount.",
        ),
    ],
};
