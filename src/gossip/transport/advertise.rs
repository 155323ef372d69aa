//! The address that others are told.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// Why nobody could be told where we are.
#[derive(Debug, thiserror::Error)]
pub enum AdvertiseError {
    #[error("cannot find the address that the default route leaves from")]
    NoRoute(#[source] io::Error),
    #[error(
        "the default route leaves from {address}, which is not private; set \
         -memberlist.advertise-addr"
    )]
    NotPrivate { address: IpAddr },
}

/// What was given; else the address listened on; else, where that is every one, the private one
/// that the default route leaves from. The port goes with the address, as in Cortex.
pub(super) fn advertised(
    given: Option<SocketAddr>,
    bound: SocketAddr,
) -> Result<SocketAddr, AdvertiseError> {
    if let Some(given) = given {
        return Ok(given);
    }
    if !bound.ip().is_unspecified() {
        return Ok(SocketAddr::new(bound.ip().to_canonical(), bound.port()));
    }
    let address = outward_address().map_err(AdvertiseError::NoRoute)?;
    if !is_private(address) {
        return Err(AdvertiseError::NotPrivate { address });
    }
    Ok(SocketAddr::new(address, bound.port()))
}

fn outward_address() -> io::Result<IpAddr> {
    // Connecting a datagram socket sends nothing; it only makes the kernel choose a route. The
    // address is one of those reserved for documentation.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Of RFC 6890 what interfaces have: private nets, carriers' nets, links, loopback.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            let is_carriers = a == 100 && b & 0xc0 == 64;
            address.is_private() || address.is_link_local() || address.is_loopback() || is_carriers
        }
        IpAddr::V6(address) => {
            address.is_unique_local() || address.is_unicast_link_local() || address.is_loopback()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_goes_before_what_is_listened_on() {
        let addr = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let check = |given: Option<&str>, bound: &str, expect: &str| {
            let found = advertised(given.map(addr), addr(bound)).expect("told");
            assert_eq!(found, addr(expect));
        };
        check(Some("8.8.8.8:1"), "0.0.0.0:7946", "8.8.8.8:1");
        check(None, "10.0.0.1:7946", "10.0.0.1:7946");
        check(None, "[::1]:7946", "[::1]:7946");
        check(None, "[::ffff:10.0.0.1]:5", "10.0.0.1:5");
        // Whatever this host has: a private address with the port, or a reason.
        match advertised(None, addr("0.0.0.0:7946")) {
            Ok(found) => assert!(is_private(found.ip()) && found.port() == 7946, "{found}"),
            Err(AdvertiseError::NotPrivate { address }) => assert!(!is_private(address)),
            Err(AdvertiseError::NoRoute(_)) => {}
        }
    }

    #[test]
    fn private_is_what_the_internet_does_not_route() {
        let check = |text: &str, expect: bool| {
            assert_eq!(is_private(text.parse().expect("an address")), expect, "{text}");
        };
        for text in
            ["10.1.2.3", "172.31.0.1", "192.168.0.1", "100.64.0.1", "169.254.1.1", "fd00::1"]
        {
            check(text, true);
        }
        for text in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:4860::1"] {
            check(text, false);
        }
    }
}
