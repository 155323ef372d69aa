//! Gossip: membership and rumours among the members of a Cortex cluster, as HashiCorp's memberlist
//! speaks it.
//!
//! Peers probe each other, spread what they learn with their packets, and now and then compare
//! everything over a stream. What the layer above wants spread (ring changes) rides along.

pub mod config;
pub mod discovery;
pub mod message;
pub mod metrics;
pub mod transport;
pub mod wire;
