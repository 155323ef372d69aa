//! The life of an entry, event by event.

use super::*;
use crate::ring::lifecycler::testing::{START_S, instance, ring_of};
use crate::ring::model::Instance;
use std::collections::BTreeMap;

use InstanceState::{Active, Joining, Leaving, Pending, ReadOnly};

const START_MS: i64 = START_S * 1000;

fn settings() -> Settings {
    Settings {
        id: "me".to_owned(),
        addr: "me:1".to_owned(),
        zone: String::new(),
        num_tokens: 4,
        heartbeat_period_ms: 5_000,
        heartbeat_timeout_ms: 60_000,
        observe_period_ms: 0,
        join_after_ms: 0,
        min_ready_duration_ms: 0,
        final_sleep_ms: 0,
        unregister_on_shutdown: true,
        readiness_check_ring_health: true,
        auto_forget_delay_ms: 0,
    }
}

/// A machine with a ring and timers, whose store fails while told so.
struct World {
    life: Lifecycle,
    ring: RingModel,
    timers: BTreeMap<Timer, i64>,
    now_ms: i64,
    store_fails: bool,
    writes: Vec<Change>,
    saved: Option<Heritage>,
    finish: Option<bool>,
}

impl World {
    fn new(settings: Settings, ring: RingModel, heritage: Option<Heritage>) -> Self {
        Self {
            life: Lifecycle::new(settings, heritage, 11),
            ring,
            timers: BTreeMap::new(),
            now_ms: START_MS,
            store_fails: false,
            writes: Vec::new(),
            saved: None,
            finish: None,
        }
    }

    fn started(settings: Settings, ring: RingModel) -> Self {
        let mut world = Self::new(settings, ring, None);
        world.event(Event::Start);
        world
    }

    fn event(&mut self, event: Event) {
        let actions = self.life.on(event, self.now_ms);
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        let writes = actions.iter().filter(|a| matches!(a, Action::Write(_))).count();
        assert!(writes <= 1, "one write an event: {actions:?}");
        for action in actions {
            let event = match action {
                Action::Write(change) => {
                    self.writes.push(change.clone());
                    if self.store_fails {
                        Event::Failed { change }
                    } else {
                        let applied = self.life.apply(&change, &mut self.ring, self.now_ms);
                        Event::Written { change, applied }
                    }
                }
                Action::Check => Event::Checked(self.life.check_ring(&self.ring, self.now_ms)),
                Action::Schedule { timer, after_ms } => {
                    self.timers.insert(timer, self.now_ms + after_ms as i64);
                    continue;
                }
                Action::Save(heritage) => {
                    self.saved = Some(heritage);
                    continue;
                }
                Action::BecomeReady => continue,
                Action::Finish { is_clean } => {
                    assert_eq!(self.finish.replace(is_clean), None, "the end comes once");
                    continue;
                }
            };
            self.event(event);
        }
    }

    fn run_for(&mut self, span_ms: i64) {
        let end_ms = self.now_ms + span_ms;
        while let Some((timer, at_ms)) =
            self.timers.iter().map(|(t, at)| (*t, *at)).min_by_key(|(_, at)| *at)
        {
            if at_ms > end_ms {
                break;
            }
            self.now_ms = at_ms;
            self.timers.remove(&timer);
            self.event(Event::Fired(timer));
        }
        self.now_ms = end_ms;
    }

    fn request(&mut self, to: InstanceState) -> Result<(), TransitionError> {
        let actions = self.life.request_state(to, self.now_ms)?;
        self.perform(actions);
        Ok(())
    }

    fn entry(&self) -> &Instance {
        &self.ring.instances["me"]
    }
}

#[test]
fn a_new_instance_goes_pending_then_active_with_its_tokens() {
    let join_after = Settings { join_after_ms: 3_000, ..settings() };
    let mut world = World::started(join_after, ring_of(&["a"]));
    assert_eq!((world.entry().state, world.entry().tokens.len()), (Pending, 0));
    world.run_for(2_999);
    assert_eq!(world.entry().state, Pending);
    world.run_for(1);
    assert_eq!((world.entry().state, world.entry().tokens.len()), (Active, 4));
    assert_eq!(world.life.phase(), Phase::Running);
    assert_eq!(world.entry().registered_timestamp_s, START_S);
    assert!(world.ring.instances.contains_key("a"));
}

