//! Checks on a whole request before anything of it is looked at, and who is in flight.
//!
//! They protect this process, not a tenant. Order and texts are Cortex's. A refused request has
//! changed nothing but the counters here.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::exposition::{Counter, Families, RefusedCount, Used};
use crate::ratelimit::Ewma;
use crate::sync::{AtomicU64, Ordering};

/// Weight of the newest second in the moving average: Cortex's.
const RATE_ALPHA: f64 = 0.2;
/// Interval of the moving average: Cortex's.
pub const RATE_INTERVAL: Duration = Duration::from_secs(1);
/// What a sender that met too many requests at once is told to wait. Requests end within
/// milliseconds, so the shortest wait that can be told is long enough.
const IN_FLIGHT_WAIT_NS: u64 = 1_000_000_000;

/// `instance_limits:` of the distributor, under Cortex's names. 0 means none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InstanceLimits {
    /// Items per second, as a moving average over all tenants.
    pub max_ingestion_rate: f64,
    /// Requests at once; the one that asks counts.
    pub max_inflight_push_requests: u64,
    /// Requests of ours to ingesters, or to the distributor behind us, at once.
    pub max_inflight_client_requests: u64,
}

/// Why a whole request is refused. The texts are Cortex's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overload {
    #[error("too many inflight push requests in distributor")]
    InFlight,
    #[error("distributor's samples push rate limit reached")]
    Rate {
        /// Until the average is below the limit if nothing more comes.
        wait_ns: u64,
    },
    #[error("too many inflight ingester client requests in distributor")]
    ClientRequests,
}

/// Requests in flight, and the rate of items that were admitted.
pub struct Admission {
    limits: InstanceLimits,
    in_flight: Arc<AtomicU64>,
    rate: Ewma,
    refused_in_flight: Counter,
    refused_rate: Counter,
    refused_client_requests: Counter,
}

/// In flight until dropped.
#[must_use = "a request is in flight only as long as its permit lives"]
pub struct Permit(Arc<AtomicU64>);

impl Admission {
    pub fn new(limits: InstanceLimits) -> Self {
        Self {
            limits,
            in_flight: Arc::default(),
            rate: Ewma::new(RATE_ALPHA, RATE_INTERVAL),
            refused_in_flight: Counter::default(),
            refused_rate: Counter::default(),
            refused_client_requests: Counter::default(),
        }
    }

    /// Admits a request, or says which limit it would pass. The request itself counts as in
    /// flight; `client_requests` are those that we have under way ourselves.
    pub fn admit(&self, client_requests: u64) -> Result<Permit, Overload> {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        let permit = Permit(Arc::clone(&self.in_flight));
        let refused = match self.limit_passed(in_flight, client_requests) {
            None => return Ok(permit),
            Some(refused) => refused,
        };
        match refused {
            Overload::InFlight => self.refused_in_flight.add(1),
            Overload::Rate { .. } => self.refused_rate.add(1),
            Overload::ClientRequests => self.refused_client_requests.add(1),
        }
        Err(refused)
    }

    /// Which limit a further request would pass, if one.
    pub fn overload(&self, client_requests: u64) -> Option<Overload> {
        self.limit_passed(self.in_flight.load(Ordering::Relaxed) + 1, client_requests)
    }

    fn limit_passed(&self, in_flight: u64, client_requests: u64) -> Option<Overload> {
        let limits = &self.limits;
        let max = limits.max_inflight_push_requests;
        if max > 0 && in_flight > max {
            return Some(Overload::InFlight);
        }
        let max = limits.max_ingestion_rate;
        let rate = self.rate.rate();
        if max > 0.0 && rate >= max {
            return Some(Overload::Rate { wait_ns: wait_ns(rate, max) });
        }
        // Only more than the limit refuses, so that a request under way can still reach all of
        // its ingesters: Cortex's comparison.
        let max = limits.max_inflight_client_requests;
        (max > 0 && client_requests > max).then_some(Overload::ClientRequests)
    }

    /// Counts what passed the tenant's rate: samples, histograms, exemplars and metadata.
    pub fn admitted(&self, items: u64) {
        self.rate.add(i64::try_from(items).unwrap_or(i64::MAX));
    }

    /// Once per [`RATE_INTERVAL`].
    pub fn tick(&self) {
        self.rate.tick();
    }

