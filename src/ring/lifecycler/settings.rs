//! What a configuration means on this machine: our id, our address.

use std::net::{Ipv4Addr, UdpSocket};

use crate::ring::config::LifecyclerConfig;
use crate::ring::lifecycle::Settings;

/// The settings that `config` means on this machine.
pub fn settings(config: &LifecyclerConfig, grpc_port: u16) -> Settings {
    let port = if config.port > 0 { config.port } else { grpc_port };
    let host = match config.address.as_str() {
        "" => outward_address(),
        address => address.to_owned(),
    };
    // An IPv6 address needs brackets before its port; one that has them is left alone.
    let addr = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    Settings {
        id: if config.id.is_empty() { host_name() } else { config.id.clone() },
        addr,
        zone: config.availability_zone.clone(),
        num_tokens: config.num_tokens,
        heartbeat_period_ms: config.heartbeat_period.0,
        heartbeat_timeout_ms: config.ring.heartbeat_timeout.0,
        observe_period_ms: config.observe_period.0,
        join_after_ms: config.join_after.0,
        min_ready_duration_ms: config.min_ready_duration.0,
        final_sleep_ms: config.final_sleep.0,
        unregister_on_shutdown: config.unregister_on_shutdown,
        readiness_check_ring_health: config.readiness_check_ring_health,
        auto_forget_delay_ms: config.auto_forget_delay.0,
    }
}

/// The address of the interface that the default route leaves from.
fn outward_address() -> String {
    // Connecting a datagram socket sends nothing; it only makes the kernel choose a route. The
    // address is one of those reserved for documentation.
    let choose = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    };
    choose().map_or_else(|_| Ipv4Addr::LOCALHOST.to_string(), |addr| addr.ip().to_string())
}

pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned()),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_the_listeners_port_unless_one_is_named() {
        let check = |address: &str, port: u16, addr: &str| {
            let config =
                LifecyclerConfig { address: address.to_owned(), port, ..Default::default() };
            assert_eq!(settings(&config, 9095).addr, addr);
        };
        check("10.0.0.1", 0, "10.0.0.1:9095");
        check("10.0.0.1", 19401, "10.0.0.1:19401");
        check("ingester-1.local", 0, "ingester-1.local:9095");
        check("fd00::1", 0, "[fd00::1]:9095");
        check("[fd00::1]", 1, "[fd00::1]:1");
    }

    #[test]
    fn what_is_not_named_is_found() {
        let found = settings(&LifecyclerConfig::default(), 9095);
        assert!(!found.id.is_empty());
        assert!(found.addr.parse::<std::net::SocketAddr>().is_ok(), "{}", found.addr);
    }
}
