//! gRPC's frames: a flag, a length, a message; read from DATA chunks and written for them.
//!
//! A message that lies in one chunk is handed on as a slice of it. Others are joined by copying,
//! into memory that is in proportion to what has arrived, not to what was announced.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::FutureExt as _;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::wire::encoding::{DecompressError, Encoding};

const HEADER_LEN: usize = 5;

/// How many times what has arrived of a message is allocated for all of it. The first chunk of
/// a real sender is 16 KiB, so up to 512 KiB are allocated once and copied once.
const TRUST: usize = 32;

/// An empty message is never compressed.
const EMPTY_MESSAGE: Bytes = Bytes::from_static(&[0; HEADER_LEN]);

/// What is wrong with a call's frames. The texts are grpc-go's.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("grpc: received message larger than max ({len_bytes} vs. {bytes_max})")]
    TooLarge { len_bytes: usize, bytes_max: usize },
    #[error("grpc: received message after decompression larger than max {bytes_max}")]
    TooLargeInside { bytes_max: usize },
    #[error("trying to send message larger than max ({len_bytes} vs. {bytes_max})")]
    AnswerTooLarge { len_bytes: usize, bytes_max: usize },
    #[error("grpc: Decompressor is not installed for grpc-encoding {name:?}")]
    UnknownEncoding { name: String },
    #[error("grpc: compressed flag set with identity or empty encoding")]
    FlagWithoutEncoding,
    #[error("grpc: received unexpected payload format {flag}")]
    UnknownFlag { flag: u8 },
    #[error("grpc: failed to decompress the message: {encoding}: corrupt input")]
    Damaged { encoding: &'static str },
    #[error("grpc: failed to compress the answer")]
    Compress,
    #[error("unexpected EOF")]
    Cut,
    #[error("the request has no message")]
    NoMessage,
    #[error("the request has more than one message")]
    MoreMessages,
    #[error("the request was broken off")]
    Body,
}

/// A message and the frame that it came in.
pub struct Framed {
    /// Flag, length and payload, as received.
    pub frame: Bytes,
    /// The message, decompressed.
    pub message: Bytes,
}

struct Header {
    bytes: [u8; HEADER_LEN],
    len_bytes: usize,
    is_compressed: bool,
}

/// Takes a call's messages out of its body, one after the other.
pub struct Messages<B> {
    body: B,
    encoding: Encoding,
    bytes_max: usize,
    /// What is left of the chunk that came last.
    chunk: Bytes,
}

impl<B: Body<Data = Bytes> + Unpin> Messages<B> {
    pub fn new(body: B, encoding: Encoding, bytes_max: usize) -> Self {
        Self { body, encoding, bytes_max, chunk: Bytes::new() }
    }

