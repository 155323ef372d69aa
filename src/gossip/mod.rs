//! Gossip: membership and rumours among the members of a Cortex cluster, as HashiCorp's memberlist
//! speaks it.
//!
//! Peers probe each other, spread what they learn with their packets, and now and then compare
//! everything over a stream. What the layer above wants spread (ring changes) rides along.
//!
//! Read [`membership`] first: it is the whole machine on one page, without input and output. `wire`
//! turns its messages into bytes, `transport` carries these between members.

pub mod awareness;
pub mod broadcasts;
pub mod config;
pub mod discovery;
pub mod joining;
pub mod membership;
pub mod message;
pub mod metrics;
pub mod peers;
pub mod probe;
pub mod schedule;
pub mod settings;
pub mod suspicion;
pub mod transport;
pub mod wire;
