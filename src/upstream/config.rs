//! What the way to the upstream may be told: the `ingester.upstream:` block.
//!
//! Names and defaults are those of Cortex's gRPC clients where they have the thing. An empty
//! address means that there is no upstream, and nothing else here matters then.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::tls::ClientTlsConfig;
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
    /// How long a message of a push stream may wait for the upstream's answer; unary pushes bring
    /// a deadline of their own.
    pub push_stream_timeout: Millis,
    /// Time between HTTP/2 pings, with or without calls.
    pub keepalive_time: Millis,
    /// A connection whose ping is not answered for so long is closed.
    pub keepalive_timeout: Millis,
    pub tls_enabled: bool,
    /// What we show of ourselves; needs the key.
    pub tls_cert_path: PathBuf,
    pub tls_key_path: PathBuf,
    /// Whom we trust; empty trusts whom the host trusts.
    pub tls_ca_path: PathBuf,
    /// Name on the upstream's certificate; empty takes the host of the address.
    pub tls_server_name: String,
    pub tls_insecure_skip_verify: bool,
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
    #[error("-ingester.upstream.tls-cert-path and -ingester.upstream.tls-key-path need each other")]
    HalfPair,
    #[error("-ingester.upstream.tls-server-name, or the host without it, is no name: {name:?}")]
    ServerName { name: String },
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
            push_stream_timeout: Millis::from_secs(10),
            keepalive_time: Millis::from_secs(20),
            keepalive_timeout: Millis::from_secs(10),
            tls_enabled: false,
            tls_cert_path: PathBuf::new(),
            tls_key_path: PathBuf::new(),
            tls_ca_path: PathBuf::new(),
            tls_server_name: String::new(),
            tls_insecure_skip_verify: false,
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
            ("-ingester.upstream.push-stream-timeout", self.push_stream_timeout.0),
        ];
        if let Some((flag, _)) = positive.into_iter().find(|(_, number)| *number == 0) {
            return Err(UpstreamConfigError::Zero { flag });
        }
        let (base, max) = (self.connect_backoff_base_delay, self.connect_backoff_max_delay);
        if base > max {
            return Err(UpstreamConfigError::Backoff { base, max });
        }
        if self.tls_enabled {
            self.server_name()?;
            if self.tls().has_half_a_pair() {
                return Err(UpstreamConfigError::HalfPair);
            }
        }
        Ok(())
    }

    pub fn tls(&self) -> ClientTlsConfig {
        ClientTlsConfig {
            cert_path: self.tls_cert_path.clone(),
            key_path: self.tls_key_path.clone(),
            ca_path: self.tls_ca_path.clone(),
            insecure_skip_verify: self.tls_insecure_skip_verify,
        }
    }

    /// What the upstream's certificate has to be for.
    pub fn server_name(&self) -> Result<ServerName<'static>, UpstreamConfigError> {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = if self.tls_server_name.is_empty() { host } else { &self.tls_server_name };
        ServerName::try_from(name.to_owned())
            .map_err(|_| UpstreamConfigError::ServerName { name: name.to_owned() })
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
        let error = check(|config| {
            config.tls_enabled = true;
            config.tls_cert_path = "cert.pem".into();
        });
        assert_eq!(error, Err(UpstreamConfigError::HalfPair));
    }

    #[test]
    fn the_certificate_is_for_the_host_unless_another_name_is_given() {
        let name = |address: &str, given: &str| {
            let config = UpstreamConfig {
                address: address.into(),
                tls_server_name: given.into(),
                ..Default::default()
            };
            config.server_name().map(|name| name.to_str().into_owned())
        };
        assert_eq!(name("ingester-1.ns.svc:9095", ""), Ok("ingester-1.ns.svc".into()));
        assert_eq!(name("127.0.0.1:9095", ""), Ok("127.0.0.1".into()));
        assert_eq!(name("[::1]:9095", ""), Ok("::1".into()));
        assert_eq!(name("127.0.0.1:9095", "ingester"), Ok("ingester".into()));
        assert!(name("a b:9095", "").is_err());
    }
}
