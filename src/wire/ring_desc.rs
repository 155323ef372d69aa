//! The ring as its KV store keeps it: a snappy block of protobuf `ring.Desc`.
//!
//! ```text
//! Desc         1 ingesters: map<string, InstanceDesc>
//! InstanceDesc 1 addr  2 timestamp  3 state  6 tokens (packed or not)  7 zone
//!              8 registered_timestamp
//! ```
//!
//! Other members write this value too, perhaps with fields that we do not know: those of `Desc`
//! and `InstanceDesc` are kept and written back. Nearly every read brings nothing but new
//! heartbeats, so [`RingDescReader`] finds that out from hashes of the token bytes and leaves
//! the tokens undecoded.
//!
//! Must hold: bad bytes are an error, never a panic, and no memory is taken on the word of a
//! length that the bytes received do not back.

use bytes::Buf;
use prost::DecodeError;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint,
    encoded_len_varint, skip_field,
};
use xxhash_rust::xxh3::Xxh3Default;

use crate::ring::model::{Heartbeat, Instance, InstanceState, RingModel, RingReading, Token};

/// Most bytes of a stored ring once decompressed: 6,000 members of 512 tokens, ten times the
/// largest ring we plan for. A larger value is refused before it is decompressed.
pub const RING_DESC_BYTES_MAX: usize = 16 << 20;

/// Most members of a stored ring. An empty one takes two bytes there and a hundred times as much
/// here, so the bound on bytes alone would not bound our memory. A larger ring is refused.
pub const INSTANCES_MAX: usize = 1 << 16;

/// Fewest bytes of an entry, on the whole, of a ring that many write: one that has LEFT, whose name
/// and address have ten, takes thirty. Empty ones would make eight million of a message, which all
/// are looked at, whatever is taken of them. A few may be as short as they like.
const ENTRY_BYTES_MIN: usize = 16;
const SHORT_ENTRIES_MAX: usize = 64;

/// What snappy can make of one byte at the most: three bytes copy up to 64. A block that claims
/// more is broken, and believing it would let a few bytes allocate the whole bound above.
const SNAPPY_GROWTH_MAX: usize = 64 / 3 + 1;

const DESC_INGESTERS: u32 = 1;
const ENTRY_KEY: u32 = 1;
const ENTRY_VALUE: u32 = 2;
const INSTANCE_ADDR: u32 = 1;
const INSTANCE_TIMESTAMP: u32 = 2;
const INSTANCE_STATE: u32 = 3;
const INSTANCE_TOKENS: u32 = 6;
const INSTANCE_ZONE: u32 = 7;
const INSTANCE_REGISTERED_TIMESTAMP: u32 = 8;

