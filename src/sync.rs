//! Locks and atomics: std's, or loom's while a model test explores their orders.
//!
//! The only such switch in the crate. The `model` feature turns it, never `--cfg loom`, which
//! would reach tokio too.

#[cfg(not(all(test, feature = "model")))]
pub use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock,
    atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(all(test, feature = "model"))]
pub use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};
