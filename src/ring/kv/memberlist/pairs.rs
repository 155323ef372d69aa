//! The keys of the gossiping store and what happens to them. No locks, no clock, no tasks.
//!
//! Data and deletion are settled apart, as in Cortex: a value merges by its kind's rule, and
//! whether the key counts as deleted is what was said last. A deleted key keeps its value until
//! all have heard of the deletion, then it goes.
//!
//! Invariants: a value's version grows with each change that others hear of; `order` has each key
//! once, under the number of its latest change; `strange_rings` counts the rings that are not ours;
//! `text_bytes` is the sum of all entries'.

mod entry;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Author;
use super::merge::{AHEAD_MAX_S, LeftOut, LeftOutError, Origin, Tombstones};
use super::value::{MergeError, Value, ValueKind};
use crate::ring::kv::prefix::PAIRS_MAX;

pub use self::entry::Entry;

/// Most keys, deleted ones included: as many as are followed under a prefix.
pub const KEYS_MAX: usize = PAIRS_MAX;

/// Most keys that others make, nine tenths of all: a peer that tells of one more is not heard. So
/// nobody can fill the store with made-up keys until an election of ours finds no room in it.
pub const KEYS_TOLD_MAX: usize = KEYS_MAX / 10 * 9;

/// Most bytes of texts in keys and elected replicas that others make: 350 for each key, its name
/// counted twice as it is kept twice. Keys may be long, and many long ones would fill memory.
pub const TEXT_BYTES_TOLD_MAX: usize = 60 << 20;

/// Most rings that are not ours; Cortex has eight. They are the large values, and each may take
/// [`RING_BYTES_MAX`](super::merge::RING_BYTES_MAX) as stored.
pub const RINGS_MAX: usize = 64;

/// Most rings of ours, which have room whatever others tell: those of ingesters, of write gates and
/// of query gates, and as many to come. One more is as any other.
pub const OWN_RINGS_MAX: usize = 8;

/// Longest key: a tenant and a cluster, which is a label's value, eight times its default length.
pub const KEY_BYTES_MAX: usize = 16 << 10;

/// How long things that have gone are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Members that have LEFT a ring stay that long; 0: for ever.
    pub left_ms: u64,
    /// Deleted keys stay that long; 0: for ever.
    pub deleted_ms: u64,
}

/// A value that is told of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub value: Value,
    pub deleted: bool,
    /// Unix milliseconds; 0 is unknown.
    pub updated_at_ms: i64,
}

/// What others need to hear of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    pub value: Value,
    /// Of the key, after the change.
    pub version: u64,
    pub deleted: bool,
    pub updated_at_ms: i64,
}

/// What a merge came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// `None`: nobody needs to hear of it.
    pub change: Option<Change>,
    /// Of the key's ring, if it has one and that was looked through.
    pub tombstones: Option<Tombstones>,
    /// Of what was told.
    pub left_out: LeftOut,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairsError {
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// Cortex's text.
    #[error("version mismatch")]
    VersionMismatch,
    #[error("a key of {bytes} bytes is longer than {KEY_BYTES_MAX}")]
    KeyTooLong { bytes: usize },
    #[error("there are {KEYS_TOLD_MAX} keys already, and the rest is for our own")]
    TooManyKeys,
    #[error("the keys and replicas have {bytes} bytes, more than {TEXT_BYTES_TOLD_MAX}")]
    TooLongTexts { bytes: usize },
    #[error("there are {KEYS_MAX} keys already")]
    TooManyOwnKeys,
    #[error("there are {RINGS_MAX} rings besides ours already")]
    TooManyRings,
}

/// A key's value for those who use it: without what has LEFT, and nothing while it is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    pub version: u64,
    pub form: VisibleForm,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleForm {
    Nothing,
    /// Encoded before, and not changed since.
    Encoded(Bytes),
    Value(Value),
}

/// A key's visible value as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub bytes: Bytes,
    /// Of the key.
    pub version: u64,
    /// Number of the store's change that made it.
    pub change: u64,
    /// When that was encoded, Unix milliseconds.
    pub at_ms: i64,
}

