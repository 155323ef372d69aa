//! Compiles the protobuf sources in Rust; no `protoc` is needed.
//!
//! Only messages: the gRPC server takes received bytes as they are and needs no service code.

use std::error::Error;

const SOURCES: [&str; 10] = [
    "cortex.proto",
    "ingester.proto",
    "prometheus.proto",
    "httpgrpc.proto",
    "status.proto",
    "etcd.proto",
    "ha.proto",
    "budgets.proto",
    "memberlist.proto",
    "otlp_trace.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(SOURCES, ["proto"])?;
    // Gossiped values are a ring's worth of bytes, and are shared with whoever holds the message.
    prost_build::Config::new().bytes([".memberlist"]).compile_fds(descriptors)?;
    Ok(())
}
