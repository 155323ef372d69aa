//! All that a touch reads and writes of an entry, and what the minute cycle reads of it.
//!
//! A touch of a large tenant waits for memory, so all it needs is one row of half a cache line.
//! The cycle reads every entry and needs one word of each, so there is a column of those words.
//! A touch tells the column now and then only: where its word says that an entry may be idle, the
//! row is asked.
//!
//! Invariant: a column's word is the row's `last`, but its tick may be behind while the entry is
//! active.

use super::last::{Activity, Last, Tick};
use crate::labels::Identity;

/// How far a column's tick may be behind before a touch brings it up. Far less than the idle
/// window, so that the cycle asks hardly any row in vain; and at usual intervals of fifteen
/// seconds seven touches of eight leave the column alone.
const BEHIND_MAX: u32 = 120;
/// Entries of a column that the cycle looks at together.
const CHUNK: usize = 64;

/// See the head of the file. The identity is two words, since one of 16 bytes would pad the row.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Row {
    id: [u64; 2],
    pub(super) newest_ms: i64,
    last: Last,
    /// The tick that the column has.
    told: Tick,
}

const _: () = assert!(size_of::<Row>() == 32, "half a cache line");

impl Row {
    pub(super) fn new(identity: Identity, newest_ms: i64, last: Last) -> Self {
        Self { id: words(identity), newest_ms, last, told: last.tick() }
    }

    #[inline]
    pub(super) fn identity(&self) -> Identity {
        Identity(u128::from(self.id[0]) << 64 | u128::from(self.id[1]))
    }

    #[inline]
    pub(super) fn is(&self, identity: Identity) -> bool {
        self.id == words(identity)
    }

    /// Any word of the row, to have it near.
    #[inline]
    pub(super) fn word(&self) -> u64 {
        self.id[0]
    }

    #[inline]
    pub(super) fn last(&self) -> Last {
        self.last
    }

    /// Changes what the column has to be told at once, and returns it.
    #[inline]
    pub(super) fn set_last(&mut self, last: Last) -> Last {
        (self.last, self.told) = (last, last.tick());
        last
    }

    /// Moves both times of an active entry forward; what to tell the column, if it is time to.
    #[inline]
    pub(super) fn touch(&mut self, newest_ms: i64, now: Tick) -> Option<Last> {
        self.last = self.last.touched(now);
        self.learn_newest(newest_ms);
        let behind = self.last.tick().get().wrapping_sub(self.told.get());
        (behind >= BEHIND_MAX).then(|| self.set_last(self.last))
    }

    #[inline]
    pub(super) fn learn_newest(&mut self, newest_ms: i64) {
        self.newest_ms = self.newest_ms.max(newest_ms);
    }
}

/// Marks as idle what was touched before `idle_before`, in the column and in the rows.
pub(super) fn settle_idle(column: &mut [Last], rows: &mut [Row], idle_before: Tick) -> Activity {
    let mut idle = Activity::default();
    for (column, rows) in column.chunks_mut(CHUNK).zip(rows.chunks_mut(CHUNK)) {
        // Without branches, so that it compiles to vector code.
        let may_be_idle = column.iter().fold(0, |any, last| any | last.is_before(idle_before));
        if may_be_idle == 0 {
            continue;
        }
        for (told, row) in column.iter_mut().zip(rows) {
            if told.is_before(idle_before) == 0 {
                continue;
            }
            if row.last.is_before(idle_before) == 1 {
                idle.note(row.last.kind());
                row.last = row.last.idle();
            }
            *told = row.set_last(row.last);
        }
    }
    idle
}

#[inline]
fn words(identity: Identity) -> [u64; 2] {
    [(identity.0 >> 64) as u64, identity.0 as u64]
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use proptest::prelude::*;

    use super::super::batch::Kind;
    use super::super::last::Flags;
    use super::*;

    proptest! {
        /// Whatever is touched when, the cycle finds idle what one that asks every row would.
        #[test]
        fn the_column_hides_nothing_that_is_idle(
            steps in prop::collection::vec((0_usize..150, 0_u32..90, any::<bool>()), 1..200),
        ) {
            let new = Last::new(Tick::new(1000), Kind::Float, Flags { active: true, pending: false });
            let mut rows = vec![Row::new(Identity(1), 0, new); 150];
            let mut column = vec![new; rows.len()];
            let mut naive = vec![new; rows.len()];
            let mut now = 1000;
            for (at, elapsed, is_cycle) in steps {
                now += elapsed;
                if is_cycle {
                    let idle_before = Tick::new(now - 300);
                    let idle = settle_idle(&mut column, &mut rows, idle_before);
                    let mut expect = 0;
                    for last in naive.iter_mut().filter(|last| last.is_before(idle_before) == 1) {
                        *last = last.idle();
                        expect += 1;
                    }
                    prop_assert_eq!(idle.all, expect);
                } else {
                    let tick = Tick::new(now);
                    naive[at] = naive[at].touched(tick);
                    if rows[at].last().active() {
                        if let Some(told) = rows[at].touch(0, tick) {
                            column[at] = told;
                        }
                    } else {
                        let woken = rows[at].last().touched(tick);
                        column[at] = rows[at].set_last(woken);
                    }
                }
                for ((row, told), naive) in rows.iter().zip(&column).zip(&naive) {
                    prop_assert_eq!(row.last(), *naive);
                    prop_assert_eq!(row.told, told.tick());
                    prop_assert_eq!(told.active(), naive.active());
                }
            }
        }
    }
}
