//! Keys of addresses and of credentials: hashes, so that a table, a log or a dump names nobody.
//!
//! An address has few bits, and whoever knows how it is hashed can try them all; so it is hashed
//! under a salt. A credential has many, and is hashed together with what kind it is, so that a
//! token and a user's name of the same bytes are two.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::address::Address;

type HmacSha256 = Hmac<Sha256>;

/// Bytes of a hash that are kept: enough that no two of a billion meet.
const KEY_BYTES: usize = 16;

/// Bytes of salt at least; fewer could be guessed.
pub const SALT_BYTES_MIN: usize = 16;

/// What a table keeps things under.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub(super) [u8; KEY_BYTES]);

/// An address, hashed under a salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressKey(pub(super) Key);

/// A credential, hashed with its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialKey(pub(super) Key);

/// What a credential is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    BearerToken,
    /// The user of Basic authentication. Its password does not count: who tries many has one
    /// budget.
    BasicUser,
}

/// Salts that addresses are hashed under: the present one, and for a while the one before.
#[derive(Clone)]
pub struct Salts {
    current: HmacSha256,
    previous: Option<Previous>,
    /// How many there were.
    epoch: u64,
}

#[derive(Clone)]
struct Previous {
    salt: HmacSha256,
    until_ns: i64,
}

/// The keys of one address: what it is kept under now, and under what it may be found yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressKeys {
    pub current: AddressKey,
    pub previous: Option<AddressKey>,
}

impl Salts {
    pub fn new(salt: &[u8]) -> Self {
        Self { current: keyed(salt), previous: None, epoch: 0 }
    }

    /// The next salts: what was the present one is known until `until_ns`.
    pub fn rotated(&self, salt: &[u8], until_ns: i64) -> Self {
        let previous = Some(Previous { salt: self.current.clone(), until_ns });
        Self { current: keyed(salt), previous, epoch: self.epoch + 1 }
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn keys(&self, address: Address, now_ns: i64) -> AddressKeys {
        let bytes = address.to_bytes();
        let key = |salt: &HmacSha256| {
            let hash = salt.clone().chain_update(bytes).finalize().into_bytes();
            AddressKey(Key::of_kind(&hash, 0))
        };
        let previous = self.previous.as_ref().filter(|previous| now_ns < previous.until_ns);
        AddressKeys { current: key(&self.current), previous: previous.map(|one| key(&one.salt)) }
    }
}

/// Neither salt is shown.
impl fmt::Debug for Salts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salts").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

fn keyed(salt: &[u8]) -> HmacSha256 {
    HmacSha256::new_from_slice(salt).expect("HMAC takes keys of every length")
}

impl CredentialKey {
    pub fn new(kind: CredentialKind, secret: &[u8]) -> Self {
        // A zero byte ends the namespace, and is in neither of them.
        let namespace: &[u8] = match kind {
            CredentialKind::BearerToken => b"bearer\0",
            CredentialKind::BasicUser => b"basic-user\0",
        };
        let hash = Sha256::new().chain_update(namespace).chain_update(secret).finalize();
        Self(Key::of_kind(&hash, 1))
    }
}

impl AddressKeys {
    /// The one of now first.
    pub fn each(self) -> impl Iterator<Item = AddressKey> {
        std::iter::once(self.current).chain(self.previous)
    }
}

impl Key {
    /// The first bytes of a hash. The lowest bit tells addresses from credentials, so that in a
    /// table of both no address is ever taken for a credential.
    fn of_kind(hash: &[u8], kind: u8) -> Self {
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(&hash[..KEY_BYTES]);
        bytes[KEY_BYTES - 1] = bytes[KEY_BYTES - 1] & !1 | kind;
        Self(bytes)
    }

    /// It is of a credential, and of no address.
    pub(super) fn is_credential(self) -> bool {
        self.0[KEY_BYTES - 1] & 1 == 1
    }

    /// The key of a credential at an address. Nobody knows an address' key, so nobody can find two
    /// pairs that fall together, though he may choose the credentials.
    pub(super) fn of_pair(address: AddressKey, credential: CredentialKey) -> Self {
        Self(std::array::from_fn(|at| address.0.0[at] ^ credential.0.0[at]))
    }
}

/// The first bytes, in hexadecimal: as much as a log may have to tell one from another.
impl fmt::Display for AddressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front_door::address::{AddressRules, HopHeader};
    use crate::front_door::networks::NetworkSet;

    fn address(text: &str) -> Address {
        let rules = AddressRules {
            trusted_proxies: NetworkSet::default(),
            header: HopHeader::XForwardedFor,
            ipv6_prefix_bits: 56,
            is_nat64_unwrapped: false,
        };
        rules.cut(text.parse().expect("an address"))
    }

    #[test]
    fn an_address_has_a_key_under_each_salt_for_as_long_as_it_is_known() {
        let one = address("192.0.2.7");
        let first = Salts::new(b"0123456789abcdef");
        let under_first = first.keys(one, 0);
        assert_eq!(under_first.previous, None);
        assert_eq!(first.keys(one, 5), under_first);
        assert_ne!(first.keys(address("192.0.2.8"), 0), under_first);
        let second = first.rotated(b"fedcba9876543210", 100);
        assert_eq!((first.epoch(), second.epoch()), (0, 1));
        let both = second.keys(one, 99);
        assert_ne!(both.current, under_first.current);
        assert_eq!(both.previous, Some(under_first.current));
        assert_eq!(second.keys(one, 100).previous, None);
    }

    /// The first 16 bytes of `hmac.new(salt, bytes([4, 192, 0, 2, 7] + [0] * 12), "sha256")` and of
    /// `hashlib.sha256(b"bearer\0" + b"secret")` of Python, their lowest bits cleared and set.
    #[test]
    fn keys_are_the_hashes_that_they_are_said_to_be() {
        let keys = Salts::new(b"0123456789abcdef").keys(address("192.0.2.7"), 0);
        assert_eq!(format!("{:?}", keys.current.0), "969af87a9f68f63d72e7bb7abf3765d4");
        assert_eq!(keys.current.to_string(), "969af87a");
        let credential = CredentialKey::new(CredentialKind::BearerToken, b"secret");
        assert_eq!(format!("{:?}", credential.0), "4e5e836a5d856d1582e113957516b40d");
    }

    #[test]
    fn kinds_of_keys_are_kept_apart() {
        let bearer = CredentialKey::new(CredentialKind::BearerToken, b"x");
        let user = CredentialKey::new(CredentialKind::BasicUser, b"x");
        assert_ne!(bearer, user);
        let address = Salts::new(b"0123456789abcdef").keys(address("192.0.2.7"), 0).current;
        assert_eq!(address.0.0[15] & 1, 0);
        assert_eq!((bearer.0.0[15] & 1, user.0.0[15] & 1), (1, 1));
        assert_ne!(Key::of_pair(address, bearer), Key::of_pair(address, user));
    }

    #[test]
    fn salts_are_not_shown() {
        let shown = format!("{:?}", Salts::new(b"0123456789abcdef"));
        assert_eq!(shown, "Salts { epoch: 0, .. }");
    }
}
