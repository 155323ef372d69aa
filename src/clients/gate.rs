//! One gate's part in all budgets: whether it decides itself, spends from a lease, or asks.
//!
//! ```text
//! decide ─► place of the key ─► ours: its account           ─► admitted, refused
//!                            └► another's: lease, denial    ─► admitted, refused
//!                                          else a question  ─► ask ─► answered
//!                            └► nobody to ask               ─► lost ─► by the policy
//! ```
//!
//! Without tasks, input or output: who drives it carries batches to peers and back. `W` is what it
//! calls a request that waits.

mod counts;
mod debts;
mod links;
mod maps;
mod serving;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::account::{Holder, Short, Wish};
use super::config::{ColdStart, OwnerLost};
use super::exchange::{Answer, Answered, Answers, Question};
use super::key::{Key, KeyHash, KeyHasher, Kind, OwnedKey};
use super::leases::{LeaseCharge, Leases, Spent};
use super::owner::{AccountView, KeyedTerms, Made, Owner, Start, Terms};
use super::placement::{OwnerMap, Placed};
use crate::ratelimit::Budget;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use counts::Counts;
use links::LinkSeat;
use maps::Maps;
use serving::Peers;

pub use counts::GateCounts;

/// Our own number among holders: leases of ours that another owner had granted.
const OURSELVES: Holder = Holder(0);
/// What may be done without an owner, in the order of the enum, as metrics name it.
pub const POLICIES: [(OwnerLost, &str); 4] = [
    (OwnerLost::StandingReserve, "standing_reserve"),
    (OwnerLost::LocalShare, "local_share"),
    (OwnerLost::Allow, "allow"),
    (OwnerLost::Deny, "deny"),
];

/// What an account of a kind and tenant may spend; `None` where there is no limit.
pub type TermsOf<'a> = &'a dyn Fn(Kind, &str) -> Option<Terms>;

type Id = Arc<str>;

/// How a gate behaves when it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateSettings {
    pub owner_lost: OwnerLost,
    pub cold_start: ColdStart,
}

/// See the head of the file.
pub struct Gate<W> {
    us: Id,
    settings: GateSettings,
    hasher: KeyHasher,
    maps: ArcSwap<Maps>,
    /// Serialises changes of the maps.
    publishing: Mutex<()>,
    owner: Owner,
    /// Our parts of budgets whose owner is lost, under the policy `local_share`.
    shares: Owner,
    leases: Leases,
    links: ArcSwap<HashMap<Id, Arc<LinkSeat<W>>>>,
    peers: Mutex<Peers>,
    counts: Counts,
}

/// What came of a request.
#[derive(Debug)]
pub enum Decision {
    Admitted(Charge),
    Refused(Refusal),
    /// The owner has to be asked; see [`Gate::ask`].
    Ask(Asking),
    /// There is nobody to ask; see [`Gate::lost`].
    Lost,
}

/// A question that is to be asked of `owner`.
#[derive(Debug)]
pub struct Asking {
    owner: Id,
    key: OwnedKey,
    hash: KeyHash,
    wish: Wish,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    pub cause: Cause,
    pub budget: Budget,
    pub asked: u64,
    /// Until the same request would pass; `None` if it never can.
    pub wait_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The budget is used up, or the request is above its burst.
    Budget,
    /// Nobody who knows the budget can be reached.
    OwnerLost,
}

/// Credits that a request took. Not `Clone`, so that they come back once at most.
#[derive(Debug)]
#[must_use = "a charge that may have to be given back must be kept until the request is decided"]
pub struct Charge {
    n: u64,
    hash: KeyHash,
    from: Source,
}

#[derive(Debug)]
enum Source {
    Account(Made),
    Share(Made),
    Lease(LeaseCharge),
    /// The owner paid at once, when it was asked.
    Asked {
        asked_ns: i64,
    },
    /// Nobody paid.
    Nowhere,
}

