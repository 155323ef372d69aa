//! Where a ring's one value is kept: a `kvstore:` block under Cortex's names.
//!
//! Each ring has a block of its own, so nothing here knows whose it is: errors name keys from
//! `kvstore` on, and the owner puts its own place before them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::address::{Address, AddressError, Scheme};
use crate::units::{Millis, Secret};

/// `kvstore:`, where a ring's one value is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KvConfig {
    pub store: KvStoreKind,
    /// Put before each key in the store.
    pub prefix: String,
    pub file: FileKvConfig,
    pub etcd: EtcdConfig,
    pub consul: ConsulConfig,
    pub http: HttpKvConfig,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvStoreKind {
    /// Shared by all that runs in this process.
    InMemory,
    /// Read only: a raw ring value or a saved `/ring` page, followed for changes.
    File,
    Etcd,
    Consul,
    /// Read only: the `/ring` page of a Cortex process, asked for again and again.
    Http,
    /// The gossip that all of this process' rings share; see the `memberlist:` block.
    Memberlist,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileKvConfig {
    pub path: PathBuf,
    pub poll_interval: Millis,
}

/// `etcd:`. Unknown keys are refused where a file is read: flattening knows no such check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EtcdConfig {
    /// `host:port`, with `https://` before it for TLS whatever `tls_enabled` says.
    pub endpoints: Vec<String>,
    /// How long one try of a call may take, the connection included.
    pub dial_timeout: Millis,
    /// Tries of a call that fails, and of a swap that loses its race.
    pub max_retries: u32,
    pub tls_enabled: bool,
    #[serde(flatten)]
    pub tls: ClientTlsConfig,
    pub username: String,
    pub password: Secret,
    /// Ping the server also while nothing is asked of it.
    #[serde(rename = "ping-without-stream-allowed")]
    pub ping_without_stream_allowed: bool,
}

/// `consul:`. Unknown keys as for [`EtcdConfig`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsulConfig {
    /// `host:port`, of the local agent as a rule.
    pub host: String,
    pub acl_token: Secret,
    /// How long a call may take, the wait of a blocking one included.
    pub http_client_timeout: Millis,
    /// Read through the leader's quorum; off, from whichever server answers.
    pub consistent_reads: bool,
    /// Blocking queries per second; 0 is no limit.
    pub watch_rate_limit: f64,
    /// Blocking queries at once after a quiet time; below 1 counts as 1.
    pub watch_burst_size: i64,
    pub tls_enabled: bool,
    #[serde(flatten)]
    pub tls: ClientTlsConfig,
}

/// `http:`. Unknown keys as for [`EtcdConfig`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpKvConfig {
    pub url: String,
    pub poll_interval: Millis,
    /// How long one poll may take.
    pub timeout: Millis,
    #[serde(flatten)]
    pub tls: ClientTlsConfig,
}

/// How we prove who we are to a server, and have it prove who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientTlsConfig {
    pub tls_cert_path: PathBuf,
    pub tls_key_path: PathBuf,
    /// Empty takes the host's own authorities.
    pub tls_ca_path: PathBuf,
    /// Name that the server's certificate has to carry; empty takes the host dialled.
    pub tls_server_name: String,
    /// Takes every certificate.
    pub tls_insecure_skip_verify: bool,
}

/// Why a `kvstore:` block cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvConfigError {
    #[error("kvstore.{key} is needed for the store {store:?}")]
    Missing { store: &'static str, key: &'static str },
    #[error("kvstore.{key} must be at least {least}")]
    TooShort { key: &'static str, least: Millis },
    #[error("kvstore.{key} is no address")]
    Address { key: &'static str, source: AddressError },
    #[error("kvstore.{key} {text:?} asks for no TLS while tls_enabled is set")]
    PlainWithTls { key: &'static str, text: String },
    #[error("kvstore.etcd.max_retries must be at least 1")]
    MaxRetries,
    #[error("kvstore.consul.watch_rate_limit must be a number, 0 or more")]
    WatchRateLimit,
    #[error(
        "kvstore.{store} has only one of tls_cert_path and tls_key_path; it takes both or none"
    )]
    HalfCertificate { store: &'static str },
}

impl Default for KvConfig {
    fn default() -> Self {
        Self {
            store: KvStoreKind::InMemory,
            prefix: "collectors/".to_owned(),
            file: FileKvConfig::default(),
            etcd: EtcdConfig::default(),
            consul: ConsulConfig::default(),
            http: HttpKvConfig::default(),
        }
    }
}

impl Default for FileKvConfig {
    fn default() -> Self {
        Self { path: PathBuf::new(), poll_interval: Millis::from_secs(1) }
    }
}

impl Default for EtcdConfig {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            dial_timeout: Millis::from_secs(10),
            max_retries: 10,
            tls_enabled: false,
            tls: ClientTlsConfig::default(),
            username: String::new(),
            password: Secret::default(),
            ping_without_stream_allowed: true,
        }
    }
}