/// Why stored bytes are no ring.
#[derive(Debug, thiserror::Error)]
pub enum RingDescError {
    #[error("decompress the stored ring")]
    Decompress(#[source] snap::Error),
    #[error("the stored ring claims {claimed} bytes from {received}")]
    Growth { claimed: usize, received: usize },
    #[error("the stored ring has {claimed} bytes, more than {RING_DESC_BYTES_MAX}")]
    TooLarge { claimed: usize },
    #[error("the stored ring has more than {INSTANCES_MAX} instances")]
    TooManyInstances,
    #[error("the stored ring has more than {entries_max} entries in {bytes} bytes")]
    TooDense { entries_max: usize, bytes: usize },
    #[error("decode the stored ring")]
    Decode(#[from] DecodeError),
    #[error("a length in the stored ring runs past its end")]
    Truncated,
    #[error("a field of the stored ring has the wrong wire type")]
    WireType,
    #[error("a text in the stored ring is not UTF-8")]
    Text,
    #[error("an instance of the stored ring has the unknown state {0}")]
    State(i64),
}

/// Reads the stored value again and again, and tells cheaply when only heartbeats are new.
///
/// Give every reading to the same ring, in order: heartbeats speak of the last whole reading.
#[derive(Debug, Default)]
pub struct RingDescReader {
    /// The decompressed value, kept so that the next read finds its pages warm.
    buffer: Vec<u8>,
    /// Of the last whole reading, if heartbeats may follow it.
    topology: Option<u128>,
}

impl RingDescReader {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn read(&mut self, value: &[u8]) -> Result<RingReading, RingDescError> {
        decompress(value, &mut self.buffer)?;
        let entries = entries(&self.buffer)?;
        let topology = topology(&entries);
        if topology.is_some() && topology == self.topology {
            return Ok(RingReading::Heartbeats(heartbeats(&entries)));
        }
        // Known only once the decode has succeeded, so that a failed read changes nothing.
        let model = decode_message(&self.buffer, None)?;
        self.topology = topology;
        Ok(RingReading::Whole(model))
    }

    /// Makes the next reading whole; for a ring that has lost step with this reader.
    pub fn forget(&mut self) {
        self.topology = None;
    }
}

/// Decodes a stored value.
pub fn decode(value: &[u8]) -> Result<RingModel, RingDescError> {
    let mut message = Vec::new();
    decompress(value, &mut message)?;
    decode_message(&message, None)
}

/// Decodes what of a stored value we understand, and tells how many entries that leaves out: those
/// with a state that we do not know, or a text that is none. For a ring that many write, where one
/// odd entry must not hide all others.
pub fn decode_known(value: &[u8]) -> Result<(RingModel, usize), RingDescError> {
    let mut message = Vec::new();
    decompress(value, &mut message)?;
    check_density(&message)?;
    let mut left_out = 0;
    let model = decode_message(&message, Some(&mut left_out))?;
    Ok((model, left_out))
}

/// The value to store for `model`.
pub fn encode(model: &RingModel) -> Result<Vec<u8>, RingDescError> {
    let mut message = Vec::new();
    let mut instance_bytes = Vec::new();
    for (id, instance) in &model.instances {
        instance_bytes.clear();
        encode_instance(instance, &mut instance_bytes);
        let entry_len =
            bytes_len(ENTRY_KEY, id.len()) + bytes_len(ENTRY_VALUE, instance_bytes.len());
        encode_key(DESC_INGESTERS, WireType::LengthDelimited, &mut message);
        encode_varint(entry_len as u64, &mut message);
        encode_bytes(ENTRY_KEY, id.as_bytes(), &mut message);
        encode_bytes(ENTRY_VALUE, &instance_bytes, &mut message);
    }
    message.extend_from_slice(&model.unknown_fields);
    if message.len() > RING_DESC_BYTES_MAX {
        return Err(RingDescError::TooLarge { claimed: message.len() });
    }
    snap::raw::Encoder::new().compress_vec(&message).map_err(RingDescError::Decompress)
}

fn decompress(value: &[u8], message: &mut Vec<u8>) -> Result<(), RingDescError> {
    let claimed = snap::raw::decompress_len(value).map_err(RingDescError::Decompress)?;
    if claimed > RING_DESC_BYTES_MAX {
        return Err(RingDescError::TooLarge { claimed });
    }
    if claimed > value.len().saturating_mul(SNAPPY_GROWTH_MAX) {
        return Err(RingDescError::Growth { claimed, received: value.len() });
    }
    message.resize(claimed, 0);
    let decoded = snap::raw::Decoder::new().decompress(value, message);
    decoded.map(|_| ()).map_err(RingDescError::Decompress)
}

/// Refuses a ring of crumbs: looking at each costs as much as at a whole one.
fn check_density(message: &[u8]) -> Result<(), RingDescError> {
    let bytes = message.len();
    let entries_max = INSTANCES_MAX.min(SHORT_ENTRIES_MAX + bytes / ENTRY_BYTES_MIN);
    let mut entries = 0;
    each_field(message, |_, _, _| {
        entries += 1;
        if entries > entries_max {
            return Err(RingDescError::TooDense { entries_max, bytes });
        }
        Ok(())
    })
}

/// One member as it lies in the message: all but its tokens parsed.
#[derive(Default)]
struct Entry<'a> {
    id: &'a str,
    addr: &'a str,
    timestamp_s: i64,
    state: i64,
    zone: &'a str,
    registered_timestamp_s: i64,
    /// The contents of its token fields, in order. Nearly always one, packed.
    tokens: Vec<TokenBytes<'a>>,
    unknown_fields: Vec<u8>,
}

/// The varints of one packed token field, or the single one of an unpacked field.
struct TokenBytes<'a>(&'a [u8]);

