//! Flags of the component "Query gates' ring".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Query gates' ring",
    flags: &[
        flag(
            "frontend.ring.store",
            "frontend.ring.kvstore.store",
            "Where the query gates' ring is kept: inmemory (this process), etcd, consul or memberlist.",
        ),
        flag(
            "frontend.ring.prefix",
            "frontend.ring.kvstore.prefix",
            "Put before each key in the store.",
        ),
        flag(
            "frontend.ring.heartbeat-period",
            "frontend.ring.heartbeat_period",
            "How often we say in the query gates' ring that we are there; 0 never does.",
        ),
        flag(
            "frontend.ring.heartbeat-timeout",
            "frontend.ring.heartbeat_timeout",
            "A query gate whose last heartbeat is older is not healthy; 0 never calls one so.",
        ),
        flag(
            "frontend.ring.auto-forget-delay",
            "frontend.ring.auto_forget_delay",
            "Silence after which a query gate is taken out of the ring; 0 never does.",
        ),
        flag(
            "frontend.ring.num-tokens",
            "frontend.ring.num_tokens",
            "Points of the query gates' ring that we claim.",
        ),
        flag(
            "frontend.ring.instance-id",
            "frontend.ring.instance_id",
            "Our id in the query gates' ring; empty takes the host's name.",
        ),
        flag(
            "frontend.ring.instance-addr",
            "frontend.ring.instance_addr",
            "Our address in the query gates' ring; empty takes the one that the default route leaves from.",
        ),
        flag(
            "frontend.ring.instance-port",
            "frontend.ring.instance_port",
            "Our port in the query gates' ring; 0 takes the gRPC listener's.",
        ),
        flag(
            "frontend.ring.file.path",
            "frontend.ring.kvstore.file.path",
            "The raw ring value or saved /ring page that the store file follows.",
        ),
        flag(
            "frontend.ring.file.poll-interval",
            "frontend.ring.kvstore.file.poll_interval",
            "How often the store file looks for a change.",
        ),
        flag(
            "frontend.ring.http.url",
            "frontend.ring.kvstore.http.url",
            "The /ring page of a Cortex process that the store http follows.",
        ),
        flag(
            "frontend.ring.http.poll-interval",
            "frontend.ring.kvstore.http.poll_interval",
            "How often the store http asks for the page.",
        ),
        flag(
            "frontend.ring.http.timeout",
            "frontend.ring.kvstore.http.timeout",
            "How long the store http waits for the page.",
        ),
        flag(
            "frontend.ring.http.tls-cert-path",
            "frontend.ring.kvstore.http.tls_cert_path",
            "Certificate that we show to the page's server; needs the key too.",
        ),
        flag(
            "frontend.ring.http.tls-key-path",
            "frontend.ring.kvstore.http.tls_key_path",
            "Key of the certificate that we show to the page's server.",
        ),
        flag(
            "frontend.ring.http.tls-ca-path",
            "frontend.ring.kvstore.http.tls_ca_path",
            "Authorities that may vouch for the page's server; empty takes the host's own.",
        ),
        flag(
            "frontend.ring.http.tls-server-name",
            "frontend.ring.kvstore.http.tls_server_name",
            "Name that the certificate of the page's server has to carry; empty takes the host dialled.",
        ),
        flag(
            "frontend.ring.http.tls-insecure-skip-verify",
            "frontend.ring.kvstore.http.tls_insecure_skip_verify",
            "Take every certificate of the page's server.",
        ),
        flag(
            "frontend.ring.etcd.endpoints",
            "frontend.ring.kvstore.etcd.endpoints",
            "The etcd servers as host:port, with https:// before it for TLS.",
        ),
        flag(
            "frontend.ring.etcd.dial-timeout",
            "frontend.ring.kvstore.etcd.dial_timeout",
            "How long one try of a call to etcd may take, the connection included.",
        ),
        flag(
            "frontend.ring.etcd.max-retries",
            "frontend.ring.kvstore.etcd.max_retries",
            "Most tries of a call that fails, and of a swap that loses its race.",
        ),
        flag(
            "frontend.ring.etcd.tls-enabled",
            "frontend.ring.kvstore.etcd.tls_enabled",
            "Speak to etcd by TLS.",
        ),
        flag(
            "frontend.ring.etcd.tls-cert-path",
            "frontend.ring.kvstore.etcd.tls_cert_path",
            "Certificate that we show to etcd; needs the key too.",
        ),
        flag(
            "frontend.ring.etcd.tls-key-path",
            "frontend.ring.kvstore.etcd.tls_key_path",
            "Key of the certificate that we show to etcd.",
        ),
        flag(
            "frontend.ring.etcd.tls-ca-path",
            "frontend.ring.kvstore.etcd.tls_ca_path",
            "Authorities that may vouch for etcd; empty takes the host's own.",
        ),
        flag(
            "frontend.ring.etcd.tls-server-name",
            "frontend.ring.kvstore.etcd.tls_server_name",
            "Name that the certificate of etcd has to carry; empty takes the host dialled.",
        ),
        flag(
            "frontend.ring.etcd.tls-insecure-skip-verify",
            "frontend.ring.kvstore.etcd.tls_insecure_skip_verify",
            "Take every certificate of etcd.",
        ),
        flag(
            "frontend.ring.etcd.username",
            "frontend.ring.kvstore.etcd.username",
            "Name to log in to etcd with; empty does not log in.",
        ),
        flag(
            "frontend.ring.etcd.password",
            "frontend.ring.kvstore.etcd.password",
            "Password to log in to etcd with.",
        ),
        flag(
            "frontend.ring.etcd.ping-without-stream-allowed",
            "frontend.ring.kvstore.etcd.ping-without-stream-allowed",
            "Ping etcd also while nothing is asked of it.",
        ),
        flag(
            "frontend.ring.consul.hostname",
            "frontend.ring.kvstore.consul.host",
            "The Consul agent as host:port.",
        ),
        flag(
            "frontend.ring.consul.acl-token",
            "frontend.ring.kvstore.consul.acl_token",
            "ACL token for Consul.",
        ),
        flag(
            "frontend.ring.consul.client-timeout",
            "frontend.ring.kvstore.consul.http_client_timeout",
            "How long a call to Consul may take; a blocking query waits for half of it, 8s at the most.",
        ),
        flag(
            "frontend.ring.consul.consistent-reads",
            "frontend.ring.kvstore.consul.consistent_reads",
            "Have Consul's leader confirm each read; off, any server answers, perhaps with an older ring.",
        ),
        flag(
            "frontend.ring.consul.watch-rate-limit",
            "frontend.ring.kvstore.consul.watch_rate_limit",
            "Most blocking queries per second; 0 is no limit.",
        ),
        flag(
            "frontend.ring.consul.watch-burst-size",
            "frontend.ring.kvstore.consul.watch_burst_size",
            "Blocking queries at once after a quiet time; below 1 counts as 1.",
        ),
        flag(
            "frontend.ring.consul.tls-enabled",
            "frontend.ring.kvstore.consul.tls_enabled",
            "Speak to Consul by TLS.",
        ),
        flag(
            "frontend.ring.consul.tls-cert-path",
            "frontend.ring.kvstore.consul.tls_cert_path",
            "Certificate that we show to Consul; needs the key too.",
        ),
        flag(
            "frontend.ring.consul.tls-key-path",
            "frontend.ring.kvstore.consul.tls_key_path",
            "Key of the certificate that we show to Consul.",
        ),
        flag(
            "frontend.ring.consul.tls-ca-path",
            "frontend.ring.kvstore.consul.tls_ca_path",
            "Authorities that may vouch for Consul; empty takes the host's own.",
        ),
        flag(
            "frontend.ring.consul.tls-server-name",
            "frontend.ring.kvstore.consul.tls_server_name",
            "Name that the certificate of Consul has to carry; empty takes the host dialled.",
        ),
        flag(
            "frontend.ring.consul.tls-insecure-skip-verify",
            "frontend.ring.kvstore.consul.tls_insecure_skip_verify",
            "Take every certificate of Consul.",
        ),
    ],
};
