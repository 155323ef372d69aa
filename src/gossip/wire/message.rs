//! One message: a byte that tells its kind, and its fields under their names on the wire.
//!
//! A field that is not there is empty or zero, as a Go member would take it. What a message cannot
//! do without is whom it is about; an address that is none makes it no message.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use super::super::message::{
    Ack, Alive, Dead, IndirectPing, Message, Nack, PeerReport, PeerState, Ping, Source, Suspect,
    Versions,
};
use super::kind;
use super::msgpack::{ReadError, Reader, Writer};

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("it is empty")]
    Empty,
    #[error("kind {kind} is not known here")]
    Kind { kind: u8 },
    #[error("a message of kind {kind} cannot be read")]
    Fields { kind: u8, source: ReadError },
    #[error("an address of {bytes} bytes is none")]
    Address { bytes: usize },
}

/// A message as it goes into a packet.
pub fn encode(message: &Message) -> Bytes {
    let mut out = Vec::with_capacity(64);
    match message {
        Message::Ping(ping) => write_ping(&mut out, ping),
        Message::IndirectPing(ping) => write_indirect_ping(&mut out, ping),
        Message::Ack(ack) => write_ack(&mut out, ack),
        Message::Nack(Nack { sequence }) => {
            out.push(kind::NACK);
            Writer::map(&mut out, 1).uint("SeqNo", *sequence);
        }
        Message::Suspect(Suspect { incarnation, name, from }) => {
            out.push(kind::SUSPECT);
            write_accusation(&mut out, *incarnation, name, from);
        }
        Message::Dead(Dead { incarnation, name, from }) => {
            out.push(kind::DEAD);
            write_accusation(&mut out, *incarnation, name, from);
        }
        Message::Alive(alive) => {
            out.push(kind::ALIVE);
            let octets = Octets::of(alive.addr.ip());
            Writer::map(&mut out, 6)
                .bytes("Addr", octets.as_slice())
                .uint("Incarnation", alive.incarnation)
                .bytes("Meta", &alive.meta)
                .text("Node", &alive.name)
                .uint("Port", alive.addr.port())
                .bytes("Vsn", versions(&alive.versions));
        }
        Message::User(payload) => {
            out.reserve_exact(payload.len() + 1);
            out.push(kind::USER);
            out.extend_from_slice(payload);
        }
    }
    out.into()
}

/// Reads a message that is neither a compound nor compressed.
pub(super) fn decode(bytes: &Bytes) -> Result<Message, MessageError> {
    let (&kind, body) = bytes.split_first().ok_or(MessageError::Empty)?;
    let reader = &mut Reader::new(body);
    let fields = |source| MessageError::Fields { kind, source };
    Ok(match kind {
        kind::PING => Message::Ping(read_ping(reader).map_err(fields)?),
        kind::INDIRECT_PING => Message::IndirectPing(read_indirect_ping(reader)?),
        kind::ACK => Message::Ack(read_ack(reader).map_err(fields)?),
        kind::NACK => {
            let mut sequence = 0;
            reader
                .map(|reader, name| match name {
                    b"SeqNo" => reader.uint().map(|value| sequence = value),
                    _ => reader.skip(),
                })
                .map_err(fields)?;
            Message::Nack(Nack { sequence })
        }
        kind::SUSPECT => {
            let (incarnation, name, from) = read_accusation(reader).map_err(fields)?;
            Message::Suspect(Suspect { incarnation, name, from })
        }
        kind::DEAD => {
            let (incarnation, name, from) = read_accusation(reader).map_err(fields)?;
            Message::Dead(Dead { incarnation, name, from })
        }
        kind::ALIVE => Message::Alive(read_alive(reader)?),
        kind::USER => Message::User(bytes.slice(1..)),
        _ => return Err(MessageError::Kind { kind }),
    })
}

pub(super) fn write_ping(out: &mut Vec<u8>, ping: &Ping) {
    let source = Asked::of(ping.source.as_ref());
    out.push(kind::PING);
    let mut map = Writer::map(out, 2 + source.fields());
    map.text("Node", &ping.target).uint("SeqNo", ping.sequence);
    source.write(&mut map);
}

pub(super) fn read_ping(reader: &mut Reader<'_>) -> Result<Ping, ReadError> {
    let (mut sequence, mut target, mut source) = (0, String::new(), Asked::default());
    reader.map(|reader, name| match name {
        b"SeqNo" => reader.uint().map(|value| sequence = value),
        b"Node" => reader.text().map(|text| target = text.to_owned()),
        _ => source.read(reader, name),
    })?;
    Ok(Ping { sequence, target, source: source.told() })
}

