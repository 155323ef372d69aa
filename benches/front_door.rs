//! The front door for one request, all in: address from the hops, its key, the credential's hash,
//! three limiters, the proof, and the way out.
//!
//! The rival is what one writes first: a map from the raw address to its bucket and one from the
//! raw token, each under one lock, with the same arithmetic, no bound and nothing hashed. Both
//! take the same requests in turn, round after round; medians are printed.
//!
//! `--test` only proves that it runs.
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::post;
use freehold::clock::Clock;
use freehold::front_door::config::{ClassConfig, FrontDoorConfig};
use freehold::front_door::networks::Network;
use freehold::front_door::{FrontDoor, Outcome, RouteClass};
use freehold::ratelimit::{Bucket, RateLimitHeaders};
use freehold::server::front_door::{FrontDoorEdge, Routes};
use shared::Numbers;
use tower::ServiceExt as _;

mod shared;

/// Counts what is held and how often it was asked for.
struct Counting;

static HELD_BYTES: AtomicI64 = AtomicI64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came; only counts are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(real_bytes(layout));
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-real_bytes(layout));
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What glibc takes for a request: eight bytes more, in steps of sixteen.
fn real_bytes(layout: Layout) -> i64 {
    ((layout.size() + 8).next_multiple_of(16)).max(32) as i64
}

fn count(bytes: i64) {
    HELD_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

fn held_bytes() -> i64 {
    HELD_BYTES.load(Ordering::Relaxed)
}

const SALT: &[u8] = b"a salt of a bench";
const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
/// Far above what comes, so that nobody is refused.
const PER_MINUTE: u32 = 1_000_000;
const MINUTE_NS: i64 = 60_000_000_000;

struct Scale {
    addresses: usize,
    rounds: usize,
    turn: usize,
}

/// A request's head as far as the front door reads it.
struct Head {
    hops: String,
    authorization: String,
}

fn main() {
    let scale = match shared::is_test() {
        true => Scale { addresses: 1_000, rounds: 1, turn: 1_000 },
        false => Scale { addresses: 100_000, rounds: 21, turn: 100_000 },
    };
    // 48 random letters, as tokens of an identity provider's machine accounts have, and a JWT.
    for token_bytes in [48, 900] {
        speed(&scale, token_bytes);
    }
    edge(&scale);
    memory(&scale);
}

/// What it adds to a request of the HTTP edge, layer and all: a router with it and one without,
/// whose route does nothing.
fn edge(scale: &Scale) {
    let heads = heads(scale.addresses, 48);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let bare = || Router::new().route("/api/v1/push", post(async || ()));
    let whole = Arc::new(door(class(true, true, true), 2 * scale.addresses));
    let edge = FrontDoorEdge::new(whole, Clock::start(), Routes::default(), RateLimitHeaders::Off);
    let (with, without) = (edge.before(bare()), bare());
    let mut numbers = Numbers::new(3);
    let order: Vec<usize> =
        (0..scale.turn / 4).map(|_| (numbers.next() % heads.len() as u64) as usize).collect();
    let request = |at: usize| {
        let mut request = http::Request::post("/api/v1/push")
            .header("x-forwarded-for", heads[at].hops.as_str())
            .header("authorization", heads[at].authorization.as_str())
            .body(Body::empty())
            .expect("a request");
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(PROXY, 1)));
        request
    };
    let mut rounds = Vec::new();
    for round in 0..=scale.rounds {
        let times = [&with, &without].map(|router| {
            ns_each(&order, |at| {
                let answer = runtime.block_on(router.clone().oneshot(request(at)));
                assert_eq!(answer.expect("an answer").status(), 200);
            })
        });
        if round > 0 {
            rounds.push(times[0] - times[1]);
        }
    }
    println!("front door as a layer, added per request: {:.0} ns", median(rounds.into_iter()));
}

fn heads(addresses: usize, token_bytes: usize) -> Vec<Head> {
    let mut numbers = Numbers::new(11);
    (0..addresses)
        .map(|at| {
            let [_, b, c, d] = (0x0b00_0000 + at as u32).to_be_bytes();
            let mut token = String::new();
            while token.len() < token_bytes {
                token.push_str(&format!("{:016x}", numbers.next()));
            }
            token.truncate(token_bytes);
            Head {
                hops: format!("203.0.113.{}, 198.{b}.{c}.{d}, 10.0.0.7", at % 250),
                authorization: format!("Bearer {token}"),
            }
        })
        .collect()
}

fn class(failures: bool, address: bool, credential: bool) -> ClassConfig {
    let number = |is_on: bool| if is_on { PER_MINUTE } else { 0 };
    ClassConfig {
        failures_per_minute: number(failures),
        requests_per_address_per_minute: number(address),
        requests_per_credential_per_minute: number(credential),
        ..ClassConfig::default()
    }
}

fn door(write: ClassConfig, kept: usize) -> FrontDoor {
    let config = FrontDoorConfig {
        trusted_proxies: vec![Network::parse("10.0.0.0/8").expect("a network")],
        max_addresses: kept,
        max_credentials: kept,
        max_proven_pairs: kept,
        write,
        ..FrontDoorConfig::default()
    };
    FrontDoor::new(&config, SALT)
}

fn visit(door: &FrontDoor, head: &Head, outcome: Outcome, now_ns: i64) {
    let found = door.find(PROXY, std::iter::once(head.hops.as_bytes()));
    let authorization = std::iter::once(head.authorization.as_bytes());
    let pass = door.enter(RouteClass::Write, found.address, authorization, now_ns);
    door.leave(black_box(pass.expect("far below the limits")), outcome, now_ns);
}

