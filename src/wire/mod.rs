//! The wire room (being built).

pub mod ring_desc;
