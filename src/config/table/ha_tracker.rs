//! Flags of the component "HA tracker".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "HA tracker",
    flags: &[
        flag(
            "distributor.ha-tracker.enable",
            "distributor.ha_tracker.enable_ha_tracker",
            "Take samples of one replica of each cluster, for tenants whose limits ask for it.",
        ),
        flag(
            "distributor.ha-tracker.update-timeout",
            "distributor.ha_tracker.ha_tracker_update_timeout",
            "How old the stored time of an elected replica gets before it is written anew.",
        ),
        flag(
            "distributor.ha-tracker.update-timeout-jitter-max",
            "distributor.ha_tracker.ha_tracker_update_timeout_jitter_max",
            "That age is shorter or longer by up to this, so that not all processes write at once.",
        ),
        flag(
            "distributor.ha-tracker.store",
            "distributor.ha_tracker.kvstore.store",
            "Where elected replicas are kept: inmemory (this process), etcd, consul or memberlist.",
        ),
        flag(
            "distributor.ha-tracker.prefix",
            "distributor.ha_tracker.kvstore.prefix",
            "Put before each key in the store.",
        ),
        flag(
            "distributor.ha-tracker.etcd.endpoints",
            "distributor.ha_tracker.kvstore.etcd.endpoints",
            "The etcd servers as host:port, with https:// before it for TLS.",
        ),
        flag(
            "distributor.ha-tracker.etcd.dial-timeout",
            "distributor.ha_tracker.kvstore.etcd.dial_timeout",
            "How long one try of a call to etcd may take, the connection included.",
        ),
        flag(
            "distributor.ha-tracker.etcd.max-retries",
            "distributor.ha_tracker.kvstore.etcd.max_retries",
            "Most tries of a call that fails, and of a swap that loses its race.",
        ),
        flag(
            "distributor.ha-tracker.etcd.tls-enabled",
            "distributor.ha_tracker.kvstore.etcd.tls_enabled",
            "Speak to etcd by TLS.",
        ),
        flag(
            "distributor.ha-tracker.etcd.tls-cert-path",
            "distributor.ha_tracker.kvstore.etcd.tls_cert_path",
            "Certificate that we show to etcd; needs the key too.",
        ),
        flag(
            "distributor.ha-tracker.etcd.tls-key-path",
            "distributor.ha_tracker.kvstore.etcd.tls_key_path",
            "Key of the certificate that we show to etcd.",
        ),
        flag(
            "distributor.ha-tracker.etcd.tls-ca-path",
            "distributor.ha_tracker.kvstore.etcd.tls_ca_path",
            "Authorities that may vouch for etcd; empty takes the host's own.",
        ),
        flag(
            "distributor.ha-tracker.etcd.tls-server-name",
            "distributor.ha_tracker.kvstore.etcd.tls_server_name",
            "Name that the certificate of etcd has to carry; empty takes the host dialled.",
        ),
        flag(
            "distributor.ha-tracker.etcd.tls-insecure-skip-verify",
            "distributor.ha_tracker.kvstore.etcd.tls_insecure_skip_verify",
            "Take every certificate of etcd.",
        ),
        flag(
            "distributor.ha-tracker.etcd.username",
            "distributor.ha_tracker.kvstore.etcd.username",
            "Name to log in to etcd with; empty does not log in.",
        ),
        flag(
            "distributor.ha-tracker.etcd.password",
            "distributor.ha_tracker.kvstore.etcd.password",
            "Password to log in to etcd with.",
        ),
        flag(
            "distributor.ha-tracker.etcd.ping-without-stream-allowed",
            "distributor.ha_tracker.kvstore.etcd.ping-without-stream-allowed",
            "Ping etcd also while nothing is asked of it.",
        ),
        flag(
            "distributor.ha-tracker.consul.hostname",
            "distributor.ha_tracker.kvstore.consul.host",
            "The Consul agent as host:port.",
        ),
        flag(
            "distributor.ha-tracker.consul.acl-token",
            "distributor.ha_tracker.kvstore.consul.acl_token",
            "ACL token for Consul.",
        ),
        flag(
            "distributor.ha-tracker.consul.client-timeout",
            "distributor.ha_tracker.kvstore.consul.http_client_timeout",
            "How long a call to Consul may take; a blocking query waits for half of it, 8s at the most.",
        ),
        flag(
            "distributor.ha-tracker.consul.consistent-reads",
            "distributor.ha_tracker.kvstore.consul.consistent_reads",
            "Have Consul's leader confirm each read; off, any server answers, perhaps an older value.",
        ),
        flag(
            "distributor.ha-tracker.consul.watch-rate-limit",
            "distributor.ha_tracker.kvstore.consul.watch_rate_limit",
            "Most blocking queries per second; 0 is no limit.",
        ),
        flag(
            "distributor.ha-tracker.consul.watch-burst-size",
            "distributor.ha_tracker.kvstore.consul.watch_burst_size",
            "Blocking queries at once after a quiet time; below 1 counts as 1.",
        ),
        flag(
            "distributor.ha-tracker.consul.tls-enabled",
            "distributor.ha_tracker.kvstore.consul.tls_enabled",
            "Speak to Consul by TLS.",
        ),
        flag(
            "distributor.ha-tracker.consul.tls-cert-path",
            "distributor.ha_tracker.kvstore.consul.tls_cert_path",
            "Certificate that we show to Consul; needs the key too.",
        ),
        flag(
            "distributor.ha-tracker.consul.tls-key-path",
            "distributor.ha_tracker.kvstore.consul.tls_key_path",
            "Key of the certificate that we show to Consul.",
        ),
        flag(
            "distributor.ha-tracker.consul.tls-ca-path",
            "distributor.ha_tracker.kvstore.consul.tls_ca_path",
            "Authorities that may vouch for Consul; empty takes the host's own.",
        ),
        flag(
            "distributor.ha-tracker.consul.tls-server-name",
            "distributor.ha_tracker.kvstore.consul.tls_server_name",
            "Name that the certificate of Consul has to carry; empty takes the host dialled.",
        ),
        flag(
            "distributor.ha-tracker.consul.tls-insecure-skip-verify",
            "distributor.ha_tracker.kvstore.consul.tls_insecure_skip_verify",
            "Take every certificate of Consul.",
        ),
    ],
};
