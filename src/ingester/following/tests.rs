//! The machine in a world of virtual time: what it does about each thing that can happen.

mod world;

use proptest::prelude::*;

use super::tenant::{Figures, Reason};
use world::{EPOCH_MS, HOUR_MS, World, tenant};

const MINUTE: i64 = 60;

/// A world whose tenant `a` had this many series when we started, all of them listed by now.
fn loaded(series: u64) -> World {
    let mut world = World::new();
    world.push_past_us("a", 0..series);
    world.pass(5);
    assert!(!world.machine.is_loading());
    world
}

/// Writes all of `series` every 15 seconds for so long, and one newer one now and then.
fn live(world: &mut World, series: std::ops::Range<u64>, seconds: i64) {
    for _ in 0..seconds / 15 {
        world.push("a", series.clone());
        world.pass(15);
    }
}

#[test]
fn case_b20_series_that_were_there_are_loaded_before_anybody_counts_on_ours() {
    let mut world = World::new();
    world.push_past_us("a", 0..100);
    world.listing_takes_ns = 10 * world::SECOND_NS;
    world.pass(2);
    assert!(world.is_running, "pushes are taken as soon as the counts are there");
    assert!(world.machine.is_loading());
    assert!(world.ours[&tenant("a")].series.is_loading());
    world.pass(12);
    assert!(!world.machine.is_loading());
    assert!(!world.ours[&tenant("a")].series.is_loading());
    assert!(world.agrees(&tenant("a")));
}

#[test]
fn pushes_are_not_taken_before_the_upstream_has_told_its_counts() {
    let mut world = World::new();
    world.push_past_us("a", 0..10);
    world.is_down = true;
    world.pass(10 * MINUTE);
    assert!(!world.is_running && world.machine.is_loading());
    let polls = world.polls.len();
    assert!((10..60).contains(&polls), "tries come with back-off: {polls}");
    world.is_down = false;
    assert!(world.pass_until(MINUTE, |world| world.is_running && !world.machine.is_loading()));
    assert!(world.agrees(&tenant("a")));
}

#[test]
fn a_tenant_that_comes_through_us_needs_no_listing() {
    let mut world = loaded(0);
    live(&mut world, 0..50, 20 * MINUTE);
    assert!(world.agrees(&tenant("a")));
    assert_eq!(world.listings_of("a"), 0);
    assert_eq!(world.figures("a"), Figures { upstream: 50, residue: 0, drift: 0 });
}

#[test]
fn a_cut_takes_what_is_old_and_no_listing() {
    let mut world = loaded(0);
    world.push("a", 0..1000);
    // Half of them go on; the head is cut when it spans three hours.
    live(&mut world, 0..500, 3 * 60 * MINUTE - 10 * MINUTE);
    assert_eq!(world.count("a"), 1000);
    let polls = world.polls.len();
    live(&mut world, 0..500, 12 * MINUTE);
    assert!(world.polls.len() - polls > 20, "the drop is due and looked out for");
    assert_eq!(world.count("a"), 1000, "and nothing goes before it comes");
    world.cut("a", EPOCH_MS - 5 * MINUTE * 1000 + 2 * HOUR_MS);
    assert!(world.pass_until(10, |world| world.agrees(&tenant("a"))));
    assert_eq!(world.count("a"), 500);
    live(&mut world, 0..500, 20 * MINUTE);
    assert_eq!(world.listings_of("a"), 0);
}

#[test]
fn a_cut_that_new_series_make_up_for_is_seen_all_the_same() {
    let mut world = loaded(0);
    world.push("a", 0..20);
    live(&mut world, 20..40, 3 * 60 * MINUTE + 2 * MINUTE);
    world.push("a", 100..120);
    world.cut("a", EPOCH_MS - 5 * MINUTE * 1000 + 2 * HOUR_MS);
    assert!(world.pass_until(10, |world| world.agrees(&tenant("a"))));
    assert_eq!(world.listings_of("a"), 0);
}

