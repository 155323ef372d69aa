//! The ring at one moment: immutable, published whole, loaded once per request.
//!
//! A snapshot has two halves. The topology (members' ids, zones, states and tokens, and all that
//! follows from them) is what ownership depends on; it is shared from snapshot to snapshot while
//! its fingerprint stays. The heartbeats come with every read and are cheap to replace.
//!
//! Health and counts are judged at the time the ring was read, as Cortex does, so they stay
//! frozen while it cannot be read.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3Default;

use super::circle::{Circle, Claim, MemberIndex};
use super::model::{Heartbeat, Instance, InstanceState, RingModel, Token};
use super::ownership::{self, KeyRange, OwnView, Owned, Run, UnknownOwnership};
use super::walk::{GetError, Layout, Operation, ReplicaSet, SeatRule, Seating, Walker, ZoneIndex};
use crate::keys::RingKey;

/// What a ring's readers must agree on, and who we are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSettings {
    /// At least 1.
    pub replication_factor: usize,
    pub zone_awareness_enabled: bool,
    /// Age up to which a heartbeat is fresh; 0 means that every heartbeat is.
    pub heartbeat_timeout_ms: u64,
    /// Whether the distributors extend writes past every member that is not ACTIVE.
    pub extend_writes: bool,
    /// Our id in the ring, for those who are in it.
    pub own_id: Option<String>,
}

impl RingSettings {
    /// The operation whose walk defines ownership.
    pub fn write_operation(&self) -> Operation {
        if self.extend_writes { Operation::Write } else { Operation::WriteNoExtend }
    }
}

/// A member as a snapshot shows it. Its tokens are in the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: Arc<str>,
    pub addr: Arc<str>,
    pub zone: Arc<str>,
    pub state: InstanceState,
    pub timestamp_s: i64,
    /// 0 is unknown.
    pub registered_timestamp_s: i64,
}

/// Who can serve, judged at the time the ring was read.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    pub heartbeat_timeout_ms: u64,
    pub read_at_ms: i64,
    pub zone_aware: bool,
}

impl Health {
    pub fn serves(&self, member: &Member, op: Operation) -> bool {
        op.can_serve(member.state) && self.is_fresh(member.timestamp_s)
    }

    /// A heartbeat exactly as old as the timeout is fresh.
    pub fn is_fresh(&self, timestamp_s: i64) -> bool {
        let timeout_ms = i64::try_from(self.heartbeat_timeout_ms).unwrap_or(i64::MAX);
        let age_ms = self.read_at_ms.saturating_sub(timestamp_s.saturating_mul(1000));
        timeout_ms == 0 || age_ms <= timeout_ms
    }
}

/// A ring or subring as those see it who spread keys over it.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    pub layout: &'a Layout,
    /// Those of the layout, by index.
    pub members: &'a [Member],
    /// How many of them are really there; a subring also knows absent owners of tokens.
    pub members_len: usize,
    pub health: Health,
}

/// Hash of a ring's members, zones, states and tokens: while it stays, no key changes hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u128);

#[derive(Debug)]
pub struct RingSnapshot {
    settings: Arc<RingSettings>,
    topology: Arc<Topology>,
    members: Arc<[Member]>,
    read_at_ms: i64,
    healthy_count: usize,
    generation: u64,
    own: OwnView,
}

/// What ownership depends on.
#[derive(Debug)]
pub(super) struct Topology {
    fingerprint: Fingerprint,
    pub(super) layout: Layout,
    /// Sorted; the empty zone is one of them when a member names none.
    pub(super) zones: Box<[Arc<str>]>,
    pub(super) claims: Claims,
}

/// All members' tokens, each member's own in order.
#[derive(Debug, Default)]
pub(super) struct Claims {
    tokens: Vec<Token>,
    ends: Vec<usize>,
}

impl RingSnapshot {
    /// A ring that has not been read yet.
    pub fn empty(settings: Arc<RingSettings>) -> Self {
        Self::build(&RingModel::default(), 0, settings, None)
    }

