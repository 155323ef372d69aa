//! Cortex's transport for a gossip: TCP alone, a connection for each packet and each stream.
//!
//! A packet's connection carries the byte 1, the sender's address behind a byte for its length,
//! the payload and its MD5, and ends; it is there to tell that all of it has come. A stream's
//! carries the byte 2 and whatever the two say to each other. Packets may be lost, and are when
//! there is no room for them; nothing here waits for ever.
//!
//! The transport knows no messages. What a packet holds, `wire` tells; who is refused by that is
//! told to [`Strangers`], which counts it beside those whose certificates are no good.

mod advertise;
mod connection;
mod inbound;
mod outbox;
mod places;
mod strangers;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::config::{MemberlistConfigError, TransportConfig};
use super::metrics::{Count, TransportMetrics};
use crate::tls::RELOAD_PERIOD;
use crate::units::Millis;

pub use advertise::AdvertiseError;
pub use connection::{Connection, TransportTls, TransportTlsError};
pub use outbox::{QUEUED_BYTES_MAX, QUEUED_PER_PEER_MAX, SENDING_MAX};
pub use strangers::{LOG_INTERVAL, Refusal, Strangers};

/// First byte of a packet's connection, and of a stream's.
const PACKET: u8 = 1;
const STREAM: u8 = 2;
/// Of MD5, which is no defence here: it tells that all has come.
const DIGEST_BYTES: usize = 16;

/// What a setting of 0 comes to, which is no bound at all in Cortex: the longest wait, the longest
/// packet, as long as the longest state, and the most connections, each of which costs memory.
const WAIT_MAX: Duration = Duration::from_secs(60);
const PACKET_BYTES_MAX: usize = 20 << 20;
const CONNECTIONS_MAX: usize = 4096;
/// Received packets that wait to be read: a burst of the whole cluster's gossip of an interval.
const RECEIVED_MAX: usize = 256;
/// Streams that wait to be read; memberlist serves 128 at a time.
const STREAMS_MAX: usize = 128;

/// A packet that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// What its sender calls itself: where an answer goes.
    pub from: SocketAddr,
    pub bytes: Bytes,
}

/// A stream that somebody has opened with us. Holds a place among the connections until it is
/// dropped.
#[derive(Debug)]
pub struct Stream {
    /// Where it comes from, which is not where its sender listens.
    pub peer: SocketAddr,
    pub connection: Connection,
}

/// What comes in.
#[derive(Debug)]
pub struct Inbound {
    pub packets: mpsc::Receiver<Received>,
    pub streams: mpsc::Receiver<Stream>,
}

