//! The ring room (being built).

pub mod model;