    /// The snapshot of `model` as read at `read_at_ms`, after `previous` of the same settings.
    pub fn build(
        model: &RingModel,
        read_at_ms: i64,
        settings: Arc<RingSettings>,
        previous: Option<&Self>,
    ) -> Self {
        assert!(settings.replication_factor > 0, "a replication factor is at least 1");
        let claims = Claims::of(model);
        let fingerprint = fingerprint(model, &claims);
        let topology = match previous {
            Some(previous) if previous.topology.fingerprint == fingerprint => {
                Arc::clone(&previous.topology)
            }
            _ => Arc::new(Topology::build(model, claims, fingerprint, &settings)),
        };
        let members = members(model, &topology);
        let (own, generation) = match previous {
            Some(previous) if Arc::ptr_eq(&previous.topology, &topology) => previous.own_again(),
            _ => (
                own_view(&settings, &topology, &members),
                previous.map_or(0, |previous| previous.generation + 1),
            ),
        };
        Self { settings, topology, members, read_at_ms, healthy_count: 0, generation, own }
            .counted()
    }

    /// The same ring with new heartbeats, which are sorted by id.
    ///
    /// `None` when they are not exactly this ring's members: then only a whole reading will do.
    pub fn with_heartbeats(&self, heartbeats: &[Heartbeat], read_at_ms: i64) -> Option<Self> {
        if heartbeats.len() != self.members.len() {
            return None;
        }
        let mut members = Vec::with_capacity(self.members.len());
        for (member, heartbeat) in self.members.iter().zip(heartbeats) {
            if *member.id != *heartbeat.id {
                return None;
            }
            let mut member = member.clone();
            member.timestamp_s = heartbeat.timestamp_s;
            member.registered_timestamp_s = heartbeat.registered_timestamp_s;
            if *member.addr != *heartbeat.addr {
                member.addr = heartbeat.addr.as_str().into();
            }
            members.push(member);
        }
        let (own, generation) = self.own_again();
        let read = Self {
            settings: Arc::clone(&self.settings),
            topology: Arc::clone(&self.topology),
            members: members.into(),
            read_at_ms,
            healthy_count: 0,
            generation,
            own,
        };
        Some(read.counted())
    }

    /// The same ring after it could not be read for too long: what we own is unknown now.
    pub fn expired(&self) -> Self {
        Self {
            settings: Arc::clone(&self.settings),
            topology: Arc::clone(&self.topology),
            members: Arc::clone(&self.members),
            read_at_ms: self.read_at_ms,
            healthy_count: self.healthy_count,
            generation: self.generation + 1,
            own: OwnView::Unknown(UnknownOwnership::Expired),
        }
    }

    /// The same members under other settings: what would be whose if readers agreed on these.
    pub fn under(&self, settings: RingSettings) -> Self {
        let instance = |(at, member): (usize, &Member)| {
            let instance = Instance {
                addr: member.addr.to_string(),
                timestamp_s: member.timestamp_s,
                state: member.state,
                tokens: self.topology.claims.of_member(MemberIndex(at as u32)).to_vec(),
                zone: member.zone.to_string(),
                registered_timestamp_s: member.registered_timestamp_s,
                unknown_fields: Vec::new(),
            };
            (member.id.to_string(), instance)
        };
        let instances = self.members.iter().enumerate().map(instance).collect();
        let model = RingModel { instances, unknown_fields: Vec::new() };
        Self::build(&model, self.read_at_ms, Arc::new(settings), None)
    }

    /// What we own, or why we cannot tell.
    pub fn own(&self) -> &OwnView {
        &self.own
    }

