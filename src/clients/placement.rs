//! Who keeps which budget, at one moment: the ring as this room needs it.
//!
//! Whoever knows the ring fills it in: for each token the first ACTIVE, healthy member of the walk
//! from it. Maps that compare equal place all keys alike.

use std::sync::Arc;

use super::key::KeyHash;

/// Upper bits of a place that the index tells apart: about one token each on a ring of eight
/// members with 512 tokens.
const INDEX_BITS: u32 = 12;

/// Owners of all keys.
#[derive(Clone, Debug)]
pub struct OwnerMap {
    tokens: Box<[u32]>,
    /// Who owns the keys below the token of the same index.
    owners: Box<[u16]>,
    members: Box<[Arc<str>]>,
    us: Option<u16>,
    /// For each value of the upper bits, the number of tokens below its first place.
    index: Box<[u32]>,
}

/// Who keeps a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed<'a> {
    Here,
    At(&'a Arc<str>),
    /// Nobody is there to keep it, or the ring is not known yet.
    Nowhere,
}

impl OwnerMap {
    /// Nobody owns anything.
    pub fn empty() -> Self {
        Self::new(&[], &[], "")
    }

    /// `owners` are sorted tokens and the member that owns the keys up to each, by its index in
    /// `members`, of which there are fewer than 65,536; `us` is our own id.
    pub fn new(owners: &[(u32, u16)], members: &[Arc<str>], us: &str) -> Self {
        debug_assert!(owners.is_sorted_by_key(|(token, _)| *token));
        let tokens: Box<[u32]> = owners.iter().map(|(token, _)| *token).collect();
        let mut index = Vec::with_capacity((1 << INDEX_BITS) + 1);
        let mut at = 0;
        for prefix in 0..1_u32 << INDEX_BITS {
            let first = prefix << (32 - INDEX_BITS);
            while at < tokens.len() && tokens[at] < first {
                at += 1;
            }
            index.push(at as u32);
        }
        Self {
            tokens,
            owners: owners.iter().map(|(_, owner)| *owner).collect(),
            members: members.into(),
            us: members.iter().position(|id| **id == *us).map(|at| at as u16),
            index: index.into(),
        }
    }

    /// The owner of the first token above the key's place.
    #[inline]
    pub fn place(&self, hash: KeyHash) -> Placed<'_> {
        if self.tokens.is_empty() {
            return Placed::Nowhere;
        }
        let place = hash.on_ring();
        let mut at = self.index[(place >> (32 - INDEX_BITS)) as usize] as usize;
        while at < self.tokens.len() && self.tokens[at] <= place {
            at += 1;
        }
        let owner = self.owners[if at == self.tokens.len() { 0 } else { at }];
        match self.us {
            Some(us) if us == owner => Placed::Here,
            _ => Placed::At(&self.members[usize::from(owner)]),
        }
    }

    pub fn is_here(&self, hash: KeyHash) -> bool {
        self.place(hash) == Placed::Here
    }

    /// Everybody who may own keys, ourselves included if we are in the ring.
    pub fn members(&self) -> &[Arc<str>] {
        &self.members
    }

    /// Whether every key is where `other` has it.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.tokens == other.tokens
            && self.owners == other.owners
            && self.members == other.members
            && self.us == other.us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(owners: &[(u32, u16)]) -> OwnerMap {
        let members = ["a", "b", "c"].map(Arc::from);
        OwnerMap::new(owners, &members, "b")
    }

    #[test]
    fn the_owner_is_that_of_the_next_token_and_the_ring_closes() {
        let map = map(&[(10, 0), (0x8000_0000, 1), (0xffff_fff0, 2)]);
        let check = |place: u32, expect: Placed<'_>| {
            assert_eq!(map.place(KeyHash(u64::from(place) << 32)), expect, "{place}");
        };
        let (a, c) = (Arc::from("a"), Arc::from("c"));
        check(0, Placed::At(&a));
        check(9, Placed::At(&a));
        check(10, Placed::Here);
        check(0x7fff_ffff, Placed::Here);
        check(0x8000_0000, Placed::At(&c));
        check(0xffff_fff0, Placed::At(&a));
        check(u32::MAX, Placed::At(&a));
    }

    #[test]
    fn places_agree_with_a_search_of_all_tokens() {
        let tokens: Vec<(u32, u16)> =
            (0..4000_u32).map(|at| (at.wrapping_mul(1_073_807), (at % 3) as u16)).collect();
        let mut sorted = tokens;
        sorted.sort_unstable();
        let map = map(&sorted);
        for at in 0..20_000_u64 {
            let hash = KeyHash(at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let found = sorted.iter().find(|(token, _)| *token > hash.on_ring());
            let owner = found.or(sorted.first()).expect("tokens").1;
            let expect = ["a", "b", "c"][usize::from(owner)];
            match map.place(hash) {
                Placed::Here => assert_eq!(expect, "b"),
                Placed::At(id) => assert_eq!(expect, &**id),
                Placed::Nowhere => panic!("there are tokens"),
            }
        }
    }

    #[test]
    fn an_empty_ring_places_nothing() {
        assert_eq!(OwnerMap::empty().place(KeyHash(7)), Placed::Nowhere);
    }
}
