//! What budgets of clients cost: decisions, the owner's side, questions, waits, bytes.
//!
//! Bars: 150 ns for a decision on a held lease with 100,000 clients on two threads; 500,000
//! decisions a second of an owner whose every decision is remote; at 0.8 times the limit on eight
//! gates 8 % of decisions cause a question and 1 % wait for one; 2 ms at p99 for those that wait,
//! on loopback; 96 bytes per tracked client, its name aside. Rival: the bucket of a tenant, which
//! one process keeps for itself, in the same rounds.
//!
//! `cargo bench --bench budgets`; without cargo bench's own flag it only proves that it runs.
#![expect(clippy::disallowed_methods, reason = "a bench measures time, and drives its tasks")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use freehold::clients::config::{ColdStart, OwnerLost};
use freehold::clients::exchange::{Batch, Item};
use freehold::clients::key::KEY_SECRET_BYTES;
use freehold::clients::{
    Decision, Gate, GateSettings, Key, KeyHasher, Kind, OwnedKey, OwnerMap, Terms,
};
use freehold::ratelimit::{Budget, RECHECK_PERIOD, TenantLimiter};
use freehold::tenant::TenantId;
use freehold::wire::budgets::{Question, Reply, decode_question, encode_batch, encode_reply};
use shared::Numbers;

#[path = "budgets/bytes.rs"]
mod bytes;
#[path = "budgets/eight.rs"]
mod eight;
mod shared;
#[path = "budgets/waits.rs"]
mod waits;

/// Counts the bytes that are allocated now, as asked for.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TENANTS: usize = 100;
/// As many as a tenant tracks by default.
const CLIENTS: usize = 1000;
const MS: i64 = 1_000_000;
/// Time between two decisions of a thread.
const STEP_NS: i64 = 100;
/// What a client holds: more than the rounds spend, so that what is timed is not the renewal.
const HELD: u64 = 1_000_000;
/// Decisions of one round and thread: as many as there are clients.
const DECISIONS: usize = TENANTS * CLIENTS;

fn main() {
    let is_test = shared::is_test();
    let rounds = if is_test { 1 } else { 15 };
    let names = Names::new();
    decisions(&names, rounds);
    owner_side(&names, rounds);
    eight::report(is_test);
    waits::report(is_test);
    bytes::report();
}

/// Names of clients in the order in which one thread meets them: as a header that has just been
/// read, each is near at hand when its turn comes.
struct Names {
    text: String,
    tenants: Vec<u16>,
}

const NAME_BYTES: usize = 16;

impl Names {
    fn new() -> Self {
        let mut order: Vec<u32> = (0..DECISIONS as u32).collect();
        let mut numbers = Numbers::new(11);
        for at in (1..order.len()).rev() {
            order.swap(at, (numbers.next() % (at as u64 + 1)) as usize);
        }
        let text = order.iter().map(|number| format!("client-{number:09}")).collect();
        Self { text, tenants: order.iter().map(|at| (*at as usize % TENANTS) as u16).collect() }
    }

    fn keys<'a>(&'a self, tenants: &'a [TenantId]) -> impl Iterator<Item = Key<'a>> {
        (0..DECISIONS).map(move |at| self.key(at, tenants))
    }

    fn key<'a>(&'a self, at: usize, tenants: &'a [TenantId]) -> Key<'a> {
        Key {
            kind: Kind::ClientWrites,
            tenant: tenants[usize::from(self.tenants[at])].as_str(),
            client: &self.text[at * NAME_BYTES..][..NAME_BYTES],
        }
    }
}

fn tenants() -> Vec<TenantId> {
    (0..TENANTS).map(|at| TenantId::parse(&format!("tenant-{at}")).expect("valid")).collect()
}

