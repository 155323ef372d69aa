//! Flags of the component "Tracing".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Tracing",
    flags: &[
        flag(
            "tracing.type",
            "tracing.type",
            "otel sends spans to an OpenTelemetry collector; off sends none, and so does jaeger here.",
        ),
        flag(
            "tracing.otel.otlp-endpoint",
            "tracing.otel.otlp_endpoint",
            "host:port of the collector's OTLP over gRPC, as a rule port 4317.",
        ),
        flag(
            "tracing.otel.sample-ratio",
            "tracing.otel.sample_ratio",
            "Part of the traces that begin here which are recorded; 1 is all. A request that comes in a trace is recorded if its caller's span is.",
        ),
        flag("tracing.otel.tls-enabled", "tracing.otel.tls_enabled", "Speak TLS to the collector."),
        flag(
            "tracing.otel.tls.tls-cert-path",
            "tracing.otel.tls.tls_cert_path",
            "Certificate that we show to the collector, a PEM file; with its key.",
        ),
        flag(
            "tracing.otel.tls.tls-key-path",
            "tracing.otel.tls.tls_key_path",
            "Key of that certificate, a PEM file.",
        ),
        flag(
            "tracing.otel.tls.tls-ca-path",
            "tracing.otel.tls.tls_ca_path",
            "Authorities that the collector's certificate is checked against, a PEM file; empty takes the host's.",
        ),
        flag(
            "tracing.otel.tls.tls-server-name",
            "tracing.otel.tls.tls_server_name",
            "Name that the collector's certificate has to be for; empty takes the host of the endpoint.",
        ),
        flag(
            "tracing.otel.tls.tls-insecure-skip-verify",
            "tracing.otel.tls.tls_insecure_skip_verify",
            "Take any certificate of the collector.",
        ),
    ],
};
