//! The keys of the gossiping store and what happens to them. No locks, no clock, no tasks.
//!
//! Data and deletion are settled apart, as in Cortex: a value merges by its kind's rule, and
//! whether the key counts as deleted is what was said last. A deleted key keeps its value until
//! all have heard of the deletion, then it goes.
//!
//! Invariants: a value's version grows with each change that others hear of; `order` has each key
//! once, under the number of its latest change; `touched` has each member of a ring once.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::merge::{Origin, Tombstones};
use super::value::{MergeError, MergedValue, Value, ValueKind};
use crate::ring::kv::prefix::PAIRS_MAX;

/// Most keys, deleted ones included: as many as are followed under a prefix. A peer that tells of
/// more is not heard.
pub const KEYS_MAX: usize = PAIRS_MAX;

/// Most rings; Cortex has eight. They are the large values, and each may take
/// [`RING_BYTES_MAX`](super::merge::RING_BYTES_MAX) as stored.
pub const RINGS_MAX: usize = 64;

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
    #[error("there are {KEYS_MAX} keys already")]
    TooManyKeys,
    #[error("there are {RINGS_MAX} rings already")]
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

/// When a key changed last, as numbers of changes of the whole store; 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedAt {
    pub any: u64,
    /// More than a ring's heartbeats.
    pub moved: u64,
}

/// One key, deleted or not.
#[derive(Clone, Debug)]
pub struct Entry {
    pub value: Value,
    pub version: u64,
    pub deleted: bool,
    /// Unix milliseconds of the last write or deletion that we know of; 0 is unknown.
    pub updated_at_ms: i64,
    changed_at: ChangedAt,
    /// Version of the latest change that was more than a ring's heartbeats.
    moved_version: u64,
    /// The version of each ring member's latest change.
    touched: BTreeMap<String, u64>,
    /// What [`VisibleForm::Encoded`] gives out.
    encoded: Option<Bytes>,
}

#[derive(Clone, Debug)]
pub struct Pairs {
    retention: Retention,
    entries: BTreeMap<String, Entry>,
    /// Keys by the number of their latest change.
    order: BTreeMap<u64, String>,
    changes: u64,
    rings: usize,
}

impl Pairs {
    pub fn new(retention: Retention) -> Self {
        Self { retention, entries: BTreeMap::new(), order: BTreeMap::new(), changes: 0, rings: 0 }
    }

    /// Takes what another member tells of a key.
    pub fn merge(&mut self, key: &str, told: Told, now_ms: i64) -> Result<Outcome, PairsError> {
        self.settle(key, told, Origin::Peer, now_ms)
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
        value: Value,
        now_ms: i64,
    ) -> Result<Outcome, PairsError> {
        let mut updated_at_ms = now_ms;
        if let Some(entry) = self.entries.get(key) {
            if version > 0 && !entry.may_swap(version, &value) {
                return Err(PairsError::VersionMismatch);
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
        self.settle(key, told, origin, now_ms)
    }

    /// Marks a key as deleted; one that is not there stays so.
    pub fn delete(&mut self, key: &str, now_ms: i64) -> Result<Outcome, PairsError> {
        let Some(entry) = self.entries.get(key).filter(|entry| !entry.deleted) else {
            return Ok(Outcome::default());
        };
        // At least as late as what it deletes, or others would not hear it.
        let updated_at_ms = now_ms.max(entry.updated_at_ms);
        let told = Told { value: entry.value.clone(), deleted: true, updated_at_ms };
        self.settle(key, told, Origin::Peer, now_ms)
    }

    /// Drops keys that were deleted long ago, and tells which.
    pub fn sweep(&mut self, now_ms: i64) -> Vec<String> {
        if self.retention.deleted_ms == 0 {
            return Vec::new();
        }
        let kept_ms = i64::try_from(self.retention.deleted_ms).unwrap_or(i64::MAX);
        let is_over = |_: &String, entry: &mut Entry| {
            entry.deleted && now_ms.saturating_sub(entry.updated_at_ms) > kept_ms
        };
        let swept: Vec<(String, Entry)> = self.entries.extract_if(.., is_over).collect();
        for (_, entry) in &swept {
            self.order.remove(&entry.changed_at.any);
            self.rings -= usize::from(entry.value.kind() == ValueKind::Ring);
        }
        swept.into_iter().map(|(key, _)| key).collect()
    }

    pub fn visible(&self, key: &str) -> Visible {
        self.entries
            .get(key)
            .map_or(Visible { version: 0, form: VisibleForm::Nothing }, Entry::visible)
    }

    /// Keeps an encoded visible value for those who ask next, unless it is an old one by now.
    pub fn keep_encoded(&mut self, key: &str, version: u64, bytes: &Bytes) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.version == version) {
            entry.encoded = Some(bytes.clone());
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
        now_ms: i64,
    ) -> Result<Outcome, PairsError> {
        let kind = told.value.kind();
        self.check_room(key, kind)?;
        let left_ms = self.retention.left_ms;
        let outcome = match self.entries.get_mut(key) {
            Some(entry) => entry.settle(key, told, origin, now_ms, left_ms)?,
            None => {
                let mut entry = Entry::new(kind);
                let mut outcome = entry.settle(key, told, origin, now_ms, left_ms)?;
                if outcome.change.is_none() {
                    // Nobody reads the counts of a key that is not there.
                    outcome.tombstones = None;
                } else {
                    self.rings += usize::from(kind == ValueKind::Ring);
                    self.entries.insert(key.to_owned(), entry);
                }
                outcome
            }
        };
        if outcome.change.is_some() {
            self.number(key);
        }
        Ok(outcome)
    }

    fn check_room(&self, key: &str, kind: ValueKind) -> Result<(), PairsError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(PairsError::KeyTooLong { bytes: key.len() });
        }
        if self.entries.contains_key(key) {
            return Ok(());
        }
        if self.entries.len() >= KEYS_MAX {
            return Err(PairsError::TooManyKeys);
        }
        if kind == ValueKind::Ring && self.rings >= RINGS_MAX {
            return Err(PairsError::TooManyRings);
        }
        Ok(())
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

impl Entry {
    fn new(kind: ValueKind) -> Self {
        let value = match kind {
            ValueKind::Ring => Value::Ring(Default::default()),
            ValueKind::Replica => Value::Replica(Default::default()),
        };
        Self {
            value,
            version: 0,
            deleted: false,
            updated_at_ms: 0,
            changed_at: ChangedAt::default(),
            moved_version: 0,
            touched: BTreeMap::new(),
            encoded: None,
        }
    }

