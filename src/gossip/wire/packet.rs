//! Packets: one message or several, under label, checksum and compression, in this order.

use bytes::Bytes;

use super::super::message::Message;
use super::compression::{Compressed, UnpackError, pack};
use super::kind;
use super::label::{Label, LabelError, LabelRule};
use super::message::{self, MessageError};
use super::msgpack::Reader;

/// Most messages of one packet. A compound holds 255; a memberlist keeps 1024 that it has not
/// handled yet, and drops what is beyond. So do we, and count them as refused.
pub const MESSAGES_MAX: usize = 1024;
/// Most bytes that all compressed messages of a packet may come to: eight times the longest packet
/// by default. What is beyond is refused; longer states go over streams.
pub const UNPACKED_BYTES_MAX: usize = 8 << 20;
/// How deep messages may lie in each other. A sender compresses a compound of messages: three.
const DEPTH_MAX: u32 = 4;
/// Parts of a compound, and bytes of a part: their numbers have one byte and two.
const PARTS_MAX: usize = 255;
const PART_BYTES_MAX: usize = 65_535;
const CHECKSUM_BYTES: usize = 4;

/// What a packet held.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Opened {
    pub messages: Vec<Message>,
    /// Messages that could not be read; the others are good.
    pub refused: usize,
    /// Why the first of them could not.
    pub first_error: Option<PacketError>,
}

