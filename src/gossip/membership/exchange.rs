//! The full exchange: both sides send all they know of peers, and each merges the other's.

use std::net::SocketAddr;

use crate::gossip::membership::{Membership, Output};
use crate::gossip::message::{Alive, Dead, PeerReport, PeerState, Suspect};
use crate::gossip::peers::Peer;

/// Peers that could not all understand each other; nothing of the exchange is taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Node '{name}' {what} version ({version}) is incompatible: [{least}, {most}]")]
pub struct Incompatible {
    pub name: String,
    what: &'static str,
    version: u8,
    least: u8,
    most: u8,
}

/// Where one kind of versions lies in the six that a peer announces.
struct Kind {
    what: &'static str,
    least: usize,
    most: usize,
    spoken: usize,
}

const KINDS: [Kind; 2] = [
    Kind { what: "protocol", least: 0, most: 1, spoken: 2 },
    Kind { what: "delegate protocol", least: 3, most: 4, spoken: 5 },
];

impl Membership {
    /// Our half. As the side that was called, to be sent before theirs is merged.
    pub fn reports(&self) -> Vec<PeerReport> {
        self.peers.iter().map(Peer::report).collect()
    }

    /// Their half. If it is refused, what the layer above got with it is to be refused as well.
    pub fn merge(&mut self, reports: Vec<PeerReport>, now_ms: u64) -> Result<(), Incompatible> {
        self.check_versions(&reports)?;
        for report in reports {
            self.merge_one(report, now_ms);
        }
        Ok(())
    }

    pub(super) fn compare_with_one(&mut self) {
        let is_alive = |peer: &Peer| peer.state == PeerState::Alive;
        let to: Option<SocketAddr> =
            self.peers.sample(1, &mut self.rng, is_alive).first().map(|peer| peer.addr);
        self.outputs.extend(to.map(|to| Output::PushPullWith { to, is_join: false }));
    }

    fn merge_one(&mut self, report: PeerReport, now_ms: u64) {
        let PeerReport { name, addr, meta, incarnation, state, versions } = report;
        match state {
            PeerState::Alive => {
                self.alive(Alive { incarnation, name, addr, meta, versions }, now_ms);
            }
            PeerState::Left => {
                let from = name.clone();
                self.dead(&Dead { incarnation, name, from }, now_ms);
            }
            // That it is dead they may say; we give it the time to refute it.
            PeerState::Dead | PeerState::Suspect => {
                let from = self.settings.name.clone();
                self.suspect(&Suspect { incarnation, name, from }, now_ms);
            }
        }
    }

    /// Everybody must speak what all who are alive understand.
    fn check_versions(&self, reports: &[PeerReport]) -> Result<(), Incompatible> {
        let theirs =
            reports.iter().map(|report| (report.name.as_str(), report.state, report.versions.0));
        let ours = self.peers.iter().map(|peer| (&*peer.name, peer.state, Some(peer.versions)));
        let all = || theirs.clone().chain(ours.clone());
        for kind in &KINDS {
            let alive = || {
                all()
                    .filter(|(_, state, _)| *state == PeerState::Alive)
                    .filter_map(|(_, _, versions)| versions)
            };
            let least = alive().map(|versions| versions[kind.least]).max().unwrap_or(0);
            let most = alive().map(|versions| versions[kind.most]).min().unwrap_or(u8::MAX);
            for (name, _, versions) in all() {
                let version = versions.map_or(0, |versions| versions[kind.spoken]);
                if version < least || version > most {
                    let (name, what) = (name.to_owned(), kind.what);
                    return Err(Incompatible { name, what, version, least, most });
                }
            }
        }
        Ok(())
    }
}