#[test]
fn new_tokens_are_observed_before_they_serve() {
    let mut world =
        World::started(Settings { observe_period_ms: 2_000, ..settings() }, RingModel::default());
    world.run_for(0);
    assert_eq!((world.entry().state, world.entry().tokens.len()), (Joining, 4));
    // A rival that serves turns up with one of our tokens, as gossip may bring it.
    let lost = world.entry().tokens[1];
    world.ring.instances.insert("z".to_owned(), instance(Active, &[lost.0]));
    world.run_for(2_000);
    assert_eq!((world.entry().state, world.entry().tokens.len()), (Joining, 4));
    assert!(!world.entry().tokens.contains(&lost));
    world.run_for(2_000);
    assert_eq!((world.entry().state, world.life.phase()), (Active, Phase::Running));
}

#[test]
fn an_entry_found_decides_where_a_life_starts() {
    let check = |state: InstanceState, observe_period_ms: u64, steps: &[InstanceState]| {
        let mut ring = RingModel::default();
        ring.instances.insert("me".to_owned(), instance(state, &[1, 2, 3, 4]));
        let mut world = World::new(Settings { observe_period_ms, ..settings() }, ring, None);
        world.event(Event::Start);
        let mut seen = vec![world.entry().state];
        world.run_for(0);
        seen.push(world.entry().state);
        world.run_for(4_000);
        seen.push(world.entry().state);
        seen.dedup();
        assert_eq!(seen, steps, "{state:?}");
        assert_eq!(world.entry().tokens, [1, 2, 3, 4].map(Token), "tokens outlive the process");
        assert_eq!(world.entry().registered_timestamp_s, START_S - 1000, "so does this");
    };
    check(Active, 3_000, &[Active]);
    check(ReadOnly, 3_000, &[ReadOnly]);
    check(Leaving, 3_000, &[Active]);
    check(Joining, 3_000, &[Pending, Joining, Active]);
    check(Joining, 0, &[Pending, Active]);
    check(Pending, 3_000, &[Pending, Joining, Active]);
}

#[test]
fn heartbeats_follow_their_period_after_a_jittered_first() {
    let mut world = World::started(settings(), RingModel::default());
    let first = world.timers[&Timer::Heartbeat] - START_MS;
    assert!((2_500..=5_000).contains(&first), "{first}");
    world.run_for(first);
    assert_eq!(world.timers[&Timer::Heartbeat], world.now_ms + 5_000);
    world.writes.clear();
    world.run_for(50_000);
    assert_eq!(world.writes, vec![Change::Refresh; 10]);
    assert_eq!(world.entry().timestamp_s, world.now_ms / 1000);
}

#[test]
fn a_period_of_zero_turns_heartbeats_off() {
    let off = Settings { heartbeat_period_ms: 0, ..settings() };
    let mut world = World::started(off, RingModel::default());
    world.run_for(60_000);
    assert!(!world.writes.contains(&Change::Refresh));
    assert_eq!(world.life.readiness(), Ok(()), "readiness needs no heartbeats");
}

#[test]
fn modes_are_switched_and_back_in_service_counts_as_new() {
    let mut world = World::started(settings(), RingModel::default());
    world.run_for(10_000);
    let registered_s = world.entry().registered_timestamp_s;
    world.request(ReadOnly).unwrap();
    assert_eq!(
        (world.entry().state, world.entry().registered_timestamp_s),
        (ReadOnly, registered_s)
    );
    assert_eq!(world.saved.as_ref().map(|h| h.resume_state), Some(ReadOnly));
    world.request(ReadOnly).unwrap();
    world.run_for(20_000);
    assert_eq!(world.entry().state, ReadOnly, "heartbeats carry the mode");
    world.request(Active).unwrap();
    assert_eq!((world.entry().state, world.entry().registered_timestamp_s), (Active, START_S + 30));
    assert_eq!(world.entry().tokens.len(), 4);
}

#[test]
fn what_no_operator_may_ask_for_is_refused_with_cortexs_text() {
    let check = |prepare: fn(&mut World), to: InstanceState, from: InstanceState| {
        let mut world = World::new(settings(), RingModel::default(), None);
        prepare(&mut world);
        assert_eq!(world.request(to), Err(TransitionError { from, to }));
    };
    let running = |world: &mut World| {
        world.event(Event::Start);
        world.run_for(0);
    };
    let leaving = |world: &mut World| {
        world.event(Event::Start);
        world.run_for(0);
        world.event(Event::Leave);
    };
    check(|_| (), ReadOnly, Pending);
    check(running, Leaving, Active);
    check(running, Pending, Active);
    check(leaving, Active, Leaving);
    check(leaving, ReadOnly, Leaving);
    let error = TransitionError { from: Leaving, to: ReadOnly };
    assert_eq!(error.to_string(), "changing instance state from LEAVING -> READONLY is disallowed");
}

