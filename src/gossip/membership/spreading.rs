//! Packets: a message of our own and what rides along, or what is to be spread alone.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::gossip::broadcasts::{self, PART_OVERHEAD};
use crate::gossip::membership::{Membership, Output};
use crate::gossip::message::{Message, PeerState};
use crate::gossip::peers::Peer;
use crate::gossip::wire;

impl Membership {
    /// Tells a few peers what is to be told.
    pub(super) fn gossip(&mut self, now_ms: u64) {
        if self.rumours.is_empty() && self.changes.is_empty() {
            return;
        }
        let to_dead_ms = self.settings.gossip_to_dead_ms;
        let hears = |peer: &Peer| match peer.state {
            PeerState::Alive | PeerState::Suspect => true,
            // It may not know, and refutes it once it does.
            PeerState::Dead => now_ms.saturating_sub(peer.changed_ms) <= to_dead_ms,
            PeerState::Left => false,
        };
        let peers: Vec<(SocketAddr, bool)> = self
            .peers
            .sample(self.settings.gossip_nodes, &mut self.rng, hears)
            .into_iter()
            .map(|peer| (peer.addr, peer.knows_checksums()))
            .collect();
        for (to, has_checksum) in peers {
            let parts = self.riders(self.settings.packet_bytes_max);
            if parts.is_empty() {
                return;
            }
            self.outputs.push(Output::Send { to, parts, has_checksum });
        }
    }

    /// One message of our own; the rest of the packet is for what is to be spread.
    pub(super) fn send(&mut self, to: SocketAddr, has_checksum: bool, message: &Message) {
        let part = wire::encode(message);
        let room = self.settings.packet_bytes_max.saturating_sub(part.len() + PART_OVERHEAD);
        let mut parts = vec![part];
        parts.extend(self.riders(room));
        self.outputs.push(Output::Send { to, parts, has_checksum });
    }

    /// What is to be spread and fits: peers first, as all else depends on knowing them.
    pub(super) fn riders(&mut self, room: usize) -> Vec<Bytes> {
        let mut parts = Vec::new();
        if self.rumours.is_empty() && self.changes.is_empty() {
            return parts;
        }
        let factor = self.settings.retransmit_factor;
        let told_leave = self.is_leave_spreading();
        let to_all = broadcasts::transmits_max(factor, self.peers.count());
        let room = self.rumours.fill(room, to_all, &mut parts);
        let to_live = broadcasts::transmits_max(factor, self.peers.live());
        self.changes.fill(room, to_live, &mut parts);
        if told_leave && !self.is_leave_spreading() {
            self.outputs.push(Output::LeaveSpread);
        }
        parts
    }

    fn is_leave_spreading(&self) -> bool {
        self.has_left && self.rumours.has_peer(&self.settings.name)
    }
}
