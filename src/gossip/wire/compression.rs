//! Compressed messages: LZW, the least significant bit first, in a map beside its name.
//!
//! A few bytes may claim to be gigabytes, so what comes out is counted while it comes out.

use weezl::{BitOrder, LzwStatus, decode, encode};

use super::kind;
use super::msgpack::{ReadError, Reader, Writer};

/// Literals are bytes.
const LITERAL_BITS: u8 = 8;
/// The one algorithm there is.
const LZW: u8 = 0;
/// What is made room for at a time. A lie about a size costs so much and no more.
const STEP_BYTES: usize = 64 << 10;
/// What unpacking costs that yields next to nothing: tables have to be made for it.
const COST_BYTES_MIN: usize = 4 << 10;
/// What can be told of a long message by a part of it, taken from its middle since it begins with
/// its peers: whether compressing it is of use. Ring state has been compressed by another
/// algorithm before, and tokens are random; then it would cost a hundred times what writing does.
const SAMPLE_BYTES: usize = 16 << 10;

/// Why a compressed message is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    #[error("compressed by an algorithm that is not known: {algorithm}")]
    Algorithm { algorithm: u64 },
    #[error("not compressed as it says")]
    Corrupt,
    #[error("more than {bytes_max} bytes when unpacked")]
    TooLong { bytes_max: usize },
}

/// A compressed message as it came.
pub(super) struct Compressed<'a> {
    algorithm: u64,
    bytes: &'a [u8],
}

impl<'a> Compressed<'a> {
    /// Behind the byte that tells the kind.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, ReadError> {
        let mut read = Self { algorithm: 0, bytes: &[] };
        reader.map(|reader, name| {
            match name {
                b"Algo" => read.algorithm = reader.uint()?,
                b"Buf" => read.bytes = reader.bytes()?,
                _ => reader.skip()?,
            }
            Ok(())
        })?;
        Ok(read)
    }

    /// Takes what comes out, or came before a failure, from `room_bytes`, so that many small lies
    /// cost no more than one large one.
    pub fn unpack(&self, room_bytes: &mut usize) -> Result<Vec<u8>, UnpackError> {
        if self.algorithm != u64::from(LZW) {
            return Err(UnpackError::Algorithm { algorithm: self.algorithm });
        }
        if *room_bytes == 0 {
            return Err(UnpackError::TooLong { bytes_max: 0 });
        }
        let mut unpacked = Vec::new();
        let outcome = decompress(self.bytes, *room_bytes, &mut unpacked);
        *room_bytes = room_bytes.saturating_sub(unpacked.len().max(COST_BYTES_MIN));
        outcome.map(|()| unpacked)
    }
}

fn decompress(
    mut packed: &[u8],
    bytes_max: usize,
    unpacked: &mut Vec<u8>,
) -> Result<(), UnpackError> {
    let mut decoder = decode::Decoder::new(BitOrder::Lsb, LITERAL_BITS);
    loop {
        let start = unpacked.len();
        // One more than may be, so that the end is told from too much.
        let room = STEP_BYTES.min(bytes_max + 1 - start);
        unpacked.resize(start + room, 0);
        let step = decoder.decode_bytes(packed, &mut unpacked[start..]);
        packed = &packed[step.consumed_in..];
        unpacked.truncate(start + step.consumed_out);
        if unpacked.len() > bytes_max {
            return Err(UnpackError::TooLong { bytes_max });
        }
        match step.status {
            Ok(LzwStatus::Done) => return Ok(()),
            Ok(LzwStatus::Ok) if step.consumed_in + step.consumed_out > 0 => {}
            Ok(LzwStatus::Ok | LzwStatus::NoProgress) | Err(_) => return Err(UnpackError::Corrupt),
        }
    }
}

/// The message under compression, where that makes it shorter.
pub(super) fn pack(message: &[u8]) -> Option<Vec<u8>> {
    if message.len() > 2 * SAMPLE_BYTES {
        let sample = compress(&message[message.len() / 2..][..SAMPLE_BYTES])?;
        if sample.len() >= SAMPLE_BYTES {
            return None;
        }
    }
    let compressed = compress(message)?;
    if compressed.len() >= message.len() {
        return None;
    }
    let mut out = Vec::with_capacity(compressed.len() + 16);
    out.push(kind::COMPRESSED);
    Writer::map(&mut out, 2).uint("Algo", LZW).bytes("Buf", &compressed);
    (out.len() < message.len()).then_some(out)
}

fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    encode::Encoder::new(BitOrder::Lsb, LITERAL_BITS).encode(bytes).ok()
}
