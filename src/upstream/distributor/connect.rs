//! Connections to a distributor, as hyper's pool asks for them: TCP, and TLS over it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::tls::ClientTls;

/// Connects to the one server there is, whatever a request's URI says.
#[derive(Clone)]
pub(super) struct Connector {
    /// `host:port`
    pub authority: Arc<str>,
    pub connect_timeout: Duration,
    /// Certificates, and the name that the server's has to be for.
    pub tls: Option<(Arc<ClientTls>, ServerName<'static>)>,
}

/// A connection, whatever it runs over.
pub(super) struct Wire(Box<dyn Duplex>);

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Connector {
    async fn connect(self) -> io::Result<TokioIo<Wire>> {
        let stream = TcpStream::connect(&*self.authority).await?;
        // Without it each request waits for the delayed acknowledgement of the last one, 40 ms.
        stream.set_nodelay(true)?;
        let wire: Box<dyn Duplex> = match self.tls {
            None => Box::new(stream),
            Some((settings, server_name)) => {
                let connector = TlsConnector::from(settings.current());
                Box::new(connector.connect(server_name, stream).await?)
            }
        };
        Ok(TokioIo::new(Wire(wire)))
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Wire>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (connector, wait) = (self.clone(), self.connect_timeout);
        Box::pin(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection in time");
            timeout(wait, connector.connect()).await.map_err(|_| late())?
        })
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}
