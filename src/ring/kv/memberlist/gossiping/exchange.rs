//! Streams: full exchanges with another member, and pings where packets do not get through.
//!
//! A large ring takes some ten milliseconds to encode, and as many to decode and merge. That is
//! done on threads that may be blocked, since here it would hold up whoever else this worker has
//! to serve. The machine's lock is held for its own part alone, which is short.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};

use super::Shared;
use crate::gossip::membership::Incompatible;
use crate::gossip::message::{Ping, PushPull};
use crate::gossip::transport::{Connection, DialError, Refusal, Stream};
use crate::gossip::wire::Label;
use crate::gossip::wire::stream::{self, Decoder, StreamError, StreamMessage};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 16 << 10;
/// From here on a message is a long one. A ring of 200 members is shorter.
const LONG_MESSAGE_BYTES: usize = 512 << 10;
/// Long messages that are read at once, at most 20 MiB each and a copy. Who waits for a place
/// holds half a MiB, and waits no longer than for any stream.
pub(super) const LONG_MESSAGES_MAX: usize = 4;

/// Why an exchange came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the connection broke")]
    Broke(#[source] io::Error),
    #[error(transparent)]
    Unreadable(#[from] StreamError),
    #[error(
        "it ended the stream without an answer, as a member does whose -memberlist.cluster-label or \
         -memberlist.tls-enabled is another"
    )]
    CutOff,
    #[error("it speaks TLS, and we do not; see -memberlist.tls-enabled")]
    SpeaksTls,
    #[error("it says: {0}")]
    Refused(String),
    #[error("its answer is none")]
    NoAnswer,
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
    #[error("what it needs encoded or merged was not to the end: {0}")]
    Broken(#[from] JoinError),
    #[error("not done within {} ms", .0.as_millis())]
    Timeout(Duration),
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::CutOff,
            _ => Self::Broke(error),
        }
    }
}

