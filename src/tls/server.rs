//! A listener's side: its certificate, and what it asks of clients.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientAuth {
    #[default]
    #[serde(rename = "", alias = "NoClientCert")]
    None,
    /// Asked for, and whatever is shown, or nothing, will do. It protects nothing.
    #[serde(rename = "RequestClientCert")]
    Request,
    /// Whatever is shown will do, whoever has signed it. It protects nothing.
    #[serde(rename = "RequireAnyClientCert", alias = "RequireClientCert")]
    RequireAny,
    #[serde(rename = "VerifyClientCertIfGiven")]
    VerifyIfGiven,
    #[serde(rename = "RequireAndVerifyClientCert")]
    RequireAndVerify,
}

/// The least version of TLS that a listener speaks, in Go's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MinVersion {
    /// What Go's listeners have by default: 1.2.
    #[default]
    Default,
    Tls12,
    Tls13,
}

/// There is no such version, or it is one that nobody should speak any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MinVersionError {
    #[error("{name} is not offered; the least are VersionTLS12 and VersionTLS13")]
    TooOld { name: String },
    #[error("{name:?} is no version of TLS; those offered are VersionTLS12 and VersionTLS13")]
    Unknown { name: String },
}

impl TryFrom<String> for MinVersion {
    type Error = MinVersionError;

    fn try_from(name: String) -> Result<Self, MinVersionError> {
        match name.as_str() {
            "" => Ok(Self::Default),
            "VersionTLS12" => Ok(Self::Tls12),
            "VersionTLS13" => Ok(Self::Tls13),
            "VersionTLS10" | "VersionTLS11" => Err(MinVersionError::TooOld { name }),
            _ => Err(MinVersionError::Unknown { name }),
        }
    }
}

impl From<MinVersion> for String {
    fn from(version: MinVersion) -> Self {
        match version {
            MinVersion::Default => "",
            MinVersion::Tls12 => "VersionTLS12",
            MinVersion::Tls13 => "VersionTLS13",
        }
        .to_owned()
    }
}

impl MinVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
        static NEWEST: &[&SupportedProtocolVersion] = &[&TLS13];
        match self {
            Self::Default | Self::Tls12 => BOTH,
            Self::Tls13 => NEWEST,
        }
    }
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

    /// Nobody comes in without a certificate that somebody known has signed.
    pub fn asks_for_certificates(&self) -> bool {
        self.client_auth_type == ClientAuth::RequireAndVerify
    }

    pub fn validate(&self) -> Result<(), ServerTlsConfigError> {
        use ClientAuth::{None, Request, RequireAndVerify, RequireAny, VerifyIfGiven};
        let asks = self.client_auth_type != None;
        let checks = match self.client_auth_type {
            VerifyIfGiven | RequireAndVerify => true,
            None | Request | RequireAny => false,
        };
        let has_authorities = !is_unset(&self.client_ca_file);
        if is_unset(&self.cert_file) != is_unset(&self.key_file) {
            return Err(ServerTlsConfigError::HalfPair);
        }
        if checks && !has_authorities {
            return Err(ServerTlsConfigError::NoAuthorities);
        }
        if has_authorities && !asks {
            return Err(ServerTlsConfigError::NoCheck);
        }
        if asks && !self.is_enabled() {
            return Err(ServerTlsConfigError::NoCertificate);
        }
        Ok(())
    }
}

/// Reads a listener's files; `None` when it speaks plainly. `protocols` are what clients that
/// negotiate one have to speak: `h2`, `http/1.1`.
pub fn server(
    name: &'static str,
    config: &ServerTlsConfig,
    min_version: MinVersion,
    protocols: &'static [&'static str],
) -> Result<Option<Arc<ServerTls>>, TlsError> {
    if !config.is_enabled() {
        return Ok(None);
    }
    let paths = set(&[&config.cert_file, &config.key_file, &config.client_ca_file]);
    let client_auth = config.client_auth_type;
    let watched =
        Watched::load(name, paths, move |pems| build(pems, client_auth, min_version, protocols))?;
    Ok(Some(Arc::new(watched)))
}

/// `pems` are certificate, key and, where clients are checked, authorities.
fn build(
    pems: &[Pem],
    client_auth: ClientAuth,
    min_version: MinVersion,
    protocols: &'static [&'static str],
) -> Result<ServerConfig, TlsError> {
    let [certificate, key, authorities @ ..] = pems else {
        unreachable!("a listener with TLS has named both");
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(min_version.versions())
        .map_err(TlsError::Versions)?;
    let anyone = |is_required| Arc::new(AnyClient { provider: provider(), is_required });
    let verifying = || {
        let authorities = authorities.first().expect("a check names its authorities");
        let authorities = Arc::new(authorities.authorities()?);
        Ok(WebPkiClientVerifier::builder_with_provider(authorities, provider()))
    };
    let builder = match client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        ClientAuth::Request => builder.with_client_cert_verifier(anyone(false)),
        ClientAuth::RequireAny => builder.with_client_cert_verifier(anyone(true)),
        ClientAuth::VerifyIfGiven => builder.with_client_cert_verifier(
            verifying()?.allow_unauthenticated().build().map_err(TlsError::ClientCheck)?,
        ),
        ClientAuth::RequireAndVerify => {
            builder.with_client_cert_verifier(verifying()?.build().map_err(TlsError::ClientCheck)?)
        }
    };
    let mut config = builder
        .with_single_cert(certificate.certificates()?, key.key()?)
        .map_err(|source| certificate.pair_error(key, source))?;
    config.alpn_protocols = protocols.iter().map(|name| (*name).into()).collect();
    Ok(config)
}

/// Takes any certificate of a client, as Go does where it is told to. That the client has the
/// certificate's key is checked all the same.
#[derive(Debug)]
struct AnyClient {
    provider: Arc<CryptoProvider>,
    is_required: bool,
}

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
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
        use ClientAuth::{None, Request, RequireAndVerify, RequireAny, VerifyIfGiven};
        check("", "", None, "", Ok(()));
        check("c", "k", None, "", Ok(()));
        check("c", "k", RequireAndVerify, "a", Ok(()));
        check("c", "k", VerifyIfGiven, "a", Ok(()));
        check("c", "k", Request, "", Ok(()));
        check("c", "k", RequireAny, "a", Ok(()));
        check("", "", Request, "", Err(ServerTlsConfigError::NoCertificate));
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
        assert_eq!(read("RequestClientCert").expect("any or none"), ClientAuth::Request);
        for name in ["RequireAnyClientCert", "RequireClientCert"] {
            assert_eq!(read(name).expect("any"), ClientAuth::RequireAny);
        }
        assert!(read("requireAnyClientCert").is_err());
    }

    #[test]
    fn old_versions_of_tls_are_refused_by_name() {
        let read = |text: &str| serde_json::from_value::<MinVersion>(text.into());
        for (name, version) in [
            ("", MinVersion::Default),
            ("VersionTLS12", MinVersion::Tls12),
            ("VersionTLS13", MinVersion::Tls13),
        ] {
            assert_eq!(read(name).expect(name), version);
            assert_eq!(String::from(version), name);
        }
        let refused = |name: &str| read(name).expect_err("not offered").to_string();
        assert!(refused("VersionTLS10").starts_with("VersionTLS10 is not offered"));
        assert!(refused("VersionTLS11").starts_with("VersionTLS11 is not offered"));
        assert!(refused("1.2").contains("no version of TLS"));
    }
}
