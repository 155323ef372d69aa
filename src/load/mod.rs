//! `freehold load`: made-up series, sent by a schedule, and what became of them.
//!
//! ```text
//! schedule  which samples are due when, in which request         ┐
//! series    what a series is called, and what its samples say    │ core: no clock, no network
//! latency   how long requests took                               │
//! tally     what became of them                                  ┘
//! body      a batch as bytes, compressed
//! target    one request, over HTTP or gRPC
//! drive     a task for each lane, until the time is over or somebody stops it
//! report    the line that shows how it goes, and the summary
//! ```
//!
//! What must hold: what is told as sent was sent, once, and every request is told under exactly
//! one outcome; a series' samples go out in the order of their times, since one lane alone sends
//! them; with a rate, latencies count from when a request was due, so that a server that stalls is
//! charged for what had to wait behind it; memory does not grow with the length of a run.

mod body;
mod drive;
mod latency;
mod report;
mod schedule;
mod series;
mod tally;
mod target;

pub use drive::run;
pub use schedule::{BATCHES_MAX, Pace, Shape};
pub use series::Values;
pub use target::TargetError;

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot send to {address}")]
    Target { address: String, source: TargetError },
    #[error(
        "{tenants} tenants with {series} series each in requests of {batch} samples are more than \
         {BATCHES_MAX} requests a round; raise --batch, or take fewer of them"
    )]
    TooMuch { tenants: u32, series: u32, batch: u32 },
    #[error("cannot write the summary as JSON")]
    Json(#[source] serde_json::Error),
}
