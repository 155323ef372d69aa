//! Packets on their way out.
//!
//! A packet to a member that is dead costs a dial that has to time out. So each receiver has a
//! queue of its own, of which one packet is under way at a time, and only so many receivers are
//! served at once: the others' packets pass the dead one's by. When a receiver cannot be dialled,
//! all that waits for it is dropped, since it would wait as long again for nothing.
//!
//! Invariant: a receiver is in `queues` iff it is in `ready` or a task serves it.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::metrics::Count;
use super::connection::Connection;
use super::{DIGEST_BYTES, PACKET, Shared};

/// Packets that may wait for one receiver: what is said to a member in several seconds.
pub const QUEUED_PER_PEER_MAX: usize = 64;
/// Bytes that may wait for all of them: a large ring's whole state to some twenty members.
pub const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Receivers that are served at a time. With half of a large cluster dead, some ten packets a
/// second go to the dead, each of which may take ten seconds to fail: 100.
pub const SENDING_MAX: usize = 256;

/// Packets that wait.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    /// Told when a receiver becomes ready.
    is_ready: Notify,
    /// Told when nothing waits any more.
    is_empty: Notify,
}

#[derive(Default)]
struct Waiting {
    queues: HashMap<SocketAddr, VecDeque<Bytes>>,
    ready: VecDeque<SocketAddr>,
    bytes: usize,
}

/// Why a packet was not sent.
#[derive(Debug, thiserror::Error)]
enum SendFault {
    #[error("no connection")]
    Dial(#[source] std::io::Error),
    #[error("no connection within {} ms", .0.as_millis())]
    DialTimeout(Duration),
    #[error("the packet cannot be written")]
    Write(#[source] std::io::Error),
    #[error("the packet was not taken within {} ms", .0.as_millis())]
    WriteTimeout(Duration),
}

impl Outbox {
    /// False when there is no room for it.
    pub fn push(&self, to: SocketAddr, packet: Bytes) -> bool {
        let mut waiting = self.lock();
        let Waiting { queues, ready, bytes } = &mut *waiting;
        if *bytes + packet.len() > QUEUED_BYTES_MAX {
            return false;
        }
        let length = packet.len();
        match queues.get_mut(&to) {
            Some(queue) if queue.len() >= QUEUED_PER_PEER_MAX => return false,
            Some(queue) => queue.push_back(packet),
            None => {
                queues.insert(to, VecDeque::from([packet]));
                ready.push_back(to);
            }
        }
        *bytes += length;
        drop(waiting);
        self.is_ready.notify_one();
        true
    }

    /// Until nothing waits and nothing is under way.
    pub async fn emptied(&self) {
        loop {
            let told = self.is_empty.notified();
            if self.lock().queues.is_empty() {
                return;
            }
            told.await;
        }
    }

    /// The next receiver to serve; from here on the caller serves it.
    async fn ready(&self) -> SocketAddr {
        loop {
            if let Some(to) = self.lock().ready.pop_front() {
                return to;
            }
            self.is_ready.notified().await;
        }
    }

    /// The next packet for a receiver that the caller serves; `None` ends that.
    fn take(&self, to: SocketAddr) -> Option<Bytes> {
        let mut waiting = self.lock();
        let packet = waiting.queues.get_mut(&to).and_then(VecDeque::pop_front);
        match &packet {
            Some(packet) => waiting.bytes -= packet.len(),
            None => self.leave(&mut waiting, to),
        }
        packet
    }

    /// Drops all that waits for a receiver that the caller serves, and ends that.
    fn give_up(&self, to: SocketAddr) -> usize {
        let mut waiting = self.lock();
        let queue = waiting.queues.get_mut(&to).map(std::mem::take).unwrap_or_default();
        waiting.bytes -= queue.iter().map(Bytes::len).sum::<usize>();
        self.leave(&mut waiting, to);
        queue.len()
    }

    fn leave(&self, waiting: &mut Waiting, to: SocketAddr) {
        waiting.queues.remove(&to);
        if waiting.queues.is_empty() {
            self.is_empty.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends what waits, until it is dropped.
pub(super) struct Sender {
    pub shared: Arc<Shared>,
    pub dial_timeout: Duration,
    pub write_timeout: Duration,
    /// How we are called ahead of each packet.
    pub advertised: SocketAddr,
}

impl Sender {
    pub async fn run(self: Arc<Self>) {
        let places = Arc::new(Semaphore::new(SENDING_MAX));
        let mut tasks = JoinSet::new();
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let to = self.shared.outbox.ready().await;
            while tasks.try_join_next().is_some() {}
            let sender = Arc::clone(&self);
            tasks.spawn(async move {
                sender.serve(to).await;
                drop(place);
            });
        }
    }

    async fn serve(&self, to: SocketAddr) {
        let Shared { outbox, metrics, .. } = &*self.shared;
        while let Some(packet) = outbox.take(to) {
            let Err(fault) = self.send(to, &packet).await else { continue };
            metrics.add(Count::PacketsSentErrors, 1);
            // A member that has just stopped refuses; that is everyday life.
            let is_refused = matches!(&fault, SendFault::Dial(error)
                if error.kind() == std::io::ErrorKind::ConnectionRefused);
            if !is_refused && self.shared.send_lines.is_due() {
                let cause = std::error::Error::source(&fault).map(ToString::to_string);
                let cause = cause.unwrap_or_default();
                tracing::warn!(%to, error = %fault, cause, "a packet cannot be sent");
            }
            if !matches!(fault, SendFault::Write(_)) {
                metrics.add(Count::PacketsSentErrors, outbox.give_up(to) as u64);
                return;
            }
        }
    }

    async fn send(&self, to: SocketAddr, payload: &[u8]) -> Result<(), SendFault> {
        let message = framed(self.advertised, payload);
        let tls = self.shared.tls.as_ref();
        let dialling = timeout(self.dial_timeout, Connection::dial(to, tls)).await;
        let mut connection = match dialling {
            Ok(dialled) => dialled.map_err(SendFault::Dial)?,
            Err(_) => return Err(SendFault::DialTimeout(self.dial_timeout)),
        };
        let writing = timeout(self.write_timeout, async {
            connection.write_all(&message).await?;
            connection.finish().await
        });
        match writing.await {
            Ok(written) => written.map_err(SendFault::Write)?,
            Err(_) => return Err(SendFault::WriteTimeout(self.write_timeout)),
        }
        if self.shared.is_debug {
            tracing::debug!(%to, bytes = payload.len(), "sent a packet");
        }
        Ok(())
    }
}

/// A packet on its connection: 1, our address behind its length, the payload, its MD5.
fn framed(advertised: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let name = advertised.to_string();
    let mut message = Vec::with_capacity(2 + name.len() + payload.len() + DIGEST_BYTES);
    message.push(PACKET);
    message.push(u8::try_from(name.len()).expect("an address is shorter than 60 bytes"));
    message.extend_from_slice(name.as_bytes());
    message.extend_from_slice(payload);
    message.extend_from_slice(&Md5::digest(payload));
    message
}
