//! What the budgets of clients may be told: the `client_identity:` block.
//!
//! Budgets themselves are limits of tenants and stand there; here is how a client is named, and
//! what is done about a budget whose owner does not answer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::units::Millis;

/// Names of clients, and the owners of their budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientIdentityConfig {
    /// Off, no request is looked at for a client, and limits of clients are without effect.
    pub enabled: bool,
    /// The header in which a gateway names the client.
    ///
    /// Whoever may set it decides whose budget is charged, so a gateway has to take it off what
    /// comes from outside, as it does with the tenant's.
    pub header: String,
    /// What applies to a client while the owner of its budget cannot be asked.
    pub owner_lost: OwnerLost,
    /// What a budget starts with at an owner that was told nothing of it.
    pub cold_start: ColdStart,
    /// Longest wait of a request for the answer of its budget's owner, within
    /// [`OWNER_TIMEOUT_MS_MIN`] and [`OWNER_TIMEOUT_MS_MAX`].
    pub owner_timeout: Millis,
    /// Age of a member's heartbeat from which it is taken for lost, and the next one of the walk
    /// owns what it owned; at least [`OWNER_OVERDUE_MS_MIN`].
    pub owner_overdue: Millis,
    /// File with the key of the hash that places budgets on the ring, the same at all members.
    /// Empty takes a key that everybody knows, by which somebody who may choose ids can choose
    /// those that one member owns.
    pub secret_file: PathBuf,
}

/// See [`ClientIdentityConfig::owner_lost`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerLost {
    /// What the owner has handed out ahead for this case; it is inside of the budget.
    #[default]
    StandingReserve,
    /// The budget divided by the members, at each of them.
    LocalShare,
    /// Everything.
    Allow,
    /// Nothing.
    Deny,
}

/// See [`ClientIdentityConfig::cold_start`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColdStart {
    /// No credit.
    Empty,
    /// The credit of one second, within the burst.
    #[default]
    OneSecond,
    /// The whole burst.
    Full,
}

/// Settings that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientIdentityConfigError {
    #[error(
        "-client-identity.header is {header:?}, which is no name of a header; it takes 1 to \
         {HEADER_BYTES_MAX} letters, digits and dashes"
    )]
    NoHeader { header: String },
    #[error("-client-identity.header cannot be {header}, which has a meaning of its own")]
    HeaderTaken { header: String },
    #[error(
        "-client-identity.owner-timeout is {given}; it must be within {} and {}",
        Millis(OWNER_TIMEOUT_MS_MIN),
        Millis(OWNER_TIMEOUT_MS_MAX)
    )]
    OwnerTimeout { given: Millis },
    #[error(
        "-client-identity.owner-overdue is {given}; it must be at least {}, since heartbeats come \
         every 2s and one may be late",
        Millis(OWNER_OVERDUE_MS_MIN)
    )]
    OwnerOverdue { given: Millis },
}

/// Shortest wait for an owner: what one answer takes on a network that is not idle.
pub const OWNER_TIMEOUT_MS_MIN: u64 = 1;
/// Longest wait for an owner. A sender waits for the request meanwhile, and gives up on its own
/// after 30 s by Prometheus' default; all of a request's other steps have to fit in too.
pub const OWNER_TIMEOUT_MS_MAX: u64 = 5_000;
/// Least age of a heartbeat that makes its member lost: one heartbeat, and half of one for delay.
pub const OWNER_OVERDUE_MS_MIN: u64 = 3_000;
/// Longest name of a header; the longest registered one has 41 bytes.
const HEADER_BYTES_MAX: usize = 64;

/// Headers that say something else: of the connection, of the body, of the tenant and the
/// request; and those that hold secrets, since ids of clients go to the log.
const HEADERS_TAKEN: [&str; 26] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "extract-forwarded-x-forwarded-for",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "traceparent",
    "transfer-encoding",
    "uber-trace-id",
    "upgrade",
    "user-agent",
    "x-correlation-id",
    "x-forwarded-for",
    "x-request-id",
    "x-request-metadata-propagation-string",
    "x-req-signature",
    "x-scope-orgid",
];

