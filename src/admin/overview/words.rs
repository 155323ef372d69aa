//! Words that several pages use for the same thing.

use crate::ingester::Ingester;
use crate::ring::RingStatus;
use crate::series::Basis;

/// The count that limits act on.
pub fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Owned => "owned",
        Basis::InMemory => "in-memory",
    }
}

/// Whether pushes are taken, in the words of Cortex's service states.
pub fn ingester_state(ingester: &Ingester) -> &'static str {
    match ingester.is_running() {
        true => "Running",
        false if ingester.is_stopped() => "Stopping",
        false => "Starting",
    }
}

/// How far the ring in force can be trusted.
pub fn ring_status(status: &RingStatus) -> String {
    match status {
        RingStatus::Unread(None) => "not read yet".to_owned(),
        RingStatus::Unread(Some(failing)) => format!("not read yet: {}", failing.error),
        RingStatus::Fresh => "fresh".to_owned(),
        RingStatus::Stale(failing) => format!("stale, the last good one: {}", failing.error),
        RingStatus::Expired(failing) => {
            format!("expired, what we own is unknown: {}", failing.error)
        }
    }
}
