//! A world of one upstream and our counts in virtual time, for the machine to be run in.
//!
//! The upstream behaves as Cortex does as far as the machine can see: counts per tenant with
//! series without samples among them, listings that answer late, empty or not at all, cuts,
//! flushes, tenants that go, restarts. Our side is the real store of series.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::Now;
use crate::ingester::following::drops;
use crate::ingester::following::listing::Range;
use crate::ingester::following::machine::{Action, Event, LISTINGS_AT_ONCE, Machine, Poll};
use crate::ingester::following::pace::Pace;
use crate::ingester::following::tenant::{
    Asked, Figures, Jitter, Order, Outcome, Reason, Sight, Way,
};
use crate::keys::RingKey;
use crate::labels::Identity;
use crate::series::head::{Head, HeadRule};
use crate::series::{Fate, Item, Kind, NewSeries, Options, Rules, SeriesStore, Tick, Totals, View};
use crate::tenant::TenantId;

pub(super) const SECOND_NS: i64 = 1_000_000_000;
pub(super) const HOUR_MS: i64 = 60 * 60 * 1000;
/// Wall clock at the steady clock's zero: five minutes after a boundary of blocks.
pub(super) const EPOCH_MS: i64 = 1000 * 2 * HOUR_MS + 5 * 60 * 1000;

/// A tenant as the upstream has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Up {
    /// Newest sample of each series.
    pub(super) series: BTreeMap<u64, i64>,
    /// Series without samples: counted and never listed.
    pub(super) bare: u64,
    /// Answers listings with nothing although it has series.
    pub(super) is_mute: bool,
    /// Takes a listing's range by the letter, so that one before all data is empty.
    pub(super) is_literal: bool,
    /// How many series a listing names at most before it ends as if that were all.
    pub(super) cut_off_at: Option<usize>,
}

impl Up {
    pub(super) fn count(&self) -> u64 {
        self.series.len() as u64 + self.bare
    }
}

pub(super) struct Ours {
    pub(super) series: SeriesStore,
    pub(super) head: Head,
}

enum Under {
    Poll {
        sent: Now,
        known_before: BTreeMap<TenantId, u64>,
        sampled: Option<BTreeMap<TenantId, u64>>,
    },
    Listing {
        tenant: TenantId,
        asked: Asked,
        began: Now,
        named: Option<Vec<u64>>,
    },
}

struct Job {
    /// When the upstream reads its state, and when the answer is here.
    reads_ns: i64,
    ends_ns: i64,
    under: Under,
}

pub(super) struct World {
    pub(super) machine: Machine,
    pub(super) now_ns: i64,
    pub(super) upstream: BTreeMap<TenantId, Up>,
    pub(super) is_down: bool,
    pub(super) ours: BTreeMap<TenantId, Ours>,
    pub(super) is_running: bool,
    /// Every listing that was begun: when, of whom, why.
    pub(super) listings: Vec<(i64, TenantId, Reason)>,
    pub(super) polls: Vec<i64>,
    jobs: Vec<Job>,
    totals: Arc<Totals>,
    /// How long the upstream takes for a poll and for a listing.
    pub(super) poll_takes_ns: i64,
    pub(super) listing_takes_ns: i64,
}

pub(super) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).expect("a tenant id")
}

fn identity(n: u64) -> Identity {
    let mixed = u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Identity(mixed ^ (mixed >> 61))
}

const NEW: NewSeries<'static> = NewSeries {
    ring_key: RingKey(0),
    metric: b"",
    metric_exempt: false,
    label_sets: &[],
    label_sets_generation: 0,
};

impl World {
    pub(super) fn new() -> Self {
        Self {
            machine: Machine::new(Pace::default()),
            now_ns: SECOND_NS,
            upstream: BTreeMap::new(),
            is_down: false,
            ours: BTreeMap::new(),
            is_running: false,
            listings: Vec::new(),
            polls: Vec::new(),
            jobs: Vec::new(),
            totals: Arc::new(Totals::new()),
            poll_takes_ns: SECOND_NS / 100,
            listing_takes_ns: SECOND_NS,
        }
    }

