//! Who keeps which budget, by the distributors' ring.
//!
//! The owner of a key is the first member of the walk from it that is ACTIVE and healthy. Health
//! is judged at the time the ring was read: a store that is down makes nobody look dead.

use std::collections::HashMap;
use std::sync::Arc;

use crate::clients::OwnerMap;
use crate::ring::model::InstanceState;
use crate::ring::{Member, RingSnapshot};

/// Most members that can own budgets; a ring of more has the first of them, by their ids, as
/// owners, on which all gates agree.
const OWNERS_MAX: usize = u16::MAX as usize;

/// Owners by `ring` for the member `us`; a heartbeat older than `overdue_ms` is a lost member's.
pub fn owner_map(ring: &RingSnapshot, us: &str, overdue_ms: u64) -> OwnerMap {
    let members = ring.members();
    let owns: Vec<bool> = members
        .iter()
        .enumerate()
        .map(|(at, member)| at < OWNERS_MAX && is_there(member, ring.read_at_ms(), overdue_ms))
        .collect();
    let circle = ring.circle();
    let (tokens, holders) = (circle.tokens(), circle.owners());
    // Backward, so that each position whose own member is lost takes its successor's; the second
    // time round for those before the first that is not.
    let mut owner = None;
    let mut owners = vec![(0, 0); tokens.len()];
    for at in (0..tokens.len()).rev().chain((0..tokens.len()).rev()) {
        let holder = holders[at].index();
        if owns[holder] {
            owner = Some(holder as u16);
        }
        if let Some(owner) = owner {
            owners[at] = (tokens[at].0, owner);
        }
    }
    if owner.is_none() {
        owners.clear();
    }
    let ids: Vec<_> = members.iter().take(OWNERS_MAX).map(|one| Arc::clone(&one.id)).collect();
    OwnerMap::new(&owners, &ids, us)
}

/// Where each member of `ring` is reached.
pub fn addresses(ring: &RingSnapshot) -> HashMap<Arc<str>, Arc<str>> {
    let members = ring.members().iter();
    members.map(|member| (Arc::clone(&member.id), Arc::clone(&member.addr))).collect()
}

fn is_there(member: &Member, read_at_ms: i64, overdue_ms: u64) -> bool {
    let age_ms = read_at_ms.saturating_sub(member.timestamp_s.saturating_mul(1000));
    member.state == InstanceState::Active && age_ms <= i64::try_from(overdue_ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Key, KeyHasher, Kind};
    use crate::keys::RingKey;
    use crate::ring::model::{Instance, RingModel};
    use crate::ring::{RingSettings, Token};

    const READ_AT_MS: i64 = 1_000_000;

    fn ring(members: &[(&str, InstanceState, i64)]) -> RingSnapshot {
        let mut model = RingModel::default();
        for (at, (id, state, age_s)) in members.iter().enumerate() {
            let tokens = (0..50_u32)
                .map(|token| Token((token * 1009 + at as u32 * 7919).wrapping_mul(2_654_435_761)));
            let mut tokens: Vec<_> = tokens.collect();
            tokens.sort_unstable();
            let instance = Instance {
                addr: format!("{id}:9095"),
                timestamp_s: READ_AT_MS / 1000 - age_s,
                state: *state,
                tokens,
                zone: String::new(),
                registered_timestamp_s: 0,
                unknown_fields: Vec::new(),
            };
            model.instances.insert((*id).to_owned(), instance);
        }
        let settings = RingSettings {
            replication_factor: 1,
            zone_awareness_enabled: false,
            heartbeat_timeout_ms: 60_000,
            extend_writes: false,
            own_id: Some("a".to_owned()),
        };
        RingSnapshot::build(&model, READ_AT_MS, Arc::new(settings), None)
    }

    #[test]
    fn the_owner_is_the_first_of_the_walk_that_is_there() {
        use InstanceState::{Active, Joining, Leaving};
        let members = [
            ("a", Active, 0),
            ("b", Active, 7),
            ("c", Leaving, 0),
            ("d", Active, 6),
            ("e", Joining, 0),
        ];
        let ring = ring(&members);
        let map = owner_map(&ring, "a", 6_000);
        let hasher = KeyHasher::new([9; crate::clients::key::KEY_SECRET_BYTES]);
        let mut seen = [0; 2];
        for at in 0..2000 {
            let client = at.to_string();
            let key = Key { kind: Kind::ClientWrites, tenant: "t", client: &client };
            let hash = hasher.hash(key);
            let tokens = ring.circle().tokens();
            let mut position = ring.circle().search(RingKey(hash.on_ring())).index();
            let expect = loop {
                let member = &members[ring.circle().owners()[position].index()];
                if member.1 == Active && member.2 <= 6 {
                    break member.0;
                }
                position = (position + 1) % tokens.len();
            };
            let is_ours = map.is_here(hash);
            assert_eq!(is_ours, expect == "a", "{at}");
            seen[usize::from(is_ours)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 200), "{seen:?}");
    }

    #[test]
    fn nobody_owns_anything_when_nobody_is_there() {
        let ring = ring(&[("a", InstanceState::Leaving, 0), ("b", InstanceState::Active, 100)]);
        let map = owner_map(&ring, "a", 6_000);
        assert!(map.is_same_as(&OwnerMap::new(&[], map.members(), "a")));
    }
}
