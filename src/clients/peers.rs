//! Carries batches from gate to gate, and lets requests wait for owners.
//!
//! ```text
//! charge ─► Gate::decide ─► decided: nothing else happens
//!                       └─► Gate::ask ─► link, a task per peer ─► Exchange ─► the peer's serving
//!                           wait ◄─ outcome ◄─ Gate::answered ◄──────────────┘ Gate::serve
//! ```
//!
//! What must hold: every wait ends within the owner's timeout, whatever becomes of a peer; a
//! batch is never charged twice, since it is repeated under its own sequence and given up with
//! its link's incarnation; what fails is told once, not per request.

mod hand_over;
mod inspect;
mod link;
mod member;
mod metrics;
mod serving;
mod waiting;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus::Histogram;
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::gate::{Charge, Decision, Gate, GateCounts, GateSettings, Outcome, Refusal};
use super::key::{Gates, Key, KeyHasher, Kind};
use super::owner::Terms;
use super::placement::OwnerMap;
use crate::clock::Clock;
use crate::sync::{AtomicBool, Ordering};
use crate::upstream::Upstream;
use link::LinkTask;
use member::Member;

pub use inspect::{InspectError, Reset, ShownBudget, Top};
pub use member::{Connector, PeerConnectError, connector};
pub use serving::HelloRefused;

/// How long a gate that leaves waits for its accounts to arrive. It is what a request would wait
/// at the longest for anything here, and less than a lease lives: later nobody would miss them.
pub const HAND_OVER_WITHIN: Duration = Duration::from_secs(2);

/// Asks for the terms of a kind and tenant; `None` where there is no limit.
pub type TermsFn = dyn Fn(Kind, &str) -> Option<Terms> + Send + Sync;

type Id = Arc<str>;
type Waiter = oneshot::Sender<Outcome>;

/// What budgets are made of.
pub struct BudgetsSetup {
    /// In whose ring we are; only their kinds of budgets are kept.
    pub gates: Gates,
    /// Our id in the ring.
    pub us: Id,
    /// Tells this life of the process from others: the time of its start in nanoseconds, or a
    /// random number. Each link has one of its own, counted up from here.
    pub incarnation: u64,
    pub settings: GateSettings,
    pub hasher: KeyHasher,
    pub clock: Clock,
    /// Longest wait of a request.
    pub owner_timeout: Duration,
    pub terms_of: Arc<TermsFn>,
    /// Makes the way to a peer from its address; see [`connector`].
    pub connect: Connector,
}

/// Another gate, as we see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    pub id: Id,
    pub address: Arc<str>,
    /// It answers, as far as is known.
    pub is_up: bool,
}

/// One gate's budgets, its own and those that it spends of. Cheap to clone; links and hand-overs
/// end with the last clone.
#[derive(Clone)]
pub struct Budgets {
    shared: Arc<Shared>,
    tasks: Arc<Mutex<Tasks>>,
}

/// What the tasks know of, too.
struct Shared {
    gates: Gates,
    gate: Gate<Waiter>,
    settings: GateSettings,
    clock: Clock,
    owner_timeout: Duration,
    terms_of: Arc<TermsFn>,
    connect: Connector,
    /// Hash of a fixed key: equal where keys are placed alike.
    placement: u64,
    /// All gates but us.
    members: ArcSwap<HashMap<Id, Arc<Member>>>,
    map_changed: Notify,
    /// The log has been told that decisions are made without owners.
    is_lost_told: AtomicBool,
    waits: Histogram,
}

/// Guards changes of the members, too.
struct Tasks {
    links: JoinSet<()>,
    link_of: HashMap<Id, AbortHandle>,
    hand_overs: JoinSet<()>,
    next_incarnation: u64,
}

impl Budgets {
    /// Until the first [`Budgets::publish`] everything is decided as with all owners lost.
    pub fn new(setup: BudgetsSetup) -> Self {
        let key = Key { kind: Kind::TenantWrites, tenant: "placement", client: "" };
        let shared = Shared {
            gates: setup.gates,
            placement: setup.hasher.hash(key).0,
            gate: Gate::new(setup.us, setup.settings, setup.hasher),
            settings: setup.settings,
            clock: setup.clock,
            owner_timeout: setup.owner_timeout,
            terms_of: setup.terms_of,
            connect: setup.connect,
            members: ArcSwap::default(),
            map_changed: Notify::new(),
            is_lost_told: AtomicBool::new(false),
            waits: metrics::waits(setup.gates),
        };
        let tasks = Tasks {
            links: JoinSet::new(),
            link_of: HashMap::new(),
            hand_overs: JoinSet::new(),
            next_incarnation: setup.incarnation,
        };
        Self { shared: Arc::new(shared), tasks: Arc::new(Mutex::new(tasks)) }
    }

    /// In whose ring we are.
    pub fn gates(&self) -> Gates {
        self.shared.gates
    }

    /// Takes `n` credits of a budget, or says why not. Mostly it neither waits nor allocates; the
    /// owner's answer is waited for as long as the owner's timeout says.
    ///
    /// Whoever drops it while it waits may have been charged, once.
    pub async fn charge(&self, key: Key<'_>, n: u64, terms: Terms) -> Result<Charge, Refusal> {
        match self.shared.gate.decide(key, n, terms, self.shared.now_ns()) {
            Decision::Admitted(charge) => Ok(charge),
            Decision::Refused(refusal) => Err(refusal),
            // In a box, so that the many that do not wait carry nothing of it.
            undecided => Box::pin(self.shared.wait(key, n, terms, undecided)).await,
        }
    }

