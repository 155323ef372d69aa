//! TLS for listeners and for the way to the upstream, with certificates that may change.
//!
//! Settings of a side are built from files, and built anew when a file's contents have changed;
//! connections that are open keep what they were made with. What must hold: a broken new file
//! changes nothing but a log line and a metric; keys are in no log, metric or page.

mod client;
mod expiry;
mod server;
mod watched;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub use client::{ClientTls, ClientTlsConfig, client};
pub use server::{
    ClientAuth, MinVersion, ServerTls, ServerTlsConfig, ServerTlsConfigError, server,
};
pub use watched::{RELOAD_PERIOD, Standing, Watched};

/// Which certificate a client has shown: the first bytes of its SHA-256, in hex. Enough to tell
/// operators apart, and what `openssl x509 -fingerprint -sha256` begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate(Arc<str>);

/// Of a digest, what is told.
const DIGEST_BYTES_TOLD: usize = 8;

impl PeerCertificate {
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = Sha256::digest(certificate);
        let told: String =
            digest.iter().take(DIGEST_BYTES_TOLD).map(|byte| format!("{byte:02x}")).collect();
        Self(told.into())
    }
}

impl fmt::Display for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is longer than {bytes_max} bytes", path.display())]
    TooLong { path: PathBuf, bytes_max: u64 },
    #[error("{} holds no certificate in PEM form", path.display())]
    NoCertificate { path: PathBuf },
    #[error("{} holds no private key in PEM form", path.display())]
    NoKey { path: PathBuf },
    #[error("a certificate authority in {} cannot be used", path.display())]
    Authority { path: PathBuf, source: rustls::Error },
    #[error("the host has no certificate authorities; name a file with them")]
    NoHostAuthorities,
    #[error("certificate {} and key {} cannot be used", cert.display(), key.display())]
    Pair { cert: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("clients' certificates cannot be checked")]
    ClientCheck(#[source] rustls::server::VerifierBuilderError),
    #[error("no TLS of both sides")]
    Versions(#[source] rustls::Error),
}

/// A file as it was read.
pub struct Pem {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Pem {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let error = || TlsError::NoCertificate { path: self.path.clone() };
        let certificates =
            CertificateDer::pem_slice_iter(&self.bytes).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|_| error())?;
        if certificates.is_empty() { Err(error()) } else { Ok(certificates) }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.bytes)
            .map_err(|_| TlsError::NoKey { path: self.path.clone() })
    }

    fn authorities(&self) -> Result<rustls::RootCertStore, TlsError> {
        let mut authorities = rustls::RootCertStore::empty();
        for certificate in self.certificates()? {
            authorities
                .add(certificate)
                .map_err(|source| TlsError::Authority { path: self.path.clone(), source })?;
        }
        Ok(authorities)
    }

    fn pair_error(&self, key: &Self, source: rustls::Error) -> TlsError {
        TlsError::Pair { cert: self.path.clone(), key: key.path.clone(), source }
    }
}

fn provider() -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    std::sync::Arc::new(rustls::crypto::ring::default_provider())
}

/// The paths that are set; an empty one is none.
fn set(paths: &[&Path]) -> Vec<PathBuf> {
    paths.iter().filter(|path| !is_unset(path)).map(|path| path.to_path_buf()).collect()
}

fn is_unset(path: &Path) -> bool {
    path.as_os_str().is_empty()
}
