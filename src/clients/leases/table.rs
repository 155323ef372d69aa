//! Budgets by their names, and beside each name what may be spent of it without a further look.
//!
//! A decision waits for memory and for little else, so there is one place to read: buckets of one
//! cache line, with four names and their pockets each. Entries are behind pointers in a row of
//! their own. The room grows by a quarter, not by doubling, which keeps a hundred thousand of
//! them within two or three megabytes: what a core's own caches hold.
//!
//! Invariant: a name is in the first bucket, from its home on, that was not full when it came; so
//! a search ends at a bucket with a place that was never used.

use super::entry::Entry;
use super::pocket::Pocket;

/// Places of a bucket: a cache line of 64 bytes.
const BUCKET_PLACES: usize = 4;
/// Names that are no budget's: of a place that was never used since the room was laid out, and of
/// one that was, in a bucket that others may have passed by.
const FREE: u64 = 0;
const GONE: u64 = 1;

/// What a budget is found by. Names themselves are not compared, which would wait for two more
/// places in memory; see [`super::Leases`] for why it is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u64);

impl Name {
    #[inline]
    pub(super) fn new(hash: u64) -> Self {
        Self(hash.max(GONE + 1))
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    name: u64,
    pocket: Pocket,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([Place; BUCKET_PLACES]);

const _: () = assert!(size_of::<Bucket>() == 64, "a cache line");

#[derive(Debug, Default)]
pub(super) struct Table {
    buckets: Vec<Bucket>,
    /// By place.
    entries: Vec<Option<Box<Entry>>>,
    len: usize,
    /// Places that are not free, those of entries that have gone included.
    used: usize,
}

/// Where a budget is, until the next one comes or goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct At(usize);

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn find(&self, Name(name): Name) -> Option<At> {
        let mut at = self.home(name);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            if let Some(place) = bucket.0.iter().position(|place| place.name == name) {
                return Some(At(at * BUCKET_PLACES + place));
            }
            if bucket.0.iter().any(|place| place.name == FREE) {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    #[inline]
    pub(super) fn pocket(&mut self, At(at): At) -> &mut Pocket {
        &mut self.buckets[at / BUCKET_PLACES].0[at % BUCKET_PLACES].pocket
    }

    /// Looks at an entry, all that was spent of it accounted for; then its pocket is full again.
    pub(super) fn with<T>(
        &mut self,
        At(at): At,
        now_ns: i64,
        act: impl FnOnce(&mut Entry) -> T,
    ) -> T {
        let pocket = &mut self.buckets[at / BUCKET_PLACES].0[at % BUCKET_PLACES].pocket;
        let entry = self.entries[at].as_deref_mut().expect("a name has an entry");
        look(entry, pocket, now_ns, act)
    }

    /// Looks at every entry as [`with`](Self::with) does.
    pub(super) fn each(&mut self, now_ns: i64, mut act: impl FnMut(&mut Entry)) {
        let places = self.buckets.iter_mut().flat_map(|bucket| &mut bucket.0);
        for (place, entry) in places.zip(&mut self.entries) {
            if let Some(entry) = entry.as_deref_mut() {
                look(entry, &mut place.pocket, now_ns, &mut act);
            }
        }
    }

    /// Enters a budget that is not there yet.
    pub(super) fn insert(&mut self, Name(name): Name, entry: Box<Entry>) -> &mut Entry {
        if self.used >= room(self.buckets.len()) {
            self.lay_out(self.len + self.len / 4 + 1);
        }
        let place = Place { name, pocket: Pocket::default() };
        let at = self.enter(place, entry);
        self.entries[at].as_deref_mut().expect("it was put there")
    }

    pub(super) fn remove(&mut self, At(at): At) {
        let bucket = &mut self.buckets[at / BUCKET_PLACES].0;
        let is_passed = bucket.iter().all(|place| place.name != FREE);
        let place = &mut bucket[at % BUCKET_PLACES];
        *place = Place { name: if is_passed { GONE } else { FREE }, pocket: Pocket::default() };
        self.used -= usize::from(!is_passed);
        self.len -= usize::from(self.entries[at].take().is_some());
    }

    /// Keeps those that `stays` says, and no more room than for twice as many.
    pub(super) fn retain(&mut self, now_ns: i64, stays: impl Fn(&Entry) -> bool) {
        for at in 0..self.entries.len() {
            if self.entries[at].is_some() && !self.with(At(at), now_ns, |entry| stays(entry)) {
                self.remove(At(at));
            }
        }
        if room(self.buckets.len()) > 2 * self.len {
            self.lay_out(self.len);
        }
    }

    /// Lays the buckets out for `capacity` budgets, at least those that are there.
    fn lay_out(&mut self, capacity: usize) {
        let buckets = capacity.div_ceil(BUCKET_PLACES - 1);
        let free = Place { name: FREE, pocket: Pocket::default() };
        let mut entries = Vec::new();
        entries.resize_with(buckets * BUCKET_PLACES, || None);
        let empty = Self {
            buckets: vec![Bucket([free; BUCKET_PLACES]); buckets],
            entries,
            len: 0,
            used: 0,
        };
        let last = std::mem::replace(self, empty);
        let places = last.buckets.iter().flat_map(|bucket| bucket.0);
        for (place, entry) in places.zip(last.entries) {
            if let Some(entry) = entry {
                self.enter(place, entry);
            }
        }
    }

    /// Enters a budget for which there is room; its place.
    fn enter(&mut self, entering: Place, entry: Box<Entry>) -> usize {
        let mut bucket = self.home(entering.name);
        loop {
            let places = &mut self.buckets[bucket].0;
            if let Some(at) = places.iter().position(|place| place.name <= GONE) {
                self.used += usize::from(places[at].name == FREE);
                self.len += 1;
                places[at] = entering;
                let at = bucket * BUCKET_PLACES + at;
                self.entries[at] = Some(entry);
                return at;
            }
            bucket = self.next(bucket);
        }
    }

    #[inline]
    fn home(&self, name: u64) -> usize {
        (((name >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 < self.buckets.len() { bucket + 1 } else { 0 }
    }
}

fn look<T>(
    entry: &mut Entry,
    pocket: &mut Pocket,
    now_ns: i64,
    act: impl FnOnce(&mut Entry) -> T,
) -> T {
    entry.settle(*pocket);
    let result = act(entry);
    *pocket = entry.fill(now_ns);
    result
}

/// Places that may be in use before the buckets are laid out anew: three of four. A twelfth of
/// the names is then not at home.
fn room(buckets: usize) -> usize {
    buckets * (BUCKET_PLACES - 1)
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::clients::key::{Key, KeyHash, Kind};

    fn entry() -> Box<Entry> {
        let key = Key { kind: Kind::ClientWrites, tenant: "t", client: "c" };
        Box::new(Entry::new(key.to_owned(), KeyHash(0), 0))
    }

    /// Names that share homes.
    fn crowded(number: u64) -> Name {
        Name::new((number % 5) << 61 | number)
    }

    proptest! {
        /// Whatever comes and goes, in whatever crowd, what is there is found and nothing else.
        #[test]
        fn follows_a_naive_set(steps in prop::collection::vec((any::<bool>(), 0_u64..300), 1..800)) {
            let mut table = Table::default();
            let mut known = HashSet::new();
            for (comes, number) in steps {
                let name = crowded(number);
                match table.find(name) {
                    Some(at) => {
                        prop_assert!(known.remove(&number));
                        table.remove(at);
                    }
                    None if comes => {
                        prop_assert!(known.insert(number));
                        table.insert(name, entry());
                    }
                    None => prop_assert!(!known.contains(&number)),
                }
                prop_assert_eq!(table.len(), known.len());
                prop_assert!(table.used <= room(table.buckets.len()));
            }
            for number in 0..300 {
                prop_assert_eq!(table.find(crowded(number)).is_some(), known.contains(&number));
            }
            let mut seen = 0;
            table.each(0, |_| seen += 1);
            prop_assert_eq!(seen, known.len());
            table.retain(0, |_| false);
            prop_assert_eq!((table.len(), table.buckets.len()), (0, 0));
        }
    }

    /// Budgets that come and go for ever leave no trail of used places behind.
    #[test]
    fn churn_does_not_grow_it() {
        let name = |number: u64| Name::new(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut table = Table::default();
        for number in 0..1000 {
            table.insert(name(number), entry());
        }
        for number in 1000..20_000 {
            let at = table.find(name(number - 1000)).expect("it is there");
            table.remove(at);
            table.insert(name(number), entry());
        }
        assert_eq!(table.len(), 1000);
        assert!(table.buckets.len() <= 1251 / 3 + 1, "{} buckets", table.buckets.len());
    }
}