/// When a key changed last, as numbers of changes of the whole store; 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedAt {
    pub any: u64,
    /// More than a ring's heartbeats.
    pub moved: u64,
}

#[derive(Clone, Debug)]
pub struct Pairs {
    retention: Retention,
    entries: BTreeMap<String, Entry>,
    /// Keys by the number of their latest change.
    order: BTreeMap<u64, String>,
    changes: u64,
    /// Keys of rings that this process uses.
    own_rings: BTreeSet<String>,
    strange_rings: usize,
    /// Of keys and elected replicas.
    text_bytes: usize,
}

impl Pairs {
    pub fn new(retention: Retention) -> Self {
        Self {
            retention,
            entries: BTreeMap::new(),
            order: BTreeMap::new(),
            changes: 0,
            own_rings: BTreeSet::new(),
            strange_rings: 0,
            text_bytes: 0,
        }
    }

    /// Keeps room for a ring that this process uses, whatever else is told. What is there under
    /// its key and is no ring was told by somebody who is wrong, and goes.
    pub fn claim_ring(&mut self, key: &str) {
        let has_room = self.own_rings.len() < OWN_RINGS_MAX && key.len() <= KEY_BYTES_MAX;
        if !has_room || self.own_rings.contains(key) {
            return;
        }
        self.own_rings.insert(key.to_owned());
        match self.entries.get(key).map(|entry| entry.value.kind()) {
            Some(ValueKind::Ring) => self.strange_rings -= 1,
            Some(ValueKind::Replica) => self.remove(key),
            None => {}
        }
    }

    /// Takes what another member tells of a key.
    ///
    /// A word from farther in the future than clocks differ says nothing of the key's deletion: it
    /// would be the last one. What the value tells is heard all the same, for such a word goes with
    /// whatever honest members tell of the key from then on.
    pub fn merge(&mut self, key: &str, told: Told, now_ms: i64) -> Result<Outcome, PairsError> {
        let max_ms = now_ms.saturating_add(AHEAD_MAX_S * 1000);
        let updated_at_ms = told.updated_at_ms;
        if updated_at_ms <= max_ms {
            return self.settle(key, told, Origin::Peer, Author::Other, now_ms);
        }
        let told = Told { deleted: false, updated_at_ms: 0, ..told };
        let mut outcome = self.settle(key, told, Origin::Peer, Author::Other, now_ms)?;
        outcome.left_out.future += 1;
        let why = || LeftOutError::FutureWord { max_ms, updated_at_ms };
        outcome.left_out.why.get_or_insert_with(why);
        Ok(outcome)
    }

    /// Writes what we made of the key's value of that version; 0: there was none.
    ///
    /// Cortex refuses if the version has grown since, so that a member that came meanwhile does
    /// not count as taken out. In a large ring that would be nearly always, since each heartbeat
    /// makes a version. What has to be as it was is less: that nothing but heartbeats came, and
    /// none of a member that the new value leaves out. The other heartbeats are newer than their
    /// copies in the new value, and merging keeps them.
    pub fn swap(
        &mut self,
        key: &str,
        version: u64,
        mut value: Value,
        now_ms: i64,
    ) -> Result<Outcome, PairsError> {
        let mut updated_at_ms = now_ms;
        if version == 0 && self.is_of_another_kind(key, value.kind()) {
            // Told by somebody who is wrong, or who wants it out of our reach.
            self.remove(key);
        }
        if let Some(entry) = self.entries.get(key) {
            if version > 0 && !entry.may_swap(version, &value) {
                return Err(PairsError::VersionMismatch);
            }
            if version > 0 {
                entry.outstamp(version, &mut value, now_ms);
            }
            // A value that is made after a deletion ends it, whatever the clocks of the two say.
            if entry.deleted {
                updated_at_ms = updated_at_ms.max(entry.updated_at_ms.saturating_add(1));
            }
        } else if version > 0 {
            return Err(PairsError::VersionMismatch);
        }
        let told = Told { value, deleted: false, updated_at_ms };
        let origin = if version > 0 { Origin::OwnSwap } else { Origin::Peer };
        self.settle(key, told, origin, Author::Own, now_ms)
    }

