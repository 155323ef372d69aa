//! Connections over HTTP, as hyper's pool asks for them: TCP, and TLS over it.
//!
//! Each tells what has gone over it, so that a request on one that had been idle, and that the
//! other side closed meanwhile, is known from one that the other side took and died of.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Extensions, Uri};
use hyper::rt::Executor;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::sync::{AtomicBool, Ordering};
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
pub(super) struct Wire {
    io: Box<dyn Duplex>,
    /// The handshake agreed on HTTP/2.
    is_http2: bool,
    traffic: Traffic,
}

/// What has gone over a connection. Read when a request on it has failed, by when the connection
/// is not used any more; the values need no order beyond that, so `Relaxed` will do.
#[derive(Clone, Default)]
pub(super) struct Traffic(Arc<Heard>);

#[derive(Default)]
struct Heard {
    /// Something was received at some time: an earlier request was answered.
    ever: AtomicBool,
    /// Something was received since the last byte was sent.
    since_sent: AtomicBool,
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The tasks of hyper's pool: each drives a connection. They end with the last client of it.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// The cause at the end of a chain: the layers above it only say that there is one.
pub(super) fn innermost(error: &legacy::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    match error.source() {
        None => error.to_string(),
        Some(_) => cause.to_string(),
    }
}

impl Connector {
    async fn connect(self) -> io::Result<TokioIo<Wire>> {
        let stream = TcpStream::connect(&*self.authority).await?;
        // Without it each request waits for the delayed acknowledgement of the last one, 40 ms.
        stream.set_nodelay(true)?;
        let (io, is_http2): (Box<dyn Duplex>, _) = match self.tls {
            None => (Box::new(stream), false),
            Some((settings, server_name)) => {
                let connector = TlsConnector::from(settings.current());
                let stream = connector.connect(server_name, stream).await?;
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                (Box::new(stream), is_http2)
            }
        };
        Ok(TokioIo::new(Wire { io, is_http2, traffic: Traffic::default() }))
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
        let connected = Connected::new().extra(self.traffic.clone());
        if self.is_http2 { connected.negotiated_h2() } else { connected }
    }
}

impl Traffic {
    /// The other side closed a connection on which it had answered before, and of the last
    /// request's answer nothing has come: most likely it never saw that request. Only for
    /// HTTP/1, where a connection carries one request at a time.
    pub fn was_stale(error: &legacy::Error) -> bool {
        let mut extensions = Extensions::new();
        if let Some(connected) = error.connect_info() {
            connected.get_extras(&mut extensions);
        }
        extensions.get::<Self>().is_some_and(|Self(heard)| {
            heard.ever.load(Ordering::Relaxed) && !heard.since_sent.load(Ordering::Relaxed)
        })
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut *self.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.traffic.0.ever.store(true, Ordering::Relaxed);
            self.traffic.0.since_sent.store(true, Ordering::Relaxed);
        }
        outcome
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.traffic.0.since_sent.store(false, Ordering::Relaxed);
        Pin::new(&mut *self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.traffic.0.since_sent.store(false, Ordering::Relaxed);
        Pin::new(&mut *self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_shutdown(cx)
    }
}