/// Without `left_out` an entry that we do not understand is an error.
fn decode_message(
    message: &[u8],
    mut left_out: Option<&mut usize>,
) -> Result<RingModel, RingDescError> {
    let mut model = RingModel::default();
    each_field(message, |tag, field, raw| {
        if tag != DESC_INGESTERS {
            model.unknown_fields.extend_from_slice(raw);
            return Ok(());
        }
        let known =
            parse_entry(field.bytes()?).and_then(|entry| {
                match InstanceState::from_number(entry.state) {
                    Some(state) => Ok((entry, state)),
                    None => Err(RingDescError::State(entry.state)),
                }
            });
        let (entry, state) = match (known, &mut left_out) {
            (Err(RingDescError::State(_) | RingDescError::Text), Some(left_out)) => {
                **left_out += 1;
                return Ok(());
            }
            (known, _) => known?,
        };
        let mut tokens = Vec::with_capacity(entry.tokens.iter().map(TokenBytes::count).sum());
        for field in &entry.tokens {
            field.decode_into(&mut tokens)?;
        }
        let instance = Instance {
            addr: entry.addr.to_owned(),
            timestamp_s: entry.timestamp_s,
            state,
            tokens,
            zone: entry.zone.to_owned(),
            registered_timestamp_s: entry.registered_timestamp_s,
            unknown_fields: entry.unknown_fields,
        };
        // A key that comes twice keeps its last value, as every map field of protobuf.
        model.instances.insert(entry.id.to_owned(), instance);
        if model.instances.len() > INSTANCES_MAX {
            return Err(RingDescError::TooManyInstances);
        }
        Ok(())
    })?;
    Ok(model)
}

/// All entries, sorted by id.
fn entries(message: &[u8]) -> Result<Vec<Entry<'_>>, RingDescError> {
    let mut entries = Vec::new();
    each_field(message, |tag, field, _| {
        if tag == DESC_INGESTERS {
            if entries.len() == INSTANCES_MAX {
                return Err(RingDescError::TooManyInstances);
            }
            entries.push(parse_entry(field.bytes()?)?);
        }
        Ok(())
    })?;
    entries.sort_by_key(|entry| entry.id);
    Ok(entries)
}

/// Hash of all that ownership depends on, or `None` where heartbeats alone could not stand for
/// the ring: no members, or one named twice.
///
/// It covers tokens as bytes, so another encoding of the same tokens is read whole once; the
/// ring then finds that nothing moved.
fn topology(entries: &[Entry<'_>]) -> Option<u128> {
    if entries.is_empty() || entries.windows(2).any(|pair| pair[0].id == pair[1].id) {
        return None;
    }
    let mut hash = Xxh3Default::new();
    for entry in entries {
        for text in [entry.id, entry.zone] {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hash.update(&entry.state.to_le_bytes());
        hash.update(&(entry.tokens.len() as u64).to_le_bytes());
        for field in &entry.tokens {
            hash.update(&(field.0.len() as u64).to_le_bytes());
            hash.update(field.0);
        }
    }
    Some(hash.digest128())
}

fn heartbeats(entries: &[Entry<'_>]) -> Vec<Heartbeat> {
    let heartbeat = |entry: &Entry<'_>| Heartbeat {
        id: entry.id.to_owned(),
        addr: entry.addr.to_owned(),
        timestamp_s: entry.timestamp_s,
        registered_timestamp_s: entry.registered_timestamp_s,
    };
    entries.iter().map(heartbeat).collect()
}

fn parse_entry(bytes: &[u8]) -> Result<Entry<'_>, RingDescError> {
    let mut id = "";
    let mut value: &[u8] = &[];
    // Fields of an entry that we do not know have nowhere to stay; Cortex drops them too.
    each_field(bytes, |tag, field, _| {
        match tag {
            ENTRY_KEY => id = field.text()?,
            ENTRY_VALUE => value = field.bytes()?,
            _ => {}
        }
        Ok(())
    })?;
    let mut entry = Entry { id, ..Entry::default() };
    each_field(value, |tag, field, raw| {
        match tag {
            INSTANCE_ADDR => entry.addr = field.text()?,
            INSTANCE_TIMESTAMP => entry.timestamp_s = field.varint()? as i64,
            // An enum is an int32: of a longer varint only the lower half counts.
            INSTANCE_STATE => entry.state = i64::from(field.varint()? as i32),
            INSTANCE_TOKENS => entry.tokens.push(TokenBytes(field.packed()?)),
            INSTANCE_ZONE => entry.zone = field.text()?,
            INSTANCE_REGISTERED_TIMESTAMP => {
                entry.registered_timestamp_s = field.varint()? as i64;
            }
            _ => entry.unknown_fields.extend_from_slice(raw),
        }
        Ok(())
    })?;
    Ok(entry)
}

impl TokenBytes<'_> {
    /// Number of varints: each ends with a byte that has no continuation bit.
    fn count(&self) -> usize {
        self.0.iter().filter(|&&byte| byte < 0x80).count()
    }

    fn decode_into(&self, tokens: &mut Vec<Token>) -> Result<(), RingDescError> {
        let mut bytes = self.0;
        while !bytes.is_empty() {
            // A uint32 keeps the lower half of a longer varint.
            tokens.push(Token(decode_varint(&mut bytes)? as u32));
        }
        Ok(())
    }
}

