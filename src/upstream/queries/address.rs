//! One of those who answer queries: its connections, what is under way to it, how it fares.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioTimer;
use tokio::time::{Instant, timeout, timeout_at};

use super::body::{Fault, QueryBody};
use super::config::{DownstreamAddress, DownstreamConfig, DownstreamConfigError};
use super::health::{Health, Turn};
use super::query::Query;
use super::reply::Reply;
use crate::exposition::Counter;
use crate::ring::config::address::Scheme as UrlScheme;
use crate::sync::{AtomicUsize, Ordering};
use crate::tls::ClientTls;
use crate::upstream::back_off::BackOff;
use crate::upstream::connect::{Connector, Tasks, Traffic, innermost};

/// A connection that had been closed meanwhile says so within a round trip. Who closes it later has
/// worked on the request, and may have died of it.
const STALE_WITHIN: Duration = Duration::from_millis(100);

/// Largest head of an answer: what we take of a request, too.
const HEAD_BYTES_MAX: usize = 128 << 10;
/// How long an idle connection is kept: less than the two minutes after which Cortex's server
/// closes it, so that we are the first.
const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(90);
/// How much of one answer may be on its way to a reader that does not read; also what one stream
/// moves per round trip.
const STREAM_WINDOW_BYTES: u32 = 512 << 10;
/// How much of all answers of one connection may be: with as many readers which do not read as a
/// server allows streams by default, there is still room for the others.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// An HTTP/2 connection has to show so often that it leads anywhere, and within so long. Go's
/// servers take a ping each five seconds while something is under way.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// What of a check's answer is read so that its connection can be used again; more breaks it.
const CHECK_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Downstream {
    /// `host:port`
    pub name: Arc<str>,
    client: Client<Connector, QueryBody>,
    scheme: Scheme,
    authority: Authority,
    /// Put before each request's path; without a slash at its end.
    path_prefix: String,
    in_flight: AtomicUsize,
    in_flight_max: usize,
    /// Locked for a comparison; never across an await.
    health: Mutex<Health>,
    pub counts: Counts,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub answered: Counter,
    pub broken: Counter,
    pub deadline: Counter,
    pub unreachable: Counter,
    /// Sent again, since nothing of the first time can have been taken.
    pub repeated: Counter,
    pub checks_failed: Counter,
}

/// A request that counts as under way until this is dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Downstream>);

/// Why one address gave no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection; nothing was sent.
    Unreachable {
        cause: String,
    },
    /// Nothing of the request can have been acted upon.
    Unsent {
        cause: String,
    },
    /// The connection had been closed meanwhile, most likely before the request came.
    Stale {
        cause: String,
    },
    Broken {
        cause: String,
    },
    Deadline,
    Body(Fault),
    /// Path and prefix make no target.
    Unsendable,
}

/// What bounds one exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub response: Duration,
    pub pause: Duration,
}

impl Downstream {
    pub fn new(
        config: &DownstreamConfig,
        address: &DownstreamAddress,
        tls: Option<Arc<ClientTls>>,
    ) -> Result<Self, DownstreamConfigError> {
        let name: Arc<str> = address.address.authority().into();
        let connector = Connector {
            authority: Arc::clone(&name),
            connect_timeout: config.connect_timeout.as_duration(),
            tls: match tls.filter(|_| address.is_tls()) {
                None => None,
                Some(settings) => Some((settings, config.server_name(address)?)),
            },
        };
        let client = Client::builder(Tasks::default())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(CONNECTION_IDLE_MAX)
            .pool_max_idle_per_host(config.max_idle_connections)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .http2_only(address.is_http2)
            .http2_max_header_list_size(HEAD_BYTES_MAX as u32)
            .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build(connector);
        let back_off = BackOff::new(
            config.connect_backoff_base_delay.as_duration(),
            config.connect_backoff_max_delay.as_duration(),
            config.connect_timeout.as_duration(),
        );
        let no_host = |_| DownstreamConfigError::ServerName { name: address.address.host.clone() };
        Ok(Self {
            authority: name.parse().map_err(no_host)?,
            name,
            client,
            scheme: match address.address.scheme {
                Some(UrlScheme::Https) => Scheme::HTTPS,
                _ => Scheme::HTTP,
            },
            path_prefix: address.address.path.trim_end_matches('/').to_owned(),
            in_flight: AtomicUsize::new(0),
            in_flight_max: config.max_inflight_requests,
            health: Mutex::new(Health::new(back_off)),
            counts: Counts::default(),
        })
    }

