//! Service tests, one binary.

#[path = "../golden/vectors.rs"]
mod vectors;

mod grpc;
mod http;
mod push;
mod ring_sim;
