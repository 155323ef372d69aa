//! Golden tests: Cortex's own answers, one test per file of vectors.
//!
//! Files come from `tests/vectors`, or from the directory that `FREEHOLD_VECTORS` names.

mod ewma;
mod limits;
mod rate_limiter;
mod vectors;
