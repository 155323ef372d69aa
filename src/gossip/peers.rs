//! The members we know of, ourselves among them, in the order in which they are probed.
//!
//! Invariants: a name is there once, and `places` says where; `live` counts those that are
//! neither dead nor gone; we are never taken out ourselves.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::{IteratorRandom, SliceRandom};

use crate::gossip::message::{PeerReport, PeerState, Versions};

/// Members kept, dead ones included. Beyond it new ones are refused and counted.
///
/// The largest Cortex clusters gossip with about a thousand members. Members with random names
/// leave a dead entry per restart until the lap of probes ends (at 1,000 members, 80 minutes), so
/// a cluster may restart several times over within a lap. At some 300 bytes each, 3 MB.
pub const PEERS_MAX: usize = 10_000;

/// A name is a host's, with a random end; what is longer is refused. Longest name of DNS and more.
pub const NAME_BYTES_MAX: usize = 512;

/// As memberlist allows it.
pub const META_BYTES_MAX: usize = 512;

/// One member, as we see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub name: Arc<str>,
    pub addr: SocketAddr,
    pub meta: Bytes,
    /// Grows with each life and each refutation; older news about it are no news.
    pub incarnation: u32,
    pub state: PeerState,
    /// Least, most and spoken version of the protocol, then of the delegate; zeros if unknown.
    pub versions: [u8; 6],
    pub changed_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Peers {
    us: Arc<str>,
    list: Vec<Peer>,
    places: HashMap<Arc<str>, usize>,
    live: usize,
}

impl Peer {
    pub fn is_gone(&self) -> bool {
        matches!(self.state, PeerState::Dead | PeerState::Left)
    }

    /// Whether it checks the checksum of a packet.
    pub fn knows_checksums(&self) -> bool {
        self.versions[1] >= 5
    }

    /// Whether it answers, when asked to probe for us, that it had no answer itself.
    pub fn knows_nacks(&self) -> bool {
        self.versions[1] >= 4
    }

    /// Whether it answers pings over a stream.
    pub fn knows_stream_pings(&self) -> bool {
        self.versions[1] >= 3
    }

    pub fn report(&self) -> PeerReport {
        PeerReport {
            name: self.name.to_string(),
            addr: self.addr,
            meta: self.meta.clone(),
            incarnation: self.incarnation,
            state: self.state,
            versions: Versions(Some(self.versions)),
        }
    }
}

impl Peers {
    pub fn new(us: Peer) -> Self {
        Self {
            us: Arc::clone(&us.name),
            places: HashMap::from([(Arc::clone(&us.name), 0)]),
            live: usize::from(!us.is_gone()),
            list: vec![us],
        }
    }

    pub fn us(&self) -> &Peer {
        &self.list[self.places[&self.us]]
    }

    pub fn is_us(&self, name: &str) -> bool {
        *self.us == *name
    }

    /// All of them, the dead and ourselves included.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Those that are neither dead nor gone, ourselves included.
    pub fn live(&self) -> usize {
        self.live
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Peer> {
        self.list.iter()
    }

    pub fn get(&self, name: &str) -> Option<&Peer> {
        self.places.get(name).map(|place| &self.list[*place])
    }

    pub fn at(&self, place: usize) -> Option<&Peer> {
        self.list.get(place)
    }

    /// Changes a peer, whose name stays, and keeps count.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut Peer)) {
        let Some(place) = self.places.get(name) else { return };
        let peer = &mut self.list[*place];
        let was_live = !peer.is_gone();
        change(peer);
        self.live = self.live + usize::from(!peer.is_gone()) - usize::from(was_live);
        debug_assert_eq!(&*peer.name, name);
    }

    /// A new peer, at a random place: at the end, all would probe it last. `false` without room.
    pub fn insert(&mut self, peer: Peer, rng: &mut SmallRng) -> bool {
        assert!(!self.places.contains_key(&peer.name), "a name is there once");
        if self.list.len() >= PEERS_MAX {
            return false;
        }
        let last = self.list.len();
        let place = rng.random_range(0..last);
        self.live += usize::from(!peer.is_gone());
        self.places.insert(Arc::clone(&peer.name), last);
        self.list.push(peer);
        self.swap(place, last);
        true
    }

