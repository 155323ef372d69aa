//! The messages of an answer, taken out of its pieces one after the other.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::FutureExt as _;
use http::{HeaderMap, Response};
use http_body::Body as _;

use super::ask::{AskError, check_status};
use super::send::Answer;
use crate::wire::encoding::Encoding;

/// A flag and a length before each message.
pub const FRAME_HEADER_LEN: usize = 5;

/// The messages of an answer, one after the other, as raw bytes.
pub struct AnswerStream {
    headers: HeaderMap,
    /// What compressed messages are compressed by.
    encoding: Encoding,
    answer: Answer,
    trailers: Option<HeaderMap>,
    /// What is left of the piece that came last.
    chunk: Bytes,
    message_bytes_max: usize,
}

impl AnswerStream {
    /// An answer that is nothing but a status has it in its head, and is over with that.
    pub(super) fn new(
        answer: Response<Answer>,
        message_bytes_max: usize,
    ) -> Result<Self, AskError> {
        let (head, answer) = answer.into_parts();
        if head.headers.contains_key("grpc-status") {
            check_status(&head.headers)?;
        }
        let encoding = head.headers.get("grpc-encoding");
        let encoding = encoding.and_then(|name| Encoding::from_name(name.as_bytes()));
        Ok(Self {
            // What nobody knows can only be read where it was not used.
            encoding: encoding.unwrap_or(Encoding::Identity),
            headers: head.headers,
            answer,
            trailers: None,
            chunk: Bytes::new(),
            message_bytes_max,
        })
    }

    /// The next message; `None` when the upstream has said that all went well and was all.
    ///
    /// Not to be called again after a dropped call or an error: the place in the frames is lost.
    pub async fn next(&mut self) -> Result<Option<Bytes>, AskError> {
        if self.chunk.is_empty() && !self.next_chunk().await? {
            let told = self.trailers.as_ref().unwrap_or(&self.headers);
            return check_status(told).map(|()| None);
        }
        let mut head = [0; FRAME_HEADER_LEN];
        let mut filled = 0;
        while filled < FRAME_HEADER_LEN {
            if self.chunk.is_empty() && !self.next_chunk().await? {
                return Err(self.cut());
            }
            let taken = self.chunk.len().min(FRAME_HEADER_LEN - filled);
            self.chunk.copy_to_slice(&mut head[filled..filled + taken]);
            filled += taken;
        }
        let [flag, len_bytes @ ..] = head;
        let is_compressed = match flag {
            0 => false,
            1 if self.encoding != Encoding::Identity => true,
            _ => return Err(AskError::Garbled { what: "compressed without having been asked to" }),
        };
        let len_bytes = u32::from_be_bytes(len_bytes);
        let len_bytes = usize::try_from(len_bytes).expect("addresses have 32 bits or more");
        let bytes_max = self.message_bytes_max;
        if len_bytes > bytes_max {
            return Err(AskError::TooLarge { len_bytes, bytes_max });
        }
        let message = self.take(len_bytes).await?;
        if !is_compressed {
            return Ok(Some(message));
        }
        let plain = self.encoding.decompress(&message, bytes_max);
        plain.map(Some).map_err(|_| AskError::Garbled { what: "damaged, or too large inside" })
    }

    /// Whether nothing has come since the last message, not even an end. What has come is lost.
    pub(super) fn is_quiet(&mut self) -> bool {
        let next = poll_fn(|cx| Pin::new(&mut self.answer).poll_frame(cx));
        self.chunk.is_empty() && next.now_or_never().is_none()
    }

    /// A message that lies in one piece is a slice of it; others are joined, in memory that
    /// grows with what arrives and not with what was announced.
    async fn take(&mut self, len: usize) -> Result<Bytes, AskError> {
        if self.chunk.len() >= len {
            return Ok(self.chunk.split_to(len));
        }
        let mut message = BytesMut::new();
        while message.len() < len {
            if self.chunk.is_empty() && !self.next_chunk().await? {
                return Err(self.cut());
            }
            let part = self.chunk.split_to(self.chunk.len().min(len - message.len()));
            message.put(part);
        }
        Ok(message.freeze())
    }

    /// Waits for a piece with something in it; false at the end.
    async fn next_chunk(&mut self) -> Result<bool, AskError> {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut self.answer).poll_frame(cx)).await {
            match frame?.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    self.chunk = data;
                    return Ok(true);
                }
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(false)
    }

    /// What an answer that ends within a message is: its own status, if it tells one.
    fn cut(&self) -> AskError {
        let told = self.trailers.as_ref().map(check_status);
        match told {
            Some(Err(error)) => error,
            _ => AskError::Garbled { what: "it ends within a message" },
        }
    }
}
