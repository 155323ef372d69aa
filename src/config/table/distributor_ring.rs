//! Flags of the component "Distributors' ring".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Distributors' ring",
    flags: &[
        flag(
            "distributor.ring.store",
            "distributor.ring.kvstore.store",
            "Where the distributors' ring is kept: inmemory (this process), etcd, consul or memberlist.",
        ),
        flag(
            "distributor.ring.prefix",
            "distributor.ring.kvstore.prefix",
            "Put before each key in the store.",
        ),
        flag(
            "distributor.ring.heartbeat-period",
            "distributor.ring.heartbeat_period",
            "How often we say in the distributors' ring that we are there; 0 never does.",
        ),
        flag(
            "distributor.ring.heartbeat-timeout",
            "distributor.ring.heartbeat_timeout",
            "A distributor whose last heartbeat is older shares no global rate; 0 never calls one so.",
        ),
        flag(
            "distributor.ring.auto-forget-delay",
            "distributor.ring.auto_forget_delay",
            "Silence after which a distributor is taken out of the ring; 0 never does.",
        ),
        flag(
            "distributor.ring.num-tokens",
            "distributor.ring.num_tokens",
            "Points of the distributors' ring that we claim.",
        ),
        flag(
            "distributor.ring.instance-id",
            "distributor.ring.instance_id",
            "Our id in the distributors' ring; empty takes the host's name.",
        ),
        flag(
            "distributor.ring.instance-addr",
            "distributor.ring.instance_addr",
            "Our address in the distributors' ring; empty takes the one that the default route leaves from.",
        ),
        flag(
            "distributor.ring.instance-port",
            "distributor.ring.instance_port",
            "Our port in the distributors' ring; 0 takes the gRPC listener's.",
        ),
        flag(
            "distributor.ring.file.path",
            "distributor.ring.kvstore.file.path",
            "The raw ring value or saved /ring page that the store file follows.",
        ),
        flag(
            "distributor.ring.file.poll-interval",
            "distributor.ring.kvstore.file.poll_interval",
            "How often the store file looks for a change.",
        ),
        flag(
            "distributor.ring.http.url",
            "distributor.ring.kvstore.http.url",
            "The /ring page of a Cortex process that the store http follows.",
        ),
        flag(
            "distributor.ring.http.poll-interval",
            "distributor.ring.kvstore.http.poll_interval",
            "How often the store http asks for the page.",
        ),
        flag(
            "distributor.ring.http.timeout",
            "distributor.ring.kvstore.http.timeout",
            "How long the store http waits for the page.",
        ),
        flag(
            "distributor.ring.http.tls-cert-path",
            "distributor.ring.kvstore.http.tls_cert_path",
            "Certificate that we show to the page's server; needs the key too.",
        ),
        flag(
            "distributor.ring.http.tls-key-path",
            "distributor.ring.kvstore.http.tls_key_path",
            "Key of the certificate that we show to the page's server.",
        ),
        flag(
            "distributor.ring.http.tls-ca-path",
            "distributor.ring.kvstore.http.tls_ca_path",
            "Authorities that may vouch for the page's server; empty takes the host's own.",
        ),
        flag(
            "distributor.ring.http.tls-server-name",
            "distributor.ring.kvstore.http.tls_server_name",
            "Name that the certificate of the page's server has to carry; empty takes the host dialled.",
        ),
        flag(
            "distributor.ring.http.tls-insecure-skip-verify",
            "distributor.ring.kvstore.http.tls_insecure_skip_verify",
            "Take every certificate of the page's server.",
        ),
        flag(
            "distributor.ring.etcd.endpoints",
            "distributor.ring.kvstore.etcd.endpoints",
            "The etcd servers as host:port, with https:// before it for TLS.",
        ),
        flag(
            "distributor.ring.etcd.dial-timeout",
            "distributor.ring.kvstore.etcd.dial_timeout",
            "How long one try of a call to etcd may take, the connection included.",
        ),
        flag(
            "distributor.ring.etcd.max-retries",
            "distributor.ring.kvstore.etcd.max_retries",
            "Most tries of a call that fails, and of a swap that loses its race.",
        ),
        flag(
            "distributor.ring.etcd.tls-enabled",
            "distributor.ring.kvstore.etcd.tls_enabled",
            "Speak to etcd by TLS.",
        ),
        flag(
            "distributor.ring.etcd.tls-cert-path",
            "distributor.ring.kvstore.etcd.tls_cert_path",
            "Certificate that we show to etcd; needs the key too.",
        ),
        flag(
            "distributor.ring.etcd.tls-key-path",
            "distributor.ring.kvstore.etcd.tls_key_path",
            "Key of the certificate that we show to etcd.",
        ),
        flag(
            "distributor.ring.etcd.tls-ca-path",
            "distributor.ring.kvstore.etcd.tls_ca_path",
            "Authorities that may vouch for etcd; empty takes the host's own.",
        ),
        flag(
            "distributor.ring.etcd.tls-server-name",
            "distributor.ring.kvstore.etcd.tls_server_name",
            "Name that the certificate of etcd has to carry; empty takes the host dialled.",
        ),
        flag(
            "distributor.ring.etcd.tls-insecure-skip-verify",
            "distributor.ring.kvstore.etcd.tls_insecure_skip_verify",
            "Take every certificate of etcd.",
        ),
        flag(
            "distributor.ring.etcd.username",
            "distributor.ring.kvstore.etcd.username",
            "Name to log in to etcd with; empty does not log in.",
        ),
        flag(
            "distributor.ring.etcd.password",
            "distributor.ring.kvstore.etcd.password",
            "Password to log in to etcd with.",
        ),
        flag(
            "distributor.ring.etcd.ping-without-stream-allowed",
            "distributor.ring.kvstore.etcd.ping-without-stream-allowed",
            "Ping etcd also while nothing is asked of it.",
        ),
        flag(
            "distributor.ring.consul.hostname",
            "distributor.ring.kvstore.consul.host",
            "The Consul agent as host:port.",
        ),
        flag(
            "distributor.ring.consul.acl-token",
            "distributor.ring.kvstore.consul.acl_token",
            "ACL token for Consul.",
        ),
        flag(
            "distributor.ring.consul.client-timeout",
            "distributor.ring.kvstore.consul.http_client_timeout",
            "How long a call to Consul may take; a blocking query waits for half of it, 8s at the most.",
        ),
        flag(
            "distributor.ring.consul.consistent-reads",
            "distributor.ring.kvstore.consul.consistent_reads",
            "Have Consul's leader confirm each read; off, any server answers, perhaps with an older ring.",
        ),
        flag(
            "distributor.ring.consul.watch-rate-limit",
            "distributor.ring.kvstore.consul.watch_rate_limit",
            "Most blocking queries per second; 0 is no limit.",
        ),
        flag(
            "distributor.ring.consul.watch-burst-size",
            "distributor.ring.kvstore.consul.watch_burst_size",
            "Blocking queries at once after a quiet time; below 1 counts as 1.",
        ),
        flag(
            "distributor.ring.consul.tls-enabled",
            "distributor.ring.kvstore.consul.tls_enabled",
            "Speak to Consul by TLS.",
        ),
        flag(
            "distributor.ring.consul.tls-cert-path",
            "distributor.ring.kvstore.consul.tls_cert_path",
            "Certificate that we show to Consul; needs the key too.",
        ),
        flag(
            "distributor.ring.consul.tls-key-path",
            "distributor.ring.kvstore.consul.tls_key_path",
            "Key of the certificate that we show to Consul.",
        ),
        flag(
            "distributor.ring.consul.tls-ca-path",
            "distributor.ring.kvstore.consul.tls_ca_path",
            "Authorities that may vouch for Consul; empty takes the host's own.",
        ),
        flag(
            "distributor.ring.consul.tls-server-name",
            "distributor.ring.kvstore.consul.tls_server_name",
            "Name that the certificate of Consul has to carry; empty takes the host dialled.",
        ),
        flag(
            "distributor.ring.consul.tls-insecure-skip-verify",
            "distributor.ring.kvstore.consul.tls_insecure_skip_verify",
            "Take every certificate of Consul.",
        ),
    ],
};
