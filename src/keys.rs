//! Ring keys, and sets of them.
//!
//! A [`KeySet`] is how the rooms meet over ownership: the ring computes which keys are ours,
//! the series store asks. Neither knows the other.
//!
//! Invariant: `bounds` is strictly increasing and each bound toggles membership, so key `k` is
//! in the set iff `first` xor (the number of bounds `<= k` is odd).

use std::ops::Range;

/// 32-bit hash of a tenant and a label set, looked up on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingKey(pub u32);

/// How many key prefixes the class table tells apart: one per value of a key's upper 16 bits.
const PREFIXES: usize = 1 << 16;
/// Two bits per prefix, 16 prefixes to a word: 16 KiB, so that it stays in the L1 cache.
const CLASS_WORDS: usize = PREFIXES / 16;

const CLASS_IN: u32 = 1;
const CLASS_MIXED: u32 = 2;

/// A set of ring keys, kept as the bounds of its ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet {
    first: bool,
    bounds: Box<[u32]>,
    /// Only worth its 32 KiB for a set that many share.
    table: Option<Box<ClassTable>>,
}

/// Answers most look-ups with one load, and narrows the search of bounds for the others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ClassTable {
    classes: [u32; CLASS_WORDS],
    /// Per word of `classes`, the number of bounds below its first key.
    passed: [u32; CLASS_WORDS],
}

impl KeySet {
    pub fn none() -> Self {
        Self { first: false, bounds: Box::default(), table: None }
    }

    pub fn all() -> Self {
        Self { first: true, bounds: Box::default(), table: None }
    }

    /// The set whose membership of key 0 is `first` and changes at each of `bounds`.
    ///
    /// Bounds may come in any order; two equal bounds cancel each other, and a bound at 0 is
    /// folded into `first`.
    pub fn from_toggles(first: bool, mut bounds: Vec<u32>) -> Self {
        bounds.sort_unstable();
        let mut kept: Vec<u32> = Vec::with_capacity(bounds.len());
        for bound in bounds {
            if kept.last() == Some(&bound) {
                kept.pop();
            } else {
                kept.push(bound);
            }
        }
        let mut first = first;
        if kept.first() == Some(&0) {
            kept.remove(0);
            first = !first;
        }
        Self { first, bounds: kept.into_boxed_slice(), table: None }
    }

    /// Adds the class table: look-ups then cost one load for all but the prefixes a bound cuts.
    pub fn with_class_table(mut self) -> Self {
        let mut table =
            Box::new(ClassTable { classes: [0; CLASS_WORDS], passed: [0; CLASS_WORDS] });
        let classes = &mut table.classes;
        let mut inside = self.first;
        let mut unset = 0;
        for bounds in self.bounds.chunk_by(|a, b| a >> 16 == b >> 16) {
            let prefix = (bounds[0] >> 16) as usize;
            set_classes(classes, unset..prefix, inside);
            inside ^= bounds.len() % 2 == 1;
            // A bound on the prefix's very first key changes all of it and mixes nothing.
            if bounds.len() == 1 && bounds[0] & 0xffff == 0 {
                set_classes(classes, prefix..prefix + 1, inside);
            } else {
                classes[prefix / 16] |= CLASS_MIXED << (2 * (prefix % 16));
            }
            unset = prefix + 1;
        }
        set_classes(classes, unset..PREFIXES, inside);
        let mut passed = 0;
        for (word, slot) in table.passed.iter_mut().enumerate() {
            let below = |&&bound: &&u32| ((bound >> 16) as usize) / 16 < word;
            passed += self.bounds[passed..].iter().take_while(below).count();
            *slot = passed as u32;
        }
        self.table = Some(table);
        self
    }

    #[inline]
    pub fn contains(&self, key: RingKey) -> bool {
        let Some(table) = &self.table else {
            let passed = self.bounds.partition_point(|&bound| bound <= key.0);
            return self.first ^ (passed & 1 == 1);
        };
        let prefix = (key.0 >> 16) as usize;
        let word = prefix / 16;
        let class = (table.classes[word] >> (2 * (prefix % 16))) & 3;
        // One branch that hardly ever goes the other way; in or out is then data, which
        // random keys cannot make the CPU mispredict.
        if class != CLASS_MIXED {
            return class == CLASS_IN;
        }
        self.contains_in_word(table, word, key)
    }

    #[inline(never)]
    fn contains_in_word(&self, table: &ClassTable, word: usize, key: RingKey) -> bool {
        let start = table.passed[word] as usize;
        let end = table.passed.get(word + 1).map_or(self.bounds.len(), |&end| end as usize);
        let passed = start + self.bounds[start..end].partition_point(|&bound| bound <= key.0);
        self.first ^ (passed & 1 == 1)
    }

