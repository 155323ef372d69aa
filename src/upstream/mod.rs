//! What lies behind us: the way to the one upstream, as a pool of HTTP/2 connections, and
//! `distributor`, the way to a distributor.
//!
//! For a distributor these are many: [`ingesters`] has one such pool for each of the ring.
//! [`queries`] is the way to what answers queries, over HTTP in either version.
//!
//! [`Upstream::call`] sends a request as it came and gives back the answer as it comes, both
//! piece by piece; [`Upstream::ask`] and [`Upstream::ask_stream`] put questions of our own, and
//! [`Upstream::converse`] goes on asking.
//!
//! ```text
//! call ─► budget (in flight) ─► pool (a stream, dialling where there is none) ─► send ─► Answer
//! ask ──► one framed message ─► call ─► messages out of the answer
//! ```
//!
//! What must hold: every wait ends, by the call's own deadline or by a bound here; what is held
//! in memory is bounded by the budget and by HTTP/2's windows; whoever drops a call or its answer
//! resets the stream; an answer that was broken off never looks like one that ended well.

mod answers;
mod ask;
mod back_off;
mod budget;
pub mod config;
mod connect;
mod conversation;
mod dial;
pub mod distributor;
mod end_to_end;
pub mod ingesters;
pub mod page;
mod pool;
pub mod queries;
mod send;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tokio::time::Instant;

pub use answers::AnswerStream;
pub use ask::{AskError, percent_decoded};
pub use budget::{InFlight, InFlightBound};
pub use conversation::{NotTaken, Questions};
pub use dial::SUSPICIOUS_AFTER;
pub use send::Answer;

use crate::exposition::{Families, RefusedCount};
use crate::tls::{self, ClientTls, TlsError};
use budget::Budget;
use config::{UpstreamConfig, UpstreamConfigError};
use pool::Pool;

/// An error of a request's body; only that it failed matters.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The upstream, through a pool of connections. Cheap to clone.
#[derive(Clone)]
pub struct Upstream(Arc<Inner>);

struct Inner {
    pool: Arc<Pool>,
    budget: Arc<Budget>,
    message_bytes_max: usize,
}

/// Why a call to the upstream came to nothing, or its answer was broken off. Clients see the
/// texts, so the address stands in each.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("upstream {address} cannot be reached: {cause}")]
    Unreachable { address: Arc<str>, cause: Arc<str> },
    /// All streams of all connections are taken, for as long as a call may wait for one.
    #[error("upstream {address} has no free stream")]
    Busy { address: Arc<str> },
    #[error("too much under way to upstream {address}: {bound} of {max}")]
    Full { address: Arc<str>, bound: InFlightBound, max: usize },
    #[error("upstream {address} has not answered within the deadline")]
    DeadlineExceeded { address: Arc<str> },
    /// The upstream, and it alone, gave up this call.
    #[error("upstream {address} reset the call: {reason}")]
    Reset { address: Arc<str>, reason: h2::Reason },
    #[error("the connection to upstream {address} broke: {cause}")]
    Broken { address: Arc<str>, cause: Arc<str> },
    #[error("upstream {address} answers with more than {bytes_max} bytes")]
    AnswerTooLarge { address: Arc<str>, bytes_max: usize },
    /// The request's own body failed, which is what a caller that has gone looks like.
    #[error("the call to upstream {address} was broken off by its sender")]
    BrokenOff { address: Arc<str> },
}

