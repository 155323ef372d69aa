//! Listening: accepted connections without Nagle's delay, and not more than the bound.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long to wait when a connection could not be accepted: out of file handles, most likely,
/// and asking again at once would burn a core until one is free.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// A bound socket. Connections over the bound wait in the system's queue.
pub struct Listener {
    socket: TcpListener,
    places: Option<Arc<Semaphore>>,
}

/// One connection; it gives its place back when it is dropped.
pub struct Connection {
    stream: TcpStream,
    _place: Option<OwnedSemaphorePermit>,
}

impl Listener {
    /// `connections_max` of 0 is no bound, as in Cortex.
    pub async fn bind(address: SocketAddr, connections_max: usize) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let places = (connections_max > 0).then(|| Arc::new(Semaphore::new(connections_max)));
        Ok(Self { socket, places })
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Waits for a place and a connection. Cancel-safe: a dropped call has accepted nothing.
    pub async fn accept(&self) -> Connection {
        let place = match &self.places {
            None => None,
            // The semaphore is never closed.
            Some(places) => Arc::clone(places).acquire_owned().await.ok(),
        };
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => {
                    // Without it each answer waits for the peer's delayed acknowledgement, 40 ms.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "connection was closed before it was served");
                        continue;
                    }
                    return Connection { stream, _place: place };
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = io::Result<Connection>> {
        stream::unfold(self, |listener| async {
            let connection = listener.accept().await;
            Some((Ok(connection), listener))
        })
    }
}

impl Connection {
    /// Unknown when the peer has already gone.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
