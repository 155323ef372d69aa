//! Resources: what the processes use, and what they were started with.

use super::{Dashboard, Row, lines, number, q, table};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "resources",
    title: "Resources",
    about: "Processors, memory, files, connections, certificates and the runtime file of every process.",
    rows: &[
        Row {
            title: "Now",
            panels: &[
                number(
                    "Processes",
                    "Freeholds that are scraped.",
                    "short",
                    &[q("count(freehold_build_info{@I})", "")],
                ),
                number(
                    "Processors",
                    "Used by all of them.",
                    "none",
                    &[q("sum(rate(process_cpu_seconds_total{@I}[@R]))", "")],
                ),
                number(
                    "Memory",
                    "Resident, of all of them.",
                    "bytes",
                    &[q("sum(process_resident_memory_bytes{@I})", "")],
                ),
                number(
                    "Youngest process",
                    "Since the last start of any.",
                    "s",
                    &[q("min(time() - process_start_time_seconds{@I})", "")],
                ),
                number(
                    "Runtime files refused",
                    "Runbook FreeholdRuntimeFileFailing.",
                    "short",
                    &[q("sum(1 - cortex_runtime_config_last_reload_successful{@I})", "")],
                ),
                number(
                    "Next certificate to end",
                    "Runbook FreeholdCertificateExpiring. Empty where nothing speaks TLS.",
                    "s",
                    &[q(
                        "min(freehold_tls_certificate_expires_timestamp_seconds{@I} - time())",
                        "",
                    )],
                ),
            ],
        },
        Row {
            title: "Processes",
            panels: &[
                lines(
                    "Processors",
                    "The busiest.",
                    "none",
                    &[q("topk(20, rate(process_cpu_seconds_total{@I}[@R]))", "{{instance}}")],
                ),
                lines(
                    "Memory",
                    "Resident; the largest.",
                    "bytes",
                    &[q("topk(20, process_resident_memory_bytes{@I})", "{{instance}}")],
                ),
                lines(
                    "Files and sockets",
                    "Of those that a process may have open.",
                    "percentunit",
                    &[q("topk(20, process_open_fds{@I} / process_max_fds{@I})", "{{instance}}")],
                ),
                lines(
                    "Threads",
                    "The most.",
                    "short",
                    &[q("topk(20, process_threads{@I})", "{{instance}}")],
                ),
                table(
                    "Versions",
                    "How many processes have each.",
                    "short",
                    &[q("count by (version, arch, os) (freehold_build_info{@I})", "")],
                ),
                lines(
                    "Starts",
                    "In the last hour; runbook FreeholdRestartsOften.",
                    "short",
                    &[q("topk(20, changes(process_start_time_seconds{@I}[1h]))", "{{instance}}")],
                ),
            ],
        },
        Row {
            title: "Requests",
            panels: &[
                lines(
                    "Bytes under way",
                    "Requests being received or handled, of -server.max-inflight-bytes.",
                    "bytes",
                    &[q("topk(20, freehold_server_inflight_bytes{@I})", "{{instance}}")],
                ),
                lines(
                    "Waiting for room",
                    "Requests that wait, unread, for others' bytes to be given back.",
                    "short",
                    &[q("topk(20, freehold_server_waiting_requests{@I})", "{{instance}}")],
                ),
            ],
        },
        Row {
            title: "To the ingester behind a sidecar",
            panels: &[
                lines(
                    "Connections and streams",
                    "Open connections and the streams in use on them.",
                    "short",
                    &[
                        q("sum(freehold_upstream_connections{@I})", "connections"),
                        q("sum(freehold_upstream_streams{@I})", "streams"),
                    ],
                ),
                lines(
                    "Dials and failures",
                    "Connections tried, failed and broken, calls that came to nothing, and calls not made for a bound.",
                    "reqps",
                    &[
                        q("sum(rate(freehold_upstream_dials_total{@I}[@R]))", "dials"),
                        q(
                            "sum(rate(freehold_upstream_dials_failed_total{@I}[@R]))",
                            "dials failed",
                        ),
                        q(
                            "sum(rate(freehold_upstream_connections_broken_total{@I}[@R]))",
                            "connections broken",
                        ),
                        q(
                            "sum by (cause) (rate(freehold_upstream_failures_total{@I}[@R]))",
                            "calls failed: {{cause}}",
                        ),
                        q(
                            "sum by (bound) (rate(freehold_upstream_refused_total{@I}[@R]))",
                            "calls not made: {{bound}}",
                        ),
                    ],
                ),
                lines(
                    "Under way",
                    "Calls that wait or are under way.",
                    "short",
                    &[q("topk(20, freehold_upstream_inflight_requests{@I})", "{{instance}}")],
                ),
                lines(
                    "Bytes under way",
                    "Of their requests, where the size is known.",
                    "bytes",
                    &[q("topk(20, freehold_upstream_inflight_bytes{@I})", "{{instance}}")],
                ),
            ],
        },
        Row {
            title: "Traces",
            panels: &[
                lines(
                    "Spans by their fate",
                    "sent to the collector; queue_full, unsent and rejected are lost. Only with -tracing.type=otel.",
                    "short",
                    &[q("sum by (fate) (rate(freehold_trace_spans_total{@I}[@R]))", "{{fate}}/s")],
                ),
                lines(
                    "Spans that wait",
                    "The fullest queue, of 2048.",
                    "short",
                    &[q("topk(20, freehold_trace_spans_queued{@I})", "{{instance}}")],
                ),
            ],
        },
        Row {
            title: "Files",
            panels: &[
                lines(
                    "Runtime file",
                    "Readings that failed, and warnings of the file in force.",
                    "short",
                    &[
                        q(
                            "sum(increase(freehold_runtime_config_failures_total{@I}[@R]))",
                            "failed",
                        ),
                        q("max(freehold_runtime_config_warnings{@I})", "warnings"),
                    ],
                ),
                table(
                    "Runtime files in force",
                    "How many processes have each; more than one line for a job is a file that is not everywhere yet.",
                    "short",
                    &[q("count by (job, sha256) (cortex_runtime_config_hash{@I} == 1)", "")],
                ),
                lines(
                    "Certificates",
                    "Until they end, the next first. Empty where nothing speaks TLS.",
                    "s",
                    &[q(
                        "bottomk(20, freehold_tls_certificate_expires_timestamp_seconds{@I} - time())",
                        "{{instance}} {{for}}",
                    )],
                ),
                lines(
                    "Certificate files",
                    "New ones put in force, and whether those in place cannot be used (1).",
                    "short",
                    &[
                        q(
                            "sum by (for) (increase(freehold_tls_reloads_total{@I}[@R]))",
                            "{{for}} new",
                        ),
                        q("max by (for) (freehold_tls_reload_failing{@I})", "{{for}} failing"),
                    ],
                ),
            ],
        },
    ],
};
