//! Shuffle sharding: the part of the ring that a tenant with a shard size is routed in.
//!
//! Cortex draws a tenant's members from Go's random sequence, seeded by the tenant and the zone,
//! so that every process comes to the same subring. In each zone a draw is a key looked up among
//! that zone's tokens; the walk goes on to the first member not yet in the shard. READONLY
//! members are taken on the way and do not count, nor do those registered within the lookback.
//!
//! A subring keeps the ring's token owners: a token that a member claims and lost to one outside
//! the shard leads to that absent member, which the walk takes like any other.

use std::sync::Arc;

use md5::{Digest, Md5};

use super::circle::{Circle, Claim, MemberIndex};
use super::go_rand::GoRand;
use super::model::{InstanceState, Position};
use super::ownership::{self, OwnView, Run, UnknownOwnership};
use super::snapshot::{Health, Member, Placement, RingSnapshot};
use super::walk::{GetError, Layout, Operation, ReplicaSet, Seating, Walker};
use crate::keys::{KeySet, RingKey};

/// Seed of the draws for an identifier (a tenant) in a zone; the empty zone adds nothing.
pub fn shuffle_shard_seed(identifier: &str, zone: &str) -> i64 {
    let mut hash = Md5::new();
    hash.update(identifier);
    if !zone.is_empty() {
        hash.update([0]);
        hash.update(zone);
    }
    let digest = hash.finalize();
    digest[..8].iter().fold(0, |seed, &byte| seed << 8 | i64::from(byte))
}

/// Members that a shard takes from each zone: its size is rounded up to what the zones divide.
pub fn expected_instances_per_zone(shard_size: i64, zones: usize) -> i64 {
    (shard_size as f64 / zones as f64).ceil() as i64
}

/// Members of a shard over all zones; without zone awareness the ring counts as one zone.
pub fn expected_instances(shard_size: i64, zones: usize) -> i64 {
    expected_instances_per_zone(shard_size, zones).saturating_mul(zones as i64)
}

/// Which of Cortex's three kinds of shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardRule {
    /// The size is spread evenly, rounded up in every zone. Writes use this.
    Balanced,
    /// The size is met exactly: one step of size changes one member.
    ZoneStable,
    /// As balanced, with members that registered at this time (Unix seconds) or later on top.
    /// For reads only.
    Lookback { since_s: i64 },
}

impl ShardRule {
    /// All who have been part of the shard within `lookback_ms` before `now_ms`.
    pub fn lookback(now_ms: i64, lookback_ms: i64) -> Self {
        Self::Lookback { since_s: now_ms.saturating_sub(lookback_ms).div_euclid(1000) }
    }
}

/// A tenant's part of the ring, to walk in.
#[derive(Debug)]
pub struct Subring {
    shard: Arc<Shard>,
    /// As in the layout: the shard's members, then an empty member for each absent one.
    members: Box<[Member]>,
    health: Health,
}

/// What an ingester needs to know of a tenant's subring.
#[derive(Clone, Debug)]
pub struct TenantView {
    /// Our keys in it; none when we are not in the shard.
    pub keys: Arc<KeySet>,
    /// Our exact share of the key space in it.
    pub share: f64,
    /// Members of the subring.
    pub instances: usize,
    /// The snapshot generation it was made from.
    pub generation: u64,
}

impl RingSnapshot {
    /// The subring of `identifier`, or `None` when that is the whole ring: no shard size, or one
    /// that takes every member.
    pub fn subring(&self, identifier: &str, size: i64, rule: ShardRule) -> Option<Subring> {
        let members = self.shard_members(identifier, size, rule)?;
        Some(Subring::of(Arc::new(Shard::new(self, members)), self))
    }

    /// What we own of a tenant's series, given its shard size.
    pub fn tenant_view(&self, tenant: &str, size: i64) -> Result<TenantView, UnknownOwnership> {
        let owned = match self.own() {
            OwnView::Known(owned) => owned,
            OwnView::Unknown(reason) => return Err(*reason),
        };
        let view = |keys: Arc<KeySet>, share, instances| TenantView {
            keys,
            share,
            instances,
            generation: self.generation(),
        };
        let Some(members) = self.shard_members(tenant, size, ShardRule::Balanced) else {
            return Ok(view(Arc::clone(&owned.keys), owned.share, self.members().len()));
        };
        let instances = members.len();
        let own_id = self.settings().own_id.as_deref();
        let own = own_id.and_then(|id| self.member_index(id));
        let Some(own) = own.filter(|own| members.binary_search(own).is_ok()) else {
            return Ok(view(Arc::new(KeySet::none()), 0.0, instances));
        };
        let keys = match self.rivals(&members, own) {
            Some(rivals) => {
                let rivals: Vec<_> = rivals.iter().map(|rival| self.tokens_of(*rival)).collect();
                ownership::keys_up_to_own(self.tokens_of(own), &rivals)
            }
            None => {
                let shard = Shard::new(self, members);
                let runs = shard.owned_runs(self, own, self.settings().write_operation());
                ownership::key_set(&runs, shard.layout.circle().tokens())
            }
        };
        let share = keys.share();
        Ok(view(Arc::new(keys), share, instances))
    }

