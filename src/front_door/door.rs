//! The door of one class of routes: three limiters, and who has proved himself.
//!
//! A refused request costs nothing: what an earlier limiter took, a later one's refusal gives
//! back. A limiter in shadow counts whom it would have refused, takes nothing then, and the
//! next one is asked all the same.

use super::config::{ClassConfig, Limiter};
use super::failures::{FailureBudget, Reservation};
use super::keys::{AddressKey, AddressKeys, CredentialKey, Key};
use super::table::{Evictions, Open, Table};
use super::{Outcome, OverLimit};
use crate::exposition::Counter;
use crate::ratelimit::{Bucket, BucketView, RATE_UNLIMITED};
use crate::sync::{AtomicU32, Ordering};

mod look;

/// How much of each is kept, and how long a proof is good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub addresses_max: usize,
    pub credentials_max: usize,
    pub pairs_max: usize,
    pub proven_for_ns: i64,
}

#[derive(Debug)]
pub(super) struct Door {
    failures: Option<Limit>,
    address: Option<Limit>,
    credential: Option<Limit>,
    proven_for_ns: i64,
    addresses: Table<AddressEntry>,
    credentials: Table<Bucket>,
    /// Pairs that are proven, or were until lately.
    pairs: Table<Pair>,
    /// Numbers the entries of addresses, so that none is taken for one that was there before.
    serials: AtomicU32,
    pub(super) counts: Counts,
}

/// A limiter that is on.
#[derive(Clone, Copy, Debug)]
struct Limit {
    limiter: Limiter,
    per_minute: u32,
    is_shadow: bool,
}

#[derive(Debug)]
struct AddressEntry {
    failures: FailureBudget,
    requests: Bucket,
}

/// What came of a door's requests.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Refused, by limiter.
    pub refused: [Counter; 3],
    /// Admitted although a limiter in shadow would have refused, by limiter.
    pub shadow_refused: [Counter; 3],
    /// Failures that were charged.
    pub failures: Counter,
    /// Admitted as a proven pair, without a reservation.
    pub proven: Counter,
}

/// Sizes of the tables, and what had to leave them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    pub addresses: (usize, Evictions),
    pub credentials: (usize, Evictions),
    pub pairs: (usize, Evictions),
}

/// An address and a credential that succeeded together.
#[derive(Clone, Copy, Debug)]
struct Pair {
    until_ns: i64,
    /// Requests that reserved nothing and are not answered yet.
    under_way: u32,
}

/// What a request holds of its door.
#[derive(Debug)]
pub(super) struct Entered {
    reservation: Option<Reservation>,
    /// The address' bucket was charged.
    has_paid: bool,
    /// It needed no reservation, since its pair is proven.
    is_proven: bool,
    /// What the last limiter on requests has left.
    pub(super) left: Option<(Limiter, BucketView)>,
}

impl Door {
    /// `None` where no limiter is on.
    pub(super) fn new(config: &ClassConfig, bounds: Bounds) -> Option<Self> {
        let limit = |limiter, per_minute| {
            let is_shadow = config.shadow.contains(&limiter);
            (per_minute > 0).then_some(Limit { limiter, per_minute, is_shadow })
        };
        config.is_on().then(|| Self {
            failures: limit(Limiter::Failures, config.failures_per_minute),
            address: limit(Limiter::Address, config.requests_per_address_per_minute),
            credential: limit(Limiter::Credential, config.requests_per_credential_per_minute),
            proven_for_ns: bounds.proven_for_ns,
            addresses: Table::new(bounds.addresses_max, AddressEntry::owes),
            credentials: Table::new(bounds.credentials_max, |bucket, now| !bucket.is_full_at(now)),
            pairs: Table::new(bounds.pairs_max, |pair, now_ns| now_ns < pair.until_ns),
            serials: AtomicU32::new(0),
            counts: Counts::default(),
        })
    }

