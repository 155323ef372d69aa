//! Drives our life in the ring: timers, the store, and those who ask for a change.
//!
//! One task owns the machine of `lifecycle.rs`. It takes one event at a time, carries out the
//! actions in order and waits for each write, which is bounded; so the store sees our writes in
//! the order in which they were decided. Nothing here decides.
//!
//! Invariant: a slow store delays heartbeats, it does not thin them out; a heartbeat is given up
//! only when it would come too late to count.

mod settings;
mod tokens_file;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{IntCounter, IntGauge, Opts, Registry};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ring::kv::{KvClient, KvCodec, KvError};
use crate::ring::lifecycle::{
    Action, Applied, Event, Lifecycle, NotReady, Phase, Settings, Timer, TransitionError,
};
use crate::ring::merge::Change;
use crate::ring::model::{InstanceState, RingModel};

pub(crate) use settings::host_name;
pub use settings::settings;

/// Unix milliseconds. A value, so that tests can turn it with tokio's paused time.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Requests of operators that wait for the task; they come by hand, one or two at a time.
const REQUESTS_MAX: usize = 16;

/// Members that one log line names; a cluster that died whole may leave thousands.
const FORGOTTEN_NAMED_MAX: usize = 10;

/// How long a write may take at least, whatever the heartbeat settings say.
const WRITE_TIMEOUT_MIN: Duration = Duration::from_secs(5);
/// How long it may take when no heartbeat is ever too late.
const WRITE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// What a lifecycler works with.
pub struct Means {
    pub kv: KvClient,
    /// Full key of the ring in the store.
    pub key: String,
    pub codec: KvCodec,
    pub clock: WallClock,
    /// Where tokens survive a loss of the ring.
    pub tokens_file_path: Option<PathBuf>,
    pub metrics: Metrics,
}

/// A running life in the ring.
///
/// Dropping it ends the task where it stands, as a crash would: the entry stays in the ring.
#[derive(Debug)]
pub struct Lifecycler {
    task: JoinHandle<()>,
    handle: LifecyclerHandle,
}

/// Asks a running lifecycler for things; cheap to clone.
#[derive(Clone, Debug)]
pub struct LifecyclerHandle {
    requests: mpsc::Sender<Request>,
    status: watch::Receiver<Status>,
    store: Store,
}

/// What we are in the ring, as far as we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub id: String,
    pub addr: String,
    pub phase: Phase,
    pub state: InstanceState,
    pub tokens_count: usize,
    /// Unix seconds; 0 is unknown.
    pub registered_timestamp_s: i64,
    /// Ok once, and from then on for good.
    pub readiness: Result<(), NotReady>,
}

#[derive(Clone, Debug)]
pub struct Metrics {
    heartbeats: IntCounter,
    write_failures: IntCounter,
    forgotten: IntCounter,
    id_conflicts: IntCounter,
    tokens_owned: IntGauge,
    tokens_to_own: IntGauge,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LifecyclerError {
    #[error(transparent)]
    Transition(#[from] TransitionError),
    #[error("lifecycler not running")]
    NotRunning,
    /// The change holds here and each heartbeat carries it until it has arrived.
    #[error("cannot write to the ring now, will be tried again: {0}")]
    WriteLater(KvError),
    #[error("cannot write to the ring: {0}")]
    Write(KvError),
    #[error("found empty ring when trying to unregister")]
    EmptyRing,
    #[error("our entry is still in the ring")]
    StillRegistered,
}

enum Request {
    SetState(InstanceState, oneshot::Sender<Result<(), LifecyclerError>>),
    Leave(oneshot::Sender<()>),
    Stop(oneshot::Sender<bool>),
    SkipFinalSleep,
}

/// The ring's place in its store.
#[derive(Clone, Debug)]
struct Store {
    kv: KvClient,
    key: String,
    codec: KvCodec,
}

impl Lifecycler {
    /// Starts the task, which owns the machine until it has left the ring.
    pub fn spawn(settings: Settings, means: Means) -> Self {
        let Means { kv, key, codec, clock, tokens_file_path, metrics } = means;
        let store = Store { kv, key, codec };
        let write_timeout = write_timeout(&settings);
        let heritage = tokens_file_path.as_deref().and_then(tokens_file::load_logged);
        metrics.tokens_to_own.set(i64::try_from(settings.num_tokens).unwrap_or(i64::MAX));
        let lifecycle = Lifecycle::new(settings, heritage, rand::random());
        let (requests_tx, requests_rx) = mpsc::channel(REQUESTS_MAX);
        let (status_tx, status_rx) = watch::channel(status(&lifecycle));
        let run = Run {
            lifecycle,
            store: store.clone(),
            clock,
            tokens_file_path,
            metrics,
            write_timeout,
            timers: BTreeMap::new(),
            status: status_tx,
            stop_waiters: Vec::new(),
            last_error: None,
            rival: None,
        };
        let handle = LifecyclerHandle { requests: requests_tx, status: status_rx, store };
        #[expect(
            clippy::disallowed_methods,
            reason = "`Lifecycler` owns its one task, and `stop` ends it"
        )]
        let task = tokio::spawn(run.run(requests_rx));
        Self { task, handle }
    }

