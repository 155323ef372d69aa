//! Flags of the component "Distributor behind us".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Distributor behind us",
    flags: &[
        flag(
            "distributor.upstream-url",
            "distributor.upstream.url",
            "Send admitted writes to this Cortex distributor as they came, as http://host:port; empty shards them ourselves.",
        ),
        flag(
            "distributor.upstream.timeout",
            "distributor.upstream.timeout",
            "How long a request to the distributor behind us may take, its answer included.",
        ),
        flag(
            "distributor.upstream.connect-timeout",
            "distributor.upstream.connect_timeout",
            "How long a connection to it may take until it can be used.",
        ),
        flag(
            "distributor.upstream.connect-backoff-base-delay",
            "distributor.upstream.connect_backoff_base_delay",
            "Wait after the first connection that could not be made; it grows with each further one.",
        ),
        flag(
            "distributor.upstream.connect-backoff-max-delay",
            "distributor.upstream.connect_backoff_max_delay",
            "Longest wait between two tries to connect.",
        ),
        flag(
            "distributor.upstream.max-idle-connections",
            "distributor.upstream.max_idle_connections",
            "Connections kept open while nothing goes over them.",
        ),
        flag(
            "distributor.upstream.max-inflight-requests",
            "distributor.upstream.max_inflight_requests",
            "Most requests to it under way; more are answered 503 at once.",
        ),
        flag(
            "distributor.upstream.max-inflight-bytes",
            "distributor.upstream.max_inflight_bytes",
            "Most bytes of requests to it under way; more are answered 503 at once.",
        ),
        flag(
            "distributor.upstream.tls-cert-path",
            "distributor.upstream.tls_cert_path",
            "Certificate that we show to it; needs the key too.",
        ),
        flag(
            "distributor.upstream.tls-key-path",
            "distributor.upstream.tls_key_path",
            "Key of the certificate that we show to it.",
        ),
        flag(
            "distributor.upstream.tls-ca-path",
            "distributor.upstream.tls_ca_path",
            "Authorities that may vouch for it; empty takes the host's own.",
        ),
        flag(
            "distributor.upstream.tls-server-name",
            "distributor.upstream.tls_server_name",
            "Name that its certificate has to carry; empty takes the host of the URL.",
        ),
        flag(
            "distributor.upstream.tls-insecure-skip-verify",
            "distributor.upstream.tls_insecure_skip_verify",
            "Take every certificate of it.",
        ),
    ],
};
