//! All tenants upstream, as a machine without I/O: events in, actions out, time a parameter.
//!
//! It decides when to poll, who is listed next, and when everything that was there at the start
//! is known. What to do about one tenant is [`TenantWatch`]'s.
//!
//! Invariants: one poll at a time; at most [`LISTINGS_AT_ONCE`] listings, never two of one tenant;
//! a tenant that is being listed or dropped from is not judged.

use std::collections::{HashMap, VecDeque};

use super::pace::{Pace, backoff, nanos};
use super::tenant::{Asked, Figures, Jitter, Order, Outcome, Sight, TenantWatch, Way};
use crate::clock::Now;
use crate::tenant::TenantId;

/// Listings under way at once. Each keeps a core of the upstream busy that has pushes to serve,
/// and a second one hides the first one's waiting.
pub const LISTINGS_AT_ONCE: usize = 2;

/// What has happened.
#[derive(Debug)]
pub enum Event {
    Tick,
    Polled(Poll),
    PollFailed { jitter: Jitter },
    Dropped { tenant: TenantId, way: Option<Way> },
    Listed { tenant: TenantId, outcome: Outcome },
}

/// An answered poll.
#[derive(Debug)]
pub struct Poll {
    pub sent: Now,
    /// Every tenant that the upstream or we have.
    pub sights: Vec<(TenantId, Sight)>,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Poll,
    /// The first poll is judged: pushes may be taken.
    Run,
    Order(TenantId, Order),
    List(TenantId, Asked),
}

/// Whether the upstream answers polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Never since we started.
    NotYet {
        failures: u32,
    },
    Reached,
    Lost {
        failures: u32,
    },
}

/// See the head of the file.
pub struct Machine {
    pace: Pace,
    tenants: HashMap<TenantId, Followed>,
    /// Who wants a listing, in the order of asking; those that are being loaded go first.
    queue: VecDeque<TenantId>,
    listings: usize,
    loading: usize,
    reach: Reach,
    polling: bool,
    poll_due_ns: i64,
}

struct Followed {
    watch: TenantWatch,
    is_queued: bool,
}