#[test]
fn a_mode_wished_for_while_joining_is_where_joining_ends() {
    let mut world =
        World::started(Settings { observe_period_ms: 2_000, ..settings() }, RingModel::default());
    world.run_for(0);
    world.request(ReadOnly).unwrap();
    assert_eq!(world.entry().state, Joining);
    world.run_for(2_000);
    assert_eq!((world.entry().state, world.entry().tokens.len()), (ReadOnly, 4));
}

#[test]
fn stopping_leaves_sleeps_and_unregisters() {
    let mut world =
        World::started(Settings { final_sleep_ms: 12_000, ..settings() }, ring_of(&["a"]));
    world.run_for(1_000);
    world.event(Event::Leave);
    assert_eq!((world.entry().state, world.life.phase()), (Leaving, Phase::Leaving));
    world.run_for(6_000);
    world.event(Event::Stop);
    world.writes.clear();
    world.run_for(11_999);
    assert!(world.writes.contains(&Change::Refresh), "heartbeats go on");
    assert_eq!(world.entry().state, Leaving);
    world.run_for(1);
    assert_eq!((world.life.phase(), world.finish), (Phase::Over, Some(true)));
    assert_eq!(world.ring.instances.keys().collect::<Vec<_>>(), ["a"]);
    let heritage = world.saved.clone().unwrap();
    assert_eq!((heritage.tokens.len(), heritage.resume_state), (4, Active));
    world.writes.clear();
    world.run_for(100_000);
    assert_eq!(world.writes, [], "nothing follows");
}

#[test]
fn the_final_sleep_can_be_skipped_before_it_and_in_it() {
    for slept_ms in [None, Some(5_000)] {
        let mut world =
            World::started(Settings { final_sleep_ms: 12_000, ..settings() }, ring_of(&["a"]));
        world.run_for(1_000);
        world.writes.clear();
        if let Some(slept_ms) = slept_ms {
            world.event(Event::Stop);
            world.run_for(slept_ms);
            assert_eq!(world.finish, None);
        }
        world.event(Event::SkipFinalSleep);
        world.event(Event::Stop);
        world.run_for(0);
        assert_eq!((world.life.phase(), world.finish), (Phase::Over, Some(true)));
        assert_eq!(world.writes.first(), Some(&Change::Refresh), "LEAVING is told all the same");
        assert_eq!(world.ring.instances.keys().collect::<Vec<_>>(), ["a"]);
    }
}

#[test]
fn how_a_life_ends_depends_on_where_it_stands() {
    let check = |prepare: fn(&mut World), unregister: bool, left: Option<InstanceState>| {
        let settings =
            Settings { unregister_on_shutdown: unregister, observe_period_ms: 2_000, ..settings() };
        let mut world = World::started(settings, RingModel::default());
        prepare(&mut world);
        world.event(Event::Stop);
        world.run_for(0);
        assert_eq!(world.finish, Some(true));
        assert_eq!(world.ring.instances.get("me").map(|entry| entry.state), left);
    };
    let read_only = |world: &mut World| {
        world.run_for(5_000);
        world.request(ReadOnly).unwrap();
    };
    check(|world| world.run_for(5_000), true, None);
    check(|world| world.run_for(5_000), false, Some(Leaving));
    // READONLY takes no writes already and stays what it is.
    check(read_only, false, Some(ReadOnly));
    check(read_only, true, None);
    // Who never served has nothing to leave.
    check(|world| world.run_for(0), false, Some(Joining));
    check(|_| (), false, Some(Pending));
    check(|_| (), true, None);
}

#[test]
fn who_may_have_joined_without_knowing_leaves_properly() {
    let mut world = World::started(settings(), RingModel::default());
    // The swap happens, its answer is lost.
    let actions = world.life.on(Event::Fired(Timer::Join), world.now_ms);
    let change = Change::Join { target: Active };
    assert_eq!(actions, vec![Action::Write(change.clone())]);
    world.life.apply(&change, &mut world.ring, world.now_ms);
    world.event(Event::Failed { change });
    assert_eq!((world.entry().state, world.life.member().state), (Active, Pending));
    world.event(Event::Leave);
    assert_eq!((world.entry().state, world.entry().tokens.len()), (Leaving, 4));
}