    /// In the order of what is known: what the address has failed, how often it comes, and last
    /// what it presents.
    ///
    /// Locks are taken in this order: pair, address, credential. All three entries are sought
    /// before any is looked at, since what a request costs here is waiting for their memory.
    pub(super) fn enter(
        &self,
        keys: AddressKeys,
        credential: Option<CredentialKey>,
        now_ns: i64,
    ) -> Result<Entered, OverLimit> {
        self.carry_over(keys, credential, now_ns);
        let pair = self.pair(keys.current, credential);
        let mut pair = pair.map(|key| self.pairs.open(key, now_ns));
        let has_address = self.address.is_some() || self.failures.is_some();
        let mut address = has_address.then(|| self.addresses.open(keys.current.0, now_ns));
        // Who presents nothing is told from others by the address alone.
        let key = credential.map_or(keys.current.0, |credential| credential.0);
        let mut account = self.credential.map(|_| self.credentials.open(key, now_ns));
        if let Some(pair) = &mut pair {
            pair.seek();
        }
        // Else it depends on the pair whether the address matters at all.
        if let (Some(_), Some(address)) = (self.address, &mut address) {
            address.seek();
        }
        if let Some(account) = &mut account {
            account.seek();
        }

        let mut proven =
            pair.as_mut().and_then(Open::known).filter(|pair| self.may_enter(pair, now_ns));
        let is_proven = proven.is_some();
        let mut entered = Entered { reservation: None, has_paid: false, is_proven, left: None };
        if (self.address.is_some() || !is_proven)
            && let Some(address) = &mut address
        {
            let entry = address.or_insert(|| self.new_address());
            self.enter_address(entry, keys.current, &mut entered, now_ns)?;
        }
        if let (Some(limit), Some(account)) = (self.credential, &mut account) {
            let bucket = account.or_insert(|| bucket(Some(limit)));
            let is_paid = bucket.take(1, now_ns);
            if let Err(over) = self.told(limit, keys.current, bucket, is_paid, now_ns) {
                if let Some(entry) = address.as_mut().and_then(Open::known) {
                    entry.undo(&mut entered, now_ns);
                }
                return Err(over);
            }
            entered.left = limit.shown(view_of(bucket, now_ns)).or(entered.left);
        }
        if let Some(pair) = &mut proven {
            pair.under_way += 1;
            self.counts.proven.add(1);
        }
        Ok(entered)
    }

    fn enter_address(
        &self,
        entry: &mut AddressEntry,
        key: AddressKey,
        entered: &mut Entered,
        now_ns: i64,
    ) -> Result<(), OverLimit> {
        if let Some(limit) = self.failures.filter(|_| !entered.is_proven) {
            entered.reservation = entry.failures.reserve(now_ns);
            if entered.reservation.is_none() {
                let (left, wait_ns) = (entry.failures.view(now_ns), entry.failures.wait_ns(now_ns));
                self.judge(limit, OverLimit { limiter: limit.limiter, key, wait_ns, left })?;
            }
        }
        if let Some(limit) = self.address {
            entered.has_paid = entry.requests.take(1, now_ns);
            if let Err(over) = self.told(limit, key, &entry.requests, entered.has_paid, now_ns) {
                entry.undo(entered, now_ns);
                return Err(over);
            }
            entered.left = limit.shown(view_of(&entry.requests, now_ns));
        }
        Ok(())
    }

    /// A request was answered, or broken off: what it holds is given back or kept. Tells whether
    /// it holds nothing any more; else its entry is not under this key.
    pub(super) fn settle(
        &self,
        keys: AddressKeys,
        entered: &mut Entered,
        outcome: Outcome,
        now_ns: i64,
    ) -> bool {
        if entered.reservation.is_none() {
            return true;
        }
        self.carry_over(keys, None, now_ns);
        self.addresses.with_known(keys.current.0, now_ns, |entry| {
            // One that was late with the former salt has made another of its own.
            let is_ours = |one: &mut Reservation| entry.failures.has_made(one);
            let Some(reservation) = entered.reservation.take_if(is_ours) else { return };
            match outcome.is_failure() {
                true => entry.failures.keep(reservation, now_ns),
                false => entry.failures.give_back(reservation, now_ns),
            }
        });
        entered.reservation.is_none()
    }

    /// What a request's end says about its address and its credential.
    pub(super) fn learn(
        &self,
        keys: AddressKeys,
        credential: Option<CredentialKey>,
        entered: &Entered,
        outcome: Outcome,
        now_ns: i64,
    ) {
        if self.failures.is_none() {
            return;
        }
        if outcome.is_failure() {
            self.counts.failures.add(1);
            // It reserved nothing. In shadow, without credit, it pays nothing either: enforced, it
            // would not have come this far.
            if entered.is_proven {
                self.carry_over(keys, credential, now_ns);
                let charge = |entry: &mut AddressEntry| entry.failures.charge(now_ns);
                self.addresses.with(keys.current.0, now_ns, || self.new_address(), charge);
            }
        }
        if outcome == Outcome::Failed {
            // With all that is under way by it.
            for pair in keys.each().filter_map(|address| self.pair(address, credential)) {
                self.pairs.remove(pair);
            }
            return;
        }
        let Some(pair) = self.pair(keys.current, credential) else { return };
        self.carry_over(keys, credential, now_ns);
        let proven_until_ns = now_ns.saturating_add(self.proven_for_ns);
        let is_success = outcome == Outcome::Succeeded;
        let mut pair = self.pairs.open(pair, now_ns);
        if is_success && !entered.is_proven {
            pair.or_insert(|| Pair { until_ns: proven_until_ns, under_way: 0 });
        }
        // A pair that was removed meanwhile has nothing under way that it knows of, and is not
        // proven by one who reserved nothing: a failure meanwhile has the last word.
        if let Some(pair) = pair.known() {
            pair.under_way = pair.under_way.saturating_sub(u32::from(entered.is_proven));
            if is_success {
                pair.until_ns = proven_until_ns;
            }
        }
    }

