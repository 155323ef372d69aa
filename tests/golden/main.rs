//! Golden tests: Cortex's own answers, one test per file of vectors.
//!
//! Files come from `tests/vectors`, or from the directory that `FREEHOLD_VECTORS` names.

mod active_series;
mod distributor_errors;
mod errors;
mod ewma;
mod explain;
mod limits;
mod rate_limiter;
mod ring_walk;
mod shuffle_shard;
mod tokens;
mod validation;
mod vectors;
mod write_requests;
