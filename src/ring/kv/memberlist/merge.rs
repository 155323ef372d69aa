//! Two copies of a gossiped ring made one, by Cortex's rules.
//!
//! Each member writes its own entry and stamps it with its clock, so of two copies of an entry
//! the newer one counts. A member that went is not taken out but kept as LEFT for a time: what
//! is merely missing in one copy would come back with the next other one.
//!
//! Laws, for rings in which an entry is told by its member and its time and no token has two
//! claimants: merging is idempotent, commutative and associative. Where they fail, and with them
//! Cortex's merge:
//! - of two entries of one member and one second the first that came stays, unless the other is
//!   LEFT. A member never writes two: a swap that changes nothing else is told so, and waits.
//! - who lost a contested token has it back only with its own next write, so the outcome of
//!   three copies may hang on their order until then.
//! - what our own swap leaves out becomes LEFT, which is a decision and no merging.
//!
//! Invariant: in a ring that was made by merging, each member's tokens are sorted and unique,
//! who has LEFT has none, and no token is held twice. So only tokens that a merge brings are
//! searched for conflicts; a heartbeat brings none.

use std::collections::{BTreeMap, BTreeSet};

use crate::ring::model::{Instance, InstanceState, RingModel, Token};

/// How far ahead of us another member's clock may be. An entry from farther in the future would
/// hide all that its member has to say until then.
pub const AHEAD_MAX_S: i64 = 30 * 60;

/// Most members of a merged ring, as many as a stored one may have. Copies are bounded where they
/// are decoded; this bounds what could be piled up with one copy after the other.
pub const MEMBERS_MAX: usize = 1 << 16;

/// Most members that others make of a ring: as many as can take part in a gossip (10,000), and more
/// than half as many again that have LEFT and are not forgotten yet. One more is left out of what
/// is told; who is in there already is heard. Above it is room for our own entries.
pub const MEMBERS_TOLD_MAX: usize = 16_384;

/// Most bytes of a merged ring, about as it is stored, for the same reason; what is larger could
/// not be told to others.
pub const RING_BYTES_MAX: usize = 16 << 20;

/// Bytes of a token as it is stored: most are above 2^28.
const TOKEN_BYTES: usize = 5;

/// Bytes of an entry beside its texts and tokens: two times, a state, and the fields' heads.
const ENTRY_BYTES: usize = 32;

/// Who the other copy is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Another member: what it does not name it may not know.
    Peer,
    /// We made it from this ring: what it does not name has been taken out.
    OwnSwap,
}

/// What a merge changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The members that changed, as they are now: what others need to hear.
    pub change: RingModel,
    /// More than heartbeats: members, states, addresses, zones, or tokens.
    pub is_move: bool,
}

/// What became of the members that have LEFT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tombstones {
    pub kept: usize,
    pub removed: usize,
}

/// Entries that are left out of what another member tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Stamped too far ahead of us.
    pub future: usize,
    /// New ones, for which there is no room.
    pub crowded: usize,
    /// Of the first of them.
    pub why: Option<LeftOutError>,
}

/// Why an entry is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOutError {
    /// Cortex's text, which refuses the whole copy for it.
    #[error("ingester {id} timestamp in the future, expected max of {max_s}, got {timestamp_s}")]
    Future { id: String, max_s: i64, timestamp_s: i64 },
    #[error("the ring has {MEMBERS_TOLD_MAX} members, and {id} would be one more")]
    Crowded { id: String },
    #[error(
        "replica {replica} timestamp in the future, expected max of {max_ms}, got {timestamp_ms}"
    )]
    FutureReplica { replica: String, max_ms: i64, timestamp_ms: i64 },
    #[error(
        "the key's last write or deletion is expected at {max_ms} at most, got {updated_at_ms}"
    )]
    FutureWord { max_ms: i64, updated_at_ms: i64 },
}

/// Why a copy was not merged; the ring is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingMergeError {
    #[error("the merged ring has {members} members, more than {MEMBERS_MAX}")]
    TooManyMembers { members: usize },
    #[error("the merged ring has {bytes} bytes, more than {RING_BYTES_MAX}")]
    TooLarge { bytes: usize },
}

