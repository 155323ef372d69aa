//! How evenly tokens divide the keys among the members of a ring: for those who look at it.
//!
//! With zone awareness each zone holds every key, so the tokens of a zone divide all keys among
//! the zone's members; without it all tokens divide them among all members. The tokens that
//! divide the keys among themselves make a [`Circuit`]. A member's share is the part of its
//! circuit's keys that leads to its tokens, replicas aside.
//!
//! Invariant: the stretches of a circuit that has tokens sum to [`KEYS`], also where tokens stand
//! twice. Cortex's own figure ([`super::ownership::key_ranges`]) counts a whole turn there, which
//! is right for its page and its metrics and would draw a ring of 200 %.

use super::circle::MemberIndex;
use super::model::Token;
use super::snapshot::RingSnapshot;

/// Number of all ring keys.
pub const KEYS: u64 = 1 << 32;

/// Tokens that divide all keys among themselves.
#[derive(Debug, Default)]
pub struct Circuit {
    /// Sorted, each once.
    tokens: Vec<Token>,
    /// By token.
    owners: Vec<MemberIndex>,
}

/// The keys that lead to one token of a circuit: from the token before it, inclusive, up to its
/// own, exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub member: MemberIndex,
    pub start: Token,
    pub end: Token,
    /// A lone token has all keys, so a width does not follow from the two ends.
    pub width: u64,
}

/// What each member has of the keys, and what it would have if tokens were spread evenly.
#[derive(Debug)]
pub struct Shares {
    /// By zone with zone awareness, else the only one.
    circuits: Vec<Circuit>,
    /// Members with tokens, by circuit: the keys are meant to be divided among these.
    sharers: Vec<u32>,
    /// By member.
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    circuit: u32,
    width: u64,
    has_tokens: bool,
}

/// How far members are from their expected shares, each as actual by expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evenness {
    pub least: f64,
    pub most: f64,
    /// Standard deviation of all of them.
    pub deviation: f64,
}

impl Circuit {
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// In the order of their tokens; the first one reaches back over key 0.
    pub fn stretches(&self) -> impl DoubleEndedIterator<Item = Stretch> + ExactSizeIterator {
        (0..self.len()).map(|at| {
            let start = self.tokens[if at == 0 { self.len() } else { at } - 1];
            let end = self.tokens[at];
            Stretch { member: self.owners[at], start, end, width: distance(start, end) }
        })
    }

    /// Members and how many keys they have, in the order of the keys from key 0 on.
    pub fn pieces(&self) -> impl Iterator<Item = (MemberIndex, u64)> {
        let first = self.tokens.first().zip(self.owners.first());
        let last = self.tokens.last().zip(self.owners.first());
        let before = first.map(|(token, owner)| (*owner, u64::from(token.0)));
        let between = self.stretches().skip(1).map(|stretch| (stretch.member, stretch.width));
        // What lies behind the last token leads to the first one.
        let behind = last.map(|(token, owner)| (*owner, KEYS - u64::from(token.0)));
        before.into_iter().chain(between).chain(behind)
    }

    fn push(&mut self, token: Token, owner: MemberIndex) {
        // Copies of a token are one member's, and no key leads to the later ones.
        if self.tokens.last() != Some(&token) {
            self.tokens.push(token);
            self.owners.push(owner);
        }
    }
}