#[test]
fn after_a_restart_the_first_drop_is_settled_by_one_more_listing() {
    let mut world = loaded(1000);
    // What was listed has no times, so a cut alone does not tell which of the idle ones went.
    world.up("a").series.values_mut().for_each(|newest_ms| *newest_ms -= HOUR_MS);
    live(&mut world, 0..500, 3 * 60 * MINUTE);
    assert_eq!(world.listings_of("a"), 1);
    world.cut("a", EPOCH_MS - 5 * MINUTE * 1000 + 2 * HOUR_MS);
    assert!(world.pass_until(MINUTE, |world| world.agrees(&tenant("a"))));
    live(&mut world, 0..500, 20 * MINUTE);
    assert_eq!(world.count("a"), 500);
    assert!(world.listings_of("a") <= 2, "{:?}", world.listings);
}

#[test]
fn a_flush_is_followed_within_a_minute() {
    let mut world = loaded(0);
    world.push("a", 0..1000);
    live(&mut world, 0..400, 10 * MINUTE);
    // Everything goes, and what is live comes back at once.
    world.up("a").series.clear();
    world.push("a", 0..400);
    assert!(world.pass_until(MINUTE, |world| world.agrees(&tenant("a"))));
}

#[test]
fn a_flush_of_a_silent_tenant_is_followed_within_a_minute() {
    let mut world = loaded(100);
    world.up("a").series.clear();
    assert!(world.pass_until(MINUTE, |world| world.count("a") == 0));
    assert_eq!(world.listings_of("a"), 1);
}

#[test]
fn case_b19_a_tenant_that_is_closed_upstream_goes_within_a_minute() {
    let mut world = loaded(100);
    live(&mut world, 50..200, 2 * MINUTE);
    world.upstream.clear();
    assert!(world.pass_until(MINUTE, |world| world.ours.is_empty()));
    world.pass(MINUTE);
    assert!(world.machine.figures(&tenant("a")).is_none());
    // It comes back as a tenant like any other.
    live(&mut world, 0..10, 2 * MINUTE);
    assert!(world.agrees(&tenant("a")));
}

#[test]
fn series_without_samples_are_residue_and_no_drift() {
    let mut world = World::new();
    world.push_past_us("a", 0..100);
    world.up("a").bare = 30;
    live(&mut world, 0..50, 30 * MINUTE);
    assert_eq!(world.figures("a"), Figures { upstream: 130, residue: 30, drift: 0 });
    // The first listing is doubted, since it lacks so many, and the second is believed.
    assert_eq!(world.listings_of("a"), 2);
    // More of them are drift until a listing has shown what they are.
    world.up("a").bare = 40;
    live(&mut world, 0..50, MINUTE);
    assert_eq!(world.figures("a").drift, 10);
    live(&mut world, 0..50, 10 * MINUTE);
    assert_eq!(world.figures("a"), Figures { upstream: 140, residue: 40, drift: 0 });
    assert!(world.agrees(&tenant("a")));
}

#[test]
fn a_tenant_that_drifts_for_ever_is_listed_every_ten_minutes() {
    let mut world = loaded(100);
    for minute in 0..120 {
        world.push_past_us("a", [1000 + minute]);
        live(&mut world, 0..100, MINUTE);
    }
    let at: Vec<_> = world.listings.iter().map(|(at_ns, ..)| at_ns / world::SECOND_NS).collect();
    assert!((5..=13).contains(&at.len()), "{at:?}");
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= 10 * MINUTE), "{at:?}");
}

#[test]
fn undecided_series_stay_counted_until_a_listing_settles_them() {
    let mut world = loaded(100);
    live(&mut world, 0..100, 10 * MINUTE);
    // As many come past us, so the numbers alone would never tell.
    world.push_undecided("a", 200..210);
    world.push_past_us("a", 300..310);
    live(&mut world, 0..100, 2 * MINUTE);
    assert_eq!(world.count("a"), 110);
    assert_eq!(world.figures("a").drift, 0);
    live(&mut world, 0..100, 3 * MINUTE);
    assert!(world.agrees(&tenant("a")), "the listing has settled both");
}

