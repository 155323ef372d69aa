//! Drives the machine: asks the upstream, merges listings, drops what it has dropped.
//!
//! One task owns the machine; questions and passes over a tenant run beside it and come back as
//! events. They end with that task. Bounds: one poll and [`LISTINGS_AT_ONCE`] listings under way,
//! a drop per tenant, each question with a deadline.
//!
//! [`LISTINGS_AT_ONCE`]: super::machine::LISTINGS_AT_ONCE

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::drops;
use super::listing::{Merge, Merged, head_start_ms};
use super::machine::{Action, Event, Machine, Poll, Reach};
use super::pace::Pace;
use super::status::{Counts, Explained, FollowStatus};
use super::tenant::{Asked, Jitter, Order, Outcome, Reason, Sight, Way};
use crate::clock::{Clock, Now};
use crate::ingester::Ingester;
use crate::ingester::tenants::{Tenant, Visit};
use crate::series::head::{Head, HeadRule};
use crate::sync::Ordering;
use crate::tenant::TenantId;
use crate::upstream::{AskError, Upstream};
use crate::wire::DecodeError;
use crate::wire::proto::cortex;

const ALL_USER_STATS: &str = "/cortex.Ingester/AllUserStats";
const METRICS: &str = "/cortex.Ingester/MetricsForLabelMatchersStream";
/// The tenant in whose name all tenants' numbers are asked: the one that Cortex itself uses.
const POLL_TENANT: &str = "1";
/// A number per tenant comes within milliseconds; beyond this the upstream is not well.
const POLL_DEADLINE: Duration = Duration::from_secs(10);
/// A million series come within ten seconds. A listing that takes this long would be followed by
/// the next one.
const LISTING_DEADLINE: Duration = Duration::from_secs(5 * 60);
/// Messages of a listing that are merged before other tasks get their turn: about a millisecond.
const MESSAGES_PER_TURN: u32 = 8;
/// After this long `/ready` stops waiting for tenants that cannot be loaded. Their limits still
/// count what the upstream said it had.
const LOADING_WAIT_MAX: Duration = Duration::from_secs(10 * 60);

