//! The query gate: who may ask how much, before anything is queued.
//!
//! What must hold: a query that its cluster answered from a cache costs its client nothing in the
//! end; what was not is paid for, by budgets that hold over all query gates.

pub mod config;
pub mod shared;

pub use config::{FrontendConfig, FrontendConfigError};