/// A gate of the two whose keys are all `owner`'s.
fn gate(us: &str, owner: &str) -> Gate<()> {
    let settings =
        GateSettings { owner_lost: OwnerLost::StandingReserve, cold_start: ColdStart::OneSecond };
    let gate = Gate::new(us.into(), settings, KeyHasher::new([3; KEY_SECRET_BYTES]));
    let members: Vec<Arc<str>> = ["holder", "owner"].map(Arc::from).into();
    let at = u16::from(owner == "owner");
    let tokens: Vec<_> = (0..1024_u32).map(|token| (token << 22, at)).collect();
    gate.publish(OwnerMap::new(&tokens, &members, us), -10_000 * MS);
    gate
}

fn rich() -> Terms {
    Terms { budget: Budget { rate: 1e9, burst: 100 * HELD }, tracked_max: CLIENTS }
}

/// A gate that holds a lease of every client, until three seconds from the begin.
fn holder(names: &Names, tenants: &[TenantId]) -> Gate<()> {
    let (holder, owner) = (gate("holder", "owner"), gate("owner", "owner"));
    holder.link("owner".into(), Box::new(|| {}));
    // The first question is for the request alone; the second comes with what is used.
    for now_ns in [900 * MS, 1000 * MS] {
        let keys: Vec<_> = names.keys(tenants).collect();
        for keys in keys.chunks(1000) {
            for key in keys {
                let Decision::Ask(asking) = holder.decide(*key, HELD, rich(), now_ns) else {
                    panic!("there is no lease yet");
                };
                holder.ask(asking, ()).expect("there is room for a thousand");
            }
            let batch = holder.next_batch("owner", now_ns).expect("a thousand questions");
            let answers = owner.serve("holder", 1, &batch, &|_, _| Some(rich()), now_ns);
            holder.answered("owner", answers.expect("the next batch"), now_ns);
        }
    }
    let held = holder.counts(1000 * MS);
    assert_eq!(held.known, DECISIONS);
    assert!(held.held >= DECISIONS as u64 * HELD, "{held:?}");
    holder
}

/// Who is met: all in turn, which are more than caches hold, or a thousand of them again and again.
#[derive(Clone, Copy)]
enum Met {
    All,
    Thousand,
}

impl Met {
    /// The number of the client that a thread meets in its turn; threads are apart.
    fn at(self, turn: usize, thread: usize) -> usize {
        let begin = thread * DECISIONS / 2;
        match self {
            Self::All => (begin + turn) % DECISIONS,
            Self::Thousand => begin + turn % 1000,
        }
    }
}

/// Time of each thread's decisions, in ns per decision, the slowest thread's. `decide` gets the
/// number of a client and the time.
fn on_threads(threads: usize, met: Met, decide: impl Fn(usize, i64) + Sync) -> f64 {
    std::thread::scope(|scope| {
        let decide = &decide;
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let began = Instant::now();
                    for turn in 0..DECISIONS {
                        decide(met.at(turn, thread), 1000 * MS + STEP_NS * turn as i64);
                    }
                    began.elapsed().as_nanos() as f64 / DECISIONS as f64
                })
            })
            .collect();
        let times = running.into_iter().map(|thread| thread.join().expect("no panic"));
        times.fold(0.0, f64::max)
    })
}

/// By the number of threads, and whom they meet.
const RUNS: [(usize, Met); 4] =
    [(1, Met::All), (2, Met::All), (1, Met::Thousand), (2, Met::Thousand)];

