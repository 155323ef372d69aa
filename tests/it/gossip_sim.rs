//! Many members of one gossip on a clock of their own: after the last fault all agree.
//!
//! The code under test is the real one: the machine, `gossip::Membership`, and the ring's store,
//! `ring::kv::memberlist::GossipedStore`, written as a lifecycler writes it. Played are time, the
//! members' clocks, the network, and the driver between the two, which `world` does after
//! `ring::kv::memberlist::gossiping`. All chance comes from one seed, which a failure names:
//! `FREEHOLD_SIM_SEED=7 cargo test --test it gossip_sim`. `FREEHOLD_SIM_SEEDS=1000..3000` tries
//! these, and `FREEHOLD_SIM_MEMBERS=600` makes each world as large. Thousands want optimised code:
//! `CARGO_PROFILE_DEV_OPT_LEVEL=2`.
//!
//! Faults: loss, delay and reordering, partitions, crashes and restarts under the same name at
//! another address, frozen members, clocks that differ, members that leave for good, newcomers,
//! tokens that several claim.

mod faults;
mod network;
mod ring;
mod world;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;

use freehold::gossip::schedule::push_pull_interval_ms;
use freehold::gossip::settings::Settings;
use freehold::gossip::suspicion;
use freehold::ring::model::{Instance, InstanceState};

use faults::{Fault, Plan};
use ring::Tokens;
use world::{RECLAIM_MS, World};

/// Seeds of the short form and of the long one (`FREEHOLD_LONG_TESTS=1`).
///
/// The short form is part of every run of the tests, which are not optimised; one of its worlds is
/// large.
const SEEDS: Range<u64> = 4..6;
const SEEDS_LONG: Range<u64> = 0..2000;

/// Members in most runs, and in each tenth.
const MEMBERS_MAX: usize = 12;
const MEMBERS_MAX_TENTH: usize = 50;

/// A round is a gossip interval: 200 ms.
const ROUND_MS: u64 = 200;

/// Rounds after the last fault within which all have the same ring: one rejoin (60 s), one full
/// exchange (30 s, in clusters of more than 32 twice that) and what gossip then needs. Seeds rarely
/// take more than 100.
const RING_ROUNDS_MAX: u64 = 900;

/// The same for who is there, among so many members.
///
/// What takes longest: somebody came back under its name at another address, and one member alone
/// did not hear of its end. That one takes the new address for a conflict, so nobody tells it the
/// truth but its own probes, one after the other:
///
/// - a lap of probes until it is the old address' turn: 5 s for each member;
/// - the suspicion that nobody confirms, since all others know better: six times the least;
/// - the time for which a dead member's name is not given away: 30 s;
/// - its next full exchange, which tells it the new address: 30 s, in larger clusters more.
///
/// And a minute on top for probes that failed before: each takes up to eight times as long by one
/// who was unwell itself.
fn members_rounds_max(members: usize) -> u64 {
    let Settings { probe_interval_ms, suspicion_factor, suspicion_max_factor, .. } =
        Settings::new("", SocketAddr::from(([127, 0, 0, 1], 1)));
    let lap_ms = members as u64 * probe_interval_ms;
    let least_ms = suspicion::least_ms(suspicion_factor, members, probe_interval_ms);
    let suspicion_ms = least_ms * u64::from(suspicion_max_factor);
    let exchange_ms = push_pull_interval_ms(30_000, members);
    (lap_ms + suspicion_ms + RECLAIM_MS + exchange_ms + 60_000) / ROUND_MS
}

