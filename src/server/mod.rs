//! The server room (being built).

pub mod config;
