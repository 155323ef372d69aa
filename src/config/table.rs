//! The one table of flags: Cortex's name, the key it sets, and what it does.
//!
//! A row gives no type and no default: both are read from the default `Config` at the row's
//! path. Names are without dashes; one dash or two are accepted.

use super::flags::{Flag, Group};

/// Every flag, in the order in which `--help` shows them.
pub const FLAGS: &[Group] = &[
    Group {
        heading: "General",
        flags: &[
            flag(
                "target",
                "target",
                "What runs in this process: all, or ingester (pushes over gRPC only).",
            ),
            flag(
                "auth.enabled",
                "auth_enabled",
                "Take the tenant from X-Scope-OrgID. Off, one tenant owns every request.",
            ),
            flag(
                "auth.no-auth-tenant",
                "no_auth_tenant",
                "The tenant of every request while -auth.enabled is off.",
            ),
            flag(
                "log.level",
                "server.log_level",
                "Least severity logged: debug, info, warn, error.",
            ),
            flag("log.format", "server.log_format", "How log lines are written: logfmt or json."),
        ],
    },
    Group {
        heading: "Server",
        flags: &[
            flag(
                "server.http-listen-address",
                "server.http_listen_address",
                "Address for HTTP; empty is every address.",
            ),
            flag(
                "server.http-listen-port",
                "server.http_listen_port",
                "Port for HTTP; 0 takes a free one.",
            ),
            flag(
                "server.http-conn-limit",
                "server.http_listen_conn_limit",
                "Most open HTTP connections; 0 is no limit.",
            ),
            flag(
                "server.http-read-timeout",
                "server.http_server_read_timeout",
                "How long a request's body may take.",
            ),
            flag(
                "server.http-idle-timeout",
                "server.http_server_idle_timeout",
                "How long a connection may be without a whole request head.",
            ),
            flag(
                "server.grpc-listen-address",
                "server.grpc_listen_address",
                "Address for gRPC; empty is every address.",
            ),
            flag(
                "server.grpc-listen-port",
                "server.grpc_listen_port",
                "Port for gRPC; 0 takes a free one.",
            ),
            flag(
                "server.grpc-conn-limit",
                "server.grpc_listen_conn_limit",
                "Most open gRPC connections; 0 is no limit.",
            ),
            flag(
                "server.grpc-max-recv-msg-size-bytes",
                "server.grpc_server_max_recv_msg_size",
                "Longest gRPC message received, in bytes after decompression.",
            ),
            flag(
                "server.grpc-max-send-msg-size-bytes",
                "server.grpc_server_max_send_msg_size",
                "Longest gRPC message sent, in bytes.",
            ),
            flag(
                "server.grpc-max-concurrent-streams",
                "server.grpc_server_max_concurrent_streams",
                "Calls at once on one gRPC connection. A distributor with stream push keeps 100 open.",
            ),
            flag(
                "server.grpc.keepalive.time",
                "server.grpc_server_keepalive_time",
                "Time between pings on a gRPC connection.",
            ),
            flag(
                "server.grpc.keepalive.timeout",
                "server.grpc_server_keepalive_timeout",
                "A gRPC connection whose ping is not answered for this long is closed.",
            ),
            flag(
                "server.graceful-shutdown-timeout",
                "server.graceful_shutdown_timeout",
                "How long a drain waits for requests in flight.",
            ),
        ],
    },
    Group {
        heading: "Remote write and sharding",
        flags: &[
            flag(
                "distributor.max-recv-msg-size",
                "distributor.max_recv_msg_size",
                "Longest remote-write body in bytes, before and after decompression.",
            ),
            flag(
                "distributor.remote-writev2-enabled",
                "distributor.remote_writev2_enabled",
                "Accept remote write 2.0 next to 1.0.",
            ),
            flag(
                "distributor.accept-unknown-remote-write-content-type",
                "distributor.accept_unknown_remote_write_content_type",
                "Read a body of another content type as remote write 1.0.",
            ),
            flag(
                "distributor.sharding-strategy",
                "distributor.sharding_strategy",
                "Where a tenant's series may go: default (all of the ring) or shuffle-sharding.",
            ),
            flag(
                "distributor.shard-by-all-labels",
                "distributor.shard_by_all_labels",
                "Place series by all their labels; must be what the cluster's distributors use.",
            ),
            flag(
                "distributor.extend-writes",
                "distributor.extend_writes",
                "Write to one more instance for each that is not ACTIVE; must be what the cluster's \
                 distributors use.",
            ),
            flag(
                "distributor.sign-write-requests",
                "distributor.sign_write_requests",
                "Refuse push streams that are not signed.",
            ),
            flag(
                "distributor.sign-write-requests-keys",
                "distributor.sign_write_requests_keys",
                "Comma-separated HMAC keys of push streams; the first signs, all are accepted.",
            ),
        ],
    },
    Group {
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
                "Count what the other count would have admitted and refused, and change nothing; \
                 needs -ingester.owned-series-metrics-enabled.",
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
    },
    Group {
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
        ],
    },
];

/// Keys that other systems write differently: (their path, ours). They are refused with ours.
pub(super) const RENAMED_KEYS: &[(&str, &str)] = &[
    ("ingester.track_ingester_owned_series", "ingester.owned_series_metrics_enabled"),
    (
        "ingester.use_ingester_owned_series_for_limits",
        "ingester.owned_series_limit_enforcement_enabled",
    ),
    ("ingester.owned_series_update_interval", "ingester.active_series_metrics_update_period"),
];

/// Keys that no flag can set: lists of maps, which a command line cannot hold.
pub(super) const FILE_ONLY: &[&str] = &[];

const fn flag(name: &'static str, path: &'static str, help: &'static str) -> Flag {
    Flag { name, path, aliases: &[], help }
}
