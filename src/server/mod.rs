//! The edge: where requests come in and answers go out.
//!
//! Listeners, drain, thin gRPC and HTTP handlers, and `status`, the only place that knows which
//! number and which text an error becomes. No rule of the domain lives here: a handler reads a
//! request, calls a service through `seam`, and writes what came of it.
//!
//! How a process ends: the shell says so through a `Drainer`; listeners close, open connections
//! are told, push streams answer the message at hand and end with an error, and `serve` returns
//! when all calls are over or the drain's time is.

pub mod client_header;
pub mod config;
mod connections;
pub mod drain;
pub mod durations;
pub mod front_door;
pub mod grpc;
pub mod http;
pub mod listen;
mod push_log;
pub mod queries;
pub mod read;
pub mod room;
pub mod seam;
pub mod shares;
pub mod status;
pub mod stream_auth;
pub mod tenancy;
pub mod trails;

/// How a listener's end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every call was answered.
    Whole,
    /// The drain's time ended first.
    Cut,
}
