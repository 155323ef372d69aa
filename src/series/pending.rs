//! The end of a request that created series without knowing whether they exist.
//!
//! A pending entry counts like any other. Each request that created or met it holds it; it goes
//! when the last of them is refused, unless one of them has learnt that it exists or ended
//! without an answer.

use super::layout::{Prefix, follow};
use super::stripe::Released;
use super::{Books, SeriesStore};
use crate::labels::Identity;
use crate::sync::Ordering;

impl SeriesStore {
    /// A request has ended well: what it held exists.
    pub fn confirm(&self, held: &[Identity]) {
        let set = self.stripes.load();
        for &identity in held {
            follow(&set, Prefix::of(identity), |stripe, _| {
                if stripe.confirm(identity) {
                    self.mirror.pending.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
    }

    /// A request was refused as a whole: what it alone held is gone without a trace.
    ///
    /// A series that another request holds too, or that one has confirmed or left undecided,
    /// stays. `held` has an identity as often as the request was told that it holds it.
    pub fn release(&self, held: &[Identity]) {
        for &identity in held {
            let mut books = self.books();
            let Books { ledger, layout } = &mut *books;
            let mut stripe = layout.lock(identity);
            if let Released::Orphan(row) = stripe.release(identity) {
                self.remove_row(ledger, &mut stripe, row);
            }
        }
    }

    /// A request ended without telling which of its series exist. They stay, counted and
    /// pending, until a later request confirms them, a listing restores them, or they are old.
    pub fn abandon(&self, held: &[Identity]) {
        let set = self.stripes.load();
        for &identity in held {
            follow(&set, Prefix::of(identity), |stripe, _| stripe.abandon(identity));
        }
    }
}
