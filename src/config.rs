//! The config room (being built).