/// Why there is no transport.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error(transparent)]
    Config(#[from] MemberlistConfigError),
    #[error("the members' certificates cannot be used")]
    Tls(#[from] TransportTlsError),
    #[error("cannot listen on {address} for members")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("no address can be told to other members")]
    Advertise(#[from] AdvertiseError),
}

/// Why a stream cannot be opened; who asks knows with whom.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("no connection")]
    Connect { source: io::Error },
    #[error("no connection within {} ms", .wait.as_millis())]
    Timeout { wait: Duration },
}

/// What all parts of a transport share.
struct Shared {
    tls: Option<TransportTls>,
    metrics: Arc<TransportMetrics>,
    strangers: Strangers,
    outbox: outbox::Outbox,
    is_debug: bool,
    accept_lines: strangers::Seldom,
    packet_lines: strangers::Seldom,
    send_lines: strangers::Seldom,
}

/// Listens, and sends. Its tasks end with it.
pub struct Transport {
    shared: Arc<Shared>,
    advertised: SocketAddr,
    bound: Vec<SocketAddr>,
    /// Locked to end them.
    tasks: Mutex<JoinSet<()>>,
}

impl Transport {
    /// Listens on all addresses of `config`. `advertised` is what others are told, where that was
    /// set. With port 0 the first listener's port is everybody's.
    pub async fn bind(
        config: &TransportConfig,
        advertised: Option<SocketAddr>,
    ) -> Result<(Self, Inbound), TransportError> {
        let tls = TransportTls::load(config)?;
        let listeners = listen(&config.listen_on()?, config.bind_port).await?;
        let bound: Vec<_> = listeners.iter().map(|(address, _)| *address).collect();
        let advertised = advertise::advertised(advertised, bound[0])?;
        let metrics = Arc::new(TransportMetrics::default());
        let shared = Arc::new(Shared {
            tls,
            strangers: Strangers::new(Arc::clone(&metrics)),
            metrics,
            outbox: outbox::Outbox::default(),
            is_debug: config.transport_debug,
            accept_lines: strangers::Seldom::default(),
            packet_lines: strangers::Seldom::default(),
            send_lines: strangers::Seldom::default(),
        });
        let (packets, received) = mpsc::channel(RECEIVED_MAX);
        let (streams, opened) = mpsc::channel(STREAMS_MAX);
        let mut tasks = JoinSet::new();
        let door = inbound::Door {
            shared: Arc::clone(&shared),
            places: places::Places::new(
                or_most(config.max_concurrent_connections, CONNECTIONS_MAX),
                Arc::clone(&shared.metrics),
            ),
            packets,
            streams,
            read_timeout: wait(config.packet_read_timeout),
            packet_bytes_max: or_most(config.max_packet_size, PACKET_BYTES_MAX),
        };
        for (_, listener) in listeners {
            tasks.spawn(door.clone().serve(listener));
        }
        let sender = outbox::Sender {
            shared: Arc::clone(&shared),
            dial_timeout: wait(config.packet_dial_timeout),
            write_timeout: wait(config.packet_write_timeout),
            advertised,
        };
        tasks.spawn(Arc::new(sender).run());
        if let Some(tls) = &shared.tls {
            // They end with the transport's other tasks.
            tasks.spawn(Arc::clone(&tls.server).follow(RELOAD_PERIOD, std::future::pending()));
            tasks.spawn(Arc::clone(&tls.client).follow(RELOAD_PERIOD, std::future::pending()));
        }
        let transport = Self { shared, advertised, bound, tasks: Mutex::new(tasks) };
        Ok((transport, Inbound { packets: received, streams: opened }))
    }

    /// What others are told to reach us by.
    pub fn advertised(&self) -> SocketAddr {
        self.advertised
    }

    /// The addresses that are listened on, in the order of the settings.
    pub fn bound(&self) -> &[SocketAddr] {
        &self.bound
    }

    pub fn metrics(&self) -> &Arc<TransportMetrics> {
        &self.shared.metrics
    }

    pub fn strangers(&self) -> &Strangers {
        &self.shared.strangers
    }

    /// Certificates of both directions, for the page and the metrics.
    pub fn tls(&self) -> Option<&TransportTls> {
        self.shared.tls.as_ref()
    }

    /// Sends a packet some time soon, or drops it; never waits.
    pub fn send(&self, to: SocketAddr, packet: Bytes) {
        let metrics = &self.shared.metrics;
        metrics.add(Count::PacketsSent, 1);
        metrics.add(Count::PacketsSentBytes, packet.len() as u64);
        if !self.shared.outbox.push(to, packet) {
            metrics.add(Count::PacketsDropped, 1);
        }
    }

    /// Opens a stream with another member; what is said first has to follow.
    pub async fn dial_stream(
        &self,
        to: SocketAddr,
        wait: Duration,
    ) -> Result<Connection, DialError> {
        let metrics = &self.shared.metrics;
        metrics.add(Count::OutgoingStreams, 1);
        let dialling = timeout(wait, async {
            let mut connection = Connection::dial(to, self.shared.tls.as_ref()).await?;
            connection.write_all(&[STREAM]).await?;
            Ok(connection)
        });
        let dialled = match dialling.await {
            Ok(dialled) => dialled.map_err(|source| DialError::Connect { source }),
            Err(_) => Err(DialError::Timeout { wait }),
        };
        dialled.inspect_err(|_| metrics.add(Count::OutgoingStreamErrors, 1))
    }

    /// Listens and sends no more.
    pub fn close(&self) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    /// Until every packet was sent or lost, or `wait` is over: the last words of one who leaves.
    pub async fn drained(&self, wait: Duration) -> bool {
        timeout(wait, self.shared.outbox.emptied()).await.is_ok()
    }
}

async fn listen(
    addresses: &[IpAddr],
    mut port: u16,
) -> Result<Vec<(SocketAddr, TcpListener)>, TransportError> {
    let mut listeners = Vec::new();
    for ip in addresses {
        let address = SocketAddr::new(*ip, port);
        let failed = |source| TransportError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        port = bound.port();
        listeners.push((bound, listener));
    }
    Ok(listeners)
}

fn wait(setting: Millis) -> Duration {
    match setting.as_duration() {
        Duration::ZERO => WAIT_MAX,
        wait => wait,
    }
}

fn or_most(setting: usize, most: usize) -> usize {
    if setting == 0 { most } else { setting.min(most) }
}

#[cfg(test)]
mod tests;
