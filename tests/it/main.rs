//! Service tests, one binary.

#[path = "../golden/vectors.rs"]
mod vectors;

mod cases_a;
mod cluster;
mod grpc;
mod http;
mod passes;
mod ring_sim;
mod scale_up;
