//! Flags of the component "Upstream".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
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
};
