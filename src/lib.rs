//! Freehold: the admission control that a Cortex cluster lacks.

pub mod app;
pub mod config;
pub mod query;
pub mod telemetry;

pub mod clock;
pub mod exposition;
pub mod go_text;
pub mod keys;
pub mod labels;
pub mod sync;
pub mod tenant;
pub mod units;

pub mod limits;
pub mod ratelimit;
pub mod ring;
pub mod series;

pub mod wire;

pub mod store;

pub mod distributor;
pub mod ingester;

pub mod admin;
pub mod server;
