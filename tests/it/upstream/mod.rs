//! A sidecar's counts against an ingester in this process.

mod following;
pub mod ingester;
mod sidecar;
