//! Flags of the component "Ingester".

use super::super::flags::{Flag, Group};
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Ingester",
    flags: &[
        Flag {
            name: "ingester.active-series-metrics-update-period",
            path: "ingester.active_series_metrics_update_period",
            aliases: &["ingester.owned-series-update-interval"],
            help: "Period of the cycle that recounts active and owned series. A ring change \
                   is recounted at once.",
        },
        flag(
            "ingester.active-series-metrics-idle-timeout",
            "ingester.active_series_metrics_idle_timeout",
            "A series not touched for this long is no longer active.",
        ),
        flag(
            "ingester.ignore-series-limit-for-metric-names",
            "ingester.ignore_series_limit_for_metric_names",
            "Comma-separated metric names that the per-metric limits do not touch.",
        ),
        flag(
            "ingester.admin-limit-message",
            "ingester.admin_limit_message",
            "Ends the text of a refusal.",
        ),
        flag(
            "ingester.check-ingestion-limits",
            "ingester.check_ingestion_limits",
            "Check a tenant's ingestion rate on pushes too: auto (with a tolerance no \
             compliant distributor exceeds), on, off.",
        ),
        flag(
            "ingester.metadata-retain-period",
            "ingester.metadata_retain_period",
            "Metadata not seen for this long is dropped.",
        ),
        flag(
            "ingester.distributor-address",
            "ingester.distributor_address",
            "HTTP host:port of a distributor, or its URL, https:// included. Its /config page is read at the start and every five minutes, and settings that place series otherwise than ours are told by name.",
        ),
        flag(
            "ingester.distributor-tls-ca-path",
            "ingester.distributor_tls_ca_path",
            "Authorities that the distributor's certificate is checked against with https://, a PEM file; empty takes the host's.",
        ),
        flag(
            "ingester.client-cleanup-period",
            "ingester.client_cleanup_period",
            "What distributors have as -distributor.client-cleanup-period. Health checks fail for so long and 5s after a start, so that push streams are opened anew.",
        ),
        flag(
            "ingester.drain-announce-period",
            "ingester.drain_announce_period",
            "With an upstream, how long health checks fail before a drain closes the listeners; pushes are taken meanwhile.",
        ),
        flag(
            "ingester.instance-limits.max-ingestion-rate",
            "ingester.instance_limits.max_ingestion_rate",
            "Most items per second over all tenants, as a moving average; 0 is no limit.",
        ),
        flag(
            "ingester.instance-limits.max-tenants",
            "ingester.instance_limits.max_tenants",
            "Most tenants; 0 is no limit.",
        ),
        flag(
            "ingester.instance-limits.max-series",
            "ingester.instance_limits.max_series",
            "Most series over all tenants; 0 is no limit.",
        ),
        flag(
            "ingester.instance-limits.max-inflight-push-requests",
            "ingester.instance_limits.max_inflight_push_requests",
            "Most pushes at once over all tenants; 0 is no limit.",
        ),
        flag(
            "ingester.instance-limits.max-inflight-query-requests",
            "ingester.instance_limits.max_inflight_query_requests",
            "Taken and shown for Cortex's sake; an ingester here answers no queries over gRPC.",
        ),
    ],
};
