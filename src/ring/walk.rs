//! Which members hold a key: the clockwise walk, the only definition of it.
//!
//! From the key's position the walk takes distinct members until the replication factor is
//! used up. With zone awareness a zone gives at most `RF / zones` members, and `RF % zones`
//! zones may give one more. A member in a state that *extends* the set is taken without using
//! up anything, so that somebody who can write stands in for it, in the same zone. Health
//! never shapes a walk; it filters the result of [`Walker::get`].
//!
//! Ownership answers the same question from the other end, so the seats of a set are counted
//! by one type, [`Seats`], in both directions.

use super::circle::{Circle, MemberIndex};
use super::model::{InstanceState, Position};
use super::snapshot::{Health, Member};
use crate::keys::RingKey;

/// What a key is looked up for; decides which states extend the set and which can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Cortex's write with `extend-writes=true`, its default.
    Write,
    WriteNoExtend,
    Read,
    /// Asks for health alone: every state serves, none extends.
    Reporting,
}

impl Operation {
    #[inline]
    pub fn extends(self, state: InstanceState) -> bool {
        use InstanceState::{Active, Joining, Leaving, ReadOnly};
        match self {
            Self::Write => state != Active,
            Self::WriteNoExtend => state == ReadOnly,
            Self::Read => !matches!(state, Active | Leaving | Joining | ReadOnly),
            Self::Reporting => false,
        }
    }

    pub fn can_serve(self, state: InstanceState) -> bool {
        match self {
            Self::Write | Self::WriteNoExtend => state == InstanceState::Active,
            Self::Read => state != InstanceState::Left,
            Self::Reporting => true,
        }
    }
}

/// Index of a zone in the ring's sorted zones.
pub type ZoneIndex = u32;

/// How many members of which zones make a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatRule {
    replication_factor: usize,
    /// What every zone may give, and how many zones may give one more.
    per_zone: usize,
    zones_with_extra: usize,
    /// Zones from this index on are capped: none without zone awareness, else all but the empty
    /// zone, which sorts first.
    capped_from: ZoneIndex,
}

impl SeatRule {
    /// `zones_len` counts all zones of the members, also the empty one and those without tokens.
    pub fn new(replication_factor: usize, zones_len: usize, capped_from: ZoneIndex) -> Self {
        let zones = zones_len.max(1);
        Self {
            replication_factor,
            per_zone: replication_factor / zones,
            zones_with_extra: replication_factor % zones,
            capped_from,
        }
    }

    /// Whether each of these sorted zones gives exactly one member, whatever the others give.
    pub fn is_one_each(self, zones: &[ZoneIndex]) -> bool {
        self.per_zone == 1
            && self.zones_with_extra == 0
            && zones.first().is_some_and(|&zone| zone >= self.capped_from)
    }

    /// The rule of a part of the ring whose members come from `zones_len` zones.
    pub fn for_zones(self, zones_len: usize) -> Self {
        Self::new(self.replication_factor, zones_len, self.capped_from)
    }
}

/// The seats of one replica set while members come to it.
///
/// Also right when members come that are not admitted, in any order: then it tells whether the
/// next would still be admitted after all of them. Ownership rests on that.
#[derive(Debug)]
pub struct Seats {
    rule: SeatRule,
    taken: usize,
    /// Members that came, by zone.
    came: Vec<usize>,
    zones_over: usize,
}

impl Seats {
    pub fn new(rule: SeatRule, zones_len: usize) -> Self {
        Self { rule, taken: 0, came: vec![0; zones_len], zones_over: 0 }
    }

    pub fn clear(&mut self) {
        self.taken = 0;
        self.came.fill(0);
        self.zones_over = 0;
    }

    #[inline]
    pub fn are_taken(&self) -> bool {
        self.taken >= self.rule.replication_factor
    }

    #[inline]
    pub fn admit(&self, zone: ZoneIndex) -> bool {
        if self.are_taken() {
            return false;
        }
        if zone < self.rule.capped_from {
            return true;
        }
        let came = self.came[zone as usize];
        came < self.rule.per_zone
            || (came == self.rule.per_zone && self.zones_over < self.rule.zones_with_extra)
    }

