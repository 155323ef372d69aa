//! A circle of any number of tokens as a bounded number of equal steps, for drawing it.
//!
//! Each step goes to the member that has most of its keys. What that leaves out is known: a step
//! says how many of its keys its member has, so that a drawing can say how true it is.

use super::circle::MemberIndex;
use super::shares::KEYS;

/// Some neighbouring keys, as one colour shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Who has most of its keys; of equals the one whose id comes first.
    pub member: MemberIndex,
    /// How many that is.
    pub held: u64,
    /// All keys of the step.
    pub width: u64,
}

/// Neighbouring steps of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sector {
    pub member: MemberIndex,
    pub first_step: u32,
    pub steps: u32,
}

/// Cuts all keys into `steps_len` steps, whose widths differ by one key at most.
///
/// `pieces` are members with the keys they have, in the order of the keys, and sum to [`KEYS`];
/// without any there are no steps.
pub fn steps(
    pieces: impl Iterator<Item = (MemberIndex, u64)>,
    members_len: usize,
    steps_len: u32,
) -> Vec<Step> {
    let end_of = |step: usize| KEYS * (step as u64 + 1) / u64::from(steps_len);
    let mut steps = Vec::with_capacity(steps_len as usize);
    let mut held = vec![0_u64; members_len];
    let mut met: Vec<MemberIndex> = Vec::new();
    let (mut passed, mut start) = (0, 0);
    for (member, width) in pieces {
        let mut left = width;
        while left > 0 {
            let end = end_of(steps.len());
            let taken = left.min(end - passed);
            if held[member.index()] == 0 {
                met.push(member);
            }
            held[member.index()] += taken;
            passed += taken;
            left -= taken;
            if passed == end {
                steps.extend(most_of(&met, &held).map(|(member, held)| Step {
                    member,
                    held,
                    width: end - start,
                }));
                for member in met.drain(..) {
                    held[member.index()] = 0;
                }
                start = end;
            }
        }
    }
    steps
}

/// The part of all keys that is with the members whose steps they are in.
pub fn held_share(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.held).sum::<u64>() as f64 / KEYS as f64
}

/// Runs of steps of one member. One that goes on over key 0 is two.
pub fn sectors(steps: &[Step]) -> Vec<Sector> {
    let mut sectors: Vec<Sector> = Vec::new();
    for (step, index) in steps.iter().zip(0..) {
        match sectors.last_mut() {
            Some(last) if last.member == step.member => last.steps += 1,
            _ => sectors.push(Sector { member: step.member, first_step: index, steps: 1 }),
        }
    }
    sectors
}

fn most_of(met: &[MemberIndex], held: &[u64]) -> Option<(MemberIndex, u64)> {
    let held = met.iter().map(|&member| (member, held[member.index()]));
    held.max_by_key(|&(member, held)| (held, std::cmp::Reverse(member)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ring::shares::Shares;
    use crate::ring::testing::{members, ring};

    fn pieces(pieces: &[(u32, u64)]) -> impl Iterator<Item = (MemberIndex, u64)> {
        pieces.iter().map(|&(member, width)| (MemberIndex(member), width))
    }

    #[test]
    fn a_step_is_of_who_has_most_of_it() {
        let quarter = KEYS / 4;
        let cut =
            steps(pieces(&[(0, quarter + 1), (1, quarter - 1), (2, quarter), (1, quarter)]), 3, 2);
        let step = |member, held| Step { member: MemberIndex(member), held, width: KEYS / 2 };
        // Of the second half both have as much; the first id is taken.
        assert_eq!(cut, [step(0, quarter + 1), step(1, quarter)]);
        assert_eq!(held_share(&cut), (2 * quarter + 1) as f64 / KEYS as f64);
        assert_eq!(steps(pieces(&[]), 0, 720), []);
    }

    #[test]
    fn neighbouring_steps_of_one_member_are_one_sector() {
        let third = KEYS / 3 + 1;
        let cut = steps(pieces(&[(1, third), (0, third), (1, KEYS - 2 * third)]), 2, 720);
        let sector =
            |member, first_step, steps| Sector { member: MemberIndex(member), first_step, steps };
        assert_eq!(sectors(&cut), [sector(1, 0, 240), sector(0, 240, 240), sector(1, 480, 240)]);
        let whole = steps(pieces(&[(0, KEYS)]), 1, 720);
        assert_eq!(sectors(&whole), [sector(0, 0, 720)]);
        assert_eq!(held_share(&whole), 1.0);
    }

    proptest! {
        #[test]
        fn steps_cover_all_keys_once_and_name_the_majority(
            members in members(),
            is_by_zone: bool,
            steps_len in prop_oneof![1_u32..9, Just(720)],
        ) {
            let ring = ring(&members, 2, is_by_zone);
            for circuit in Shares::of(&ring).circuits().iter().filter(|c| !c.is_empty()) {
                let cut = steps(circuit.pieces(), members.len(), steps_len);
                prop_assert_eq!(cut.len(), steps_len as usize);
                prop_assert_eq!(cut.iter().map(|step| step.width).sum::<u64>(), KEYS);
                prop_assert_eq!(&cut, &steps(circuit.pieces(), members.len(), steps_len));
                let drawn = sectors(&cut);
                prop_assert_eq!(drawn.iter().map(|sector| sector.steps).sum::<u32>(), steps_len);
                prop_assert!(drawn.windows(2).all(|pair| pair[0].member != pair[1].member));

                // By adding up, for each member alone, how much of each step it has.
                let mut start = 0;
                for step in cut {
                    let end = start + step.width;
                    let has = |member: u32| -> u64 {
                        let mut at = 0;
                        let mut sum = 0;
                        for (owner, width) in circuit.pieces() {
                            if owner == MemberIndex(member) {
                                sum += (at + width).min(end).saturating_sub(at.max(start));
                            }
                            at += width;
                        }
                        sum
                    };
                    let most = (0..members.len() as u32).map(has).max();
                    prop_assert_eq!(Some(step.held), most);
                    prop_assert_eq!(has(step.member.0), step.held);
                    start = end;
                }
            }
        }
    }
}