    /// How near the instance is to its limits; `client_requests` as in [`Admission::admit`].
    pub fn used(&self, client_requests: u64) -> [Used; 3] {
        let limits = &self.limits;
        [
            (
                "max_inflight_push_requests",
                self.in_flight.load(Ordering::Relaxed) as f64,
                limits.max_inflight_push_requests as f64,
            ),
            ("max_ingestion_rate", self.rate.rate(), limits.max_ingestion_rate),
            (
                "max_inflight_client_requests",
                client_requests as f64,
                limits.max_inflight_client_requests as f64,
            ),
        ]
        .map(|(limit, used, max)| Used { limit, used, max })
    }

    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        for (reason, counter) in self.refused() {
            let (metric, count) = ("freehold_distributor_requests_refused_total", counter.get());
            tell(RefusedCount { metric, unit: "requests", reason, tenant: None, count });
        }
    }

    fn refused(&self) -> [(&'static str, &Counter); 3] {
        [
            ("max_inflight_client_requests", &self.refused_client_requests),
            ("max_inflight_push_requests", &self.refused_in_flight),
            ("max_ingestion_rate", &self.refused_rate),
        ]
    }

    pub fn read_metrics(&self, families: &mut Families) {
        families.gauge(
            "cortex_distributor_inflight_push_requests",
            "Current number of inflight push requests in distributor.",
            self.in_flight.load(Ordering::Relaxed) as f64,
        );
        families.gauge(
            "cortex_distributor_ingestion_rate_samples_per_second",
            "Current ingestion rate in samples/sec that distributor is using to limit access.",
            self.rate.rate(),
        );
        let mut limits = families.gauges(
            "cortex_distributor_instance_limits",
            "Instance limits used by this distributor.",
        );
        let set = &self.limits;
        for (name, value) in [
            ("max_inflight_client_requests", set.max_inflight_client_requests as f64),
            ("max_inflight_push_requests", set.max_inflight_push_requests as f64),
            ("max_ingestion_rate", set.max_ingestion_rate),
        ] {
            limits.sample([("limit", name)], value);
        }
        let mut refused = families.counters(
            "freehold_distributor_requests_refused_total",
            "Requests refused as a whole by a limit of this instance.",
        );
        for (limit, counter) in self.refused() {
            refused.sample([("limit", limit)], counter.get() as f64);
        }
    }
}

impl Overload {
    /// When the sender may come back.
    pub fn wait_ns(self) -> u64 {
        match self {
            Self::Rate { wait_ns } => wait_ns,
            Self::InFlight | Self::ClientRequests => IN_FLIGHT_WAIT_NS,
        }
    }

    /// Value of the `reason` field of log lines: the limit's name.
    pub fn reason(self) -> &'static str {
        match self {
            Self::InFlight => "max_inflight_push_requests",
            Self::Rate { .. } => "max_ingestion_rate",
            Self::ClientRequests => "max_inflight_client_requests",
        }
    }
}

/// Until an average of `rate` has fallen below `max`: each quiet interval leaves `1 - alpha`.
fn wait_ns(rate: f64, max: f64) -> u64 {
    let ticks = ((max / rate).ln() / (1.0 - RATE_ALPHA).ln()).floor() + 1.0;
    // The conversion saturates; a rate that is no number waits not at all.
    (ticks.max(1.0) * RATE_INTERVAL.as_nanos() as f64) as u64
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_itself_counts_as_in_flight() {
        let limits = InstanceLimits { max_inflight_push_requests: 1, ..Default::default() };
        let admission = Admission::new(limits);
        let first = admission.admit(0).expect("one is allowed");
        assert_eq!(admission.admit(0).err(), Some(Overload::InFlight));
        drop(first);
        assert!(admission.admit(0).is_ok(), "a refused request has left");
    }

    #[test]
    fn requests_of_ours_are_refused_above_the_limit_not_at_it() {
        let limits = InstanceLimits { max_inflight_client_requests: 5, ..Default::default() };
        let admission = Admission::new(limits);
        assert!(admission.admit(5).is_ok());
        assert_eq!(admission.admit(6).err(), Some(Overload::ClientRequests));
    }

    #[test]
    fn case_d1_the_wait_told_is_the_number_of_quiet_seconds_it_takes() {
        let limits = InstanceLimits { max_ingestion_rate: 1000.0, ..Default::default() };
        let admission = Admission::new(limits);
        admission.admitted(5000);
        assert!(admission.admit(0).is_ok(), "nothing is known before the first tick");
        admission.tick();
        let told = admission.admit(0).err().expect("over the limit").wait_ns();
        let mut ticks = 0;
        while admission.admit(0).is_err() {
            admission.tick();
            ticks += 1;
        }
        assert_eq!((ticks, told), (8, 8_000_000_000));
    }

    #[test]
    fn a_rate_at_the_limit_waits_one_second() {
        assert_eq!(wait_ns(10.0, 10.0), 1_000_000_000);
    }
}