    /// Counts one more under way; none when that are too many.
    pub fn enter(self: &Arc<Self>) -> Option<InFlight> {
        let add = |now| (now < self.in_flight_max).then_some(now + 1);
        // Relaxed: the count guards no other memory.
        self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(InFlight(Arc::clone(self)))
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a query once, and resolves at the answer's headers.
    pub async fn exchange(
        &self,
        query: &Query,
        via: &HeaderValue,
        waits: Waits,
        attempt: Attempt,
    ) -> Result<Reply, Failure> {
        let request = self.request(query, via, waits.pause)?;
        let asked = Instant::now();
        let outcome = self.answer(request, &query.body, waits.response).await;
        let response = match outcome {
            Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err(Failure::Broken { cause: "it switched protocols unasked".to_owned() })
            }
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.failure(&error, query, asked.elapsed())),
            Err(failure) => Err(failure),
        };
        match response {
            Ok(response) => {
                self.counts.answered.add(1);
                let turn = self.health().answered();
                self.tell(turn, "it answers again");
                let is_bodiless = query.method == Method::HEAD;
                Ok(Reply::new(response, is_bodiless, attempt.in_flight, waits.pause))
            }
            Err(failure) => {
                self.note(&failure, attempt.is_probe);
                Err(failure)
            }
        }
    }

    fn request(
        &self,
        query: &Query,
        via: &HeaderValue,
        pause_max: Duration,
    ) -> Result<Request<QueryBody>, Failure> {
        let target = match self.path_prefix.as_str() {
            "" => query.target.clone(),
            prefix => PathAndQuery::try_from(format!("{prefix}{}", query.target))
                .map_err(|_| Failure::Unsendable)?,
        };
        let uri = self.uri(target).map_err(|_| Failure::Unsendable)?;
        let mut request = Request::new(query.body.outgoing(pause_max));
        *request.method_mut() = query.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = query.headers.clone();
        request.headers_mut().append(header::VIA, via.clone());
        Ok(request)
    }

    fn uri(&self, target: PathAndQuery) -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(target)
            .build()
    }

    /// Waits for the head of an answer, as long after the request's last piece as one may take.
    async fn answer(
        &self,
        request: Request<QueryBody>,
        body: &QueryBody,
        wait: Duration,
    ) -> Result<Result<Response<Incoming>, legacy::Error>, Failure> {
        let mut answer = std::pin::pin!(self.client.request(request));
        let mut end = Instant::now() + wait;
        loop {
            if let Ok(outcome) = timeout_at(end, answer.as_mut()).await {
                return Ok(outcome);
            }
            let QueryBody::Stream(stream) = body else { return Err(Failure::Deadline) };
            let later = stream.progress().moved_at + wait;
            if later <= end {
                return Err(Failure::Deadline);
            }
            end = later;
        }
    }

    fn failure(&self, error: &legacy::Error, query: &Query, took: Duration) -> Failure {
        let cause = innermost(error);
        if error.is_connect() {
            return Failure::Unreachable { cause };
        }
        if let QueryBody::Stream(stream) = &query.body
            && let Some(fault) = stream.progress().fault
        {
            return Failure::Body(fault);
        }
        if is_untaken(error) {
            return Failure::Unsent { cause };
        }
        match took < STALE_WITHIN && Traffic::was_stale(error) {
            true => Failure::Stale { cause },
            false => Failure::Broken { cause },
        }
    }

    fn note(&self, failure: &Failure, is_probe: bool) {
        match failure {
            Failure::Unreachable { cause } => {
                self.counts.unreachable.add(1);
                let turn = self.health().unreachable(Instant::now(), is_probe);
                self.tell(turn, cause);
            }
            Failure::Deadline => self.counts.deadline.add(1),
            Failure::Unsent { .. } | Failure::Stale { .. } | Failure::Broken { .. } => {
                self.counts.broken.add(1);
            }
            Failure::Body(_) | Failure::Unsendable => {}
        }
    }

    /// Asks whether it is well, and notes what came of it.
    pub async fn check(&self, path: &PathAndQuery, bad_status: u16, wait: Duration) {
        let (turn, told) = match timeout(wait, self.ask(path)).await {
            Ok(Ok(status)) => {
                let is_well = status.as_u16() < bad_status;
                if !is_well {
                    self.counts.checks_failed.add(1);
                }
                (self.health().checked(is_well), format!("its check says {status}"))
            }
            Ok(Err(error)) if error.is_connect() => {
                self.counts.checks_failed.add(1);
                (self.health().unreachable(Instant::now(), true), innermost(&error))
            }
            Ok(Err(error)) => {
                self.counts.checks_failed.add(1);
                (self.health().checked(false), innermost(&error))
            }
            Err(_) => {
                self.counts.checks_failed.add(1);
                let told =
                    format!("its check has not been answered within {} ms", wait.as_millis());
                (self.health().checked(false), told)
            }
        };
        self.tell(turn, &told);
    }

    async fn ask(&self, path: &PathAndQuery) -> Result<StatusCode, legacy::Error> {
        let mut request = Request::new(QueryBody::Whole(bytes::Bytes::new()));
        if let Ok(uri) = self.uri(path.clone()) {
            *request.uri_mut() = uri;
        }
        let response = self.client.request(request).await?;
        let (head, mut body) = response.into_parts();
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
            if bytes > CHECK_BYTES_MAX {
                break;
            }
        }
        Ok(head.status)
    }

    /// One line each time that it falls or recovers.
    fn tell(&self, turn: Option<Turn>, cause: &str) {
        let address = &*self.name;
        match turn {
            None => {}
            Some(Turn::Fell) => {
                tracing::warn!(
                    address,
                    cause,
                    "this address gets no queries while others are well"
                );
            }
            Some(Turn::Recovered) => {
                tracing::info!(address, cause, "this address gets queries again");
            }
        }
    }
}

/// What one try holds.
#[derive(Debug)]
pub(super) struct Attempt {
    pub in_flight: InFlight,
    /// It was let try one that is not well.
    pub is_probe: bool,
}

impl InFlight {
    pub fn address(&self) -> Arc<str> {
        Arc::clone(&self.0.name)
    }

    pub fn count_broken(&self) {
        self.0.counts.broken.add(1);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Nothing was done for the request: hyper gave it back unsent, or the other side refused its
/// stream.
fn is_untaken(error: &legacy::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.reason() == Some(h2::Reason::REFUSED_STREAM);
        }
        cause = error.source();
    }
    false
}
