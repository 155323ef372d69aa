//! The ring room (being built).

pub mod config;
pub mod kv;
pub mod lifecycle;
pub mod lifecycler;
pub mod merge;
pub mod model;
pub mod watcher;