impl Shared {
    /// Sends our half, and takes theirs.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        to: SocketAddr,
        is_join: bool,
    ) -> Result<(), ExchangeError> {
        let wait = self.stream_timeout;
        let exchanging = async {
            let mut connection = self.transport.dial_stream(to, wait).await?;
            let ours = self.our_half(is_join, Some(self.label.label.clone())).await?;
            connection.write_all(&ours).await?;
            let answer = self.read_message(&mut connection, Decoder::answer()).await;
            match answer.map_err(told_of_tls)? {
                StreamMessage::PushPull(theirs) => self.take_half(theirs).await,
                StreamMessage::Error(text) => Err(ExchangeError::Refused(text)),
                _ => Err(ExchangeError::NoAnswer),
            }
        };
        timeout(wait, exchanging).await.unwrap_or(Err(ExchangeError::Timeout(wait)))
    }

    /// Answers a stream that another member has opened.
    pub(super) async fn serve(self: Arc<Self>, stream: Stream) {
        let Stream { peer, connection } = stream;
        match timeout(self.stream_timeout, self.answer(peer, connection)).await {
            Ok(Ok(())) => {}
            Ok(Err(ExchangeError::Unreadable(error))) => {
                self.transport.strangers().refuse(Refusal::of_stream(&error), peer, &error);
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a member's stream failed"),
            Err(_) => tracing::debug!(%peer, "a member's stream took too long"),
        }
    }

    async fn answer(
        self: &Arc<Self>,
        peer: SocketAddr,
        mut connection: Connection,
    ) -> Result<(), ExchangeError> {
        let reading = self.read_message(&mut connection, Decoder::opened(self.label.clone()));
        let answer = match reading.await? {
            StreamMessage::PushPull(theirs) => {
                // Ours goes first: they are not to be told what they have just said.
                let ours = self.our_half(theirs.join, None).await?;
                connection.write_all(&ours).await?;
                connection.finish().await?;
                return self.take_half(theirs).await;
            }
            StreamMessage::User(bytes) => {
                // It came over a stream since it is large.
                let shared = Arc::clone(self);
                return Ok(spawn_blocking(move || shared.store.receive(bytes)).await?);
            }
            StreamMessage::Ping(ping) => {
                let ack = self.with_machine(|machine, _| machine.answer_stream_ping(peer, &ping));
                ack.map(StreamMessage::Ack).ok_or(ExchangeError::NoAnswer)?
            }
            StreamMessage::Error(text) => return Err(ExchangeError::Refused(text)),
            StreamMessage::Ack(_) => return Err(ExchangeError::NoAnswer),
        };
        connection.write_all(&stream::encode(&answer, None, self.is_compressed)).await?;
        Ok(connection.finish().await?)
    }

    /// Pings over a stream; the machine hears of an answer only.
    pub(super) async fn ping(self: Arc<Self>, to: SocketAddr, ping: Ping, until: Instant) {
        let sequence = ping.sequence;
        let pinging = async {
            let wait = until.saturating_duration_since(Instant::now());
            let mut connection = self.transport.dial_stream(to, wait).await?;
            let bytes = stream::encode(&StreamMessage::Ping(ping), Some(&self.label.label), false);
            connection.write_all(&bytes).await?;
            self.read_message(&mut connection, Decoder::answer()).await
        };
        match timeout_at(until, pinging).await {
            Ok(Ok(StreamMessage::Ack(ack))) if ack.sequence == sequence => {
                self.with_machine(|machine, _| machine.stream_answered(sequence));
            }
            Ok(Ok(_)) => tracing::debug!(%to, "a member answered another ping than ours"),
            Ok(Err(error)) => tracing::debug!(%to, %error, "a ping over a stream failed"),
            Err(_) => tracing::debug!(%to, "a ping over a stream was not answered in time"),
        }
    }

    async fn read_message(
        &self,
        connection: &mut Connection,
        mut decoder: Decoder,
    ) -> Result<StreamMessage, ExchangeError> {
        let mut piece = vec![0; PIECE_BYTES];
        let (mut length, mut place) = (0, None);
        loop {
            if let Some(message) = decoder.decode()? {
                return Ok(message);
            }
            if length > LONG_MESSAGE_BYTES && place.is_none() {
                place = self.long_messages.acquire().await.ok();
            }
            let read = connection.read(&mut piece).await?;
            if read == 0 {
                return Err(ExchangeError::CutOff);
            }
            decoder.push(&piece[..read]);
            length += read;
        }
    }

    /// The bytes of our half; with the label where we have opened the stream.
    async fn our_half(
        self: &Arc<Self>,
        join: bool,
        opening: Option<Label>,
    ) -> Result<Bytes, ExchangeError> {
        let shared = Arc::clone(self);
        let made = spawn_blocking(move || {
            let peers = shared.machine().reports();
            let user_state = shared.store.local_state();
            let ours = StreamMessage::PushPull(PushPull { join, peers, user_state });
            stream::encode(&ours, opening.as_ref(), shared.is_compressed)
        });
        Ok(made.await?)
    }

    /// What it says of peers first: if we cannot understand each other, nothing of it counts.
    async fn take_half(self: &Arc<Self>, theirs: PushPull) -> Result<(), ExchangeError> {
        let PushPull { peers, user_state, .. } = theirs;
        self.with_machine(|machine, now_ms| machine.merge(peers, now_ms))?;
        if !user_state.is_empty() {
            let shared = Arc::clone(self);
            spawn_blocking(move || shared.store.merge_remote_state(user_state)).await?;
        }
        Ok(())
    }
}

/// An alert of TLS, or a part of its handshake, is the answer to what is none of its own.
fn told_of_tls(error: ExchangeError) -> ExchangeError {
    const ALERT: u8 = 21;
    const HANDSHAKE: u8 = 22;
    match error {
        ExchangeError::Unreadable(StreamError::Kind { kind: ALERT | HANDSHAKE }) => {
            ExchangeError::SpeaksTls
        }
        other => other,
    }
}
