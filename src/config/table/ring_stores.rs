//! Flags of the component "Stores of the ring".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
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
};