fn write_indirect_ping(out: &mut Vec<u8>, ping: &IndirectPing) {
    let source = Asked::of(ping.source.as_ref());
    out.push(kind::INDIRECT_PING);
    let octets = Octets::of(ping.target_addr.ip());
    let mut map = Writer::map(out, 5 + source.fields());
    map.bool("Nack", ping.wants_nack)
        .text("Node", &ping.target)
        .uint("Port", ping.target_addr.port())
        .uint("SeqNo", ping.sequence);
    source.write(&mut map);
    map.bytes("Target", octets.as_slice());
}

fn read_indirect_ping(reader: &mut Reader<'_>) -> Result<IndirectPing, MessageError> {
    let (mut sequence, mut target, mut wants_nack) = (0, String::new(), false);
    let (mut octets, mut port, mut source) = (&[][..], 0, Asked::default());
    reader
        .map(|reader, name| match name {
            b"SeqNo" => reader.uint().map(|value| sequence = value),
            b"Node" => reader.text().map(|text| target = text.to_owned()),
            b"Nack" => reader.bool().map(|value| wants_nack = value),
            b"Target" => reader.bytes().map(|bytes| octets = bytes),
            b"Port" => reader.uint().map(|value| port = value),
            _ => source.read(reader, name),
        })
        .map_err(|source| MessageError::Fields { kind: kind::INDIRECT_PING, source })?;
    let target_addr = address(octets, port)?;
    Ok(IndirectPing { sequence, target, target_addr, wants_nack, source: source.told() })
}

pub(super) fn write_ack(out: &mut Vec<u8>, ack: &Ack) {
    out.push(kind::ACK);
    Writer::map(out, 2).bytes("Payload", &ack.payload).uint("SeqNo", ack.sequence);
}

pub(super) fn read_ack(reader: &mut Reader<'_>) -> Result<Ack, ReadError> {
    let (mut sequence, mut payload) = (0, Bytes::new());
    reader.map(|reader, name| match name {
        b"SeqNo" => reader.uint().map(|value| sequence = value),
        b"Payload" => reader.bytes().map(|bytes| payload = Bytes::copy_from_slice(bytes)),
        _ => reader.skip(),
    })?;
    Ok(Ack { sequence, payload })
}

fn write_accusation(out: &mut Vec<u8>, incarnation: u32, name: &str, from: &str) {
    Writer::map(out, 3).text("From", from).uint("Incarnation", incarnation).text("Node", name);
}

fn read_accusation(reader: &mut Reader<'_>) -> Result<(u32, String, String), ReadError> {
    let (mut incarnation, mut node, mut from) = (0, String::new(), String::new());
    reader.map(|reader, name| match name {
        b"Incarnation" => reader.uint().map(|value| incarnation = value),
        b"Node" => reader.text().map(|text| node = text.to_owned()),
        b"From" => reader.text().map(|text| from = text.to_owned()),
        _ => reader.skip(),
    })?;
    Ok((incarnation, node, from))
}

fn read_alive(reader: &mut Reader<'_>) -> Result<Alive, MessageError> {
    let report = read_report(reader, "Node", kind::ALIVE)?;
    let PeerReport { name, addr, meta, incarnation, versions, .. } = report?;
    Ok(Alive { incarnation, name, addr, meta, versions })
}

/// What one side of a full exchange says of a peer; it has no kind of its own.
pub(super) fn write_report(out: &mut Vec<u8>, report: &PeerReport) {
    let state = match report.state {
        PeerState::Alive => 0_u8,
        PeerState::Suspect => 1,
        PeerState::Dead => 2,
        PeerState::Left => 3,
    };
    let octets = Octets::of(report.addr.ip());
    Writer::map(out, 7)
        .bytes("Addr", octets.as_slice())
        .uint("Incarnation", report.incarnation)
        .bytes("Meta", &report.meta)
        .text("Name", &report.name)
        .uint("Port", report.addr.port())
        .uint("State", state)
        .bytes("Vsn", versions(&report.versions));
}

