//! The front door: limits by address and by credential, ahead of everything else on HTTP.
//!
//! What a request says of itself, its tenant and its client too, is not proved when it comes. What
//! is known is where it comes from; so an address may fail only so often, and come only so often,
//! and only then does it count what it presents. Neither half can be escaped: who changes his
//! credential with each request meets the budget of his address, and who shares an address with
//! somebody who guesses gets in by having been right before (`door::Door::pairs`).
//!
//! ```text
//! peer, hops ─► address ─► denied? allowed? ─► salted key ─┐
//! Authorization ─────────────────────────────► hash ───────┴─► door of the class
//!                                                              failures ─► address ─► credential
//! response headers, or the end of the request ─► leave: give back, keep, charge; prove
//! ```
//!
//! What must hold: no address and no credential is kept, shown or logged, their hashes are; every
//! table has a bound; a refused request costs nothing; this room reads no clock and knows no HTTP.

pub mod address;
pub mod config;
mod credential;
mod door;
mod failures;
mod hops;
pub mod keys;
mod metrics;
pub mod networks;
mod table;
pub mod view;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::exposition::Counter;
use crate::ratelimit::BucketView;

use address::{Address, AddressRules, Found, FoundBy, HopHeader};
use config::{FrontDoorConfig, Limiter, WriteFailures};
use door::{Bounds, Door, Entered};
use keys::{AddressKey, AddressKeys, CredentialKey, Salts};
use networks::NetworkSet;

/// How long a salt is known at least after the next one is there: until the deepest debt is
/// refilled, which is a bucket's worth below nothing and a bucket's worth up.
const SALT_KEPT_NS_MIN: i64 = 120 * 1_000_000_000;

/// What a request asks for. Each class has limits and budgets of its own: a success on a page that
/// anybody may see proves nothing to a tenant's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteClass {
    Write,
    Query,
    Admin,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its pair of address and credential is proven.
    Succeeded,
    /// It is charged, and its pair is not proven any more.
    Failed,
    /// Broken off, or never answered: charged, but no word about the credential.
    Aborted,
    /// Neither for nor against the sender.
    Uncounted,
}

impl Outcome {
    fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Aborted)
    }
}

/// Why a request does not get in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// Its address is on the list.
    Denied,
    OverLimit(OverLimit),
}

/// A limiter that has nothing left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverLimit {
    pub limiter: Limiter,
    /// Whose request it was, for the log.
    pub key: AddressKey,
    /// Until the next request may get in, if nobody else takes its place.
    pub wait_ns: u64,
    pub left: BucketView,
}

/// A request that was let in. It has to be given to [`FrontDoor::leave`].
#[derive(Debug)]
#[must_use = "what it reserved stays reserved until it leaves"]
pub struct Pass {
    class: RouteClass,
    /// `None` where no limiter looked at it.
    held: Option<Held>,
}

/// What a request holds while it is under way.
#[derive(Debug)]
struct Held {
    /// For its key under a salt that comes meanwhile.
    address: Address,
    salt_epoch: u64,
    keys: AddressKeys,
    credential: Option<CredentialKey>,
    entered: Entered,
}

/// See the head of the file.
#[derive(Debug)]
pub struct FrontDoor {
    rules: AddressRules,
    allow: NetworkSet,
    deny: NetworkSet,
    takes_basic_user: bool,
    write_failures: WriteFailures,
    charges_own_refusals: bool,
    salts: ArcSwap<Salts>,
    salt_kept_ns: i64,
    /// By class.
    doors: [Option<Door>; 3],
    denied: Counter,
    unreadable_hops: Counter,
    untrusted_hops: Counter,
}

impl FrontDoor {
    pub fn new(config: &FrontDoorConfig, salt: &[u8]) -> Self {
        let proven_for_ns = i64::try_from(config.proven_for.as_duration().as_nanos());
        let bounds = Bounds {
            addresses_max: config.max_addresses,
            credentials_max: config.max_credentials,
            pairs_max: config.max_proven_pairs,
            proven_for_ns: proven_for_ns.unwrap_or(i64::MAX),
        };
        let header = match config.use_forwarded {
            true => HopHeader::Forwarded,
            false => HopHeader::XForwardedFor,
        };
        Self {
            rules: AddressRules {
                trusted_proxies: NetworkSet::new(&config.trusted_proxies),
                header,
                ipv6_prefix_bits: config.ipv6_prefix,
                is_nat64_unwrapped: config.nat64,
            },
            allow: NetworkSet::new(&config.allow),
            deny: NetworkSet::new(&config.deny),
            takes_basic_user: config.basic_user,
            write_failures: config.write_failures,
            charges_own_refusals: config.charge_own_refusals,
            salts: ArcSwap::from_pointee(Salts::new(salt)),
            salt_kept_ns: bounds.proven_for_ns.max(SALT_KEPT_NS_MIN),
            doors: RouteClass::ALL.map(|class| Door::new(class.config(config), bounds)),
            denied: Counter::default(),
            unreadable_hops: Counter::default(),
            untrusted_hops: Counter::default(),
        }
    }

