//! The simulated cluster.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

use freehold::clients::config::{ColdStart, OwnerLost};
use freehold::clients::exchange::{Answers, Batch, HandOver};
use freehold::clients::{
    Charge, Decision, Gate, GateSettings, Key, KeyHasher, Kind, Outcome, OwnerMap, Terms,
};
use freehold::ratelimit::Budget;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const NS: f64 = 1e9;
/// No traffic before that: gates that have just started know that they know nothing.
const QUIET_S: f64 = 4.0;
/// How long after its last heartbeat a gate is taken out of the ring.
const OVERDUE_S: f64 = 6.0;
/// How long a request waits for an owner.
const OWNER_TIMEOUT_S: f64 = 0.25;
/// After that the batch is sent again, as a new connection does.
const AGAIN_S: f64 = 0.1;
const TOKENS: u32 = 16;

/// Which faults there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    None,
    /// Delay, loss, duplicates, another order.
    Network,
    /// And crashes, joins, leaves, partitions.
    All,
}

/// What a run is like.
#[derive(Clone, Debug)]
pub struct Plan {
    pub gates: usize,
    pub seconds: f64,
    pub faults: Faults,
    pub delay_ms_max: f64,
    pub loss: f64,
    pub clients: Vec<ClientPlan>,
}

#[derive(Clone, Debug)]
pub struct ClientPlan {
    pub rate: f64,
    pub burst: u64,
    /// Times the limit.
    pub load: f64,
    pub request: u64,
    /// How often a request comes to nothing and its charge is given back.
    pub refunds: f64,
    /// How often a request turns out to cost as much again.
    pub debits: f64,
    /// Spread over all gates, or to one at a time for a while.
    pub sticky: bool,
}

/// What became of a run.
pub struct Run {
    pub clients: Vec<Client>,
    /// By client: who owned its budget, by their own belief.
    pub reigns: Vec<Vec<Reign>>,
}

pub struct Client {
    pub at: usize,
    pub rate: f64,
    pub burst: u64,
    pub asked_for: Vec<Spent>,
    pub admitted: Vec<Spent>,
    /// Credits that were charged behind requests, whether or not their owner heard of it.
    pub debited: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Spent {
    pub at_s: f64,
    pub credits: u64,
}

/// A time for which a gate believed that it owned a budget.
#[derive(Clone, Copy, Debug)]
pub struct Reign {
    pub from_s: f64,
    pub to_s: f64,
    life: u64,
}

impl Client {
    pub fn asked(&self) -> usize {
        self.asked_for.len()
    }

    pub fn admitted_credits(&self) -> u64 {
        self.admitted.iter().map(|spent| spent.credits).sum()
    }
}

impl Plan {
    pub fn any(seed: u64, faults: Faults) -> Self {
        let mut chance = Chance::new(seed ^ 0xfa_17);
        let gates = 1 + chance.below(6) as usize;
        // Of its own chance, so that older seeds play as they did.
        let mut debits = Chance::new(seed ^ 0xde_b7);
        let clients = (0..3).map(|_| {
            let rate = [2.0, 50.0, 1000.0, 100_000.0][chance.below(4) as usize];
            let burst = ((rate * (0.3 + 4.0 * chance.unit())) as u64).max(1);
            ClientPlan {
                rate,
                burst,
                load: [0.3, 0.9, 1.5, 4.0, 20.0][chance.below(5) as usize],
                request: 1 + chance.below((burst / 4).max(1)),
                refunds: [0.0, 0.0, 0.3][chance.below(3) as usize],
                debits: [0.0, 0.0, 0.3][debits.below(3) as usize],
                sticky: chance.below(2) == 0,
            }
        });
        let clients = clients.collect();
        let (delay_ms_max, loss) = match faults {
            Faults::None => (2.0, 0.0),
            _ => (
                [2.0, 30.0, 300.0][chance.below(3) as usize],
                [0.0, 0.02, 0.2][chance.below(3) as usize],
            ),
        };
        Self { gates, seconds: 25.0, faults, delay_ms_max, loss, clients }
    }

