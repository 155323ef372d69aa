//! What the members of a gossip say to each other, as values.
//!
//! The messages are those of HashiCorp's memberlist, protocol versions 1 to 5. Nothing here knows
//! bytes; `wire` does.

use std::net::SocketAddr;

use bytes::Bytes;

/// One message of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Ping(Ping),
    IndirectPing(IndirectPing),
    Ack(Ack),
    Nack(Nack),
    Suspect(Suspect),
    Alive(Alive),
    Dead(Dead),
    /// What the layer above says to its like; opaque here.
    User(Bytes),
}

/// "Are you there?", asked of the peer itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    pub sequence: u32,
    /// Whom the question is meant for: an address may belong to somebody else by now.
    pub target: String,
    /// Who asks; old members leave it out, and are answered where the packet came from.
    pub source: Option<Source>,
}

/// "Ask that one for me", when it did not answer us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndirectPing {
    pub sequence: u32,
    pub target: String,
    pub target_addr: SocketAddr,
    /// Whether a `Nack` is wanted when the target stays silent.
    pub wants_nack: bool,
    pub source: Option<Source>,
}

/// Who asked, and where the answer goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub name: String,
    pub addr: SocketAddr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    pub sequence: u32,
    pub payload: Bytes,
}

/// The helper of an indirect ping is alive, and its target did not answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack {
    pub sequence: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    pub incarnation: u32,
    pub name: String,
    /// Who suspects.
    pub from: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    pub incarnation: u32,
    pub name: String,
    pub addr: SocketAddr,
    pub meta: Bytes,
    pub versions: Versions,
}

/// A peer died, or leaves when it says so of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    pub incarnation: u32,
    pub name: String,
    /// Who says so; the peer itself when it leaves.
    pub from: String,
}

/// Versions of protocol and delegate a peer understands: least, most, spoken; of each in turn.
///
/// Empty where a very old peer sent none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions(pub Option<[u8; 6]>);

/// One side's half of a full exchange of state over a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushPull {
    /// Whether the sender joins with this, or compares as it does from time to time.
    pub join: bool,
    pub peers: Vec<PeerReport>,
    /// What the layer above holds; opaque here.
    pub user_state: Bytes,
}

/// How the sender of a full exchange sees one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    pub name: String,
    pub addr: SocketAddr,
    pub meta: Bytes,
    pub incarnation: u32,
    pub state: PeerState,
    pub versions: Versions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerState {
    Alive,
    Suspect,
    Dead,
    /// It said that it leaves.
    Left,
}

impl PeerState {
    /// memberlist's name, as pages and log lines have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Suspect => "suspect",
            Self::Dead => "dead",
            Self::Left => "left",
        }
    }
}