    /// Gives back a charge that bought nothing.
    pub fn give_back(&self, key: Key<'_>, charge: Charge) {
        self.shared.gate.give_back(key, charge, self.shared.now_ns());
    }

    /// Takes `n` credits of a budget whether they are there or not: what was admitted for less
    /// than it turned out to cost is paid by the refill to come, down to one burst below nothing.
    /// Nobody waits for it, and it may be lost where its owner cannot be reached.
    pub fn debit(&self, key: Key<'_>, n: u64, terms: Terms) {
        self.shared.gate.debit(key, n, terms, self.shared.now_ns());
    }

    /// A new ring: who owns what, and the address of every gate in it, whether it owns or not.
    /// Calling it again with the same changes nothing.
    ///
    /// Has to be called within a runtime, whose tasks the links are.
    pub fn publish(&self, map: OwnerMap, addresses: &HashMap<Id, Arc<str>>) {
        let mut tasks = lock(&self.tasks);
        let shared = &self.shared;
        let before = shared.members.load_full();
        let mut members = HashMap::with_capacity(addresses.len());
        // Links are there before the map that leads to them, and go after it.
        for (id, address) in addresses.iter().filter(|(id, _)| *id != shared.gate.us()) {
            match before.get(id) {
                Some(member) if member.address == *address => {
                    members.insert(Id::clone(id), Arc::clone(member));
                }
                moved => {
                    if let Some(former) = moved {
                        tasks.close(shared, former);
                    }
                    if let Some(member) = tasks.open(shared, id, address) {
                        members.insert(Id::clone(id), member);
                    }
                }
            }
        }
        let members = Arc::new(members);
        shared.members.store(Arc::clone(&members));
        let is_same = shared.gate.is_placed_as(&map);
        let handed_over = shared.gate.publish(map, shared.now_ns());
        for (id, gone) in before.iter().filter(|(id, _)| !addresses.contains_key(*id)) {
            tracing::info!(peer = %id, address = %gone.address, "a gate has left the ring");
            tasks.close(shared, gone);
        }
        if !is_same {
            // The next decisions without an owner are another story.
            shared.is_lost_told.store(false, Ordering::Relaxed);
            shared.map_changed.notify_waiters();
        }
        hand_over::start(&mut tasks.hand_overs, &members, handed_over);
    }

    /// Waits for the accounts that are on their way to new owners, [`HAND_OVER_WITHIN`] at most;
    /// the map without us has to be published before. Budgets can be charged on.
    pub async fn leave(&self) {
        let mut under_way = std::mem::take(&mut lock(&self.tasks).hand_overs);
        let all = async { while under_way.join_next().await.is_some() {} };
        if timeout(HAND_OVER_WITHIN, all).await.is_err() {
            tracing::warn!("not all budgets have arrived at their new owners");
        }
    }

    /// Forgets what is idle and owes nothing; to be called every few seconds.
    pub fn sweep(&self) {
        self.shared.gate.sweep(self.shared.now_ns());
    }

    pub fn counts(&self) -> GateCounts {
        self.shared.gate.counts(self.shared.now_ns())
    }

    /// Who keeps a budget, by the map in force.
    pub fn owner_of(&self, key: Key<'_>) -> Option<Id> {
        self.shared.gate.owner_of(key)
    }

    /// All other gates of the ring, by id, and whether they answer.
    pub fn peers(&self) -> Vec<PeerView> {
        let members = self.shared.members.load();
        let mut peers: Vec<_> = members
            .values()
            .map(|member| PeerView {
                id: Id::clone(&member.id),
                address: Arc::clone(&member.address),
                is_up: self.is_up(&member.id),
            })
            .collect();
        peers.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        peers
    }

    /// Our own id in the ring.
    pub fn us(&self) -> &Id {
        self.shared.gate.us()
    }

    /// What is done with budgets whose owner does not answer.
    pub fn settings(&self) -> GateSettings {
        self.shared.settings
    }

    /// Whether a gate of the ring answers, as far as is known; false for one that is not there.
    pub fn is_up(&self, peer: &str) -> bool {
        self.shared.gate.is_link_up(peer)
    }
}

impl Shared {
    fn now_ns(&self) -> i64 {
        self.clock.steady_ns()
    }

    fn deliver(outcomes: Vec<(Waiter, Outcome)>) {
        for (waiter, outcome) in outcomes {
            // Who has gone meanwhile is charged all the same: the owner has spent for it.
            let _ = waiter.send(outcome);
        }
    }
}

impl Tasks {
    fn open(&mut self, shared: &Arc<Shared>, id: &Id, address: &Arc<str>) -> Option<Arc<Member>> {
        let upstream: Upstream = match (shared.connect)(address) {
            Ok(upstream) => upstream,
            Err(error) => {
                tracing::warn!(peer = %id, %address, %error, "the ring names a useless address");
                return None;
            }
        };
        let incarnation = self.next_incarnation;
        self.next_incarnation = incarnation.wrapping_add(1);
        let member = Member::new(Id::clone(id), Arc::clone(address), incarnation, upstream);
        let member = Arc::new(member);
        shared.gate.link(Id::clone(id), member.waker());
        while self.links.try_join_next().is_some() {}
        let link = LinkTask::new(Arc::clone(shared), Arc::clone(&member));
        self.link_of.insert(Id::clone(id), self.links.spawn(link.run()));
        Some(member)
    }

    fn close(&mut self, shared: &Shared, member: &Member) {
        if let Some(task) = self.link_of.remove(&member.id) {
            task.abort();
        }
        // The task may be in the middle of something, which is then of no effect.
        member.close();
        Shared::deliver(shared.gate.unlink(&member.id, shared.now_ns()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under this lock")
}
