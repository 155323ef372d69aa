//! Who has LEFT a ring and is still remembered, by the time of the leaving.
//!
//! Each change of a ring is an occasion to take out whose time is over. Looking for them among all
//! members would cost each heartbeat as much as the ring is large, so they are kept in order.
//!
//! Invariants: a member is in `by_time` once, with the time that `times` has for it.

use std::collections::{BTreeMap, BTreeSet};

use super::merge::Tombstones;
use crate::ring::model::{Instance, InstanceState, RingModel};

/// Of one ring: exactly its members that have LEFT, as long as it is told of each change.
#[derive(Clone, Debug, Default)]
pub struct TombstoneIndex {
    by_time: BTreeSet<(i64, String)>,
    /// When each left, Unix seconds.
    times: BTreeMap<String, i64>,
}

impl TombstoneIndex {
    /// Notes how a member stands in the ring; `None`: it is no longer in there.
    pub fn note(&mut self, id: &str, entry: Option<&Instance>) {
        let left_at_s =
            entry.filter(|entry| entry.state == InstanceState::Left).map(|entry| entry.timestamp_s);
        if self.times.get(id).copied() == left_at_s {
            return;
        }
        if let Some((id, before_s)) = self.times.remove_entry(id) {
            self.by_time.remove(&(before_s, id));
        }
        if let Some(left_at_s) = left_at_s {
            self.by_time.insert((left_at_s, id.to_owned()));
            self.times.insert(id.to_owned(), left_at_s);
        }
    }

    /// Takes out of the ring who has LEFT before that time, Unix milliseconds.
    pub fn expire(&mut self, ring: &mut RingModel, before_ms: i64) -> Tombstones {
        let mut removed = 0;
        while let Some((left_at_s, id)) = self.by_time.pop_first() {
            if left_at_s.saturating_mul(1000) >= before_ms {
                self.by_time.insert((left_at_s, id));
                break;
            }
            self.times.remove(&id);
            ring.instances.remove(&id);
            removed += 1;
        }
        Tombstones { kept: self.times.len(), removed }
    }
}

#[cfg(test)]
mod tests {
    use super::super::merge::remove_tombstones;
    use super::*;
    use proptest::prelude::*;

    fn entry(state: InstanceState, timestamp_s: i64) -> Instance {
        Instance {
            addr: String::new(),
            timestamp_s,
            state,
            tokens: Vec::new(),
            zone: String::new(),
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        }
    }

    /// A member leaves, lives again, goes altogether; or time goes by.
    fn step() -> impl Strategy<Value = (u8, u8, i64)> {
        (0..4_u8, 0..6_u8, 0..40_i64)
    }

    proptest! {
        #[test]
        fn those_go_that_a_look_at_all_members_finds(
            steps in proptest::collection::vec(step(), 0..60),
        ) {
            let mut ring = RingModel::default();
            let mut index = TombstoneIndex::default();
            for (kind, member, time) in steps {
                let id = format!("m{member}");
                match kind {
                    0 | 1 => {
                        let state = [InstanceState::Left, InstanceState::Active][usize::from(kind)];
                        ring.instances.insert(id.clone(), entry(state, time));
                    }
                    2 => drop(ring.instances.remove(&id)),
                    _ => {
                        let mut rival = ring.clone();
                        let expected = remove_tombstones(&mut rival, Some(time * 1000 - 500));
                        prop_assert_eq!(index.expire(&mut ring, time * 1000 - 500), expected);
                        prop_assert_eq!(&ring, &rival);
                    }
                }
                index.note(&id, ring.instances.get(&id));
                prop_assert_eq!(index.by_time.len(), index.times.len());
            }
        }
    }
}