    /// The header to hand to [`FrontDoor::find`].
    pub fn hop_header(&self) -> HopHeader {
        self.rules.header
    }

    /// Whose request it is; `lines` are the values of [`FrontDoor::hop_header`].
    pub fn find<'a>(
        &self,
        peer: IpAddr,
        lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    ) -> Found {
        let found = self.rules.find(peer, lines);
        match found.by {
            FoundBy::Peer | FoundBy::Hops => {}
            FoundBy::UntrustedPeer => self.untrusted_hops.add(1),
            FoundBy::UnreadableHop => self.unreadable_hops.add(1),
        }
        found
    }

    /// `authorization` are the values of that header.
    pub fn enter<'a>(
        &self,
        class: RouteClass,
        address: IpAddr,
        authorization: impl Iterator<Item = &'a [u8]>,
        now_ns: i64,
    ) -> Result<Pass, Refusal> {
        let address = address.to_canonical();
        if self.deny.contains(address) {
            self.denied.add(1);
            return Err(Refusal::Denied);
        }
        let Some(door) = &self.doors[class as usize] else { return Ok(Pass { class, held: None }) };
        if self.allow.contains(address) {
            return Ok(Pass { class, held: None });
        }
        let address = self.rules.cut(address);
        let salts = self.salts.load();
        let (keys, salt_epoch) = (salts.keys(address, now_ns), salts.epoch());
        let credential = credential::presented(authorization, self.takes_basic_user);
        let entered = door.enter(keys, credential, now_ns).map_err(Refusal::OverLimit)?;
        Ok(Pass { class, held: Some(Held { address, salt_epoch, keys, credential, entered }) })
    }

    pub fn leave(&self, pass: Pass, outcome: Outcome, now_ns: i64) {
        let (Some(door), Some(mut held)) = (&self.doors[pass.class as usize], pass.held) else {
            return;
        };
        loop {
            let salts = self.salts.load();
            // Most often no salt has come meanwhile, and there is no reason to hash again.
            if salts.epoch() != held.salt_epoch {
                held.keys = salts.keys(held.address, now_ns);
                held.salt_epoch = salts.epoch();
            }
            // One that comes in this moment may take the entry away; then it is looked for again.
            // Where no salt came, the budget was forgotten, and the reservation was with it.
            let is_settled = door.settle(held.keys, &mut held.entered, outcome, now_ns);
            if is_settled || self.salts.load().epoch() == held.salt_epoch {
                break;
            }
        }
        door.learn(held.keys, held.credential, &held.entered, outcome, now_ns);
    }

    /// What an answer says about its sender.
    pub fn outcome(&self, class: RouteClass, answer: Answer) -> Outcome {
        if answer.is_own_refusal && !self.charges_own_refusals {
            return Outcome::Uncounted;
        }
        if answer.status < 400 {
            return Outcome::Succeeded;
        }
        let is_failure = match (class, self.write_failures) {
            (RouteClass::Write, WriteFailures::Auth) => {
                answer.is_unreadable || matches!(answer.status, 401 | 403)
            }
            _ => true,
        };
        if is_failure { Outcome::Failed } else { Outcome::Uncounted }
    }

    /// What it says that there was no answer: the sender went, or we gave up.
    pub fn outcome_of_abort(&self, class: RouteClass) -> Outcome {
        match (class, self.write_failures) {
            (RouteClass::Write, WriteFailures::Auth) => Outcome::Uncounted,
            _ => Outcome::Aborted,
        }
    }

    /// Hashes addresses under a new salt from now on. What is kept under the old one is found for
    /// as long as it matters.
    pub fn rotate(&self, salt: &[u8], now_ns: i64) {
        let until_ns = now_ns.saturating_add(self.salt_kept_ns);
        self.salts.rcu(|salts| Arc::new(salts.rotated(salt, until_ns)));
    }
}

/// What of an answer says something about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// A limiter of this process refused.
    pub is_own_refusal: bool,
    /// The body was none that could be read.
    pub is_unreadable: bool,
}

impl Pass {
    /// What the last limiter on requests has left.
    pub fn left(&self) -> Option<(Limiter, BucketView)> {
        self.held.as_ref()?.entered.left
    }
}

impl RouteClass {
    pub const ALL: [Self; 3] = [Self::Write, Self::Query, Self::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Query => "query",
            Self::Admin => "admin",
        }
    }

    fn config(self, config: &FrontDoorConfig) -> &config::ClassConfig {
        match self {
            Self::Write => &config.write,
            Self::Query => &config.query,
            Self::Admin => &config.admin,
        }
    }
}

impl Limiter {
    pub const ALL: [Self; 3] = [Self::Failures, Self::Address, Self::Credential];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failures => "failures",
            Self::Address => "address",
            Self::Credential => "credential",
        }
    }
}

#[cfg(test)]
mod tests;
