//! The connections to the upstream: who gets a stream on which, and when another one is dialled.
//!
//! Invariant: a connection never has more leases than its peer allows streams, as far as the peer
//! has said so in time; what is more waits here, where a wait has an end, and not inside HTTP/2.
//!
//! Lock order: `state`, then `tasks`. Neither is held across an await.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::uri::{Authority, Scheme};
use http::{Request, Uri, Version, request};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout_at};

use super::UpstreamError;
use super::config::{UpstreamConfig, UpstreamConfigError};
use super::dial::{Dialled, Dialler, WireError};
use crate::exposition::Families;
use crate::tls::ClientTls;

/// How long a call without a deadline of its own waits for a connection and a stream.
const WAIT_MAX: Duration = Duration::from_secs(10);

pub struct Pool {
    dialler: Dialler,
    authority: Option<Authority>,
    connections_max: usize,
    state: Mutex<State>,
    /// A stream came free, or a dial or a connection ended.
    changed: Notify,
    /// Dials, drivers, and senders of bodies behind their answers. They end with the pool.
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct State {
    connections: Vec<Connection>,
    next_id: u64,
    is_dialling: bool,
    /// Dials that failed since the last that did not.
    failures: u32,
    /// No dial before that, after one has failed.
    retry_at: Option<Instant>,
    /// Why the last dial failed.
    cause: Option<Arc<str>>,
    is_reachable: bool,
    /// What the log has been told.
    is_announced_down: bool,
    counts: Counts,
}

struct Connection {
    id: u64,
    requests: SendRequest<Bytes>,
    leases: usize,
    /// Takes no new calls: it is shutting down or broken, and its driver will say so.
    is_going: bool,
}

#[derive(Default)]
struct Counts {
    dials: u64,
    dials_failed: u64,
    connections_broken: u64,
    /// By the place of their cause in `CAUSES`.
    failures: [u64; CAUSES.len()],
}

/// Causes of failed calls, as the metric names them. What is refused by the budget is counted
/// there.
const CAUSES: [&str; 6] = ["unreachable", "busy", "deadline", "reset", "broken", "sender"];

/// A stream's place on a connection; given back when dropped.
pub struct Lease {
    pub requests: SendRequest<Bytes>,
    id: u64,
    pool: Arc<Pool>,
}

/// Ends a task when dropped.
pub struct TaskGuard(AbortHandle);

enum Tried {
    Leased(Lease),
    Failed(UpstreamError),
    /// Until something changes, or it is time for the next dial.
    Wait(Option<Instant>),
}

impl Pool {
    pub fn new(
        address: Arc<str>,
        config: &UpstreamConfig,
        tls: Option<Arc<ClientTls>>,
    ) -> Result<Arc<Self>, UpstreamConfigError> {
        Ok(Arc::new(Self {
            authority: address.parse().ok(),
            dialler: Dialler::new(address, config, tls)?,
            connections_max: config.max_connections,
            state: Mutex::default(),
            changed: Notify::new(),
            tasks: Mutex::default(),
        }))
    }

    pub fn tls(&self) -> Option<&Arc<ClientTls>> {
        self.dialler.tls()
    }

    pub fn address(&self) -> &Arc<str> {
        self.dialler.address()
    }

    pub fn is_reachable(&self) -> bool {
        self.lock().is_reachable
    }

