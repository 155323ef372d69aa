//! Rows of a stripe by the hash of their identity: buckets of one cache line.
//!
//! A slot is one word: a row and a few bits of its hash. Nearly every look-up reads one line here
//! and compares its slots without a branch, so that the CPU goes on to the next series of a
//! request while it waits for this one. The room grows by a quarter, not by doubling: buckets
//! are chosen by multiplication, so any number of them will do.
//!
//! Invariant: a row is in the first bucket, from its home on, that was not full when it came; so
//! a search ends at a bucket with a slot that was never used.

/// Slots of a bucket: a cache line of 64 bytes.
const BUCKET_SLOTS: usize = 16;
/// Bits of a slot for the row; a row is kept plus one, since 0 says that there is none.
const ROW_BITS: u32 = 20;
/// Most rows of one index. A stripe is split at a two-hundredth of that.
pub(super) const ROWS_MAX: usize = (1 << ROW_BITS) - 1;
/// Never used since the buckets were laid out.
const FREE: u32 = 0;
/// Was used, in a bucket that others may have passed by. Its tag is no row's.
const GONE: u32 = 1;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket([u32; BUCKET_SLOTS]);

#[derive(Default)]
pub(super) struct Index {
    buckets: Vec<Bucket>,
    /// Slots that are not free, those of rows that have gone included.
    used: usize,
}

impl Index {
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self { buckets: vec![Bucket([FREE; BUCKET_SLOTS]); buckets_for(rows)], used: 0 }
    }

    /// The row with this hash that `is` says yes to.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let mut matches = bucket.matches(tag(hash));
            while matches != 0 {
                let row = row_of(bucket.0[matches.trailing_zeros() as usize]);
                if is(row) {
                    return Some(row);
                }
                matches &= matches - 1;
            }
            if bucket.has_free() {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    /// Any word of the bucket in which a row of this hash most likely is.
    #[inline]
    pub(super) fn word(&self, hash: u64) -> u32 {
        self.buckets.get(self.home(hash)).map_or(0, |bucket| bucket.0[0])
    }

    /// The row that this hash most likely has; any number when it has none. Never waits for a
    /// row's facts, so that many can be looked for at once.
    #[inline]
    pub(super) fn likely(&self, hash: u64) -> u32 {
        let Some(bucket) = self.buckets.get(self.home(hash)) else {
            return 0;
        };
        let at = bucket.matches(tag(hash)).trailing_zeros() as usize;
        (bucket.0[at % BUCKET_SLOTS] & ((1 << ROW_BITS) - 1)).wrapping_sub(1)
    }

    /// Enters a row that is not there yet; `hash_of` tells the hashes of those that are.
    pub(super) fn insert(&mut self, hash: u64, row: usize, hash_of: impl Fn(usize) -> u64) {
        assert!(row < ROWS_MAX, "a stripe is split long before");
        if self.used >= room(self.buckets.len()) {
            let rows = self.rows();
            self.lay_out(rows + rows / 4 + 1, hash_of);
        }
        self.enter(hash, row);
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, hash: u64, row: usize) {
        if let Some((bucket, slot)) = self.place(hash, row) {
            let bucket = &mut self.buckets[bucket];
            if bucket.has_free() {
                bucket.0[slot] = FREE;
                self.used -= 1;
            } else {
                bucket.0[slot] = GONE;
            }
        }
    }

    /// A row's entry has moved to another row.
    pub(super) fn renumber(&mut self, hash: u64, from: usize, to: usize) {
        if let Some((bucket, slot)) = self.place(hash, from) {
            self.buckets[bucket].0[slot] = slot_of(hash, to);
        }
    }

    /// Builds the index anew of rows 0 up to `rows`.
    pub(super) fn rebuild(&mut self, rows: usize, hash_of: impl Fn(usize) -> u64) {
        *self = Self::with_capacity(rows);
        for row in 0..rows {
            self.enter(hash_of(row), row);
        }
    }

    /// Lays the buckets out for `capacity` rows, at least those that are there.
    pub(super) fn lay_out(&mut self, capacity: usize, hash_of: impl Fn(usize) -> u64) {
        let mut larger = Self::with_capacity(capacity);
        for bucket in &self.buckets {
            for &slot in bucket.0.iter().filter(|&&slot| slot > GONE) {
                let row = row_of(slot);
                larger.enter(hash_of(row), row);
            }
        }
        *self = larger;
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>()
    }

    /// Enters a row for which there is room.
    fn enter(&mut self, hash: u64, row: usize) {
        let mut at = self.home(hash);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(slot) = bucket.0.iter_mut().find(|slot| **slot <= GONE) {
                self.used += usize::from(*slot == FREE);
                *slot = slot_of(hash, row);
                return;
            }
            at = self.next(at);
        }
    }

    fn rows(&self) -> usize {
        self.buckets.iter().flat_map(|bucket| &bucket.0).filter(|&&slot| slot > GONE).count()
    }

    fn place(&self, hash: u64, row: usize) -> Option<(usize, usize)> {
        let wanted = slot_of(hash, row);
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            if let Some(slot) = bucket.0.iter().position(|&slot| slot == wanted) {
                return Some((at, slot));
            }
            if bucket.has_free() {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 < self.buckets.len() { bucket + 1 } else { 0 }
    }
}

