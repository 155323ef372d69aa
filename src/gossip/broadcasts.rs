//! What is to be spread: each broadcast rides on packets a limited number of times, then it goes.
//!
//! Those sent least come first; among them the largest that still fits, then the newest. So news
//! overtake what is half known already, and a full queue delays rather than starves.
//!
//! A broadcast says what it is about, and a newer one that says all of it replaces it.
//!
//! Invariants: each entry is in `order` once, by its rank; `slots` finds it by its key and the
//! first of its names; `bytes` is the sum of the entries'.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

use crate::gossip::peers::PEERS_MAX;

/// Bytes each part costs in a compound, beyond its own.
pub const PART_OVERHEAD: usize = 2;

/// Broadcasts waiting. There is one per peer, or per entry of the layer above that changed; a
/// cluster has about as many of these as peers. Beyond it the one sent most goes, and is counted.
pub const BROADCASTS_MAX: usize = 2 * PEERS_MAX;

/// Bytes waiting: a ring of [`PEERS_MAX`] with 512 tokens each (2.6 KB), twice over. What goes
/// beyond it is brought by full exchanges.
pub const BROADCAST_BYTES_MAX: usize = 56 * 1024 * 1024;

/// What a broadcast tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    key: Box<str>,
    /// What within the key, sorted.
    names: Vec<Box<str>>,
    version: u64,
}

/// Why something is not spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broadcast of {bytes} bytes does not fit a packet of {bytes_max}")]
pub struct TooBig {
    pub bytes: usize,
    pub bytes_max: usize,
}

#[derive(Clone, Debug)]
pub struct Broadcasts {
    entries: HashMap<u64, Entry>,
    order: BTreeSet<Rank>,
    /// Ids by key, then by the first name; `""` for what names nothing.
    slots: HashMap<Box<str>, HashMap<Box<str>, Vec<u64>>>,
    last_id: u64,
    bytes: usize,
    part_bytes_max: usize,
    dropped: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    about: About,
    transmits: u32,
    bytes: Bytes,
}

/// Times sent, largest first, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    transmits: u32,
    len: Reverse<usize>,
    id: Reverse<u64>,
}

/// How often each broadcast is sent, among `peers` peers.
pub fn transmits_max(factor: u32, peers: usize) -> u32 {
    let scale = (peers as f64 + 1.0).log10().ceil() as u32;
    factor.saturating_mul(scale)
}

impl About {
    pub fn new(key: &str, names: &[String], version: u64) -> Self {
        let mut names: Vec<Box<str>> = names.iter().map(|name| name.as_str().into()).collect();
        names.sort_unstable();
        names.dedup();
        Self { key: key.into(), names, version }
    }

    /// One peer; whatever is newer about it replaces what is older.
    pub fn peer(name: &str) -> Self {
        Self { key: "".into(), names: vec![name.into()], version: 0 }
    }

    /// Whether all that the older one tells of is told by this one, and not less recent.
    pub fn covers(&self, older: &Self) -> bool {
        self.key == older.key
            && self.version >= older.version
            && older.names.iter().all(|name| self.names.binary_search(name).is_ok())
    }

    fn slot(&self) -> &str {
        self.names.first().map_or("", |name| name)
    }
}

impl Broadcasts {
    /// `part_bytes_max`: largest that can ever be sent; a larger one would wait for ever.
    pub fn new(part_bytes_max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeSet::new(),
            slots: HashMap::new(),
            last_id: 0,
            bytes: 0,
            part_bytes_max,
            dropped: 0,
        }
    }

    pub fn push(&mut self, about: About, bytes: Bytes) -> Result<(), TooBig> {
        if bytes.len() > self.part_bytes_max {
            // What it covers stays: old news are better than none.
            self.dropped += 1;
            return Err(TooBig { bytes: bytes.len(), bytes_max: self.part_bytes_max });
        }
        self.drop_covered(&about);
        self.last_id += 1;
        self.insert(self.last_id, Entry { about, transmits: 0, bytes });
        while self.entries.len() > BROADCASTS_MAX || self.bytes > BROADCAST_BYTES_MAX {
            let Some(last) = self.order.last().copied() else { break };
            self.remove(last.id.0);
            self.dropped += 1;
        }
        Ok(())
    }

    /// Adds to a packet what fits into `room` bytes, and counts it as sent; tells what room is left.
    pub fn fill(&mut self, mut room: usize, transmits_max: u32, parts: &mut Vec<Bytes>) -> usize {
        let mut sent = Vec::new();
        let mut transmits = self.order.first().map_or(0, |rank| rank.transmits);
        while let Some(free) = room.checked_sub(PART_OVERHEAD).filter(|free| *free > 0) {
            let least = Rank { transmits, len: Reverse(free), id: Reverse(u64::MAX) };
            let Some(rank) = self.order.range(least..).next().copied() else { break };
            if rank.transmits > transmits {
                // The rest of this tier is too large; the next one is looked at from its largest.
                transmits = rank.transmits;
                continue;
            }
            // Back in only at the end, or the next tier would find it again.
            self.order.remove(&rank);
            let entry = &self.entries[&rank.id.0];
            parts.push(entry.bytes.clone());
            room = free - entry.bytes.len();
            sent.push(rank.id.0);
        }
        for id in sent {
            self.count_transmit(id, transmits_max);
        }
        room
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Not spread, or not to the end, for want of room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether something about this peer is still to be sent.
    pub fn has_peer(&self, name: &str) -> bool {
        self.slots.get("").is_some_and(|slots| slots.contains_key(name))
    }

    fn drop_covered(&mut self, about: &About) {
        let Some(slots) = self.slots.get(&about.key) else { return };
        // What is covered has its first name among ours, so the others need no look.
        let names = about.names.iter().map(|name| &**name).chain(std::iter::once(""));
        let covered: Vec<u64> = names
            .filter_map(|name| slots.get(name))
            .flatten()
            .copied()
            .filter(|id| about.covers(&self.entries[id].about))
            .collect();
        for id in covered {
            self.remove(id);
        }
    }

    fn count_transmit(&mut self, id: u64, transmits_max: u32) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.transmits += 1;
        if entry.transmits >= transmits_max {
            self.remove(id);
        } else {
            let rank = entry.rank(id);
            self.order.insert(rank);
        }
    }

    fn insert(&mut self, id: u64, entry: Entry) {
        self.bytes += entry.bytes.len();
        self.order.insert(entry.rank(id));
        let slots = self.slots.entry(entry.about.key.clone()).or_default();
        slots.entry(entry.about.slot().into()).or_default().push(id);
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: u64) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.bytes -= entry.bytes.len();
        self.order.remove(&entry.rank(id));
        let Some(slots) = self.slots.get_mut(&entry.about.key) else { return };
        if let Some(ids) = slots.get_mut(entry.about.slot()) {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                slots.remove(entry.about.slot());
            }
        }
        if slots.is_empty() {
            self.slots.remove(&entry.about.key);
        }
    }
}

impl Entry {
    fn rank(&self, id: u64) -> Rank {
        Rank { transmits: self.transmits, len: Reverse(self.bytes.len()), id: Reverse(id) }
    }
}

#[cfg(test)]
mod tests;
