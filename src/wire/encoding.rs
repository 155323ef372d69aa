//! The compressions a gRPC message may have, both ways.
//!
//! `snappy-block`, the default of Cortex's ingester client, is one raw snappy block. The size is
//! bounded before anything is allocated for it, in every format: a small message can claim, or
//! really hold, gigabytes.

use std::io::{self, Read, Write};

use bytes::Bytes;

/// Named in `grpc-accept-encoding`, in every answer.
pub const ACCEPTED: &str = "gzip,zstd,snappy,snappy-block";

/// Largest zstd window that we keep, as a power of two: 8 MiB, what the encoders of Cortex's
/// clients use at most. A frame that asks for more is refused.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A snappy block at most grows this much: its densest element makes 64 bytes out of 3.
const SNAPPY_GROWTH_MAX: usize = 22;

/// zstd's level for answers; they are a few bytes.
const ZSTD_LEVEL: i32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
    Zstd,
    Snappy,
    SnappyBlock,
}

#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    #[error("decompressed data is larger than {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    #[error("compressed data is damaged")]
    Damaged(#[source] io::Error),
}

impl Encoding {
    pub const ALL: [Self; 5] =
        [Self::Identity, Self::Gzip, Self::Zstd, Self::Snappy, Self::SnappyBlock];

    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.name().as_bytes() == name)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Snappy => "snappy",
            Self::SnappyBlock => "snappy-block",
        }
    }

    pub fn decompress(self, packed: &Bytes, bytes_max: usize) -> Result<Bytes, DecompressError> {
        let packed_slice = packed.as_ref();
        match self {
            Self::Identity => Ok(packed.clone()),
            Self::Gzip => read_all(flate2::bufread::MultiGzDecoder::new(packed_slice), bytes_max),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed_slice)
                    .map_err(DecompressError::Damaged)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(DecompressError::Damaged)?;
                read_all(decoder, bytes_max)
            }
            Self::Snappy => read_all(snap::read::FrameDecoder::new(packed_slice), bytes_max),
            Self::SnappyBlock => snappy_block(packed_slice, bytes_max),
        }
    }

    /// As [`Encoding::compress`], appended to `out`, whose memory is the caller's to reuse.
    pub fn compress_into(self, message: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::SnappyBlock => {
                let start = out.len();
                out.resize(start + snap::raw::max_compress_len(message.len()), 0);
                let len = snap::raw::Encoder::new().compress(message, &mut out[start..])?;
                out.truncate(start + len);
            }
            Self::Identity => out.extend_from_slice(message),
            _ => out.extend_from_slice(&self.compress(message)?),
        }
        Ok(())
    }

    pub fn compress(self, message: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Identity => Ok(message.to_vec()),
            Self::Gzip => {
                let level = flate2::Compression::fast();
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(message)?;
                encoder.finish()
            }
            Self::Zstd => zstd::bulk::compress(message, ZSTD_LEVEL),
            Self::Snappy => {
                let mut encoder = snap::write::FrameEncoder::new(Vec::new());
                encoder.write_all(message)?;
                encoder.into_inner().map_err(|error| io::Error::other(error.to_string()))
            }
            Self::SnappyBlock => {
                snap::raw::Encoder::new().compress_vec(message).map_err(io::Error::from)
            }
        }
    }
}

fn snappy_block(packed: &[u8], bytes_max: usize) -> Result<Bytes, DecompressError> {
    let damaged = |error: snap::Error| DecompressError::Damaged(error.into());
    let len = snap::raw::decompress_len(packed).map_err(damaged)?;
    if len > bytes_max {
        return Err(DecompressError::TooLarge { bytes_max });
    }
    if len > packed.len().saturating_mul(SNAPPY_GROWTH_MAX) {
        let error = io::Error::new(io::ErrorKind::InvalidData, "length cannot be true");
        return Err(DecompressError::Damaged(error));
    }
    let mut plain = vec![0; len];
    snap::raw::Decoder::new().decompress(packed, &mut plain).map_err(damaged)?;
    Ok(plain.into())
}

/// Reads at most one byte more than is allowed, into a buffer that grows as data comes.
fn read_all(reader: impl Read, bytes_max: usize) -> Result<Bytes, DecompressError> {
    let mut plain = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    reader.take(limit).read_to_end(&mut plain).map_err(DecompressError::Damaged)?;
    if plain.len() > bytes_max {
        return Err(DecompressError::TooLarge { bytes_max });
    }
    Ok(plain.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COMPRESSED: [Encoding; 4] =
        [Encoding::Gzip, Encoding::Zstd, Encoding::Snappy, Encoding::SnappyBlock];

    #[test]
    fn case_d9_a_bomb_stops_at_the_bound() {
        let bomb = vec![0; 8 << 20];
        for encoding in COMPRESSED {
            let packed = Bytes::from(encoding.compress(&bomb).expect("compress"));
            assert!(packed.len() < bomb.len() / 20, "{encoding:?}");
            let check = |bytes_max| encoding.decompress(&packed, bytes_max);
            assert!(matches!(check(1 << 20), Err(DecompressError::TooLarge { .. })));
            assert!(matches!(check(bomb.len() - 1), Err(DecompressError::TooLarge { .. })));
            assert_eq!(check(bomb.len()).expect("fits"), bomb);
        }
    }

    #[test]
    fn a_length_that_cannot_be_true_is_not_allocated() {
        let packed = Bytes::from_static(&[0xff, 0xff, 0xff, 0x07, 0x00, 0x61]); // claims 16 MiB
        let outcome = Encoding::SnappyBlock.decompress(&packed, usize::MAX);
        assert!(matches!(outcome, Err(DecompressError::Damaged(_))));
    }

    #[test]
    fn names_lead_to_their_encodings() {
        for encoding in Encoding::ALL {
            assert_eq!(Encoding::from_name(encoding.name().as_bytes()), Some(encoding));
        }
        assert_eq!(Encoding::from_name(b"brotli"), None);
        for encoding in COMPRESSED {
            assert!(ACCEPTED.split(',').any(|name| name == encoding.name()));
        }
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(message in prop::collection::vec(0..4u8, 1..2000)) {
            for encoding in Encoding::ALL {
                let packed = Bytes::from(encoding.compress(&message).expect("compress"));
                let plain = encoding.decompress(&packed, message.len()).expect("decompress");
                prop_assert_eq!(&plain[..], &message[..]);
                let mut appended = vec![7];
                encoding.compress_into(&message, &mut appended).expect("compress");
                prop_assert_eq!((appended[0], &appended[1..]), (7, &packed[..]));
            }
        }

        #[test]
        fn garbage_never_panics(packed in prop::collection::vec(any::<u8>(), 0..200)) {
            let packed = Bytes::from(packed);
            for encoding in COMPRESSED {
                if let Ok(plain) = encoding.decompress(&packed, 1 << 16) {
                    prop_assert!(plain.len() <= 1 << 16);
                }
            }
        }
    }
}
