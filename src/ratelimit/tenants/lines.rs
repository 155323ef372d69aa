//! Buckets, each in a cache line of its own together with its lock.
//!
//! A take waits for memory, and for the other core where that has used the same memory last. So
//! there is one place to read and to write: a line is found by a few names that are looked at
//! without a lock, and then locked by itself. Lines are in rooms, each four times as large as the
//! one before; a room that was left stays, so that whoever looks into it still finds that all of
//! it has moved on.
//!
//! Invariants: a name is in one line, within [`WINDOW`] lines from its home, of the room in force;
//! it changes only under the line's lock and under that of changes. Lock order: changes, then one
//! line.

use std::sync::OnceLock;

use super::super::bucket::Bucket;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};

/// Lines of the first room: 16 KiB.
const FIRST_ROOM_LINES: usize = 256;
const ROOM_GROWTH: usize = 4;
const ROOMS: usize = 6;
/// Lines of the last room: 16 MiB, and 6 MiB in those before.
pub(super) const LINES_MAX: usize = FIRST_ROOM_LINES * ROOM_GROWTH.pow(ROOMS as u32 - 1);
/// Lines from its home in which a name may be. Rooms that are four fifths full have room in each
/// window but one in some hundreds.
const WINDOW: usize = 16;

/// Names that are no tenant's: of a line that is free, and of one whose bucket has moved on.
const FREE: u64 = 0;
const MOVED: u64 = 1;

/// What a bucket is found by: a hash that is seeded by chance in each process. Two of a quarter of
/// a million tenants share one, and a bucket, in one of five hundred million processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name(u64);

impl Name {
    pub(super) fn new(hash: u64) -> Self {
        Self(hash.max(MOVED + 1))
    }
}

/// What a line keeps.
#[derive(Debug)]
pub(super) struct Entry {
    pub bucket: Bucket,
    /// When the bucket's rate and burst are to be asked for again; the earliest time there is
    /// before they were asked for once.
    pub recheck_ns: i64,
}

impl Entry {
    fn new() -> Self {
        Self { bucket: Bucket::new(0.0, 0), recheck_ns: i64::MIN }
    }

    /// Full, and past its recheck: a new bucket would say the same.
    pub(super) fn is_idle_at(&self, now_ns: i64) -> bool {
        now_ns >= self.recheck_ns && self.bucket.is_full_at(now_ns)
    }
}

#[derive(Debug)]
#[repr(align(64))]
struct Line {
    name: AtomicU64,
    entry: Mutex<Entry>,
}

#[cfg(not(all(test, feature = "model")))]
const _: () = assert!(size_of::<Line>() == 64, "a cache line");

/// See the head of the file.
pub(super) struct Lines {
    rooms: [OnceLock<Box<[Line]>>; ROOMS],
    /// The room in force.
    room: AtomicUsize,
    /// Held while names come, go or move.
    changes: Mutex<()>,
}

impl Lines {
    pub(super) fn new() -> Self {
        let lines = Self {
            rooms: [const { OnceLock::new() }; ROOMS],
            room: AtomicUsize::new(0),
            changes: Mutex::new(()),
        };
        lines.room_of(0);
        lines
    }

