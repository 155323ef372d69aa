//! Whose request it is: the address of the last hop that no proxy of ours vouches for.
//!
//! A sender may write any header, so nothing but the connection's other end is believed by itself.
//! If that is a proxy that the operator trusts, what it wrote last is believed too, and so on from
//! right to left up to the first address that is none of these proxies.
//!
//! The address of a person is found here and nowhere kept: budgets are kept under a keyed hash
//! of it (`keys`), made from the cut form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::hops;
use super::networks::NetworkSet;

/// Hops that are followed. Nobody has as many proxies in a row; what goes on longer is a loop.
const HOPS_MAX: usize = 32;

/// The well-known prefix behind which translators show IPv4 addresses (RFC 6052).
const NAT64_PREFIX: [u8; 12] = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];

/// What tells one address from another: IPv4 whole, IPv6 up to the prefix that one customer gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// IPv4 in the first four.
    bytes: [u8; 16],
    is_v6: bool,
}

/// In which header trusted proxies write hops down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopHeader {
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
}

/// How addresses are found.
#[derive(Debug)]
pub struct AddressRules {
    pub trusted_proxies: NetworkSet,
    pub header: HopHeader,
    /// Bits of an IPv6 address that count.
    pub ipv6_prefix_bits: u8,
    /// Addresses behind `64:ff9b::/96` are the IPv4 ones in them.
    pub is_nat64_unwrapped: bool,
}

/// An address, and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub address: IpAddr,
    pub by: FoundBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The connection's other end, which sent no list of hops that matters.
    Peer,
    /// What trusted proxies wrote.
    Hops,
    /// The connection's other end sent hops, and is nobody whom we trust with them.
    UntrustedPeer,
    /// The connection's other end, since a trusted proxy wrote what is no address, or too much.
    UnreadableHop,
}

impl AddressRules {
    /// `lines` are the header's values in their order; several are one list.
    pub fn find<'a>(
        &self,
        peer: IpAddr,
        mut lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    ) -> Found {
        let peer = peer.to_canonical();
        if !self.trusted_proxies.contains(peer) {
            let by = match lines.next() {
                None => FoundBy::Peer,
                Some(_) => FoundBy::UntrustedPeer,
            };
            return Found { address: peer, by };
        }
        let mut reached = Found { address: peer, by: FoundBy::Peer };
        let mut hops = 0;
        for line in lines.rev() {
            let elements = match self.header {
                HopHeader::XForwardedFor => hops::from_right(line),
                HopHeader::Forwarded => hops::quoted_from_right(line),
            };
            for element in elements {
                hops += 1;
                let address = match self.header {
                    HopHeader::XForwardedFor => hops::address(element),
                    HopHeader::Forwarded => hops::forwarded_address(element),
                };
                let Some(address) = address.filter(|_| hops <= HOPS_MAX) else {
                    return Found { address: peer, by: FoundBy::UnreadableHop };
                };
                reached = Found { address: address.to_canonical(), by: FoundBy::Hops };
                if !self.trusted_proxies.contains(reached.address) {
                    return reached;
                }
            }
        }
        // All of them are ours: the request began at the last one.
        reached
    }

    /// Cuts an address to what tells senders apart.
    pub fn cut(&self, address: IpAddr) -> Address {
        let address = match address.to_canonical() {
            IpAddr::V6(v6) if self.is_nat64_unwrapped => {
                match v6.octets().split_last_chunk::<4>() {
                    Some((prefix, last)) if prefix == NAT64_PREFIX => Ipv4Addr::from(*last).into(),
                    _ => v6.into(),
                }
            }
            address => address,
        };
        match address {
            IpAddr::V4(v4) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&v4.octets());
                Address { bytes, is_v6: false }
            }
            IpAddr::V6(v6) => {
                let away_bits = 128 - u32::from(self.ipv6_prefix_bits.min(128));
                let kept = u128::MAX.checked_shl(away_bits).unwrap_or(0);
                Address { bytes: (v6.to_bits() & kept).to_be_bytes(), is_v6: true }
            }
        }
    }
}

impl Address {
    /// What is hashed: the family first, so that no IPv4 address is an IPv6 one.
    pub(super) fn to_bytes(self) -> [u8; 17] {
        let mut bytes = [if self.is_v6 { 6 } else { 4 }; 17];
        bytes[1..].copy_from_slice(&self.bytes);
        bytes
    }
}

/// Says nothing of the address itself.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Address")
    }
}

#[cfg(test)]
mod tests;