/// The value of one field.
enum Field<'a> {
    /// The number, and the bytes it was read from.
    Varint(u64, &'a [u8]),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Field<'a> {
    fn varint(&self) -> Result<u64, RingDescError> {
        match self {
            Self::Varint(number, _) => Ok(*number),
            _ => Err(RingDescError::WireType),
        }
    }

    fn bytes(&self) -> Result<&'a [u8], RingDescError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(RingDescError::WireType),
        }
    }

    fn text(&self) -> Result<&'a str, RingDescError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| RingDescError::Text)
    }

    /// The varints of a repeated number, which may come packed or one to a field.
    fn packed(&self) -> Result<&'a [u8], RingDescError> {
        match self {
            Self::Bytes(bytes) | Self::Varint(_, bytes) => Ok(bytes),
            Self::Other => Err(RingDescError::WireType),
        }
    }
}

/// Calls `take` for each field of a message with its tag, its value and all of its bytes.
fn each_field<'a>(
    message: &'a [u8],
    mut take: impl FnMut(u32, Field<'a>, &'a [u8]) -> Result<(), RingDescError>,
) -> Result<(), RingDescError> {
    let mut rest = message;
    while rest.has_remaining() {
        let start = rest;
        let (tag, wire_type) = decode_key(&mut rest)?;
        let field = match wire_type {
            WireType::Varint => {
                let value = rest;
                let number = decode_varint(&mut rest)?;
                Field::Varint(number, &value[..value.len() - rest.len()])
            }
            WireType::LengthDelimited => {
                let len = usize::try_from(decode_varint(&mut rest)?)
                    .map_err(|_| RingDescError::Truncated)?;
                let (bytes, after) = rest.split_at_checked(len).ok_or(RingDescError::Truncated)?;
                rest = after;
                Field::Bytes(bytes)
            }
            _ => {
                skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
                Field::Other
            }
        };
        take(tag, field, &start[..start.len() - rest.len()])?;
    }
    Ok(())
}

fn encode_instance(instance: &Instance, out: &mut Vec<u8>) {
    encode_text(INSTANCE_ADDR, &instance.addr, out);
    encode_number(INSTANCE_TIMESTAMP, instance.timestamp_s, out);
    encode_number(INSTANCE_STATE, instance.state as i64, out);
    if !instance.tokens.is_empty() {
        let token_len = |token: &Token| encoded_len_varint(u64::from(token.0));
        let len: usize = instance.tokens.iter().map(token_len).sum();
        encode_key(INSTANCE_TOKENS, WireType::LengthDelimited, out);
        encode_varint(len as u64, out);
        for token in &instance.tokens {
            encode_varint(token.0.into(), out);
        }
    }
    encode_text(INSTANCE_ZONE, &instance.zone, out);
    encode_number(INSTANCE_REGISTERED_TIMESTAMP, instance.registered_timestamp_s, out);
    out.extend_from_slice(&instance.unknown_fields);
}

/// Fields with their default value are left out, as proto3 does.
fn encode_text(tag: u32, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        encode_bytes(tag, text.as_bytes(), out);
    }
}

fn encode_number(tag: u32, number: i64, out: &mut Vec<u8>) {
    if number != 0 {
        encode_key(tag, WireType::Varint, out);
        encode_varint(number as u64, out);
    }
}

fn encode_bytes(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Length of a whole field of one-byte tag.
fn bytes_len(tag: u32, len: usize) -> usize {
    encoded_len_varint(u64::from(tag) << 3) + encoded_len_varint(len as u64) + len
}

#[cfg(test)]
mod tests;
