//! Connections to a store: TCP, and TLS over it.
//!
//! Certificates are read anew for each connection, so that renewed ones are used without a
//! restart. Connections are few: one stays open to etcd, one is made for each question to
//! Consul or to a page.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::ring::config::ClientTlsConfig;
use crate::ring::config::address::Address;

/// What is spoken over a connection, as its two sides agree on in TLS.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Connects to one server.
#[derive(Clone, Debug)]
pub(super) struct Dialler {
    address: Address,
    tls: Option<ClientTlsConfig>,
    protocol: Protocol,
}

/// A connection, whatever it runs over.
pub(super) type Stream = Box<dyn Io>;

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("cannot connect")]
    Connect(#[source] std::io::Error),
    #[error("the TLS handshake failed")]
    Handshake(#[source] std::io::Error),
    #[error("cannot read {}", path.display())]
    Pem { path: PathBuf, source: pem::Error },
    #[error("there is no certificate in {}", path.display())]
    NoCertificate { path: PathBuf },
    #[error("the host has no certificate authorities; name a file of them")]
    NoAuthorities,
    #[error("{0:?} is no name that a certificate could carry")]
    ServerName(String),
    #[error("the certificates cannot be used")]
    Tls(#[source] rustls::Error),
    #[error("reading certificates was cut off")]
    CutOff,
}

impl Dialler {
    /// Reads the certificates once, so that a wrong path ends the start.
    pub(super) fn new(
        address: Address,
        tls: Option<&ClientTlsConfig>,
        protocol: Protocol,
    ) -> Result<Self, DialError> {
        if let Some(tls) = tls {
            client_config(tls, protocol)?;
            server_name(tls, &address)?;
        }
        Ok(Self { address, tls: tls.cloned(), protocol })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Has no deadline of its own: each caller's covers more than the connection.
    pub(super) fn dial(&self) -> impl Future<Output = Result<Stream, DialError>> + Send + use<> {
        let Self { address, tls, protocol } = self.clone();
        async move {
            let connected = TcpStream::connect((address.host.as_str(), address.port)).await;
            let tcp = connected.map_err(DialError::Connect)?;
            // Questions are small and wait for their answers; nothing is gained by collecting.
            tcp.set_nodelay(true).map_err(DialError::Connect)?;
            let Some(tls) = tls else { return Ok(Box::new(tcp) as Stream) };
            let name = server_name(&tls, &address)?;
            // Files may lie on a mount that is slow or gone.
            let config = tokio::task::spawn_blocking(move || client_config(&tls, protocol));
            let config = config.await.map_err(|_| DialError::CutOff)??;
            let handshake = TlsConnector::from(Arc::new(config)).connect(name, tcp);
            Ok(Box::new(handshake.await.map_err(DialError::Handshake)?) as Stream)
        }
    }
}

fn server_name(tls: &ClientTlsConfig, address: &Address) -> Result<ServerName<'static>, DialError> {
    let name = match tls.tls_server_name.as_str() {
        "" => address.host.clone(),
        name => name.to_owned(),
    };
    ServerName::try_from(name.clone()).map_err(|_| DialError::ServerName(name))
}

fn client_config(tls: &ClientTlsConfig, protocol: Protocol) -> Result<ClientConfig, DialError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(DialError::Tls)?;
    let verifier: Arc<dyn ServerCertVerifier> = match tls.tls_insecure_skip_verify {
        true => Arc::new(TakesEveryCertificate(provider)),
        false => {
            let roots = Arc::new(authorities(&tls.tls_ca_path)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
            verifier.map_err(|_| DialError::NoAuthorities)?
        }
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match tls.tls_cert_path.as_os_str().is_empty() {
        true => builder.with_no_client_auth(),
        false => {
            let chain = certificates(&tls.tls_cert_path)?;
            let path = &tls.tls_key_path;
            let key = PrivateKeyDer::from_pem_file(path)
                .map_err(|source| DialError::Pem { path: path.clone(), source })?;
            builder.with_client_auth_cert(chain, key).map_err(DialError::Tls)?
        }
    };
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    Ok(config)
}

/// Who may vouch for a server: those in the file, or the host's own.
fn authorities(ca_path: &Path) -> Result<RootCertStore, DialError> {
    let mut roots = RootCertStore::empty();
    if ca_path.as_os_str().is_empty() {
        // One that cannot be read is no reason to do without the others.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        for certificate in certificates(ca_path)? {
            roots.add(certificate).map_err(DialError::Tls)?;
        }
    }
    if roots.is_empty() { Err(DialError::NoAuthorities) } else { Ok(roots) }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, DialError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|source| DialError::Pem { path: path.to_owned(), source })?;
    if found.is_empty() {
        return Err(DialError::NoCertificate { path: path.to_owned() });
    }
    Ok(found)
}

/// For `tls_insecure_skip_verify`: whoever answers is the server. Signatures are still checked,
/// so that the peer at least holds the key of the certificate that it shows.
#[derive(Debug)]
struct TakesEveryCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for TakesEveryCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
