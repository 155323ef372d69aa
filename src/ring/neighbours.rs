//! One member among the others: who takes its keys when it leaves, and who writes go to with it.

use std::collections::BTreeMap;

use super::circle::MemberIndex;
use super::model::{Position, Token};
use super::ownership;
use super::shares::{Circuit, KEYS, Stretch};
use super::snapshot::RingSnapshot;
use super::walk::{Operation, Walker};

/// A stretch of the member, and who has it next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnStretch {
    pub stretch: Stretch,
    /// Who takes it when the member leaves; `None` where there is nobody else.
    pub heir: Option<MemberIndex>,
}

/// What passes between the member and one other of its circuit when either leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// Keys that the other takes when the member leaves.
    pub given: u64,
    /// Keys that come to the member when the other leaves.
    pub taken: u64,
}

/// Where writes go that lead to the member's tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSets {
    pub walks: usize,
    /// Each of so many of the member's tokens was walked from: 1 is all of them.
    pub every: usize,
    /// How many walks gave so many members; states that extend a set make it larger.
    pub by_len: BTreeMap<usize, usize>,
    /// Walks on whose members a write fails now, since too few of them can take it.
    pub too_few_live: usize,
    /// The others, and in how many walks each is; most first.
    pub partners: Vec<(MemberIndex, usize)>,
}

impl Circuit {
    /// The stretches of `member`, in the order of its tokens.
    pub fn stretches_of(&self, member: MemberIndex) -> Vec<OwnStretch> {
        // Behind the last token comes the first again.
        let mut heir = self.stretches().map(|next| next.member).find(|&other| other != member);
        let mut found = Vec::new();
        for stretch in self.stretches().rev() {
            if stretch.member == member {
                found.push(OwnStretch { stretch, heir });
            } else {
                heir = Some(stretch.member);
            }
        }
        found.reverse();
        found
    }

    /// Those who inherit from `member` or leave something to it, by member.
    pub fn neighbours_of(&self, member: MemberIndex) -> BTreeMap<MemberIndex, Inheritance> {
        let mut neighbours: BTreeMap<MemberIndex, Inheritance> = BTreeMap::new();
        for own in self.stretches_of(member) {
            if let Some(heir) = own.heir {
                neighbours.entry(heir).or_default().given += own.stretch.width;
            }
        }
        // The other way round: the runs of others that the member comes next after.
        let mut next = self.stretches().next().map(|first| first.member);
        let mut is_heir = next == Some(member);
        if let Some(first) = next.filter(|&first| first != member) {
            // The turn's end runs on into its beginning, and who follows that comes next.
            let after = self.stretches().map(|other| other.member).find(|&other| other != first);
            is_heir = after == Some(member);
        }
        for stretch in self.stretches().rev() {
            if next != Some(stretch.member) {
                is_heir = next == Some(member);
                next = Some(stretch.member);
            }
            if is_heir && stretch.member != member {
                neighbours.entry(stretch.member).or_default().taken += stretch.width;
            }
        }
        neighbours
    }
}

/// Walks from the member's tokens as writes do, from `walks_max` of them at most.
pub fn write_sets(snapshot: &RingSnapshot, member: MemberIndex, walks_max: usize) -> WriteSets {
    let circle = snapshot.circle();
    let mut tokens: Vec<Token> = snapshot.tokens_of(member).to_vec();
    tokens.dedup();
    // Keys lead to the first of a token's copies, and to the member only if it won the token.
    let starts = tokens.iter().map(|token| Position(circle.positions_of(*token).start));
    let starts: Vec<_> = starts.filter(|&start| circle.owner(start) == member).collect();
    let every = starts.len().div_ceil(walks_max.max(1)).max(1);

    let op = snapshot.settings().write_operation();
    let health = snapshot.health();
    let layout = snapshot.layout();
    let mut walker = Walker::new(layout, op);
    let mut met = vec![0_usize; snapshot.members().len()];
    let mut sets = WriteSets { every, ..WriteSets::default() };
    for &start in starts.iter().step_by(every) {
        let walked = walker.walk_from(start);
        sets.walks += 1;
        *sets.by_len.entry(walked.len()).or_default() += 1;
        let mut live = 0;
        for found in walked {
            met[found.index()] += 1;
            live += usize::from(health.serves(&snapshot.members()[found.index()], op));
        }
        sets.too_few_live += usize::from(layout.errors_allowed(live).is_none());
    }
    let others = (0..).map(MemberIndex).zip(met);
    sets.partners = others.filter(|&(other, walks)| walks > 0 && other != member).collect();
    sets.partners.sort_by_key(|&(other, walks)| (std::cmp::Reverse(walks), other));
    sets
}

/// Part of all keys whose writes go to `member`, as first or as replica; in 0..=1.
pub fn replicated_share(snapshot: &RingSnapshot, member: MemberIndex, op: Operation) -> f64 {
    let runs = snapshot.owned_runs(member, op);
    ownership::key_set(&runs, snapshot.circle().tokens()).share()
}