impl Bucket {
    /// A bit for each slot with this tag.
    #[inline]
    fn matches(&self, tag: u32) -> u32 {
        // Without branches, so that it compiles to vector code.
        let mut bits = 0;
        for (at, slot) in self.0.iter().enumerate() {
            bits |= u32::from(slot >> ROW_BITS == tag) << at;
        }
        bits
    }

    #[inline]
    fn has_free(&self) -> bool {
        self.0.contains(&FREE)
    }
}

/// Slots that may be in use before the buckets are laid out anew: 13 of 16. Every fortieth row is
/// then not at home, and a search without success reads 1.1 buckets.
fn room(buckets: usize) -> usize {
    buckets * (BUCKET_SLOTS - 3)
}

fn buckets_for(rows: usize) -> usize {
    rows.div_ceil(BUCKET_SLOTS - 3)
}

/// Bits of the hash that a slot keeps; never 0, which is the tag of slots without a row.
#[inline]
fn tag(hash: u64) -> u32 {
    (hash as u32 >> ROW_BITS).max(1)
}

#[inline]
fn row_of(slot: u32) -> usize {
    (slot & ((1 << ROW_BITS) - 1)) as usize - 1
}

fn slot_of(hash: u64, row: usize) -> u32 {
    tag(hash) << ROW_BITS | (row as u32 + 1)
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Hashes that share homes and tags.
    fn crowded(number: u64) -> u64 {
        (number % 7) << 61 | (number % 3) << 21 | number
    }

    proptest! {
        /// Whatever comes and goes, in whatever crowd, every row is found under its hash alone.
        #[test]
        fn follows_a_naive_map(steps in prop::collection::vec((any::<bool>(), 0_u64..400), 1..800)) {
            let mut index = Index::default();
            let mut hashes: HashMap<usize, u64> = HashMap::new();
            for (comes, number) in steps {
                let (row, hash) = (number as usize, crowded(number));
                if comes && !hashes.contains_key(&row) {
                    index.insert(hash, row, |row| hashes[&row]);
                    hashes.insert(row, hash);
                } else if hashes.remove(&row).is_some() {
                    index.remove(hash, row);
                }
                prop_assert_eq!(index.rows(), hashes.len());
                prop_assert!(index.used <= room(index.buckets.len()));
            }
            for number in 0..400_u64 {
                let row = number as usize;
                let found = index.find(crowded(number), |at| at == row);
                prop_assert_eq!(found, hashes.contains_key(&row).then_some(row));
            }
        }
    }

    #[test]
    fn a_row_that_moves_is_found_where_it_went() {
        let mut index = Index::default();
        for row in 0..100 {
            index.insert(crowded(row as u64), row, |row| crowded(row as u64));
        }
        index.remove(crowded(7), 7);
        index.renumber(crowded(99), 99, 7);
        assert_eq!(index.find(crowded(99), |row| row == 7), Some(7));
        assert_eq!(index.find(crowded(7), |row| row == 7), None);
        index.rebuild(99, |row| crowded(if row == 7 { 99 } else { row as u64 }));
        assert_eq!(index.find(crowded(99), |row| row == 7), Some(7));
    }

    /// Rows that come and go for ever leave no trail of used slots behind.
    #[test]
    fn churn_does_not_grow_it() {
        let hash_of = |row: usize| (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut index = Index::default();
        for row in 0..1000 {
            index.insert(hash_of(row), row, hash_of);
        }
        for row in 1000..200_000 {
            index.remove(hash_of(row - 1000), row - 1000);
            index.insert(hash_of(row), row, hash_of);
        }
        assert_eq!(index.rows(), 1000);
        assert!(index.bytes() <= 2 * 4 * 1250 * 16 / 13, "{} bytes", index.bytes());
    }

    #[test]
    fn an_empty_one_owns_nothing_and_finds_nothing() {
        let index = Index::default();
        assert_eq!((index.bytes(), index.find(1, |_| true)), (0, None));
    }
}
