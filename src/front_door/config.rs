//! What the front door may be told: the `front_door:` block.
//!
//! Everything is off until a number is given: an operator who has not said which proxies stand in
//! front would limit those, and with them everybody at once.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::networks::Network;
use crate::ratelimit::RateLimitHeaders;
use crate::units::Millis;

/// Most that a limiter may admit per minute; more is no limit, and 0 says that.
const PER_MINUTE_MAX: u32 = 10_000_000;
/// Most that a table may keep: at about 140 bytes for an address that is 1.4 GB.
const KEPT_MAX: usize = 10_000_000;
/// Shortest IPv6 prefix that tells senders apart: providers get these, and all of their customers
/// would be one.
const IPV6_PREFIX_MIN: u8 = 32;
/// Longest time for which a success proves a pair: a withdrawn credential is refused all the same,
/// but whoever took it over may fail without credit once.
const PROVEN_FOR_MS_MAX: u64 = 3_600_000;

/// Limits by address and credential, ahead of everything on HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrontDoorConfig {
    /// Proxies whose lists of hops are believed.
    pub trusted_proxies: Vec<Network>,
    /// They write `Forwarded` (RFC 7239), and not `X-Forwarded-For`.
    pub use_forwarded: bool,
    /// Bits of an IPv6 address that tell senders apart.
    pub ipv6_prefix: u8,
    /// Addresses in 64:ff9b::/96 are taken for the IPv4 ones in them.
    pub nat64: bool,
    /// Addresses that no limiter looks at.
    pub allow: Vec<Network>,
    /// Addresses that get nothing but a 403; these go before those of `allow`.
    pub deny: Vec<Network>,
    /// File with the salt that addresses are hashed under; empty makes one at the start.
    pub salt_file: PathBuf,
    /// The user of Basic authentication is a credential too.
    pub basic_user: bool,
    /// For how long a success lets its address and credential in without credit; 0 never does.
    pub proven_for: Millis,
    /// Which answers to writes are failures.
    pub write_failures: WriteFailures,
    /// Refusals of this process' own limiters are failures too.
    pub charge_own_refusals: bool,
    /// Whether answers tell what is left.
    pub ratelimit_headers: RateLimitHeaders,
    /// Addresses that are kept per class of routes.
    pub max_addresses: usize,
    /// Credentials that are kept per class of routes.
    pub max_credentials: usize,
    /// Pairs of both that are kept per class of routes.
    pub max_proven_pairs: usize,
    pub write: ClassConfig,
    pub query: ClassConfig,
    pub admin: ClassConfig,
}

/// The limiters of one class of routes. Each admits its number at once, and as many per minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassConfig {
    /// Failures of an address; 0 is off.
    pub failures_per_minute: u32,
    /// Requests of an address; 0 is off.
    pub requests_per_address_per_minute: u32,
    /// Requests with a credential, or of an address without one; 0 is off.
    pub requests_per_credential_per_minute: u32,
    /// Limiters that count whom they would refuse, and refuse nobody.
    pub shadow: Vec<Limiter>,
}

/// What the front door limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limiter {
    Failures,
    Address,
    Credential,
}

/// See [`FrontDoorConfig::write_failures`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteFailures {
    /// 401, 403, and bodies that cannot be read. A late sample or a full tenant is everyday life,
    /// and a 5xx or a broken connection is no fault of the sender's.
    #[default]
    Auth,
    /// What fails a query too: everything from 400 on, and requests that are broken off.
    All,
}

/// Settings of the front door that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontDoorConfigError {
    #[error(
        "-front-door.trusted-proxies has {network}: whoever sends a request could choose the \
         address that it is limited by"
    )]
    EverybodyTrusted { network: Network },
    #[error("-front-door.{list} has {network}, which is everybody; {cure}")]
    Everybody { list: &'static str, network: Network, cure: &'static str },
    #[error("-front-door.ipv6-prefix is {given}; it must be within {IPV6_PREFIX_MIN} and 128")]
    Ipv6Prefix { given: u8 },
    #[error("-front-door.{flag} is {given}; it must be within 1 and {KEPT_MAX}")]
    Kept { flag: &'static str, given: usize },
    #[error("-front-door.{flag} is {given}; it must be at most {PER_MINUTE_MAX}")]
    PerMinute { flag: String, given: u32 },
    #[error("-front-door.proven-for is {given}; it must be at most {}", Millis(PROVEN_FOR_MS_MAX))]
    ProvenFor { given: Millis },
    #[error("-front-door.use-forwarded needs -front-door.trusted-proxies: nobody else is believed")]
    ForwardedByNobody,
}

impl Default for FrontDoorConfig {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            use_forwarded: false,
            ipv6_prefix: 56,
            nat64: false,
            allow: Vec::new(),
            deny: Vec::new(),
            salt_file: PathBuf::new(),
            basic_user: false,
            proven_for: Millis::from_secs(600),
            write_failures: WriteFailures::Auth,
            charge_own_refusals: false,
            ratelimit_headers: RateLimitHeaders::Off,
            max_addresses: 100_000,
            max_credentials: 100_000,
            max_proven_pairs: 100_000,
            write: ClassConfig::default(),
            query: ClassConfig::default(),
            admin: ClassConfig::default(),
        }
    }
}