/// Part of all keys, in 0..=1.
pub fn part(keys: u64) -> f64 {
    keys as f64 / KEYS as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::keys::RingKey;
    use crate::ring::model::InstanceState::{Active, Leaving, Pending};
    use crate::ring::shares::Shares;
    use crate::ring::testing::{members, ring as ring_of};

    #[test]
    fn keys_go_to_the_next_other_member_and_come_from_the_one_before() {
        let quarter = 1_u32 << 30;
        let members = [
            ("", Active, vec![0, quarter]),
            ("", Active, vec![2 * quarter]),
            ("", Active, vec![3 * quarter]),
        ];
        let shares = Shares::of(&ring_of(&members, 1, false));
        let circuit = &shares.circuits()[0];
        let own = circuit.stretches_of(MemberIndex(0));
        assert_eq!(own.len(), 2);
        assert!(own.iter().all(|own| own.heir == Some(MemberIndex(1))));
        let quarter = u64::from(quarter);
        let neighbours: Vec<_> = circuit.neighbours_of(MemberIndex(0)).into_iter().collect();
        assert_eq!(
            neighbours,
            [
                (MemberIndex(1), Inheritance { given: 2 * quarter, taken: 0 }),
                (MemberIndex(2), Inheritance { given: 0, taken: quarter }),
            ]
        );
        let lone = Shares::of(&ring_of(&members[..1], 1, false));
        assert!(lone.circuits()[0].neighbours_of(MemberIndex(0)).is_empty());
        assert_eq!(lone.circuits()[0].stretches_of(MemberIndex(0))[0].heir, None);
    }

    #[test]
    fn write_walks_count_partners_sizes_and_what_cannot_be_written() {
        let members = [
            ("a", Active, vec![10, 40]),
            ("b", Leaving, vec![20]),
            ("b", Active, vec![30]),
            ("c", Pending, vec![]),
        ];
        let ring = ring_of(&members, 2, true);
        let sets = write_sets(&ring, MemberIndex(0), 100);
        // A member that leaves extends the set by one who stands in for it.
        assert_eq!((sets.walks, sets.every), (2, 1));
        assert_eq!(sets.by_len, BTreeMap::from([(3, 2)]));
        assert_eq!(sets.partners, [(MemberIndex(1), 2), (MemberIndex(2), 2)]);
        assert_eq!(sets.too_few_live, 0);
        assert_eq!(write_sets(&ring, MemberIndex(0), 1).walks, 1);
        assert_eq!(
            write_sets(&ring, MemberIndex(3), 1),
            WriteSets { every: 1, ..WriteSets::default() }
        );
        let alone = [("a", Active, vec![1]), ("b", Leaving, vec![2])];
        let sets = write_sets(&ring_of(&alone, 2, true), MemberIndex(0), 9);
        assert_eq!(sets.too_few_live, 1);
    }

    proptest! {
        /// Against rings from which a member was taken out.
        #[test]
        fn what_is_inherited_is_what_a_ring_without_the_member_gives(
            members in members(),
            is_by_zone: bool,
        ) {
            // A copy that a leaving winner held goes to the loser, who had nothing of it before:
            // what follows is about rings whose tokens are claimed once.
            let mut claimed = BTreeSet::new();
            let mut members = members;
            for (_, _, tokens) in &mut members {
                tokens.retain(|token| claimed.insert(*token));
            }
            let whole = Shares::of(&ring_of(&members, 2, is_by_zone));
            for leaver in 0..members.len() {
                let mut rest = members.clone();
                // Without tokens instead of gone, so that zones and indices stay.
                rest[leaver].2.clear();
                let without = Shares::of(&ring_of(&rest, 2, is_by_zone));
                let leaver = MemberIndex(leaver as u32);
                let neighbours = whole.circuit_of(leaver).neighbours_of(leaver);
                for other in (0..members.len() as u32).map(MemberIndex).filter(|m| *m != leaver) {
                    let grown = without.width(other) - whole.width(other);
                    let told = neighbours.get(&other).copied().unwrap_or_default();
                    prop_assert_eq!(told.given, grown);
                    // The same seen from the other side.
                    if let Some(back) = whole.circuit_of(other).neighbours_of(other).get(&leaver) {
                        prop_assert_eq!(back.taken, grown);
                    } else {
                        prop_assert_eq!(grown, 0);
                    }
                }
            }
        }

        #[test]
        fn the_replicated_share_counts_the_keys_whose_walk_meets_the_member(
            members in members(),
            is_by_zone: bool,
        ) {
            let ring = ring_of(&members, 2, is_by_zone);
            let circle = ring.circle();
            for index in (0..members.len() as u32).map(MemberIndex) {
                let mut keys = 0;
                for at in 0..circle.len() {
                    let token = circle.tokens()[at];
                    let before = circle.tokens()[if at == 0 { circle.len() } else { at } - 1];
                    // One key of each range speaks for all of it.
                    let meets = ring.walk(RingKey(before.0), Operation::Write).contains(&index);
                    let is_whole = circle.tokens().iter().all(|other| *other == token);
                    let width = if is_whole && at == 0 {
                        KEYS
                    } else {
                        u64::from(token.0.wrapping_sub(before.0))
                    };
                    keys += if meets { width } else { 0 };
                }
                let told = replicated_share(&ring, index, Operation::Write);
                prop_assert!((told - part(keys)).abs() < 1e-12, "{} {}", told, part(keys));
            }
        }
    }
}
