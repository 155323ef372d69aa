//! What is said of a peer meets what we know of it.
//!
//! Each life of a peer and each refutation of a death has a higher incarnation, and only the peer
//! itself raises it. So the higher one is the newer; at the same one the worse news win: alive,
//! then suspect, then dead. Whatever changed something is passed on, so each piece of news passes
//! through each member once.
//!
//! Incarnations end, at 2^32 - 1: above a death at the last one nobody can raise its voice. So a
//! known peer's may only go up by as much as a peer can have gone while it was not heard.

use std::sync::Arc;

use crate::gossip::broadcasts::About;
use crate::gossip::membership::{Membership, Output, VERSIONS, Warning, cut};
use crate::gossip::message::{Alive, Dead, Message, PeerState, Suspect, Versions};
use crate::gossip::peers::{META_BYTES_MAX, NAME_BYTES_MAX, Peer};
use crate::gossip::suspicion::{self, Suspicion};
use crate::gossip::wire;

/// Most that an incarnation goes up at once. Each refutation is one up, and there is no second one
/// before the first has gone round: within a second, say. So it is 18 hours of refuting all the
/// time, unheard; who was not heard for so long counts as dead, is forgotten, and is met anew.
///
/// What is above it is left out, of ourselves as of others. We do not answer it, since an answer
/// would have to be above it, and bring us as near to the end as the liar wants.
const LEAP_MAX: u32 = 1 << 16;

/// Highest incarnation of somebody whom we do not know, or who has left: a refutation each second
/// of 68 years. Half of all are left for it to refute what is said then.
const FIRST_HEARD_MAX: u32 = 1 << 31;

/// What to do with an alive message whose address is not the one we know.
enum NewAddress {
    /// The name is free, whatever the incarnation: it is another life.
    Reclaims,
    Conflicts,
}

impl Membership {
    pub(super) fn alive(&mut self, mut alive: Alive, now_ms: u64) {
        let is_us = self.peers.is_us(&alive.name);
        if is_us && self.has_left {
            // An echo of who we were; it must not bring us back.
            return;
        }
        let versions = alive.versions.0.unwrap_or_default();
        if !speaks_with_us(versions) {
            return self.warn(Warning::Versions { name: cut(&alive.name), versions });
        }
        if alive.addr.port() == 0 {
            // Members of the first protocol name no port; all use the same one.
            alive.addr.set_port(self.settings.addr.port());
        }
        let Some(known) = self.peers.get(&alive.name).cloned() else {
            if !self.is_leap(&alive.name, alive.incarnation, FIRST_HEARD_MAX) {
                self.meet(&alive, now_ms);
            }
            return;
        };
        let mut is_reclaimed = false;
        if known.addr != alive.addr {
            match self.new_address(&known, now_ms) {
                NewAddress::Reclaims => is_reclaimed = true,
                NewAddress::Conflicts => {
                    let (ours, theirs) = (known.addr, alive.addr);
                    return self.warn(Warning::NameConflict { name: alive.name, ours, theirs });
                }
            }
        }
        let most = if is_reclaimed { FIRST_HEARD_MAX } else { leap_end(&known) };
        if self.is_leap(&alive.name, alive.incarnation, most) {
            return;
        }
        if is_us {
            return self.hear_of_ourselves(&known, &alive);
        }
        if alive.incarnation > known.incarnation || is_reclaimed {
            self.believe_alive(&known, &alive, now_ms);
        }
    }

    pub(super) fn suspect(&mut self, suspect: &Suspect, now_ms: u64) {
        let Some(known) = self.peers.get(&suspect.name) else { return };
        if suspect.incarnation < known.incarnation || suspect.from.len() > NAME_BYTES_MAX {
            return;
        }
        let most = leap_end(known);
        if self.is_leap(&suspect.name, suspect.incarnation, most) {
            return;
        }
        let Some(known) = self.peers.get(&suspect.name) else { return };
        if let Some(suspicion) = self.suspicions.get_mut(&suspect.name) {
            // One more voice. Passed on while it still shortens the time, so that all hear it.
            if suspicion.confirm(&suspect.from) {
                self.spread(&suspect.name, &Message::Suspect(suspect.clone()));
            }
            return;
        }
        if known.state != PeerState::Alive {
            return;
        }
        if self.peers.is_us(&suspect.name) {
            return self.refute(suspect.incarnation, PeerState::Suspect, &suspect.from);
        }
        let name = Arc::clone(&known.name);
        self.spread(&name, &Message::Suspect(suspect.clone()));
        self.peers.change(&name, |peer| {
            peer.incarnation = suspect.incarnation;
            peer.state = PeerState::Suspect;
            peer.changed_ms = now_ms;
        });
        let suspicion = self.suspicion(&suspect.from, now_ms);
        self.suspicions.start(name, suspicion);
    }

