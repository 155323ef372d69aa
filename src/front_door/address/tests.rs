//! Addresses as operators and senders meet them.

use proptest::prelude::*;

use super::*;
use crate::front_door::networks::Network;

fn rules(trusted: &[&str]) -> AddressRules {
    let parse = |text: &&str| Network::parse(text).expect("a network");
    AddressRules {
        trusted_proxies: NetworkSet::new(&trusted.iter().map(parse).collect::<Vec<_>>()),
        header: HopHeader::XForwardedFor,
        ipv6_prefix_bits: 56,
        is_nat64_unwrapped: false,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn find(rules: &AddressRules, peer: &str, lines: &[&str]) -> (String, FoundBy) {
    let found = rules.find(ip(peer), lines.iter().map(|line| line.as_bytes()));
    (found.address.to_string(), found.by)
}

#[test]
fn case_r30_the_last_hop_that_is_not_ours_is_the_sender() {
    let rules = rules(&["10.0.0.0/8", "fd00::/8"]);
    let check = |peer: &str, lines: &[&str], address: &str, by: FoundBy| {
        assert_eq!(find(&rules, peer, lines), (address.to_owned(), by), "{peer} {lines:?}");
    };
    check("10.0.0.1", &["9.9.9.9, 203.0.113.5"], "203.0.113.5", FoundBy::Hops);
    check("10.0.0.1", &["9.9.9.9, 203.0.113.5, 10.2.0.1"], "203.0.113.5", FoundBy::Hops);
    check(
        "10.0.0.1",
        &["9.9.9.9", "203.0.113.5", "fd00::7, 10.2.0.1"],
        "203.0.113.5",
        FoundBy::Hops,
    );
    check("10.0.0.1", &["10.0.0.7, 10.0.0.8"], "10.0.0.7", FoundBy::Hops);
    check("10.0.0.1", &[], "10.0.0.1", FoundBy::Peer);
    check("10.0.0.1", &["", " , "], "10.0.0.1", FoundBy::Peer);
    check("203.0.113.9", &["9.9.9.9"], "203.0.113.9", FoundBy::UntrustedPeer);
    check("203.0.113.9", &[], "203.0.113.9", FoundBy::Peer);
    check("::ffff:10.0.0.1", &["::ffff:203.0.113.5"], "203.0.113.5", FoundBy::Hops);
    check("::ffff:10.0.0.1", &["8.8.8.8, ::ffff:10.3.0.1"], "8.8.8.8", FoundBy::Hops);
}

#[test]
fn case_r27_what_cannot_be_read_leaves_the_peer() {
    let rules = rules(&["10.0.0.0/8"]);
    for lines in [&["9.9.9.9, unknown"][..], &["9.9.9.9, _x, 10.1.1.1"], &["203.0.113.5", "-"]] {
        let (address, by) = find(&rules, "10.0.0.1", lines);
        assert_eq!((address.as_str(), by), ("10.0.0.1", FoundBy::UnreadableHop), "{lines:?}");
    }
    let unreadable_behind = find(&rules, "10.0.0.1", &["unknown, 203.0.113.5"]);
    assert_eq!(unreadable_behind, ("203.0.113.5".to_owned(), FoundBy::Hops));
    let loops = vec!["10.0.0.2"; HOPS_MAX];
    assert_eq!(find(&rules, "10.0.0.1", &loops).1, FoundBy::Hops);
    let loops = vec!["10.0.0.2"; HOPS_MAX + 1];
    assert_eq!(find(&rules, "10.0.0.1", &loops).1, FoundBy::UnreadableHop);
}

#[test]
fn nobody_is_trusted_unless_told() {
    let found = find(&rules(&[]), "127.0.0.1", &["203.0.113.5"]);
    assert_eq!(found, ("127.0.0.1".to_owned(), FoundBy::UntrustedPeer));
}

#[test]
fn forwarded_is_read_where_it_is_asked_for() {
    let rules = AddressRules { header: HopHeader::Forwarded, ..rules(&["10.0.0.0/8"]) };
    let check = |lines: &[&str], address: &str, by: FoundBy| {
        assert_eq!(find(&rules, "10.0.0.1", lines), (address.to_owned(), by), "{lines:?}");
    };
    check(&["for=9.9.9.9, for=203.0.113.5;by=10.0.0.1"], "203.0.113.5", FoundBy::Hops);
    check(&["for=203.0.113.5", "for=\"10.0.0.9:80\""], "203.0.113.5", FoundBy::Hops);
    check(&["for=\"[2001:db8::1%eth0]:5\""], "2001:db8::1", FoundBy::Hops);
    check(&["for=9.9.9.9, for=unknown"], "10.0.0.1", FoundBy::UnreadableHop);
    check(&["for=9.9.9.9, for=_hidden"], "10.0.0.1", FoundBy::UnreadableHop);
    check(&["for=9.9.9.9, proto=https"], "10.0.0.1", FoundBy::UnreadableHop);
    check(&["for=\"x, for=203.0.113.5"], "203.0.113.5", FoundBy::Hops);
}

#[test]
fn case_r25_ipv4_inside_ipv6_is_ipv4() {
    let rules = rules(&[]);
    let cut = |text: &str| rules.cut(ip(text));
    assert_eq!(cut("::ffff:1.2.3.4"), cut("1.2.3.4"));
    assert_ne!(cut("::ffff:1.2.3.4"), cut("::ffff:5.6.7.8"));
    // The family counts, and not only the bits.
    assert_ne!(cut("1.2.3.4").to_bytes(), cut("102:304::").to_bytes());
}

#[test]
fn an_ipv6_network_of_one_customer_is_one_sender() {
    let rules = rules(&[]);
    let cut = |text: &str| rules.cut(ip(text));
    assert_eq!(cut("2001:db8:1:2200::1"), cut("2001:db8:1:22ff:ffff::2"));
    assert_ne!(cut("2001:db8:1:2200::1"), cut("2001:db8:1:2300::1"));
    let with = |bits| AddressRules { ipv6_prefix_bits: bits, ..self::rules(&[]) };
    let [one, other] = ["2001:db8::1", "2001:db8::2"].map(ip);
    assert_ne!(with(128).cut(one), with(128).cut(other));
    assert_eq!(with(0).cut(one), with(0).cut(ip("3000::")));
}

#[test]
fn case_r28_nat64_is_unwrapped_by_option_only() {
    let rules = rules(&[]);
    let unwraps = AddressRules { is_nat64_unwrapped: true, ..self::rules(&[]) };
    let (one, other) = (ip("64:ff9b::808:808"), ip("64:ff9b::909:909"));
    assert_eq!(rules.cut(one), rules.cut(other));
    assert_ne!(unwraps.cut(one), unwraps.cut(other));
    assert_eq!(unwraps.cut(one), unwraps.cut(ip("8.8.8.8")));
    assert_ne!(unwraps.cut(ip("64:ff9b:1::808:808")), unwraps.cut(ip("8.8.8.8")));
}

#[test]
fn an_address_is_not_shown() {
    assert_eq!(format!("{:?}", rules(&[]).cut(ip("1.2.3.4"))), "Address");
}

proptest! {
    /// Case F16: whatever a sender writes, our proxy's last word about it stands.
    #[test]
    fn case_f16_forged_hops_change_nothing(
        forged in prop::collection::vec("[a-f0-9.:, \"\\[\\]%_=;]{0,40}", 0..4),
        is_appended_to_the_line in any::<bool>(),
    ) {
        for header in [HopHeader::XForwardedFor, HopHeader::Forwarded] {
            let rules = AddressRules { header, ..rules(&["10.0.0.0/8"]) };
            let real = match header {
                HopHeader::XForwardedFor => "203.0.113.5",
                HopHeader::Forwarded => "for=203.0.113.5",
            };
            let mut lines = forged.clone();
            match lines.last_mut().filter(|_| is_appended_to_the_line) {
                Some(line) => *line = format!("{line}, {real}"),
                None => lines.push(real.to_owned()),
            }
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let found = find(&rules, "10.0.0.1", &lines);
            prop_assert_eq!(found, ("203.0.113.5".to_owned(), FoundBy::Hops));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..5),
        trusted in any::<bool>(),
    ) {
        for header in [HopHeader::XForwardedFor, HopHeader::Forwarded] {
            let rules = AddressRules { header, ..rules(&["10.0.0.0/8"]) };
            let peer = if trusted { "10.0.0.1" } else { "192.0.2.1" };
            let found = rules.find(ip(peer), lines.iter().map(Vec::as_slice));
            let _ = rules.cut(found.address);
        }
    }
}