/// What an owner's answer means for a request that waited.
#[derive(Debug)]
pub enum Outcome {
    Admitted(Charge),
    /// Until when there would be credit.
    Denied {
        wait_ns: Option<u64>,
    },
    /// It was no owner, or could not be reached: to be decided again, or as lost.
    Unanswered,
}

impl<W> Gate<W> {
    /// `us` is our id in the ring.
    pub fn new(us: Id, settings: GateSettings, hasher: KeyHasher) -> Self {
        Self {
            us,
            settings,
            hasher,
            maps: ArcSwap::from_pointee(Maps {
                map: OwnerMap::empty(),
                since_ns: i64::MIN,
                before: Vec::new(),
            }),
            publishing: Mutex::new(()),
            owner: Owner::default(),
            shares: Owner::default(),
            leases: Leases::default(),
            links: ArcSwap::default(),
            peers: Mutex::new(Peers { by_id: HashMap::new(), next: OURSELVES.0 + 1 }),
            counts: Counts::default(),
        }
    }

    pub fn us(&self) -> &Id {
        &self.us
    }

    /// Takes `n` credits, says why not, or says who has to be asked.
    pub fn decide(&self, key: Key<'_>, n: u64, terms: Terms, now_ns: i64) -> Decision {
        if n > terms.budget.burst {
            return Decision::Refused(Refusal::new(Cause::Budget, terms.budget, n, None));
        }
        let hash = self.hasher.hash(key);
        let maps = self.maps.load();
        let owner = match maps.map.place(hash) {
            Placed::Nowhere => return Decision::Lost,
            Placed::Here => {
                bump(&self.counts.own);
                let budget = KeyedTerms { key, hash, terms };
                let start = || self.start(&maps, hash, terms.budget, now_ns);
                return match self.owner.spend(budget, n, now_ns, start) {
                    Ok(made) => Decision::Admitted(Charge { n, hash, from: Source::Account(made) }),
                    Err(short) => Decision::Refused(Refusal::short(short, terms.budget, n)),
                };
            }
            Placed::At(owner) => owner,
        };
        match self.leases.spend(key, hash, n, now_ns) {
            Spent::Paid(charge, renewal) => {
                bump(&self.counts.leased);
                if let Some(wish) = renewal {
                    self.renew(owner, key, hash, wish, now_ns);
                }
                Decision::Admitted(Charge { n, hash, from: Source::Lease(charge) })
            }
            Spent::Denied { wait_ns } => {
                bump(&self.counts.denied_here);
                Decision::Refused(Refusal::new(Cause::Budget, terms.budget, n, wait_ns))
            }
            Spent::Ask(wish) => {
                Decision::Ask(Asking { owner: Id::clone(owner), key: key.to_owned(), hash, wish })
            }
        }
    }

    /// Asks the owner; the outcome comes with its answer. Gives `waiter` back when the owner is
    /// known to be out of reach.
    pub fn ask(&self, asking: Asking, waiter: W) -> Result<(), W> {
        let Asking { owner, key, hash, wish } = asking;
        let links = self.links.load();
        let Some(seat) = links.get(&owner) else { return Err(waiter) };
        let question = Question { key, hash, wish, refund: None, debt: 0, waiter: Some(waiter) };
        let asked = lock(&seat.link).ask(question);
        match asked {
            Ok(()) => {
                bump(&self.counts.asked);
                (seat.wake)();
                Ok(())
            }
            Err(question) => Err(question.waiter.expect("it was put in above")),
        }
    }

