//! Service tests, one binary.
#![expect(
    clippy::disallowed_methods,
    reason = "a test ends what it starts, and bounds what it sends"
)]

#[path = "../golden/vectors.rs"]
mod vectors;

mod admin;
mod admin_access;
mod browser;
mod budget_gates;
mod budget_sim;
mod budgets;
mod cases_a;
mod cases_b;
mod cases_e;
mod cases_r;
mod chaos;
mod cli;
mod client_pages;
mod cluster;
mod cortex;
mod distributor_answers;
mod distributors;
mod explain;
mod fan_out;
mod faults;
mod flood;
mod front_door;
mod gossip_sim;
mod grpc;
mod http;
mod http_behaviour;
mod memberlist;
mod metric_names;
mod mixin;
mod packaging;
mod pages;
mod pages_overview;
mod pages_ring;
mod pages_tenants;
mod pass_through;
mod passes;
mod ports;
mod process;
mod prometheus;
mod push;
mod query_gate;
mod query_proxy;
mod read;
mod restart;
mod ring_sim;
mod ring_stores;
mod scale_up;
mod sidecar;
mod sidecar_chaos;
mod sidecar_hostile;
mod sidecar_life;
mod sidecar_tls;
mod tracing;
mod upstream;
mod write_gate;