/// Takes out of another member's copy what is not to be merged, entry by entry: one odd entry must
/// not hide what the copy tells of the others.
pub fn leave_out(ours: &RingModel, theirs: &mut RingModel, now_s: i64) -> LeftOut {
    let mut left_out = LeftOut::default();
    let max_s = now_s.saturating_add(AHEAD_MAX_S);
    let mut room = MEMBERS_TOLD_MAX.saturating_sub(ours.instances.len());
    let is_roomy = theirs.instances.len() <= room;
    theirs.instances.retain(|id, entry| {
        let timestamp_s = entry.timestamp_s;
        if timestamp_s > max_s {
            left_out.future += 1;
            let why = || LeftOutError::Future { id: id.clone(), max_s, timestamp_s };
            left_out.why.get_or_insert_with(why);
            return false;
        }
        if is_roomy || ours.instances.contains_key(id) {
            return true;
        }
        let has_room = room > 0;
        room = room.saturating_sub(1);
        if !has_room {
            left_out.crowded += 1;
            left_out.why.get_or_insert_with(|| LeftOutError::Crowded { id: id.clone() });
        }
        has_room
    });
    left_out
}

/// Merges `theirs` into `ours`; `None` when it brought nothing new. Of another member's copy,
/// what [`leave_out`] has left of it.
pub fn merge(
    ours: &mut RingModel,
    theirs: RingModel,
    origin: Origin,
    now_s: i64,
) -> Result<Option<Merged>, RingMergeError> {
    let missing = match origin {
        Origin::Peer => Vec::new(),
        Origin::OwnSwap => missing(ours, &theirs),
    };
    let RingModel { instances, unknown_fields } = theirs;
    let is_news =
        |(id, entry): &(String, Instance)| is_newer(ours.instances.get(id.as_str()), entry);
    let mut news: Vec<(String, Instance)> = instances.into_iter().filter(is_news).collect();
    news.iter_mut().for_each(|(_, entry)| normalise(entry));
    check_size(ours, &news)?;
    if ours.unknown_fields.is_empty() {
        ours.unknown_fields = unknown_fields;
    }
    if news.is_empty() && missing.is_empty() {
        return Ok(None);
    }

    let mut changed: Vec<String> = Vec::with_capacity(news.len() + missing.len());
    let mut claimants = BTreeSet::new();
    let mut is_move = !missing.is_empty();
    for (id, entry) in news {
        let old = ours.instances.get(&id);
        is_move |= old.is_none_or(|old| !is_heartbeat(old, &entry));
        let claims = old.map_or(&[][..], |old| &old.tokens[..]) != entry.tokens;
        if claims {
            claimants.insert(id.clone());
        }
        changed.push(id.clone());
        ours.instances.insert(id, entry);
    }
    for id in missing {
        if let Some(entry) = ours.instances.get_mut(&id) {
            entry.state = InstanceState::Left;
            entry.tokens = Vec::new();
            // News of the entry may be under way that are newer than the entry here, and older
            // than its end; and one whose clock is ahead of ours could not be ended otherwise.
            entry.timestamp_s = entry.timestamp_s.max(now_s);
        }
        changed.push(id);
    }
    if !claimants.is_empty() {
        resolve_conflicts(ours, &claimants);
    }
    let told = changed.into_iter().filter_map(|id| {
        let entry = ours.instances.get(&id)?.clone();
        Some((id, entry))
    });
    let change =
        RingModel { instances: told.collect(), unknown_fields: ours.unknown_fields.clone() };
    Ok(Some(Merged { change, is_move }))
}

/// Takes out who has LEFT before that time, Unix milliseconds; `None`: all who have LEFT.
pub fn remove_tombstones(ring: &mut RingModel, before_ms: Option<i64>) -> Tombstones {
    let mut tombstones = Tombstones::default();
    ring.instances.retain(|_, entry| {
        if entry.state != InstanceState::Left {
            return true;
        }
        let stays =
            before_ms.is_some_and(|before_ms| entry.timestamp_s.saturating_mul(1000) >= before_ms);
        if stays {
            tombstones.kept += 1;
        } else {
            tombstones.removed += 1;
        }
        stays
    });
    tombstones
}

/// Members of ours that `theirs` does not name, and that have not LEFT already.
fn missing(ours: &RingModel, theirs: &RingModel) -> Vec<String> {
    let is_missing = |(id, entry): &(&String, &Instance)| {
        entry.state != InstanceState::Left && !theirs.instances.contains_key(*id)
    };
    ours.instances.iter().filter(is_missing).map(|(id, _)| id.clone()).collect()
}

fn is_newer(old: Option<&Instance>, new: &Instance) -> bool {
    // Without an entry there is nothing to be newer than but the beginning of time, as in Cortex.
    let (timestamp_s, is_left) =
        old.map_or((0, false), |old| (old.timestamp_s, old.state == InstanceState::Left));
    new.timestamp_s > timestamp_s
        || (new.timestamp_s == timestamp_s && !is_left && new.state == InstanceState::Left)
}

/// Gives an entry the form that merged ones have.
pub fn normalise(entry: &mut Instance) {
    if entry.state == InstanceState::Left {
        entry.tokens = Vec::new();
    }
    if !entry.tokens.is_sorted() {
        entry.tokens.sort_unstable();
    }
    entry.tokens.dedup();
}