    pub fn handle(&self) -> LifecyclerHandle {
        self.handle.clone()
    }

    /// Goes LEAVING, so that nothing new is sent to us, and heartbeats on.
    ///
    /// Returns once that was written, or could not be for now.
    pub async fn leave(&self) {
        let (done_tx, done_rx) = oneshot::channel();
        if self.handle.requests.send(Request::Leave(done_tx)).await.is_ok() {
            // A task that ended has left in another way.
            let _ = done_rx.await;
        }
    }

    /// Lets the end come without the final sleep: for who was alone, and ends for it.
    pub async fn skip_final_sleep(&self) {
        // A task that ended sleeps no more.
        let _ = self.handle.requests.send(Request::SkipFinalSleep).await;
    }

    /// Leaves if need be, sleeps the final sleep, unregisters if configured, ends the task.
    pub async fn stop(mut self) -> Result<(), LifecyclerError> {
        let (done_tx, done_rx) = oneshot::channel();
        let send = self.handle.requests.send(Request::Stop(done_tx)).await;
        let finished = done_rx.await;
        // Its outcome was told already, and a panic was reported by the panic hook.
        let _ = (&mut self.task).await;
        match (send, finished) {
            (Ok(()), Ok(true)) => Ok(()),
            (Ok(()), Ok(false)) => Err(LifecyclerError::StillRegistered),
            _ => Err(LifecyclerError::NotRunning),
        }
    }
}

impl Drop for Lifecycler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LifecyclerHandle {
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Wakes for each change of the status.
    pub fn status_changes(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// For `/ready`.
    pub fn readiness(&self) -> Result<(), NotReady> {
        self.status.borrow().readiness.clone()
    }

    /// Switches between READONLY and ACTIVE; to be where we are already is no error.
    pub async fn set_state(&self, state: InstanceState) -> Result<(), LifecyclerError> {
        let (answer_tx, answer_rx) = oneshot::channel();
        let request = Request::SetState(state, answer_tx);
        self.requests.send(request).await.map_err(|_| LifecyclerError::NotRunning)?;
        answer_rx.await.map_err(|_| LifecyclerError::NotRunning)?
    }

    pub async fn forget(&self, id: &str) -> Result<(), LifecyclerError> {
        forget(&self.store.kv, &self.store.key, self.store.codec, id).await
    }
}

/// Takes the entry `id` out of the ring; one that is not there is no error.
///
/// A member that still lives puts itself back with its next heartbeat.
pub async fn forget(
    kv: &KvClient,
    key: &str,
    codec: KvCodec,
    id: &str,
) -> Result<(), LifecyclerError> {
    let mut was_empty = false;
    let cas = kv.cas(key, |bytes| {
        was_empty = bytes.is_none();
        let Some(bytes) = bytes else { return Ok(None) };
        let mut ring = (codec.decode)(&bytes)?;
        Ok(ring.instances.remove(id).map(|_| (codec.encode)(&ring).into()))
    });
    match timeout(WRITE_TIMEOUT_DEFAULT, cas).await {
        Ok(outcome) => outcome.map_err(LifecyclerError::Write)?,
        Err(_) => return Err(LifecyclerError::Write(kv.silent(WRITE_TIMEOUT_DEFAULT))),
    }
    if was_empty { Err(LifecyclerError::EmptyRing) } else { Ok(()) }
}

impl Metrics {
    /// `ring` is the ring's name, Cortex's label `name`.
    pub fn register(registry: &Registry, ring: &str) -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| Opts::new(name, help).const_label("name", ring);
        let metrics = Self {
            heartbeats: IntCounter::with_opts(opts(
                "cortex_member_consul_heartbeats_total",
                "The total number of heartbeats sent to consul.",
            ))?,
            write_failures: IntCounter::with_opts(opts(
                "freehold_ring_write_failures_total",
                "Writes of our ring entry that failed and are tried again.",
            ))?,
            forgotten: IntCounter::with_opts(opts(
                "freehold_ring_forgotten_total",
                "Members that we took out of the ring because they were silent for too long.",
            ))?,
            id_conflicts: IntCounter::with_opts(opts(
                "freehold_ring_id_conflicts_total",
                "Writes of our ring entry that found it kept alive by another process: two have one id.",
            ))?,
            tokens_owned: IntGauge::with_opts(opts(
                "cortex_member_ring_tokens_owned",
                "The number of tokens owned in the ring.",
            ))?,
            tokens_to_own: IntGauge::with_opts(opts(
                "cortex_member_ring_tokens_to_own",
                "The number of tokens to own in the ring.",
            ))?,
        };
        registry.register(Box::new(metrics.heartbeats.clone()))?;
        registry.register(Box::new(metrics.write_failures.clone()))?;
        registry.register(Box::new(metrics.forgotten.clone()))?;
        registry.register(Box::new(metrics.id_conflicts.clone()))?;
        registry.register(Box::new(metrics.tokens_owned.clone()))?;
        registry.register(Box::new(metrics.tokens_to_own.clone()))?;
        Ok(metrics)
    }
}