/// What every name begins with that belongs to one of these.
const PREFIXES_TAKEN: [&str; 4] = ["grpc-", "proxy-", "x-prometheus-remote-", "x-stream-"];

impl Default for ClientIdentityConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            header: "X-Scope-ClientID".to_owned(),
            owner_lost: OwnerLost::default(),
            cold_start: ColdStart::default(),
            owner_timeout: Millis(250),
            owner_overdue: Millis::from_secs(6),
            secret_file: PathBuf::new(),
        }
    }
}

impl ClientIdentityConfig {
    /// Checked while it is off too: what is wrong now is wrong on the day that it is turned on.
    pub fn validate(&self) -> Result<(), ClientIdentityConfigError> {
        let header = self.header.to_ascii_lowercase();
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=HEADER_BYTES_MAX).contains(&header.len()) || !header.bytes().all(is_name) {
            return Err(ClientIdentityConfigError::NoHeader { header: self.header.clone() });
        }
        let is_taken = HEADERS_TAKEN.contains(&header.as_str())
            || PREFIXES_TAKEN.iter().any(|prefix| header.starts_with(prefix));
        if is_taken {
            return Err(ClientIdentityConfigError::HeaderTaken { header: self.header.clone() });
        }
        let given = self.owner_timeout;
        if !(OWNER_TIMEOUT_MS_MIN..=OWNER_TIMEOUT_MS_MAX).contains(&given.0) {
            return Err(ClientIdentityConfigError::OwnerTimeout { given });
        }
        let given = self.owner_overdue;
        if given.0 < OWNER_OVERDUE_MS_MIN {
            return Err(ClientIdentityConfigError::OwnerOverdue { given });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: ClientIdentityConfig) -> String {
        config.validate().expect_err("cannot work").to_string()
    }

    #[test]
    fn the_defaults_are_good_and_off() {
        let config = ClientIdentityConfig::default();
        assert_eq!(config.validate(), Ok(()));
        assert!(!config.enabled);
    }

    #[test]
    fn a_header_has_a_name_that_nothing_else_has() {
        let with = |header: &str| ClientIdentityConfig {
            header: header.to_owned(),
            ..ClientIdentityConfig::default()
        };
        for header in ["X-Client", "x-7", &"x".repeat(64)] {
            assert_eq!(with(header).validate(), Ok(()), "{header}");
        }
        for header in ["", "a b", "a:b", "x_client", "é", "a\n", &"x".repeat(65)] {
            assert!(refused(with(header)).contains("no name of a header"), "{header}");
        }
        for header in [
            "X-Scope-OrgID",
            "Authorization",
            "COOKIE",
            "content-length",
            "grpc-timeout",
            "X-Prometheus-Remote-Write-Version",
            "X-Request-Id",
            "Proxy-Authorization",
            "x-stream-signature",
        ] {
            let text = refused(with(header));
            assert_eq!(
                text,
                format!(
                    "-client-identity.header cannot be {header}, which has a meaning of its own"
                )
            );
        }
    }

    #[test]
    fn waits_for_owners_are_within_their_bounds() {
        let timeout = |ms| ClientIdentityConfig {
            owner_timeout: Millis(ms),
            ..ClientIdentityConfig::default()
        };
        for ms in [1, 5000] {
            assert_eq!(timeout(ms).validate(), Ok(()));
        }
        for ms in [0, 5001] {
            assert!(refused(timeout(ms)).ends_with("it must be within 1ms and 5s"));
        }
        let overdue = |ms| ClientIdentityConfig {
            owner_overdue: Millis(ms),
            ..ClientIdentityConfig::default()
        };
        assert_eq!(overdue(3000).validate(), Ok(()));
        assert!(refused(overdue(2999)).contains("at least 3s"));
    }
}
