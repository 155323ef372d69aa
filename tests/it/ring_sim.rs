//! Many lives on one ring, with failed swaps, delays, lost answers, crashes and operators.
//!
//! The machine and the change it applies are the real ones; store, network, time and the driver's
//! loop are simulated, so a seed gives the same run every time. After every swap the ring is
//! checked against what that swap was allowed to do; in the end, when the faults have stopped,
//! everybody must have arrived.
//!
//! `FREEHOLD_LONG_TESTS=1` runs thousands of seeds, `FREEHOLD_SIM_SEED=N` the one that failed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use freehold::ring::lifecycle::{Action, Applied, Event, Heritage, Lifecycle, Settings, Timer};
use freehold::ring::merge::Change;
use freehold::ring::model::{Instance, InstanceState, RingModel, Token};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use InstanceState::{Active, Joining, Leaving, Pending, ReadOnly};

const START_MS: i64 = 1_800_000_000_000;
const CHAOS_MS: i64 = 10 * 60_000;
const QUIET_MS: i64 = 5 * 60_000;
const HEARTBEAT_MS: u64 = 5_000;
/// Longest way of a message; an operation takes at most four, well within an observe period.
const DELAY_MS_MAX: i64 = 400;
const OBSERVE_MS: u64 = 4_000;
const CAS_ATTEMPTS_MAX: u32 = 10;
const NUM_TOKENS: usize = 8;

#[test]
fn all_arrive_on_a_store_with_compare_and_swap() {
    run_seeds(Kind::Swap);
}

#[test]
fn conflicts_of_a_store_without_it_are_observed_and_resolved() {
    run_seeds(Kind::Gossip);
}

fn run_seeds(kind: Kind) {
    let is_long = std::env::var_os("FREEHOLD_LONG_TESTS").is_some_and(|value| value == "1");
    if let Ok(seed) = std::env::var("FREEHOLD_SIM_SEED") {
        Sim::new(kind, seed.parse().expect("a number")).run();
        return;
    }
    let mut totals = Totals::default();
    for seed in 0..if is_long { 5_000 } else { 60 } {
        let _name_seed = NameSeed(seed);
        let mut sim = Sim::new(kind, seed);
        sim.run();
        totals.add(&sim.totals);
    }
    // A simulation in which nothing goes wrong shows nothing.
    assert!(totals.swaps > 1_000 && totals.failures > 100 && totals.crashes > 50, "{totals:?}");
    match kind {
        Kind::Swap => assert!(totals.conflicts > 100 && totals.wipes > 10, "{totals:?}"),
        Kind::Gossip => assert!(totals.shared_tokens > 10, "{totals:?}"),
    }
}

/// What the store promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A swap fails if anything changed since the read.
    Swap,
    /// Entries are merged one by one, the newer one wins; nobody checks tokens.
    Gossip,
}

#[derive(Clone, Debug, Default)]
struct Totals {
    swaps: u64,
    conflicts: u64,
    failures: u64,
    crashes: u64,
    wipes: u64,
    /// Swaps after which two members held one token.
    shared_tokens: u64,
}

struct Sim {
    kind: Kind,
    rng: SmallRng,
    now_ms: i64,
    is_chaos: bool,
    ring: RingModel,
    version: u64,
    nodes: Vec<Node>,
    /// By time, then by order of sending.
    mail: BTreeMap<(i64, u64), Mail>,
    sent: u64,
    totals: Totals,
}

struct Node {
    settings: Settings,
    keeps_tokens_file: bool,
    saved: Option<Heritage>,
    /// Counts lives; mail to an earlier one finds nobody.
    life_no: u64,
    life: Option<Lifecycle>,
    timers: BTreeMap<Timer, i64>,
    todo: VecDeque<Action>,
    requests: VecDeque<Request>,
    is_waiting: bool,
    /// It may show another registered time than the ring: it went back from READONLY.
    has_switched: bool,
    shares_seed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    SetState(InstanceState),
    Stop,
}

#[derive(Clone, Debug)]
struct Operation {
    node: usize,
    life_no: u64,
    /// `None` is a look at readiness.
    change: Option<Change>,
    attempt: u32,
}

enum Mail {
    /// A read reaches the store.
    Read(Operation),
    /// The store's answer reaches the node.
    ReadDone(Operation, Option<(u64, RingModel)>),
    /// A swap reaches the store, whatever has become of its sender.
    Swap(Operation, Applied, u64, RingModel),
    SwapDone(Operation, Applied, Outcome),
    Start(usize),
    Operator,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Stored,
    Conflict,
    Unknown,
}

