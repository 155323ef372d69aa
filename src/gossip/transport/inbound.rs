//! What others send: connections accepted up to a bound, packets read whole, streams handed over.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::super::metrics::Count;
use super::connection::Connection;
use super::places::{Place, Places};
use super::{DIGEST_BYTES, PACKET, Received, Refusal, STREAM, Shared, Stream};

/// How long a connection may say nothing at all, its handshake included. Whoever dials has its
/// first byte ready; a lost segment comes again after 200 ms, and a busy member's handshake takes
/// some hundred.
const FIRST_BYTE_WAIT: Duration = Duration::from_secs(2);

/// Waits between tries to accept, when the process has no more descriptors, say.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What a listener needs.
#[derive(Clone)]
pub(super) struct Door {
    pub shared: Arc<Shared>,
    pub places: Arc<Places>,
    pub packets: mpsc::Sender<Received>,
    pub streams: mpsc::Sender<Stream>,
    pub read_timeout: Duration,
    pub packet_bytes_max: usize,
}

/// Why a packet was not taken.
#[derive(Debug, thiserror::Error)]
enum PacketFault {
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    #[error("it did not come within {} ms", .0.as_millis())]
    Late(Duration),
    #[error("it has more than {bytes_max} bytes")]
    TooLong { bytes_max: usize },
    #[error("its digest is another's, or cut off")]
    Digest,
    #[error("nobody takes packets")]
    Unread,
}

impl Door {
    /// Accepts until it is dropped, and with it the connections that are under way.
    pub async fn serve(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let mut pause = ACCEPT_PAUSE_MIN;
        loop {
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, from)) => {
                    pause = ACCEPT_PAUSE_MIN;
                    let Some((place, crowding)) = self.places.take(from) else {
                        self.shared.metrics.add(Count::RejectedConnections, 1);
                        continue;
                    };
                    if let Some(crowding) = crowding {
                        let from = crowding.from;
                        self.shared.strangers.refuse(Refusal::Crowding, from, &crowding);
                    }
                    let door = self.clone();
                    connections.spawn(async move { door.receive(stream, from, place).await });
                }
                Err(error) => {
                    if self.shared.accept_lines.is_due() {
                        tracing::error!(%error, "cannot accept connections of members");
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
    }

    /// One connection: a packet to its end, or a stream up to its first byte.
    async fn receive(self, stream: TcpStream, from: SocketAddr, place: Place) {
        let started = Instant::now();
        let metrics = &self.shared.metrics;
        let opening = timeout(self.read_timeout.min(FIRST_BYTE_WAIT), async {
            let mut connection =
                Connection::accept(stream, self.shared.tls.as_ref(), place).await.map_err(Some)?;
            let kind = connection.read_u8().await.map_err(|_| None::<io::Error>)?;
            Ok::<_, Option<io::Error>>((connection, kind))
        });
        let (connection, kind) = match opening.await {
            Ok(Ok(opened)) => opened,
            // What TLS itself finds wrong; a connection that breaks off says nothing of who it was.
            Ok(Err(Some(error))) if error.kind() == io::ErrorKind::InvalidData => {
                self.shared.strangers.refuse(Refusal::Certificate, from, &error);
                return;
            }
            // Who looks whether the port is open says nothing.
            Ok(Err(_)) | Err(_) => return metrics.add(Count::UnknownConnections, 1),
        };
        match kind {
            PACKET => {
                metrics.add(Count::PacketsReceived, 1);
                let outcome = self.receive_packet(connection, from, started).await;
                if let Err(fault) = outcome {
                    metrics.add(Count::PacketsReceivedErrors, 1);
                    if self.shared.packet_lines.is_due() {
                        let cause = std::error::Error::source(&fault);
                        let cause = cause.map(ToString::to_string).unwrap_or_default();
                        tracing::warn!(%from, error = %fault, cause, "a member's packet is lost");
                    }
                }
            }
            STREAM => {
                metrics.add(Count::IncomingStreams, 1);
                if self.streams.try_send(Stream { peer: from, connection }).is_err() {
                    metrics.add(Count::RejectedConnections, 1);
                }
            }
            _ => metrics.add(Count::UnknownConnections, 1),
        }
    }

    async fn receive_packet(
        &self,
        mut connection: Connection,
        peer: SocketAddr,
        started: Instant,
    ) -> Result<(), PacketFault> {
        let left = self.read_timeout.saturating_sub(started.elapsed());
        let reading = timeout(left, self.read_packet(&mut connection)).await;
        let (from, mut bytes) = match reading {
            Ok(read) => read.map_err(PacketFault::Read)?,
            Err(_) => return Err(PacketFault::Late(self.read_timeout)),
        };
        // Its place is for others while this one waits to be taken.
        drop(connection);
        self.shared.metrics.received(started.elapsed().as_secs_f64(), bytes.len());
        let bytes_max = self.packet_bytes_max;
        if bytes.len() > bytes_max {
            return Err(PacketFault::TooLong { bytes_max });
        }
        let Some((payload, digest)) = bytes.split_last_chunk::<DIGEST_BYTES>() else {
            return Err(PacketFault::Digest);
        };
        if Md5::digest(payload)[..] != digest[..] {
            return Err(PacketFault::Digest);
        }
        bytes.truncate(bytes.len() - DIGEST_BYTES);
        let bytes = Bytes::from(bytes);
        self.shared.metrics.add(Count::PacketsReceivedBytes, bytes.len() as u64);
        // A sender that says something odd of itself is answered at what it names in the packet.
        let from = from.unwrap_or(peer);
        if self.shared.is_debug {
            tracing::debug!(%from, bytes = bytes.len(), "received a packet");
        }
        let received = Received { from, bytes };
        // Who reads packets may be busy for a while. What finds no room then is lost, as packets
        // may be: whoever waits here has given its place among the connections back.
        self.packets.try_send(received).map_err(|_| PacketFault::Unread)
    }

    /// The address that the sender names, and everything to the end, digest included; one byte
    /// more than may be where it is too long.
    async fn read_packet(
        &self,
        connection: &mut Connection,
    ) -> io::Result<(Option<SocketAddr>, Vec<u8>)> {
        let length = connection.read_u8().await?;
        let mut name = vec![0; usize::from(length)];
        connection.read_exact(&mut name).await?;
        let from = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
        let mut bytes = Vec::new();
        let most = self.packet_bytes_max as u64 + 1;
        connection.take(most).read_to_end(&mut bytes).await?;
        Ok((from, bytes))
    }
}