impl Shares {
    /// Reads each token once.
    pub fn of(snapshot: &RingSnapshot) -> Self {
        let layout = snapshot.layout();
        let is_by_zone = snapshot.settings().zone_awareness_enabled;
        let circuit_of = |member: MemberIndex| {
            if is_by_zone { layout.seating(member).zone } else { 0 }
        };
        let circuits_len = if is_by_zone { snapshot.zones().len() } else { 1 };
        let mut circuits: Vec<Circuit> = (0..circuits_len).map(|_| Circuit::default()).collect();
        let circle = layout.circle();
        for (&token, &owner) in circle.tokens().iter().zip(circle.owners()) {
            circuits[circuit_of(owner) as usize].push(token, owner);
        }
        let part = |member: MemberIndex| Part {
            circuit: circuit_of(member),
            width: 0,
            has_tokens: !snapshot.tokens_of(member).is_empty(),
        };
        let mut parts: Vec<Part> =
            (0..snapshot.members().len() as u32).map(|index| part(MemberIndex(index))).collect();
        let mut sharers = vec![0; circuits_len];
        for part in parts.iter().filter(|part| part.has_tokens) {
            sharers[part.circuit as usize] += 1;
        }
        for stretch in circuits.iter().flat_map(Circuit::stretches) {
            parts[stretch.member.index()].width += stretch.width;
        }
        Self { circuits, sharers, parts }
    }

    /// One per zone, in the ring's order of zones, with zone awareness; else the only one.
    pub fn circuits(&self) -> &[Circuit] {
        &self.circuits
    }

    /// The members with keys in the circuit of that number, in the order of their ids.
    pub fn holders_of(&self, circuit: usize) -> impl Iterator<Item = (MemberIndex, u64)> {
        let parts = (0..).map(MemberIndex).zip(&self.parts);
        let held = parts.filter(move |(_, part)| part.circuit as usize == circuit);
        held.map(|(member, part)| (member, part.width)).filter(|&(_, width)| width > 0)
    }

    pub fn circuit_of(&self, member: MemberIndex) -> &Circuit {
        &self.circuits[self.parts[member.index()].circuit as usize]
    }

    /// Members with tokens in the circuit of `member`.
    pub fn sharers_with(&self, member: MemberIndex) -> u32 {
        self.sharers[self.parts[member.index()].circuit as usize]
    }

    /// Keys that lead to the member's tokens.
    pub fn width(&self, member: MemberIndex) -> u64 {
        self.parts[member.index()].width
    }

    /// The same as a part of all keys, in 0..=1.
    pub fn actual(&self, member: MemberIndex) -> f64 {
        self.width(member) as f64 / KEYS as f64
    }

    /// An equal part for each member with tokens; `None` for one without.
    pub fn expected(&self, member: MemberIndex) -> Option<f64> {
        let has_tokens = self.parts[member.index()].has_tokens;
        has_tokens.then(|| 1.0 / f64::from(self.sharers_with(member)))
    }

    /// Actual by expected: 1 is even.
    pub fn ratio(&self, member: MemberIndex) -> Option<f64> {
        self.expected(member).map(|expected| self.actual(member) / expected)
    }
}

impl Evenness {
    /// `None` where there is nobody to compare.
    pub fn of(ratios: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let len = ratios.clone().count();
        if len == 0 {
            return None;
        }
        let mean = ratios.clone().sum::<f64>() / len as f64;
        let squares = ratios.clone().map(|ratio| (ratio - mean) * (ratio - mean)).sum::<f64>();
        Some(Self {
            least: ratios.clone().fold(f64::INFINITY, f64::min),
            most: ratios.fold(f64::NEG_INFINITY, f64::max),
            deviation: (squares / len as f64).sqrt(),
        })
    }
}