impl Sim {
    fn new(kind: Kind, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let count = rng.random_range(2..=7);
        // One seed for all makes them draw the same tokens at the same moments.
        let shares_seed = kind == Kind::Gossip || seed.is_multiple_of(2);
        let nodes = (0..count).map(|i| Node::new(i, kind, shares_seed, &mut rng)).collect();
        let mut sim = Self {
            kind,
            rng,
            now_ms: START_MS,
            is_chaos: true,
            ring: RingModel { unknown_fields: vec![8, 1], ..RingModel::default() },
            version: 0,
            nodes,
            mail: BTreeMap::new(),
            sent: 0,
            totals: Totals::default(),
        };
        sim.add_stranger();
        for node in 0..count {
            let after_ms = if shares_seed { 0 } else { sim.rng.random_range(0..20_000) };
            sim.send(after_ms, Mail::Start(node));
        }
        sim.send(5_000, Mail::Operator);
        sim
    }

    /// A member of another make: none of our business, ever.
    fn add_stranger(&mut self) {
        let stranger = Instance {
            addr: "stranger:1".to_owned(),
            timestamp_s: START_MS / 1000,
            state: Active,
            tokens: vec![Token(1), Token(u32::MAX)],
            zone: "far".to_owned(),
            registered_timestamp_s: 17,
            unknown_fields: vec![42],
        };
        self.ring.instances.insert("stranger".to_owned(), stranger);
    }

    fn run(&mut self) {
        self.run_until(START_MS + CHAOS_MS);
        self.is_chaos = false;
        // Whoever is down comes back; whoever could not take itself out is forgotten.
        for node in 0..self.nodes.len() {
            if self.nodes[node].life.is_none() {
                self.send(1_000, Mail::Start(node));
            }
        }
        self.run_until(START_MS + CHAOS_MS + QUIET_MS);
        self.check_all_arrived();
    }

    fn run_until(&mut self, end_ms: i64) {
        loop {
            let mail_ms = self.mail.first_key_value().map(|((at_ms, _), _)| *at_ms);
            let due = self.nodes.iter().enumerate().filter_map(|(i, node)| {
                node.next_timer().map(|(timer, at_ms)| (at_ms.max(self.now_ms), i, timer))
            });
            let timer = due.min();
            let timer_ms = timer.map(|(at_ms, ..)| at_ms);
            let Some(next_ms) = [mail_ms, timer_ms].into_iter().flatten().min() else { break };
            if next_ms > end_ms {
                break;
            }
            self.now_ms = next_ms;
            match timer.filter(|_| timer_ms <= mail_ms || mail_ms.is_none()) {
                Some((_, node, timer)) => {
                    self.nodes[node].timers.remove(&timer);
                    self.event(node, Event::Fired(timer));
                }
                None => {
                    let (_, mail) = self.mail.pop_first().expect("it is the next");
                    self.deliver(mail);
                }
            }
        }
        self.now_ms = end_ms;
    }

    fn deliver(&mut self, mail: Mail) {
        match mail {
            Mail::Start(node) => self.start(node),
            Mail::Operator => self.operate(),
            Mail::Read(operation) => {
                let value = (!self.chance(50)).then(|| (self.version, self.ring.clone()));
                self.send_delayed(Mail::ReadDone(operation, value));
            }
            Mail::ReadDone(operation, value) => self.on_read(operation, value),
            Mail::Swap(operation, applied, version, ring) => {
                let outcome = self.swap(&operation, version, ring);
                self.send_delayed(Mail::SwapDone(operation, applied, outcome));
            }
            Mail::SwapDone(operation, applied, outcome) => {
                self.on_swapped(operation, applied, outcome);
            }
        }
    }

    fn start(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.life.is_some() {
            return;
        }
        node.life_no += 1;
        let heritage = node.saved.clone().filter(|_| node.keeps_tokens_file);
        let seed = if node.shares_seed { node.life_no } else { self.rng.random() };
        node.life = Some(Lifecycle::new(node.settings.clone(), heritage, seed));
        node.has_switched = false;
        self.event(index, Event::Start);
    }

    fn crash(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.life = None;
        node.timers.clear();
        node.todo.clear();
        node.requests.clear();
        node.is_waiting = false;
        self.totals.crashes += 1;
        // Longer than any message of the dead life is under way.
        let after_ms = self.rng.random_range(3_000..90_000);
        self.send(after_ms, Mail::Start(index));
    }

