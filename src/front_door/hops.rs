//! Hops as proxies write them down, read from the right: the part that the nearest proxy wrote.
//!
//! Whatever stands to the left of a hop may have been written by a sender, so nothing there may
//! change how the hop is read. That is why quoted texts are found from the right too: a quote that
//! a sender left open ends at the hop that follows it, and swallows none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest text of a hop: an address of 45 bytes, brackets, a port, and a zone as long as names of
/// interfaces get. What is longer is no address.
const HOP_BYTES_MAX: usize = 96;

/// Elements of a list, from the last one; an empty element is none.
pub fn from_right(list: &[u8]) -> FromRight<'_> {
    FromRight { rest: Some(list), has_quotes: false }
}

/// The same where elements may hold texts in quotes, in which a comma is one of the text.
pub fn quoted_from_right(list: &[u8]) -> FromRight<'_> {
    FromRight { rest: Some(list), has_quotes: true }
}

pub struct FromRight<'a> {
    rest: Option<&'a [u8]>,
    has_quotes: bool,
}

impl<'a> Iterator for FromRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let rest = self.rest?;
            let comma = match self.has_quotes {
                false => rest.iter().rposition(|&byte| byte == b','),
                true => last_unquoted(rest, b','),
            };
            let element = match comma {
                Some(at) => {
                    self.rest = Some(&rest[..at]);
                    &rest[at + 1..]
                }
                None => {
                    self.rest = None;
                    rest
                }
            };
            let element = element.trim_ascii();
            if !element.is_empty() {
                return Some(element);
            }
        }
    }
}

/// The address of a hop in `X-Forwarded-For`: with a port or without, an IPv6 address in brackets
/// or not, with a zone or without. `None` where it is no address.
pub fn address(hop: &[u8]) -> Option<IpAddr> {
    if hop.len() > HOP_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(hop).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']')?;
        let is_port_or_nothing = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return is_port_or_nothing.then(|| v6(inside))?.map(IpAddr::V6);
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(address.into());
    }
    match text.split_once(':') {
        // Two colons or more are IPv6's own.
        Some((address, port)) if !port.contains(':') => {
            let address: Ipv4Addr = address.parse().ok()?;
            is_port(port).then_some(address.into())
        }
        _ => v6(text).map(IpAddr::V6),
    }
}

/// The address in the `for` of an element of `Forwarded` (RFC 7239). `None` where there is none,
/// more than one, or one that is hidden (`unknown`, `_name`).
pub fn forwarded_address(element: &[u8]) -> Option<IpAddr> {
    let mut rest = element;
    let mut found = None;
    loop {
        let (before, pair) = match last_unquoted(rest, b';') {
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|&byte| byte == b'=');
        if let Some(at) = equals
            && pair[..at].trim_ascii().eq_ignore_ascii_case(b"for")
        {
            if found.is_some() {
                return None;
            }
            found = Some(address(unquoted(pair[at + 1..].trim_ascii())?)?);
        }
        match before {
            Some(before) => rest = before,
            None => return found,
        }
    }
}

/// An IPv6 address without its zone: that names an interface of whoever wrote it down, which says
/// nothing here.
fn v6(text: &str) -> Option<Ipv6Addr> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let is_zone_sound = zone.is_none_or(|zone| !zone.is_empty() && zone.bytes().all(is_of_zone));
    is_zone_sound.then(|| address.parse().ok())?
}

fn is_of_zone(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._~-%:".contains(&byte)
}

/// A port, or one that is hidden as RFC 7239 has it (`_name`).
fn is_port(text: &str) -> bool {
    let is_hidden = text.strip_prefix('_').is_some_and(|name| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    });
    let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_hidden || (is_number && text.parse::<u16>().is_ok())
}

/// What a text in quotes says; a bare one says itself. An address has nothing in it that would be
/// written with a backslash.
fn unquoted(text: &[u8]) -> Option<&[u8]> {
    match text.strip_prefix(b"\"") {
        Some(rest) => rest.strip_suffix(b"\""),
        None => Some(text),
    }
}

/// Where `wanted` stands last outside of quotes, seen from the right.
fn last_unquoted(text: &[u8], wanted: u8) -> Option<usize> {
    let mut is_quoted = false;
    for at in (0..text.len()).rev() {
        match text[at] {
            // The quote that ends a text is the last one of it, whatever stands before; one inside
            // of it has a backslash before it.
            b'"' if !is_quoted => is_quoted = true,
            b'"' if !is_escaped(text, at) => is_quoted = false,
            byte if byte == wanted && !is_quoted => return Some(at),
            _ => {}
        }
    }
    None
}

fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(text: &str, has_quotes: bool) -> Vec<String> {
        let elements = match has_quotes {
            true => quoted_from_right(text.as_bytes()),
            false => from_right(text.as_bytes()),
        };
        elements.map(|element| String::from_utf8_lossy(element).into_owned()).collect()
    }

    #[test]
    fn a_list_is_read_from_the_right() {
        assert_eq!(list("a, b ,,c,", false), ["c", "b", "a"]);
        assert_eq!(list(" , ,", false), [""; 0]);
        assert_eq!(list("", true), [""; 0]);
        assert_eq!(list(r#"a;x="1,2", b"#, true), ["b", r#"a;x="1,2""#]);
        assert_eq!(list(r#"a;x="1\",2",b="3,\"4""#, true), [r#"b="3,\"4""#, r#"a;x="1\",2""#]);
        // A quote that is left open reaches to the left end, which is the sender's own.
        assert_eq!(list(r#"x="1, for=2, for=3"#, true), ["for=3", "for=2", r#"x="1"#]);
    }

    #[test]
    fn case_r27_a_hop_is_read_in_every_form_that_proxies_write() {
        let check = |hop: &str, expect: &str| {
            let shown = address(hop.as_bytes()).map_or("none".to_owned(), |one| one.to_string());
            assert_eq!(shown, expect, "{hop}");
        };
        check("192.0.2.7", "192.0.2.7");
        check("192.0.2.7:8080", "192.0.2.7");
        check("192.0.2.7:_gate", "192.0.2.7");
        check("2001:db8::1", "2001:db8::1");
        check("[2001:db8::1]", "2001:db8::1");
        check("[2001:db8::1]:443", "2001:db8::1");
        check("fe80::1%eth0.100", "fe80::1");
        check("[fe80::1%25eth0]:80", "fe80::1");
        check("::ffff:192.0.2.7", "::ffff:192.0.2.7");
        for wrong in [
            "",
            "unknown",
            "_hidden",
            "host.example",
            "192.0.2",
            "192.0.2.7.8",
            "010.0.0.1",
            "192.0.2.7:",
            "192.0.2.7:65536",
            "192.0.2.7:-1",
            "192.0.2.7:8:9",
            "[192.0.2.7]",
            "[::1",
            "::1]",
            "[::1]x",
            "[::1]:",
            "fe80::1%",
            "fe80::1%e\"",
            "192.0.2.7%eth0",
            "\u{ff11}.0.0.1",
            "1.2.3.4 5.6.7.8",
            "\"192.0.2.7\"",
            &"1".repeat(200),
        ] {
            check(wrong, "none");
        }
    }

    #[test]
    fn an_element_of_forwarded_names_one_address_or_none() {
        let check = |element: &str, expect: &str| {
            let shown = forwarded_address(element.as_bytes());
            let shown = shown.map_or("none".to_owned(), |one| one.to_string());
            assert_eq!(shown, expect, "{element}");
        };
        check("for=192.0.2.7", "192.0.2.7");
        check("proto=https; FOR = \"192.0.2.7:80\" ;by=203.0.113.43", "192.0.2.7");
        check("for=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17");
        check("for=\"[2001:db8:cafe::17]\";host=\"a;for=1.1.1.1\"", "2001:db8:cafe::17");
        check("by=192.0.2.7", "none");
        check("for=192.0.2.7;for=192.0.2.8", "none");
        for hidden in
            ["for=unknown", "for=\"_gazonk\"", "for=", "for", "for=\"", "x", "for=\"192.0.2.7"]
        {
            check(hidden, "none");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = address(&bytes);
            let _ = forwarded_address(&bytes);
            let _ = from_right(&bytes).count();
            let _ = quoted_from_right(&bytes).map(forwarded_address).count();
        }

        /// What a sender wrote to the left, quotes and all, does not change what a proxy appended.
        #[test]
        fn the_last_element_is_the_last_writers(forged in r#"[a-f0-9=;:,." \\]{0,60}"#) {
            let appended = r#"for="[2001:db8::1]:80";proto="a,b""#;
            let line = format!("{forged}, {appended}");
            prop_assert_eq!(&list(&line, true)[0], appended);
            let line = format!("{forged}, 192.0.2.7");
            prop_assert_eq!(&list(&line, false)[0], "192.0.2.7");
        }
    }
}