    fn settle(
        &mut self,
        key: &str,
        told: Told,
        origin: Origin,
        now_ms: i64,
        left_ms: u64,
    ) -> Result<Outcome, PairsError> {
        let Told { value, deleted, updated_at_ms } = told;
        let merged = self.value.merge(value, origin, now_ms)?;
        if merged.is_some() {
            self.encoded = None;
        }
        let merged = merged.filter(|merged| !merged.change.is_empty());
        let is_later = updated_at_ms > self.updated_at_ms;
        // Of a write and a deletion at the same time the deletion counts.
        let is_said = (is_later && (deleted || self.deleted))
            || (updated_at_ms == self.updated_at_ms && deleted && !self.deleted);
        if merged.is_none() && !is_said {
            return Ok(Outcome::default());
        }
        let MergedValue { mut change, is_move } = match merged {
            Some(merged) => merged,
            // The value is told again, to carry the word.
            None => MergedValue { change: self.value.clone(), is_move: true },
        };
        let mut tombstones = None;
        if left_ms > 0 {
            let left_ms = i64::try_from(left_ms).unwrap_or(i64::MAX);
            let before_ms = Some(now_ms.saturating_sub(left_ms));
            let found = self.value.remove_tombstones(before_ms);
            tombstones = self.value.ring().map(|_| found);
            change.remove_tombstones(before_ms);
            if change.is_empty() && !is_said {
                return Ok(Outcome { change: None, tombstones });
            }
        }
        let is_turned = is_said && deleted != self.deleted;
        if is_said {
            self.deleted = deleted;
        }
        self.updated_at_ms = self.updated_at_ms.max(updated_at_ms);
        self.version += 1;
        if is_move || is_turned || self.version == 1 {
            self.moved_version = self.version;
        }
        self.touch(&change);
        let change = Change {
            key: key.to_owned(),
            value: change,
            version: self.version,
            deleted: self.deleted,
            updated_at_ms: self.updated_at_ms,
        };
        Ok(Outcome { change: Some(change), tombstones })
    }

    /// Notes which members of a ring this version changed, and forgets those that have gone.
    fn touch(&mut self, change: &Value) {
        let (Some(changed), Some(ring)) = (change.ring(), self.value.ring()) else { return };
        for id in changed.instances.keys() {
            match self.touched.get_mut(id) {
                Some(version) => *version = self.version,
                None => {
                    self.touched.insert(id.clone(), self.version);
                }
            }
        }
        if self.touched.len() > ring.instances.len() {
            self.touched.retain(|id, _| ring.instances.contains_key(id));
        }
    }

    /// Whether a value made from that version may still be written.
    fn may_swap(&self, version: u64, value: &Value) -> bool {
        if version == self.version {
            return true;
        }
        let (Some(ours), Some(new)) = (self.value.ring(), value.ring()) else { return false };
        let is_left_out = |id: &&String| !new.instances.contains_key(*id);
        version < self.version
            && self.moved_version <= version
            && ours
                .instances
                .keys()
                .filter(is_left_out)
                .all(|id| self.touched.get(id).is_none_or(|touched| *touched <= version))
    }

    /// The entry as others are told of it.
    pub fn told(&self) -> Told {
        let Self { value, deleted, updated_at_ms, .. } = self;
        Told { value: value.clone(), deleted: *deleted, updated_at_ms: *updated_at_ms }
    }

    pub fn visible(&self) -> Visible {
        let form = match &self.encoded {
            _ if self.deleted => VisibleForm::Nothing,
            Some(bytes) => VisibleForm::Encoded(bytes.clone()),
            None => {
                let mut value = self.value.clone();
                value.remove_tombstones(None);
                VisibleForm::Value(value)
            }
        };
        Visible { version: self.version, form }
    }
}

#[cfg(test)]
mod tests;