#[test]
fn a_heartbeat_takes_no_step_back_that_may_have_arrived() {
    let mut world = World::started(settings(), RingModel::default());
    world.life.on(Event::Fired(Timer::Join), world.now_ms);
    let change = Change::Join { target: Active };
    world.life.apply(&change, &mut world.ring, world.now_ms);
    let tokens = world.entry().tokens.clone();
    world.event(Event::Failed { change });
    world.event(Event::Fired(Timer::Heartbeat));
    assert_eq!((world.entry().state, &world.entry().tokens), (Active, &tokens));
}

#[test]
fn who_goes_before_having_registered_is_not_put_into_the_ring() {
    let mut world = World::new(
        Settings { final_sleep_ms: 20_000, unregister_on_shutdown: false, ..settings() },
        RingModel::default(),
        None,
    );
    world.store_fails = true;
    world.event(Event::Start);
    world.event(Event::Stop);
    world.store_fails = false;
    world.run_for(30_000);
    assert_eq!((world.ring.instances.len(), world.finish), (0, Some(true)));
}

#[test]
fn stopping_before_the_start_is_the_end() {
    let mut world = World::new(settings(), RingModel::default(), None);
    world.event(Event::Stop);
    assert_eq!((world.finish, world.writes.len()), (Some(true), 0));
}

#[test]
fn every_step_is_tried_again_until_the_store_is_back() {
    let check = |prepare: fn(&mut World), change: fn(&Change) -> bool, then: InstanceState| {
        let mut world = World::new(
            Settings { observe_period_ms: 2_000, ..settings() },
            RingModel::default(),
            None,
        );
        prepare(&mut world);
        world.writes.clear();
        world.run_for(30_000);
        let tries = world.writes.iter().filter(|write| change(write)).count();
        assert!((20..=60).contains(&tries), "about once a second: {tries}");
        world.store_fails = false;
        world.run_for(10_000);
        assert_eq!(world.entry().state, then);
    };
    let start_failing = |world: &mut World| {
        world.store_fails = true;
        world.event(Event::Start);
    };
    let join_failing = |world: &mut World| {
        world.event(Event::Start);
        world.store_fails = true;
    };
    let verify_failing = |world: &mut World| {
        world.event(Event::Start);
        world.run_for(1_999);
        world.store_fails = true;
    };
    let mode_failing = |world: &mut World| {
        world.event(Event::Start);
        world.run_for(4_000);
        world.store_fails = true;
        world.request(ReadOnly).unwrap();
    };
    check(start_failing, |c| *c == Change::Register, Active);
    check(join_failing, |c| matches!(c, Change::Join { .. }), Active);
    check(verify_failing, |c| matches!(c, Change::Verify { .. }), Active);
    check(mode_failing, |c| *c == Change::Refresh, ReadOnly);
}

#[test]
fn unregistering_is_tried_a_bounded_number_of_times() {
    let mut world = World::started(settings(), RingModel::default());
    world.run_for(1_000);
    world.store_fails = true;
    world.writes.clear();
    world.event(Event::Stop);
    world.run_for(60_000);
    let tries = world.writes.iter().filter(|write| **write == Change::Unregister).count();
    assert_eq!((tries, world.finish), (UNREGISTER_ATTEMPTS_MAX as usize, Some(false)));
    let last = world.writes.iter().rposition(|write| *write == Change::Refresh);
    let first = world.writes.iter().position(|write| *write == Change::Unregister);
    assert!(last < first, "nothing puts the entry back: {:?}", world.writes);
}

#[test]
fn a_ring_that_comes_back_empty_gets_us_back_as_we_were() {
    let mut world = World::started(settings(), ring_of(&["a"]));
    world.run_for(7_000);
    let before = world.entry().clone();
    world.ring = RingModel::default();
    world.run_for(5_000);
    let after = world.entry();
    assert_eq!(
        (after.state, &after.tokens, after.registered_timestamp_s),
        (before.state, &before.tokens, before.registered_timestamp_s)
    );
}

#[test]
fn saved_tokens_outlive_the_loss_of_ring_and_process() {
    let heritage = Heritage { tokens: [7, 8, 9, 10].map(Token).to_vec(), resume_state: ReadOnly };
    let mut world = World::new(settings(), RingModel::default(), Some(heritage.clone()));
    world.event(Event::Start);
    assert_eq!((world.entry().state, world.life.phase()), (ReadOnly, Phase::Running));
    assert_eq!(world.entry().tokens, heritage.tokens);
    assert_eq!(world.saved, None, "nothing new to save");
}