    /// The bucket of a name, if it has one.
    pub(super) fn find(&self, name: Name) -> Option<MutexGuard<'_, Entry>> {
        self.search(name).or_else(|| {
            // It may have been on its way to another room.
            let _changes = lock(&self.changes);
            self.search(name)
        })
    }

    /// The bucket of a name, entered if need be; `None` where there is no room for it.
    #[inline]
    pub(super) fn find_or_enter(&self, name: Name, now_ns: i64) -> Option<MutexGuard<'_, Entry>> {
        self.search(name).or_else(|| self.enter(name, now_ns))
    }

    /// Frees the lines whose buckets do not stay.
    pub(super) fn retain(&self, mut stays: impl FnMut(&Entry) -> bool) {
        let _changes = lock(&self.changes);
        for line in self.current() {
            let entry = lock(&line.entry);
            if line.name.load(Ordering::Relaxed) != FREE && !stays(&entry) {
                line.name.store(FREE, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn search(&self, Name(name): Name) -> Option<MutexGuard<'_, Entry>> {
        let line =
            window(self.current(), name).find(|line| line.name.load(Ordering::Relaxed) == name)?;
        let entry = lock(&line.entry);
        // Relaxed: it is changed under this lock only, and before it was but a guess.
        (line.name.load(Ordering::Relaxed) == name).then_some(entry)
    }

    #[cold]
    fn enter(&self, name: Name, now_ns: i64) -> Option<MutexGuard<'_, Entry>> {
        let _changes = lock(&self.changes);
        loop {
            // Somebody else may have entered it, or moved it here, since it was looked for.
            if let Some(entry) = self.search(name) {
                return Some(entry);
            }
            if let Some(entry) = put(self.current(), name, Entry::new(), now_ns) {
                return Some(entry);
            }
            if !self.grow(now_ns) {
                return None;
            }
        }
    }

    /// Moves all into the next room, if there is one. What finds no place there starts anew; with
    /// four times as many lines that is nobody.
    fn grow(&self, now_ns: i64) -> bool {
        let next = self.room.load(Ordering::Relaxed) + 1;
        if next == ROOMS {
            return false;
        }
        let room = self.room_of(next);
        for line in self.current() {
            let mut entry = lock(&line.entry);
            let name = line.name.swap(MOVED, Ordering::Relaxed);
            if name > MOVED {
                drop(put(room, Name(name), std::mem::replace(&mut entry, Entry::new()), now_ns));
            }
        }
        // Pairs with the load in `current`: who sees the number sees what is in the room.
        self.room.store(next, Ordering::Release);
        true
    }

    #[inline]
    fn current(&self) -> &[Line] {
        self.room_of(self.room.load(Ordering::Acquire))
    }

    #[inline]
    fn room_of(&self, number: usize) -> &[Line] {
        self.rooms[number].get_or_init(|| {
            let lines = FIRST_ROOM_LINES * ROOM_GROWTH.pow(number as u32);
            let line = |_| Line { name: AtomicU64::new(FREE), entry: Mutex::new(Entry::new()) };
            (0..lines).map(line).collect()
        })
    }
}

/// Puts an entry into the first line of its window that is free, or whose bucket says no more than
/// a new one would. Changes are locked.
fn put(room: &[Line], Name(name): Name, new: Entry, now_ns: i64) -> Option<MutexGuard<'_, Entry>> {
    for line in window(room, name) {
        let mut entry = lock(&line.entry);
        if line.name.load(Ordering::Relaxed) == FREE || entry.is_idle_at(now_ns) {
            line.name.store(name, Ordering::Relaxed);
            *entry = new;
            return Some(entry);
        }
    }
    None
}

/// The lines in which a name may be. Rooms are powers of two.
#[inline]
fn window(room: &[Line], name: u64) -> impl Iterator<Item = &Line> {
    let home = (name >> 32) as usize;
    (home..home + WINDOW).map(|at| &room[at & (room.len() - 1)])
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A bucket is a few numbers, each valid by itself: a panic in between leaves no bad state.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    /// Numbers that are spread as hashes are.
    fn name(number: u64) -> Name {
        Name::new(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn what_was_entered_is_found_in_every_room_and_what_was_not_is_none() {
        let lines = Lines::new();
        for number in 0..20_000 {
            let mut entry = lines.find_or_enter(name(number), 0).expect("there is room");
            *entry = Entry { bucket: Bucket::new(0.0, number), recheck_ns: 1 };
        }
        assert!(lines.room.load(Ordering::Relaxed) >= 3, "it has grown");
        for number in 0..20_000 {
            let entry = lines.find(name(number)).expect("it is there");
            assert_eq!(entry.bucket.burst(), number);
        }
        assert!((20_000..40_000).all(|number| lines.find(name(number)).is_none()));
        lines.retain(|entry| entry.bucket.burst() % 2 == 0);
        for number in 0..20_000 {
            assert_eq!(lines.find(name(number)).is_some(), number % 2 == 0);
        }
    }

    #[test]
    fn a_bucket_that_moves_beside_its_takers_loses_and_doubles_nothing() {
        let lines = Lines::new();
        let one = name(7);
        *lines.find_or_enter(one, 0).expect("room") =
            Entry { bucket: Bucket::new(0.0, 100_000), recheck_ns: i64::MAX };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut entry = lines.find_or_enter(one, 0).expect("it is there");
                        assert!(entry.bucket.take(1, 0));
                    }
                });
            }
            scope.spawn(|| {
                for number in 100..30_000 {
                    let mut entry = lines.find_or_enter(name(number), 0).expect("room");
                    entry.recheck_ns = i64::MAX;
                }
            });
        });
        assert_eq!(lines.find(one).expect("it is there").bucket.credits_at(0), 60_000.0);
    }
}