/// Why there cannot be a way to the upstream.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamStartError {
    #[error(transparent)]
    Config(#[from] UpstreamConfigError),
    #[error("cannot prepare TLS to the upstream")]
    Tls(#[from] TlsError),
}

impl UpstreamError {
    /// What it is as a gRPC status, in the codes that grpc-go has for it.
    pub fn grpc_code(&self) -> i32 {
        const CANCELLED: i32 = 1;
        const DEADLINE_EXCEEDED: i32 = 4;
        const PERMISSION_DENIED: i32 = 7;
        const RESOURCE_EXHAUSTED: i32 = 8;
        const INTERNAL: i32 = 13;
        const UNAVAILABLE: i32 = 14;
        match self {
            Self::Unreachable { .. }
            | Self::Busy { .. }
            | Self::Full { .. }
            | Self::Broken { .. } => UNAVAILABLE,
            Self::DeadlineExceeded { .. } => DEADLINE_EXCEEDED,
            Self::AnswerTooLarge { .. } => RESOURCE_EXHAUSTED,
            Self::BrokenOff { .. } => CANCELLED,
            Self::Reset { reason, .. } => match *reason {
                h2::Reason::REFUSED_STREAM => UNAVAILABLE,
                h2::Reason::CANCEL => CANCELLED,
                h2::Reason::FLOW_CONTROL_ERROR | h2::Reason::ENHANCE_YOUR_CALM => {
                    RESOURCE_EXHAUSTED
                }
                h2::Reason::INADEQUATE_SECURITY => PERMISSION_DENIED,
                _ => INTERNAL,
            },
        }
    }
}

impl Upstream {
    /// Nothing is dialled before the first call. Certificates are read here.
    pub fn new(config: &UpstreamConfig) -> Result<Self, UpstreamStartError> {
        let tls = match config.tls_enabled {
            false => None,
            true => Some(tls::client("upstream", &config.tls(), &["h2"])?),
        };
        Ok(Self::with_tls(config, tls)?)
    }

    /// As [`Upstream::new`], with certificates that several share.
    pub fn with_tls(
        config: &UpstreamConfig,
        tls: Option<Arc<ClientTls>>,
    ) -> Result<Self, UpstreamConfigError> {
        config.validate()?;
        let address: Arc<str> = config.address.as_str().into();
        let budget = Budget::new(
            Arc::clone(&address),
            config.max_inflight_requests,
            config.max_inflight_bytes,
        );
        Ok(Self(Arc::new(Inner {
            pool: Pool::new(address, config, tls)?,
            budget: Arc::new(budget),
            message_bytes_max: config.max_recv_msg_size,
        })))
    }

    /// `host:port`, as configured.
    pub fn address(&self) -> &Arc<str> {
        self.0.pool.address()
    }

    /// Sends one request as it came, and resolves at the answer's headers.
    ///
    /// The body is sent piece by piece as the upstream takes it, while this waits and, if it has
    /// not ended by then, behind the answer until that is dropped. `grpc-timeout` is the deadline
    /// of the whole call, the answer's body included. Dropping the call, or the answer, resets
    /// the stream, and so does a body that fails.
    ///
    /// A body that tells its exact size is charged to the budget; what comes in pieces is bounded
    /// by the windows it came through (see [`Upstream::reserve`] where that is not so).
    pub async fn call<B>(&self, request: Request<B>) -> Result<Response<Answer>, UpstreamError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BodyError>,
    {
        let deadline = deadline(request.headers());
        let bytes = request.body().size_hint().exact().unwrap_or(0);
        let in_flight = Budget::enter(&self.0.budget, bytes)?;
        let (head, body) = request.into_parts();
        let request = self.0.pool.outgoing(head);
        let sent = send::send(&self.0.pool, request, body, deadline, in_flight).await;
        sent.inspect_err(|error| self.0.pool.note_failure(error))
    }

    /// Takes `bytes` of the budget for what is held outside a call's body, such as a message
    /// that waits for its turn on a stream. Given back when dropped.
    pub fn reserve(&self, bytes: usize) -> Result<InFlight, UpstreamError> {
        Budget::reserve(&self.0.budget, bytes as u64)
    }

    /// Something on a stream has not been answered for a while: each connection has to show that
    /// it lives, or is closed. Calls do this themselves until their answers begin.
    pub fn suspect(&self) {
        self.0.pool.suspect();
    }

    /// Whether the last dial, or the last connection, did well; false before the first.
    pub fn is_reachable(&self) -> bool {
        self.0.pool.is_reachable()
    }

    /// The certificates, to be followed; none where the upstream is spoken to plainly.
    pub fn tls(&self) -> Option<&Arc<ClientTls>> {
        self.0.pool.tls()
    }

    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        self.0.budget.tell_refused(tell);
    }

    pub fn read_metrics(&self, families: &mut Families) {
        self.0.pool.read_metrics(families);
        self.0.budget.read_metrics(families);
    }
}

/// When the call has to be over, from its `grpc-timeout`; none without one that can be read.
pub fn deadline(headers: &HeaderMap) -> Option<Instant> {
    let value = headers.get("grpc-timeout")?.as_bytes();
    let (unit, digits) = value.split_last()?;
    // The protocol allows eight digits, which fit every sum below.
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    let timeout = match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    };
    Instant::now().checked_add(timeout)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deadlines_are_read_in_all_units_and_nothing_else_is_one() {
        let check = |value: &str, expect_ms: Option<u64>| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_str(value).expect("a value"));
            let waited = deadline(&headers).map(|deadline| deadline - Instant::now());
            assert_eq!(waited.map(|wait| wait.as_millis() as u64), expect_ms, "{value}");
        };
        check("1993788u", Some(1993));
        check("2S", Some(2000));
        check("1H", Some(3_600_000));
        check("3M", Some(180_000));
        check("15m", Some(15));
        check("5000000n", Some(5));
        check("99999999H", Some(99_999_999 * 3_600_000));
        for nonsense in ["", "5", "S", "5s", "-5S", "123456789S", "5 S"] {
            check(nonsense, None);
        }
        assert_eq!(deadline(&HeaderMap::new()), None);
    }
}
