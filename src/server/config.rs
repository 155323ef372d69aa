//! What the listeners may be told: addresses, message bounds, how long a drain may take.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::tls::{MinVersion, ServerTlsConfig, ServerTlsConfigError};
use crate::units::Millis;

/// The two listeners and the logs: the `server:` block, under Cortex's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Empty listens on every address.
    pub http_listen_address: String,
    /// 0 takes a free port. Cortex takes 80, for which one must be root.
    pub http_listen_port: u16,
    /// Open HTTP connections; 0 is no bound. More wait in the system's queue.
    pub http_listen_conn_limit: usize,
    /// Empty listens on every address.
    pub grpc_listen_address: String,
    /// 0 takes a free port.
    pub grpc_listen_port: u16,
    /// Open gRPC connections; 0 is no bound. More wait in the system's queue.
    pub grpc_listen_conn_limit: usize,
    /// How long a drain waits for requests in flight before it drops them.
    pub graceful_shutdown_timeout: Millis,
    /// How long a request's body may take.
    pub http_server_read_timeout: Millis,
    /// How long a connection may be without a whole request head, new or between requests.
    pub http_server_idle_timeout: Millis,
    /// Most bytes of requests being received or handled, over HTTP and gRPC together. More wait
    /// unread for up to 2 s, then they are refused with 503 or `Unavailable`.
    pub max_inflight_bytes: usize,
    /// Longest gRPC message in bytes, compressed and decompressed; a longer one is refused unread.
    pub grpc_server_max_recv_msg_size: usize,
    /// Longest gRPC answer in bytes; a longer one is replaced by an error.
    pub grpc_server_max_send_msg_size: usize,
    /// Calls at once on one connection; 0 is no bound.
    ///
    /// Cortex allows 100. A distributor with stream push keeps 100 streams open per connection,
    /// so its health checks and queries would find the connection full.
    pub grpc_server_max_concurrent_streams: u32,
    /// Time between HTTP/2 pings.
    pub grpc_server_keepalive_time: Millis,
    /// A connection whose ping is not answered for so long is closed.
    pub grpc_server_keepalive_timeout: Millis,
    /// Of both listeners, where they speak TLS.
    pub tls_min_version: MinVersion,
    pub http_tls_config: ServerTlsConfig,
    pub grpc_tls_config: ServerTlsConfig,
    pub log_format: LogFormat,
    pub log_level: LogLevel,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Logfmt,
    Json,
}

/// The least severity that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// Settings of the listeners that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerConfigError {
    #[error(
        "-server.http-listen-port and -server.grpc-listen-port are both {port}; \
         one port serves one protocol"
    )]
    SamePort { port: u16 },
    #[error("{flag} must be more than 0")]
    Zero { flag: &'static str },
    #[error("{flag} is {address:?}, which is no IP address")]
    Address { flag: &'static str, address: String },
    #[error("{flags}: {error}")]
    Tls { flags: &'static str, error: ServerTlsConfigError },
}

impl Default for ServerConfig {
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
            // Five bodies of the largest size that a distributor takes by default.
            max_inflight_bytes: 512 << 20,
            grpc_server_max_recv_msg_size: 4 << 20,
            grpc_server_max_send_msg_size: 4 << 20,
            grpc_server_max_concurrent_streams: 10_000,
            grpc_server_keepalive_time: Millis::from_secs(2 * 3600),
            grpc_server_keepalive_timeout: Millis::from_secs(20),
            tls_min_version: MinVersion::default(),
            http_tls_config: ServerTlsConfig::default(),
            grpc_tls_config: ServerTlsConfig::default(),
            log_format: LogFormat::Logfmt,
            log_level: LogLevel::Info,
        }
    }
}

impl ServerConfig {
    pub fn validate(&self) -> Result<(), ServerConfigError> {
        let port = self.http_listen_port;
        // Port 0 is a different free port each time it is asked for.
        let is_same = port != 0 && port == self.grpc_listen_port;
        if is_same && self.http_listen_address == self.grpc_listen_address {
            return Err(ServerConfigError::SamePort { port });
        }
        let positive = [
            ("-server.max-inflight-bytes", self.max_inflight_bytes as u64),
            ("-server.grpc-max-recv-msg-size-bytes", self.grpc_server_max_recv_msg_size as u64),
            ("-server.grpc-max-send-msg-size-bytes", self.grpc_server_max_send_msg_size as u64),
            ("-server.http-read-timeout", self.http_server_read_timeout.0),
            ("-server.http-idle-timeout", self.http_server_idle_timeout.0),
            ("-server.grpc.keepalive.time", self.grpc_server_keepalive_time.0),
            ("-server.grpc.keepalive.timeout", self.grpc_server_keepalive_timeout.0),
        ];
        if let Some((flag, _)) = positive.into_iter().find(|(_, number)| *number == 0) {
            return Err(ServerConfigError::Zero { flag });
        }
        for (flags, tls) in [
            ("-server.http-tls-*", &self.http_tls_config),
            ("-server.grpc-tls-*", &self.grpc_tls_config),
        ] {
            tls.validate().map_err(|error| ServerConfigError::Tls { flags, error })?;
        }
        self.http_address().and(self.grpc_address()).map(|_| ())
    }

    /// Where HTTP is served.
    pub fn http_address(&self) -> Result<SocketAddr, ServerConfigError> {
        let flag = "-server.http-listen-address";
        Ok(SocketAddr::new(ip(flag, &self.http_listen_address)?, self.http_listen_port))
    }

    /// Where gRPC is served.
    pub fn grpc_address(&self) -> Result<SocketAddr, ServerConfigError> {
        let flag = "-server.grpc-listen-address";
        Ok(SocketAddr::new(ip(flag, &self.grpc_listen_address)?, self.grpc_listen_port))
    }
}

fn ip(flag: &'static str, address: &str) -> Result<IpAddr, ServerConfigError> {
    match address {
        "" => Ok(Ipv4Addr::UNSPECIFIED.into()),
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => address
            .parse()
            .map_err(|_| ServerConfigError::Address { flag, address: address.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_port_cannot_serve_both_listeners_unless_it_is_picked_freely() {
        let with_ports = |http_listen_port, grpc_listen_port| {
            ServerConfig { http_listen_port, grpc_listen_port, ..Default::default() }.validate()
        };
        assert_eq!(with_ports(9095, 9095), Err(ServerConfigError::SamePort { port: 9095 }));
        assert_eq!(with_ports(0, 0), Ok(()));
        assert_eq!(ServerConfig::default().validate(), Ok(()));
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_flag_name() {
        let refused = |config: ServerConfig| config.validate().expect_err("no use").to_string();
        let config = ServerConfig { grpc_server_max_recv_msg_size: 0, ..Default::default() };
        assert!(refused(config).contains("-server.grpc-max-recv-msg-size-bytes"));
        let config = ServerConfig { grpc_listen_address: "nowhere".into(), ..Default::default() };
        assert!(refused(config).contains("-server.grpc-listen-address"));
    }

    #[test]
    fn no_address_is_every_address() {
        let config = ServerConfig { http_listen_address: "::1".into(), ..Default::default() };
        let shown = |address: Result<SocketAddr, _>| address.expect("an address").to_string();
        assert_eq!(shown(config.http_address()), "[::1]:8080");
        assert_eq!(shown(config.grpc_address()), "0.0.0.0:9095");
    }
}
