//! One connection, plain or under TLS, and how it begins and ends.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::super::config::TransportConfig;
use super::places::{Place, Placed};
use crate::tls::{
    self, ClientAuth, ClientTls, ClientTlsConfig, MinVersion, ServerTls, ServerTlsConfig, TlsError,
};

/// How long the other side may take to say that it has read everything. It is in the same data
/// centre as a rule; and what it has not read by then it may still.
const FAREWELL: Duration = Duration::from_secs(1);
/// What it may say meanwhile: tickets for another connection, some hundred bytes.
const FAREWELL_BYTES: u64 = 16 << 10;

/// Certificates of both directions.
#[derive(Clone)]
pub struct TransportTls {
    pub server: Arc<ServerTls>,
    pub client: Arc<ClientTls>,
    server_name: Option<ServerName<'static>>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TransportTlsError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("-memberlist.tls-enabled needs a certificate and a key")]
    NoCertificate,
    #[error("-memberlist.tls-server-name {name:?} is no name")]
    ServerName { name: String, source: InvalidDnsNameError },
}

impl TransportTls {
    /// Reads the files; `None` where members speak plainly.
    pub fn load(config: &TransportConfig) -> Result<Option<Self>, TransportTlsError> {
        if !config.tls_enabled {
            return Ok(None);
        }
        let client = ClientTlsConfig {
            cert_path: config.tls_cert_path.clone(),
            key_path: config.tls_key_path.clone(),
            ca_path: config.tls_ca_path.clone(),
            insecure_skip_verify: config.tls_insecure_skip_verify,
        };
        let mut server = ServerTlsConfig {
            cert_file: config.tls_cert_path.clone(),
            key_file: config.tls_key_path.clone(),
            ..Default::default()
        };
        if config.tls_verify_peers {
            server.client_auth_type = ClientAuth::RequireAndVerify;
            server.client_ca_file = config.tls_ca_path.clone();
        }
        let server = tls::server("memberlist_server", &server, MinVersion::Default, &[])?;
        let name = &config.tls_server_name;
        let server_name =
            match &**name {
                "" => None,
                _ => Some(ServerName::try_from(name.clone()).map_err(|source| {
                    TransportTlsError::ServerName { name: name.clone(), source }
                })?),
            };
        Ok(Some(Self {
            server: server.ok_or(TransportTlsError::NoCertificate)?,
            client: tls::client("memberlist_client", &client, &[])?,
            server_name,
        }))
    }

    /// The name that the certificate of `to` has to be for.
    fn name_of(&self, to: SocketAddr) -> ServerName<'static> {
        self.server_name.clone().unwrap_or_else(|| ServerName::IpAddress(to.ip().into()))
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection to another member, or of one.
pub struct Connection {
    io: Box<dyn Duplex>,
    is_tls: bool,
}

impl Connection {
    pub(super) async fn dial(to: SocketAddr, tls: Option<&TransportTls>) -> io::Result<Self> {
        let stream = TcpStream::connect(to).await?;
        // All that is to be said is said at once; nothing is gained by collecting.
        stream.set_nodelay(true)?;
        let io: Box<dyn Duplex> = match tls {
            None => Box::new(stream),
            Some(tls) => {
                let connector = TlsConnector::from(tls.client.current());
                Box::new(connector.connect(tls.name_of(to), stream).await?)
            }
        };
        Ok(Self { io, is_tls: tls.is_some() })
    }

    pub(super) async fn accept(
        stream: TcpStream,
        tls: Option<&TransportTls>,
        place: Place,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let stream = Placed::new(stream, place);
        let io: Box<dyn Duplex> = match tls {
            None => Box::new(stream),
            Some(tls) => {
                let mut settings = ServerConfig::clone(&tls.server.current());
                // Who only sends a packet closes without reading, and a kernel that finds
                // something unread then takes back what is still under way.
                settings.send_tls13_tickets = 0;
                Box::new(TlsAcceptor::from(Arc::new(settings)).accept(stream).await?)
            }
        };
        Ok(Self { io, is_tls: tls.is_some() })
    }

    /// Ends the connection once everything has been said, so that none of it is lost: for the
    /// side that speaks last.
    pub async fn finish(mut self) -> io::Result<()> {
        self.io.shutdown().await?;
        // Without TLS the other side has nothing to say that would be unread.
        if self.is_tls {
            let mut rest = (&mut self.io).take(FAREWELL_BYTES);
            let _ = timeout(FAREWELL, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_shutdown(cx)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("is_tls", &self.is_tls).finish_non_exhaustive()
    }
}
