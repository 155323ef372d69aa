//! What the way to those who answer queries may be told: the `frontend.downstream:` block.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::ring::config::address::{Address, AddressError, Scheme};
use crate::tls::ClientTlsConfig;
use crate::units::Millis;

/// Most addresses. Each is health-checked by every gate; whoever has more of them has a balancer.
pub const ADDRESSES_MAX: usize = 64;

/// `downstream:`, those that answer the queries that the gate lets through: query-frontends, or
/// a Prometheus. Without a URL there are none, and nothing else here matters then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DownstreamConfig {
    /// `http://host:port`, several with commas between; `https` for TLS, on which HTTP/2 is
    /// agreed where the other side knows it; `h2c` for HTTP/2 without TLS. A path in one is put
    /// before that of each request.
    pub url: String,
    /// How long the head of an answer may take once the request is there.
    pub response_timeout: Millis,
    /// How long a body may pause, the request's or the answer's.
    pub idle_timeout: Millis,
    /// How long a connection may take until it can be used: name, TCP, TLS.
    pub connect_timeout: Millis,
    /// Wait after the first connection that could not be made; it grows with each further one.
    pub connect_backoff_base_delay: Millis,
    pub connect_backoff_max_delay: Millis,
    /// Connections to one address that are kept open while nothing goes over them.
    pub max_idle_connections: usize,
    /// Most requests to one address under way; more are refused at once.
    pub max_inflight_requests: usize,
    /// What is asked for to see whether an address is well; empty asks nothing, and then only
    /// connections that cannot be made take it out.
    pub health_check_path: String,
    pub health_check_period: Millis,
    pub health_check_timeout: Millis,
    /// The least status that says it is not well.
    pub health_check_bad_status: u16,
    /// What we show of ourselves; needs the key.
    pub tls_cert_path: PathBuf,
    pub tls_key_path: PathBuf,
    /// Whom we trust; empty trusts whom the host trusts.
    pub tls_ca_path: PathBuf,
    /// Name on the other sides' certificates; empty takes the host of each URL.
    pub tls_server_name: String,
    pub tls_insecure_skip_verify: bool,
}

/// One of those who answer, as it was configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownstreamAddress {
    pub address: Address,
    /// HTTP/2 from the first byte on.
    pub is_http2: bool,
}

/// Settings of the way to the downstream that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownstreamConfigError {
    #[error(
        "-frontend.downstream-url cannot be used; an address is http://host:port, \
         https://host:port or h2c://host:port"
    )]
    Url(#[from] AddressError),
    #[error("-frontend.downstream-url has {url:?}, whose scheme is none of http, https and h2c")]
    Scheme { url: String },
    #[error("-frontend.downstream-url holds a query, which each request has of its own: {url:?}")]
    Query { url: String },
    #[error("-frontend.downstream-url names {url:?} twice")]
    Twice { url: String },
    #[error("-frontend.downstream-url names {count} addresses; {ADDRESSES_MAX} are the most")]
    TooMany { count: usize },
    #[error("{flag} must be more than 0")]
    Zero { flag: &'static str },
    #[error(
        "-frontend.downstream.connect-backoff-base-delay ({base}) must not be longer than \
         -frontend.downstream.connect-backoff-max-delay ({max})"
    )]
    Backoff { base: Millis, max: Millis },
    #[error("-frontend.downstream.health-check-path is {path:?}; it must begin with a slash")]
    Path { path: String },
    #[error("-frontend.downstream.health-check-bad-status is {status}; it must be 200 to 600")]
    BadStatus { status: u16 },
    #[error(
        "-frontend.downstream.tls-cert-path and -frontend.downstream.tls-key-path need each other"
    )]
    HalfPair,
    #[error("-frontend.downstream.tls-server-name, or a host without it, is no name: {name:?}")]
    ServerName { name: String },
}

impl Default for DownstreamConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            // Longer than the two minutes after which queriers give up a query, so that it is
            // their answer which is heard, and not ours.
            response_timeout: Millis::from_secs(180),
            idle_timeout: Millis::from_secs(60),
            connect_timeout: Millis::from_secs(5),
            connect_backoff_base_delay: Millis(100),
            connect_backoff_max_delay: Millis::from_secs(5),
            max_idle_connections: 100,
            max_inflight_requests: 1000,
            // Of a query-frontend it is the truth; a Prometheus has no such page, and says so,
            // which is answer enough.
            health_check_path: "/ready".into(),
            health_check_period: Millis::from_secs(5),
            health_check_timeout: Millis::from_secs(2),
            health_check_bad_status: 500,
            tls_cert_path: PathBuf::new(),
            tls_key_path: PathBuf::new(),
            tls_ca_path: PathBuf::new(),
            tls_server_name: String::new(),
            tls_insecure_skip_verify: false,
        }
    }
}

impl DownstreamConfig {
    /// Whether there is anybody behind us at all.
    pub fn is_set(&self) -> bool {
        !self.url.is_empty()
    }