    /// Gates on one network, a client that sends some dozens of requests a second.
    pub fn ordinary(seed: u64, load: f64) -> Self {
        let mut chance = Chance::new(seed ^ 0x0d_1a);
        let client = |chance: &mut Chance| {
            let rate = [100.0, 10_000.0, 1e6][chance.below(3) as usize];
            let burst = (rate * (2.0 + 8.0 * chance.unit())) as u64;
            let request = ((rate / (20.0 + 80.0 * chance.unit())) as u64).max(1);
            ClientPlan { rate, burst, load, request, refunds: 0.0, debits: 0.0, sticky: false }
        };
        let clients = (0..3).map(|_| client(&mut chance)).collect();
        let gates = 2 + chance.below(7) as usize;
        Self { gates, seconds: 45.0, faults: Faults::None, delay_ms_max: 2.0, loss: 0.0, clients }
    }
}

struct Node {
    id: Arc<str>,
    /// Counts the starts of all processes; 0 while it is down.
    life: u64,
    gate: Gate<u64>,
    offset_ns: f64,
    speed: f64,
    is_leaving: bool,
    /// Connections to it, by who asks: messages of an older one are lost.
    sessions: HashMap<usize, u64>,
    links: HashMap<usize, Wire>,
}

#[derive(Default)]
struct Wire {
    session: u64,
    sent: Option<(u64, f64)>,
    failures: u32,
    retry_at_s: Option<f64>,
}

enum Event {
    Request { client: usize },
    Deliver { from: usize, to: usize, session: u64, life: u64, message: Message },
    Map { node: usize, life: u64, version: usize },
    Timeout { ticket: u64 },
    Look { node: usize, life: u64 },
    Refund { node: usize, life: u64, client: usize, charge: Charge, admitted_at: usize },
    Debit { node: usize, life: u64, client: usize },
    Fault,
    Gone { node: usize, life: u64 },
    Heal { pair: (usize, usize) },
    Sweep,
}

enum Message {
    Ask(Arc<Batch>),
    /// With when the owner decided.
    Told(Answers, f64),
    HandOver(HandOver),
}

struct Waiting {
    node: usize,
    life: u64,
    client: usize,
}

pub struct World<'a> {
    plan: &'a Plan,
    chance: Chance,
    now_s: f64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: HashMap<u64, Event>,
    next_event: u64,
    nodes: Vec<Node>,
    lives: u64,
    sessions: u64,
    /// Members of each version of the ring.
    versions: Vec<Vec<usize>>,
    cut: Vec<(usize, usize)>,
    waiting: BTreeMap<u64, Waiting>,
    tickets: u64,
    clients: Vec<Client>,
    names: Vec<String>,
    refunded: Vec<Vec<usize>>,
    reigns: Vec<Vec<Reign>>,
    turn: Vec<usize>,
    /// When which batch of whom was decided by whom.
    decided: HashMap<(usize, u64, usize, u64, u64), f64>,
}

impl<'a> World<'a> {
    pub fn run(seed: u64, plan: &'a Plan) -> Run {
        let mut world = Self::new(seed, plan);
        world.play();
        world.end()
    }