    fn operate(&mut self) {
        if !self.is_chaos {
            return;
        }
        let node = self.rng.random_range(0..self.nodes.len());
        match self.rng.random_range(0..10) {
            0..3 => self.crash(node),
            3 => self.request(node, Request::Stop),
            4 | 5 => self.request(node, Request::SetState(ReadOnly)),
            6 | 7 => self.request(node, Request::SetState(Active)),
            // Gossip has no way to lose a member, so nobody has to heal there.
            8 if self.kind == Kind::Swap => {
                let id = self.nodes[node].settings.id.clone();
                self.ring.instances.remove(&id);
                self.version += 1;
            }
            9 if self.kind == Kind::Swap => {
                self.ring.instances.clear();
                self.add_stranger();
                self.version += 1;
                self.totals.wipes += 1;
            }
            _ => {}
        }
        let after_ms = self.rng.random_range(1_000..30_000);
        self.send(after_ms, Mail::Operator);
    }

    fn request(&mut self, index: usize, request: Request) {
        if self.nodes[index].life.is_some() {
            self.nodes[index].requests.push_back(request);
            self.go_on(index);
        }
    }

    fn event(&mut self, index: usize, event: Event) {
        let now_ms = self.now_ms;
        let node = &mut self.nodes[index];
        let Some(life) = &mut node.life else { return };
        node.todo.extend(life.on(event, now_ms));
        self.go_on(index);
    }

    /// The driver's loop, as far as it gets without an answer.
    fn go_on(&mut self, index: usize) {
        let now_ms = self.now_ms;
        loop {
            let node = &mut self.nodes[index];
            let Some(life) = node.life.as_mut().filter(|_| !node.is_waiting) else { return };
            let Some(action) = node.todo.pop_front() else {
                match node.requests.pop_front() {
                    None => return,
                    Some(Request::Stop) => node.todo.extend(life.on(Event::Stop, now_ms)),
                    Some(Request::SetState(to)) => {
                        let was_read_only = life.member().state == ReadOnly;
                        if let Ok(actions) = life.request_state(to, now_ms) {
                            node.has_switched |= was_read_only && to == Active;
                            node.todo.extend(actions);
                        }
                    }
                }
                continue;
            };
            let change = match action {
                Action::Write(change) => Some(change),
                Action::Check => None,
                Action::Schedule { timer, after_ms } => {
                    node.timers.insert(timer, now_ms + after_ms as i64);
                    continue;
                }
                Action::Save(heritage) => {
                    node.saved = Some(heritage);
                    continue;
                }
                Action::BecomeReady => continue,
                Action::Finish { .. } => {
                    node.life = None;
                    node.timers.clear();
                    node.requests.clear();
                    node.todo.clear();
                    let after_ms = self.rng.random_range(3_000..60_000);
                    self.send(after_ms, Mail::Start(index));
                    return;
                }
            };
            node.is_waiting = true;
            let operation = Operation { node: index, life_no: node.life_no, change, attempt: 0 };
            self.send_delayed(Mail::Read(operation));
        }
    }

    fn on_read(&mut self, operation: Operation, value: Option<(u64, RingModel)>) {
        if !self.is_alive(&operation) {
            return;
        }
        let now_ms = self.now_ms;
        let life = self.nodes[operation.node].life.as_mut().expect("alive");
        match (operation.change.clone(), value) {
            (Some(change), Some((version, mut ring))) => {
                let applied = life.apply(&change, &mut ring, now_ms);
                self.send_delayed(Mail::Swap(operation, applied, version, ring));
            }
            (Some(change), None) => self.answer(&operation, Event::Failed { change }),
            (None, Some((_, ring))) => {
                let checked = life.check_ring(&ring, now_ms);
                self.answer(&operation, Event::Checked(checked));
            }
            (None, None) => {
                let error = freehold::ring::lifecycle::NotReady::NoRing;
                self.answer(&operation, Event::Checked(Err(error)));
            }
        }
    }

    fn swap(&mut self, operation: &Operation, version: u64, mut ring: RingModel) -> Outcome {
        if self.chance(50) {
            return Outcome::Unknown;
        }
        let id = self.nodes[operation.node].settings.id.clone();
        if self.kind == Kind::Gossip {
            ring = self.gossiped(&id, &ring);
        } else if version != self.version {
            self.totals.conflicts += 1;
            return Outcome::Conflict;
        }
        let before = std::mem::replace(&mut self.ring, ring);
        self.version += 1;
        self.totals.swaps += 1;
        self.check_swap(operation, &id, &before);
        // It is stored, and its sender may never know.
        if self.chance(30) { Outcome::Unknown } else { Outcome::Stored }
    }

