//! Streams: what two members say to each other over a connection of its own.
//!
//! Who opens a stream says its label first; the answer has none. Then comes one message, which
//! may be compressed, and which tells by its fields how long it is: nothing else marks its end,
//! since the connection stays open for the answer.

use bytes::{Buf, Bytes, BytesMut};

use super::super::message::{Ack, PeerReport, Ping, PushPull};
use super::compression::{Compressed, UnpackError, pack};
use super::kind;
use super::label::{Label, LabelError, LabelRule};
use super::message::{self, MessageError};
use super::msgpack::{ReadError, Reader, Writer};

/// Longest state of the layer above, and longest message of it: memberlist's own bound.
pub const USER_BYTES_MAX: usize = 20 << 20;
/// Most peers of an exchange: several times the largest clusters that are run.
pub const PEERS_MAX: usize = 16_384;
/// Longest report of a peer, header, ping, ack or error. A report of 512 bytes of metadata and
/// two names of a kilobyte is half of it.
const FIELDS_BYTES_MAX: usize = 4 << 10;
/// What the reports of all peers may come to: 256 bytes of each where there are most. Ours have
/// some 110.
const PEERS_BYTES_MAX: usize = PEERS_MAX * 256;
/// Longest message when unpacked.
pub const STREAM_BYTES_MAX: usize = USER_BYTES_MAX + PEERS_BYTES_MAX + FIELDS_BYTES_MAX;
/// The same when it is compressed: what cannot be compressed grows by half, as the codes have
/// twelve bits for each byte.
const PACKED_BYTES_MAX: usize = STREAM_BYTES_MAX / 2 * 3 + FIELDS_BYTES_MAX;

/// What is said over a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamMessage {
    PushPull(PushPull),
    /// For the layer above, too long for a packet.
    User(Bytes),
    Ping(Ping),
    Ack(Ack),
    /// What the other side could not do with ours, in its words.
    Error(String),
}

