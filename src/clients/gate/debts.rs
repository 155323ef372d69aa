//! What is charged after the fact: work that turned out to cost more than it was admitted for.

use super::{Gate, Id, Question, Wish, lock};
use crate::clients::key::{Key, KeyHash};
use crate::clients::owner::{KeyedTerms, Terms};
use crate::clients::placement::Placed;

impl<W> Gate<W> {
    /// Takes `n` credits whether they are there or not, at the owner; what is missing is paid by
    /// the refill to come.
    ///
    /// Best effort, as refunds are: what finds no owner, no room in line, or a link that breaks
    /// is forgotten. What is held here stays: a lease was paid for before, and a denial that is
    /// believed is as right with a debt as without.
    pub fn debit(&self, key: Key<'_>, n: u64, terms: Terms, now_ns: i64) {
        if n == 0 {
            return;
        }
        let hash = self.hasher.hash(key);
        let maps = self.maps.load();
        match maps.map.place(hash) {
            Placed::Here => {
                let budget = KeyedTerms { key, hash, terms };
                let start = || self.start(&maps, hash, terms.budget, now_ns);
                self.owner.debit(budget, n, now_ns, start);
            }
            Placed::At(owner) => {
                // A debt ends at one burst, and nobody has more than one to lose.
                let debt = n.min(terms.budget.burst.saturating_mul(2));
                self.tell_debt(owner, key, hash, debt);
            }
            Placed::Nowhere => {}
        }
    }

    fn tell_debt(&self, owner: &Id, key: Key<'_>, hash: KeyHash, debt: u64) {
        if let Some(seat) = self.links.load().get(owner) {
            let (key, wish) = (key.to_owned(), Wish::default());
            let question = Question { key, hash, wish, refund: None, debt, waiter: None };
            if lock(&seat.link).ask(question).is_ok() {
                (seat.wake)();
            }
        }
    }
}