/// Why a packet, or a part of one, is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    #[error(transparent)]
    Label(#[from] LabelError),
    #[error("the checksum is another's")]
    Checksum,
    /// It has no mark of its own: where the kind and the fields of a ping would stand, it has its
    /// version and noise.
    #[error("it is encrypted, or damaged; Cortex has no keys")]
    Encrypted,
    #[error("a part cannot be unpacked")]
    Unpack(#[from] UnpackError),
    #[error("a compound is cut off")]
    CutOff,
    #[error("messages lie in each other deeper than {DEPTH_MAX}")]
    TooDeep,
    #[error("more than {MESSAGES_MAX} messages")]
    TooMany,
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// Packets that hold all of `parts`, mostly one.
///
/// Parts go together as far as a compound can hold them; a part that is too long for one goes
/// alone. `with_checksum` is for those who speak version 5 of the protocol. Compression is used
/// where it makes a packet shorter.
pub fn packet(parts: &[Bytes], label: &Label, compress: bool, with_checksum: bool) -> Vec<Bytes> {
    let wrap = |message: &[u8]| wrap(message, label, compress, with_checksum);
    let (short, long): (Vec<_>, Vec<_>) =
        parts.iter().partition(|part| part.len() <= PART_BYTES_MAX);
    let mut packets: Vec<Bytes> = long.into_iter().map(|part| wrap(part)).collect();
    for parts in short.chunks(PARTS_MAX) {
        packets.push(match parts {
            [part] => wrap(part),
            parts => wrap(&compound(parts)),
        });
    }
    packets
}

/// Reads a packet. The error is the whole packet's; what is wrong with parts of it stands in
/// `Opened`.
pub fn open_packet(packet: &Bytes, rule: &LabelRule) -> Result<Opened, PacketError> {
    let header = rule.check(packet)?.ok_or(LabelError::CutOff)?;
    let mut message = packet.slice(header..);
    if let [kind::CHECKSUM, rest @ ..] = &message[..]
        && let Some((given, body)) = rest.split_first_chunk::<CHECKSUM_BYTES>()
    {
        if crc32fast::hash(body) != u32::from_be_bytes(*given) {
            return Err(PacketError::Checksum);
        }
        message = message.slice(1 + CHECKSUM_BYTES..);
    }
    if looks_encrypted(&message) {
        return Err(PacketError::Encrypted);
    }
    if message.is_empty() {
        return Err(MessageError::Empty.into());
    }
    let mut opener = Opener { opened: Opened::default(), unpackable: UNPACKED_BYTES_MAX };
    opener.open(&message, 0);
    Ok(opener.opened)
}

fn wrap(message: &[u8], label: &Label, compress: bool, with_checksum: bool) -> Bytes {
    let packed = if compress { pack(message) } else { None };
    let message = packed.as_deref().unwrap_or(message);
    let mut out = Vec::with_capacity(label.overhead() + 1 + CHECKSUM_BYTES + message.len());
    label.write(&mut out);
    if with_checksum {
        out.push(kind::CHECKSUM);
        out.extend(crc32fast::hash(message).to_be_bytes());
    }
    out.extend_from_slice(message);
    out.into()
}

fn compound(parts: &[&Bytes]) -> Vec<u8> {
    let length = parts.iter().map(|part| 2 + part.len()).sum::<usize>();
    let mut out = Vec::with_capacity(2 + length);
    out.extend([kind::COMPOUND, u8::try_from(parts.len()).expect("chunks are no longer")]);
    for part in parts {
        out.extend(u16::try_from(part.len()).expect("longer ones go alone").to_be_bytes());
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// An encrypted packet opens with 0 or 1, which are also the kinds of a ping, whose map follows.
fn looks_encrypted(message: &[u8]) -> bool {
    match message {
        [kind::ENCRYPTED, ..] => true,
        [kind::PING | kind::INDIRECT_PING, next, ..] => {
            !matches!(next, 0x80..=0x8f | 0xde | 0xdf | 0xc0)
        }
        _ => false,
    }
}

struct Opener {
    opened: Opened,
    /// Bytes that may still be unpacked.
    unpackable: usize,
}

impl Opener {
    fn open(&mut self, message: &Bytes, depth: u32) {
        match message.first() {
            _ if self.is_full() => self.refuse(1, PacketError::TooMany),
            Some(&kind::COMPOUND | &kind::COMPRESSED) if depth == DEPTH_MAX => {
                self.refuse(1, PacketError::TooDeep);
            }
            Some(&kind::COMPOUND) => self.open_compound(message, depth),
            Some(&kind::COMPRESSED) => self.open_compressed(message, depth),
            _ => match message::decode(message) {
                Ok(message) => self.opened.messages.push(message),
                Err(error) => self.refuse(1, error.into()),
            },
        }
    }

    fn open_compound(&mut self, message: &Bytes, depth: u32) {
        let Some(&parts) = message.get(1) else { return self.refuse(1, PacketError::CutOff) };
        let parts = usize::from(parts);
        let mut start = 2 + 2 * parts;
        let Some(lengths) = message.get(2..start) else {
            return self.refuse(parts.max(1), PacketError::CutOff);
        };
        for (at, length) in lengths.chunks_exact(2).enumerate() {
            if self.is_full() {
                return self.refuse(parts - at, PacketError::TooMany);
            }
            let end = start + usize::from(u16::from_be_bytes([length[0], length[1]]));
            if end > message.len() {
                // Where the next ones begin is lost with it.
                return self.refuse(parts - at, PacketError::CutOff);
            }
            self.open(&message.slice(start..end), depth + 1);
            start = end;
        }
    }

    fn open_compressed(&mut self, message: &Bytes, depth: u32) {
        let kind = kind::COMPRESSED;
        let compressed = match Compressed::read(&mut Reader::new(&message[1..])) {
            Ok(compressed) => compressed,
            Err(source) => return self.refuse(1, MessageError::Fields { kind, source }.into()),
        };
        match compressed.unpack(&mut self.unpackable) {
            Ok(unpacked) => self.open(&unpacked.into(), depth + 1),
            Err(error) => self.refuse(1, error.into()),
        }
    }

    /// Bad ones cost as much to look at as good ones.
    fn is_full(&self) -> bool {
        self.opened.messages.len() + self.opened.refused >= MESSAGES_MAX
    }

    fn refuse(&mut self, messages: usize, error: PacketError) {
        self.opened.refused += messages;
        self.opened.first_error.get_or_insert(error);
    }
}