impl Default for ConsulConfig {
    fn default() -> Self {
        Self {
            host: "localhost:8500".to_owned(),
            acl_token: Secret::default(),
            http_client_timeout: Millis::from_secs(20),
            consistent_reads: false,
            watch_rate_limit: 1.0,
            watch_burst_size: 1,
            tls_enabled: false,
            tls: ClientTlsConfig::default(),
        }
    }
}

impl Default for HttpKvConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            poll_interval: Millis::from_secs(5),
            timeout: Millis::from_secs(10),
            tls: ClientTlsConfig::default(),
        }
    }
}

impl KvConfig {
    /// The full key of `name` in the store.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// What the store in use needs; the blocks of the others are not looked at.
    pub fn validate(&self) -> Result<(), KvConfigError> {
        match self.store {
            KvStoreKind::InMemory | KvStoreKind::Memberlist => Ok(()),
            KvStoreKind::File => self.file.validate(),
            KvStoreKind::Etcd => self.etcd.validate(),
            KvStoreKind::Consul => self.consul.validate(),
            KvStoreKind::Http => self.http.validate(),
        }
    }
}

impl FileKvConfig {
    fn validate(&self) -> Result<(), KvConfigError> {
        if self.path.as_os_str().is_empty() {
            return Err(KvConfigError::Missing { store: "file", key: "file.path" });
        }
        at_least("file.poll_interval", self.poll_interval, Millis(10))
    }
}

impl EtcdConfig {
    /// The endpoints, each with whether it is spoken to by TLS.
    pub fn addresses(&self) -> Result<Vec<(Address, bool)>, KvConfigError> {
        let key = "etcd.endpoints";
        let address = |text: &String| address(key, text, self.tls_enabled);
        self.endpoints.iter().map(address).collect()
    }

    fn validate(&self) -> Result<(), KvConfigError> {
        if self.endpoints.is_empty() {
            return Err(KvConfigError::Missing { store: "etcd", key: "etcd.endpoints" });
        }
        at_least("etcd.dial_timeout", self.dial_timeout, Millis(10))?;
        if self.max_retries == 0 {
            return Err(KvConfigError::MaxRetries);
        }
        self.tls.validate("etcd")?;
        self.addresses().map(drop)
    }
}

impl ConsulConfig {
    /// The agent, and whether it is spoken to by TLS.
    pub fn address(&self) -> Result<(Address, bool), KvConfigError> {
        address("consul.host", &self.host, self.tls_enabled)
    }

    fn validate(&self) -> Result<(), KvConfigError> {
        if self.host.is_empty() {
            return Err(KvConfigError::Missing { store: "consul", key: "consul.host" });
        }
        at_least("consul.http_client_timeout", self.http_client_timeout, Millis(100))?;
        if !self.watch_rate_limit.is_finite() || self.watch_rate_limit < 0.0 {
            return Err(KvConfigError::WatchRateLimit);
        }
        self.tls.validate("consul")?;
        self.address().map(drop)
    }
}

impl HttpKvConfig {
    /// The page's server, whether it is spoken to by TLS, and the page there.
    pub fn address(&self) -> Result<(Address, bool), KvConfigError> {
        let address = Address::parse_url(&self.url)
            .map_err(|source| KvConfigError::Address { key: "http.url", source })?;
        let is_tls = address.scheme == Some(Scheme::Https);
        Ok((address, is_tls))
    }

    fn validate(&self) -> Result<(), KvConfigError> {
        if self.url.is_empty() {
            return Err(KvConfigError::Missing { store: "http", key: "http.url" });
        }
        at_least("http.poll_interval", self.poll_interval, Millis(100))?;
        at_least("http.timeout", self.timeout, Millis(10))?;
        self.tls.validate("http")?;
        self.address().map(drop)
    }
}

impl ClientTlsConfig {
    fn validate(&self, store: &'static str) -> Result<(), KvConfigError> {
        let (cert, key) = (&self.tls_cert_path, &self.tls_key_path);
        match cert.as_os_str().is_empty() == key.as_os_str().is_empty() {
            true => Ok(()),
            false => Err(KvConfigError::HalfCertificate { store }),
        }
    }
}