    /// The present ring with the sender's entry of `sent`, unless the present one is newer.
    fn gossiped(&self, id: &str, sent: &RingModel) -> RingModel {
        let mut ring = self.ring.clone();
        match (sent.instances.get(id), ring.instances.get(id)) {
            (Some(new), Some(old)) if new.timestamp_s < old.timestamp_s => {}
            (Some(new), _) => {
                ring.instances.insert(id.to_owned(), new.clone());
            }
            (None, _) => {
                ring.instances.remove(id);
            }
        }
        ring
    }

    fn on_swapped(&mut self, mut operation: Operation, applied: Applied, outcome: Outcome) {
        if !self.is_alive(&operation) {
            return;
        }
        let change = operation.change.clone().expect("only writes swap");
        match outcome {
            Outcome::Stored => self.answer(&operation, Event::Written { change, applied }),
            Outcome::Conflict if operation.attempt + 1 < CAS_ATTEMPTS_MAX => {
                operation.attempt += 1;
                self.send_delayed(Mail::Read(operation));
            }
            Outcome::Conflict | Outcome::Unknown => {
                self.totals.failures += 1;
                self.answer(&operation, Event::Failed { change });
            }
        }
    }

    fn answer(&mut self, operation: &Operation, event: Event) {
        self.nodes[operation.node].is_waiting = false;
        // What was still to do after the write comes after what its outcome brings; the real
        // driver appends as well.
        self.event(operation.node, event);
    }

    fn is_alive(&self, operation: &Operation) -> bool {
        let node = &self.nodes[operation.node];
        node.life.is_some() && node.life_no == operation.life_no
    }

    /// What one swap of `id` may have done to the ring.
    fn check_swap(&mut self, operation: &Operation, id: &str, before: &RingModel) {
        let change = operation.change.as_ref().expect("only writes swap");
        assert_eq!(self.ring.unknown_fields, before.unknown_fields);
        let others = |ring: &RingModel| {
            let mut instances = ring.instances.clone();
            instances.remove(id);
            instances
        };
        assert_eq!(others(&self.ring), others(before), "{id} {change:?} touched another entry");
        if has_shared_token(&self.ring) {
            self.totals.shared_tokens += 1;
            assert_eq!(self.kind, Kind::Gossip, "{id} {change:?} took a token that was taken");
        }
        let (old, new) = match (before.instances.get(id), self.ring.instances.get(id)) {
            (Some(old), Some(new)) => (old, new),
            (_, None) => {
                assert_eq!(*change, Change::Unregister, "{id} lost its entry");
                return;
            }
            (None, Some(new)) => {
                assert!(new.state != Active || new.tokens.len() == NUM_TOKENS);
                return;
            }
        };
        assert!(new.timestamp_s >= old.timestamp_s, "{id}'s heartbeat went back");
        let is_same_time = new.registered_timestamp_s == old.registered_timestamp_s;
        let may_switch = self.nodes[operation.node].has_switched
            || self.nodes[operation.node].life_no != operation.life_no;
        assert!(is_same_time || may_switch, "{id} {change:?} forgot when it registered");
        assert!(
            may_follow(change, old, new.state),
            "{id} {change:?}: {:?} → {:?}",
            old.state,
            new.state
        );
        if matches!(new.state, Active | ReadOnly) {
            assert_eq!(new.tokens.len(), NUM_TOKENS, "{id} serves with all its tokens");
            if matches!(change, Change::Verify { .. }) {
                assert_eq!(new.tokens, old.tokens, "{id} serves with what it observed");
            }
        }
        let serves = |state| matches!(state, Active | ReadOnly | Leaving);
        if serves(old.state) && serves(new.state) && !old.tokens.is_empty() {
            assert_eq!(new.tokens, old.tokens, "{id}'s series would move");
        }
    }

    fn check_all_arrived(&self) {
        let mut ids: BTreeSet<&str> = BTreeSet::from(["stranger"]);
        for node in &self.nodes {
            let id = node.settings.id.as_str();
            ids.insert(id);
            let life = node.life.as_ref().unwrap_or_else(|| panic!("{id} is down"));
            let entry = self.ring.instances.get(id).unwrap_or_else(|| panic!("{id} is lost"));
            let member = life.member();
            assert!(matches!(entry.state, Active | ReadOnly), "{id} is {:?}", entry.state);
            assert_eq!(entry.state, member.state, "{id}");
            assert_eq!(entry.tokens, member.tokens, "{id}");
            assert_eq!(entry.tokens.len(), NUM_TOKENS, "{id}");
            assert_eq!(entry.registered_timestamp_s, member.registered_timestamp_s, "{id}");
            let age_ms = self.now_ms - entry.timestamp_s * 1000;
            let age_ms_max = HEARTBEAT_MS as i64 + 1_000 + 40 * DELAY_MS_MAX;
            assert!(age_ms <= age_ms_max, "{id}'s heartbeat is {age_ms} ms old");
            assert_eq!(life.readiness(), Ok(()), "{id}");
        }
        let shown: BTreeSet<&str> = self.ring.instances.keys().map(String::as_str).collect();
        assert_eq!(shown, ids);
        assert!(!has_shared_token(&self.ring), "{:?}", self.ring);
    }

