//! What a member is told about itself and about the pace of its gossip.

use std::net::SocketAddr;

use bytes::Bytes;

/// Bytes of a packet's parts, each with what it costs in a compound.
///
/// A member of Cortex throws away packets of more than 1 MiB (`-memberlist.max-packet-size`),
/// digest included, and with them every broadcast inside. 1 KiB is left for the digest (16), the
/// label (2 + 255), the checksum (5) and the compound's head (2).
pub const PACKET_BYTES_MAX: usize = 1024 * 1024 - 1024;

/// Who we are, and how often we do what; spans of 0 turn their part off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub name: String,
    /// Where the others reach us.
    pub addr: SocketAddr,
    /// What our alive message carries for the layer above; Cortex sends none.
    pub meta: Bytes,

    /// A broadcast is sent `factor · ⌈log₁₀(peers + 1)⌉` times.
    pub retransmit_factor: u32,
    pub gossip_interval_ms: u64,
    /// Peers told at each interval.
    pub gossip_nodes: usize,
    /// How long the dead are still told, so that they can refute it; the dead are kept as long.
    pub gossip_to_dead_ms: u64,
    pub packet_bytes_max: usize,

    pub probe_interval_ms: u64,
    /// Wait for the answer of the peer itself, before others are asked to try.
    pub probe_timeout_ms: u64,
    /// Peers asked to try.
    pub indirect_probes: usize,
    /// Least time under suspicion: `factor · log₁₀(peers)` probe intervals.
    pub suspicion_factor: u32,
    /// Most time under suspicion, while nobody confirms it: so many times the least.
    pub suspicion_max_factor: u32,
    /// Bound of the health score, and so of how much slower an ailing member probes.
    pub health_score_max: u32,

    /// Stretched in large clusters, see `schedule`.
    pub push_pull_interval_ms: u64,
    /// Age of a death after which another address may take the name; 0: never.
    pub dead_reclaim_ms: u64,
}

impl Settings {
    /// The pace of Cortex: memberlist's for local networks, with slower and more patient probes,
    /// as each of its packets is a connection.
    pub fn new(name: &str, addr: SocketAddr) -> Self {
        Self {
            name: name.to_owned(),
            addr,
            meta: Bytes::new(),
            retransmit_factor: 4,
            gossip_interval_ms: 200,
            gossip_nodes: 3,
            gossip_to_dead_ms: 30_000,
            packet_bytes_max: PACKET_BYTES_MAX,
            probe_interval_ms: 5_000,
            probe_timeout_ms: 2_000,
            indirect_probes: 3,
            suspicion_factor: 4,
            suspicion_max_factor: 6,
            health_score_max: 8,
            push_pull_interval_ms: 30_000,
            dead_reclaim_ms: 0,
        }
    }
}
