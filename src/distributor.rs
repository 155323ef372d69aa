//! The distributor room (being built).
