//! What the gossiping store holds under a key: a ring, or an elected replica; the kinds that
//! Cortex registers.
//!
//! Each kind has a name that travels with the value, bytes, and a merge. A kind that we do not
//! know cannot be merged, so it is not held and not passed on, as in Cortex.

use bytes::Bytes;

use super::merge::{self, LeftOut, Origin, RingMergeError, Tombstones};
use crate::ring::model::RingModel;
use crate::wire::replica_desc::{self, ElectedReplica, ReplicaDescError};
use crate::wire::ring_desc::{self, RingDescError};

/// The kind of a value, by its name on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    Ring,
    Replica,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Ring(RingModel),
    Replica(ElectedReplica),
}

/// What a merge changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedValue {
    /// What others need to hear.
    pub change: Value,
    /// More than a ring's heartbeats.
    pub is_move: bool,
}

/// Why bytes are no value of their kind.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    #[error("failed to decode value")]
    Ring(#[from] RingDescError),
    #[error("failed to decode value")]
    Replica(#[from] ReplicaDescError),
}

/// Why a value was not merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error(transparent)]
    Ring(#[from] RingMergeError),
    /// Cortex's text.
    #[error("expected {}, got {}", held.go_type(), told.go_type())]
    Kind { held: ValueKind, told: ValueKind },
}

impl ValueKind {
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Ring, Self::Replica].into_iter().find(|kind| kind.name() == name)
    }

    /// Cortex's id of the codec.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ringDesc",
            Self::Replica => "replicaDesc",
        }
    }

    /// The value, and how many of its entries are left out as we do not understand them.
    pub fn decode(self, bytes: &[u8]) -> Result<(Value, usize), ValueError> {
        Ok(match self {
            Self::Ring => {
                let (mut ring, left_out) = ring_desc::decode_known(bytes)?;
                // Here, where nobody waits for it; merging holds a lock.
                ring.instances.values_mut().for_each(merge::normalise);
                (Value::Ring(ring), left_out)
            }
            Self::Replica => (Value::Replica(replica_desc::decode(bytes)?), 0),
        })
    }

    const fn go_type(self) -> &'static str {
        match self {
            Self::Ring => "*ring.Desc",
            Self::Replica => "*ha.ReplicaDesc",
        }
    }
}

impl Value {
    pub fn kind(&self) -> ValueKind {
        match self {
            Self::Ring(_) => ValueKind::Ring,
            Self::Replica(_) => ValueKind::Replica,
        }
    }

    /// The stored form. Fails on a ring too large to be told.
    pub fn encode(&self) -> Result<Bytes, ValueError> {
        Ok(match self {
            Self::Ring(ring) => ring_desc::encode(ring)?.into(),
            Self::Replica(elected) => replica_desc::encode(elected).into(),
        })
    }

    /// What the value tells of: a newer telling of all of it makes this one needless.
    pub fn content(&self) -> Vec<String> {
        match self {
            Self::Ring(ring) => ring.instances.keys().cloned().collect(),
            Self::Replica(elected) if elected.replica.is_empty() => Vec::new(),
            Self::Replica(elected) => vec![elected.replica.clone()],
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Ring(ring) => ring.instances.is_empty(),
            Self::Replica(elected) => elected.replica.is_empty(),
        }
    }

    /// Takes out of what another member tells what is not to be merged.
    pub fn leave_out(&self, theirs: &mut Self, now_ms: i64) -> LeftOut {
        match (self, theirs) {
            (Self::Ring(ours), Self::Ring(theirs)) => {
                merge::leave_out(ours, theirs, now_ms.div_euclid(1000))
            }
            (Self::Replica(_), Self::Replica(theirs)) => leave_out_replica(theirs, now_ms),
            _ => LeftOut::default(),
        }
    }

    /// Merges `theirs` into this; `None` when it brought nothing new. After an error this is as
    /// it was.
    pub fn merge(
        &mut self,
        theirs: Self,
        origin: Origin,
        now_ms: i64,
    ) -> Result<Option<MergedValue>, MergeError> {
        match (self, theirs) {
            (Self::Ring(ours), Self::Ring(theirs)) => {
                let merged = merge::merge(ours, theirs, origin, now_ms.div_euclid(1000))?;
                Ok(merged.map(|merged| MergedValue {
                    change: Self::Ring(merged.change),
                    is_move: merged.is_move,
                }))
            }
            (Self::Replica(ours), Self::Replica(theirs)) => {
                // One without a name is no news to anybody, so it must not take a name's place.
                if theirs.replica.is_empty() || !is_elected_over(&theirs, ours) {
                    return Ok(None);
                }
                ours.clone_from(&theirs);
                Ok(Some(MergedValue { change: Self::Replica(theirs), is_move: true }))
            }
            (ours, theirs) => Err(MergeError::Kind { held: ours.kind(), told: theirs.kind() }),
        }
    }

