//! How much may be under way to the upstream: calls, and bytes of their requests.
//!
//! What is over a bound is refused at once instead of waiting: a request that waits is held in
//! memory, so a queue of them would be the very thing that the bound is against.

use std::fmt;
use std::sync::Arc;

use super::UpstreamError;
use crate::exposition::{Families, RefusedCount};
use crate::sync::{AtomicU64, Ordering};

/// Guarded by nothing: each count is a truth of its own.
pub struct Budget {
    address: Arc<str>,
    calls_max: u64,
    bytes_max: u64,
    calls: AtomicU64,
    bytes: AtomicU64,
    refused_calls: AtomicU64,
    refused_bytes: AtomicU64,
}

/// A part of the budget; given back when dropped.
pub struct InFlight {
    budget: Arc<Budget>,
    calls: u64,
    bytes: u64,
}

/// Which bound was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlightBound {
    Calls,
    Bytes,
}

impl Budget {
    pub fn new(address: Arc<str>, calls_max: usize, bytes_max: usize) -> Self {
        Self {
            address,
            calls_max: calls_max as u64,
            bytes_max: bytes_max as u64,
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            refused_calls: AtomicU64::new(0),
            refused_bytes: AtomicU64::new(0),
        }
    }

    /// Takes a call's place, and the bytes of its request.
    pub fn enter(this: &Arc<Self>, bytes: u64) -> Result<InFlight, UpstreamError> {
        if !take(&this.calls, 1, this.calls_max) {
            this.refused_calls.fetch_add(1, Ordering::Relaxed);
            return Err(this.full(InFlightBound::Calls));
        }
        // Holds the place, so that it is given back when there are no bytes left.
        let mut in_flight = InFlight { budget: Arc::clone(this), calls: 1, bytes: 0 };
        in_flight.bytes = this.take_bytes(bytes)?;
        Ok(in_flight)
    }

    /// Takes bytes alone.
    pub fn reserve(this: &Arc<Self>, bytes: u64) -> Result<InFlight, UpstreamError> {
        let bytes = this.take_bytes(bytes)?;
        Ok(InFlight { budget: Arc::clone(this), calls: 0, bytes })
    }

    /// A request larger than all of the budget passes when it is alone: it has been received, so
    /// the listener's bound on messages allows it.
    fn take_bytes(&self, bytes: u64) -> Result<u64, UpstreamError> {
        let bytes = bytes.min(self.bytes_max);
        if take(&self.bytes, bytes, self.bytes_max) {
            return Ok(bytes);
        }
        self.refused_bytes.fetch_add(1, Ordering::Relaxed);
        Err(self.full(InFlightBound::Bytes))
    }

    fn full(&self, bound: InFlightBound) -> UpstreamError {
        let max = match bound {
            InFlightBound::Calls => self.calls_max,
            InFlightBound::Bytes => self.bytes_max,
        };
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        UpstreamError::Full { address: Arc::clone(&self.address), bound, max }
    }

    /// Calls that wait or are under way.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Bytes of their requests.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Tells of calls that were not made, by the bound that was reached.
    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        for (reason, count) in [("bytes", &self.refused_bytes), ("requests", &self.refused_calls)] {
            let (metric, count) =
                ("freehold_upstream_refused_total", count.load(Ordering::Relaxed));
            tell(RefusedCount { metric, unit: "calls", reason, tenant: None, count });
        }
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let shown = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        families.gauge(
            "freehold_upstream_inflight_requests",
            "Calls to the upstream that wait or are under way.",
            shown(&self.calls),
        );
        families.gauge(
            "freehold_upstream_inflight_bytes",
            "Bytes of requests to the upstream that wait or are under way.",
            shown(&self.bytes),
        );
        let mut refused = families.counters(
            "freehold_upstream_refused_total",
            "Calls not made because a bound of what may be under way was reached.",
        );
        refused.sample([("bound", "bytes")], shown(&self.refused_bytes));
        refused.sample([("bound", "requests")], shown(&self.refused_calls));
    }
}

/// Adds `amount` unless the sum would exceed `max`.
fn take(count: &AtomicU64, amount: u64, max: u64) -> bool {
    let add = |now: u64| now.checked_add(amount).filter(|sum| *sum <= max);
    // Relaxed: the count guards no other memory.
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.budget.calls.fetch_sub(self.calls, Ordering::Relaxed);
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Display for InFlightBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calls => "requests",
            Self::Bytes => "bytes",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_a_bound_is_refused_at_once_and_leaves_no_trace() {
        let budget = Arc::new(Budget::new("up:1".into(), 2, 100));
        let one = Budget::enter(&budget, 60).expect("room");
        let error = Budget::enter(&budget, 60).err().expect("bytes");
        assert_eq!(error.to_string(), "too much under way to upstream up:1: bytes of 100");
        let _two = Budget::enter(&budget, 40).expect("the refused call gave its place back");
        let error = Budget::enter(&budget, 0).err().expect("calls");
        assert_eq!(error.to_string(), "too much under way to upstream up:1: requests of 2");
        assert!(Budget::reserve(&budget, 1).is_err());
        drop(one);
        let _rest = Budget::reserve(&budget, 60).expect("given back");
        assert!(Budget::reserve(&budget, 1).is_err());
    }

    #[test]
    fn a_request_larger_than_the_budget_passes_alone() {
        let budget = Arc::new(Budget::new("up:1".into(), 2, 100));
        let alone = Budget::enter(&budget, 1000).expect("alone");
        assert!(Budget::enter(&budget, 1).is_err());
        drop(alone);
        assert!(Budget::enter(&budget, 100).is_ok());
    }
}
