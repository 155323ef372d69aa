//! Checks on the whole push before anything of it is looked at, and who is in flight.
//!
//! They protect this process, not a tenant: pushes at once, and items a second. Order and texts
//! are Cortex's. A refused push has changed nothing but the counters here.

use std::sync::Arc;

use crate::limits::InstanceLimits;
use crate::ratelimit::Ewma;
use crate::sync::{AtomicU64, Ordering};

/// Why a whole push is refused. The texts are Cortex's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overload {
    #[error("cannot push: too many inflight push requests in ingester")]
    InFlight,
    #[error("cannot push more samples: ingester's samples push rate limit reached")]
    Rate,
}

/// Pushes in flight, their recent peak, and the rate of items that were accepted.
pub struct Admission {
    in_flight: Arc<AtomicU64>,
    peak: WindowMax,
    rate: Ewma,
}

/// In flight until dropped.
pub struct Permit(Arc<AtomicU64>);

impl Admission {
    pub fn new(rate: Ewma) -> Self {
        Self { in_flight: Arc::default(), peak: WindowMax::default(), rate }
    }

    /// Admits a push, or says which limit it would pass. The push itself counts as in flight.
    pub fn admit(&self, limits: &InstanceLimits) -> Result<Permit, Overload> {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        let permit = Permit(Arc::clone(&self.in_flight));
        self.peak.note(in_flight);
        match self.overload(in_flight, limits) {
            Some(overload) => Err(overload),
            None => Ok(permit),
        }
    }

    /// Which limit is passed with so many pushes in flight, if one is.
    pub fn overload(&self, in_flight: u64, limits: &InstanceLimits) -> Option<Overload> {
        let max = limits.max_inflight_push_requests;
        if max > 0 && in_flight > max {
            return Some(Overload::InFlight);
        }
        let max = limits.max_ingestion_rate;
        (max > 0.0 && self.rate.rate() >= max).then_some(Overload::Rate)
    }

    /// Counts what a push stored: samples, histograms and metadata.
    pub fn ingested(&self, items: u64) {
        self.rate.add(items as i64);
    }

    /// Once a second: the rate's tick.
    pub fn tick(&self) {
        self.rate.tick();
    }

    /// Once a minute: the older window of the peak ends.
    pub fn turn_window(&self) {
        self.peak.turn(self.in_flight.load(Ordering::Relaxed));
    }

    pub fn rate(&self) -> f64 {
        self.rate.rate()
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Most pushes in flight at once over the last one to two minutes.
    pub fn in_flight_peak(&self) -> u64 {
        self.peak.max()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The greatest value of the current window and the one before, so that a spike of five
/// milliseconds is still seen by a scrape a minute later.
#[derive(Default)]
struct WindowMax {
    current: AtomicU64,
    before: AtomicU64,
}

impl WindowMax {
    fn note(&self, value: u64) {
        // Statistics: a value noted while the window turns may land in either.
        self.current.fetch_max(value, Ordering::Relaxed);
    }

    fn turn(&self, value_now: u64) {
        self.before.store(self.current.swap(value_now, Ordering::Relaxed), Ordering::Relaxed);
    }

    fn max(&self) -> u64 {
        self.current.load(Ordering::Relaxed).max(self.before.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Admission {
        Admission::new(Ewma::new(0.2, std::time::Duration::from_secs(1)))
    }

    #[test]
    fn the_push_itself_counts_as_in_flight() {
        let admission = admission();
        let limits = InstanceLimits { max_inflight_push_requests: 1, ..Default::default() };
        let first = admission.admit(&limits).expect("one is allowed");
        assert_eq!(admission.admit(&limits).err(), Some(Overload::InFlight));
        assert_eq!(admission.in_flight(), 1, "a refused push leaves");
        drop(first);
        assert!(admission.admit(&limits).is_ok());
    }

    #[test]
    fn case_d4_a_short_spike_stays_visible_for_a_window() {
        let admission = admission();
        let limits = InstanceLimits::default();
        let spike: Vec<_> = (0..7).map(|_| admission.admit(&limits)).collect();
        drop(spike);
        assert_eq!(admission.in_flight_peak(), 7);
        admission.turn_window();
        assert_eq!(admission.in_flight_peak(), 7);
        admission.turn_window();
        assert_eq!(admission.in_flight_peak(), 0);
    }

    #[test]
    fn case_d1_the_first_tick_sets_the_average() {
        let admission = admission();
        let limits = InstanceLimits { max_ingestion_rate: 1000.0, ..Default::default() };
        admission.ingested(5000);
        admission.tick();
        let mut ticks_blocked = 0;
        while let Err(refusal) = admission.admit(&limits).map(drop) {
            assert_eq!(refusal, Overload::Rate);
            admission.tick();
            ticks_blocked += 1;
        }
        assert_eq!(ticks_blocked, 8);
        assert_eq!(admission.rate().round(), 839.0);
    }
}