    /// Takes out who has LEFT a ring before that time; `None`: all who have LEFT. Replicas that
    /// are marked as deleted are their tracker's to clean up.
    pub fn remove_tombstones(&mut self, before_ms: Option<i64>) -> Tombstones {
        match self {
            Self::Ring(ring) => merge::remove_tombstones(ring, before_ms),
            Self::Replica(_) => Tombstones::default(),
        }
    }

    /// The members of a ring; nothing of what has none.
    pub(super) fn ring(&self) -> Option<&RingModel> {
        match self {
            Self::Ring(ring) => Some(ring),
            Self::Replica(_) => None,
        }
    }
}

/// An election from farther in the future than clocks differ would be the last one: no other
/// replica's samples would be taken until then. Of what is left, nothing is elected.
fn leave_out_replica(theirs: &mut ElectedReplica, now_ms: i64) -> LeftOut {
    let max_ms = now_ms.saturating_add(merge::AHEAD_MAX_S * 1000);
    let timestamp_ms = latest_ms(theirs);
    if timestamp_ms <= max_ms {
        return LeftOut::default();
    }
    let replica = std::mem::take(theirs).replica;
    let why = merge::LeftOutError::FutureReplica { replica, max_ms, timestamp_ms };
    LeftOut { future: 1, why: Some(why), ..LeftOut::default() }
}

fn latest_ms(elected: &ElectedReplica) -> i64 {
    elected.received_at_ms.max(elected.deleted_at_ms)
}

/// The later one counts; at the same time the one marked as deleted, else the lower name.
fn is_elected_over(theirs: &ElectedReplica, ours: &ElectedReplica) -> bool {
    let is_marked = |elected: &ElectedReplica| {
        elected.deleted_at_ms > 0 && elected.deleted_at_ms == latest_ms(elected)
    };
    let rank = |elected: &ElectedReplica| (latest_ms(elected), is_marked(elected));
    match rank(theirs).cmp(&rank(ours)) {
        std::cmp::Ordering::Equal => theirs.replica < ours.replica,
        order => order.is_gt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elected(replica: &str, received_at_ms: i64, deleted_at_ms: i64) -> ElectedReplica {
        ElectedReplica { replica: replica.to_owned(), received_at_ms, deleted_at_ms }
    }

    #[test]
    fn kinds_are_found_by_cortexs_names() {
        assert_eq!(ValueKind::from_name("ringDesc"), Some(ValueKind::Ring));
        assert_eq!(ValueKind::from_name("replicaDesc"), Some(ValueKind::Replica));
        assert_eq!(ValueKind::from_name("string"), None);
    }

    #[test]
    fn of_two_replicas_the_later_counts_then_the_deleted_then_the_lower_name() {
        let check = |ours: (&str, i64, i64), theirs: (&str, i64, i64), takes: bool| {
            let mut value = Value::Replica(elected(ours.0, ours.1, ours.2));
            let before = value.clone();
            let told = Value::Replica(elected(theirs.0, theirs.1, theirs.2));
            let merged = value.merge(told.clone(), Origin::Peer, 0).expect("one kind");
            assert_eq!(merged.is_some(), takes, "{ours:?} {theirs:?}");
            assert_eq!(value, if takes { told.clone() } else { before });
            assert_eq!(value.merge(told, Origin::Peer, 0), Ok(None), "once is enough");
        };
        check(("a", 10, 0), ("b", 11, 0), true);
        check(("a", 10, 0), ("b", 9, 0), false);
        check(("a", 10, 0), ("b", 10, 10), true);
        check(("a", 10, 10), ("b", 10, 0), false);
        check(("a", 5, 10), ("b", 11, 0), true);
        check(("b", 10, 0), ("a", 10, 0), true);
        check(("a", 10, 0), ("b", 10, 0), false);
        check(("a", 10, 0), ("a", 10, 0), false);
        check(("b", 1, 10), ("a", 2, 10), true);
        check(("a", 10, 0), ("", 11, 0), false);
    }

    #[test]
    fn an_election_from_too_far_ahead_is_left_out() {
        let now_ms = 1_800_000_000_000;
        let check = |received_at_ms: i64, deleted_at_ms: i64, future: usize| {
            let held = Value::Replica(elected("a", now_ms, 0));
            let mut told = Value::Replica(elected("b", received_at_ms, deleted_at_ms));
            assert_eq!(held.leave_out(&mut told, now_ms).future, future);
            assert_eq!(told.is_empty(), future > 0);
        };
        let max_ms = now_ms + 30 * 60 * 1000;
        check(max_ms, 0, 0);
        check(max_ms + 1, 0, 1);
        check(now_ms, max_ms + 1, 1);
        check(i64::MAX, i64::MAX, 1);
    }

    #[test]
    fn values_of_different_kinds_are_not_merged() {
        let mut ring = Value::Ring(RingModel::default());
        let merged = ring.merge(Value::Replica(elected("a", 1, 0)), Origin::Peer, 0);
        let error = merged.expect_err("no ring").to_string();
        assert_eq!(error, "expected *ring.Desc, got *ha.ReplicaDesc");
    }
}