    /// The next message, decompressed; `None` when the sender has said that it was the last.
    ///
    /// Not to be called again after a dropped call or an error: the place in the frames is lost.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(header) = self.next_header().await? else {
            return Ok(None);
        };
        let payload = self.take(header.len_bytes, &[]).await?;
        self.plain(header, payload).map(Some)
    }

    /// As [`Messages::next`], with the frame for whoever hands it on.
    pub async fn next_framed(&mut self) -> Result<Option<Framed>, FrameError> {
        let Some(header) = self.next_header().await? else {
            return Ok(None);
        };
        let frame = self.take(header.len_bytes, &header.bytes).await?;
        let message = self.plain(header, frame.slice(HEADER_LEN..))?;
        Ok(Some(Framed { frame, message }))
    }

    /// Whether nothing has come since the last message, not even the end. What has come is lost.
    pub fn is_quiet(&mut self) -> bool {
        self.chunk.is_empty() && self.body.frame().now_or_never().is_none()
    }

    /// The one message of a unary call.
    pub async fn only(mut self) -> Result<Bytes, FrameError> {
        let message = self.next().await?.ok_or(FrameError::NoMessage)?;
        self.ended().await.map(|()| message)
    }

    /// The one message of a unary call, with its frame.
    pub async fn only_framed(mut self) -> Result<Framed, FrameError> {
        let framed = self.next_framed().await?.ok_or(FrameError::NoMessage)?;
        self.ended().await.map(|()| framed)
    }

    async fn ended(&mut self) -> Result<(), FrameError> {
        match self.next_header().await? {
            None => Ok(()),
            Some(_) => Err(FrameError::MoreMessages),
        }
    }

    fn plain(&self, header: Header, payload: Bytes) -> Result<Bytes, FrameError> {
        if !header.is_compressed {
            return Ok(payload);
        }
        let plain = self.encoding.decompress(&payload, self.bytes_max);
        plain.map_err(|error| match error {
            DecompressError::TooLarge { bytes_max } => FrameError::TooLargeInside { bytes_max },
            DecompressError::Damaged(_) => FrameError::Damaged { encoding: self.encoding.name() },
        })
    }

    async fn next_header(&mut self) -> Result<Option<Header>, FrameError> {
        let mut header = [0; HEADER_LEN];
        let mut filled = 0;
        while filled < HEADER_LEN {
            if self.chunk.is_empty() && !self.next_chunk().await? {
                return if filled == 0 { Ok(None) } else { Err(FrameError::Cut) };
            }
            let taken = self.chunk.len().min(HEADER_LEN - filled);
            self.chunk.copy_to_slice(&mut header[filled..filled + taken]);
            filled += taken;
        }
        let [flag, len @ ..] = header;
        let len_bytes = usize::try_from(u32::from_be_bytes(len)).expect("32 bits or more");
        if len_bytes > self.bytes_max {
            return Err(FrameError::TooLarge { len_bytes, bytes_max: self.bytes_max });
        }
        let is_compressed = match flag {
            0 => false,
            1 if self.encoding == Encoding::Identity => {
                return Err(FrameError::FlagWithoutEncoding);
            }
            1 => true,
            flag => return Err(FrameError::UnknownFlag { flag }),
        };
        Ok(Some(Header { bytes: header, len_bytes, is_compressed }))
    }

    /// The next `len` bytes behind `before`; a slice of the chunk where nothing is before.
    async fn take(&mut self, len: usize, before: &[u8]) -> Result<Bytes, FrameError> {
        if self.chunk.is_empty() && len > 0 && !self.next_chunk().await? {
            return Err(FrameError::Cut);
        }
        if before.is_empty() && self.chunk.len() >= len {
            return Ok(self.chunk.split_to(len));
        }
        let len = before.len() + len;
        let mut message = BytesMut::from(before);
        while message.len() < len {
            if self.chunk.is_empty() && !self.next_chunk().await? {
                return Err(FrameError::Cut);
            }
            let part = self.chunk.split_to(self.chunk.len().min(len - message.len()));
            let arrived = message.len() + part.len();
            if message.capacity() < arrived {
                let trusted = len.min(arrived.saturating_mul(TRUST));
                message.reserve(trusted - message.len());
            }
            message.put_slice(&part);
        }
        Ok(message.freeze())
    }

    /// Waits for data; `false` at the end.
    async fn next_chunk(&mut self) -> Result<bool, FrameError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|_| FrameError::Body)?;
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                self.chunk = data;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A message as it goes out.
pub fn frame(message: &[u8], encoding: Encoding, bytes_max: usize) -> Result<Bytes, FrameError> {
    if message.is_empty() {
        return Ok(EMPTY_MESSAGE);
    }
    let packed;
    let (flag, payload) = match encoding {
        Encoding::Identity => (0, message),
        encoding => {
            packed = encoding.compress(message).map_err(|_| FrameError::Compress)?;
            (1, &packed[..])
        }
    };
    let len = match u32::try_from(payload.len()) {
        Ok(len) if payload.len() <= bytes_max => len,
        _ => return Err(FrameError::AnswerTooLarge { len_bytes: payload.len(), bytes_max }),
    };
    let mut framed = BytesMut::with_capacity(HEADER_LEN + payload.len());
    framed.put_u8(flag);
    framed.put_u32(len);
    framed.put_slice(payload);
    Ok(framed.freeze())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use proptest::prelude::*;

    use super::*;

    fn messages(
        chunks: Vec<Bytes>,
        encoding: Encoding,
        bytes_max: usize,
    ) -> Messages<impl Body<Data = Bytes> + Unpin> {
        let frames = chunks.into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
        Messages::new(StreamBody::new(stream::iter(frames)), encoding, bytes_max)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("runtime").block_on(future)
    }

    fn first(bytes: &[u8], encoding: Encoding, bytes_max: usize) -> Result<Bytes, String> {
        let chunks = vec![Bytes::copy_from_slice(bytes)];
        run(messages(chunks, encoding, bytes_max).only()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_message_in_one_chunk_is_not_copied() {
        let chunk = frame(b"hello", Encoding::Identity, 100).expect("frame");
        let message = run(messages(vec![chunk.clone()], Encoding::Identity, 100).only());
        assert_eq!(message.expect("message").as_ptr(), chunk[HEADER_LEN..].as_ptr());
    }

    #[test]
    fn garbled_frames_are_told_apart_in_the_words_of_grpc_go() {
        use Encoding::{Gzip, Identity, SnappyBlock};
        let check = |bytes: &[u8], encoding, error: &str| {
            assert_eq!(first(bytes, encoding, 10).unwrap_err(), error);
        };
        check(&[], Identity, "the request has no message");
        check(&[0, 0, 0], Identity, "unexpected EOF");
        check(&[0, 0, 0, 0, 2, b'a'], Identity, "unexpected EOF");
        check(&[0, 0, 0, 0, 11], Identity, "grpc: received message larger than max (11 vs. 10)");
        check(
            &[0, 255, 255, 255, 255],
            Identity,
            "grpc: received message larger than max (4294967295 vs. 10)",
        );
        check(&[2, 0, 0, 0, 0], Identity, "grpc: received unexpected payload format 2");
        check(
            &[1, 0, 0, 0, 0],
            Identity,
            "grpc: compressed flag set with identity or empty encoding",
        );
        check(
            &[1, 0, 0, 0, 1, 7],
            Gzip,
            "grpc: failed to decompress the message: gzip: corrupt input",
        );
        check(
            &[1, 0, 0, 0, 1, 11],
            SnappyBlock,
            "grpc: received message after decompression larger than max 10",
        );
        check(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Identity, "the request has more than one message");
        assert_eq!(first(&[0, 0, 0, 0, 0], SnappyBlock, 10), Ok(Bytes::new()));
        assert_eq!(first(&[0, 0, 0, 0, 1, 9], SnappyBlock, 10), Ok(Bytes::from_static(&[9])));
    }

    #[test]
    fn an_answer_over_the_bound_is_refused() {
        let error = frame(&[1; 11], Encoding::Identity, 10).unwrap_err();
        assert_eq!(error.to_string(), "trying to send message larger than max (11 vs. 10)");
    }

    proptest! {
        #[test]
        fn messages_come_back_however_the_bytes_are_cut(
            sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            cuts in prop::collection::vec(1..17usize, 1..8),
            which in 0..Encoding::ALL.len(),
        ) {
            let encoding = Encoding::ALL[which];
            let mut bytes = BytesMut::new();
            for message in &sent {
                bytes.extend_from_slice(&frame(message, encoding, 1 << 10).expect("frame"));
            }
            let mut chunks = Vec::new();
            for cut in cuts.iter().cycle() {
                if bytes.is_empty() {
                    break;
                }
                chunks.push(bytes.split_to(bytes.len().min(*cut)).freeze());
            }
            let mut reader = messages(chunks, encoding, 1 << 10);
            run(async {
                for message in &sent {
                    let next = reader.next().await.expect("whole").expect("one more");
                    prop_assert_eq!(&next[..], &message[..]);
                }
                prop_assert!(reader.next().await.expect("whole").is_none());
                Ok(())
            })?;
        }
    }
}