    pub(super) fn dead(&mut self, dead: &Dead, now_ms: u64) {
        let Some(known) = self.peers.get(&dead.name) else { return };
        if dead.incarnation < known.incarnation || dead.from.len() > NAME_BYTES_MAX {
            return;
        }
        let name = Arc::clone(&known.name);
        let (is_gone, most) = (known.is_gone(), leap_end(known));
        if self.is_leap(&name, dead.incarnation, most) {
            return;
        }
        self.suspicions.end(&name);
        if is_gone {
            return;
        }
        if self.peers.is_us(&name) && !self.has_left {
            return self.refute(dead.incarnation, PeerState::Dead, &dead.from);
        }
        self.spread(&name, &Message::Dead(dead.clone()));
        self.peers.change(&name, |peer| {
            peer.incarnation = dead.incarnation;
            // Its own word that it is gone is final; another's is not.
            peer.state = if dead.from == dead.name { PeerState::Left } else { PeerState::Dead };
            peer.changed_ms = now_ms;
        });
        self.tell(&name, Output::Gone);
    }

    /// Suspects that ran out of time are dead.
    pub(super) fn end_suspicions(&mut self, now_ms: u64) {
        for name in self.suspicions.over(now_ms) {
            self.suspicions.end(&name);
            let Some(incarnation) = self.peers.get(&name).map(|peer| peer.incarnation) else {
                continue;
            };
            self.warn(Warning::SuspectDied { name: name.to_string() });
            let from = self.settings.name.clone();
            self.dead(&Dead { incarnation, name: name.to_string(), from }, now_ms);
        }
    }

    /// Our own death, by our own word.
    pub(super) fn bury_ourselves(&mut self, now_ms: u64) {
        let name = self.settings.name.clone();
        let incarnation = self.peers.us().incarnation;
        self.dead(&Dead { incarnation, name: name.clone(), from: name }, now_ms);
    }

    pub(super) fn spread_ourselves(&mut self) {
        let us = self.peers.us();
        let alive = Alive {
            incarnation: us.incarnation,
            name: us.name.to_string(),
            addr: us.addr,
            meta: us.meta.clone(),
            versions: Versions(Some(us.versions)),
        };
        self.spread(&alive.name.clone(), &Message::Alive(alive));
    }

    /// Somebody new.
    fn meet(&mut self, alive: &Alive, now_ms: u64) {
        if alive.incarnation == 0 {
            // No life begins with it; it could never be told from what is not known.
            return;
        }
        let peer = Peer {
            name: alive.name.as_str().into(),
            addr: alive.addr,
            meta: alive.meta.clone(),
            incarnation: 0,
            state: PeerState::Dead,
            versions: alive.versions.0.unwrap_or_default(),
            changed_ms: now_ms,
        };
        let is_sane = !alive.name.is_empty()
            && alive.name.len() <= NAME_BYTES_MAX
            && alive.meta.len() <= META_BYTES_MAX;
        if !is_sane || !self.peers.insert(peer.clone(), &mut self.rng) {
            self.counts.peers_refused += 1;
            return self.warn(Warning::PeersFull { name: cut(&alive.name) });
        }
        self.believe_alive(&peer, alive, now_ms);
    }

    fn believe_alive(&mut self, known: &Peer, alive: &Alive, now_ms: u64) {
        if alive.meta.len() > META_BYTES_MAX {
            self.counts.peers_refused += 1;
            return;
        }
        self.suspicions.end(&known.name);
        self.spread(&known.name, &Message::Alive(alive.clone()));
        self.peers.change(&known.name, |peer| {
            peer.incarnation = alive.incarnation;
            peer.addr = alive.addr;
            peer.meta = alive.meta.clone();
            peer.versions = alive.versions.0.unwrap_or_default();
            if peer.state != PeerState::Alive {
                peer.state = PeerState::Alive;
                peer.changed_ms = now_ms;
            }
        });
        if known.is_gone() {
            self.tell(&known.name, Output::Joined);
        } else if known.meta != alive.meta {
            self.tell(&known.name, Output::Updated);
        }
    }