    pub(super) fn now(&self) -> Now {
        Now { unix_ms: EPOCH_MS + self.now_ns / 1_000_000, steady_ns: self.now_ns }
    }

    fn tick(&self) -> Tick {
        Tick::new(self.now().steady_s())
    }

    pub(super) fn up(&mut self, name: &str) -> &mut Up {
        self.upstream.entry(tenant(name)).or_default()
    }

    /// A push through us of one sample, now, for each series.
    pub(super) fn push(&mut self, name: &str, series: impl IntoIterator<Item = u64>) {
        if self.is_down || !self.is_running {
            return;
        }
        let (id, now, tick) = (tenant(name), self.now(), self.tick());
        let ours = Self::enter(&mut self.ours, &self.totals, &id);
        let up = self.upstream.entry(id).or_default();
        for n in series {
            let identity = identity(n);
            let newest_ms = now.unix_ms;
            let item = Item { identity, first_ms: newest_ms, newest_ms, kind: Kind::Float };
            ours.series.create(&item, &NEW, &Rules::default(), tick).expect("no limit");
            ours.head.appended(newest_ms, newest_ms, newest_ms);
            up.series.insert(n, newest_ms);
        }
    }

    /// A push that does not come through us.
    pub(super) fn push_past_us(&mut self, name: &str, series: impl IntoIterator<Item = u64>) {
        let now_ms = self.now().unix_ms;
        self.up(name).series.extend(series.into_iter().map(|n| (n, now_ms)));
    }

    /// A push whose outcome nobody has told us, and which has come to nothing.
    pub(super) fn push_undecided(&mut self, name: &str, series: impl IntoIterator<Item = u64>) {
        let (id, now, tick) = (tenant(name), self.now(), self.tick());
        let ours = Self::enter(&mut self.ours, &self.totals, &id);
        let rules = Rules { pending: true, ..Rules::default() };
        for n in series {
            let identity = identity(n);
            let newest_ms = now.unix_ms;
            let item = Item { identity, first_ms: newest_ms, newest_ms, kind: Kind::Float };
            ours.series.create(&item, &NEW, &rules, tick).expect("no limit");
            ours.series.abandon(&[identity]);
        }
    }

    /// The upstream cuts a head; series without samples go too.
    pub(super) fn cut(&mut self, name: &str, before_ms: i64) {
        let up = self.up(name);
        up.series.retain(|_, newest_ms| *newest_ms >= before_ms);
        up.bare = 0;
    }

