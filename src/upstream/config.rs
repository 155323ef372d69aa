//! What the way to the upstream may be told: the `ingester.upstream:` block.
//!
//! Names and defaults are those of Cortex's gRPC clients where they have the thing. An empty
//! address means that there is no upstream, and nothing else here matters then.

use serde::{Deserialize, Serialize};

use crate::units::Millis;

/// `upstream:`, the ingester that stands behind us.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamConfig {
    /// `host:port`; empty is none.
    pub address: String,
    /// How long a connection may take until it can be used: name, TCP, TLS, HTTP/2.
    pub connect_timeout: Millis,
    /// Wait after the first dial that failed; it grows with each further one.
    pub connect_backoff_base_delay: Millis,
    pub connect_backoff_max_delay: Millis,
    /// Most connections. A further one is opened when all streams of the others are taken.
    pub max_connections: usize,
    /// Most calls waiting or under way; more are refused at once.
    pub max_inflight_requests: usize,
    /// Most bytes of requests waiting or under way; more are refused at once.
    pub max_inflight_bytes: usize,
    /// Longest message of an answer to a question of our own, in bytes. What is passed through
    /// is never held whole and has no such bound.
    pub max_recv_msg_size: usize,
    /// Time between HTTP/2 pings, with or without calls.
    pub keepalive_time: Millis,
    /// A connection whose ping is not answered for so long is closed.
    pub keepalive_timeout: Millis,
}

/// Settings of the way to the upstream that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamConfigError {
    #[error("-ingester.upstream-address is {address:?}; it must be host:port")]
    Address { address: String },
    #[error("{flag} must be more than 0")]
    Zero { flag: &'static str },
    #[error(
        "-ingester.upstream.connect-backoff-base-delay ({base}) must not be longer than \
         -ingester.upstream.connect-backoff-max-delay ({max})"
    )]
    Backoff { base: Millis, max: Millis },
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            address: String::new(),
            connect_timeout: Millis::from_secs(5),
            connect_backoff_base_delay: Millis(100),
            connect_backoff_max_delay: Millis::from_secs(5),
            // At 100 streams each, Cortex's default, twelve thousand calls at once.
            max_connections: 128,
            max_inflight_requests: 20_000,
            max_inflight_bytes: 256 << 20,
            max_recv_msg_size: 100 << 20,
            keepalive_time: Millis::from_secs(20),
            keepalive_timeout: Millis::from_secs(10),
        }
    }
}

impl UpstreamConfig {
    /// Whether there is an upstream at all.
    pub fn is_set(&self) -> bool {
        !self.address.is_empty()
    }

    pub fn validate(&self) -> Result<(), UpstreamConfigError> {
        if !self.is_set() {
            return Ok(());
        }
        let port = self.address.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        if !matches!(port, Some((host, Ok(1..))) if !host.is_empty()) {
            return Err(UpstreamConfigError::Address { address: self.address.clone() });
        }
        let positive = [
            ("-ingester.upstream.connect-timeout", self.connect_timeout.0),
            ("-ingester.upstream.connect-backoff-base-delay", self.connect_backoff_base_delay.0),
            ("-ingester.upstream.max-connections", self.max_connections as u64),
            ("-ingester.upstream.max-inflight-requests", self.max_inflight_requests as u64),
            ("-ingester.upstream.max-inflight-bytes", self.max_inflight_bytes as u64),
            ("-ingester.upstream.grpc-max-recv-msg-size", self.max_recv_msg_size as u64),
            ("-ingester.upstream.keepalive.time", self.keepalive_time.0),
            ("-ingester.upstream.keepalive.timeout", self.keepalive_timeout.0),
        ];
        if let Some((flag, _)) = positive.into_iter().find(|(_, number)| *number == 0) {
            return Err(UpstreamConfigError::Zero { flag });
        }
        let (base, max) = (self.connect_backoff_base_delay, self.connect_backoff_max_delay);
        if base > max {
            return Err(UpstreamConfigError::Backoff { base, max });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut UpstreamConfig)) -> Result<(), UpstreamConfigError> {
        let mut config = UpstreamConfig { address: "ingester:9095".into(), ..Default::default() };
        change(&mut config);
        config.validate()
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_flag_name() {
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|config| config.address = String::new()), Ok(()), "no upstream");
        for address in ["ingester", ":9095", "ingester:", "ingester:0", "ingester:http"] {
            let error = check(|config| config.address = address.into()).expect_err(address);
            assert!(error.to_string().contains("-ingester.upstream-address"), "{error}");
        }
        let error = check(|config| config.max_connections = 0).expect_err("no connection");
        assert!(error.to_string().contains("-ingester.upstream.max-connections"), "{error}");
        let error = check(|config| config.connect_backoff_base_delay = Millis::from_secs(60));
        assert!(matches!(error, Err(UpstreamConfigError::Backoff { .. })));
    }
}