/// The rival.
#[derive(Default)]
struct Maps {
    addresses: Mutex<HashMap<String, Bucket>>,
    tokens: Mutex<HashMap<String, Bucket>>,
}

impl Maps {
    fn visit(&self, head: &Head, now_ns: i64) {
        let address = head.hops.rsplit(", ").nth(1).expect("a hop");
        let new = || Bucket::new(f64::from(PER_MINUTE) / 60.0, PER_MINUTE.into());
        for (map, key) in [(&self.addresses, address), (&self.tokens, &head.authorization)] {
            let mut map = map.lock().expect("lock");
            assert!(map.entry(key.to_owned()).or_insert_with(new).take(1, now_ns));
        }
    }
}

fn speed(scale: &Scale, token_bytes: usize) {
    let heads = heads(scale.addresses, token_bytes);
    let mut numbers = Numbers::new(5);
    let order: Vec<usize> =
        (0..scale.turn).map(|_| (numbers.next() % heads.len() as u64) as usize).collect();
    let whole = door(class(true, true, true), 2 * scale.addresses);
    let unproven = door(class(true, false, false), 2 * scale.addresses);
    let maps = Maps::default();
    let mut now_ns = MINUTE_NS;
    let mut rounds: Vec<[f64; 5]> = Vec::new();
    let mut calls = 0;
    for round in 0..=scale.rounds {
        now_ns += 1_000_000;
        let proven = ns_each(&order, |at| visit(&whole, &heads[at], Outcome::Succeeded, now_ns));
        let guess = ns_each(&order, |at| visit(&unproven, &heads[at], Outcome::Uncounted, now_ns));
        let rival = ns_each(&order, |at| maps.visit(&heads[at], now_ns));
        let before = CALLS.load(Ordering::Relaxed);
        visit(&whole, &heads[order[0]], Outcome::Succeeded, now_ns);
        calls = CALLS.load(Ordering::Relaxed) - before;
        let both = |act: &(dyn Fn(usize) + Sync)| two_threads(&order, act);
        let proven_two = both(&|at| visit(&whole, &heads[at], Outcome::Succeeded, now_ns));
        let rival_two = both(&|at| maps.visit(&heads[at], now_ns));
        // The first round fills the tables.
        if round > 0 {
            rounds.push([proven, guess, rival, proven_two, rival_two]);
        }
    }
    let [proven, guess, rival, proven_two, rival_two] =
        std::array::from_fn(|at| median(rounds.iter().map(|round| round[at])));
    let slowest = one_by_one(&whole, &heads, &order, now_ns);
    println!(
        "front door, {} addresses, tokens of {token_bytes} bytes, ns per request:",
        heads.len()
    );
    println!("  three limiters, proven pair   {proven:.0}; each of two threads {proven_two:.0}");
    println!("  failures alone, not proven    {guess:.0}");
    println!("  two maps of raw names         {rival:.0}; each of two threads {rival_two:.0}");
    println!("  one by one, p50 {:.0}, p99 {:.0} (with the clock)", slowest[0], slowest[1]);
    println!("  allocations per request       {calls}");
}

fn memory(scale: &Scale) {
    let heads = heads(scale.addresses, 48);
    println!("memory for {} addresses, each with its own token:", heads.len());
    for (name, config, outcome) in [
        ("failures", class(true, false, false), Outcome::Uncounted),
        ("failures and requests of addresses", class(true, true, false), Outcome::Uncounted),
        ("all three limiters", class(true, true, true), Outcome::Uncounted),
        ("all three, and every pair proven", class(true, true, true), Outcome::Succeeded),
    ] {
        let before = held_bytes();
        let door = door(config, 2 * scale.addresses);
        heads.iter().for_each(|head| visit(&door, head, outcome, MINUTE_NS));
        let bytes = held_bytes() - before;
        let mib = bytes as f64 / f64::from(1 << 20);
        println!("  {name}: {mib:.1} MiB, {} B each", bytes / heads.len() as i64);
    }
    // A million addresses in a table of a hundred thousand.
    let before = held_bytes();
    let door = door(class(true, true, true), scale.addresses);
    for at in 0..10 * scale.addresses {
        let address = IpAddr::V6((0x2001_0db8_u128 << 96 | (at as u128) << 72).into());
        let pass = door.enter(RouteClass::Write, address, std::iter::empty(), MINUTE_NS);
        door.leave(pass.expect("a new one"), Outcome::Uncounted, MINUTE_NS);
    }
    let mib = (held_bytes() - before) as f64 / f64::from(1 << 20);
    println!("  ten times as many, without tokens, at the bound: {mib:.1} MiB");
}

fn ns_each(order: &[usize], act: impl Fn(usize)) -> f64 {
    let start = Instant::now();
    order.iter().for_each(|&at| act(at));
    start.elapsed().as_nanos() as f64 / order.len() as f64
}

/// Time per request of each of two threads that take all of them at once.
fn two_threads(order: &[usize], act: &(dyn Fn(usize) + Sync)) -> f64 {
    let gate = std::sync::Barrier::new(2);
    let run = || {
        gate.wait();
        ns_each(order, act)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(run);
        let here = run();
        (here + other.join().expect("no panic")) / 2.0
    })
}

/// p50 and p99 of single requests.
fn one_by_one(door: &FrontDoor, heads: &[Head], order: &[usize], now_ns: i64) -> [f64; 2] {
    let mut times: Vec<f64> = order
        .iter()
        .map(|&at| {
            let start = Instant::now();
            visit(door, &heads[at], Outcome::Succeeded, now_ns);
            start.elapsed().as_nanos() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [0.5, 0.99].map(|share| times[((times.len() - 1) as f64 * share) as usize])
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
