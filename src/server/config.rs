//! What the listeners may be told: addresses, message bounds, how long a drain may take.

use serde::{Deserialize, Serialize};

use crate::units::Millis;

/// The two listeners and the logs, under Cortex's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Empty listens on every address.
    pub http_listen_address: String,
    /// 0 takes a free port. Cortex takes 80, for which one must be root.
    pub http_listen_port: u16,
    /// Empty listens on every address.
    pub grpc_listen_address: String,
    /// 0 takes a free port.
    pub grpc_listen_port: u16,
    /// Longest gRPC message in bytes, after decompression; a longer one is refused unread.
    pub grpc_server_max_recv_msg_size: usize,
    /// Longest gRPC answer in bytes; a longer one is replaced by an error.
    pub grpc_server_max_send_msg_size: usize,
    /// Calls at once on one connection.
    ///
    /// Cortex allows 100. A distributor with stream push keeps 100 streams open per connection,
    /// so its health checks and queries would find the connection full.
    pub grpc_server_max_concurrent_streams: u32,
    /// How long a drain waits for requests in flight before it drops them.
    pub graceful_shutdown_timeout: Millis,
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
    #[error("{flag} is 0; nothing could be received")]
    Zero { flag: &'static str },
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            http_listen_address: String::new(),
            http_listen_port: 8080,
            grpc_listen_address: String::new(),
            grpc_listen_port: 9095,
            grpc_server_max_recv_msg_size: 4 << 20,
            grpc_server_max_send_msg_size: 4 << 20,
            grpc_server_max_concurrent_streams: 10_000,
            graceful_shutdown_timeout: Millis::from_secs(30),
            log_format: LogFormat::Logfmt,
            log_level: LogLevel::Info,
        }
    }
}

impl ServerConfig {
    pub fn validate(&self) -> Result<(), ServerConfigError> {
        let port = self.http_listen_port;
        // Port 0 is a different free port each time it is asked for.
        if port != 0 && port == self.grpc_listen_port {
            return Err(ServerConfigError::SamePort { port });
        }
        for (flag, is_zero) in [
            ("-server.grpc-max-recv-msg-size-bytes", self.grpc_server_max_recv_msg_size == 0),
            ("-server.grpc-max-send-msg-size-bytes", self.grpc_server_max_send_msg_size == 0),
            ("-server.grpc-max-concurrent-streams", self.grpc_server_max_concurrent_streams == 0),
        ] {
            if is_zero {
                return Err(ServerConfigError::Zero { flag });
            }
        }
        Ok(())
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
    fn a_bound_of_zero_is_refused_by_its_flag_name() {
        let config = ServerConfig { grpc_server_max_concurrent_streams: 0, ..Default::default() };
        let error = config.validate().expect_err("nothing could be received");
        assert!(error.to_string().contains("-server.grpc-max-concurrent-streams"), "{error}");
    }
}
