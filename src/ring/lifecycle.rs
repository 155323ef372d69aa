//! Our life in the ring as a state machine: an event goes in, actions come out, no I/O.
//!
//! ```text
//! Start ─► Registering ─► Waiting ─► Joining ─► Observing ⇄ Verifying ─► Running
//!               │  entry found that serves        (observe period only)     │
//!               └───────────────────────────────────────────────────────────┤ Leave
//!                                        Over ◄─ Unregistering ◄─ Sleeping ◄─ Leaving
//! ```
//!
//! Phases are ours; states (`PENDING` …) are what the ring shows. What the ring shows is taken
//! over into the machine only once the store has confirmed it, except for a change of state:
//! that holds here at once and each heartbeat carries it until it has arrived.
//!
//! The driver carries out one event's actions in order and reports each write's outcome before
//! the next event; so no outcome is older than what the machine knows.
//!
//! Invariants: an event asks for one write at most; after `Unregister` was asked for, no write
//! that could bring the entry back is; readiness never goes back.

mod readiness;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::ring::lifecycle::readiness::Readiness;
use crate::ring::merge::{self, Change, Member};
use crate::ring::model::{InstanceState, RingModel, Token};

pub use readiness::NotReady;

/// Pause before a failed write is tried again; jittered by half, so that members which failed
/// together do not meet again.
pub const RETRY_MS: u64 = 1000;

/// Pause between two looks at the ring while we are not ready.
pub const CHECK_MS: u64 = 1000;

/// Writes of `Unregister` before we go without; our entry then stays, LEAVING, to be forgotten.
pub const UNREGISTER_ATTEMPTS_MAX: u32 = 3;

/// What one life is lived by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub id: String,
    pub addr: String,
    pub zone: String,
    pub num_tokens: usize,
    /// 0: no heartbeats.
    pub heartbeat_period_ms: u64,
    /// 0: no heartbeat is ever too old.
    pub heartbeat_timeout_ms: u64,
    /// 0: tokens are not observed.
    pub observe_period_ms: u64,
    pub join_after_ms: u64,
    pub min_ready_duration_ms: u64,
    pub final_sleep_ms: u64,
    pub unregister_on_shutdown: bool,
    pub readiness_check_ring_health: bool,
    /// Silence after which our heartbeats take another member out; 0: never.
    pub auto_forget_delay_ms: u64,
}

/// What an earlier life left for this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heritage {
    pub tokens: Vec<Token>,
    /// ACTIVE or READONLY.
    pub resume_state: InstanceState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Start,
    Fired(Timer),
    /// A write that the actions asked for is in the store.
    Written {
        change: Change,
        applied: Applied,
    },
    /// It is not, or nobody knows.
    Failed {
        change: Change,
    },
    /// What a look at the ring said about readiness.
    Checked(Result<(), NotReady>),
    /// Go out of service, stay in the ring.
    Leave,
    /// Go out of service and out of the ring.
    Stop,
    /// Nobody is there to see us leave, so the final sleep is for nothing.
    SkipFinalSleep,
}

/// One deadline of each kind; scheduling it again moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timer {
    Heartbeat,
    Join,
    Observe,
    Retry,
    Check,
    FinalSleep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Apply the change by compare-and-swap and report `Written` or `Failed`.
    Write(Change),
    Schedule {
        timer: Timer,
        after_ms: u64,
    },
    /// Read the ring and report `Checked`.
    Check,
    /// Keep this for the next life.
    Save(Heritage),
    BecomeReady,
    /// Nothing follows. Not clean: our entry should be out of the ring and is not.
    Finish {
        is_clean: bool,
    },
}

/// What a change made of the ring: ourselves as it shows us, and whether we may be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub member: Member,
    pub ring_ready: Result<(), NotReady>,
    /// Members that were silent for too long and are out now.
    pub forgotten: Vec<String>,
    /// Where another process lives under our id.
    pub rival: Option<String>,
}

/// A change of state that no operator may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("changing instance state from {} -> {} is disallowed", from.name(), to.name())]
pub struct TransitionError {
    pub from: InstanceState,
    pub to: InstanceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    New,
    Registering,
    Waiting,
    Joining,
    Observing,
    Verifying,
    Running,
    Leaving,
    Sleeping,
    Unregistering { failures: u32 },
    Over,
}