    /// Decides without the owner, by the policy for that.
    pub fn lost(&self, key: Key<'_>, n: u64, terms: Terms, now_ns: i64) -> Decision {
        let policy = self.settings.owner_lost;
        bump(&self.counts.lost[policy as usize]);
        let hash = self.hasher.hash(key);
        let from = match policy {
            OwnerLost::Allow => Some(Source::Nowhere),
            OwnerLost::Deny => None,
            OwnerLost::StandingReserve => {
                self.leases.spend_reserve(key, hash, n, now_ns).map(Source::Lease)
            }
            OwnerLost::LocalShare => {
                let gates = self.maps.load().map.members().len().max(1);
                let Budget { rate, burst } = terms.budget;
                let part = Budget { rate: rate / gates as f64, burst: burst / gates as u64 };
                let budget = KeyedTerms { key, hash, terms: Terms { budget: part, ..terms } };
                let start = || Start::Full;
                self.shares.spend(budget, n, now_ns, start).ok().map(Source::Share)
            }
        };
        match from {
            Some(from) => Decision::Admitted(Charge { n, hash, from }),
            None => {
                bump(&self.counts.lost_refused);
                let wait_ns = Some(1_000_000_000);
                Decision::Refused(Refusal::new(Cause::OwnerLost, terms.budget, n, wait_ns))
            }
        }
    }

    /// Gives back a charge that bought nothing, to where it came from if that is still possible.
    pub fn give_back(&self, key: Key<'_>, charge: Charge, now_ns: i64) {
        let Charge { n, hash, from } = charge;
        match from {
            Source::Account(made) => self.owner.give_back(key, hash, n, made, now_ns),
            Source::Share(made) => self.shares.give_back(key, hash, n, made, now_ns),
            Source::Lease(charge) => self.leases.give_back(key, hash, charge, now_ns),
            Source::Asked { asked_ns } => self.give_back_asked(key, hash, n, asked_ns),
            Source::Nowhere => {}
        }
    }

    /// Takes an owner's answers; tells what they mean for those who waited.
    pub fn answered(&self, owner: &str, answers: Answers, now_ns: i64) -> Vec<(W, Outcome)> {
        let links = self.links.load();
        let Some(seat) = links.get(owner) else { return Vec::new() };
        let answered = lock(&seat.link).answered(answers);
        let Some(Answered { asked_ns, items }) = answered else { return Vec::new() };
        let mut outcomes = Vec::new();
        for (question, answer) in items {
            let Question { key, hash, wish, waiter, .. } = question;
            let outcome = match answer {
                Answer::Granted { lease } => {
                    if wish.want > 0 {
                        self.leases.granted(key.as_key(), hash, lease, asked_ns, now_ns);
                    }
                    let from = Source::Asked { asked_ns };
                    Outcome::Admitted(Charge { n: wish.spend, hash, from })
                }
                Answer::Denied { wait_ns } => {
                    self.leases.denied(key.as_key(), hash, wish.spend, wait_ns, now_ns);
                    Outcome::Denied { wait_ns }
                }
                Answer::NotOwner | Answer::NoLimit => {
                    bump(&self.counts.not_owner);
                    self.leases.unanswered(key.as_key(), hash, now_ns);
                    Outcome::Unanswered
                }
            };
            outcomes.extend(waiter.map(|waiter| (waiter, outcome)));
        }
        outcomes
    }

    /// Who owns a key: ourselves, another, or nobody.
    pub fn owner_of(&self, key: Key<'_>) -> Option<Id> {
        match self.maps.load().map.place(self.hasher.hash(key)) {
            Placed::Here => Some(Id::clone(&self.us)),
            Placed::At(owner) => Some(Id::clone(owner)),
            Placed::Nowhere => None,
        }
    }

    /// An account of ours as it stands; `None` while nothing of its budget is owed.
    pub fn view(&self, key: Key<'_>, now_ns: i64) -> Option<AccountView> {
        self.owner.view(key, self.hasher.hash(key), now_ns)
    }

    /// Our accounts with the least credit.
    pub fn poorest(
        &self,
        kind: Kind,
        tenant: &str,
        len_max: usize,
        now_ns: i64,
    ) -> Vec<AccountView> {
        self.owner.poorest(kind, tenant, len_max, now_ns)
    }

    /// Forgets what is owed of a budget of ours; `false` when nothing was.
    pub fn reset(&self, key: Key<'_>) -> bool {
        self.owner.reset(key, self.hasher.hash(key))
    }

