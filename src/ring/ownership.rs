//! Which keys are ours, worked out once per ring instead of once per series.
//!
//! Whether the walk from position `p` reaches us depends on the *set* of distinct members that
//! use up seats between `p` and our next token, not on their order, and that set only grows as
//! `p` moves back. So the positions we hold are one run ending at each of our own tokens, and a
//! backward walk from those tokens alone finds them: its cost follows what we own, not the size
//! of the ring, and a replica set that cannot be filled costs nothing extra.
//!
//! Invariant: a position is in a run iff a walk from it yields the member.

use std::sync::Arc;

use bitvec::boxed::BitBox;

use super::circle::MemberIndex;
use super::model::{Position, Token};
use super::walk::{Layout, Operation, Seating};
use crate::keys::KeySet;

/// What this instance owns of the whole ring.
#[derive(Clone, Debug)]
pub enum OwnView {
    Known(Owned),
    Unknown(UnknownOwnership),
}

/// Known ownership; cheap to clone.
#[derive(Clone, Debug)]
pub struct Owned {
    pub keys: Arc<KeySet>,
    /// Share of the key space, in 0..=1; over all instances the shares sum to the replication
    /// factor where replica sets can be filled.
    pub share: f64,
    /// One bit per position.
    pub positions: Arc<BitBox>,
}

/// Why we cannot tell which keys are ours. Never read as "none" and never as "no limit".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum UnknownOwnership {
    #[error("no instance id is configured")]
    NoOwnId,
    #[error("the ring has no instances")]
    RingEmpty,
    #[error("this instance is not in the ring")]
    NotInRing,
    #[error("this instance has no tokens")]
    NoTokens,
    #[error("the ring could not be read for too long")]
    Expired,
}

/// Positions from `first` clockwise to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub first: Position,
    pub last: Position,
}

/// The positions whose walk yields `member`, as runs in the order of their ends.
///
/// `own_tokens` are all tokens that the member claims, sorted.
pub fn owned_runs(
    layout: &Layout,
    member: MemberIndex,
    own_tokens: &[Token],
    op: Operation,
) -> Vec<Run> {
    let owners = layout.circle().owners();
    let own_zone = layout.seating(member).zone;
    let mut seats = layout.seats();
    let mut met_in_run = vec![0_u32; layout.members_len()];
    let mut runs: Vec<Run> = Vec::with_capacity(own_tokens.len());

    for last in own_positions(layout, member, own_tokens) {
        let run_number = runs.len() as u32 + 1;
        let mut first = last;
        seats.clear();
        loop {
            let before = if first == 0 { owners.len() - 1 } else { first - 1 };
            let met = owners[before];
            // Our token before this one ends the run it belongs to; on a full turn it is `last`.
            if met == member {
                break;
            }
            let Seating { zone, state } = layout.seating(met);
            if met_in_run[met.index()] != run_number && !op.extends(state) {
                met_in_run[met.index()] = run_number;
                seats.come(zone);
                if !seats.admit(own_zone) {
                    break;
                }
            }
            first = before;
        }
        runs.push(Run { first: Position(first as u32), last: Position(last as u32) });
    }
    runs
}

fn own_positions<'a>(
    layout: &'a Layout,
    member: MemberIndex,
    own_tokens: &'a [Token],
) -> impl Iterator<Item = usize> + 'a {
    let distinct =
        own_tokens.iter().enumerate().filter(|&(i, token)| i == 0 || own_tokens[i - 1] != *token);
    // A token that a greater member claims too is not ours, though we hold a copy.
    distinct
        .flat_map(|(_, token)| layout.circle().positions_of(*token))
        .filter(move |&position| layout.circle().owner(Position(position)) == member)
        .map(|position| position as usize)
}

/// One bit per position.
pub fn bitmap(runs: &[Run], positions_len: usize) -> BitBox {
    let mut bits = bitvec::bitvec![0; positions_len];
    for run in runs {
        let (first, last) = (run.first.index(), run.last.index());
        if first <= last {
            bits[first..=last].fill(true);
        } else {
            bits[first..].fill(true);
            bits[..=last].fill(true);
        }
    }
    bits.into_boxed_bitslice()
}

