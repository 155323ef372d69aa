//! Service tests, one binary.
#![expect(
    clippy::disallowed_methods,
    reason = "a test ends what it starts, and bounds what it sends"
)]

#[path = "../golden/vectors.rs"]
mod vectors;

mod admin;
mod grpc;
mod http;
mod ring_sim;
