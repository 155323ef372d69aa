//! How long a store took for what was asked of it: Cortex's family, under its labels.

use prometheus::{HistogramOpts, HistogramVec, Registry};
use tokio::time::Instant;

use crate::ring::kv::KvError;

/// The family, for all stores of a process.
#[derive(Clone, Debug)]
pub struct RequestDurations(HistogramVec);

/// The family's part for one store and one of its users.
#[derive(Clone, Debug)]
pub struct Requests {
    durations: RequestDurations,
    /// Whose store this is, Cortex's label `kv_name`.
    name: &'static str,
    /// The kind of store.
    kind: &'static str,
}

/// What is asked of a store, by Cortex's names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Get,
    Cas,
    Delete,
}

impl RequestDurations {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = HistogramOpts::new(
            "cortex_kv_request_duration_seconds",
            "Time spent on kv store requests.",
        );
        // Its values are the kinds of stores and operations: a dozen for each ring.
        let labels = ["kv_name", "operation", "role", "status_code", "type"];
        let durations = HistogramVec::new(opts, &labels)?;
        registry.register(Box::new(durations.clone()))?;
        Ok(Self(durations))
    }

    /// `name` is Cortex's name of the store's user, as in `ingester-lifecycler`.
    pub fn of(&self, name: &'static str, kind: &'static str) -> Requests {
        Requests { durations: self.clone(), name, kind }
    }
}

impl Requests {
    pub(super) fn named(&self, name: &'static str) -> Self {
        Self { name, ..self.clone() }
    }

    pub(super) fn observe<T>(
        &self,
        operation: Operation,
        asked_at: Instant,
        outcome: &Result<T, KvError>,
    ) {
        let operation = match operation {
            Operation::Get => "GET",
            Operation::Cas => "CAS",
            Operation::Delete => "Delete",
        };
        // A value that the caller would not change is the caller's verdict, not the store's.
        let status_code = match outcome {
            Ok(_) | Err(KvError::Value(_)) => "200",
            Err(_) => "500",
        };
        let labels = [self.name, operation, "primary", status_code, self.kind];
        let duration = self.durations.0.with_label_values(&labels);
        duration.observe(asked_at.elapsed().as_secs_f64());
    }
}