/// Keys from one token clockwise to the next; a token is a whole turn away from itself.
fn distance(from: Token, to: Token) -> u64 {
    match to.0.wrapping_sub(from.0) {
        0 => KEYS,
        forward => u64::from(forward),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::RingKey;
    use crate::ring::model::InstanceState;
    use crate::ring::testing::{members, ring};

    const ACTIVE: InstanceState = InstanceState::Active;

    #[test]
    fn a_lone_token_has_all_keys_and_a_copy_none() {
        let members = [("", ACTIVE, vec![7]), ("", ACTIVE, vec![])];
        let shares = Shares::of(&ring(&members, 1, false));
        assert_eq!(shares.width(MemberIndex(0)), KEYS);
        assert_eq!(shares.expected(MemberIndex(0)), Some(1.0));
        assert_eq!((shares.actual(MemberIndex(1)), shares.ratio(MemberIndex(1))), (0.0, None));

        let members = [("", ACTIVE, vec![0, 10]), ("", ACTIVE, vec![10, 10])];
        let shares = Shares::of(&ring(&members, 1, false));
        assert_eq!([shares.width(MemberIndex(0)), shares.width(MemberIndex(1))], [KEYS - 10, 10]);
    }

    #[test]
    fn each_zone_divides_all_keys_among_its_own_members() {
        let half = 1 << 31;
        let members =
            [("a", ACTIVE, vec![0]), ("a", ACTIVE, vec![half]), ("b", ACTIVE, vec![half / 2])];
        let by_zone = Shares::of(&ring(&members, 2, true));
        assert_eq!(by_zone.ratio(MemberIndex(0)), Some(1.0));
        assert_eq!(by_zone.ratio(MemberIndex(2)), Some(1.0));
        assert_eq!(by_zone.sharers_with(MemberIndex(1)), 2);
        let all = Shares::of(&ring(&members, 2, false));
        let ratios: Vec<_> = (0..3).filter_map(|at| all.ratio(MemberIndex(at))).collect();
        assert_eq!(ratios, [1.5, 0.75, 0.75]);
        let evenness = Evenness::of(ratios.into_iter()).expect("members");
        assert_eq!((evenness.least, evenness.most), (0.75, 1.5));
        assert!((evenness.deviation - 0.125_f64.sqrt()).abs() < 1e-12, "{evenness:?}");
        assert_eq!(Evenness::of([].into_iter()), None);
    }

    proptest! {
        /// Widths are exact, agree with who the walk starts at, and are Cortex's where no token
        /// stands twice.
        #[test]
        fn shares_are_what_looking_keys_up_gives(
            members in members(),
            is_by_zone: bool,
            keys in prop::collection::vec(any::<u32>(), 40),
        ) {
            let ring = ring(&members, 2, is_by_zone);
            let shares = Shares::of(&ring);
            for circuit in shares.circuits().iter().filter(|circuit| !circuit.is_empty()) {
                prop_assert_eq!(circuit.stretches().map(|s| s.width).sum::<u64>(), KEYS);
                prop_assert_eq!(circuit.pieces().map(|(_, width)| width).sum::<u64>(), KEYS);
            }
            let total: u64 = (0..members.len() as u32).map(|m| shares.width(MemberIndex(m))).sum();
            let full = shares.circuits().iter().filter(|circuit| !circuit.is_empty()).count();
            prop_assert_eq!(total, KEYS * full as u64);

            // The first member of the zone that a plain search meets has the key.
            let circle = ring.circle();
            for key in keys.into_iter().chain(circle.tokens().iter().map(|token| token.0)) {
                for (index, circuit) in shares.circuits().iter().enumerate() {
                    let in_circuit = |at: &usize| {
                        let zone = ring.layout().seating(circle.owners()[*at]).zone;
                        !is_by_zone || zone as usize == index
                    };
                    let mut turn = (0..circle.len()).cycle().skip(
                        if circle.is_empty() { 0 } else { circle.search(RingKey(key)).index() }
                    ).take(circle.len());
                    let found = turn.find(in_circuit).map(|at| circle.owners()[at]);
                    let told = circuit.stretches().find(|stretch| {
                        let into = u64::from(key.wrapping_sub(stretch.start.0));
                        into < stretch.width
                    });
                    prop_assert_eq!(told.map(|stretch| stretch.member), found);
                }
            }

            let tokens = circle.tokens();
            if tokens.windows(2).all(|pair| pair[0] != pair[1]) {
                for (range, index) in ring.key_ranges().iter().zip(0..) {
                    let theirs = if is_by_zone { range.width_in_zone } else { range.width };
                    prop_assert_eq!(shares.width(MemberIndex(index)), theirs);
                }
            }
        }
    }
}
