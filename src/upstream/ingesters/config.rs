//! How a distributor speaks with ingesters: the `ingester_client:` block.
//!
//! Names and defaults are Cortex's. What it has and we do not (a client-side rate limit and its
//! retries, a second health check) ends the start by name instead of being without effect.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::tls::ClientTlsConfig;
use crate::units::Millis;
use crate::upstream::config::UpstreamConfig;
use crate::wire::encoding::Encoding;

/// `ingester_client:`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngesterClientConfig {
    pub grpc_client_config: GrpcClientConfig,
    /// Most pushes to one ingester waiting or under way; more fail at once. 0 is no bound of this
    /// kind, see [`super::CALLS_PER_INGESTER_MAX`].
    pub max_inflight_push_requests: u64,
}

/// `grpc_client_config:`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcClientConfig {
    /// Longest message of an answer in bytes.
    pub max_recv_msg_size: usize,
    /// Longest message that is sent, in bytes as they go out.
    pub max_send_msg_size: usize,
    /// `gzip`, `snappy`, `snappy-block`, `zstd`, or empty for none.
    pub grpc_compression: String,
    pub tls_enabled: bool,
    pub tls_cert_path: PathBuf,
    pub tls_key_path: PathBuf,
    pub tls_ca_path: PathBuf,
    /// Name on the ingesters' certificates; empty takes the host of each address.
    pub tls_server_name: String,
    pub tls_insecure_skip_verify: bool,
    /// How long a connection may take until it can be used; 0 is 20 s, as with grpc-go.
    pub connect_timeout: Millis,
}

/// Settings of the ingesters' clients that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IngesterClientConfigError {
    #[error("unsupported compression type: {name}")]
    Compression { name: String },
    #[error("-ingester.client.tls-cert-path and -ingester.client.tls-key-path need each other")]
    HalfPair,
    #[error("{flag} must be more than 0")]
    Zero { flag: &'static str },
}

/// What grpc-go takes when it is told nothing.
const CONNECT_TIMEOUT_DEFAULT: Millis = Millis::from_secs(20);

impl Default for GrpcClientConfig {
    fn default() -> Self {
        Self {
            max_recv_msg_size: 100 << 20,
            max_send_msg_size: 16 << 20,
            grpc_compression: Encoding::SnappyBlock.name().to_owned(),
            tls_enabled: false,
            tls_cert_path: PathBuf::new(),
            tls_key_path: PathBuf::new(),
            tls_ca_path: PathBuf::new(),
            tls_server_name: String::new(),
            tls_insecure_skip_verify: false,
            connect_timeout: Millis::from_secs(5),
        }
    }
}

impl IngesterClientConfig {
    pub fn validate(&self) -> Result<(), IngesterClientConfigError> {
        let grpc = &self.grpc_client_config;
        grpc.encoding()?;
        let positive = [
            ("-ingester.client.grpc-max-recv-msg-size", grpc.max_recv_msg_size),
            ("-ingester.client.grpc-max-send-msg-size", grpc.max_send_msg_size),
        ];
        if let Some((flag, _)) = positive.into_iter().find(|(_, number)| *number == 0) {
            return Err(IngesterClientConfigError::Zero { flag });
        }
        if grpc.tls_enabled && grpc.tls().has_half_a_pair() {
            return Err(IngesterClientConfigError::HalfPair);
        }
        Ok(())
    }
}

impl GrpcClientConfig {
    pub fn encoding(&self) -> Result<Encoding, IngesterClientConfigError> {
        let name = &self.grpc_compression;
        match Encoding::from_name(name.as_bytes()) {
            _ if name.is_empty() => Ok(Encoding::Identity),
            // `identity` is no compression that Cortex knows by name.
            Some(Encoding::Identity) | None => {
                Err(IngesterClientConfigError::Compression { name: name.clone() })
            }
            Some(encoding) => Ok(encoding),
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

    /// The way to the ingester at `address`.
    pub(super) fn upstream(&self, address: &str) -> UpstreamConfig {
        let connect_timeout = match self.connect_timeout {
            Millis(0) => CONNECT_TIMEOUT_DEFAULT,
            given => given,
        };
        UpstreamConfig {
            address: address.to_owned(),
            connect_timeout,
            max_connections: super::CONNECTIONS_PER_INGESTER_MAX,
            max_inflight_requests: super::CALLS_PER_INGESTER_MAX,
            max_inflight_bytes: super::BYTES_PER_INGESTER_MAX,
            max_recv_msg_size: self.max_recv_msg_size,
            tls_enabled: self.tls_enabled,
            tls_server_name: self.tls_server_name.clone(),
            ..UpstreamConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused() {
        let check = |change: fn(&mut GrpcClientConfig), expect: Option<&str>| {
            let mut config = IngesterClientConfig::default();
            change(&mut config.grpc_client_config);
            let outcome = config.validate().err().map(|error| error.to_string());
            assert_eq!(outcome.as_deref(), expect);
        };
        check(|_| {}, None);
        check(|grpc| grpc.grpc_compression = String::new(), None);
        for name in ["gzip", "snappy", "snappy-block", "zstd"] {
            let grpc = GrpcClientConfig { grpc_compression: name.into(), ..Default::default() };
            assert_eq!(grpc.encoding().map(Encoding::name), Ok(name));
        }
        for name in ["identity", "lz4", "Gzip"] {
            let grpc = GrpcClientConfig { grpc_compression: name.into(), ..Default::default() };
            let error = grpc.encoding().expect_err(name).to_string();
            assert_eq!(error, format!("unsupported compression type: {name}"));
        }
        check(
            |grpc| grpc.max_send_msg_size = 0,
            Some("-ingester.client.grpc-max-send-msg-size must be more than 0"),
        );
        check(
            |grpc| {
                grpc.tls_enabled = true;
                grpc.tls_key_path = "key.pem".into();
            },
            Some(
                "-ingester.client.tls-cert-path and -ingester.client.tls-key-path need each other",
            ),
        );
    }
}