/// An address that says `https://` gets TLS in any case. One that says `http://` while TLS is
/// asked for is refused: it would send passwords and tokens in the open.
fn address(
    key: &'static str,
    text: &str,
    tls_enabled: bool,
) -> Result<(Address, bool), KvConfigError> {
    let address = Address::parse(text).map_err(|source| KvConfigError::Address { key, source })?;
    match address.scheme {
        Some(Scheme::Http) if tls_enabled => {
            Err(KvConfigError::PlainWithTls { key, text: text.to_owned() })
        }
        Some(Scheme::Https) => Ok((address, true)),
        _ => Ok((address, tls_enabled)),
    }
}

fn at_least(key: &'static str, value: Millis, least: Millis) -> Result<(), KvConfigError> {
    if value >= least { Ok(()) } else { Err(KvConfigError::TooShort { key, least }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By way of a tree of values, as files are read.
    fn parse(text: &str) -> KvConfig {
        let tree: serde_json::Value = serde_saphyr::from_str(text).expect(text);
        serde_json::from_value(tree).expect(text)
    }

    #[test]
    fn cortexs_blocks_are_read_under_their_own_names() {
        let config = parse(
            "store: etcd\nprefix: p/\nconsul:\n  host: c:8501\n  acl_token: t\n  \
             http_client_timeout: 30s\n  consistent_reads: true\n  watch_rate_limit: 2.5\n  \
             watch_burst_size: 3\n  tls_enabled: true\n  tls_ca_path: /ca\netcd:\n  endpoints:\n  \
             - a:2379\n  - https://b:2379\n  dial_timeout: 5s\n  max_retries: 4\n  \
             tls_cert_path: /c\n  tls_key_path: /k\n  tls_server_name: etcd\n  \
             tls_insecure_skip_verify: true\n  username: u\n  password: secret\n  \
             ping-without-stream-allowed: false\n",
        );
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(config.key("ring"), "p/ring");
        let etcd = &config.etcd;
        assert_eq!((etcd.dial_timeout, etcd.max_retries), (Millis::from_secs(5), 4));
        assert_eq!((etcd.username.as_str(), etcd.password.reveal()), ("u", "secret"));
        assert!(!etcd.ping_without_stream_allowed && etcd.tls.tls_insecure_skip_verify);
        assert_eq!(etcd.tls.tls_server_name, "etcd");
        let tls: Vec<bool> = etcd.addresses().unwrap().into_iter().map(|(_, tls)| tls).collect();
        assert_eq!(tls, [false, true]);
        let consul = &config.consul;
        assert_eq!((consul.watch_rate_limit, consul.watch_burst_size), (2.5, 3));
        assert!(consul.consistent_reads && consul.address().unwrap().1);
        assert_eq!(consul.tls.tls_ca_path, PathBuf::from("/ca"));
    }

    #[test]
    fn defaults_survive_being_written() {
        let config = KvConfig::default();
        let text = serde_saphyr::to_string(&config).unwrap();
        assert_eq!(parse(&text), config);
    }

    #[test]
    fn what_the_store_in_use_lacks_is_named() {
        let check = |text: &str, part: &str| {
            let error = parse(text).validate().unwrap_err();
            assert!(error.to_string().contains(part), "{text}: {error}");
        };
        check("store: file", "file.path is needed");
        check("store: file\nfile: {path: /r, poll_interval: 1ms}", "at least 10ms");
        check("store: etcd", "etcd.endpoints is needed");
        check("store: etcd\netcd: {endpoints: [a]}", "etcd.endpoints is no address");
        check("store: etcd\netcd: {endpoints: ['a:1'], max_retries: 0}", "max_retries");
        check("store: etcd\netcd: {endpoints: ['a:1'], dial_timeout: 0s}", "dial_timeout");
        let plain = "store: etcd\netcd: {endpoints: ['http://a:1'], tls_enabled: true}";
        check(plain, "asks for no TLS");
        let half = "store: etcd\netcd: {endpoints: ['a:1'], tls_cert_path: /c}";
        check(half, "kvstore.etcd has only one of");
        check("store: consul\nconsul: {host: ''}", "consul.host is needed");
        check("store: consul\nconsul: {watch_rate_limit: -1}", "watch_rate_limit");
        check("store: http", "http.url is needed");
        check("store: http\nhttp: {url: 'ring:80/ring'}", "http.url is no address");
        check("store: http\nhttp: {url: 'http://r/ring', poll_interval: 1ms}", "poll_interval");
        assert_eq!(parse("etcd: {max_retries: 0}").validate(), Ok(()), "not in use");
        assert!(serde_saphyr::from_str::<KvConfig>("store: carrier-pigeon").is_err());
    }
}
