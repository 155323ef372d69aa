//! The walk of a key, told step by step: who is met, who is taken, and why.

use crate::keys::RingKey;
use crate::ring::{Choice, End, Operation, Placement, RingSnapshot, Step as WalkStep, Walker};

use super::report::{Outcome, Step, WalkRow};

/// Steps of a walk that are shown. A set of three is mostly full after four; where a zone is
/// full, hundreds of tokens may be passed, all for the same reason.
const ROWS_MAX: usize = 64;

/// Name of a token's owner that is not in the tenant's part of the ring.
const ABSENT: &str = "(outside the tenant's part)";

/// A walk that was told.
pub(super) struct Walked {
    pub step: Step,
    /// Our member is in the set.
    pub is_ours: bool,
    /// Ids and addresses of the set, in its order; those that can serve now are marked.
    pub set: Vec<Holder>,
}

pub(super) struct Holder {
    pub id: String,
    pub address: String,
    pub serves: bool,
}

/// Walks for `key` by the code that places it.
pub(super) fn walked(
    ring: &RingSnapshot,
    place: &Placement<'_>,
    key: RingKey,
    op: Operation,
) -> Walked {
    let own_id = ring.settings().own_id.as_deref();
    let circle = place.layout.circle();
    if circle.is_empty() {
        let says = "the ring has no tokens: it is empty, or has not been read yet";
        let step = Step::new("walk", "Walk of the ring", Outcome::Unknown, says);
        return Walked { step, is_ours: false, set: Vec::new() };
    }
    let start = circle.search(key);
    let mut walker = Walker::new(place.layout, op);
    let mut teller = Teller { place, own_id, rows: Vec::new(), left_out: 0 };
    let end = walker.walk_watched(start, |step| teller.see(step));
    let Teller { rows, left_out, .. } = teller;
    let present = |index: usize| place.members.get(index).filter(|_| index < place.members_len);
    let set: Vec<Holder> = walker
        .found()
        .iter()
        .map(|member| match present(member.index()) {
            None => Holder { id: ABSENT.to_owned(), address: String::new(), serves: false },
            Some(member) => Holder {
                id: member.id.to_string(),
                address: member.addr.to_string(),
                serves: place.health.serves(member, op),
            },
        })
        .collect();
    let names: Vec<&str> = set.iter().map(|holder| holder.id.as_str()).collect();
    let says = format!(
        "the key leads to position {} with token {}; from there the walk takes {}, and ends \
         since {}",
        start.0,
        circle.tokens()[start.index()].0,
        if names.is_empty() { "nobody".to_owned() } else { names.join(", ") },
        match end {
            End::Full => "all seats are taken",
            End::FullTurn => "every token has been looked at",
            End::NobodyElse => "nobody is left who could be taken",
        }
    );
    let mut step = Step::new("walk", "Walk of the ring", Outcome::Noted, says)
        .fact("tokens", circle.len())
        .fact("members", place.members_len)
        .fact("replication factor", ring.settings().replication_factor)
        .fact("zone awareness", if place.health.zone_aware { "on" } else { "off" })
        .fact("writes are extended past", extension(op));
    step.walk = rows;
    step.walk_left_out = left_out;
    let is_ours = own_id.is_some_and(|own| names.contains(&own));
    Walked { step, is_ours, set }
}

fn extension(op: Operation) -> &'static str {
    match op {
        Operation::Write => "members that are not ACTIVE",
        Operation::WriteNoExtend => "READONLY members only",
        Operation::Read | Operation::Reporting => "nobody: this is no write",
    }
}

/// Turns steps into rows.
struct Teller<'a> {
    place: &'a Placement<'a>,
    own_id: Option<&'a str>,
    rows: Vec<WalkRow>,
    left_out: usize,
}

impl Teller<'_> {
    fn see(&mut self, step: WalkStep) {
        if self.rows.len() == ROWS_MAX {
            self.left_out += 1;
            return;
        }
        let row = self.row(step);
        self.rows.push(row);
    }

    fn row(&self, WalkStep { position, member, choice }: WalkStep) -> WalkRow {
        let token = self.place.layout.circle().tokens()[position.index()].0;
        let is_taken = matches!(choice, Choice::Taken | Choice::TakenExtending);
        let Some(found) = self
            .place
            .members
            .get(member.index())
            .filter(|_| member.index() < self.place.members_len)
        else {
            let why = "owns a token that a member of the part lost to it".to_owned();
            let member = ABSENT.to_owned();
            return WalkRow {
                position: position.0,
                token,
                member,
                is_taken,
                why,
                ..WalkRow::default()
            };
        };
        let is_fresh = self.place.health.is_fresh(found.timestamp_s);
        let zone = match &*found.zone {
            "" => "its zone".to_owned(),
            zone => format!("zone {zone}"),
        };
        let mut why = match choice {
            Choice::Taken => "taken".to_owned(),
            Choice::TakenExtending => {
                format!("taken, and since it is {} another stands in for it", found.state)
            }
            Choice::TakenBefore => "passed: taken before, by another token".to_owned(),
            Choice::ZoneFull => format!("passed: {zone} has given all that it may"),
        };
        if is_taken && !is_fresh {
            why.push_str("; its heartbeat is too old: it stays the owner, but is sent nothing");
        }
        WalkRow {
            position: position.0,
            token,
            member: found.id.to_string(),
            zone: found.zone.to_string(),
            state: found.state.name().to_owned(),
            is_fresh,
            is_own: self.own_id == Some(&*found.id),
            is_taken,
            why,
        }
    }
}
