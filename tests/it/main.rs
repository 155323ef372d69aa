//! Service tests, one binary.

#[path = "../golden/vectors.rs"]
mod vectors;

mod cortex;
mod grpc;
mod http;
mod ring_sim;
