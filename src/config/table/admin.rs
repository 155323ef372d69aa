//! Flags of the component "Pages for operators".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Pages for operators",
    flags: &[
        flag(
            "admin.http-listen-address",
            "admin.http_listen_address",
            "Address and port of the pages for operators; empty is none. The default port is left out, with a warning, where another process has it.",
        ),
        flag(
            "admin.bearer-token-file",
            "admin.bearer_token_file",
            "File with the token that everyone must show there, as a bearer token or as the password of any user; empty asks for nothing. Changes are taken without a restart.",
        ),
        flag(
            "admin.http-tls-cert-path",
            "admin.http_tls_config.cert_file",
            "Certificate of that listener, a PEM file; with the key it speaks TLS. Changes are taken without a restart.",
        ),
        flag(
            "admin.http-tls-key-path",
            "admin.http_tls_config.key_file",
            "Key of that certificate, a PEM file.",
        ),
        flag(
            "admin.http-tls-client-auth",
            "admin.http_tls_config.client_auth_type",
            "What operators must show there: nothing (empty or NoClientCert), VerifyClientCertIfGiven, RequireAndVerifyClientCert; RequestClientCert and RequireAnyClientCert take any certificate.",
        ),
        flag(
            "admin.http-tls-ca-path",
            "admin.http_tls_config.client_ca_file",
            "Authorities that operators' certificates are checked against, a PEM file.",
        ),
    ],
};