/// Why a listing came to nothing.
#[derive(Debug, thiserror::Error)]
enum ListingError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("cannot read a listing")]
    Decode(#[from] DecodeError),
    #[error("a listing was not merged")]
    Lost(#[from] tokio::task::JoinError),
}

/// See the head of the file.
pub struct Follower {
    context: Context,
    machine: Machine,
    pace: Pace,
    told: Told,
}

/// What every task beside the machine needs.
#[derive(Clone)]
struct Context {
    ingester: Arc<Ingester>,
    upstream: Upstream,
    clock: Clock,
    counts: Arc<Counts>,
}

/// What has been logged, so that a failing loop logs its changes and not its tries.
#[derive(Default)]
struct Told {
    is_lost: bool,
    is_loaded: bool,
    waits_since: Option<Now>,
}

impl Follower {
    pub fn new(ingester: Arc<Ingester>, upstream: Upstream, clock: Clock, pace: Pace) -> Self {
        let counts = Arc::new(Counts::default());
        counts.note_reach(Reach::NotYet { failures: 0 });
        Self {
            context: Context { ingester, upstream, clock, counts },
            machine: Machine::new(pace),
            pace,
            told: Told::default(),
        }
    }

    pub fn status(&self) -> FollowStatus {
        let Context { ingester, counts, .. } = self.context.clone();
        FollowStatus { ingester, counts }
    }

    /// Follows until `stop`. The ingester takes pushes from the first answered poll on.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut work: JoinSet<Option<Event>> = JoinSet::new();
        let mut ticks = tokio::time::interval(self.pace.tick);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut stop = std::pin::pin!(stop);
        loop {
            // Each arm only waits: an event that is not taken now is taken in the next turn.
            let event = tokio::select! {
                () = &mut stop => return,
                Some(done) = work.join_next() => match done {
                    Ok(Some(event)) => event,
                    Ok(None) => continue,
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                _ = ticks.tick() => Event::Tick,
            };
            let is_poll = matches!(event, Event::Polled(_) | Event::PollFailed { .. });
            let now = self.context.clock.now();
            for action in self.machine.handle(event, now) {
                self.start(action, &mut work);
            }
            self.tell(is_poll, now);
        }
    }

    fn start(&self, action: Action, work: &mut JoinSet<Option<Event>>) {
        let context = self.context.clone();
        match action {
            Action::Poll => {
                work.spawn(async move { Some(context.poll().await) });
            }
            Action::Run => context.ingester.run(),
            Action::List(tenant, asked) => {
                work.spawn(async move { Some(context.list(tenant, asked).await) });
            }
            Action::Order(tenant, Order::Load { upstream }) => context.load(&tenant, upstream),
            Action::Order(tenant, Order::EndLoading) => {
                if let Some(tenant) = context.ingester.tenants.visit(&tenant) {
                    tenant.series.end_loading();
                }
            }
            Action::Order(tenant, Order::Drop { ways, at_least }) => {
                work.spawn_blocking(move || {
                    let way = context.drop_series(&tenant, ways, at_least);
                    Some(Event::Dropped { tenant, way })
                });
            }
            Action::Order(tenant, Order::Forget { since, whole }) => {
                // Nearly always there is nothing to do: no task for that.
                if context.ingester.tenants.get(&tenant).is_some() {
                    work.spawn_blocking(move || {
                        context.forget(&tenant, since, whole);
                        None
                    });
                }
            }
        }
    }

    /// Publishes what has changed, and logs it once.
    fn tell(&mut self, is_poll: bool, now: Now) {
        let counts = &self.context.counts;
        let reach = self.machine.reach();
        counts.note_reach(reach);
        let left = self.machine.tenants_loading();
        counts.tenants_loading.store(left as u64, Ordering::Relaxed);
        let is_lost = matches!(reach, Reach::Lost { .. });
        if is_lost != self.told.is_lost {
            self.told.is_lost = is_lost;
            if is_lost {
                tracing::warn!("the upstream does not tell its series; counts stay as they are");
            } else {
                tracing::info!("the upstream tells its series again");
            }
        }
        if reach == Reach::Reached && !self.told.is_loaded {
            let since = *self.told.waits_since.get_or_insert(now);
            let waited_ns = u128::try_from(now.steady_ns - since.steady_ns).unwrap_or(0);
            let is_loaded = !self.machine.is_loading();
            if is_loaded || waited_ns >= LOADING_WAIT_MAX.as_nanos() {
                self.told.is_loaded = true;
                self.context.ingester.note_counted();
                let series = self.context.ingester.totals.count().in_memory;
                if is_loaded {
                    tracing::info!(series, "the upstream's series are known");
                } else {
                    tracing::error!(
                        tenants = left,
                        "series of some tenants cannot be loaded; they count what the upstream had"
                    );
                }
            }
        }
        if is_poll {
            for tenant in self.context.ingester.tenants.all() {
                let figures = self.machine.figures(&tenant.id).unwrap_or_default();
                let series = i64::try_from(figures.upstream).unwrap_or(i64::MAX);
                tenant.upstream.series.store(series, Ordering::Relaxed);
                tenant.upstream.residue.store(figures.residue, Ordering::Relaxed);
                tenant.upstream.drift.store(figures.drift, Ordering::Relaxed);
            }
        }
    }
}

impl Context {
    async fn poll(&self) -> Event {
        let sent = self.clock.now();
        let mut known_before = HashMap::new();
        for tenant in self.ingester.tenants.all() {
            let counts = tenant.series.counts();
            let confirmed = counts.series.in_memory.saturating_sub(counts.pending);
            known_before.insert(tenant.id.clone(), confirmed);
        }
        let question = cortex::UserStatsRequest {};
        let asked = self.upstream.ask::<_, cortex::UsersStatsResponse>(
            ALL_USER_STATS,
            POLL_TENANT,
            &question,
            POLL_DEADLINE,
        );
        self.counts.polls.fetch_add(1, Ordering::Relaxed);
        match asked.await {
            Ok(answer) => Event::Polled(Poll { sent, sights: self.sights(&answer, &known_before) }),
            Err(error) => {
                self.counts.poll_failures.fetch_add(1, Ordering::Relaxed);
                // The change is told as a warning; here is why, for whoever looks closer.
                tracing::debug!(%error, "poll failed");
                Event::PollFailed { jitter: jitter() }
            }
        }
    }

    /// What both sides have, tenant by tenant.
    fn sights(
        &self,
        answer: &cortex::UsersStatsResponse,
        known_before: &HashMap<TenantId, u64>,
    ) -> Vec<(TenantId, Sight)> {
        let now = self.clock.now();
        let mut sights: HashMap<TenantId, Sight> = HashMap::new();
        for stats in &answer.stats {
            // An id that is none cannot have come through us.
            let Ok(tenant) = TenantId::parse(&stats.user_id) else {
                continue;
            };
            let upstream = stats.data.as_ref().map_or(0, |data| data.num_series);
            sights.insert(tenant, Sight { upstream, is_upstream: true, ..Sight::default() });
        }
        for tenant in self.ingester.tenants.all() {
            let sight = sights.entry(tenant.id.clone()).or_default();
            sight.known_before = known_before.get(&tenant.id).copied().unwrap_or(0);
            let counts = tenant.series.counts();
            sight.known_after = counts.series.in_memory;
            sight.pending = counts.pending;
            sight.labels_unknown = tenant.series.labels_unknown();
            let head = tenant.head.lock().expect("no panic under this lock");
            sight.cut_due_ms = head.due(now.unix_ms).map(|cut| cut.before_ms);
        }
        sights.into_iter().collect()
    }

    /// Makes room for a tenant whose series are upstream. No limit on tenants: they are there.
    fn load(&self, id: &TenantId, upstream: u64) {
        self.enter(id).series.begin_loading(upstream);
    }

    fn enter(&self, id: &TenantId) -> Visit {
        let visit = self.ingester.tenants.enter(id, 0, || self.ingester.make_tenant(id));
        visit.expect("without a limit none is exceeded")
    }

    async fn list(&self, id: TenantId, asked: Asked) -> Event {
        let began = self.clock.now();
        self.counts.note_listing(asked.reason);
        let outcome = match self.try_list(&id, asked, began).await {
            Ok(Merged { listed, is_short: true, .. }) => {
                self.counts.listing_failures.fetch_add(1, Ordering::Relaxed);
                tracing::info!(tenant = %id, listed, "a listing was too short to go by");
                Outcome::Short { listed }
            }
            Ok(Merged { listed, entered, removed, .. }) => {
                let took_ns = self.clock.now().steady_ns - began.steady_ns;
                let took_us = u64::try_from(took_ns / 1000).unwrap_or(0);
                self.counts.listing_us.store(took_us, Ordering::Relaxed);
                tracing::info!(
                    tenant = %id, listed, entered, removed, took_ms = took_us / 1000,
                    reason = asked.reason.label(), "series listed from the upstream"
                );
                Outcome::Merged { listed, entered }
            }
            Err(error) => {
                self.counts.listing_failures.fetch_add(1, Ordering::Relaxed);
                let error: &dyn std::error::Error = &error;
                tracing::warn!(tenant = %id, error, "cannot list series from the upstream");
                Outcome::Failed { jitter: jitter() }
            }
        };
        Event::Listed { tenant: id, outcome }
    }

    async fn try_list(
        &self,
        id: &TenantId,
        asked: Asked,
        began: Now,
    ) -> Result<Merged, ListingError> {
        let tenant = self.enter(id);
        let question = asked.range.question(HeadRule::default(), began);
        let mut merge = Merge::new(began);
        let mut answers =
            self.upstream.ask_stream(METRICS, id.as_str(), &question, LISTING_DEADLINE).await?;
        let mut messages = 0_u32;
        while let Some(message) = answers.next().await? {
            merge.take(&self.ingester, &tenant, &message)?;
            messages = messages.wrapping_add(1);
            if messages.is_multiple_of(MESSAGES_PER_TURN) {
                tokio::task::yield_now().await;
            }
        }
        let context = self.clone();
        let merged = tokio::task::spawn_blocking(move || {
            let merged = merge.finish(&tenant, asked.sweep_from);
            if merged.entered + merged.removed > 0 {
                context.ingester.note_break(&tenant, context.clock.now());
            }
            if asked.reason == Reason::Load && merged.listed > 0 {
                note_head_start(&tenant, began);
            }
            merged
        });
        Ok(merged.await?)
    }

    /// Takes the way that explains most and that counting supports.
    fn drop_series(&self, id: &TenantId, ways: [Option<Way>; 2], at_least: u64) -> Option<Way> {
        let tenant = self.ingester.tenants.visit(id)?;
        let way = drops::supported(&tenant.series, ways, at_least);
        let explained = Explained::by(way);
        self.counts.drops[explained as usize].fetch_add(1, Ordering::Relaxed);
        let way = way?;
        let removed = drops::take(&tenant.series, way);
        self.note_drop(&tenant, way);
        tracing::info!(
            tenant = %id, removed, explained = explained.label(), "the upstream dropped series"
        );
        Some(way)
    }

    fn forget(&self, id: &TenantId, since: Now, whole: bool) {
        let Some(tenant) = self.ingester.tenants.get(id) else {
            return;
        };
        let way = Way::Emptied { since };
        let removed = drops::take(&tenant.series, way);
        if removed > 0 {
            self.note_drop(&tenant, way);
            tracing::info!(tenant = %id, removed, "the upstream has no series of the tenant");
        }
        if whole {
            self.ingester.tenants.remove_if(&tenant, |tenant| {
                let is_empty = tenant.series.counts().series.in_memory == 0;
                is_empty && tenant.pushed_at_ns() < since.steady_ns
            });
        }
    }

    /// The head that holds the tenant's series has dropped some.
    fn note_drop(&self, tenant: &Tenant, way: Way) {
        self.ingester.note_break(tenant, self.clock.now());
        let is_empty = tenant.series.counts().series.in_memory == 0;
        let mut head = tenant.head.lock().expect("no panic under this lock");
        match way {
            _ if is_empty => *head = Head::new(HeadRule::default()),
            Way::Cut { before_ms, .. } => head.cut(before_ms, Some(before_ms)),
            Way::Emptied { since } => head.cut(since.unix_ms, Some(since.unix_ms)),
        }
    }
}

/// The upstream's head is older than our first push: it begins where its rule says.
fn note_head_start(tenant: &Tenant, now: Now) {
    let start_ms = head_start_ms(HeadRule::default(), now.unix_ms);
    let mut head = tenant.head.lock().expect("no panic under this lock");
    head.appended(start_ms, start_ms, now.unix_ms);
}

fn jitter() -> Jitter {
    Jitter(rand::random_range(0..1000))
}