impl FrontDoorConfig {
    /// Whether anything is asked of it.
    pub fn is_on(&self) -> bool {
        let classes = [&self.write, &self.query, &self.admin];
        !self.deny.is_empty() || classes.into_iter().any(ClassConfig::is_on)
    }

    /// Checked while it is off too: what is wrong now is wrong on the day that it is turned on.
    pub fn validate(&self) -> Result<(), FrontDoorConfigError> {
        use FrontDoorConfigError as Error;
        let everybody = |list: &[Network]| list.iter().copied().find(|one| one.is_everything());
        if let Some(network) = everybody(&self.trusted_proxies) {
            return Err(Error::EverybodyTrusted { network });
        }
        for (list, networks, cure) in [
            ("allow", &self.allow, "leave the limiters off instead"),
            ("deny", &self.deny, "close the port instead"),
        ] {
            if let Some(network) = everybody(networks) {
                return Err(Error::Everybody { list, network, cure });
            }
        }
        if self.use_forwarded && self.trusted_proxies.is_empty() {
            return Err(Error::ForwardedByNobody);
        }
        if !(IPV6_PREFIX_MIN..=128).contains(&self.ipv6_prefix) {
            return Err(Error::Ipv6Prefix { given: self.ipv6_prefix });
        }
        for (flag, given) in [
            ("max-addresses", self.max_addresses),
            ("max-credentials", self.max_credentials),
            ("max-proven-pairs", self.max_proven_pairs),
        ] {
            if !(1..=KEPT_MAX).contains(&given) {
                return Err(Error::Kept { flag, given });
            }
        }
        if self.proven_for.0 > PROVEN_FOR_MS_MAX {
            return Err(Error::ProvenFor { given: self.proven_for });
        }
        for (name, class) in
            [("write", &self.write), ("query", &self.query), ("admin", &self.admin)]
        {
            class.validate(name)?;
        }
        Ok(())
    }
}

impl ClassConfig {
    pub fn is_on(&self) -> bool {
        self.numbers().into_iter().any(|(_, per_minute)| per_minute > 0)
    }

    fn validate(&self, class: &str) -> Result<(), FrontDoorConfigError> {
        let over = self.numbers().into_iter().find(|(_, given)| *given > PER_MINUTE_MAX);
        match over {
            None => Ok(()),
            Some((flag, given)) => {
                Err(FrontDoorConfigError::PerMinute { flag: format!("{class}.{flag}"), given })
            }
        }
    }

    fn numbers(&self) -> [(&'static str, u32); 3] {
        [
            ("failures-per-minute", self.failures_per_minute),
            ("requests-per-address-per-minute", self.requests_per_address_per_minute),
            ("requests-per-credential-per-minute", self.requests_per_credential_per_minute),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: FrontDoorConfig) -> String {
        config.validate().expect_err("cannot work").to_string()
    }

    fn networks(text: &str) -> Vec<Network> {
        vec![Network::parse(text).expect("a network")]
    }

    #[test]
    fn the_defaults_are_good_and_off() {
        let config = FrontDoorConfig::default();
        assert_eq!(config.validate(), Ok(()));
        assert!(!config.is_on());
        let query = ClassConfig { failures_per_minute: 60, ..ClassConfig::default() };
        assert!(FrontDoorConfig { query, ..config.clone() }.is_on());
        assert!(FrontDoorConfig { deny: networks("192.0.2.0/24"), ..config }.is_on());
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_flag_name() {
        let good = FrontDoorConfig::default;
        let text = refused(FrontDoorConfig { trusted_proxies: networks("0.0.0.0/0"), ..good() });
        assert!(text.starts_with("-front-door.trusted-proxies has 0.0.0.0/0: whoever"), "{text}");
        let text = refused(FrontDoorConfig { allow: networks("::/0"), ..good() });
        assert!(text.starts_with("-front-door.allow has ::/0"), "{text}");
        let text = refused(FrontDoorConfig { deny: networks("::/0"), ..good() });
        assert!(text.ends_with("close the port instead"), "{text}");
        let text = refused(FrontDoorConfig { use_forwarded: true, ..good() });
        assert!(text.contains("needs -front-door.trusted-proxies"), "{text}");
        for ipv6_prefix in [0, 31, 129] {
            let text = refused(FrontDoorConfig { ipv6_prefix, ..good() });
            assert!(text.ends_with("within 32 and 128"), "{text}");
        }
        let text = refused(FrontDoorConfig { proven_for: Millis::from_secs(3601), ..good() });
        assert!(text.ends_with("at most 1h0m0s"), "{text}");
        let admin = ClassConfig { failures_per_minute: PER_MINUTE_MAX + 1, ..Default::default() };
        let text = refused(FrontDoorConfig { admin, ..good() });
        assert!(text.starts_with("-front-door.admin.failures-per-minute is 10000001"), "{text}");
    }

    #[test]
    fn case_r16_a_table_of_nothing_is_refused() {
        let good = FrontDoorConfig::default;
        for config in [
            FrontDoorConfig { max_addresses: 0, ..good() },
            FrontDoorConfig { max_credentials: 0, ..good() },
            FrontDoorConfig { max_proven_pairs: KEPT_MAX + 1, ..good() },
        ] {
            assert!(refused(config).contains("must be within 1 and 10000000"));
        }
    }
}