    /// The members of a shard whose tokens alone bound what `own` holds in it: those of its own
    /// zone that use up that zone's only seat. `None` where other zones matter too.
    ///
    /// With as many zones as replicas, each of them capped, a zone gives exactly one member
    /// whatever the others give. That is how most clusters run, and it leaves a third of the
    /// tokens to look at, each list in order already.
    fn rivals(&self, members: &[MemberIndex], own: MemberIndex) -> Option<Vec<MemberIndex>> {
        let layout = &self.topology().layout;
        let mut zones: Vec<_> = members.iter().map(|member| layout.seating(*member).zone).collect();
        zones.sort_unstable();
        zones.dedup();
        let is_one_each = layout.rule().for_zones(zones.len()).is_one_each(&zones);
        if !is_one_each || !layout.circle().contested().is_empty() {
            return None;
        }
        let own_zone = layout.seating(own).zone;
        let op = self.settings().write_operation();
        let is_rival = |member: &MemberIndex| {
            let Seating { zone, state } = layout.seating(*member);
            *member != own && zone == own_zone && !op.extends(state)
        };
        Some(members.iter().copied().filter(is_rival).collect())
    }

    /// The members that a shard takes, sorted, or `None` for all.
    fn shard_members(
        &self,
        identifier: &str,
        size: i64,
        rule: ShardRule,
    ) -> Option<Vec<MemberIndex>> {
        if size <= 0 || self.members().len() as i64 <= size {
            return None;
        }
        let mut draw = Draw {
            snapshot: self,
            rule,
            taken: vec![false; self.members().len()],
            members: Vec::with_capacity(size as usize),
        };
        if !self.settings().zone_awareness_enabled {
            draw.take(size, shuffle_shard_seed(identifier, ""), None);
        } else {
            let zones = self.zones();
            let zones_len = zones.len() as i64;
            for (zone, index) in zones.iter().zip(0..) {
                let size = match rule {
                    // The first zones give one more while the remainder lasts.
                    ShardRule::ZoneStable => {
                        size / zones_len + i64::from(i64::from(index) < size % zones_len)
                    }
                    _ => expected_instances_per_zone(size, zones.len()),
                };
                draw.take(size, shuffle_shard_seed(identifier, zone), Some(index));
            }
        }
        draw.members.sort_unstable();
        Some(draw.members)
    }
}

impl Subring {
    fn of(shard: Arc<Shard>, ring: &RingSnapshot) -> Self {
        let nobody = Member {
            id: "".into(),
            addr: "".into(),
            zone: "".into(),
            state: InstanceState::Active,
            timestamp_s: 0,
            registered_timestamp_s: 0,
        };
        let members = shard.members.iter().map(|member| ring.members()[member.index()].clone());
        let absent = shard.layout.members_len() - shard.members.len();
        let members = members.chain(std::iter::repeat_n(nobody, absent)).collect();
        Self { members, health: ring.health(), shard }
    }

    /// The same subring with the heartbeats and addresses of a later reading of the ring, whose
    /// fingerprint is still that of the ring it was drawn from: then the draw is the same, too.
    pub fn renewed(&self, ring: &RingSnapshot) -> Self {
        Self::of(Arc::clone(&self.shard), ring)
    }

    /// Where keys are placed: in this part of the ring.
    pub fn placement(&self) -> Placement<'_> {
        Placement {
            layout: &self.shard.layout,
            members: &self.members,
            members_len: self.shard.members.len(),
            health: self.health,
        }
    }

    /// The shard's members by id, without the absent ones.
    pub fn members(&self) -> &[Member] {
        &self.members[..self.shard.members.len()]
    }

    pub fn circle(&self) -> &Circle {
        self.shard.layout.circle()
    }

    /// Sorted distinct zones of its members.
    pub fn zones(&self) -> Vec<Arc<str>> {
        let mut zones: Vec<_> = self.members().iter().map(|member| member.zone.clone()).collect();
        zones.sort_unstable();
        zones.dedup();
        zones
    }

    /// The members that hold `key`, in walk order, whatever their health; `None` is an absent one.
    pub fn walk(&self, key: RingKey, op: Operation) -> Vec<Option<&Member>> {
        let members = self.members();
        let walked = self.shard.layout.walk(key, op);
        walked.into_iter().map(|member| members.get(member.index())).collect()
    }

    pub fn get(&self, key: RingKey, op: Operation) -> Result<ReplicaSet<'_>, GetError> {
        Walker::new(&self.shard.layout, op).get(&self.members, &self.health, key)
    }

    /// The positions that a member holds for `op`; nothing for one outside the shard.
    pub fn owned_runs(&self, ring: &RingSnapshot, id: &str, op: Operation) -> Vec<Run> {
        let member = ring.member_index(id);
        member.map_or_else(Vec::new, |member| self.shard.owned_runs(ring, member, op))
    }
}