    fn new(seed: u64, plan: &'a Plan) -> Self {
        let clients = plan.clients.iter().enumerate().map(|(at, client)| Client {
            at,
            rate: client.rate,
            burst: client.burst,
            asked_for: Vec::new(),
            admitted: Vec::new(),
            debited: 0,
        });
        let len = plan.clients.len();
        let mut world = Self {
            plan,
            chance: Chance::new(seed),
            now_s: 0.0,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            next_event: 0,
            nodes: Vec::new(),
            lives: 0,
            sessions: 0,
            versions: Vec::new(),
            cut: Vec::new(),
            waiting: BTreeMap::new(),
            tickets: 0,
            clients: clients.collect(),
            names: (0..len).map(|at| format!("client-{seed}-{at}")).collect(),
            refunded: vec![Vec::new(); len],
            reigns: vec![Vec::new(); len],
            turn: vec![0; len],
            decided: HashMap::new(),
        };
        for at in 0..plan.gates {
            let node = world.started(at);
            world.nodes.push(node);
        }
        world.ring_changed((0..plan.gates).collect());
        for client in 0..len {
            world.next_request(client, QUIET_S);
        }
        for node in 0..plan.gates {
            let life = world.nodes[node].life;
            world.at(0.01, Event::Look { node, life });
        }
        world.at(1.0, Event::Sweep);
        if plan.faults == Faults::All {
            world.at(QUIET_S + 1.0, Event::Fault);
        }
        world
    }

    fn started(&mut self, at: usize) -> Node {
        self.lives += 1;
        let settings = GateSettings {
            owner_lost: OwnerLost::StandingReserve,
            cold_start: ColdStart::OneSecond,
        };
        let id: Arc<str> = format!("gate-{at}").into();
        let hasher = KeyHasher::new([3; freehold::clients::key::KEY_SECRET_BYTES]);
        Node {
            gate: Gate::new(Arc::clone(&id), settings, hasher),
            id,
            life: self.lives,
            offset_ns: self.chance.unit() * 1e12,
            speed: 1.0 + (self.chance.unit() - 0.5) * 0.004,
            is_leaving: false,
            sessions: HashMap::new(),
            links: HashMap::new(),
        }
    }

    fn play(&mut self) {
        while let Some(Reverse((at_ns, id))) = self.queue.pop() {
            self.now_s = at_ns as f64 / NS;
            if self.now_s > self.plan.seconds {
                return;
            }
            let event = self.events.remove(&id).expect("queued once");
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request { client } => self.request(client),
            Event::Deliver { from, to, session, life, message } => {
                if life > 0 && self.nodes[to].life == life && !self.is_cut(from, to) {
                    self.deliver(from, to, session, message);
                    self.pump(to);
                }
            }
            Event::Map { node, life, version } => {
                if self.nodes[node].life == life {
                    self.learn(node, version);
                    self.pump(node);
                }
            }
            Event::Timeout { ticket } => {
                if let Some(Waiting { node, life, client }) = self.waiting.remove(&ticket)
                    && self.nodes[node].life == life
                {
                    self.lost(node, client);
                }
            }
            Event::Look { node, life } => {
                if self.nodes[node].life == life {
                    self.look(node);
                    self.at(self.now_s + 0.02, Event::Look { node, life });
                }
            }
            Event::Refund { node, life, client, charge, admitted_at } => {
                if self.nodes[node].life == life {
                    let now_ns = self.local_ns(node);
                    let names = self.names[client].clone();
                    self.nodes[node].gate.give_back(key(&names), charge, now_ns);
                }
                // It bought nothing, whether or not its credit came back.
                self.refunded[client].push(admitted_at);
            }
            Event::Debit { node, life, client } => {
                if self.nodes[node].life == life {
                    let now_ns = self.local_ns(node);
                    let (name, n, terms) = self.asks(client);
                    self.nodes[node].gate.debit(key(&name), n, terms, now_ns);
                    self.clients[client].debited += n;
                    self.pump(node);
                }
            }
            Event::Fault => self.fault(),
            Event::Gone { node, life } => {
                if self.nodes[node].life == life && self.nodes[node].is_leaving {
                    self.crash(node);
                }
            }
            Event::Heal { pair } => self.cut.retain(|cut| *cut != pair),
            Event::Sweep => {
                for node in 0..self.nodes.len() {
                    if self.nodes[node].life > 0 {
                        let now_ns = self.local_ns(node);
                        self.nodes[node].gate.sweep(now_ns);
                    }
                }
                self.at(self.now_s + 1.0, Event::Sweep);
            }
        }
    }

