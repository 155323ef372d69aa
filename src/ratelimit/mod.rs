//! What is limited where, by rate.
//!
//! | limiter | file | keyed by | a refusal |
//! |---|---|---|---|
//! | tenant ingestion, native histograms | `tenants` | tenant | 429 with the rate or the burst |
//! | instance rate | `ewma` | – | 503; the average of the accepted items |
//! | front door | `bucket` | address, credential | 429 (`front_door`) |
//! | log lines of refusals | `log_lines` | kind | counted, and told with the next line |
//!
//! All arithmetic is that of Go's `x/time/rate` and of Cortex's moving average, to the last bit.
//! Time is a parameter: Unix nanoseconds that the caller read once for the whole request. Rates
//! and bursts are parameters too; where they come from is no business of this room.

mod bucket;
mod ewma;
mod headers;
mod log_lines;
mod tenants;

pub use bucket::{Bucket, RATE_UNLIMITED, RETRY_AFTER_SECS_MAX, retry_after_secs};
pub use ewma::Ewma;
pub use headers::RateLimitHeaders;
pub use log_lines::LogLines;
pub use tenants::{
    BucketView, Budget, Charge, Items, OverRate, RECHECK_PERIOD, SHARE_TOLERANCE, Strategy, Swept,
    TENANTS_MAX, TenantLimiter,
};
