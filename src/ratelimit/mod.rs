//! The ratelimit room (being built).
