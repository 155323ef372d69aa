//! How many decisions of eight gates cause a question, and how many wait for one.
//!
//! Time is virtual and each gate is the real one. Requests come by chance, each to a gate by
//! chance, and a batch takes half a millisecond each way; one of eight gates owns the client.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use freehold::clients::config::{ColdStart, OwnerLost};
use freehold::clients::exchange::{Answers, Batch};
use freehold::clients::key::KEY_SECRET_BYTES;
use freehold::clients::{Decision, Gate, GateSettings, Key, KeyHasher, Kind, OwnerMap, Terms};
use freehold::ratelimit::Budget;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

const GATES: usize = 8;
const CLIENTS: usize = 40;
const RATE: f64 = 100_000.0;
const LOAD: f64 = 0.8;
const ONE_WAY_NS: i64 = 500_000;
const BEGIN_NS: i64 = 10_000_000_000;
/// Not counted: leases grow to their size.
const WARM_NS: i64 = 10_000_000_000;

pub fn report(is_test: bool) {
    let seconds = if is_test { 2 } else { 60 };
    println!("eight gates at {LOAD} times the limit, burst 2 s, {CLIENTS} clients:");
    for per_second in [10, 40, 100, 400, 1000] {
        let Shares { asked, waited, refused, decisions } = run(per_second, seconds);
        println!(
            "  {per_second:>5} requests/s of a client: {:5.2} % cause a question (bar 8), {:5.2} % \
             wait (bar 1), {:.3} % refused, of {decisions}",
            asked * 100.0,
            waited * 100.0,
            refused * 100.0,
        );
    }
}

struct Shares {
    asked: f64,
    waited: f64,
    refused: f64,
    decisions: u64,
}

enum Event {
    Request { client: usize },
    Ask { from: usize, to: usize, batch: Arc<Batch> },
    Told { from: usize, to: usize, answers: Answers },
    Sweep,
}

struct World {
    gates: Vec<Gate<()>>,
    ids: Vec<Arc<str>>,
    queue: BinaryHeap<Reverse<(i64, usize)>>,
    events: Vec<Option<Event>>,
    terms: Terms,
    request: u64,
    gap_ns: f64,
    rng: SmallRng,
    refused: u64,
    decisions: u64,
}

fn run(per_second: u32, seconds: i64) -> Shares {
    let mut world = World::new(f64::from(per_second));
    world.until(BEGIN_NS + WARM_NS);
    let (asked, waited) = world.asked();
    (world.refused, world.decisions) = (0, 0);
    world.until(BEGIN_NS + WARM_NS + seconds * 1_000_000_000);
    let (asked_since, waited_since) = world.asked();
    let part = |count: u64| count as f64 / world.decisions as f64;
    Shares {
        asked: part(asked_since - asked),
        waited: part(waited_since - waited),
        refused: part(world.refused),
        decisions: world.decisions,
    }
}

impl World {
    fn new(per_second: f64) -> Self {
        let ids: Vec<Arc<str>> = (0..GATES).map(|at| format!("gate-{at}").into()).collect();
        let tokens: Vec<_> =
            (0..1024_u32).map(|token| (token << 22, (token % GATES as u32) as u16)).collect();
        let settings = GateSettings {
            owner_lost: OwnerLost::StandingReserve,
            cold_start: ColdStart::OneSecond,
        };
        let gate = |id: &Arc<str>| {
            let hasher = KeyHasher::new([3; KEY_SECRET_BYTES]);
            let gate = Gate::new(Arc::clone(id), settings, hasher);
            for peer in ids.iter().filter(|peer| *peer != id) {
                gate.link(Arc::clone(peer), Box::new(|| {}));
            }
            gate.publish(OwnerMap::new(&tokens, &ids, id), 0);
            gate
        };
        let budget = Budget { rate: RATE, burst: (2.0 * RATE) as u64 };
        let mut world = Self {
            gates: ids.iter().map(gate).collect(),
            ids: ids.clone(),
            queue: BinaryHeap::new(),
            events: Vec::new(),
            terms: Terms { budget, tracked_max: 1000 },
            request: (RATE / per_second) as u64,
            gap_ns: 1e9 / (per_second * LOAD),
            rng: SmallRng::seed_from_u64(5),
            refused: 0,
            decisions: 0,
        };
        for client in 0..CLIENTS {
            let gap_ns = world.gap_ns();
            world.at(BEGIN_NS + gap_ns, Event::Request { client });
        }
        world.at(BEGIN_NS, Event::Sweep);
        world
    }

    /// Questions, and those of them that somebody waited for.
    fn asked(&self) -> (u64, u64) {
        let counts = self.gates.iter().map(|gate| gate.counts(0));
        counts.fold((0, 0), |(asked, waited), counts| {
            assert_eq!(counts.lost, [0; 4], "nobody is lost here");
            (asked + counts.asked + counts.renewals, waited + counts.asked)
        })
    }

    fn gap_ns(&mut self) -> i64 {
        let chance: f64 = self.rng.random();
        (-(1.0 - chance).ln() * self.gap_ns) as i64
    }

    fn at(&mut self, at_ns: i64, event: Event) {
        self.queue.push(Reverse((at_ns, self.events.len())));
        self.events.push(Some(event));
    }

    fn until(&mut self, end_ns: i64) {
        while let Some(Reverse((now_ns, id))) = self.queue.peek().copied() {
            if now_ns >= end_ns {
                return;
            }
            self.queue.pop();
            match self.events[id].take().expect("queued once") {
                Event::Request { client } => self.request(client, now_ns),
                Event::Ask { from, to, batch } => {
                    let terms = self.terms;
                    let answers = self.gates[to].serve(
                        &self.ids[from],
                        1,
                        &batch,
                        &|_, _| Some(terms),
                        now_ns,
                    );
                    let answers = answers.expect("a new batch");
                    self.at(now_ns + ONE_WAY_NS, Event::Told { from: to, to: from, answers });
                }
                Event::Told { from, to, answers } => {
                    self.gates[to].answered(&self.ids[from], answers, now_ns);
                    self.send(to, from, now_ns);
                }
                Event::Sweep => {
                    self.gates.iter().for_each(|gate| gate.sweep(now_ns));
                    self.at(now_ns + 5_000_000_000, Event::Sweep);
                }
            }
        }
    }

    fn request(&mut self, client: usize, now_ns: i64) {
        let gap_ns = self.gap_ns();
        self.at(now_ns + gap_ns, Event::Request { client });
        let at = self.rng.random_range(0..GATES);
        let name = format!("client-{client}");
        let key = Key { kind: Kind::ClientWrites, tenant: "tenant-0", client: &name };
        self.decisions += 1;
        match self.gates[at].decide(key, self.request, self.terms, now_ns) {
            Decision::Admitted(_) => {}
            Decision::Refused(_) => self.refused += 1,
            Decision::Ask(asking) => self.gates[at].ask(asking, ()).expect("a short line"),
            Decision::Lost => panic!("all are there"),
        }
        for to in (0..GATES).filter(|to| *to != at) {
            self.send(at, to, now_ns);
        }
    }

    fn send(&mut self, from: usize, to: usize, now_ns: i64) {
        if let Some(batch) = self.gates[from].next_batch(&self.ids[to], now_ns) {
            self.at(now_ns + ONE_WAY_NS, Event::Ask { from, to, batch });
        }
    }
}
