//! Freehold: the admission control that a Cortex cluster lacks.
//!
//! A push comes in at an edge and is judged by what ring and limits say of its tenant; what is
//! ours by the ring is worked out behind the pushes, never on their way.
//!
//! ```text
//! remote write ─► server ─► distributor ─┐
//! gRPC push ────► server ────────────────┴─► ingester ─► series, limits, ratelimit ─► store
//! query ────────► server ─► frontend ─► upstream: those who answer
//!                     ring, limits change ─► passes ────► standing, recount
//! ```
//!
//! In reading order: `app` wires everything; the words that every room speaks (`keys`, `labels`,
//! `tenant`, `units`, `go_text`, `sync`); mechanisms (`ratelimit`, `exposition`); the core rooms,
//! which know neither clocks nor tasks nor each other (`ring`, `series`, `limits`, `clients`,
//! `front_door`); formats
//! (`wire`); what reaches outside (`clock`, `store`, `tls`, `upstream`, `trail`, and the drivers inside
//! `ring` and `limits`); services (`ingester`, `distributor`, `frontend`); the edge (`server`, `admin`). A room
//! uses what is below it. `docs/architecture.md` has the table, and `tests/tidy.rs` holds every
//! import to it.

pub mod app;
pub mod config;
pub mod load;
pub mod output;
pub mod plan;
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

pub mod clients;
pub mod front_door;
pub mod gossip;
pub mod limits;
pub mod ratelimit;
pub mod ring;
pub mod series;

pub mod wire;

pub mod store;
pub mod tls;
pub mod trail;
pub mod upstream;

pub mod distributor;
pub mod explain;
pub mod frontend;
pub mod ingester;

pub mod admin;
pub mod server;
