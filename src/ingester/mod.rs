//! The ingester room (being built).

pub mod acceptance;
pub mod gate;
pub mod metadata;
