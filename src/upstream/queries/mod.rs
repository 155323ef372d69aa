//! The way to those who answer queries: one or several addresses, over HTTP/1.1 or HTTP/2.
//!
//! ```text
//! send ─► which address (well, least under way) ─► hyper's pool ─► Reply: head at once, body as it comes
//!             ▲                                        │
//!             └── nothing was taken: another address ──┘
//! run ──► is each address well? ─► health
//! ```
//!
//! What must hold: a request that may have been acted upon is not sent again; every wait ends, by
//! a bound here; bodies go through piece by piece, unread and unchanged; who drops a call or its
//! reply breaks it off; a body that broke off never looks like one that ended well.

mod address;
mod body;
pub mod config;
mod health;
mod metrics;
mod pace;
mod query;
mod reply;
mod server_timing;
mod via;

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use query::{Query, Unproxied};
pub use reply::{Reply, ReplyBody, ReplyError, ReplyHead};

use crate::exposition::{Counter, Families, RefusedCount};
use crate::sync::{AtomicUsize, Ordering};
use crate::tls::{self, ClientTls, TlsError};
use address::{Attempt, Downstream, Failure, Waits};
use body::Fault;
use config::{DownstreamConfig, DownstreamConfigError};
use via::Via;

/// What a sender is told to wait when too much is under way: queries end within seconds.
const FULL_WAIT: Duration = Duration::from_secs(1);
/// What a sender is told to wait when nobody could be reached, and it is not known for how long.
const UNREACHABLE_WAIT: Duration = Duration::from_secs(1);
/// How often a request is sent again because its connection had been closed meanwhile. After a
/// restart of the other side all idle connections may have been, but the pool finds out about
/// most of them by itself.
const REPEATS_MAX: u32 = 1;
/// Checks are spread by this part up and down, so that many gates do not ask in step.
const CHECK_JITTER: f64 = 0.2;

/// Those who answer queries. Cheap to clone.
#[derive(Clone)]
pub struct Downstreams(Arc<Inner>);

struct Inner {
    addresses: Vec<Arc<Downstream>>,
    /// Where the search for the next address begins, so that equals take turns.
    turn: AtomicUsize,
    waits: Waits,
    checks: Option<Checks>,
    via: Via,
    tls: Option<Arc<ClientTls>>,
    counts: Counts,
}

struct Checks {
    path: PathAndQuery,
    period: Duration,
    timeout: Duration,
    bad_status: u16,
}

#[derive(Default)]
struct Counts {
    refused_down: Counter,
    refused_requests: Counter,
    loops: Counter,
}

/// Why a query has no answer. Those who asked see the texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownstreamError {
    /// Nothing has been sent.
    #[error("nobody who answers queries can be reached: {failures}")]
    Unreachable { failures: String, wait: Duration },
    /// Nothing has been sent, as nothing could be a moment ago.
    #[error("nobody who answers queries can be reached, and {names} is not tried before {} ms are over", wait.as_millis())]
    Down { names: String, wait: Duration },
    /// Nothing has been sent.
    #[error("too many queries under way to {names}")]
    Full { names: String, wait: Duration },
    #[error("{address} has not answered within {} ms", timeout.as_millis())]
    DeadlineExceeded { address: Arc<str>, timeout: Duration },
    #[error("{address} broke off: {cause}")]
    Broken { address: Arc<str>, cause: String },
    #[error("the body of the request did not go on within {} ms", waited.as_millis())]
    SlowBody { waited: Duration },
    #[error("the body of the request was broken off")]
    BodyBrokenOff,
    #[error("the body of the request is malformed")]
    MalformedBody,
    /// Those behind us lead back to us.
    #[error("the request has been here before: -frontend.downstream-url leads back to this gate")]
    Loop,
    #[error("the request cannot be sent on")]
    Unsendable,
}

/// Why there cannot be a way to those who answer.
#[derive(Debug, thiserror::Error)]
pub enum DownstreamStartError {
    #[error(transparent)]
    Config(#[from] DownstreamConfigError),
    #[error("cannot prepare TLS to those who answer queries")]
    Tls(#[from] TlsError),
}

impl DownstreamError {
    /// The HTTP status that says so.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Unreachable { .. } | Self::Down { .. } | Self::Full { .. } => 503,
            Self::DeadlineExceeded { .. } => 504,
            Self::Broken { .. } => 502,
            Self::SlowBody { .. } => 408,
            // Cortex's and nginx' number for a client that has gone; nobody hears it.
            Self::BodyBrokenOff => 499,
            Self::Loop => 508,
            Self::MalformedBody | Self::Unsendable => 400,
        }
    }

