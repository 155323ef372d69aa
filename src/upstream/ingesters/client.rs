//! The client of one ingester: how one message gets there and what comes back.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body::Body as _;
use http_body_util::Full;
use tokio::time::{Instant, timeout_at};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::failure;
use super::streams::{StreamOpener, Streams};
use crate::ring::Failure;
use crate::sync::{AtomicU64, Ordering};
use crate::upstream::ask::{USER_AGENT, timeout_value};
use crate::upstream::send::Answer;
use crate::upstream::{AskError, Upstream};
use crate::wire::encoding::{ACCEPTED, Encoding};

const PUSH: &str = "/cortex.Ingester/Push";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// Who health checks are made for, as Cortex makes them.
const HEALTH_CHECK_TENANT: &str = "0";

/// Longest answer to a unary push that is read to its end: an ingester says a few numbers.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// One ingester of the ring, by its address.
pub struct Client {
    upstream: Upstream,
    streams: Streams,
    /// Pushes waiting or under way.
    in_flight: AtomicU64,
    in_flight_max: u64,
}

/// A message as it goes out, and how.
pub enum Outgoing {
    /// `Push`: the headers that it brings beside those of every call.
    Unary { headers: HeaderMap, frame: Bytes },
    /// One message of a `PushStream`.
    Streamed { frame: Bytes },
}

/// A push's place among those of its ingester; given back when dropped.
struct Place<'a>(&'a AtomicU64);

impl Client {
    pub fn new(upstream: Upstream, opener: Arc<StreamOpener>, in_flight_max: u64) -> Self {
        Self {
            streams: Streams::new(opener),
            upstream,
            in_flight: AtomicU64::new(0),
            in_flight_max,
        }
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Sends a message once and waits for its answer, until `deadline` at the longest.
    pub async fn push(&self, outgoing: Outgoing, deadline: Instant) -> Result<(), Failure> {
        let _place = self.enter()?;
        match outgoing {
            Outgoing::Unary { headers, frame } => self.push_unary(headers, frame, deadline).await,
            Outgoing::Streamed { frame } => {
                let held = self.upstream.reserve(frame.len());
                let _held = held.map_err(|error| failure::of_upstream(&error))?;
                let pushed = timeout_at(deadline, self.streams.push(&self.upstream, frame));
                pushed.await.unwrap_or_else(|_| Err(failure::deadline_exceeded()))
            }
        }
    }

    async fn push_unary(
        &self,
        headers: HeaderMap,
        frame: Bytes,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let mut request = Request::post(PUSH).body(Full::new(frame)).expect("a path");
        *request.headers_mut() = headers;
        let left = deadline.saturating_duration_since(Instant::now());
        request.headers_mut().insert("grpc-timeout", timeout_value(left));
        let called = self.upstream.call(request).await;
        let (head, answer) = called.map_err(|error| failure::of_upstream(&error))?.into_parts();
        if head.status != StatusCode::OK {
            return Err(failure::of_http(head.status));
        }
        match trailers(answer).await? {
            Some(trailers) => failure::of_end(&trailers),
            None => failure::of_end(&head.headers),
        }
    }

    /// Whether the ingester says that it serves.
    pub async fn check(&self, within: std::time::Duration) -> Result<(), Failure> {
        let question = HealthCheckRequest { service: String::new() };
        let asked = self.upstream.ask(HEALTH_CHECK, HEALTH_CHECK_TENANT, &question, within);
        let answer: HealthCheckResponse = asked.await.map_err(failure::of_ask)?;
        match ServingStatus::try_from(answer.status) {
            Ok(ServingStatus::Serving) => Ok(()),
            Ok(other) => {
                Err(Failure::unsent(format!("failing healthcheck status: {}", other.as_str_name())))
            }
            Err(_) => {
                Err(Failure::unsent(format!("failing healthcheck status: {}", answer.status)))
            }
        }
    }

    fn enter(&self) -> Result<Place<'_>, Failure> {
        // Relaxed: the count guards no other memory.
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let place = Place(&self.in_flight);
        if self.in_flight_max > 0 && before >= self.in_flight_max {
            return Err(Failure::unsent("too many inflight push requests in ingester client"));
        }
        Ok(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads an answer to its end; what it says is not of interest, how it ends is.
async fn trailers(mut answer: Answer) -> Result<Option<HeaderMap>, Failure> {
    let mut read_bytes = 0;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut answer).poll_frame(cx)).await {
        match frame.map_err(|error| failure::of_upstream(&error))?.into_data() {
            Ok(data) => {
                read_bytes += data.len();
                if read_bytes > ANSWER_BYTES_MAX {
                    let error =
                        AskError::TooLarge { len_bytes: read_bytes, bytes_max: ANSWER_BYTES_MAX };
                    return Err(failure::of_ask(error));
                }
            }
            Err(frame) => return Ok(frame.into_trailers().ok()),
        }
    }
    Ok(None)
}

/// What every call to an ingester says.
pub fn call_headers(encoding: Encoding, tenant: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(16);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    if encoding != Encoding::Identity {
        headers.insert("grpc-encoding", HeaderValue::from_static(encoding.name()));
    }
    headers.insert("grpc-accept-encoding", HeaderValue::from_static(ACCEPTED));
    headers.insert("x-scope-orgid", HeaderValue::from_str(tenant).ok()?);
    Some(headers)
}
