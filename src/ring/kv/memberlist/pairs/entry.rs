//! One key: its value, what was said of it last, and what its users and its neighbours see of it.
//!
//! Invariants: `touched` has each member of a ring once; `tombstones` has those that have LEFT.

use std::collections::BTreeMap;

use super::super::merge::{AHEAD_MAX_S, LeftOut, Origin};
use super::super::tombstones::TombstoneIndex;
use super::super::value::{MergedValue, Value, ValueKind};
use super::{Change, ChangedAt, Encoded, Outcome, PairsError, Told, Visible, VisibleForm};

/// One key, deleted or not.
#[derive(Clone, Debug)]
pub struct Entry {
    pub value: Value,
    pub version: u64,
    pub deleted: bool,
    /// Unix milliseconds of the last write or deletion that we know of; 0 is unknown.
    pub updated_at_ms: i64,
    pub(super) changed_at: ChangedAt,
    /// Version of the latest change that was more than a ring's heartbeats.
    pub(super) moved_version: u64,
    /// The version of each ring member's latest change.
    pub(super) touched: BTreeMap<String, u64>,
    tombstones: TombstoneIndex,
    /// Of this version, or of an earlier one and nothing but heartbeats came since.
    pub(super) encoded: Option<Encoded>,
}

impl Entry {
    pub(super) fn new(kind: ValueKind) -> Self {
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
            tombstones: TombstoneIndex::default(),
            encoded: None,
        }
    }

    pub(super) fn settle(
        &mut self,
        key: &str,
        told: Told,
        origin: Origin,
        now_ms: i64,
        left_ms: u64,
    ) -> Result<Outcome, PairsError> {
        let Told { mut value, deleted, updated_at_ms } = told;
        let left_out = match origin {
            Origin::Peer => self.value.leave_out(&mut value, now_ms),
            Origin::OwnSwap => LeftOut::default(),
        };
        let merged = self.value.merge(value, origin, now_ms)?;
        if let Some(merged) = &merged {
            self.note_left(&merged.change);
            if merged.is_move {
                self.encoded = None;
            }
        }
        let merged = merged.filter(|merged| !merged.change.is_empty());
        let is_later = updated_at_ms > self.updated_at_ms;
        // Of a write and a deletion at the same time the deletion counts.
        let is_said = (is_later && (deleted || self.deleted))
            || (updated_at_ms == self.updated_at_ms && deleted && !self.deleted);
        if merged.is_none() && !is_said {
            return Ok(Outcome { left_out, ..Outcome::default() });
        }
        let MergedValue { mut change, is_move } = match merged {
            Some(merged) => merged,
            // The value is told again, to carry the word.
            None => MergedValue { change: self.value.clone(), is_move: true },
        };
        let mut tombstones = None;
        if left_ms > 0 {
            let left_ms = i64::try_from(left_ms).unwrap_or(i64::MAX);
            let before_ms = now_ms.saturating_sub(left_ms);
            if let Value::Ring(ring) = &mut self.value {
                tombstones = Some(self.tombstones.expire(ring, before_ms));
            }
            change.remove_tombstones(Some(before_ms));
            if change.is_empty() && !is_said {
                return Ok(Outcome { change: None, tombstones, left_out });
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
        Ok(Outcome { change: Some(change), tombstones, left_out })
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

    fn note_left(&mut self, change: &Value) {
        let (Some(changed), Some(ring)) = (change.ring(), self.value.ring()) else { return };
        for id in changed.instances.keys() {
            self.tombstones.note(id, ring.instances.get(id));
        }
    }

    /// Stamps what was written of a member later than what is held of it, where that is ahead of
    /// our clock: somebody said it whose clock is, or who lies. What we write ourselves would
    /// count as old until our clock has come so far, which may be half an hour; an end of ours,
    /// too. Which entries were written is told by what the writer has read: what changed since then
    /// it has not seen, and the copy in its value is an old one.
    pub(super) fn outstamp(&self, version: u64, value: &mut Value, now_ms: i64) {
        let (Some(held), Value::Ring(new)) = (self.value.ring(), value) else { return };
        let now_s = now_ms.div_euclid(1000);
        let max_s = now_s.saturating_add(AHEAD_MAX_S);
        for (id, entry) in &mut new.instances {
            let Some(held) = held.instances.get(id).filter(|held| held.timestamp_s > now_s) else {
                continue;
            };
            let is_as_read = self.touched.get(id).is_none_or(|touched| *touched <= version);
            if is_as_read && entry != held {
                // Others would leave out what is farther ahead.
                let later_s = held.timestamp_s.saturating_add(1).min(max_s);
                entry.timestamp_s = entry.timestamp_s.max(later_s);
            }
        }
    }

    /// Whether a value made from that version may still be written.
    pub(super) fn may_swap(&self, version: u64, value: &Value) -> bool {
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
            Some(encoded) if encoded.version == self.version => {
                VisibleForm::Encoded(encoded.bytes.clone())
            }
            _ => {
                let mut value = self.value.clone();
                value.remove_tombstones(None);
                VisibleForm::Value(value)
            }
        };
        Visible { version: self.version, form }
    }
}
