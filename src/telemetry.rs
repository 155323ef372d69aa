//! The telemetry room (being built).