    /// A member that uses up a seat comes from `zone`.
    #[inline]
    pub fn come(&mut self, zone: ZoneIndex) {
        if zone < self.rule.capped_from {
            self.taken += 1;
            return;
        }
        let came = &mut self.came[zone as usize];
        *came += 1;
        if *came <= self.rule.per_zone {
            self.taken += 1;
        } else if *came == self.rule.per_zone + 1 {
            if self.zones_over < self.rule.zones_with_extra {
                self.taken += 1;
            }
            self.zones_over += 1;
        }
    }
}

/// What a walk needs to know of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seating {
    pub zone: ZoneIndex,
    pub state: InstanceState,
}

/// Who stands where on a ring or subring, and by which rule sets are made of them.
#[derive(Debug)]
pub struct Layout {
    circle: Circle,
    seatings: Box<[Seating]>,
    rule: SeatRule,
    /// Members that own a position, by zone: who a walk can meet at all.
    owners_by_zone: Box<[u32]>,
}

impl Layout {
    /// `zones_len` bounds the zone indexes of `seatings`.
    pub fn new(circle: Circle, seatings: Box<[Seating]>, rule: SeatRule, zones_len: usize) -> Self {
        let mut owns = vec![false; seatings.len()];
        for owner in circle.owners() {
            owns[owner.index()] = true;
        }
        let mut owners_by_zone = vec![0; zones_len].into_boxed_slice();
        for (seating, _) in seatings.iter().zip(owns).filter(|(_, owns)| *owns) {
            owners_by_zone[seating.zone as usize] += 1;
        }
        Self { circle, seatings, rule, owners_by_zone }
    }

    pub fn circle(&self) -> &Circle {
        &self.circle
    }

    #[inline]
    pub fn seating(&self, member: MemberIndex) -> Seating {
        self.seatings[member.index()]
    }

    pub fn owners_by_zone(&self) -> &[u32] {
        &self.owners_by_zone
    }

    pub fn rule(&self) -> SeatRule {
        self.rule
    }

    pub fn seats(&self) -> Seats {
        Seats::new(self.rule, self.owners_by_zone.len())
    }

    /// How many of so many live members of a replica set may fail; `None` when they are too few.
    pub fn errors_allowed(&self, live: usize) -> Option<usize> {
        live.checked_sub(self.needed(live))
    }

    /// A quorum of what we write to, or of the replication factor when fewer are left.
    fn needed(&self, live: usize) -> usize {
        live.max(self.rule.replication_factor) / 2 + 1
    }

    pub fn members_len(&self) -> usize {
        self.seatings.len()
    }

    /// The members that hold `key`, in walk order, before health is looked at.
    pub fn walk(&self, key: RingKey, op: Operation) -> Vec<MemberIndex> {
        if self.circle.is_empty() {
            return Vec::new();
        }
        let mut walker = Walker::new(self, op);
        walker.walk_from(self.circle.search(key));
        walker.found
    }
}

/// How often a walk asks whether it can end at all: a set that cannot be filled would cost a
/// full turn for every key. Most walks end before the first check.
const STEPS_PER_CHECK: usize = 64;

/// Walks many keys of one layout without allocating for each.
#[derive(Debug)]
pub struct Walker<'a> {
    layout: &'a Layout,
    op: Operation,
    seats: Seats,
    found: Vec<MemberIndex>,
    found_by_zone: Vec<u32>,
    /// The turn in which a member was last taken: tells who is in the set without a search.
    taken_in_turn: Vec<u32>,
    turn: u32,
}

impl<'a> Walker<'a> {
    pub fn new(layout: &'a Layout, op: Operation) -> Self {
        Self {
            layout,
            op,
            seats: layout.seats(),
            found: Vec::new(),
            found_by_zone: vec![0; layout.owners_by_zone.len()],
            taken_in_turn: vec![0; layout.seatings.len()],
            turn: 0,
        }
    }

    /// The walk of every key that leads to `start`.
    pub fn walk_from(&mut self, start: Position) -> &[MemberIndex] {
        self.walk_watched(start, |_| {});
        &self.found
    }