    /// Grows exactly when what we own may have changed; holders of counts compare it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.topology.fingerprint
    }

    pub fn settings(&self) -> &Arc<RingSettings> {
        &self.settings
    }

    /// When the ring was read, Unix milliseconds.
    pub fn read_at_ms(&self) -> i64 {
        self.read_at_ms
    }

    /// In the order of their ids (bytes).
    pub fn members(&self) -> &Arc<[Member]> {
        &self.members
    }

    pub fn member_index(&self, id: &str) -> Option<MemberIndex> {
        find_member(&self.members, id)
    }

    /// Members that are ACTIVE with a fresh heartbeat: the N of the limits' division.
    pub fn healthy_count(&self) -> usize {
        self.healthy_count
    }

    /// Sorted distinct zones of all members, the empty one and those without tokens included.
    pub fn zones(&self) -> &[Arc<str>] {
        &self.topology.zones
    }

    pub fn circle(&self) -> &Circle {
        self.topology.layout.circle()
    }

    pub fn layout(&self) -> &Layout {
        &self.topology.layout
    }

    /// The tokens that `member` claims, sorted, whether or not it owns them.
    pub fn tokens_of(&self, member: MemberIndex) -> &[Token] {
        self.topology.claims.of_member(member)
    }

    pub fn health(&self) -> Health {
        Health {
            heartbeat_timeout_ms: self.settings.heartbeat_timeout_ms,
            read_at_ms: self.read_at_ms,
            zone_aware: self.settings.zone_awareness_enabled,
        }
    }

    /// Where keys are placed: on all of the ring.
    pub fn placement(&self) -> Placement<'_> {
        Placement {
            layout: self.layout(),
            members: &self.members,
            members_len: self.members.len(),
            health: self.health(),
        }
    }

    /// The members that hold `key`, in walk order, whatever their health.
    pub fn walk(&self, key: RingKey, op: Operation) -> Vec<MemberIndex> {
        self.topology.layout.walk(key, op)
    }

    /// Who to send `key` to.
    pub fn get(&self, key: RingKey, op: Operation) -> Result<ReplicaSet<'_>, GetError> {
        Walker::new(self.layout(), op).get(&self.members, &self.health(), key)
    }

    /// The positions that `member` holds for `op`, as runs; ours are in [`Self::own`].
    pub fn owned_runs(&self, member: MemberIndex, op: Operation) -> Vec<Run> {
        ownership::owned_runs(&self.topology.layout, member, self.tokens_of(member), op)
    }

    /// Every member's own ranges, by index; walks the whole ring.
    pub fn key_ranges(&self) -> Vec<KeyRange> {
        ownership::key_ranges(&self.topology.layout)
    }

    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Our view and the generation of a snapshot that has this one's topology.
    fn own_again(&self) -> (OwnView, u64) {
        match self.own {
            OwnView::Unknown(UnknownOwnership::Expired) => {
                (own_view(&self.settings, &self.topology, &self.members), self.generation + 1)
            }
            _ => (self.own.clone(), self.generation),
        }
    }

    fn counted(mut self) -> Self {
        let health = self.health();
        self.healthy_count =
            self.members.iter().filter(|member| health.serves(member, Operation::Write)).count();
        self
    }
}

impl Topology {
    fn build(
        model: &RingModel,
        claims: Claims,
        fingerprint: Fingerprint,
        settings: &RingSettings,
    ) -> Self {
        let mut zones: Vec<&str> = model.instances.values().map(|i| i.zone.as_str()).collect();
        zones.sort_unstable();
        zones.dedup();
        let capped_from = match zones.first() {
            _ if !settings.zone_awareness_enabled => zones.len(),
            Some(&"") => 1,
            _ => 0,
        };
        let rule =
            SeatRule::new(settings.replication_factor, zones.len(), capped_from as ZoneIndex);
        let seatings = model
            .instances
            .values()
            .map(|instance| Seating {
                zone: zones.partition_point(|zone| *zone < instance.zone.as_str()) as ZoneIndex,
                state: instance.state,
            })
            .collect();
        let circle = Circle::new(claims.all().collect());
        Self {
            fingerprint,
            layout: Layout::new(circle, seatings, rule, zones.len()),
            zones: zones.into_iter().map(Arc::from).collect(),
            claims,
        }
    }
}

