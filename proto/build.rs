//! Compiles the protobuf sources in Rust; no `protoc` is needed.
//!
//! Only messages: the gRPC server takes received bytes as they are and needs no service code.

use std::error::Error;

const SOURCES: [&str; 8] = [
    "cortex.proto",
    "ingester.proto",
    "prometheus.proto",
    "httpgrpc.proto",
    "status.proto",
    "etcd.proto",
    "ha.proto",
    "budgets.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(SOURCES, ["proto"])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
