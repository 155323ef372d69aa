//! Messages of callers, charged to the room before they are kept.
//!
//! The length that a frame announces is charged before its first byte is read, and given back
//! when the message has been answered. A message that was begun has a time to arrive in: bytes
//! that are held for a caller that has gone are not held for long.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tokio::time::{Instant, timeout_at};

use super::frames::{FrameError, HEADER_LEN, Header, Messages};
use crate::server::room::{Held, Room};

/// How long a message may take to arrive, once it has its room: as long as the body of an HTTP
/// request has by default. 16 MiB in that time are half a megabyte a second.
const ARRIVAL_MAX: Duration = Duration::from_secs(30);

/// A message, and the room that it takes.
pub struct Received {
    /// Flag, length and payload as received, where frames are kept; else empty.
    pub frame: Bytes,
    /// The message, decompressed.
    pub message: Bytes,
    /// Keeps its bytes charged; to be dropped with them.
    pub held: Held,
}

/// Takes a call's messages out of its body, one after the other.
pub struct Intake<B> {
    messages: Messages<B>,
    room: Room,
    /// Of the call.
    deadline: Option<Instant>,
    keeps_frames: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Intake<B> {
    pub fn new(messages: Messages<B>, room: Room, deadline: Option<Instant>) -> Self {
        Self { messages, room, deadline, keeps_frames: false }
    }

    /// Frames are kept for whoever hands them on; a message decompressed out of one is to be
    /// dropped before the next wait, so only the frame is charged.
    pub fn keeping_frames(self) -> Self {
        Self { keeps_frames: true, ..self }
    }

    /// The next message; `None` when the sender has said that it was the last.
    ///
    /// Not to be called again after a dropped call, or an error other than `NoRoom`.
    pub async fn next(&mut self) -> Result<Option<Received>, FrameError> {
        let Some(header) = self.messages.next_header().await? else {
            return Ok(None);
        };
        let held = self.hold(&header).await?;
        let until = self.until();
        let raw = timeout_at(until, self.raw(&header)).await.map_err(|_| FrameError::TooSlow)??;
        self.opened(header, raw, held).map(Some)
    }

    /// The one message of a unary call. It is decompressed when all has come, since the sender
    /// decides when that is.
    pub async fn only(mut self) -> Result<Received, FrameError> {
        let header = self.messages.next_header().await?.ok_or(FrameError::NoMessage)?;
        let held = self.hold(&header).await?;
        let until = self.until();
        let all = async {
            let raw = self.raw(&header).await?;
            self.messages.ended().await.map(|()| raw)
        };
        let raw = timeout_at(until, all).await.map_err(|_| FrameError::TooSlow)??;
        self.opened(header, raw, held)
    }

    async fn hold(&mut self, header: &Header) -> Result<Held, FrameError> {
        let held = self.room.hold(header.len_bytes, self.deadline).await;
        held.map_err(|error| {
            self.messages.pass_over(header);
            error.into()
        })
    }

    fn until(&self) -> Instant {
        let bound = Instant::now() + ARRIVAL_MAX;
        self.deadline.map_or(bound, |deadline| deadline.min(bound))
    }

    /// The payload, behind its header where frames are kept.
    async fn raw(&mut self, header: &Header) -> Result<Bytes, FrameError> {
        let before = if self.keeps_frames { &header.bytes[..] } else { &[] };
        self.messages.take(header.len_bytes, before).await
    }

    fn opened(&self, header: Header, raw: Bytes, mut held: Held) -> Result<Received, FrameError> {
        if self.keeps_frames {
            let message = self.messages.plain(header, raw.slice(HEADER_LEN..))?;
            return Ok(Received { frame: raw, message, held });
        }
        let message = self.messages.plain(header, raw)?;
        held.grow_to(message.len())?;
        Ok(Received { frame: Bytes::new(), message, held })
    }
}