    fn send_delayed(&mut self, mail: Mail) {
        let after_ms = match self.rng.random_range(0..4) {
            0 => self.rng.random_range(1..=DELAY_MS_MAX),
            _ => self.rng.random_range(1..20),
        };
        self.send(after_ms, mail);
    }

    fn send(&mut self, after_ms: i64, mail: Mail) {
        self.sent += 1;
        self.mail.insert((self.now_ms + after_ms, self.sent), mail);
    }

    /// True `per_mille` times of a thousand, while faults happen.
    fn chance(&mut self, per_mille: u32) -> bool {
        self.is_chaos && self.rng.random_range(0..1000) < per_mille
    }
}

impl Node {
    fn new(index: usize, kind: Kind, shares_seed: bool, rng: &mut SmallRng) -> Self {
        let observes = kind == Kind::Gossip || rng.random();
        let settings = Settings {
            id: format!("node-{index}"),
            addr: format!("node-{index}:1"),
            zone: format!("zone-{}", index % 3),
            num_tokens: NUM_TOKENS,
            heartbeat_period_ms: HEARTBEAT_MS,
            heartbeat_timeout_ms: 60_000,
            observe_period_ms: if observes { OBSERVE_MS } else { 0 },
            join_after_ms: if rng.random() { 0 } else { rng.random_range(0..10_000) },
            min_ready_duration_ms: 15_000,
            final_sleep_ms: rng.random_range(0..20_000),
            unregister_on_shutdown: kind == Kind::Gossip || rng.random(),
            // The stranger's heartbeat is old.
            readiness_check_ring_health: false,
            auto_forget_delay_ms: 0,
        };
        Self {
            settings,
            // What a file kept may be given away meanwhile, which gossip finds out too late.
            keeps_tokens_file: kind == Kind::Swap && rng.random(),
            saved: None,
            life_no: 0,
            life: None,
            timers: BTreeMap::new(),
            todo: VecDeque::new(),
            requests: VecDeque::new(),
            is_waiting: false,
            has_switched: false,
            shares_seed,
        }
    }

    fn next_timer(&self) -> Option<(Timer, i64)> {
        if self.is_waiting || self.life.is_none() {
            return None;
        }
        self.timers.iter().map(|(timer, at_ms)| (*timer, *at_ms)).min_by_key(|(_, at_ms)| *at_ms)
    }
}

/// Whether one change may turn `old` into `new` in the ring.
fn may_follow(change: &Change, old_entry: &Instance, new: InstanceState) -> bool {
    let old = old_entry.state;
    match change {
        Change::Register => match old {
            Joining | Pending => new == Pending,
            // Without tokens there is nothing to resume.
            Leaving if old_entry.tokens.is_empty() => new == Pending,
            Leaving => matches!(new, Active | ReadOnly),
            other => new == other,
        },
        // An answer may have been lost, so what was joined may be joined again.
        Change::Join { target } => {
            new == *target && !matches!(old, Leaving | ReadOnly if old != new)
        }
        Change::Verify { target } => new == *target || (new, old) == (Joining, Joining),
        Change::Refresh => match old {
            // Who leaves while a join is unanswered says so, in case it was heard.
            Pending | Joining => new == old || new == Leaving,
            // Who leaves while the end of observing is unanswered takes it back.
            Active | ReadOnly => matches!(new, Active | ReadOnly | Leaving | Joining),
            other => new == other,
        },
        Change::Unregister | Change::Forget { .. } => false,
    }
}

fn has_shared_token(ring: &RingModel) -> bool {
    let mut seen = BTreeSet::new();
    ring.instances.values().flat_map(|entry| &entry.tokens).any(|token| !seen.insert(*token))
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.swaps += other.swaps;
        self.conflicts += other.conflicts;
        self.failures += other.failures;
        self.crashes += other.crashes;
        self.wipes += other.wipes;
        self.shared_tokens += other.shared_tokens;
    }
}

/// Tells which seed it was if a run panics.
struct NameSeed(u64);

impl Drop for NameSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}
