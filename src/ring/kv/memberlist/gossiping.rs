//! Our part in the gossip: the machine, the sockets and the store put together.
//!
//! ```text
//! packets ───────────► machine ─► packets; exchanges and pings over streams
//!                         │ ▲
//!   what others tell ◄────┘ └──── what the store has to tell
//!   streams ─► exchange: machine and store, both halves
//! ```
//!
//! One task hands the machine whatever comes and carries out what it says; exchanges run beside
//! it and only borrow the machine. Joining is in `joining`, an exchange in `exchange`.
//!
//! Locks: the machine's, held for one call of it and never across a wait or a call of the store.

mod exchange;
mod joining;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    GossipedStore, Metrics, Phase, Retention, SWEEP_PERIOD, Settings as StoreSettings, weight,
};
use crate::exposition::Families;
use crate::gossip::config::{MemberlistConfig, MemberlistConfigError};
use crate::gossip::discovery::Discovery;
use crate::gossip::membership::{Membership, Output, Warning};
use crate::gossip::message::PeerState;
use crate::gossip::settings::Settings;
use crate::gossip::transport::{Inbound, Received, Refusal, Transport, TransportError};
use crate::gossip::wire::{self, LabelRule};
use crate::ring::kv::reason;
use crate::ring::lifecycler::{WallClock, host_name};

pub use joining::JoinFailed;

/// Exchanges and pings over streams that we have open at once, in either direction: memberlist's
/// own bound. One beyond it is left out; the next interval brings another.
const STREAMS_MAX: usize = 128;

/// How long packets are heard before what is due is done: the intervals of gossip and probes are
/// a hundred milliseconds and more.
const HEARD_FOR_MAX: Duration = Duration::from_millis(20);

/// How long what is still to be told may take when we go. Cortex's: a busy cluster's news never
/// end, and of ours each was told several times by then.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(10);
/// Between two looks at whether they are told.
const LAST_WORDS_POLL: Duration = Duration::from_millis(50);
/// How long the last packets may take to their sockets.
const DRAIN_WAIT: Duration = Duration::from_secs(2);

/// How often a warning of one kind is logged; a peer that is at odds with us says so several
/// times a second.
const WARNING_PERIOD: Duration = Duration::from_secs(60);
const WARNING_KINDS: usize = 9;
/// Between two lines about members that are gone; a stranger can make one up with each message.
const GONE_PERIOD: Duration = Duration::from_secs(1);

