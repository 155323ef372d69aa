//! Listening: accepted connections without Nagle's delay, not more than the bound, in TLS where
//! the listener has a certificate.
//!
//! A handshake is a part of its connection's own first read or write, so that a slow client
//! keeps nobody else waiting. A peer that takes nothing of what is sent to it can be given up.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use super::shares::{Share, Shares, Sharing};
use crate::clock::Clock;
use crate::ratelimit::LogLines;
use crate::tls::{PeerCertificate, ServerTls};

/// How long to wait when a connection could not be accepted: out of file handles, most likely,
/// and asking again at once would burn a core until one is free.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// How long a client may take to come to terms on TLS. Go's handshakes are bounded by the same.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// A bound socket. Connections over the bound wait in the system's queue.
pub struct Listener {
    socket: TcpListener,
    places: Option<Arc<Semaphore>>,
    /// How they are shared, where they are few.
    shares: Option<Shares>,
    tls: Option<Arc<ServerTls>>,
    clock: Clock,
    /// Locked for a look at a bucket.
    failures: Mutex<LogLines>,
}

/// One connection; it gives its place back when it is dropped.
pub struct Connection {
    wire: Wire,
    peer: SocketAddr,
    /// What was read to see what it is, and is read again.
    unread: Bytes,
    stall: Option<Stall>,
    /// When it has had its time.
    ends_at: Option<Instant>,
    _place: Option<OwnedSemaphorePermit>,
    _share: Option<Share>,
}

/// How long the peer has taken nothing.
struct Stall {
    max: Duration,
    /// Runs while something waits for the peer.
    timer: Option<Pin<Box<Sleep>>>,
}

enum Wire {
    Plain(TcpStream),
    Handshake {
        accepting: Box<Accept<TcpStream>>,
        timeout: Pin<Box<Sleep>>,
    },
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake failed.
    Broken,
}

impl Listener {
    /// `connections_max` of 0 is no bound, as in Cortex.
    pub async fn bind(address: SocketAddr, connections_max: usize) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let places = (connections_max > 0).then(|| Arc::new(Semaphore::new(connections_max)));
        let (clock, failures) = (Clock::start(), Mutex::default());
        Ok(Self { socket, places, shares: None, tls: None, clock, failures })
    }

    /// Shares the places among those who come.
    pub fn with_sharing(self, sharing: Sharing) -> Self {
        Self { shares: Some(Shares::new(sharing)), ..self }
    }

    /// Speaks TLS with these certificates, or plainly without.
    pub fn with_tls(self, tls: Option<Arc<ServerTls>>) -> Self {
        Self { tls, ..self }
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
                Ok((stream, peer)) => {
                    // Without it each answer waits for the peer's delayed acknowledgement, 40 ms.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "connection was closed before it was served");
                        continue;
                    }
                    let share = self.shares.as_ref().map(|shares| shares.take(peer.ip()));
                    if matches!(share, Some(None)) {
                        self.tell_crowding(peer);
                        continue;
                    }
                    let age_max = self.shares.as_ref().map(Shares::age_max);
                    return Connection {
                        // As it was then: a peer that has gone meanwhile has none any more.
                        peer,
                        wire: self.wire(stream),
                        unread: Bytes::new(),
                        stall: None,
                        ends_at: age_max.map(|age_max| Instant::now() + age_max),
                        _place: place,
                        _share: share.flatten(),
                    };
                }
                Err(error) => {
                    self.tell(&error);
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// As a rule all file descriptors are used up, and stay so for a while.
    fn tell(&self, error: &io::Error) {
        if let Some(untold) = self.may_tell() {
            tracing::warn!(%error, untold, "cannot accept a connection");
        }
    }

    fn tell_crowding(&self, peer: SocketAddr) {
        if let Some(untold) = self.may_tell() {
            tracing::warn!(%peer, untold, "a connection of an address that has its part is closed");
        }
    }

    /// Takes a line, and gives the number of those that were not told before it.
    fn may_tell(&self) -> Option<u64> {
        let mut lines = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        lines.take(self.clock.steady_ns())
    }

    fn wire(&self, stream: TcpStream) -> Wire {
        let Some(tls) = &self.tls else { return Wire::Plain(stream) };
        Wire::Handshake {
            accepting: Box::new(TlsAcceptor::from(tls.current()).accept(stream)),
            timeout: Box::pin(sleep(HANDSHAKE_MAX)),
        }
    }
}

impl Connection {
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// What the client has shown, once the handshake is over.
    pub fn peer_certificate(&self) -> Option<PeerCertificate> {
        let Wire::Tls(stream) = &self.wire else { return None };
        let (_, session) = stream.get_ref();
        session.peer_certificates()?.first().map(PeerCertificate::of)
    }

    /// Until it has had its time, which may be never.
    pub fn aged(&self) -> impl Future<Output = ()> + Send + use<> {
        let ends_at = self.ends_at;
        async move {
            match ends_at {
                Some(ends_at) => sleep_until(ends_at).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Gives back the first bytes; they are read again.
    pub fn unread(&mut self, bytes: &[u8]) {
        self.unread = Bytes::copy_from_slice(bytes);
    }

    /// Breaks when the peer takes no byte for so long while there are some for it.
    pub fn bound_writes(&mut self, stall_max: Duration) {
        self.stall = Some(Stall { max: stall_max, timer: None });
    }

    /// What writing came to, unless it has come to nothing for too long.
    fn stalled<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.stall {
            Some(stall) => stall.judge(cx, polled),
            None => polled,
        }
    }

    /// The handshake, until it is over; then at once what bytes go through.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Open<'_>>> {
        if let Wire::Handshake { accepting, timeout } = &mut self.wire {
            let outcome = match Pin::new(accepting).poll(cx) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending if timeout.as_mut().poll(cx).is_ready() => {
                    Err(io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake in time"))
                }
                Poll::Pending => return Poll::Pending,
            };
            self.wire = match outcome {
                Ok(stream) => Wire::Tls(Box::new(stream)),
                Err(error) => {
                    tracing::debug!(%error, peer = ?self.peer_address(), "TLS handshake failed");
                    self.wire = Wire::Broken;
                    return Poll::Ready(Err(error));
                }
            };
        }
        Poll::Ready(match &mut self.wire {
            Wire::Plain(stream) => Ok(Pin::new(stream)),
            Wire::Tls(stream) => Ok(Pin::new(stream)),
            Wire::Handshake { .. } | Wire::Broken => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

impl Stall {
    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.timer = None;
            return polled;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.max)));
        timer.as_mut().poll(cx).map(|()| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes no more of its answer"))
        })
    }
}

type Open<'a> = Pin<&'a mut dyn Duplex>;

/// What bytes go through, in the clear or not.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let len = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread.split_to(len));
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_open(cx))?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = ready!(self.poll_open(cx))?.poll_write(cx, bytes);
        self.stalled(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = ready!(self.poll_open(cx))?.poll_write_vectored(cx, slices);
        self.stalled(cx, polled)
    }

    /// Both can: TLS takes the slices into its own records.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = ready!(self.poll_open(cx))?.poll_flush(cx);
        self.stalled(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            // There is nobody to tell, and no use in coming to terms first.
            Wire::Handshake { .. } | Wire::Broken => Poll::Ready(Ok(())),
        }
    }
}
