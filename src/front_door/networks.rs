//! Networks as an operator lists them, and whether an address is in one of them.
//!
//! IPv4 inside IPv6 (`::ffff:a.b.c.d`) is IPv4 everywhere in this room: a dual-stack socket shows
//! IPv4 peers so, and they must meet the same rules, and the same budgets, by either form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

/// Bits of an IPv6 address before an IPv4 address inside of it.
const MAPPED_PREFIX_BITS: u8 = 96;

/// One network: an address and a prefix, or an address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network(IpNet);

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("{text:?} is no network; write 10.0.0.0/8, 2001:db8::/32 or one address")]
    NoNetwork { text: String },
    /// Either the address or the prefix is not what was meant.
    #[error("{text:?} has bits behind its prefix; the network is {network}")]
    HostBits { text: String, network: Network },
}

impl Network {
    pub fn parse(text: &str) -> Result<Self, NetworkError> {
        let no_network = || NetworkError::NoNetwork { text: text.to_owned() };
        let given = match text.parse::<IpNet>() {
            Ok(network) => network,
            Err(_) => IpNet::from(text.parse::<IpAddr>().map_err(|_| no_network())?),
        };
        let network = Self(unmapped(given));
        if network.0.trunc() != network.0 {
            let network = Self(network.0.trunc());
            return Err(NetworkError::HostBits { text: text.to_owned(), network });
        }
        Ok(network)
    }

    /// Every address of its family is in it.
    pub fn is_everything(self) -> bool {
        self.0.prefix_len() == 0
    }
}

/// A network of IPv4 addresses inside IPv6 as the IPv4 network that it is.
fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    let prefix = v6.prefix_len().checked_sub(MAPPED_PREFIX_BITS);
    match (v6.addr().to_ipv4_mapped(), prefix) {
        (Some(v4), Some(prefix)) => Ipv4Net::new(v4, prefix).map_or(network, IpNet::V4),
        _ => network,
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Self, NetworkError> {
        Self::parse(&text)
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A list of networks, in which an address is found by two halvings.
///
/// Ranges are sorted and apart from each other, so that lists of thousands cost no more than ten
/// comparisons.
#[derive(Debug, Default)]
pub struct NetworkSet {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl NetworkSet {
    pub fn new(networks: &[Network]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for Network(network) in networks {
            match network {
                IpNet::V4(one) => v4.push((one.network().to_bits(), one.broadcast().to_bits())),
                IpNet::V6(one) => v6.push((one.network().to_bits(), one.broadcast().to_bits())),
            }
        }
        Self { v4: merged(v4), v6: merged(v6) }
    }

    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// IPv4 inside IPv6 is to be unwrapped before.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => is_within(&self.v4, Ipv4Addr::to_bits(v4)),
            IpAddr::V6(v6) => is_within(&self.v6, v6.to_bits()),
        }
    }
}

/// Sorted, and none inside of another: networks do not overlap otherwise.
fn merged<T: Copy + Ord>(mut ranges: Vec<(T, T)>) -> Box<[(T, T)]> {
    ranges.sort_unstable_by_key(|&(first, last)| (first, std::cmp::Reverse(last)));
    ranges.dedup_by(|inner, outer| inner.1 <= outer.1);
    ranges.into_boxed_slice()
}

fn is_within<T: Copy + Ord>(ranges: &[(T, T)], address: T) -> bool {
    let after = ranges.partition_point(|&(first, _)| first <= address);
    after > 0 && address <= ranges[after - 1].1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(networks: &[&str]) -> NetworkSet {
        let parse = |text: &&str| Network::parse(text).expect("a network");
        NetworkSet::new(&networks.iter().map(parse).collect::<Vec<_>>())
    }

    #[test]
    fn networks_are_read_and_what_was_not_meant_is_refused() {
        let check = |text: &str, shown: &str| {
            let shown_as = match Network::parse(text) {
                Ok(network) => network.to_string(),
                Err(error) => error.to_string(),
            };
            assert_eq!(shown_as, shown, "{text}");
        };
        check("10.0.0.0/8", "10.0.0.0/8");
        check("10.1.2.3", "10.1.2.3/32");
        check("2001:db8::/32", "2001:db8::/32");
        check("::1", "::1/128");
        check("::ffff:10.0.0.0/104", "10.0.0.0/8");
        check("::ffff:10.0.0.1", "10.0.0.1/32");
        check("10.0.0.5/8", "\"10.0.0.5/8\" has bits behind its prefix; the network is 10.0.0.0/8");
        let no_network = |text: &str| {
            format!("{text:?} is no network; write 10.0.0.0/8, 2001:db8::/32 or one address")
        };
        for text in ["", "10.0.0.0/33", "::/129", "proxy", "10.0.0/8", "10.0.0.0/", "::1%lo"] {
            check(text, &no_network(text));
        }
    }

    #[test]
    fn an_address_is_found_in_overlapping_networks() {
        let list = set(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7", "2001:db8::/32", "0.0.0.0/32"]);
        let check = |address: &str, expect: bool| {
            assert_eq!(list.contains(address.parse().expect("an address")), expect, "{address}");
        };
        check("10.0.0.0", true);
        check("10.255.255.255", true);
        check("10.1.2.3", true);
        check("11.0.0.0", false);
        check("9.255.255.255", false);
        check("192.0.2.7", true);
        check("192.0.2.8", false);
        check("0.0.0.0", true);
        check("0.0.0.1", false);
        check("2001:db8:ffff::1", true);
        check("2001:db9::", false);
        check("::", false);
        assert!(set(&["0.0.0.0/0"]).contains([255, 255, 255, 255].into()));
        assert!(!NetworkSet::default().contains([10, 0, 0, 1].into()));
    }

    proptest! {
        #[test]
        fn the_set_says_what_each_network_says(
            given in prop::collection::vec((any::<u32>(), 0..=32u8), 0..20),
            asked in prop::collection::vec(any::<u32>(), 20),
        ) {
            let one = |&(bits, prefix): &(u32, u8)| {
                Network(IpNet::V4(Ipv4Net::new(bits.into(), prefix).expect("fits").trunc()))
            };
            let networks: Vec<Network> = given.iter().map(one).collect();
            let set = NetworkSet::new(&networks);
            for bits in asked.into_iter().chain(given.iter().map(|&(bits, _)| bits)) {
                let address = IpAddr::V4(bits.into());
                let expect = networks.iter().any(|network| network.0.contains(&address));
                prop_assert_eq!(set.contains(address), expect);
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _ = Network::parse(&text);
        }
    }
}