/// The members of a shard being drawn.
struct Draw<'a> {
    snapshot: &'a RingSnapshot,
    rule: ShardRule,
    taken: Vec<bool>,
    members: Vec<MemberIndex>,
}

impl Draw<'_> {
    /// Takes `count` members, and those that do not count, from the tokens of one zone or of all.
    fn take(&mut self, count: i64, seed: i64, zone: Option<u32>) {
        let layout = &self.snapshot.topology().layout;
        let circle = layout.circle();
        let mut random = GoRand::new(seed);
        let mut left = self.can_take(zone);
        for _ in 0..count {
            let key = RingKey(random.next_u32());
            if left == 0 || circle.is_empty() {
                return;
            }
            let mut index = circle.search(key).0;
            let mut counted = false;
            for _ in 0..circle.len() {
                let position = Position(index);
                index = if index as usize + 1 == circle.len() { 0 } else { index + 1 };
                if zone.is_some_and(|zone| layout.seating(circle.holder(position)).zone != zone) {
                    continue;
                }
                let member = circle.owner(position);
                if self.taken[member.index()] {
                    continue;
                }
                self.taken[member.index()] = true;
                self.members.push(member);
                left -= 1;
                counted = self.counts(member);
                if counted || left == 0 {
                    break;
                }
            }
            if !counted {
                return;
            }
        }
    }

    /// At most how many members the zone's tokens lead to: stops the search through the whole
    /// ring for one more when a zone is exhausted.
    fn can_take(&self, zone: Option<u32>) -> u32 {
        let layout = &self.snapshot.topology().layout;
        match zone {
            // A contested token may lead from one zone to a member of another.
            Some(_) if !layout.circle().contested().is_empty() => self.taken.len() as u32,
            Some(zone) => layout.owners_by_zone()[zone as usize],
            None => layout.owners_by_zone().iter().sum(),
        }
    }

    fn counts(&self, member: MemberIndex) -> bool {
        let member = &self.snapshot.members()[member.index()];
        let looked_back = match self.rule {
            ShardRule::Lookback { since_s } => member.registered_timestamp_s >= since_s,
            _ => false,
        };
        !looked_back && member.state != InstanceState::ReadOnly
    }
}

/// A shard laid out as a ring of its own.
#[derive(Debug)]
struct Shard {
    /// Sorted. The layout's members are these, then the absent owners of their lost tokens.
    members: Vec<MemberIndex>,
    layout: Layout,
}

impl Shard {
    fn new(ring: &RingSnapshot, members: Vec<MemberIndex>) -> Self {
        let topology = ring.topology();
        let contested = topology.layout.circle().contested();
        let mut absent: Vec<MemberIndex> = Vec::new();
        let tokens_len = members.iter().map(|&member| ring.tokens_of(member).len()).sum();
        let mut claims = Vec::with_capacity(tokens_len);
        for (&member, index) in members.iter().zip(0..) {
            let tokens = ring.tokens_of(member).iter();
            if contested.is_empty() {
                claims.extend(tokens.map(|&token| Claim::new(token, MemberIndex(index))));
                continue;
            }
            for &token in tokens {
                let contest = contested.binary_search_by_key(&token, |(token, _)| *token);
                let owner = match contest {
                    Ok(at) => local(contested[at].1, &members, &mut absent),
                    Err(_) => MemberIndex(index),
                };
                claims.push(Claim::new(token, owner));
            }
        }
        let seating = |member: &MemberIndex| topology.layout.seating(*member);
        let mut zones: Vec<_> = members.iter().map(|member| seating(member).zone).collect();
        zones.sort_unstable();
        zones.dedup();
        let rule = topology.layout.rule().for_zones(zones.len());
        // Of an absent member the subring knows no state, and takes it for ACTIVE.
        let as_active = |member| Seating { state: InstanceState::Active, ..seating(member) };
        let seatings = members.iter().map(seating).chain(absent.iter().map(as_active)).collect();
        let layout = Layout::new(Circle::new(claims), seatings, rule, topology.zones.len());
        Self { members, layout }
    }

    fn owned_runs(&self, ring: &RingSnapshot, member: MemberIndex, op: Operation) -> Vec<Run> {
        let Ok(local) = self.members.binary_search(&member) else {
            return Vec::new();
        };
        let local = MemberIndex(local as u32);
        ownership::owned_runs(&self.layout, local, ring.tokens_of(member), op)
    }
}

/// The shard's own index of a ring member.
fn local(
    member: MemberIndex,
    members: &[MemberIndex],
    absent: &mut Vec<MemberIndex>,
) -> MemberIndex {
    let index = members.binary_search(&member).unwrap_or_else(|_| {
        let known = absent.iter().position(|other| *other == member);
        members.len()
            + known.unwrap_or_else(|| {
                absent.push(member);
                absent.len() - 1
            })
    });
    MemberIndex(index as u32)
}