    fn enter<'a>(
        ours: &'a mut BTreeMap<TenantId, Ours>,
        totals: &Arc<Totals>,
        id: &TenantId,
    ) -> &'a mut Ours {
        ours.entry(id.clone()).or_insert_with(|| Ours {
            series: SeriesStore::new(Options::default(), View::unknown(), Arc::clone(totals)),
            head: Head::new(HeadRule::default()),
        })
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.ours.get(&tenant(name)).map_or(0, |ours| ours.series.counts().series.in_memory)
    }

    pub(super) fn figures(&self, name: &str) -> Figures {
        self.machine.figures(&tenant(name)).unwrap_or_default()
    }

    /// Ours and upstream's series of a tenant are the same.
    pub(super) fn agrees(&self, id: &TenantId) -> bool {
        let empty = Up::default();
        let up = self.upstream.get(id).unwrap_or(&empty);
        let expected: BTreeSet<_> = up.series.keys().map(|n| identity(*n)).collect();
        let mut ours = BTreeSet::new();
        if let Some(known) = self.ours.get(id) {
            known.series.survey(|candidate| {
                ours.insert(candidate.identity);
            });
        }
        ours == expected
    }

    pub(super) fn listings_of(&self, name: &str) -> usize {
        self.listings.iter().filter(|(_, id, _)| *id == tenant(name)).count()
    }

    /// Lets a second pass at a time.
    pub(super) fn pass(&mut self, seconds: i64) {
        let until_ns = self.now_ns + seconds * SECOND_NS;
        while self.now_ns < until_ns {
            self.run_jobs();
            self.handle(Event::Tick);
            self.run_jobs();
            self.now_ns += SECOND_NS;
        }
    }

    /// Passes time until `done`, for as many seconds at most.
    pub(super) fn pass_until(&mut self, seconds: i64, mut done: impl FnMut(&Self) -> bool) -> bool {
        for _ in 0..seconds {
            if done(self) {
                return true;
            }
            self.pass(1);
        }
        done(self)
    }

    /// Passes time until no listing is under way and what the last one left has been measured.
    pub(super) fn settle(&mut self) {
        let is_quiet =
            |world: &Self| !world.jobs.iter().any(|job| matches!(job.under, Under::Listing { .. }));
        while !self.pass_until(1000, is_quiet) || !self.is_quiet_for(50, is_quiet) {}
    }

    fn is_quiet_for(&mut self, seconds: i64, is_quiet: impl Fn(&Self) -> bool) -> bool {
        (0..seconds).all(|_| {
            self.pass(1);
            is_quiet(self)
        })
    }

    fn run_jobs(&mut self) {
        for at in 0..self.jobs.len() {
            if self.jobs[at].reads_ns <= self.now_ns {
                self.read(at);
            }
        }
        while let Some(at) = self.jobs.iter().position(|job| job.ends_ns <= self.now_ns) {
            let job = self.jobs.swap_remove(at);
            let event = self.end(job);
            self.handle(event);
        }
    }

    /// The upstream reads what it will answer.
    fn read(&mut self, at: usize) {
        match &mut self.jobs[at].under {
            Under::Poll { sampled, .. } => {
                if sampled.is_none() && !self.is_down {
                    let counts = self.upstream.iter().map(|(id, up)| (id.clone(), up.count()));
                    *sampled = Some(counts.collect());
                }
            }
            Under::Listing { tenant, asked, named, .. } => {
                if named.is_none() && !self.is_down {
                    let empty = Up::default();
                    let up = self.upstream.get(tenant).unwrap_or(&empty);
                    let is_empty = up.is_mute || (up.is_literal && asked.range == Range::Head);
                    let most = up.cut_off_at.unwrap_or(usize::MAX);
                    let most = if is_empty { 0 } else { most };
                    *named = Some(up.series.keys().copied().take(most).collect());
                }
            }
        }
    }

    fn end(&mut self, job: Job) -> Event {
        match job.under {
            Under::Poll { sent, known_before, sampled } => match sampled {
                Some(counts) if !self.is_down => {
                    Event::Polled(Poll { sent, sights: self.sights(&counts, &known_before) })
                }
                _ => Event::PollFailed { jitter: Jitter(500) },
            },
            Under::Listing { tenant, asked, began, named } => {
                let outcome = match named {
                    Some(named) if !self.is_down => self.merge(&tenant, asked, began, &named),
                    _ => Outcome::Failed { jitter: Jitter(500) },
                };
                Event::Listed { tenant, outcome }
            }
        }
    }

    fn sights(
        &self,
        counts: &BTreeMap<TenantId, u64>,
        known_before: &BTreeMap<TenantId, u64>,
    ) -> Vec<(TenantId, Sight)> {
        let ids: BTreeSet<_> = counts.keys().chain(self.ours.keys()).collect();
        let sight = |id: &TenantId| {
            let ours = self.ours.get(id);
            let due = ours.and_then(|ours| ours.head.due(self.now().unix_ms));
            Sight {
                upstream: counts.get(id).copied().unwrap_or(0),
                is_upstream: counts.contains_key(id),
                known_before: known_before.get(id).copied().unwrap_or(0),
                known_after: ours.map_or(0, |ours| ours.series.counts().series.in_memory),
                pending: ours.map_or(0, |ours| ours.series.counts().pending),
                cut_due_ms: due.map(|cut| cut.before_ms),
                labels_unknown: false,
            }
        };
        ids.into_iter().map(|id| (id.clone(), sight(id))).collect()
    }

    fn merge(&mut self, id: &TenantId, asked: Asked, began: Now, named: &[u64]) -> Outcome {
        let ours = Self::enter(&mut self.ours, &self.totals, id);
        let mut entered = 0;
        for n in named {
            entered += u64::from(ours.series.restore(identity(*n), Kind::Float, None, &NEW));
        }
        let listed = named.len() as u64;
        if listed < asked.sweep_from {
            return Outcome::Short { listed };
        }
        let marked: BTreeSet<_> = named.iter().map(|n| identity(*n)).collect();
        let began = Tick::new(began.steady_s());
        ours.series.purge_where(
            |candidate| match candidate.touched >= began || marked.contains(&candidate.identity) {
                true => Fate::Keep,
                false => Fate::Drop,
            },
            |_| {},
        );
        Outcome::Merged { listed, entered }
    }

    fn handle(&mut self, event: Event) {
        let actions = self.machine.handle(event, self.now());
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        let now = self.now();
        match action {
            Action::Run => self.is_running = true,
            Action::Poll => {
                assert!(
                    !self.jobs.iter().any(|job| matches!(job.under, Under::Poll { .. })),
                    "one poll at a time"
                );
                self.polls.push(self.now_ns);
                let known_before = self.ours.iter().map(|(id, ours)| {
                    let counts = ours.series.counts();
                    (id.clone(), counts.series.in_memory - counts.pending)
                });
                let under =
                    Under::Poll { sent: now, known_before: known_before.collect(), sampled: None };
                self.begin(under, self.poll_takes_ns);
            }
            Action::List(tenant, asked) => {
                let listing = self.jobs.iter().filter_map(|job| match &job.under {
                    Under::Listing { tenant, .. } => Some(tenant),
                    Under::Poll { .. } => None,
                });
                let listing: Vec<_> = listing.collect();
                assert!(listing.len() < LISTINGS_AT_ONCE, "more listings than allowed");
                assert!(!listing.contains(&&tenant), "two listings of {tenant:?} at once");
                self.listings.push((self.now_ns, tenant.clone(), asked.reason));
                let under = Under::Listing { tenant, asked, began: now, named: None };
                self.begin(under, self.listing_takes_ns);
            }
            Action::Order(id, order) => self.obey(&id, order),
        }
    }

    fn begin(&mut self, under: Under, takes_ns: i64) {
        let (reads_ns, ends_ns) = (self.now_ns + takes_ns / 2, self.now_ns + takes_ns);
        self.jobs.push(Job { reads_ns, ends_ns, under });
    }

    fn obey(&mut self, id: &TenantId, order: Order) {
        let ours = Self::enter(&mut self.ours, &self.totals, id);
        match order {
            Order::Load { upstream } => ours.series.begin_loading(upstream),
            Order::EndLoading => ours.series.end_loading(),
            Order::Forget { since, whole } => {
                drops::take(&ours.series, Way::Emptied { since });
                if ours.series.counts().series.in_memory == 0 {
                    ours.head = Head::new(HeadRule::default());
                    if whole {
                        self.ours.remove(id);
                    }
                }
            }
            Order::Drop { ways, at_least } => {
                let way = drops::supported(&ours.series, ways, at_least);
                if let Some(way) = way {
                    drops::take(&ours.series, way);
                    match way {
                        Way::Cut { before_ms, .. } => ours.head.cut(before_ms, Some(before_ms)),
                        Way::Emptied { since } => {
                            ours.head.cut(since.unix_ms, Some(since.unix_ms));
                        }
                    }
                }
                self.handle(Event::Dropped { tenant: id.clone(), way });
            }
        }
    }
}