/// Why a stream cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error(transparent)]
    Label(#[from] LabelError),
    #[error("it is encrypted; Cortex has no keys")]
    Encrypted,
    #[error("kind {kind} is none of a stream")]
    Kind { kind: u8 },
    #[error("the message cannot be unpacked")]
    Unpack(#[from] UnpackError),
    #[error("the message is cut off under its compression")]
    CutOff,
    #[error("a message of kind {kind} cannot be read")]
    Fields { kind: u8, source: ReadError },
    #[error("{what} of more than {bytes_max} bytes")]
    TooLong { what: &'static str, bytes_max: usize },
    #[error("an exchange about {peers} peers; {PEERS_MAX} are the most")]
    TooManyPeers { peers: usize },
}

/// The bytes of a message. `opening` is the cluster's label for who opens the stream; an answer
/// goes without.
pub fn encode(message: &StreamMessage, opening: Option<&Label>, compress: bool) -> Bytes {
    let mut out = Vec::new();
    match message {
        StreamMessage::PushPull(state) => write_push_pull(&mut out, state),
        StreamMessage::User(payload) => {
            out.reserve(payload.len() + 32);
            out.push(kind::USER);
            Writer::map(&mut out, 1).uint("UserMsgLen", payload.len() as u64);
            out.extend_from_slice(payload);
        }
        StreamMessage::Ping(ping) => message::write_ping(&mut out, ping),
        StreamMessage::Ack(ack) => message::write_ack(&mut out, ack),
        StreamMessage::Error(text) => {
            out.push(kind::ERROR);
            Writer::map(&mut out, 1).text("Error", text);
        }
    }
    let packed = if compress { pack(&out) } else { None };
    let message = packed.unwrap_or(out);
    let Some(label) = opening.filter(|label| label.overhead() > 0) else { return message.into() };
    let mut labelled = Vec::with_capacity(label.overhead() + message.len());
    label.write(&mut labelled);
    labelled.extend_from_slice(&message);
    labelled.into()
}

fn write_push_pull(out: &mut Vec<u8>, state: &PushPull) {
    out.reserve(state.user_state.len() + 128 * state.peers.len() + 64);
    out.push(kind::PUSH_PULL);
    Writer::map(out, 3)
        .bool("Join", state.join)
        .uint("Nodes", state.peers.len() as u64)
        .uint("UserStateLen", state.user_state.len() as u64);
    for report in &state.peers {
        message::write_report(out, report);
    }
    out.extend_from_slice(&state.user_state);
}

/// Reads the one message of a stream from its bytes as they come.
///
/// Never holds much more than has come: a length that is told makes no room.
#[derive(Debug)]
pub struct Decoder {
    stage: Stage,
    input: BytesMut,
    /// Bytes of `input` below which another try is in vain.
    wanted: usize,
    /// `input` is what was compressed, and all that there will be.
    is_unpacked: bool,
    refused_peers: usize,
}

#[derive(Debug)]
enum Stage {
    Label(LabelRule),
    Kind,
    Compressed,
    Fields { kind: u8 },
    Peers { state: PushPull, peers: usize, user_bytes: usize, peer_bytes: usize },
    UserState { state: PushPull, bytes: usize },
    User { bytes: usize },
    Done,
}

/// What a try has come to.
enum Step {
    On(Stage),
    Message(StreamMessage),
}

/// Why a try has come to nothing.
enum Halt {
    Short { more: usize },
    Failed(StreamError),
}

impl From<StreamError> for Halt {
    fn from(error: StreamError) -> Self {
        Self::Failed(error)
    }
}

impl Decoder {
    /// For a stream that somebody has opened with us.
    pub fn opened(rule: LabelRule) -> Self {
        Self::starting(Stage::Label(rule))
    }

    /// For the answer on a stream that we have opened.
    pub fn answer() -> Self {
        Self::starting(Stage::Kind)
    }

    fn starting(stage: Stage) -> Self {
        let input = BytesMut::new();
        Self { stage, input, wanted: 1, is_unpacked: false, refused_peers: 0 }
    }

    /// Adds what has been read. Call `decode` after each, with pieces of some ten kilobytes: it is
    /// what bounds the whole.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The message, once it is whole; `None` while more has to be read.
    pub fn decode(&mut self) -> Result<Option<StreamMessage>, StreamError> {
        while self.input.len() >= self.wanted {
            let stage = std::mem::replace(&mut self.stage, Stage::Done);
            match self.step(stage) {
                Ok(Step::On(stage)) => {
                    self.wanted = stage.least();
                    self.stage = stage;
                }
                Ok(Step::Message(message)) => {
                    self.wanted = usize::MAX;
                    return Ok(Some(message));
                }
                Err(Halt::Short { more }) => self.wanted = self.input.len().saturating_add(more),
                Err(Halt::Failed(error)) => {
                    self.wanted = usize::MAX;
                    return Err(error);
                }
            }
            self.check_wanted()?;
        }
        if self.is_unpacked && !matches!(self.stage, Stage::Done) {
            return Err(StreamError::CutOff);
        }
        Ok(None)
    }

    /// Peers of the exchange that were left out, as what was said of them could not be read.
    pub fn refused_peers(&self) -> usize {
        self.refused_peers
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.input.capacity()
    }

    /// Refuses a length as soon as it is told, before anything has come of it.
    fn check_wanted(&self) -> Result<(), StreamError> {
        let (what, bytes_max) = match self.stage {
            Stage::Label(_) | Stage::Kind | Stage::Done => return Ok(()),
            Stage::Compressed => ("a compressed message", PACKED_BYTES_MAX),
            Stage::Fields { .. } | Stage::Peers { .. } => ("fields", FIELDS_BYTES_MAX),
            Stage::UserState { .. } | Stage::User { .. } => ("a user's part", USER_BYTES_MAX),
        };
        if self.wanted > bytes_max && self.wanted > self.input.len() {
            return Err(StreamError::TooLong { what, bytes_max });
        }
        Ok(())
    }

    /// Goes on from `stage`, which is put back when more is needed.
    fn step(&mut self, stage: Stage) -> Result<Step, Halt> {
        match stage {
            Stage::Label(rule) => match rule.check(&self.input).map_err(StreamError::from)? {
                Some(header) => {
                    self.input.advance(header);
                    Ok(Step::On(Stage::Kind))
                }
                None => {
                    self.stage = Stage::Label(rule);
                    Err(Halt::Short { more: 1 })
                }
            },
            Stage::Kind => match self.input.get_u8() {
                kind::COMPRESSED if !self.is_unpacked => Ok(Step::On(Stage::Compressed)),
                kind @ (kind::PUSH_PULL | kind::USER | kind::PING | kind::ACK | kind::ERROR) => {
                    Ok(Step::On(Stage::Fields { kind }))
                }
                kind::ENCRYPTED => Err(StreamError::Encrypted.into()),
                kind => Err(StreamError::Kind { kind }.into()),
            },
            Stage::Compressed => self.unpack(),
            Stage::Fields { kind } => self.read_fields(kind),
            Stage::Peers { state, peers, user_bytes, peer_bytes } => {
                self.read_peers(state, peers, user_bytes, peer_bytes)
            }
            Stage::UserState { mut state, bytes } => {
                state.user_state = self.input.split_to(bytes).freeze();
                Ok(Step::Message(StreamMessage::PushPull(state)))
            }
            Stage::User { bytes } => {
                let payload = self.input.split_to(bytes).freeze();
                Ok(Step::Message(StreamMessage::User(payload)))
            }
            Stage::Done => Err(Halt::Short { more: usize::MAX }),
        }
    }

    fn unpack(&mut self) -> Result<Step, Halt> {
        let compressed = Compressed::read(&mut Reader::new(&self.input));
        let compressed = match compressed {
            Ok(compressed) => compressed,
            Err(error) => return Err(self.halt(error, kind::COMPRESSED, Stage::Compressed)),
        };
        let mut room_bytes = STREAM_BYTES_MAX;
        let unpacked = compressed.unpack(&mut room_bytes);
        let unpacked = Bytes::from(unpacked.map_err(StreamError::from)?);
        // Nobody else has it yet, so nothing is copied.
        let unpacked = unpacked.try_into_mut();
        self.input = unpacked.unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        self.is_unpacked = true;
        Ok(Step::On(Stage::Kind))
    }

    fn read_fields(&mut self, kind: u8) -> Result<Step, Halt> {
        let mut reader = Reader::new(&self.input);
        let read = match kind {
            kind::PUSH_PULL => read_push_pull_header(&mut reader),
            kind::USER => read_user_header(&mut reader),
            kind::PING => message::read_ping(&mut reader)
                .map(|ping| Ok(Step::Message(StreamMessage::Ping(ping)))),
            kind::ACK => {
                message::read_ack(&mut reader).map(|ack| Ok(Step::Message(StreamMessage::Ack(ack))))
            }
            _ => read_error(&mut reader),
        };
        let left = reader.rest().len();
        match read {
            Ok(step) => {
                self.input.advance(self.input.len() - left);
                Ok(step?)
            }
            Err(error) => Err(self.halt(error, kind, Stage::Fields { kind })),
        }
    }

    fn read_peers(
        &mut self,
        mut state: PushPull,
        peers: usize,
        user_bytes: usize,
        mut peer_bytes: usize,
    ) -> Result<Step, Halt> {
        let kind = kind::PUSH_PULL;
        while state.peers.len() + self.refused_peers < peers {
            let mut reader = Reader::new(&self.input);
            match message::read_report(&mut reader, "Name", kind) {
                Ok(report) => {
                    let read = self.input.len() - reader.rest().len();
                    peer_bytes += read;
                    self.input.advance(read);
                    self.take_report(&mut state, report);
                }
                Err(MessageError::Fields { source, .. }) => {
                    let stage = Stage::Peers { state, peers, user_bytes, peer_bytes };
                    return Err(self.halt(source, kind, stage));
                }
                Err(_) => unreachable!("only fields fail a report as a whole"),
            }
            if peer_bytes > PEERS_BYTES_MAX {
                let (what, bytes_max) = ("the peers", PEERS_BYTES_MAX);
                return Err(StreamError::TooLong { what, bytes_max }.into());
            }
        }
        Ok(Step::On(Stage::UserState { state, bytes: user_bytes }))
    }

    fn take_report(&mut self, state: &mut PushPull, report: Result<PeerReport, MessageError>) {
        match report {
            Ok(report) => state.peers.push(report),
            // One that nobody can reach is no reason to know nothing of the others.
            Err(_) => self.refused_peers += 1,
        }
    }

    /// Puts `stage` back where only bytes are missing.
    fn halt(&mut self, error: ReadError, kind: u8, stage: Stage) -> Halt {
        match error {
            ReadError::Short { more } => {
                self.stage = stage;
                Halt::Short { more }
            }
            source => Halt::Failed(StreamError::Fields { kind, source }),
        }
    }
}

impl Stage {
    /// Bytes without which it cannot begin.
    fn least(&self) -> usize {
        match self {
            Self::UserState { bytes, .. } | Self::User { bytes } => *bytes,
            Self::Peers { peers: 0, .. } => 0,
            _ => 1,
        }
    }
}

type ReadStep = Result<Result<Step, StreamError>, ReadError>;

fn read_push_pull_header(reader: &mut Reader<'_>) -> ReadStep {
    let (mut join, mut peers, mut bytes) = (false, 0_usize, 0_usize);
    reader.map(|reader, name| match name {
        b"Join" => reader.bool().map(|value| join = value),
        b"Nodes" => reader.uint().map(|value| peers = value),
        b"UserStateLen" => reader.uint().map(|value| bytes = value),
        _ => reader.skip(),
    })?;
    if peers > PEERS_MAX {
        return Ok(Err(StreamError::TooManyPeers { peers }));
    }
    let state = PushPull { join, peers: Vec::new(), user_state: Bytes::new() };
    Ok(user_bytes(bytes)
        .map(|user_bytes| Step::On(Stage::Peers { state, peers, user_bytes, peer_bytes: 0 })))
}

fn read_user_header(reader: &mut Reader<'_>) -> ReadStep {
    let mut bytes = 0_usize;
    reader.map(|reader, name| match name {
        b"UserMsgLen" => reader.uint().map(|value| bytes = value),
        _ => reader.skip(),
    })?;
    Ok(user_bytes(bytes).map(|bytes| Step::On(Stage::User { bytes })))
}

fn read_error(reader: &mut Reader<'_>) -> ReadStep {
    let mut said = String::new();
    reader.map(|reader, name| match name {
        // It is for a log; whatever is no text in it is shown as such.
        b"Error" => reader.bytes().map(|text| said = String::from_utf8_lossy(text).into_owned()),
        _ => reader.skip(),
    })?;
    Ok(Ok(Step::Message(StreamMessage::Error(said))))
}

fn user_bytes(bytes: usize) -> Result<usize, StreamError> {
    let (what, bytes_max) = ("a user's part", USER_BYTES_MAX);
    if bytes <= bytes_max { Ok(bytes) } else { Err(StreamError::TooLong { what, bytes_max }) }
}
