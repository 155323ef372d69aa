//! What others may see of the query gate: what it refuses, and what it thinks of cached answers.

use super::Frontend;
use super::canary::Belief;
use super::config::CachedAnswers;
use crate::exposition::RefusedCount;
use crate::tenant::TenantId;

/// Whether answers from Cortex's results cache cost clients nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedAreFree {
    /// As it was configured, without a proof, or since nobody has a budget.
    Configured { free: bool },
    /// Canaries have shown that they are told apart.
    Proved,
    /// No canary has come back, so they are charged.
    Unproved,
    /// A canary has shown that they are not told apart, so they are charged.
    Disproved,
}

impl Frontend {
    /// Tells of everything that was refused here since the start, by reason and tenant.
    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        self.counters.tell_refused(tell);
    }

    /// The same of one tenant, with what budgets of its clients would have refused.
    pub fn tell_refused_of(&self, tenant: &TenantId, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        self.counters.tell_refused_of(tenant, tell);
    }

    /// Queries that are being answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight.all()
    }

    pub fn cached_are_free(&self) -> CachedAreFree {
        let verifies = self.config.cached_answers == CachedAnswers::Verified;
        if !verifies || self.means.is_none() {
            return CachedAreFree::Configured { free: self.signal.is_believed() };
        }
        match self.signal.belief() {
            Belief::Believed => CachedAreFree::Proved,
            Belief::Unknown => CachedAreFree::Unproved,
            Belief::Disproved => CachedAreFree::Disproved,
        }
    }
}
