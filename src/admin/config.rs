//! Where the pages are, and who may see them: the `admin:` block.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::tls::{ServerTlsConfig, ServerTlsConfigError};

/// Where the pages are as long as nobody says otherwise: for those who are on the machine.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8081";

/// The listener for operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Address and port; port 0 takes a free one. Empty is no listener: Cortex's pages are then
    /// still on the HTTP listener, ours are nowhere.
    pub http_listen_address: String,
    /// What all requests there must show, as a bearer token or as the password of any user. A
    /// change is taken without a restart. Empty asks for nothing.
    pub bearer_token_file: PathBuf,
    pub http_tls_config: ServerTlsConfig,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminConfigError {
    #[error(
        "-admin.http-listen-address is {address:?}, which is no IP address with a port, as \
         {DEFAULT_ADDRESS} is"
    )]
    Address { address: String },
    #[error("-admin.http-tls-*: {error}")]
    Tls { error: ServerTlsConfigError },
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            http_listen_address: DEFAULT_ADDRESS.into(),
            bearer_token_file: PathBuf::new(),
            http_tls_config: ServerTlsConfig::default(),
        }
    }
}

impl AdminConfig {
    pub fn validate(&self) -> Result<(), AdminConfigError> {
        self.http_tls_config.validate().map_err(|error| AdminConfigError::Tls { error })?;
        self.address().map(|_| ())
    }

    /// `None` is no listener.
    pub fn address(&self) -> Result<Option<SocketAddr>, AdminConfigError> {
        let address = self.http_listen_address.replace("localhost", "127.0.0.1");
        match address.as_str() {
            "" => Ok(None),
            address => address.parse().map(Some).map_err(|_| AdminConfigError::Address {
                address: self.http_listen_address.clone(),
            }),
        }
    }

    /// Nobody has chosen the address: another process of this machine may have it already, which
    /// is then no reason not to start.
    pub fn is_default_address(&self) -> bool {
        self.http_listen_address == DEFAULT_ADDRESS
    }

    /// Something is asked of those who come.
    pub fn asks(&self) -> bool {
        !self.bearer_token_file.as_os_str().is_empty()
            || self.http_tls_config.asks_for_certificates()
    }

    /// What an operator should know before somebody else finds out.
    pub fn warning(&self) -> Option<String> {
        let address = self.address().ok().flatten()?;
        let is_open = !address.ip().is_loopback() && !self.asks();
        is_open.then(|| {
            format!(
                "-admin.http-listen-address={address} lets everyone who reaches it see all tenants \
                 and change the ring; set -admin.bearer-token-file or -admin.http-tls-ca-path"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_and_none_is_no_listener() {
        let at = |address: &str| {
            AdminConfig { http_listen_address: address.into(), ..Default::default() }.address()
        };
        assert_eq!(at(""), Ok(None));
        assert_eq!(at("localhost:0"), Ok(Some(SocketAddr::from(([127, 0, 0, 1], 0)))));
        let text = at("127.0.0.1").expect_err("no port").to_string();
        assert!(text.contains("-admin.http-listen-address") && text.contains(DEFAULT_ADDRESS));
        assert!(AdminConfig::default().is_default_address());
    }

    #[test]
    fn who_opens_it_to_all_is_told() {
        let mut config = AdminConfig::default();
        assert_eq!(config.warning(), None);
        config.http_listen_address = "0.0.0.0:8081".into();
        assert!(config.warning().is_some_and(|text| text.contains("-admin.bearer-token-file")));
        config.bearer_token_file = "/etc/freehold/admin-token".into();
        assert_eq!(config.warning(), None);
    }
}