    /// The same walk, which shows each step as it is made; `seen` decides nothing.
    pub fn walk_watched(&mut self, start: Position, mut seen: impl FnMut(Step)) -> End {
        self.begin_turn();
        let owners = self.layout.circle.owners();
        let mut index = start.index();
        // One full turn at the most.
        for step in 1..=owners.len() {
            if step % STEPS_PER_CHECK == 0 && !self.can_find_more() {
                return End::NobodyElse;
            }
            let (position, member) = (Position(index as u32), owners[index]);
            index = if index + 1 == owners.len() { 0 } else { index + 1 };
            if self.taken_in_turn[member.index()] == self.turn {
                seen(Step { position, member, choice: Choice::TakenBefore });
                continue;
            }
            let Seating { zone, state } = self.layout.seating(member);
            if !self.seats.admit(zone) {
                seen(Step { position, member, choice: Choice::ZoneFull });
                continue;
            }
            self.taken_in_turn[member.index()] = self.turn;
            self.found.push(member);
            self.found_by_zone[zone as usize] += 1;
            let extends = self.op.extends(state);
            if !extends {
                self.seats.come(zone);
            }
            let choice = if extends { Choice::TakenExtending } else { Choice::Taken };
            seen(Step { position, member, choice });
            if self.seats.are_taken() {
                return End::Full;
            }
        }
        End::FullTurn
    }

    /// Whom the last walk took, in its order.
    pub fn found(&self) -> &[MemberIndex] {
        &self.found
    }

    /// The replica set of `key`: its walk, less the members that cannot serve, if enough remain.
    ///
    /// `members` are those of the layout, by index.
    pub fn get<'m>(
        &mut self,
        members: &'m [Member],
        health: &Health,
        key: RingKey,
    ) -> Result<ReplicaSet<'m>, GetError> {
        if self.layout.circle.is_empty() {
            return Err(GetError::EmptyRing);
        }
        let op = self.op;
        let walked = self.walk_from(self.layout.circle.search(key)).iter();
        let (live, unhealthy): (Vec<_>, Vec<_>) = walked
            .map(|member| &members[member.index()])
            .partition(|member| health.serves(member, op));

        match self.layout.errors_allowed(live.len()) {
            Some(max_errors) => Ok(ReplicaSet { members: live, max_errors }),
            None => Err(GetError::TooFewLive(TooFewLive {
                needed: self.layout.needed(live.len()),
                live: live.len(),
                zone_aware: health.zone_aware,
                unhealthy: unhealthy.iter().map(|member| member.addr.to_string()).collect(),
            })),
        }
    }

    fn begin_turn(&mut self) {
        self.seats.clear();
        self.found.clear();
        self.found_by_zone.fill(0);
        if self.turn == u32::MAX {
            self.taken_in_turn.fill(0);
            self.turn = 0;
        }
        self.turn += 1;
    }

    /// Whether a member that is not in the set yet has a token and would be admitted.
    fn can_find_more(&self) -> bool {
        let zones = self.layout.owners_by_zone.iter().zip(&self.found_by_zone);
        (0..).zip(zones).any(|(zone, (owners, found))| found < owners && self.seats.admit(zone))
    }
}

/// One position that a walk looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub position: Position,
    pub member: MemberIndex,
    pub choice: Choice,
}

/// What a walk makes of a member that it meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It is in the set, and uses up a seat.
    Taken,
    /// It is in the set, but its state extends that: somebody stands in for it further on.
    TakenExtending,
    /// It is in the set already, by a token before this one.
    TakenBefore,
    /// Its zone has given all that it may.
    ZoneFull,
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All seats are taken.
    Full,
    /// Every token has been looked at.
    FullTurn,
    /// Nobody is left who could still be taken.
    NobodyElse,
}

/// Who to send a key to.
#[derive(Debug, PartialEq, Eq)]
pub struct ReplicaSet<'a> {
    /// Those that can serve, in walk order.
    pub members: Vec<&'a Member>,
    /// How many of them may fail.
    pub max_errors: usize,
}

/// Why a key has no replica set. The texts are Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    #[error("empty ring")]
    EmptyRing,
    #[error("{0}")]
    TooFewLive(TooFewLive),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooFewLive {
    pub needed: usize,
    pub live: usize,
    pub zone_aware: bool,
    /// Addresses of the members that were passed over, in walk order.
    pub unhealthy: Vec<String>,
}

impl std::fmt::Display for TooFewLive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let across = if self.zone_aware { " across different availability zones" } else { "" };
        write!(f, "at least {} live replicas required{across}", self.needed)?;
        write!(f, ", could only find {}", self.live)?;
        if !self.unhealthy.is_empty() {
            write!(f, " - unhealthy instances: {}", self.unhealthy.join(","))?;
        }
        Ok(())
    }
}