pub struct Lifecycle {
    settings: Settings,
    phase: Phase,
    member: Member,
    saved: Heritage,
    readiness: Readiness,
    rng: SmallRng,
}

impl Lifecycle {
    /// `seed` feeds the choice of tokens and the jitter of timers, nothing secret.
    pub fn new(settings: Settings, heritage: Option<Heritage>, seed: u64) -> Self {
        let heritage = heritage
            .unwrap_or(Heritage { tokens: Vec::new(), resume_state: InstanceState::Active });
        let member = Member {
            id: settings.id.clone(),
            addr: settings.addr.clone(),
            zone: settings.zone.clone(),
            num_tokens: settings.num_tokens,
            state: InstanceState::Pending,
            tokens: heritage.tokens.clone(),
            registered_timestamp_s: 0,
            resume_state: heritage.resume_state,
        };
        Self {
            settings,
            phase: Phase::New,
            member,
            saved: heritage,
            readiness: Readiness::Not(NotReady::NoTokens),
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// The machine's one step.
    pub fn on(&mut self, event: Event, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Start => {
                self.phase = Phase::Registering;
                actions.push(Action::Write(Change::Register));
            }
            Event::Fired(timer) => self.on_fired(timer, &mut actions),
            Event::Written { change, applied } => {
                self.on_written(&change, applied, now_ms, &mut actions);
            }
            Event::Failed { change } => self.on_failed(&change, &mut actions),
            Event::Checked(outcome) => self.on_checked(outcome, now_ms, &mut actions),
            Event::Leave => self.leave(&mut actions),
            Event::Stop => {
                self.leave(&mut actions);
                if self.phase == Phase::Leaving {
                    self.phase = Phase::Sleeping;
                    let after_ms = self.settings.final_sleep_ms;
                    actions.push(Action::Schedule { timer: Timer::FinalSleep, after_ms });
                }
            }
            Event::SkipFinalSleep => {
                self.settings.final_sleep_ms = 0;
                if self.phase == Phase::Sleeping {
                    actions.push(Action::Schedule { timer: Timer::FinalSleep, after_ms: 0 });
                }
            }
        }
        self.save_if_changed(&mut actions);
        actions
    }

    /// An operator's wish: READONLY or ACTIVE, from each other or while we join.
    pub fn request_state(
        &mut self,
        to: InstanceState,
        now_ms: i64,
    ) -> Result<Vec<Action>, TransitionError> {
        let from = self.member.state;
        let mut actions = Vec::new();
        if from == to {
            return Ok(actions);
        }
        let is_mode = matches!(to, InstanceState::Active | InstanceState::ReadOnly);
        match self.phase {
            Phase::Running if is_mode => {}
            Phase::Waiting | Phase::Joining | Phase::Observing | Phase::Verifying if is_mode => {
                // A mode without tokens would mean nothing: joining goes on, and ends there.
                self.member.resume_state = to;
                self.save_if_changed(&mut actions);
                return Ok(actions);
            }
            _ => return Err(TransitionError { from, to }),
        }
        // Back in service counts as a new member: who looks back over a time window must not
        // think that we took writes all along.
        if to == InstanceState::Active {
            self.member.registered_timestamp_s = now_ms.div_euclid(1000);
        }
        self.member.state = to;
        self.member.resume_state = to;
        actions.push(Action::Write(Change::Refresh));
        self.save_if_changed(&mut actions);
        Ok(actions)
    }

    /// The step inside a compare-and-swap; `ring` is what the store holds now.
    pub fn apply(&mut self, change: &Change, ring: &mut RingModel, now_ms: i64) -> Applied {
        let now_s = now_ms.div_euclid(1000);
        let rival = match change {
            Change::Refresh | Change::Join { .. } | Change::Verify { .. } => {
                merge::rival(ring, &self.member, now_ms, self.settings.heartbeat_timeout_ms)
            }
            Change::Register | Change::Unregister | Change::Forget { .. } => None,
        };
        let member = merge::apply(change, &self.member, ring, now_s, &mut self.rng);
        let forgotten = match change {
            Change::Refresh => merge::forget_silent(
                ring,
                &self.member.id,
                now_ms,
                self.settings.auto_forget_delay_ms,
            ),
            _ => Vec::new(),
        };
        let ring_ready = readiness::check(&self.settings, &member.tokens, ring, now_ms);
        Applied { member, ring_ready, forgotten, rival }
    }

    /// What `ring` says about our readiness.
    pub fn check_ring(&self, ring: &RingModel, now_ms: i64) -> Result<(), NotReady> {
        readiness::check(&self.settings, &self.member.tokens, ring, now_ms)
    }

    pub fn member(&self) -> &Member {
        &self.member
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Ok once, and from then on for good.
    pub fn readiness(&self) -> Result<(), NotReady> {
        self.readiness.outcome(self.settings.min_ready_duration_ms)
    }

    fn on_fired(&mut self, timer: Timer, actions: &mut Vec<Action>) {
        match (timer, self.phase) {
            (_, Phase::New | Phase::Over) => {}
            // Once we take our entry out, a heartbeat would put it back.
            (Timer::Heartbeat, Phase::Unregistering { .. }) => {}
            (Timer::Heartbeat, _) => {
                // First the next deadline, counted from this one: a slow store delays
                // heartbeats, it does not thin them out.
                let after_ms = self.settings.heartbeat_period_ms;
                actions.push(Action::Schedule { timer: Timer::Heartbeat, after_ms });
                // While a step is unfinished it may have arrived without our knowing; a plain
                // heartbeat would take it back.
                actions.extend(self.unfinished().map(Action::Write));
            }
            (Timer::Join, Phase::Waiting) => {
                self.phase = Phase::Joining;
                actions.push(Action::Write(self.join()));
            }
            (Timer::Observe, Phase::Observing) => {
                self.phase = Phase::Verifying;
                actions.push(Action::Write(self.verify()));
            }
            (Timer::Retry, _) => actions.extend(self.unfinished().map(Action::Write)),
            (Timer::Check, _) if self.readiness != Readiness::Ready => actions.push(Action::Check),
            (Timer::FinalSleep, Phase::Sleeping) if self.settings.unregister_on_shutdown => {
                self.phase = Phase::Unregistering { failures: 0 };
                actions.push(Action::Write(Change::Unregister));
            }
            (Timer::FinalSleep, Phase::Sleeping) => self.finish(true, actions),
            (Timer::Join | Timer::Observe | Timer::Check | Timer::FinalSleep, _) => {}
        }
    }

    fn on_written(
        &mut self,
        change: &Change,
        applied: Applied,
        now_ms: i64,
        actions: &mut Vec<Action>,
    ) {
        if let Change::Forget { .. } = change {
            return;
        }
        if let (Change::Unregister, Phase::Unregistering { .. }) = (change, self.phase) {
            self.finish(true, actions);
            return;
        }
        self.take_over(applied.member);
        match (change, self.phase) {
            (Change::Register, Phase::Registering) => self.on_registered(actions),
            (Change::Join { .. }, Phase::Joining) | (Change::Verify { .. }, Phase::Verifying) => {
                self.observe_or_run(actions);
            }
            _ => {}
        }
        self.judge(applied.ring_ready, now_ms, actions);
    }

    fn on_registered(&mut self, actions: &mut Vec<Action>) {
        let period_ms = self.settings.heartbeat_period_ms;
        if period_ms > 0 {
            // Members that start together must not swap together ever after.
            let after_ms = jittered(period_ms, &mut self.rng);
            actions.push(Action::Schedule { timer: Timer::Heartbeat, after_ms });
        }
        actions.push(Action::Schedule { timer: Timer::Check, after_ms: CHECK_MS });
        if self.member.state != InstanceState::Pending {
            self.phase = Phase::Running;
            return;
        }
        self.phase = Phase::Waiting;
        let after_ms = self.settings.join_after_ms;
        actions.push(Action::Schedule { timer: Timer::Join, after_ms });
    }

    fn observe_or_run(&mut self, actions: &mut Vec<Action>) {
        if self.member.state != InstanceState::Joining {
            self.phase = Phase::Running;
            return;
        }
        self.phase = Phase::Observing;
        let after_ms = self.settings.observe_period_ms;
        actions.push(Action::Schedule { timer: Timer::Observe, after_ms });
    }

    fn on_failed(&mut self, change: &Change, actions: &mut Vec<Action>) {
        match (change, self.phase) {
            // Whoever asked hears of it; nothing of ours hangs on it.
            (Change::Forget { .. }, _) | (_, Phase::Over) => return,
            (Change::Unregister, Phase::Unregistering { failures }) => {
                let failures = failures + 1;
                if failures >= UNREGISTER_ATTEMPTS_MAX {
                    self.finish(false, actions);
                    return;
                }
                self.phase = Phase::Unregistering { failures };
            }
            _ => {}
        }
        let after_ms = jittered(RETRY_MS, &mut self.rng);
        actions.push(Action::Schedule { timer: Timer::Retry, after_ms });
    }

    fn on_checked(
        &mut self,
        outcome: Result<(), NotReady>,
        now_ms: i64,
        actions: &mut Vec<Action>,
    ) {
        self.judge(outcome, now_ms, actions);
        if self.readiness == Readiness::Ready {
            return;
        }
        let left_ms = self.readiness.left_ms(now_ms, self.settings.min_ready_duration_ms);
        let after_ms = left_ms.clamp(1, CHECK_MS);
        actions.push(Action::Schedule { timer: Timer::Check, after_ms });
    }

    fn leave(&mut self, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::New => self.finish(true, actions),
            Phase::Leaving | Phase::Sleeping | Phase::Unregistering { .. } | Phase::Over => {}
            phase => {
                self.phase = Phase::Leaving;
                // A step that failed may have put us into service without our knowing. Then
                // joining without observing ends as service does, while tokens that were still
                // being observed go back to JOINING: the next life has to observe them again.
                let may_serve = self.member.state == InstanceState::Active
                    || (phase == Phase::Joining && self.settings.observe_period_ms == 0);
                // READONLY takes no writes already, and readers extend their shards over it but
                // not over LEAVING. Before we served, there is nothing to leave.
                if may_serve {
                    self.member.state = InstanceState::Leaving;
                }
                if may_serve || phase == Phase::Verifying {
                    actions.push(Action::Write(Change::Refresh));
                }
            }
        }
    }

    fn finish(&mut self, is_clean: bool, actions: &mut Vec<Action>) {
        self.phase = Phase::Over;
        actions.push(Action::Finish { is_clean });
    }

    /// The write that the phase waits for, or a heartbeat where it waits for none.
    fn unfinished(&self) -> Option<Change> {
        match self.phase {
            Phase::New | Phase::Over => None,
            Phase::Registering => Some(Change::Register),
            Phase::Joining => Some(self.join()),
            Phase::Verifying => Some(self.verify()),
            Phase::Waiting | Phase::Observing | Phase::Running => Some(Change::Refresh),
            // Who goes before having joined keeps nothing alive, and may not even be in there.
            Phase::Leaving | Phase::Sleeping if self.member.state == InstanceState::Pending => None,
            Phase::Leaving | Phase::Sleeping => Some(Change::Refresh),
            Phase::Unregistering { .. } => Some(Change::Unregister),
        }
    }

    fn join(&self) -> Change {
        let target = match self.settings.observe_period_ms {
            0 => self.member.resume_state,
            _ => InstanceState::Joining,
        };
        Change::Join { target }
    }

    fn verify(&self) -> Change {
        Change::Verify { target: self.member.resume_state }
    }

    fn take_over(&mut self, mut shown: Member) {
        if matches!(shown.state, InstanceState::Active | InstanceState::ReadOnly) {
            shown.resume_state = shown.state;
        }
        self.member = shown;
    }

    fn judge(&mut self, outcome: Result<(), NotReady>, now_ms: i64, actions: &mut Vec<Action>) {
        if self.readiness.judge(outcome, now_ms, self.settings.min_ready_duration_ms) {
            actions.push(Action::BecomeReady);
        }
    }

    fn save_if_changed(&mut self, actions: &mut Vec<Action>) {
        let Member { tokens, resume_state, .. } = &self.member;
        if self.saved.tokens == *tokens && self.saved.resume_state == *resume_state {
            return;
        }
        self.saved = Heritage { tokens: tokens.clone(), resume_state: *resume_state };
        actions.push(Action::Save(self.saved.clone()));
    }
}

/// Somewhere in the later half of `period_ms`.
fn jittered(period_ms: u64, rng: &mut SmallRng) -> u64 {
    period_ms - rng.random_range(0..=period_ms / 2)
}

#[cfg(test)]
mod tests;