    /// When the sender may come back, where that is known.
    pub fn wait(&self) -> Option<Duration> {
        match self {
            Self::Unreachable { wait, .. } | Self::Down { wait, .. } | Self::Full { wait, .. } => {
                Some(*wait)
            }
            _ => None,
        }
    }
}

impl Downstreams {
    /// Nothing is dialled before the first query, or check. Certificates are read here.
    pub fn new(config: &DownstreamConfig) -> Result<Self, DownstreamStartError> {
        config.validate()?;
        let addresses = config.addresses()?;
        let tls = match addresses.iter().any(config::DownstreamAddress::is_tls) {
            false => None,
            true => Some(tls::client("query_downstream", &config.tls(), &["h2", "http/1.1"])?),
        };
        let path = &config.health_check_path;
        let checks = match path.is_empty() {
            true => None,
            false => Some(Checks {
                path: path
                    .parse()
                    .map_err(|_| DownstreamConfigError::Path { path: path.clone() })?,
                period: config.health_check_period.as_duration(),
                timeout: config.health_check_timeout.as_duration(),
                bad_status: config.health_check_bad_status,
            }),
        };
        let addresses = addresses
            .iter()
            .map(|address| Downstream::new(config, address, tls.clone()).map(Arc::new));
        Ok(Self(Arc::new(Inner {
            addresses: addresses.collect::<Result<_, _>>()?,
            turn: AtomicUsize::new(0),
            waits: Waits {
                response: config.response_timeout.as_duration(),
                pause: config.idle_timeout.as_duration(),
            },
            checks,
            via: Via::new(rand::random()),
            tls,
            counts: Counts::default(),
        })))
    }

    /// Sends a query on and waits for the head of the answer. Dropped, the query is broken off,
    /// and so it is when the reply is dropped before its end.
    pub async fn send(&self, query: Query) -> Result<Reply, DownstreamError> {
        self.0.send(&query).await
    }

    /// Asks each address now and then whether it is well, until it is dropped.
    pub async fn run(self) {
        let Some(checks) = &self.0.checks else { return std::future::pending().await };
        let mut tasks = JoinSet::new();
        for address in &self.0.addresses {
            let (address, path) = (Arc::clone(address), checks.path.clone());
            let &Checks { period, timeout, bad_status, .. } = checks;
            tasks.spawn(async move {
                loop {
                    address.check(&path, bad_status, timeout).await;
                    let due = address.health().wait(Instant::now());
                    tokio::time::sleep(due.unwrap_or_else(|| jittered(period))).await;
                }
            });
        }
        // None of them ends by itself; one that panicked has said so.
        while tasks.join_next().await.is_some() {}
    }

    /// Queries under way.
    pub fn in_flight(&self) -> usize {
        self.0.addresses.iter().map(|address| address.in_flight()).sum()
    }

    /// Addresses that get queries, of all there are.
    pub fn well(&self) -> (usize, usize) {
        let well = self.0.addresses.iter().filter(|address| address.health().is_well());
        (well.count(), self.0.addresses.len())
    }

    /// The certificates, to be followed; none where all are spoken to plainly.
    pub fn tls(&self) -> Option<&Arc<ClientTls>> {
        self.0.tls.as_ref()
    }

    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        metrics::tell_refused(&self.0, tell);
    }

    pub fn read_metrics(&self, families: &mut Families) {
        metrics::read(&self.0, families);
    }
}

impl Inner {
    async fn send(&self, query: &Query) -> Result<Reply, DownstreamError> {
        if self.via.has_been_here(&query.headers) {
            self.counts.loops.add(1);
            return Err(DownstreamError::Loop);
        }
        let via = self.via.line(query.version);
        let (mut tried, mut failures) = (Tried::default(), Vec::new());
        let mut repeats = 0;
        loop {
            let (index, attempt) = match self.pick(&tried) {
                Ok(picked) => picked,
                Err(refusal) => return Err(self.refused(refusal, &failures)),
            };
            let address = &self.addresses[index];
            let failure = match address.exchange(query, &via, self.waits, attempt).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let (cause, is_again) = match failure {
                Failure::Unreachable { cause } => {
                    tried.add(index);
                    (cause, true)
                }
                Failure::Unsent { cause } => (cause, true),
                Failure::Stale { cause } => (cause, query.is_repeatable),
                Failure::Broken { cause } => (cause, false),
                other => return Err(self.failed(other, address)),
            };
            if !tried.has(index) {
                repeats += 1;
            }
            if !is_again || repeats > REPEATS_MAX || !query.body.is_untouched() {
                return Err(self.failed(Failure::Broken { cause }, address));
            }
            if !tried.has(index) {
                address.counts.repeated.add(1);
            }
            failures.push((index, cause));
        }
    }