/// Why we cannot take part at all.
#[derive(Debug, thiserror::Error)]
pub enum GossipError {
    #[error(transparent)]
    Config(#[from] MemberlistConfigError),
    #[error("the gossip's transport cannot be set up")]
    Transport(#[from] TransportError),
    #[error("a metric of the gossip cannot be registered")]
    Metrics(#[from] prometheus::Error),
}

/// We in the gossip. Its tasks end with it.
pub struct Gossiping {
    shared: Arc<Shared>,
    joined: watch::Receiver<Joined>,
    tasks: JoinSet<()>,
    leave_timeout: Duration,
}

/// How joining stands.
#[derive(Clone, Debug)]
pub enum Joined {
    /// There is nobody to join, or somebody was reached.
    Yes,
    /// Nobody was reached so far; the last reason.
    NotYet(String),
    /// Nor will it be tried again.
    Failed(Arc<JoinFailed>),
}

struct Shared {
    store: GossipedStore,
    transport: Transport,
    machine: Mutex<Membership>,
    /// The machine has been given something outside the loop.
    stirred: Notify,
    started: Instant,
    label: LabelRule,
    is_compressed: bool,
    stream_timeout: Duration,
    leave_spread: Notify,
    /// When each kind of warning was logged last.
    warned: [Mutex<Option<Instant>>; WARNING_KINDS],
    told_gone: Mutex<Option<Instant>>,
    /// Room for long messages of other members' streams, all together.
    long_messages: Semaphore,
}

/// One of the gossip's members, for the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    pub name: String,
    pub address: SocketAddr,
    pub state: PeerState,
    pub meta: Bytes,
    /// Least, most and spoken version of the protocol, then of what rides on it.
    pub versions: [u8; 6],
}

impl Gossiping {
    /// Binds, asks the members to join once, and goes on in the background.
    pub async fn start(
        config: &MemberlistConfig,
        clock: WallClock,
        metrics: Metrics,
    ) -> Result<Self, GossipError> {
        let (transport, inbound) = Transport::bind(&config.transport, config.advertised()?).await?;
        let store = GossipedStore::new(
            StoreSettings {
                retention: Retention {
                    left_ms: config.left_ingesters_timeout.0,
                    deleted_ms: config.tombstone_timeout.0,
                },
                history_bytes_max: config.message_history_buffer_bytes,
            },
            clock,
            metrics,
        );
        let settings = settings(config, transport.advertised());
        tracing::info!(
            name = settings.name, address = %settings.addr, cluster_label = config.cluster_label,
            "takes part in the gossip"
        );
        let port = transport.bound().first().map_or(0, SocketAddr::port);
        let shared = Arc::new(Shared {
            store,
            machine: Mutex::new(Membership::new(settings, rand::random(), 0)),
            stirred: Notify::new(),
            started: Instant::now(),
            label: config.label_rule()?,
            is_compressed: config.compression_enabled,
            stream_timeout: config.stream_timeout.as_duration(),
            leave_spread: Notify::new(),
            warned: Default::default(),
            told_gone: Mutex::default(),
            long_messages: Semaphore::new(exchange::LONG_MESSAGES_MAX),
            transport,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&shared).run(inbound));
        let joiner = joining::Joiner::new(config, Discovery::new(port), &shared);
        let joined = joiner.start(&mut tasks).await;
        shared.store.enter(Phase::Running);
        Ok(Self { shared, joined, tasks, leave_timeout: config.leave_timeout.as_duration() })
    }

    pub fn store(&self) -> &GossipedStore {
        &self.shared.store
    }

    /// Where others reach us.
    pub fn address(&self) -> SocketAddr {
        self.shared.transport.advertised()
    }

    /// Cheap to clone, for those who show us.
    pub fn view(&self) -> GossipView {
        GossipView { shared: Arc::clone(&self.shared), joined: self.joined.clone() }
    }

    /// Tells everybody what is still to be told and that we go, then ends.
    pub async fn stop(mut self) {
        let shared = &self.shared;
        shared.store.enter(Phase::Leaving);
        if timeout(LAST_WORDS_WAIT, shared.last_words_told()).await.is_err() {
            let left = shared.machine().changes().len();
            tracing::warn!(left, "some changes were not told to all before we went");
        }
        let is_spread = shared.leave_spread.notified();
        shared.with_machine(Membership::leave);
        if timeout(self.leave_timeout, is_spread).await.is_err() {
            tracing::warn!("others may take our end for a death: there was no time to say it");
        }
        shared.transport.drained(DRAIN_WAIT).await;
        shared.store.enter(Phase::Stopped);
        // Those who show us outlive this.
        shared.transport.close();
        self.tasks.shutdown().await;
    }
}

/// We in the gossip, as pages, metrics and readiness see us.
#[derive(Clone)]
pub struct GossipView {
    shared: Arc<Shared>,
    joined: watch::Receiver<Joined>,
}

impl GossipView {
    pub fn store(&self) -> &GossipedStore {
        &self.shared.store
    }

    pub fn joined(&self) -> Joined {
        self.joined.borrow().clone()
    }

    /// Why we are alone, while we are and should not be; whoever finds us mends that as well.
    pub fn loneliness(&self) -> Option<String> {
        if self.shared.machine().peers().live() > 1 {
            return None;
        }
        match self.joined() {
            Joined::Yes => None,
            Joined::NotYet(reason) => {
                Some(format!("no member of the gossip was reached: {reason}"))
            }
            Joined::Failed(failed) => Some(failed.to_string()),
        }
    }

    /// Waits until joining is given up for good; for ever where it is not.
    pub async fn join_failed(mut self) -> Arc<JoinFailed> {
        loop {
            if let Joined::Failed(failed) = &*self.joined.borrow_and_update() {
                return Arc::clone(failed);
            }
            if self.joined.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// 0 is well.
    pub fn health_score(&self) -> u32 {
        self.shared.machine().health_score()
    }

    /// All members that we know of, by name.
    pub fn peers(&self) -> Vec<PeerView> {
        let mut peers: Vec<_> = self
            .shared
            .machine()
            .peers()
            .iter()
            .map(|peer| PeerView {
                name: peer.name.to_string(),
                address: peer.addr,
                state: peer.state,
                meta: peer.meta.clone(),
                versions: peer.versions,
            })
            .collect();
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        peers
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let shared = &self.shared;
        shared.transport.metrics().read_metrics(families);
        let (members, score, queued, queued_bytes, counts) = {
            let machine = shared.machine();
            let (peers, changes) = (machine.peers(), machine.changes());
            let score = machine.health_score();
            (peers.live(), score, changes.len(), changes.bytes(), machine.counts())
        };
        families.gauge(
            "memberlist_client_cluster_members_count",
            "Number of members in memberlist cluster",
            members as f64,
        );
        families.gauge(
            "memberlist_client_cluster_node_health_score",
            "Health score of this cluster. Lower the better. 0 = totally health",
            f64::from(score),
        );
        families.gauge(
            "memberlist_client_messages_in_broadcast_queue",
            "Number of user messages in the broadcast queue",
            queued as f64,
        );
        families.gauge(
            "memberlist_client_messages_in_broadcast_queue_bytes",
            "Total size of messages waiting in the broadcast queue",
            queued_bytes as f64,
        );
        families.counter(
            "freehold_gossip_probes_failed_total",
            "Probes of other members that nobody could confirm.",
            counts.probes_failed,
        );
        families.counter(
            "freehold_gossip_refutations_total",
            "Times that we were said to be dead or suspect, and said that we are not.",
            counts.refutations,
        );
        families.counter(
            "freehold_gossip_pings_unanswered_total",
            "Pings of strangers that were not answered, since there were too many.",
            counts.pings_unanswered,
        );
        families.counter(
            "freehold_gossip_peers_refused_total",
            "Members that were not taken, for want of room or for their size.",
            counts.peers_refused,
        );
        families.counter(
            "freehold_gossip_leaps_refused_total",
            "News of members that were left out, of an incarnation too far ahead.",
            counts.leaps,
        );
    }
}

impl Shared {
    /// Hands the machine whatever comes, until the task is dropped.
    async fn run(self: Arc<Self>, mut inbound: Inbound) {
        let mut streams = JoinSet::new();
        let mut sweeps = tokio::time::interval(SWEEP_PERIOD);
        loop {
            let due = self.next_deadline();
            // All arms only wait. What came goes before what is due: after a pause the answers
            // are there and only wait to be read.
            tokio::select! {
                biased;
                Some(packet) = inbound.packets.recv() => {
                    self.hear(packet);
                    // So many that what is due is not put off for long.
                    let until = Instant::now() + HEARD_FOR_MAX;
                    while Instant::now() < until {
                        let Ok(packet) = inbound.packets.try_recv() else { break };
                        self.hear(packet);
                    }
                }
                Some(stream) = inbound.streams.recv() => {
                    if streams.len() < STREAMS_MAX {
                        streams.spawn(Arc::clone(&self).serve(stream));
                    }
                }
                () = self.store.broadcasts_ready() => self.take_broadcasts(),
                () = self.stirred.notified() => {}
                _ = sweeps.tick() => self.store.sweep(),
                Some(_) = streams.join_next() => continue,
                () = sleep_until(due) => {}
            }
            let now_ms = self.now_ms();
            let mut machine = self.machine();
            if machine.next_deadline_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                machine.tick(now_ms);
            }
            let outputs = machine.take_outputs();
            drop(machine);
            for output in outputs {
                self.carry_out(output, &mut streams);
            }
        }
    }

    /// A packet's messages go to the machine; a stranger's are counted.
    fn hear(&self, packet: Received) {
        let Received { from, bytes } = packet;
        match wire::open_packet(&bytes, &self.label) {
            Ok(mut opened) => {
                if let Some(error) = &opened.first_error {
                    self.transport.strangers().refuse(Refusal::of_packet(error), from, error);
                }
                if let Err(error) = weight::lighten(&mut opened.messages) {
                    self.transport.strangers().refuse(Refusal::Heavy, from, &error);
                }
                let now_ms = self.now_ms();
                self.machine().receive(from, opened.messages, now_ms);
            }
            Err(error) => {
                self.transport.strangers().refuse(Refusal::of_packet(&error), from, &error);
            }
        }
    }

    fn take_broadcasts(&self) {
        let broadcasts = self.store.take_broadcasts();
        let mut machine = self.machine();
        for broadcast in broadcasts {
            let super::Broadcast { key, content, version, bytes } = broadcast;
            if let Err(error) = machine.broadcast(&key, &content, version, bytes) {
                // Never one of ours, which are small. Who joins learns a whole ring at once, and
                // those he has it from know it.
                tracing::debug!(key, %error, "a change of the ring is not told on");
            }
        }
    }

    fn carry_out(self: &Arc<Self>, output: Output, streams: &mut JoinSet<()>) {
        match output {
            Output::Send { to, parts, has_checksum } => {
                let label = &self.label.label;
                for packet in wire::packet(&parts, label, self.is_compressed, has_checksum) {
                    self.transport.send(to, packet);
                }
            }
            Output::PushPullWith { to, is_join } if streams.len() < STREAMS_MAX => {
                let shared = Arc::clone(self);
                streams.spawn(async move {
                    if let Err(error) = shared.exchange(to, is_join).await {
                        let error = reason(&error);
                        tracing::debug!(%to, error, "an exchange with a member failed");
                    }
                });
            }
            Output::StreamPing { to, ping, until_ms } if streams.len() < STREAMS_MAX => {
                let until = self.started + Duration::from_millis(until_ms);
                streams.spawn(Arc::clone(self).ping(to, ping, until));
            }
            Output::PushPullWith { .. } | Output::StreamPing { .. } => {
                tracing::debug!("too many streams to other members at once");
            }
            Output::User(bytes) => self.store.receive(bytes),
            Output::Joined(peer) => tracing::debug!(name = %peer.name, "a member joined"),
            Output::Updated(peer) => tracing::debug!(name = %peer.name, "a member changed"),
            Output::Gone(peer) => {
                let (name, state) = (&*peer.name, peer.state.name());
                if is_due(&self.told_gone, GONE_PERIOD) {
                    tracing::info!(name, state, "a member of the gossip is gone");
                } else {
                    tracing::debug!(name, state, "one more member of the gossip is gone");
                }
            }
            Output::LeaveSpread => self.leave_spread.notify_waiters(),
            Output::Warning(warning) => self.warn(&warning),
        }
    }

    /// Logs a warning, each kind now and then.
    fn warn(&self, warning: &Warning) {
        let kind = match warning {
            Warning::NameConflict { .. } => 0,
            Warning::Versions { .. } => 1,
            Warning::PeersFull { .. } => 2,
            Warning::NotForUs { .. } => 3,
            Warning::StreamsOnly { .. } => 4,
            Warning::Refuting { .. } => 5,
            Warning::SuspectDied { .. } => 6,
            Warning::RumourTooBig(_) => 7,
            Warning::Leap { .. } => 8,
        };
        if is_due(&self.warned[kind], WARNING_PERIOD) {
            tracing::warn!(reason = %warning, "something is odd in the gossip");
        }
    }

    /// Waits until all that is to be told is told, or there is nobody to tell.
    async fn last_words_told(&self) {
        loop {
            let is_told = {
                let machine = self.machine();
                machine.peers().live() <= 1 || machine.changes().is_empty()
            };
            if is_told && !self.store.has_broadcasts() {
                return;
            }
            sleep(LAST_WORDS_POLL).await;
        }
    }

    /// Gives the machine something, and has the loop carry out what it says to that.
    fn with_machine<T>(&self, give: impl FnOnce(&mut Membership, u64) -> T) -> T {
        let now_ms = self.now_ms();
        let given = give(&mut self.machine(), now_ms);
        self.stirred.notify_one();
        given
    }

    fn next_deadline(&self) -> Instant {
        // With nothing due, looking again now and then costs nothing.
        const QUIET: Duration = Duration::from_secs(60);
        match self.machine().next_deadline_ms() {
            Some(due_ms) => self.started + Duration::from_millis(due_ms),
            None => Instant::now() + QUIET,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn machine(&self) -> MutexGuard<'_, Membership> {
        lock(&self.machine)
    }
}

/// Whether it is time again, and then it was just now.
fn is_due(last: &Mutex<Option<Instant>>, period: Duration) -> bool {
    let now = Instant::now();
    let mut last = lock(last);
    let is_due = last.is_none_or(|last| now.duration_since(last) >= period);
    if is_due {
        *last = Some(now);
    }
    is_due
}

/// A panic elsewhere leaves nothing half-made that would be worse than no gossip.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings(config: &MemberlistConfig, addr: SocketAddr) -> Settings {
    let mut name = match config.node_name.as_str() {
        "" => host_name(),
        given => given.to_owned(),
    };
    if config.randomize_node_name {
        name = format!("{name}-{:08x}", rand::random::<u32>());
    }
    Settings {
        retransmit_factor: config.retransmit_factor,
        gossip_interval_ms: config.gossip_interval.0,
        gossip_nodes: config.gossip_nodes,
        gossip_to_dead_ms: config.gossip_to_dead_nodes_time.0,
        push_pull_interval_ms: config.pull_push_interval.0,
        dead_reclaim_ms: config.dead_node_reclaim_time.0,
        ..Settings::new(&name, addr)
    }
}

#[cfg(test)]
mod tests;
