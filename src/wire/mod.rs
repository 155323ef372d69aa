//! The wire room (being built).