    /// Up to `amount` others that fit, any of them as likely, in any order.
    pub fn sample(
        &self,
        amount: usize,
        rng: &mut SmallRng,
        fits: impl Fn(&Peer) -> bool,
    ) -> Vec<&Peer> {
        let others = self.list.iter().filter(|peer| peer.name != self.us && fits(peer));
        let mut found = others.sample(rng, amount);
        found.shuffle(rng);
        found
    }

    /// Forgets those that were gone by `before_ms`, and shuffles the rest for a new lap.
    pub fn reap_and_shuffle(&mut self, before_ms: u64, rng: &mut SmallRng) {
        let us = &self.us;
        self.list
            .retain(|peer| !peer.is_gone() || peer.changed_ms >= before_ms || peer.name == *us);
        self.list.shuffle(rng);
        self.places =
            self.list.iter().enumerate().map(|(at, peer)| (Arc::clone(&peer.name), at)).collect();
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.list.swap(one, other);
        for place in [one, other] {
            if let Some(known) = self.places.get_mut(&self.list[place].name) {
                *known = place;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn peer(name: &str, state: PeerState, changed_ms: u64) -> Peer {
        Peer {
            name: name.into(),
            addr: "10.0.0.1:7946".parse().unwrap(),
            meta: Bytes::new(),
            incarnation: 1,
            state,
            versions: [1, 5, 2, 0, 0, 0],
            changed_ms,
        }
    }

    fn holds(peers: &Peers) {
        for (place, peer) in peers.iter().enumerate() {
            assert_eq!(peers.places[&peer.name], place);
        }
        assert_eq!(peers.places.len(), peers.count());
        assert_eq!(peers.live(), peers.iter().filter(|peer| !peer.is_gone()).count());
    }

    #[test]
    fn places_and_counts_follow_every_change() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut peers = Peers::new(peer("us", PeerState::Alive, 0));
        for number in 0..40 {
            assert!(peers.insert(peer(&format!("p{number}"), PeerState::Dead, number), &mut rng));
            holds(&peers);
        }
        for number in 20..40 {
            peers.change(&format!("p{number}"), |peer| peer.state = PeerState::Alive);
            holds(&peers);
        }
        assert_eq!((peers.count(), peers.live()), (41, 21));
        peers.change("nobody", |peer| peer.state = PeerState::Left);
        peers.change("us", |peer| peer.state = PeerState::Left);
        // p0 to p9 were gone before 10; the gone since then stay, and so do we.
        peers.reap_and_shuffle(10, &mut rng);
        holds(&peers);
        assert_eq!((peers.count(), peers.live()), (31, 20));
        assert_eq!(peers.us().state, PeerState::Left);
    }

    #[test]
    fn a_sample_is_of_others_that_fit_and_all_are_as_likely() {
        let mut rng = SmallRng::seed_from_u64(2);
        let mut peers = Peers::new(peer("us", PeerState::Alive, 0));
        for number in 0..10 {
            let state = if number < 8 { PeerState::Alive } else { PeerState::Dead };
            peers.insert(peer(&format!("p{number}"), state, 0), &mut rng);
        }
        let mut firsts: HashMap<Arc<str>, u32> = HashMap::new();
        for _ in 0..8_000 {
            let sample = peers.sample(3, &mut rng, |peer| !peer.is_gone());
            let mut names: Vec<_> = sample.iter().map(|peer| &*peer.name).collect();
            *firsts.entry(Arc::clone(&sample[0].name)).or_default() += 1;
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), 3);
            assert!(!names.contains(&"us"));
        }
        assert_eq!(firsts.len(), 8);
        assert!(firsts.values().all(|times| (850..1150).contains(times)), "{firsts:?}");
        assert_eq!(peers.sample(20, &mut rng, |_| true).len(), 10);
    }

    #[test]
    fn beyond_the_bound_nobody_is_taken() {
        let mut rng = SmallRng::seed_from_u64(3);
        let mut peers = Peers::new(peer("us", PeerState::Alive, 0));
        for number in 1..PEERS_MAX {
            assert!(peers.insert(peer(&format!("p{number}"), PeerState::Alive, 0), &mut rng));
        }
        assert!(!peers.insert(peer("one more", PeerState::Alive, 0), &mut rng));
        assert_eq!(peers.count(), PEERS_MAX);
    }
}
