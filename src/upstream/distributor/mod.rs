//! The way to a Cortex distributor: remote writes over HTTP, as they came.
//!
//! ```text
//! forward ─► back-off ─► budget (in flight) ─► hyper's pool ─► Answer, whole
//! ```
//!
//! What must hold: every wait ends within the request's deadline; what is held in memory is
//! bounded by the budget, and an answer by a constant; it is always told whether the other side
//! can have seen anything of a request that failed.

pub mod config;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, IntoHeaderName};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioTimer;
use tokio::time::{Instant, timeout};

use super::back_off::BackOff;
use super::budget::{Budget, InFlight};
use super::connect::{Connector, Tasks, innermost};
use super::end_to_end::end_to_end;
use crate::exposition::{Counter, Families, RefusedCount};
use crate::ring::config::address::{AddressError, Scheme as UrlScheme};
use crate::tls::{self, ClientTls, TlsError};
use config::{HttpUpstreamConfig, HttpUpstreamConfigError};

/// Longest body of an answer. Cortex's are a sentence.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How long an idle connection is kept: less than the two minutes after which Cortex's server
/// closes it, so that we are the first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// What a sender is told to wait when too much is under way: requests end within milliseconds.
const FULL_WAIT: Duration = Duration::from_secs(1);

/// A distributor behind us. Cheap to clone.
#[derive(Clone)]
pub struct HttpUpstream(Arc<Inner>);

struct Inner {
    client: Client<Connector, Full<Bytes>>,
    scheme: Scheme,
    authority: Authority,
    /// Put before each request's path; without a slash at its end.
    path_prefix: String,
    timeout: Duration,
    budget: Arc<Budget>,
    /// Locked for a comparison; never across an await.
    back_off: Mutex<BackOff>,
    tls: Option<Arc<ClientTls>>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    /// Answers by status; a status is one of a thousand.
    answers: Mutex<BTreeMap<u16, u64>>,
    unreachable: Counter,
    broken: Counter,
    deadline_exceeded: Counter,
    refused_requests: Counter,
    refused_bytes: Counter,
    refused_down: Counter,
}

/// What of a received request goes on beside its body.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    path: String,
    headers: HeaderMap,
}

/// What the other side said, to be handed on as it is.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why there is no answer. Senders see the texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpUpstreamError {
    /// Nothing has been sent.
    #[error("the distributor behind this gate cannot be reached: {cause}")]
    Unreachable { cause: String, wait: Duration },
    /// Nothing has been sent, as nothing could be a moment ago.
    #[error("the distributor behind this gate cannot be reached, and is not tried before {} ms are over", wait.as_millis())]
    Down { wait: Duration },
    /// Nothing has been sent.
    #[error("too much under way to the distributor behind this gate: {bound}")]
    Full { bound: &'static str, wait: Duration },
    #[error("the distributor behind this gate has not answered within {} ms", timeout.as_millis())]
    DeadlineExceeded { timeout: Duration },
    #[error("the distributor behind this gate broke off: {cause}")]
    Broken { cause: String },
    #[error("the distributor behind this gate answered with more than {ANSWER_BYTES_MAX} bytes")]
    AnswerTooLarge,
    /// The path or a header of the request cannot be sent on.
    #[error("the request cannot be sent on")]
    Unsendable,
}

