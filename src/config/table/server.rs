//! Flags of the component "Server".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Server",
    flags: &[
        flag(
            "server.http-listen-address",
            "server.http_listen_address",
            "Address for HTTP; empty is every address.",
        ),
        flag(
            "server.http-listen-port",
            "server.http_listen_port",
            "Port for HTTP; 0 takes a free one.",
        ),
        flag(
            "server.http-conn-limit",
            "server.http_listen_conn_limit",
            "Most open HTTP connections; 0 is no limit.",
        ),
        flag(
            "server.http-read-timeout",
            "server.http_server_read_timeout",
            "How long a request's body may take.",
        ),
        flag(
            "server.http-idle-timeout",
            "server.http_server_idle_timeout",
            "How long a connection may be without a whole request head.",
        ),
        flag(
            "server.max-inflight-bytes",
            "server.max_inflight_bytes",
            "Most bytes of requests being received or handled; more wait up to 2 s, then are refused. With an upstream the smaller of this and -ingester.upstream.max-inflight-bytes holds.",
        ),
        flag(
            "server.grpc-listen-address",
            "server.grpc_listen_address",
            "Address for gRPC; empty is every address.",
        ),
        flag(
            "server.grpc-listen-port",
            "server.grpc_listen_port",
            "Port for gRPC; 0 takes a free one.",
        ),
        flag(
            "server.grpc-conn-limit",
            "server.grpc_listen_conn_limit",
            "Most open gRPC connections; 0 is no limit.",
        ),
        flag(
            "server.grpc-max-recv-msg-size-bytes",
            "server.grpc_server_max_recv_msg_size",
            "Longest gRPC message received, in bytes after decompression.",
        ),
        flag(
            "server.grpc-max-send-msg-size-bytes",
            "server.grpc_server_max_send_msg_size",
            "Longest gRPC message sent, in bytes.",
        ),
        flag(
            "server.grpc-max-concurrent-streams",
            "server.grpc_server_max_concurrent_streams",
            "Calls at once on one gRPC connection. A distributor with stream push keeps 100 open.",
        ),
        flag(
            "server.grpc.keepalive.time",
            "server.grpc_server_keepalive_time",
            "Time between pings on a gRPC connection.",
        ),
        flag(
            "server.grpc.keepalive.timeout",
            "server.grpc_server_keepalive_timeout",
            "A gRPC connection whose ping is not answered for this long is closed.",
        ),
        flag(
            "server.tls-min-version",
            "server.tls_min_version",
            "Least version of TLS: VersionTLS12 (as when empty) or VersionTLS13. Older ones are not offered.",
        ),
        flag(
            "server.http-tls-cert-path",
            "server.http_tls_config.cert_file",
            "Certificate of the HTTP listener, a PEM file; with the key it speaks TLS. Changes are taken without a restart.",
        ),
        flag(
            "server.http-tls-key-path",
            "server.http_tls_config.key_file",
            "Key of the HTTP listener's certificate, a PEM file.",
        ),
        flag(
            "server.http-tls-client-auth",
            "server.http_tls_config.client_auth_type",
            "What HTTP clients must show: nothing (empty or NoClientCert), VerifyClientCertIfGiven, RequireAndVerifyClientCert; RequestClientCert and RequireAnyClientCert take any certificate.",
        ),
        flag(
            "server.http-tls-ca-path",
            "server.http_tls_config.client_ca_file",
            "Authorities that HTTP clients' certificates are checked against, a PEM file.",
        ),
        flag(
            "server.grpc-tls-cert-path",
            "server.grpc_tls_config.cert_file",
            "Certificate of the gRPC listener, a PEM file; with the key it speaks TLS. Changes are taken without a restart.",
        ),
        flag(
            "server.grpc-tls-key-path",
            "server.grpc_tls_config.key_file",
            "Key of the gRPC listener's certificate, a PEM file.",
        ),
        flag(
            "server.grpc-tls-client-auth",
            "server.grpc_tls_config.client_auth_type",
            "What gRPC clients must show: nothing (empty or NoClientCert), VerifyClientCertIfGiven, RequireAndVerifyClientCert; RequestClientCert and RequireAnyClientCert take any certificate.",
        ),
        flag(
            "server.grpc-tls-ca-path",
            "server.grpc_tls_config.client_ca_file",
            "Authorities that gRPC clients' certificates are checked against, a PEM file.",
        ),
        flag(
            "server.graceful-shutdown-timeout",
            "server.graceful_shutdown_timeout",
            "How long a drain waits for requests in flight.",
        ),
    ],
};
