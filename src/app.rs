//! The app room (being built).
