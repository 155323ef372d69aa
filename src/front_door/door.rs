//! The door of one class of routes: three limiters, and who has proved himself.
//!
//! A refused request costs nothing: what an earlier limiter took, a later one's refusal gives
//! back. A limiter in shadow counts whom it would have refused, takes nothing then, and the
//! next one is asked all the same.

use super::config::{ClassConfig, Limiter};
use super::failures::{FailureBudget, Reservation};
use super::keys::{AddressKey, AddressKeys, CredentialKey, Key};
use super::table::{Evictions, Table};
use super::{Outcome, OverLimit};
use crate::exposition::Counter;
use crate::ratelimit::{Bucket, BucketView, RATE_UNLIMITED};
use crate::sync::{AtomicU32, Ordering};

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
    pub(super) fn enter(
        &self,
        keys: AddressKeys,
        credential: Option<CredentialKey>,
        now_ns: i64,
    ) -> Result<Entered, OverLimit> {
        let is_proven = self.enter_proven(keys, credential, now_ns);
        let mut entered = Entered { reservation: None, has_paid: false, is_proven, left: None };
        if self.address.is_some() || (self.failures.is_some() && !is_proven) {
            let paid = self.with_address(keys, now_ns, |entry| {
                self.enter_address(entry, keys.current, &mut entered, now_ns)
            });
            if let Err(over) = paid {
                self.leave_proven(keys, credential, is_proven);
                return Err(over);
            }
        }
        if let Err(over) = self.enter_credential(keys, credential, &mut entered, now_ns) {
            self.addresses.with_known(keys.current.0, |entry| entry.undo(&mut entered, now_ns));
            self.leave_proven(keys, credential, is_proven);
            return Err(over);
        }
        if is_proven {
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
            entered.left = limit.shown(view(&entry.requests, now_ns));
        }
        Ok(())
    }

    fn enter_credential(
        &self,
        keys: AddressKeys,
        credential: Option<CredentialKey>,
        entered: &mut Entered,
        now_ns: i64,
    ) -> Result<(), OverLimit> {
        let Some(limit) = self.credential else { return Ok(()) };
        // Who presents nothing is told from others by the address alone.
        let key = credential.map_or(keys.current.0, |credential| credential.0);
        if let (None, Some(previous)) = (credential, keys.previous) {
            self.credentials.move_to(key, previous.0, now_ns);
        }
        self.credentials.with(
            key,
            now_ns,
            || bucket(Some(limit)),
            |bucket| {
                let is_paid = bucket.take(1, now_ns);
                self.told(limit, keys.current, bucket, is_paid, now_ns)?;
                entered.left = limit.shown(view(bucket, now_ns)).or(entered.left);
                Ok(())
            },
        )
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
        if let Some(previous) = keys.previous {
            self.addresses.move_to(keys.current.0, previous.0, now_ns);
        }
        self.addresses.with_known(keys.current.0, |entry| {
            let Some(reservation) = entered.reservation.take() else { return };
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
                self.with_address(keys, now_ns, |entry| entry.failures.charge(now_ns));
            }
        }
        self.leave_proven(keys, credential, entered.is_proven);
        let Some(credential) = credential.filter(|_| self.proven_for_ns > 0) else { return };
        match outcome {
            Outcome::Succeeded => {
                let until_ns = now_ns.saturating_add(self.proven_for_ns);
                let pair = Key::of_pair(keys.current, credential);
                let extend = |pair: &mut Pair| pair.until_ns = until_ns;
                match entered.is_proven {
                    // Who reserved nothing proves nothing: a failure meanwhile has the last word.
                    true => drop(self.pairs.with_known(pair, extend)),
                    false => {
                        let new = || Pair { until_ns, under_way: 0 };
                        self.pairs.with(pair, now_ns, new, extend);
                    }
                }
            }
            Outcome::Failed => {
                keys.each().for_each(|key| self.pairs.remove(Key::of_pair(key, credential)));
            }
            // Neither says anything about the credential.
            Outcome::Aborted | Outcome::Uncounted => {}
        }
    }

    pub(super) fn kept(&self) -> Kept {
        Kept {
            addresses: (self.addresses.len(), self.addresses.evictions()),
            credentials: (self.credentials.len(), self.credentials.evictions()),
            pairs: (self.pairs.len(), self.pairs.evictions()),
        }
    }

    /// Whether the pair is proven, and not as often under way already as an address may fail:
    /// until the first of them fails nobody knows of any, so that many may be guesses.
    fn enter_proven(
        &self,
        keys: AddressKeys,
        credential: Option<CredentialKey>,
        now_ns: i64,
    ) -> bool {
        let limit = self.failures.filter(|_| self.proven_for_ns > 0);
        let (Some(limit), Some(credential)) = (limit, credential) else { return false };
        keys.each().any(|key| {
            let enter = |pair: &mut Pair| {
                let is_in = now_ns < pair.until_ns && pair.under_way < limit.per_minute;
                pair.under_way += u32::from(is_in);
                is_in
            };
            self.pairs.with_known(Key::of_pair(key, credential), enter).unwrap_or(false)
        })
    }

    /// The other half of entering as a proven pair. A pair that was removed meanwhile has nothing
    /// under way that it knows of.
    fn leave_proven(&self, keys: AddressKeys, credential: Option<CredentialKey>, was_proven: bool) {
        let Some(credential) = credential.filter(|_| was_proven) else { return };
        for key in keys.each() {
            let leave = |pair: &mut Pair| pair.under_way = pair.under_way.saturating_sub(1);
            if self.pairs.with_known(Key::of_pair(key, credential), leave).is_some() {
                return;
            }
        }
    }

    /// The entry of an address; what was kept under the salt before comes along.
    fn with_address<T>(
        &self,
        keys: AddressKeys,
        now_ns: i64,
        act: impl FnOnce(&mut AddressEntry) -> T,
    ) -> T {
        let key = keys.current.0;
        if let Some(previous) = keys.previous {
            self.addresses.move_to(key, previous.0, now_ns);
        }
        let make = || AddressEntry {
            failures: FailureBudget::new(
                self.failures.map_or(0, |limit| limit.per_minute),
                self.serials.fetch_add(1, Ordering::Relaxed),
            ),
            requests: bucket(self.address),
        };
        self.addresses.with(key, now_ns, make, act)
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
        let left = view(bucket, now_ns);
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

fn view(bucket: &Bucket, now_ns: i64) -> BucketView {
    BucketView { credits: bucket.credits_at(now_ns), rate: bucket.rate(), burst: bucket.burst() }
}