    /// That we are alive is no news, unless an earlier life of ours looked different.
    fn hear_of_ourselves(&mut self, us: &Peer, alive: &Alive) {
        let is_same = alive.incarnation == us.incarnation
            && alive.meta == us.meta
            && alive.versions == Versions(Some(us.versions));
        if alive.incarnation >= us.incarnation && !is_same {
            self.refute(alive.incarnation, PeerState::Alive, &alive.name);
        }
    }

    /// Whether that is said of an incarnation which the peer cannot have come to.
    fn is_leap(&mut self, name: &str, said: u32, most: u32) -> bool {
        let is_leap = said > most;
        if is_leap {
            self.counts.leaps += 1;
            self.warn(Warning::Leap { name: cut(name), said, most });
        }
        is_leap
    }

    /// Says that we live, louder than whoever says otherwise.
    fn refute(&mut self, said_incarnation: u32, state: PeerState, from: &str) {
        self.counts.refutations += 1;
        self.warn(Warning::Refuting { state, from: from.to_owned() });
        // We gave cause for it, most likely.
        self.awareness.worsen(1);
        self.incarnation = self.incarnation.max(said_incarnation).saturating_add(1);
        let (name, incarnation) = (self.name(), self.incarnation);
        self.peers.change(&name, |us| us.incarnation = incarnation);
        self.spread_ourselves();
    }

    fn new_address(&self, known: &Peer, now_ms: u64) -> NewAddress {
        let reclaim_ms = self.settings.dead_reclaim_ms;
        let is_old = reclaim_ms > 0 && now_ms.saturating_sub(known.changed_ms) > reclaim_ms;
        match known.state {
            PeerState::Left => NewAddress::Reclaims,
            PeerState::Dead if is_old => NewAddress::Reclaims,
            PeerState::Dead | PeerState::Alive | PeerState::Suspect => NewAddress::Conflicts,
        }
    }

    fn suspicion(&self, from: &str, now_ms: u64) -> Suspicion {
        let peers = self.peers.count();
        let factor = self.settings.suspicion_factor;
        // Two fewer than the factor, so that the least time comes two probe intervals before what
        // the factor promises; none, where fewer than that are left beside us and the suspect.
        let wanted = factor.saturating_sub(2) as usize;
        let wanted = if peers.saturating_sub(2) < wanted { 0 } else { wanted };
        let least_ms = suspicion::least_ms(factor, peers, self.settings.probe_interval_ms);
        let most_ms = least_ms.saturating_mul(u64::from(self.settings.suspicion_max_factor));
        Suspicion::new(from, wanted, least_ms, most_ms, now_ms)
    }

    fn spread(&mut self, name: &str, rumour: &Message) {
        if let Err(error) = self.rumours.push(About::peer(name), wire::encode(rumour)) {
            self.warn(Warning::RumourTooBig(error));
        }
    }

    fn tell(&mut self, name: &str, event: impl FnOnce(Peer) -> Output) {
        if let Some(peer) = self.peers.get(name)
            && !self.peers.is_us(name)
        {
            self.outputs.push(event(peer.clone()));
        }
    }
}

/// As far as a known peer may have come by now.
fn leap_end(known: &Peer) -> u32 {
    known.incarnation.saturating_add(LEAP_MAX)
}

/// Whether it understands the protocol we speak, and we the one it speaks.
///
/// memberlist takes in anybody by gossip, and from then on refuses each full exchange, since not
/// all understand each other. We rather do without that one.
fn speaks_with_us(versions: [u8; 6]) -> bool {
    let fits = |[least, most, spoken]: [u8; 3], [our_least, our_most, our_spoken]: [u8; 3]| {
        (our_least..=our_spoken).contains(&least)
            && most >= our_spoken
            && (our_least..=our_most).contains(&spoken)
    };
    let [a, b, c, d, e, f] = versions;
    let [ours_a, ours_b, ours_c, ours_d, ours_e, ours_f] = VERSIONS;
    // Those of the protocol, then those of what rides on it.
    fits([a, b, c], [ours_a, ours_b, ours_c]) && fits([d, e, f], [ours_d, ours_e, ours_f])
}
