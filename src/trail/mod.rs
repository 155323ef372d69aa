//! The trail of a request through all of its hops: what it is called, and its spans where it is
//! traced.
//!
//! ```text
//! edge ─► Trail: id, span ─► service: notes, children of what waits ─► headers of the next hop
//!                               span ends with its last clone ─► queue ─► exporter ─► collector
//! ```
//!
//! What must hold: without tracing a request pays one branch and no memory for it; nothing on a
//! request's way ever waits for a collector; what is queued is bounded, what is dropped is counted.

pub mod config;
mod context;
mod exporter;
mod otlp;
mod request_id;
mod span;

pub use context::{Context, Forms, Header, SpanId, TraceId};
pub use exporter::{Exporter, Origin};
pub use request_id::{REQUEST_ID_BYTES_MAX, RequestId};
pub use span::{Kind, Sampling, Span, SpanCounts, Tracer};

/// Header and metadata that name a request.
pub const REQUEST_ID_HEADER: &str = "x-request-id";

/// What is known of a request beside what it asks for. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// What logs call it; `None` where nobody gave it a name and none was made.
    pub request_id: Option<RequestId>,
    /// The span over it, where it is traced.
    pub span: Span,
}

impl Trail {
    /// What logs call it.
    pub fn id(&self) -> Option<&str> {
        self.request_id.as_ref().map(RequestId::as_str)
    }

    /// Its trace, where somebody will find it.
    pub fn trace_id(&self) -> Option<TraceId> {
        self.span.recorded_in()
    }
}