    pub fn validate(&self) -> Result<(), DownstreamConfigError> {
        if !self.is_set() {
            return Ok(());
        }
        let addresses = self.addresses()?;
        let positive = [
            ("-frontend.downstream.response-timeout", self.response_timeout.0),
            ("-frontend.downstream.idle-timeout", self.idle_timeout.0),
            ("-frontend.downstream.connect-timeout", self.connect_timeout.0),
            ("-frontend.downstream.connect-backoff-base-delay", self.connect_backoff_base_delay.0),
            ("-frontend.downstream.max-inflight-requests", self.max_inflight_requests as u64),
            ("-frontend.downstream.health-check-period", self.health_check_period.0),
            ("-frontend.downstream.health-check-timeout", self.health_check_timeout.0),
        ];
        if let Some((flag, _)) = positive.into_iter().find(|(_, number)| *number == 0) {
            return Err(DownstreamConfigError::Zero { flag });
        }
        let (base, max) = (self.connect_backoff_base_delay, self.connect_backoff_max_delay);
        if base > max {
            return Err(DownstreamConfigError::Backoff { base, max });
        }
        let path = &self.health_check_path;
        if !path.is_empty() && (!path.starts_with('/') || path.parse::<http::Uri>().is_err()) {
            return Err(DownstreamConfigError::Path { path: path.clone() });
        }
        let status = self.health_check_bad_status;
        if !(200..=600).contains(&status) {
            return Err(DownstreamConfigError::BadStatus { status });
        }
        for address in addresses.iter().filter(|address| address.is_tls()) {
            self.server_name(address)?;
            if self.tls().has_half_a_pair() {
                return Err(DownstreamConfigError::HalfPair);
            }
        }
        Ok(())
    }

    /// All of them, in the order in which they are named.
    pub fn addresses(&self) -> Result<Vec<DownstreamAddress>, DownstreamConfigError> {
        let mut addresses: Vec<DownstreamAddress> = Vec::new();
        for url in self.url.split(',').map(str::trim) {
            let address = DownstreamAddress::parse(url)?;
            let authority = address.address.authority();
            if addresses.iter().any(|other| other.address.authority() == authority) {
                return Err(DownstreamConfigError::Twice { url: url.to_owned() });
            }
            addresses.push(address);
        }
        match addresses.len() {
            count if count > ADDRESSES_MAX => Err(DownstreamConfigError::TooMany { count }),
            _ => Ok(addresses),
        }
    }

    pub fn tls(&self) -> ClientTlsConfig {
        ClientTlsConfig {
            cert_path: self.tls_cert_path.clone(),
            key_path: self.tls_key_path.clone(),
            ca_path: self.tls_ca_path.clone(),
            insecure_skip_verify: self.tls_insecure_skip_verify,
        }
    }

    /// What the certificate of the other side has to be for.
    pub fn server_name(
        &self,
        address: &DownstreamAddress,
    ) -> Result<ServerName<'static>, DownstreamConfigError> {
        let name = match self.tls_server_name.as_str() {
            "" => address.address.host.clone(),
            name => name.to_owned(),
        };
        ServerName::try_from(name.clone()).map_err(|_| DownstreamConfigError::ServerName { name })
    }
}

impl DownstreamAddress {
    fn parse(url: &str) -> Result<Self, DownstreamConfigError> {
        let (is_http2, plain) = match url.strip_prefix("h2c://") {
            Some(rest) => (true, format!("http://{rest}")),
            None => (false, url.to_owned()),
        };
        let address = match Address::parse_url(&plain) {
            // In its own words it would know of two.
            Err(AddressError::Scheme { .. }) => {
                return Err(DownstreamConfigError::Scheme { url: url.to_owned() });
            }
            parsed => parsed?,
        };
        match address.path.contains('?') {
            true => Err(DownstreamConfigError::Query { url: url.to_owned() }),
            false => Ok(Self { address, is_http2 }),
        }
    }

    pub fn is_tls(&self) -> bool {
        self.address.scheme == Some(Scheme::Https)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut DownstreamConfig)) -> Result<(), DownstreamConfigError> {
        let url = "http://frontend:8080/base".into();
        let mut config = DownstreamConfig { url, ..Default::default() };
        change(&mut config);
        config.validate()
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_flag_name() {
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|config| config.url = String::new()), Ok(()), "no downstream");
        assert_eq!(check(|config| config.url = "https://[::1], h2c://b:1".into()), Ok(()));
        for url in ["a:80", "ftp://a", "http://", "http://a/?b=c", "http://a,", "http://a,http://a"]
        {
            let error = check(|config| config.url = url.into()).expect_err(url);
            assert!(error.to_string().contains("-frontend.downstream-url"), "{error}");
        }
        let error = check(|config| config.url = "ftp://a".into()).expect_err("no such scheme");
        assert!(error.to_string().ends_with("none of http, https and h2c"), "{error}");
        let error = check(|config| config.url = "a:80".into()).expect_err("no scheme");
        assert!(error.to_string().contains("h2c://host:port"), "{error}");
        let many: Vec<_> = (1..=65).map(|port| format!("http://a:{port}")).collect();
        let error = check(|config| config.url = many.join(",")).expect_err("too many");
        assert_eq!(error, DownstreamConfigError::TooMany { count: 65 });
        let error = check(|config| config.max_inflight_requests = 0).expect_err("no request");
        assert!(error.to_string().contains("-frontend.downstream.max-inflight-requests"));
        for path in ["ready", "/a b"] {
            let error = check(|config| config.health_check_path = path.into()).expect_err(path);
            assert!(error.to_string().contains("health-check-path"));
        }
        assert_eq!(check(|config| config.health_check_path = String::new()), Ok(()));
        let error = check(|config| {
            config.url = "http://a,https://b".into();
            config.tls_key_path = "key.pem".into();
        });
        assert_eq!(error, Err(DownstreamConfigError::HalfPair));
    }

    #[test]
    fn the_scheme_tells_which_protocol_is_spoken() {
        let url = "http://a:1/x,https://b,h2c://c:2".into();
        let config = DownstreamConfig { url, ..Default::default() };
        let addresses = config.addresses().expect("addresses");
        let told = |address: &DownstreamAddress| {
            (address.address.authority(), address.is_tls(), address.is_http2)
        };
        let told: Vec<_> = addresses.iter().map(told).collect();
        let expect = [("a:1", false, false), ("b:443", true, false), ("c:2", false, true)];
        let expect = expect.map(|(authority, tls, http2)| (authority.to_owned(), tls, http2));
        assert_eq!(told, expect);
    }
}
