//! The limits room (being built).
