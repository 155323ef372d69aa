//! What a client pays for a query, and when it gets that back.
//!
//! ```text
//! tries ─ the ceiling ─► credit ─► charged ─► answer from a cache, believed, in time ─► given back
//!                             └─► none, but lately cached ─► tried ─► missed ─► debt
//! ```
//!
//! What must hold: each query that reached those behind us and was not answered from a cache is
//! paid once, however it ended; nothing is given back twice.

use std::sync::Arc;

use super::asked::QueryKey;
use super::canary::Signal;
use super::counters::Counters;
use super::lately::{Lately, Try};
use super::shared;
use crate::clients::peers::Budgets;
use crate::clients::{Charge, Refusal, Terms};
use crate::clock::Clock;
use crate::tenant::{ClientId, TenantId};

/// What a query costs.
const QUERY_CREDITS: u64 = 1;

/// A client with a budget.
#[derive(Clone)]
pub struct Purse {
    pub tenant: TenantId,
    pub client: ClientId,
    pub terms: Terms,
    /// Nothing is refused, only counted.
    pub is_shadow: bool,
    pub means: Means,
}

/// What purses work with; the same for all.
#[derive(Clone)]
pub struct Means {
    pub budgets: Budgets,
    pub signal: Arc<Signal>,
    pub lately: Arc<Lately>,
    pub counters: Arc<Counters>,
    pub clock: Clock,
}

/// A query that is paid for, or to be paid for once its answer is known. Dropped without a word,
/// it has cost its price: so a query that was aborted or came to nothing is paid.
#[must_use = "what came of the query decides what it costs"]
pub struct Payment {
    /// `None` for those whom nobody limits.
    made: Option<(Purse, Paid)>,
    /// Of queries that a cache may answer.
    shape: Option<QueryKey>,
}

enum Paid {
    Charged(Charge),
    /// Without credit, on the word that it lately cost nothing.
    Tried(#[expect(dead_code, reason = "held: it is a place among the tries")] Try),
    /// It would have been refused.
    Shadowed,
}

impl Purse {
    /// Counts against the ceiling, which nothing is ever given back to.
    pub async fn try_once(&self) -> Result<(), Refusal> {
        let key = shared::tries_key(&self.tenant, &self.client);
        let charged =
            self.means.budgets.charge(key, QUERY_CREDITS, shared::tries_terms(self.terms));
        match charged.await {
            Ok(charge) => {
                drop(charge);
                Ok(())
            }
            Err(_) if self.is_shadow => {
                self.means.counters.shadow_refused(&self.tenant);
                Ok(())
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Pays for a query; `shape` is that of one which a cache may answer.
    pub async fn pay(self, shape: Option<QueryKey>) -> Result<Payment, Refusal> {
        let Means { budgets, signal, lately, counters, clock } = &self.means;
        let key = shared::client_key(&self.tenant, &self.client);
        let paid = match budgets.charge(key, QUERY_CREDITS, self.terms).await {
            Ok(charge) => Paid::Charged(charge),
            Err(_) if self.is_shadow => {
                counters.shadow_refused(&self.tenant);
                Paid::Shadowed
            }
            Err(refusal) => {
                let tried = shape.filter(|_| signal.is_believed()).and_then(|shape| {
                    lately.try_one(&shape, &self.tenant, &self.client, clock.steady_ns())
                });
                let tried = tried.ok_or(refusal)?;
                counters.tried.add(1);
                // Until it has come from there again: one that fails or is given up proves nothing.
                if let Some(shape) = shape {
                    lately.note(shape, false, clock.steady_ns());
                }
                Paid::Tried(tried)
            }
        };
        Ok(Payment { made: Some((self, paid)), shape })
    }
}

impl Payment {
    /// For whoever is not limited.
    pub fn none() -> Self {
        Self { made: None, shape: None }
    }

    /// The answer has begun; `is_cached` says whether it claims to come from a cache.
    pub fn answered(mut self, is_cached: bool) {
        let Some((purse, paid)) = self.made.take() else { return };
        let is_cached = is_cached && purse.means.signal.is_believed();
        if let Some(shape) = self.shape {
            let now_ns = purse.means.clock.steady_ns();
            purse.means.lately.note(shape, is_cached, now_ns);
        }
        match paid {
            Paid::Charged(charge) if is_cached => {
                purse.means.counters.given_back.add(1);
                purse.give_back(charge);
            }
            Paid::Tried(_) if !is_cached => purse.owe(),
            Paid::Charged(_) | Paid::Tried(_) | Paid::Shadowed => {}
        }
    }
}

impl Drop for Payment {
    fn drop(&mut self) {
        if let Some((purse, Paid::Tried(_))) = self.made.take() {
            purse.owe();
        }
    }
}

impl Purse {
    /// Comes to nothing once the charge is settled, a quarter to half a second after it was made.
    fn give_back(&self, charge: Charge) {
        self.means.budgets.give_back(shared::client_key(&self.tenant, &self.client), charge);
    }

    fn owe(&self) {
        self.means.counters.owed.add(1);
        let key = shared::client_key(&self.tenant, &self.client);
        self.means.budgets.debit(key, QUERY_CREDITS, self.terms);
    }
}
