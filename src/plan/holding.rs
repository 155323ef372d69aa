//! Who holds what of a key space: of the whole ring, or of a tenant's subring.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::keys::{KeySet, RingKey};
use crate::ring::{Operation, ReplicaSet, RingSnapshot, ShardRule, Subring, Token, ownership};

/// Each member's keys, and the replica sets of all keys.
pub(super) struct Holding {
    keys: BTreeMap<Arc<str>, KeySet>,
    replicas: Vec<Replicas>,
}

/// Keys that lead to one replica set.
pub(super) struct Replicas {
    /// Of the whole key space, in 0..=1.
    pub(super) part: f64,
    pub(super) members: Vec<Arc<str>>,
    /// How many of them may refuse.
    pub(super) max_errors: usize,
}

impl Holding {
    /// Of a tenant with this shard size, 0 for none.
    pub(super) fn new(ring: &RingSnapshot, tenant: &str, shard_size: i64) -> Self {
        let op = ring.settings().write_operation();
        match ring.subring(tenant, shard_size, ShardRule::Balanced) {
            Some(subring) => Self::of_shard(ring, &subring, op),
            None => Self::of_ring(ring, op),
        }
    }

    fn of_ring(ring: &RingSnapshot, op: Operation) -> Self {
        let tokens = ring.circle().tokens();
        let keys = ring.members().iter().filter_map(|member| {
            let runs = ring.owned_runs(ring.member_index(&member.id)?, op);
            Some((Arc::clone(&member.id), ownership::key_set(&runs, tokens)))
        });
        let keys = keys.collect();
        let replicas = replicas(tokens, |key| ring.get(key, op).ok());
        Self { keys, replicas }
    }

    fn of_shard(ring: &RingSnapshot, subring: &Subring, op: Operation) -> Self {
        let tokens = subring.circle().tokens();
        let keys = subring.members().iter().map(|member| {
            let runs = subring.owned_runs(ring, &member.id, op);
            (Arc::clone(&member.id), ownership::key_set(&runs, tokens))
        });
        let keys = keys.collect();
        let replicas = replicas(tokens, |key| subring.get(key, op).ok());
        Self { keys, replicas }
    }

    /// Part of the key space that a member holds.
    pub(super) fn share(&self, id: &str) -> f64 {
        self.keys.get(id).map_or(0.0, KeySet::share)
    }

    /// Part that it holds here or there.
    pub(super) fn share_of_both(&self, other: &Self, id: &str) -> f64 {
        match (self.keys.get(id), other.keys.get(id)) {
            (Some(here), Some(there)) => here.share() + there.share() - here.common_share(there),
            _ => self.share(id) + other.share(id),
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Arc<str>> {
        self.keys.keys()
    }

    pub(super) fn replicas(&self) -> &[Replicas] {
        &self.replicas
    }
}

/// The replica set of each range of keys; a range that nobody can be written to has none.
fn replicas<'a>(
    tokens: &[Token],
    get: impl Fn(RingKey) -> Option<ReplicaSet<'a>>,
) -> Vec<Replicas> {
    let Some(&last) = tokens.last() else { return Vec::new() };
    let mut before = last;
    let mut all = Vec::with_capacity(tokens.len());
    for &token in tokens {
        // A token that stands twice ends one range only.
        let width = match token.0.wrapping_sub(before.0) {
            0 if tokens.len() > 1 => continue,
            0 => 1 << 32,
            width => u64::from(width),
        };
        // A key that equals a token belongs to the range behind it.
        if let Some(set) = get(RingKey(before.0)) {
            all.push(Replicas {
                part: width as f64 / (1_u64 << 32) as f64,
                members: set.members.iter().map(|member| Arc::clone(&member.id)).collect(),
                max_errors: set.max_errors,
            });
        }
        before = token;
    }
    all
}