    /// Number of keys in the set, of 2^32.
    pub fn width(&self) -> u64 {
        let mut width = 0;
        let mut inside = self.first;
        let mut start = 0_u64;
        for &bound in &self.bounds {
            if inside {
                width += u64::from(bound) - start;
            }
            start = u64::from(bound);
            inside = !inside;
        }
        if inside {
            width += (1 << 32) - start;
        }
        width
    }

    /// The set's share of the key space, in 0..=1, exact to the last bit of the division.
    pub fn share(&self) -> f64 {
        self.width() as f64 / (1_u64 << 32) as f64
    }

    /// Share of the key space that is in both sets, in 0..=1.
    pub fn common_share(&self, other: &Self) -> f64 {
        let (mut here, mut there) = (self.first, other.first);
        let (mut ours, mut theirs) = (&self.bounds[..], &other.bounds[..]);
        let (mut width, mut start) = (0, 0_u64);
        loop {
            let next = match (ours.first(), theirs.first()) {
                (Some(&a), Some(&b)) => u64::from(a.min(b)),
                (Some(&only), None) | (None, Some(&only)) => u64::from(only),
                (None, None) => 1 << 32,
            };
            if here && there {
                width += next - start;
            }
            if next == 1 << 32 {
                return width as f64 / (1_u64 << 32) as f64;
            }
            start = next;
            for (inside, bounds) in [(&mut here, &mut ours), (&mut there, &mut theirs)] {
                if let Some((&bound, rest)) = bounds.split_first()
                    && u64::from(bound) == next
                {
                    *inside = !*inside;
                    *bounds = rest;
                }
            }
        }
    }

    /// Number of range bounds; the memory of a set follows it.
    pub fn bounds_len(&self) -> usize {
        self.bounds.len()
    }
}

/// Marks prefixes that are wholly in the set; out is what the table starts with.
fn set_classes(classes: &mut [u32; CLASS_WORDS], prefixes: Range<usize>, inside: bool) {
    if !inside || prefixes.is_empty() {
        return;
    }
    const ALL_IN: u32 = CLASS_IN * 0x5555_5555;
    let (first, last) = (prefixes.start / 16, (prefixes.end - 1) / 16);
    let from_start = ALL_IN << (2 * (prefixes.start % 16));
    let to_end = ALL_IN >> (2 * (15 - (prefixes.end - 1) % 16));
    if first == last {
        classes[first] |= from_start & to_end;
        return;
    }
    classes[first] |= from_start;
    classes[first + 1..last].fill(ALL_IN);
    classes[last] |= to_end;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_and_none_are_whole() {
        assert!(KeySet::all().contains(RingKey(0)) && KeySet::all().contains(RingKey(u32::MAX)));
        assert!(!KeySet::none().contains(RingKey(0)));
        assert_eq!(KeySet::all().width(), 1 << 32);
        assert_eq!(KeySet::none().width(), 0);
    }

    #[test]
    fn equal_bounds_cancel_and_zero_folds() {
        let set = KeySet::from_toggles(false, vec![7, 0, 7, 9]);
        assert!(set.contains(RingKey(0)) && set.contains(RingKey(8)) && !set.contains(RingKey(9)));
        assert_eq!(set.width(), 9);
    }

    #[test]
    fn common_shares_are_those_of_the_keys_in_both() {
        let set = |first, bounds: &[u32]| KeySet::from_toggles(first, bounds.to_vec());
        let quarter = 1 << 30;
        let check = |a: &KeySet, b: &KeySet, expect: f64| {
            assert_eq!((a.common_share(b), b.common_share(a)), (expect, expect));
        };
        check(&KeySet::all(), &KeySet::all(), 1.0);
        check(&KeySet::all(), &KeySet::none(), 0.0);
        let (low, high) = (set(true, &[2 * quarter]), set(false, &[quarter]));
        check(&low, &KeySet::all(), 0.5);
        check(&low, &high, 0.25);
        check(&low, &set(false, &[2 * quarter]), 0.0);
        check(&set(true, &[quarter, 3 * quarter]), &set(true, &[quarter, 3 * quarter]), 0.5);
    }

    proptest! {
        #[test]
        fn class_table_answers_as_the_bounds_do(
            first: bool,
            mut bounds in prop::collection::vec(any::<u32>(), 0..40),
            aligned in prop::collection::vec(any::<u16>(), 0..20),
            keys in prop::collection::vec(any::<u32>(), 0..200),
        ) {
            bounds.extend(aligned.into_iter().map(|prefix| u32::from(prefix) << 16));
            let plain = KeySet::from_toggles(first, bounds.clone());
            let fast = plain.clone().with_class_table();
            let near = bounds.iter().flat_map(|&b| [b.wrapping_sub(1), b, b.wrapping_add(1)]);
            for key in keys.into_iter().chain(near).map(RingKey) {
                prop_assert_eq!(plain.contains(key), fast.contains(key));
            }
        }
    }
}
