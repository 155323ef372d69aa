//! What the way to a Cortex distributor may be told: the `distributor.upstream:` block.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::ring::config::address::{Address, AddressError, Scheme};
use crate::tls::ClientTlsConfig;
use crate::units::Millis;

/// `upstream:`, the distributor that stands behind us. Without a URL there is none, and nothing
/// else here matters then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpUpstreamConfig {
    /// `http://host:port`, or with `https`; a path in it is put before that of each request.
    pub url: String,
    /// How long a request may take from its first byte to the last of its answer.
    pub timeout: Millis,
    /// How long a connection may take until it can be used: name, TCP, TLS.
    pub connect_timeout: Millis,
    /// Wait after the first connection that could not be made; it grows with each further one.
    pub connect_backoff_base_delay: Millis,
    pub connect_backoff_max_delay: Millis,
    /// Connections that are kept open while nothing goes over them.
    pub max_idle_connections: usize,
    /// Most requests under way, each on a connection of its own; more are refused at once.
    pub max_inflight_requests: usize,
    /// Most bytes of requests under way; more are refused at once.
    pub max_inflight_bytes: usize,
    /// What we show of ourselves; needs the key.
    pub tls_cert_path: PathBuf,
    pub tls_key_path: PathBuf,
    /// Whom we trust; empty trusts whom the host trusts.
    pub tls_ca_path: PathBuf,
    /// Name on the other side's certificate; empty takes the host of the URL.
    pub tls_server_name: String,
    pub tls_insecure_skip_verify: bool,
}

/// Settings of the way to the distributor that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpUpstreamConfigError {
    #[error("-distributor.upstream-url cannot be used")]
    Url(#[from] AddressError),
    #[error("-distributor.upstream-url holds a query, which no push has")]
    Query,
    #[error("{flag} must be more than 0")]
    Zero { flag: &'static str },
    #[error(
        "-distributor.upstream.connect-backoff-base-delay ({base}) must not be longer than \
         -distributor.upstream.connect-backoff-max-delay ({max})"
    )]
    Backoff { base: Millis, max: Millis },
    #[error(
        "-distributor.upstream.tls-cert-path and -distributor.upstream.tls-key-path need each other"
    )]
    HalfPair,
    #[error("-distributor.upstream.tls-server-name, or the host without it, is no name: {name:?}")]
    ServerName { name: String },
}

impl Default for HttpUpstreamConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            // Less than the 30 s that Prometheus waits by default, so that our answer is heard.
            timeout: Millis::from_secs(20),
            connect_timeout: Millis::from_secs(5),
            connect_backoff_base_delay: Millis(100),
            connect_backoff_max_delay: Millis::from_secs(5),
            max_idle_connections: 100,
            max_inflight_requests: 1000,
            max_inflight_bytes: 256 << 20,
            tls_cert_path: PathBuf::new(),
            tls_key_path: PathBuf::new(),
            tls_ca_path: PathBuf::new(),
            tls_server_name: String::new(),
            tls_insecure_skip_verify: false,
        }
    }
}

impl HttpUpstreamConfig {
    /// Whether there is a distributor behind us at all.
    pub fn is_set(&self) -> bool {
        !self.url.is_empty()
    }

    pub fn validate(&self) -> Result<(), HttpUpstreamConfigError> {
        if !self.is_set() {
            return Ok(());
        }
        let address = self.address()?;
        if address.path.contains('?') {
            return Err(HttpUpstreamConfigError::Query);
        }
        let positive = [
            ("-distributor.upstream.timeout", self.timeout.0),
            ("-distributor.upstream.connect-timeout", self.connect_timeout.0),
            ("-distributor.upstream.connect-backoff-base-delay", self.connect_backoff_base_delay.0),
            ("-distributor.upstream.max-inflight-requests", self.max_inflight_requests as u64),
            ("-distributor.upstream.max-inflight-bytes", self.max_inflight_bytes as u64),
        ];
        if let Some((flag, _)) = positive.into_iter().find(|(_, number)| *number == 0) {
            return Err(HttpUpstreamConfigError::Zero { flag });
        }
        let (base, max) = (self.connect_backoff_base_delay, self.connect_backoff_max_delay);
        if base > max {
            return Err(HttpUpstreamConfigError::Backoff { base, max });
        }
        if address.scheme == Some(Scheme::Https) {
            self.server_name()?;
            if self.tls().has_half_a_pair() {
                return Err(HttpUpstreamConfigError::HalfPair);
            }
        }
        Ok(())
    }

    pub fn address(&self) -> Result<Address, AddressError> {
        Address::parse_url(&self.url)
    }

    pub fn tls(&self) -> ClientTlsConfig {
        ClientTlsConfig {
            cert_path: self.tls_cert_path.clone(),
            key_path: self.tls_key_path.clone(),
            ca_path: self.tls_ca_path.clone(),
            insecure_skip_verify: self.tls_insecure_skip_verify,
        }
    }

    /// What the other side's certificate has to be for.
    pub fn server_name(&self) -> Result<ServerName<'static>, HttpUpstreamConfigError> {
        let name = match self.tls_server_name.as_str() {
            "" => self.address()?.host,
            name => name.to_owned(),
        };
        ServerName::try_from(name.clone()).map_err(|_| HttpUpstreamConfigError::ServerName { name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut HttpUpstreamConfig)) -> Result<(), HttpUpstreamConfigError> {
        let url = "http://cortex:8080/base".into();
        let mut config = HttpUpstreamConfig { url, ..Default::default() };
        change(&mut config);
        config.validate()
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_flag_name() {
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|config| config.url = String::new()), Ok(()), "no upstream");
        assert_eq!(check(|config| config.url = "https://[::1]".into()), Ok(()));
        for url in ["cortex:8080", "ftp://cortex", "http://", "http://cortex/?a=b"] {
            let error = check(|config| config.url = url.into()).expect_err(url);
            assert!(error.to_string().contains("-distributor.upstream-url"), "{error}");
        }
        let error = check(|config| config.max_inflight_requests = 0).expect_err("no request");
        assert!(error.to_string().contains("-distributor.upstream.max-inflight-requests"));
        let error = check(|config| {
            config.url = "https://cortex".into();
            config.tls_key_path = "key.pem".into();
        });
        assert_eq!(error, Err(HttpUpstreamConfigError::HalfPair));
    }
}
