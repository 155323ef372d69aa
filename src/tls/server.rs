//! A listener's side: its certificate, and what it asks of clients.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::WebPkiClientVerifier;

use super::watched::Watched;
use super::{Pem, TlsError, is_unset, provider, set};

/// Settings of a listener that has a certificate.
pub type ServerTls = Watched<ServerConfig>;

/// `grpc_tls_config:` and `http_tls_config:`, under Cortex's names. Without a certificate and a
/// key the listener speaks plainly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerTlsConfig {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    pub client_auth_type: ClientAuth,
    /// Who may have signed clients' certificates.
    pub client_ca_file: PathBuf,
}

/// What is asked of clients, in Go's words.
///
/// Go's `RequestClientCert` and `RequireAnyClientCert` look at nothing that a client shows, so
/// they protect nothing, and are not offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientAuth {
    #[default]
    #[serde(rename = "", alias = "NoClientCert")]
    None,
    #[serde(rename = "VerifyClientCertIfGiven")]
    VerifyIfGiven,
    #[serde(rename = "RequireAndVerifyClientCert")]
    RequireAndVerify,
}

/// What is wrong with the files as they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerTlsConfigError {
    #[error("a certificate needs a key, and a key a certificate")]
    HalfPair,
    #[error("checking clients needs the certificate authorities that they are checked against")]
    NoAuthorities,
    #[error("certificate authorities for clients are named, and clients are not checked")]
    NoCheck,
    #[error("checking clients needs a certificate and a key of the listener's own")]
    NoCertificate,
}

impl ServerTlsConfig {
    pub fn is_enabled(&self) -> bool {
        !is_unset(&self.cert_file) && !is_unset(&self.key_file)
    }

    pub fn validate(&self) -> Result<(), ServerTlsConfigError> {
        let checks = self.client_auth_type != ClientAuth::None;
        let has_authorities = !is_unset(&self.client_ca_file);
        if is_unset(&self.cert_file) != is_unset(&self.key_file) {
            return Err(ServerTlsConfigError::HalfPair);
        }
        match (checks, has_authorities) {
            (true, false) => Err(ServerTlsConfigError::NoAuthorities),
            (false, true) => Err(ServerTlsConfigError::NoCheck),
            (true, true) if !self.is_enabled() => Err(ServerTlsConfigError::NoCertificate),
            _ => Ok(()),
        }
    }
}

/// Reads a listener's files; `None` when it speaks plainly. `protocol` is what clients that
/// negotiate one have to speak: `h2`, `http/1.1`.
pub fn server(
    name: &'static str,
    config: &ServerTlsConfig,
    protocol: &'static str,
) -> Result<Option<Arc<ServerTls>>, TlsError> {
    if !config.is_enabled() {
        return Ok(None);
    }
    let paths = set(&[&config.cert_file, &config.key_file, &config.client_ca_file]);
    let client_auth = config.client_auth_type;
    let watched = Watched::load(name, paths, move |pems| build(pems, client_auth, protocol))?;
    Ok(Some(Arc::new(watched)))
}

/// `pems` are certificate, key and, where clients are checked, authorities.
fn build(
    pems: &[Pem],
    client_auth: ClientAuth,
    protocol: &'static str,
) -> Result<ServerConfig, TlsError> {
    let [certificate, key, authorities @ ..] = pems else {
        unreachable!("a listener with TLS has named both");
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Versions)?;
    let builder = match authorities.first() {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let authorities = Arc::new(authorities.authorities()?);
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider());
            let verifier = match client_auth {
                ClientAuth::RequireAndVerify => verifier,
                ClientAuth::None | ClientAuth::VerifyIfGiven => verifier.allow_unauthenticated(),
            };
            builder.with_client_cert_verifier(verifier.build().map_err(TlsError::ClientCheck)?)
        }
    };
    let mut config = builder
        .with_single_cert(certificate.certificates()?, key.key()?)
        .map_err(|source| certificate.pair_error(key, source))?;
    config.alpn_protocols = vec![protocol.into()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_a_setting_are_refused() {
        let check = |cert: &str, key: &str, client_auth_type, ca: &str, expect| {
            let config = ServerTlsConfig {
                cert_file: cert.into(),
                key_file: key.into(),
                client_auth_type,
                client_ca_file: ca.into(),
            };
            assert_eq!(config.validate(), expect, "{config:?}");
        };
        use ClientAuth::{None, RequireAndVerify, VerifyIfGiven};
        check("", "", None, "", Ok(()));
        check("c", "k", None, "", Ok(()));
        check("c", "k", RequireAndVerify, "a", Ok(()));
        check("c", "k", VerifyIfGiven, "a", Ok(()));
        check("c", "", None, "", Err(ServerTlsConfigError::HalfPair));
        check("", "k", None, "", Err(ServerTlsConfigError::HalfPair));
        check("c", "k", RequireAndVerify, "", Err(ServerTlsConfigError::NoAuthorities));
        check("c", "k", None, "a", Err(ServerTlsConfigError::NoCheck));
        check("", "", VerifyIfGiven, "a", Err(ServerTlsConfigError::NoCertificate));
    }

    #[test]
    fn client_checks_have_gos_names() {
        let read = |text: &str| serde_json::from_str::<ClientAuth>(&format!("{text:?}"));
        assert_eq!(read("").expect("none"), ClientAuth::None);
        assert_eq!(read("NoClientCert").expect("none"), ClientAuth::None);
        let required = read("RequireAndVerifyClientCert").expect("required");
        assert_eq!(required, ClientAuth::RequireAndVerify);
        assert!(read("RequireAnyClientCert").is_err(), "it would check nothing");
    }
}
