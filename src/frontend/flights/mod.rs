//! Identical queries in flight share one answer.
//!
//! ```text
//! join_or_lead ─► somebody asks the same already: a reader of that answer
//!             └─► nobody does: leads, pays, and has the answer written for all
//! ```
//!
//! Who leads does so before it pays, so that two who come at once pay once; if it cannot pay, the
//! next one leads. Who leaves takes nothing from the others: the answer is written by a task of its own, which
//! ends once nobody reads. The table holds what is in flight and no more, so the bounds on
//! requests in flight are its bound.

mod coming;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};

use super::asked::QueryKey;
use crate::sync::{Mutex, MutexGuard};

pub use coming::{Coming, Lost, Reader};

/// See the head of the file.
pub struct Flights<H, E>(Shared<H, E>);

type Table<H, E> = HashMap<QueryKey, Arc<Coming<H, E>>>;
type Shared<H, E> = Arc<Mutex<Table<H, E>>>;

/// What a query has come to.
pub enum Place<H, E: Clone + Default + std::error::Error + 'static> {
    /// Somebody was here before.
    Joined(Reader<H, E>),
    Leads(Lead<H, E>, Reader<H, E>),
}

/// Writes the answer; when dropped, nobody joins it any more, and one without an end has the
/// error that is `E`'s default.
pub struct Lead<H, E: Clone + Default + std::error::Error + 'static> {
    coming: Arc<Coming<H, E>>,
    listed: Option<(QueryKey, Shared<H, E>)>,
}

impl<H, E> Default for Flights<H, E> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<H, E: Clone + Default + std::error::Error + 'static> Flights<H, E> {
    /// Leads, or joins who came before; without a key it is shared with nobody.
    pub fn join_or_lead(&self, key: Option<QueryKey>) -> Place<H, E> {
        let Some(key) = key else {
            let (coming, reader) = Coming::new();
            return Place::Leads(Lead { coming, listed: None }, reader);
        };
        let mut table = lock(&self.0);
        if let Some(reader) = table.get(&key).and_then(Coming::join) {
            return Place::Joined(reader);
        }
        let (coming, reader) = Coming::new();
        // In the place of one that nobody can join any more.
        table.insert(key, Arc::clone(&coming));
        let listed = Some((key, Arc::clone(&self.0)));
        Place::Leads(Lead { coming, listed }, reader)
    }
}

impl<H, E: Clone + Default + std::error::Error + 'static> Lead<H, E> {
    pub fn answer(&self) -> &Arc<Coming<H, E>> {
        &self.coming
    }
}

impl<H, E: Clone + Default + std::error::Error + 'static> Drop for Lead<H, E> {
    fn drop(&mut self) {
        self.coming.give_up(E::default());
        let Some((key, table)) = self.listed.take() else { return };
        if let Entry::Occupied(entry) = lock(&table).entry(key)
            && Arc::ptr_eq(entry.get(), &self.coming)
        {
            entry.remove();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, thiserror::Error)]
    #[error("broke off")]
    struct Broke;

    type Queries = Flights<u16, Broke>;

    #[tokio::test]
    async fn the_same_is_asked_once_while_it_is_in_flight() {
        let flights = Queries::default();
        let (a, b) = (QueryKey([1; 32]), QueryKey([2; 32]));
        let Place::Leads(lead, first) = flights.join_or_lead(Some(a)) else { panic!("leads") };
        let Place::Joined(second) = flights.join_or_lead(Some(a)) else { panic!("in flight") };
        assert!(matches!(flights.join_or_lead(Some(b)), Place::Leads(..)));
        drop(first);
        lead.answer().head(200);
        assert_eq!(*second.head().await.expect("the first one's leaving is nothing to it"), 200);
        drop(lead);
        assert!(matches!(flights.join_or_lead(Some(a)), Place::Leads(..)), "it is no cache");
        let mut second = second;
        assert!(second.next().await.expect("an end").is_err(), "it had not ended");
    }

    #[test]
    fn what_nobody_reads_any_more_is_asked_anew() {
        let flights = Queries::default();
        let key = QueryKey([1; 32]);
        let Place::Leads(old, reader) = flights.join_or_lead(Some(key)) else { panic!("leads") };
        drop(reader);
        let Place::Leads(_new, _reader) = flights.join_or_lead(Some(key)) else { panic!("leads") };
        drop(old);
        let again = flights.join_or_lead(Some(key));
        assert!(matches!(again, Place::Joined(_)), "the old one's end is not the new one's");
    }

    #[test]
    fn what_has_no_key_is_shared_with_nobody() {
        let flights = Queries::default();
        for _ in 0..2 {
            assert!(matches!(flights.join_or_lead(None), Place::Leads(..)));
        }
        assert!(lock(&flights.0).is_empty());
    }
}