/// Reads a report, whose peer is called by the field `name_field`. The outer error is one of
/// MessagePack, so that what follows cannot be read either; the inner one is of this peer alone.
pub(super) fn read_report(
    reader: &mut Reader<'_>,
    name_field: &str,
    kind: u8,
) -> Result<Result<PeerReport, MessageError>, MessageError> {
    let (mut peer, mut octets, mut port) = ("", &[][..], 0);
    let (mut meta, mut incarnation, mut versions, mut state) = (&[][..], 0, &[][..], 0_u64);
    reader
        .map(|reader, name| match name {
            b"Addr" => reader.bytes().map(|bytes| octets = bytes),
            b"Port" => reader.uint().map(|value| port = value),
            b"Meta" => reader.bytes().map(|bytes| meta = bytes),
            b"Incarnation" => reader.uint().map(|value| incarnation = value),
            b"State" => reader.uint().map(|value| state = value),
            b"Vsn" => reader.bytes().map(|bytes| versions = bytes),
            _ if name == name_field.as_bytes() => reader.text().map(|text| peer = text),
            _ => reader.skip(),
        })
        .map_err(|source| MessageError::Fields { kind, source })?;
    let state = match state {
        0 => PeerState::Alive,
        1 => PeerState::Suspect,
        2 => PeerState::Dead,
        3 => PeerState::Left,
        _ => {
            let source = ReadError::Unexpected { expected: "a state of 0 to 3" };
            return Ok(Err(MessageError::Fields { kind, source }));
        }
    };
    Ok(address(octets, port).map(|addr| PeerReport {
        name: peer.to_owned(),
        addr,
        meta: Bytes::copy_from_slice(meta),
        incarnation,
        state,
        // Older members send fewer or none; then nothing is known of them.
        versions: Versions(versions.first_chunk().copied()),
    }))
}

fn versions(versions: &Versions) -> &[u8] {
    versions.0.as_ref().map_or(&[], |versions| versions)
}

/// The bytes of an address; an IPv4 one in its short form, as Go's members write it.
enum Octets {
    V4([u8; 4]),
    V6([u8; 16]),
}

impl Octets {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => Self::V6(address.octets()),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::V4(octets) => octets,
            Self::V6(octets) => octets,
        }
    }
}

/// A port of 0 was not told; the core takes the one that all members share.
fn address(octets: &[u8], port: u16) -> Result<SocketAddr, MessageError> {
    let address = if let Ok(octets) = <[u8; 4]>::try_from(octets) {
        IpAddr::from(octets)
    } else if let Ok(octets) = <[u8; 16]>::try_from(octets) {
        IpAddr::from(octets).to_canonical()
    } else {
        return Err(MessageError::Address { bytes: octets.len() });
    };
    Ok(SocketAddr::new(address, port))
}

/// Who asks, in fields of which the empty ones are left out.
#[derive(Default)]
struct Asked {
    octets: Vec<u8>,
    port: u16,
    name: String,
}

impl Asked {
    fn of(source: Option<&Source>) -> Self {
        source.map_or_else(Self::default, |source| Self {
            octets: Octets::of(source.addr.ip()).as_slice().to_vec(),
            port: source.addr.port(),
            name: source.name.clone(),
        })
    }

    fn fields(&self) -> u32 {
        let Self { octets, port, name } = self;
        u32::from(!octets.is_empty()) + u32::from(!name.is_empty()) + u32::from(*port != 0)
    }

    fn write(&self, map: &mut Writer<'_>) {
        if !self.octets.is_empty() {
            map.bytes("SourceAddr", &self.octets);
        }
        if !self.name.is_empty() {
            map.text("SourceNode", &self.name);
        }
        if self.port != 0 {
            map.uint("SourcePort", self.port);
        }
    }

    fn read(&mut self, reader: &mut Reader<'_>, field: &[u8]) -> Result<(), ReadError> {
        match field {
            b"SourceAddr" => {
                let octets = reader.bytes()?;
                // What is no address tells nothing; then the answer goes where the packet came
                // from. It is not kept, however long.
                self.octets = if octets.len() <= 16 { octets.to_vec() } else { Vec::new() };
            }
            b"SourceNode" => self.name = reader.text()?.to_owned(),
            b"SourcePort" => self.port = reader.uint()?,
            _ => reader.skip()?,
        }
        Ok(())
    }

    /// Both address and port, or nobody.
    fn told(self) -> Option<Source> {
        let addr = address(&self.octets, self.port).ok().filter(|addr| addr.port() != 0)?;
        Some(Source { name: self.name, addr })
    }
}
