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
                "What runs here: all; or ingester, behind Cortex's distributors and with its ring defaults \
                 (replication factor 3, 15s until ready, 30s after LEAVING).",
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
            flag(
                "limits.parity",
                "ingester.limits_parity",
                "Cortex's behaviour wherever ours differs on purpose; docs/compatibility.md lists it.",
            ),
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
                "server.http-tls-cert-path",
                "server.http_tls_config.cert_file",
                "Certificate of the HTTP listener, a PEM file; with the key it speaks TLS. Changes are taken without a restart.",
            ),
            flag(
                "server.http-tls-key-path",
                "server.http_tls_config.key_file",
                "Key of the HTTP listener's certificate, a PEM file.",
            ),
            flag(
                "server.http-tls-client-auth",
                "server.http_tls_config.client_auth_type",
                "What HTTP clients must show: nothing (empty or NoClientCert), VerifyClientCertIfGiven, RequireAndVerifyClientCert.",
            ),
            flag(
                "server.http-tls-ca-path",
                "server.http_tls_config.client_ca_file",
                "Authorities that HTTP clients' certificates are checked against, a PEM file.",
            ),
            flag(
                "server.grpc-tls-cert-path",
                "server.grpc_tls_config.cert_file",
                "Certificate of the gRPC listener, a PEM file; with the key it speaks TLS. Changes are taken without a restart.",
            ),
            flag(
                "server.grpc-tls-key-path",
                "server.grpc_tls_config.key_file",
                "Key of the gRPC listener's certificate, a PEM file.",
            ),
            flag(
                "server.grpc-tls-client-auth",
                "server.grpc_tls_config.client_auth_type",
                "What gRPC clients must show: nothing (empty or NoClientCert), VerifyClientCertIfGiven, RequireAndVerifyClientCert.",
            ),
            flag(
                "server.grpc-tls-ca-path",
                "server.grpc_tls_config.client_ca_file",
                "Authorities that gRPC clients' certificates are checked against, a PEM file.",
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
                "ingester.distributor-address",
                "ingester.distributor_address",
                "HTTP host:port of a distributor. Its /config page is read at the start and every five minutes, and settings that place series otherwise than ours are told by name.",
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
    },
    Group {
        heading: "Upstream",
        flags: &[
            flag(
                "ingester.upstream-address",
                "ingester.upstream.address",
                "host:port of the ingester that this one stands before; empty keeps the series here.",
            ),
            flag(
                "ingester.instance-id",
                "ingester.instance_id",
                "With an upstream: its id in the ring, whose place there we watch. Empty takes our own.",
            ),
            flag(
                "ingester.upstream.connect-timeout",
                "ingester.upstream.connect_timeout",
                "How long a connection to the upstream may take until it can be used.",
            ),
            flag(
                "ingester.upstream.connect-backoff-base-delay",
                "ingester.upstream.connect_backoff_base_delay",
                "Wait after a first failed connection; it grows with each further one.",
            ),
            flag(
                "ingester.upstream.connect-backoff-max-delay",
                "ingester.upstream.connect_backoff_max_delay",
                "Longest wait between two tries to connect.",
            ),
            flag(
                "ingester.upstream.max-connections",
                "ingester.upstream.max_connections",
                "Most connections to the upstream. A further one is opened when all streams of the others are taken.",
            ),
            flag(
                "ingester.upstream.max-inflight-requests",
                "ingester.upstream.max_inflight_requests",
                "Most calls to the upstream waiting or under way; more are refused at once.",
            ),
            flag(
                "ingester.upstream.max-inflight-bytes",
                "ingester.upstream.max_inflight_bytes",
                "Most bytes of requests to the upstream waiting or under way; more are refused at once.",
            ),
            flag(
                "ingester.upstream.grpc-max-recv-msg-size",
                "ingester.upstream.max_recv_msg_size",
                "Longest message of an answer to a question of our own, in bytes; what is passed through has no bound.",
            ),
            flag(
                "ingester.upstream.keepalive.time",
                "ingester.upstream.keepalive_time",
                "Time between pings on a connection to the upstream.",
            ),
            flag(
                "ingester.upstream.keepalive.timeout",
                "ingester.upstream.keepalive_timeout",
                "A connection to the upstream whose ping is not answered for this long is closed.",
            ),
            flag(
                "ingester.upstream.push-stream-timeout",
                "ingester.upstream.push_stream_timeout",
                "How long a message of a push stream may wait for the upstream's answer.",
            ),
            flag(
                "ingester.upstream.tls-enabled",
                "ingester.upstream.tls_enabled",
                "Speak TLS with the upstream.",
            ),
            flag(
                "ingester.upstream.tls-cert-path",
                "ingester.upstream.tls_cert_path",
                "Certificate that we show to the upstream, a PEM file; needs the key. Changes are taken without a restart.",
            ),
            flag(
                "ingester.upstream.tls-key-path",
                "ingester.upstream.tls_key_path",
                "Key of that certificate, a PEM file.",
            ),
            flag(
                "ingester.upstream.tls-ca-path",
                "ingester.upstream.tls_ca_path",
                "Authorities that the upstream's certificate is checked against, a PEM file; empty takes the host's.",
            ),
            flag(
                "ingester.upstream.tls-server-name",
                "ingester.upstream.tls_server_name",
                "Name that the upstream's certificate has to be for; empty takes the host of the address.",
            ),
            flag(
                "ingester.upstream.tls-insecure-skip-verify",
                "ingester.upstream.tls_insecure_skip_verify",
                "Take any certificate of the upstream.",
            ),
        ],
    },
    Group {
        heading: "Limits of tenants",
        flags: &[
            flag(
                "distributor.ingestion-rate-limit",
                "limits.ingestion_rate",
                "A tenant's samples, exemplars and metadata per second.",
            ),
            flag(
                "distributor.native-histogram-ingestion-rate-limit",
                "limits.native_histogram_ingestion_rate",
                "A tenant's native-histogram samples per second; the default is no limit.",
            ),
            flag(
                "distributor.ingestion-rate-limit-strategy",
                "limits.ingestion_rate_strategy",
                "Whether the rate is each distributor's (local) or the cluster's (global).",
            ),
            flag(
                "distributor.ingestion-burst-size",
                "limits.ingestion_burst_size",
                "Most samples that a tenant's bucket holds.",
            ),
            flag(
                "distributor.native-histogram-ingestion-burst-size",
                "limits.native_histogram_ingestion_burst_size",
                "Most native-histogram samples that a tenant's bucket holds.",
            ),
            flag(
                "validation.max-length-label-name",
                "limits.max_label_name_length",
                "Longest label name, in bytes.",
            ),
            flag(
                "validation.max-length-label-value",
                "limits.max_label_value_length",
                "Longest label value, in bytes; the metric name's too.",
            ),
            flag(
                "validation.max-label-names-per-series",
                "limits.max_label_names_per_series",
                "Most labels of a series.",
            ),
            flag(
                "validation.max-labels-size-bytes",
                "limits.max_labels_size_bytes",
                "Most bytes of names and values of a series; 0 is no limit.",
            ),
            flag(
                "validation.max-native-histogram-sample-size-bytes",
                "limits.max_native_histogram_sample_size_bytes",
                "Longest native-histogram sample, in bytes; 0 is no limit.",
            ),
            flag(
                "validation.max-native-histogram-buckets",
                "limits.max_native_histogram_buckets",
                "Most buckets of a native histogram, whose resolution is reduced to fit; 0 is no limit.",
            ),
            flag(
                "validation.max-metadata-length",
                "limits.max_metadata_length",
                "Longest metric name, help text or unit of metadata, in bytes.",
            ),
            flag(
                "validation.reject-old-samples",
                "limits.reject_old_samples",
                "Refuse samples older than -validation.reject-old-samples.max-age.",
            ),
            flag(
                "validation.reject-old-samples.max-age",
                "limits.reject_old_samples_max_age",
                "Oldest sample accepted while -validation.reject-old-samples is on.",
            ),
            flag(
                "validation.create-grace-period",
                "limits.creation_grace_period",
                "How far in the future a sample may lie.",
            ),
            flag(
                "validation.enforce-metadata-metric-name",
                "limits.enforce_metadata_metric_name",
                "Refuse metadata without a metric name.",
            ),
            flag(
                "validation.enforce-metric-name",
                "limits.enforce_metric_name",
                "Refuse series without a metric name.",
            ),
            flag(
                "distributor.enable-type-and-unit-labels",
                "limits.enable_type_and_unit_labels",
                "Add the labels __type__ and __unit__ to series of remote write 2.0.",
            ),
            flag(
                "distributor.enable-start-timestamp",
                "limits.enable_start_timestamp",
                "Take over start timestamps of remote write 2.0.",
            ),
            flag(
                "distributor.ingestion-tenant-shard-size",
                "limits.ingestion_tenant_shard_size",
                "Instances of a tenant's subring under shuffle sharding; below 1 a share of all, 0 is all.",
            ),
            flag(
                "ingester.max-series-per-user",
                "limits.max_series_per_user",
                "Most series of a tenant on this instance; 0 is no limit.",
            ),
            flag(
                "ingester.max-series-per-metric",
                "limits.max_series_per_metric",
                "Most series of one metric of a tenant on this instance; 0 is no limit.",
            ),
            flag(
                "ingester.max-native-histogram-series-per-user",
                "limits.max_native_histogram_series_per_user",
                "Most native-histogram series of a tenant on this instance; 0 is no limit.",
            ),
            flag(
                "ingester.max-global-series-per-user",
                "limits.max_global_series_per_user",
                "Most series of a tenant in the cluster, before replication; 0 is no limit.",
            ),
            flag(
                "ingester.max-global-series-per-metric",
                "limits.max_global_series_per_metric",
                "Most series of one metric of a tenant in the cluster, before replication; 0 is no limit.",
            ),
            flag(
                "ingester.max-global-native-histogram-series-per-user",
                "limits.max_global_native_histogram_series_per_user",
                "Most native-histogram series of a tenant in the cluster, before replication; 0 is no limit.",
            ),
            flag(
                "blocks-storage.tsdb.enable-native-histograms",
                "limits.enable_native_histograms",
                "Accept native histograms.",
            ),
            flag(
                "ingester.max-metadata-per-user",
                "limits.max_metadata_per_user",
                "Most metrics with metadata of a tenant on this instance; 0 is no limit.",
            ),
            flag(
                "ingester.max-metadata-per-metric",
                "limits.max_metadata_per_metric",
                "Most metadata of one metric of a tenant on this instance; 0 is no limit.",
            ),
            flag(
                "ingester.max-global-metadata-per-user",
                "limits.max_global_metadata_per_user",
                "Most metrics with metadata of a tenant in the cluster; 0 is no limit.",
            ),
            flag(
                "ingester.max-global-metadata-per-metric",
                "limits.max_global_metadata_per_metric",
                "Most metadata of one metric of a tenant in the cluster; 0 is no limit.",
            ),
            flag(
                "ingester.out-of-order-time-window",
                "limits.out_of_order_time_window",
                "How much older than a series' newest sample another may be.",
            ),
            flag(
                "ingester.max-exemplars",
                "limits.max_exemplars",
                "Most exemplars kept of a tenant; 0 takes the store's own bound, below 0 keeps none.",
            ),
            flag(
                "runtime-config.file",
                "runtime_config.file",
                "Cortex's runtime file with the tenants' overrides; empty is none.",
            ),
            flag(
                "runtime-config.reload-period",
                "runtime_config.period",
                "How often the runtime file is read.",
            ),
        ],
    },
    Group {
        heading: "Ring",
        flags: &[
            flag(
                "ring.store",
                "ingester.lifecycler.ring.kvstore.store",
                "Where the ring is kept: inmemory (this process), etcd, consul, or read only: file, http.",
            ),
            flag(
                "ring.prefix",
                "ingester.lifecycler.ring.kvstore.prefix",
                "Put before each key in the store.",
            ),
            flag(
                "ring.file.path",
                "ingester.lifecycler.ring.kvstore.file.path",
                "The raw ring value or saved /ring page that the store file follows.",
            ),
            flag(
                "ring.file.poll-interval",
                "ingester.lifecycler.ring.kvstore.file.poll_interval",
                "How often the store file looks for a change.",
            ),
            flag(
                "ring.heartbeat-timeout",
                "ingester.lifecycler.ring.heartbeat_timeout",
                "An instance whose last heartbeat is older is not healthy; 0 never calls one so.",
            ),
            flag(
                "distributor.replication-factor",
                "ingester.lifecycler.ring.replication_factor",
                "Instances that hold each series; must be what the cluster's distributors use.",
            ),
            flag(
                "distributor.zone-awareness-enabled",
                "ingester.lifecycler.ring.zone_awareness_enabled",
                "Spread a series' replicas over zones; must be what the cluster's distributors use.",
            ),
            flag(
                "ingester.num-tokens",
                "ingester.lifecycler.num_tokens",
                "Tokens that a new entry claims.",
            ),
            flag(
                "ingester.heartbeat-period",
                "ingester.lifecycler.heartbeat_period",
                "Time between our heartbeats; 0 sends none.",
            ),
            flag(
                "ingester.observe-period",
                "ingester.lifecycler.observe_period",
                "How long new tokens are watched for conflicts before we go ACTIVE; 0 skips it.",
            ),
            flag(
                "ingester.join-after",
                "ingester.lifecycler.join_after",
                "How long we wait before we join.",
            ),
            flag(
                "ingester.min-ready-duration",
                "ingester.lifecycler.min_ready_duration",
                "How long everything must have been fine before /ready says so.",
            ),
            flag(
                "ingester.final-sleep",
                "ingester.lifecycler.final_sleep",
                "How long we stay LEAVING before the end, so that the last metrics are scraped.",
            ),
            flag(
                "ingester.tokens-file-path",
                "ingester.lifecycler.tokens_file_path",
                "File where our tokens survive a loss of the ring; empty is none.",
            ),
            flag(
                "ingester.availability-zone",
                "ingester.lifecycler.availability_zone",
                "Our zone.",
            ),
            flag(
                "ingester.unregister-on-shutdown",
                "ingester.lifecycler.unregister_on_shutdown",
                "Leave the ring at the end.",
            ),
            flag(
                "ingester.readiness-check-ring-health",
                "ingester.lifecycler.readiness_check_ring_health",
                "Be ready only while every instance of the ring is ACTIVE and healthy.",
            ),
            flag(
                "ingester.auto-forget-delay",
                "ingester.lifecycler.auto_forget_delay",
                "Take members out of the ring that were silent for so long; 0 never does.",
            ),
            flag(
                "ingester.lifecycler.addr",
                "ingester.lifecycler.address",
                "Address we advertise; empty takes the one the default route leaves from.",
            ),
            flag(
                "ingester.lifecycler.port",
                "ingester.lifecycler.port",
                "Port we advertise; 0 takes the gRPC listener's.",
            ),
            flag(
                "ingester.lifecycler.ID",
                "ingester.lifecycler.id",
                "Our id in the ring; empty takes the host's name.",
            ),
        ],
    },
    Group {
        heading: "Stores of the ring",
        flags: &[
            flag(
                "ring.http.url",
                "ingester.lifecycler.ring.kvstore.http.url",
                "The /ring page of a Cortex process that the store http follows.",
            ),
            flag(
                "ring.http.poll-interval",
                "ingester.lifecycler.ring.kvstore.http.poll_interval",
                "How often the store http asks for the page.",
            ),
            flag(
                "ring.http.timeout",
                "ingester.lifecycler.ring.kvstore.http.timeout",
                "How long the store http waits for the page.",
            ),
            flag(
                "ring.http.tls-cert-path",
                "ingester.lifecycler.ring.kvstore.http.tls_cert_path",
                "Certificate that we show to the page's server; needs the key too.",
            ),
            flag(
                "ring.http.tls-key-path",
                "ingester.lifecycler.ring.kvstore.http.tls_key_path",
                "Key of the certificate that we show to the page's server.",
            ),
            flag(
                "ring.http.tls-ca-path",
                "ingester.lifecycler.ring.kvstore.http.tls_ca_path",
                "Authorities that may vouch for the page's server; empty takes the host's own.",
            ),
            flag(
                "ring.http.tls-server-name",
                "ingester.lifecycler.ring.kvstore.http.tls_server_name",
                "Name that the certificate of the page's server has to carry; empty takes the host dialled.",
            ),
            flag(
                "ring.http.tls-insecure-skip-verify",
                "ingester.lifecycler.ring.kvstore.http.tls_insecure_skip_verify",
                "Take every certificate of the page's server.",
            ),
            flag(
                "etcd.endpoints",
                "ingester.lifecycler.ring.kvstore.etcd.endpoints",
                "The etcd servers as host:port, with https:// before it for TLS.",
            ),
            flag(
                "etcd.dial-timeout",
                "ingester.lifecycler.ring.kvstore.etcd.dial_timeout",
                "How long one try of a call to etcd may take, the connection included.",
            ),
            flag(
                "etcd.max-retries",
                "ingester.lifecycler.ring.kvstore.etcd.max_retries",
                "Most tries of a call that fails, and of a swap that loses its race.",
            ),
            flag(
                "etcd.tls-enabled",
                "ingester.lifecycler.ring.kvstore.etcd.tls_enabled",
                "Speak to etcd by TLS.",
            ),
            flag(
                "etcd.tls-cert-path",
                "ingester.lifecycler.ring.kvstore.etcd.tls_cert_path",
                "Certificate that we show to etcd; needs the key too.",
            ),
            flag(
                "etcd.tls-key-path",
                "ingester.lifecycler.ring.kvstore.etcd.tls_key_path",
                "Key of the certificate that we show to etcd.",
            ),
            flag(
                "etcd.tls-ca-path",
                "ingester.lifecycler.ring.kvstore.etcd.tls_ca_path",
                "Authorities that may vouch for etcd; empty takes the host's own.",
            ),
            flag(
                "etcd.tls-server-name",
                "ingester.lifecycler.ring.kvstore.etcd.tls_server_name",
                "Name that the certificate of etcd has to carry; empty takes the host dialled.",
            ),
            flag(
                "etcd.tls-insecure-skip-verify",
                "ingester.lifecycler.ring.kvstore.etcd.tls_insecure_skip_verify",
                "Take every certificate of etcd.",
            ),
            flag(
                "etcd.username",
                "ingester.lifecycler.ring.kvstore.etcd.username",
                "Name to log in to etcd with; empty does not log in.",
            ),
            flag(
                "etcd.password",
                "ingester.lifecycler.ring.kvstore.etcd.password",
                "Password to log in to etcd with.",
            ),
            flag(
                "etcd.ping-without-stream-allowed",
                "ingester.lifecycler.ring.kvstore.etcd.ping-without-stream-allowed",
                "Ping etcd also while nothing is asked of it.",
            ),
            flag(
                "consul.hostname",
                "ingester.lifecycler.ring.kvstore.consul.host",
                "The Consul agent as host:port.",
            ),
            flag(
                "consul.acl-token",
                "ingester.lifecycler.ring.kvstore.consul.acl_token",
                "ACL token for Consul.",
            ),
            flag(
                "consul.client-timeout",
                "ingester.lifecycler.ring.kvstore.consul.http_client_timeout",
                "How long a call to Consul may take; a blocking query waits for half of it, 8s at the most.",
            ),
            flag(
                "consul.consistent-reads",
                "ingester.lifecycler.ring.kvstore.consul.consistent_reads",
                "Have Consul's leader confirm each read; off, any server answers, perhaps with an older ring.",
            ),
            flag(
                "consul.watch-rate-limit",
                "ingester.lifecycler.ring.kvstore.consul.watch_rate_limit",
                "Most blocking queries per second; 0 is no limit.",
            ),
            flag(
                "consul.watch-burst-size",
                "ingester.lifecycler.ring.kvstore.consul.watch_burst_size",
                "Blocking queries at once after a quiet time; below 1 counts as 1.",
            ),
            flag(
                "consul.tls-enabled",
                "ingester.lifecycler.ring.kvstore.consul.tls_enabled",
                "Speak to Consul by TLS.",
            ),
            flag(
                "consul.tls-cert-path",
                "ingester.lifecycler.ring.kvstore.consul.tls_cert_path",
                "Certificate that we show to Consul; needs the key too.",
            ),
            flag(
                "consul.tls-key-path",
                "ingester.lifecycler.ring.kvstore.consul.tls_key_path",
                "Key of the certificate that we show to Consul.",
            ),
            flag(
                "consul.tls-ca-path",
                "ingester.lifecycler.ring.kvstore.consul.tls_ca_path",
                "Authorities that may vouch for Consul; empty takes the host's own.",
            ),
            flag(
                "consul.tls-server-name",
                "ingester.lifecycler.ring.kvstore.consul.tls_server_name",
                "Name that the certificate of Consul has to carry; empty takes the host dialled.",
            ),
            flag(
                "consul.tls-insecure-skip-verify",
                "ingester.lifecycler.ring.kvstore.consul.tls_insecure_skip_verify",
                "Take every certificate of Consul.",
            ),
        ],
    },
    Group {
        heading: "Embedded store",
        flags: &[
            flag("store.enabled", "store.enabled", "Keep accepted samples."),
            flag("store.path", "store.path", "Directory of the store; made if it is missing."),
            flag(
                "store.retention",
                "store.retention",
                "Samples older than this are dropped, six hours of them at a time.",
            ),
            flag(
                "store.sync-interval",
                "store.sync_interval",
                "How often written samples are forced to the disk: what the loss of the machine may cost. The loss of the process costs nothing.",
            ),
            flag("store.cache-bytes", "store.cache_bytes", "Read cache, in bytes."),
            flag(
                "store.write-buffer-bytes",
                "store.write_buffer_bytes",
                "Samples kept in memory until they are sorted into a file, in bytes.",
            ),
            flag(
                "store.max-samples-per-query",
                "store.max_samples_per_query",
                "Most samples that one query may read.",
            ),
            flag(
                "store.max-series-per-query",
                "store.max_series_per_query",
                "Most series, names, values or metadata that one query may select.",
            ),
            flag(
                "store.max-bytes-per-query",
                "store.max_bytes_per_query",
                "Most bytes that one query may read.",
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
#[cfg(test)]
pub(super) const FILE_ONLY: &[&str] = &["limits.limits_per_label_set"];

const fn flag(name: &'static str, path: &'static str, help: &'static str) -> Flag {
    Flag { name, path, aliases: &[], help }
}