    /// The one of those that are well which has the least under way; where none is well, one that
    /// is due to be tried.
    fn pick(&self, tried: &Tried) -> Result<(usize, Attempt), Refusal> {
        let count = self.addresses.len();
        // Relaxed: only evenness hangs on it.
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let order = (0..count).map(|step| start.wrapping_add(step) % count);
        let untried: Vec<usize> = order.filter(|index| !tried.has(*index)).collect();
        let is_well = |index: &usize| self.addresses[*index].health().is_well();
        let mut well: Vec<usize> = untried.iter().copied().filter(is_well).collect();
        well.sort_by_key(|index| self.addresses[*index].in_flight());
        for &index in &well {
            if let Some(in_flight) = self.addresses[index].enter() {
                return Ok((index, Attempt { in_flight, is_probe: false }));
            }
        }
        if !well.is_empty() {
            return Err(Refusal::Full);
        }
        let (now, mut soonest, mut is_full) = (Instant::now(), None, false);
        for index in untried {
            let address = &self.addresses[index];
            let Some(in_flight) = address.enter() else {
                is_full = true;
                continue;
            };
            match address.health().admit(now) {
                Ok(()) => return Ok((index, Attempt { in_flight, is_probe: true })),
                Err(wait) => soonest = Some(soonest.map_or(wait, |s: Duration| s.min(wait))),
            }
        }
        Err(match is_full {
            true => Refusal::Full,
            false => Refusal::Down { soonest },
        })
    }

    fn refused(&self, refusal: Refusal, failures: &[(usize, String)]) -> DownstreamError {
        let names = || {
            let names: Vec<&str> = self.addresses.iter().map(|address| &*address.name).collect();
            names.join(", ")
        };
        match refusal {
            Refusal::Full => {
                self.counts.refused_requests.add(1);
                DownstreamError::Full { names: names(), wait: FULL_WAIT }
            }
            Refusal::Down { soonest } if failures.is_empty() => {
                self.counts.refused_down.add(1);
                let wait = soonest.unwrap_or(UNREACHABLE_WAIT);
                DownstreamError::Down { names: names(), wait }
            }
            Refusal::Down { soonest } => {
                let now = Instant::now();
                let told: Vec<String> = self
                    .addresses
                    .iter()
                    .enumerate()
                    .map(|(index, address)| {
                        let failure = failures.iter().rev().find(|(of, _)| *of == index);
                        let cause = failure.map_or("not due to be tried", |(_, cause)| cause);
                        format!("{} ({cause})", address.name)
                    })
                    .collect();
                let waits = self.addresses.iter().filter_map(|address| address.health().wait(now));
                let wait = waits.chain(soonest).min().unwrap_or(UNREACHABLE_WAIT);
                DownstreamError::Unreachable { failures: told.join(", "), wait }
            }
        }
    }

    fn failed(&self, failure: Failure, address: &Downstream) -> DownstreamError {
        let address = Arc::clone(&address.name);
        match failure {
            Failure::Unreachable { cause }
            | Failure::Unsent { cause }
            | Failure::Stale { cause }
            | Failure::Broken { cause } => DownstreamError::Broken { address, cause },
            Failure::Deadline => {
                DownstreamError::DeadlineExceeded { address, timeout: self.waits.response }
            }
            Failure::Body(Fault::Slow(slow)) => DownstreamError::SlowBody { waited: slow.waited },
            Failure::Body(Fault::BrokenOff) => DownstreamError::BodyBrokenOff,
            Failure::Body(Fault::Malformed) => DownstreamError::MalformedBody,
            Failure::Unsendable => DownstreamError::Unsendable,
        }
    }
}

/// Why no address takes a query.
enum Refusal {
    Full,
    /// The soonest that one is due, among those not yet tried.
    Down {
        soonest: Option<Duration>,
    },
}

/// Addresses to which no connection could be made for this query: a bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct Tried(u64);

const _: () = assert!(config::ADDRESSES_MAX <= u64::BITS as usize, "a bit for each");

impl Tried {
    fn add(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    fn has(&self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }
}

fn jittered(period: Duration) -> Duration {
    let spread: f64 = rand::random_range(-CHECK_JITTER..=CHECK_JITTER);
    period.mul_f64(1.0 + spread)
}
