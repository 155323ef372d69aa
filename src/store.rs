//! The store room (being built).
