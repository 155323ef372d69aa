//! Flags of the component "Clients of ingesters".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Clients of ingesters",
    flags: &[
        flag(
            "ingester.client.max-inflight-push-requests",
            "ingester_client.max_inflight_push_requests",
            "Most pushes to one ingester waiting or under way; more fail at once. 0 is unlimited.",
        ),
        flag(
            "ingester.client.grpc-max-recv-msg-size",
            "ingester_client.grpc_client_config.max_recv_msg_size",
            "Longest message of an ingester's answer in bytes.",
        ),
        flag(
            "ingester.client.grpc-max-send-msg-size",
            "ingester_client.grpc_client_config.max_send_msg_size",
            "Longest message to an ingester in bytes, as it goes out.",
        ),
        flag(
            "ingester.client.grpc-compression",
            "ingester_client.grpc_client_config.grpc_compression",
            "Compression of messages to ingesters: gzip, snappy, snappy-block, zstd, or empty for \
             none.",
        ),
        flag(
            "ingester.client.connect-timeout",
            "ingester_client.grpc_client_config.connect_timeout",
            "How long a connection to an ingester may take until it can be used; 0 is 20s.",
        ),
        flag(
            "ingester.client.tls-enabled",
            "ingester_client.grpc_client_config.tls_enabled",
            "Speak TLS with ingesters.",
        ),
        flag(
            "ingester.client.tls-cert-path",
            "ingester_client.grpc_client_config.tls_cert_path",
            "Certificate that we show to ingesters, a PEM file; needs the key. Changes are taken \
             without a restart.",
        ),
        flag(
            "ingester.client.tls-key-path",
            "ingester_client.grpc_client_config.tls_key_path",
            "Key of that certificate, a PEM file.",
        ),
        flag(
            "ingester.client.tls-ca-path",
            "ingester_client.grpc_client_config.tls_ca_path",
            "Authorities that ingesters' certificates are checked against, a PEM file; empty takes \
             the host's.",
        ),
        flag(
            "ingester.client.tls-server-name",
            "ingester_client.grpc_client_config.tls_server_name",
            "Name that ingesters' certificates have to be for; empty takes the host of each address.",
        ),
        flag(
            "ingester.client.tls-insecure-skip-verify",
            "ingester_client.grpc_client_config.tls_insecure_skip_verify",
            "Take any certificate of an ingester.",
        ),
    ],
};