struct Run {
    lifecycle: Lifecycle,
    store: Store,
    clock: WallClock,
    tokens_file_path: Option<PathBuf>,
    metrics: Metrics,
    write_timeout: Duration,
    timers: BTreeMap<Timer, Instant>,
    status: watch::Sender<Status>,
    stop_waiters: Vec<oneshot::Sender<bool>>,
    /// Why the last write failed; `None` after one that did not.
    last_error: Option<KvError>,
    /// Where the last write found another process under our id.
    rival: Option<String>,
}

impl Run {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        self.step(Event::Start).await;
        while self.lifecycle.phase() != Phase::Over {
            let next = self.timers.iter().min_by_key(|(_, at)| **at).map(|(t, at)| (*t, *at));
            let far = Instant::now() + Duration::from_secs(86_400);
            let (timer, at) = next.map_or((None, far), |(timer, at)| (Some(timer), at));
            // Both arms are cancel-safe: a deadline is kept in `timers`, a request in its
            // channel.
            tokio::select! {
                () = sleep_until(at) => {
                    if let Some(timer) = timer {
                        self.timers.remove(&timer);
                        if timer == Timer::Heartbeat {
                            self.metrics.heartbeats.inc();
                        }
                        self.step(Event::Fired(timer)).await;
                    }
                }
                request = requests.recv() => match request {
                    Some(request) => self.on_request(request).await,
                    // Nobody is left who could stop us properly.
                    None => return,
                },
            }
        }
    }

    async fn on_request(&mut self, request: Request) {
        match request {
            Request::SetState(to, answer) => {
                let outcome = match self.lifecycle.request_state(to, (self.clock)()) {
                    Ok(actions) => {
                        let writes = actions.iter().any(|a| matches!(a, Action::Write(_)));
                        self.perform(actions).await;
                        match self.last_error.clone().filter(|_| writes) {
                            Some(e) => Err(LifecyclerError::WriteLater(e)),
                            None => Ok(()),
                        }
                    }
                    Err(e) => Err(e.into()),
                };
                // Who asked may have gone; the state is changed all the same.
                let _ = answer.send(outcome);
            }
            Request::Leave(answer) => {
                self.step(Event::Leave).await;
                let _ = answer.send(());
            }
            Request::Stop(answer) => {
                self.stop_waiters.push(answer);
                self.step(Event::Stop).await;
            }
            Request::SkipFinalSleep => self.step(Event::SkipFinalSleep).await,
        }
    }

    async fn step(&mut self, event: Event) {
        let actions = self.lifecycle.on(event, (self.clock)());
        self.perform(actions).await;
    }

    async fn perform(&mut self, actions: Vec<Action>) {
        let mut todo = VecDeque::from(actions);
        while let Some(action) = todo.pop_front() {
            let event = match action {
                Action::Write(change) => self.write(change).await,
                Action::Check => Event::Checked(self.check().await),
                Action::Schedule { timer, after_ms } => {
                    self.timers.insert(timer, Instant::now() + Duration::from_millis(after_ms));
                    continue;
                }
                Action::Save(heritage) => {
                    if let Some(path) = &self.tokens_file_path {
                        tokens_file::store_logged(path, &heritage).await;
                    }
                    continue;
                }
                Action::BecomeReady => {
                    tracing::info!(id = self.lifecycle.member().id, "ready in the ring");
                    continue;
                }
                Action::Finish { is_clean } => {
                    self.report_end(is_clean);
                    continue;
                }
            };
            todo.extend(self.lifecycle.on(event, (self.clock)()));
            self.publish();
        }
        self.publish();
    }

    async fn write(&mut self, change: Change) -> Event {
        let Self { lifecycle, store, clock, .. } = self;
        let codec = store.codec;
        let mut applied: Option<Applied> = None;
        let cas = store.kv.cas(&store.key, |bytes| {
            let mut ring = match bytes {
                Some(bytes) => (codec.decode)(&bytes)?,
                None => RingModel::default(),
            };
            let was_there = ring.instances.contains_key(&lifecycle.member().id);
            applied = Some(lifecycle.apply(&change, &mut ring, clock()));
            let is_changed = was_there || change != Change::Unregister;
            Ok(is_changed.then(|| (codec.encode)(&ring).into()))
        });
        let outcome = match timeout(self.write_timeout, cas).await {
            Ok(outcome) => outcome,
            Err(_) => Err(store.kv.silent(self.write_timeout)),
        };
        match (outcome, applied) {
            (Ok(()), Some(applied)) => {
                if self.last_error.take().is_some() {
                    tracing::info!("writing to the ring works again");
                }
                self.note_forgotten(&applied.forgotten);
                self.note_rival(&applied.rival);
                Event::Written { change, applied }
            }
            (Ok(()), None) => unreachable!("a swap succeeds only through its closure"),
            (Err(error), _) => {
                self.metrics.write_failures.inc();
                let kind = |error: &KvError| std::mem::discriminant(error);
                // Each heartbeat fails until the store is back; one line for that is enough.
                if self.last_error.as_ref().map(kind) != Some(kind(&error)) {
                    tracing::warn!(?change, %error, "cannot write to the ring, will try again");
                }
                self.last_error = Some(error);
                Event::Failed { change }
            }
        }
    }

    async fn check(&self) -> Result<(), NotReady> {
        let value = match timeout(self.write_timeout, self.store.kv.get(&self.store.key)).await {
            Ok(value) => value.map_err(|e| NotReady::Store(e.to_string()))?,
            Err(_) => {
                return Err(NotReady::Store(self.store.kv.silent(self.write_timeout).to_string()));
            }
        };
        let bytes = value.bytes.ok_or(NotReady::NoRing)?;
        let ring = (self.store.codec.decode)(&bytes).map_err(NotReady::Store)?;
        self.lifecycle.check_ring(&ring, (self.clock)())
    }

    fn publish(&self) {
        let mut now = status(&self.lifecycle);
        // What the machine lacks is missing because the store cannot be written: that is the news.
        if let (Err(_), Some(error)) = (&now.readiness, &self.last_error) {
            now.readiness = Err(NotReady::Store(error.to_string()));
        }
        self.metrics.tokens_owned.set(i64::try_from(now.tokens_count).unwrap_or(i64::MAX));
        self.status.send_if_modified(|old| {
            if old.state != now.state {
                let (old, new) = (old.state.name(), now.state.name());
                tracing::info!(id = now.id, old, new, "state in the ring changed");
            }
            let is_new = *old != now;
            *old = now;
            is_new
        });
    }

    fn note_forgotten(&self, ids: &[String]) {
        if ids.is_empty() {
            return;
        }
        self.metrics.forgotten.inc_by(ids.len() as u64);
        let named = ids[..ids.len().min(FORGOTTEN_NAMED_MAX)].join(" ");
        tracing::warn!(count = ids.len(), named, "forgot members that were silent for too long");
    }

    /// Both take the other's entry for their own, and nobody else can tell them apart: what the
    /// ring shares out between members both take whole.
    fn note_rival(&mut self, rival: &Option<String>) {
        if let Some(rival) = rival {
            self.metrics.id_conflicts.inc();
            // Each heartbeat finds it again; one line for that is enough.
            if self.rival.as_ref() != Some(rival) {
                let member = self.lifecycle.member();
                tracing::error!(
                    id = member.id,
                    address = member.addr,
                    other_address = rival,
                    "another process is in the ring under our id, and what either is to take \
                     alone both take: give each an id of its own"
                );
            }
        } else if self.rival.is_some() {
            tracing::info!("nobody else is in the ring under our id any more");
        }
        self.rival.clone_from(rival);
    }

    fn report_end(&mut self, is_clean: bool) {
        if !is_clean {
            tracing::warn!(id = self.lifecycle.member().id, "our entry stays in the ring");
        }
        for waiter in self.stop_waiters.drain(..) {
            // Who asked us to stop may not wait for it.
            let _ = waiter.send(is_clean);
        }
    }
}

/// A heartbeat counts if it lands before the others give us up; half of that time leaves room
/// for the next one.
fn write_timeout(settings: &Settings) -> Duration {
    match settings.heartbeat_timeout_ms {
        0 => WRITE_TIMEOUT_DEFAULT,
        timeout_ms => Duration::from_millis(timeout_ms / 2).max(WRITE_TIMEOUT_MIN),
    }
}

fn status(lifecycle: &Lifecycle) -> Status {
    let member = lifecycle.member();
    Status {
        id: member.id.clone(),
        addr: member.addr.clone(),
        phase: lifecycle.phase(),
        state: member.state,
        tokens_count: member.tokens.len(),
        registered_timestamp_s: member.registered_timestamp_s,
        readiness: lifecycle.readiness(),
    }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod gossip_tests;

#[cfg(test)]
mod tests;
