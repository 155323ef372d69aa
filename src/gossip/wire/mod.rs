//! The members' messages as bytes: HashiCorp memberlist's wire, as Cortex's members speak it.
//!
//! A message is a byte that tells its kind and a MessagePack map of its fields; see `message`. A
//! packet is a message, or several, under wraps: label, checksum, compression; see `packet`. A
//! stream begins like a packet and goes on for as long as its header says; see `stream`.
//!
//! What strangers send comes here first. So it must hold that nothing panics, that no length is
//! believed before its bytes are there, and that what is unpacked has a bound.

mod compression;
mod label;
mod message;
mod msgpack;
mod packet;
pub mod stream;

pub use label::{LABEL_BYTES_MAX, Label, LabelError, LabelRule};
pub use message::{MessageError, encode};
pub use packet::{MESSAGES_MAX, Opened, PacketError, UNPACKED_BYTES_MAX, open_packet, packet};

/// What a message's first byte tells.
mod kind {
    pub const PING: u8 = 0;
    pub const INDIRECT_PING: u8 = 1;
    pub const ACK: u8 = 2;
    pub const SUSPECT: u8 = 3;
    pub const ALIVE: u8 = 4;
    pub const DEAD: u8 = 5;
    pub const PUSH_PULL: u8 = 6;
    pub const COMPOUND: u8 = 7;
    pub const USER: u8 = 8;
    pub const COMPRESSED: u8 = 9;
    pub const ENCRYPTED: u8 = 10;
    pub const NACK: u8 = 11;
    pub const CHECKSUM: u8 = 12;
    pub const ERROR: u8 = 13;
    /// Far from the others, so that it is told from the version that opens an encrypted packet.
    pub const LABEL: u8 = 244;
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
