//! Budgets of clients, each kept by the one member of a ring that owns it.
//!
//! * [`config`]: the `client_identity:` block, who is a client and what happens without an owner.

pub mod config;