fn is_heartbeat(old: &Instance, new: &Instance) -> bool {
    old.state == new.state
        && old.addr == new.addr
        && old.zone == new.zone
        && old.registered_timestamp_s == new.registered_timestamp_s
        && old.tokens == new.tokens
}

fn check_size(ours: &RingModel, news: &[(String, Instance)]) -> Result<(), RingMergeError> {
    let (mut members, mut added, mut freed) = (ours.instances.len(), 0, 0);
    for (id, entry) in news {
        added += stored_bytes(id, entry);
        match ours.instances.get(id) {
            Some(old) => freed += stored_bytes(id, old),
            None => members += 1,
        }
    }
    if members > MEMBERS_MAX {
        return Err(RingMergeError::TooManyMembers { members });
    }
    if added > freed {
        let before: usize = ours.instances.iter().map(|(id, old)| stored_bytes(id, old)).sum();
        let bytes = before - freed + added;
        if bytes > RING_BYTES_MAX {
            return Err(RingMergeError::TooLarge { bytes });
        }
    }
    Ok(())
}

fn stored_bytes(id: &str, entry: &Instance) -> usize {
    let texts = id.len() + entry.addr.len() + entry.zone.len() + entry.unknown_fields.len();
    ENTRY_BYTES + texts + entry.tokens.len() * TOKEN_BYTES
}

/// Gives each token that two members claim to one of them: a member that leaves gives way, and
/// otherwise the lower name keeps it.
///
/// `claimants` are those whose tokens are new; the others hold none twice among themselves.
fn resolve_conflicts(ring: &mut RingModel, claimants: &BTreeSet<String>) {
    let contested = contested(ring, claimants);
    if contested.is_empty() {
        return;
    }
    let mut claims: Vec<(Token, bool, String)> = Vec::new();
    for (id, entry) in &ring.instances {
        let gives_way = entry.state == InstanceState::Leaving;
        for token in entry.tokens.iter().filter(|token| contested.binary_search(token).is_ok()) {
            claims.push((*token, gives_way, id.clone()));
        }
    }
    claims.sort_unstable();
    // The first claim of each token is the best. Who lost some is looked for by name, as the
    // others are many.
    let mut lost: BTreeMap<String, Vec<Token>> = BTreeMap::new();
    let mut last = None;
    for (token, _, id) in claims {
        if last.replace(token) == Some(token) {
            lost.entry(id).or_default().push(token);
        }
    }
    for (id, lost) in lost {
        if let Some(entry) = ring.instances.get_mut(&id) {
            entry.tokens.retain(|token| lost.binary_search(token).is_err());
        }
    }
}

/// Tokens that more than one member claims, sorted.
///
/// A token of somebody else is a suspect if a bit says that it may be among the claimed ones; of
/// few claimants these are few. The suspects are sorted.
fn contested(ring: &RingModel, claimants: &BTreeSet<String>) -> Vec<Token> {
    let tokens_of = |claims: bool| {
        let members = ring.instances.iter();
        let members = members.filter(move |(id, _)| claimants.contains(*id) == claims);
        members.flat_map(|(_, entry)| entry.tokens.iter().copied())
    };
    let mut suspects: Vec<Token> = tokens_of(true).collect();
    let mut slots = Slots::new();
    suspects.iter().for_each(|token| slots.set(*token));
    suspects.extend(tokens_of(false).filter(|token| slots.has(*token)));
    suspects.sort_unstable();
    let pairs = suspects.windows(2).filter(|pair| pair[0] == pair[1]);
    let mut contested: Vec<Token> = pairs.map(|pair| pair[0]).collect();
    contested.dedup();
    contested
}

/// A bit for each slot that tokens hash to.
struct Slots(Box<[u64; Self::LEN / 64]>);

impl Slots {
    /// The tokens of one member take one in a hundred; as many as stay in the nearest cache.
    const LEN: usize = 1 << 16;

    fn new() -> Self {
        Self(Box::new([0; Self::LEN / 64]))
    }

    fn has(&self, token: Token) -> bool {
        let slot = Self::slot(token);
        self.0[slot / 64] >> (slot % 64) & 1 == 1
    }

    fn set(&mut self, token: Token) {
        let slot = Self::slot(token);
        self.0[slot / 64] |= 1 << (slot % 64);
    }

    /// Neighbouring tokens, as an operator may have set them, go to different slots.
    fn slot(token: Token) -> usize {
        const GOLDEN_RATIO: u32 = 0x9e37_79b1;
        (token.0.wrapping_mul(GOLDEN_RATIO) >> 16) as usize
    }
}

#[cfg(test)]
mod tests;
