//! The ingester room (being built).

pub mod config;