    pub(super) fn kept(&self) -> Kept {
        Kept {
            addresses: (self.addresses.len(), self.addresses.evictions()),
            credentials: (self.credentials.len(), self.credentials.evictions()),
            pairs: (self.pairs.len(), self.pairs.evictions()),
        }
    }

    /// Under what a proof is kept, where there are any.
    fn pair(&self, address: AddressKey, credential: Option<CredentialKey>) -> Option<Key> {
        let has_proofs = self.failures.is_some() && self.proven_for_ns > 0;
        credential.filter(|_| has_proofs).map(|credential| Key::of_pair(address, credential))
    }

    /// Whether the pair is proven, and not as often under way already as an address may fail:
    /// until the first of them fails nobody knows of any, so that many may be guesses.
    fn may_enter(&self, pair: &Pair, now_ns: i64) -> bool {
        let under_way_max = self.failures.map_or(0, |limit| limit.per_minute);
        now_ns < pair.until_ns && pair.under_way < under_way_max
    }

    /// What was kept under the salt before comes along to where it is looked for now.
    fn carry_over(&self, keys: AddressKeys, credential: Option<CredentialKey>, now_ns: i64) {
        let Some(previous) = keys.previous else { return };
        self.addresses.move_to(keys.current.0, previous.0, now_ns);
        match credential {
            None => self.credentials.move_to(keys.current.0, previous.0, now_ns),
            Some(credential) => {
                let pair = |address| Key::of_pair(address, credential);
                self.pairs.move_to(pair(keys.current), pair(previous), now_ns);
            }
        }
    }

    fn new_address(&self) -> AddressEntry {
        AddressEntry {
            failures: FailureBudget::new(
                self.failures.map_or(0, |limit| limit.per_minute),
                self.serials.fetch_add(1, Ordering::Relaxed),
            ),
            requests: bucket(self.address),
        }
    }

    /// What a limiter on requests says that has, or has not, been paid.
    fn told(
        &self,
        limit: Limit,
        key: AddressKey,
        bucket: &Bucket,
        is_paid: bool,
        now_ns: i64,
    ) -> Result<(), OverLimit> {
        if is_paid {
            return Ok(());
        }
        // Its burst is at least the one credit that is asked for.
        let wait_ns = bucket.wait_ns(1, now_ns).unwrap_or_default();
        let left = view_of(bucket, now_ns);
        self.judge(limit, OverLimit { limiter: limit.limiter, key, wait_ns, left })
    }

    fn judge(&self, limit: Limit, over: OverLimit) -> Result<(), OverLimit> {
        let counters = match limit.is_shadow {
            true => &self.counts.shadow_refused,
            false => &self.counts.refused,
        };
        counters[limit.limiter as usize].add(1);
        if limit.is_shadow { Ok(()) } else { Err(over) }
    }
}

impl Limit {
    /// Nobody is told of a limiter that limits nobody.
    fn shown(self, left: BucketView) -> Option<(Limiter, BucketView)> {
        (!self.is_shadow).then_some((self.limiter, left))
    }
}

impl AddressEntry {
    fn owes(&self, now_ns: i64) -> bool {
        self.failures.owes(now_ns) || !self.requests.is_full_at(now_ns)
    }

    /// Gives back what was taken for a request that a later limiter refused.
    fn undo(&mut self, entered: &mut Entered, now_ns: i64) {
        if let Some(reservation) = entered.reservation.take() {
            self.failures.give_back(reservation, now_ns);
        }
        if std::mem::take(&mut entered.has_paid) {
            self.requests.give_back(1, now_ns, now_ns);
        }
    }
}

/// A limiter that is off takes nothing and owes nothing.
fn bucket(limit: Option<Limit>) -> Bucket {
    match limit {
        Some(Limit { per_minute, .. }) => {
            Bucket::new(f64::from(per_minute) / 60.0, per_minute.into())
        }
        None => Bucket::new(RATE_UNLIMITED, 0),
    }
}

fn view_of(bucket: &Bucket, now_ns: i64) -> BucketView {
    BucketView { credits: bucket.credits_at(now_ns), rate: bucket.rate(), burst: bucket.burst() }
}
