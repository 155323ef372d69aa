//! Service tests, one binary.

mod grpc;
mod http;
