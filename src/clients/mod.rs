//! Budgets below the tenant, owned by the ring and prepaid by leases.
//!
//! Each budget has one owner among the gates, found on their ring by its name. The owner alone
//! keeps the account; other gates spend leases, which the owner has debited before. So a budget
//! holds exactly over all gates, while most decisions ask nobody.
//!
//! ```text
//! gate ─ placement ─► ours ──► owner: account (credit, grants, ghosts)
//!                 └─► other's ► leases ─► exchange ··► the other's gate ─► owner
//! ```
//!
//! Nothing in here does I/O, waits or reads a clock, `peers` aside, which carries batches from
//! gate to gate and lets requests wait for answers. What is told by whom is in
//! `docs/client-budgets.md`.

pub mod account;
pub mod config;
pub mod exchange;
pub mod gate;
mod headroom;
pub mod key;
pub mod leases;
pub mod owner;
pub mod peers;
pub mod placement;
mod recent;

pub use gate::{Cause, Charge, Decision, Gate, GateCounts, GateSettings, Outcome, Refusal};
pub use key::{Gates, Key, KeyHasher, Kind, OwnedKey, TRIES_PER_QUERY};
pub use owner::{AccountView, REFUSED_MAX, Terms};
pub use peers::Budgets;
pub use placement::OwnerMap;
