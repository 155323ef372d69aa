//! Flags of the component "Those who answer queries".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Those who answer queries",
    flags: &[
        flag(
            "frontend.downstream-url",
            "frontend.downstream.url",
            "Send admitted queries to this address, as http://host:port, https://host:port or h2c://host:port; several with commas between.",
        ),
        flag(
            "frontend.downstream.response-timeout",
            "frontend.downstream.response_timeout",
            "How long the head of an answer may take once the request is there.",
        ),
        flag(
            "frontend.downstream.idle-timeout",
            "frontend.downstream.idle_timeout",
            "How long the body of a request or of an answer may pause.",
        ),
        flag(
            "frontend.downstream.connect-timeout",
            "frontend.downstream.connect_timeout",
            "How long a connection may take until it can be used.",
        ),
        flag(
            "frontend.downstream.connect-backoff-base-delay",
            "frontend.downstream.connect_backoff_base_delay",
            "Wait after the first connection that could not be made; it grows with each further one.",
        ),
        flag(
            "frontend.downstream.connect-backoff-max-delay",
            "frontend.downstream.connect_backoff_max_delay",
            "Longest wait between two tries to connect.",
        ),
        flag(
            "frontend.downstream.max-idle-connections",
            "frontend.downstream.max_idle_connections",
            "Connections to one address that are kept open while nothing goes over them.",
        ),
        flag(
            "frontend.downstream.max-inflight-requests",
            "frontend.downstream.max_inflight_requests",
            "Most requests to one address under way; more are answered 503 at once.",
        ),
        flag(
            "frontend.downstream.health-check-path",
            "frontend.downstream.health_check_path",
            "Path that is asked for to see whether an address is well; empty asks nothing.",
        ),
        flag(
            "frontend.downstream.health-check-period",
            "frontend.downstream.health_check_period",
            "Time between two health checks of an address.",
        ),
        flag(
            "frontend.downstream.health-check-timeout",
            "frontend.downstream.health_check_timeout",
            "How long the answer to a health check may take.",
        ),
        flag(
            "frontend.downstream.health-check-bad-status",
            "frontend.downstream.health_check_bad_status",
            "The least status of a health check's answer that says the address is not well.",
        ),
        flag(
            "frontend.downstream.tls-cert-path",
            "frontend.downstream.tls_cert_path",
            "Certificate that we show to them; needs the key too.",
        ),
        flag(
            "frontend.downstream.tls-key-path",
            "frontend.downstream.tls_key_path",
            "Key of the certificate that we show to them.",
        ),
        flag(
            "frontend.downstream.tls-ca-path",
            "frontend.downstream.tls_ca_path",
            "Authorities that may vouch for them; empty takes the host's own.",
        ),
        flag(
            "frontend.downstream.tls-server-name",
            "frontend.downstream.tls_server_name",
            "Name that their certificates have to carry; empty takes the host of each URL.",
        ),
        flag(
            "frontend.downstream.tls-insecure-skip-verify",
            "frontend.downstream.tls_insecure_skip_verify",
            "Take every certificate of theirs.",
        ),
    ],
};