#[test]
fn an_empty_listing_removes_nothing_while_the_upstream_counts_series() {
    let mut world = loaded(100);
    world.up("a").is_mute = true;
    world.push_past_us("a", 100..150);
    world.pass(20 * MINUTE);
    assert_eq!(world.count("a"), 100);
    world.up("a").is_mute = false;
    assert!(world.pass_until(25 * MINUTE, |world| world.agrees(&tenant("a"))));
}

#[test]
fn a_tenant_of_nothing_but_residue_does_not_load_for_ever() {
    let mut world = World::new();
    world.up("a").bare = 5;
    assert!(!world.pass_until(30, |world| world.is_running && !world.machine.is_loading()));
    assert!(world.pass_until(5 * MINUTE, |world| !world.machine.is_loading()));
    world.pass(MINUTE);
    assert_eq!(world.figures("a"), Figures { upstream: 5, residue: 5, drift: 0 });
}

#[test]
fn a_tenant_whose_ranges_are_taken_by_the_letter_is_loaded_all_the_same() {
    let mut world = World::new();
    world.push_past_us("a", 0..100);
    world.up("a").is_literal = true;
    assert!(world.pass_until(MINUTE, |world| world.agrees(&tenant("a"))));
    assert_eq!(world.listings_of("a"), 2);
}

#[test]
fn a_listing_that_ends_early_as_if_it_were_whole_removes_nothing() {
    let mut world = loaded(1000);
    world.push_past_us("a", 1000..1200);
    world.up("a").cut_off_at = Some(300);
    world.pass_until(20 * MINUTE, |world| world.listings_of("a") == 2);
    world.pass(1);
    world.up("a").cut_off_at = None;
    assert_eq!(world.count("a"), 1000, "one short listing is no evidence");
    assert!(world.pass_until(20 * MINUTE, |world| world.agrees(&tenant("a"))));
}

#[test]
fn case_b3_an_upstream_that_comes_back_with_fewer_series_is_listed_at_once() {
    let mut world = loaded(0);
    world.push("a", 0..1000);
    live(&mut world, 0..1000, 5 * MINUTE);
    world.is_down = true;
    world.pass(2 * MINUTE);
    // Its log held no more than these, and a few that never got a sample.
    world.up("a").series.retain(|n, _| *n < 600);
    world.up("a").bare = 5;
    world.is_down = false;
    assert!(world.pass_until(MINUTE, |world| world.agrees(&tenant("a"))));
    world.pass(MINUTE);
    assert_eq!(world.figures("a"), Figures { upstream: 605, residue: 5, drift: 0 });
    assert!(world.listings.iter().all(|(_, _, reason)| *reason == Reason::Returned));
}

#[test]
fn an_upstream_that_comes_back_as_it_was_is_not_listed() {
    let mut world = loaded(500);
    live(&mut world, 0..500, 2 * MINUTE);
    world.is_down = true;
    world.pass(3 * MINUTE);
    world.is_down = false;
    live(&mut world, 0..500, 5 * MINUTE);
    assert_eq!(world.listings_of("a"), 1);
}

#[test]
fn tenants_are_listed_two_at_a_time_and_all_of_them() {
    let mut world = World::new();
    for n in 0..50 {
        world.push_past_us(&format!("t{n}"), 0..10);
    }
    // The world checks that no more run at once.
    world.pass(40);
    assert!(!world.machine.is_loading());
    assert_eq!(world.listings.len(), 50);
}