    /// Marks a key as deleted; one that is not there stays so.
    pub fn delete(&mut self, key: &str, now_ms: i64) -> Result<Outcome, PairsError> {
        let Some(entry) = self.entries.get(key).filter(|entry| !entry.deleted) else {
            return Ok(Outcome::default());
        };
        // At least as late as what it deletes, or others would not hear it.
        let updated_at_ms = now_ms.max(entry.updated_at_ms);
        let told = Told { value: entry.value.clone(), deleted: true, updated_at_ms };
        self.settle(key, told, Origin::Peer, Author::Own, now_ms)
    }

    /// Drops keys that were deleted long ago, and tells which.
    pub fn sweep(&mut self, now_ms: i64) -> Vec<String> {
        if self.retention.deleted_ms == 0 {
            return Vec::new();
        }
        let kept_ms = i64::try_from(self.retention.deleted_ms).unwrap_or(i64::MAX);
        let is_over =
            |entry: &Entry| entry.deleted && now_ms.saturating_sub(entry.updated_at_ms) > kept_ms;
        let is_over = self.entries.iter().filter(|(_, entry)| is_over(entry));
        let swept: Vec<String> = is_over.map(|(key, _)| key.clone()).collect();
        swept.iter().for_each(|key| self.remove(key));
        swept
    }

    pub fn visible(&self, key: &str) -> Visible {
        self.entries
            .get(key)
            .map_or(Visible { version: 0, form: VisibleForm::Nothing }, Entry::visible)
    }

    /// Whether what is there under the key is no value of the kind that its user keeps there. Of a
    /// ring of ours it never is.
    pub fn is_of_another_kind(&self, key: &str, kind: ValueKind) -> bool {
        !self.own_rings.contains(key)
            && self.entries.get(key).is_some_and(|entry| entry.value.kind() != kind)
    }

    /// What was encoded of a key within that time, if it brings something newer than that change;
    /// else it is to be encoded anew. Heartbeats may be missing in it, nothing else.
    pub fn lately_encoded(
        &self,
        key: &str,
        seen: u64,
        within_ms: i64,
        now_ms: i64,
    ) -> Option<Encoded> {
        let entry = self.entries.get(key).filter(|entry| !entry.deleted)?;
        let encoded = entry.encoded.as_ref()?;
        // By a clock that went back it may be of any age.
        let is_late = (0..within_ms).contains(&now_ms.saturating_sub(encoded.at_ms));
        (encoded.change > seen && is_late).then(|| encoded.clone())
    }