impl Claims {
    fn of(model: &RingModel) -> Self {
        let tokens_len = model.instances.values().map(|instance| instance.tokens.len()).sum();
        let mut claims = Self {
            tokens: Vec::with_capacity(tokens_len),
            ends: Vec::with_capacity(model.instances.len()),
        };
        for instance in model.instances.values() {
            let start = claims.tokens.len();
            claims.tokens.extend_from_slice(&instance.tokens);
            let own = &mut claims.tokens[start..];
            // Nearly always sorted already; old writers and broken ones did not.
            if !own.is_sorted() {
                own.sort_unstable();
            }
            claims.ends.push(claims.tokens.len());
        }
        claims
    }

    pub(super) fn of_member(&self, member: MemberIndex) -> &[Token] {
        let start = member.index().checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tokens[start..self.ends[member.index()]]
    }

    fn all(&self) -> impl Iterator<Item = Claim> {
        (0..self.ends.len() as u32).map(MemberIndex).flat_map(|member| {
            self.of_member(member).iter().map(move |&token| Claim::new(token, member))
        })
    }
}

fn members(model: &RingModel, topology: &Topology) -> Arc<[Member]> {
    let zone = |index: u32| {
        let seating = topology.layout.seating(MemberIndex(index));
        Arc::clone(&topology.zones[seating.zone as usize])
    };
    let members = model.instances.iter().zip(0..).map(|((id, instance), index)| Member {
        id: id.as_str().into(),
        addr: instance.addr.as_str().into(),
        zone: zone(index),
        state: instance.state,
        timestamp_s: instance.timestamp_s,
        registered_timestamp_s: instance.registered_timestamp_s,
    });
    members.collect()
}

fn find_member(members: &[Member], id: &str) -> Option<MemberIndex> {
    let found = members.binary_search_by(|member| (*member.id).cmp(id));
    found.ok().map(|index| MemberIndex(index as u32))
}

fn own_view(settings: &RingSettings, topology: &Topology, members: &[Member]) -> OwnView {
    let Some(own_id) = &settings.own_id else {
        return OwnView::Unknown(UnknownOwnership::NoOwnId);
    };
    if members.is_empty() {
        return OwnView::Unknown(UnknownOwnership::RingEmpty);
    }
    let Some(own) = find_member(members, own_id) else {
        return OwnView::Unknown(UnknownOwnership::NotInRing);
    };
    let own_tokens = topology.claims.of_member(own);
    if own_tokens.is_empty() {
        return OwnView::Unknown(UnknownOwnership::NoTokens);
    }
    let circle = topology.layout.circle();
    let runs = ownership::owned_runs(&topology.layout, own, own_tokens, settings.write_operation());
    let keys = ownership::key_set(&runs, circle.tokens()).with_class_table();
    OwnView::Known(Owned {
        share: keys.share(),
        keys: Arc::new(keys),
        positions: Arc::new(ownership::bitmap(&runs, circle.len())),
    })
}

/// Members' hashes are added, so that it does not matter in which order the ring names them.
fn fingerprint(model: &RingModel, claims: &Claims) -> Fingerprint {
    let mut sum = 0_u128;
    for ((id, instance), index) in model.instances.iter().zip(0..) {
        let mut hash = Xxh3Default::new();
        for text in [id, &instance.zone] {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hash.update(&[instance.state as u8]);
        for tokens in claims.of_member(MemberIndex(index)).chunks(TOKENS_PER_BLOCK) {
            let mut block = [0; TOKENS_PER_BLOCK * 4];
            for (bytes, token) in block.chunks_exact_mut(4).zip(tokens) {
                bytes.copy_from_slice(&token.0.to_le_bytes());
            }
            hash.update(&block[..tokens.len() * 4]);
        }
        sum = sum.wrapping_add(hash.digest128());
    }
    Fingerprint(sum)
}

/// Tokens are hashed in blocks of 1 KiB: the hash is fast on blocks and slow on single words.
const TOKENS_PER_BLOCK: usize = 256;
