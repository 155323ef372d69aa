//! Our counts follow the series of a real ingester behind us.
//!
//! As a sidecar we hold no samples: which series there are is the upstream's to say, and it says
//! little. `AllUserStats` tells how many each tenant has, and a listing of label sets tells which,
//! but takes seconds of its time. So pushes are counted as they pass, the upstream's numbers are
//! compared with ours every minute, and only where they differ for long, or where something has
//! happened that counting cannot explain, a tenant is listed.
//!
//! ```text
//! ticks, answers ─► machine: per tenant (sight, now) → order ─► driver: poll, list, drop, load
//!                                                              └► listing: mark and sweep
//! ```
//!
//! What must hold: series leave here only when the upstream has dropped them, as far as counting
//! can tell; while a tenant's series are being loaded it counts at least as many as the upstream
//! had; nothing here stops a push.

mod driver;
mod drops;
mod listing;
mod machine;
mod pace;
mod status;
mod tenant;
#[cfg(all(test, not(feature = "model")))]
mod tests;

pub use driver::Follower;
pub use listing::{Merge, Merged, Range};
pub use machine::Reach;
pub use pace::Pace;
pub use status::FollowStatus;