#[test]
fn case_a27_not_ready_before_tokens_are_in_the_ring() {
    let join_after = Settings { join_after_ms: 500, ..settings() };
    let mut world = World::started(join_after, RingModel::default());
    assert_eq!(world.life.readiness(), Err(NotReady::NoTokens));
    world.run_for(499);
    assert_eq!(world.life.readiness(), Err(NotReady::NoTokens));
    world.run_for(1);
    assert_eq!(world.life.readiness(), Ok(()));
}

#[test]
fn readiness_waits_for_all_members_and_then_for_its_duration() {
    let mut ring = ring_of(&["a"]);
    ring.instances.insert("b".to_owned(), instance(Joining, &[]));
    let mut world = World::started(Settings { min_ready_duration_ms: 15_000, ..settings() }, ring);
    world.run_for(10_000);
    let in_state = NotReady::InState { addr: "1.2.3.4:9095".to_owned(), state: Joining };
    assert_eq!(world.life.readiness(), Err(in_state.clone()));
    assert_eq!(in_state.to_string(), "instance 1.2.3.4:9095 in state JOINING");
    let heartbeat_all = |world: &mut World| {
        for entry in world.ring.instances.values_mut() {
            entry.timestamp_s = world.now_ms / 1000;
        }
    };
    world.ring.instances.get_mut("b").unwrap().state = ReadOnly;
    heartbeat_all(&mut world);
    world.run_for(14_000);
    let waiting = world.life.readiness().unwrap_err().to_string();
    assert_eq!(waiting, "waiting for 15s after being ready");
    // A relapse starts the wait again.
    world.ring.instances.get_mut("b").unwrap().state = Leaving;
    world.run_for(2_000);
    assert!(matches!(world.life.readiness(), Err(NotReady::InState { .. })));
    world.ring.instances.get_mut("b").unwrap().state = Active;
    world.run_for(14_000);
    assert!(world.life.readiness().is_err());
    world.run_for(3_000);
    assert_eq!(world.life.readiness(), Ok(()));
    // Once ready, always ready: a neighbour's fall must not take us out of service.
    world.run_for(120_000);
    assert_eq!(world.life.readiness(), Ok(()));
}

#[test]
fn reasons_for_not_being_ready_are_told_as_cortex_does() {
    let check = |ring: RingModel, all: bool, text: &str| {
        let settings = Settings { readiness_check_ring_health: all, ..settings() };
        let mut life = Lifecycle::new(settings, None, 1);
        life.member.tokens = vec![Token(1)];
        let outcome = life.check_ring(&ring, START_MS + 60_001);
        assert_eq!(outcome.err().map(|e| e.to_string()).as_deref(), Some(text));
    };
    check(ring_of(&["a"]), true, "instance 1.2.3.4:9095 past heartbeat timeout");
    check(RingModel::default(), true, "no tokens in ring");
    check(ring_of(&["a"]), false, "instance me not found in the ring");
    check(ring_of(&["a", "me"]), false, "instance 1.2.3.4:9095 past heartbeat timeout");
    let life = Lifecycle::new(settings(), None, 1);
    assert_eq!(life.check_ring(&ring_of(&["a"]), START_MS), Err(NotReady::NoTokens));
}

#[test]
fn a_heartbeat_age_is_only_too_old_beyond_the_timeout() {
    let mut life = Lifecycle::new(settings(), None, 1);
    life.member.tokens = vec![Token(1)];
    assert_eq!(life.check_ring(&ring_of(&["me"]), START_MS + 60_000), Ok(()));
    let never = Settings { heartbeat_timeout_ms: 0, ..settings() };
    let mut life = Lifecycle::new(never, None, 1);
    life.member.tokens = vec![Token(1)];
    assert_eq!(life.check_ring(&ring_of(&["me"]), START_MS + 1_000_000_000), Ok(()));
}

#[test]
fn who_leaves_with_observing_unanswered_starts_over_next_time() {
    let observing = Settings { observe_period_ms: 2_000, ..settings() };
    let mut world = World::started(observing, RingModel::default());
    world.run_for(0);
    world.life.on(Event::Fired(Timer::Observe), world.now_ms);
    let change = Change::Verify { target: Active };
    world.life.apply(&change, &mut world.ring, world.now_ms);
    world.event(Event::Failed { change });
    assert_eq!(world.entry().state, Active);
    world.event(Event::Leave);
    assert_eq!(world.entry().state, Joining);
}