    fn request(&mut self, client: usize) {
        let plan = &self.plan.clients[client];
        let mean_s = plan.request as f64 / (plan.rate * plan.load);
        let sticky = plan.sticky;
        // Not oftener than a simulation can bear; never a whole burst in one instant.
        let wait_s = (mean_s * 2.0 * self.chance.unit()).max(0.002);
        self.next_request(client, self.now_s + wait_s);
        let alive: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.nodes[*node].life > 0 && !self.nodes[*node].is_leaving)
            .collect();
        if alive.is_empty() {
            return;
        }
        if !sticky || self.chance.below(50) == 0 {
            self.turn[client] += 1;
        }
        let node = alive[self.turn[client] % alive.len()];
        let credits = self.plan.clients[client].request;
        self.clients[client].asked_for.push(Spent { at_s: self.now_s, credits });
        self.decide(node, client);
        self.pump(node);
    }

    fn decide(&mut self, node: usize, client: usize) {
        let now_ns = self.local_ns(node);
        let (name, n, terms) = self.asks(client);
        let gate = &self.nodes[node].gate;
        match gate.decide(key(&name), n, terms, now_ns) {
            Decision::Admitted(charge) => self.admitted(node, client, charge, self.now_s),
            Decision::Refused(_) => {}
            Decision::Lost => self.lost(node, client),
            Decision::Ask(asking) => {
                self.tickets += 1;
                let ticket = self.tickets;
                match gate.ask(asking, ticket) {
                    Ok(()) => {
                        let life = self.nodes[node].life;
                        self.waiting.insert(ticket, Waiting { node, life, client });
                        self.at(self.now_s + OWNER_TIMEOUT_S, Event::Timeout { ticket });
                    }
                    Err(_) => self.lost(node, client),
                }
            }
        }
    }

    fn lost(&mut self, node: usize, client: usize) {
        let now_ns = self.local_ns(node);
        let (name, n, terms) = self.asks(client);
        if let Decision::Admitted(charge) = self.nodes[node].gate.lost(key(&name), n, terms, now_ns)
        {
            self.admitted(node, client, charge, self.now_s);
        }
    }

    fn asks(&self, client: usize) -> (String, u64, Terms) {
        let plan = &self.plan.clients[client];
        let budget = Budget { rate: plan.rate, burst: plan.burst };
        (self.names[client].clone(), plan.request, Terms { budget, tracked_max: 100 })
    }

    fn admitted(&mut self, node: usize, client: usize, charge: Charge, at_s: f64) {
        let plan = &self.plan.clients[client];
        let (credits, refunds, debits) = (plan.request, plan.refunds, plan.debits);
        self.clients[client].admitted.push(Spent { at_s, credits });
        if debits > 0.0 && self.chance.unit() < debits {
            let life = self.nodes[node].life;
            let at_s = self.now_s + self.chance.unit() * 0.4;
            self.at(at_s, Event::Debit { node, life, client });
        }
        if self.chance.unit() < refunds {
            let admitted_at = self.clients[client].admitted.len() - 1;
            let life = self.nodes[node].life;
            let at_s = self.now_s + self.chance.unit() * 0.4;
            self.at(at_s, Event::Refund { node, life, client, charge, admitted_at });
        }
    }

    fn deliver(&mut self, from: usize, to: usize, session: u64, message: Message) {
        let now_ns = self.local_ns(to);
        match message {
            Message::Ask(batch) => {
                let known = self.nodes[to].sessions.entry(from).or_default();
                // A connection replaces the one before it.
                if session < *known {
                    return;
                }
                *known = session;
                let plan = self.plan;
                let budgets = &plan.clients;
                let terms_of = |_: Kind, tenant: &str| terms_of(budgets, tenant);
                // Batches are of the process that runs now; older ones died with their session.
                let (id, life) = (Arc::clone(&self.nodes[from].id), self.nodes[from].life);
                let answers = self.nodes[to].gate.serve(&id, life, &batch, &terms_of, now_ns);
                if let Some(answers) = answers {
                    // An answer that is given again was decided the first time.
                    let decision = (from, life, to, self.nodes[to].life, answers.sequence);
                    let decided_s = *self.decided.entry(decision).or_insert(self.now_s);
                    self.send(to, from, session, Message::Told(answers, decided_s));
                }
            }
            Message::Told(answers, decided_s) => {
                let wire = self.nodes[to].links.entry(from).or_default();
                if wire.session != session {
                    return;
                }
                wire.failures = 0;
                let id = Arc::clone(&self.nodes[from].id);
                let outcomes = self.nodes[to].gate.answered(&id, answers, now_ns);
                self.outcomes(outcomes, decided_s);
            }
            Message::HandOver(message) => {
                let budgets = &self.plan.clients;
                let terms_of = |_: Kind, tenant: &str| terms_of(budgets, tenant);
                self.nodes[to].gate.take_over(message, &terms_of, now_ns);
            }
        }
    }

    fn outcomes(&mut self, outcomes: Vec<(u64, Outcome)>, decided_s: f64) {
        for (ticket, outcome) in outcomes {
            // Who gave up is charged and gets nothing.
            let Some(Waiting { node, client, .. }) = self.waiting.remove(&ticket) else { continue };
            match outcome {
                Outcome::Admitted(charge) => self.admitted(node, client, charge, decided_s),
                Outcome::Denied { .. } => {}
                Outcome::Unanswered => self.lost(node, client),
            }
        }
    }

    /// Sends what a node has to send.
    fn pump(&mut self, node: usize) {
        for peer in 0..self.nodes.len() {
            let now_ns = self.local_ns(node);
            let id = Arc::clone(&self.nodes[peer].id);
            if let Some(batch) = self.nodes[node].gate.next_batch(&id, now_ns) {
                let wire = self.nodes[node].links.entry(peer).or_default();
                if wire.session == 0 {
                    self.sessions += 1;
                    wire.session = self.sessions;
                }
                wire.sent = Some((batch.sequence, self.now_s));
                let session = wire.session;
                self.send(node, peer, session, Message::Ask(batch));
            }
        }
    }

    /// Watches over the batches under way, as a driver does.
    fn look(&mut self, node: usize) {
        for peer in 0..self.nodes.len() {
            if peer == node {
                continue;
            }
            let id = Arc::clone(&self.nodes[peer].id);
            let now_ns = self.local_ns(node);
            let is_under_way = self.nodes[node].gate.sent_ns(&id).is_some();
            let now_s = self.now_s;
            let Some(wire) = self.nodes[node].links.get_mut(&peer) else { continue };
            if let Some(retry_at_s) = wire.retry_at_s {
                if now_s >= retry_at_s {
                    wire.retry_at_s = None;
                    self.sessions += 1;
                    let wire = self.nodes[node].links.get_mut(&peer).expect("above");
                    wire.session = self.sessions;
                    self.nodes[node].gate.link_up(&id);
                }
                continue;
            }
            let Some((_, sent_s)) = wire.sent.filter(|_| is_under_way) else { continue };
            if now_s - sent_s < AGAIN_S {
                continue;
            }
            wire.failures += 1;
            wire.sent = Some((0, now_s));
            if wire.failures <= 8 {
                if let Some(batch) = self.nodes[node].gate.batch_again(&id) {
                    let session = self.nodes[node].links[&peer].session;
                    self.send(node, peer, session, Message::Ask(batch));
                }
                continue;
            }
            wire.failures = 0;
            wire.retry_at_s = Some(now_s + 0.3);
            let outcomes = self.nodes[node].gate.link_down(&id, now_ns);
            self.outcomes(outcomes, now_s);
        }
    }

    fn send(&mut self, from: usize, to: usize, session: u64, message: Message) {
        let life = self.nodes[to].life;
        let copies = match self.plan.faults {
            Faults::None => 1,
            _ if self.chance.unit() < self.plan.loss => 0,
            _ if self.chance.unit() < self.plan.loss => 2,
            _ => 1,
        };
        for copy in 0..copies {
            let message = match &message {
                Message::Ask(batch) => Message::Ask(Arc::clone(batch)),
                Message::Told(answers, at_s) => Message::Told(answers.clone(), *at_s),
                // It is called, not thrown: it comes once.
                Message::HandOver(_) if copy > 0 => continue,
                Message::HandOver(message) => Message::HandOver(message.clone()),
            };
            let delay_s = 0.0002 + self.chance.unit() * self.plan.delay_ms_max / 1000.0;
            let at_s = self.now_s + delay_s;
            self.at(at_s, Event::Deliver { from, to, session, life, message });
        }
    }

    fn fault(&mut self) {
        let wait_s = 0.5 + self.chance.unit() * 4.0;
        self.at(self.now_s + wait_s, Event::Fault);
        let node = self.chance.below(self.nodes.len() as u64) as usize;
        let is_up = self.nodes[node].life > 0 && !self.nodes[node].is_leaving;
        match self.chance.below(5) {
            0 if is_up => self.crash_noticed_later(node),
            1 if is_up => self.leave(node),
            2 if !is_up && self.nodes[node].life == 0 => self.start(node),
            3 => {
                let at = self.nodes.len();
                if at < 8 {
                    let new = self.started(at);
                    self.nodes.push(new);
                    let life = self.nodes[at].life;
                    self.at(self.now_s + 0.01, Event::Look { node: at, life });
                    let mut members = self.members();
                    members.push(at);
                    self.ring_changed(members);
                }
            }
            4 => {
                let other = self.chance.below(self.nodes.len() as u64) as usize;
                if other != node {
                    self.cut.push((node, other));
                    let at_s = self.now_s + self.chance.unit() * 3.0;
                    self.at(at_s, Event::Heal { pair: (node, other) });
                }
            }
            _ => {}
        }
    }

    fn crash_noticed_later(&mut self, node: usize) {
        self.crash(node);
        let (version, at_s) = (self.without(node), self.now_s + OVERDUE_S);
        self.spread(version, at_s);
    }

    fn crash(&mut self, node: usize) {
        let (now_s, life) = (self.now_s, self.nodes[node].life);
        for reign in self.reigns.iter_mut().flatten() {
            if reign.life == life && reign.to_s == f64::MAX {
                reign.to_s = now_s;
            }
        }
        self.nodes[node].life = 0;
        self.nodes[node].is_leaving = false;
        self.waiting.retain(|_, waiting| waiting.node != node);
    }

    fn leave(&mut self, node: usize) {
        self.nodes[node].is_leaving = true;
        let version = self.without(node);
        self.spread(version, self.now_s);
        let life = self.nodes[node].life;
        self.at(self.now_s + 1.0, Event::Gone { node, life });
    }

    fn start(&mut self, node: usize) {
        let new = self.started(node);
        self.nodes[node] = new;
        let life = self.nodes[node].life;
        self.at(self.now_s + 0.01, Event::Look { node, life });
        let mut members = self.members();
        if !members.contains(&node) {
            members.push(node);
        }
        self.ring_changed(members);
    }

    fn members(&self) -> Vec<usize> {
        self.versions.last().cloned().unwrap_or_default()
    }

    fn without(&mut self, node: usize) -> usize {
        let members = self.members().into_iter().filter(|member| *member != node).collect();
        self.versions.push(members);
        self.versions.len() - 1
    }

    fn ring_changed(&mut self, members: Vec<usize>) {
        self.versions.push(members);
        self.spread(self.versions.len() - 1, self.now_s);
    }

    /// Each gate learns of a ring in its own time.
    fn spread(&mut self, version: usize, at_s: f64) {
        for node in 0..self.nodes.len() {
            let life = self.nodes[node].life;
            if life > 0 {
                let slow_s = if self.plan.faults == Faults::All { 0.5 } else { 0.05 };
                let at_s = at_s + self.chance.unit() * slow_s;
                self.at(at_s, Event::Map { node, life, version });
            }
        }
    }

    fn learn(&mut self, node: usize, version: usize) {
        let members = &self.versions[version];
        let ids: Vec<Arc<str>> = members.iter().map(|at| Arc::clone(&self.nodes[*at].id)).collect();
        let mut tokens: Vec<(u32, u16)> = Vec::new();
        for (index, member) in members.iter().enumerate() {
            let mut chance = Chance::new(*member as u64 + 77);
            tokens.extend((0..TOKENS).map(|_| (chance.below(1 << 32) as u32, index as u16)));
        }
        tokens.sort_unstable();
        tokens.dedup_by_key(|(token, _)| *token);
        let now_ns = self.local_ns(node);
        let links: Vec<Arc<str>> =
            ids.iter().filter(|id| **id != self.nodes[node].id).cloned().collect();
        for (id, at) in links.iter().zip(members.iter().filter(|at| **at != node)) {
            if !self.nodes[node].links.contains_key(at) {
                self.nodes[node].links.insert(*at, Wire::default());
                self.nodes[node].gate.link(Arc::clone(id), Box::new(|| ()));
            }
        }
        let map = OwnerMap::new(&tokens, &ids, &self.nodes[node].id);
        let messages = self.nodes[node].gate.publish(map, now_ns);
        for (owner, message) in messages {
            let to = self.nodes.iter().position(|one| one.id == owner).expect("a member");
            self.send(node, to, 0, Message::HandOver(message));
        }
        self.note_reigns(node);
    }

    fn note_reigns(&mut self, node: usize) {
        for client in 0..self.clients.len() {
            let owner = self.nodes[node].gate.owner_of(key(&self.names[client]));
            let is_owner = owner.is_some_and(|owner| owner == self.nodes[node].id);
            let (life, now_s) = (self.nodes[node].life, self.now_s);
            let reigns = &mut self.reigns[client];
            let open = reigns.iter_mut().find(|one| one.life == life && one.to_s == f64::MAX);
            match (open, is_owner) {
                (None, true) => reigns.push(Reign { from_s: now_s, to_s: f64::MAX, life }),
                (Some(reign), false) => reign.to_s = now_s,
                _ => {}
            }
        }
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.iter().any(|cut| *cut == (from, to) || *cut == (to, from))
    }

    fn next_request(&mut self, client: usize, at_s: f64) {
        self.at(at_s, Event::Request { client });
    }

    fn at(&mut self, at_s: f64, event: Event) {
        let at_ns = (at_s * NS) as u64;
        self.next_event += 1;
        self.queue.push(Reverse((at_ns, self.next_event)));
        self.events.insert(self.next_event, event);
    }

    /// The node's own clock.
    fn local_ns(&self, node: usize) -> i64 {
        let node = &self.nodes[node];
        (node.offset_ns + self.now_s * NS * node.speed) as i64
    }

    fn end(mut self) -> Run {
        for (client, refunded) in self.clients.iter_mut().zip(&mut self.refunded) {
            refunded.sort_unstable();
            for at in refunded.iter().rev() {
                client.admitted.remove(*at);
            }
            client.admitted.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        }
        Run { clients: self.clients, reigns: self.reigns }
    }
}

fn key(client: &str) -> Key<'_> {
    // The tenant tells the simulation whose terms apply.
    Key { kind: Kind::ClientWrites, tenant: client, client }
}

fn terms_of(plans: &[ClientPlan], tenant: &str) -> Option<Terms> {
    let at: usize = tenant.rsplit('-').next()?.parse().ok()?;
    let plan = plans.get(at)?;
    Some(Terms { budget: Budget { rate: plan.rate, burst: plan.burst }, tracked_max: 100 })
}

/// Chance that a seed repeats.
struct Chance(SmallRng);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0.random_range(0..n.max(1))
    }

    fn unit(&mut self) -> f64 {
        self.0.random()
    }
}