/// The keys that lead to the positions of `runs`: from the token before a run, which belongs to
/// the run's first position, up to its last token, which belongs to the position after it.
pub fn key_set(runs: &[Run], tokens: &[Token]) -> KeySet {
    let mut toggles = Vec::with_capacity(runs.len() * 2);
    // Only the run of our first token can reach over key 0. Its start is the greatest bound, so
    // it goes last and the bounds come out sorted.
    let mut start_before_zero = None;
    for run in runs {
        let (first, last) = (run.first.index(), run.last.index());
        if first == 0 || first > last {
            start_before_zero = Some(tokens[if first == 0 { tokens.len() } else { first } - 1].0);
        } else {
            toggles.push(tokens[first - 1].0);
        }
        toggles.push(tokens[last].0);
    }
    toggles.extend(start_before_zero);
    KeySet::from_toggles(start_before_zero.is_some(), toggles)
}

/// The keys up to each of `own` tokens from the token before it, ours or a rival's.
///
/// What [`key_set`] gives where nobody but the rivals uses up a seat that we could have. All
/// lists are sorted, `own` is not empty, and no token is in two of them.
pub fn keys_up_to_own(own: &[Token], rivals: &[&[Token]]) -> KeySet {
    let mut toggles = Vec::with_capacity(own.len() * 2 + 1);
    let mut passed = vec![0; rivals.len()];
    let mut before = None;
    for &token in own {
        for (rival, passed) in rivals.iter().zip(&mut passed) {
            *passed += rival[*passed..].iter().take_while(|&&other| other < token).count();
            before = before.max(passed.checked_sub(1).map(|last| rival[last]));
        }
        toggles.extend(before.map(|before| before.0));
        toggles.push(token.0);
        before = Some(token);
    }
    // The first range of all may begin on the far side of key 0, at the last token there is.
    let reaches_over_zero = toggles.len() % 2 == 1;
    if reaches_over_zero {
        let lasts = rivals.iter().chain([&own]).filter_map(|tokens| tokens.last());
        toggles.extend(lasts.max().map(|last| last.0));
    }
    KeySet::from_toggles(reaches_over_zero, toggles)
}

/// What one member's tokens make of the ring, replication aside: for pages and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// Positions the member owns.
    pub positions: u32,
    /// Width of the ranges that end there, of 2^32. Cortex counts the range of a token that
    /// stands twice as the whole ring, so the sum can be larger.
    pub width: u64,
    /// The same where each zone is a ring of its own.
    pub width_in_zone: u64,
}

/// The ranges of every member, by index.
pub fn key_ranges(layout: &Layout) -> Vec<KeyRange> {
    let circle = layout.circle();
    let mut ranges = vec![KeyRange::default(); layout.members_len()];
    let Some(&last) = circle.tokens().last() else {
        return ranges;
    };
    let mut before = last;
    let zone_of = |index| layout.seating(circle.holder(Position(index))).zone as usize;
    let mut before_in_zone = vec![None; layout.owners_by_zone().len()];
    for index in 0..circle.len() as u32 {
        before_in_zone[zone_of(index)] = Some(circle.tokens()[index as usize]);
    }
    for (index, &token) in circle.tokens().iter().enumerate() {
        let range = &mut ranges[circle.owners()[index].index()];
        range.positions += 1;
        range.width += distance(before, token);
        before = token;
        // A copy that lost its token still stands in its holder's zone, for the winner.
        if let Some(before) = before_in_zone[zone_of(index as u32)].replace(token) {
            range.width_in_zone += distance(before, token);
        }
    }
    ranges
}

/// Keys from one token clockwise to the next; a token is a whole turn away from itself.
fn distance(from: Token, to: Token) -> u64 {
    let forward = u64::from(to.0.wrapping_sub(from.0));
    if forward == 0 { 1 << 32 } else { forward }
}