    /// Forgets what a gate believes of a budget that another owns.
    pub fn forget(&self, key: Key<'_>) {
        self.leases.drop_key(key, self.hasher.hash(key));
    }

    /// Every few seconds: forgets what is idle and owes nothing.
    pub fn sweep(&self, now_ns: i64) {
        self.owner.sweep(now_ns);
        self.shares.sweep(now_ns);
        self.leases.sweep(now_ns);
    }

    pub fn counts(&self, now_ns: i64) -> GateCounts {
        let (known, held) = self.leases.counts(now_ns);
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        GateCounts {
            own: read(&counts.own),
            leased: read(&counts.leased),
            denied_here: read(&counts.denied_here),
            asked: read(&counts.asked),
            renewals: read(&counts.renewals),
            lost: std::array::from_fn(|policy| read(&counts.lost[policy])),
            lost_refused: read(&counts.lost_refused),
            not_owner: read(&counts.not_owner),
            served: read(&counts.served),
            handed_over: read(&counts.handed_over),
            taken_over: read(&counts.taken_over),
            owner: self.owner.counts(),
            known,
            held,
        }
    }

    /// Tells the owner that it has paid for nothing; best effort, as all refunds are.
    fn give_back_asked(&self, key: Key<'_>, hash: KeyHash, n: u64, asked_ns: i64) {
        let maps = self.maps.load();
        let Placed::At(owner) = maps.map.place(hash) else { return };
        if let Some(seat) = self.links.load().get(owner) {
            let refund = Some((n, asked_ns));
            let (key, wish) = (key.to_owned(), Wish::default());
            let question = Question { key, hash, wish, refund, debt: 0, waiter: None };
            if lock(&seat.link).ask(question).is_ok() {
                (seat.wake)();
            }
        }
    }

    fn renew(&self, owner: &Id, key: Key<'_>, hash: KeyHash, wish: Wish, now_ns: i64) {
        let links = self.links.load();
        let key_owned = key.to_owned();
        let question = Question { key: key_owned, hash, wish, refund: None, debt: 0, waiter: None };
        let asked = links.get(owner).is_some_and(|seat| {
            let asked = lock(&seat.link).ask(question).is_ok();
            if asked {
                (seat.wake)();
            }
            asked
        });
        if asked {
            bump(&self.counts.renewals);
        } else {
            self.leases.unanswered(key, hash, now_ns);
        }
    }

    /// With what an account starts that we do not know.
    fn start(&self, maps: &Maps, hash: KeyHash, budget: Budget, now_ns: i64) -> Start {
        if !maps.is_learning(hash, now_ns) {
            return Start::Full;
        }
        match self.settings.cold_start {
            ColdStart::Empty => Start::Cold(0.0),
            ColdStart::OneSecond => Start::Cold(budget.rate),
            ColdStart::Full => Start::Full,
        }
    }
}

impl Charge {
    /// Parts with up to `credits` of the charge, to give back only those.
    pub fn split(&mut self, credits: u64) -> Charge {
        let n = credits.min(self.n);
        self.n -= n;
        let from = match &mut self.from {
            Source::Account(made) => Source::Account(*made),
            Source::Share(made) => Source::Share(*made),
            Source::Lease(charge) => Source::Lease(charge.split(n)),
            Source::Asked { asked_ns } => Source::Asked { asked_ns: *asked_ns },
            Source::Nowhere => Source::Nowhere,
        };
        Charge { n, hash: self.hash, from }
    }
}

impl Refusal {
    fn new(cause: Cause, budget: Budget, asked: u64, wait_ns: Option<u64>) -> Self {
        Self { cause, budget, asked, wait_ns }
    }

    fn short(short: Short, budget: Budget, asked: u64) -> Self {
        Self::new(Cause::Budget, budget, asked, short.wait_ns)
    }

    /// The request is larger than the burst: the same request can never pass.
    pub fn is_over_burst(&self) -> bool {
        self.asked > self.budget.burst
    }
}

fn bump(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under this lock")
}