    /// Keeps an encoded visible value for those who ask next, unless there is a newer one.
    pub fn keep_encoded(&mut self, key: &str, encoded: Encoded) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let is_newer = entry.encoded.as_ref().is_none_or(|kept| kept.version < encoded.version);
        if is_newer && encoded.version <= entry.version {
            entry.encoded = Some(encoded);
        }
    }

    pub fn changed_at(&self, key: &str) -> ChangedAt {
        self.entries.get(key).map(|entry| entry.changed_at).unwrap_or_default()
    }

    /// The number of the latest change of any key.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Keys under a prefix that are not deleted, in order.
    pub fn under(&self, prefix: &str) -> impl Iterator<Item = (&String, &Entry)> {
        let from = self.entries.range(prefix.to_owned()..);
        let under = from.take_while(move |(key, _)| key.starts_with(prefix));
        under.filter(|(_, entry)| !entry.deleted)
    }

    /// Keys under a prefix that changed behind that change, deleted ones included.
    pub fn changed_since(
        &self,
        prefix: &str,
        change: u64,
    ) -> impl Iterator<Item = (&String, &Entry)> {
        let since = self.order.range(change.saturating_add(1)..);
        let keys = since.map(|(_, key)| key).filter(move |key| key.starts_with(prefix));
        keys.filter_map(|key| self.entries.get_key_value(key))
    }

    /// All keys, deleted ones included.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    /// The same, those of our rings ahead of all others.
    pub fn own_first(&self) -> impl Iterator<Item = (&String, &Entry)> {
        let own = self.own_rings.iter().filter_map(|key| self.entries.get_key_value(key));
        own.chain(self.entries.iter().filter(|(key, _)| !self.own_rings.contains(*key)))
    }

    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Merges the value, settles whether the key is deleted, and says what others need to hear.
    fn settle(
        &mut self,
        key: &str,
        told: Told,
        origin: Origin,
        author: Author,
        now_ms: i64,
    ) -> Result<Outcome, PairsError> {
        let kind = told.value.kind();
        self.check_room(key, &told.value, author)?;
        let left_ms = self.retention.left_ms;
        let bytes_before = self.entries.get(key).map_or(0, |entry| text_bytes(key, &entry.value));
        let outcome = match self.entries.get_mut(key) {
            Some(entry) => entry.settle(key, told, origin, now_ms, left_ms)?,
            None => {
                let mut entry = Entry::new(kind);
                let mut outcome = entry.settle(key, told, origin, now_ms, left_ms)?;
                if outcome.change.is_none() {
                    // Nobody reads the counts of a key that is not there.
                    outcome.tombstones = None;
                } else {
                    self.strange_rings += usize::from(self.is_strange_ring(key, kind));
                    self.entries.insert(key.to_owned(), entry);
                }
                outcome
            }
        };
        if outcome.change.is_some() {
            self.number(key);
        }
        let bytes = self.entries.get(key).map_or(0, |entry| text_bytes(key, &entry.value));
        self.text_bytes = self.text_bytes - bytes_before + bytes;
        Ok(outcome)
    }

    fn check_room(&self, key: &str, value: &Value, author: Author) -> Result<(), PairsError> {
        let kind = value.kind();
        if key.len() > KEY_BYTES_MAX {
            return Err(PairsError::KeyTooLong { bytes: key.len() });
        }
        if self.own_rings.contains(key) {
            // Nobody else says what is under it.
            let held = ValueKind::Ring;
            return if kind == held {
                Ok(())
            } else {
                Err(MergeError::Kind { held, told: kind }.into())
            };
        }
        if author == Author::Other {
            let held = self.entries.get(key).map_or(0, |entry| text_bytes(key, &entry.value));
            let told = text_bytes(key, value);
            let bytes = self.text_bytes - held + told;
            if told > held && bytes > TEXT_BYTES_TOLD_MAX {
                return Err(PairsError::TooLongTexts { bytes });
            }
        }
        if self.entries.contains_key(key) {
            return Ok(());
        }
        match author {
            Author::Other if self.entries.len() >= KEYS_TOLD_MAX => Err(PairsError::TooManyKeys),
            Author::Own if self.entries.len() >= KEYS_MAX => Err(PairsError::TooManyOwnKeys),
            _ if kind == ValueKind::Ring && self.strange_rings >= RINGS_MAX => {
                Err(PairsError::TooManyRings)
            }
            Author::Own | Author::Other => Ok(()),
        }
    }

    fn is_strange_ring(&self, key: &str, kind: ValueKind) -> bool {
        kind == ValueKind::Ring && !self.own_rings.contains(key)
    }

    fn remove(&mut self, key: &str) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.order.remove(&entry.changed_at.any);
        self.strange_rings -= usize::from(self.is_strange_ring(key, entry.value.kind()));
        self.text_bytes -= text_bytes(key, &entry.value);
    }

    /// Gives the key's change the next number.
    fn number(&mut self, key: &str) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.changes += 1;
        self.order.remove(&entry.changed_at.any);
        self.order.insert(self.changes, key.to_owned());
        entry.changed_at.any = self.changes;
        if entry.moved_version == entry.version {
            entry.changed_at.moved = self.changes;
        }
    }
}

/// What a key takes beside a ring, which has a bound of its own.
fn text_bytes(key: &str, value: &Value) -> usize {
    let replica = match value {
        Value::Ring(_) => 0,
        Value::Replica(elected) => elected.replica.len(),
    };
    2 * key.len() + replica
}

#[cfg(test)]
mod tests;
