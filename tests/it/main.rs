//! Service tests, one binary.

#[path = "../golden/vectors.rs"]
mod vectors;

mod grpc;
mod http;
mod process;
mod prometheus;
mod restart;
mod ring_sim;
