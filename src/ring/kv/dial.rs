//! Connections to a store: TCP, and TLS over it.
//!
//! Certificate files are looked at before each connection, so that renewed ones are used
//! without a restart. Connections are few: one stays open to etcd, one is made for each question
//! to Consul or to a page.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::ring::config::ClientTlsConfig;
use crate::ring::config::address::Address;
use crate::tls::{self, ClientTls, TlsError};

/// What is spoken over a connection, as its two sides agree on in TLS.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Connects to one server.
#[derive(Clone)]
pub(super) struct Dialler {
    address: Address,
    tls: Option<Tls>,
}

/// Certificates, and the name that the server's has to be for.
#[derive(Clone)]
struct Tls {
    settings: Arc<ClientTls>,
    server_name: ServerName<'static>,
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
    #[error("cannot prepare TLS")]
    Tls(#[from] TlsError),
    #[error("{0:?} is no name that a certificate could carry")]
    ServerName(String),
}

impl Dialler {
    /// Reads the certificates for the first time; here a wrong path is an error.
    pub(super) fn new(
        address: Address,
        tls: Option<&ClientTlsConfig>,
        protocol: Protocol,
    ) -> Result<Self, DialError> {
        let tls = tls.map(|config| Tls::new(&address, config, protocol)).transpose()?;
        Ok(Self { address, tls })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Has no deadline of its own: each caller's covers more than the connection.
    pub(super) fn dial(&self) -> impl Future<Output = Result<Stream, DialError>> + Send + use<> {
        let Self { address, tls } = self.clone();
        async move {
            let connected = TcpStream::connect((address.host.as_str(), address.port)).await;
            let tcp = connected.map_err(DialError::Connect)?;
            // Questions are small and wait for their answers; nothing is gained by collecting.
            tcp.set_nodelay(true).map_err(DialError::Connect)?;
            let Some(Tls { settings, server_name }) = tls else {
                return Ok(Box::new(tcp) as Stream);
            };
            let looked = Arc::clone(&settings);
            // Files may lie on a mount that is slow or gone; a look that panicked is the next
            // one's to make.
            let _ = tokio::task::spawn_blocking(move || looked.look()).await;
            let handshake = TlsConnector::from(settings.current()).connect(server_name, tcp);
            Ok(Box::new(handshake.await.map_err(DialError::Handshake)?) as Stream)
        }
    }
}

impl Tls {
    fn new(
        address: &Address,
        config: &ClientTlsConfig,
        protocol: Protocol,
    ) -> Result<Self, DialError> {
        let name = match config.tls_server_name.as_str() {
            "" => address.host.clone(),
            name => name.to_owned(),
        };
        let server_name =
            ServerName::try_from(name.clone()).map_err(|_| DialError::ServerName(name))?;
        let files = tls::ClientTlsConfig {
            cert_path: config.tls_cert_path.clone(),
            key_path: config.tls_key_path.clone(),
            ca_path: config.tls_ca_path.clone(),
            insecure_skip_verify: config.tls_insecure_skip_verify,
        };
        let protocols: &[_] = match protocol {
            Protocol::Http1 => &["http/1.1"],
            Protocol::Http2 => &["h2"],
        };
        Ok(Self { settings: tls::client("ring store", &files, protocols)?, server_name })
    }
}

impl std::fmt::Debug for Dialler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_tls = self.tls.is_some();
        f.debug_struct("Dialler").field("address", &self.address).field("is_tls", &is_tls).finish()
    }
}
