//! Service tests, one binary.

#[path = "../golden/vectors.rs"]
mod vectors;

mod grpc;
mod http;
//! Tests of whole parts against each other, in one binary.

mod ring_sim;