    /// The head as it goes out: method, path and headers untouched, in HTTP/2's form.
    pub fn outgoing(&self, head: request::Parts) -> Request<()> {
        let mut uri = head.uri.into_parts();
        uri.scheme = Some(if self.tls().is_some() { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = uri.authority.or_else(|| self.authority.clone());
        let mut request = Request::new(());
        *request.method_mut() = head.method;
        *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = head.headers;
        request
    }

    /// Waits for a stream, dialling where there is none.
    ///
    /// While the upstream is known to be down this fails at once, until the next dial is due:
    /// a caller that can go elsewhere should not wait.
    pub async fn lease(
        self: &Arc<Self>,
        deadline: Option<Instant>,
    ) -> Result<Lease, UpstreamError> {
        let bound = Instant::now() + WAIT_MAX;
        let until = deadline.map_or(bound, |deadline| deadline.min(bound));
        let leased = timeout_at(until, async {
            loop {
                // Listening begins before looking, so that no change falls in between.
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                match self.try_lease() {
                    Tried::Leased(lease) => return Ok(lease),
                    Tried::Failed(error) => return Err(error),
                    Tried::Wait(None) => changed.await,
                    Tried::Wait(Some(retry_at)) => {
                        // Running into the end of the wait is as good as a change.
                        let _ = timeout_at(retry_at, changed).await;
                    }
                }
            }
        });
        let address = || Arc::clone(self.address());
        leased.await.unwrap_or_else(|_| {
            Err(match deadline {
                Some(deadline) if deadline <= until => {
                    UpstreamError::DeadlineExceeded { address: address() }
                }
                _ => UpstreamError::Busy { address: address() },
            })
        })
    }

    fn try_lease(self: &Arc<Self>) -> Tried {
        let mut state = self.lock();
        let free = state
            .connections
            .iter_mut()
            .filter(|connection| !connection.is_going && connection.has_room())
            .min_by_key(|connection| connection.leases);
        if let Some(connection) = free {
            connection.leases += 1;
            return Tried::Leased(Lease {
                requests: connection.requests.clone(),
                id: connection.id,
                pool: Arc::clone(self),
            });
        }
        if state.is_dialling || state.connections.len() >= self.connections_max {
            return Tried::Wait(None);
        }
        match state.retry_at.filter(|retry_at| Instant::now() < *retry_at) {
            None => {
                self.start_dial(&mut state);
                Tried::Wait(None)
            }
            Some(retry_at) if state.connections.iter().any(|connection| !connection.is_going) => {
                Tried::Wait(Some(retry_at))
            }
            Some(_) => {
                let cause = state.cause.clone().unwrap_or_default();
                Tried::Failed(UpstreamError::Unreachable {
                    address: Arc::clone(self.address()),
                    cause,
                })
            }
        }
    }

    fn start_dial(self: &Arc<Self>, state: &mut State) {
        state.is_dialling = true;
        state.counts.dials += 1;
        let pool = Arc::clone(self);
        // It ends within the connect timeout, so it does not keep the pool.
        self.spawn(async move {
            let outcome = pool.dialler.dial().await;
            pool.dialled(outcome);
        });
    }

    fn dialled(self: &Arc<Self>, outcome: Result<Dialled, WireError>) {
        let mut state = self.lock();
        state.is_dialling = false;
        match outcome {
            Ok(Dialled { requests, driver }) => {
                let id = state.next_id;
                state.next_id += 1;
                state.connections.push(Connection { id, requests, leases: 0, is_going: false });
                state.failures = 0;
                state.retry_at = None;
                state.is_reachable = true;
                if std::mem::take(&mut state.is_announced_down) {
                    tracing::info!(upstream = %self.address(), "the upstream is reached again");
                }
                let pool = Arc::downgrade(self);
                self.spawn(async move {
                    let outcome = driver.run().await;
                    if let Some(pool) = Weak::upgrade(&pool) {
                        pool.ended(id, outcome);
                    }
                });
            }
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                state.retry_at = Some(Instant::now() + self.dialler.backoff(state.failures));
                state.cause = Some(error.to_string().into());
                state.counts.dials_failed += 1;
                state.is_reachable = false;
                if !std::mem::replace(&mut state.is_announced_down, true) {
                    tracing::warn!(upstream = %self.address(), %error, "cannot reach the upstream");
                }
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn ended(&self, id: u64, outcome: Result<(), WireError>) {
        let mut state = self.lock();
        state.connections.retain(|connection| connection.id != id);
        if let Err(error) = outcome {
            state.counts.connections_broken += 1;
            state.is_reachable = !state.connections.is_empty();
            tracing::debug!(upstream = %self.address(), %error, "a connection broke");
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Counts a call, or an answer, that came to nothing.
    pub fn note_failure(&self, error: &UpstreamError) {
        let cause = match error {
            UpstreamError::Unreachable { .. } => 0,
            UpstreamError::Busy { .. } => 1,
            UpstreamError::DeadlineExceeded { .. } => 2,
            UpstreamError::Reset { .. } => 3,
            UpstreamError::Broken { .. } => 4,
            UpstreamError::BrokenOff { .. } => 5,
            // Of a call that did well but for its reader.
            UpstreamError::AnswerTooLarge { .. } | UpstreamError::Full { .. } => return,
        };
        self.lock().counts.failures[cause] += 1;
    }

    /// Runs `task` until it ends, its guard is dropped, or the pool is.
    pub fn spawn_guarded(&self, task: impl Future<Output = ()> + Send + 'static) -> TaskGuard {
        TaskGuard(self.spawn(task))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.tasks.lock().expect("no panic under this lock");
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let state = self.lock();
        families.gauge(
            "freehold_upstream_reachable",
            "1 when the last dial of the upstream, or the last connection to it, did well.",
            f64::from(u8::from(state.is_reachable)),
        );
        families.gauge(
            "freehold_upstream_connections",
            "Open connections to the upstream.",
            state.connections.len() as f64,
        );
        families.gauge(
            "freehold_upstream_streams",
            "Streams in use on the connections to the upstream.",
            state.connections.iter().map(|connection| connection.leases).sum::<usize>() as f64,
        );
        families.counter(
            "freehold_upstream_dials_total",
            "Connections to the upstream that were tried.",
            state.counts.dials,
        );
        families.counter(
            "freehold_upstream_dials_failed_total",
            "Connections to the upstream that could not be made.",
            state.counts.dials_failed,
        );
        families.counter(
            "freehold_upstream_connections_broken_total",
            "Connections to the upstream that broke.",
            state.counts.connections_broken,
        );
        let mut failed = families.counters(
            "freehold_upstream_failures_total",
            "Calls to the upstream that came to nothing, or whose answer was broken off, by cause.",
        );
        for (cause, count) in CAUSES.into_iter().zip(state.counts.failures) {
            failed.sample([("cause", cause)], count as f64);
        }
    }
}

impl Connection {
    fn has_room(&self) -> bool {
        self.leases < self.requests.current_max_send_streams()
    }
}

impl Lease {
    /// The connection takes no more calls; another one has to be used.
    pub fn retire(self) {
        let mut state = self.pool.lock();
        if let Some(connection) = state.connections.iter_mut().find(|one| one.id == self.id) {
            connection.is_going = true;
        }
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if let Some(connection) = state.connections.iter_mut().find(|one| one.id == self.id) {
            connection.leases -= 1;
        }
        drop(state);
        self.pool.changed.notify_one();
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}