#[derive(Clone, Debug)]
enum Step {
    Push { tenant: usize, from: u64, len: u64 },
    PushPast { tenant: usize, from: u64, len: u64 },
    Undecided { tenant: usize, from: u64, len: u64 },
    Bare { tenant: usize, count: u64 },
    Cut { tenant: usize, behind_s: i64 },
    Flush { tenant: usize },
    Close { tenant: usize },
    Mute { tenant: usize, seconds: i64 },
    Lose { tenant: usize, modulus: u64 },
    Down { seconds: i64 },
    Pass { seconds: i64 },
    Slow { seconds: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    let series = || (0..3_usize, 0..60_u64, 1..40_u64);
    prop_oneof![
        4 => series().prop_map(|(tenant, from, len)| Step::Push { tenant, from, len }),
        1 => series().prop_map(|(tenant, from, len)| Step::PushPast { tenant, from, len }),
        1 => series().prop_map(|(tenant, from, len)| Step::Undecided { tenant, from, len }),
        1 => (0..3_usize, 0..20_u64).prop_map(|(tenant, count)| Step::Bare { tenant, count }),
        1 => (0..3_usize, 0..7200_i64).prop_map(|(tenant, behind_s)| Step::Cut { tenant, behind_s }),
        1 => (0..3_usize).prop_map(|tenant| Step::Flush { tenant }),
        1 => (0..3_usize).prop_map(|tenant| Step::Close { tenant }),
        1 => (0..3_usize, 1..200_i64).prop_map(|(tenant, seconds)| Step::Mute { tenant, seconds }),
        1 => (0..3_usize, 2..5_u64).prop_map(|(tenant, modulus)| Step::Lose { tenant, modulus }),
        1 => (1..300_i64).prop_map(|seconds| Step::Down { seconds }),
        4 => (1..400_i64).prop_map(|seconds| Step::Pass { seconds }),
        1 => (1..90_i64).prop_map(|seconds| Step::Slow { seconds }),
    ]
}

fn take(world: &mut World, step: &Step) {
    let name = |tenant: usize| ["a", "b", "c"][tenant];
    match *step {
        Step::Push { tenant, from, len } => world.push(name(tenant), from..from + len),
        Step::PushPast { tenant, from, len } => {
            world.settle();
            world.push_past_us(name(tenant), from..from + len);
        }
        Step::Undecided { tenant, from, len } if world.is_running => {
            world.push_undecided(name(tenant), from..from + len);
        }
        Step::Undecided { .. } => {}
        Step::Bare { tenant, count } => world.up(name(tenant)).bare += count,
        Step::Cut { tenant, behind_s } => {
            let before_ms = world.now().unix_ms - behind_s * 1000;
            world.cut(name(tenant), before_ms);
        }
        Step::Flush { tenant } => world.cut(name(tenant), i64::MAX),
        Step::Close { tenant } => {
            world.upstream.remove(&world::tenant(name(tenant)));
        }
        Step::Mute { tenant, seconds } => {
            world.up(name(tenant)).is_mute = true;
            world.pass(seconds);
            world.up(name(tenant)).is_mute = false;
        }
        Step::Lose { tenant, modulus } => {
            world.is_down = true;
            world.pass(50);
            world.up(name(tenant)).series.retain(|n, _| n % modulus != 0);
            world.is_down = false;
        }
        Step::Down { seconds } => {
            world.is_down = true;
            world.pass(seconds);
            world.is_down = false;
        }
        Step::Pass { seconds } => world.pass(seconds),
        Step::Slow { seconds } => world.listing_takes_ns = seconds * world::SECOND_NS,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens, once it stops we have what the upstream has, and say by how many series
    /// without samples its count is higher. What counting cannot tell is left out: series come
    /// past us only between a listing's measure and the next listing, and at the end so many of
    /// them that nothing before can make up for their number.
    #[test]
    fn counts_are_right_again_once_things_are_quiet(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new();
        for step in &steps {
            take(&mut world, step);
        }
        world.settle();
        for name in ["a", "b", "c"] {
            world.push_past_us(name, 10_000..13_000);
        }
        world.pass(45 * MINUTE);
        prop_assert!(!world.machine.is_loading());
        for name in ["a", "b", "c"] {
            let up = world.up(name).clone();
            let (ours, theirs) = (world.count(name), up.series.len());
            prop_assert!(world.agrees(&tenant(name)), "{name}: {ours} and {theirs}");
            let figures = Figures { upstream: up.count(), residue: up.bare as i64, drift: 0 };
            prop_assert_eq!(world.figures(name), figures);
        }
    }
}
