//! The sorted tokens of a ring, who owns each, and where a key falls among them.
//!
//! A ring of hundreds of thousands of tokens is ordered anew whenever one of them moves, so it
//! is sorted by radix, and a table over the upper bits of a key leads a search to the few tokens
//! that share them.
//!
//! Invariants: `tokens` is sorted, duplicates included; equal tokens have one owner, the
//! greatest of the members that claim it; `tokens[starts[b]..starts[b + 1]]` are the tokens
//! whose upper bits are `b`.

use super::model::{Position, Token};
use crate::keys::RingKey;

/// Index of a member in the columns of the ring it belongs to; members are in order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(pub u32);

impl MemberIndex {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Position {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A token and a member that claims it, in one word for the sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim(u64);

impl Claim {
    pub fn new(token: Token, member: MemberIndex) -> Self {
        Self(u64::from(token.0) << 32 | u64::from(member.0))
    }

    pub fn token(self) -> Token {
        Token((self.0 >> 32) as u32)
    }

    pub fn member(self) -> MemberIndex {
        MemberIndex(self.0 as u32)
    }

    fn digit(self, digit: usize) -> usize {
        self.0 as usize >> (32 + DIGIT_BITS as usize * digit) & (DIGIT_VALUES - 1)
    }
}

/// Tokens in ring order with their owners.
#[derive(Debug, Default)]
pub struct Circle {
    tokens: Box<[Token]>,
    owners: Box<[MemberIndex]>,
    /// Tokens that several members claim, with the member that won; sorted. Usually empty.
    contested: Box<[(Token, MemberIndex)]>,
    /// Who brought the token at each position; left empty when that is the owner everywhere.
    holders: Box<[MemberIndex]>,
    starts: Box<[u32]>,
    /// Shifts a key right so that its bucket remains.
    bucket_shift: u32,
}

/// Most buckets of the search index: 4 MiB of starts, reached by a ring of two million tokens.
/// Beyond it buckets hold more tokens, and a search takes a few comparisons more.
const BUCKETS_MAX: usize = 1 << 20;

impl Circle {
    /// Claims of the same token must come in the order of their members.
    pub fn new(claims: Vec<Claim>) -> Self {
        let (tokens, mut owners) = sort(claims);
        let mut contested = Vec::new();
        let mut holders = Box::default();
        if tokens.windows(2).any(|pair| pair[0] == pair[1]) {
            let held = owners.clone();
            contested = settle(&tokens, &mut owners);
            if !contested.is_empty() {
                holders = held.into_boxed_slice();
            }
        }
        // A bucket for every two tokens: more would miss the cache, fewer would search longer.
        let buckets = (tokens.len().next_power_of_two() / 2).clamp(1, BUCKETS_MAX);
        let bucket_shift = 32 - buckets.trailing_zeros();
        Self {
            starts: starts(&tokens, buckets, bucket_shift).into_boxed_slice(),
            bucket_shift,
            tokens: tokens.into_boxed_slice(),
            owners: owners.into_boxed_slice(),
            contested: contested.into_boxed_slice(),
            holders,
        }
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    pub fn owners(&self) -> &[MemberIndex] {
        &self.owners
    }

    #[inline]
    pub fn owner(&self, position: Position) -> MemberIndex {
        self.owners[position.index()]
    }

    /// The member that claims the token at `position`, whether or not it owns it.
    #[inline]
    pub fn holder(&self, position: Position) -> MemberIndex {
        self.holders.get(position.index()).copied().unwrap_or_else(|| self.owner(position))
    }

    /// Tokens that several members claim, each with its owner.
    pub fn contested(&self) -> &[(Token, MemberIndex)] {
        &self.contested
    }

    /// The position that `key` leads to: the first token strictly greater, else the first of all.
    ///
    /// The circle must not be empty.
    #[inline]
    pub fn search(&self, key: RingKey) -> Position {
        let position = self.upper_bound(key.0);
        if position == self.len() { Position(0) } else { Position(position as u32) }
    }

    /// The positions at which `token` stands.
    pub fn positions_of(&self, token: Token) -> std::ops::Range<u32> {
        let first = token.0.checked_sub(1).map_or(0, |below| self.upper_bound(below));
        let same = self.tokens[first..].iter().take_while(|&&other| other == token).count();
        first as u32..(first + same) as u32
    }

    /// Number of tokens that are not greater than `value`.
    fn upper_bound(&self, value: u32) -> usize {
        // Widened, since the only bucket of a tiny ring is found by a shift of 32.
        let bucket = (u64::from(value) >> self.bucket_shift) as usize;
        let start = self.starts[bucket] as usize;
        let end = self.starts[bucket + 1] as usize;
        start + self.tokens[start..end].partition_point(|token| token.0 <= value)
    }
}

/// Digits that a token is sorted by, least first. Wider digits save a round, but then a round
/// writes to more places at once than the TLB and the caches hold.
const DIGIT_BITS: u32 = 8;
const DIGIT_VALUES: usize = 1 << DIGIT_BITS;
const DIGITS: usize = 32_usize.div_ceil(DIGIT_BITS as usize);

/// The columns of the claims in order of their tokens; equal tokens stay in the order given.
fn sort(mut claims: Vec<Claim>) -> (Vec<Token>, Vec<MemberIndex>) {
    let mut next = [[0_u32; DIGIT_VALUES]; DIGITS];
    for &claim in &claims {
        for (digit, counts) in next.iter_mut().enumerate() {
            counts[claim.digit(digit)] += 1;
        }
    }
    for counts in &mut next {
        let mut before = 0;
        for count in counts {
            before += std::mem::replace(count, before);
        }
    }
    // Each round places the claims by one more digit; the last one splits them into columns.
    let mut placed = vec![Claim::default(); claims.len()];
    for (digit, next) in next[..DIGITS - 1].iter_mut().enumerate() {
        for &claim in &claims {
            let at = &mut next[claim.digit(digit)];
            placed[*at as usize] = claim;
            *at += 1;
        }
        std::mem::swap(&mut claims, &mut placed);
    }
    let mut tokens = vec![Token(0); claims.len()];
    let mut owners = vec![MemberIndex(0); claims.len()];
    for &claim in &claims {
        let at = &mut next[DIGITS - 1][claim.digit(DIGITS - 1)];
        tokens[*at as usize] = claim.token();
        owners[*at as usize] = claim.member();
        *at += 1;
    }
    (tokens, owners)
}

/// Where each bucket starts, with the end of all after the last.
fn starts(tokens: &[Token], buckets: usize, bucket_shift: u32) -> Vec<u32> {
    // Without branches on the tokens, which nothing could predict: each leaves its end at its
    // bucket, the last one stays, and empty buckets end where the one before them does.
    let mut starts = vec![0_u32; buckets + 1];
    for (end, token) in (1..).zip(tokens) {
        // Widened, as in the search.
        starts[(u64::from(token.0) >> bucket_shift) as usize + 1] = end;
    }
    let mut before = 0;
    for start in &mut starts {
        before = before.max(*start);
        *start = before;
    }
    starts
}

/// Gives each run of equal tokens to its greatest member, and lists the tokens that this took
/// from somebody.
fn settle(tokens: &[Token], owners: &mut [MemberIndex]) -> Vec<(Token, MemberIndex)> {
    let mut contested = Vec::new();
    let mut start = 0;
    while start < tokens.len() {
        let token = tokens[start];
        let same = tokens[start..].iter().take_while(|&&next| next == token).count();
        let end = start + same;
        // Claims were sorted by member within a token, so the greatest comes last.
        let winner = owners[end - 1];
        if owners[start] != winner {
            contested.push((token, winner));
            owners[start..end].fill(winner);
        }
        start = end;
    }
    contested
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn circle(claims: &[(u32, u32)]) -> Circle {
        Circle::new(claims.iter().map(|&(t, m)| Claim::new(Token(t), MemberIndex(m))).collect())
    }

    #[test]
    fn a_key_equal_to_a_token_leads_to_the_next_position() {
        let circle = circle(&[(10, 0), (20, 1), (u32::MAX, 2)]);
        let check = |key, position| assert_eq!(circle.search(RingKey(key)), Position(position));
        check(0, 0);
        check(9, 0);
        check(10, 1);
        check(20, 2);
        check(u32::MAX - 1, 2);
        check(u32::MAX, 0);
    }

    #[test]
    fn a_contested_token_goes_to_the_greatest_member_and_keeps_its_copies() {
        let circle = circle(&[(5, 0), (7, 1), (7, 1), (5, 2)]);
        assert_eq!(circle.owners(), [2, 2, 1, 1].map(MemberIndex));
        assert_eq!(circle.contested(), [(Token(5), MemberIndex(2))]);
        assert_eq!(circle.holder(Position(0)), MemberIndex(0));
        assert_eq!(circle.positions_of(Token(7)), 2..4);
        assert_eq!(circle.positions_of(Token(6)), 2..2);
    }

    proptest! {
        #[test]
        fn order_and_search_are_those_of_a_plain_sort(
            spread in prop::collection::vec((any::<u32>(), 0_u32..9), 0..300),
            clustered in prop::collection::vec((0_u32..40, 0_u32..9), 0..100),
            keys in prop::collection::vec(any::<u32>(), 1..100),
        ) {
            let mut claims = spread;
            claims.extend(clustered);
            claims.sort_by_key(|claim| claim.1);
            let circle = circle(&claims);
            claims.sort_unstable();
            let tokens: Vec<Token> = claims.iter().map(|claim| Token(claim.0)).collect();
            prop_assert_eq!(circle.tokens(), &tokens[..]);
            for position in 0..claims.len() as u32 {
                prop_assert_eq!(circle.holder(Position(position)).0, claims[position as usize].1);
            }
            if tokens.is_empty() {
                return Ok(());
            }
            for key in keys.into_iter().chain(tokens.iter().map(|token| token.0)) {
                let first = tokens.iter().position(|token| token.0 > key).unwrap_or(0);
                prop_assert_eq!(circle.search(RingKey(key)).index(), first);
            }
        }
    }
}
