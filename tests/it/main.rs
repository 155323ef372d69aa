//! Service tests, one binary.

#[path = "../golden/vectors.rs"]
mod vectors;

mod grpc;
mod http;
mod read;
mod ring_sim;