fn decisions(names: &Names, rounds: usize) {
    let tenants = tenants();
    let own = gate("owner", "owner");
    let limiter = TenantLimiter::new(RECHECK_PERIOD);
    let rivals: Vec<TenantId> =
        names.keys(&tenants).map(|key| TenantId::parse(key.client).expect("valid")).collect();
    let budget = || rich().budget;
    let (mut of_leases, mut of_accounts, mut of_tenants) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        // Leases are of one age in every round, whatever the rounds before took.
        let holder = holder(names, &tenants);
        let by = |gate: &Gate<()>, at: usize, now_ns: i64| {
            let key = names.key(at, &tenants);
            let decision = gate.decide(black_box(key), 1, rich(), now_ns);
            assert!(matches!(decision, Decision::Admitted(_)), "{decision:?}");
        };
        names.keys(&tenants).for_each(|key| drop(own.decide(key, 1, rich(), 1000 * MS)));
        let take = |at: usize, now_ns| {
            black_box(limiter.take(&rivals[at], 1, now_ns, budget).is_ok());
        };
        (0..DECISIONS).for_each(|at| take(at, 1000 * MS));
        of_leases.push(
            RUNS.map(|(threads, met)| {
                on_threads(threads, met, |at, now_ns| by(&holder, at, now_ns))
            }),
        );
        let counts = holder.counts(1000 * MS);
        assert_eq!((counts.asked, counts.renewals), (2 * DECISIONS as u64, 0), "nobody asked");
        of_accounts.push(
            RUNS.map(|(threads, met)| on_threads(threads, met, |at, now_ns| by(&own, at, now_ns))),
        );
        of_tenants.push(RUNS.map(|(threads, met)| on_threads(threads, met, take)));
    }
    println!("a decision among {DECISIONS} clients of {TENANTS} tenants, ns, median (least):");
    println!("                            all in turn: 1 thread, 2     a thousand: 1 thread, 2");
    for (name, times, bar) in [
        ("on a held lease", &of_leases, "bar 150"),
        ("by an own account", &of_accounts, ""),
        ("rival: as many tenants' own", &of_tenants, ""),
    ] {
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| {
            let (median, least) = spread(times.iter().map(|round| round[at]));
            format!("{median:4.0} ({least:.0})")
        });
        println!("  {name:<27} {a:>11}  {b:>11}  {c:>11}  {d:>11}  {bar}");
    }
}

/// Every decision is another gate's: bytes in, bytes out.
fn owner_side(names: &Names, rounds: usize) {
    let tenants = tenants();
    println!("the owner's side, batches decoded, decided and encoded, decisions a second:");
    for len in [1, 10, 100, 1000] {
        let keys: Vec<OwnedKey> = names.keys(&tenants).map(|key| key.to_owned()).collect();
        let batches: Vec<Vec<u8>> = (1..)
            .zip(keys.chunks(len))
            .map(|(sequence, keys)| {
                let wish = freehold::clients::account::Wish { spend: 100, want: 400, least: 100 };
                let item = |key: &OwnedKey| Item {
                    key: key.clone(),
                    wish,
                    holding: Some(0),
                    refund: None,
                    debt: 0,
                };
                encode_batch(&Batch { sequence, items: keys.iter().map(item).collect() })
            })
            .collect();
        let owner = gate("owner", "owner");
        let mut times = Vec::new();
        let (mut granted, mut bytes) = (0_usize, 0);
        for round in 0..rounds as i64 {
            let began = Instant::now();
            for batch in &batches {
                let Ok(Question::Batch(batch)) = decode_question(batch) else { panic!("a batch") };
                // Leases of the round before have ended.
                let now_ns = (1000 + round * 4000) * MS;
                let answers =
                    owner.serve("holder", 1 + round as u64, &batch, &|_, _| Some(rich()), now_ns);
                let answers = answers.expect("a new batch");
                granted += answers.items.len();
                bytes += black_box(encode_reply(&Reply::Answers(answers))).len();
            }
            times.push(began.elapsed().as_secs_f64() / keys.len() as f64);
        }
        assert_eq!((granted, owner.counts(0).served), (keys.len() * rounds, granted as u64));
        let (median, least) = spread(times.iter().map(|time| 1.0 / time));
        println!(
            "  batches of {len:>4}: {median:8.0} (most {:.0}), {} bytes each way in all  {}",
            least.max(times.iter().fold(0.0, |most: f64, time| most.max(1.0 / time))),
            bytes / rounds,
            if len >= 100 { "bar 500000" } else { "" }
        );
    }
}

/// Median and least.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0])
}
