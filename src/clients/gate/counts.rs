//! What a gate has done.

use super::POLICIES;
use crate::clients::owner::OwnerCounts;
use crate::sync::AtomicU64;

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) own: AtomicU64,
    pub(super) asked: AtomicU64,
    pub(super) renewals: AtomicU64,
    pub(super) lost: [AtomicU64; POLICIES.len()],
    pub(super) lost_refused: AtomicU64,
    pub(super) alone: AtomicU64,
    pub(super) not_owner: AtomicU64,
    pub(super) served: AtomicU64,
    pub(super) handed_over: AtomicU64,
    pub(super) taken_over: AtomicU64,
}

/// What a gate has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Decisions by accounts of ours.
    pub own: u64,
    /// Decisions by leases, and by denials that are believed.
    pub leased: u64,
    pub denied_here: u64,
    /// Decisions that waited for an owner, and renewals that nobody waited for.
    pub asked: u64,
    pub renewals: u64,
    /// Decisions without an owner, by policy, and how many of them refused.
    pub lost: [u64; POLICIES.len()],
    pub lost_refused: u64,
    /// Decisions by our own limit, of which the owner knew none.
    pub alone: u64,
    /// Questions that went to a gate that did not own the key.
    pub not_owner: u64,
    /// Questions of others that we answered.
    pub served: u64,
    pub handed_over: u64,
    pub taken_over: u64,
    pub owner: OwnerCounts,
    /// Budgets of others that we know, and credit that we hold of them.
    pub known: usize,
    pub held: u64,
}
