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

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::account::{Grant, Holder, LEASE_NS, Short, Wish};
use super::config::{ColdStart, OwnerLost};
use super::exchange::{
    Answer, Answered, Answers, Batch, HANDED_OVER_MAX, HandOver, HandedGrant, HandedOver, Item,
    Link, Question,
};
use super::headroom::Slot;
use super::key::{Key, KeyHash, KeyHasher, Kind, OwnedKey};
use super::leases::{LeaseCharge, Leases, Spent};
use super::owner::{AccountView, KeyedTerms, Moving, Owner, OwnerCounts, Start, Terms};
use super::placement::{OwnerMap, Placed};
use crate::ratelimit::Budget;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// Our own number among holders: leases of ours that another owner had granted.
const OURSELVES: Holder = Holder(0);
/// Maps that were in force within the last lease's life, at most. A ring that changes oftener is
/// learned for a little less long.
const MAPS_BEFORE_MAX: usize = 16;

/// Most gates that are told apart. One more is a stranger with each of its batches: what it says it
/// holds is counted anew, which makes an owner careful and nobody rich.
const PEERS_MAX: usize = 1024;

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

/// A link, and who is told that there is something to send.
struct LinkSeat<W> {
    link: Mutex<Link<W>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The map in force, and those before it that leases may still stem from.
struct Maps {
    map: OwnerMap,
    since_ns: i64,
    /// With when each ended.
    before: Vec<(OwnerMap, i64)>,
}

/// Those who ask us.
struct Peers {
    by_id: HashMap<Id, Arc<Mutex<Peer>>>,
    next: u32,
}

struct Peer {
    holder: Holder,
    incarnation: u64,
    /// The last batch that was answered.
    sequence: u64,
    answers: Option<Answers>,
    seen_ns: i64,
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
    Account(Slot),
    Share(Slot),
    Lease(LeaseCharge),
    /// Paid at once by the owner, or by nobody: it does not come back.
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

#[derive(Debug, Default)]
struct Counts {
    own: AtomicU64,
    leased: AtomicU64,
    denied_here: AtomicU64,
    asked: AtomicU64,
    renewals: AtomicU64,
    lost: [AtomicU64; POLICIES.len()],
    lost_refused: AtomicU64,
    not_owner: AtomicU64,
    served: AtomicU64,
    handed_over: AtomicU64,
    taken_over: AtomicU64,
}

/// What a gate has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Decisions by accounts of ours.
    pub own: u64,
    /// Decisions by leases, and by denials that are believed.
    pub leased: u64,
    pub denied_here: u64,
    /// Decisions that waited for an owner, and renewals that nobody waited for.
    pub asked: u64,
    pub renewals: u64,
    /// Decisions without an owner, by policy, and how many of them refused.
    pub lost: [u64; POLICIES.len()],
    pub lost_refused: u64,
    /// Questions that went to a gate that did not own the key.
    pub not_owner: u64,
    /// Questions of others that we answered.
    pub served: u64,
    pub handed_over: u64,
    pub taken_over: u64,
    pub owner: OwnerCounts,
    /// Budgets of others that we know, and credit that we hold of them.
    pub known: usize,
    pub held: u64,
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
        let question = Question { key, hash, wish, waiter: Some(waiter) };
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
            Source::Nowhere => {}
        }
    }

    /// A new map is in force. Accounts that are another's now are returned with where they go;
    /// what we hold of budgets whose owner has changed is told to the new one.
    pub fn publish(&self, map: OwnerMap, now_ns: i64) -> Vec<(Id, HandOver)> {
        let _one_at_a_time = lock(&self.publishing);
        let last = self.maps.load_full();
        if last.map.is_same_as(&map) {
            return Vec::new();
        }
        let mut before: Vec<_> = last.before.clone();
        before.retain(|(_, ended_ns)| ended_ns.saturating_add(LEASE_NS) > now_ns);
        // The empty map of the start counts: until a lease's life is over there may be leases of
        // an owner before us.
        before.push((last.map.clone(), now_ns));
        if before.len() > MAPS_BEFORE_MAX {
            before.remove(0);
        }
        let maps = Arc::new(Maps { map, since_ns: now_ns, before });
        self.maps.store(Arc::clone(&maps));
        self.forget_peers(&maps.map, now_ns);
        self.tell_new_owners(&last.map, &maps.map, now_ns);
        self.hand_over(&maps.map, now_ns)
    }

    /// Whether everybody's keys are where this gate believes them.
    pub fn is_placed_as(&self, map: &OwnerMap) -> bool {
        self.maps.load().map.is_same_as(map)
    }

    /// All that we own, for those who will own it when we are gone. `map` is the ring without us.
    fn hand_over(&self, map: &OwnerMap, now_ns: i64) -> Vec<(Id, HandOver)> {
        let stays = |hash| !matches!(map.place(hash), Placed::At(_));
        let moving = self.owner.hand_over(now_ns, stays);
        let names = self.peer_names();
        let mut by_owner: HashMap<Id, Vec<HandedOver>> = HashMap::new();
        for Moving { key, hash, credit, grants } in moving {
            let Placed::At(owner) = map.place(hash) else { continue };
            let grants = grants.iter().filter_map(|grant| {
                Some(HandedGrant {
                    holder: Id::clone(names.get(&grant.holder)?),
                    credits: grant.credits,
                    left_ns: grant.expires_ns.saturating_sub(now_ns),
                })
            });
            let account = HandedOver { key, credit, grants: grants.collect() };
            by_owner.entry(Id::clone(owner)).or_default().push(account);
        }
        let mut messages = Vec::new();
        for (owner, mut accounts) in by_owner {
            self.counts.handed_over.fetch_add(accounts.len() as u64, Ordering::Relaxed);
            while !accounts.is_empty() {
                let rest = accounts.split_off(accounts.len().min(HANDED_OVER_MAX));
                messages.push((Id::clone(&owner), HandOver { accounts }));
                accounts = rest;
            }
        }
        messages
    }

    /// Takes over what another gate had.
    pub fn take_over(&self, message: HandOver, terms_of: TermsOf<'_>, now_ns: i64) {
        for account in message.accounts {
            let Some(terms) = terms_of(account.key.kind, &account.key.tenant) else { continue };
            let hash = self.hasher.hash(account.key.as_key());
            let mut credit = account.credit;
            let mut grants = Vec::with_capacity(account.grants.len());
            for grant in &account.grants {
                if grant.holder == self.us {
                    // We dropped it when we learned that the budget is ours.
                    credit += grant.credits as f64;
                    continue;
                }
                let holder = lock(&self.peer(&grant.holder, now_ns)).holder;
                let left_ns = grant.left_ns.clamp(0, LEASE_NS);
                let expires_ns = now_ns.saturating_add(left_ns);
                grants.push(Grant { holder, credits: grant.credits, expires_ns });
            }
            let moving = Moving { key: account.key, hash, credit, grants };
            bump(&self.counts.taken_over);
            self.owner.take_over(terms, &moving, now_ns);
        }
    }

    /// Answers a batch of `peer`; `None` to one that is older than what it has been answered.
    pub fn serve(
        &self,
        peer: &str,
        incarnation: u64,
        batch: &Batch,
        terms_of: TermsOf<'_>,
        now_ns: i64,
    ) -> Option<Answers> {
        let peer = self.peer(peer, now_ns);
        let mut peer = lock(&peer);
        peer.seen_ns = now_ns;
        if peer.incarnation != incarnation {
            // Its process began anew, and asks from 1 again.
            (peer.incarnation, peer.sequence, peer.answers) = (incarnation, 0, None);
        }
        if batch.sequence <= peer.sequence {
            return peer.answers.clone().filter(|last| last.sequence == batch.sequence);
        }
        let maps = self.maps.load();
        let holder = peer.holder;
        let judged = |item: &Item| {
            let key = item.key.as_key();
            let hash = self.hasher.hash(key);
            if !maps.map.is_here(hash) {
                return Err(Answer::NotOwner);
            }
            match terms_of(key.kind, key.tenant) {
                Some(terms) => Ok((hash, terms)),
                None => Err(Answer::NoLimit),
            }
        };
        let judged: Vec<_> = batch.items.iter().map(judged).collect();
        // All reports before any grant: they were written before.
        for (item, judged) in batch.items.iter().zip(&judged) {
            if let (Some(holding), Ok((hash, terms))) = (item.holding, judged) {
                let budget = KeyedTerms { key: item.key.as_key(), hash: *hash, terms: *terms };
                let start = || self.start(&maps, *hash, terms.budget, now_ns);
                self.owner.report(budget, holder, holding, now_ns, start);
            }
        }
        let answer = |(item, judged): (&Item, Result<(KeyHash, Terms), Answer>)| {
            let (hash, terms) = match judged {
                Ok(judged) => judged,
                Err(answer) => return answer,
            };
            if item.wish.spend == 0 && item.wish.want == 0 {
                return Answer::Granted { lease: 0 };
            }
            let budget = KeyedTerms { key: item.key.as_key(), hash, terms };
            let start = || self.start(&maps, hash, terms.budget, now_ns);
            match self.owner.grant(budget, item.wish, holder, now_ns, start) {
                Ok(lease) => Answer::Granted { lease },
                Err(Short { wait_ns }) => Answer::Denied { wait_ns },
            }
        };
        let items: Vec<_> = batch.items.iter().zip(judged).map(answer).collect();
        self.counts.served.fetch_add(items.len() as u64, Ordering::Relaxed);
        let answers = Answers { sequence: batch.sequence, items };
        peer.sequence = batch.sequence;
        peer.answers = Some(answers.clone());
        Some(answers)
    }

    /// Takes an owner's answers; tells what they mean for those who waited.
    pub fn answered(&self, owner: &str, answers: Answers, now_ns: i64) -> Vec<(W, Outcome)> {
        let links = self.links.load();
        let Some(seat) = links.get(owner) else { return Vec::new() };
        let answered = lock(&seat.link).answered(answers);
        let Some(Answered { asked_ns, items }) = answered else { return Vec::new() };
        let mut outcomes = Vec::new();
        for (question, answer) in items {
            let Question { key, hash, wish, waiter } = question;
            let outcome = match answer {
                Answer::Granted { lease } => {
                    if wish.want > 0 {
                        self.leases.granted(key.as_key(), hash, lease, asked_ns, now_ns);
                    }
                    Outcome::Admitted(Charge { n: wish.spend, hash, from: Source::Nowhere })
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

    /// Opens the link to an owner. `wake` is called when there is something to send.
    pub fn link(&self, owner: Id, wake: Box<dyn Fn() + Send + Sync>) {
        let seat = LinkSeat { link: Mutex::new(Link::default()), wake };
        let seat = Arc::new(seat);
        self.links.rcu(|links| {
            let mut links = HashMap::clone(links);
            links.insert(Id::clone(&owner), Arc::clone(&seat));
            links
        });
    }

    /// Closes it. Those who wait are told.
    pub fn unlink(&self, owner: &str, now_ns: i64) -> Vec<(W, Outcome)> {
        let outcomes = self.link_down(owner, now_ns);
        self.links.rcu(|links| {
            let mut links = HashMap::clone(links);
            links.remove(owner);
            links
        });
        outcomes
    }

    /// What is to be sent to `owner` now.
    pub fn next_batch(&self, owner: &str, now_ns: i64) -> Option<Arc<Batch>> {
        let links = self.links.load();
        let seat = links.get(owner)?;
        let mut link = lock(&seat.link);
        link.next_batch(now_ns, |key, hash| self.leases.holding(key.as_key(), hash, now_ns))
    }

    /// What was sent and not answered, for a new connection to the same owner.
    pub fn batch_again(&self, owner: &str) -> Option<Arc<Batch>> {
        lock(&self.links.load().get(owner)?.link).again()
    }

    /// When the batch under way to `owner` was sent.
    pub fn sent_ns(&self, owner: &str) -> Option<i64> {
        lock(&self.links.load().get(owner)?.link).sent_ns()
    }

    pub fn link_up(&self, owner: &str) {
        if let Some(seat) = self.links.load().get(owner) {
            lock(&seat.link).up();
        }
    }

    pub fn is_link_up(&self, owner: &str) -> bool {
        self.links.load().get(owner).is_some_and(|seat| lock(&seat.link).is_up())
    }

    /// The owner cannot be reached: until it is again, nobody waits for it.
    pub fn link_down(&self, owner: &str, now_ns: i64) -> Vec<(W, Outcome)> {
        let links = self.links.load();
        let Some(seat) = links.get(owner) else { return Vec::new() };
        let questions = lock(&seat.link).down();
        let mut outcomes = Vec::new();
        for question in questions {
            self.leases.unanswered(question.key.as_key(), question.hash, now_ns);
            outcomes.extend(question.waiter.map(|waiter| (waiter, Outcome::Unanswered)));
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

    fn renew(&self, owner: &Id, key: Key<'_>, hash: KeyHash, wish: Wish, now_ns: i64) {
        let links = self.links.load();
        let question = Question { key: key.to_owned(), hash, wish, waiter: None };
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

    fn tell_new_owners(&self, last: &OwnerMap, map: &OwnerMap, now_ns: i64) {
        let is_moved = |hash| last.place(hash) != map.place(hash);
        for (key, hash) in self.leases.held_where(now_ns, is_moved) {
            match map.place(hash) {
                Placed::Here => self.leases.drop_key(key.as_key(), hash),
                Placed::At(owner) => {
                    let links = self.links.load();
                    if let Some(seat) = links.get(owner) {
                        let wish = Wish::default();
                        let report = Question { key, hash, wish, waiter: None };
                        // Without room the next question reports.
                        if lock(&seat.link).ask(report).is_ok() {
                            (seat.wake)();
                        }
                    }
                }
                Placed::Nowhere => {}
            }
        }
    }

    fn peer(&self, id: &str, now_ns: i64) -> Arc<Mutex<Peer>> {
        let mut peers = lock(&self.peers);
        if let Some(peer) = peers.by_id.get(id) {
            return Arc::clone(peer);
        }
        let holder = Holder(peers.next);
        peers.next = peers.next.wrapping_add(1).max(1);
        let peer = Peer { holder, incarnation: 0, sequence: 0, answers: None, seen_ns: now_ns };
        let peer = Arc::new(Mutex::new(peer));
        if peers.by_id.len() < PEERS_MAX {
            peers.by_id.insert(id.into(), Arc::clone(&peer));
        }
        peer
    }

    /// Those that left the ring, once nothing that they hold can be alive.
    fn forget_peers(&self, map: &OwnerMap, now_ns: i64) {
        lock(&self.peers).by_id.retain(|id, peer| {
            map.members().contains(id) || lock(peer).seen_ns.saturating_add(2 * LEASE_NS) > now_ns
        });
    }

    fn peer_names(&self) -> HashMap<Holder, Id> {
        let peers = lock(&self.peers);
        let named = peers.by_id.iter().map(|(id, peer)| (lock(peer).holder, Id::clone(id)));
        named.collect()
    }
}

impl Maps {
    /// Whether somebody else may have kept the budget less than a lease's life ago.
    fn is_learning(&self, hash: KeyHash, now_ns: i64) -> bool {
        if now_ns >= self.since_ns.saturating_add(LEASE_NS) {
            return false;
        }
        self.before
            .iter()
            .any(|(map, ended_ns)| ended_ns.saturating_add(LEASE_NS) > now_ns && !map.is_here(hash))
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
