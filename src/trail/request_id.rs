//! What a request is called: the name that it came with, if that is one, or one of ours.

use std::fmt;
use std::sync::Arc;

/// Longest name that is taken: a UUID with its dashes has 36, a chain of proxies some times that.
/// A longer one is no name, and the request gets one of ours.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

/// The name of a request; cheap to clone.
///
/// Letters, digits and `-_.:+/=@` only: it stands in log lines, in headers and in pages, and can
/// mean something in none of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// Takes a name off the wire, if it is one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let is_one = (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len());
        let is_one = is_one && bytes.iter().all(|byte| is_plain(*byte));
        let text = std::str::from_utf8(bytes).ok().filter(|_| is_one)?;
        Some(Self(text.into()))
    }

    /// A name of ours, of as many random bits as a UUID has.
    pub fn of_bits(bits: u128) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (at, digit) in text.iter_mut().enumerate() {
            *digit = DIGITS[(bits >> (124 - 4 * at)) as usize & 0xf];
        }
        Self(std::str::from_utf8(&text).expect("digits").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:+/=@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_that_can_mean_nothing_else() {
        let check = |name: &[u8], is_one: bool| {
            let parsed = RequestId::parse(name);
            assert_eq!(parsed.is_some(), is_one, "{:?}", String::from_utf8_lossy(name));
            assert!(parsed.is_none_or(|id| id.as_str().as_bytes() == name));
        };
        check(b"6d0fce6c-9c15-4f8b-8bb1-0a9d6a3a6d55", true);
        check(b"Root=1-67891233-abcdef012345678912345678", true);
        check(b"a/b+c=@x:1_2.3", true);
        check(&[b'a'; REQUEST_ID_BYTES_MAX], true);
        check(&[b'a'; REQUEST_ID_BYTES_MAX + 1], false);
        for bad in
            [&b""[..], b"a b", b"a\tb", b"a\"b", b"<b>", b"a,b", b"a\\b", b"\xff", "ä".as_bytes()]
        {
            check(bad, false);
        }
    }

    #[test]
    fn a_name_of_ours_is_all_of_its_bits() {
        let id = RequestId::of_bits(0x0123_4567_89ab_cdef_0000_0000_0000_00ff);
        assert_eq!(id.as_str(), "0123456789abcdef00000000000000ff");
        assert_eq!(RequestId::parse(id.as_str().as_bytes()), Some(id));
    }
}