fn is_long() -> bool {
    std::env::var_os("FREEHOLD_LONG_TESTS").is_some_and(|value| value == "1")
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

fn seeds() -> Range<u64> {
    if let Some(seed) = number("FREEHOLD_SIM_SEED") {
        return seed..seed + 1;
    }
    if let Ok(text) = std::env::var("FREEHOLD_SIM_SEEDS") {
        let bounds = text.split_once("..").and_then(|(first, end)| {
            let seeds: Range<u64> = first.parse().ok()?..end.parse().ok()?;
            (!seeds.is_empty()).then_some(seeds)
        });
        return bounds.unwrap_or_else(|| panic!("FREEHOLD_SIM_SEEDS is FIRST..END, not {text:?}"));
    }
    if is_long() { SEEDS_LONG } else { SEEDS }
}

/// Rounds until something held, and in which world, of all runs.
#[derive(Default)]
struct Rounds(Vec<(u64, u64)>);

impl Rounds {
    fn summary(&mut self) -> String {
        self.0.sort_unstable();
        let at = |part: f64| self.0[((self.0.len() - 1) as f64 * part) as usize];
        let (half, most, (all, seed)) = (at(0.5).0, at(0.99).0, at(1.0));
        format!("half {half}, 99 % {most}, all {all} rounds (seed {seed})")
    }
}

#[test]
fn after_the_last_fault_all_agree_on_who_is_there_and_on_one_ring() {
    let (mut rings, mut members, mut faults) = (Rounds::default(), Rounds::default(), 0);
    for seed in seeds() {
        let is_tenth = seed % 10 == 5;
        let plan = match number("FREEHOLD_SIM_MEMBERS") {
            Some(members) => Plan::of(seed, members as usize),
            None => Plan::any(seed, if is_tenth { MEMBERS_MAX_TENTH } else { MEMBERS_MAX }),
        };
        let mut world: World = World::new(seed, &plan);
        world.run_until(plan.last_fault_ms());
        world.calm();
        faults += plan.faults.len();
        let until_ring =
            rounds_until(&mut world, RING_ROUNDS_MAX, World::ring_differs, seed, &plan);
        rings.0.push((until_ring, seed));
        let most = members_rounds_max(plan.members_max());
        let until_members = rounds_until(&mut world, most, World::members_differ, seed, &plan);
        members.0.push((until_members, seed));
        // Agreed once, agreed for good: nobody is lost again and no tombstone comes back, also
        // when tombstones have been taken away. Then, without heartbeats, all is equal to the bit.
        for _ in 0..if is_tenth { 10 } else { 60 } {
            world.run_for(7_000);
            holds(world.ring_differs(), seed, &plan);
            holds(world.members_differ(), seed, &plan);
        }
        world.stop_beats();
        world.run_for(60_000);
        holds(world.states_differ(), seed, &plan);
        let traffic = world.traffic();
        let member_seconds = plan.members_max() as u64 * world.now_ms() / 1000;
        println!(
            "seed {seed}: {} members, {} faults; one ring after {until_ring} rounds, one view of \
             members after {until_members}; {} B/s of packets and {} B/s of streams per member",
            plan.members_max(),
            plan.faults.len(),
            traffic.packet_bytes / member_seconds,
            traffic.stream_bytes / member_seconds,
        );
    }
    println!("one ring: {}; one view of members: {}", rings.summary(), members.summary());
    // A simulation in which nothing happens proves nothing.
    assert!(faults as u64 >= 3 * seeds().count() as u64, "{faults} faults");
}

#[test]
fn a_member_that_flaps_is_not_lost() {
    for seed in seeds() {
        let mut plan = Plan::quiet(seed, 3 + (seed % 8) as usize);
        let mut at_ms = 60_000;
        for flap in 0..6 {
            plan.faults.push((at_ms, Fault::Restart { member: 0, is_graceful: flap % 2 == 1 }));
            // Some lives are too short for anybody to have noticed them.
            at_ms += 500 + (seed * 7_919 + flap * 104_729) % 40_000;
        }
        let mut world: World = World::new(seed, &plan);
        world.run_until(plan.last_fault_ms());
        let most = members_rounds_max(plan.members_max());
        rounds_until(&mut world, most, World::members_differ, seed, &plan);
        for _ in 0..10 {
            holds(world.ring_differs(), seed, &plan);
            let is_there = |view: &BTreeMap<String, Instance>| {
                view.get("m0").is_some_and(|entry| entry.state == InstanceState::Active)
            };
            let lost = world.views().find(|view| !is_there(view));
            assert!(lost.is_none(), "seed {seed}: {lost:?}");
            world.run_for(15_000);
        }
    }
}

#[test]
fn who_left_stays_gone_and_its_tombstone_does_so_too() {
    let status = |view: &BTreeMap<String, Instance>| view.get("m3").map(|entry| entry.state);
    let mut heard = 0;
    for seed in seeds() {
        let mut plan = Plan::quiet(seed, 4 + (seed % 8) as usize);
        plan.faults.push((60_000, Fault::Partition { cut: 1 + seed % 2, for_ms: 90_000 }));
        plan.faults.push((70_000, Fault::Leave { member: 3 }));
        let mut world: World = World::new(seed, &plan);
        world.run_until(80_000);
        // Who goes waits until its end is told as often as anything is. Across a partition all of
        // it may be lost; then the entry is an operator's to forget, as in Cortex.
        if !world.views().any(|view| status(&view) == Some(InstanceState::Left)) {
            continue;
        }
        heard += 1;
        world.run_until(plan.last_fault_ms() + 180_000);
        let mut has_tombstones = true;
        for step in 0..40 {
            world.run_for(5_000);
            for view in world.views() {
                let status = status(&view);
                let is_gone = status.is_none_or(|status| status == InstanceState::Left);
                assert!(is_gone, "seed {seed}, step {step}: {status:?}\n{plan:?}");
                assert!(has_tombstones || status.is_none(), "seed {seed}: the tombstone is back");
            }
            has_tombstones &= world.views().any(|view| view.contains_key("m3"));
        }
        assert!(!has_tombstones, "seed {seed}: tombstones stay for ever");
    }
    assert!(heard * 2 > seeds().count() || seeds().count() == 1, "{heard} goodbyes were heard");
}

#[test]
fn bandwidth_is_bounded() {
    let sizes: &[usize] = if is_long() { &[3, 10, 50, 600] } else { &[3, 10] };
    for &members in sizes {
        let plan = Plan::quiet(1, members).with_tokens(Tokens::MANY);
        let mut world: World = World::new(1, &plan);
        // Joining costs more, and is over.
        world.run_until(60_000);
        let before = world.traffic();
        let seconds = if members > 100 { 30 } else { 60 };
        world.run_for(seconds * 1000);
        let spent = world.traffic() - before;
        let (machine_us, store_us) = world.us_per_s(before, seconds);
        let per_member = |bytes: u64| bytes / members as u64 / seconds;
        let (packets, streams) = (per_member(spent.packet_bytes), per_member(spent.stream_bytes));
        println!(
            "{members} members: {packets} B/s in {} packets/s and {streams} B/s of full exchanges; \
             the machine took {machine_us} µs per second, the store {store_us} µs",
            per_member(spent.packets),
        );
        // Each change goes out at most 4 · ⌈log₁₀(n + 1)⌉ times from each member, with at most
        // a third more for news of peers and probes; heartbeats come every 15 s.
        let transmits = 4.0 * (members as f64 + 1.0).log10().ceil();
        let change_bytes = 2_600.0 + 200.0;
        let most = transmits * members as f64 / 15.0 * change_bytes * 1.33 + 2_000.0;
        assert!((packets as f64) < most, "{members} members: {packets} of {most} B/s");
        // Each opens one exchange in 30 s, in larger clusters fewer, and two more as it rejoins
        // each minute; a half tells of all members and their entries.
        let interval_s = push_pull_interval_ms(30_000, members) as f64 / 1000.0;
        let rejoins = 2.0 * seconds.div_ceil(60) as f64 / seconds as f64;
        let half_bytes = members as f64 * (change_bytes + 100.0);
        let most = (1.0 / interval_s + rejoins) * 2.0 * half_bytes * 1.1;
        assert!((streams as f64) < most, "{members} members: {streams} of {most} B/s");
    }
}

/// Rounds until there is no more difference.
fn rounds_until(
    world: &mut World,
    rounds_max: u64,
    differs: impl Fn(&mut World) -> Option<String>,
    seed: u64,
    plan: &Plan,
) -> u64 {
    let from_ms = plan.last_fault_ms();
    loop {
        let Some(difference) = differs(world) else {
            return world.now_ms().saturating_sub(from_ms) / ROUND_MS;
        };
        let rounds = world.now_ms().saturating_sub(from_ms) / ROUND_MS;
        assert!(rounds < rounds_max, "seed {seed}: after {rounds} rounds {difference}\n{plan:?}");
        world.run_for(ROUND_MS);
    }
}

fn holds(difference: Option<String>, seed: u64, plan: &Plan) {
    if let Some(difference) = difference {
        panic!("seed {seed}: {difference}\n{plan:?}");
    }
}
