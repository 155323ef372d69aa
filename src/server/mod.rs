//! The server room (being built).