impl Machine {
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            tenants: HashMap::new(),
            queue: VecDeque::new(),
            listings: 0,
            loading: 0,
            reach: Reach::NotYet { failures: 0 },
            polling: false,
            poll_due_ns: i64::MIN,
        }
    }

    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Tick => {}
            Event::Polled(poll) => self.polled(&poll, now, &mut actions),
            Event::PollFailed { jitter } => self.poll_failed(jitter, now),
            Event::Dropped { tenant, way } => {
                if let Some(followed) = self.tenants.get_mut(&tenant) {
                    followed.watch.dropped(way, now);
                    self.enqueue(tenant);
                }
                if way.is_some() {
                    self.poll_soon(now);
                }
            }
            Event::Listed { tenant, outcome } => self.listed(tenant, outcome, now, &mut actions),
        }
        self.start_listings(now, &mut actions);
        if !self.polling && now.steady_ns >= self.poll_due_ns {
            self.polling = true;
            actions.push(Action::Poll);
        }
        actions
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Whether series that were upstream when we started, or when it came back, are not all known.
    pub fn is_loading(&self) -> bool {
        self.loading > 0 || matches!(self.reach, Reach::NotYet { .. })
    }

    pub fn tenants_loading(&self) -> usize {
        self.loading
    }

    pub fn figures(&self, tenant: &TenantId) -> Option<Figures> {
        self.tenants.get(tenant).map(|followed| followed.watch.figures())
    }

    fn polled(&mut self, poll: &Poll, now: Now, actions: &mut Vec<Action>) {
        let before = std::mem::replace(&mut self.reach, Reach::Reached);
        self.polling = false;
        let is_first = matches!(before, Reach::NotYet { .. });
        let returned = matches!(before, Reach::Lost { .. });
        let mut due = false;
        for (tenant, sight) in &poll.sights {
            if !self.tenants.contains_key(tenant) {
                // Series that came while we were not looking have to be listed before anybody may
                // count on what we know; those that came through us are known.
                let is_unknown = is_first || (returned && sight.known_after == 0);
                let watch = match is_unknown && sight.upstream > 0 {
                    true => TenantWatch::loading(),
                    false => TenantWatch::settled(),
                };
                let followed = Followed { watch, is_queued: false };
                if followed.watch.is_loading() {
                    self.loading += 1;
                    let order = Order::Load { upstream: sight.upstream };
                    actions.push(Action::Order(tenant.clone(), order));
                }
                self.tenants.insert(tenant.clone(), followed);
            }
            let Some(Followed { watch, .. }) = self.tenants.get_mut(tenant) else {
                continue;
            };
            let order = watch.see(sight, poll.sent, returned, &self.pace, now);
            due |= watch.awaits_drop(&self.pace, now.steady_ns);
            self.loading -= usize::from(order == Some(Order::EndLoading));
            actions.extend(order.map(|order| Action::Order(tenant.clone(), order)));
            self.enqueue(tenant.clone());
        }
        self.forget_absent(poll);
        if is_first {
            actions.push(Action::Run);
        }
        let wait = if due { self.pace.poll_while_due } else { self.pace.poll };
        self.poll_due_ns = now.steady_ns.saturating_add(nanos(wait));
    }

    /// Tenants that neither side has any more.
    fn forget_absent(&mut self, poll: &Poll) {
        if poll.sights.len() >= self.tenants.len() {
            return;
        }
        let seen: std::collections::HashSet<_> =
            poll.sights.iter().map(|(tenant, _)| tenant).collect();
        let loading = &mut self.loading;
        self.tenants.retain(|tenant, Followed { watch, .. }| {
            let stays = watch.is_listing() || seen.contains(tenant);
            *loading -= usize::from(!stays && watch.is_loading());
            stays
        });
    }

    fn poll_failed(&mut self, jitter: Jitter, now: Now) {
        self.polling = false;
        let failures = match self.reach {
            Reach::NotYet { failures } | Reach::Lost { failures } => failures.saturating_add(1),
            Reach::Reached => 1,
        };
        self.reach = match self.reach {
            Reach::NotYet { .. } => Reach::NotYet { failures },
            Reach::Reached | Reach::Lost { .. } => Reach::Lost { failures },
        };
        let wait_ns = backoff(failures, self.pace.retry, self.pace.retry_max, jitter.share());
        self.poll_due_ns = now.steady_ns.saturating_add(wait_ns);
    }

    fn listed(&mut self, tenant: TenantId, outcome: Outcome, now: Now, actions: &mut Vec<Action>) {
        self.listings = self.listings.saturating_sub(1);
        let Some(Followed { watch, .. }) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let order = watch.listed(outcome, &self.pace, now);
        self.loading -= usize::from(order == Some(Order::EndLoading));
        actions.extend(order.map(|order| Action::Order(tenant.clone(), order)));
        if matches!(outcome, Outcome::Merged { .. }) {
            self.poll_soon(now);
        }
        self.enqueue(tenant);
    }

    /// Those that are being loaded go first.
    fn enqueue(&mut self, tenant: TenantId) {
        let Some(followed) = self.tenants.get_mut(&tenant) else {
            return;
        };
        if !followed.watch.wants_listing() || std::mem::replace(&mut followed.is_queued, true) {
            return;
        }
        if followed.watch.is_loading() {
            self.queue.push_front(tenant);
        } else {
            self.queue.push_back(tenant);
        }
    }

    /// Starts what is wanted and allowed; the others keep their place.
    fn start_listings(&mut self, now: Now, actions: &mut Vec<Action>) {
        let mut waiting = VecDeque::new();
        while self.listings < LISTINGS_AT_ONCE
            && let Some(tenant) = self.queue.pop_front()
        {
            let Some(followed) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            if let Some(asked) = followed.watch.next_listing(&self.pace, now.steady_ns) {
                self.listings += 1;
                followed.is_queued = false;
                actions.push(Action::List(tenant, asked));
            } else if followed.watch.wants_listing() {
                waiting.push_back(tenant);
            } else {
                followed.is_queued = false;
            }
        }
        waiting.append(&mut self.queue);
        self.queue = waiting;
    }

    fn poll_soon(&mut self, now: Now) {
        let soon_ns = now.steady_ns.saturating_add(nanos(self.pace.poll_after_change));
        self.poll_due_ns = self.poll_due_ns.min(soon_ns);
    }
}