/// Why there cannot be a way to the distributor.
#[derive(Debug, thiserror::Error)]
pub enum HttpUpstreamStartError {
    #[error(transparent)]
    Config(#[from] HttpUpstreamConfigError),
    #[error("-distributor.upstream-url cannot be used")]
    Url(#[from] AddressError),
    #[error("-distributor.upstream-url names no host that can be asked")]
    Authority(#[source] http::uri::InvalidUri),
    #[error("cannot prepare TLS to the distributor")]
    Tls(#[from] TlsError),
}

impl Passed {
    /// Takes what goes on of a request: its path, and the headers that speak of it and not of
    /// the connection that it came by.
    pub fn new(path: &str, headers: &HeaderMap) -> Self {
        Self { path: path.to_owned(), headers: beside_a_body(headers.clone()) }
    }

    /// Sends it to another path of the same distributor.
    pub fn set_path(&mut self, path: &str) {
        path.clone_into(&mut self.path);
    }

    /// The value of a header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Sets a header, unless the value cannot be one.
    pub fn set(&mut self, name: impl IntoHeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
    }
}

impl HttpUpstream {
    /// Nothing is dialled before the first request. Certificates are read here.
    pub fn new(config: &HttpUpstreamConfig) -> Result<Self, HttpUpstreamStartError> {
        config.validate()?;
        let address = config.address()?;
        let authority: Arc<str> = address.authority().into();
        let (scheme, tls) = match address.scheme {
            Some(UrlScheme::Https) => {
                let settings = tls::client("distributor_upstream", &config.tls(), &["http/1.1"])?;
                (Scheme::HTTPS, Some((settings, config.server_name()?)))
            }
            _ => (Scheme::HTTP, None),
        };
        let connector = Connector {
            authority: Arc::clone(&authority),
            connect_timeout: config.connect_timeout.as_duration(),
            tls: tls.clone(),
        };
        let client = Client::builder(Tasks::default())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(config.max_idle_connections)
            .build(connector);
        let back_off = BackOff::new(
            config.connect_backoff_base_delay.as_duration(),
            config.connect_backoff_max_delay.as_duration(),
            config.connect_timeout.as_duration(),
        );
        Ok(Self(Arc::new(Inner {
            client,
            scheme,
            authority: authority.parse().map_err(HttpUpstreamStartError::Authority)?,
            path_prefix: address.path.trim_end_matches('/').to_owned(),
            timeout: config.timeout.as_duration(),
            budget: Arc::new(Budget::new(
                authority,
                config.max_inflight_requests,
                config.max_inflight_bytes,
            )),
            back_off: Mutex::new(back_off),
            tls: tls.map(|(settings, _)| settings),
            counts: Counts::default(),
        })))
    }

    /// Sends a request on and waits for the whole answer. Dropped, the request is broken off.
    pub async fn forward(&self, passed: Passed, body: Bytes) -> Result<Answer, HttpUpstreamError> {
        let inner = &*self.0;
        let request = inner.request(passed, body.clone())?;
        inner.admit()?;
        let _in_flight = inner.enter(body.len() as u64)?;
        let timed = timeout(inner.timeout, inner.exchange(request)).await;
        let outcome =
            timed.unwrap_or(Err(HttpUpstreamError::DeadlineExceeded { timeout: inner.timeout }));
        inner.count(&outcome);
        outcome
    }

    /// Requests under way.
    pub fn in_flight(&self) -> u64 {
        self.0.budget.calls()
    }

    /// Whether the last connection that was asked for could be made; true before the first.
    pub fn is_reachable(&self) -> bool {
        !self.0.back_off().is_down()
    }

    /// The certificates, to be followed; none where the distributor is spoken to plainly.
    pub fn tls(&self) -> Option<&Arc<ClientTls>> {
        self.0.tls.as_ref()
    }

    /// Tells of requests that were not sent, by the bound that was reached.
    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        for (reason, counter) in self.0.counts.refused() {
            let (metric, count) = ("freehold_distributor_upstream_refused_total", counter.get());
            tell(RefusedCount { metric, unit: "requests", reason, tenant: None, count });
        }
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let inner = &*self.0;
        let counts = &inner.counts;
        let mut answers = families.counters(
            "freehold_distributor_upstream_answers_total",
            "Answers of the distributor behind this gate, by status.",
        );
        for (status, count) in counts.answers().iter() {
            answers.sample([("status", status.to_string().as_str())], *count as f64);
        }
        let mut failures = families.counters(
            "freehold_distributor_upstream_failures_total",
            "Requests to the distributor behind this gate that had no answer, by what went wrong.",
        );
        for (cause, counter) in [
            ("broken", &counts.broken),
            ("deadline", &counts.deadline_exceeded),
            ("unreachable", &counts.unreachable),
        ] {
            failures.sample([("cause", cause)], counter.get() as f64);
        }
        let mut refused = families.counters(
            "freehold_distributor_upstream_refused_total",
            "Requests not sent to the distributor behind this gate, by the bound that was reached.",
        );
        for (bound, counter) in counts.refused() {
            refused.sample([("bound", bound)], counter.get() as f64);
        }
        families.gauge(
            "freehold_distributor_upstream_inflight_requests",
            "Requests to the distributor behind this gate that are under way.",
            inner.budget.calls() as f64,
        );
        families.gauge(
            "freehold_distributor_upstream_inflight_bytes",
            "Bytes of requests to the distributor behind this gate that are under way.",
            inner.budget.bytes() as f64,
        );
        families.gauge(
            "freehold_distributor_upstream_reachable",
            "0 while no connection to the distributor behind this gate can be made.",
            f64::from(u8::from(self.is_reachable())),
        );
    }
}

impl Inner {
    fn request(
        &self,
        passed: Passed,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, HttpUpstreamError> {
        let path = format!("{}{}", self.path_prefix, passed.path);
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.map_err(|_| HttpUpstreamError::Unsendable)?;
        *request.headers_mut() = passed.headers;
        Ok(request)
    }

    fn admit(&self) -> Result<(), HttpUpstreamError> {
        let admitted = self.back_off().admit(Instant::now());
        admitted.map_err(|wait| {
            self.counts.refused_down.add(1);
            HttpUpstreamError::Down { wait }
        })
    }

    fn enter(&self, bytes: u64) -> Result<InFlight, HttpUpstreamError> {
        Budget::enter(&self.budget, bytes).map_err(|error| {
            let (bound, counter) = match error {
                super::UpstreamError::Full { bound: super::InFlightBound::Bytes, .. } => {
                    ("bytes", &self.counts.refused_bytes)
                }
                _ => ("requests", &self.counts.refused_requests),
            };
            counter.add(1);
            HttpUpstreamError::Full { bound, wait: FULL_WAIT }
        })
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, HttpUpstreamError> {
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) => return Err(self.failed(&error)),
        };
        self.back_off().connected();
        let (head, body) = response.into_parts();
        let body =
            Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
                match error.is::<LengthLimitError>() {
                    true => HttpUpstreamError::AnswerTooLarge,
                    false => HttpUpstreamError::Broken { cause: error.to_string() },
                }
            })?;
        Ok(Answer {
            status: head.status,
            headers: beside_a_body(head.headers),
            body: body.to_bytes(),
        })
    }

    fn failed(&self, error: &legacy::Error) -> HttpUpstreamError {
        let cause = innermost(error);
        if !error.is_connect() {
            return HttpUpstreamError::Broken { cause };
        }
        let mut back_off = self.back_off();
        let was_down = back_off.is_down();
        let wait = back_off.failed(Instant::now());
        drop(back_off);
        if !was_down {
            tracing::warn!(cause, "the distributor behind this gate cannot be reached");
        }
        HttpUpstreamError::Unreachable { cause, wait }
    }

    fn count(&self, outcome: &Result<Answer, HttpUpstreamError>) {
        let counts = &self.counts;
        match outcome {
            Ok(answer) => *counts.answers().entry(answer.status.as_u16()).or_default() += 1,
            Err(HttpUpstreamError::Unreachable { .. }) => counts.unreachable.add(1),
            Err(HttpUpstreamError::DeadlineExceeded { .. }) => counts.deadline_exceeded.add(1),
            Err(_) => counts.broken.add(1),
        }
    }

    fn back_off(&self) -> std::sync::MutexGuard<'_, BackOff> {
        self.back_off.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Requests that were not sent, by the bound that was reached.
    fn refused(&self) -> [(&'static str, &Counter); 3] {
        [
            ("bytes", &self.refused_bytes),
            ("down", &self.refused_down),
            ("requests", &self.refused_requests),
        ]
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, BTreeMap<u16, u64>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpUpstreamError {
    /// The other side cannot have seen anything of the request.
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Down { .. } | Self::Full { .. } | Self::Unsendable => {
                true
            }
            Self::DeadlineExceeded { .. } | Self::Broken { .. } | Self::AnswerTooLarge => false,
        }
    }

    /// When the sender may come back, where that is known.
    pub fn wait(&self) -> Option<Duration> {
        match self {
            Self::Unreachable { wait, .. } | Self::Down { wait } | Self::Full { wait, .. } => {
                Some(*wait)
            }
            _ => None,
        }
    }
}

/// What goes on beside a body that is held whole: its length and the host are told anew, and
/// nothing follows it.
fn beside_a_body(headers: HeaderMap) -> HeaderMap {
    let mut kept = end_to_end(headers);
    for name in [header::HOST, header::CONTENT_LENGTH, header::TRAILER] {
        kept.remove(name);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_anew_does_not_go_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "X-Once, keep-alive"),
            ("x-once", "a"),
            ("keep-alive", "5"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("host", "gate"),
            ("content-encoding", "snappy"),
            ("x-scope-orgid", "a"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let kept = beside_a_body(headers);
        let mut names: Vec<_> = kept.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-encoding", "x-scope-orgid"]);
    }
}
