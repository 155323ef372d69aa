//! The edge: where requests come in and answers go out.
//!
//! Listeners, drain, thin gRPC and HTTP handlers, and `status`, the only place that knows which
//! number and which text an error becomes. No rule of the domain lives here: a handler reads a
//! request, calls a service through `seam`, and writes what came of it.
//!
//! How a process ends: the shell says so through a `Drainer`; listeners close, open connections
//! are told, push streams answer the message at hand and end with an error, and `serve` returns
//! when all calls are over or the drain's time is.

pub mod drain;
pub mod grpc;
pub mod http;
pub mod listen;
pub mod seam;
pub mod status;
pub mod stream_auth;
pub mod tenancy;

use serde::{Deserialize, Serialize};

use crate::units::Millis;

/// The `server:` block, under Cortex's names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Empty: all addresses.
    pub http_listen_address: String,
    pub http_listen_port: u16,
    /// Open HTTP connections; 0 is no bound. More wait in the system's queue.
    pub http_listen_conn_limit: usize,
    /// Empty: all addresses.
    pub grpc_listen_address: String,
    pub grpc_listen_port: u16,
    /// Open gRPC connections; 0 is no bound. More wait in the system's queue.
    pub grpc_listen_conn_limit: usize,
    /// How long a drain may take.
    pub graceful_shutdown_timeout: Millis,
    /// How long a request's body may take.
    pub http_server_read_timeout: Millis,
    /// How long a connection may be without a whole request head, new or between requests.
    pub http_server_idle_timeout: Millis,
    /// Largest gRPC message taken, compressed and decompressed.
    pub grpc_server_max_recv_msg_size: usize,
    pub grpc_server_max_send_msg_size: usize,
    /// Streams per connection; 0 is no bound. Cortex's 100 are taken up by one distributor that
    /// pushes by stream, and its health checks then starve.
    pub grpc_server_max_concurrent_streams: u32,
    /// Time between HTTP/2 pings.
    pub grpc_server_keepalive_time: Millis,
    /// A connection whose ping is not answered for so long is closed.
    pub grpc_server_keepalive_timeout: Millis,
}

/// How a listener's end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every call was answered.
    Whole,
    /// The drain's time ended first.
    Cut,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("server.{field} must be positive")]
    Zero { field: &'static str },
    #[error("server.{field} is {address:?}, which is no IP address")]
    Address { field: &'static str, address: String },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            http_listen_address: String::new(),
            http_listen_port: 8080,
            http_listen_conn_limit: 0,
            grpc_listen_address: String::new(),
            grpc_listen_port: 9095,
            grpc_listen_conn_limit: 0,
            graceful_shutdown_timeout: Millis::from_secs(30),
            http_server_read_timeout: Millis::from_secs(30),
            http_server_idle_timeout: Millis::from_secs(120),
            grpc_server_max_recv_msg_size: 4 << 20,
            grpc_server_max_send_msg_size: 4 << 20,
            grpc_server_max_concurrent_streams: 10_000,
            grpc_server_keepalive_time: Millis::from_secs(2 * 60 * 60),
            grpc_server_keepalive_timeout: Millis::from_secs(20),
        }
    }
}

impl Config {
    pub fn validate(&self) -> Result<(), ConfigError> {
        let positive = [
            ("grpc_server_max_recv_msg_size", self.grpc_server_max_recv_msg_size as u64),
            ("grpc_server_max_send_msg_size", self.grpc_server_max_send_msg_size as u64),
            ("http_server_read_timeout", self.http_server_read_timeout.0),
            ("http_server_idle_timeout", self.http_server_idle_timeout.0),
            ("grpc_server_keepalive_time", self.grpc_server_keepalive_time.0),
            ("grpc_server_keepalive_timeout", self.grpc_server_keepalive_timeout.0),
        ];
        if let Some((field, _)) = positive.into_iter().find(|(_, number)| *number == 0) {
            return Err(ConfigError::Zero { field });
        }
        self.http_address().and(self.grpc_address()).map(|_| ())
    }

    pub fn http_address(&self) -> Result<std::net::SocketAddr, ConfigError> {
        address("http_listen_address", &self.http_listen_address, self.http_listen_port)
    }

    pub fn grpc_address(&self) -> Result<std::net::SocketAddr, ConfigError> {
        address("grpc_listen_address", &self.grpc_listen_address, self.grpc_listen_port)
    }
}

fn address(
    field: &'static str,
    address: &str,
    port: u16,
) -> Result<std::net::SocketAddr, ConfigError> {
    let ip = match address {
        "" => std::net::Ipv4Addr::UNSPECIFIED.into(),
        "localhost" => std::net::Ipv4Addr::LOCALHOST.into(),
        address => address
            .parse()
            .map_err(|_| ConfigError::Address { field, address: address.to_owned() })?,
    };
    Ok(std::net::SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_zeros_are_not() {
        assert_eq!(Config::default().validate(), Ok(()));
        let config = Config { grpc_server_max_recv_msg_size: 0, ..Config::default() };
        assert!(config.validate().is_err());
        let config = Config { grpc_listen_address: "nowhere".to_owned(), ..Config::default() };
        assert!(matches!(config.validate(), Err(ConfigError::Address { .. })));
    }
}
