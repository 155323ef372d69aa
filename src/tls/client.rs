//! A caller's side: whom it trusts, and what it shows of itself.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::watched::Watched;
use super::{Pem, TlsError, is_unset, provider, set};

/// Settings of a caller.
pub type ClientTls = Watched<ClientConfig>;

/// What a caller is told. Empty paths are not set; without authorities the host's are trusted.
#[derive(Clone, Debug, Default)]
pub struct ClientTlsConfig {
    pub cert_path: PathBuf,
    pub key_path: PathBuf,
    pub ca_path: PathBuf,
    pub insecure_skip_verify: bool,
}

/// Reads a caller's files. `protocols` are what may be spoken, the
/// best first: `h2`, `http/1.1`.
pub fn client(
    name: &'static str,
    config: &ClientTlsConfig,
    protocols: &'static [&'static str],
) -> Result<Arc<ClientTls>, TlsError> {
    let paths = set(&[&config.cert_path, &config.key_path, &config.ca_path]);
    let config = config.clone();
    Ok(Arc::new(Watched::load(name, paths, move |pems| build(pems, &config, protocols))?))
}

/// `pems` are certificate and key, if there are any, then authorities, if there are any.
fn build(
    pems: &[Pem],
    config: &ClientTlsConfig,
    protocols: &'static [&'static str],
) -> Result<ClientConfig, TlsError> {
    let (pair, authorities) = match pems {
        [certificate, key, rest @ ..] => (Some((certificate, key)), rest.first()),
        rest => (None, rest.first()),
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Versions)?;
    let builder = if config.insecure_skip_verify {
        let anyone = Arc::new(TrustAnyone(provider()));
        builder.dangerous().with_custom_certificate_verifier(anyone)
    } else {
        builder.with_root_certificates(match authorities {
            Some(authorities) => authorities.authorities()?,
            None => host_authorities()?,
        })
    };
    let mut built = match pair {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificate.certificates()?, key.key()?)
            .map_err(|source| certificate.pair_error(key, source))?,
    };
    built.alpn_protocols = protocols.iter().map(|name| (*name).into()).collect();
    Ok(built)
}

fn host_authorities() -> Result<RootCertStore, TlsError> {
    let mut authorities = RootCertStore::empty();
    // A host's store has odd ones among many; those that can be read count.
    let (added, _) =
        authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 { Err(TlsError::NoHostAuthorities) } else { Ok(authorities) }
}

/// Takes any certificate: what `tls_insecure_skip_verify` asks for. The handshake's signatures
/// are checked all the same, since the other side has to have the key of what it shows.
#[derive(Debug)]
struct TrustAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientTlsConfig {
    /// A certificate needs a key, and a key a certificate.
    pub fn has_half_a_pair(&self) -> bool {
        is_unset(&self.cert_path) != is_unset(&self.key_path)
    }
}
