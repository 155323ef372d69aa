//! The ingester room (being built).
