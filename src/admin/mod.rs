//! The admin room (being built).
